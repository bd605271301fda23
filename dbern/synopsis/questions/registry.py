"""Questions that `dbern ask` asks, in the order of its options and answers: a line each."""

from __future__ import annotations

from dbern.synopsis.questions.compare import Comparison
from dbern.synopsis.questions.covariances import Correlation, Covariance
from dbern.synopsis.questions.density import Density, Marginal
from dbern.synopsis.questions.differences import Difference
from dbern.synopsis.questions.mass import Cdf, Count, Mass
from dbern.synopsis.questions.mean import Mean
from dbern.synopsis.questions.quantile import Quantile
from dbern.synopsis.questions.question import OptionQuestion
from dbern.synopsis.questions.responses import Average, Curve

QUESTIONS: tuple[type[OptionQuestion], ...] = (
    *(Mass, Count, Quantile, Cdf, Marginal, Density, Mean, Covariance, Correlation),
    *(Average, Curve, Difference, Comparison),
)
