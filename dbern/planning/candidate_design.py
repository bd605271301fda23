"""A candidate for the design of a release, and its predicted errors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dbern.planning.question_widths import BinQuestions, mean_width
from dbern.reconstruct.base import Strategy
from dbern.reconstruct.bins import BinnedStrategy

POINT_MASS = 0.12
"""Fraction of the records taken to be at one point: promises grow with what that misses."""

MIN_POINT_MASS = 0.01
"""The same where a public density says where records are, or signs are random."""

_EXPECTED_POINT_MASS = 0.07


@dataclass(frozen=True)
class CandidateDesign:
    """Strategy and orders of a release, and their predicted errors in unit-cube units.

    `noise` is the mean sup of the noise, `approximation` the error of a typical database, `worst`
    that of the worst, of which `lattice_error` is there whatever the bins. `questions` are those
    that its bins are to answer beside the function.
    """

    strategy: Strategy
    h: tuple[int, ...]
    noise: float
    approximation: float
    worst: float
    certified: bool
    point_mass: float = POINT_MASS
    lattice_error: float = 0.0
    questions: BinQuestions | None = None

    @property
    def two_level(self) -> bool:
        """Whether it is of bins of two levels."""
        bins = self.strategy.bins if isinstance(self.strategy, BinnedStrategy) else ()
        return any(axis.levels is not None for axis in bins)

    @property
    def error(self) -> float:
        """Predicted sup error; where more is asked, the mean of it all."""
        sup_error = self.sup_error
        return sup_error if self.questions is None else mean_width(self.questions.widths(sup_error))

    @property
    def sup_error(self) -> float:
        """Predicted sup error of the function.

        Certified, the worst database adds its error to that of the noise. A typical one's has
        nothing to do with the noise: squares add. Real records crowd: where none says where they
        are, some are taken to be at one point, which errs as the worst database does, but for what
        no choice of bins changes. To choose, more are taken to be there than are expected: bands
        about the data at hand are as wide as records might miss inside the cells they are in, and a
        little more noise makes them much narrower.
        """
        if self.certified:
            return self.noise + self.worst
        crowded = self.point_mass * max(0.0, self.worst - self.lattice_error)
        return math.hypot(self.noise, self.approximation, crowded)

    @property
    def figures(self) -> tuple[float, float, float]:
        """Its noise, its expected error, and what it promises any database."""
        return self.noise, self.expected, self.promise

    @property
    def promise(self) -> float:
        """Predicted error for any database."""
        return self.noise + self.worst

    @property
    def expected(self) -> float:
        """Predicted sup error of typical data."""
        return replace(self, point_mass=min(self.point_mass, _EXPECTED_POINT_MASS)).sup_error
