"""Intervals of many products of weights of axes, such as boxes and kernels at points.

Everything about a product factors over axes: its values, norms and largest weights. Few products
are laid out as weights of all bins, with draws of noise; of many only the factors are kept, and the
tail of the noise bounds them (`dbern.synopsis.questions.interval`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from dbern.synopsis.questions.band import Band, band_in_batches
from dbern.synopsis.questions.envelopes.splines import Envelope, products
from dbern.synopsis.questions.interval import Denominator, quotient_interval, undenied_quotients
from dbern.synopsis.questions.linear_family import LinearFamily, quotient_or_half
from dbern.synopsis.questions.noisy_measure import DRAWS, NoisyMeasure
from dbern.synopsis.questions.weight_batches import ProductWeights
from dbern.types import FloatArray

_MAX_LAID_OUT = 1 << 21  # weights of all bins; of more nothing is simulated
_BATCH_WEIGHTS = 1 << 17  # of factors at a time: they stay in a processor's cache


def product_intervals(
    measure: NoisyMeasure, weights: ProductWeights, beta: Fraction, *, of_total: bool
) -> Band:
    """Return shares of products of weights: of many a batch at a time, by the tail for all.

    Of a population all are laid out: what its rows add to the noise is told bin by bin.
    """
    count, used = len(weights), weights.used
    few = count * max(measure.values.size, DRAWS) <= _MAX_LAID_OUT
    if few or measure.spread is not None:
        view = measure.marginal(used) if used else measure.joint()
        denominator = Denominator.total(view) if of_total else None

        def laid_out(batch: slice, beta_i: Fraction) -> Band:
            envelopes = weights.axes(batch)
            inside = products([envelopes[i] for i in used] or envelopes).layered()
            return quotient_interval(view, inside, denominator, beta_i)

        return band_in_batches(count, _MAX_LAID_OUT // view.values.size, beta, laid_out)

    def factored(batch: slice, beta_i: Fraction) -> Band:
        estimate, minorants, majorants = _product_families(measure, weights.axes(batch))
        if of_total:
            estimate, maximum = quotient_or_half(estimate, measure.bins.sum()), 1.0
        else:
            minorants = minorants.with_unit_denominator()
            majorants = majorants.with_unit_denominator()
            maximum = measure.max_total
        return undenied_quotients(estimate, minorants, majorants, measure, beta_i, maximum)

    batch_size = _BATCH_WEIGHTS // sum(splines.count for splines in measure.splines)
    return band_in_batches(count, batch_size, beta, factored)


def _product_families(
    measure: NoisyMeasure, axes: Sequence[Envelope]
) -> tuple[FloatArray, LinearFamily, LinearFamily]:
    """Return estimates (m,), minorants and majorants of products of weights over the total.

    The minorant of `envelopes.splines.products` is a sum of l products, ``L_1 U_2 .. U_l + U_1 (L_2
    - U_2) .. U_l + ..``.
    """
    high, low = [axis.upper for axis in axes], [axis.lower for axis in axes]
    gaps = [axis.lower - axis.upper for axis in axes]
    corrections = (
        [*high[:index], gaps[index], *high[index + 1 :]] for index in range(1, len(axes))
    )
    terms = [[low[0], *high[1:]], *corrections]
    estimate = _contracted(measure.bins, [axis.estimate for axis in axes])
    return estimate, _family_of_sum(measure, terms), _family_of_sum(measure, [high])


def _family_of_sum(measure: NoisyMeasure, terms: Sequence[Sequence[FloatArray]]) -> LinearFamily:
    """Return sums of products of weights (m, bins) of the axes over the total, without draws."""
    count = len(terms[0][0])
    zeros, ones = np.zeros(count), np.ones(count)
    numerator = sum((_contracted(measure.bins, term) for term in terms), zeros)
    terms = [[measure.on_released(rows) for rows in term] for term in terms]
    total = [measure.on_released(np.ones(splines.count)) for splines in measure.splines]
    squared = sum(
        (_product(np.einsum("mj,mj->m", x, y) for x, y in zip(left, right, strict=True))
         for left in terms for right in terms), zeros
    )  # fmt: skip
    pairs = [list(zip(term, total, strict=True)) for term in terms]
    mixed = sum((_product(x @ all_rows for x, all_rows in term) for term in pairs), zeros)
    max_weight = sum((_product(np.abs(x).max(axis=1) for x in term) for term in terms), zeros)
    sizes = sum((_product(np.abs(x).sum(axis=1) for x in term) for term in terms), zeros)
    total_squared = float(_product(np.square(axis).sum() for axis in total))
    max_weight = max_weight + float(_product(np.abs(axis).max() for axis in total))
    sizes = sizes + float(_product(np.abs(axis).sum() for axis in total))
    no_draws = np.empty((count, 0))
    return LinearFamily(
        *(numerator, measure.bins.sum() * ones, squared, mixed, total_squared * ones),
        *(max_weight, measure.bin_error * sizes, no_draws, no_draws),
    )


def _product(factors: Iterable[FloatArray]) -> FloatArray:
    return np.asarray(np.prod(np.stack([*factors]), axis=0))


def _contracted(values: FloatArray, weights: Sequence[FloatArray]) -> FloatArray:
    """Return ``sum_j prod_i w_i[m, j_i] values_j``, axis by axis."""
    first, *remaining = weights
    sums = first @ values.reshape(len(values), -1)
    for rows in remaining:
        sums = np.einsum("mj,mjr->mr", rows, sums.reshape(len(rows), rows.shape[1], -1))
    return np.asarray(sums[:, 0])
