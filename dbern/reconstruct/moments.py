"""Moments of several numbers in [-1, 1], and of categories: their entries and sensitivity.

Of D numbers z of a record, d features and last the response y, the entries are, over n,

    ``a``,   ``z_i``,   ``a y``,   ``z_i z_j`` for ``i < j``,   ``z_i^2 - 1/2``,
    ``2 z_i y``,   ``2 (y^2 - 1/2)``,

summed over the records that count; a missing record adds nothing. Whatever is asked of them depends
on the response's products in full, and on those of features in proportion to coefficients: so the
former have half of the noise. The public integer a >= 2 (`Moments.weight`) makes the count and the
response's sum, on which every answer depends, more accurate still.

Sensitivity under replace-one
-----------------------------
Let a record z become w. With ``m = (z + w)/2``, ``delta_i = |z_i - w_i|/2`` in [0, 1], the cube
says ``|m_i| <= 1 - delta_i``. So

    ``|z_i - w_i| = 2 delta_i``,
    ``|z_i^2 - w_i^2| = 4 |m_i| delta_i <= 4 delta_i (1 - delta_i)``,
    ``|z_i z_j - w_i w_j| <= 2 |m_i| delta_j + 2 |m_j| delta_i
                          <= 2 (delta_i + delta_j - 2 delta_i delta_j)``.

Let ``s = sum delta_i``, ``q = sum delta_i^2`` of the features, and e that of the response;
``sum_{i<j} 2 delta_i delta_j = s^2 - q``. The sums of these bounds, as the entries weigh them, are
``2 s + 2 a e`` of the numbers, ``4 s - 4 q + 8 e - 8 e^2`` of the squares, ``2 (d - 1) s - 2 (s^2 -
q)`` and ``4 s + 4 d e - 8 s e`` of the products; together

    ``G = 2 (d + 3 - 4 e) s - 2 s^2 + 4 (d + 3) e - 8 e^2 + 2 (s - q) + 2 (a - 2) e
        = (d + 3)^2 / 2 - 2 (s - (d + 3 - 4 e)/2)^2 + 2 (s - q) + 2 (a - 2) e``,

and ``s - q <= d/4``. So ``Delta1 <= (d + 3)^2/2 + d/2 + 2 (a - 2)``. With a = 2 it is attained by
``z = 1`` and ``w = (0, .., 0, -1/2)``, where s is d/2 and e is 3/4. A missing record leaves ``2 a +
1 + 3 d + d^2/2`` at most, as ``|z_i^2 - 1/2| <= 1/2``: (d - 1)/2 less, and add-or-remove moves
that.

*Euclidean.* With ``v = (1, z)``, ``u = (1, w)`` of the features, ``p = z^2``, ``r = w^2``, ``P = 1
+ sum p``, ``R = 1 + sum r``, and responses y and x, the squared distance is

    ``P^2/2 + R^2/2 - (v'u)^2 + |p - r|^2/2 + 4 (y^2 P + x^2 R - 2 x y v'u) + 4 (y^2 - x^2)^2
        + (a^2 - 4) (y - x)^2``:

half the squared Frobenius norm of ``vv' - uu'`` has every product once, the linear entries once,
and the squares half. As ``-(v'u)^2 - 8 x y v'u <= 16 x^2 y^2``, all but the last is a function of
p, r, ``y^2`` and ``x^2`` in [0, 1] that grows in each: in p_i by ``P + p_i - r_i + 4 y^2 >= 0``, in
``y^2`` by ``4 P + 8 y^2 + 8 x^2``. At one it is ``(d + 1)^2 + 8 (d + 1) + 16``. So ``Delta2^2 <= (d
+ 5)^2 + 4 (a^2 - 4)``. A missing record leaves ``2 a^2 + 1 + 4.75 d + d^2/2`` at most, as ``z^2 +
(z^2 - 1/2)^2 <= 1 + 1/4``; that is less.

Categories
----------
A record may have m categories besides, each one of a public list. Further entries are twice the
count of each listed value, each ``z_i / 2`` and ``4 y`` summed over the records of each value, and
for each two lists the count of each pair of values. A category is a corner of a simplex: a record
has one entry other than zero among the counts of a list, whatever its length, one for each number
and list, and one for each two lists. So the sensitivity does not depend on the lists' lengths.

*Absolute.* In a list where the category changes the counts move by 4, a number by value by ``|z_i|
+ |w_i| = 2 max(|m_i|, delta_i) <= 2 max(1 - delta_i, delta_i)`` times its weight, and where it does
not change by ``2 delta_i`` times that, which is not more: let all m change. They move no more than
``4 + d + 8`` each, less ``min(delta_i, 1 - delta_i)`` for each feature, and pairs of values ``m (m
- 1)`` in all. Of ``2 delta (1 - delta)``, of which ``2 (s - q)`` is the sum, m of these minima
leave nothing where m >= 2, and 1/8 at most where m = 1. So

    ``Delta1 <= (d + 3)^2/2 + 2 (a - 2) + m (d + 11 + m)``,

and d/8 more where m = 1. Where m >= 2 and ``(d - 1)/2`` is an integer it is attained: that many
features and the response go from 1 to -1, the others stay 1, and all categories change; for any
other d this is half less. A missing record leaves half of what lists add more than without them.

*Euclidean.* A list adds at most ``d + 64`` where the category stays, ``8 + d/2 + 32`` where it
changes, and pairs ``m (m - 1)``: ``Delta2^2 <= (d + 5)^2 + 4 (a^2 - 4) + m (d + 63 + m)``. A
missing record leaves ``m (20 + d/4) + m (m - 1)/2`` more than without.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.reconstruct.base import SensitivityBound
from dbern.types import FloatArray, Int64Array

MOST_NUMBERS = 64
"""Most numbers of a record: its moments are then 2145 entries."""
MOST_COLUMNS = 128
"""Numbers and listed values together: solving takes their cube."""
_MAX_WEIGHT = 128


def product_names(names: Sequence[str]) -> list[str]:
    """Names of `dbern.combination.functions.with_products` of some numbers."""
    pairs = itertools.combinations_with_replacement(names, 2)
    return [f"{name}^2" if name == factor else f"{name} * {factor}" for name, factor in pairs]


@dataclass(frozen=True)
class Moments:
    """Moments of D `numeric` columns, the response included, and of categories.

    `blocks` are the numbers of listed values of each category. `weight` is a, of the count and of
    the response's sum. With `older` they are of a store that weighs the count and sums of the
    response alone.
    """

    numeric: int
    weight: int
    blocks: tuple[int, ...] = ()
    older: bool = False

    @classmethod
    def of(cls, numeric: int, blocks: tuple[int, ...] = ()) -> Moments:
        """The moments whose weight costs the other entries a twentieth of their accuracy."""
        unweighted = cls(numeric, 2, blocks).sensitivity(1).value
        return cls(numeric, min(2 + int(unweighted / 40), _MAX_WEIGHT), blocks)

    @property
    def numeric_size(self) -> int:
        """Number of entries of numbers alone."""
        return 1 + self.numeric + self.numeric * (self.numeric + 1) // 2

    @property
    def size(self) -> int:
        """Number of entries."""
        listed, squares = sum(self.blocks), sum(block**2 for block in self.blocks)
        return self.numeric_size + listed * (1 + self.numeric) + (listed**2 - squares) // 2

    @property
    def columns(self) -> int:
        """Number of columns to regress on or from: listed values, and then numbers."""
        return sum(self.blocks) + self.numeric

    def entry_names(
        self, names: Sequence[str], values: Sequence[Sequence[str]] = ()
    ) -> Iterator[str]:
        """Yield names of the entries, from those of the numbers and of each category's values."""
        listed = ["", *itertools.chain(*values), *names]
        for i, j in zip(*self.column_pairs, strict=True):
            first, second = listed[i], listed[j]
            if j == 0:
                yield "count"
            elif j <= sum(self.blocks):
                yield f"count of {first} and {second}" if i else f"count of {second}"
            elif i <= sum(self.blocks):
                yield f"sum of {second} where {first}" if i else f"sum of {second}"
            else:
                yield f"square of {first}" if i == j else f"product of {first} and {second}"

    @cached_property
    def pairs(self) -> tuple[Int64Array, Int64Array]:
        """Indices of the two numbers of each product, row by row of a triangle."""
        return np.triu_indices(self.numeric)

    @cached_property
    def column_pairs(self) -> tuple[Int64Array, Int64Array]:
        """Indices of the two columns whose products each entry sums; the first column is of ones.

        After the entries of numbers come, category by category and value by value, a count and a
        sum of each number, and then for each two categories the counts of pairs.
        """
        listed, starts = sum(self.blocks), np.cumsum([1, *self.blocks])
        numbers = np.arange(1 + listed, 1 + listed + self.numeric)
        rows, columns = self.pairs
        first = [np.zeros(1 + self.numeric, dtype=np.int64), numbers[rows]]
        second = [np.append(0, numbers), numbers[columns]]
        for value in range(1, 1 + listed):
            first += [np.zeros(1, dtype=np.int64), np.full(self.numeric, value)]
            second += [np.full(1, value), numbers]
        for a, b in itertools.combinations(range(len(self.blocks)), 2):
            of_a, of_b = (np.arange(starts[i], starts[i + 1]) for i in (a, b))
            first.append(np.repeat(of_a, len(of_b)))
            second.append(np.tile(of_b, len(of_a)))
        return np.concatenate(first), np.concatenate(second)

    @cached_property
    def scales(self) -> FloatArray:
        """Factor of each entry."""
        listed, response = sum(self.blocks), self.columns
        first, second = self.column_pairs
        by_value = (first > 0) & (first <= listed)
        of_response, scales = second == response, np.ones(self.size)
        if self.older:
            scales[of_response & by_value] = self.weight
        else:
            scales[of_response] = 2.0
            scales[(first == 0) & (second > 0) & (second <= listed)] = 2.0
            scales[by_value & (second > listed)] = 0.5
            scales[by_value & of_response] = 4.0
        scales[[0, self.numeric]] = self.weight
        return scales

    @property
    def largest_entry(self) -> int:
        """Bound an entry of one record."""
        return max(self.weight, 4)

    def of_products(self, products: FloatArray) -> FloatArray:
        """Entries from sums of products of all columns, the first of them of ones."""
        entries = products[self.column_pairs]
        entries[1 + self.numeric : self.numeric_size] -= (
            0.5 * products[0, 0] * (self.pairs[0] == self.pairs[1])
        )
        return np.asarray(entries * self.scales)

    def products(self, entries: FloatArray, count: float) -> FloatArray:
        """Products from entries, over `count`: the inverse of `of_products`."""
        products = np.zeros((1 + self.columns,) * 2)
        scaled = entries / self.scales / count
        scaled[1 + self.numeric : self.numeric_size] += 0.5 * (self.pairs[0] == self.pairs[1])
        products[self.column_pairs] = scaled
        products += np.triu(products, 1).T
        listed = np.arange(1, 1 + sum(self.blocks))
        products[listed, listed] = products[0, listed]
        return products

    def on_entries(self, weights: FloatArray) -> FloatArray:
        """Return weights (m, entries) that the noise of entries has in weighted sums of products.

        `weights` (m, columns, columns) are of the products of all columns, the first of ones, in
        units of the count: squares have half of that of the count besides their own.
        """
        listed, diagonal = sum(self.blocks), np.diagonal(weights, axis1=1, axis2=2)
        both = weights + np.swapaxes(weights, 1, 2)
        np.einsum("mii->mi", both)[:] = diagonal
        both[:, 0, 1 : 1 + listed] += diagonal[:, 1 : 1 + listed]
        both[:, 0, 0] += 0.5 * diagonal[:, 1 + listed :].sum(axis=1)
        first, second = self.column_pairs
        return np.asarray(both[:, first, second] / self.scales)

    @cached_property
    def variances(self) -> FloatArray:
        """Variances of the noise of `products`, where that of an entry is one."""
        variances = np.zeros((1 + self.columns,) * 2)
        variances[self.column_pairs] = self.scales**-2
        variances += np.triu(variances, 1).T
        listed = np.arange(1, 1 + sum(self.blocks))
        variances[listed, listed] = variances[0, listed]
        return variances

    def sensitivity(self, norm: int) -> SensitivityBound:
        """Bound n times the l1 or l2 distance that a replaced record moves the exact entries."""
        d, a, m = self.numeric - 1, self.weight, len(self.blocks)
        if norm == 2:
            squared = (d + 5) ** 2 + 4 * (a**2 - 4) + m * (d + 63 + m)
            return SensitivityBound(OUTWARD * math.sqrt(squared), f"sqrt({squared:g}) / n")
        record = (d + 3) ** 2 / 2 + 2 * (a - 2) + m * (d + 11 + m)
        record += d / 2 if m == 0 else d / 8 if m == 1 else 0.0
        text = f"({record:g}) / n: the response from 1 to -1/2, the other {d} numbers from 1 to 0"
        if m > 0:
            text = f"({record:g}) / n: half of {d + 1} numbers from 1 to -1, and {m} categories"
        missing = self.added_sensitivity(1)
        return missing if missing.value > record else SensitivityBound(OUTWARD * record, text)

    def added_sensitivity(self, norm: int) -> SensitivityBound:
        """Bound n times the l1 or l2 distance that a record moves that is added or removed."""
        d, a, m = self.numeric - 1, self.weight, len(self.blocks)
        if norm == 2:
            squared = 2 * a**2 + 1 + 4.75 * d + d**2 / 2
            squared += m * (20 + d / 4) + m * (m - 1) / 2
            return SensitivityBound(
                OUTWARD * math.sqrt(squared), f"sqrt({squared:g}) / n: a record"
            )
        value = 2 * a + 1 + 3 * d + d**2 / 2 + m * (d + 11 + m) / 2
        return SensitivityBound(
            OUTWARD * value, f"({value:g}) / n: a record, all of whose numbers are 1"
        )

    @property
    def largest(self) -> float:
        """Bound the sum of all entries' sizes."""
        return self.added_sensitivity(1).value
