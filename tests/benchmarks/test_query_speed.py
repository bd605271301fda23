"""Queries a second of one core, by every way to evaluate one released function, in one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import twins
from projects import Project
from scipy.interpolate import NdBSpline, RegularGridInterpolator
from threadpoolctl import threadpool_limits
from timing import BENCH, Table, keep, seconds

import dbern
from dbern.bernstein.basis import bernstein_basis, iterate
from dbern.bernstein.pieces import TOLERANCE, Pieces, resample
from dbern.data.domain import Axis, Domain
from dbern.synopsis.evaluate import LEAST_RESAMPLED, Polynomial, evaluate

COLUMNS = {"l=1 k=20": (20,), "l=2 k=20": (20,) * 2, "l=2 k=100": (100,) * 2,
           "l=3 k=20": (20,) * 3, "l=2 k=400": (400 if BENCH else 60,) * 2}  # fmt: skip
SECONDS = 0.3 if BENCH else 0.0
MOST = 1 << 20 if BENCH else 200
ORDER = 4

Values = Callable[[np.ndarray], np.ndarray]


def released(k: tuple[int, ...]) -> np.ndarray:
    """Coefficients of a density with some noise, as a release has them."""
    axes = np.meshgrid(*(np.linspace(0, 1, count + 1) for count in k), indexing="ij")
    values = np.exp(-sum((axis - 0.4) ** 2 for axis in axes) / 0.04)
    values += 0.02 * np.random.default_rng(1).laplace(size=values.shape)
    return iterate(values, [ORDER] * len(k))


def einsum(bernstein: np.ndarray, points: np.ndarray) -> np.ndarray:
    values = np.empty(len(points))
    for first in range(0, len(points), 4096):
        part = points[first : first + 4096]
        found = bernstein[None]
        for axis, nodes in enumerate(bernstein.shape):
            basis = bernstein_basis(part[:, axis], nodes - 1)
            found = np.einsum("mv...,mv->m...", np.broadcast_to(
                found, (len(part), *found.shape[1:])), basis)  # fmt: skip
        values[first : first + 4096] = found
    return values


def spline(bernstein: np.ndarray) -> Values:
    """The same function to scipy: a Bernstein basis is a B-spline basis without inner knots."""
    degrees = [nodes - 1 for nodes in bernstein.shape]
    knots = tuple(np.repeat([0.0, 1.0], degree + 1) for degree in degrees)
    function = NdBSpline(knots, bernstein, degrees)
    return lambda points: np.asarray(function(points))


def unit_cube(dimensions: int) -> Domain:
    return Domain(tuple(Axis(name, 0.0, 1.0) for name in "xyz"[:dimensions]))


def twin(pieces: Pieces) -> Values:
    ends = [0.0] * len(pieces.cells), [1.0] * len(pieces.cells)

    def values(points: np.ndarray) -> np.ndarray:
        parts = (points[i : i + 4096] for i in range(0, len(points), 4096))
        return np.concatenate([twins.evaluate_pieces(pieces, part, *ends) for part in parts])

    return values


def ways(bernstein: np.ndarray) -> dict[str, Values]:
    ours = Polynomial(bernstein, unit_cube(bernstein.ndim))
    pieces = resample(bernstein)
    assert pieces is not None
    return {
        "scipy NdBSpline": spline(bernstein),
        "einsum": partial(einsum, bernstein),
        "blocked products": partial(evaluate, bernstein),
        "pieces in numpy": twin(pieces),
        "dbern": partial(ours, total=LEAST_RESAMPLED),
    }


def rate(way: Values, points: np.ndarray) -> float:
    """Median queries per second, of as many points as fill some time, tables made before."""
    way(points[:1])
    count = 50
    while True:
        begin = time.process_time()
        way(points[:count])
        spent = time.process_time() - begin
        if spent >= SECONDS / 4 or count >= len(points):
            break
        count *= 4
    return min(count, len(points)) / seconds(lambda: way(points[:count]))


def table(found: dict[str, dict[str, float]]) -> Table:
    """Thousand queries a second, and ours to the best of the others."""
    rows: dict[str, dict[str, float]] = {}
    for column, rates in found.items():
        best = max(rate for name, rate in rates.items() if name != "dbern")
        thousands = {name: rate / 1e3 for name, rate in rates.items()}
        rows[column] = {**thousands, "dbern to the best": rates["dbern"] / best}
    return Table.of("thousand queries a second", rows)


@pytest.mark.slow
def test_query_speed() -> None:
    found: dict[str, dict[str, float]] = {}
    for column, k in COLUMNS.items():
        bernstein = released(k)
        points = np.random.default_rng(2).random((MOST, len(k)))
        with threadpool_limits(1):
            every = ways(bernstein)
            found[column] = {name: rate(way, points) for name, way in every.items()}
            some = points[:100]
            truth = evaluate(bernstein, some)
            top = np.abs(truth).max()
            for name, way in every.items():
                np.testing.assert_allclose(way(some), truth, rtol=0, atol=2 * TOLERANCE * top,
                                           err_msg=name)  # fmt: skip
    keep("queries", table(found))
    if BENCH:  # the target: the better of products and pieces, in every column
        for column, rates in found.items():
            assert rates["dbern"] >= max(rates["blocked products"], rates["pieces in numpy"]), (
                column
            )


SMALL = {"l=1 k=20": (20,), "l=1 k=100": (100,), "l=2 k=20": (20,) * 2, "l=2 k=100": (100,) * 2}
TIMES = 1000 if BENCH else 1
LIMITS = {"dbern, one point": 0.05, "dbern, 10^4 points": 2.0}


def often(way: Values, points: np.ndarray) -> None:
    for _ in range(TIMES):
        way(points)


def small(project: Project, k: tuple[int, ...]) -> dict[str, float]:
    """Milliseconds of an opened synopsis and of a grid of its values that scipy interpolates."""
    names, url = "xyz"[: len(k)], f"density-{len(k)}-{k[0]}.zarr"
    project.spec(
        release={"name": url, "output": url},
        data__bounds={name: [0.0, 1.0] if name in names else None for name in "xy"},
        target={"bandwidth": [0.1] * len(k)},
        mechanism={"k": k[0], "h": ORDER, "noise": None},
    )
    opened = dbern.release(project.spec_path).synopsis
    axes = [np.linspace(0, 1, 201)] * len(k)
    nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    grid = RegularGridInterpolator(axes, opened(nodes.reshape(-1, len(k))).reshape([201] * len(k)))
    many = np.random.default_rng(3).random((10_000, len(k)))
    found = {}
    for name, way in {"dbern": opened, "a grid in scipy": grid}.items():
        found[f"{name}, one point"] = seconds(partial(often, way, many[:1])) / TIMES
        found[f"{name}, 10^4 points"] = seconds(partial(way, many))
    return {name: 1e3 * spent for name, spent in found.items()}


@pytest.mark.slow
def test_small_queries(tmp_path: Path) -> None:
    project = Project(tmp_path)
    draw = np.random.default_rng(4)
    project.write({name: draw.beta(2, 5, 10_000) for name in "xy"}, row_group_size=5000)
    project.grant("100")
    with threadpool_limits(1):
        found = {column: small(project, k) for column, k in SMALL.items()}
    keep("small queries", Table.of("ms", found))
    if BENCH:
        assert all(
            column[name] <= limit for column in found.values() for name, limit in LIMITS.items()
        )


if __name__ == "__main__":
    pytest.main([__file__, "-q", "-s", "-n0"])
