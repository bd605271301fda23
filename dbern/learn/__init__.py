"""Learners: functions that are solved for, ordered or asked of code, beside sums of kernels."""
