"""What the estimators share: public bounds, one release for each fit, and what is kept of it."""

from __future__ import annotations

import itertools
import secrets
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from dbern.errors import SpecError
from dbern.ledger import BudgetLedger, resolve_url
from dbern.ledger.values import LIVE
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.budget import Budget
from dbern.releasing.run import abandon, release
from dbern.synopsis.held import held
from dbern.targets import Learner
from dbern.types import FloatArray

Pair: TypeAlias = Sequence[float]
Bounds: TypeAlias = Pair | Sequence[Pair] | Mapping[str, Pair]
"""A pair for all columns, one for each in their order, or one for each by its name."""
PerAxis: TypeAlias = float | Sequence[float]
"""A number for all columns, or one for each."""

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

    def _records(self, X: Any, *y: Any, **how: Any) -> Any:  # noqa: N803 -- scikit-learn's name
        """Check what is to be fitted, by scikit-learn's rules.

        A row with a missing value is a missing record, and stays: an error for it would depend on
        the data. What scikit-learn itself refuses, such as a response of NaN, it refuses for the
        caller, whose data it is, before anything is charged or released.
        """
        return validate_data(self, X, *y, dtype=np.float64, ensure_all_finite=False, **how)

    def _points(self, X: Any) -> FloatArray:  # noqa: N803
        """Return points (m, l) to ask at; a point is the asker's, so none may be missing."""
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))

    def _nearest(self, X: Any) -> FloatArray:  # noqa: N803
        """Return the same, and of what is outside the bounds the nearest point within."""
        points = self._points(X)
        return np.clip(points, *self._box)

    @property
    def _box(self) -> FloatArray:
        return np.array([(axis.low, axis.high) for axis in self.synopsis_.domain.axes]).T

    def _release(
        self,
        records: FloatArray,
        role: str = "",
        facts: Mapping[str, Any] | None = None,
        y: Any = (),
    ) -> Self:
        """Release the function of records (n, l), and of a column that has a role."""
        names = [*getattr(self, "feature_names_in_", map("x{}".format, range(records.shape[1])))]
        columns = dict(zip(names, records.T, strict=True))
        data = {"bounds": self._bounds(names), "outside": self.outside}
        if facts is not None:
            column = "y"
            while column in names:
                column += "_"
            columns[column], data[role] = y, {"column": column, **facts}
        name = f"{type(self).__name__}-{secrets.token_hex(8)}"
        with self._account() as (ledger, dataset, output):
            spec = ReleaseSpec(
                release={"name": name, "output": f"{output}/{name}.zarr"},
                data=data,
                target=self._target(len(names)),
                mechanism=dict(self.mechanism or {}),
                budget={**self._charge, "ledger": ledger, "dataset": dataset},
            )
            with _given_up(ledger, dataset, name):
                self.synopsis_ = held(release(spec, data=pa.table(columns)).synopsis)
        self.release_name_ = name
        _warn_of_a_second_fit()
        return self

    @property
    def _charge(self) -> dict[str, str]:
        if self.epsilon is None:
            raise SpecError("epsilon: is missing. Write epsilon=1, what each fit costs")
        return {"epsilon": str(self.epsilon), "delta": str(self.delta)}

    def _bounds(self, names: Sequence[str]) -> dict[str, list[float]]:
        given: Any = self.bounds
        fix = (
            f"Write bounds=[(low, high), ..] with a pair for each of the {len(names)} columns of "
            "X, or one pair for all, from what they mean: X.min() would be a look at the data"
        )
        if given is None:
            raise SpecError(f"bounds: are missing. {fix}")
        try:
            pairs = [given[name] for name in names] if hasattr(given, "keys") else given
            each = np.broadcast_to(np.asarray(pairs, dtype=np.float64), (len(names), 2))
        except (KeyError, TypeError, ValueError):
            raise SpecError(f"bounds: are not those of X. {fix}") from None
        return dict(zip(names, each.tolist(), strict=True))

    def _target(self, axes: int) -> dict[str, Any]:
        """The learner's parameters; it has a default for those that are None."""
        keys = [key for key in self.learner.model_fields if getattr(self, key, None) is not None]
        target = {key: np.asarray(getattr(self, key)).tolist() for key in keys}
        if np.ndim(target.get(self.per_axis, ())) == 0:
            target[self.per_axis] = [target[self.per_axis]] * axes
        return {"kind": self.learner.kind, **target}

    @contextmanager
    def _account(self) -> Iterator[tuple[str, str, str]]:
        """The ledger and the dataset that pay, and the folder of the synopsis."""
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
    """Make a ledger that can pay one release."""
    charge = Budget.parse(epsilon, delta)
    BudgetLedger.create(ledger)
    with BudgetLedger.open(ledger) as opened:
        opened.grant(_FREE, charge)
    return ledger
