"""Records to exact integers."""
