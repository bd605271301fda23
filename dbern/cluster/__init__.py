"""The Dask cluster: the graph of a release, connections, worker checks."""
