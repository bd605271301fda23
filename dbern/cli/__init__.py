"""The ``dbern`` command; everything heavy is imported inside the commands."""
