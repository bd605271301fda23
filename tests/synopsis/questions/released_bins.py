"""Releases in memory to ask, and the rows that they were made of."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np
from banding import centers, synopsis_of
from questioned import AXES

import dbern
from dbern.planning.planner import plan_files


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
