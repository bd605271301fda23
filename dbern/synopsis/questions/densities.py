"""Questions about the released density: at points, along an axis, its slopes and its modes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from typing import Any, Literal

import numpy as np

from dbern.bernstein.kernels import KERNELS, Kernel, kernel_of
from dbern.errors import SpecError
from dbern.synopsis.points import Points, as_points, conventional, gridded
from dbern.synopsis.questions.asking import Answer, Asking, Promised, told_given
from dbern.synopsis.questions.functionals import (
    Weights,
    best_kernels,
    candidates,
    density_band,
    least_bandwidth,
    weighted_band,
)
from dbern.synopsis.questions.measure import Band, Measure, quotients
from dbern.synopsis.questions.regions import Region
from dbern.synopsis.questions.splines import Sides, density_sides, products, slope_sides
from dbern.types import BoolArray, FloatArray

_MOST_SLOPES = 1 << 21  # weights of slopes that are laid out


class Densities(Asking):
    """Densities, where they are high, gradients and modes; see `Distribution`."""

    def density(
        self,
        points: Points,
        *,
        bandwidth: float | Sequence[float] | Literal["auto"] | None = None,
        kernel: str | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the kernel density at points, of any bandwidth and kernel: free, from the bins.

        Parameters
        ----------
        points
            As a synopsis takes them; coordinates of xarray give a grid.
        bandwidth : float, sequence of float, or "auto", optional
            In data units, one or one an axis; that of the release. "auto" chooses one of 14 times
            the released by cross-validation of the released bins, without what their noise adds;
            the interval covers whichever it may choose.
        kernel : str, optional
            By the name that a spec gives it; that of the release.
        population, beta
            As for `mass`; of the population's density smoothed by the same kernel.

        Raises
        ------
        SpecError
            For points or kernels that cannot be, and for a bandwidth that the bins do not resolve:
            it says what is the least that they do.
        """
        auto = str(bandwidth) == "auto"
        kernels, chosen = [self._kernels(None if auto else bandwidth, kernel)], 0
        if auto:
            kernels = candidates(self.measures[0].splines, kernels[0])
            chosen = best_kernels(self.measures, kernels, self.rows)
        places = as_points(points, self.domain)
        if not len(places) or not self.domain.inside(places).all():
            raise SpecError("density: there are points outside the bounds, or none at all")
        unit, volume = np.clip(self.domain.to_unit(places), 0.0, 1.0), self.domain.volume

        most = math.prod(one.peak for one in kernels[chosen]) / volume
        promised = None if population or kernels != [self.kernels] else self.promised

        def of_bins(measure: Measure, share: Fraction) -> Band:
            return density_band(measure, kernels, chosen, unit, share).scaled(0.0, 1 / volume)

        band = of_bins if promised is None else self._as_promised(promised, of_bins, places, most)
        used = zip(kernels[chosen], self.domain.axes, strict=True)
        widths = ", ".join(f"{one.bandwidth * axis.width:.4g}" for one, axis in used)
        asked = f"density of {kernels[chosen][0].name} kernels, bandwidth {widths}"
        labels = {"point": range(len(places))}
        drawn = self._drawn(band, None, 0.0, most)
        found = self._asked_of(
            band, labels, asked, beta, target="smoothed", population=population, drawn=drawn
        )
        value, low, high = (
            self._placed(points, one) for one in (found.value, found.low, found.high)
        )
        return replace(found, value=value, low=low, high=high)

    def _as_promised(
        self,
        promised: Promised,
        of_bins: Callable[[Measure, Fraction], Band],
        places: FloatArray,
        most: float,
    ) -> Callable[[Measure, Fraction], Band]:
        """Return the bins' band, or the release's where it promises more than bins tell.

        Of evenly spread records: by public facts, the same for all groups.
        """
        cells = [one.integrals(np.ones(1))[0] for one in self.measures[0].splines]
        values = reduce(np.multiply.outer, cells) / len(self.measures)
        even = replace(self.measures[0], values=values)

        def band(measure: Measure, share: Fraction) -> Band:
            found = of_bins(measure, promised.part * share)
            low, high = of_bins(even, promised.part * share)[1:3]
            if 2 * promised.least >= np.mean(high - low):
                return found
            group = next(i for i, one in enumerate(self.measures) if one is measure)
            ends = promised.ends(places, str(share * len(self.measures)))  # of all groups at once
            low, high = (
                np.clip(np.reshape(end, (len(places), -1))[:, group], 0.0, most) for end in ends
            )
            return found._replace(value=np.clip(found.value, low, high), low=low, high=high)

        return band

    def _placed(self, points: Points, found: Any) -> Any:
        """Numbers by point, and by group, on the grid that the points span; else as they are."""
        placed = gridded(points, found.to_numpy(), self.domain, self.groups, found.attrs)
        named = {"class": "group"} if found.ndim == 2 else {}
        return found if type(placed) is np.ndarray else placed.rename(None).rename(named)

    def marginal(
        self,
        places: Sequence[float],
        axis: str | None = None,
        *,
        given: Region | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the density of one axis at places: of the counted rows, or of those in a box.

        Smoothed along this axis as the release is, and along no other.

        Parameters
        ----------
        places : sequence of float
            In data units.
        axis, given, population, beta
            As for `quantile`.

        Raises
        ------
        SpecError
            For places outside the bounds, an axis, a box or a confidence that cannot be.
        """
        index = self._index(axis)
        own, kernel = self.domain.axes[index], self._weights("smoothed").kernels[index]
        at = as_points(np.ravel(places), self.domain.axis(index))
        if not len(at) or not self.domain.axis(index).inside(at).all():
            raise SpecError(f"places: write one or more, all within the bounds of {own.name}")
        condition, unit = self._of_others(given, index), (at[:, 0] - own.low) / own.width

        def band(measure: Measure, share: Fraction) -> Band:
            view = measure.along(index, Weights().others(measure, condition, index))
            sides = density_sides(measure.splines[index], kernel, unit)
            return weighted_band(view, sides, share).scaled(0.0, kernel.peak / own.width)

        labels = {own.name: at[:, 0].tolist()}
        asked = f"density of {own.name}{told_given(given)}"
        return self._asked_of(
            *(band, labels, asked, beta),
            target="smoothed",
            population=population,
            drawn=self._drawn(band, self._within(given, index), 0.0, kernel.peak / own.width),
        )

    def level_set(self, level: float, points: Points, *, beta: float | str | None = None) -> Answer:
        """Return where the released density is at least a level: surely, probably, possibly.

        Parameters
        ----------
        level : float
            In data units.
        points
            Where to look, such as the coordinates of `Synopsis.grid`.
        beta : float or str, optional
            As for `mass`.

        Returns
        -------
        Answer
            Of truths: `low` where it surely is, all at once, and `high` where it may be.

        Raises
        ------
        SpecError
            As of `density`.
        """
        if not np.isreal(level) or not math.isfinite(level):
            raise SpecError("level: write a finite number, of what the density is given in")
        found = self.density(points, beta=beta)
        question = f"{found.question} at least {level:g}"
        value, low, high = (
            conventional((one >= level).assign_attrs(long_name=question))
            for one in (found.value, found.low, found.high)
        )
        return Answer(value, low, high, found.target, found.interval, found.beta, question)

    def _kernels(self, bandwidth: Any, kernel: str | None) -> tuple[Kernel, ...]:
        """Those that are asked for, in the unit cube."""
        own, axes = self._weights("smoothed").kernels, self.domain.axes
        if kernel is not None and kernel not in KERNELS:
            raise SpecError(f'kernel: "{kernel}" is not known. Write one of {", ".join(KERNELS)}')
        given = [one.bandwidth * axis.width for one, axis in zip(own, axes, strict=True)]
        if bandwidth is not None:
            with suppress(ValueError, TypeError):  # whose text quotes the value
                wanted = np.asarray(bandwidth, dtype=np.float64)
                given = np.broadcast_to(wanted, len(own)).tolist()
                bandwidth = None
        if bandwidth is not None or not all(0 < one < math.inf for one in given):
            raise SpecError('bandwidth: write "auto", or numbers above 0, one or one for each axis')
        names = [one.name if kernel is None else kernel for one in own]
        facts = zip(names, given, axes, strict=True)
        found = tuple(kernel_of(name, width / axis.width) for name, width, axis in facts)
        least = [least_bandwidth(s, new, old) for s, new, old in
                 zip(self.measures[0].splines, found, own, strict=True)]  # fmt: skip
        for one, width, axis in zip(found, least, axes, strict=True):
            if one.bandwidth < width:
                raise SpecError(
                    f"bandwidth: {one.bandwidth * axis.width:.3g} along {axis.name} is less than "
                    f"the bins resolve. Write at least {width * axis.width:.3g}"
                )
        return found

    def gradient(
        self,
        points: Points,
        *,
        bandwidth: float | Sequence[float] | None = None,
        kernel: str | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the gradient of the kernel density at points: its slope along each axis.

        In data units, such as per meter and per square meter.

        Parameters
        ----------
        points, bandwidth, kernel, population, beta
            As for `density`.

        Raises
        ------
        SpecError
            As of `density`, and for kernels with kinks.
        """
        kernels = self._kernels(bandwidth, kernel)
        if any(one.jumps for one in kernels):
            smooth = [name for name, kind in KERNELS.items() if not kind(0.5).jumps]
            raise SpecError(
                f"gradient: the slope of {kernels[0].name} kernels jumps at their kinks. Write "
                f"kernel = one of {', '.join(smooth)}"
            )
        places = as_points(points, self.domain)
        if not len(places) or not self.domain.inside(places).all():
            raise SpecError("gradient: there are points outside the bounds, or none at all")
        unit, axes = np.clip(self.domain.to_unit(places), 0.0, 1.0), len(kernels)
        widths = np.tile([axis.width for axis in self.domain.axes], len(places))

        def band(measure: Measure, share: Fraction) -> Band:
            if axes * len(places) * measure.values.size > _MOST_SLOPES:
                most = _MOST_SLOPES // (axes * measure.values.size)
                raise SpecError(f"gradient: {len(places)} points at once. Ask for up to {most}")
            found = _slope_band(measure, kernels, unit, share)
            return Band(*(one / self.domain.volume / widths for one in found))

        labels = {"point": range(len(places)), "axis": self.domain.names}
        asked = f"gradient of the density of {kernels[0].name} kernels"
        return self._asked_of(band, labels, asked, beta, target="smoothed", population=population)

    def modes(
        self,
        shape: int | None = None,
        *,
        bandwidth: float | Sequence[float] | Literal["auto"] | None = None,
        kernel: str | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the modes of the kernel density that its band tells from what is around them.

        They are local maxima among the points of a grid, its edge included. Each is the only one
        told of a region, in which the density surely has a maximum: all around, it surely is below
        `low` of the region's best point.

        Parameters
        ----------
        shape : int, optional
            Points along each axis; some ten thousand in all.
        bandwidth, kernel, population, beta
            As for `density`.

        Returns
        -------
        Answer
            Of densities, with a dimension "mode" that may be empty; its coordinates are the best
            guess of the place, ends of a box around the region, such as `x`, `x_low` and `x_high`,
            and the group where there are groups.

        Raises
        ------
        SpecError
            As of `density`, and for less than 3 points an axis or more than a million.
        """
        dimensions = self.domain.dimensions
        count = max(3, min(512, round(1e4 ** (1 / dimensions)))) if shape is None else shape
        count = int(count) if str(count).isdigit() else 0
        if count < 3 or count**dimensions > 1e6:
            raise SpecError(
                "shape: write one number of points for every axis, from 3 on and at most a "
                "million in all"
            )
        ticks = [np.linspace(axis.low, axis.high, count) for axis in self.domain.axes]
        grid = np.stack(np.meshgrid(*ticks, indexing="ij"), axis=-1).reshape(-1, dimensions)
        found = self.density(
            grid, bandwidth=bandwidth, kernel=kernel, population=population, beta=beta
        )
        return self._told_apart(found, ticks)

    def _told_apart(self, density: Answer, ticks: Sequence[FloatArray]) -> Answer:
        """The modes of a density on a grid."""
        import xarray

        sides = [
            np.moveaxis(np.asarray(one).reshape(*map(len, ticks), -1), -1, 0)
            for one in (density.value, density.low, density.high)
        ]
        value, low, high = sides
        regions = [
            (turn, region)
            for turn in range(len(self.groups))
            for region in _regions(low[turn], high[turn])
        ]
        best = [np.where(region, value[turn], -np.inf).argmax() for turn, region in regions]
        places = [np.unravel_index(one, low.shape[1:]) for one in best]
        named: dict[str, Any] = {"mode": range(len(regions))}
        for axis, (name, tick) in enumerate(zip(self.domain.names, ticks, strict=True)):
            around = [tick[np.argwhere(region)[:, axis]] for _, region in regions]
            named[name] = "mode", [tick[place[axis]] for place in places]
            named[f"{name}_low"] = "mode", [one.min() for one in around]
            named[f"{name}_high"] = "mode", [one.max() for one in around]
        if self.groups != (None,):
            named["group"] = "mode", [self.groups[turn] for turn, _ in regions]
        turns = [turn for turn, _ in regions]
        ends = (
            np.array([one[turn][place] for turn, place in zip(turns, places, strict=True)])
            for one in sides
        )
        tables = [xarray.DataArray(one, named, ["mode"]) for one in ends]
        question = f"modes of the {density.question}"
        return replace(density, value=tables[0], low=tables[1], high=tables[2], question=question)


def _slope_band(
    measure: Measure, kernels: Sequence[Kernel], places: FloatArray, beta: Fraction
) -> Band:
    """Return slopes along each axis at places (m, l) of the unit cube: (m l,), axis by axis.

    The slope's weight is ``f g``, f = K' of one axis and g >= 0 of the others. With splines F, G
    near both, ``|f - F| <= E``, ``0 <= g <= U`` and ``|g - G| <= D``, ``f g`` is within ``E U + |F|
    D`` of ``F G``: and |F| is at most the spline of its coefficients' sizes.
    """
    axes = [*enumerate(zip(measure.splines, kernels, places.T, strict=True))]
    dense = [density_sides(*one) for _, one in axes]
    made = [
        _slope(slope_sides(*one), [*dense[:axis], *dense[axis + 1 :]], axis) for axis, one in axes
    ]
    rows = [np.stack(each, axis=1) for each in zip(*made, strict=True)]  # (m, l, b_1, .., b_l)
    low, near, high = (one.reshape(-1, 1, measure.values.size) / 2 for one in rows)
    # Half the slope over its most, and a half: from 0 to 1.
    view = measure.whole()
    below, above = (line._replace(top=line.top + 0.5) for line in map(view.line, (low, high)))
    found = quotients(view.of(near) + 0.5, below, above, measure, beta)
    peaks = [math.prod(one.peak for one in (*kernels[:axis], *kernels[axis + 1 :])) * own.slope
             for axis, own in enumerate(kernels)]  # fmt: skip
    most = np.tile(peaks, len(places))
    return Band.without_error(*(most * (2 * end - 1) for end in found[:3]))


def _slope(f: Sides, others: Sequence[Sides], axis: int) -> tuple[FloatArray, ...]:
    """Weights (m, b_1, .., b_l) below, near and above."""
    g = products(others) if others else Sides(*[np.ones((len(f.near), 1))] * 3)
    error = np.maximum(f.high - f.near, f.near - f.low)
    miss = np.maximum(np.maximum(g.high - g.near, g.near - g.low), 0.0)

    def outer(own: FloatArray, rest: FloatArray) -> FloatArray:
        found = np.einsum("mi,mo->mio", own, rest.reshape(len(rest), -1))
        shape = rest.shape[1:] if others else ()
        return np.moveaxis(found.reshape(*own.shape, *shape), 1, axis + 1)

    near = outer(f.near, g.near)
    apart = outer(error, np.maximum(g.high, 0.0)) + outer(np.abs(f.near), miss)
    return near - apart, near, near + apart


def _regions(low: FloatArray, high: FloatArray) -> list[BoolArray]:
    """Regions of a grid that surely have a local maximum each, and share no place.

    Let t be `low` at some place, and R the places connected to it where `high` is at least t. The
    function is at least t somewhere in R and below t on all neighbors of R, so its largest value in
    R is a local maximum. Regions of two places are disjoint or nested; kept are the innermost. A
    region that is all of the grid tells nothing.
    """
    from scipy import ndimage  # takes 0.1 s to import

    around, found = np.ones((3,) * low.ndim, dtype=np.int64), list[BoolArray]()
    tops = np.argwhere(low == ndimage.maximum_filter(low, footprint=around))
    kept = list[tuple[int, ...]]()
    for top in sorted(map(tuple, tops), key=lambda place: -low[place]):
        labels, _ = ndimage.label(high >= low[top], around)
        region = labels == labels[top]
        if region.all():
            break
        if not any(region[one] for one in kept):
            kept.append(top)
            found.append(region)
    return found
