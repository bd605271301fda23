"""Tables to learn from: real ones beside this repository, and made-up ones.

A table has columns and their public bounds, lists of values for columns of categories, and a
response, which is its last column, or a label. A quarter of the records is held out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from dbern.types import BoolArray, FloatArray, Int64Array
from rivals.tasks import FLIGHTS, figure_two

ADULT = FLIGHTS.with_name("adult.parquet")
Bounds = dict[str, tuple[float, float]]
Labels = BoolArray | Int64Array
_ADULT: Bounds = {
    "age": (16, 100), "education_num": (0, 17), "fnlwgt": (0, 1.5e6), "capital_gain": (0, 1e5),
    "capital_loss": (0, 5000), "hours_per_week": (0, 100),
}  # fmt: skip
_LISTS = (
    "marital_status", "occupation", "sex", "workclass", "education", "relationship", "race",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Table:
    """Columns and their bounds; last a response, or with `label` classes.

    Records out of bounds are not there; the response is moved to its bounds. `lists` are the values
    of columns of categories; `widths` those of a Gaussian kernel, in data units; `step` what the
    first column is rounded to.
    """

    name: str
    columns: dict[str, Any]
    bounds: Bounds
    label: Labels | None = None
    lists: dict[str, list[str]] = field(default_factory=dict)
    widths: tuple[float, ...] = ()
    step: float = 0.0

    @property
    def axes(self) -> list[str]:
        names = [*self.bounds]
        return names if self.label is not None else names[:-1]

    @cached_property
    def numbers(self) -> FloatArray:
        """The axes in [-1, 1], (n, l)."""
        return np.column_stack([self._scaled(name) for name in self.axes])

    @cached_property
    def truth(self) -> FloatArray | Labels:
        """Classes, or the response in [-1, 1]."""
        return self._scaled([*self.bounds][-1]) if self.label is None else self.label

    def _scaled(self, name: str) -> FloatArray:
        low, high = self.bounds[name]
        return np.clip(2 * (self.columns[name] - low) / (high - low) - 1, -1, 1)

    @cached_property
    def features(self) -> FloatArray:
        """One column a listed value, and then the numbers."""
        listed = [
            np.equal.outer(self.columns[name], values).astype(np.float64)
            for name, values in self.lists.items()
        ]
        return np.column_stack([*listed, self.numbers])

    @property
    def longest(self) -> float:
        """The norm that features have at most."""
        return math.sqrt(len(self.axes) + len(self.lists))

    @property
    def unit(self) -> FloatArray:
        """Features, the numbers in the unit cube."""
        listed = self.features.shape[1] - len(self.axes)
        return np.hstack([self.features[:, :listed], (self.numbers + 1) / 2])

    @property
    def radius(self) -> float:
        low, high = [*self.bounds.values()][-1]
        return (high - low) / 2

    @cached_property
    def parts(self) -> tuple[Table, Table]:
        """Three quarters to learn from, and what is held out."""
        rows = len(next(iter(self.columns.values())))
        held = np.random.default_rng(7).permutation(rows) < rows // 4
        return self.where(~held), self.where(held)

    def where(self, kept: BoolArray) -> Table:
        columns = {name: column[kept] for name, column in self.columns.items()}
        label = None if self.label is None else self.label[kept]
        return replace(self, columns=columns, label=label)


def read(
    name: str,
    path: Path,
    bounds: Bounds,
    label: Callable[[Any], Labels] | None = None,
    lists: Sequence[str] = (),
    widths: tuple[float, ...] = (),
) -> Table:
    found = pq.read_table(path)
    columns: dict[str, Any] = {one: found[one].to_numpy().astype(np.float64) for one in bounds}
    columns |= {one: np.array(found[one].to_pylist()) for one in lists}
    values = {one: np.unique(columns[one]).tolist() for one in lists}  # as in the codebook
    axes = [*bounds] if label is not None else [*bounds][:-1]
    kept = np.all(
        [(columns[a] >= bounds[a][0]) & (columns[a] <= bounds[a][1]) for a in axes], axis=0
    )
    classes = None if label is None else label(found)[kept]
    kept_columns = {one: column[kept] for one, column in columns.items()}
    return Table(name, kept_columns, bounds, classes, values, widths)


def collinear(rows: int = 50_000) -> Table:
    """Sizes that determine each other, and a price: as in tables of things that are sold."""
    rng = np.random.default_rng(2020)
    size = np.exp(rng.normal(-0.4, 0.6, rows)).clip(0.2, 5)
    depth, width = rng.normal(61.7, 1.4, rows).clip(43, 79), rng.normal(57.5, 2.2, rows)
    x = 6.45 * np.cbrt(size) * np.exp(rng.normal(0, 0.007, rows))
    y, z = x * np.exp(rng.normal(0, 0.01, rows)), x * depth / 100
    price = np.exp(8.45 + 1.67 * np.log(size) + rng.normal(0, 0.25, rows)).clip(326, 18_800)
    bounds: Bounds = {"size": (0, 5.5), "depth": (40, 80), "width": (40, 100), "x": (0, 15),
                      "y": (0, 60), "z": (0, 32), "price": (0, 20_000)}  # fmt: skip
    columns = dict(zip(bounds, (size, depth, width.clip(43, 95), x, y, z, price), strict=True))
    return Table("made up, collinear", columns, bounds)


def clusters(rows: int, classes: int, axes: int, spread: float) -> Table:
    """Normal clusters of unequal size that few rows tell apart without privacy."""
    rng = np.random.default_rng(5)
    middles, sizes = rng.uniform(0.2, 0.8, (classes, axes)), np.arange(classes, 0.0, -1.0)
    label = rng.choice(classes, rows, p=sizes / sizes.sum())
    unit = np.clip(middles[label] + spread * rng.normal(size=(rows, axes)), 0, 1)
    columns = {f"x{i}": column for i, column in enumerate(unit.T)}
    name = f"made up, {classes} clusters on {axes} axes"
    return Table(name, columns, dict.fromkeys(columns, (0.0, 1.0)), label)


def rounded() -> Iterator[Table]:
    """A price by a size in hundredths, hours by ages in years."""
    made = collinear()
    columns = {"size": made.columns["size"].round(2), "price": made.columns["price"]}
    sizes: Bounds = {"size": (0, 5.5), "price": (0, 20_000)}
    yield Table("made up, sizes in hundredths", columns, sizes, step=0.01)
    if ADULT.exists():
        ages: Bounds = {"age": (16, 100), "hours_per_week": (0, 100)}
        yield replace(read("adult, hours by age", ADULT, ages), step=1.0)


def two_classes() -> Table:
    """The records of Figure 2, and a third as many."""
    task = figure_two(4000)
    if task.labels is None:
        raise ValueError("Figure 2 has classes")
    columns = dict(zip("xy", task.records.T, strict=True))
    unit = dict.fromkeys("xy", (0.0, 1.0))
    return Table("Figure 2", columns, unit, task.labels > 0, widths=(1.0, 1.0))


def _rich(found: Any) -> BoolArray:
    return np.asarray(found["over_50k"].to_numpy() == 1)


def _late(found: Any) -> BoolArray:
    return np.asarray(found["delay"].to_numpy() > 15)


def regressions() -> Iterator[Table]:
    if FLIGHTS.exists():
        bounds: Bounds = {"distance": (0, 5000), "time": (0, 24), "delay": (-60, 180)}
        yield read("flights, delay", FLIGHTS, bounds)
    if ADULT.exists():
        yield read("adult, hours", ADULT, _ADULT)
        aged = {name: ends for name, ends in _ADULT.items() if name != "age"}
        aged |= {"age": _ADULT["age"]}
        yield read("adult, age", ADULT, aged)
        yield read("adult, hours, 3 lists", ADULT, _ADULT, lists=_LISTS[:3])
        yield read("adult, age, 3 lists", ADULT, aged, lists=_LISTS[:3])
        yield read("adult, age, 7 lists", ADULT, aged, lists=_LISTS)
    yield collinear()


def classifications() -> Iterator[Table]:
    if ADULT.exists():
        few = {name: _ADULT[name] for name in ("age", "education_num", "hours_per_week")}
        for name, bounds, lists in (
            ("adult, 6 axes", _ADULT, ()), ("adult, 3 axes", few, ()),
            ("adult, 3 axes, 1 list", few, _LISTS[:1]),
            ("adult, 3 axes, 3 lists", few, _LISTS[:3]), ("adult, 6 axes, 7 lists", _ADULT, _LISTS),
        ):  # fmt: skip
            yield read(name, ADULT, bounds, _rich, lists)
    if FLIGHTS.exists():
        yield read("flights, late", FLIGHTS, {"time": (0, 24), "distance": (0, 5000)}, _late)


def logistics() -> Iterator[Table]:
    yield from classifications()
    if ADULT.exists():
        axes = {name: ends for name, ends in _ADULT.items() if name != "education_num"}

        def groups(found: Any) -> Int64Array:
            years = found["education_num"].to_numpy()
            return np.searchsorted([9, 10, 11, 13], years, side="right")

        yield read("adult, education in five groups", ADULT, axes, groups)
    yield clusters(8000, 3, 4, 0.12)
    yield clusters(8000, 7, 6, 0.08)


def planes(most: int = 50_000) -> Iterator[Table]:
    """Two axes, for kernels, and of flights so many: their features are many numbers a record."""
    yield two_classes()
    if ADULT.exists():
        axes: Bounds = {"age": (16, 100), "hours_per_week": (0, 100)}
        yield read("adult, age x hours", ADULT, axes, _rich, widths=(20.0, 20.0))
    if FLIGHTS.exists():
        axes = {"time": (0, 24), "distance": (0, 5000)}
        every = read(f"flights, late, {most} of them", FLIGHTS, axes, _late, widths=(3.0, 800.0))
        order = np.random.default_rng(11).permutation(len(every.truth))
        yield every.where(order < most)


def several_classes() -> Iterator[Table]:
    """More than two classes, of which none may have half, or three axes, for kernels."""
    if not ADULT.exists():
        return
    two: Bounds = {"age": (16, 100), "hours_per_week": (0, 100)}
    three: Bounds = two | {"education_num": (0, 17)}

    def schooling(limits: Sequence[int]) -> Callable[[Any], Int64Array]:
        return lambda found: np.searchsorted(
            limits, found["education_num"].to_numpy(), side="right"
        )

    def married(found: Any) -> Int64Array:
        status = np.array(found["marital_status"].to_pylist())
        return np.select([status == "Married-civ-spouse", status == "Never-married"], [0, 1], 2)

    flat, deep = (20.0, 20.0), (20.0, 20.0, 4.0)
    yield read("adult, five groups, 2 axes", ADULT, two, schooling([9, 10, 11, 13]), widths=flat)
    yield read("adult, three groups, 2 axes", ADULT, two, schooling([10, 13]), widths=flat)
    yield read("adult, marriage, 3 axes", ADULT, three, married, widths=deep)
    yield read("adult, rich, 3 axes", ADULT, three, _rich, widths=deep)
