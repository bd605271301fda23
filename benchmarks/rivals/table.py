"""One table: task x mechanism x epsilon, mean and quantile of the error, and seconds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dbern.types import FloatArray
from rivals.cells import OURS, RIVAL, Cell
from rivals.functional import Functional
from rivals.gaussian_process import GaussianProcess
from rivals.laplace_process import LaplaceProcess
from rivals.mechanism import Mechanism, Prepared
from rivals.ours import Ours, OursWithDelta, UnavailableError
from rivals.output_perturbation import OutputPerturbation
from rivals.piecewise import PiecewiseConstant
from rivals.printed import Printed, PrintedChoice
from rivals.quantization import Quantization
from rivals.random_features import RandomFeatures
from rivals.tasks import Task
from rivals.trigonometric import Trigonometric

SEED = 2017
MECHANISMS: tuple[Mechanism, ...] = (
    Ours(),
    Printed(),
    PrintedChoice(),
    PiecewiseConstant(),
    GaussianProcess(),
    OursWithDelta(),
    Trigonometric(),
    LaplaceProcess(),
    Quantization(),
    RandomFeatures(),
    OutputPerturbation(),
    Functional(),
)
_TOGETHER = 256  # releases at a time
_HEAD = (
    "task",
    "mechanism",
    "guarantee",
    "epsilon",
    "mean sup",
    "mean abs",
    "95 % sup",
    "seconds",
    "setting",
)


@dataclass(frozen=True)
class Row:
    """Errors of repeated releases in unit-cube units; None where there is no release."""

    task: str
    mechanism: str
    guarantee: str
    epsilon: float
    repeats: int
    mean_sup: float | None
    mean_absolute: float | None
    quantile_95: float | None
    seconds: float | None
    setting: str
    error: float = 0.0

    @property
    def cell(self) -> Cell:
        """Its mean sup error and the standard error of that, beside what guarantees the same."""
        role = OURS if self.mechanism.startswith("dbern") else RIVAL
        note = self.setting if self.mean_sup is None else ""
        return Cell(f"functions, {self.guarantee}", self.task, "error", self.mechanism, role,
                    self.epsilon, self.repeats, self.mean_sup, self.error, note)  # fmt: skip

    def markdown(self) -> str:
        errors = (self.mean_sup, self.mean_absolute, self.quantile_95, self.seconds)
        cells = ["-" if value is None else f"{value:.3g}" for value in errors]
        first = [self.task, self.mechanism, self.guarantee, f"{self.epsilon:g}"]
        return f"| {' | '.join([*first, *cells, self.setting])} |"


def errors_of(
    prepared: Prepared, task: Task, rng: np.random.Generator, repeats: int
) -> tuple[FloatArray, FloatArray, float]:
    """Sup and mean absolute error of each release, and the seconds its noise took."""
    evaluate, sups, means, seconds = prepared.evaluate(task.points), [], [], 0.0
    for first in range(0, repeats, _TOGETHER):
        begin = time.perf_counter()
        released = prepared.draw(rng, min(_TOGETHER, repeats - first))
        seconds += time.perf_counter() - begin
        errors = np.abs(released @ evaluate.T - task.truth)
        sups.append(errors.max(axis=1))
        means.append(errors.mean(axis=1))
    return np.concatenate(sups), np.concatenate(means), seconds / repeats


def measure(mechanism: Mechanism, task: Task, epsilon: float, repeats: int) -> Row:
    """One row; the seed is the same for all."""
    about = (task.name, mechanism.name, mechanism.guarantee, epsilon, repeats)
    try:
        setting = mechanism.choose(task, epsilon)
        begin = time.perf_counter()
        prepared = mechanism.prepare(replace(task), epsilon, *setting)  # nothing cached of a copy
        preparing = time.perf_counter() - begin
    except UnavailableError as error:
        return Row(*about, None, None, None, None, f"no release: {error}")
    rng = np.random.default_rng(SEED)
    sups, means, drawing = errors_of(prepared, task, rng, repeats)
    return Row(
        *about,
        mean_sup=float(sups.mean()),
        mean_absolute=float(means.mean()),
        quantile_95=float(np.quantile(sups, 0.95)),
        seconds=preparing + drawing,
        setting=prepared.setting,
        error=float(sups.std() / math.sqrt(max(1, repeats - 1))),
    )


def rows(
    tasks: Iterable[Task],
    mechanisms: Sequence[Mechanism],
    epsilons: Sequence[float],
    repeats: int,
    progress: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Every mechanism on every task that it applies to."""
    found = []
    for task in tasks:
        for epsilon in epsilons:
            for mechanism in mechanisms:
                if mechanism.applies(task):
                    found.append(measure(mechanism, task, epsilon, repeats))
                    progress(found[-1])
    return found


def to_markdown(found: Sequence[Row]) -> str:
    rule = "| --- | --- | --- " + "| ---: " * 5 + "| --- |"
    return "\n".join([f"| {' | '.join(_HEAD)} |", rule, *(row.markdown() for row in found)]) + "\n"


def remarks(tasks: Sequence[Task]) -> str:
    """What one must know to read the table."""
    largest = "; ".join(f"{task.name}: {np.abs(task.truth).max():.3g}" for task in tasks)
    return (
        "\nErrors are in unit-cube units, over a regular grid; sup |F|: "
        f"{largest}.\nAll rivals but those without a parameter are tuned on the private data by an "
        "oracle, for free; the rows of dbern are not: its plan reads no record.\nSeconds: one "
        "release with its setting given, from the records to the noise; for dbern with the plan.\n"
    )
