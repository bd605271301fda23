"""The story of a release: run, publish, reconcile."""
