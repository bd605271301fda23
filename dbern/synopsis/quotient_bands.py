"""Bands of quotients N / D: every m that the released numbers of both arrays do not deny.

At a point let N be the numerator, D the denominator, w and u the weights of a record in them, ``|w|
<= u``, and m = N / D, in [-1, 1]. So ``N - m D = 0``, and what is released of it is its error. The
interval is of all m that the released numbers do not deny (Fieller 1954): one of the questions that
`dbern.ask.quotients` answers, by the same roots (`confidence_set`). Where ``N - D`` and ``N + D``
are both within what the noise alone may make, so is half of their difference, D: it cannot be told
from 0, there may be no rows, and there is no interval; it would be of all values that there may be.
Where one matrix is applied to the bins of both, they err together, by

- ``X_N - m X_D``, at most q times ``hypot(s_N, m s_D)``, the root of both squared scales: q is one
  simulated quantile of the largest quotient of all y and all m (`ratio_radius`);
- ``int (w - m u) r_y`` over the records, at most ``sum_j e_j (c^D_j - m c^N_j)``: as ``|w - m
  u|`` is convex in w and is ``u - m w`` at both ends, it is at most that. It is read off the
  released bins (`dbern.synopsis.array_bands`), for m_i = -1, 0 and 1 at once. As the size of a
  number that is affine in m is convex, what bounds it at two of the m_i bounds it in between by
  interpolation.

So a side of the interval is ``sum_j a_j (z^N_j - m z^D_j) -+ sum_j e_j (z^D_j - m z^N_j)``. With P
= (D + N) / 2, Q = (D - N) / 2 and mu = (1 + m) / 2 that is ``2 sum_j ((1 - mu) (a -+ e)_j P_j - mu
(a +- e)_j Q_j)``: the side of a mean response (`dbern.ask.responses`) by the splines a - e and a +
e. All that differs is the radius, which is of every y here.

Elsewhere the bounds of the two arrays add up, that of D times ``|m_i|``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
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
    """Bands of N and of D, each by itself: bounds add up, those of noise too."""

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


def quotient_band(top: SmoothedArray, below: SmoothedArray, beta: Fraction) -> QuotientBand:
    """Return the band of a quotient: of its arrays together where they err so, else of each."""
    joint = None
    if top.bias and below.bias and not top.selected and top.smoothing == below.smoothing:
        joint = _joint_band(top.bias, below.bias, top.smoothing, beta)
    return joint or SeparateBands(top.band(beta, 2), below.band(beta, 2))


def _joint_band(
    numerator: BiasOfData, denominator: BiasOfData, smoothing: Smoothing, beta: Fraction
) -> JointBand | None:
    """Return the band of arrays that err together; None where these do not."""
    top, below = numerator.array, denominator.array
    shared_by_top, shared_by_below = (
        (a.bins, a.lattice, a.value_unit, a.kernels, type(a.law)) for a in (top, below)
    )
    if (
        shared_by_top != shared_by_below
        or numerator.count_array is not below
        or denominator.count_array is not below
    ):
        return None
    strategy, laws = smoothed(top.strategy, smoothing), (top.law, below.law)
    radius = ratio_radius(strategy, smoothing.h, laws, beta * BAND["values"])
    if radius is None:
        return None
    weights, scale = denominator.weights(smoothing), below.value_unit
    of_top, of_below = (array.model(smoothing).parts(smoothing.h) for array in (top, below))
    num_bounds = len(_NODES) * weights.l2.size + denominator.private_rows
    exponent = math.log(num_bounds / (beta * BAND["approximation"]))
    max_total = denominator.max_total(exponent)
    scales = [array.law.scale * granule_of(array) for array in (top, below)]
    tail = granule_of(below) * errors_of(below.law).weighted_tail(
        weights.l2, weights.largest, exponent
    )

    def at_node(m: float) -> ArrayBand:
        noise = radius.q * math.hypot(scales[0], m * scales[1])
        # Independent sums, so that exponents of their bounds add up; of the larger scale.
        reached = tail * math.hypot(1.0, m * scales[0] / scales[1])
        reached = reached + (below.released_error + abs(m) * top.released_error) * weights.l1
        table = weights.read(below.released - m * top.released, scale * reached)
        worst = max_total * np.add(of_top, np.multiply(abs(m), of_below))
        approximation, rounding = worst.tolist()
        table = np.minimum(table, approximation)
        certificate = Certificate(float(table.max()), rounding, scale * noise, float(beta), 0.0)
        return ArrayBand(certificate, CellBiases(below, table), array=below)

    low, middle, high = map(at_node, _NODES)
    return JointBand((low, middle, high))


def ratio_ends(
    combination: Quotient, parts: Sequence[FloatArray], errors: QuotientErrors
) -> tuple[FloatArray, FloatArray]:
    """Return the ends of all quotients that the released numbers do not deny, and the quotient.

    NaN where D cannot be told from 0 (see the module). `parts` are N and D as released at points,
    and `errors` what bounds them there.
    """
    (top, below), value = parts, combination.values(parts)
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
