"""Naive Bayes with kernel or Gaussian likelihoods, factored or as one function.

Counts of classes, and each class's sums and squares of the axes: vectors of exact integers.

A record of class c whose positions, mapped to z in [-1, 1]^l, adds ``(1, z_1 .. z_l, z_1^2 - 1/2 ..
z_l^2 - 1/2)`` to the entries of c, or 1 alone, all in units of ``2^-s`` as integers; a null record
adds nothing. Division by n and the noise come after. Squares of z, less 1/2, have the same noise as
sums, where it takes more of a variance than of a mean: with ``u = z/2`` and squares in [0, 1/4]
they had two to four times as much, for their part of the sensitivity was a third of what it is.

Sensitivity under replace-one
-----------------------------
*Another class*: the two contributions are in different entries, each of l1 norm at most ``1 + (1 +
1/2) l`` and squared l2 norm ``1 + max (z^2 + (z^2 - 1/2)^2) l = 1 + 1.25 l``, as ``z^4 + 1/4`` is
that. Together ``2 + 3 l`` and ``2 + 2.5 l``, attained by corners. Rounding is monotone, and corners
are integers: it adds nothing.

*The same class*: the counts cancel. On an axis, with ``d = |z - w|/2`` in [0, 1] and ``|z + w|/2 <=
1 - d``, the sum moves by 2 d and the square by at most ``4 d (1 - d)``: together at most 2.25, at d
= 3/4; and squared by at most ``4 d^2 + 16 d^2 (1 - d)^2 <= 4``, because ``4 d^2 (1 - d) <= 16/27 <=
1 + d``. So ``2.25 l`` in the l1 norm and ``4 l`` squared in the l2 norm, to which rounding adds a
unit for each sum and square (`kernel_error_norm`). The null record leaves less than either.

So ``Delta1 <= (2 + 3 l)/n`` and ``Delta2^2 <= max(2 + 2.5 l, 4 l)/n^2``; counts alone move by
``2/n`` and ``sqrt(2)/n``.

*Under add-or-remove-one* one contribution is added, over the public normalizer n: ``Delta1 <= (1 +
1.5 l)/n`` and ``Delta2^2 <= (1 + 1.25 l)/n^2``; of counts alone ``1/n``.

Naive Bayes as one function on the lattice: ``F = Pr(y|+) Pr(+) - Pr(y|-) Pr(-)``.

``Pr(y|c) = prod_i (1/m) sum_{d in c} K_i(y_i - d_i)`` over the m records of c, ``Pr(c) = m/n``; an
empty class scores zero. F is computed from the same integer sums as one density an axis and class.

Sensitivity under replace-one
-----------------------------
Let ``P = prod_i K_i(0)``. *One more record* changes a class's score by at least ``-(l-1) P/n`` and
at most ``P/n``. With q_i the means of m kernels and v_i those of the new record, n times the change
is ``(m+1) prod_i (m q_i + v_i)/(m+1) - m prod_i q_i``, affine in each of q_i, v_i in [0, K_i(0)]:
its extremes are at corners, and in units of P these are 0 or 1. If all q_i are 1 and j of the v_i
are 0, it is ``(m+1) (m/(m+1))^j - m``, at most 1 and at least ``(m+1) (1 - l/(m+1)) - m = 1 - l``
(Bernoulli). If some q_i is 0 it is ``(m+1) prod_i q'_i``, where one factor is at most ``1/(m+1)``:
in [0, 1]. With m = 0 it is ``prod_i v_i``, in [0, 1].

*A replacement* takes a record away and adds one. Within a class its score changes by at most ``l P/
n``. From one class to the other F changes by twice ``-(l-1) P/n`` to ``P/n`` at most, as one score
counts negatively. So ``S(F) <= 2 max(1, l-1) P / n``, of which ``l P/n`` is never more; the null
record leaves less. The paper's bound is smaller, and false: see the tests.

*Under add-or-remove-one* it is one record more or less: ``S(F) <= max(1, l-1) P / n``, n the public
normalizer of shares and sums. That is half, and so is the effective kernel's part.

F is no sum over records, so the movement of N values is bounded by N (or sqrt(N)) times S(F) alone.

Effective kernel
----------------
The integers represent ``K~_i`` with ``|K~_i - K_i| <= rho_i``. The derivative of the change above
by v_i is ``prod_{j != i} q'_j``; that by q_i is ``m (prod_{j != i} q'_j - prod_{j != i} q_j)``, and
``|q'_j - q_j| = |v_j - q_j|/(m+1) <= (K_j(0) + 2 rho_j)/(m+1)``, so telescoped at most ``(l-1)
prod_{j != i} (K_j(0) + 2 rho_j)``. One more record hence changes F~ by at most

    ``E/n,   E = l sum_i rho_i prod_{j != i} (K_j(0) + 2 rho_j)``

more than F, a replacement by ``2E/n``. And ``|F~ - F| <= prod (K_i(0) + rho_i) - P <= E``.

Naive Bayes: the score of a class is its share times one likelihood an axis.

With kernel density likelihoods, or Gaussian ones. *Factored* releases are noisy sums: one kernel
sum an axis and class (`dbern.counting.kernel_sums`) with the counts of the classes, which those do
not determine, or counts, sums and squares (`dbern.targets.naive_bayes`); the scores follow, with
proved errors (`dbern.combination`). A *joint* release is the paper's one function on the lattice
(`dbern.targets.naive_bayes`). A record that is null in any axis, or of an unknown class, counts
nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.combination import Combination
from dbern.counting.kernel_sums import ByCategory, KernelSum
from dbern.counting.measurement import Component, Statistic, Vector
from dbern.data.domain import Column, Domain, RecordSchema
from dbern.errors import SpecError
from dbern.privacy.mechanism import Noise
from dbern.strategies.base import BumpBound, Coordinates, Entries, Lattice, Slab
from dbern.strategies.bias import Bumps
from dbern.strategies.lattice import PlainCoordinates
from dbern.targets.bandwidths import axis_kernels
from dbern.targets.base import KernelName, Learner, Lengths
from dbern.targets.predictions import bayes_notes
from dbern.types import UNIT_ROUNDOFF, FloatArray, Int64Array

# --- Counts of classes, and each class's sums and squares of the axes


_MOST_BITS = 40
_ROUNDED = 1.001  # units that rounding and floats part two integers by


@dataclass(frozen=True)
class ClassSums(Vector):
    """Each class's count, and with `moments` its sums and squares of all axes, over n.

    Parameters
    ----------
    box : Domain
        All axes in which a record must be valid to count.
    label : Column
        The classes.

    Examples
    --------
    >>> from dbern.data.domain import Axis
    >>> label = Column("who", "data.label.classes", ("a", "b"))
    >>> sums = ClassSums.of(Domain((Axis("x", 0.0, 1.0),)), label, moments=True)
    >>> sums.entries[:3], sums.movement(1).value
    (('count of a', 'sum of x in a', 'squares of x in a'), 5.0)
    """

    box: Domain
    label: Column
    moments: bool

    @classmethod
    def of(
        cls, box: Domain, label: Column, *, moments: bool, share: Fraction = Fraction(1)
    ) -> ClassSums:
        """Those of all classes, entry by entry."""
        features = ["count"]
        if moments:
            features += [f"{what} of {name}" for what in ("sum", "squares") for name in box.names]
        entries = tuple(
            f"{feature} {'in' if ' of ' in feature else 'of'} {one}"
            for one in label.categories
            for feature in features
        )
        return cls("classes", share, entries, box, label, moments)

    @property
    def entry_movement(self) -> float:
        """A count moves by one; a sum by two, within its class."""
        return 2.0 if self.moments else 1.0

    def movement(self, norm: int) -> BumpBound:
        """See the top of the module."""
        axes = self.box.dimensions if self.moments else 0
        if norm == 1:
            text = f"(2 + 3 x {axes}) / n: a record that changes its class"
            return BumpBound(2.0 + 3 * axes, text)
        squared = max(2 + 2.5 * axes, 4 * axes)
        return BumpBound(OUTWARD * math.sqrt(squared), f"sqrt({squared:g}) / n")

    @property
    def added_entry_movement(self) -> float:
        """A count's is one."""
        return 1.0

    def added_movement(self, norm: int) -> BumpBound:
        """See the top of the module."""
        axes = self.box.dimensions if self.moments else 0
        if norm == 1:
            return BumpBound(1 + 1.5 * axes, f"(1 + 1.5 x {axes}) / n: a record of one class")
        squared = 1 + 1.25 * axes
        return BumpBound(OUTWARD * math.sqrt(squared), f"sqrt({squared:g}) / n")

    def statistic(self, n: int) -> ClassSumsStatistic:
        """As many bits as never overflow: ``n 2^s < 2^62``."""
        return ClassSumsStatistic(self, n, min(_MOST_BITS, 62 - n.bit_length()))

    def restore(self, n: int, counting: Mapping[str, Any]) -> ClassSumsStatistic:
        """With the planned bits."""
        return ClassSumsStatistic(self, n, counting["bits"])


@dataclass(frozen=True)
class ClassSumsStatistic:
    """The integers: what workers add up."""

    component: ClassSums
    n: int
    bits: int

    @property
    def coordinates(self) -> Entries:
        """The entries."""
        return Entries(len(self.component.entries))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The axes and the label."""
        return (*self.component.box.columns, self.component.label)

    @property
    def counting(self) -> dict[str, Any]:
        """The fixed-point bits."""
        return {"bits": self.bits}

    @property
    def description(self) -> str:
        """Exact integers."""
        return f"{len(self.component.entries)} exact integer sums"

    @property
    def kernel_error(self) -> float:
        """Rounding to ``2^-s``, and the floats before it: less than as much again."""
        return 2.0**-self.bits

    @property
    def position_error(self) -> float:
        """Of a position that is a few roundings off, and of its square."""
        return OUTWARD * (16 if self.component.moments else 8) * UNIT_ROUNDOFF

    @property
    def float_error(self) -> float:
        """An integer as a float, and a division, of at most one."""
        return OUTWARD * 3 * UNIT_ROUNDOFF

    @property
    def value_bound(self) -> float:
        """No entry exceeds one."""
        return 1.001

    def kernel_error_norm(self, norm: int) -> float:
        """A unit for each sum and square of a class; of counts none."""
        rounded = 2 * self.component.box.dimensions if self.component.moments else 0
        return float(OUTWARD * rounded ** (1 / norm) * _ROUNDED * 2.0**-self.bits)

    def float_error_norm(self, norm: int) -> float:
        """``3 2^-53`` of the sum of all entries, each record's at most ``1 + 1.5 l``."""
        del norm
        each = 1.5 if self.component.moments else 0.75  # counts alone need none
        return OUTWARD * 3 * UNIT_ROUNDOFF * (1 + each * self.component.box.dimensions)

    @property
    def batch_bytes(self) -> int:
        """Positions, features and a few temporaries."""
        return 8 * (8 + 4 * self.component.box.dimensions)

    @property
    def table_bytes(self) -> int:
        """None."""
        return 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Classes, features."""
        classes = len(self.component.label.categories)
        return (classes, len(self.component.entries) // classes)

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records to `state`, in place."""
        kept, positions = self.component.box.bounded(records)
        known, codes, _ = ByCategory(self.component.label)(records)
        positions, codes = positions[known[kept]], codes[kept & known]
        unit = 1 << self.bits
        features = np.full((len(codes), state.shape[1]), unit, dtype=np.int64)
        if self.component.moments:
            centred = 2.0 * positions - 1.0
            squares = centred * centred - 0.5
            features[:, 1:] = np.rint(np.hstack([centred, squares]) * float(unit))
        for code in range(len(state)):
            state[code] += features[codes == code].sum(axis=0)

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """The entries of one slab over n."""
        del output
        part = state.reshape(-1)[slab.start : slab.stop].astype(np.float64)
        return np.ldexp(part, -self.bits) / self.n


# --- Naive Bayes as one function on the lattice

_SLACK = 1.1  # over the peaks, for the 2 rho in them


@dataclass(frozen=True)
class NaiveBayesProduct:
    """F of two classes as a component: see the top of the module."""

    name: str
    domain: Domain
    kernels: tuple[Kernel, ...]
    label: Column
    unit: float = 1.0
    share: Fraction = Fraction(1)
    outputs: int = 1
    binned: bool = False
    spectral: bool = False
    additive: bool = False

    @property
    def approximation(self) -> Bumps:
        """A class's score is its share times a mixture of product bumps; shares sum to one."""
        return Bumps(self.kernels)

    @property
    def function_movement(self) -> float:
        """``2 max(1, l - 1) prod K_i(0)``."""
        return OUTWARD * 2 * max(1, len(self.kernels) - 1) * _peak(self.kernels)

    def movement(self, coordinates: Coordinates, norm: int, *, quick: bool = False) -> BumpBound:
        """N or ``sqrt(N)`` times S(F); lattice values only."""
        del quick
        if not isinstance(coordinates, PlainCoordinates):
            raise NotImplementedError("this function is released by its lattice values only")
        size, function = coordinates.layout.size, self.function_movement
        if norm == 1:
            return BumpBound(OUTWARD * size * function, f"N S(F) = {size} x S(F)")
        root = OUTWARD * math.sqrt(size) * function
        return BumpBound(root, f"sqrt(N) S(F) = sqrt({size}) x S(F)")

    @property
    def added_function_movement(self) -> float:
        """``max(1, l - 1) prod K_i(0)``."""
        return self.function_movement / 2

    def added_movement(
        self, coordinates: Coordinates, norm: int, *, quick: bool = False
    ) -> BumpBound:
        """N or ``sqrt(N)`` times half of what a replacement does."""
        return self.movement(coordinates, norm, quick=quick).half

    def statistic(self, coordinates: Coordinates, n: int, tolerance: float) -> Statistic:
        """Sums of each axis, accurate enough that E is at most `tolerance`, or nearly."""
        each = tolerance / (_SLACK * len(self.kernels) ** 2 * _peak(self.kernels))
        axes = [
            one.statistic(own, n, each * one.kernels[0].peak)
            for one, own in zip(self._sums, _axes(coordinates), strict=True)
        ]
        return self._statistic(coordinates, n, axes)

    def restore(self, coordinates: Coordinates, n: int, counting: Mapping[str, Any]) -> Statistic:
        """The statistic that a plan has chosen."""
        axes = [
            one.restore(own, n, facts)
            for one, own, facts in zip(
                self._sums, _axes(coordinates), counting["axes"], strict=True
            )
        ]
        return self._statistic(coordinates, n, axes)

    def _statistic(
        self, coordinates: Coordinates, n: int, axes: Sequence[Statistic]
    ) -> NaiveBayesStatistic:
        counts = ClassSums.of(self.domain, self.label, moments=False).statistic(n)
        return NaiveBayesStatistic(self, coordinates, tuple(axes), counts, n)

    @property
    def _sums(self) -> list[KernelSum]:
        return [
            KernelSum(
                self.name, self.domain.axis(i), (kernel,), ByCategory(self.label), box=self.domain
            )
            for i, kernel in enumerate(self.kernels)
        ]


@dataclass(frozen=True)
class NaiveBayesStatistic:
    """Sums of each axis and class, and the classes' counts: one flat state."""

    component: NaiveBayesProduct
    coordinates: Coordinates
    axes: tuple[Statistic, ...]
    counts: Statistic
    n: int

    @property
    def columns(self) -> tuple[Column, ...]:
        """The axes and the label."""
        return self.counts.columns

    @property
    def counting(self) -> dict[str, Any]:
        """That of each axis."""
        return {"axes": [one.counting for one in self.axes]}

    @property
    def description(self) -> str:
        """That of each axis."""
        return " and ".join(one.description for one in self.axes)

    @cached_property
    def kernel_error(self) -> float:
        """E, at the top of the module."""
        peaks = [kernel.peak for kernel in self.component.kernels]
        rhos = [one.kernel_error for one in self.axes]
        grown = math.prod(peak + 2 * rho for peak, rho in zip(peaks, rhos, strict=True))
        terms = sum(rho / (peak + 2 * rho) for peak, rho in zip(peaks, rhos, strict=True))
        return OUTWARD * len(peaks) * grown * terms

    @property
    def position_error(self) -> float:
        """As that of a mixture of product bumps."""
        peaks = self._tops
        return OUTWARD * sum(
            one.position_error * math.prod(peaks) / peak
            for one, peak in zip(self.axes, peaks, strict=True)
        )

    @property
    def float_error(self) -> float:
        """Of each axis's values, and of their product, which is rounded ``2 l + 2`` times.

        With m of the n records in a class, the errors of its sums over n are ``m/n`` times what is
        stated for n: those of its means are what is stated.
        """
        tops = self._tops
        errors = [one.float_error for one in self.axes]
        grown = math.prod(top + error for top, error in zip(tops, errors, strict=True))
        rounding = (4 * len(tops) + 8) * UNIT_ROUNDOFF * grown
        return OUTWARD * (grown - math.prod(tops) + rounding)

    @property
    def value_bound(self) -> float:
        """Shares sum to one, and no mean exceeds its top."""
        return OUTWARD * math.prod(self._tops) + self.float_error

    @property
    def _tops(self) -> list[float]:
        """The largest effective kernels."""
        return [one.value_bound for one in self.axes]

    def kernel_error_norm(self, norm: int) -> float:
        """``2 E`` for each lattice value."""
        return OUTWARD * 2 * self.kernel_error * self._spread(norm)

    def float_error_norm(self, norm: int) -> float:
        """That of one value, for each."""
        return OUTWARD * self.float_error * self._spread(norm)

    def _spread(self, norm: int) -> float:
        return float(OUTWARD * self.coordinates.layout.size ** (1 / norm))

    @property
    def batch_bytes(self) -> int:
        """One axis is counted after the other."""
        return max(one.batch_bytes for one in (*self.axes, self.counts))

    @property
    def table_bytes(self) -> int:
        """One axis is contracted after the other."""
        return max(one.table_bytes for one in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """One number after the other: of each axis, and of the counts."""
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
                rows = slab if i == 0 else Slab(0, 0, self.coordinates.lattice.shape[i])
                sums = one.finish(own, int(label), rows)
                value = np.multiply.outer(value, sums if i == 0 else sums / shares[label])
            score[label] = value
        shape = self.coordinates.lattice.slab_shape(slab)
        return np.asarray(np.broadcast_to(score[1] - score[0], shape))

    def _views(self, state: Int64Array) -> list[tuple[Statistic, Int64Array]]:
        parts = [*self.axes, self.counts]
        ends = np.cumsum([math.prod(one.shape) for one in parts])[:-1].tolist()
        pieces = np.split(state, ends)
        return [(one, own.reshape(one.shape)) for one, own in zip(parts, pieces, strict=True)]


def _peak(kernels: Sequence[Kernel]) -> float:
    return math.prod(kernel.peak for kernel in kernels)


def _axes(coordinates: Coordinates) -> list[PlainCoordinates]:
    """The lattice of each axis."""
    return [PlainCoordinates(Lattice((k,))) for k in coordinates.lattice.k]


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
    uses: ClassVar[tuple[str, ...]] = ("label",)

    bandwidth: Lengths = Field(
        description="bandwidth = [0.5, 0.5], one standard deviation per axis in data units"
    )
    kernel: KernelName = Field("gaussian", description='kernel = "gaussian"')
    release: Literal["factored", "joint"] = Field(
        "factored", description='release = "factored" or "joint"'
    )
    floor: float = Field(0.0, ge=0, le=1, description="floor = 0.01, from 0 to 1")

    def components(self, schema: RecordSchema) -> tuple[Component | Vector, ...]:
        """One an axis and the counts; or F."""
        label, domain = schema.classes, schema.domain
        kernels = axis_kernels(domain, self.bandwidth, "bandwidth", self.kernel)
        if self.release == "joint":
            if len(label.categories) != 2:
                raise SpecError(
                    'target.release: "joint" is for two classes; write release = "factored"'
                )
            return (NaiveBayesProduct("score", domain, kernels, label, 1 / domain.volume),)
        share = (1 - _COUNTS) / domain.dimensions
        sums = (
            KernelSum(
                f"axis_{i}", domain.axis(i), (kernel,), ByCategory(label),
                1 / domain.axes[i].width, share, box=domain,
            )
            for i, kernel in enumerate(kernels)
        )  # fmt: skip
        return (*sums, ClassSums.of(domain, label, moments=False, share=_COUNTS))

    def combination(self, schema: RecordSchema) -> Combination:
        """The scores, or F itself."""
        label, domain = schema.classes, schema.domain
        if self.release == "joint":
            return Combination("linear", label.categories)
        kernels = axis_kernels(domain, self.bandwidth, "bandwidth", self.kernel)
        axes = list(zip(domain.axes, kernels, strict=True))
        return Combination(
            "naive-bayes",
            label.categories,
            peaks=tuple(kernel.peak / axis.width for axis, kernel in axes),
            floors=tuple(min(self.floor, kernel.peak) / axis.width for axis, kernel in axes),
        )


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
    uses: ClassVar[tuple[str, ...]] = ("label",)

    std_floor: Lengths = Field(description="std_floor = [0.5, 0.5], one per axis in data units")
    release: Literal["factored"] = Field("factored", description='release = "factored"')

    def components(self, schema: RecordSchema) -> tuple[Vector, ...]:
        """One vector."""
        self._floors(schema)
        return (ClassSums.of(schema.domain, schema.classes, moments=True),)

    def combination(self, schema: RecordSchema) -> Combination:
        """The scores."""
        classes, floors = schema.classes.categories, self._floors(schema)
        peaks = tuple(1 / (math.sqrt(2 * math.pi) * std) for std in self.std_floor)
        return Combination(
            "gaussian-naive-bayes", classes, peaks=peaks, floors=floors, squares="centred"
        )

    def predictions(self, schema: RecordSchema, n: int, laws: Sequence[Noise]) -> tuple[str, ...]:
        """The share of wrong classes of typical records, beside a constant's."""
        del n
        return bayes_notes(self.combination(schema), laws[0])

    def _floors(self, schema: RecordSchema) -> tuple[float, ...]:
        """In unit-cube units."""
        domain = schema.domain
        if len(self.std_floor) != domain.dimensions:
            raise SpecError(
                f"target.std_floor: has {len(self.std_floor)} entries for {domain.dimensions} "
                f"axes; write one for each of {', '.join(domain.names)}"
            )
        widths = [axis.width for axis in domain.axes]
        floors = tuple(std / width for std, width in zip(self.std_floor, widths, strict=True))
        if not all(_LEAST_STD <= floor <= _MOST_STD for floor in floors):
            raise SpecError(
                f"target.std_floor: must be from {_LEAST_STD:g} to {_MOST_STD:g} times the width "
                "of its axis; write a std_floor nearer to the bounds' scale"
            )
        return floors
