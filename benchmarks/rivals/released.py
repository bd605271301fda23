"""dbern on a table: the engine's own integers and noise, in this process, at its defaults."""

from __future__ import annotations

import tempfile
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import dbern
from dbern.bernstein.basis import iterated_basis
from dbern.data.footers import read_footers
from dbern.data.parquet import write_records
from dbern.data.sources import discover
from dbern.planning.resolved import spec_for_rows
from dbern.privacy.keystream import KEY_BYTES
from dbern.privacy.mechanism import place_of, privatize
from dbern.reconstruct.least_squares import NoisyMoments, least_squares
from dbern.reconstruct.moments import Moments
from dbern.run.graph import make_tasks, task_reads
from dbern.run.publish import summary_of
from dbern.run.tasks import SlabJob, center, count_portions, merge
from dbern.targets.predicted_functions import deviation_of
from dbern.types import FloatArray, Int64Array
from rivals.mechanism import Product
from rivals.records import Table

_SALT = bytes(KEY_BYTES)
SHARE = 0.05  # of an axis: a kernel's width for naive Bayes, stated and not looked for
_KEYED = ("logistic-regression", "ridge-regression")
"""Whose integers may depend on the key."""
_CURVES = ("nadaraya-watson", "priestley-chao")


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
    if kind in ("naive-bayes", *_CURVES):
        share = SHARE if kind == "priestley-chao" or not method else method
        given["bandwidth"] = share if share == "auto" else [
            float(share) * (high - low) for low, high in axes.values()
        ]  # fmt: skip
    if table.widths:
        given["length_scale"] = list(table.widths)
    if kind == "priestley-chao":
        given["max_gap"] = float(method)
    elif kind == "kernel-erm":
        given["loss"] = method
    elif method and "bandwidth" not in given:
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
) -> tuple[Any, Any, list[Int64Array]]:
    """The spec, its plan, and the integers that it would stage of each array."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "records.parquet"
        spec, columns = spec_of(table, target, epsilon, source)
        write_records(source, columns)
        plan = dbern.plan(spec)
        spec = spec_for_rows(spec, plan.n)
        counters = plan.counters(spec).with_key(key)
        files = read_footers(discover(spec.source), spec.columns)
        tasks = task_reads(counters, make_tasks(files, _SALT))
        total = merge(
            [count_portions(counters, portions, _SALT, index) for portions, index in tasks]
        )
        staged = []
        for part, one in enumerate(plan.components):
            for output in range(one.outputs):
                slabs = [
                    center(total, counters, SlabJob(part, output, slab), one.noise.law, _SALT)
                    for slab in one.strategy.layout.slabs()
                ]
                if any(slab.state is None for slab in slabs):
                    raise RuntimeError(f"a task failed: {slabs[0].failure}")
                staged.append(np.concatenate([slab.state.ravel() for slab in slabs]))
    return spec, plan, staged


def released(
    table: Table, target: str, epsilon: float, seed: int
) -> tuple[Any, Any, list[FloatArray]]:
    """The spec, its plan, and each array with its noise."""
    key = np.random.default_rng(seed).bytes(KEY_BYTES)
    keyed = (key,) if target in _KEYED else ()
    spec, plan, staged = planned(table, target, epsilon, *keyed)
    noisy, left = [], iter(staged)
    for one in plan.components:
        law = one.noise.law
        for output in range(one.outputs):
            whose, first = place_of(law, one.arrays, output, one.strategy.layout.size)
            values = privatize(next(left), first, law, key, whose).astype(np.float64)
            noisy.append(np.ldexp(values, law.granularity_exponent))
    return spec, plan, noisy


def ridge(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    """By moments or by objective, as the plan chooses."""
    spec, plan, (values,) = released(learn, "ridge-regression", epsilon, seed)
    unit = np.column_stack([test.unit, np.ones(len(test.unit))])
    if values.size == unit.shape[1]:
        return np.asarray(unit @ values / learn.radius)
    moments = Moments.of(len(learn.axes) + 1, spec.domain.blocks)
    measured, columns = (
        NoisyMoments.of(moments, values, deviation_of(plan.noise.law)),
        moments.columns,
    )
    fit = least_squares(measured, columns - 1, range(columns - 1))
    return fit.intercept + test.features @ fit.slopes


def papers_ridge(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    _, _, (weights,) = released(learn, "ridge-regression, weights", epsilon, seed)
    return (np.column_stack([test.unit, np.ones(len(test.unit))]) @ weights) / learn.radius


def bayes(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    spec, plan, values = released(learn, "gaussian-naive-bayes", epsilon, seed)
    return spec.combination.decisions(values, test.unit, [deviation_of(plan.noise.law)])


def kernel_bayes(
    learn: Table, test: Table, epsilon: float, seed: int, width: str = f"{SHARE}"
) -> FloatArray:
    """With sums of kernels a share of each axis wide."""
    spec, plan, values = released(learn, f"naive-bayes, {width}", epsilon, seed)
    parts, noise, left = [], [], [*values]
    *sums, counts = plan.components
    for axis, one in enumerate(sums):
        matrix = one.unit * evaluated(one, test.numbers[:, axis, None] / 2 + 0.5)
        each = deviation_of(one.noise.law) * float(np.linalg.norm(matrix, axis=1).max())
        for _ in one.arrays:
            parts.append(matrix @ left.pop(0))
            noise.append(each)
    return spec.combination.decisions(
        [*parts, *left], test.unit, [*noise, deviation_of(counts.noise.law)]
    )


def logistic(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    _, _, (weights,) = released(learn, "logistic-regression", epsilon, seed)
    unit = np.column_stack([test.unit, np.ones(len(test.unit))])
    return unit @ weights.reshape(-1, unit.shape[1]).T


def evaluated(one: Any, unit: FloatArray) -> FloatArray:
    """What multiplies the released coefficients of a component."""

    def rows(y: FloatArray, k: int, h: int, made: Any) -> FloatArray:
        basis = iterated_basis(y, k, h)
        return basis if made is None else np.asarray(basis @ made.synthesis)

    axes = zip(one.k, one.h, one.strategy.axis_maps, strict=True)
    return Product([partial(rows, k=k, h=h, made=made) for k, h, made in axes])(unit)


def machine(target: str) -> Any:
    """The decision function of a kernel learner, or of each of several classes."""

    def values(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
        spec, plan, found = released(learn, target, epsilon, seed)
        left = iter(found)
        parts = [
            one.unit * evaluated(one, test.unit) @ next(left)
            for one in plan.components
            for _ in one.arrays
        ]
        return np.asarray(spec.combination.values(parts, test.unit))

    return values


def curve(test: Table, target: str, *, learn: Table, epsilon: float, seed: int) -> FloatArray:
    """A regression on one axis, in units of half the response's range from its middle."""
    spec, plan, found = released(learn, target, epsilon, seed)
    arrays, combination = [one for one in plan.components for _ in one.arrays], spec.combination
    parts, summaries = [], []
    for one, own in zip(arrays, found, strict=True):
        parts.append(one.unit * evaluated(one, test.unit) @ own)
        exponent, shape = one.noise.law.granularity_exponent, one.strategy.layout.shape
        binned = one.strategy.kind == "binned"
        bins = np.ldexp(own, -exponent).astype(np.int64).reshape(shape) if binned else None
        summaries.append(summary_of(one, bins, combination.arrays_of_rows))
    if combination.looks_at_totals:
        combination = combination.settled(summaries)
    values = combination.values(parts, test.unit)
    return np.asarray((values - combination.middle) / combination.radius)


def smoothed(
    learn: Table, test: Table, epsilon: float, seed: int, width: str = f"{SHARE}"
) -> FloatArray:
    """By Nadaraya-Watson, with kernels a share of each axis wide."""
    return curve(test, f"nadaraya-watson, {width}", learn=learn, epsilon=epsilon, seed=seed)


def by_gaps(times: float) -> Any:
    """By Priestley-Chao: gaps are cut at so many times what values are rounded to, or 10 w / n."""

    def values(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
        low, high = learn.bounds[learn.axes[0]]
        gap = times * learn.step if times else 10 * (high - low) / len(learn.truth)
        return curve(test, f"priestley-chao, {gap!r}", learn=learn, epsilon=epsilon, seed=seed)

    return values
