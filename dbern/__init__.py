"""dbern."""
