"""What a release costs against rows, coefficients and workers, and what a large one would."""
