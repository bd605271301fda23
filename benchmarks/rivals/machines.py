"""Figure 2's machine, and other kernel learners on two axes, beside their rivals.

The kernel is the Gaussian one, its widths are public. The machine of C = 1 is a signed kernel sum
(`rivals.tasks`): rivals that release it are those of the table of functions, whose parameters an
oracle chooses by the largest error, and here its sign and ranking are looked at. *Objective
perturbation* minimizes the logistic loss of public random Fourier features (Chaudhuri, Monteleoni
and Sarwate 2011, section 5), as many as an oracle chooses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from dbern.types import FloatArray
from rivals import logistic
from rivals.mechanism import Mechanism, Prepared
from rivals.random_features import FourierFeatures
from rivals.records import Table
from rivals.tasks import RBF, Task

FREQUENCIES = (5, 15, 50)
_LANDMARKS = 200


@lru_cache(maxsize=2)
def task_of(table: Table) -> Task:
    """The machine's function, to be released."""
    kernels = tuple(RBF(width, 1.0) for width in _widths(table))
    signs = np.where(table.truth == 1, 1.0, -1.0)
    return Task(table.name, table.unit, len(signs), kernels, signs)


def _widths(table: Table) -> FloatArray:
    ends = np.array([table.bounds[name] for name in table.axes])
    return np.array(table.widths) / (ends[:, 1] - ends[:, 0])


@lru_cache(maxsize=1)  # large, and wanted for every seed
def _prepared(
    mechanism: Mechanism, learn: Table, test: Table, epsilon: float
) -> tuple[Prepared, FloatArray]:
    task = task_of(learn)
    found = mechanism.prepare(task, epsilon, *mechanism.choose(task, epsilon))
    return found, found.evaluate(test.unit)


def released(mechanism: Mechanism) -> Callable[[Table, Table, float, int], FloatArray]:
    def values(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
        prepared, features = _prepared(mechanism, learn, test, epsilon)
        (coefficients,) = prepared.draw(np.random.default_rng(seed), 1)
        return np.asarray(features @ coefficients)

    return values


def objective(frequencies: int) -> Callable[[Table, Table, float, int], FloatArray]:
    def values(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
        drawn = np.random.default_rng(frequencies).normal(size=(2, frequencies))
        features = FourierFeatures(drawn / _widths(learn)[:, None])
        z, at = (
            np.column_stack([features(part.unit), np.ones(len(part.truth))])
            for part in (learn, test)
        )
        signs, rng = np.where(learn.truth == 1, 1.0, -1.0), np.random.default_rng(seed)
        return np.asarray(at @ logistic.objective_perturbed(z, signs, 2**0.5, epsilon, rng))

    return values


def without_privacy(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    """Logistic regression of the kernel, cut to so many landmarks."""
    del epsilon, seed
    widths = _widths(learn)
    model = make_pipeline(
        Nystroem(gamma=0.5, n_components=_LANDMARKS, random_state=0),
        LogisticRegression(C=1e3, max_iter=2000),
    )
    model.fit(learn.unit / widths, learn.truth)
    return np.asarray(model.decision_function(test.unit / widths))
