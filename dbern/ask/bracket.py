"""Points of an axis between which an integral passes a value: for quantiles and means of groups.

Integrals up to points grow with the points, whatever the rows. So where the released numbers deny
that the integral up to one point of a public grid has passed a value, they deny it of all before
(docs/intervals.md, "A quantile lies between two neighbours on a public grid").
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dbern.ask.bins import BinView
from dbern.ask.quotients import Contrast
from dbern.ask.splines import Envelope
from dbern.certify.failure import QUOTIENT
from dbern.types import Int64Array

GRID_POINTS = 1024
"""Points between which quantiles and means are distinguished, where cells are no more."""


class GridPoints(NamedTuple):
    """Points of a public grid by index, and a weight's envelope (m, layers, bins) at each.

    Whatever the rows, integrals of the weight grow with the points.
    """

    indices: Int64Array
    envelope: Envelope


def bracket(
    view: BinView,
    coarse: GridPoints,
    at: Callable[[Int64Array], Envelope],
    base: Envelope | None,
    tau: float,
    beta: Fraction,
) -> tuple[int, int, GridPoints]:
    """Return two points between which an integral passes `tau`, and all among which they are.

    It passes `tau` times the integral of a weight in the envelope `base`, or of 1. By the tail at
    coarse points first, so that draws are for points that it does not deny; then by these `at` all
    points in between, unless they are too many.
    """
    points = coarse
    first, last = _neighbors(
        view.first_draws(0), points.envelope, base, tau, beta * QUOTIENT["tail"]
    )
    indices = np.arange(points.indices[first], points.indices[last] + 1)
    if len(indices) - 2 <= max(len(coarse.indices) - 1, 2 * GRID_POINTS):
        points = GridPoints(indices, at(indices))
        first, last = _neighbors(view, points.envelope, base, tau, beta * QUOTIENT["draws"])
    return int(points.indices[first]), int(points.indices[last]), points


def _neighbors(
    view: BinView, envelope: Envelope, base: Envelope | None, tau: float, beta: Fraction
) -> tuple[int, int]:
    """Return the point before the first majorant above 0, and after the last minorant below.

    As far as the released numbers do not deny it.
    """
    lower, upper = (None, None) if base is None else (base.lower, base.upper)
    majorants = Contrast.of_weights(view, envelope.upper, lower)
    minorants = Contrast.of_weights(view, envelope.lower, upper)
    positive = np.flatnonzero(majorants.end_at(tau, 1, view.measure, beta / 2) >= 0)
    negative = np.flatnonzero(minorants.end_at(tau, -1, view.measure, beta / 2) <= 0)
    count = len(envelope.upper)
    start = int(positive[0]) if len(positive) else count
    stop = int(negative[-1]) if len(negative) else 0
    last = min(stop + 1, count - 1)
    return max(min(start, last) - 1, 0), last
