"""Predictions of a plan for questions about the rows: shares of boxes, and quantiles.

The answer to such a question about released bins (`dbern.synopsis.questions`) is as wide as the
rows between a sharp edge's minorant and majorant, `GAPS` cells, and the noise of the bins under the
weight. Both are predicted here for rows that are spread evenly, at 95 %. Narrow cells make the
first small and the second large, in proportion to the root of their number; a density wants wide
ones. On one axis bins of two levels serve both (`dbern.reconstruct.levels`), on more one array in
between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from dbern.percentages import percent
from dbern.privacy.covariance import NoiseCovariance
from dbern.reconstruct.bins import AxisBins
from dbern.types import FloatArray

GAPS = {1: 1.49, 2: 1.66, 3: 1.80, 5: 2.03, 7: 2.25}
"""Cells between a step's splines, by their degree: on average over where it is."""

NOISE_DEVIATIONS = 1.96
"""Deviations of the noise on either side."""

FINER = {1: (6.0, 9.0, 13.0, 20.0, 30.0, 45.0), 2: (6.0, 9.0, 13.0, 20.0, 30.0, 45.0)}
"""Cells a deviation, by degree, that only edges are worth."""


@dataclass(frozen=True)
class Questions:
    """Questions that a release is to answer: of "density", "mass", "cdf" and "quantile"."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, names: Sequence[str]) -> Questions | None:
        """Return the questions of a spec; None where only the function is asked for."""
        distinct = tuple(dict.fromkeys(names))
        return None if distinct == ("density",) else cls(distinct)

    def widths(
        self,
        axes: Sequence[AxisBins],
        noise: NoiseCovariance,
        density: float,
        exact: Sequence[bool] = (),
    ) -> dict[str, float]:
        """Predict the width of each question's interval in shares; the density's error is given.

        `noise` is the covariance of the bins, in shares of the rows. Axes that are `exact` (none
        where it is empty) have a bin for each value that rows are rounded to: edges cost nothing.
        """
        gaps = [
            0.0 if no_edges else GAPS[bins.degree] / bins.cells
            for bins, no_edges in zip_longest(axes, exact)
        ]

        def width(edges: float, row_fraction: float) -> float:
            square, total = _weight_sums(axes, row_fraction)
            return edges + 2 * NOISE_DEVIATIONS * math.sqrt(
                max(0.0, float(noise.variance(square, total)))
            )

        count = len(axes)
        step = width(max(gaps), 0.5)
        box = width(sum(2 * gap for gap in gaps) / 2 ** (count - 1), 0.5**count)
        widths = {"density": density, "mass": box, "cdf": step, "quantile": step}
        return {name: widths[name] for name in self.names}


def _weight_sums(axes: Sequence[AxisBins], row_fraction: float) -> tuple[FloatArray, FloatArray]:
    """Return sums of squares and sums of the weights of a fraction of evenly spread rows.

    Of two levels, of steps that end anywhere in a wide cell.
    """
    levels = axes[0].levels
    if levels is None:
        total = np.array(row_fraction * math.prod(bins.count for bins in axes))
        return total, total
    bins, first = axes[0].count, round(row_fraction * axes[0].cells)
    ends = np.arange(first, first + levels.times)
    steps = np.asarray(np.arange(bins) < ends[:, None], dtype=np.float64)
    weights = axes[0].on_released(steps)
    return np.square(weights).sum(axis=1).mean(), weights.sum(axis=1).mean()


@dataclass(frozen=True)
class BinQuestions:
    """Questions put to bins whose noise is known; `exact` axes as of `Questions.widths`."""

    questions: Questions
    bins: tuple[AxisBins, ...]
    noise: NoiseCovariance
    exact: tuple[bool, ...] = ()

    def widths(self, density: float) -> dict[str, float]:
        """Predict the width of each question's interval in shares, by the density's error."""
        return self.questions.widths(self.bins, self.noise, density, self.exact)


USUAL = Questions(("density", "mass", "quantile"))
"""What a release is asked where its spec names nothing."""


def mean_width(widths: Mapping[str, float]) -> float:
    """Return the geometric mean, so that no unit counts for more than another."""
    distinct = {name.replace("quantile", "cdf"): width for name, width in widths.items()}
    return math.prod(distinct.values()) ** (1 / len(distinct))


_NAMES = {"mass": "a share", "cdf": "a share up to a value", "quantile": "a quantile"}


def width_text(name: str, width: float, unit: str) -> str:
    """Write a question's predicted width."""
    if name == "density":
        return f"density: off by about {width:.3g}{unit}"
    of = "an axis" if name == "quantile" else "the rows"
    return f"{_NAMES[name]}: an interval of about {percent(width, 2)} of {of}"
