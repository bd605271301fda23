"""dbern by its own plan: the real release but for cluster, ledger and store.

Guarantee: epsilon, replace-one; proved for the very integers that are released, floats included.
The plan reads no record. Records go through a Parquet file into the engine's own tasks, run in this
process, and the noise is the package's own, with a key for every repeat.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import dbern
from dbern.bernstein.basis import bernstein_basis
from dbern.data.footers import read_footers
from dbern.data.parquet import write_records
from dbern.data.sources import discover
from dbern.planning.release_plan import ReleasePlan
from dbern.privacy.families import family_of
from dbern.privacy.keystream import KEY_BYTES
from dbern.privacy.mechanism import privatize
from dbern.run.graph import make_tasks
from dbern.run.messages import TaskResult
from dbern.run.tasks import SlabJob, center, count_portions, merge
from dbern.synopsis.smoothing import shrink_within
from dbern.types import FloatArray, Int64Array
from rivals.mechanism import Mechanism, Product
from rivals.tasks import Task

_SALT = bytes(KEY_BYTES)  # tags files; nothing here is kept from anyone


class UnavailableError(Exception):
    """This version cannot release the task."""


def spec_of(task: Task, epsilon: float, source: Path, delta: str = "0") -> dbern.ReleaseSpec:
    """What a user would write; k, h, noise and rank are left to the plan."""
    data: dict[str, Any] = {
        "source": str(source),
        "bounds": {name: [low, high] for name, low, high in task.bounds},
    }
    target: dict[str, Any]
    if task.signed:
        data["label"] = {"column": "label", "classes": [-1, 1]}
        scales = [kernel.bandwidth for kernel in task.kernels]
        target = {"kind": "support-vector-machine", "length_scale": scales, "C": 1.0}
    else:
        widths = [high - low for _, low, high in task.bounds]
        pairs = zip(task.kernels, widths, strict=True)
        target = {"kind": "kernel-density", "bandwidth": [k.bandwidth * w for k, w in pairs]}
    return dbern.ReleaseSpec(
        release={"name": "rival", "output": "rival.zarr"},
        data=data,
        target=target,
        budget={
            "epsilon": f"{epsilon:g}",
            "delta": delta,
            "ledger": "sqlite:///ledger.db",
            "dataset": "rivals",
        },
    )


def columns(task: Task) -> dict[str, Any]:
    """The records in data units; null ones as NaN, as the public number of rows counts them."""
    found: dict[str, Any] = {}
    for axis, (name, low, high) in enumerate(task.bounds):
        column = np.full(task.n, np.nan)
        column[: len(task.records)] = low + (high - low) * task.records[:, axis]
        found[name] = np.clip(column, low, high)
    if task.labels is not None:
        found["label"] = task.labels.astype(np.int64)
    return found


@lru_cache(maxsize=64)
def planned(task: Task, epsilon: float, delta: str = "0") -> tuple[ReleasePlan, Int64Array]:
    """The plan, and the integers that it would stage.

    Raises
    ------
    UnavailableError
        Where this version refuses the target as one of a later version.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "records.parquet"
        write_records(source, columns(task))
        try:
            spec = spec_of(task, epsilon, source, delta)
            plan = dbern.plan(spec)
        except dbern.SpecError as error:
            if "is not available in this version" in str(error):
                raise UnavailableError(str(error)) from None
            raise
        counters = plan.counters(spec)
        files = read_footers(discover(spec.source), spec.columns)
        total = merge(
            [count_portions(counters, portions, _SALT) for portions in make_tasks(files, _SALT)]
        )
        pieces = [SlabJob(0, 0, slab) for slab in plan.strategy.layout.slabs()]
        parts = [center(total, counters, piece, plan.noise.law, _SALT) for piece in pieces]
    return plan, np.concatenate([_granules(part) for part in parts])


def _granules(part: TaskResult) -> Int64Array:
    if part.state is None:
        raise RuntimeError(f"a task failed: {part.failure} {part.location}")
    return part.state.ravel()


@dataclass(frozen=True, eq=False)
class Planned:
    """A plan and its exact integers, ready for noise."""

    plan: ReleasePlan
    granules: Int64Array
    signed: bool = False

    @property
    def setting(self) -> str:
        noise, shape = self.plan.noise.kind, self.plan.strategy.layout.shape
        k, h, kept = ("x".join(map(str, each)) for each in (self.plan.k, self.plan.h, shape))
        return f"{noise}, k {k}, h {h}, {kept} released"

    def draw(self, rng: np.random.Generator, count: int) -> FloatArray:
        law = self.plan.noise.law
        noisy = [
            privatize(self.granules, 0, law, rng.bytes(KEY_BYTES), "rival") for _ in range(count)
        ]
        # Densities are compared in unit-cube units; a machine's values have none.
        planned = self.plan.components[0]
        values = np.ldexp(np.array(noisy).astype(np.float64), law.granularity_exponent)
        if not planned.most_silenced:
            return (planned.unit if self.signed else 1.0) * values
        known = family_of(law).covariance(law.values).scaled(planned.noise.scale / planned.unit)
        shape, facts = self.plan.strategy.layout.shape, (self.plan.strategy, self.plan.h)
        most = planned.most_silenced / planned.unit
        return np.array(
            [shrink_within(one.reshape(shape), known, *facts, most)[0].ravel() for one in values]
        )

    def evaluate(self, points: FloatArray) -> FloatArray:
        plan = self.plan
        matrices = plan.strategy.matrices(plan.h)
        axes = [
            lambda y, k=k, matrix=matrix: bernstein_basis(y, k) @ matrix
            for k, matrix in zip(plan.k, matrices, strict=True)
        ]
        return Product(axes)(points)


class Ours(Mechanism):
    """The planner's own choice."""

    name = "dbern, by its own plan"
    delta = "0"

    def prepare(self, task: Task, epsilon: float, *setting: float) -> Planned:
        return Planned(*planned(task, epsilon, self.delta), signed=task.signed)


class OursWithDelta(Ours):
    """The same with the delta of `rivals.gaussian_process`."""

    name = "dbern with delta"
    guarantee = "epsilon, delta 1e-5"
    delta = "1e-5"
