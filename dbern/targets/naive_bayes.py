"""Naive Bayes with kernel or Gaussian likelihoods, factored or as one function.

The score of a class is its share times one likelihood an axis, a kernel density or Gaussian.
*Factored* releases are noisy sums: one kernel sum an axis and class (`dbern.counting.kernel_sums`)
with the counts of the classes, which those do not determine, or counts, sums and squares; the
scores follow, with proved errors (`dbern.combination.scores`). A *joint* release is the paper's one
function on the lattice. A record that is null in any axis, or of an unknown class, counts nowhere.

Class sums
----------
Counts of classes, and each class's sums and squares of the axes, are a vector of exact integers.
A record of class c whose positions, mapped to z in [-1, 1]^l, adds ``(1, z_1 .. z_l, z_1^2 - 1/2 ..
z_l^2 - 1/2)`` to the entries of c, or 1 alone, all in units of ``2^-s`` as integers; a missing
record adds nothing. For each axis of categories it adds 1 to the cell of c and its listed value
besides; a value that is not listed makes the record missing. Division by n and the noise come
after. Squares of z, less 1/2, have the same noise as sums, where it takes more of a variance than
of a mean: with ``u = z/2`` and squares in [0, 1/4] they had two to four times as much, for their
part of the sensitivity was a third of what it is.

Sensitivity of class sums
-------------------------
*Another class*: the two contributions are in different entries, each of l1 norm at most ``1 + (1 +
1/2) l`` and squared l2 norm ``1 + max (z^2 + (z^2 - 1/2)^2) l = 1 + 1.25 l``, as ``z^4 + 1/4`` is
that. Together ``2 + 3 l`` and ``2 + 2.5 l``, attained by corners. Rounding is monotone, and corners
are integers: it adds nothing.

*The same class*: the counts cancel. On an axis, with ``d = |z - w|/2`` in [0, 1] and ``|z + w|/2 <=
1 - d``, the sum moves by 2 d and the square by at most ``4 d (1 - d)``: together at most 2.25, at d
= 3/4; and squared by at most ``4 d^2 + 16 d^2 (1 - d)^2 <= 4``, because ``4 d^2 (1 - d) <= 16/27 <=
1 + d``. So ``2.25 l`` in the l1 norm and ``4 l`` squared in the l2 norm, to which rounding adds a
unit for each sum and square (`Errors.kernel_norms`). The missing record leaves less than either.

*Categories*: for each of m such axes a record has one cell, and a replaced one moves two by 1 each,
whatever else changes: 2 m more in the l1 norm, and squared in the l2 norm.

So ``Delta1 <= (2 + 3 l)/n`` and ``Delta2^2 <= max(2 + 2.5 l, 4 l)/n^2``; counts alone move by
``2/n`` and ``sqrt(2)/n``; with categories 2 m more of Delta1 n and of its square Delta2^2 n^2.

*Under add-or-remove-one* one contribution is added, over the public normalizer n: ``Delta1 <= (1 +
1.5 l)/n`` and ``Delta2^2 <= (1 + 1.25 l)/n^2``; of counts alone ``1/n``; with categories m more.

The joint function
------------------
It is ``F = Pr(y|+) Pr(+) - Pr(y|-) Pr(-)``, where
``Pr(y|c) = prod_i (1/m) sum_{d in c} K_i(y_i - d_i)`` over the m records of c, ``Pr(c) = m/n``; an
empty class scores zero. F is computed from the same integer sums as one density an axis and class.

Sensitivity of the joint function
---------------------------------
Let ``P = prod_i K_i(0)``. *One more record* changes a class's score by at least ``-(l-1) P/n`` and
at most ``P/n``. With q_i the means of m kernels and v_i those of the new record, n times the change
is ``(m+1) prod_i (m q_i + v_i)/(m+1) - m prod_i q_i``, affine in each of q_i, v_i in [0, K_i(0)]:
its extremes are at corners, and in units of P these are 0 or 1. If all q_i are 1 and j of the v_i
are 0, it is ``(m+1) (m/(m+1))^j - m``, at most 1 and at least ``(m+1) (1 - l/(m+1)) - m = 1 - l``
(Bernoulli). If some q_i is 0 it is ``(m+1) prod_i q'_i``, where one factor is at most ``1/(m+1)``:
in [0, 1]. With m = 0 it is ``prod_i v_i``, in [0, 1].

*A replacement* takes a record away and adds one. Within a class its score changes by at most ``l P/
n``. From one class to the other F changes by twice ``-(l-1) P/n`` to ``P/n`` at most, as one score
counts negatively. So ``S(F) <= 2 max(1, l-1) P / n``, of which ``l P/n`` is never more; the
missing record leaves less. The paper's bound is smaller, and false: see the tests.

*Under add-or-remove-one* it is one record more or less: ``S(F) <= max(1, l-1) P / n``, n the public
normalizer of shares and sums. That is half, and so is the effective kernel's part.

F is no sum over records, so the movement of N values is bounded by N (or sqrt(N)) times S(F) alone.

Effective kernel of the joint function
--------------------------------------
The integers represent ``K~_i`` with ``|K~_i - K_i| <= rho_i``. The derivative of the change above
by v_i is ``prod_{j != i} q'_j``; that by q_i is ``m (prod_{j != i} q'_j - prod_{j != i} q_j)``, and
``|q'_j - q_j| = |v_j - q_j|/(m+1) <= (K_j(0) + 2 rho_j)/(m+1)``, so telescoped at most ``(l-1)
prod_{j != i} (K_j(0) + 2 rho_j)``. One more record hence changes F~ by at most

    ``E/n,   E = l sum_i rho_i prod_{j != i} (K_j(0) + 2 rho_j)``

more than F, a replacement by ``2E/n``. And ``|F~ - F| <= prod (K_i(0) + rho_i) - P <= E``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

import numpy as np
from pydantic import Field

from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.combination.base import Combination
from dbern.combination.functions import Identity
from dbern.combination.gaussian_scores import GaussianScores
from dbern.combination.kernel_scores import KernelScores
from dbern.counting.kernel_sums import ByCategory, KernelSum, SumAccumulator
from dbern.counting.measurement import Measurement, RecordSum
from dbern.counting.passes import Errors, Memory, RecordAccumulator
from dbern.counting.vector_sums import VectorAccumulator, VectorSum
from dbern.data.domain import Column, Domain, RecordSchema
from dbern.errors import SpecError
from dbern.strategies.base import AnyStrategy, Bound, Entries, Lattice, LatticeStrategy, Slab
from dbern.strategies.bias import KernelMixture
from dbern.targets.base import KernelName, Learner, Lengths, Way
from dbern.targets.density import axis_kernels
from dbern.targets.predicted_functions import kernel_bayes_notes
from dbern.targets.predictions import bayes_notes
from dbern.types import UNIT_ROUNDOFF, FloatArray, Int64Array

# --- Counts of classes, and each class's sums and squares of the axes


_MOST_BITS = 40
_ROUNDED = 1.001  # units that rounding and floats part two integers by


@dataclass(frozen=True)
class ClassSums(VectorSum):
    """Each class's count, and with `moments` its sums and squares of all axes.

    A record counts if it is valid in all axes of the domain; `label` has the classes.
    """

    domain: Domain
    label: Column
    moments: bool
    name: str = field(default="classes", kw_only=True)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The axes and the label."""
        return (*self.domain.columns, self.label)

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the entries of all classes."""
        features, box = ["count"], self.domain
        if self.moments:
            names = [axis.name for axis in box.numbers]
            features += [f"{what} of {name}" for what in ("sum", "squares") for name in names]
        cells = [(axis.name, value) for axis in box.lists for value in axis.categories]
        features += [f"count of {name} = {value}" for name, value in cells]
        return tuple(
            f"{feature} {'in' if ' of ' in feature else 'of'} {one}"
            for one in self.label.categories
            for feature in features
        )

    def function_move(self, *, added: bool) -> float:
        """A count moves by one; a sum by two, within its class, or by one if added."""
        return 2.0 if self.moments and not added else 1.0

    def move(self, strategy: AnyStrategy, norm: int, *, added: bool) -> Bound:
        """Bound n times it (*Sensitivity of class sums* above)."""
        del strategy
        axes, lists = self._dimensions
        if added and norm == 1:
            listed = f" + {lists}" if lists else ""
            text = f"(1 + 1.5 x {axes}{listed}) / n: a record of one class"
            return Bound(1 + 1.5 * axes + lists, text)
        if norm == 1:
            listed = f" + 2 x {lists}" if lists else ""
            text = f"(2 + 3 x {axes}{listed}) / n: a record that changes its class"
            return Bound(2.0 + 3 * axes + 2 * lists, text)
        squared = max(2 + 2.5 * axes, 4 * axes) + 2 * lists
        if added:
            squared = 1 + 1.25 * axes + lists
        return Bound(OUTWARD * math.sqrt(squared), f"sqrt({squared:g}) / n")

    @property
    def _dimensions(self) -> tuple[int, int]:
        return len(self.domain.numbers) * self.moments, len(self.domain.lists)

    def bits(self, n: int) -> int:
        """As many bits as never overflow: ``n 2^s < 2^62``."""
        return min(_MOST_BITS, 62 - n.bit_length())

    def sums(self, records: Mapping[str, FloatArray], bits: int) -> Int64Array:
        """Integer sums of a batch, class by class."""
        kept, positions = self.domain.bounded(records)
        known, codes, _ = ByCategory(self.label)(records)
        positions, codes = positions[known[kept]], codes[kept & known]
        listed, numbers = self.domain.parted(positions)
        unit, width = 1 << bits, 1 + 2 * numbers.shape[1] * self.moments
        features = np.full((len(codes), width), unit, dtype=np.int64)
        if self.moments:
            centred = 2.0 * numbers - 1.0
            squares = centred * centred - 0.5
            features[:, 1:] = np.rint(np.hstack([centred, squares]) * float(unit))
        classes = len(self.label.categories)
        sums = np.zeros((classes, self.size // classes), dtype=np.int64)
        for code in range(classes):
            sums[code, :width] = features[codes == code].sum(axis=0)
        for size, values in zip(self.domain.blocks, listed.T, strict=True):
            cells = np.bincount(codes * size + values, minlength=classes * size)
            sums[:, width : width + size] = unit * cells.reshape(-1, size)
            width += size
        return sums.ravel()

    def errors(self, bits: int) -> Errors:
        """Bound errors; rounding adds a unit for each sum and square of a class to the sensitivity.

        *Kernel*: rounding to ``2^-s``, and the floats before it: less than as much again.
        *Position*: of one that is a few roundings off, and of its square. *Floats*: an integer as
        a float, and a division, of at most one; in all, of the sum of all entries, each record's at
        most ``1 + 1.5 l + m``. Of counts alone less is needed.
        """
        axes, moments = len(self.domain.numbers), self.moments
        rounded, unit = 2 * axes if moments else 0, _ROUNDED * 2.0**-bits
        floats = OUTWARD * 3 * UNIT_ROUNDOFF
        norm = floats * (1 + (1.5 if moments else 0.75) * axes + len(self.domain.lists))
        return Errors(
            kernel=2.0**-bits,
            kernel_norms=(OUTWARD * rounded * unit, OUTWARD * math.sqrt(rounded) * unit),
            position=OUTWARD * (16 if moments else 8) * UNIT_ROUNDOFF,
            floats=floats,
            float_norms=(norm, norm),
            value_bound=1.001,
        )

    @property
    def memory(self) -> Memory:
        """Memory of positions, features and a few temporaries."""
        return Memory(8 * (8 + 4 * self.domain.dimensions))


# --- Naive Bayes as one function on the lattice

_SLACK = 1.1  # over the peaks, for the 2 rho in them


@dataclass(frozen=True)
class NaiveBayesProduct(RecordSum):
    """F of two classes, as one function on the lattice."""

    domain: Domain
    label: Column
    kernels: tuple[Kernel, ...] = ()
    unit: float = 1.0
    name: str = field(default="score", kw_only=True)

    @cached_property
    def bias(self) -> KernelMixture:
        """A class's score is its share times a mixture of product translates: shares sum to one."""
        return KernelMixture(self.kernels)

    def function_move(self, *, added: bool) -> float:
        """``2 max(1, l - 1) prod K_i(0)``, and half of that if added."""
        replaced = OUTWARD * 2 * max(1, len(self.kernels) - 1) * _peak(self.kernels)
        return replaced / 2 if added else replaced

    def move(self, strategy: AnyStrategy, norm: int, *, added: bool) -> Bound:
        """N or ``sqrt(N)`` times S(F), and half of that if added; lattice values only."""
        size, function = strategy.layout.size, self.function_move(added=False)
        bound = Bound(OUTWARD * size * function, f"N S(F) = {size} x S(F)")
        if norm == 2:
            root = OUTWARD * math.sqrt(size) * function
            bound = Bound(root, f"sqrt(N) S(F) = sqrt({size}) x S(F)")
        return bound.half if added else bound

    def counter_params(self, strategy: AnyStrategy, rows: int, tolerance: float) -> dict[str, Any]:
        """Choose sums of each axis, accurate enough that E is at most `tolerance`, or nearly."""
        each = tolerance / (_SLACK * len(self.kernels) ** 2 * _peak(self.kernels))
        axes = (
            one.counter_params(own, rows, each * one.kernels[0].peak)
            for one, own in zip(self._sums, _axes(strategy), strict=True)
        )
        return {"axes": list(axes)}

    def counter(
        self, strategy: AnyStrategy, rows: int, params: Mapping[str, Any]
    ) -> NaiveBayesAccumulator:
        """Return the sums of each axis, and the counts."""
        axes = (
            one.counter(own, rows, facts)
            for one, own, facts in zip(self._sums, _axes(strategy), params["axes"], strict=True)
        )
        classes = ClassSums(self.domain, self.label, moments=False)
        counts = VectorAccumulator(classes, Entries(2), rows, classes.bits(rows))
        lattice = cast("LatticeStrategy", strategy)
        return NaiveBayesAccumulator(self, lattice, tuple(axes), counts, rows)

    @property
    def _sums(self) -> list[KernelSum]:
        weights = ByCategory(self.label)
        return [
            KernelSum(f"axis_{i}", self.domain.axis(i), (kernel,), weights, box=self.domain)
            for i, kernel in enumerate(self.kernels)
        ]


@dataclass(frozen=True)
class NaiveBayesAccumulator(RecordAccumulator):
    """Sums of each axis and class, and the classes' counts: one flat state."""

    product: NaiveBayesProduct
    strategy: LatticeStrategy
    axes: tuple[SumAccumulator, ...]
    counts: VectorAccumulator
    n: int

    @property
    def columns(self) -> tuple[Column, ...]:
        """The axes and the label."""
        return self.counts.columns

    @property
    def description(self) -> str:
        """Inherited from the axes' accumulators."""
        return " and ".join(one.description for one in self.axes)

    @cached_property
    def errors(self) -> Errors:
        """Bound the kernel's error by E, that of each lattice value by ``2 E``.

        *Positions* as of a mixture of product translates. *Floats*: of each axis's values, and of
        their product, which is rounded ``2 l + 2`` times; with m of the n records in a class, the
        errors of its sums over n are ``m/n`` times what is stated for n: those of its means are
        what is stated. *Values*: shares sum to one, and no mean exceeds its top, the largest
        effective kernel.
        """
        found = [one.errors for one in self.axes]
        tops = [one.value_bound for one in found]
        position = sum(
            one.position * math.prod(tops) / top for one, top in zip(found, tops, strict=True)
        )
        grown = math.prod(top + one.floats for top, one in zip(tops, found, strict=True))
        rounding = (4 * len(tops) + 8) * UNIT_ROUNDOFF * grown
        floats = OUTWARD * (grown - math.prod(tops) + rounding)
        kernel, size = self._kernel_error([one.kernel for one in found]), self.strategy.layout.size
        l1, l2 = (float(OUTWARD * size ** (1 / norm)) for norm in (1, 2))
        return Errors(
            kernel=kernel,
            kernel_norms=(OUTWARD * 2 * kernel * l1, OUTWARD * 2 * kernel * l2),
            position=OUTWARD * position,
            floats=floats,
            float_norms=(OUTWARD * floats * l1, OUTWARD * floats * l2),
            value_bound=OUTWARD * math.prod(tops) + floats,
        )

    def _kernel_error(self, rhos: list[float]) -> float:
        """E, that of the *Effective kernel of the joint function* above."""
        peaks = [kernel.peak for kernel in self.product.kernels]
        grown = math.prod(peak + 2 * rho for peak, rho in zip(peaks, rhos, strict=True))
        terms = sum(rho / (peak + 2 * rho) for peak, rho in zip(peaks, rhos, strict=True))
        return OUTWARD * len(peaks) * grown * terms

    @property
    def memory(self) -> Memory:
        """Memory of one axis, as one is counted and contracted after the other."""
        found = [one.memory for one in (*self.axes, self.counts)]
        return Memory(max(one.batch for one in found), max(one.tables for one in found))

    @property
    def shape(self) -> tuple[int, ...]:
        """Flat state: numbers of each axis, then the counts."""
        return (sum(math.prod(one.shape) for one in (*self.axes, self.counts)),)

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records to `state`, in place."""
        for one, own in self._views(state):
            one.add(own, records)

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """F on one slab, in unit-cube units."""
        del output
        *axes, (counts, counted) = self._views(state)
        shares = counts.finish(counted, 0, Slab(0, 0, 2))
        score = [np.zeros(()), np.zeros(())]
        for label in np.flatnonzero(shares):
            value = np.ones(())
            for i, (one, own) in enumerate(axes):
                rows = slab if i == 0 else Slab(0, 0, self.strategy.lattice.shape[i])
                sums = one.finish(own, int(label), rows)
                value = np.multiply.outer(value, sums if i == 0 else sums / shares[label])
            score[label] = value
        shape = self.strategy.lattice.slab_shape(slab)
        return np.asarray(np.broadcast_to(score[1] - score[0], shape))

    def _views(self, state: Int64Array) -> list[tuple[RecordAccumulator, Int64Array]]:
        parts: list[RecordAccumulator] = [*self.axes, self.counts]
        ends = np.cumsum([math.prod(one.shape) for one in parts])[:-1].tolist()
        pieces = np.split(state, ends)
        return [(one, own.reshape(one.shape)) for one, own in zip(parts, pieces, strict=True)]


def _peak(kernels: Sequence[Kernel]) -> float:
    return math.prod(kernel.peak for kernel in kernels)


def _axes(strategy: AnyStrategy) -> list[LatticeStrategy]:
    lattice = cast("LatticeStrategy", strategy).lattice
    return [LatticeStrategy(Lattice((k,))) for k in lattice.k]


# --- Naive Bayes

_COUNTS = Fraction(1, 10)
"""Of the budget: a count's noise is small beside that of a likelihood at the same epsilon."""
_LEAST_STD, _MOST_STD = 1e-3, 1.0


class NaiveBayes(Learner):
    """Naive Bayes with kernel density likelihoods.

    Of two classes, F is the score of the second minus that of the first.

    Parameters
    ----------
    bandwidth : sequence of float
        Per axis, in data units: standard deviation of the Gaussian, length scale of Laplace and
        Matern kernels, half-width of compact ones.
    kernel : str
        One of `dbern.bernstein.kernels.KERNELS`.
    release : "factored" or "joint"
        One sum an axis and class, and the counts; or, for two classes, F itself.
    floor : float
        Of a factored release: what a likelihood at least counts as, as a share of the uniform
        density on its axis; part of the function that is certified.

    Raises
    ------
    SpecError
        For a parameter out of range, records without classes, or more than two for "joint".

    Examples
    --------
    >>> NaiveBayes(bandwidth=[0.5, 0.5]).release
    'factored'
    """

    kind: ClassVar[str] = "naive-bayes"
    uses: ClassVar[tuple[str, ...]] = ("label", "categories")

    bandwidth: Lengths = Field(
        description="bandwidth = [0.5, 0.5], one standard deviation per axis in data units"
    )
    kernel: KernelName = Field("gaussian", description='kernel = "gaussian"')
    release: Literal["factored", "joint"] = Field(
        "factored", description='release = "factored" or "joint"'
    )
    floor: float = Field(0.0, ge=0, le=1, description="floor = 0.01, from 0 to 1")

    def components(self, schema: RecordSchema) -> tuple[Measurement, ...]:
        """One an axis and the counts; or F."""
        label, domain = schema.classes, schema.domain
        numbers = Domain(domain.numbers, domain.outside)
        kernels = axis_kernels(numbers, self.bandwidth, "bandwidth", self.kernel)
        if self.release == "joint":
            if domain.lists:
                raise SpecError(
                    'target.release: "joint" is for axes of numbers. Write release = "factored"'
                )
            if len(label.categories) != 2:
                raise SpecError(
                    'target.release: "joint" is for two classes. Write release = "factored"'
                )
            return (NaiveBayesProduct(domain, label, kernels, domain.density_unit()),)
        fraction = (1 - _COUNTS) / domain.dimensions
        sums = (
            KernelSum(
                f"axis_{i}", numbers.axis(i), (kernel,), ByCategory(label),
                1 / numbers.axes[i].width, box=domain, fraction=fraction,
            )
            for i, kernel in enumerate(kernels)
        )  # fmt: skip
        counts = _COUNTS + fraction * len(domain.lists)
        return (*sums, ClassSums(domain, label, moments=False, fraction=counts))

    def combination(self, schema: RecordSchema) -> Combination:
        """The scores, or F itself."""
        label, domain = schema.classes, Domain(schema.domain.numbers)
        if self.release == "joint":
            return Identity(label.categories)
        kernels = axis_kernels(domain, self.bandwidth, "bandwidth", self.kernel)
        axes = list(zip(domain.axes, kernels, strict=True))
        return KernelScores(
            label.categories,
            peaks=tuple(kernel.peak / axis.width for axis, kernel in axes),
            floors=tuple(min(self.floor, kernel.peak) / axis.width for axis, kernel in axes),
            lists=schema.domain.blocks,
        )

    def predictions(self, schema: RecordSchema, n: int, ways: Sequence[Way]) -> tuple[str, ...]:
        """Predict the share of wrong classes of typical records, beside a constant's."""
        del n
        return kernel_bayes_notes(self.combination(schema), ways, len(schema.domain.numbers))


class GaussianNaiveBayes(Learner):
    """Naive Bayes with Gaussian likelihoods, whose variances have a public floor.

    Released are each class's count and its sums and squares of every axis, all at once. The
    variances are those of scikit-learn's GaussianNB but for the floor, which there is an addition.

    Parameters
    ----------
    std_floor : sequence of float
        The least standard deviation of a likelihood per axis, in data units.
    release : "factored"

    Raises
    ------
    SpecError
        For a floor out of range, or records without classes.

    Examples
    --------
    >>> GaussianNaiveBayes(std_floor=[0.5]).get_params()
    {'std_floor': (0.5,), 'release': 'factored'}
    """

    kind: ClassVar[str] = "gaussian-naive-bayes"
    uses: ClassVar[tuple[str, ...]] = ("label", "categories")

    std_floor: Lengths = Field(description="std_floor = [0.5, 0.5], one per axis in data units")
    release: Literal["factored"] = Field("factored", description='release = "factored"')

    def components(self, schema: RecordSchema) -> tuple[Measurement, ...]:
        """One vector."""
        self._floors(schema)
        return (ClassSums(schema.domain, schema.classes, moments=True),)

    def combination(self, schema: RecordSchema) -> GaussianScores:
        """The scores."""
        classes, floors = schema.classes.categories, self._floors(schema)
        peaks = tuple(1 / (math.sqrt(2 * math.pi) * std) for std in self.std_floor)
        lists = schema.domain.blocks
        return GaussianScores(classes, peaks=peaks, floors=floors, lists=lists, squares="centred")

    def predictions(self, schema: RecordSchema, n: int, ways: Sequence[Way]) -> tuple[str, ...]:
        """Predict the share of wrong classes of typical records, beside a constant's."""
        del n
        return bayes_notes(self.combination(schema), ways[0].law)

    def _floors(self, schema: RecordSchema) -> tuple[float, ...]:
        """Floors of the deviations in unit-cube units."""
        axes = schema.domain.numbers
        if len(self.std_floor) != len(axes):
            raise SpecError(
                f"target.std_floor: has {len(self.std_floor)} entries for {len(axes)} "
                f"axes of numbers. Write one for each of {', '.join(axis.name for axis in axes)}"
            )
        widths = [axis.width for axis in axes]
        floors = tuple(std / width for std, width in zip(self.std_floor, widths, strict=True))
        if not all(_LEAST_STD <= floor <= _MOST_STD for floor in floors):
            raise SpecError(
                f"target.std_floor: must be from {_LEAST_STD:g} to {_MOST_STD:g} times the width "
                "of its axis. Write a std_floor nearer to the bounds' scale."
            )
        return floors
