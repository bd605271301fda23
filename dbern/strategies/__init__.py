"""What is measured in place of the function: lattice values, spectral coordinates, bins, Gram."""
