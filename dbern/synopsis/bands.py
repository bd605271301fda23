"""Simultaneous bands around a released function: its certificate, ends at points, its errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal, TypeAlias, get_args

import numpy as np

from dbern.ask.labels import response_name
from dbern.ask.points import Order
from dbern.certify.approximation import KernelMixture, remedies_of
from dbern.certify.certificate import Certificate, combine_certificates
from dbern.certify.error_summary import ErrorSummary
from dbern.certify.failure import BAND, FIELD, QUOTIENT
from dbern.certify.lower_bounds import GroupPrivacy, LowerBound, strongest_bound
from dbern.combination.responses import Ratio
from dbern.data.domain import volume_unit
from dbern.errors import SpecError
from dbern.model.component import LatticeComponent
from dbern.privacy.budget import PrivacyUnit
from dbern.synopsis.array_bands import ArrayBand, BiasOfData, SmoothedArray, biases_of_data
from dbern.synopsis.function import Evaluation, ReleasedFunction, is_auto
from dbern.synopsis.metadata import ReleaseMetadata
from dbern.synopsis.quotient_bands import (
    BandsOfSums,
    QuotientBand,
    quotient_band,
    ratio_ends,
)
from dbern.synopsis.released import ReleasedArray
from dbern.system import LRUCache, one_thread
from dbern.types import FloatArray

About: TypeAlias = Literal["these-data", "any-database"]
"""What a band is about: the data at hand, as far as they were released, or any database."""
NO_ROWS = "no rows here"
"""Words for a missing answer within the bounds: its denominator cannot be told from zero."""
_MAX_CACHED_BANDS = 8


def lower_bound_of(released: ReleaseMetadata, beta: float) -> LowerBound:
    """Return what no mechanism can do better than, by what was released first."""
    first = released.components[0]
    if not isinstance(first, LatticeComponent) or not first.additive:
        return LowerBound()
    epsilon, delta = float(Fraction(released.epsilon)), float(Fraction(released.delta))
    n = released.target.n or released.target.normalizer
    rows = PrivacyUnit.shown(released.unit).max_contributions
    unsigned = first.counted_in == first.arrays and first.oblique is None
    mixture = first.approximation.restore()
    kernels = mixture.kernels if isinstance(mixture, KernelMixture) else ()
    if any(kernel.edges == "periodic" for kernel in kernels):  # no bound is proved of such sums
        return LowerBound()
    privacy = GroupPrivacy(epsilon, beta, n, delta, rows)
    return strongest_bound(first.sensitivity.function, privacy, kernels if unsigned else ())


@dataclass(frozen=True)
class BandRequest:
    """A band that fails with probability `beta` at most; parameters as of `Synopsis.band`."""

    beta: Fraction = Fraction(1, 20)
    h: Order = None
    about: About = "these-data"

    def __post_init__(self) -> None:
        if self.about not in get_args(About):
            raise SpecError(f'about = "{self.about}": write "these-data" or "any-database"')


class ConfidenceBands:
    """Bands around a released function, from public numbers alone."""

    def __init__(self, function: ReleasedFunction) -> None:
        self._function = function
        self._array_bands = LRUCache[list[ArrayBand]](_MAX_CACHED_BANDS)
        self._quotient_bands = LRUCache[list[QuotientBand]](_MAX_CACHED_BANDS)

    @cached_property
    def biases_of_data(self) -> list[BiasOfData | None]:
        """Bias of each array for the data at hand, where the release tells it."""
        return biases_of_data(self._function.arrays, self._function.store)

    @property
    def about(self) -> About:
        """Data that a band is about at best."""
        return "these-data" if any(self.biases_of_data) else "any-database"

    def of_arrays(self, request: BandRequest, *, raw: bool = False) -> list[ArrayBand]:
        """Return a band of each array; all hold at once. `raw`: of values before they shrink."""
        arrays = self._smoothed_arrays(request, raw=raw)

        def make() -> list[ArrayBand]:
            with one_thread():  # as plans do: threads wait longer than small matrices take
                return [array.band(request.beta, len(arrays)) for array in arrays]

        return self._array_bands((request.beta, *arrays), make)

    def of_quotients(self, combination: Ratio, request: BandRequest) -> list[QuotientBand]:
        """Return a band of each quotient of raw values; all hold at once."""
        pairs = combination.pairs(self._smoothed_arrays(request, raw=True))

        def make() -> list[QuotientBand]:
            with one_thread():
                beta = request.beta / len(pairs)
                if combination.of_sums:
                    return [BandsOfSums(*(part.band(beta, 2) for part in pair)) for pair in pairs]
                return [quotient_band(*pair, beta) for pair in pairs]

        return self._quotient_bands((request.beta, *pairs), make)

    def _smoothed_arrays(self, request: BandRequest, *, raw: bool) -> list[SmoothedArray]:
        arrays, selected = self._function.arrays, is_auto(request.h)
        smoothings = self._function.smoothings(request.h, raw=raw)
        biases: Sequence[BiasOfData | None] = [None for _ in arrays]
        if request.about == "these-data":
            biases = self.biases_of_data
        parts = zip(arrays, biases, smoothings, strict=True)
        return [SmoothedArray(*part, selected) for part in parts]

    def certificate(self, request: BandRequest) -> Certificate:
        """Return the half-width that holds over the whole domain, in its parts."""
        combination, beta = self._function.combination, float(request.beta)
        if combination.pointwise:  # the width of its range, whatever its arrays err by
            return Certificate(0.0, 0.0, combination.error([0.0]), beta, 0.0)
        parts = [band.certificate for band in self.of_arrays(request)]
        lower_bound = lower_bound_of(self._function.store.released, beta)
        return replace(combine_certificates(combination, parts, lower_bound), beta=beta)

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
        combination = self._function.combination
        if isinstance(combination, Ratio):
            self.of_quotients(combination, request)
        else:
            self.of_arrays(request, raw=True)

    def interval(
        self, points: FloatArray, request: BandRequest, total: int, threads: int = 1
    ) -> FloatArray:
        """Return the ends at points (m, l), low and high last; `total` as of `ReleasedFunction`.

        NaN outside the bounds, and of a quotient where there may be no rows (`ratio_ends`).
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
        function, bands = self._function, self.of_quotients(combination, request)
        smoothings = function.smoothings(request.h, raw=True)
        pairs = combination.pairs(function.parts(points, smoothings, total, threads))
        coordinates = function.coordinates(function.arrays[0], points)
        quotients = zip(combination.quotients, pairs, bands, strict=True)
        bounds = [
            ratio_ends(quotient, pair, band.errors(coordinates))
            for quotient, pair, band in quotients
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


def summarize_errors(
    function: ReleasedFunction, these_data: float | None, largest: float | None
) -> ErrorSummary:
    """Return the errors of a function.

    `these_data` is the half-width of a band about the data at hand, where there is one; `largest`
    is the largest released value.
    """
    metadata, first = function.store.attributes, function.arrays[0]
    certificate = metadata["certificate"]
    function_class = first.function_class if isinstance(first, ReleasedArray) else None
    perturbed = metadata["target"].get("method") == "objective"
    extent = function.combination.extent(_value_range(function))
    return ErrorSummary(
        expected=metadata.get("expected_error"),
        these_data=these_data,
        any_database=certificate["total"] + function.shaping_error,
        beta=certificate["beta"],
        unit=_value_unit(function),
        largest=largest,
        extent=tuple(metadata["extent"]) if "extent" in metadata else extent,
        released=True,
        pointwise=function.combination.pointwise,
        on_lattice=function_class is not None,
        remedies=remedies_of(function_class, perturbed, bool(function.domain.categorical)),
    )


def _lattices(function: ReleasedFunction) -> list[ReleasedArray]:
    """Return the arrays of a function, where each has a lattice; else none."""
    lattices = [array for array in function.arrays if isinstance(array, ReleasedArray)]
    return lattices if len(lattices) == len(function.arrays) else []


def _value_range(function: ReleasedFunction) -> tuple[float, float] | None:
    """Return the range of the values that records can give to arrays, where it is known."""
    lattices = _lattices(function)
    top = max((array.value_unit * array.highest for array in lattices), default=math.inf)
    signed = any(array.counted_in != array.name for array in lattices)
    return None if top == math.inf else (-signed * top, top)


def _value_unit(function: ReleasedFunction) -> str:
    domain, lattices, metadata = function.domain, _lattices(function), function.store.attributes
    density = (
        bool(lattices)
        and domain.volume > 0
        and all(array.kernels and array.value_unit == 1 / domain.volume for array in lattices)
    )
    volume, response = volume_unit(domain.axes, labels=True), response_name(metadata)
    return function.combination.unit_text(volume, density=density, response=response)
