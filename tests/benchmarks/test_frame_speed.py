"""Releases of a data frame beside those of the same rows in a Parquet file, in one run.

Whole releases: plan, charge, count, noise and synopsis; of a frame its encrypted spool besides. The
target: 1.3 times the file's time.
"""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pandas as pd
import pytest
from timing import BENCH, Table, keep, together

import dbern

pytestmark = pytest.mark.slow
ROWS, REPEATS = (10_000_000, 3) if BENCH else (20_000, 1)
MOST = 1.3
AXES = {"one axis": {"x": [0.0, 1.0]}, "two axes": {"x": [0.0, 1.0], "y": [0.0, 1.0]}}


def test_frame_speed(tmp_path):
    polars = pytest.importorskip("polars")
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({name: draw.random(ROWS) for name in "xyz"})
    file = str(tmp_path / "rows.parquet")
    frame.to_parquet(file, row_group_size=1 << 17)
    ledger, numbers = f"sqlite:///{tmp_path}/ledger.db", itertools.count()
    dbern.BudgetLedger.create(ledger)
    with dbern.BudgetLedger.open(ledger) as opened:
        opened.grant("rows", dbern.Budget.parse("1000"))

    def release(bounds, data=None):
        name = f"release-{next(numbers)}"
        spec = dbern.ReleaseSpec(
            release={"name": name, "output": f"{tmp_path}/{name}.zarr"},
            data={"bounds": bounds, "source": file if data is None else None},
            target={"kind": "kernel-density", "bandwidth": [0.1] * len(bounds)},
            mechanism={"k": 20, "h": 4},
            budget={"epsilon": "1", "dataset": "rows", "ledger": ledger},
        )
        dbern.release(spec, data=data)

    given = {"file": None, "pandas": frame, "polars": polars.from_pandas(frame)}
    found = {}
    for name, bounds in AXES.items():
        spent = together(*(partial(release, bounds, one) for one in given.values()),
                         repeats=REPEATS)  # fmt: skip
        found[name] = dict(zip(given, spent, strict=True))
        found[f"{name}, share"] = {one: s / spent[0] for one, s in found[name].items()}
    keep("frames", Table.of("seconds", found))
    if BENCH:
        assert max(max(found[f"{name}, share"].values()) for name in AXES) <= MOST
