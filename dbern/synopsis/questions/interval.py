"""The interval of a quotient of two integrals over the rows: why every answer covers.

Let D be the rows' measure, and ``c_j = int beta_j dD`` the bins, which are released with noise.
Let l and u be coefficients of splines below and above a weight g, and l^k, u^k of those around a
weight ``k >= 0`` (`Envelope`). The answer is ``m = int g dD / int k dD``, in [0, 1] as ``g <= k``.
Of sums over the normalizer of a private number of rows (``k = 1``) m is any number from 0 on.

*Theorem.* For every database `quotient_interval` returns an interval with m in it, with probability
``1 - beta``.

1. *Lemma* (docs/intervals.md, "Splines around a weight bound its integral for every database"):
   ``sum_j l_j c_j <= int g dD <= sum_j u_j c_j``, as D is a measure. As m >= 0, therefore ::

       sum_j (l_j - m u^k_j) c_j <= int (g - m k) dD = 0 <= sum_j (u_j - m l^k_j) c_j

   The two sides are functionals ``a - m k`` of the bins, linear in m, that `quotient_interval`
   makes.
2. The released numbers *deny* an m where a side has the wrong sign by more than its noise. The
   noise of the true m alone has to be bounded, as m does not depend on it: that all others are
   tried costs nothing. The m that are not denied end at roots of quadratics (`undenied_quotients`).
3. The noise of a side of norm |w| is at most q |w|: first by the tail of its law, at its
   fraction of beta in `dbern.certify.failure.QUOTIENT` (`_ends_by_tail`); then, for m between these
   ends, by an order statistic of draws, at the rest (`_ends_by_draws`).

Docs/intervals.md, "A quotient's interval is every m that the bins do not deny", has the proof of 2
and 3, and "A population adds the variance of its rows" what they say of a population.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dbern.certify.failure import QUOTIENT
from dbern.synopsis.questions.band import Band
from dbern.synopsis.questions.envelopes.splines import Envelope
from dbern.synopsis.questions.linear_family import LinearFamily, noise_rank, quotient_or_half
from dbern.synopsis.questions.noisy_measure import BinView, Functionals, NoisyMeasure
from dbern.types import BoolArray, FloatArray

_PIECES = 4  # of an interval, on each of which draws are bounded
_MAX_SIMULATED = 1 << 21  # quotients times draws


class Denominator(NamedTuple):
    """Functionals of k: from below, their values about, and from above."""

    lower: Functionals
    value: FloatArray
    upper: Functionals

    @classmethod
    def of(cls, view: BinView, weights: Envelope) -> Denominator:
        """Evaluate weights (m, layers, bins), or (1, layers, bins) for all that are divided."""
        lower, upper = view.functionals(weights.lower, weights.upper)
        return cls(lower, view.of(weights.estimate), upper)

    @classmethod
    def total(cls, view: BinView) -> Denominator:
        """Return the sum of the first layer: all rows that count."""
        return cls(view.total, view.total.value, view.total)


def quotient_interval(
    view: BinView, numerator: Envelope, denominator: Denominator | None, beta: Fraction
) -> Band:
    """Return ``int g dD`` over ``int k dD``, from 0 to 1, for weights (m, layers, bins) of g.

    All at once with probability ``1 - beta``. Without `denominator` it is the public number of all
    rows, or the normalizer, and ``k = 1``: up to the measure's `max_total`.
    """
    estimate, maximum = view.of(numerator.estimate), 1.0
    lower, upper = view.functionals(numerator.lower, numerator.upper)
    if denominator is None:
        minorants, majorants = LinearFamily.of(view, lower), LinearFamily.of(view, upper)
        maximum = view.measure.max_total
    else:
        estimate = quotient_or_half(estimate, denominator.value)
        minorants = LinearFamily.of(view, lower, denominator.upper)
        majorants = LinearFamily.of(view, upper, denominator.lower)
    return undenied_quotients(estimate, minorants, majorants, view.measure, beta, maximum)


def undenied_quotients(
    estimate: FloatArray,
    minorants: LinearFamily,
    majorants: LinearFamily,
    measure: NoisyMeasure,
    beta: Fraction,
    maximum: float = 1.0,
) -> Band:
    """Return all m from 0 to `maximum` that are not denied, at once with probability ``1 - beta``.

    The values are estimates (m,), moved into these intervals.
    """
    sides = minorants, majorants
    simulated = ~(minorants.is_proportional & majorants.is_proportional)
    draws = majorants.draws.shape[1]
    few = 0 < int(simulated.sum()) * draws <= _MAX_SIMULATED
    rank = noise_rank(draws, float(beta * QUOTIENT["draws"])) if few else None
    beta_tail = beta if rank is None else beta * QUOTIENT["tail"]
    low, high = _ends_by_tail(sides, measure, beta_tail, maximum)
    if rank is not None:
        low, high = _ends_by_draws(sides, (low, high), rank, simulated)
    low = np.minimum(low, maximum)
    high = np.maximum(low, high)
    value = np.clip(estimate, low, high)
    start, stop = np.clip([minorants.quotient(0.0), majorants.quotient(1.0)], low, high)
    cells = np.maximum(stop - start, 0.0)
    return Band(value, low, high, cells)


def _ends_by_tail(
    sides: tuple[LinearFamily, LinearFamily],
    measure: NoisyMeasure,
    beta: Fraction,
    maximum: float,
) -> tuple[FloatArray, FloatArray]:
    """Return the ends (m,) by the tail of a weighted sum of noise, of all sides at once."""
    minorants, majorants = sides
    q, loose = measure.tail(2 * len(minorants.numerator), beta)
    low = np.clip(minorants.root(q, loose, -1), 0.0, maximum)
    return low, np.clip(majorants.root(q, loose, 1), 0.0, maximum)


def _ends_by_draws(
    sides: tuple[LinearFamily, LinearFamily],
    ends: tuple[FloatArray, FloatArray],
    rank: int,
    simulated: BoolArray,
) -> tuple[FloatArray, FloatArray]:
    """Return ends within those by the tail, by the order statistic of a rank of draws.

    Draw by draw the largest quotient of noise and norm, of all m between the ends and of all that
    are simulated, exceeds that at the true m; so does its order statistic. Where a is a multiple of
    k, whatever is released, the tail alone tells as much.
    """
    (minorants, majorants), (low, high) = sides, ends
    cuts = np.linspace(low, high, _PIECES + 1)
    largest = np.maximum(
        minorants.max_standardized_draws(cuts, -1), majorants.max_standardized_draws(cuts, 1)
    )
    q = float(np.sort(largest[simulated].max(axis=0))[rank])
    if not math.isfinite(q):
        return low, high
    return (
        np.where(simulated, np.maximum(low, minorants.root(q, 0.0, -1)), low),
        np.where(simulated, np.minimum(high, majorants.root(q, 0.0, 1)), high),
    )
