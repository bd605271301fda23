"""The nights of a stream: what a night is, its spec, its release, and its windows over time."""
