"""Widths of kernels that follow from rows and epsilon, beside fixed ones: ``make widths``.

A cell is a learner with kernels, a dataset and an epsilon. Its error is the mean over some releases
of the root mean squared distance from what is to be predicted, or of the share of wrong classes, of
records that were not released. Beside bandwidth = "auto" stand kernels whose widths are the same
share of every axis; "lost" is by how much of the least of these errors the rule's is larger.

Generated columns are those by which the rule's constants were chosen: waves, a step and a slope, of
rows that are spread evenly or crowd, and mixtures of two classes over all or a fifth of the bounds.
What they are to predict is known there, and errors are against it. Real records, which are beside
the repository, decided between constants that err alike on these.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from rivals import records
from rivals.records import Table
from rivals.released import kernel_bayes, smoothed
from rivals.scoring import scored
from rivals.tasks import FLIGHTS
from threadpoolctl import threadpool_limits

from dbern.types import FloatArray

SHARES, EPSILONS, SEEDS = ("0.03", "0.05", "0.1", "0.2"), (0.1, 1.0, 3.0), 5
AUTO = "auto"
ROWS = (2000, 20_000)
_HELD = 6000
_RESIDUAL = 0.3  # standard deviation of generated responses in [-1, 1]

Pair = tuple[str, Table, Table]


def wave(turns: float) -> Callable[[FloatArray], FloatArray]:
    return lambda unit: np.sin(2 * np.pi * turns * unit).mean(axis=1)


def slope(unit: FloatArray) -> FloatArray:
    return np.asarray(2 * unit.mean(axis=1) - 1)


def step(unit: FloatArray) -> FloatArray:
    return np.where(unit[:, 0] > 0.4, 0.5, -0.5)


RESPONSES = {"slope": slope, "wave": wave(1), "waves": wave(2.5), "step": step}


def spread(rng: np.random.Generator, rows: int, axes: int, *, crowd: bool) -> FloatArray:
    """Rows that are spread evenly, or about two places."""
    if not crowd:
        return np.asarray(rng.random((rows, axes)))
    place = rng.choice([0.3, 0.6], (rows, 1), p=[0.7, 0.3])
    return np.asarray(np.clip(place + 0.12 * rng.normal(size=(rows, axes)), 0, 1))


def generated_regressions() -> Iterator[Pair]:
    for axes, rows, crowd, name in itertools.product((1, 2, 3), ROWS, (False, True), RESPONSES):
        rng = np.random.default_rng(31)
        parts = []
        for count, residual in ((rows, _RESIDUAL), (_HELD, 0.0)):
            unit = spread(rng, count, axes, crowd=crowd)
            truth = RESPONSES[name](unit) + residual * rng.normal(size=count)
            columns = {f"x{i}": column for i, column in enumerate(unit.T)}
            bounds = dict.fromkeys(columns, (0.0, 1.0)) | {"y": (-1.0, 1.0)}
            parts.append(Table(name, columns | {"y": truth}, bounds))
        where = "crowded" if crowd else "even"
        yield (f"{name}, {where}, {rows} on {axes}", *parts)


def generated_classes() -> Iterator[Pair]:
    """Two classes whose densities have one bump an axis, or several; in all or a part of it."""
    for part, axes, rows, bumps in itertools.product((1.0, 0.2), (1, 2, 3, 6), ROWS, (1, 3)):
        rng = np.random.default_rng(32)
        middles = rng.uniform(0.15, 0.85, (2, bumps, axes))
        parts = []
        for count in (rows, _HELD):
            label = rng.random(count) < 0.35
            places = middles[label.astype(int), rng.integers(bumps, size=count)]
            unit = np.clip(places + rng.normal(size=(count, axes)) * 0.3 / (1 + bumps), 0, 1) * part
            columns = {f"x{i}": column for i, column in enumerate(unit.T)}
            parts.append(Table("", columns, dict.fromkeys(columns, (0.0, 1.0)), label))
        where = ", in a fifth" if part < 1 else ""
        yield (f"{bumps} bump{'s' * (bumps > 1)}, {rows} on {axes}{where}", *parts)


def _pair(table: Table) -> Pair:
    """What is learned from, and some of what is held out."""
    learn, test = table.parts
    held = len(test.truth)
    return table.name, learn, test.where(np.arange(held) % max(1, held // _HELD) == 0)


def real_regressions() -> Iterator[Pair]:
    if FLIGHTS.exists():
        for axes in (("time",), ("distance",), ("time", "distance")):
            ends = {"time": (0, 24), "distance": (0, 3000)}
            bounds = {name: ends[name] for name in axes} | {"delay": (-60, 180)}
            yield _pair(records.read(f"flights, delay by {', '.join(axes)}", FLIGHTS, bounds))
    if records.ADULT.exists():
        ends = {"age": (16, 100), "education_num": (0, 17), "capital_gain": (0, 1e5)}
        for axes in (("age",), ("age", "education_num"), (*ends,)):
            bounds = {name: ends[name] for name in axes} | {"hours_per_week": (0, 100)}
            yield _pair(records.read(f"adult, hours by {', '.join(axes)}", records.ADULT, bounds))
    made = records.collinear()
    for axes in (("size",), ("size", "depth"), ("x", "depth", "width")):
        bounds = {name: made.bounds[name] for name in (*axes, "price")}
        yield _pair(replace(made, name=f"prices by {', '.join(axes)}", bounds=bounds))


def real_classes() -> Iterator[Pair]:
    yield from map(_pair, records.classifications())


PARTS = {
    "regressions": (smoothed, (generated_regressions, real_regressions)),
    "classes": (kernel_bayes, (generated_classes, real_classes)),
}


def error(values: FloatArray, test: Table) -> float:
    """Root mean squared error in [-1, 1], or the share of wrong classes."""
    if test.label is None:
        return scored(values, test.truth, 1.0)["RMSE"]
    return 1 - scored(values, test.truth, 1.0)["accuracy"]


def measured(part: str, learn: Table, test: Table, epsilon: float, width: str, seeds: int) -> float:
    """Mean error of the releases of a cell."""
    predicted = partial(PARTS[part][0], learn, test, epsilon, width=width)
    return float(np.mean([error(predicted(seed), test) for seed in range(seeds)]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="widths", description=__doc__)
    parser.add_argument("--part", nargs="+", choices=[*PARTS], default=[*PARTS])
    parser.add_argument("--of", choices=("generated", "real"), nargs="+",
                        default=("generated", "real"))  # fmt: skip
    parser.add_argument("--data", default="", help="only data whose name contains this")
    parser.add_argument("--shares", nargs="+", default=SHARES, help="fixed widths")
    parser.add_argument("--epsilon", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args(arguments)
    widths = (AUTO, *given.shares)
    rows = []
    with threadpool_limits(1):
        for part, of in itertools.product(given.part, given.of):
            print(f"\n| {of} {part} | epsilon | {' | '.join(widths)} | lost |")
            print(f"| --- | ---: {'| ---: ' * len(widths)}| ---: |")
            lost: dict[float, list[FloatArray]] = {}
            for name, learn, test in PARTS[part][1][of == "real"]():
                for epsilon in given.epsilon if given.data in name else ():
                    errors = np.array([
                        measured(part, learn, test, epsilon, width, given.seeds)
                        for width in widths
                    ])  # fmt: skip
                    lost.setdefault(epsilon, []).append(errors / errors[1:].min() - 1)
                    texts = " | ".join(f"{each:.4g}" for each in errors)
                    of_rule = lost[epsilon][-1][0]
                    print(f"| {name} | {epsilon:g} | {texts} | {of_rule:.1%} |", flush=True)
            rows += [summary(f"{of} {part}", *cells) for cells in lost.items()]
    print(f"\n| lost in the median (at most) | epsilon | {' | '.join(widths)} |")
    print(f"| --- | ---: {'| ---: ' * len(widths)}|", *rows, sep="\n")


def summary(name: str, epsilon: float, lost: Sequence[FloatArray]) -> str:
    """One row: by how much more than the best fixed width each errs, of all cells at an epsilon."""
    ends = zip(np.median(lost, axis=0), np.max(lost, axis=0), strict=True)
    texts = (f"{100 * middle:.0f} % ({100 * most:.0f})" for middle, most in ends)
    return f"| {name}, {len(lost)} | {epsilon:g} | {' | '.join(texts)} |"


if __name__ == "__main__":
    sys.exit(main())
