"""Integrals of polynomials of one axis or two: one ball holds the noise of all of them.

Proof: docs/intervals.md, "One ball holds all functionals of a span".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np

from dbern.certify.noise import quantile_rank
from dbern.synopsis.questions.envelopes.splines import Envelope
from dbern.synopsis.questions.linear_family import LinearFamily
from dbern.synopsis.questions.noisy_measure import BinView, NoisyMeasure
from dbern.synopsis.questions.regions import Boxes, Weights
from dbern.types import FloatArray

Bounds: TypeAlias = FloatArray  # lower and upper, (2,)
PlanePolynomial: TypeAlias = FloatArray  # coefficients of x^i y^j, (3, 3)

CONSTANT = np.diag([1.0, 0.0, 0.0])
_MIN_VARIANCE = 1e-4  # that scales: any is right


@dataclass(frozen=True, eq=False)
class PolynomialSpan:
    """Polynomials of one axis or two, under a condition on the others.

    `condition` is its envelope for the bins of the other axes, in order.
    """

    measure: NoisyMeasure
    axes: tuple[int, ...]
    condition: Envelope
    beta: Fraction

    @classmethod
    def of(
        cls, measure: NoisyMeasure, axes: Sequence[int], box: Boxes, beta: Fraction
    ) -> PolynomialSpan:
        """Return the polynomials of some axes under a condition on the others."""
        return cls(measure, tuple(axes), Weights().other_axes(measure, box, *axes), beta)

    @cached_property
    def view(self) -> BinView:
        """View of all bins."""
        return self.measure.joint()

    @cached_property
    def powers(self) -> list[FloatArray]:
        """Coefficients of 1, t and t^2, (3, bins), of both axes; of one axis the other has 1."""
        powers = [self.measure.splines[axis].powers for axis in self.axes]
        return [*powers, np.array([[1.0], [0.0], [0.0]])][:2]

    def weights(self, polynomial: PlanePolynomial, condition: FloatArray) -> FloatArray:
        """Return the polynomial's weights (1, 1, bins) times those of a condition."""
        weights = np.einsum("ij,ia,jb->ab", polynomial, *self.powers)
        shape = [self.measure.shape[axis] for axis in self.axes]
        other_shape = np.delete(self.measure.shape, self.axes)
        product = np.multiply.outer(weights, condition).reshape(*shape, *other_shape)
        return np.asarray(np.moveaxis(product, range(len(shape)), self.axes)).reshape(1, 1, -1)

    def estimate_weights(self, polynomial: PlanePolynomial) -> FloatArray:
        """Return the weights of the best guess."""
        return self.weights(polynomial, self.condition.estimate)

    def estimate(self, polynomial: PlanePolynomial) -> float:
        """Return the best guess of its integral."""
        return float(self.view.of(self.estimate_weights(polynomial))[0])

    def covariance_estimate(self, f: PlanePolynomial, g: PlanePolynomial) -> float:
        """Estimate the covariance of two functions of released mean 0, less what noise adds.

        The covariance is ``a / m - b c / m^2`` at ``b = c = 0``: half the trace of its second
        derivatives times the covariance of the noise is ``(a v_mm / m - v_am - v_bc) / m^2``.
        """
        product, total = times(f, g), self.estimate(CONSTANT)
        value = self.estimate(product) / total
        functions = product, f, g, CONSTANT
        weights = np.concatenate([self.estimate_weights(function) for function in functions])
        (draws,) = self.view.draws_of(self.measure.on_released(weights))
        if not draws.size:
            return value
        noise = draws @ draws.T / draws.shape[1] / total**2
        return float(value - (value * noise[3, 3] - noise[0, 3] - noise[1, 2]))

    def radius(self, polynomials: list[PlanePolynomial]) -> float:
        """Return the bound R for the span of these polynomials' powers of both axes."""
        used = np.any([polynomial != 0 for polynomial in polynomials], axis=0)
        powers = np.zeros((int(used.sum()), 3, 3))
        powers[(np.arange(len(powers)), *np.nonzero(used))] = 1.0
        rows = [
            self.weights(power, condition) for power in powers for condition in self._conditions
        ]
        basis = self.measure.orthonormal(np.concatenate(rows)[:, 0])
        draws = basis.T @ self.view.noise[0] if self.view.noise.size else np.empty((1, 0))
        rank = quantile_rank(draws.shape[1], float(self.beta)) if draws.size else None
        if rank is not None:
            return float(np.sort(np.sqrt((draws**2).sum(axis=0)))[rank])
        q, loose = self.measure.tail(2 * basis.shape[1], self.beta)
        return float(np.sqrt(((q + loose * np.abs(basis).max(axis=0)) ** 2).sum()))

    @property
    def has_gaps(self) -> bool:
        """Whether the condition is not known exactly."""
        return len(self._conditions) > 1

    @cached_property
    def _conditions(self) -> list[FloatArray]:
        gap = self.condition.upper - self.condition.lower
        middle = (self.condition.upper + self.condition.lower) / 2
        return [middle, gap] if gap.any() else [middle]

    def quotient_bounds(
        self, radius: float, top: tuple[FloatArray, FloatArray], base: tuple[FloatArray, FloatArray]
    ) -> Bounds:
        """Return ends of ``int f 1_G / int k 1_G`` for pairs (f, g >= |f|); k is not negative.

        Above, ``f - r k`` is at most ``f + g gap / 2`` less r times the least of k, or the most
        where r is negative: the larger of both ends is right for either sign. Likewise below.
        """
        below, above = self._sides(*top)
        family = partial(LinearFamily.of_weights, self.view)
        pairs = [(family(below, k), family(above, k)) for k in self._sides(*base)]
        low = min(float(minorants.root(radius, 0.0, -1)[0]) for minorants, _ in pairs)
        high = max(float(majorants.root(radius, 0.0, 1)[0]) for _, majorants in pairs)
        return np.array([low, high])

    def _sides(self, f: FloatArray, bound: FloatArray) -> tuple[FloatArray, FloatArray]:
        middle, *gaps = self._conditions
        center = self.weights(f, middle)
        half_gap = sum((self.weights(bound, gap) / 2 for gap in gaps), np.zeros_like(center))
        return center - half_gap, center + half_gap


@dataclass(frozen=True, eq=False)
class CenteredAxes:
    """Both axes less their released means, scaled to the smaller of their released deviations.

    `u` and `v` are polynomials of one axis each, (3, 3), multiplied by `scales` (2,); `size` is
    their deviation. `square_gaps` (2,) bound by how much the square of each may be less than its
    spline.
    """

    u: PlanePolynomial
    v: PlanePolynomial
    scales: FloatArray
    size: float
    square_gaps: FloatArray

    @property
    def half(self) -> PlanePolynomial:
        """Half the sum of both squares, at least ``|u v|``."""
        return (times(self.u, self.u) + times(self.v, self.v)) / 2

    def means(self, span: PolynomialSpan, radius: float) -> list[Bounds]:
        """Return ends of both means: ``|u|`` is at most ``(u^2 / size + size) / 2``."""
        bounds = [(times(w, w) / self.size + self.size * CONSTANT) / 2 for w in (self.u, self.v)]
        pairs = zip((self.u, self.v), bounds, strict=True)
        return [span.quotient_bounds(radius, pair, (CONSTANT, CONSTANT)) for pair in pairs]


def centered_axes(span: PolynomialSpan) -> CenteredAxes:
    """Return the axes of a span, centered and scaled."""
    total = span.estimate(CONSTANT)
    polynomials, deviations, square_gaps = [], [], []
    for position, axis in enumerate(span.axes):
        t = np.roll(CONSTANT, 1, axis=position)
        mean = float(np.clip(span.estimate(t) / total, 0.0, 1.0))
        centered = t - mean * CONSTANT
        variance = span.estimate(times(centered, centered)) / total
        polynomials.append(centered)
        deviations.append(math.sqrt(max(variance, _MIN_VARIANCE)))
        splines = span.measure.splines[axis]
        square_gaps.append(0.25 / splines.cells**2 if splines.degree == 1 else 0.0)
    size = min(deviations)
    scales = size / np.array([deviations[0], deviations[-1]])
    u, v = scales[0] * polynomials[0], scales[1] * polynomials[-1]
    return CenteredAxes(u, v, scales, size, scales**2 * [square_gaps[0], square_gaps[-1]])


def times(f: PlanePolynomial, g: PlanePolynomial) -> PlanePolynomial:
    """Return the product of two polynomials of degree 1 an axis."""
    product = np.zeros((3, 3))
    for i, j in np.ndindex(2, 2):
        product[i : i + 2, j : j + 2] += f[i, j] * g[:2, :2]
    return product


def product_bounds(x: Bounds, y: Bounds) -> Bounds:
    """Return ends of products of numbers between ends."""
    products = np.multiply.outer(x, y)
    return np.array([products.min(), products.max()])
