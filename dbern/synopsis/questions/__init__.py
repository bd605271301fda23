"""What one release of bins can answer: shares, quantiles, means, each with an interval."""

from dbern.synopsis.questions.asking import Answer
from dbern.synopsis.questions.distribution import Distribution

__all__ = ["Answer", "Distribution"]
