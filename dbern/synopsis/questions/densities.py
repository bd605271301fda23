"""Questions about the released density: at points, and along an axis."""

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
from dbern.synopsis.points import Points, as_points, gridded
from dbern.synopsis.questions.answers import Answer
from dbern.synopsis.questions.asking import Asking, Promised, told_given
from dbern.synopsis.questions.bandwidths import best_kernels, candidates, least_bandwidth
from dbern.synopsis.questions.envelopes.kernel import density_envelope
from dbern.synopsis.questions.measure import Band, Measure
from dbern.synopsis.questions.quantiles import weighted_band
from dbern.synopsis.questions.regions import Region
from dbern.synopsis.questions.shares import Weights, density_band
from dbern.types import FloatArray


class Densities(Asking):
    """Densities at points and along an axis; see `Distribution`."""

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

        For evenly spread records, by public facts: the same for all groups.
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
            envelope = density_envelope(measure.splines[index], kernel, unit)
            return weighted_band(view, envelope, share).scaled(0.0, kernel.peak / own.width)

        labels = {own.name: at[:, 0].tolist()}
        asked = f"density of {own.name}{told_given(given)}"
        return self._asked_of(
            *(band, labels, asked, beta),
            target="smoothed",
            population=population,
            drawn=self._drawn(band, self._within(given, index), 0.0, kernel.peak / own.width),
        )

    def _kernels(self, bandwidth: Any, kernel: str | None) -> tuple[Kernel, ...]:
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
