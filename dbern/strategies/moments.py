"""Moments of several numbers in [-1, 1]: what one record moves, and least squares from them.

Of D numbers z of a record (features, and last the response) the entries are, over n,

    ``a``,   ``z_i`` (the last times a),   ``z_i z_j`` for ``i < j``,   ``z_i^2 - 1/2``,

summed over the records that count; a missing record adds nothing. The public integer a >= 1
(`Moments.weight`) makes the count and the response's sum, on which every answer depends, a times as
accurate as the other entries.

Sensitivity under replace-one
-----------------------------
Let a record z become w. With ``m = (z + w)/2``, ``delta_i = |z_i - w_i|/2`` in [0, 1], the cube
says ``|m_i| <= 1 - delta_i``. So

    ``|z_i - w_i| = 2 delta_i``,
    ``|z_i^2 - w_i^2| = 4 |m_i| delta_i <= 4 delta_i (1 - delta_i)``,
    ``|z_i z_j - w_i w_j| <= 2 |m_i| delta_j + 2 |m_j| delta_i
                          <= 2 (delta_i + delta_j - 2 delta_i delta_j)``.

Let ``s = sum delta_i``, ``q = sum delta_i^2``; ``sum_{i<j} 2 delta_i delta_j = s^2 - q``. The sums
of the three are ``2 s + 2 (a - 1) delta_D``, ``4 s - 4 q`` and ``2 (D - 1) s - 2 (s^2 - q)``,
together

    ``G = 2 (D + 2) s + 2 (a - 1) delta_D - 2 s^2 - 2 q``,

a concave function of delta in [0, 1]^D. Each of its values is attained, by z = 1, w = 1 - 2 delta.

*a = 1*: ``q >= s^2/D``, so ``G <= 2 (D + 2) s - 2 s^2 (D + 1)/D``, whose largest value is ``D (D +
2)^2 / (2 (D + 1))``, where all w_i are ``-1/(D + 1)``. Corners of the cube are not enough.

*a >= 2*: let ``delta_D = 1`` and the others be 1/2. Then ``s = (D + 1)/2``; the derivative of G,
``2 (D + 2) - 4 s - 4 delta_i`` and for i = D ``2 (a - 1)`` more, is 0 for i < D and ``2 (a - 2)``
for D, so none of it points into the cube. As G is concave this is the largest value, ``2 a + 2 (D -
1) + D (D - 1)/2``. It is attained where w is 0, its last number -1.

*A missing record* leaves ``2 a + (D - 1) + D (D - 1)/2 + D/2 = 2 a + D - 1 + D^2/2`` at most, as
``|z_i^2 - 1/2| <= 1/2``. So Delta1 is the larger of the two, and add-or-remove moves the latter.

*Euclidean.* With ``v = (1, z)``, ``u = (1, w)`` the squared distance is ``(|v|^4 + |u|^4 - 2
(v'u)^2)/2 + sum_i (z_i^2 - w_i^2)^2/2 + (a^2 - 1) (z_D - w_D)^2``: half the squared Frobenius norm
of ``vv' - uu'`` has every product once, the linear entries once, and the squares half. Left without
its product v'u, and with ``p = z^2``, ``r = w^2``, all but the last is ``((1 + sum p)^2 + (1 + sum
r)^2 + |p - r|^2)/2``: convex in p and r, so largest at a corner of [0, 1]^(2D). There, an entry of
p that goes from 1 to 0 takes ``sum p + 1/2 >= 3/2`` from the first square and adds at most 1/2 to
the last, and so for r: all are 1, and the value is ``(D + 1)^2``. Together ``Delta2^2 <= (D + 1)^2
+ 4 (a^2 - 1)``. A missing record leaves ``2 a^2 + (D - 1) + D (D - 1)/2 + D/4`` at most, as ``z^2 +
(z^2 - 1/2)^2 <= 1 + 1/4``; that is less, by ``D^2/2 + 5 D/4 + 2 a^2 - 2 > 0``.

Categories
----------
A record may have m categories besides, each one of a public list. Further entries are the count of
each listed value, each z_i summed over the records of each value (the last times a), and for each
two lists the count of each pair of values. A category is a corner of a simplex: a record has one
entry other than zero among the counts of a list, whatever its length, one for each number and list,
and one for each two lists. So the sensitivity does not depend on the lists' lengths.

*Absolute.* Let a record become another, whose categories differ in some lists. In each of these a
count moves twice by 1, and so do counts of pairs with any other list; z_i by value moves by ``|z_i|
+ |w_i| = 2 max(|m_i|, delta_i) <= 2 max(1 - delta_i, delta_i)``, and in lists where the category is
the same by ``2 delta_i``, which is not more: let all m differ. With ``q = s - sum delta_i (1 -
delta_i)`` the whole is at most

    ``2 s (D + 1 - s) + 2 (a - 1) (delta_D + m max(1 - delta_D, delta_D)) + 2 m D + m (m + 1)
      + 2 sum (delta_i (1 - delta_i) - m min(delta_i, 1 - delta_i))``,

where s is again the sum of delta. As ``delta (1 - delta) <= min(delta, 1 - delta)`` the last sum is
not positive, and ``s (D + 1 - s) <= (D + 1)^2/4``. Where m >= 2 that may be rounded down: with f
the distance of s from the nearest integer, ``s (D + 1 - s)`` is at most its largest value at
integers plus ``f (1 - f)``, and ``sum min(delta_i, 1 - delta_i) >= f``, because the corner of the
cube that is nearest to delta has an integer sum; m - 1 of these take more than f (1 - f) gives. So

    ``Delta1 <= 2 floor((D + 1)^2/4) + 2 (a - 1) (m + 1) + 2 m D + m (m + 1)``,

and half more where m = 1 and D is even. It is attained, but for a part of that half, where ``(D +
1)/2`` numbers, rounded down, the last among them, go from 1 to -1, the others stay 1, and all
categories change. A missing record leaves ``m (D - 1 + a) + m (m + 1)/2`` more than without
categories, in all less than this.

*Euclidean.* With the corners in v and u beside 1 and z the proof above holds as it is: products of
two values of one list are zero, and their squares are no entries. The response by value adds ``(a^2
- 1) (z_D - w_D)^2`` or ``(a^2 - 1) (z_D^2 + w_D^2)`` for each list: ``Delta2^2 <= (D + 1 + m)^2 + 4
(m + 1) (a^2 - 1)``. A missing record leaves ``m (D - 1 + a^2) + m (m + 1)/2`` more than without.

Least squares after the noise
-----------------------------
Everything below is post-processing of the released numbers by public facts. A category is one
column a listed value, 0 or 1; because these sum to 1, the coefficients of a list sum to 0. Let A
be the noisy covariance matrix of the columns, its negative eigenvalues set to 0, and b their
covariances with the response. For coefficients w, with k the mean residual, the noise of the normal
equations ``b - A w`` has about the covariance ``Sigma = sigma^2 (1 + |w|^2 + k^2) I + t^2 m m'``
(in place of 1, ``1/a^2`` for a listed value): sigma is the noise of a released moment, m the
columns' means, t the noise of the mean residual. Unlike the
records' own noise it is not small where an eigenvalue of A is. So what is solved is no ridge's ``(A
+ lambda)^-1 b`` but the mean of w given b under ``w ~ N(0, omega I)``, ``A (A A + Sigma/omega)^-1
b``, averaged over a grid of omega by its likelihood, ``b ~ N(0, omega A A + Sigma)``, up to where w
would explain four times what the response varies. Where noise rules, the coefficients go to zero,
and what is left is the released mean.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.strategies.base import Bound
from dbern.types import FloatArray, Int64Array

MOST_NUMBERS = 64
"""Of a record: its moments are then 2145 entries."""
MOST_COLUMNS = 128
"""Numbers and listed values together: solving takes their cube."""


def product_names(names: Sequence[str]) -> list[str]:
    """Return the names of `dbern.combination.with_products` of some numbers.

    Examples
    --------
    >>> product_names(["x", "y"])
    ['x^2', 'x * y', 'y^2']
    """
    pairs = itertools.combinations_with_replacement(names, 2)
    return [f"{one}^2" if one == other else f"{one} * {other}" for one, other in pairs]


@dataclass(frozen=True)
class Moments:
    """The entries of D numbers and m categories; see the top of the module.

    Parameters
    ----------
    numbers : int
        D, the response included.
    weight : int
        a, of the count and of the response's sum.
    blocks : tuple of int
        How many values are listed of each category.

    Examples
    --------
    >>> Moments.of(3), Moments.of(3).size, round(Moments.of(3).sensitivity(1).value, 6)
    (Moments(numbers=3, weight=1, blocks=()), 10, 9.375)
    """

    numbers: int
    weight: int
    blocks: tuple[int, ...] = ()

    @classmethod
    def of(cls, numbers: int, blocks: tuple[int, ...] = ()) -> Moments:
        """Return those whose weight costs the other entries some tenth of their accuracy.

        With categories a quarter at most: there is a response for each value.
        """
        if not blocks:
            return cls(numbers, 1 + numbers**2 // 32)
        plain = cls(numbers, 1, blocks).sensitivity(1).value
        return cls(numbers, 1 + int(plain / (8 * (1 + len(blocks)))), blocks)

    @property
    def plain(self) -> int:
        """How many entries there are of numbers alone."""
        return 1 + self.numbers + self.numbers * (self.numbers + 1) // 2

    @property
    def size(self) -> int:
        """How many entries there are."""
        listed, squares = sum(self.blocks), sum(one**2 for one in self.blocks)
        return self.plain + listed * (1 + self.numbers) + (listed**2 - squares) // 2

    @property
    def columns(self) -> int:
        """How many there are to regress on or from: listed values, and then numbers."""
        return sum(self.blocks) + self.numbers

    def entries(self, names: Sequence[str], values: Sequence[Sequence[str]] = ()) -> Iterator[str]:
        """Yield what the entries are, by the numbers' names and those of each category's values."""
        listed = ["", *itertools.chain(*values), *names]
        for i, j in zip(*self.places, strict=True):
            one, other = listed[i], listed[j]
            if j == 0:
                yield "count"
            elif j <= sum(self.blocks):
                yield f"count of {one} and {other}" if i else f"count of {other}"
            elif i <= sum(self.blocks):
                yield f"sum of {other} where {one}" if i else f"sum of {other}"
            else:
                yield f"square of {one}" if i == j else f"product of {one} and {other}"

    @cached_property
    def pairs(self) -> tuple[Int64Array, Int64Array]:
        """Which two numbers each product is of, row by row of a triangle."""
        return np.triu_indices(self.numbers)

    @cached_property
    def places(self) -> tuple[Int64Array, Int64Array]:
        """Which two columns each entry is the sum of products of; the first column is of ones.

        After the entries of numbers come, category by category and value by value, a count and a
        sum of each number, and then for each two categories the counts of pairs.
        """
        listed, ends = sum(self.blocks), np.cumsum([1, *self.blocks])
        numbers = np.arange(1 + listed, 1 + listed + self.numbers)
        first, second = self.pairs
        one = [np.zeros(1 + self.numbers, dtype=np.int64), numbers[first]]
        other = [np.append(0, numbers), numbers[second]]
        for value in range(1, 1 + listed):
            one += [np.zeros(1, dtype=np.int64), np.full(self.numbers, value)]
            other += [np.full(1, value), numbers]
        for a, b in itertools.combinations(range(len(self.blocks)), 2):
            here, there = (np.arange(ends[i], ends[i + 1]) for i in (a, b))
            one.append(np.repeat(here, len(there)))
            other.append(np.tile(there, len(here)))
        return np.concatenate(one), np.concatenate(other)

    @property
    def weights(self) -> FloatArray:
        """Of the count and each number's sum: one but for the first and last."""
        found = np.ones(1 + self.numbers)
        found[[0, -1]] = self.weight
        return found

    @cached_property
    def scales(self) -> FloatArray:
        """Of all entries: the same, and of each sum of the response by value."""
        found = np.ones(self.size)
        found[: 1 + self.numbers] = self.weights
        first, second = self.places
        by_value = (first > 0) & (first <= sum(self.blocks)) & (second == self.columns)
        found[by_value] = self.weight
        return found

    def of_products(self, products: FloatArray) -> FloatArray:
        """Return the entries, from sums of products of all columns, the first of them of ones."""
        found = products[self.places] * self.scales
        found[1 + self.numbers : self.plain] -= (
            0.5 * products[0, 0] * (self.pairs[0] == self.pairs[1])
        )
        return np.asarray(found)

    def products(self, entries: FloatArray, count: float) -> FloatArray:
        """Return the products again, over `count`."""
        found = np.zeros((1 + self.columns,) * 2)
        scaled = entries / self.scales / count
        scaled[1 + self.numbers : self.plain] += 0.5 * (self.pairs[0] == self.pairs[1])
        found[self.places] = scaled
        found += np.triu(found, 1).T
        listed = np.arange(1, 1 + sum(self.blocks))
        found[listed, listed] = found[0, listed]
        return found

    def sensitivity(self, norm: int) -> Bound:
        """Bound n times the l1 or l2 distance that a replaced record moves the exact entries."""
        d, a = self.numbers, self.weight
        if norm == 2:
            m = len(self.blocks)
            squared = (d + 1 + m) ** 2 + 4 * (m + 1) * (a**2 - 1)
            return Bound(OUTWARD * math.sqrt(squared), f"sqrt({squared:g}) / n")
        record = d * (d + 2) ** 2 / (2 * (d + 1))
        text = f"{d} x {d + 2}^2 / (2 x {d + 1}) / n: all numbers from 1 to -1/{d + 1}"
        if a > 1:
            record = 2 * a + 2 * (d - 1) + d * (d - 1) / 2
            text = f"({record:g}) / n: the response from 1 to -1, the other {d - 1} from 1 to 0"
        m = len(self.blocks)
        if m > 0:
            record = 2 * ((d + 1) ** 2 // 4) + (m == 1 and d % 2 == 0) / 2
            record += 2 * (a - 1) * (m + 1) + 2 * m * d + m * (m + 1)
            text = f"({record:g}) / n: half of {d} numbers from 1 to -1, and {m} categories"
        missing = self.added_sensitivity(1)
        return missing if missing.value > record else Bound(OUTWARD * record, text)

    def added_sensitivity(self, norm: int) -> Bound:
        """Bound n times the l1 or l2 distance that a record moves that is added or removed."""
        d, a, m = self.numbers, self.weight, len(self.blocks)
        listed = m * (d - 1) + m * (m + 1) / 2
        if norm == 2:
            squared = 2 * a**2 + (d - 1) + d * (d - 1) / 2 + d / 4 + listed + m * a**2
            return Bound(OUTWARD * math.sqrt(squared), f"sqrt({squared:g}) / n: a record")
        value = 2 * a + d - 1 + d**2 / 2 + listed + m * a
        return Bound(OUTWARD * value, f"({value:g}) / n: a record, all of whose numbers are 1")

    @property
    def largest(self) -> float:
        """Bound the sum of all entries' sizes."""
        return self.added_sensitivity(1).value


_FAR = 1e100
_LEAST_NOISE = 1e-12


@dataclass(frozen=True)
class Measured:
    """Released moments, in their own units, and the deviations of their noise.

    Columns are the listed values of categories, and then the numbers, the response last.
    """

    count: float
    means: FloatArray
    covariance: FloatArray
    deviation: float
    weight: int
    blocks: tuple[int, ...] = ()

    @classmethod
    def of(cls, moments: Moments, released: FloatArray, deviation: float) -> Measured:
        """Estimate the means and covariances of the counted records from the entries.

        Means and products are cut to [-1, 1]. Where the count is lost in its noise, what is divided
        by is that: everything is as uncertain as it is. So nothing fails, whatever is released.
        """
        released = np.clip(released, -_FAR, _FAR)
        deviation = min(max(deviation, 1 / _FAR), _FAR)
        count = max(float(released[0] / moments.weight), deviation / moments.weight)
        products = np.clip(moments.products(released, count), -1.0, 1.0)
        means = products[0, 1:]
        covariance = products[1:, 1:] - np.outer(means, means)
        noise = max(deviation / count, _LEAST_NOISE)
        return cls(count, means, covariance, noise, moments.weight, moments.blocks)

    def contrasts(self, columns: Sequence[int]) -> FloatArray:
        """Return an orthonormal basis (columns, c) of coefficients that sum to 0 in each list."""
        kept = np.eye(len(columns))
        starts = np.cumsum([0, *self.blocks])
        for start, end in itertools.pairwise(starts):
            own = np.flatnonzero([start <= column < end for column in columns])
            kept[np.ix_(own, own)] -= 1 / max(len(own), 1)
        values, vectors = np.linalg.eigh(kept)
        return np.asarray(vectors[:, values > 0.5]) if self.blocks else kept


@dataclass(frozen=True)
class Fit:
    """Least squares of one number on others, as numbers in [-1, 1].

    Attributes
    ----------
    slopes : array (d,)
    intercept : float
    spread : array (d + 1, d + 1)
        The approximate covariance of the slopes' and the intercept's errors that noise makes.
    explained, varied : float
        The response's variance that is explained, and its variance; both estimates.
    doubt : float
        The deviation of the noise of what is left of the variance, about and at most.
    """

    slopes: FloatArray
    intercept: float
    spread: FloatArray
    explained: float
    varied: float
    doubt: float


_STEPS = 4
_SCALES = np.logspace(-3, 0, 31)
_MOST_EXPLAINED = 4.0
"""Times what the response varies that coefficients of independent columns may explain."""


def least_squares(
    measured: Measured, response: int, columns: Sequence[int], ridge: float | None = None
) -> Fit:
    """Solve for the coefficients of the columns; see the top of the module.

    With `ridge` those of ``(A + ridge I)^-1 b``, for any positive number; else A and b decide.

    Examples
    --------
    >>> exact = Measured(1.0, np.zeros(2), np.array([[0.2, 0.1], [0.1, 0.2]]), 1e-9, 1)
    >>> least_squares(exact, 1, [0]).slopes.round(6).tolist()
    [0.5]
    >>> least_squares(exact, 1, [0], ridge=0.2).slopes.round(6).tolist()
    [0.25]
    """
    chosen = list(columns)
    basis = measured.contrasts(chosen)
    whole, free = measured.covariance, basis.shape[1]
    values, vectors = np.linalg.eigh(basis.T @ whole[np.ix_(chosen, chosen)] @ basis)
    a = (vectors * np.maximum(values, 0.0)) @ vectors.T
    b, varied = basis.T @ whole[chosen, response], float(whole[response, response])
    means, mean = measured.means[chosen], float(measured.means[response])
    found, spread = np.zeros(free), np.zeros((free, free))
    for _ in range(_STEPS if free else 0):
        noise = basis.T @ _equations_noise(measured, response, chosen, basis @ found) @ basis
        if ridge is None:
            most = _MOST_EXPLAINED * max(varied, measured.deviation)
            most /= max(float(np.trace(a)), measured.deviation)
            found, spread = _averaged(a, b, noise, most * _SCALES)
        else:
            inverse = np.linalg.inv(a + ridge * np.eye(free))
            found, spread = inverse @ b, inverse @ noise @ inverse
    slopes = basis @ found
    return Fit(
        slopes,
        mean - float(means @ slopes),
        _with_intercept(measured, response, chosen, slopes, basis @ spread @ basis.T),
        float(2 * found @ b - found @ a @ found),
        varied,
        _doubt(measured, response, chosen, slopes),
    )


def _equations_noise(
    measured: Measured, response: int, columns: list[int], slopes: FloatArray
) -> FloatArray:
    """The covariance of the noise of ``b - A w``, about."""
    means, sigma = measured.means[columns], measured.deviation
    rest = float(measured.means[response] - means @ slopes)
    weighted = np.array(columns) < sum(measured.blocks) * (response + 1 == len(measured.means))
    products = np.where(weighted, 1 / measured.weight**2, 1.0)
    own = sigma**2 * (products + slopes @ slopes + rest**2)
    middle = _middle_noise(measured, response, columns, slopes)
    return np.asarray(np.diag(own) + middle * np.outer(means, means))


def _middle_noise(
    measured: Measured, response: int, columns: list[int], slopes: FloatArray
) -> float:
    """The variance of the noise of the mean residual."""
    of_sums = np.full(len(measured.means), measured.deviation)
    of_sums[-1] /= measured.weight
    rest = float(measured.means[response] - measured.means[columns] @ slopes)
    of_count = rest * measured.deviation / measured.weight
    return float(of_sums[response] ** 2 + np.square(slopes * of_sums[columns]).sum() + of_count**2)


def _doubt(measured: Measured, response: int, columns: list[int], slopes: FloatArray) -> float:
    """With v = (1, -w) the products' part, ``sum v_i^4 + 4 sum v_i^2 v_j^2``, is below 2 |v|^4."""
    rest = float(measured.means[response] - measured.means[columns] @ slopes)
    middle = math.sqrt(_middle_noise(measured, response, columns, slopes))
    products = math.sqrt(2) * measured.deviation * (1 + float(slopes @ slopes))
    return math.hypot(products, 2 * rest * middle)


def _averaged(
    a: FloatArray, b: FloatArray, noise: FloatArray, scales: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The mean of w given b, over all scales of its prior by their likelihood; and a covariance.

    That is the one of the largest scale: a small one is an estimate, and would be too sure of it.
    """
    root = np.linalg.cholesky(noise)
    left, sizes, right = np.linalg.svd(np.linalg.solve(root, a))
    seen = left.T @ np.linalg.solve(root, b)
    variance = np.outer(scales, sizes**2) + 1.0
    likelihood = -0.5 * (np.log(variance) + seen**2 / variance).sum(axis=1)
    share = np.exp(likelihood - likelihood.max())
    share /= share.sum()
    each = scales[:, None] * sizes * seen / variance
    own = scales[-1] / variance[-1]
    return np.asarray(right.T @ (share @ each)), np.asarray((right.T * own) @ right)


def _with_intercept(
    measured: Measured,
    response: int,
    columns: list[int],
    slopes: FloatArray,
    spread: FloatArray,
) -> FloatArray:
    """The covariance of slopes and intercept: ``mean - means'w``, its own noise beside theirs."""
    to = np.vstack([np.eye(len(columns)), -measured.means[columns]])
    found = to @ spread @ to.T
    found[-1, -1] += _middle_noise(measured, response, columns, slopes)
    return np.asarray(found)
