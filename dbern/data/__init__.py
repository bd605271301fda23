"""Records and their sources: domain, Parquet, storage."""
