"""Learners that people try first, beside rivals: on records that none of them has seen.

Every learner gets the same folds, public bounds, epsilon (replace one) and seeds. Rows of dbern are
the engine's own integers and noise at its defaults. `library` is diffprivlib in its own
environment; the other rivals are some 20 lines of floats each, their parameters the best that an
oracle finds, for free, where the table says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

import dbern
from dbern.types import FloatArray
from rivals import bayes, library, linear, logistic, machines, records, released
from rivals.cells import ASIDE, EXACT, OURS, RIVAL, Cell
from rivals.functional import Functional
from rivals.output_perturbation import OutputPerturbation
from rivals.random_features import RandomFeatures
from rivals.records import Table
from rivals.scoring import LOWER_IS_BETTER, Scores, scored

Values = Callable[[Table, Table, float, int], FloatArray]


@dataclass(frozen=True)
class Learner:
    """A name, what it is beside others, and its scores: a list an epsilon of one a seed."""

    name: str
    role: str
    scores: Callable[[Table, Table, Sequence[float], int], list[list[Scores]]]


def each(name: str, values: Values, role: str = RIVAL) -> Learner:
    """Of a learner that predicts for one seed."""

    def scores(
        learn: Table, test: Table, epsilons: Sequence[float], seeds: int
    ) -> list[list[Scores]]:
        return [
            [scored(values(learn, test, epsilon, seed), test.truth, test.radius)
             for seed in range(seeds)]
            for epsilon in epsilons
        ]  # fmt: skip

    return Learner(name, role, scores)


def once(name: str, values: Values, role: str = EXACT) -> Learner:
    """Of a learner without noise."""
    scores = each(name, values).scores
    return Learner(name, role, lambda learn, test, epsilons, _: (
        scores(learn, test, (math.inf,), 1) * len(epsilons)
    ))  # fmt: skip


def best_of(name: str, settings: Sequence[Values]) -> Learner:
    """The setting whose first score is best on average, for each epsilon: an oracle's choice."""
    candidates = [each(name, values) for values in settings]

    def scores(
        learn: Table, test: Table, epsilons: Sequence[float], seeds: int
    ) -> list[list[Scores]]:
        found = [one.scores(learn, test, epsilons, seeds) for one in candidates]
        return [max(of_epsilon, key=_first) for of_epsilon in zip(*found, strict=True)]

    return Learner(name, RIVAL, scores)


def _first(found: Sequence[Scores]) -> float:
    metric = next(iter(found[0]))
    mean = float(np.mean([one[metric] for one in found]))
    return -mean if metric in LOWER_IS_BETTER else mean


def the_library(kind: str, instead: Sequence[Learner]) -> list[Learner]:
    """The library's, or what stands in for it."""
    if library.available():
        return [Learner("diffprivlib 0.6.6", RIVAL, library.scores(kind))]
    return [*instead]


def panels() -> dict[str, tuple[Callable[[], Iterator[Table]], list[Learner]]]:
    """What is learned from, and the learners, of each part of the table."""
    ours = partial(each, role=OURS)
    instead = "diffprivlib's split, rewritten"
    linears = [
        once("a constant", linear.constant, ASIDE),
        once("scikit-learn, not private", linear.without_privacy),
        *the_library("linear", []),
        each("noisy moments, 20 lines", linear.noisy_moments),
        each("functional mechanism", linear.functional),
        each("dbern, weights (the paper's)", released.papers_ridge, ASIDE),
        ours("dbern", released.ridge),
    ]
    bayesian = [
        once("scikit-learn, not private", bayes.without_privacy),
        *the_library("bayes", [each(instead, bayes.split)]),
        best_of("posterior updates, best cells", [*map(bayes.posterior, bayes.CELLS)]),
        each("noisy histograms, 20 lines", bayes.histograms),
        ours("dbern, Gaussian", released.bayes),
        ours("dbern, kernels of .05", released.kernel_bayes),
    ]
    shares = [logistic.of_classes(logistic.output_perturbed(one)) for one in logistic.SHARES]
    logistics = [
        once("scikit-learn, not private", logistic.without_privacy),
        *the_library("logistic", [each(instead, logistic.split)]),
        best_of("output perturbation, best penalty", shares),
        each("objective perturbation", logistic.objective),
        ours("dbern", released.logistic),
    ]
    kernels = [
        once("scikit-learn, Nystroem and logistic", machines.without_privacy),
        each("random-feature private SVM", machines.released(RandomFeatures())),
        each("output perturbation", machines.released(OutputPerturbation())),
        each("functional mechanism (logistic)", machines.released(Functional())),
        best_of("objective perturbation, best features",
                [*map(machines.objective, machines.FREQUENCIES)]),
        ours("dbern, support vector machine", released.machine("support-vector-machine")),
        ours("dbern, kernel logistic", released.machine("kernel-erm, logistic")),
    ]  # fmt: skip
    several = [
        once("the most frequent class", logistic.most_frequent, RIVAL),
        once("scikit-learn, not private", logistic.without_privacy),
        ours("dbern, support vector machine", released.machine("support-vector-machine")),
        ours("dbern, kernel logistic", released.machine("kernel-erm, logistic")),
    ]
    smooth = [
        once("a constant", linear.constant, RIVAL),
        ours("dbern, Nadaraya-Watson", released.smoothed),
        ours("dbern, Priestley-Chao, gaps of ten widths over n", released.by_gaps(0.0)),
        ours("dbern, Priestley-Chao, gaps of the step", released.by_gaps(1.0)),
    ]
    return {
        "linear": (records.regressions, linears), "bayes": (records.classifications, bayesian),
        "logistic": (records.logistics, logistics), "machines": (records.planes, kernels),
        "several": (records.several_classes, several),
        "rounded": (records.rounded, smooth),
    }  # fmt: skip


def measure(
    panel: str, table: Table, learner: Learner, epsilons: Sequence[float], seeds: int
) -> list[Cell]:
    """One cell an epsilon and score."""
    learn, test = table.parts
    about = panel, table.name
    try:
        found = learner.scores(learn, test, epsilons, seeds)
    except (dbern.SpecError, library.LibraryError) as error:
        metric = "RMSE" if table.label is None else "AUC"
        return [
            Cell(*about, metric, learner.name, learner.role, epsilon, 0, None, 0.0, str(error))
            for epsilon in epsilons
        ]
    cells = []
    for epsilon, of_epsilon in zip(epsilons, found, strict=True):
        for metric in of_epsilon[0]:
            values = [one[metric] for one in of_epsilon]
            error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if values[1:] else 0.0
            cells.append(
                Cell(*about, metric, learner.name, learner.role, epsilon, len(values),
                     float(np.mean(values)), error)
            )  # fmt: skip
    return cells


def cells(panel: str, task: str, epsilons: Sequence[float], seeds: int) -> Iterator[list[Cell]]:
    """One row of a panel, of tables whose name begins with `task`, at a time."""
    tables, learners = panels()[panel]
    for table in tables():
        if table.name.startswith(task):
            for learner in learners:
                yield measure(panel, table, learner, epsilons, seeds)
