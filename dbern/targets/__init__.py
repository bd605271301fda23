"""Learners: each declares its sensitivity and how records become values."""

from dbern.targets.density import KernelDensity

__all__ = ["KernelDensity"]
