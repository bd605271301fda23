"""Base of the estimators: parameters, columns, and the release that is a fit.

Bounds are public, as in a spec. Parameters with a name of scikit-learn's (`C`, `alpha`, `kernel`,
`bandwidth`, ..) mean what they do there, of columns that their bounds map to [0, 1]; other
parameters of scikit-learn are refused with a reason.
"""

from __future__ import annotations

import inspect
import itertools
import re
import secrets
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import date, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from dbern.data.domain import Column
from dbern.data.times import are_hours, bounds_of
from dbern.errors import SpecError
from dbern.ledger import BudgetLedger, resolve_url
from dbern.ledger.entries import LIVE
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.budget import Budget
from dbern.run.stages import abandon, release
from dbern.sklearn.columns import listed_column, split_columns, time_column, to_floats
from dbern.synopsis.reader import to_memory
from dbern.system import file_url
from dbern.targets import Learner
from dbern.types import FloatArray

Pair: TypeAlias = Sequence[float] | Sequence[date] | Sequence[np.datetime64]
Values: TypeAlias = Sequence[Any] | Mapping[str, Sequence[Any]]
Bounds: TypeAlias = Pair | Sequence[Pair | Values] | Mapping[str, Pair | Values]
"""A pair for all columns, one for each in their order, or one for each by its name; in place of a
pair the list of a category's values, or ``{"values": [..]}``."""
_INTEGERS = 2**63  # of a column
_SOLVED = (
    "what is released is solved, or counted, as exactly as its privacy needs, whatever that takes"
)
_WALKED = "the released function is evaluated itself: no tree of records is walked"
_PENALTY = "the penalty is the square of the weights' length: the proof of privacy is for that one"
_REASONS = {
    "algorithm": _WALKED,
    "atol": _WALKED,
    "breadth_first": _WALKED,
    "leaf_size": _WALKED,
    "metric": _WALKED,
    "metric_params": _WALKED,
    "rtol": _WALKED,
    "break_ties": "predict names the class with the largest score",
    "cache_size": _SOLVED,
    "dual": _SOLVED,
    "max_iter": _SOLVED,
    "shrinking": _SOLVED,
    "solver": _SOLVED,
    "tol": _SOLVED,
    "class_weight": "weights that follow from y would be read from the data before it is paid for",
    "coef0": "the kernel is the Gaussian one",
    "copy_X": "X is read once and never changed",
    "decision_function_shape": "of more than two classes there is one score each, against the rest",
    "fit_intercept": "an intercept belongs to the function",
    "gamma": "write length_scale, in the units of each column: gamma is 1 / (2 length_scale^2)",
    "intercept_scaling": "an intercept belongs to the function, and its scale to the noise",
    "l1_ratio": _PENALTY,
    "n_jobs": "a fit counts in threads of this process, as many as there are cores",
    "penalty": _PENALTY,
    "positive": "the noise decides about a sign as about the rest; cut what was released",
    "priors": "shares of classes are counted, and have noise like the rest",
    "probability": "a support vector machine says no probabilities: take LogisticRegression",
    "random_state": "noise that can be drawn again can be taken off, so there is no seed",
    "sample_weight": "a row that weighs more would need more noise: each counts as one",
    "var_smoothing": "write std_floor, in the units of each column: the largest variance is data",
    "verbose": "what a fit says is in warnings and errors",
    "warm_start": "a release begins with its records, not with another release",
}
_ESTIMATOR_REASONS = {
    ("GaussianNB", "alpha"): "a count has noise, and none of its own is added",
    ("LogisticRegression", "alpha"): "write C: it is 1 / alpha here as in scikit-learn",
    ("LogisticRegression", "fit_intercept"): "write constant=0 for a function without intercept",
    ("Ridge", "C"): "write alpha, as in scikit-learn; a spec's C is n / alpha",
    ("SVC", "degree"): "the kernel is the Gaussian one",
    ("SVC", "kernel"): "the kernel is the Gaussian one; for the linear one take LogisticRegression",
}
PerAxis: TypeAlias = float | Sequence[float]
"""A number for all columns, or one for each."""
_PARAMETERS = {  # of an estimator, by a pattern of the spec's key
    r" and write \[data\.filter\]": "",
    r"\bdata\.label\.classes\b": "classes",
    r"\[mechanism\]": "mechanism",
    r" under (?:target|budget)\b": "",
    r"\bdata\.response\.bounds\b(.*)\bWrite bounds = \[(.*?)\]": r"y_bounds\1Write y_bounds=(\2)",
    r"\bmechanism\.(\w+)": r'mechanism["\1"]',
    r"\b(?:data|target|budget)\.(?=\w)": "",
    r'(bounds\["(.*?)"\].*)Write \2 = \[low, high\]': r'\1Write bounds={"\2": (low, high), ..}',
    r", or write its column and values in \[.*": "",
    r'\b(\w+) = (?=[\d"\[])': r"\1=",
}
_PROPOSED_FRACTION = 0.05
"""Of a column's bounds: what a message proposes as a bandwidth."""
_FREE_DATASET = "unaccounted"  # the dataset of a ledger that is gone after the fit
_fits = itertools.count(1)
_WARNING = "WARNING: "  # of a plan's notes
_PREFIX = "dbern-"  # of temporary folders, which are for their owner alone


def public_bounds(bounds: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return each column's bounds as a spec writes them: a pair, or the values that it may have."""
    fix = (
        f"Write bounds=[(low, high), ..] with a pair for each of the {len(names)} columns of X, a "
        "list of values for a category, or one pair for all, from what they mean: X.min() would "
        "be a look at the data"
    )
    if bounds is None:
        raise SpecError(f"bounds: are missing. {fix}")
    if hasattr(bounds, "keys") and (missing := [name for name in names if name not in bounds]):
        raise SpecError(f"bounds: have none for {missing[0]!r}, a column of X. {fix}")
    try:
        if hasattr(bounds, "keys"):
            columns = [bounds[name] for name in names]
        else:
            columns = [bounds] * len(names) if _is_pair(bounds) else list(bounds)
        return dict(zip(names, map(_bounds_of_column, columns), strict=True))
    except (KeyError, TypeError, ValueError):
        raise SpecError(f"bounds: are not those of X. {fix}") from None


def _is_pair(bounds: Any) -> bool:
    numbers = (int, float, np.integer, np.floating)
    if not isinstance(bounds, Sequence | np.ndarray) or len(bounds) != 2:
        return False
    of_numbers = all(isinstance(end, numbers) and not isinstance(end, bool) for end in bounds)
    return of_numbers or all(isinstance(end, date | np.datetime64) for end in bounds)


def _bounds_of_column(bounds: Any) -> list[Any] | dict[str, list[Any]]:
    if _is_pair(bounds):
        return [end if isinstance(end, date) else _number_or_date(end) for end in bounds]
    return {"values": listed_values(bounds["values"] if hasattr(bounds, "keys") else bounds)}


def _number_or_date(end: Any) -> float | date | datetime:
    if not isinstance(end, np.datetime64):
        return float(end)
    unit = "D" if end.dtype == "datetime64[D]" else "us"
    moment = end.astype(f"datetime64[{unit}]").item()
    if not isinstance(moment, date):  # not a time, or of a year that no calendar of Python has
        raise TypeError(end)
    return moment


def listed_values(values: Any) -> list[Any]:
    """Return the values of a public list: texts, integers or booleans, all of one type.

    Raises TypeError for anything else.
    """
    if isinstance(values, str):
        raise TypeError
    listed = [value.item() if isinstance(value, np.generic) else value for value in values]
    kinds = {type(value) for value in listed}
    if len(kinds) != 1 or not kinds <= {str, int, bool}:
        raise TypeError
    if kinds == {int} and not -_INTEGERS <= min(listed) <= max(listed) < _INTEGERS:
        raise TypeError
    return listed


def reason_against(estimator: str, names: Iterable[str]) -> str:
    """Return why the first name with a reason is no parameter of an estimator; else ""."""
    for name in names:
        if (estimator, name) in _ESTIMATOR_REASONS:
            return f"{name}: {_ESTIMATOR_REASONS[estimator, name]}"
        if name in _REASONS:
            return f"{name}: {_REASONS[name]}. Leave it out"
    return ""


@contextmanager
def _abandon_on_failure(ledger: str, dataset: str, name: str) -> Iterator[None]:
    """Abandon the release of a fit that fails: nobody knows its name to continue it."""
    with BudgetLedger.open(ledger) as budgets:
        try:
            yield
        except BaseException:
            reservation = budgets.find(dataset, name)
            if reservation is not None and reservation.state in LIVE:
                abandon(budgets, dataset, name)
            raise


def _warn(text: str) -> None:
    """Warn where the user's code called this package."""
    frame, level = inspect.currentframe(), 1
    inside = ("dbern.", "contextlib")
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(inside):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


@cache
def _warn_of_no_ledger() -> None:
    _warn(
        "ledger=None: nothing keeps account of what this fit and others cost together. Write "
        'ledger="sqlite:///ledger.db", dataset="rides", with a budget from: dbern ledger grant'
    )


def _warn_of_a_second_fit(charge: Budget) -> None:
    if next(_fits) == 2:
        _warn(
            f"A second fit of this process is a second release and a second charge, of {charge}, "
            "whether of this estimator or of another. GridSearchCV, cross_val_score and their like "
            "pay for every fit, of each candidate and each fold. Add them up: dbern ledger status"
        )


@dataclass(kw_only=True, eq=False, repr=False)  # scikit-learn's parameters are fields as they are
class ReleasingEstimator(BaseEstimator):
    """An estimator whose fit is a release; `dbern.sklearn` describes its parameters."""

    learner: ClassVar[type[Learner]]
    per_axis: ClassVar[str] = ""
    penalty: ClassVar[str] = "C"

    bounds: Bounds | None = None
    epsilon: str | float | None = None
    delta: str | float = 0
    outside: str = "clamp"
    ledger: str | None = None
    dataset: str | None = None
    output: str | Path | None = None
    mechanism: Mapping[str, Any] | None = None

    def __new__(cls, *_: Any, **parameters: Any) -> Self:
        """Refuse a parameter of scikit-learn that the estimator does not have, with a reason."""
        others = parameters.keys() - {parameter.name for parameter in fields(cls)}
        if reason := reason_against(cls.__name__, sorted(others)):
            raise SpecError(reason)
        return object.__new__(cls)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # two fits draw other noise
        return tags

    def _columns(self, X: Any) -> dict[str, Any]:  # noqa: N803 -- scikit-learn's name
        """Return the columns of X to fit, by name; their values are not checked."""
        table, columns = split_columns(X)
        validate_data(self, table, skip_check_array=True)  # of names and how many there are
        names = getattr(self, "feature_names_in_", map("x{}".format, range(len(columns))))
        return dict(zip(names, columns, strict=True))

    def _points(self, X: Any) -> FloatArray:  # noqa: N803
        """Return points (m, l) to ask at, a listed value as its position; NaN if missing."""
        check_is_fitted(self)
        table, columns = split_columns(X)
        validate_data(self, table, skip_check_array=True, reset=False)
        axes = zip(columns, self.synopsis_.domain.axes, strict=True)
        points = np.column_stack(
            [to_floats(values, axis.column, f"X: {axis.name}") for values, axis in axes]
        )
        return np.where(np.isfinite(points), points, np.nan)

    def _answers(self, X: Any, answer: Callable[[Any], FloatArray]) -> FloatArray:  # noqa: N803
        """Answer rows (m, ..) at the nearest points; NaN where a value is missing."""
        points = self._points(X)
        complete = ~np.isnan(points).any(axis=1)
        asked_points = points[complete] if complete.any() else self._box[:1]  # for the shape
        values = np.asarray(answer(self._nearest(asked_points)))
        answers = np.full((len(points), *values.shape[1:]), np.nan)
        answers[complete] = values[: np.count_nonzero(complete)]
        return answers

    def _nearest(self, points: FloatArray) -> Any:
        """Return the nearest points within the bounds, in the form that a synopsis takes."""
        points, domain = np.clip(points, *self._box), self.synopsis_.domain
        if not domain.categorical:
            return points
        return {
            axis.name: listed_column(values, axis.categories) if axis.categories else values
            for axis, values in zip(domain.axes, points.T, strict=True)
        }

    @property
    def _box(self) -> FloatArray:
        return np.array([(axis.low, axis.high) for axis in self.synopsis_.domain.axes]).T

    def _release(
        self,
        table: Mapping[str, Any],
        role: str = "",
        role_keys: Mapping[str, Any] | None = None,
        y: Any = (),
    ) -> Self:
        """Release the function of a table's rows, and of a column that has a role."""
        names = list(table)
        bounds = public_bounds(self.bounds, names)
        columns: dict[str, Any] = {}
        for name, values in table.items():
            axis_bounds = bounds[name]
            listed = axis_bounds["values"] if isinstance(axis_bounds, dict) else ()
            low, high, unit = (0, 0, None) if listed else bounds_of(axis_bounds, "bounds")
            hours = not listed and are_hours(low, high, unit)
            column = Column(name, f'bounds["{name}"]', tuple(listed), unit=unit, of_hours=hours)
            columns[name] = floats = to_floats(values, column, f"X: {name}")
            if listed:
                columns[name] = listed_column(floats, listed)
                continue
            if unit is not None:
                columns[name] = time_column(floats, low, high, unit)
        data = {"bounds": bounds, "outside": self.outside}
        if resolution := getattr(self, "resolution", None):  # stated: types may tell of one value
            numbers = [key for key, pair in bounds.items() if "values" not in pair]
            stated = isinstance(resolution, Mapping)
            data["resolution"] = dict(resolution if stated else dict.fromkeys(numbers, resolution))
        if role_keys is not None:
            target = "y"
            while target in names:
                target += "_"
            columns[target], data[role] = y, {"column": target, **role_keys}
        name = f"{type(self).__name__}-{secrets.token_hex(8)}"
        rows = len(next(iter(columns.values())))
        with self._blame_parameters(bounds, rows), self._account() as (ledger, dataset, output):
            spec = ReleaseSpec(
                release={"name": name, "output": f"{output}/{name}.zarr"},
                data=data,
                target=self._target(sum("values" not in pair for pair in bounds.values()), rows),
                mechanism=dict(self.mechanism or {}),
                budget={**self._charge, "ledger": ledger, "dataset": dataset},
            )
            with _abandon_on_failure(ledger, dataset, name):
                publication = release(spec, data=pa.table(columns))
                self.synopsis_ = to_memory(publication.synopsis)
        self.release_name_ = name
        for note in publication.notes:
            if note.startswith(_WARNING):
                text = self._in_own_words(note.removeprefix(_WARNING), rows)
                _warn(f"{type(self).__name__}: {text}")
        _warn_of_a_second_fit(publication.charge)
        return self

    @contextmanager
    def _blame_parameters(self, bounds: Mapping[str, Any], rows: int) -> Iterator[None]:
        """Blame the estimator's parameters, for these columns, for a spec that cannot be."""
        try:
            yield
        except SpecError as error:
            text = self._in_own_words(str(error), rows)
            if self.per_axis and text.startswith(f"{self.per_axis}:"):
                intervals = [pair for pair in bounds.values() if "values" not in pair]
                ends = [bounds_of(pair, "bounds")[:2] for pair in intervals]
                widths = [_PROPOSED_FRACTION * (high - low) for low, high in ends]
                proposal = [float(f"{width:.2g}") for width in widths]
                problem = text.partition(". Write")[0]
                text = (
                    f"{problem}. Write {self.per_axis}={proposal}, in the units of each column of X"
                )
            raise SpecError(text) from None

    def _in_own_words(self, text: str, rows: int) -> str:
        """Rewrite a message about a spec of so many rows with this estimator's parameters."""
        text = re.sub(r"\bdata\.bounds\.([^:\s]+?)(?:\.values)?(?=:)", r'bounds["\1"]', text)
        text = text.replace(f'"{self.learner.kind}"', type(self).__name__)
        for key, parameter in _PARAMETERS.items():
            text = re.sub(key, parameter, text)
        text = re.sub(
            r"\bC=([\d.e+-]*\d)", lambda cost: f"C={self._cost(float(cost[1]), rows):.3g}", text
        )
        return re.sub(r"\bC(?=[=:])", self.penalty, text)

    @staticmethod
    def _cost(cost: float, rows: int) -> float:
        """Turn the C of a spec of so many rows into what `penalty` is, which is of a sum."""
        return cost / rows

    @property
    def _charge(self) -> dict[str, str]:
        if self.epsilon is None:
            raise SpecError("epsilon: is missing. Write epsilon=1, what each fit costs")
        return {"epsilon": str(self.epsilon), "delta": str(self.delta)}

    def _target(self, axes: int, rows: int) -> dict[str, Any]:
        keys = [key for key in self.learner.model_fields if getattr(self, key, None) is not None]
        target = {key: np.asarray(getattr(self, key)).tolist() for key in keys}
        if np.ndim(target.get(self.per_axis, ())) == 0 and target[self.per_axis] != "auto":
            target[self.per_axis] = [target[self.per_axis]] * axes
        if isinstance(target.get("C"), int | float):
            target["C"] *= rows  # scikit-learn's is of a sum, a spec's of a mean
        return {"kind": self.learner.kind, **target}

    @contextmanager
    def _account(self) -> Iterator[tuple[str, str, str]]:
        with TemporaryDirectory(prefix=_PREFIX) as folder:
            output = folder if self.output is None else str(self.output).rstrip("/")
            if self.ledger is None:
                _warn_of_no_ledger()
                free_ledger = file_url(Path(folder, "ledger.db"))
                charge = Budget.parse(**self._charge)
                BudgetLedger.create(free_ledger)
                with BudgetLedger.open(free_ledger) as budgets:
                    budgets.grant(_FREE_DATASET, charge)
                yield free_ledger, _FREE_DATASET, output
            elif self.dataset is None:
                raise SpecError(
                    'dataset: is missing. Write dataset="rides", the name of the account that pays '
                    "in the ledger"
                )
            else:
                yield resolve_url(self.ledger, Path.cwd()), self.dataset, output
