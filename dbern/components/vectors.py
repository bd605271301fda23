"""Counts of classes, and each class's sums and squares of the axes: vectors of exact integers.

A record of class c with centred positions u in [-1/2, 1/2]^l adds ``(1, u_1 .. u_l, u_1^2 ..
u_l^2)`` to the entries of c, or 1 alone, all in units of ``2^-s`` as integers; a null record adds
nothing. Division by n and the noise come after.

Sensitivity under replace-one
-----------------------------
The integers are ``2^s``, ``|round(2^s u_i)| <= 2^{s-1}`` and ``0 <= round(2^s u_i^2) <= 2^{s-2}``:
rounding is monotone and the bounds are integers, so nothing is added for it. In units of ``2^-s``:

*Another class*: the two contributions are in different entries, each of l1 norm at most ``1 + (1/2
+ 1/4) l`` and squared l2 norm ``1 + (1/4 + 1/16) l``. Together ``2 + 1.5 l`` and ``2 + 0.625 l``,
attained by corners.

*The same class*: the counts cancel, u_i moves by at most 1 and u_i^2 by at most 1/4: ``1.25 l`` in
the l1 norm and ``1.0625 l`` squared in the l2 norm. The null record leaves less than either.

So ``Delta1 <= (2 + 1.5 l)/n`` and ``Delta2^2 <= max(2 + 0.625 l, 1.0625 l)/n^2``; counts alone move
by ``2/n`` and ``sqrt(2)/n``.

*Under add-or-remove-one* one contribution is added, over the public normalizer n: ``Delta1 <= (1 +
0.75 l)/n`` and ``Delta2^2 <= (1 + 0.3125 l)/n^2``; of counts alone ``1/n``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.coordinates import BumpBound, Entries
from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.lattice import Slab
from dbern.components.base import Vector
from dbern.components.weighings import ByCategory
from dbern.domain import Column, Domain

_MOST_BITS = 40
_ULP = 2.0**-53


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
    >>> from dbern.domain import Axis
    >>> label = Column("who", "data.label.classes", ("a", "b"))
    >>> sums = ClassSums.of(Domain((Axis("x", 0.0, 1.0),)), label, moments=True)
    >>> sums.entries[:3], sums.movement(1).value
    (('count of a', 'sum of x in a', 'squares of x in a'), 3.5)
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
        """A count moves by one; a sum by one, within its class."""
        return 1.0

    def movement(self, norm: int) -> BumpBound:
        """See the top of the module."""
        axes = self.box.dimensions if self.moments else 0
        if norm == 1:
            text = f"(2 + 1.5 x {axes}) / n: a record that changes its class"
            return BumpBound(2 + 1.5 * axes, text)
        squared = max(2 + 0.625 * axes, 1.0625 * axes)
        return BumpBound(OUTWARD * math.sqrt(squared), f"sqrt({squared:g}) / n")

    @property
    def added_entry_movement(self) -> float:
        """A count's is one."""
        return 1.0

    def added_movement(self, norm: int) -> BumpBound:
        """See the top of the module."""
        axes = self.box.dimensions if self.moments else 0
        if norm == 1:
            return BumpBound(1 + 0.75 * axes, f"(1 + 0.75 x {axes}) / n: a record of one class")
        squared = 1 + 0.3125 * axes
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
        return OUTWARD * 8 * _ULP

    @property
    def float_error(self) -> float:
        """An integer as a float, and a division, of at most one."""
        return OUTWARD * 3 * _ULP

    @property
    def value_bound(self) -> float:
        """No entry exceeds one."""
        return 1.001

    def kernel_error_norm(self, norm: int) -> float:
        """None: the bounds are those of the integers themselves."""
        del norm
        return 0.0

    def float_error_norm(self, norm: int) -> float:
        """``3 2^-53`` of the sum of all entries, each record's at most ``1 + 0.75 l``."""
        del norm
        return OUTWARD * 3 * _ULP * (1 + 0.75 * self.component.box.dimensions)

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
            centered = positions - 0.5
            features[:, 1:] = np.rint(np.hstack([centered, centered * centered]) * float(unit))
        for code in range(len(state)):
            state[code] += features[codes == code].sum(axis=0)

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """The entries of one slab over n."""
        del output
        part = state.reshape(-1)[slab.start : slab.stop].astype(np.float64)
        return np.ldexp(part, -self.bits) / self.n
