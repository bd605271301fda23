"""Components: what a release is made of, as its plan, its store and its readers have them."""
