"""Bands of quotients N / D: every m that the released numbers of two arrays do not deny.

At a point let P and Q be the rows in two parts, of weights v and 1 - v, as they are released, ``N =
P - Q``, ``D = P + Q`` and m = N / D, in [-1, 1]. So ``N - m D = (1 - m) P - (1 + m) Q = 0``, and
what is released of it is its error. The interval is of all m that the released numbers do not deny
(Fieller 1954): one of the questions that `dbern.ask.quotients` answers, by the same roots
(`confidence_set`). Where ``N - D`` and ``N + D`` are both within what the noise alone may make, so
is half of their difference, D: it cannot be told from 0, there may be no rows, and there is no
interval; it would be of all values that there may be.
Where they are bins, of one matrix, they err together, by

- ``X_N - m X_D``, at most q times ``sqrt(2) s hypot(1, m)``, s the scale of either: q is one
  simulated quantile of the largest quotient of all y and all m (`ratio_radius`);
- ``int ((1 - m) v - (1 + m) (1 - v)) r_y`` over the records, at most ``sum_j e_j ((1 - m) p_j + (1
  + m) q_j)``. It is read off the released bins p and q (`dbern.synopsis.array_bands`), for m_i =
  -1, 0 and 1 at once. As the size of a number that is affine in m is convex, what bounds it at two
  of the m_i bounds it in between by interpolation.

So a side of the interval is, with mu = (1 + m) / 2, ``2 sum_j ((1 - mu) (a -+ e)_j p_j - mu (a +-
e)_j q_j)``: the side of a mean response (`dbern.ask.responses`) by the splines a - e and a + e. All
that differs is the radius, which is of every y here.

Elsewhere the bounds of the two arrays add up, times 1 - m and 1 + m. The worst database errs by ``1
+ |m|`` times what it does of one array: no weight of r_y above is larger.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple, Protocol

import numpy as np

from dbern.ask.quotients import Contrast, Sides, SquaredNorm, confidence_set
from dbern.certify.certificate import Certificate
from dbern.certify.failure import BAND
from dbern.certify.noise import Radius, ratio_radius
from dbern.combination.responses import Quotient
from dbern.privacy.families import errors_of
from dbern.synopsis.array_bands import (
    ArrayBand,
    BiasOfData,
    CellBiases,
    SmoothedArray,
    granule_of,
)
from dbern.synopsis.smoothing import Smoothing, smoothed
from dbern.types import FloatArray

_NODES = (-1.0, 0.0, 1.0)  # m_i: see the module


class QuotientErrors(NamedTuple):
    """Bounds of ``|N - m D|`` at points: `at_nodes` those of the m_i, and noise of squared `norm`.

    Where ``|N - D|`` and ``|N + D|`` are both at most `undecided`, D cannot be told from 0.
    """

    at_nodes: list[FloatArray]
    norm: SquaredNorm
    undecided: float


class QuotientBand(Protocol):
    """The band of N and D of one quotient."""

    def errors(self, coordinates: FloatArray) -> QuotientErrors:
        """Return what bounds both at points of these `coordinates` (m, l)."""


@dataclass(frozen=True)
class SeparateBands:
    """Bands of P and of Q, each by itself: bounds add up, those of noise too."""

    high: ArrayBand
    low: ArrayBand

    def errors(self, coordinates: FloatArray) -> QuotientErrors:
        """Return the bounds of ``(1 - m) P - (1 + m) Q``."""
        bands, no_norm = (self.high, self.low), SquaredNorm(*np.zeros((3, 1)))
        high, low = (band.at(coordinates) for band in bands)
        missed = [band.certificate.approximation for band in bands]
        at_nodes = [(1 - m) * high + (1 + m) * low for m in _NODES]
        if not any(band.biases for band in bands):  # of any database
            at_nodes = [
                bound - (1 - m) * missed[0] - (1 + m) * missed[1] + (1 + abs(m)) * max(missed)
                for m, bound in zip(_NODES, at_nodes, strict=True)
            ]
        undecided = 2 * max(band.certificate.noise for band in bands)
        return QuotientErrors(at_nodes, no_norm, undecided)


@dataclass(frozen=True)
class BandsOfSums:
    """Bands of N and of D, each by itself, of an older store: bounds add up."""

    top: ArrayBand
    below: ArrayBand

    def errors(self, coordinates: FloatArray) -> QuotientErrors:
        """Return the bound of N and ``|m|`` times that of D."""
        top, below = self.top.at(coordinates), self.below.at(coordinates)
        undecided = self.top.certificate.noise + self.below.certificate.noise
        no_norm = SquaredNorm(*np.zeros((3, 1)))
        return QuotientErrors([top + abs(m) * below for m in _NODES], no_norm, undecided)


@dataclass(frozen=True)
class JointBand:
    """Bands of ``N - m_i D`` for m_i = -1, 0 and 1, of arrays that err together."""

    at_nodes: tuple[ArrayBand, ArrayBand, ArrayBand]

    def errors(self, coordinates: FloatArray) -> QuotientErrors:
        """Return the bounds of the m_i but for noise, and its norm at every m."""
        rest = [band.at(coordinates, noise=False) for band in self.at_nodes]
        _, of_top, at_ends = (band.certificate.noise for band in self.at_nodes)
        squares = np.array([of_top**2, 0.0, at_ends**2 - of_top**2])
        return QuotientErrors(rest, SquaredNorm(*squares[:, None]), at_ends)


def quotient_band(high: SmoothedArray, low: SmoothedArray, beta: Fraction) -> QuotientBand:
    """Return the band of a quotient: of its arrays together where they err so, else of each."""
    if high.bias and low.bias:  # records are counted in both together
        biases = replace(high.bias, rest=low.bias.array), replace(low.bias, rest=high.bias.array)
        high, low = replace(high, bias=biases[0]), replace(low, bias=biases[1])
        if not high.selected and high.smoothing == low.smoothing:
            joint = _joint_band(*biases, high.smoothing, beta)
            if joint:
                return joint
    return SeparateBands(high.band(beta, 2), low.band(beta, 2))


def _joint_band(
    of_high: BiasOfData, of_low: BiasOfData, smoothing: Smoothing, beta: Fraction
) -> JointBand | None:
    """Return the band of two arrays of one component, whose records are counted by them alone."""
    high, low = of_high.array, of_low.array
    if of_high.count_array is not high or of_low.count_array is not low:
        return None
    strategy, law = smoothed(high.strategy, smoothing), high.law
    radius = ratio_radius(strategy, smoothing.h, law, beta * BAND["values"])
    if radius is None:
        return None
    weights, scale = of_high.weights(smoothing), high.value_unit
    approximation, rounding = high.model(smoothing).parts(smoothing.h)
    num_bounds = len(_NODES) * weights.l2.size + of_high.private_rows
    exponent = math.log(num_bounds / (beta * BAND["approximation"]))
    max_total = of_high.max_total(exponent)

    def at_node(m: float) -> ArrayBand:
        size, largest = math.hypot(1 - m, 1 + m), 1 + abs(m)  # norms of the weights of both
        noise = radius.q * size * law.scale * granule_of(high)
        reached = granule_of(high) * errors_of(law).weighted_tail(
            size * weights.l2, largest * weights.largest, exponent
        )
        reached = reached + 2 * high.released_error * weights.l1
        table = weights.read((1 - m) * high.released + (1 + m) * low.released, scale * reached)
        table = np.minimum(table, max_total * largest * approximation)
        certificate = Certificate(
            float(table.max()), max_total * 2 * rounding, scale * noise, float(beta), 0.0
        )
        return ArrayBand(certificate, CellBiases(high, table), array=high)

    first, middle, last = map(at_node, _NODES)
    return JointBand((first, middle, last))


def ratio_ends(
    combination: Quotient, parts: Sequence[FloatArray], errors: QuotientErrors
) -> tuple[FloatArray, FloatArray]:
    """Return the ends of all quotients that the released numbers do not deny, and the quotient.

    NaN where D cannot be told from 0 (see the module). `parts` are both arrays as released at
    points, and `errors` what bounds them there.
    """
    (top, below), value = combination.sums(parts), combination.values(parts)
    low, high = np.full_like(value, math.inf), np.full_like(value, -math.inf)
    nodes = zip(_NODES, errors.at_nodes, strict=True)
    for (start, at_start), (stop, at_stop) in itertools.pairwise(nodes):
        slope = (at_stop - at_start) / (stop - start)
        intercept = at_start - slope * start
        lower = Contrast(top - intercept, below + slope, errors.norm)
        upper = Contrast(top + intercept, below - slope, errors.norm)
        first, last = confidence_set(Sides(value, lower, upper), Radius(1.0), (start, stop))
        low = np.where(first <= last, np.minimum(low, first), low)
        high = np.where(first <= last, np.maximum(high, last), high)
    low, high = (combination.middle + combination.radius * end for end in (low, high))
    empty = np.maximum(np.abs(top - below), np.abs(top + below)) <= errors.undecided
    ends = np.minimum(low, value), np.maximum(high, value)
    low, high = (np.where(empty, np.nan, end) for end in ends)
    return low, high
