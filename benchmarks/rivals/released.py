"""dbern on a table: the engine's own integers and noise, in this process, at its defaults."""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import dbern
from dbern.cluster.graph import Piece, center, count, merge, passes, share_out
from dbern.data.parquet import discover, read_footers, write_records
from dbern.privacy.keystream import KEY_BYTES
from dbern.privacy.mechanism import privatize
from dbern.strategies.moments import Measured, Moments, least_squares
from dbern.targets.predictions import deviation_of
from dbern.types import FloatArray, Int64Array
from rivals.ours import Planned
from rivals.records import Table

_SALT = bytes(KEY_BYTES)
_KEYED = ("logistic-regression",)
"""Whose integers depend on the key."""


def spec_of(table: Table, target: str, epsilon: float, source: Path) -> tuple[Any, dict[str, Any]]:
    """What a user would write, and the columns of the file."""
    kind, _, method = target.partition(", ")
    axes = {name: list(map(float, table.bounds[name])) for name in table.axes}
    lists = {name: {"values": values} for name, values in table.lists.items()}
    data: dict[str, Any] = {"bounds": axes | lists}
    given: dict[str, Any] = {"kind": kind}
    columns: dict[str, Any] = dict(table.columns)
    if table.label is not None:
        data["label"] = {"column": "label", "classes": list(range(int(table.label.max()) + 1))}
        columns["label"] = table.label.astype(np.int64)
        if kind == "gaussian-naive-bayes":
            given["std_floor"] = [0.01 * (high - low) for low, high in axes.values()]
    else:
        response = [*table.bounds][-1]
        data["response"] = {"column": response, "bounds": list(map(float, table.bounds[response]))}
    if table.widths:
        given["length_scale"] = list(table.widths)
    if kind == "kernel-erm":
        given["loss"] = method
    elif method:
        given["method"] = method
    spec = dbern.ReleaseSpec(
        release={"name": "rival", "output": "rival.zarr"},
        data={"source": str(source), **data},
        target=given,
        budget={"epsilon": f"{epsilon:g}", "ledger": "sqlite:///l.db", "dataset": "rivals"},
    )
    return spec, columns


@lru_cache(maxsize=8)
def planned(
    table: Table, target: str, epsilon: float, key: bytes = b""
) -> tuple[Any, Any, Int64Array]:
    """The spec, its plan, and the integers that it would stage: with a key, if that is needed."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "records.parquet"
        spec, columns = spec_of(table, target, epsilon, source)
        write_records(source, columns)
        plan = dbern.plan(spec)
        counters = plan.counters(spec).with_key(key)
        files = read_footers(discover(spec.source), spec.columns)
        tasks = passes(counters, share_out(files, _SALT))
        total = merge([count(counters, portions, _SALT, index) for portions, index in tasks])
        pieces = [Piece(0, 0, slab) for slab in plan.strategy.layout.slabs()]
        parts = [center(total, counters, piece, plan.noise.law, _SALT) for piece in pieces]
    if any(part.state is None for part in parts):
        raise RuntimeError(f"a task failed: {parts[0].failure}")
    return spec, plan, np.concatenate([part.state.ravel() for part in parts])


def released(table: Table, target: str, epsilon: float, seed: int) -> tuple[Any, Any, FloatArray]:
    key = np.random.default_rng(seed).bytes(KEY_BYTES)
    keyed = (key,) if target in _KEYED else ()
    spec, plan, granules = planned(table, target, epsilon, *keyed)
    noisy = privatize(granules, 0, plan.noise.law, key, "rival").astype(np.float64)
    return spec, plan, np.ldexp(noisy, plan.noise.law.granularity_exponent)


def ridge(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    spec, plan, values = released(learn, "ridge-regression", epsilon, seed)
    moments = Moments.of(len(learn.axes) + 1, spec.domain.blocks)
    measured, columns = Measured.of(moments, values, deviation_of(plan.noise.law)), moments.columns
    fit = least_squares(measured, columns - 1, range(columns - 1))
    return fit.intercept + test.features @ fit.slopes


def papers_ridge(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    _, _, weights = released(learn, "ridge-regression, weights", epsilon, seed)
    return (np.column_stack([test.unit, np.ones(len(test.unit))]) @ weights) / learn.radius


def bayes(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    spec, plan, values = released(learn, "gaussian-naive-bayes", epsilon, seed)
    return spec.combination.decisions([values], test.unit, [deviation_of(plan.noise.law)])


def logistic(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    _, _, weights = released(learn, "logistic-regression", epsilon, seed)
    unit = np.column_stack([test.unit, np.ones(len(test.unit))])
    return unit @ weights.reshape(-1, unit.shape[1]).T


def machine(target: str) -> Any:
    """The decision function of a kernel learner on two axes."""

    def values(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
        _, plan, found = released(learn, target, epsilon, seed)
        return Planned(plan, np.empty(0, np.int64)).evaluate(test.unit) @ found

    return values
