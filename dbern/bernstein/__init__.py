"""Pure mathematics: lattice, Bernstein basis, iterated operator, kernels, approximation error."""
