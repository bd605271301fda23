"""Many products of weights at a time: everything about them factors over axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dbern.synopsis.questions.envelopes.splines import Envelope
from dbern.synopsis.questions.measure import Line, Measure
from dbern.types import FloatArray


def product_lines(measure: Measure, axes: Sequence[Envelope]) -> tuple[FloatArray, Line, Line]:
    """Return the estimates and lines of products of weights, without draws: (m,) each.

    They are over the total, and of these data alone. The minorant of `envelopes.splines` is a sum
    of l products, ``L_1 U_2 .. U_l + U_1 (L_2 - U_2) .. U_l + ..``.
    """
    high, low = [axis.upper for axis in axes], [axis.lower for axis in axes]
    gaps = [axis.lower - axis.upper for axis in axes]
    others = ([*high[:turn], gaps[turn], *high[turn + 1 :]] for turn in range(1, len(axes)))
    terms = [[low[0], *high[1:]], *others]
    near = _contracted(measure.values, [axis.estimate for axis in axes])
    return near, _line(measure, terms), _line(measure, [high])


def _line(measure: Measure, terms: Sequence[Sequence[FloatArray]]) -> Line:
    count, size = len(terms[0][0]), measure.values.size
    zeros = np.zeros(count)
    top = sum((_contracted(measure.values, term) for term in terms), zeros)
    square = sum(
        (_product(np.einsum("mj,mj->m", x, y) for x, y in zip(term, other, strict=True))
         for term in terms for other in terms), zeros
    )  # fmt: skip
    mixed = sum((_product(x.sum(axis=1) for x in term) for term in terms), zeros)
    largest = sum((_product(np.abs(x).max(axis=1) for x in term) for term in terms), zeros)
    sizes = sum((_product(np.abs(x).sum(axis=1) for x in term) for term in terms), zeros)
    ones, none = np.ones(count), np.empty((count, 0))
    return Line(
        *(top, measure.values.sum() * ones, square, mixed, size * ones),
        *(largest + 1, measure.bin_error * (sizes + size), none, none),
    )


def _product(factors: Iterable[FloatArray]) -> FloatArray:
    return np.asarray(np.prod(np.stack([*factors]), axis=0))


def _contracted(values: FloatArray, weights: Sequence[FloatArray]) -> FloatArray:
    """Return ``sum_j prod_i w_i[m, j_i] values_j``, axis by axis."""
    first, *others = weights
    sums = first @ values.reshape(len(values), -1)
    for rows in others:
        sums = np.einsum("mj,mjr->mr", rows, sums.reshape(len(rows), rows.shape[1], -1))
    return np.asarray(sums[:, 0])
