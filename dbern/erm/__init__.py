"""Solve a shard of a regularized risk with a proved distance to its minimizer."""
