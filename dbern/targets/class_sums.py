"""Counts of classes, and each class's sums and squares of the axes, as exact integers.

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
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.data.domain import Column, Domain
from dbern.measure.accumulator import Errors, Memory
from dbern.measure.record_weights import ByCategory
from dbern.measure.vector_sums import VectorSum
from dbern.reconstruct.base import AnyStrategy, SensitivityBound
from dbern.types import UNIT_ROUNDOFF, FloatArray, Int64Array

_MAX_BITS = 40
_ROUNDED_STEPS = 1.001  # units that rounding and floats part two integers by


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

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """Names of the entries of all classes."""
        features, domain = ["count"], self.domain
        if self.moments:
            names = [axis.name for axis in domain.numeric]
            features += [f"{what} of {name}" for what in ("sum", "squares") for name in names]
        cells = [(axis.name, value) for axis in domain.categorical for value in axis.categories]
        features += [f"count of {name} = {value}" for name, value in cells]
        return tuple(
            f"{feature} {'in' if ' of ' in feature else 'of'} {category}"
            for category in self.label.categories
            for feature in features
        )

    def function_move(self, *, added: bool) -> float:
        """A count moves by one; a sum by two, within its class, or by one if added."""
        return 2.0 if self.moments and not added else 1.0

    def move(self, strategy: AnyStrategy, norm: int, *, added: bool) -> SensitivityBound:
        """Bound n times it (*Sensitivity of class sums* above)."""
        del strategy
        axes, lists = len(self.domain.numeric) * self.moments, len(self.domain.categorical)
        if added and norm == 1:
            listed = f" + {lists}" if lists else ""
            text = f"(1 + 1.5 x {axes}{listed}) / n: a record of one class"
            return SensitivityBound(1 + 1.5 * axes + lists, text)
        if norm == 1:
            listed = f" + 2 x {lists}" if lists else ""
            text = f"(2 + 3 x {axes}{listed}) / n: a record that changes its class"
            return SensitivityBound(2.0 + 3 * axes + 2 * lists, text)
        squared = max(2 + 2.5 * axes, 4 * axes) + 2 * lists
        if added:
            squared = 1 + 1.25 * axes + lists
        return SensitivityBound(OUTWARD * math.sqrt(squared), f"sqrt({squared:g}) / n")

    def bits(self, n: int) -> int:
        """As many bits as never overflow: ``n 2^s < 2^62``."""
        return min(_MAX_BITS, 62 - n.bit_length())

    def sums(self, records: Mapping[str, FloatArray], bits: int) -> Int64Array:
        """Integer sums of a batch, class by class."""
        valid, positions = self.domain.bounded(records)
        labelled, codes, _ = ByCategory(self.label)(records)
        positions, codes = positions[labelled[valid]], codes[valid & labelled]
        listed, numbers = self.domain.parted(positions)
        scale, width = 1 << bits, 1 + 2 * numbers.shape[1] * self.moments
        features = np.full((len(codes), width), scale, dtype=np.int64)
        if self.moments:
            centred = 2.0 * numbers - 1.0
            squares = centred * centred - 0.5
            features[:, 1:] = np.rint(np.hstack([centred, squares]) * float(scale))
        classes = len(self.label.categories)
        sums = np.zeros((classes, self.size // classes), dtype=np.int64)
        for code in range(classes):
            sums[code, :width] = features[codes == code].sum(axis=0)
        for size, values in zip(self.domain.blocks, listed.T, strict=True):
            cells = np.bincount(codes * size + values, minlength=classes * size)
            sums[:, width : width + size] = scale * cells.reshape(-1, size)
            width += size
        return sums.ravel()

    def errors(self, bits: int) -> Errors:
        """Bound errors; rounding adds a unit for each sum and square of a class to the sensitivity.

        *Kernel*: rounding to ``2^-s``, and the floats before it: less than as much again.
        *Position*: of one that is a few roundings off, and of its square. *Floats*: an integer as
        a float, and a division, of at most one; in all, of the sum of all entries, each record's at
        most ``1 + 1.5 l + m``. Of counts alone less is needed.
        """
        axes, moments = len(self.domain.numeric), self.moments
        rounded, step = 2 * axes if moments else 0, _ROUNDED_STEPS * 2.0**-bits
        floats = OUTWARD * 3 * UNIT_ROUNDOFF
        norm = floats * (1 + (1.5 if moments else 0.75) * axes + len(self.domain.categorical))
        return Errors(
            kernel=2.0**-bits,
            kernel_norms=(OUTWARD * rounded * step, OUTWARD * math.sqrt(rounded) * step),
            position=OUTWARD * (16 if moments else 8) * UNIT_ROUNDOFF,
            floats=floats,
            float_norms=(norm, norm),
            value_bound=1.001,
        )

    @property
    def memory(self) -> Memory:
        """Memory of positions, features and a few temporaries."""
        return Memory(8 * (8 + 4 * self.domain.dimensions))
