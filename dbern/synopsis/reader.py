"""``Synopsis``: a released function that answers queries, bands and decisions.

It is the face of parts that can be read each by itself: `ReleasedFunction` evaluates,
`ConfidenceBands` bound the error, `LabelledAnswers` give answers in the form of the points. A
`MemorySynopsis` needs no folder: every object of its store is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dbern.ask.points import Order, Points, Shape, Window, gridded, plain, read_beta
from dbern.certify.certificate import Certificate
from dbern.certify.error_summary import ErrorSummary
from dbern.combination.base import Answer, Combination, Meaning
from dbern.data.domain import Domain
from dbern.data.storage import MANIFEST, MemoryFolder, location_at
from dbern.errors import SpecError, printable
from dbern.privacy.budget import Budget
from dbern.synopsis.bands import About, BandRequest, ConfidenceBands, summarize_errors
from dbern.synopsis.drawing import described, plotted
from dbern.synopsis.function import Evaluation, ReleasedFunction, labels_of
from dbern.synopsis.grids import LabelledAnswers, map_points, values_on_grid
from dbern.synopsis.regression import Regression, ReleasedMoments, released_regression
from dbern.synopsis.released import Released
from dbern.synopsis.smoothing import Smoothing
from dbern.synopsis.store import ReadableStore, ReleasedStore
from dbern.types import FloatArray

if TYPE_CHECKING:
    import xarray

    from dbern.ask.distribution import Distribution


class Synopsis:
    """A released function. Call it with points to get values.

    Parameters
    ----------
    url : str or path
        Where the store is; use `dbern.open`.
    """

    def __init__(self, url: str | Path) -> None:
        self._store: ReadableStore = ReleasedStore(location_at(url))

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickle, (self.url, self.metadata["release_id"]))

    def __repr__(self) -> str:
        axes = ", ".join(self.domain.names)
        name, epsilon = self.metadata["name"], self.metadata["epsilon"]
        kind = self.metadata["target"]["kind"]
        text = f"<Synopsis {name}: {kind} over {axes}, epsilon {epsilon}, {self._where}>"
        return printable(text)

    def _repr_html_(self) -> str:
        constant = summarize_errors(self._function, None, None).constant  # without a band
        return described(self.metadata, self.domain, self._where, constant)

    @property
    def _where(self) -> str:
        in_memory = isinstance(self._store.location, MemoryFolder)
        return "in memory" if in_memory else f"at {self.url}"

    @property
    def url(self) -> str:
        """Its folder or ``s3://`` URL."""
        return str(self._store.location)

    @property
    def metadata(self) -> dict[str, Any]:
        """Contents and guarantee of the release; FORMAT.md describes every field."""
        return self._store.attributes

    @cached_property
    def guarantee(self) -> Budget:
        """Guarantee of the release."""
        return self._store.guarantee

    @property
    def classes(self) -> tuple[Any, ...]:
        """Public labels of the classes or groups, in order; empty where it has none."""
        return self.combination.classes

    @property
    def meaning(self) -> Meaning:
        """Meaning of its values: "density", "response", "log-odds", "score" of classes, "value"."""
        return self._function.meaning

    @property
    def domain(self) -> Domain:
        """Axes and bounds, in the order of a point's coordinates."""
        return self._function.domain

    @property
    def combination(self) -> Combination:
        """Rule by which the arrays make the function."""
        return self._function.combination

    @property
    def arrays(self) -> tuple[Released, ...]:
        """Released arrays, in the order of the combination."""
        return self._function.arrays

    @cached_property
    def _function(self) -> ReleasedFunction:
        return ReleasedFunction(self._store)

    @cached_property
    def _bands(self) -> ConfidenceBands:
        return ConfidenceBands(self._function)

    @property
    def _labels(self) -> LabelledAnswers:
        return LabelledAnswers(self.combination, self.domain, self.metadata)

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
            request arrays are within 1e-9 of their largest value (`Polynomial`). A kernel
            regression has a number also where no rows are, near the mean of all: `predict` leaves
            it out.

        Raises
        ------
        SpecError
            For points of the wrong shape, or an order below 1 or above 10000.
        """
        function, polynomial = self._function, method == "bernstein"
        evaluation = function.evaluation(h) if polynomial else function.baseline(method)
        return self._answer(points, evaluation)

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
        evaluation = self._function.evaluation(h)
        return (self._answer(points, evaluation) for points in batches)

    def _answer(self, points: Points, evaluation: Evaluation) -> Any:
        """Answer in kind; an array as it is, which needs no labels."""
        values = self._evaluate(points, evaluation)
        if type(points) is np.ndarray:
            return values
        return self._labels.like(points, values, evaluation.answer)

    def _evaluate(self, points: Points, evaluation: Evaluation) -> Any:
        columns = self._function.answer_shape(evaluation.answer)
        return map_points(self, points, partial(_evaluate_block, evaluation=evaluation), columns)

    def evaluator(
        self, total: int, h: Order = None, answer: Answer = "value"
    ) -> Callable[[FloatArray], FloatArray]:
        """Return a function that evaluates one batch of a request of `total` points.

        It takes points (m, l) in axis order, of categories their places in the lists, and gives
        what `self(points, h)` would, or decisions or probabilities. Threads may share it.
        """
        evaluation = self._function.evaluation(h, answer)
        return partial(self._function.values, evaluation=evaluation, total=total)

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
        if not self._function.decides:
            raise SpecError("decision_function: this function has no classes. Call the synopsis")
        return self._answer(points, self._function.evaluation(h, "decision"))

    def predict(self, points: Points, h: Order = None) -> Any:
        """Return the class of each point, by `decision_function`.

        A function without classes predicts its values, a regression by group that of each group;
        NaN where `interval` is. Outside the bounds there is no class.

        Returns
        -------
        array (m,)
            Labels; with points outside the bounds an array of objects, None there.
        """
        if not self._function.decides:
            return self._known_values(points, h) if self._bands.may_be_missing else self(points, h)
        decisions = self._evaluate(points, self._function.evaluation(h, "decision"))
        return gridded(points, labels_of(np.asarray(decisions), self.classes), self.domain)

    def _known_values(self, points: Points, h: Order) -> Any:
        request = BandRequest(h=h)
        self._bands.prepare(request)
        columns = self._function.answer_shape("value")
        values = map_points(self, points, partial(_known_block, request=request), columns)
        return self._labels.like(points, values)

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
        return self._answer(points, self._function.evaluation(h, "probability"))

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
        return self._labels.gridded(points, logs)

    def choose(self) -> Smoothing:
        """Return order and rank of least estimated error (`h="auto"`), by the first array."""
        return self.arrays[0].best_smoothing

    @cached_property
    def about(self) -> About:
        """Data that `band` and `interval` are about by default.

        "these-data" where the release lets them follow it: kernel sums released as bins, on one to
        three axes. Elsewhere "any-database", whatever is asked for.
        """
        return self._bands.about

    def band(
        self, beta: float | str = 0.05, h: Order = None, *, about: About = "these-data"
    ) -> float:
        """Return the half-width of a simultaneous confidence band for the non-private function.

        With probability at least ``1 - beta`` it covers at every point of the domain at once:
        approximation, rounding, and the quantile of the noise's public law. The approximation is
        that of the data at hand, bounded by the released numbers alone
        (`dbern.synopsis.array_bands`), where `about` says so and the release allows it (see
        `Synopsis.about`), else that of the worst database. For ``h="auto"`` all holds over all
        candidates at once; of orders that you choose among by looking, each holds by itself: write
        ``beta`` over their number.

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
        return self._bands.certificate(BandRequest(read_beta(beta), h, about))

    def explain(self, beta: float | str = 0.05) -> str:
        """Return who may fail with which share of beta, in a band and in an answer.

        Arrays, groups and several candidates deal out theirs in equal parts before.
        """
        return self._bands.failure_text(read_beta(beta))

    def promises(self, largest: float | None = None) -> ErrorSummary:
        """Return the errors that `show` and reports print, at the confidence of the certificate.

        Parameters
        ----------
        largest : float, optional
            The largest released value, of which errors are told as shares.
        """
        certificate = self.metadata["certificate"]
        follows = self.about == "these-data" and not self.combination.pointwise
        these_data = self.band(certificate["beta"]) if follows else None
        return summarize_errors(self._function, these_data, largest)

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
        largest value. It holds for all points at once and any dataset, however often it is asked
        (docs/bands.md). `about` is as for `band`, which may be wider: here a quotient whose
        denominator is surely positive, few records and a density before its bins were shrunk are
        taken as they are (ends are moved where the shrunk value lies outside). NaN outside the
        bounds, and of a kernel regression where its denominator cannot be told from zero: no rows
        here, or so few that noise hides them. Of a dask array lazy.

        Raises
        ------
        SpecError
            For points, a confidence or an order that this synopsis cannot have.
        """
        request = BandRequest(read_beta(beta), h, about)
        self._bands.prepare(request)  # refused now, and not by a worker
        columns = (*self._function.answer_shape("value"), 2)
        ends = map_points(self, points, partial(_bound_block, request=request), columns)
        return self._labels.like(points, ends[..., 0]), self._labels.like(points, ends[..., 1])

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
        moments = self.arrays[0]
        if isinstance(moments, ReleasedMoments):
            return moments.regression(response, columns, ridge, read_beta(beta))
        regression = released_regression(moments, self.domain, self.combination)
        if (response, columns, ridge) != (None, None, None):
            raise SpecError(
                "regression: the weights of one response and its columns were released. Leave "
                'out response, columns and ridge, or release with method = "moments"'
            )
        return regression

    def distribution(self, axis: str | None = None) -> Distribution:
        """Return the rows' distribution to ask, by bins; of naive Bayes on one `axis`, by class.

        Raises
        ------
        SpecError
            Where what was released is not bins that count rows on all axes, or on this one.
        """
        from dbern.synopsis.function import distribution_of

        parts = self.arrays, self.combination, self.domain, self.metadata
        return distribution_of(*parts, axis, _FunctionBand(self))

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
        from dbern.ask.regions import part_of

        box = None if window is None else part_of(window, self.domain)
        values = values_on_grid(self._function, shape, self._function.smoothings(h), box)
        return self._labels.grid(values, box)

    def plot(self, ax: Any = None, *, window: Window = None, **how: Any) -> Any:
        """Draw a function of one or two axes with matplotlib: `dbern.synopsis.drawing.plotted`."""
        return plotted(self, ax, window=window, **how)

    def shaped(self, *shapes: str) -> Synopsis:
        """Return the same function after free post-processing, labelled; its bands still cover.

        "nonnegative", "normalized", or both. Details: `dbern.synopsis.shaping.shape`.

        Raises
        ------
        SpecError
            For a shape that is not known or that this function cannot have.
        """
        from dbern.synopsis.shaping import shape

        return shape(self, shapes)

    def verify(self) -> int:
        """Check every object against the manifest; returns how many there are.

        Raises
        ------
        IntegrityError
            For the first object that is missing, added or changed.
        """
        return self._store.verify()


def _evaluate_block(
    synopsis: Synopsis, points: FloatArray, total: int, threads: int = 1, *, evaluation: Evaluation
) -> FloatArray:
    return synopsis._function.values(points, evaluation, total, threads)


def _bound_block(
    synopsis: Synopsis, points: FloatArray, total: int, threads: int = 1, *, request: BandRequest
) -> FloatArray:
    return synopsis._bands.interval(points, request, total, threads)


def _known_block(
    synopsis: Synopsis, points: FloatArray, total: int, threads: int = 1, *, request: BandRequest
) -> FloatArray:
    return np.asarray(synopsis._bands.answers(points, request, total, threads)[..., 0])


@dataclass(frozen=True, eq=False)
class _FunctionBand:
    """The band of a synopsis, for its distribution; it travels as the synopsis does."""

    synopsis: Synopsis

    @property
    def follows_data(self) -> bool:
        """Whether it is narrower about these data than about any database."""
        return self.synopsis._bands.about == "these-data"

    def promised(self, beta: Fraction, column: int) -> float:
        """Return the half-width that public facts promise of a column, which is an array."""
        bands = self.synopsis._bands.of_arrays(BandRequest(beta), raw=True)
        return bands[column].promised

    def ends(self, points: FloatArray, beta: Fraction) -> FloatArray:
        """Return low and high ends (m, columns, 2), NaN where all values may be."""
        ends = self.synopsis._bands.interval(points, BandRequest(beta), len(points))
        return ends.reshape(len(points), -1, 2)


@lru_cache(maxsize=8)
def _unpickle(url: str, release_id: str) -> Synopsis:
    """Return the synopsis sent to this process; blocks of one request share what it computed."""
    synopsis = Synopsis(url)
    synopsis._store.require(release_id)
    return synopsis


class MemorySynopsis(Synopsis):
    """The same function with every object of its store in memory; made by `to_memory`."""

    def __init__(self, location: MemoryFolder) -> None:
        self._store = ReleasedStore(location)

    def __reduce__(self) -> tuple[Any, ...]:
        return (MemorySynopsis, (self._store.location,))


def to_memory(synopsis: Synopsis) -> MemorySynopsis:
    """Return a synopsis that travels with its numbers; the folder may go afterwards."""
    synopsis.verify()
    location = location_at(synopsis.url)
    names = [MANIFEST, *location.names()]
    return MemorySynopsis(
        MemoryFolder({name: b"".join(location.parts(name, 1 << 62)) for name in names})
    )
