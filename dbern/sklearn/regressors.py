"""Regressions as estimators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from dbern import targets
from dbern.data.domain import Column
from dbern.errors import SpecError
from dbern.sklearn.bounds import Pair
from dbern.sklearn.columns import one_column, to_floats
from dbern.sklearn.estimator import PerAxis, ReleasingEstimator
from dbern.targets import Learner
from dbern.types import FloatArray


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
        self._check_interval()
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
        responses = to_floats(one_column(y, len(predicted)), Column("y", "y_bounds"), "y")
        known = np.isfinite(predicted) & np.isfinite(responses)
        weights = None if sample_weight is None else np.asarray(sample_weight)[known]
        if not known.any():
            return np.nan
        return float(r2_score(responses[known], predicted[known], sample_weight=weights))

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
