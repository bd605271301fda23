"""Simultaneous bands for the non-private function, everywhere or at points.

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

*Quotients.* At a point let N be the numerator, D the denominator, w and u the weights of a record
in them, ``|w| <= u``, and m = N / D, in [-1, 1]. So ``N - m D = 0``, and what is released of it is
its error. The interval is of all m that the released numbers do not deny (Fieller 1954): one of the
questions that `dbern.ask.interval` answers, by the same roots (`confidence_set`). Where ``N - D``
and ``N + D`` are both within what the noise alone may make, so is half of their difference, D: it
cannot be told from 0, there may be no rows, and there is no interval; it would be of all values
that there may be. Where one matrix is applied to the bins of both, they err together, by

- ``X_N - m X_D``, at most q times ``hypot(s_N, m s_D)``, the root of both squared scales: q is one
  simulated quantile of the largest quotient of all y and all m (`ratio_radius`);
- ``int (w - m u) r_y`` over the records, at most ``sum_j e_j (c^D_j - m c^N_j)``: as ``|w - m u|``
  is convex in w and is ``u - m w`` at both ends, it is at most that. It is read off the released
  bins, as above, for m_i = -1, 0 and 1 at once. As the size of a number that is affine in m is
  convex, what bounds it at two of the m_i bounds it in between by interpolation.

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
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Literal, TypeAlias, get_args

import numpy as np

from dbern.ask.interval import Contrast, Sides, SquaredNorm, confidence_set
from dbern.ask.labels import response_name
from dbern.ask.points import Order
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.certify.approximation import KernelMixture, remedies_of
from dbern.certify.bias_envelopes import MOST_AXES, BiasEnvelope, bias_envelopes, norms, weighed
from dbern.certify.certificate import Certificate, combined
from dbern.certify.error_summary import ErrorSummary
from dbern.certify.failure import BAND, FIELD, QUOTIENT
from dbern.certify.lower_bounds import GroupPrivacy, LowerBound, strongest_bound
from dbern.certify.noise import Radius, ratio_radius
from dbern.combination.responses import Quotient, Ratio
from dbern.data.domain import volume_unit
from dbern.errors import SpecError
from dbern.model.component import LatticeComponent
from dbern.privacy.budget import PrivacyUnit
from dbern.privacy.families import errors_of
from dbern.reconstruct.bins import AxisBins
from dbern.synopsis.function import Evaluation, ReleasedFunction, is_auto
from dbern.synopsis.metadata import ReleaseMetadata
from dbern.synopsis.released import Released, ReleasedArray
from dbern.synopsis.smoothing import Smoothing, smoothed, smoothings
from dbern.synopsis.store import ReadableStore
from dbern.system import LRUCache, one_thread
from dbern.types import FloatArray

About: TypeAlias = Literal["these-data", "any-database"]
"""What a band is about: the data at hand, as far as they were released, or any database."""
_MOST_BYTES_OF_WEIGHTS = 1 << 26  # of the last designs' weights
_FLOATS = 1e-12  # of the sum of sizes that a sum of products is made of
_NODES = (-1.0, 0.0, 1.0)  # m_i: see the module
NO_ROWS = "no rows here"
"""Words for a missing answer within the bounds: its denominator cannot be told from zero."""
_MAX_CACHED_BANDS = 8


@dataclass(frozen=True, eq=False)
class CellBiases:
    """Bounds on an array's approximation error in public cells, in data units.

    `table` (cells_1, .., cells_l) divides the unit cube of the array's lattice evenly.
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

    def at(self, points: FloatArray, *, noise: bool = True) -> FloatArray:
        """Half-widths at points (m, l) on the array's own axes, or all of them but for noise."""
        certificate = self.certificate if noise else replace(self.certificate, noise=0.0)
        if self.biases is None:
            return np.full(len(points), certificate.total)
        return self.biases.at(points) + (certificate.total - certificate.approximation)


@dataclass(frozen=True)
class BiasOfData:
    """An array, and the one whose bins count each of its records with at least its weight.

    Both are bins of the same axes, and the function is a sum of kernels over records. With
    `private_rows` there may be more records than the normalizer, that values are over.
    """

    array: ReleasedArray
    count_array: ReleasedArray
    private_rows: bool

    def band(
        self, smoothing: Smoothing, beta: Fraction, num_simultaneous: int, *, selected: bool
    ) -> ArrayBand:
        """Return its band about the data at hand; parameters as of `ReleasedArray.certificate`."""
        array = self.array
        certificate = array.certificate(
            smoothing, beta * BAND["values"], num_simultaneous, selected=selected
        )
        count = len(smoothings(array.strategy, array.order)) if selected else 1
        num_simultaneous *= count * array.function_class.choices
        weights = self.bias_weights(smoothing)
        beta_i = beta * BAND["approximation"] / num_simultaneous
        exponent = math.log((weights.l2.size + self.private_rows) / beta_i)
        max_total = self.max_total(exponent)
        worst = max_total * certificate.approximation
        table = np.minimum(self._approximation(weights, exponent), worst)
        rounding, approximation = max_total * certificate.rounding, float(table.max())
        summary = replace(
            certificate, approximation=approximation, rounding=rounding, beta=float(beta)
        )
        return ArrayBand(summary, CellBiases(array, table), certificate.total)

    def _approximation(self, weights: BiasWeights, exponent: float) -> FloatArray:
        """Bound ``sum_j e_j z_j`` of each cell, noise and floats included, in data units."""
        count_array = self.count_array
        reached = errors_of(count_array.law).weighted_tail(weights.l2, weights.largest, exponent)
        rest = _granule(count_array) * reached + count_array.released_error * weights.l1
        return weights.read(count_array.released, self.array.value_unit * rest)

    def max_total(self, exponent: float) -> float:
        """Bound all rows that count over the normalizer, at least 1; of a public number it is 1.

        It fails with probability ``exp(-exponent)``.
        """
        if not self.private_rows:
            return 1.0
        array, total = self.count_array, self.count_array.released / self.count_array.value_unit
        axes = [bins.on_released(np.ones(bins.count)) for bins in array.bins]
        for weights in axes:
            total = np.tensordot(weights, total, axes=1)
        l1, l2, largest = (
            np.array(math.prod(float(np.linalg.norm(weights, order)) for weights in axes))
            for order in (1, 2, math.inf)
        )
        reached = errors_of(array.law).weighted_tail(l2, largest, exponent)
        rest = _granule(array) * reached + array.released_error * l1
        return max(1.0, OUTWARD * float(total + rest))

    def bias_weights(self, smoothing: Smoothing) -> BiasWeights:
        """Return the weights that bound its bias, for the public cells of its axes."""
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


Part: TypeAlias = tuple[Released, BiasOfData | None, Smoothing]
"""An array, what its band follows if anything, and the smoothing."""


def bands_of(
    parts: Sequence[Part], beta: Fraction, *, selected: bool, quotient: bool
) -> list[ArrayBand]:
    """Return a band of each array; of a `quotient` those of `N - m_i D` where they err together.

    All hold at once. `selected` as of `ReleasedArray.certificate`.
    """
    if quotient:
        (_, numerator, smoothing), (_, denominator, denominator_smoothing) = parts
        if numerator and denominator and smoothing == denominator_smoothing:
            joint = _quotient_bands(numerator, denominator, smoothing, beta)
            if joint is not None:
                return joint
    bands = []
    for array, follows, smoothing in parts:
        if follows is None:
            certificate = array.certificate(smoothing, beta, len(parts), selected=selected)
            bands.append(ArrayBand(certificate, promised=certificate.total))
        else:
            bands.append(follows.band(smoothing, beta, len(parts), selected=selected))
    return bands


def _quotient_bands(
    numerator: BiasOfData, denominator: BiasOfData, smoothing: Smoothing, beta: Fraction
) -> list[ArrayBand] | None:
    """Bands of ``N - m_i D`` at public m_i, together; None where both do not err together.

    The smoothing must not be chosen by the released values.
    """
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
    weights, scale = denominator.bias_weights(smoothing), below.value_unit
    of_top, of_below = (array.model(smoothing).parts(smoothing.h) for array in (top, below))
    num_bounds = len(_NODES) * weights.l2.size + denominator.private_rows
    exponent = math.log(num_bounds / (beta * BAND["approximation"]))
    max_total = denominator.max_total(exponent)
    scales = [array.law.scale * _granule(array) for array in (top, below)]
    tail = _granule(below) * errors_of(below.law).weighted_tail(
        weights.l2, weights.largest, exponent
    )
    bands = []
    for m in _NODES:
        noise = radius.q * math.hypot(scales[0], m * scales[1])
        # Independent sums, so that exponents of their bounds add up; of the larger scale.
        reached = tail * math.hypot(1.0, m * scales[0] / scales[1])
        reached = reached + (below.released_error + abs(m) * top.released_error) * weights.l1
        table = weights.read(below.released - m * top.released, scale * reached)
        worst = max_total * np.add(of_top, np.multiply(abs(m), of_below))
        approximation, rounding = worst.tolist()
        table = np.minimum(table, approximation)
        certificate = Certificate(float(table.max()), rounding, scale * noise, float(beta), 0.0)
        bands.append(ArrayBand(certificate, CellBiases(below, table)))
    return bands


def _granule(array: ReleasedArray) -> float:
    return math.ldexp(1.0, array.law.granularity_exponent)


def ratio_ends(
    combination: Quotient,
    parts: Sequence[FloatArray],
    bands: Sequence[ArrayBand],
    coordinates: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return the ends of all quotients that the released numbers do not deny, and the quotient.

    NaN where D cannot be told from 0 (see the module). `parts` are N and D as released at points of
    these `coordinates`, and `bands` theirs, as of `bands_of`.
    """
    noises = [band.certificate.noise for band in bands]
    if len(bands) == len(_NODES):
        rest = [band.at(coordinates, noise=False) for band in bands]
        *_, of_top, at_ends = noises
        squares = of_top**2, 0.0, at_ends**2 - of_top**2
    else:  # bounds add up, those of noise too
        errors = [band.at(coordinates) for band in bands]
        rest = [errors[0] + abs(m) * errors[1] for m in _NODES]
        at_ends, squares = sum(noises), (0.0, 0.0, 0.0)
    norm = SquaredNorm(*np.array(squares)[:, None])
    (top, below), value = parts, combination.values(parts)
    low, high = np.full_like(value, math.inf), np.full_like(value, -math.inf)
    for (start, at_start), (stop, at_stop) in itertools.pairwise(zip(_NODES, rest, strict=True)):
        slope = (at_stop - at_start) / (stop - start)
        intercept = at_start - slope * start
        lower = Contrast(top - intercept, below + slope, norm)
        upper = Contrast(top + intercept, below - slope, norm)
        first, last = confidence_set(Sides(value, lower, upper), Radius(1.0), (start, stop))
        low = np.where(first <= last, np.minimum(low, first), low)
        high = np.where(first <= last, np.maximum(high, last), high)
    low, high = (combination.middle + combination.radius * end for end in (low, high))
    empty = np.maximum(np.abs(top - below), np.abs(top + below)) <= at_ends
    ends = np.minimum(low, value), np.maximum(high, value)
    low, high = (np.where(empty, np.nan, end) for end in ends)
    return low, high


def local_bias_bounds(arrays: Sequence[Released], store: ReadableStore) -> list[BiasOfData | None]:
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


def lower_bound_of(released: ReleaseMetadata, beta: float) -> LowerBound:
    """Return what no mechanism can do better than, by what was released first."""
    first = released.components[0]
    if not isinstance(first, LatticeComponent) or not first.additive:
        return LowerBound()
    epsilon, delta = float(Fraction(released.epsilon)), float(Fraction(released.delta))
    n = released.target.n or released.target.normalizer
    rows = PrivacyUnit.shown(released.unit).max_contributions
    unsigned = first.counted_in == first.arrays and first.oblique is None
    mixture = first.approximation.restore()
    kernels = mixture.kernels if unsigned and isinstance(mixture, KernelMixture) else ()
    privacy = GroupPrivacy(epsilon, beta, n, delta, rows)
    return strongest_bound(first.sensitivity.function, privacy, kernels)


@dataclass(frozen=True)
class BandRequest:
    """A band that fails with probability `beta` at most; parameters as of `Synopsis.band`."""

    beta: Fraction = Fraction(1, 20)
    h: Order = None
    about: About = "these-data"


class ConfidenceBands:
    """Bands around a released function, from public numbers alone."""

    def __init__(self, function: ReleasedFunction) -> None:
        self._function = function
        self._cached = LRUCache[list[ArrayBand]](_MAX_CACHED_BANDS)

    @cached_property
    def local_bias_bounds(self) -> list[BiasOfData | None]:
        """Bound of each array's bias for the data at hand, where the release tells it."""
        return local_bias_bounds(self._function.arrays, self._function.store)

    @property
    def about(self) -> About:
        """Data that a band is about at best."""
        return "these-data" if any(self.local_bias_bounds) else "any-database"

    def of_arrays(self, request: BandRequest, *, raw: bool = False) -> list[ArrayBand]:
        """Return a band of each array, of quotients those of `bands_of`; all hold at once.

        `raw`: of the values before they were shrunk.
        """
        if request.about not in get_args(About):
            raise SpecError(f'about = "{request.about}": write "these-data" or "any-database"')
        arrays, combination = self._function.arrays, self._function.combination
        smoothings, selected = self._function.smoothings(request.h, raw=raw), is_auto(request.h)
        follows: Sequence[BiasOfData | None] = [None for _ in arrays]
        if request.about == "these-data":
            follows = self.local_bias_bounds
        parts = [*zip(arrays, follows, smoothings, strict=True)]
        pairs: Sequence[Sequence[Part]] = [parts]
        if isinstance(combination, Ratio):
            pairs = combination.pairs(parts)
        quotient = isinstance(combination, Ratio) and not selected

        def make_bands() -> list[ArrayBand]:
            bands = partial(bands_of, selected=selected, quotient=quotient)
            with one_thread():  # as plans do: threads wait longer than small matrices take
                return [band for pair in pairs for band in bands(pair, request.beta / len(pairs))]

        return self._cached((request.beta, smoothings, selected, request.about), make_bands)

    def certificate(self, request: BandRequest) -> Certificate:
        """Return the half-width that holds over the whole domain, in its parts."""
        parts = [band.certificate for band in self.of_arrays(request)]
        beta = float(request.beta)
        lower_bound = lower_bound_of(self._function.store.released, beta)
        return replace(combined(self._function.combination, parts, lower_bound), beta=beta)

    def failure_text(self, beta: Fraction) -> str:
        """Return who may fail with which share of beta, in a band and in an answer."""
        budgets = {"band and interval": FIELD}
        if self.about == "these-data":
            budgets = {
                "band and interval, about these data": BAND,
                "a question of distribution()": QUOTIENT,
            }
        lines = (line for claim, budget in budgets.items() for line in (claim, *budget.lines(beta)))
        return "\n".join([f"each part may fail with this share of beta {float(beta):g}", *lines])

    def prepare(self, request: BandRequest) -> None:
        """Compute the bands that intervals are made from, or refuse the request."""
        self.of_arrays(request, raw=True)

    def interval(
        self, points: FloatArray, request: BandRequest, total: int, threads: int = 1
    ) -> FloatArray:
        """Return the ends at points (m, l), low and high last; `total` as of `ReleasedFunction`.

        NaN outside the bounds, and of a quotient where there may be no rows (`ratio_ends`).
        """
        combination = self._function.combination
        if isinstance(combination, Ratio):
            ends = self._ends_of_quotients(combination, points, request, total, threads)
        else:
            ends = self._ends(points, request, total, threads)
        return np.stack(ends, axis=-1)

    @property
    def may_be_missing(self) -> bool:
        """Whether `interval` may be NaN within the bounds, where there may be no rows."""
        return isinstance(self._function.combination, Ratio)

    def answers(
        self, points: FloatArray, request: BandRequest, total: int, threads: int = 1
    ) -> FloatArray:
        """Return value, low and high last, the value NaN too where the ends are.

        The released function has a number there, which FORMAT.md defines, but no row stands for it.
        """
        ends = self.interval(points, request, total, threads)
        evaluation = self._function.evaluation(request.h)
        values = self._function.values(points, evaluation, total, threads)
        values = np.where(np.isnan(ends[..., 0]), np.nan, values)
        return np.concatenate([values[..., None], ends], axis=-1)

    def _ends_of_quotients(
        self,
        combination: Ratio,
        points: FloatArray,
        request: BandRequest,
        total: int,
        threads: int,
    ) -> tuple[FloatArray, FloatArray]:
        function, bands = self._function, self.of_arrays(request, raw=True)
        smoothings = function.smoothings(request.h, raw=True)
        parts = function.parts(points, smoothings, total, threads)
        coordinates = function.coordinates(function.arrays[0], points)
        quotients = combination.quotients
        count = len(bands) // len(quotients)
        pairs = zip(quotients, combination.pairs(parts), range(0, len(bands), count), strict=True)
        bounds = [
            ratio_ends(quotient, pair, bands[i : i + count], coordinates)
            for quotient, pair, i in pairs
        ]
        low, high = np.stack(bounds, axis=-1) if combination.multi_output else bounds[0]
        outside = ~function.domain.inside(points)
        low[outside] = high[outside] = np.nan
        return low, high

    def _ends(
        self, points: FloatArray, request: BandRequest, total: int, threads: int
    ) -> tuple[FloatArray, FloatArray]:
        function, bands = self._function, self.of_arrays(request, raw=True)
        combination = function.combination
        raw, shrunk = (function.smoothings(request.h, raw=raw) for raw in (True, False))
        errors = [
            np.asarray(band.certificate.total)
            if combination.uniform
            else band.at(function.coordinates(array, points))
            for array, band in zip(function.arrays, bands, strict=True)
        ]
        values = function.values(points, Evaluation(raw), total, threads)
        width = combination.errors(errors)
        low, high = values - width, values + width
        if combination.pointwise:
            low, high = combination.to_range(low), combination.to_range(high)
        if shrunk != raw:  # the values themselves, of shrunk bins
            values = function.values(points, Evaluation(shrunk), total, threads)
            low, high = np.minimum(low, values), np.maximum(high, values)
        return low, high


def summarize_errors(
    function: ReleasedFunction, these_data: float | None, largest: float | None
) -> ErrorSummary:
    """Return the errors of a function.

    `these_data` is the half-width of a band about the data at hand, where there is one; `largest`
    is the largest released value.
    """
    metadata, first = function.store.attributes, function.arrays[0]
    certificate = metadata["certificate"]
    function_class = first.function_class if isinstance(first, ReleasedArray) else None
    perturbed = metadata["target"].get("method") == "objective"
    extent = function.combination.extent(_value_range(function))
    return ErrorSummary(
        expected=metadata.get("expected_error"),
        these_data=these_data,
        any_database=certificate["total"] + function.shaping_error,
        beta=certificate["beta"],
        unit=_value_unit(function),
        largest=largest,
        extent=tuple(metadata["extent"]) if "extent" in metadata else extent,
        released=True,
        pointwise=function.combination.pointwise,
        on_lattice=function_class is not None,
        remedies=remedies_of(function_class, perturbed, bool(function.domain.categorical)),
    )


def _lattices(function: ReleasedFunction) -> list[ReleasedArray]:
    """Return the arrays of a function, where each has a lattice; else none."""
    lattices = [array for array in function.arrays if isinstance(array, ReleasedArray)]
    return lattices if len(lattices) == len(function.arrays) else []


def _value_range(function: ReleasedFunction) -> tuple[float, float] | None:
    """Return the range of the values that records can give to arrays, where it is known."""
    lattices = _lattices(function)
    top = max((array.value_unit * array.highest for array in lattices), default=math.inf)
    signed = any(array.counted_in != array.name for array in lattices)
    return None if top == math.inf else (-signed * top, top)


def _value_unit(function: ReleasedFunction) -> str:
    domain, lattices, metadata = function.domain, _lattices(function), function.store.attributes
    density = (
        bool(lattices)
        and domain.volume > 0
        and all(array.kernels and array.value_unit == 1 / domain.volume for array in lattices)
    )
    volume, response = volume_unit(domain.axes, labels=True), response_name(metadata)
    return function.combination.unit_text(volume, density=density, response=response)
