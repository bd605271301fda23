"""Questions about where the rows are along axes: quantiles, means, covariances.

The proofs are in docs/mathematics.md: "Quantiles" and "Covariances".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np

from dbern.certificate import quantile_rank
from dbern.errors import SpecError
from dbern.synopsis.questions.asking import Answer, Asking, Drawn, Target, told_given
from dbern.synopsis.questions.functionals import Weights, mean_band, quantile_band
from dbern.synopsis.questions.measure import Band, Measure, View, few, levels_of_rows
from dbern.synopsis.questions.regions import Region
from dbern.synopsis.questions.splines import AxisSplines, Sides
from dbern.types import FloatArray


class Moments(Asking):
    """Quantiles, means, variances and covariances; see `Distribution`."""

    def quantile(
        self,
        levels: float | Sequence[float],
        axis: str | None = None,
        *,
        given: Region | None = None,
        target: Target = "records",
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return quantiles of an axis, in its units: of the rows, or of those in a box of others.

        Parameters
        ----------
        levels : float or sequence of float
            Between 0 and 1.
        axis : str, optional
            By name; the only one where there is one.
        given : mapping, optional
            A box of other axes.
        target, population, beta
            As for `mass`.

        Raises
        ------
        SpecError
            For levels, an axis, a box or a confidence that cannot be.
        """
        index = self._index(axis)
        several, each = np.ndim(levels) > 0, np.empty(0)
        with suppress(ValueError, TypeError):  # whose text quotes the value
            each = np.atleast_1d(np.asarray(levels, dtype=np.float64))
        if each.ndim != 1 or not len(each) or not np.all((each > 0) & (each < 1)):
            raise SpecError("quantile: levels must be between 0 and 1. Write 0.5, or [0.25, 0.75]")
        condition, weights = self._of_others(given, index), self._weights(target)
        own = self.domain.axes[index]

        def ask(measure: Measure, of: FloatArray, share: Fraction) -> Band:
            view = measure.along(index, weights.others(measure, condition, index))
            between = partial(weights.between, measure, index)
            found = quantile_band(view, measure.splines[index], between, of, share / len(of))
            return found.scaled(own.low, own.width)

        def band(measure: Measure, share: Fraction) -> Band:
            return ask(measure, each, share)

        labels = {"quantile": each.tolist() if several else [None]}
        by = " by the smoothed density" if target == "smoothed" else ""
        asked = f"quantile {levels} of {own.name}{by}{told_given(given, target)}"
        return self._asked_of(
            *(band, labels, asked, beta, own),
            target=target,
            population=population,
            drawn=_ranked(ask, each, self._within(given, index)) if target == "records" else None,
        )

    def mean(
        self,
        axis: str | None = None,
        *,
        given: Region | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the mean of an axis, in its units: of the rows, or of those in a box of others.

        Parameters
        ----------
        axis, given, population, beta
            As for `quantile`.

        Raises
        ------
        SpecError
            For an axis, a box or a confidence that cannot be.
        """
        index = self._index(axis)
        condition, weights = self._of_others(given, index), Weights()
        own = self.domain.axes[index]

        def band(measure: Measure, share: Fraction) -> Band:
            view = measure.along(index, weights.others(measure, condition, index))
            found = mean_band(view, measure.splines[index], share, whole=given is None)
            return found.scaled(own.low, own.width)

        asked = f"mean of {own.name}{told_given(given)}"
        drawn = self._drawn(band, self._within(given, index), own.low, own.width)
        return self._asked_of(band, {}, asked, beta, own, population=population, drawn=drawn)

    def cov(
        self,
        axis: str,
        other: str,
        *,
        given: Region | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the covariance of two axes, in their units, or of one with itself.

        Parameters
        ----------
        axis, other : str
            By name.
        given : mapping, optional
            A box of other axes.
        population, beta
            As for `mass`.

        Raises
        ------
        SpecError
            For an axis, a box or a confidence that cannot be.
        """
        return self._spread("covariance", axis, other, given, beta, population)

    def correlation(
        self,
        axis: str,
        other: str,
        *,
        given: Region | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the correlation of two axes; as `cov`.

        Raises
        ------
        SpecError
            As of `cov`, and for an axis with itself.
        """
        return self._spread("correlation", axis, other, given, beta, population)

    def var(
        self,
        axis: str | None = None,
        *,
        given: Region | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the variance of an axis: of the rows, not of a larger sample. As `mean`.

        Raises
        ------
        SpecError
            For an axis, a box or a confidence that cannot be.
        """
        return self._spread("variance", axis, axis, given, beta, population)

    def std(
        self,
        axis: str | None = None,
        *,
        given: Region | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the standard deviation of an axis, in its units; as `var`.

        Raises
        ------
        SpecError
            For an axis, a box or a confidence that cannot be.
        """
        return self._spread("standard deviation", axis, axis, given, beta, population)

    def _spread(
        self,
        what: str,
        axis: str | None,
        other: str | None,
        given: Region | None,
        beta: float | str | None,
        population: bool,
    ) -> Answer:
        axes = list(dict.fromkeys([self._index(axis), self._index(other)]))
        correlated, root = what == "correlation", what == "standard deviation"
        if correlated and len(axes) == 1:
            raise SpecError("correlation: an axis has 1 with itself. Name two axes")
        condition = self._of_others(given, *axes)
        widths = [self.domain.axes[index].width for index in axes]
        scale = 1.0 if correlated else math.prod(widths) ** (2 // len(axes))

        def band(measure: Measure, share: Fraction) -> Band:
            others = Weights().others(measure, condition, *axes)
            found = _spread_band(measure, axes, others, share, correlated=correlated)
            found = found.scaled(0.0, scale)
            return Band(*map(np.sqrt, found)) if root else found

        names = " and ".join(self.domain.names[index] for index in axes)
        asked = f"{what} of {names}{told_given(given)}"
        return self._asked_of(band, {}, asked, beta, population=population)


def _ranked(
    ask: Callable[[Measure, FloatArray, Fraction], Band],
    levels: FloatArray,
    within: Callable[[Measure, Fraction], float],
) -> Drawn:
    """Ask quantiles of a population by those of the rows at other levels."""

    def drawn(measure: Measure, share: Fraction) -> tuple[Band, bool]:
        rows = within(measure, share / 10)
        ends = levels_of_rows(levels, rows, share / 2)
        value = ask(measure, levels, share).value  # a guess, without a claim
        low, high = (ask(measure, one, share / 5) for one in ends)
        told = Band.without_error(np.clip(value, low.low, high.high), low.low, high.high)
        return told, few(Band.without_error(levels, levels, levels), rows, shares=True)

    return drawn


# --- Covariances and correlations of two axes, of the rows that a condition on the others holds

Ends: TypeAlias = FloatArray  # of an interval, (2,)
Polynomial: TypeAlias = FloatArray  # coefficients of x^i y^j, (3, 3)

_LEAST = 1e-4  # of a variance that scales: any is right
_ONE = np.diag([1.0, 0.0, 0.0])


@dataclass(frozen=True, eq=False)
class Spread:
    """Polynomials of one axis or two, under a condition on the others.

    `others` are the condition's sides for the bins of the other axes, in order.
    """

    measure: Measure
    axes: tuple[int, ...]
    others: Sides
    beta: Fraction

    @cached_property
    def view(self) -> View:
        """View of all bins."""
        return self.measure.whole()

    @cached_property
    def powers(self) -> list[FloatArray]:
        """Coefficients of 1, t and t^2, (3, bins), of both axes; of one axis the other has 1."""
        found = [_powers(self.measure.splines[axis]) for axis in self.axes]
        return [*found, np.array([[1.0], [0.0], [0.0]])][:2]

    def weights(self, polynomial: Polynomial, condition: FloatArray) -> FloatArray:
        """Return the polynomial's weights (1, 1, bins) times those of a condition."""
        own = np.einsum("ij,ia,jb->ab", polynomial, *self.powers)
        shape = [self.measure.values.shape[axis] for axis in self.axes]
        rest = np.delete(self.measure.values.shape, self.axes)
        whole = np.multiply.outer(own, condition).reshape(*shape, *rest)
        return np.asarray(np.moveaxis(whole, range(len(shape)), self.axes)).reshape(1, 1, -1)

    def near(self, polynomial: Polynomial) -> FloatArray:
        """Return the weights of the best guess."""
        return self.weights(polynomial, self.others.near)

    def value(self, polynomial: Polynomial) -> float:
        """Return the best guess of its integral."""
        return float(self.view.of(self.near(polynomial))[0])

    def guess(self, one: Polynomial, other: Polynomial) -> float:
        """Estimate the covariance of two functions of released mean 0, less what noise adds.

        The covariance is ``a / m - b c / m^2`` at ``b = c = 0``: half the trace of its second
        derivatives times the covariance of the noise is ``(a v_mm / m - v_am - v_bc) / m^2``.
        """
        both, total = _times(one, other), self.value(_ONE)
        found = self.value(both) / total
        weights = np.concatenate([self.near(each) for each in (both, one, other, _ONE)])
        (drawn,) = self.view.drawn(weights)
        if not drawn.size:
            return found
        noise = drawn @ drawn.T / drawn.shape[1] / total**2
        return float(found - (found * noise[3, 3] - noise[0, 3] - noise[1, 2]))

    def reach(self, polynomials: list[Polynomial]) -> float:
        """Return the bound R for the span of these polynomials' powers of both axes."""
        used = np.any([one != 0 for one in polynomials], axis=0)
        single = [np.zeros((3, 3)) for _ in range(int(used.sum()))]
        for one, (i, j) in zip(single, np.argwhere(used), strict=True):
            one[i, j] = 1.0
        rows = [self.weights(one, each) for one in single for each in self._conditions]
        sizes = np.sqrt(self.measure.variances.ravel())
        basis = np.linalg.qr((np.concatenate(rows)[:, 0] * sizes).T)[0] / sizes[:, None]
        # Columns w of the basis have norm one where bins weigh by their variances.
        drawn = basis.T @ self.view.noise[0] if self.view.noise.size else np.empty((1, 0))
        rank = quantile_rank(drawn.shape[1], float(self.beta)) if drawn.size else None
        if rank is not None:
            return float(np.sort(np.sqrt((drawn**2).sum(axis=0)))[rank])
        q, loose = self.measure.tail(2 * basis.shape[1], self.beta)
        return float(np.sqrt(((q + loose * np.abs(basis).max(axis=0)) ** 2).sum()))

    @property
    def gaps(self) -> bool:
        """Whether the condition is not known exactly."""
        return len(self._conditions) > 1

    @cached_property
    def _conditions(self) -> list[FloatArray]:
        gap = self.others.high - self.others.low
        middle = (self.others.high + self.others.low) / 2
        return [middle, gap] if gap.any() else [middle]

    def ratio(
        self, reach: float, top: tuple[FloatArray, FloatArray], base: tuple[FloatArray, FloatArray]
    ) -> Ends:
        """Return ends of ``int f 1_G / int k 1_G`` for pairs (f, g >= |f|); k is not negative.

        Above, ``f - r k`` is at most ``f + g gap / 2`` less r times the least of k, or the most
        where r is negative: the larger of both ends is right for either sign. Likewise below.
        """
        (below, above), divisors = self._sides(*top), self._sides(*base)
        lines = [(self.view.line(below, one), self.view.line(above, one)) for one in divisors]
        low = min(float(one.end(reach, 0.0, -1)[0]) for one, _ in lines)
        high = max(float(one.end(reach, 0.0, 1)[0]) for _, one in lines)
        return np.array([low, high])

    def _sides(self, f: FloatArray, bound: FloatArray) -> tuple[FloatArray, FloatArray]:
        middle, *gap = self._conditions
        center = self.weights(f, middle)
        rest = sum((self.weights(bound, one) / 2 for one in gap), np.zeros_like(center))
        return center - rest, center + rest


def _powers(splines: AxisSplines) -> FloatArray:
    """Coefficients of 1, t, t^2: the last is the mean of products of two of a spline's inner knots.

    At degree 1 it is the interpolation.
    """
    t = splines.centers
    less = (splines.degree + 1) / 12 if splines.degree > 1 else 0.0
    return np.stack([np.ones_like(t), t, t**2 - less / splines.cells**2])


@dataclass(frozen=True, eq=False)
class Centered:
    """Both axes less their released means, scaled to the smaller of their released deviations.

    `u` and `v` are polynomials of one axis each, (3, 3), multiplied by `scales` (2,); `size` is
    their deviation. `missed` (2,) bounds by how much the square of each may be less than its
    spline.
    """

    u: Polynomial
    v: Polynomial
    scales: FloatArray
    size: float
    missed: FloatArray

    @property
    def half(self) -> Polynomial:
        """Half the sum of both squares, at least ``|u v|``."""
        return (_times(self.u, self.u) + _times(self.v, self.v)) / 2

    def means(self, spread: Spread, reach: float) -> list[Ends]:
        """Return ends of both means: ``|u|`` is at most ``(u^2 / size + size) / 2``."""
        bounds = [(_times(w, w) / self.size + self.size * _ONE) / 2 for w in (self.u, self.v)]
        pairs = zip((self.u, self.v), bounds, strict=True)
        return [spread.ratio(reach, pair, (_ONE, _ONE)) for pair in pairs]


def _centered(spread: Spread) -> Centered:
    total = spread.value(_ONE)
    centers, deviations, missed = [], [], []
    for turn, axis in enumerate(spread.axes):
        t = np.roll(_ONE, 1, axis=turn)
        mean = float(np.clip(spread.value(t) / total, 0.0, 1.0))
        centered = t - mean * _ONE
        variance = spread.value(_times(centered, centered)) / total
        centers.append(centered)
        deviations.append(math.sqrt(max(variance, _LEAST)))
        splines = spread.measure.splines[axis]
        missed.append(0.25 / splines.cells**2 if splines.degree == 1 else 0.0)
    size = min(deviations)
    scales = size / np.array([deviations[0], deviations[-1]])
    u, v = scales[0] * centers[0], scales[1] * centers[-1]
    return Centered(u, v, scales, size, scales**2 * [missed[0], missed[-1]])


def _covariance(spread: Spread, both: Centered) -> tuple[float, float, float]:
    product, half = _times(both.u, both.v), both.half
    asked = [_ONE, both.u, both.v, product, *([half] if spread.gaps else [])]
    reach, single = spread.reach(asked), len(spread.axes) == 1
    ends = spread.ratio(reach, (product, half), (_ONE, _ONE))
    second = _product(*both.means(spread, reach))
    if single:
        second = np.maximum(second, 0.0)
    least, most = (0.0 if single else -0.25), 0.25
    scale = math.prod(both.scales)
    missed = single * both.missed[0]
    low, high = float(ends[0] - second[1] - missed) / scale, float(ends[1] - second[0]) / scale
    value = float(spread.guess(both.u, both.v) - missed * 2 / 3) / scale  # its mean over a cell
    return value, max(low, least), min(high, most)


def _correlation(spread: Spread, both: Centered) -> tuple[float, float, float]:
    u, v, half = both.u, both.v, both.half
    product, difference = _times(u, v), (_times(u, u) - _times(v, v)) / 2
    reach = spread.reach([_ONE, u, v, product, half, difference])
    guesses = [spread.guess(*pair) for pair in ((u, v), (u, u), (v, v))]
    spreads = math.sqrt(max(guesses[1], 0.0) * max(guesses[2], 0.0))
    value = float(np.clip(guesses[0] / spreads, -1, 1)) if spreads > 0 else 0.0
    size = spread.ratio(reach, (half, half), (_ONE, _ONE))
    if not size[0] > 0:
        return value, -1.0, 1.0
    quotient = spread.ratio(reach, (product, half), (half, half))
    means = both.means(spread, reach)
    squares = [max(one**2) for one in means]
    second = _product(_product(*means), 1 / size)
    # M / P is from `least` to 1, and |Var u - Var v| / 2 at most `apart` P.
    least = 1 - (sum(squares) / 2 + both.missed.max()) / size[0]
    apart = spread.ratio(reach, (difference, half), (half, half))
    away = np.abs(apart).max() + (max(squares) / 2 + both.missed.max()) / size[0]
    if not least > away:
        return value, -1.0, 1.0
    # (M / P) sqrt(1 - d^2), d at most away P / M.
    divisor = math.sqrt(least**2 - away**2)
    low, high = quotient[0] - second[1], quotient[1] - second[0]
    low, high = low / (divisor if low < 0 else 1.0), high / (1.0 if high < 0 else divisor)
    return value, max(float(low), -1.0), min(float(high), 1.0)


def _spread_band(
    measure: Measure, axes: Sequence[int], others: Sides, beta: Fraction, *, correlated: bool
) -> Band:
    spread = Spread(measure, tuple(axes), others, beta)
    if spread.value(_ONE) > 0:
        value, low, high = (_correlation if correlated else _covariance)(spread, _centered(spread))
    else:
        low, high = (-1.0, 1.0) if correlated else (0.0 if len(axes) == 1 else -0.25, 0.25)
        value = (low + high) / 2
    return Band.without_error(*(np.array([one]) for one in (min(max(value, low), high), low, high)))


def _times(one: Polynomial, other: Polynomial) -> Polynomial:
    found = np.zeros((3, 3))
    for i, j in np.ndindex(2, 2):
        found[i : i + 2, j : j + 2] += one[i, j] * other[:2, :2]
    return found


def _product(one: Ends, other: Ends) -> Ends:
    every = np.multiply.outer(one, other)
    return np.array([every.min(), every.max()])
