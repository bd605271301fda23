"""Bounds on how far a release is from its function: envelopes, lower bounds and noise."""
