"""Splines below, near and above the weights that questions are about; a file each."""
