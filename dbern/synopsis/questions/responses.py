"""Questions about responses, and about the shares of groups: at places, and in regions.

Of a regression ``a_j = int w beta_j dD`` and ``c_j = int beta_j dD`` are released, w the response
in [-1, 1] as the bounds say. ``v = (1 + w) / 2`` is in [0, 1], so that P = v D and Q = (1 - v) D,
whose bins are ``(c_j + a_j) / 2`` and ``(c_j - a_j) / 2``, are measures: the rows in two parts, one
for the response and one against it. Of groups P has the rows of one, Q those of all the others. The
mean of v is the m that the noisy bins of both do not deny; docs/intervals.md, "A mean
response", has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dbern.errors import SpecError
from dbern.privacy.families import family_of
from dbern.synopsis.points import Points, as_points
from dbern.synopsis.questions.answers import Answer, Target
from dbern.synopsis.questions.asking import told
from dbern.synopsis.questions.densities import Densities
from dbern.synopsis.questions.envelopes.kernel import density_envelope
from dbern.synopsis.questions.envelopes.polygon import polygon_envelope
from dbern.synopsis.questions.envelopes.splines import Envelope, products
from dbern.synopsis.questions.measure import (
    Band,
    Divisor,
    Measure,
    View,
    in_parts,
    interval,
    normal,
)
from dbern.synopsis.questions.polygons import polygons_of
from dbern.synopsis.questions.regions import Region, boxes_of
from dbern.types import FloatArray

_FEW = 1 << 21  # weights that are laid out at a time; of more places nothing is simulated
_BY_KERNELS = {"records": "", "smoothed": ", each row weighed by its kernel's part,"}
_HALVES = np.array([[0.5, 0.5], [-0.5, 0.5]])  # P and Q of a and c


@dataclass(frozen=True, eq=False)
class Parted(Measure):
    """The rows in two parts: `values` are the bins of P and of Q, (2, b_1, .., b_l).

    `mixing` (2, outputs) makes P and Q of the outputs of the released `arrays`, (outputs, b_1, ..,
    b_l) each.
    """

    arrays: tuple[Measure, ...] = ()
    mixing: FloatArray = field(default_factory=lambda: np.eye(2))

    @classmethod
    def of(cls, arrays: Sequence[Measure], mixing: FloatArray) -> Parted:
        """Return the parts of released arrays."""
        values = np.concatenate([one.values for one in arrays])
        errors = np.concatenate([np.full(len(one.values), one.error) for one in arrays])
        return cls(
            np.tensordot(mixing, values, axes=1),
            arrays[0].splines,
            max((one.law for one in arrays), key=lambda law: math.ldexp(
                family_of(law).scale(law), law.granularity_exponent)),
            float((np.abs(mixing) @ errors).max()),
            arrays=tuple(arrays),
            mixing=mixing,
        )  # fmt: skip

    def whole(self) -> View:
        """Return the view of all bins: P in one layer, Q in another."""
        values = self.values.reshape(2, -1)
        count = values.shape[1]
        drawn = np.concatenate(
            [one.noise.reshape(len(one.values), count, -1) for one in self.arrays]
        )
        noise = np.tensordot(self.mixing, drawn, axes=1)
        gram = (self.mixing @ self.mixing.T)[..., None] * np.ones(count)
        if self.spread is not None:
            spread = self.spread.reshape(2, -1)
            sampled = normal(2 * count, noise.shape[-1], self.stream).reshape(noise.shape)
            noise += np.sqrt(spread)[..., None] * sampled
            gram = gram + np.eye(2)[..., None] * spread / self.deviation**2
        return View(values, noise, gram, np.abs(self.mixing).max(axis=1), self)


def _mean_of_parts(
    parts: Parted, sides: Callable[[slice], Envelope], count: int, beta: Fraction
) -> Band:
    """Return the shares of P in P and Q by `count` weights g (m, b_1, ..), from 0 to 1."""
    view = parts.whole()
    rows = max(1, _FEW // view.values.size)
    if rows < count:
        view = view.still()

    def band(part: slice, share: Fraction) -> Band:
        g = sides(part).layered()
        for_p = (np.concatenate([side, 0.0 * side], 1) for side in (g.lower, g.estimate, g.upper))
        pairs = (g.upper, g.lower), (g.estimate, g.estimate), (g.lower, g.upper)
        of_both = (np.concatenate(pair, 1) for pair in pairs)
        return interval(view, Envelope(*for_p), Divisor.of(view, Envelope(*of_both)), share)

    return in_parts(count, rows, beta, band)


class Responses(Densities):
    """Means of responses, and shares of groups; see `Distribution`."""

    def curve(
        self,
        points: Points,
        *,
        bandwidth: float | Sequence[float] | None = None,
        kernel: str | None = None,
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the regression at points, of any bandwidth and kernel; or the shares of groups.

        The mean response of the rows around a point, each weighted by its kernel, never beyond the
        response's bounds. Of a density by group each group's share of these weights: how likely a
        row is of the group.

        Parameters
        ----------
        points
            As a synopsis takes them; coordinates of xarray give a grid.
        bandwidth : float or sequence of float, optional
            In data units, one or one an axis; that of the release.
        kernel : str, optional
            By the name that a spec gives it; that of the release.
        population, beta
            As for `mass`; of the population's mean with the same weights.

        Raises
        ------
        SpecError
            Where neither responses nor groups were released, and as of `density`.
        """
        parts, (sides, count) = self._parts("curve"), self._at(points, bandwidth, kernel)
        asked = f"{self._what} near points"
        labels = {"point": range(count)}
        return self._told_of(parts, sides, count, labels, asked, beta, "smoothed", population)

    def average(
        self,
        region: Region,
        *,
        target: Target = "records",
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the mean response of the rows in a region, or in each of many; or groups' shares.

        Parameters
        ----------
        region, target, population, beta
            As for `mass`. "smoothed": each row counts as its kernel does in the region.

        Raises
        ------
        SpecError
            Where neither responses nor groups were released, and as of `mass`.
        """
        parts = self._parts("average")
        sides, labels, count, choice = self._inside(region, target)
        asked = f"{self._what}{_BY_KERNELS[target]} in {told(region)}"
        named = {"region": labels}
        return self._told_of(parts, sides, count, named, asked, beta, choice, population)

    def difference(
        self,
        one: Any,
        other: Any,
        *,
        target: Target = "records",
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the difference of `curve` or `average` between two points or regions.

        Parameters
        ----------
        one, other
            Arrays of points for `curve`, or regions for `average`; as many of either.
        target : "records" or "smoothed"
            As for `mass`; of points "smoothed".
        population, beta
            As for `mass`.

        Raises
        ------
        SpecError
            As of `curve` and `average`, and for two of different kinds or numbers.
        """
        parts, pair = self._parts("difference"), (one, other)
        regions = [_is_region(each) for each in pair]
        if all(regions):
            found = [self._inside(each, target) for each in pair]
            of_both, label = [(g, count) for g, _, count, _ in found], "region"
            choice = target if all(choice for *_, choice in found) else None
            asked = f"{self._what}{_BY_KERNELS[target]} in {told(one)} less that in {told(other)}"
        elif not any(regions):
            of_both, label = [self._at(each, None, None) for each in pair], "point"
            choice = "smoothed"
            asked = f"{self._what} near points less that near others"
        else:
            raise SpecError("difference: write two points, or two regions")
        (first, count), (second, others) = of_both
        if count != others:
            raise SpecError(f"difference: {count} less {others}. Write as many of either")

        def sides(part: slice) -> Envelope:
            return Envelope.joined(each(slice(None)) for each in (first, second)).part(part)

        labels = {label: range(count) if count > 1 else [None]}
        return self._told_of(
            parts, sides, 2 * count, labels, asked, beta, choice, population, less=True
        )

    @property
    def _what(self) -> str:
        return "mean response" if self.response else "share of the group"

    @property
    def parted(self) -> tuple[Parted, ...]:
        """The rows of each group and all others, or those for and against the response; or none."""
        own = replace(self.measures[0], values=np.stack([one.values for one in self.measures]))
        if self.response is not None:
            response = replace(self.response.measure, values=self.response.measure.values[None])
            return (Parted.of((response, own), _HALVES),)
        if len(self.groups) < 2:
            return ()
        each = np.eye(len(self.groups))
        return tuple(Parted.of((own,), np.stack([one, 1 - one])) for one in each)

    def _parts(self, question: str) -> tuple[Parted, ...]:
        if not self.parted:
            raise SpecError(
                f"{question}: this release has neither groups, nor responses in the bins of its "
                "rows. Ask for a density, or release a regression with this version"
            )
        return self.parted

    def _at(
        self, points: Points, bandwidth: Any, kernel: str | None
    ) -> tuple[Callable[[slice], Envelope], int]:
        """Envelopes of kernels at points, and how many there are."""
        kernels, places = self._kernels(bandwidth, kernel), as_points(points, self.domain)
        if not self.domain.inside(places).all():
            raise SpecError("points: some are outside the bounds. Leave them out")
        unit = np.clip(self.domain.to_unit(places), 0.0, 1.0)
        splines = self.measures[0].splines

        def sides(part: slice) -> Envelope:
            axes = zip(splines, kernels, unit[part].T, strict=True)
            return products([density_envelope(*axis) for axis in axes])

        return sides, len(places)

    def _inside(
        self, region: Region, target: Target
    ) -> tuple[Callable[[slice], Envelope], Sequence[Any], int, Target | None]:
        """Envelopes of regions, labels, how many there are; and the target, if it is a choice."""
        weights, shapes = self._weights(target), polygons_of(region, self.domain)
        measure = self.measures[0]
        if shapes is not None:
            if weights.kernels:
                raise SpecError("region: of polygons ask for the records, or write boxes")
            whole = polygon_envelope(shapes, measure.splines)
            return whole.part, shapes.labels, len(shapes), None
        boxes = boxes_of(region, self.domain)

        def sides(part: slice) -> Envelope:
            return products(weights.axes(measure, boxes.part(part)))

        return sides, boxes.labels, len(boxes), target

    def _told_of(
        self,
        parts: Sequence[Parted],
        sides: Callable[[slice], Envelope],
        count: int,
        labels: Mapping[str, Sequence[Any]],
        asked: str,
        beta: float | str | None,
        target: Target | None,
        population: bool,
        *,
        less: bool = False,
    ) -> Answer:
        """Ask means, or the first half of them less the second, in units of the response."""
        low, high = (self.response.low, self.response.high) if self.response else (0.0, 1.0)

        def band(measure: Parted, share: Fraction) -> Band:
            found = _mean_of_parts(measure, sides, count, share)
            if not less:
                return found.scaled(low, high - low)
            one, other = (
                Band(*(each[part] for each in found))
                for part in (slice(count // 2), slice(count // 2, None))
            )
            apart = one.minus(other)
            return apart.scaled(0.0, high - low)

        return self._asked_of(
            band, labels, asked, beta, measures=parts, target=target, population=population
        )


def _is_region(one: Any) -> bool:
    first = one[0] if type(one) in (list, tuple) and len(one) else one
    return hasattr(first, "keys") or hasattr(first, "__geo_interface__")
