"""Kernel density as an estimator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import DensityMixin

from dbern import targets
from dbern.sklearn.estimator import PerAxis, ReleasingEstimator
from dbern.targets import Learner
from dbern.types import FloatArray


@dataclass(kw_only=True, eq=False, repr=False)
class KernelDensity(DensityMixin, ReleasingEstimator):
    """Kernel density of up to six columns.

    Parameters
    ----------
    bandwidth : "auto", float or sequence of float
        Of all columns or of each, in their units. "auto", the default: chosen by the released bins,
        of up to three columns.
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
        densities = np.fmax(self.synopsis_(points), deviation)  # of a NaN and a number the number
        return np.where(np.isnan(points).any(axis=1), np.nan, np.log(densities))

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Return the sum of the logarithms of the density: the log-likelihood of complete rows."""
        del y
        return float(np.nansum(self.score_samples(X)))
