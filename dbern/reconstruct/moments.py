"""Moments of several numbers in [-1, 1]: their sensitivity, and least squares from them.

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

Least squares after the noise
-----------------------------
Everything below is post-processing of the released numbers by public facts. A category is one
column a listed value, 0 or 1; because these sum to 1, the coefficients of a list sum to 0. Of every
covariance of two columns the variance t of its noise is known.

*What noise hides.* Two columns that are not of the same list have a covariance c in proportion to
their deviations: let ``c ~ N(0, tau V)``, V the product of their noisy variances, each at least the
deviation of its own noise. Then c is ``tau V/(tau V + t)`` of what was released, on average; this
share, averaged over a grid of tau, is what is kept. How many covariances have which tau is
estimated by 25 steps of expectation and maximization from all of them and one more of each, so that
those far above their noise stay as they are beside many that are none, and only what may be noise
is taken for it. What is left of t is less, and is taken to be the root of the share, as covariances
are no normal sample.

*Coefficients.* Let A be the covariance matrix of the columns so far, its negative eigenvalues set
to 0, and b their covariances with the response, as released. For coefficients w, with k the mean
residual, the noise of the normal equations ``b - A w`` has about the covariance ``Sigma``: on its
diagonal the noise of b, that of A times ``w^2``, and that of the means times ``k^2``; and besides
``t m m'``, m the columns' means, t the noise of the mean residual. Unlike the records' own noise it
is not small where an eigenvalue of A is. So what is solved is no ridge's ``(A + lambda)^-1 b`` but
the mean of w given b under ``w ~ N(0, omega I)``, ``A (A A + Sigma/omega)^-1 b``, averaged over a
grid of omega by its likelihood, ``b ~ N(0, omega A A + Sigma)``, up to where w would explain four
times what the response varies. Where noise rules, the coefficients go to zero, and what is left is
the released mean.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.reconstruct.base import Bound
from dbern.types import FloatArray, Int64Array

MOST_NUMBERS = 64
"""Of a record: its moments are then 2145 entries."""
MOST_COLUMNS = 128
"""Numbers and listed values together: solving takes their cube."""


def product_names(names: Sequence[str]) -> list[str]:
    """Names of `dbern.combination.polynomials.with_products` of some numbers."""
    pairs = itertools.combinations_with_replacement(names, 2)
    return [f"{one}^2" if one == other else f"{one} * {other}" for one, other in pairs]


@dataclass(frozen=True)
class Moments:
    """Moments of D `numbers`, the response included, and of categories with `blocks` listed values.

    `weight` is a, of the count and of the response's sum. With `older` they are of a store that
    weighs the count and sums of the response alone.
    """

    numbers: int
    weight: int
    blocks: tuple[int, ...] = ()
    older: bool = False

    @classmethod
    def of(cls, numbers: int, blocks: tuple[int, ...] = ()) -> Moments:
        """The moments whose weight costs the other entries a twentieth of their accuracy."""
        plain = cls(numbers, 2, blocks).sensitivity(1).value
        return cls(numbers, min(2 + int(plain / 40), _MOST_WEIGHT), blocks)

    @property
    def plain(self) -> int:
        """Number of entries of numbers alone."""
        return 1 + self.numbers + self.numbers * (self.numbers + 1) // 2

    @property
    def size(self) -> int:
        """Number of entries."""
        listed, squares = sum(self.blocks), sum(one**2 for one in self.blocks)
        return self.plain + listed * (1 + self.numbers) + (listed**2 - squares) // 2

    @property
    def columns(self) -> int:
        """Number of columns to regress on or from: listed values, and then numbers."""
        return sum(self.blocks) + self.numbers

    def entries(self, names: Sequence[str], values: Sequence[Sequence[str]] = ()) -> Iterator[str]:
        """Yield names of the entries, from those of the numbers and of each category's values."""
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
        """Indices of the two numbers of each product, row by row of a triangle."""
        return np.triu_indices(self.numbers)

    @cached_property
    def places(self) -> tuple[Int64Array, Int64Array]:
        """Indices of the two columns whose products each entry sums; the first column is of ones.

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

    @cached_property
    def scales(self) -> FloatArray:
        """Factor of each entry."""
        listed, response = sum(self.blocks), self.columns
        first, second = self.places
        by_value = (first > 0) & (first <= listed)
        of_response, found = second == response, np.ones(self.size)
        if self.older:
            found[of_response & by_value] = self.weight
        else:
            found[of_response] = 2.0
            found[(first == 0) & (second > 0) & (second <= listed)] = 2.0
            found[by_value & (second > listed)] = 0.5
            found[by_value & of_response] = 4.0
        found[[0, self.numbers]] = self.weight
        return found

    @property
    def largest_entry(self) -> int:
        """Bound an entry of one record."""
        return max(self.weight, 4)

    def of_products(self, products: FloatArray) -> FloatArray:
        """Entries from sums of products of all columns, the first of them of ones."""
        found = products[self.places]
        found[1 + self.numbers : self.plain] -= (
            0.5 * products[0, 0] * (self.pairs[0] == self.pairs[1])
        )
        return np.asarray(found * self.scales)

    def products(self, entries: FloatArray, count: float) -> FloatArray:
        """Products from entries, over `count`: the inverse of `of_products`."""
        found = np.zeros((1 + self.columns,) * 2)
        scaled = entries / self.scales / count
        scaled[1 + self.numbers : self.plain] += 0.5 * (self.pairs[0] == self.pairs[1])
        found[self.places] = scaled
        found += np.triu(found, 1).T
        listed = np.arange(1, 1 + sum(self.blocks))
        found[listed, listed] = found[0, listed]
        return found

    @cached_property
    def variances(self) -> FloatArray:
        """Variances of the noise of `products`, where that of an entry is one."""
        found = np.zeros((1 + self.columns,) * 2)
        found[self.places] = self.scales**-2
        found += np.triu(found, 1).T
        listed = np.arange(1, 1 + sum(self.blocks))
        found[listed, listed] = found[0, listed]
        return found

    def sensitivity(self, norm: int) -> Bound:
        """Bound n times the l1 or l2 distance that a replaced record moves the exact entries."""
        d, a, m = self.numbers - 1, self.weight, len(self.blocks)
        if norm == 2:
            squared = (d + 5) ** 2 + 4 * (a**2 - 4) + m * (d + 63 + m)
            return Bound(OUTWARD * math.sqrt(squared), f"sqrt({squared:g}) / n")
        record = (d + 3) ** 2 / 2 + 2 * (a - 2) + m * (d + 11 + m)
        record += d / 2 if m == 0 else d / 8 if m == 1 else 0.0
        text = f"({record:g}) / n: the response from 1 to -1/2, the other {d} numbers from 1 to 0"
        if m > 0:
            text = f"({record:g}) / n: half of {d + 1} numbers from 1 to -1, and {m} categories"
        missing = self.added_sensitivity(1)
        return missing if missing.value > record else Bound(OUTWARD * record, text)

    def added_sensitivity(self, norm: int) -> Bound:
        """Bound n times the l1 or l2 distance that a record moves that is added or removed."""
        d, a, m = self.numbers - 1, self.weight, len(self.blocks)
        if norm == 2:
            squared = 2 * a**2 + 1 + 4.75 * d + d**2 / 2
            squared += m * (20 + d / 4) + m * (m - 1) / 2
            return Bound(OUTWARD * math.sqrt(squared), f"sqrt({squared:g}) / n: a record")
        value = 2 * a + 1 + 3 * d + d**2 / 2 + m * (d + 11 + m) / 2
        return Bound(OUTWARD * value, f"({value:g}) / n: a record, all of whose numbers are 1")

    @property
    def largest(self) -> float:
        """Bound the sum of all entries' sizes."""
        return self.added_sensitivity(1).value


_MOST_WEIGHT = 128
_FAR = 1e100
_LEAST_NOISE = 1e-12


@dataclass(frozen=True)
class Measured:
    """Released moments, in their own units, and the deviations of their noise.

    Columns are the listed values of categories, and then the numbers, the response last. `noise`
    has the variances of the noise of the count and the means, row 0, and of the covariances.
    """

    count: float
    means: FloatArray
    covariance: FloatArray
    deviation: float
    noise: FloatArray
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
        each = max(deviation / count, _LEAST_NOISE)
        noise = each**2 * moments.variances
        of_means = np.outer(noise[0, 1:], means**2)
        noise[1:, 1:] += of_means + of_means.T
        return cls(count, means, covariance, each, noise, moments.blocks)

    def columns_covariance(self, columns: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Shrunk covariance matrix of some columns, and the variances of its noise.

        See *What noise hides* above.
        """
        own = np.ix_(columns, columns)
        found, noise = self.covariance[own], self.noise[1:, 1:][own]
        groups = np.repeat(np.arange(len(self.blocks)), self.blocks)
        groups = np.append(groups, np.arange(len(self.means) - len(groups)) + len(self.blocks))
        apart = groups[columns, None] != groups[columns]
        size = np.clip(found.diagonal(), np.sqrt(noise.diagonal()), 1.0)
        prior, released, own_noise = np.outer(size, size)[apart], found[apart], noise[apart]
        whole = np.multiply.outer(_SHARES, prior) + own_noise
        density = -0.5 * (np.log(whole) + released**2 / whole)
        density = np.exp(density - density.max(axis=0))
        weights, pairs = np.ones(len(whole)), len(released) / 2  # each is there twice
        for _ in range(_MIXED):
            each = weights[:, None] * density
            each /= each.sum(axis=0)
            weights = (1 + each.sum(axis=1) / 2) / (len(whole) + pairs)
        kept = 1 - own_noise * (each / whole).sum(axis=0)
        found[apart] = kept * released
        noise[apart] = np.sqrt(kept) * own_noise
        return found, noise

    def contrasts(self, columns: Sequence[int]) -> FloatArray:
        """Orthonormal basis (columns, c) of coefficients that sum to 0 in each list."""
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

    `spread` (d + 1, d + 1) is the approximate covariance of the errors that noise makes in slopes
    and intercept; `explained` and `varied` estimate the response's explained variance and its
    variance, and `doubt` is about, and at most, the deviation of the noise of their difference.
    """

    slopes: FloatArray
    intercept: float
    spread: FloatArray
    explained: float
    varied: float
    doubt: float


_STEPS = 4
_SHARES = np.logspace(-4, 0, 13)
"""Squares of correlations: what they may be on average."""
_MIXED = 25
"""Steps of expectation and maximization for how many covariances have each of these sizes."""
_SCALES = np.logspace(-3, 0, 31)
_MOST_EXPLAINED = 4.0
"""Times what the response varies that coefficients of independent columns may explain."""


def least_squares(
    measured: Measured, response: int, columns: Sequence[int], ridge: float | None = None
) -> Fit:
    """Solve for the coefficients of the columns (*Coefficients* above).

    With `ridge` those of ``(A + ridge I)^-1 b``, for any positive number; else A and b decide.
    """
    chosen = list(columns)
    basis = measured.contrasts(chosen)
    whole, free = measured.covariance, basis.shape[1]
    kept, kept_noise = measured.columns_covariance(chosen)
    values, vectors = np.linalg.eigh(basis.T @ kept @ basis)
    a = (vectors * np.maximum(values, 0.0)) @ vectors.T
    b, varied = basis.T @ whole[chosen, response], float(whole[response, response])
    means, mean = measured.means[chosen], float(measured.means[response])
    found, spread = np.zeros(free), np.zeros((free, free))
    for _ in range(_STEPS if free else 0):
        of_equations = _equations_noise(measured, response, chosen, basis @ found, kept_noise)
        noise = basis.T @ of_equations @ basis
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
    measured: Measured,
    response: int,
    columns: list[int],
    slopes: FloatArray,
    kept_noise: FloatArray,
) -> FloatArray:
    """Approximate covariance of the noise of ``b - A w``."""
    means, noise = measured.means[columns], measured.noise
    rest = float(measured.means[response] - means @ slopes)
    of_means, of_response = noise[0, 1:][columns], noise[1:, 1 + response][columns]
    own = of_response + kept_noise @ slopes**2 + of_means * rest**2
    middle = _middle_noise(measured, response, columns, slopes)
    return np.asarray(np.diag(own) + middle * np.outer(means, means))


def _middle_noise(
    measured: Measured, response: int, columns: list[int], slopes: FloatArray
) -> float:
    """Variance of the noise of the mean residual."""
    of_count, of_means = measured.noise[0, 0], measured.noise[0, 1:]
    rest = float(measured.means[response] - measured.means[columns] @ slopes)
    return float(of_means[response] + of_means[columns] @ slopes**2 + rest**2 * of_count)


def _doubt(measured: Measured, response: int, columns: list[int], slopes: FloatArray) -> float:
    """Deviation of the noise of the unexplained variance; products but squares occur twice."""
    every, squares = [*columns, response], np.append(slopes**2, 1.0)
    noise = measured.noise[1:, 1:][np.ix_(every, every)]
    products = float(2 * squares @ noise @ squares - squares**2 @ noise.diagonal())
    rest = float(measured.means[response] - measured.means[columns] @ slopes)
    middle = _middle_noise(measured, response, columns, slopes)
    return math.sqrt(products + 4 * rest**2 * middle)


def _averaged(
    a: FloatArray, b: FloatArray, noise: FloatArray, scales: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The mean of w given b, over all scales of its prior by their likelihood; and a covariance.

    The covariance is that of the largest scale: a small one is an estimate, and would be too
    certain.
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
    measured: Measured, response: int, columns: list[int], slopes: FloatArray, spread: FloatArray
) -> FloatArray:
    """The covariance of slopes and intercept: ``mean - means'w``, its own noise beside theirs."""
    to = np.vstack([np.eye(len(columns)), -measured.means[columns]])
    found = to @ spread @ to.T
    found[-1, -1] += _middle_noise(measured, response, columns, slopes)
    return np.asarray(found)
