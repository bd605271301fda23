"""Bounds on how far a release is from its function: certificates, noise and lower bounds.

Everything here is computed from public facts and released numbers: errors of approximation for any
database, for the data at hand and for expected data, quantiles of the noise's largest value, and
what no mechanism can do better.
"""
