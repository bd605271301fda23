"""Classifiers as estimators."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.special import log_expit, softmax
from sklearn.base import ClassifierMixin

from dbern import targets
from dbern.data.domain import Column
from dbern.errors import SpecError
from dbern.sklearn.bounds import listed_values
from dbern.sklearn.columns import listed_column, one_column, to_floats
from dbern.sklearn.estimator import PerAxis, ReleasingEstimator
from dbern.synopsis.regression import in_data_units
from dbern.synopsis.released import ReleasedVector
from dbern.targets import Learner
from dbern.types import FloatArray

_RENUMBERING = ("sklearn.ensemble.", "sklearn.multiclass")
"""Modules of scikit-learn that fit classifiers to numbers of the labels that occur in y."""


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
    """Refuse to be fitted by what numbers labels anew, whichever of them occur.

    Its numbers are those of the labels that are in y: one record may renumber all others, and no
    noise covers that. Which wrapper calls is public.
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
        vector = one_column(y, len(next(iter(table.values()))))
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
        positions = _positions(one_column(y, len(predicted)), self.classes_.tolist())
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
        weights = vector.numbers.reshape(rows, -1)
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
        All labels, in order: that of the columns of `predict_proba` and of decisions.
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
        All labels, in order: that of the columns of `predict_proba` and of decisions.
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
        All labels, in order: that of the columns of `predict_proba` and of decisions.
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
