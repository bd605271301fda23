"""A promise about the data at hand, for a share of the budget: ``[mechanism] tune``.

A release of bins answers ``sum_j a_j(y) c_j`` where ``F(y) = int K(y - t) dD(t)``. What it misses
is certified for the worst database. Of *these* data it is told by bins that are `times` as fine and
of the same degree: with their operator a', which misses at most w' of any database,

    ``|F(y) - sum_j a_j(y) c_j| <= |sum_i g_i(y) c'_i| + w'``,   ``g = R' a - a'``,

for the finer bins c' of the same records. Here ``c = R c'`` exactly: a B-spline is a sum of
narrower ones, ``beta_j = r^-p sum_i C_i beta'_{r j - (r - 1) p + i}``, C the coefficients of ``(1 +
z + .. + z^{r-1})^{p+1}``; those out of range are zero on the unit interval.

*What is released* beside the bins is one number, T/W: T the largest ``|sum_i g_i(y) c'_i|`` over
public nodes y and all outputs, W a public number with ``sup_t |sum_i g_i(y) beta'_i(t)| <= W`` at
every node.

*How far a record moves it.* ``sum_i g_i(y) c'_i = int g_y(t) dD(t)``, ``|g_y| <= W``. A move of
the database is a signed measure of total variation at most 2/n (a record replaced, whatever its
output), 1/n (added), u times that of units of u rows: just what bounds the l1 norm of bins. So each
of these numbers moves by at most W times that, and so does the largest size of them. What integers
make of c' is within an l1 distance that the bins' own bound counts too; it is weighed by
``max_i |g_i|``, which may be far above W: near the ends B-splines of high degree are nearly
dependent.

*Order.* The number is a center like any other: staged and sealed with the bins, noised after the
one charge, by the very draw that key, seal, law and name make. Its noise and that of the bins
compose: ``tune epsilon`` and ``(1 - tune) epsilon``, in zCDP half the squares of both.

*Between nodes.* g is a polynomial in y but for a tail; nodes of its degree enclose it
(`dbern.certify.noise_quantile.enclose`). With f their factor, l what the tails add (bins sum to
one at most) and X the number's noise,

    ``|F(y) - sum_j a_j(y) c_j| <= f W (T'/W - X + errors) + l + w'``

at every y at once, T' what is released: only X below zero makes it wrong without X, and X is
bounded together with the noise of the bins (`dbern.synopsis.bands`). It holds for the operator a
that T was computed with, and no other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any, Self, cast

import numpy as np

from dbern.bernstein.basis import MOST_K, bernstein_basis
from dbern.bernstein.chebyshev import enclosing_nodes
from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.splines import bin_matrix, local_weights
from dbern.certify.bias_envelopes import MOST_AXES
from dbern.errors import SpecError
from dbern.measure.accumulator import DerivedAccumulator, Errors, Memory
from dbern.measure.measurement import Measurement
from dbern.reconstruct.base import AnyStrategy, Bound, VectorStrategy
from dbern.reconstruct.bins import BinnedStrategy, axis_bins
from dbern.reconstruct.layouts import Lattice, Slab
from dbern.reconstruct.series import Series
from dbern.types import UNIT_ROUNDOFF, FloatArray, Int64Array

NAME = "promise"
"""The array's, and its component's."""

_MOST_SHARE = Fraction(1, 2)
_MOST_NODES = 1 << 24
_OVERSAMPLING = (8, 4, 3, 2)
_PLACES = 4  # times the degree and one, in a cell, where g is bounded
_DAMPING = 1e-13  # of the mean square of a bin
_CUT = 1e-11  # of the norm: what nodes leave to a tail
_SPREAD = 64  # places in a cell, to average a bin over
_FLOATS = 1e-11  # of the coefficients' norm: far above what roundings make of them


# --- What a spec may ask for


def tuned(components: Sequence[Measurement], share: Fraction, kind: str) -> tuple[Measurement, ...]:
    """Return the measurements that a learner releases, with the share left to it.

    Raises SpecError where nothing is proved of such a promise, or the share is too large.
    """
    if share > _MOST_SHARE:
        raise SpecError(
            f"mechanism.tune: is {float(share):g}, a share of epsilon, and at most 1/2. Write "
            'tune = "0.02"'
        )
    one = components[0]
    alone = len(components) == 1 and one.unsigned and one.binned
    if alone and one.chooses:
        raise SpecError(
            "mechanism.tune: a promise for these data is proved for the kernels that it is counted "
            'with, and bandwidth = "auto" chooses them after the noise. Write numbers as its '
            'bandwidth, or tune = "0"'
        )
    if not alone or one.one_lattice or not 1 <= len(one.kernels) <= MOST_AXES:
        raise SpecError(
            f"mechanism.tune: a promise for these data is for one sum of kernels without signs on "
            f'up to {MOST_AXES} axes, and "{kind}" releases another. Write tune = "0", or kind = '
            '"kernel-density" with numbers as its bandwidth'
        )
    return (replace(one, output_fraction=one.output_fraction * (1 - share)),)


# --- Bins and finer ones


def _refinement(cells: int, degree: int, times: int) -> FloatArray:
    # R, (cells + degree, times cells + degree).
    ones = [np.ones(times)] * (degree + 1)
    coefficients = reduce(np.convolve, ones) / float(times**degree)
    found = np.zeros((cells + degree, times * cells + degree))
    for j in range(cells + degree):
        first = times * j - (times - 1) * degree
        inside = slice(max(0, -first), min(len(coefficients), found.shape[1] - first))
        found[j, first + inside.start : first + inside.stop] = coefficients[inside]
    return found


@dataclass(frozen=True)
class Finer:
    """A release of bins beside one of finer bins, at public nodes.

    Both are of the same degrees and order; `finer` has `times` as many cells.
    """

    own: BinnedStrategy
    finer: BinnedStrategy
    h: tuple[int, ...]

    @classmethod
    def of(
        cls, kernels: Sequence[Any], own: BinnedStrategy, h: tuple[int, ...], how: tuple[int, int]
    ) -> Self:
        """Make bins finer, and the lattice that evaluates them."""
        times, lattice = how
        k = tuple(min(MOST_K, lattice * one) for one in own.lattice.k)
        axes = zip(kernels, k, own.bins, h, strict=True)
        bins = tuple(
            axis_bins(kernel, n, times * one.cells, one.degree, order, _DAMPING)
            for kernel, n, one, order in axes
        )
        return cls(own, BinnedStrategy(Lattice(k), bins), h)

    @cached_property
    def _degrees(self) -> list[tuple[int, float, float]]:
        """Degree of both in y by axis, and what its nodes leave to tails."""
        found = []
        for k, n, ours, theirs in zip(
            self.own.lattice.k, self.finer.lattice.k,
            self.own.matrices(self.h), self.finer.matrices(self.h), strict=True,
        ):  # fmt: skip
            one, other = Series.of(k, ours, _CUT), Series.of(n, theirs, _CUT)
            degree = max(len(one.coefficients), len(other.coefficients)) - 1
            found.append((degree, one.tail, other.tail))
        return found

    @cached_property
    def _oversampling(self) -> int:
        for one in _OVERSAMPLING:
            if math.prod(one * degree for degree, *_ in self._degrees) <= _MOST_NODES:
                return one
        raise SpecError(
            f"mechanism.tune: a promise for these data needs more than {_MOST_NODES} places here. "
            'Write tune = "0", or a larger bandwidth'
        )

    @cached_property
    def bases(self) -> list[tuple[FloatArray, FloatArray]]:
        """Return by axis the maps from finer bins to values at nodes: of the release's, of all."""
        found = []
        both = zip(self.own.matrices(self.h), self.finer.matrices(self.h), strict=True)
        for axis, (ours, theirs) in enumerate(both):
            one, fine = self.own.bins[axis], self.finer.bins[axis]
            y, _ = enclosing_nodes(self._degrees[axis][0], self._oversampling)
            ours = ours @ _refinement(one.cells, one.degree, fine.cells // one.cells)
            k, n = self.own.lattice.k[axis], self.finer.lattice.k[axis]
            found.append((bernstein_basis(y, k) @ ours, bernstein_basis(y, n) @ theirs))
        return found

    @property
    def factor(self) -> float:
        """Factor f of the nodes' enclosure."""
        degrees = [degree for degree, *_ in self._degrees]
        return OUTWARD * math.prod(enclosing_nodes(d, self._oversampling)[1] for d in degrees)

    @property
    def loose(self) -> float:
        """Error that tails and floats add to the values at nodes, of bins that sum to one at most.

        So on an axis nothing is above the largest of the bins' own functions, at nodes times f.
        """
        cut = 0.0
        for side in (0, 1):
            whole = grown = 1.0
            for (degree, *tails), pair in zip(self._degrees, self.bases, strict=True):
                factor = enclosing_nodes(degree, self._oversampling)[1]
                size = factor * (float(np.abs(pair[side]).max()) + tails[side]) + tails[side]
                whole, grown = whole * size, grown * (size + 2 * tails[side])
            cut += grown - whole
        return OUTWARD * ((1 + self.factor) * cut + self.factor * _FLOATS * self.largest)

    @cached_property
    def largest(self) -> float:
        """Bound of ``max_i |g_i|`` at every node: the norms of both."""
        ours, theirs = zip(*self.bases, strict=True)
        norms = [math.prod(float(np.abs(one).max()) for one in side) for side in (ours, theirs)]
        return OUTWARD * sum(norms)

    @cached_property
    def bound(self) -> float:
        """Bound W: by axis g is a polynomial of the bins' degree in t on each cell.

        Its values at enclosing nodes there bound it, and over axes ``|prod (b_i + g_i) - prod b_i|
        <= prod (kappa_i + rho_i) - prod kappa_i`` with ``|b_i| <= kappa_i``, ``|g_i| <= rho_i``.
        """
        grown = whole = 1.0
        for (ours, theirs), bins in zip(self.bases, self.finer.bins, strict=True):
            apart, own = _sup(ours - theirs, bins.degree), _sup(theirs, bins.degree)
            grown, whole = grown * (own + apart), whole * own
        return OUTWARD * (grown - whole) + _FLOATS * self.largest

    def missed(self, bins: FloatArray) -> float:
        """Return T of one output's finer bins."""
        largest = 0.0
        for part in self._parts():
            values = [bins, bins]
            for axis, pair in enumerate(self.bases):
                rows = [one[part] if axis == 0 else one for one in pair]
                values = [
                    np.tensordot(one, basis, axes=(0, 1))
                    for one, basis in zip(values, rows, strict=True)
                ]
            largest = max(largest, float(np.abs(values[0] - values[1]).max()))
        return largest

    def evenly_spread(self) -> float:
        """Return T of evenly spread records."""
        bins: Any = 1.0
        for one in self.finer.bins:
            places = (np.arange(_SPREAD * one.cells) + 0.5) / (_SPREAD * one.cells)
            bins = np.multiply.outer(bins, bin_matrix(places, one.cells, one.degree).mean(axis=0))
        return self.missed(np.asarray(bins))

    def _parts(self) -> Iterator[slice]:
        """Split the nodes of the first axis, few enough at a time."""
        others = math.prod(len(one) for one, _ in self.bases[1:])
        step = max(1, (1 << 20) // max(1, others))
        for start in range(0, len(self.bases[0][0]), step):
            yield slice(start, start + step)

    @property
    def contraction(self) -> float:
        """Bound on the float error of T, of bins whose sizes sum to one."""
        terms = sum(bins.rank + 3 for bins in self.finer.bins)
        return OUTWARD * 2 * UNIT_ROUNDOFF * terms * self.largest


def _sup(coefficients: FloatArray, degree: int) -> float:
    """Bound ``|sum_i c_i beta_i(t)|`` of all rows (m, cells + degree), everywhere."""
    nodes, factor = enclosing_nodes(max(1, degree), _PLACES)
    weights = local_weights(2 * nodes - 1, degree)
    cells = coefficients.shape[1] - degree
    found = 0.0
    for place in np.transpose(weights):
        values = sum(w * coefficients[:, r : r + cells] for r, w in enumerate(place))
        found = max(found, float(np.abs(values).max()))
    return OUTWARD * factor * found + _FLOATS * float(np.abs(coefficients).max())


# --- The number that is released


@dataclass(frozen=True)
class MissedAccumulator(DerivedAccumulator):
    """Counts of finer bins that finish as T/W, the largest over their outputs."""

    outputs: int
    finer: Finer
    strategy: VectorStrategy

    @cached_property
    def errors(self) -> Errors:
        """Errors as shares of W.

        *Floats*: of the bins, in the l1 norm, and of their contraction, and of a division.
        *Positions*: a derivative of ``sum_i g_i beta'_i`` is at most that of a bin times 2 max
        ``|g_i|``, which is counted in a bin's.
        """
        found, finer = self.inner.errors, self.finer
        share, size = finer.largest / finer.bound, found.value_bound + found.kernel_norms[0]
        floats = share * found.float_norms[0] + finer.contraction * size / finer.bound
        floats = OUTWARD * (floats + 4 * UNIT_ROUNDOFF * share * size)
        moved = OUTWARD * share * found.kernel_norms[0]
        return Errors(
            kernel=moved,
            kernel_norms=(moved, moved),
            position=OUTWARD * share * found.position,
            floats=floats,
            float_norms=(floats, floats),
            value_bound=OUTWARD * 2 * share * size,
        )

    @property
    def memory(self) -> Memory:
        """Memory of bins as floats, and values at nodes; the bins count their own batches too."""
        found = self.inner.memory
        nodes = math.prod(len(one) for one, _ in self.finer.bases)
        size = self.finer.finer.layout.size
        return replace(found, tables=found.tables + 8 * (4 * size + 4 * min(nodes, 1 << 22)))

    def to_values(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Return T/W, one number."""
        del output, slab
        layout, largest = self.finer.finer.layout, 0.0
        for one in range(self.outputs):
            bins = [self.inner.to_values(state, one, part) for part in layout.slabs()]
            largest = max(largest, self.finer.missed(np.concatenate(bins)))
        return np.array([largest / self.finer.bound])


@dataclass(frozen=True)
class BiasStatistic(Measurement):
    """T/W of the records that a measurement counts, for a share of the budget."""

    measurement: Measurement
    finer: Finer
    name: str = field(default=NAME, kw_only=True)
    entries = ("what these data make the bins miss, as a share of the most",)

    @property
    def function_sensitivity(self) -> float:
        """As of the finer bins, over W."""
        return self.measurement.sensitivity(self.finer.finer, 1).value

    def sensitivity(self, strategy: AnyStrategy, norm: int) -> Bound:
        """As of the finer bins, over W."""
        del strategy, norm
        bins = self.measurement.sensitivity(self.finer.finer, 1)
        return Bound(bins.value, "as the bins, over W")

    def params(self, strategy: AnyStrategy, n: int, tolerance: float) -> dict[str, Any]:
        """Choose integers of the finer bins."""
        del strategy
        return self.measurement.params(self.finer.finer, n, tolerance)

    def from_params(
        self, strategy: AnyStrategy, n: int, params: Mapping[str, Any]
    ) -> MissedAccumulator:
        """Return the finer bins, which finish as T/W."""
        bins, outputs = (
            self.measurement.from_params(self.finer.finer, n, params),
            self.measurement.outputs,
        )
        return MissedAccumulator(bins, outputs, self.finer, cast("VectorStrategy", strategy))


def restored(measurement: Measurement, number: Any, bins: Any) -> BiasStatistic:
    """Return the measurement of a planned number that tells of planned bins."""
    finer = Finer.of(measurement.kernels, bins.strategy, bins.h, tuple(number.promise["how"]))
    fraction = Fraction(number.promise["share"])
    domain = measurement.domain
    return BiasStatistic(
        measurement, finer, name=number.name, domain=domain, output_fraction=fraction
    )
