"""Weights of an axis under a condition on the others, and means of them.

`NoisyMeasure.conditional` has three layers of the axis's bins: the condition from below, nearly,
and from above.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from dbern.synopsis.questions.band import Band
from dbern.synopsis.questions.envelopes.splines import Envelope
from dbern.synopsis.questions.interval import Denominator, quotient_interval
from dbern.synopsis.questions.noisy_measure import BinView
from dbern.types import FloatArray

LOW, NEAR, HIGH = LAYERS = (0, 1, 2)


def conditional_means(view: BinView, weights: Envelope, beta: Fraction) -> Band:
    """Return means of nonnegative weights (m, bins) of an axis, over those under its condition."""
    ones = np.ones((1, weights.estimate.shape[1]))
    condition = Envelope(*(layer_weights({layer: ones}) for layer in LAYERS))
    return quotient_interval(view, under_condition(weights), Denominator.of(view, condition), beta)


def under_condition(weights: Envelope) -> Envelope:
    """Return weights of the layers for those of an axis times the condition.

    A minorant of the product is ``L_x U + U_x L - U_x U``.
    """
    lower = layer_weights({HIGH: weights.lower - weights.upper, LOW: weights.upper})
    upper = layer_weights({HIGH: weights.upper})
    return Envelope(lower, layer_weights({NEAR: weights.estimate}), upper)


def layer_weights(layers: Mapping[int, FloatArray]) -> FloatArray:
    """Return weights (m, layers, bins), zero but for the layers that are named."""
    rows = np.atleast_2d(next(iter(layers.values())))
    weights = np.zeros((len(rows), len(LAYERS), rows.shape[1]))
    for layer, values in layers.items():
        weights[:, layer] = values
    return weights
