"""An axis under a condition on the others, and which of its points the bins do not deny.

A `conditional` view has three layers of the axis's bins: the condition from below, nearly, and
from above.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from dbern.synopsis.questions.envelopes.splines import Envelope
from dbern.synopsis.questions.interval import Band, Denominator, LinearFamily, interval
from dbern.synopsis.questions.noisy_measure import BinView
from dbern.types import FloatArray

LOW, NEAR, HIGH = LAYERS = (0, 1, 2)
POINTS = 1024
"""Points between which quantiles and means are distinguished, where cells are no more."""


def mean_weights(view: BinView, weights: Envelope, beta: Fraction) -> Band:
    """Return means of nonnegative weights (m, bins) of an axis, over those under its condition."""
    ones = np.ones((1, weights.estimate.shape[1]))
    base = Envelope(*(layer_weights({layer: ones}) for layer in LAYERS))
    return interval(view, under_condition(weights), Denominator.of(view, base), beta)


def undenied(
    view: BinView,
    below: FloatArray,
    above: FloatArray,
    base: Envelope | None,
    level: float,
    beta: Fraction,
) -> tuple[int, int]:
    """First and last point that are not denied, where some are."""
    start, stop = crossings(view, below, above, base, level, beta)
    return min(start, stop), stop


def crossings(
    view: BinView,
    below: FloatArray,
    above: FloatArray,
    base: Envelope | None,
    level: float,
    beta: Fraction,
) -> tuple[int, int]:
    """First point whose majorant may be above 0, and last whose minorant may be below."""
    lower, upper = (None, None) if base is None else (base.lower, base.upper)
    top, bottom = LinearFamily.through(view, above, lower), LinearFamily.through(view, below, upper)
    up = np.flatnonzero(top.at(level, 1, view.measure, beta / 2) >= 0)
    down = np.flatnonzero(bottom.at(level, -1, view.measure, beta / 2) <= 0)
    return int(up[0]) if len(up) else len(above), int(down[-1]) if len(down) else 0


def under_condition(weights: Envelope) -> Envelope:
    """Weights of the layers for those of an axis times the condition.

    A minorant of the product is ``L_x U + U_x L - U_x U``.
    """
    below = layer_weights({HIGH: weights.lower - weights.upper, LOW: weights.upper})
    above = layer_weights({HIGH: weights.upper})
    return Envelope(below, layer_weights({NEAR: weights.estimate}), above)


def layer_weights(layers: Mapping[int, FloatArray]) -> FloatArray:
    """Weights (m, layers, bins), zero but for the layers that are named."""
    rows = np.atleast_2d(next(iter(layers.values())))
    weights = np.zeros((len(rows), len(LAYERS), rows.shape[1]))
    for layer, values in layers.items():
        weights[:, layer] = values
    return weights
