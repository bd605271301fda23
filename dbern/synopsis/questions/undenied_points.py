"""Points of a public grid that the released bins do not deny (docs/intervals.md).

"A quantile lies between two neighbours on a public grid" has the proof.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dbern.synopsis.questions.envelopes.splines import Envelope
from dbern.synopsis.questions.linear_family import LinearFamily
from dbern.synopsis.questions.noisy_measure import BinView
from dbern.types import FloatArray

GRID_POINTS = 1024
"""Points between which quantiles and means are distinguished, where cells are no more."""


def undenied_range(
    view: BinView,
    below: FloatArray,
    above: FloatArray,
    base: Envelope | None,
    level: float,
    beta: Fraction,
) -> tuple[int, int]:
    """Return the first and last point that are not denied, where some are."""
    start, stop = sign_changes(view, below, above, base, level, beta)
    return min(start, stop), stop


def sign_changes(
    view: BinView,
    below: FloatArray,
    above: FloatArray,
    base: Envelope | None,
    level: float,
    beta: Fraction,
) -> tuple[int, int]:
    """Return the first majorant that may be above 0, and the last minorant that may be below.

    Of ``a - level k``, a between weights `below` and `above` (points, layers, bins) and k in the
    envelope `base`, or 1.
    """
    lower, upper = (None, None) if base is None else (base.lower, base.upper)
    majorants = LinearFamily.of_weights(view, above, lower)
    minorants = LinearFamily.of_weights(view, below, upper)
    positive = np.flatnonzero(majorants.bound(level, 1, view.measure, beta / 2) >= 0)
    negative = np.flatnonzero(minorants.bound(level, -1, view.measure, beta / 2) <= 0)
    start = int(positive[0]) if len(positive) else len(above)
    return start, int(negative[-1]) if len(negative) else 0
