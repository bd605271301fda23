"""Questions that one release of bins answers: shares, quantiles, means, each with an interval."""

from dbern.synopsis.questions.answers import Answer
from dbern.synopsis.questions.distribution import Distribution

__all__ = ["Answer", "Distribution"]
