"""Regularized empirical risk minimization with proved stability: pure functions of arrays."""
