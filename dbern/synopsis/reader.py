"""``Synopsis``: a released function that answers queries, bands and decisions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from dbern.certify.bias import remedies_of
from dbern.certify.certificate import Certificate, combined
from dbern.certify.error_summary import ErrorSummary
from dbern.certify.failure import BAND, FIELD, POPULATION, QUOTIENT
from dbern.combination import combination_of
from dbern.combination.base import Answer, Combination, Meaning
from dbern.combination.least_squares import LeastSquares
from dbern.combination.responses import Ratio, Shifted
from dbern.data.domain import Axis, Domain, named_with
from dbern.data.storage import location_at
from dbern.errors import SpecError, printable
from dbern.privacy.budget import Budget
from dbern.privacy.random_privacy import RandomPrivacy
from dbern.synopsis.arrays import ReleasedArray, ReleasedVector, as_released
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
from dbern.synopsis.component import Component, LatticeComponent
from dbern.synopsis.evaluate import LEAST_RESAMPLED
from dbern.synopsis.grids import values_on_grid
from dbern.synopsis.labels import attributes_of, groups_column, labelled
from dbern.synopsis.maps import described, plotted
from dbern.synopsis.points import (
    Order,
    Points,
    Shape,
    Window,
    as_points,
    check_shape,
    confidence,
    gridded,
    like,
    orders,
    plain,
)
from dbern.synopsis.regression import Regression, ReleasedMoments, released_regression
from dbern.synopsis.smoothing import Smoothing
from dbern.synopsis.store import ReleasedStore
from dbern.system import LRUCache, cpu_count, one_thread
from dbern.types import FloatArray

if TYPE_CHECKING:
    import xarray

    from dbern.synopsis.questions.distribution import Distribution


_MAX_CACHED_BANDS = 8

_BandArguments: TypeAlias = tuple[Fraction, Order, About]
_Smoothings: TypeAlias = tuple[Smoothing, ...] | None


@dataclass(frozen=True)
class Evaluation:
    """Evaluation of every point of a request.

    There is a smoothing for each released array, or None for the nearest node's value; `noise` is
    the deviation of each array's noise, where `answer` needs it.
    """

    smoothings: tuple[Smoothing, ...] | None
    answer: Answer = "value"
    noise: tuple[float, ...] = ()


def open_synopsis(url: str | Path) -> Synopsis:
    """Open the synopsis in a folder or at ``s3://bucket/name.zarr``; each shard when it is read.

    Raises
    ------
    SpecError, IntegrityError, ReleaseError
        Where nothing is there; where it was not released or is not what its manifest says; where
        it cannot be read.
    """
    return Synopsis(url)


class Synopsis:
    """A released function. Call it with points to get values.

    Parameters
    ----------
    url : str or path
        Where the store is; use `dbern.open`.
    """

    def __init__(self, url: str | Path) -> None:
        self._store = ReleasedStore(location_at(url))

    def __reduce__(self) -> tuple[Any, ...]:
        return (unpickle, (self.url, self.metadata["release_id"]))

    def __repr__(self) -> str:
        axes = ", ".join(self.domain.names)
        label = "RANDOM DP " if "random_dp" in self.metadata else ""
        name = self.metadata["name"]
        return printable(f"<{label}Synopsis {name} over {axes} at {self.url}>")

    def _repr_html_(self) -> str:
        return described(self.metadata, self.domain, self.url)

    @property
    def url(self) -> str:
        """Its folder or ``s3://`` URL."""
        return str(self._store.location)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """Contents and guarantee of the release; FORMAT.md describes every field."""
        return self._store.attributes

    @cached_property
    def guarantee(self) -> Budget | RandomPrivacy:
        """Guarantee of the release: plain or random differential privacy."""
        return self._store.guarantee

    @property
    def classes(self) -> tuple[Any, ...]:
        """Public labels of the classes or groups, in order; empty where it has none."""
        return self.combination.classes

    @property
    def meaning(self) -> Meaning:
        """Meaning of its values: "density", "response", "log-odds", "score" of classes, "value"."""
        return self.combination.meaning(self.metadata["target"])

    @cached_property
    def domain(self) -> Domain:
        """Axes and bounds, in the order of a point's coordinates."""
        units = self.metadata.get("units", {})
        axes = map(Axis.from_dict, self.metadata["domain"]["axes"])
        return Domain(tuple(replace(axis, units=units.get(axis.name, "")) for axis in axes))

    def __call__(self, points: Points, h: Order = None, *, method: str = "bernstein") -> Any:
        """Evaluate the released function.

        Parameters
        ----------
        points : array (m, l) in axis order, (m,) where l = 1, or a table by column name
            Coordinates of xarray that have a dimension each give a labelled grid over these. In
            data units; for an axis of dates or times in the unit of its metadata, or as numpy
            datetime64, datetimes or ISO texts; of categories one of the listed values, and another
            has no value. A dask array gives a lazy dask array.
        h : int, one per axis, or "auto", optional
            Order of the iterated operator; any order is free post-processing. "auto" chooses order
            and rank from the released values and the known noise (`choose`).
        method : "bernstein" or "nearest"
            "nearest" is the paper's piecewise-constant baseline.

        Returns
        -------
        array (m,) or (m, classes)
            In data units (a density is per unit of data volume); NaN outside the bounds. Of a large
            request arrays are within 1e-9 of their largest value (`Polynomial`).

        Raises
        ------
        SpecError
            For points of the wrong shape, or an order below 1 or above 10000.
        """
        if method not in ("bernstein", "nearest"):
            raise SpecError(f'method = "{method}": write method = "bernstein" or "nearest"')
        return self._answered(
            points, Evaluation(None) if method == "nearest" else self._evaluation(h)
        )

    def iter_batches(self, batches: Iterable[Points], h: Order = None) -> Iterator[Any]:
        """Answer more points than fit into memory: batch by batch, as the answers are taken.

        Each batch is what a call takes, and is answered in kind.

        Raises
        ------
        SpecError
            For a single array or table, or an order below 1.
        """
        if hasattr(batches, "shape") or hasattr(batches, "keys"):
            raise SpecError(
                "iter_batches: these are points of one batch: call the synopsis, or write a list "
                "of batches"
            )
        evaluation = self._evaluation(h)
        return (self._answered(points, evaluation) for points in batches)

    def _evaluation(self, h: Order, answer: Answer = "value") -> Evaluation:
        smoothings = self._smoothings(h)
        if answer == "value":
            return Evaluation(smoothings)
        if answer == "probability":
            _require_probabilities(self.combination, self.metadata["target"])
        pairs = zip(self.arrays, smoothings, strict=True)
        return Evaluation(
            smoothings, answer, tuple(array.deviation(smoothing) for array, smoothing in pairs)
        )

    def _answer(self, points: Points, evaluation: Evaluation) -> Any:
        several = self.combination.multi_output or evaluation.answer == "probability"
        columns = (len(self.classes),) if several else ()
        return self._mapped(points, partial(Synopsis._evaluate, evaluation=evaluation), columns)

    def _answered(self, points: Points, evaluation: Evaluation) -> Any:
        values = self._answer(points, evaluation)
        return (
            values if type(points) is np.ndarray else self._like(points, values, evaluation.answer)
        )

    def _mapped(
        self, points: Points, block: Callable[..., FloatArray], last: tuple[int, ...]
    ) -> Any:
        """Apply `block` to points, of dask block by block; answers end in axes of `last`."""
        array = plain(points, self.domain)
        if isinstance(array, np.ndarray):
            return block(self, array, len(array), cpu_count())
        block = partial(_sent_block, block=block)
        check_shape(array.shape, self.domain)
        total = LEAST_RESAMPLED if np.isnan(array.shape[0]) else array.shape[0]
        chunks = (array.chunks[0], *((count,) for count in last))
        layout: dict[str, Any] = {"dtype": np.float64, "meta": np.empty((0,) * len(chunks))}
        layout |= {"chunks": chunks, "drop_axis": list(range(1, array.ndim))}
        layout |= {"new_axis": list(range(1, len(chunks)))}
        array = array.rechunk({1: -1}) if array.ndim == 2 else array
        return array.map_blocks(block, self, total, **layout)

    def _like(self, points: Points, values: Any, answer: Answer = "value") -> Any:
        names = self.combination.columns_of(answer)
        attributes = self._attributes if answer == "value" else None
        return self._labelled(like(points, values, self.domain, names, self.classes, attributes))

    def _labelled(self, answer: Any) -> Any:
        if "class" in getattr(answer, "coords", ()):
            answer["class"].attrs["long_name"] = groups_column(self.metadata)
        return answer

    @property
    def _attributes(self) -> dict[str, Any]:
        return attributes_of(self.combination, self.domain, self.metadata)

    def evaluator(
        self, total: int, h: Order = None, answer: Answer = "value"
    ) -> Callable[[FloatArray], FloatArray]:
        """Return a function that evaluates one batch of a request of `total` points.

        It takes points (m, l) in axis order, of categories their places in the lists, and gives
        what `self(points, h)` would, or decisions or probabilities. Threads may share it.
        """
        return partial(self._evaluate, evaluation=self._evaluation(h, answer), total=total)

    def decision_function(self, points: Points, h: Order = None) -> Any:
        """Return what decides: above zero for the second of two classes, or the largest column.

        Of naive Bayes the log odds of the second of two classes, of more the logarithms of their
        probabilities: not the values, which are differences of densities and large where records
        are many. Of other classifiers the values, or what a sigmoid is taken of. No band is
        promised for them but for that of the values. NaN outside the bounds.

        Returns
        -------
        array (m,) or (m, classes)

        Raises
        ------
        SpecError
            Where what was released has no classes.
        """
        if not self._decides:
            raise SpecError("decision_function: this function has no classes. Call the synopsis")
        return self._answered(points, self._evaluation(h, "decision"))

    @property
    def _decides(self) -> bool:
        """Whether classes are told apart; responses of groups tell none."""
        return bool(self.classes) and self.meaning != "response"

    def predict(self, points: Points, h: Order = None) -> Any:
        """Return the class of each point, by `decision_function`.

        A function without classes predicts its values, a regression by group that of each group.
        Outside the bounds there is no class.

        Returns
        -------
        array (m,)
            Labels; with points outside the bounds an array of objects, None there.
        """
        if not self._decides:
            return self(points, h)
        values = np.asarray(self._answer(points, self._evaluation(h, "decision")))
        codes = values.argmax(axis=1) if values.ndim == 2 else (values > 0).astype(np.int64)
        labels, unknown = np.array(self.classes)[codes], np.isnan(values.reshape(len(values), -1))
        if unknown.any():
            labels = labels.astype(object)
            labels[unknown.any(axis=1)] = None
        return gridded(points, labels, self.domain)

    def predict_proba(self, points: Points, h: Order = None) -> Any:
        """Return the probability of each class, of naive Bayes or of logistic loss and two classes.

        Where the noise hides what records say of a point, naive Bayes answers with the shares of
        the classes. NaN outside the bounds.

        Returns
        -------
        array (m, classes)
            In the order of `classes`; rows sum to one. A table gives columns
            ``probability_<class>``.

        Raises
        ------
        SpecError
            Where what was released gives no probabilities.
        """
        return self._answered(points, self._evaluation(h, "probability"))

    def score_samples(self, points: Points, h: Order = None) -> Any:
        """Return the logarithm of a density, by scikit-learn's name; NaN outside the bounds.

        Minus infinity where the released density is not above 0.

        Raises
        ------
        SpecError
            Where what was released is not a density.
        """
        if self.meaning != "density":
            raise SpecError("score_samples: what was released is not a density. Call the synopsis")
        with np.errstate(divide="ignore"):
            logs = np.log(np.maximum(self(plain(points, self.domain), h), 0.0))  # keeps NaN
        return gridded(points, logs, self.domain, self.classes)

    def _evaluate(
        self, points: FloatArray, total: int, threads: int = 1, *, evaluation: Evaluation
    ) -> FloatArray:
        combination, answer = self.combination, evaluation.answer
        parts = self._parts(points, evaluation.smoothings, total, threads)
        unit_points = self.domain.features(points) if combination.of_points else None
        if answer == "value":
            values = combination.values(parts, unit_points)
        else:
            values = combination.decisions(parts, unit_points, evaluation.noise)
        if answer == "probability":
            values = combination.probabilities(values)
        if not combination.is_array:  # else it is NaN there already
            values[~self.domain.inside(points)] = np.nan
        return values

    def _parts(
        self, points: FloatArray, smoothings: _Smoothings, total: int, threads: int = 1
    ) -> list[FloatArray]:
        """Values of every array, NaN outside the bounds of its axes; a vector as it is."""
        return [
            array.values(
                points if array.axes == self.domain.names else points[:, array.columns],
                None if smoothings is None else smoothings[i],
                total,
                threads,
            )
            for i, array in enumerate(self.arrays)
        ]

    def choose(self) -> Smoothing:
        """Return order and rank of least estimated error (`h="auto"`), by the first array."""
        return self.arrays[0].chosen

    @cached_property
    def about(self) -> About:
        """Data that `band` and `interval` are about by default.

        "these-data" where the release lets them follow it: kernel sums released as bins, on one to
        three axes. Elsewhere "any-database", whatever is asked for.
        """
        return "these-data" if any(self._local_bias_bounds) else "any-database"

    def band(
        self, beta: float | str = 0.05, h: Order = None, *, about: About = "these-data"
    ) -> float:
        """Return the half-width of a simultaneous confidence band for the non-private function.

        With probability at least ``1 - beta`` it covers at every point of the domain at once:
        approximation, rounding, and the quantile of the noise's public law. The approximation is
        that of the data at hand, bounded by the released numbers alone (`dbern.synopsis.bands`),
        where `about` says so and the release allows it (see `Synopsis.about`), else that of the
        worst database. For ``h="auto"`` all holds over all candidates at once.

        Parameters
        ----------
        about : "these-data" or "any-database"
            "any-database": at most the width that was promised before a record was read.

        Raises
        ------
        SpecError
            For a beta outside (0, 1), or another `about`.
        """
        return self.bound(beta, h, about=about).total

    def bound(
        self, beta: float | str = 0.05, h: Order = None, *, about: About = "these-data"
    ) -> Certificate:
        """Return the parts of `band`: approximation, rounding and noise; it raises as that does."""
        level = confidence(beta)
        parts = [band.certificate for band in self._bands(level, h, about)]
        lower_bound = lower_bound_of(self._store.released, float(level))
        return replace(combined(self.combination, parts, lower_bound), beta=float(level))

    def explain(self, beta: float | str = 0.05) -> str:
        """Return who may fail with which share of beta, in a band and in an answer.

        Arrays, groups and several candidates deal out theirs in equal parts before. Where a number
        of `tune` promises, its noise has a part of that of the values
        (`dbern.certify.failure.PROMISE`).
        """
        level = confidence(beta)
        if self.about != "these-data":
            return "\n".join(["band and interval", *FIELD.lines(level)])
        budgets = {
            "band and interval, about these data": BAND,
            "a question of distribution()": QUOTIENT,
            "a question of a population, of few rows": POPULATION,
        }
        return "\n".join(
            line for claim, budget in budgets.items() for line in (claim, *budget.lines(level))
        )

    def promises(self, largest: float | None = None) -> ErrorSummary:
        """Return the errors that `show` and reports print, at the confidence of the certificate.

        Parameters
        ----------
        largest : float, optional
            The largest released value, of which errors are told as shares.
        """
        metadata, volume = self.metadata, self.domain.volume
        certificate, target, first = metadata["certificate"], metadata["target"], self.arrays[0]
        pointwise, perturbed = self.combination.pointwise, target.get("method") == "objective"
        top = max(array.value_unit * array.highest for array in self.arrays)
        signed = any(array.counted_in != array.name for array in self.arrays)
        extent = self.combination.extent(None if top == math.inf else (-signed * top, top))
        density = volume > 0 and all(
            array.kernels and array.value_unit == 1 / volume for array in self.arrays
        )
        follows = self.about == "these-data" and not pointwise
        return ErrorSummary(
            expected=metadata.get("expected_error"),
            these_data=self.band(certificate["beta"]) if follows else None,
            any_database=certificate["total"],
            beta=certificate["beta"],
            unit=self._value_unit(density=density),
            largest=largest,
            extent=tuple(metadata["extent"]) if "extent" in metadata else extent,
            released=True,
            pointwise=pointwise,
            on_lattice=isinstance(first, ReleasedArray),
            remedies=remedies_of(first.approximation, perturbed, bool(self.domain.categorical)),
        )

    def _value_unit(self, *, density: bool) -> str:
        columns, names = self.metadata.get("columns", {}), [axis.label for axis in self.domain.axes]
        response = columns.get("response", "the response")
        response = named_with(response, self.metadata.get("units", {}).get(response, ""))
        return self.combination.unit_text(names, density=density, response=response)

    def _bands(
        self, beta: Fraction, h: Order, about: About, *, raw: bool = False
    ) -> list[ArrayBand]:
        if about not in get_args(About):
            raise SpecError(f'about = "{about}": write "these-data" or "any-database"')
        smoothings, selected = self._smoothings(h, raw=raw), _is_auto(h)
        follows = self._local_bias_bounds if about == "these-data" else [None for _ in self.arrays]
        parts = [*zip(self.arrays, follows, smoothings, strict=True)]
        pairs: Sequence[Sequence[Part]] = [parts]
        if isinstance(self.combination, Ratio):
            pairs = self.combination.pairs(parts)
        quotient = isinstance(self.combination, Ratio) and not selected

        def make_bands() -> list[ArrayBand]:
            bands = partial(bands_of, selected=selected, quotient=quotient)
            with one_thread():  # as plans do: threads wait longer than small matrices take
                return [band for pair in pairs for band in bands(pair, beta / len(pairs))]

        return self._cached_bands((beta, smoothings, selected, about), make_bands)

    @cached_property
    def _cached_bands(self) -> LRUCache[list[ArrayBand]]:
        return LRUCache(_MAX_CACHED_BANDS)

    @cached_property
    def _local_bias_bounds(self) -> list[LocalBiasBound | None]:
        return local_bias_bounds(self.arrays, self._store)

    def interval(
        self,
        points: Points,
        beta: float | str = 0.05,
        h: Order = None,
        *,
        about: About = "these-data",
    ) -> tuple[Any, Any]:
        """Ends (low, high) of a simultaneous ``1 - beta`` confidence band at points.

        Half a width is the bias bound of the point's cell, rounding and the quantile of the noise's
        largest value. It holds for all points at once and any dataset (docs/bands.md; questions to
        `distribution` have an engine of their own, `dbern.synopsis.questions.interval`). `about` is
        as for `band`, which may be wider: here a quotient whose denominator is surely positive, few
        records and a density before its bins were shrunk are taken as they are. Of a dask array
        lazy.

        Raises
        ------
        SpecError
            For points, a confidence or an order that this synopsis cannot have.
        """
        arguments = (confidence(beta), h, about)
        self._bands(*arguments, raw=True)  # refused now, and not by a worker
        columns = (len(self.classes),) if self.combination.multi_output else ()
        both = self._mapped(points, partial(Synopsis._interval, arguments=arguments), (*columns, 2))
        return self._like(points, both[..., 0]), self._like(points, both[..., 1])

    def _interval(
        self, points: FloatArray, total: int, threads: int = 1, *, arguments: _BandArguments
    ) -> FloatArray:
        combination, bands, h = self.combination, self._bands(*arguments, raw=True), arguments[1]
        smoothings, shrunk = self._smoothings(h, raw=True), self._smoothings(h)
        if isinstance(combination, Ratio):
            parts = self._parts(points, smoothings, total, threads)
            errors = [band.at(points[:, self.arrays[0].columns]) for band in bands]
            quotients, pairs = combination.quotients, combination.pairs(parts)
            count = len(errors) // len(quotients)
            bounds = [
                quotient_ends(quotient, pair, errors[i * count : (i + 1) * count])
                for i, (quotient, pair) in enumerate(zip(quotients, pairs, strict=True))
            ]
            low, high = np.stack(bounds, axis=-1) if combination.multi_output else bounds[0]
            outside = ~self.domain.inside(points)
            low[outside] = high[outside] = np.nan
        else:
            errors = [
                np.asarray(band.certificate.total)
                if combination.uniform
                else band.at(points[:, array.columns])
                for array, band in zip(self.arrays, bands, strict=True)
            ]
            values = self._evaluate(points, total, threads, evaluation=Evaluation(smoothings))
            width = combination.errors(errors)
            low, high = values - width, values + width
            if combination.pointwise:
                low, high = combination.to_range(low), combination.to_range(high)
            if shrunk != smoothings:  # the values themselves, of shrunk bins
                values = self._evaluate(points, total, threads, evaluation=Evaluation(shrunk))
                low, high = np.minimum(low, values), np.maximum(high, values)
        return np.stack([low, high], axis=-1)

    def regression(
        self,
        response: str | None = None,
        columns: Sequence[str] | None = None,
        ridge: Literal["auto"] | float | None = None,
        beta: float | str = 0.05,
    ) -> Regression:
        """Solve a linear regression of released moments: free, as often as you like.

        By objective, and by weights, a linear function was released, which is returned as it is:
        for the response and the columns of the release, without intervals.

        Parameters
        ----------
        response : str, optional
            Any of the axes, or the response of the release, which is the default.
        columns : sequence of str, optional
            Any of the others; the default is all of them.
        ridge : "auto" or float, optional
            "auto" shrinks coefficients by what the noise hides; a number is added to the diagonal
            of the columns' covariance matrix, as numbers from -1 to 1. The default is that of the
            release.
        beta : float or str
            One minus the confidence of each interval, about.

        Raises
        ------
        SpecError
            Where no linear function of a response was released; for names that are none of the
            release; and for another response, columns or ridge where no moments were.
        """
        moments, combination = self.arrays[0], self.combination
        if not isinstance(moments, ReleasedMoments):
            linear = combination.linear_response
            if not (
                linear and isinstance(combination, Shifted) and isinstance(moments, ReleasedVector)
            ):
                raise SpecError(
                    "regression: no linear function of a response was released. Release "
                    '"ridge-regression"'
                )
            if (response, columns, ridge) != (None, None, None):
                raise SpecError(
                    "regression: the weights of one response and its columns were released. Leave "
                    'out response, columns and ridge, or release with method = "moments"'
                )
            return released_regression(moments.numbers, self.domain, combination)
        return moments.regression(response, columns, ridge, confidence(beta))

    def distribution(self, axis: str | None = None) -> Distribution:
        """Return the rows' distribution to ask, by bins; of naive Bayes on one `axis`, by class.

        Raises
        ------
        SpecError
            Where what was released is not bins that count rows on all axes, or on this one.
        """
        from dbern.synopsis.questions.distribution import distribution_of

        bounds = [
            bound.promise.for_questions(self)
            for bound in self._local_bias_bounds
            if bound and bound.promise
        ]
        context = self.combination, self.domain, self.metadata, axis
        return distribution_of(self.arrays, *context, next(iter(bounds), None))

    def grid(self, shape: Shape, h: Order = None, *, window: Window = None) -> xarray.DataArray:
        """Return values on a regular grid over the domain, ends included, as a labelled array.

        Its last dimension is the first axis, so that ``.plot()`` draws it upright.

        Parameters
        ----------
        window : mapping, optional
            A box ``{"x": (2, 6)}``, of which the grid is instead; as a region of `Distribution`.

        Raises
        ------
        SpecError
            For a shape that is not one count of at least 2 for each axis, or needs more memory than
            this process may use; for a window that cannot be.
        """
        from dbern.synopsis.questions.regions import part_of

        box = None if window is None else part_of(window, self.domain)
        smoothings, combination = self._smoothings(h), self.combination
        values = values_on_grid(shape, self.domain, self.arrays, smoothings, combination, box)
        labels = self.metadata["name"], self._attributes
        grid = labelled(values, box or self.domain, self.classes, *labels)
        labelled_grid: xarray.DataArray = self._labelled(grid)
        return labelled_grid

    def plot(self, ax: Any = None, *, window: Window = None, **how: Any) -> Any:
        """Draw a function of one or two axes with matplotlib: `dbern.synopsis.maps.plotted`."""
        grid = partial(self.grid, window=window)
        return plotted(self.domain, grid, self.interval, ax, **how)

    def shaped(self, *shapes: str) -> Synopsis:
        """Return the same function after free post-processing, labelled; its bands still cover.

        Any of "raw", "quiet", "nonnegative", "normalized", "increasing:x", "decreasing:x" (x: an
        axis). Details: `dbern.synopsis.shaping.shape`.

        Raises
        ------
        SpecError
            For a shape that is not known or that this function cannot have.
        """
        from dbern.synopsis.shaping import shape

        return shape(self, shapes)

    def verify(self, trusted: Sequence[str | Path] = ()) -> int:
        """Check every object against the manifest; returns how many there are.

        With `trusted`, files of public keys (PEM), one of them has to have signed the manifest.

        Raises
        ------
        IntegrityError
            For the first object that is missing, added or changed, or where none of them did.
        """
        return self._store.verify(trusted)

    @property
    def signers(self) -> tuple[str, ...]:
        """Fingerprints of the keys that signed the manifest, each checked; empty: unsigned."""
        return self._store.signers

    @cached_property
    def combination(self) -> Combination:
        """Rule by which the arrays make the function."""
        return combination_of(self.metadata["combine"])

    @cached_property
    def arrays(self) -> tuple[ReleasedArray | ReleasedVector, ...]:
        """Released arrays, in the order of the combination."""
        functions = self._store.released.functions
        return tuple(
            self._array(name, component) for component in functions for name in component.arrays
        )

    def _array(self, name: str, component: Component) -> ReleasedArray | ReleasedVector:
        if isinstance(component, LatticeComponent):
            return ReleasedArray(self._store, name, component, self.domain)
        if isinstance(self.combination, LeastSquares):
            return ReleasedMoments(self._store, name, component, self.domain, self.combination)
        return ReleasedVector(self._store, name, component)

    def _smoothings(self, h: Order, *, raw: bool = False) -> tuple[Smoothing, ...]:
        if _is_auto(h):
            smoothings = [array.chosen for array in self.arrays]
        else:
            stated = {} if h is None else orders(h, self.domain)
            smoothings = [
                array.smoothing([stated[axis] for axis in array.axes if stated])
                for array in self.arrays
            ]
        return tuple(map(as_released, self.arrays, smoothings) if raw else smoothings)


def _is_auto(h: Order) -> bool:
    return isinstance(h, str) and h == "auto"


def _sent_block(
    points: Points, synopsis: Synopsis, total: int, *, block: Callable[..., FloatArray]
) -> FloatArray:
    return block(synopsis, as_points(points, synopsis.domain), total)


@lru_cache(maxsize=8)
def unpickle(url: str, release_id: str) -> Synopsis:
    """Return the synopsis sent to this process; blocks of one request share what it computed."""
    synopsis = open_synopsis(url)
    synopsis._store.require(release_id)
    return synopsis


def _require_probabilities(combination: Combination, target: Mapping[str, Any]) -> None:
    """Refuse a function that leaves no probabilities of its classes, and say what does."""
    if not combination.classes:
        raise SpecError("probabilities: this function has no classes. Ask for its values")
    if combination.log_odds or combination.meaning(target) == "log-odds":
        return
    if target.get("release") == "joint":
        raise SpecError(
            "probabilities: a joint release is the difference of two scores, which do not follow "
            'from it. Release naive Bayes with release = "factored", or ask for decisions'
        )
    raise SpecError(
        f"probabilities: a {target['kind']} of {len(combination.classes)} classes has none. Use "
        "decision_function or predict, or release naive-bayes or, of two classes, "
        "logistic-regression"
    )
