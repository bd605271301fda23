"""Questions about shares of the rows: in regions, and up to places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from dbern.data.domain import Domain
from dbern.errors import SpecError
from dbern.synopsis.points import as_numbers
from dbern.synopsis.questions.answer import Answer, Target
from dbern.synopsis.questions.asking import Asking, one_box, told, told_given
from dbern.synopsis.questions.confidence import Account
from dbern.synopsis.questions.functionals import box_band, regions_band, scaled
from dbern.synopsis.questions.measure import Band, Measure
from dbern.synopsis.questions.outlines import half_plane_of
from dbern.synopsis.questions.polygons import polygons_of
from dbern.synopsis.questions.regions import Region, boxes_of


class Shares(Asking):
    """Shares and counts of rows; see `Distribution`."""

    def mass(
        self,
        region: Region,
        *,
        given: Region | None = None,
        target: Target = "records",
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the share of the counted rows in a region, or in each of many.

        Parameters
        ----------
        region : mapping or list
            A box ``{"x": (low, high)}`` in data units, None for an end that is open, axes that are
            left out whole; several boxes in a list, or as arrays of ends. Of two axes also
            polygons: GeoJSON, or what has a `__geo_interface__`, as shapely's have; and half
            planes: ``{"half plane": {"x": 1, "y": -2}, "at most": 3}`` is where x - 2 y is.
        given : mapping, optional
            A box: then the share of the rows in it.
        target : "records" or "smoothed"
            "records": of the rows themselves. Bins do not tell where in a cell a row is, so sharp
            edges widen the interval. "smoothed": of the released density's integral, of which
            every row is a kernel; narrow, but no share of rows.
        population : bool
            Whether the interval is to cover the share of those that the rows were drawn from,
            independently. Approximate: the sampling error is taken as normal.
        beta : float or str, optional
            One minus the confidence; 0.05, or what `confidence` gives.

        Raises
        ------
        SpecError
            For a region or a confidence that cannot be.
        """
        labels, band = self._shares(region, given, target, of_total=True)
        asked = f"share of the rows{told_given(given)} in {told(region)}"
        return self._asked_of(band, labels, asked, beta, target=target, population=population)

    def count(
        self, region: Region, *, target: Target = "records", beta: float | str | None = None
    ) -> Answer:
        """Return how many rows are in a region, or in each of many; as for `mass`.

        These rows: of those that they were drawn from ask for the `mass`, with ``population=True``.

        Raises
        ------
        SpecError
            For a region or a confidence that cannot be.
        """
        labels, shares = self._shares(region, None, target, of_total=False)

        def band(measure: Measure, share: Fraction) -> Band:
            return scaled(shares(measure, share), 0.0, self.rows)

        return self._asked_of(band, labels, f"rows in {told(region)}", beta, target=target)

    def _shares(
        self, region: Region, given: Region | None, target: Target, *, of_total: bool
    ) -> tuple[Mapping[str, Sequence[Any]], Callable[[Measure, Fraction], Band]]:
        """Labels of the regions, and what tells their shares of a measure."""
        weights = self._weights(target)
        shapes = half_plane_of(region, self.domain) or polygons_of(region, self.domain)
        if shapes is not None:
            if given is not None:
                raise SpecError("given: polygons and half planes have no condition. Write boxes")
            return {"region": shapes.labels}, lambda measure, share: regions_band(
                measure, weights.polygons(measure, shapes), share, of_total=of_total
            )
        boxes = boxes_of(region, self.domain)
        condition = None if given is None else one_box(boxes_of(given, self.domain, "given"))
        return {"region": boxes.labels}, lambda measure, share: box_band(
            measure, weights, boxes, condition, share, of_total=of_total
        )

    def cdf(
        self,
        places: float | Sequence[float],
        axis: str | None = None,
        *,
        given: Region | None = None,
        target: Target = "records",
        population: bool = False,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the share of the rows up to each place of an axis, all at once.

        Parameters
        ----------
        places : float or sequence of float
            In data units.
        axis, given, target, population, beta
            As for `quantile`.

        Raises
        ------
        SpecError
            For places, an axis, a box or a confidence that cannot be.
        """
        own = self.domain.axes[self._index(axis)]
        numbers = as_numbers(np.ravel(places), own.unit, Domain((own,)))
        if not (len(numbers) and ((numbers > own.low) & (numbers <= own.high)).all()):
            raise SpecError(
                f"cdf: places must be above the lower bound of {own.name}, and up to its upper one"
            )
        return self.mass(
            {own.name: (None, places)}, given=given, target=target, population=population, beta=beta
        )

    def compare(self, other: Shares, region: Region, *, beta: float | str | None = None) -> Answer:
        """Return the share of rows in a region here less that there, each at half of beta.

        Parameters
        ----------
        other : Distribution
            Of another release.
        region, beta
            As for `mass`.

        Raises
        ------
        SpecError
            For a region that is none of both.
        """
        if not hasattr(other, "mass"):
            raise SpecError("compare: write what distribution() of another release returns")
        level = self._beta(beta)
        parts = [replace(one, account=Account(level)) for one in (self, other)]
        here, there = (one.mass(region, beta=str(level / 2)) for one in parts)
        return Answer(
            here.value - there.value,
            here.low - there.high,
            here.high - there.low,
            *("records", "these-data", float(level)),
            f"share of the rows in {told(region)}, less that of {other.name}",
        )
