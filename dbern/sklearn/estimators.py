"""Scikit-learn estimators whose `fit` is a release: density, regressions and classifiers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np
from scipy.special import log_expit, softmax
from sklearn.base import ClassifierMixin, DensityMixin, RegressorMixin
from sklearn.metrics import r2_score

from dbern import targets
from dbern.data.domain import Column
from dbern.data.times import are_hours
from dbern.errors import SpecError
from dbern.sklearn.columns import listed_column, to_column, to_floats
from dbern.sklearn.estimator import Pair, PerAxis, ReleasingEstimator, listed_values
from dbern.synopsis.regression import in_data_units
from dbern.synopsis.released import ReleasedVector
from dbern.targets import Learner
from dbern.types import FloatArray

_RENUMBERING = ("sklearn.ensemble.", "sklearn.multiclass")
"""Modules of scikit-learn that fit classifiers to numbers of the labels that occur in y."""


@dataclass(kw_only=True, eq=False, repr=False)
class KernelDensity(DensityMixin, ReleasingEstimator):
    """Kernel density of up to six columns.

    Parameters
    ----------
    bandwidth : "auto", float or sequence of float
        Of all columns or of each, in their units. "auto", the default: chosen by the released bins,
        of up to three columns.
    edges : "normalized", "periodic" or a sequence of these and "natural", optional
        "normalized" divides the density by the part of a kernel that lies within the bounds, where
        it falls to a half otherwise; with "periodic" bounds are one period, such as 0 and 24.
    resolution : float or mapping of column to float, optional
        What the values of all columns, or of each, are multiples of, such as 1 of whole numbers;
        public. Shares of the rows are far narrower with it.
    outside : str
        "drop": a row outside the bounds is counted in n alone.

    Attributes
    ----------
    synopsis_ : dbern.Synopsis
        The released function; its ``metadata["target"]["bandwidth"]`` is what "auto" took.
    release_name_ : str
        By which the ledger knows the release.
    n_features_in_ : int
    feature_names_in_ : array of str
        Of the columns of X, where these have names.

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
    edges: str | Sequence[str] | None = None
    resolution: float | Mapping[str, float] | None = None
    outside: str = "drop"

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Release the density of the rows of X."""
        del y
        return self._release(self._columns(X))

    def score_samples(self, X: Any) -> FloatArray:  # noqa: N803
        """Return the logarithm of the density at each point (m,).

        Where the released density is below the standard deviation of its noise, also outside the
        bounds, it counts as that: noise cannot be told from less, and the logarithm is finite. A
        row with a missing value has NaN.
        """
        points = self._points(X)
        (array,) = self.synopsis_.arrays
        deviation = array.deviation(array.smoothing())
        densities = np.fmax(self.synopsis_(points), deviation)  # the deviation, for NaN
        return np.where(np.isnan(points).any(axis=1), np.nan, np.log(densities))

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Return the sum of the logarithms of the density: the log-likelihood of complete rows."""
        del y
        return float(np.nansum(self.score_samples(X)))


@dataclass(kw_only=True, eq=False, repr=False)
class _Regressor(RegressorMixin, ReleasingEstimator):
    y_bounds: Pair | None = None

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Release the regression of y on the columns of X."""
        if self.y_bounds is None:
            raise SpecError(
                "y_bounds: are missing. Write y_bounds=(low, high), from what y means: values "
                "outside are moved to them"
            )
        table = self._columns(X)
        responses = self._responses(y, len(next(iter(table.values()))))
        bounds = np.asarray(self.y_bounds).tolist()
        return self._release(table, "response", {"bounds": bounds}, responses)

    def _responses(self, y: Any, rows: int) -> FloatArray:
        ends = np.asarray(self.y_bounds)  # of another shape or type the spec refuses them
        hours = (
            ends.shape == (2,) and ends.dtype.kind in "iuf" and are_hours(ends[0], ends[1], None)
        )
        return to_floats(to_column(y, rows), Column("y", "y_bounds", of_hours=hours), "y")

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

        That of a point outside the bounds of X is the response at the nearest one, that of a row
        with a missing value NaN.

        With `return_interval` there are three arrays (m,): the prediction, and the low and high
        ends of its interval. Intervals are simultaneous: with probability at least ``1 - beta`` the
        regression of the fitted rows, as it is without noise, lies between them at all points at
        once, those of later calls with this beta included. They tell nothing of a single response,
        nor of rows that were not fitted. Of a kernel regression they are NaN where there are no
        rows, or so few that noise hides them; the prediction there is as `empty` says. A fit of
        which nothing is promised, as of least squares by moments or by objective, raises a
        SpecError.
        """
        values = self._answers(X, lambda points: self._in_range(self._values(points)))
        if not return_interval:
            return values
        self._require_promise()
        low, high = self._answers(
            X, lambda points: np.column_stack(self.synopsis_.interval(points, beta))
        ).T
        return values, self._in_range(low), self._in_range(high)

    def _values(self, points: Any) -> FloatArray:
        return np.asarray(self.synopsis_(points))

    def _in_range(self, values: FloatArray) -> FloatArray:
        return self.synopsis_.combination.to_range(values)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return R2 of the predictions of rows whose X and y have all values."""
        predicted = self.predict(X)
        responses = self._responses(y, len(predicted))
        known = np.isfinite(predicted) & np.isfinite(responses)
        weights = None if sample_weight is None else np.asarray(sample_weight)[known]
        if not known.any():
            return np.nan
        return float(r2_score(responses[known], predicted[known], sample_weight=weights))

    def _require_promise(self) -> None:
        """Refuse intervals that would be the bounds of y everywhere."""
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
    resolution : float or mapping of column to float, optional
        What the values of all columns, or of each, are multiples of, such as 1 of whole numbers;
        public. Shares of the rows are far narrower with it.
    empty : "mean" or "nan"
        Prediction where there are no rows, or so few that noise hides them. "mean", the default, is
        the released function as it is, drawn to the released mean of all rows: a finite number, as
        scikit-learn's metrics and pipelines need. "nan" is none.

    Attributes
    ----------
    synopsis_ : dbern.Synopsis
        The released function; its ``metadata["target"]["bandwidth"]`` is what "auto" took.
    release_name_ : str
        By which the ledger knows the release.
    n_features_in_ : int
    feature_names_in_ : array of str
        Of the columns of X, where these have names.

    Examples
    --------
    >>> KernelRegressor(bounds=(0, 24), y_bounds=(0, 60), epsilon=1, bandwidth=1.0).kernel
    """

    learner: ClassVar[type[Learner]] = targets.NadarayaWatson
    per_axis: ClassVar[str] = "bandwidth"

    bandwidth: PerAxis | Literal["auto"] | None = "auto"
    kernel: str | None = None
    resolution: float | Mapping[str, float] | None = None
    empty: Literal["mean", "nan"] = "mean"

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Release the regression of y on the columns of X."""
        if self.empty not in ("mean", "nan"):
            raise SpecError('empty: write empty="mean" or empty="nan"')
        return super().fit(X, y)

    def _values(self, points: Any) -> FloatArray:
        if self.empty == "mean":
            return super()._values(points)
        return np.asarray(self.synopsis_.predict(points))


@dataclass(kw_only=True, eq=False, repr=False)
class Ridge(_Regressor):
    """Linear or quadratic least squares with a penalty.

    Parameters
    ----------
    method : "auto", "moments", "objective" or "weights"
        As of a spec: "auto", the default, takes what answers better at this epsilon.
    alpha : "auto" or float
        scikit-learn's, above 0, of columns that their bounds map to [0, 1].
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
    synopsis_ : dbern.Synopsis
        The released function; its ``metadata["target"]`` has the method that "auto" took.
    release_name_ : str
        By which the ledger knows the release.
    n_features_in_ : int
    feature_names_in_ : array of str
        Of the columns of X, where these have names.

    Examples
    --------
    >>> Ridge(bounds=(0, 24), y_bounds=(0, 60), epsilon="1/3").epsilon
    '1/3'
    """

    learner: ClassVar[type[Learner]] = targets.RidgeRegression
    penalty: ClassVar[str] = "alpha"

    method: str | None = None
    alpha: float | Literal["auto"] | None = None
    degree: int | None = None

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Release what the regression of y on the columns of X is solved of."""
        super().fit(X, y)
        self.coef_, self.intercept_ = self.synopsis_.regression().polynomial
        return self

    def _target(self, axes: int, rows: int) -> dict[str, Any]:
        if self.alpha in (None, "auto"):
            return super()._target(axes, rows)
        if isinstance(self.alpha, str) or not self.alpha > 0:
            raise SpecError('alpha: must be a number above 0. Write alpha=1.0, or alpha="auto"')
        return super()._target(axes, rows) | {"C": rows / self.alpha}

    @staticmethod
    def _cost(cost: float, rows: int) -> float:
        return rows / cost


def _public_classes(classes: Any) -> list[Any]:
    """Return all labels that there may be, in order."""
    if classes is None:
        raise SpecError(
            'classes: are missing. Write classes=["no", "yes"], all labels that there may be: '
            "they are public, and never looked up in y"
        )
    try:
        return sorted(set(listed_values(classes)))
    except TypeError:
        raise SpecError(
            "classes: are no list of texts, of integers or of booleans. Write labels of one type, "
            'such as classes=["no", "yes"]; a missing label is none'
        ) from None


def _positions(vector: Any, listed: list[Any]) -> FloatArray:
    return to_floats(vector, Column("y", "classes", tuple(listed)), "y")


def _require_own_labels() -> None:
    """Refuse to be fitted by a wrapper that numbers the labels that occur in y.

    One record may renumber all others, and no noise covers that. The calling wrapper is public.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_RENUMBERING):
            raise SpecError(
                "classes: scikit-learn's ensembles and multiclass wrappers number the labels that "
                "occur in y, which one record may change, and fit to the numbers. Fit each "
                'classifier by itself and combine them, as "Ensembles" in docs/frames.md shows'
            )
        frame = frame.f_back


@dataclass(kw_only=True, eq=False, repr=False)
class _Classifier(ClassifierMixin, ReleasingEstimator):
    classes: Sequence[Any] | None = None

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Release the classifier of the labels y by the columns of X.

        A row whose label is not one of the classes contributes nothing: to refuse it would tell of
        the data.
        """
        listed = _public_classes(self.classes)
        _require_own_labels()
        table = self._columns(X)
        vector = to_column(y, len(next(iter(table.values()))))
        labels = listed_column(_positions(vector, listed), listed)
        self._release(table, "label", {"classes": listed}, labels)
        self.classes_ = np.array(listed)
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return the class of each point (m,); of one outside the bounds that of the nearest.

        A row with a missing value has None, in an array of objects.
        """
        scores = self._decisions(X)
        codes = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.intp)
        missing = np.isnan(scores.reshape(len(scores), -1)).any(axis=1)
        labels = self.classes_[codes]
        return np.where(missing, None, labels.astype(object)) if missing.any() else labels

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the share of rows whose class is predicted, of those that `fit` would count."""
        predicted = self.predict(X)
        positions = _positions(to_column(y, len(predicted)), self.classes_.tolist())
        known = ~np.isnan(positions) & np.array([label is not None for label in predicted])
        labels = self.classes_[positions[known].astype(np.intp)]
        weights = None if sample_weight is None else np.asarray(sample_weight)[known]
        right = labels == predicted[known]
        return float(np.average(right, weights=weights)) if known.any() else np.nan

    def _decisions(self, X: Any) -> FloatArray:  # noqa: N803
        return self._answers(X, lambda points: self.synopsis_.decision_function(points))


@dataclass(kw_only=True, eq=False, repr=False)
class _ProbabilisticClassifier(_Classifier):
    def predict_proba(self, X: Any) -> FloatArray:  # noqa: N803
        """Return the probability of each class at each point (m, classes)."""
        return self._answers(X, lambda points: self.synopsis_.predict_proba(points))

    def predict_log_proba(self, X: Any) -> FloatArray:  # noqa: N803
        """Return the logarithms of the probabilities."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticRegression(_ProbabilisticClassifier):
    """Linear logistic regression; of more than two classes, one of each against the rest.

    Parameters
    ----------
    C : "auto" or float
        scikit-learn's, of columns that their bounds map to [0, 1]. "auto", the default, follows
        from rows and epsilon.
    constant : float
        Of the constant feature that stands for an intercept; 0 for none.

    Attributes
    ----------
    coef_ : array (1, l) or (classes, l)
        Log odds for a unit of each column; a category has one for each listed value.
    intercept_ : array (1,) or (classes,)
    classes_ : array
        All labels, in order: that of the columns of `predict_proba` and of decisions.
    synopsis_ : dbern.Synopsis
        The released function; its ``metadata["target"]`` has the method that "auto" took.
    release_name_ : str
        By which the ledger knows the release.
    n_features_in_ : int
    feature_names_in_ : array of str
        Of the columns of X, where these have names.

    Examples
    --------
    >>> LogisticRegression(bounds=(0, 1), classes=["no", "yes"], epsilon=0.5, C=1.0).C
    1.0
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
        weights = vector.entries.reshape(rows, -1)
        functions = [in_data_units(row, domain, constant) for row in weights]
        self.coef_ = np.array([[*coefficients.values()] for coefficients, _ in functions])
        self.intercept_ = np.array([intercept for _, intercept in functions])
        return self

    def decision_function(self, X: Any) -> FloatArray:  # noqa: N803
        """Return log odds of the second of two classes (m,), or of each class (m, classes)."""
        return self._decisions(X)

    def predict_proba(self, X: Any) -> FloatArray:  # noqa: N803
        """Return the probability of each class (m, classes); of more than two, made to sum to 1."""
        scores = self._decisions(X)
        odds = scores if scores.ndim == 2 else np.column_stack([-scores, scores])
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
        scikit-learn's, of columns that their bounds map to [0, 1]. "auto", the default, follows
        from rows and epsilon, and is far smaller than one.

    Attributes
    ----------
    classes_ : array
        All labels, in order: that of the columns of `decision_function`.
    synopsis_ : dbern.Synopsis
        The released function; its ``metadata["target"]["C"]`` is what "auto" took.
    release_name_ : str
        By which the ledger knows the release.
    n_features_in_ : int
    feature_names_in_ : array of str
        Of the columns of X, where these have names.

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
class GaussianNB(_ProbabilisticClassifier):
    """Naive Bayes with Gaussian likelihoods.

    Parameters
    ----------
    std_floor : float or sequence of float
        The least standard deviation of a likelihood, of all columns or of each, in their units.

    Attributes
    ----------
    classes_ : array
        All labels, in order: that of the columns of `predict_proba`.
    synopsis_ : dbern.Synopsis
        The released function.
    release_name_ : str
        By which the ledger knows the release.
    n_features_in_ : int
    feature_names_in_ : array of str
        Of the columns of X, where these have names.

    Examples
    --------
    >>> GaussianNB(bounds=(0, 1), classes=[0, 1], epsilon=1, std_floor=0.05).std_floor
    0.05
    """

    learner: ClassVar[type[Learner]] = targets.GaussianNaiveBayes
    per_axis: ClassVar[str] = "std_floor"

    std_floor: PerAxis | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class KernelNB(_ProbabilisticClassifier):
    """Naive Bayes with kernel density likelihoods.

    Parameters
    ----------
    bandwidth : "auto", float or sequence of float
        Of all columns or of each, in their units. "auto", the default, follows from the number of
        rows and epsilon.
    resolution : float or mapping of column to float, optional
        What the values of all columns, or of each, are multiples of, such as 1 of whole numbers;
        public. Shares of the rows are far narrower with it.

    Attributes
    ----------
    classes_ : array
        All labels, in order: that of the columns of `predict_proba`.
    synopsis_ : dbern.Synopsis
        The released function; its ``metadata["target"]["bandwidth"]`` is what "auto" took.
    release_name_ : str
        By which the ledger knows the release.
    n_features_in_ : int
    feature_names_in_ : array of str
        Of the columns of X, where these have names.

    Examples
    --------
    >>> KernelNB(bounds=(0, 1), classes=[0, 1], epsilon=1, bandwidth=0.1).bandwidth
    0.1
    """

    learner: ClassVar[type[Learner]] = targets.NaiveBayes
    per_axis: ClassVar[str] = "bandwidth"

    bandwidth: PerAxis | Literal["auto"] | None = "auto"
    kernel: str | None = None
    resolution: float | Mapping[str, float] | None = None
