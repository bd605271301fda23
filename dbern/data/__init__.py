"""What a record is and where it lies: domain, Parquet, storage."""
