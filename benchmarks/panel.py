"""Densities of real and generated records, beside what is easily written instead: ``make panel``.

A cell is a dataset, a bandwidth and an epsilon. Its error is the largest over a grid of points,
against the density without noise, and the mean over some releases. Our own is that of the plan's
choice, with bins and smoothing as they are released and noise of the plan's law under public keys,
shrunk as a release is. The command fails where `shortfalls` finds any. The rivals:

- *20 lines*: each record is split linearly between the nodes of a grid of step ``b / 2``, with
  Laplace noise and a kernel of variance ``b^2 - step^2 / 6``;
- *histogram*: equal cells, what is below a threshold is zero, smoothed; the number of cells and
  the threshold are those that an oracle chooses, who sees the errors;
- *LSQ*: locality-sensitive quantization (`rivals.quantization`), cells and order an oracle's;
- *PrivTree* and, on two axes, *AdaptiveGrid* (`partitions`), smoothed; how they share epsilon, or
  by how much their rules of thumb are stretched, is an oracle's choice.

`FURTHER` cells are of a kernel with kinks, or of a charge with a delta, of which rivals make no
use: Laplace noise of a histogram is smaller than Gaussian noise. Their errors are held to promises,
and to those of `BASELINE`, measured before, as all cells' are; without a delta no gain is below
`LEAST_GAIN`, as in the usual cells, whose mean gain is held too.
`NARROW` cells have a narrow kernel, rows that are rounded or mostly at one place, or both: there
errors are held to 20 lines' own. `CROWDED` cells have rows at few places, or with heavy tails: no
gain there is below `LEAST_GAIN`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from partitions import Masses, adaptive_grid, priv_tree, pyramid
from rivals.quantization import hermite, largest_norm, powers
from rivals.tasks import RBF

import dbern
from dbern.bernstein.basis import coefficient_basis
from dbern.bernstein.splines import bin_matrix
from dbern.planning.planner import plan_files
from dbern.privacy.families import errors_of, family_of
from dbern.privacy.public_numbers import public_stream
from dbern.reconstruct.bins import BinnedStrategy
from dbern.synopsis.smoothing import shrink_within
from dbern.types import FloatArray

BANDWIDTHS, EPSILONS = (0.02, 0.1), (0.1, 1.0)
POINTS = {1: 1001, 2: 161, 3: 41}
NAMES = ("x", "y", "z")
COLUMNS: dict[str, tuple[str, dict[str, tuple[float, float]]]] = {
    "airports": ("airports", {"latitude": (24, 50), "longitude": (-125, -66)}),
    "delays": ("flights", {"delay": (-60, 180)}),
    "flights": ("flights", {"time": (0, 24), "distance": (0, 3000)}),
    "flights, 3 axes": (
        "flights", {"time": (0, 24), "distance": (0, 3000), "delay": (-60, 180)},
    ),
    "capital gain": ("adult", {"capital_gain": (0, 100_000)}),
    "age, hours": ("adult", {"age": (17, 90), "hours_per_week": (0, 100)}),
}  # fmt: skip
_OF_KINKS = ("airports", "delays", "flights", "capital gain", "integers")
FURTHER = {  # data at a bandwidth of .1, by kernel and delta
    ("laplace", "0"): (*_OF_KINKS, "clusters, 3"),
    ("triangle", "0"): _OF_KINKS,
    ("epanechnikov", "0"): _OF_KINKS,
    ("gaussian", "1e-6"): ("flights", "flights, 3 axes", "clusters, 1"),
}
NARROW = {  # kernel, bandwidth and epsilon, by data
    "integers": (
        ("triangle", 0.01, 1.0),
        ("triangle", 0.01, 1e6),
        ("laplace", 0.03, 1.0),
        ("triangle", 0.03, 1.0),
        ("epanechnikov", 0.03, 0.1),
    ),
    "capital gain": (
        ("laplace", 0.03, 0.1),
        ("triangle", 0.03, 1.0),
        ("epanechnikov", 0.03, 1.0),
    ),
    "flights": (("laplace", 0.03, 1.0), ("triangle", 0.03, 0.1)),
    "one place": (
        ("triangle", 0.05, 1.0),
        ("triangle", 0.01, 1.0),
        ("epanechnikov", 0.05, 1.0),
        ("epanechnikov", 0.02, 1.0),
        ("epanechnikov", 0.01, 1.0),
        ("biweight", 0.01, 1.0),
        ("laplace", 0.02, 1.0),
        ("gaussian", 0.005, 1.0),
    ),
    "clusters, 2": (("gaussian", 0.01, 3.0),),
}
CROWDS = ((1, 1700, 0.02, 1.0), (1, 5000, 0.1, 0.1), (2, 1700, 0.1, 1.0), (2, 20_000, 0.1, 0.1))
"""Axes, rows, bandwidth and epsilon."""
PLACES, TAILS = (1, 3, 8, 20), (0.005, 0.02)
"""How many places rows are at, and scales of Cauchy's law."""
CROWDED = {
    f"{kind}, {n} rows, {axes}": (bandwidth, epsilon)
    for axes, n, bandwidth, epsilon in CROWDS
    for kind in (*(f"places {count}" for count in PLACES), *(f"tails {scale}" for scale in TAILS))
}
NARROW_POINTS = {1: 4999, 2: 397}
COMPACT = {"triangle": (1, 1, 6), "epanechnikov": (2, 1, 5), "biweight": (2, 2, 7)}
"""Kernels ``(1 - |z|^i)^m``: i and m, and how often their variance goes into b^2."""
LEAST_NARROW_GAIN = 1 / 1.1
LEAST_MEAN_GAIN, LEAST_GAIN = 1.6, 0.9  # of the error of 20 lines, over ours
KNOWN_LOSSES = {"flights, triangle kernel, b 0.03, epsilon 0.1": 0.78}  # least gains of these
BASELINE, MOST_LOSS = Path(__file__).with_name("panel.json"), 1.1
RELEASES = 12
MOST_BEHIND, MOST_LOST = 1.3, 2  # times an oracle's best; cells where that is so
_BLOCK = 1 << 9  # records: their products stay in a processor's cache
_BOXES = 1 << 13
_SHARES = (0.25, 0.5, 1.0, 2.0)  # bandwidths a cell of a histogram
_THRESHOLDS = (0.0, 1.0, 2.0, 4.0)  # times the scale of its noise
_DEPTH = {1: 10, 2: 8, 3: 7}  # of a tree: cells of 2^-depth
_TREE_SHARES = (0.2, 0.5, 0.8)  # of epsilon, for the tree
_STRETCHES = (0.5, 1.0, 2.0)  # of AdaptiveGrid's rules
_ORDERS, _MOST_POWERS = (1, 2, 4, 6), 1 << 21


@dataclass(frozen=True)
class Row:
    """One cell of the panel; errors in units of the density over the unit cube."""

    data: str
    axes: int
    n: int
    bandwidth: float
    epsilon: float
    peak: float
    ours: float
    lines: float
    histogram: float
    lsq: float
    tree: float
    grid: float  # nan but on two axes
    promise: float
    choice: str
    kernel: str = "gaussian"
    delta: str = "0"

    @property
    def further(self) -> bool:
        return (self.kernel, self.delta) in FURTHER

    @property
    def narrow(self) -> bool:
        return (self.kernel, self.bandwidth, self.epsilon) in NARROW.get(self.data, ())

    @property
    def crowded(self) -> bool:
        return self.data in CROWDED

    @property
    def where(self) -> str:
        """Data, with the kernel and delta where they are not the usual ones."""
        kernel = f", {self.kernel} kernel" if self.kernel != "gaussian" else ""
        return self.data + kernel + (f", delta {self.delta}" if self.delta != "0" else "")

    @property
    def cell(self) -> str:
        return f"{self.where}, b {self.bandwidth:g}, epsilon {self.epsilon:g}"

    @property
    def gain(self) -> float:
        return self.lines / self.ours

    @property
    def oracle(self) -> float:
        """The least error of what an oracle tuned."""
        return float(np.nanmin([self.histogram, self.lsq, self.tree, self.grid]))


def datasets(folder: Path) -> Iterator[tuple[str, FloatArray]]:
    """Records in the unit cube, clamped to the bounds."""
    for name, (file, bounds) in COLUMNS.items():
        path = folder / f"{file}.parquet"
        if not path.exists():
            print(f"without {name}: {path} is not there", file=sys.stderr)
            continue
        table = pq.read_table(path, columns=list(bounds))
        columns = [
            (table[column].to_numpy().astype(np.float64) - low) / (high - low)
            for column, (low, high) in bounds.items()
        ]
        yield name, np.clip(np.column_stack(columns), 0.0, 1.0)
    for axes in (1, 2, 3):
        rng = np.random.default_rng(axes)
        centers, spreads = rng.uniform(0.15, 0.85, (12, axes)), rng.uniform(0.01, 0.08, 12)
        which = rng.choice(12, 20_000, p=rng.dirichlet(np.ones(12)))
        records = centers[which] + spreads[which, None] * rng.normal(size=(20_000, axes))
        yield f"clusters, {axes}", np.clip(records, 0.0, 1.0)
    rng = np.random.default_rng(0)
    ages = np.where(rng.random(20_000) < 0.1, 40, rng.normal(40, 12, 20_000).round())
    yield "integers", np.clip(ages, 0, 100)[:, None] / 100
    crowd = np.where(rng.random(20_000) < 0.8, 0.41235, rng.random(20_000))
    yield "one place", crowd[:, None]
    for axes, n, *_ in CROWDS:
        for count in PLACES:
            rng = np.random.default_rng(count)
            centers = rng.uniform(0.1, 0.9, (count, axes))
            yield f"places {count}, {n} rows, {axes}", centers[rng.integers(0, count, n)]
        for scale in TAILS:
            records = 0.5 + scale * np.random.default_rng(5).standard_cauchy((n, axes))
            yield f"tails {scale}, {n} rows, {axes}", np.clip(records, 0.0, 1.0)


def gaussian(x: FloatArray, bandwidth: float) -> FloatArray:
    return np.asarray(np.exp(-0.5 * (x / bandwidth) ** 2) / (bandwidth * np.sqrt(2 * np.pi)))


def total(factors: Sequence[FloatArray]) -> FloatArray:
    """Sums over records of products over axes, from one array (m_i, records) an axis."""
    *others, last = factors
    left = others[0] if others else np.ones((1, last.shape[1]))
    for other in others[1:]:
        left = (left[:, None] * other).reshape(-1, last.shape[1])
    shape = tuple(len(factor) for factor in factors)
    return np.asarray(left @ last.T).reshape(shape)


def summed(records: FloatArray, feature: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Means over the records, block by block, of features of an axis's positions: (m, records)."""
    blocks = np.array_split(records, max(1, len(records) // _BLOCK))
    parts = [total([feature(column) for column in block.T]) for block in blocks]
    return np.asarray(sum(parts)) / len(records)


def smoothed(values: FloatArray, matrices: Sequence[FloatArray]) -> FloatArray:
    for matrix in matrices:
        values = np.tensordot(values, matrix, axes=(0, 1))
    return values


def _quantized(kernel: RBF, cells: int, order: int, t: FloatArray) -> FloatArray:
    return powers(t, kernel, cells, order).T


@dataclass(frozen=True)
class Cell:
    """One dataset at one bandwidth, and the density without noise on the grid."""

    name: str
    records: FloatArray
    bandwidth: float
    y: FloatArray
    releases: int
    kernel: str = "gaussian"
    delta: str = "0"

    def bumps(self, t: FloatArray, variance: FloatArray | float = 0.0) -> FloatArray:
        """Kernels (points, t) on the grid, with so much more or less variance than theirs."""
        x = self.y[:, None] - t
        if self.kernel == "gaussian":
            return gaussian(x, np.sqrt(self.bandwidth**2 + variance))
        if self.kernel in COMPACT:
            inner, power, times = COMPACT[self.kernel]
            width = np.sqrt(self.bandwidth**2 + times * np.asarray(variance))
            z = np.minimum(np.abs(x) / width, 1.0)
            mass = 2 * sum(
                (-1) ** j * math.comb(power, j) / (inner * j + 1) for j in range(power + 1)
            )
            return np.asarray((1 - z**inner) ** power / (mass * width))
        width = np.sqrt(self.bandwidth**2 + np.asarray(variance) / 2)
        return np.asarray(np.exp(-np.abs(x) / width) / (2 * width))

    @cached_property
    def truth(self) -> FloatArray:
        return summed(self.records, self.bumps)

    @property
    def axes(self) -> int:
        return self.records.shape[1]

    def error(
        self, values: FloatArray, scale: float, matrix: Sequence[FloatArray], least: float = 0.0
    ) -> float:
        """Mean over releases; values below `least` are set to zero, unless it is zero."""

        def noisy(seed: int) -> FloatArray:
            drawn = values + np.random.default_rng(seed).laplace(scale=scale, size=values.shape)
            return np.where(drawn < least, 0.0, drawn) if least > 0 else drawn

        return self.mean_error(noisy, matrix)

    def mean_error(self, noisy: Callable[[int], FloatArray], matrix: Sequence[FloatArray]) -> float:
        """Mean over the releases of seeds 0, 1, .."""
        seeds = range(self.releases if self.axes < 3 else -(-self.releases // 4))
        sups = [np.abs(smoothed(noisy(seed), matrix) - self.truth).max() for seed in seeds]
        return float(np.mean(sups))

    def lines(self, epsilon: float) -> float:
        cells = int(np.ceil(2 / self.bandwidth))
        nodes = np.arange(cells + 1) / cells
        kernel = self.bumps(nodes, -(cells**-2) / 6)
        split = summed(self.records, lambda t: bin_matrix(t, cells, 1).T)
        return self.error(split, self.scale(epsilon), [kernel] * self.axes)

    def histogram(self, epsilon: float) -> float:
        errors = []
        for share in _SHARES:
            cells = int(np.ceil(1 / (share * self.bandwidth)))
            centers = (np.arange(cells) + 0.5) / cells
            kernel = self.bumps(centers)
            places = np.minimum((self.records * cells).astype(np.int64), cells - 1)
            shape = (cells,) * self.axes
            flat = np.ravel_multi_index(tuple(places.T), shape)
            counts = np.bincount(flat, minlength=cells**self.axes).reshape(shape)
            scale = self.scale(epsilon)
            errors += [
                self.error(counts / len(places), scale, [kernel] * self.axes, level * scale)
                for level in _THRESHOLDS
            ]
        return min(errors)

    def lsq(self, epsilon: float) -> float:
        if self.kernel != "gaussian":
            return math.nan
        kernel = RBF(self.bandwidth, 1 / (self.bandwidth * math.sqrt(2 * math.pi)))
        errors = []
        for share in (0.5, 1.0, 2.0, 4.0, 8.0):
            cells = max(1, round(1 / (share * self.bandwidth)))
            for order in _ORDERS:
                if (cells * order) ** self.axes > _MOST_POWERS:
                    continue
                values = summed(self.records, partial(_quantized, kernel, cells, order))
                scale = self.scale(epsilon) * largest_norm(kernel, cells, order) ** self.axes
                matrix = hermite(self.y, kernel, cells, order)
                errors.append(self.error(values, scale, [matrix] * self.axes))
        return min(errors)

    def tree(self, epsilon: float) -> float:
        levels = pyramid(self.records, _DEPTH[self.axes])
        return min(
            self.partitioned(partial(priv_tree, levels, epsilon, share)) for share in _TREE_SHARES
        )

    def grid(self, epsilon: float) -> float:
        if self.axes != 2:
            return math.nan
        return min(
            self.partitioned(partial(adaptive_grid, self.records, epsilon, stretch))
            for stretch in _STRETCHES
        )

    def partitioned(self, release: Callable[[np.random.Generator], Masses]) -> float:
        found = []
        for seed in range(max(3, self.releases // 4)):
            released = release(np.random.default_rng(seed))
            values = np.zeros_like(self.truth)
            for first in range(0, len(released.shares), _BOXES):
                block = slice(first, first + _BOXES)
                middles, sides = released.middles[block], released.sides[block]
                spreads = sides**2 / 12  # of a uniform share of its box
                factors = [
                    self.bumps(middle, spread)
                    for middle, spread in zip(middles.T, spreads.T, strict=True)
                ]
                values += total([released.shares[block] * factors[0], *factors[1:]])
            found.append(float(np.abs(values - self.truth).max()))
        return float(np.mean(found))

    def scale(self, epsilon: float) -> float:
        return 2 / (len(self.records) * epsilon)

    def ours(self, epsilon: float) -> tuple[float, float, str]:
        """Error, promise and what was chosen."""
        names = NAMES[: self.axes]
        spec = dbern.ReleaseSpec(
            release={"name": "panel", "output": "panel.zarr"},
            data={
                "source": "nowhere.parquet",
                "n": len(self.records),
                "bounds": {name: [0.0, 1.0] for name in names},
            },
            target={
                "kind": "kernel-density",
                "kernel": self.kernel,
                "bandwidth": [self.bandwidth] * self.axes,
            },
            budget={
                "epsilon": f"{epsilon:g}",
                "delta": self.delta,
                "ledger": "sqlite:///ledger.db",
                "dataset": "panel",
            },
        )
        plan = plan_files(spec, ())
        strategy, (component,) = plan.strategy, plan.components
        if not isinstance(strategy, BinnedStrategy):
            return math.nan, plan.certificate.total, component.noise.kind
        axis = strategy.bins[0]
        exact = summed(self.records, lambda t: bin_matrix(t, axis.cells, axis.degree).T)
        choice = f"degree {axis.degree}, {axis.cells} cells, {component.noise.kind}"
        if (scales := axis.scales) is not None:
            exact, choice = scales.numbers(exact), f"{choice}, two scales"
        matrices = [
            coefficient_basis(self.y, k, h) @ matrix
            for k, h, matrix in zip(plan.k, plan.h, strategy.matrices(plan.h), strict=True)
        ]
        law = component.noise.law
        granule = math.ldexp(component.unit, law.granularity_exponent)
        known = family_of(law).covariance(law.values).scaled(component.noise.scale)

        def noisy(seed: int) -> FloatArray:
            drawn = errors_of(law).simulate(exact.size, 1, public_stream("panel", seed))
            return exact + granule * drawn.reshape(exact.shape)

        def answered(seed: int) -> FloatArray:
            most = component.most_silenced
            return (
                shrink_within(noisy(seed), known, strategy, plan.h, most)[0]
                if most
                else noisy(seed)
            )

        return self.mean_error(answered, matrices), plan.certificate.total, choice


def rows(folder: Path, only: str = "", releases: int = RELEASES) -> Iterator[Row]:
    for name, records in datasets(folder):
        if not name.startswith(only):
            continue
        for cell, epsilon in cells_of(name, records, releases):
            error, promise, choice = cell.ours(epsilon)
            rivals = cell.lines, cell.histogram, cell.lsq, cell.tree, cell.grid
            others = [rival(epsilon) for rival in rivals]
            peak = float(cell.truth.max())
            where = (name, cell.axes, len(records), cell.bandwidth, epsilon, peak)
            how = (cell.kernel, cell.delta)
            yield Row(*where, error, *others, promise, choice, *how)


def cells_of(name: str, records: FloatArray, releases: int) -> Iterator[tuple[Cell, float]]:
    """Yield the cells of a dataset, each with an epsilon: usual, further and narrow ones."""
    axes = records.shape[1]
    if name in CROWDED:
        bandwidth, epsilon = CROWDED[name]
        yield Cell(name, records, bandwidth, np.linspace(0, 1, POINTS[axes]), releases), epsilon
    else:
        y, usual = np.linspace(0, 1, POINTS[axes]), name not in ("integers", "one place")
        cells = [Cell(name, records, bandwidth, y, releases) for bandwidth in BANDWIDTHS if usual]
        cells += [
            Cell(name, records, BANDWIDTHS[-1], y, releases, *how)
            for how, names in FURTHER.items()
            if name in names
        ]
        yield from itertools.product(cells, EPSILONS)
    for kernel, bandwidth, epsilon in NARROW.get(name, ()):
        y = np.linspace(0, 1, NARROW_POINTS[axes])
        yield Cell(name, records, bandwidth, y, releases, kernel), epsilon


def to_markdown(found: Sequence[Row]) -> str:
    head = "data | axes | n | b | epsilon | largest value | ours | 20 lines"
    head += " | histogram, oracle | LSQ, oracle | PrivTree, oracle | AdaptiveGrid, oracle"
    lines = [f"| {head} | 20 lines / ours | promise | choice |", "|" + " --- |" * 15]
    lines += [
        f"| {row.where} | {row.axes} | {row.n} | {row.bandwidth:g} | {row.epsilon:g} | "
        f"{row.peak:.3g} | {row.ours:.3g} | {row.lines:.3g} | "
        f"{row.histogram:.3g} | {_or_dash(row.lsq)} | {row.tree:.3g} | {_or_dash(row.grid)} | "
        f"{row.gain:.2f} | {row.promise:.3g} | {row.choice} |"
        for row in found
    ]
    narrow, others = ([row for row in found if row.narrow == kind] for kind in (True, False))
    crowded = [row for row in others if row.crowded]
    others = [row for row in others if not row.crowded]
    usual, further = ([row for row in others if row.further == kind] for kind in (False, True))
    kinds = {"The usual cells": usual, "Another kernel, or a delta": further, "Narrow": narrow}
    kinds["Crowded"] = crowded
    for name, cells in kinds.items():
        if cells:
            beaten = sum(map(_lost, cells))
            lines += [
                "",
                f"{name}: geometric mean of the gains {mean_gain(cells):.3f}, the least "
                f"{min(row.gain for row in cells):.2f}. The best that an oracle tuned is more than "
                f"{MOST_BEHIND} times better in {beaten} of {len(cells)} cells.",
            ]
    return "\n".join(lines)


def mean_gain(found: Sequence[Row]) -> float:
    """The geometric mean of how many times smaller our error is than that of 20 lines."""
    return math.exp(math.fsum(math.log(row.gain) for row in found) / len(found))


def shortfalls(
    found: Sequence[Row], mean: float = LEAST_MEAN_GAIN, lost: int = MOST_LOST
) -> list[str]:
    """Return what these cells fall short of, in words: nothing where all is well.

    Parameters
    ----------
    mean : float
        That the gains reach; no gain is below `LEAST_GAIN`, no error above its promise.
    lost : int
        Cells in which an oracle's best may be `MOST_BEHIND` times better, at most.
    """
    usual = [row for row in found if not (row.further or row.narrow or row.crowded)]
    texts = []
    if usual and mean_gain(usual) < mean:
        texts.append(f"a mean gain of {mean_gain(usual):.2f}, not {mean}")
    beaten = sum(map(_lost, usual))
    if beaten > lost:
        texts.append(f"an oracle's best ahead in {beaten} cells, not {lost}")
    held = [(row, LEAST_NARROW_GAIN if row.narrow else LEAST_GAIN) for row in found]
    held = [(row, KNOWN_LOSSES.get(row.cell, least)) for row, least in held if row.delta == "0"]
    texts += [f"{row.cell}: a gain of {row.gain:.2f}" for row, least in held if row.gain < least]
    texts += [f"{row.cell}: more than promised" for row in found if not row.ours <= row.promise]
    return texts


def losses(cells: Sequence[Row], baseline: Path = BASELINE) -> list[str]:
    """Return the cells whose error is more than `MOST_LOSS` times the baseline's, in words."""
    before = json.loads(baseline.read_text())
    return [
        f"{row.cell}: {row.ours / before[row.cell]:.2f} times the error of the baseline"
        for row in cells
        if row.cell in before and not row.ours <= MOST_LOSS * before[row.cell]
    ]


def write_baseline(cells: Sequence[Row], baseline: Path = BASELINE) -> None:
    """Write the error of each cell, in place of those that were measured before."""
    errors = {row.cell: float(f"{row.ours:.6g}") for row in cells}
    baseline.write_text(json.dumps(errors, indent=1) + "\n")


def _lost(row: Row) -> bool:
    return row.ours > MOST_BEHIND * row.oracle


def _or_dash(error: float) -> str:
    return "-" if math.isnan(error) else f"{error:.3g}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="panel", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the Parquet files")
    parser.add_argument("--only", default="", help="datasets whose name begins like this")
    parser.add_argument("--releases", type=int, default=RELEASES, help="a quarter on three axes")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument("--write", action="store_true", help="make these errors the baseline")
    given = parser.parse_args(arguments)
    found = []
    for row in rows(given.folder, given.only, given.releases):
        print(f"{row.cell}: {row.gain:.2f}", file=sys.stderr, flush=True)
        found.append(row)
    print(to_markdown(found))
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in found], indent=1))
    if given.write:
        write_baseline(found)
    texts = [] if given.only else shortfalls(found)
    texts += losses(found) if given.releases == RELEASES else []
    if texts:
        sys.exit("; ".join(texts))


if __name__ == "__main__":
    main()
