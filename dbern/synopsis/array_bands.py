"""Bands of one released array: half-widths that hold everywhere, from public numbers alone.

Half a width is the bias bound of the point's cell, rounding and a quantile of the noise's largest
value, which fail together with probability beta at most (`dbern.certify.failure.BAND`); proofs are
here and in docs/bands.md.

*For these data.* The certificate's first part is that of the worst database. Where bins were
released it can be had for the database at hand, from the released numbers alone:
`dbern.certify.bias_envelopes` proves

    ``|F(y) - sum_j a_j(y) c_j| <= sum_j e_j c_j``

for the unknown c, with public e_j >= 0 for each public cell I of y. What is released of c_j is
``z_j = c_j + x_j + f_j``, x_j the noise and ``|f_j|`` at most the published error of a released
value. So the right side is at most ``sum_j e_j z_j - sum_j e_j x_j + max |f| sum_j e_j``, and
``-sum_j e_j x_j`` exceeds ``weighted_tail(|e|_2, |e|_inf, ..)`` of no cell but with the share of
beta that `BAND` has for it; the quantile of the values' own noise is told at the rest. The two
events hold at once, at every y, however the point was chosen, for whatever database: bounds of the
worst database are not needed, and the smaller of both is taken cell by cell, as they hold surely.
Nothing here reads anything but the release: it is post-processing.

*A private number of rows* may be any multiple of the normalizer, and what is certified of the worst
database, as its bias and its rounding, grows with it. So both are multiplied by a bound of all rows
over the normalizer, the sum of the bins and the tail of its noise: it is one more of the sums that
the share of beta is dealt out to.

An order, rank or bandwidth chosen after the release is one of a public list: each of its candidates
gets its part of beta, as the certificate's do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.certify.bias_envelopes import MOST_AXES, BiasEnvelope, bias_envelopes, norms, weighed
from dbern.certify.certificate import Certificate
from dbern.certify.failure import BAND
from dbern.privacy.families import errors_of
from dbern.reconstruct.bins import AxisBins
from dbern.synopsis.released import Released, ReleasedArray
from dbern.synopsis.smoothing import Smoothing, smoothings
from dbern.synopsis.store import ReadableStore
from dbern.system import LRUCache
from dbern.types import FloatArray

_MOST_BYTES_OF_WEIGHTS = 1 << 26  # of the last designs' weights
_FLOATS = 1e-12  # of the sum of sizes that a sum of products is made of


@dataclass(frozen=True, eq=False)
class CellBiases:
    """Bounds on an array's approximation error in public cells, in data units.

    `table` (cells_1, .., cells_l) divides the unit cube of the array's lattice evenly. Where edges
    are not natural it is of errors at the ends, as certificates are (`Released.relative_errors`).
    """

    array: ReleasedArray
    table: FloatArray

    def at(self, points: FloatArray) -> FloatArray:
        """Return the bounds of the cells of points (m, l) on the array's own axes."""
        counts = np.array(self.table.shape)
        positions = np.nan_to_num(self.array.cube_positions(points))
        cell = np.clip((positions * counts).astype(np.int64), 0, counts - 1)
        return np.asarray(self.table[tuple(cell.T)])


@dataclass(frozen=True, eq=False)
class ArrayBand:
    """Half-widths of one array's band: a bound everywhere, and approximation errors by cell.

    Without `biases` the approximation part of the certificate holds in every cell. `promised` is
    what public facts tell of it: with a public number of rows none is wider, whatever these are.
    """

    certificate: Certificate
    biases: CellBiases | None = None
    promised: float = math.inf
    array: Released = field(kw_only=True)

    def at(self, points: FloatArray, *, noise: bool = True) -> FloatArray:
        """Half-widths at points (m, l) on the array's own axes, or all of them but for noise."""
        certificate = self.certificate if noise else replace(self.certificate, noise=0.0)
        widths = np.full(len(points), certificate.total)
        if self.biases is not None:
            widths = self.biases.at(points) + (certificate.total - certificate.approximation)
        return widths * self.array.relative_errors(points)


@dataclass(frozen=True)
class BiasOfData:
    """An array, and the one whose bins count each of its records with at least its weight.

    Both are bins of the same axes, and the function is a sum of kernels over records. With
    `private_rows` there may be more records than the normalizer, that values are over. `rest` has
    the rest of its records where these are in two arrays of one component.
    """

    array: ReleasedArray
    count_array: ReleasedArray
    private_rows: bool
    rest: ReleasedArray | None = None

    def of_cells(self, weights: BiasWeights, exponent: float) -> FloatArray:
        """Bound ``sum_j e_j z_j`` of each cell, noise and floats included, in data units."""
        count_array = self.count_array
        reached = errors_of(count_array.law).weighted_tail(weights.l2, weights.largest, exponent)
        rest = granule_of(count_array) * reached + count_array.released_error * weights.l1
        return weights.read(count_array.released, self.array.value_unit * rest)

    def max_total(self, exponent: float) -> float:
        """Bound all rows that count over the normalizer, at least 1; of a public number it is 1.

        It fails with probability ``exp(-exponent)``.
        """
        if not self.private_rows:
            return 1.0
        array, total = self.count_array, self.count_array.released / self.count_array.value_unit
        outputs = 1 if self.rest is None else 2
        if self.rest is not None:
            total = total + self.rest.released / array.value_unit
        axes = [bins.on_released(np.ones(bins.count)) for bins in array.bins]
        for weights in axes:
            total = np.tensordot(weights, total, axes=1)
        l1, l2, largest = (
            np.array(math.prod(float(np.linalg.norm(weights, order)) for weights in axes))
            for order in (1, 2, math.inf)
        )
        l1, l2 = outputs * l1, math.sqrt(outputs) * l2
        reached = errors_of(array.law).weighted_tail(l2, largest, exponent)
        rest = granule_of(array) * reached + array.released_error * l1
        return max(1.0, OUTWARD * float(total + rest))

    def weights(self, smoothing: Smoothing) -> BiasWeights:
        """Return the weights that bound it, for the public cells of its axes."""
        array = self.array
        pairs = zip(array.bins, smoothing.ranks, strict=True)
        used = tuple(bins.using(rank or bins.rank) for bins, rank in pairs)
        axes = array.kernels, tuple(array.lattice.k), tuple(smoothing.h), used
        key = (*axes, self.count_array.bins)
        return _BIAS_WEIGHTS(key, lambda: BiasWeights.of(*key))


class BiasWeights:
    """The weights e_j of released bins in every cell, as envelopes of the axes, and their norms.

    They depend on the design alone, so that all its releases share them.
    """

    def __init__(self, envelopes: Sequence[BiasEnvelope]) -> None:
        self.envelopes = envelopes
        self.l1, self.l2, self.largest = (norms(envelopes, order) for order in (1, 2, math.inf))
        self._sizes = [
            BiasEnvelope(np.abs(envelope.kernel), np.abs(envelope.error)) for envelope in envelopes
        ]

    @classmethod
    def of(
        cls,
        kernels: Sequence[Kernel],
        k: Sequence[int],
        h: Sequence[int],
        used: Sequence[AxisBins],
        counted: Sequence[AxisBins],
    ) -> BiasWeights:
        """Return the envelopes of the axes as weights of the `counted` bins as released."""
        envelopes = bias_envelopes(kernels, k, h, used, counted)
        return cls(
            [
                BiasEnvelope(*map(bins.on_released, (envelope.kernel, envelope.error)))
                for bins, envelope in zip(counted, envelopes, strict=True)
            ]
        )

    @property
    def nbytes(self) -> int:
        """Memory that it takes: norms have a value for each cell of all axes together."""
        norms_bytes = self.l1.nbytes + self.l2.nbytes + self.largest.nbytes
        axes = (axis.kernel.nbytes + axis.error.nbytes for axis in self.envelopes)
        return norms_bytes + 2 * sum(axes)  # their sizes are kept too

    def read(self, values: FloatArray, reached: FloatArray) -> FloatArray:
        """Bound ``sum_j e_j z_j`` of each cell, at least 0; `reached` is what noise may add."""
        floats = _FLOATS * weighed(np.abs(values), self._sizes)
        bounds = weighed(values, self.envelopes) + floats + reached
        return np.asarray(OUTWARD * np.maximum(bounds, 0.0))


_BIAS_WEIGHTS = LRUCache[BiasWeights](_MOST_BYTES_OF_WEIGHTS, lambda weights: weights.nbytes)


@dataclass(frozen=True)
class SmoothedArray:
    """A released array as it is smoothed, and its bias for the data at hand, if that is told.

    `selected`: the smoothing was chosen by looking at the values.
    """

    array: Released
    bias: BiasOfData | None
    smoothing: Smoothing
    selected: bool

    def band(self, beta: Fraction, num_simultaneous: int) -> ArrayBand:
        """Return a band that holds, with all of `num_simultaneous`, but with probability `beta`."""
        if self.bias is None:
            certificate = self._certificate(beta, num_simultaneous)
            return ArrayBand(certificate, promised=certificate.total, array=self.array)
        array, bias = self.bias.array, self.bias
        certificate = self._certificate(beta * BAND["values"], num_simultaneous)
        count = len(smoothings(array.strategy, array.order)) if self.selected else 1
        num_simultaneous *= count * array.function_class.choices
        weights = bias.weights(self.smoothing)
        beta_i = beta * BAND["approximation"] / num_simultaneous
        exponent = math.log((weights.l2.size + bias.private_rows) / beta_i)
        max_total = bias.max_total(exponent)
        worst = max_total * certificate.approximation
        factor = array.function_class.edge_factor
        table = np.minimum(factor * bias.of_cells(weights, exponent), worst)
        rounding, approximation = max_total * certificate.rounding, float(table.max())
        summary = replace(
            certificate, approximation=approximation, rounding=rounding, beta=float(beta)
        )
        return ArrayBand(summary, CellBiases(array, table), certificate.total, array=array)

    def _certificate(self, beta: Fraction, num_simultaneous: int) -> Certificate:
        return self.array.certificate(
            self.smoothing, beta, num_simultaneous, selected=self.selected
        )


def granule_of(array: ReleasedArray) -> float:
    """Return the unit of the array's noise."""
    return math.ldexp(1.0, array.law.granularity_exponent)


def biases_of_data(arrays: Sequence[Released], store: ReadableStore) -> list[BiasOfData | None]:
    """Return for each array of a release the bracket that its band follows, or None.

    It is there where both arrays are bins of the same axes, at most `MOST_AXES`.
    """
    private_rows = store.released.target.n is None
    functions = {
        released.name: released for released in arrays if isinstance(released, ReleasedArray)
    }
    bounds: list[BiasOfData | None] = []
    for released in arrays:
        array = functions.get(released.name)
        count_array = None if array is None else functions.get(array.counted_in or "")
        if array is None or count_array is None or not 1 <= len(array.axes) <= MOST_AXES:
            bounds.append(None)
            continue
        same = (count_array.axes, count_array.oblique) == (array.axes, array.oblique)
        fits = same and array.kernels and array.bins and count_array.bins
        bounds.append(BiasOfData(array, count_array, private_rows) if fits else None)
    return bounds
