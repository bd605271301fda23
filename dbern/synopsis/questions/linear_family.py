"""The functionals ``a - m k`` of a quotient a / k, for every m, and the m at which they vanish.

At one m it is a functional of the released bins with weights ``w(m) = w_a - m w_k``. Its square
norm is a quadratic in m, so that the m at which it is q norms away from zero are roots of one
(Fieller 1954; docs/intervals.md, "A quotient's interval is every m that the bins do not deny").
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dbern.certify.noise import quantile_rank
from dbern.synopsis.questions.noisy_measure import (
    RELATIVE_ROUNDING,
    BinView,
    Functionals,
    NoisyMeasure,
)
from dbern.types import BoolArray, FloatArray

_PROPORTIONAL = 1e-9  # of products of norms

noise_rank = lru_cache(maxsize=256)(quantile_rank)
"""Rank of the order statistic of draws that bounds noise at a beta; None where they are too few."""


class LinearFamily(NamedTuple):
    """Functionals ``a - m k``, for m from 0 to 1; (m,) each, draws (m, draws).

    `numerator` and `denominator` are the values of a and k on the released bins; `squared`,
    `mixed` and `denominator_squared` are the products ``|w_a|^2``, ``w_a w_k`` and ``|w_k|^2`` of
    their weights. `max_weight` and `rounding_error` bound, for any m, a weight and the effect of
    rounding on the functional.
    """

    numerator: FloatArray
    denominator: FloatArray
    squared: FloatArray
    mixed: FloatArray
    denominator_squared: FloatArray
    max_weight: FloatArray
    rounding_error: FloatArray
    draws: FloatArray
    denominator_draws: FloatArray

    @classmethod
    def of(
        cls, view: BinView, numerator: Functionals, denominator: Functionals | None = None
    ) -> LinearFamily:
        """Return ``numerator - m denominator``; no denominator is the number 1."""
        if denominator is None:
            zero = mixed = np.zeros(1)
            no_draws = np.zeros_like(numerator.draws[:1])
            denominator = Functionals(zero, zero + 1, zero, zero, zero, no_draws)
        else:
            mixed = view.product(numerator.weights, denominator.weights)
        count = min(numerator.draws.shape[1], denominator.draws.shape[1])
        return cls(
            *(numerator.value, denominator.value),
            *(numerator.squared, mixed, denominator.squared),
            numerator.max_weight + denominator.max_weight,
            numerator.rounding_error + denominator.rounding_error,
            *(numerator.draws[:, :count], denominator.draws[:, :count]),
        )

    @classmethod
    def of_weights(
        cls, view: BinView, numerator: FloatArray, denominator: FloatArray | None = None
    ) -> LinearFamily:
        """Evaluate weights (m, layers, bins), and return the family of their functionals."""
        (top,) = view.functionals(numerator)
        return cls.of(view, top, None if denominator is None else view.functionals(denominator)[0])

    def with_unit_denominator(self) -> LinearFamily:
        """Return ``a - m``."""
        zero = np.zeros_like(self.mixed)
        return self._replace(denominator=zero + 1, mixed=zero, denominator_squared=zero)

    def root(self, q: float, loose: float, sign: int) -> FloatArray:
        """Return the last m (sign 1) or first (-1) that is not denied; infinite where none is.

        ``a - m k + sign (rest + q |w(m)|)`` is zero at a root of a quadratic in m.
        """
        numerator = self.numerator + sign * (loose * self.max_weight + self.rounding_error)
        a = self.denominator**2 - q**2 * self.denominator_squared
        b = numerator * self.denominator - q**2 * self.mixed
        c = numerator**2 - q**2 * self.squared
        known = (self.denominator > 0) & (a > 0)
        root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
        return np.where(known, (b + sign * root) / np.where(known, a, 1.0), sign * np.inf)

    def max_standardized_draws(self, cuts: FloatArray, sign: int) -> FloatArray:
        """Bound draws over ``|w(m)|``, (m, draws): the largest for m within `cuts` (pieces + 1, m).

        On a piece ``w(m) x`` is linear in m, so at most the larger of both ends, and ``|w(m)|`` is
        at least its least value.
        """
        values = (-sign * cuts)[..., None] * self.denominator_draws
        values += sign * self.draws
        nearest = self.mixed / np.where(self.denominator_squared > 0, self.denominator_squared, 1.0)
        m = np.clip(nearest, cuts[:-1], cuts[1:])
        size = self.squared + m**2 * self.denominator_squared
        min_square = size - 2 * m * self.mixed - RELATIVE_ROUNDING * size
        known = min_square > _PROPORTIONAL * size
        quotients = np.maximum(values[1:], values[:-1])
        quotients /= np.sqrt(np.where(known, min_square, 1.0))[..., None]
        largest = quotients.max(axis=0)
        largest[~known.all(axis=0)] = np.inf
        return np.asarray(largest)

    def bound(self, m: float, sign: int, measure: NoisyMeasure, beta: Fraction) -> FloatArray:
        """Bound the functionals of one m from above (sign 1), or from below (-1).

        Each bound holds with probability ``1 - beta``, by itself.
        """
        values = sign * (self.draws - m * self.denominator_draws)
        rank = noise_rank(values.shape[1], float(beta)) if values.size else None
        if rank is None:
            q, loose = measure.tail(1, beta)
            noise = q * np.sqrt(np.maximum(self._squared_at(m), 0.0)) + loose * self.max_weight
        else:
            noise = np.partition(values, rank, axis=1)[:, rank]
        return np.asarray(
            self.numerator - m * self.denominator + sign * (noise + self.rounding_error)
        )

    def quotient(self, unknown: float) -> FloatArray:
        """Return released values of ``a / k``, and a number where there is no denominator."""
        known = self.denominator > 0
        return np.where(known, self.numerator / np.where(known, self.denominator, 1.0), unknown)

    def _squared_at(self, m: FloatArray | float) -> FloatArray:
        """Return ``|w(m)|^2``, which roundings may put below 0."""
        return self.squared - 2 * m * self.mixed + m**2 * self.denominator_squared

    @property
    def is_proportional(self) -> BoolArray:
        """Whether a is a multiple of k, whatever is released: it is public, as weights are."""
        both = self.squared * self.denominator_squared
        return np.asarray((both > 0) & (both - self.mixed**2 <= _PROPORTIONAL * both))


def quotient_or_half(values: FloatArray, total: FloatArray) -> FloatArray:
    """Return quotients, and a half where there is no denominator."""
    return np.where(total > 0, values / np.where(total > 0, total, 1.0), 0.5)
