"""The estimators: which learner each one is, its parameters, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from scipy.special import log_expit, softmax
from sklearn.base import ClassifierMixin, DensityMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from dbern import targets
from dbern.errors import SpecError
from dbern.sklearn.base import Pair, PerAxis, Released
from dbern.targets import Learner
from dbern.types import FloatArray

# --- Densities


@dataclass(kw_only=True, eq=False, repr=False)
class KernelDensity(DensityMixin, Released):
    """Kernel density of up to six columns.

    Parameters
    ----------
    bandwidth : float or sequence of float
        Of all columns or of each, in their units.
    kernel : str
        "gaussian", or another one of the learner's.
    outside : str
        "drop": a row outside the bounds is counted in n alone.

    Examples
    --------
    >>> KernelDensity(bounds=(0, 24), epsilon=1, bandwidth=1.0)
    KernelDensity(bandwidth=1.0, bounds=(0, 24), epsilon=1)
    """

    learner: ClassVar[type[Learner]] = targets.KernelDensity
    per_axis: ClassVar[str] = "bandwidth"

    bandwidth: PerAxis | None = None
    kernel: str | None = None
    outside: str = "drop"

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Release the density of the rows of X."""
        del y
        return self._release(self._records(X))

    def score_samples(self, X: Any) -> FloatArray:  # noqa: N803
        """Return the logarithm of the density at each point (m,).

        Where the released density is below the standard deviation of its noise, also outside the
        bounds, it counts as that: noise cannot be told from less, and the logarithm is finite.
        """
        points = self._points(X)
        (array,) = self.synopsis_.arrays
        least = array.deviation(array.smoothing(array.order))
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
        records, responses = self._records(X, y, y_numeric=True)
        bounds = np.asarray(self.y_bounds).tolist()
        return self._release(records, "response", {"bounds": bounds}, responses)

    def predict(self, X: Any) -> FloatArray:  # noqa: N803
        """Return the response at each point (m,); of one outside the bounds, at the nearest."""
        points = self._nearest(X)
        return np.asarray(self.synopsis_(points))


@dataclass(kw_only=True, eq=False, repr=False)
class KernelRegressor(_Regressor):
    """Nadaraya-Watson regression on up to six columns.

    Parameters
    ----------
    y_bounds : (float, float)
        Public bounds of the response; values outside are moved to them.
    bandwidth : float or sequence of float
        Of all columns or of each, in their units.
    kernel : str
        "gaussian", or another one of the learner's.

    Examples
    --------
    >>> KernelRegressor(bounds=(0, 24), y_bounds=(0, 60), epsilon=1, bandwidth=1.0).kernel
    """

    learner: ClassVar[type[Learner]] = targets.NadarayaWatson
    per_axis: ClassVar[str] = "bandwidth"

    bandwidth: PerAxis | None = None
    kernel: str | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class Ridge(_Regressor):
    """Linear or quadratic least squares, solved of released moments of up to 63 columns.

    Parameters
    ----------
    y_bounds : (float, float)
        Public bounds of the response; values outside are moved to them.
    C : "auto" or float
        The paper's: scikit-learn's alpha is n/C, of columns that their bounds map to [0, 1].
    degree : 1 or 2
        2 adds the products of two columns, and their squares, each moved to [-1, 1].

    Attributes
    ----------
    coef_ : array (l,)
        With degree 2 those of products follow, in the order of ``synopsis_.regression()``.
    intercept_ : float
        Of the function, which predictions are within the bounds of X and y.

    Examples
    --------
    >>> Ridge(bounds=(0, 24), y_bounds=(0, 60), epsilon="1/3").epsilon
    '1/3'
    """

    learner: ClassVar[type[Learner]] = targets.RidgeRegression
    method: ClassVar[Literal["moments"]] = "moments"

    C: float | str | None = None
    degree: int | None = None

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Release the moments of X and y, and solve the regression of y."""
        super().fit(X, y)
        found = self.synopsis_.regression()
        self.coef_, self.intercept_ = np.array([*found.coefficients.values()]), found.intercept
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
        records, labels = self._records(X, y)
        check_classification_targets(labels)
        classes = np.unique(self.classes)
        text, given = (one.dtype.kind in "US" for one in (classes, labels))
        if text != given and labels.dtype.kind != "O":  # of the schema, whatever the values are
            raise SpecError("classes: are text and y holds numbers, or y text. Write both alike")
        own = {label: label for label in classes.tolist()}
        known = pa.array([own.get(label) for label in labels.tolist()], pa.array([*own]).type)
        self._release(records, "label", {"classes": [*own]}, known)
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
    classes : sequence of str, int or bool
        All labels that there may be, which are public.
    C : float
        The paper's: scikit-learn's C is C/n, of columns that their bounds map to [0, 1].
    constant : float
        Of the constant feature that stands for an intercept; 0 for none.

    Attributes
    ----------
    classes_ : array
        The classes in order.
    coef_ : array (1, l) or (classes, l)
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
        low, high = self._box
        corners = np.where(np.eye(len(low) + 1, len(low), -1), high, low)  # linear: these say all
        first, *others = np.asarray(self.synopsis_.decision_function(corners))
        slopes = np.atleast_2d((np.array(others) - first).T) / (high - low)
        self.coef_, self.intercept_ = slopes, np.atleast_1d(first) - slopes @ low
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
    classes : sequence of str, int or bool
        All labels that there may be, which are public.
    length_scale : float or sequence of float
        s of the kernel ``exp(-|x - y|^2 / (2 s^2))``, of all columns or of each, in their units:
        scikit-learn's gamma is ``1 / (2 s^2)``.
    C : "auto" or float
        The paper's: scikit-learn's C is C/n. "auto", the default, follows from rows and epsilon.

    Attributes
    ----------
    classes_ : array
        The classes in order.

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
    classes : sequence of str, int or bool
        All labels that there may be, which are public.
    std_floor : float or sequence of float
        The least standard deviation of a likelihood, of all columns or of each, in their units.

    Attributes
    ----------
    classes_ : array
        The classes in order.

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
    classes : sequence of str, int or bool
        All labels that there may be, which are public.
    bandwidth : float or sequence of float
        Of all columns or of each, in their units.
    kernel : str
        "gaussian", or another one of the learner's.

    Attributes
    ----------
    classes_ : array
        The classes in order.

    Examples
    --------
    >>> KernelNB(bounds=(0, 1), classes=[0, 1], epsilon=1, bandwidth=0.1).bandwidth
    0.1
    """

    learner: ClassVar[type[Learner]] = targets.NaiveBayes
    per_axis: ClassVar[str] = "bandwidth"

    bandwidth: PerAxis | None = None
    kernel: str | None = None
