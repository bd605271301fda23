"""Scheduled releases: three worked pipelines and what runs them.

Everything here calls the public names of ``dbern`` or its command line; what a night costs and
whether it may is decided there. README.md beside this file says how to run them.
"""
