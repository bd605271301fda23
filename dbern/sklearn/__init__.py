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

try:
    import sklearn as _  # noqa: F401
except ImportError:
    raise ImportError(
        "dbern.sklearn needs scikit-learn. Run: pip install 'dbern[sklearn]'"
    ) from None

from dbern.sklearn.estimators import (
    SVC,
    GaussianNB,
    KernelDensity,
    KernelNB,
    KernelRegressor,
    LogisticRegression,
    Ridge,
)

__all__ = [
    "SVC",
    "GaussianNB",
    "KernelDensity",
    "KernelNB",
    "KernelRegressor",
    "LogisticRegression",
    "Ridge",
]
