"""``ConfidenceBands``: simultaneous bands for the non-private function, everywhere or at points.

Half a width is the bias bound of the point's cell, rounding and a quantile of the noise's largest
value, which fail together with probability beta at most (`dbern.certify.failure.BAND`); proofs are
in docs/bands.md and `dbern.synopsis.bands`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import get_args

import numpy as np

from dbern.certify.certificate import Certificate, combined
from dbern.certify.failure import BAND, FIELD, QUOTIENT
from dbern.combination.responses import Ratio
from dbern.errors import SpecError
from dbern.synopsis.bands import (
    About,
    ArrayBand,
    LocalBiasBound,
    Part,
    bands_of,
    local_bias_bounds,
    lower_bound_of,
    quotient_ends,
)
from dbern.synopsis.points import Order
from dbern.synopsis.released_function import Evaluation, ReleasedFunction, is_auto
from dbern.system import LRUCache, one_thread
from dbern.types import FloatArray

NO_ROWS = "no rows here"
"""Words for a missing answer within the bounds: its denominator cannot be told from zero."""

_MAX_CACHED_BANDS = 8


@dataclass(frozen=True)
class BandRequest:
    """A band that fails with probability `beta` at most; parameters as of `Synopsis.band`."""

    beta: Fraction = Fraction(1, 20)
    h: Order = None
    about: About = "these-data"


class ConfidenceBands:
    """Bands around a released function, from public numbers alone."""

    def __init__(self, function: ReleasedFunction) -> None:
        self._function = function
        self._cached = LRUCache[list[ArrayBand]](_MAX_CACHED_BANDS)

    @cached_property
    def local_bias_bounds(self) -> list[LocalBiasBound | None]:
        """Bound of each array's bias for the data at hand, where the release tells it."""
        return local_bias_bounds(self._function.arrays, self._function.store)

    @property
    def about(self) -> About:
        """Data that a band is about at best."""
        return "these-data" if any(self.local_bias_bounds) else "any-database"

    def of_arrays(self, request: BandRequest, *, raw: bool = False) -> list[ArrayBand]:
        """Return a band of each array, of quotients those of `bands_of`; all hold at once.

        `raw`: of the values before they were shrunk.
        """
        if request.about not in get_args(About):
            raise SpecError(f'about = "{request.about}": write "these-data" or "any-database"')
        arrays, combination = self._function.arrays, self._function.combination
        smoothings, selected = self._function.smoothings(request.h, raw=raw), is_auto(request.h)
        follows: Sequence[LocalBiasBound | None] = [None for _ in arrays]
        if request.about == "these-data":
            follows = self.local_bias_bounds
        parts = [*zip(arrays, follows, smoothings, strict=True)]
        pairs: Sequence[Sequence[Part]] = [parts]
        if isinstance(combination, Ratio):
            pairs = combination.pairs(parts)
        quotient = isinstance(combination, Ratio) and not selected

        def make_bands() -> list[ArrayBand]:
            bands = partial(bands_of, selected=selected, quotient=quotient)
            with one_thread():  # as plans do: threads wait longer than small matrices take
                return [band for pair in pairs for band in bands(pair, request.beta / len(pairs))]

        return self._cached((request.beta, smoothings, selected, request.about), make_bands)

    def certificate(self, request: BandRequest) -> Certificate:
        """Return the half-width that holds over the whole domain, in its parts."""
        parts = [band.certificate for band in self.of_arrays(request)]
        beta = float(request.beta)
        lower_bound = lower_bound_of(self._function.store.released, beta)
        return replace(combined(self._function.combination, parts, lower_bound), beta=beta)

    def failure_text(self, beta: Fraction) -> str:
        """Return who may fail with which share of beta, in a band and in an answer."""
        budgets = {"band and interval": FIELD}
        if self.about == "these-data":
            budgets = {
                "band and interval, about these data": BAND,
                "a question of distribution()": QUOTIENT,
            }
        lines = (line for claim, budget in budgets.items() for line in (claim, *budget.lines(beta)))
        return "\n".join([f"each part may fail with this share of beta {float(beta):g}", *lines])

    def prepare(self, request: BandRequest) -> None:
        """Compute the bands that intervals are made from, or refuse the request."""
        self.of_arrays(request, raw=True)

    def interval(
        self, points: FloatArray, request: BandRequest, total: int, threads: int = 1
    ) -> FloatArray:
        """Return the ends at points (m, l), low and high last; `total` as of `ReleasedFunction`.

        NaN outside the bounds, and of a quotient where there may be no rows (`quotient_ends`).
        """
        combination = self._function.combination
        if isinstance(combination, Ratio):
            ends = self._ends_of_quotients(combination, points, request, total, threads)
        else:
            ends = self._ends(points, request, total, threads)
        return np.stack(ends, axis=-1)

    @property
    def may_be_missing(self) -> bool:
        """Whether `interval` may be NaN within the bounds, where there may be no rows."""
        return isinstance(self._function.combination, Ratio)

    def answers(
        self, points: FloatArray, request: BandRequest, total: int, threads: int = 1
    ) -> FloatArray:
        """Return value, low and high last, the value NaN too where the ends are.

        The released function has a number there, which FORMAT.md defines, but no row stands for it.
        """
        ends = self.interval(points, request, total, threads)
        evaluation = self._function.evaluation(request.h)
        values = self._function.values(points, evaluation, total, threads)
        values = np.where(np.isnan(ends[..., 0]), np.nan, values)
        return np.concatenate([values[..., None], ends], axis=-1)

    def _ends_of_quotients(
        self,
        combination: Ratio,
        points: FloatArray,
        request: BandRequest,
        total: int,
        threads: int,
    ) -> tuple[FloatArray, FloatArray]:
        function, bands = self._function, self.of_arrays(request, raw=True)
        smoothings = function.smoothings(request.h, raw=True)
        parts = function.parts(points, smoothings, total, threads)
        coordinates = function.coordinates(function.arrays[0], points)
        errors = [band.at(coordinates) for band in bands]
        quotients = combination.quotients
        count = len(errors) // len(quotients)
        noises = [band.certificate.noise for band in bands]
        pairs = zip(quotients, combination.pairs(parts), range(0, len(bands), count), strict=True)
        bounds = [
            quotient_ends(quotient, pair, errors[i : i + count], noises[i : i + count])
            for quotient, pair, i in pairs
        ]
        low, high = np.stack(bounds, axis=-1) if combination.multi_output else bounds[0]
        outside = ~function.domain.inside(points)
        low[outside] = high[outside] = np.nan
        return low, high

    def _ends(
        self, points: FloatArray, request: BandRequest, total: int, threads: int
    ) -> tuple[FloatArray, FloatArray]:
        function, bands = self._function, self.of_arrays(request, raw=True)
        combination = function.combination
        raw, shrunk = (function.smoothings(request.h, raw=raw) for raw in (True, False))
        errors = [
            np.asarray(band.certificate.total)
            if combination.uniform
            else band.at(function.coordinates(array, points))
            for array, band in zip(function.arrays, bands, strict=True)
        ]
        values = function.values(points, Evaluation(raw), total, threads)
        width = combination.errors(errors)
        low, high = values - width, values + width
        if combination.pointwise:
            low, high = combination.to_range(low), combination.to_range(high)
        if shrunk != raw:  # the values themselves, of shrunk bins
            values = function.values(points, Evaluation(shrunk), total, threads)
            low, high = np.minimum(low, values), np.maximum(high, values)
        return low, high
