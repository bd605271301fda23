"""Neighbours on a public grid between which the released bins put a point of an axis.

Proof: docs/intervals.md, "A quantile lies between two neighbours on a public grid".
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dbern.certify.failure import QUOTIENT
from dbern.synopsis.questions.envelopes.splines import Envelope
from dbern.synopsis.questions.linear_family import LinearFamily
from dbern.synopsis.questions.noisy_measure import BinView
from dbern.types import Int64Array

GRID_POINTS = 1024
"""Points between which quantiles and means are distinguished, where cells are no more."""


class GridPoints(NamedTuple):
    """Points of a public grid by number, and a weight's envelope (m, layers, bins) at each.

    Whatever the rows, integrals of the weight grow with the points.
    """

    numbers: Int64Array
    envelope: Envelope


def bracket(
    view: BinView,
    coarse: GridPoints,
    at: Callable[[Int64Array], Envelope],
    base: Envelope | None,
    level: float,
    beta: Fraction,
) -> tuple[int, int, GridPoints]:
    """Return two points between which an integral passes `level`, and all among which they are.

    It passes `level` times the integral of a weight in the envelope `base`, or of 1. By the tail at
    coarse points first, so that draws are for points that it does not deny; then by these `at` all
    points in between, unless they are too many.
    """
    points = coarse
    first, last = _neighbors(
        view.without_noise_draws(), points.envelope, base, level, beta * QUOTIENT["tail"]
    )
    numbers = np.arange(points.numbers[first], points.numbers[last] + 1)
    if len(numbers) - 2 <= max(len(coarse.numbers) - 1, 2 * GRID_POINTS):
        points = GridPoints(numbers, at(numbers))
        first, last = _neighbors(view, points.envelope, base, level, beta * QUOTIENT["draws"])
    return int(points.numbers[first]), int(points.numbers[last]), points


def _neighbors(
    view: BinView, envelope: Envelope, base: Envelope | None, level: float, beta: Fraction
) -> tuple[int, int]:
    """Return the point before the first majorant above 0, and after the last minorant below.

    As far as the released numbers do not deny it.
    """
    lower, upper = (None, None) if base is None else (base.lower, base.upper)
    majorants = LinearFamily.of_weights(view, envelope.upper, lower)
    minorants = LinearFamily.of_weights(view, envelope.lower, upper)
    positive = np.flatnonzero(majorants.bound(level, 1, view.measure, beta / 2) >= 0)
    negative = np.flatnonzero(minorants.bound(level, -1, view.measure, beta / 2) <= 0)
    count = len(envelope.upper)
    start = int(positive[0]) if len(positive) else count
    stop = int(negative[-1]) if len(negative) else 0
    last = min(stop + 1, count - 1)
    return max(min(start, last) - 1, 0), last
