"""What is released of records: each component proves its sensitivity and says how workers count."""
