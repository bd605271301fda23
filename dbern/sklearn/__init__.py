"""Estimators for scikit-learn, whose every fit is one release under differential privacy.

All of them take these parameters, besides their own:

- `bounds`: public bounds of the columns of X, a pair ``(low, high)`` for all, a list of pairs, or a
  mapping of column names to pairs. They come from what a column means, never from the data. A
  category has the list of its values in place of a pair, such as ``{"cut": ["Fair", "Good"]}``; of
  two numbers ``{"values": [0, 1]}``.
- `epsilon`, `delta`: what a fit costs. Floats are read as they print: 0.1 is one tenth.
- `outside`: ``"clamp"`` moves a value outside its bounds to the bound, ``"drop"`` makes its row
  contribute nothing. A row with a missing or infinite value, a value that is no number, or a value
  or label that is not listed contributes nothing either way: to refuse or warn of it would tell of
  the data, so no check here looks at a value.
- `ledger`, `dataset`: the ledger that is charged, and whose account. With ``ledger=None`` nothing
  is kept of the charge, and the first fit warns of it.
- `output`: a folder in which each fit leaves its synopsis; it is in the estimator in any case.
- `mechanism`: keys of the section ``[mechanism]`` of a spec, such as ``{"k": 20}``.
- `y_bounds` of a regression: public bounds of y, to which values outside are moved.
- `classes` of a classifier: all labels that there may be, which are public. A fitted one has them
  in order, as ``classes_``.
- `kernel` of an estimator that has one: ``"gaussian"``, or another one of its learner's.

A parameter that is None has the default of its learner. Neighbours are two tables of as many rows
that differ in one row: their number is public. There is no ``random_state``: noise is keyed, and a
second fit draws other noise, is another release and pays again, and so does each fit of a
``GridSearchCV``. There is no ``sample_weight``.

A fitted estimator has ``synopsis_``, the released function as a `dbern.Synopsis`, and
``release_name_``, by which the ledger knows it. Nothing else of the records is in it, so it may be
pickled and given away. What `score` makes of private records is not private.
"""

from __future__ import annotations

import itertools
import re
import secrets
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Literal, Self, TypeAlias, overload

try:
    import sklearn as _  # noqa: F401
except ImportError:
    raise ImportError(
        "dbern.sklearn needs scikit-learn. Run: pip install 'dbern[sklearn]'"
    ) from None

import numpy as np
import pyarrow as pa
from scipy.special import log_expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, DensityMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dbern import targets
from dbern.data.domain import Column
from dbern.errors import SpecError
from dbern.ledger import BudgetLedger, resolve_url
from dbern.ledger.values import LIVE
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.budget import Budget
from dbern.releasing.run import abandon, release
from dbern.sklearn.columns import (
    Bounds,
    InputError,
    Pair,
    listed_column,
    one_column,
    public_bounds,
    split_columns,
    to_floats,
)
from dbern.synopsis.arrays import ReleasedVector
from dbern.synopsis.memory import to_memory
from dbern.synopsis.regression import in_data_units
from dbern.targets import Learner
from dbern.types import FloatArray

__all__ = [
    "SVC",
    "GaussianNB",
    "KernelDensity",
    "KernelNB",
    "KernelRegressor",
    "LogisticRegression",
    "Ridge",
]

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
_PROPOSED_SHARE = 0.05
"""Of a column's bounds: what a message proposes as a bandwidth."""
_FREE = "unaccounted"  # the dataset of a ledger that is gone after the fit
_PREFIX = "dbern-"  # of temporary folders, which are for their owner alone


# --- A release that fails


@contextmanager
def _given_up(ledger: str, dataset: str, name: str) -> Iterator[None]:
    """Abandon the release of a fit that fails: nobody knows its name to go on with it."""
    with BudgetLedger.open(ledger) as opened:
        try:
            yield
        except BaseException:
            found = opened.find(dataset, name)
            if found is not None and found.state in LIVE:
                abandon(opened, dataset, name)
            raise


# --- What a process is told once

_fits = itertools.count(1)


@cache
def _warn_of_no_ledger() -> None:
    warnings.warn(
        "ledger=None: nothing keeps account of what this fit and others cost together. Write "
        'ledger="sqlite:///ledger.db", dataset="rides", with a budget from: dbern ledger grant',
        stacklevel=2,
    )


def _warn_of_a_second_fit() -> None:
    if next(_fits) == 2:
        warnings.warn(
            "A second fit of this process is a second release and a second charge. GridSearchCV, "
            "cross_val_score and their like pay for every fit, of each candidate and each fold. "
            "Add them up: dbern ledger status",
            stacklevel=2,
        )


# --- The estimators' base


@dataclass(kw_only=True, eq=False, repr=False)  # scikit-learn's parameters are fields as they are
class Released(BaseEstimator):
    """An estimator whose fit is a release; `dbern.sklearn` describes its parameters."""

    learner: ClassVar[type[Learner]]
    per_axis: ClassVar[str] = ""

    bounds: Bounds | None = None
    epsilon: str | float | None = None
    delta: str | float = 0
    outside: str = "clamp"
    ledger: str | None = None
    dataset: str | None = None
    output: str | Path | None = None
    mechanism: Mapping[str, Any] | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # two fits draw other noise
        return tags

    def _columns(self, X: Any) -> dict[str, Any]:  # noqa: N803 -- scikit-learn's name
        """Columns of X to be fitted, by name; of their values nothing is asked."""
        table, columns = split_columns(X)
        validate_data(self, table, skip_check_array=True)  # of names and how many there are
        names = getattr(self, "feature_names_in_", map("x{}".format, range(len(columns))))
        return dict(zip(names, columns, strict=True))

    def _points(self, X: Any) -> FloatArray:  # noqa: N803
        """Points (m, l) to ask at, of a list positions in it; none may be missing."""
        check_is_fitted(self)
        table, columns = split_columns(X)
        validate_data(self, table, skip_check_array=True, reset=False)
        axes = zip(columns, self.synopsis_.domain.axes, strict=True)
        points = np.column_stack(
            [to_floats(values, axis.column, f"X: {axis.name}") for values, axis in axes]
        )
        if not np.isfinite(points).all():
            raise InputError(
                "X: a point has a value that is missing (NaN), infinite, no number, or not listed. "
                "Leave such points out"
            )
        return points

    def _nearest(self, X: Any) -> Any:  # noqa: N803
        """Nearest points within the bounds, in the form that a synopsis takes."""
        points, domain = np.clip(self._points(X), *self._box), self.synopsis_.domain
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
        facts: Mapping[str, Any] | None = None,
        y: Any = (),
    ) -> Self:
        """Release the function of a table's rows, and of a column that has a role."""
        names = list(table)
        bounds = public_bounds(self.bounds, names)
        columns: dict[str, Any] = {}
        for name, values in table.items():
            axis_bounds = bounds[name]
            listed = axis_bounds["values"] if isinstance(axis_bounds, dict) else ()
            column = Column(name, f'bounds["{name}"]', tuple(listed))
            floats = to_floats(values, column, f"X: {name}")
            columns[name] = listed_column(floats, listed) if listed else floats
        data = {"bounds": bounds, "outside": self.outside}
        if facts is not None:
            target = "y"
            while target in names:
                target += "_"
            columns[target], data[role] = y, {"column": target, **facts}
        name = f"{type(self).__name__}-{secrets.token_hex(8)}"
        with self._own_words(bounds), self._account() as (ledger, dataset, output):
            spec = ReleaseSpec(
                release={"name": name, "output": f"{output}/{name}.zarr"},
                data=data,
                target=self._target(sum("values" not in one for one in bounds.values())),
                mechanism=dict(self.mechanism or {}),
                budget={**self._charge, "ledger": ledger, "dataset": dataset},
            )
            with _given_up(ledger, dataset, name):
                self.synopsis_ = to_memory(release(spec, data=pa.table(columns)).synopsis)
        self.release_name_ = name
        _warn_of_a_second_fit()
        return self

    @contextmanager
    def _own_words(self, bounds: Mapping[str, Any]) -> Iterator[None]:
        """Blame the estimator's parameters, for these columns, for a spec that cannot be."""
        try:
            yield
        except SpecError as error:
            text = re.sub(
                r"\bdata\.bounds\.([^:\s]+?)(?:\.values)?(?=:)", r'bounds["\1"]', str(error)
            ).replace(f'"{self.learner.kind}"', type(self).__name__)
            for key, parameter in _PARAMETERS.items():
                text = re.sub(key, parameter, text)
            if self.per_axis and text.startswith(f"{self.per_axis}:"):
                widths = [np.ptp(ends) for ends in bounds.values() if "values" not in ends]
                proposed = [float(f"{_PROPOSED_SHARE * width:.2g}") for width in widths]
                what = text.partition(". Write")[0]
                text = f"{what}. Write {self.per_axis}={proposed}, in the units of each column of X"
            raise SpecError(text) from None

    @property
    def _charge(self) -> dict[str, str]:
        if self.epsilon is None:
            raise SpecError("epsilon: is missing. Write epsilon=1, what each fit costs")
        return {"epsilon": str(self.epsilon), "delta": str(self.delta)}

    def _target(self, axes: int) -> dict[str, Any]:
        keys = [key for key in self.learner.model_fields if getattr(self, key, None) is not None]
        target = {key: np.asarray(getattr(self, key)).tolist() for key in keys}
        if np.ndim(target.get(self.per_axis, ())) == 0 and target[self.per_axis] != "auto":
            target[self.per_axis] = [target[self.per_axis]] * axes
        return {"kind": self.learner.kind, **target}

    @contextmanager
    def _account(self) -> Iterator[tuple[str, str, str]]:
        with TemporaryDirectory(prefix=_PREFIX) as folder:
            output = folder if self.output is None else str(self.output).rstrip("/")
            if self.ledger is None:
                _warn_of_no_ledger()
                yield _granted(f"sqlite:///{folder}/ledger.db", **self._charge), _FREE, output
            elif self.dataset is None:
                raise SpecError(
                    'dataset: is missing. Write dataset="rides", the name of the account that pays '
                    "in the ledger"
                )
            else:
                yield resolve_url(self.ledger, Path.cwd()), self.dataset, output


def _granted(ledger: str, epsilon: str, delta: str) -> str:
    charge = Budget.parse(epsilon, delta)
    BudgetLedger.create(ledger)
    with BudgetLedger.open(ledger) as opened:
        opened.grant(_FREE, charge)
    return ledger


# --- Densities


@dataclass(kw_only=True, eq=False, repr=False)
class KernelDensity(DensityMixin, Released):
    """Kernel density of up to six columns.

    Parameters
    ----------
    bandwidth : "auto", float or sequence of float
        Of all columns or of each, in their units. "auto", the default: chosen by the released bins,
        of up to three columns.
    outside : str
        "drop": a row outside the bounds is counted in n alone.

    Examples
    --------
    >>> KernelDensity(bounds=(0, 24), epsilon=1, bandwidth=1.0)
    KernelDensity(bandwidth=1.0, bounds=(0, 24), epsilon=1)
    >>> KernelDensity(bounds=(0, 24), epsilon=1).bandwidth
    'auto'
    """

    learner: ClassVar[type[Learner]] = targets.KernelDensity
    per_axis: ClassVar[str] = "bandwidth"

    bandwidth: PerAxis | Literal["auto"] | None = "auto"
    kernel: str | None = None
    outside: str = "drop"

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Release the density of the rows of X."""
        del y
        return self._release(self._columns(X))

    def score_samples(self, X: Any) -> FloatArray:  # noqa: N803
        """Return the logarithm of the density at each point (m,).

        Where the released density is below the standard deviation of its noise, also outside the
        bounds, it counts as that: noise cannot be told from less, and the logarithm is finite.
        """
        points = self._points(X)
        (array,) = self.synopsis_.arrays
        least = array.deviation(array.smoothing())
        found = np.fmax(self.synopsis_(points), least)  # of a NaN and a number it is the number
        return np.asarray(np.log(found))

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Return the sum of the logarithms of the density at points: their log-likelihood."""
        del y
        return float(self.score_samples(X).sum())


# --- Regressions


@dataclass(kw_only=True, eq=False, repr=False)
class _Regressor(RegressorMixin, Released):
    y_bounds: Pair | None = None

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Release the regression of y on the columns of X."""
        if self.y_bounds is None:
            raise SpecError(
                "y_bounds: are missing. Write y_bounds=(low, high), from what y means: values "
                "outside are moved to them"
            )
        table = self._columns(X)
        vector = one_column(y, len(next(iter(table.values()))))
        responses = to_floats(vector, Column("y", "y_bounds"), "y")
        bounds = np.asarray(self.y_bounds).tolist()
        return self._release(table, "response", {"bounds": bounds}, responses)

    @overload
    def predict(self, X: Any, return_interval: Literal[False] = False) -> FloatArray: ...  # noqa: N803

    @overload
    def predict(
        self,
        X: Any,  # noqa: N803
        return_interval: Literal[True],
        beta: float | str = 0.05,
    ) -> tuple[FloatArray, FloatArray, FloatArray]: ...

    def predict(
        self,
        X: Any,  # noqa: N803
        return_interval: bool = False,
        beta: float | str = 0.05,
    ) -> FloatArray | tuple[FloatArray, FloatArray, FloatArray]:
        """Return the response at each point (m,), within its bounds.

        That of a point outside the bounds of X is the response at the nearest one.

        With `return_interval` there are three arrays (m,): the prediction, and the low and high
        ends of its interval. Intervals are simultaneous: with probability at least ``1 - beta`` the
        regression of the fitted rows, as it is without noise, lies between them at all points at
        once, those of later calls with this beta included. They tell nothing of a single response,
        nor of rows that were not fitted. A fit of which nothing is promised, as of least squares by
        moments or by objective, raises a SpecError.
        """
        points, combination = self._nearest(X), self.synopsis_.combination
        values = combination.to_range(self.synopsis_(points))
        if not return_interval:
            return values
        self._check_interval()
        low, high = self.synopsis_.interval(points, beta)
        return values, combination.to_range(low), combination.to_range(high)

    def _check_interval(self) -> None:
        """Refuse an interval that would be the bounds of y wherever it is asked for."""
        promises = self.synopsis_.promises()
        if promises.empty and not (promises.pointwise and promises.on_lattice):
            method = self.synopsis_.metadata["target"].get("method")
            by = f" by {method}" if method else ""
            raise SpecError(
                f"return_interval: {type(self).__name__}{by} promises nothing of its predictions. "
                "Write predict(X), or fit a KernelRegressor, whose predictions have intervals"
            )


@dataclass(kw_only=True, eq=False, repr=False)
class KernelRegressor(_Regressor):
    """Nadaraya-Watson regression on up to six columns.

    Parameters
    ----------
    bandwidth : "auto", float or sequence of float
        Of all columns or of each, in their units. "auto", the default, follows from the number of
        rows, epsilon and the number of columns.

    Examples
    --------
    >>> KernelRegressor(bounds=(0, 24), y_bounds=(0, 60), epsilon=1, bandwidth=1.0).kernel
    """

    learner: ClassVar[type[Learner]] = targets.NadarayaWatson
    per_axis: ClassVar[str] = "bandwidth"

    bandwidth: PerAxis | Literal["auto"] | None = "auto"
    kernel: str | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class Ridge(_Regressor):
    """Linear or quadratic least squares with a penalty.

    Parameters
    ----------
    method : "auto", "moments", "objective" or "weights"
        As of a spec: "auto", the default, takes what answers better at this epsilon.
    C : "auto" or float
        The paper's: scikit-learn's alpha is n/C, of columns that their bounds map to [0, 1].
    degree : 1 or 2
        2 adds the products of two columns, and their squares; by moments.

    Attributes
    ----------
    coef_ : array (l,)
        In units of y for a unit of each column; a category has one for each listed value. With
        degree 2 those of products follow, in the order and units of scikit-learn's
        ``PolynomialFeatures(2, include_bias=False)``.
    intercept_ : float
        Of the function, which predictions are within the bounds of X and y.

    Examples
    --------
    >>> Ridge(bounds=(0, 24), y_bounds=(0, 60), epsilon="1/3").epsilon
    '1/3'
    """

    learner: ClassVar[type[Learner]] = targets.RidgeRegression

    method: str | None = None
    C: float | str | None = None
    degree: int | None = None

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Release what the regression of y on the columns of X is solved of."""
        super().fit(X, y)
        self.coef_, self.intercept_ = self.synopsis_.regression().polynomial
        return self


# --- Classifiers


@dataclass(kw_only=True, eq=False, repr=False)
class _Classifier(ClassifierMixin, Released):
    classes: Sequence[Any] | None = None

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Release the classifier of the labels y by the columns of X.

        A row whose label is not one of the classes contributes nothing: to refuse it would tell of
        the data.
        """
        if self.classes is None:
            raise SpecError(
                'classes: are missing. Write classes=["no", "yes"], all labels that there may be: '
                "they are public, and never looked up in y"
            )
        table = self._columns(X)
        vector = one_column(y, len(next(iter(table.values()))))
        classes = np.unique(self.classes)
        listed = classes.tolist()
        labels = to_floats(vector, Column("y", "classes", tuple(listed)), "y")
        self._release(table, "label", {"classes": listed}, listed_column(labels, listed))
        self.classes_ = classes
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return the class of each point (m,); of one outside the bounds that of the nearest."""
        found = self._decisions(X)
        codes = found.argmax(axis=1) if found.ndim == 2 else (found > 0).astype(np.intp)
        return self.classes_[codes]

    def _decisions(self, X: Any) -> FloatArray:  # noqa: N803
        points = self._nearest(X)
        return np.asarray(self.synopsis_.decision_function(points))


@dataclass(kw_only=True, eq=False, repr=False)
class _Probable(_Classifier):
    def predict_proba(self, X: Any) -> FloatArray:  # noqa: N803
        """Return the probability of each class at each point (m, classes)."""
        points = self._nearest(X)
        return np.asarray(self.synopsis_.predict_proba(points))

    def predict_log_proba(self, X: Any) -> FloatArray:  # noqa: N803
        """Return the logarithms of the probabilities."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticRegression(_Probable):
    """Linear logistic regression; of more than two classes, one of each against the rest.

    Parameters
    ----------
    C : float
        The paper's: scikit-learn's C is C/n, of columns that their bounds map to [0, 1].
    constant : float
        Of the constant feature that stands for an intercept; 0 for none.

    Attributes
    ----------
    coef_ : array (1, l) or (classes, l)
        Log odds for a unit of each column; a category has one for each listed value.
    intercept_ : array (1,) or (classes,)

    Examples
    --------
    >>> LogisticRegression(bounds=(0, 1), classes=["no", "yes"], epsilon=0.5, C=100).C
    100
    """

    learner: ClassVar[type[Learner]] = targets.LogisticRegression

    C: float | str | None = None
    constant: float | None = None

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Release the weights of the model of the labels y by the columns of X.

        A row whose label is not one of the classes contributes nothing.
        """
        super().fit(X, y)
        domain, arrays = self.synopsis_.domain, self.synopsis_.arrays
        (vector,) = (array for array in arrays if isinstance(array, ReleasedVector))
        rows = len(self.classes_) if len(self.classes_) > 2 else 1
        constant = vector.component.features.constant
        weights = vector.numbers.reshape(rows, -1)
        functions = [in_data_units(each, domain, constant) for each in weights]
        self.coef_ = np.array([[*coefficients.values()] for coefficients, _ in functions])
        self.intercept_ = np.array([intercept for _, intercept in functions])
        return self

    def decision_function(self, X: Any) -> FloatArray:  # noqa: N803
        """Return log odds of the second of two classes (m,), or of each class (m, classes)."""
        return self._decisions(X)

    def predict_proba(self, X: Any) -> FloatArray:  # noqa: N803
        """Return the probability of each class (m, classes); of more than two, made to sum to 1."""
        found = self._decisions(X)
        odds = found if found.ndim == 2 else np.column_stack([-found, found])
        return np.asarray(softmax(log_expit(odds), axis=1))


@dataclass(kw_only=True, eq=False, repr=False)
class SVC(_Classifier):
    """Support vector machine with a Gaussian kernel, on up to six columns.

    Parameters
    ----------
    length_scale : float or sequence of float
        s of the kernel ``exp(-|x - y|^2 / (2 s^2))``, of all columns or of each, in their units:
        scikit-learn's gamma is ``1 / (2 s^2)``.
    C : "auto" or float
        The paper's: scikit-learn's C is C/n. "auto", the default, follows from rows and epsilon.

    Examples
    --------
    >>> SVC(bounds=(0, 1), classes=[0, 1], epsilon=1, length_scale=0.2).length_scale
    0.2
    """

    learner: ClassVar[type[Learner]] = targets.SupportVectorMachine
    per_axis: ClassVar[str] = "length_scale"

    length_scale: PerAxis | None = None
    C: float | str | None = None

    def decision_function(self, X: Any) -> FloatArray:  # noqa: N803
        """Return what decides (m,), above 0 for the second of two classes, or (m, classes)."""
        return self._decisions(X)


@dataclass(kw_only=True, eq=False, repr=False)
class GaussianNB(_Probable):
    """Naive Bayes with Gaussian likelihoods.

    Parameters
    ----------
    std_floor : float or sequence of float
        The least standard deviation of a likelihood, of all columns or of each, in their units.

    Examples
    --------
    >>> GaussianNB(bounds=(0, 1), classes=[0, 1], epsilon=1, std_floor=0.05).std_floor
    0.05
    """

    learner: ClassVar[type[Learner]] = targets.GaussianNaiveBayes
    per_axis: ClassVar[str] = "std_floor"

    std_floor: PerAxis | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class KernelNB(_Probable):
    """Naive Bayes with kernel density likelihoods.

    Parameters
    ----------
    bandwidth : "auto", float or sequence of float
        Of all columns or of each, in their units. "auto", the default, follows from the number of
        rows and epsilon.

    Examples
    --------
    >>> KernelNB(bounds=(0, 1), classes=[0, 1], epsilon=1, bandwidth=0.1).bandwidth
    0.1
    """

    learner: ClassVar[type[Learner]] = targets.NaiveBayes
    per_axis: ClassVar[str] = "bandwidth"

    bandwidth: PerAxis | Literal["auto"] | None = "auto"
    kernel: str | None = None
