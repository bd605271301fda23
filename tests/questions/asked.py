"""Releases in memory to ask, and the rows that they were made of."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np
from banding import centers, synopsis_of

import dbern
from dbern.bernstein.kernels import Gaussian
from dbern.data.domain import Axis, Domain
from dbern.planning.planner import plan_files
from dbern.privacy.calibration import GaussianNoise, LaplaceNoise
from dbern.privacy.keystream import KeyStream
from dbern.strategies.bins import bin_matrix
from dbern.synopsis.questions.distribution import Distribution
from dbern.synopsis.questions.measure import Measure
from dbern.synopsis.questions.splines import AxisSplines

AXES = ("x", "y", "z")


@lru_cache(maxsize=32)
def planned(
    axes: int = 1,
    n: int = 5000,
    bandwidth: float = 0.1,
    roles: str = "{}",
    kind: str = "kernel-density",
    noise: str = "binned-laplace",
) -> tuple[Any, Any]:
    """A spec and its plan, on the unit cube."""
    spec = dbern.ReleaseSpec(
        release={"name": "case", "output": "case.zarr"},
        data={
            "source": "*.parquet", "bounds": {x: [0.0, 1.0] for x in AXES[:axes]}, "n": n,
            **json.loads(roles),
        },
        target={"kind": kind, "bandwidth": [bandwidth] * axes},
        mechanism={"noise": noise},
        budget={
            "epsilon": "1", "delta": "1e-6" if "gaussian" in noise else "0",
            "ledger": "sqlite:///l.db", "dataset": "case",
        },
    )  # fmt: skip
    return spec, plan_files(spec, ())


def columns(records: Any) -> dict[str, Any]:
    """Rows (n, axes) by column name."""
    return dict(zip(AXES, np.ascontiguousarray(records.T), strict=False))


def released(case: tuple[Any, Any], records: dict[str, Any], key: int | None = 1) -> Any:
    """The distribution of one release, as a synopsis of it gives it."""
    noise = None if key is None else key.to_bytes(32, "big")
    return synopsis_of(*case, centers(*case, records), noise).distribution()


def counted(rows: Any, cells: int = 12, degree: int = 3) -> Any:
    """The exact bins of rows (n, axes) on the unit cube, as shares of them."""
    letters = "abc"[: rows.shape[1]]
    matrices = [bin_matrix(column, cells, degree) for column in rows.T]
    terms = ",".join(f"n{letter}" for letter in letters)
    return np.einsum(f"{terms}->{letters}", *matrices, optimize=True) / len(rows)


def asked(
    rows: Any,
    key: int = 1,
    *,
    cells: int = 12,
    degree: int = 3,
    epsilon: float = 1.0,
    exact: Any = None,
    gaussian: bool = False,
) -> Distribution:
    """What a release of bins of these rows answers from, with the noise of a key, none for 0."""
    n, exponent = len(rows), -40
    exact = counted(rows, cells, degree) if exact is None else exact
    scale = round(2 / (n * epsilon) * 2**40)
    law = GaussianNoise(scale, exponent, 1) if gaussian else LaplaceNoise(scale, exponent, scale)
    center = np.rint(exact.ravel() * 2**40).astype(np.int64)
    stream = KeyStream(key.to_bytes(32, "big"), 0)
    noisy = law.draw(center.size, stream).added_to(center) if key else center
    splines = tuple(AxisSplines(cells, degree) for _ in exact.shape)
    values = np.ldexp(noisy.astype(float), exponent).reshape(exact.shape)
    domain = Domain(tuple(Axis(name, 0.0, 1.0) for name in AXES[: exact.ndim]))
    measure = Measure(values, splines, law, 2.0**-40)
    kernels = (Gaussian(0.1),) * exact.ndim
    return Distribution("case", domain, (measure,), (None,), float(n), kernels)


def databases(axes: int, n: int) -> dict[str, Any]:
    """Rows (n, axes) of several kinds; coordinates are never on an edge of a region."""
    rng = np.random.default_rng(axes)
    centered = rng.uniform(0.05, 0.95, size=(9, axes))[rng.integers(9, size=n)]
    halves = rng.uniform(size=(n, axes))
    halves[: n // 2] = rng.uniform(size=(50, axes))[rng.integers(50, size=n // 2)]
    return {
        "smooth": rng.beta(2, 5, size=(n, axes)),
        "uniform": rng.uniform(size=(n, axes)),
        "clustered": np.clip(centered + 0.01 * rng.normal(size=(n, axes)), 0, 1),
        "half at 50 places": halves,
        "at the ends": rng.integers(0, 2, size=(n, axes)).astype(float),
        "one point": np.full((n, axes), 0.4321),
    }
