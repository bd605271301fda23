"""Two hundred thousand real flights: the whole way through the command line, against the truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

FLIGHTS = Path(__file__).resolve().parents[2] / "shared" / "data" / "flights.parquet"
BANDWIDTH = {"time": 1.5, "delay": 15.0}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FLIGHTS.exists(), reason=f"{FLIGHTS} is not there"),
]


def direct(times, delays):
    """The density from its definition on a product grid, every flight a Gaussian bump."""
    table = pq.read_table(FLIGHTS)
    time, delay = (table[name].to_numpy().astype(float) for name in BANDWIDTH)
    kept = (time >= 0) & (time <= 24) & (delay >= -60) & (delay <= 180)
    bumps = [
        np.exp(-0.5 * ((grid[:, None] - column[kept]) / width) ** 2) / width
        for grid, column, width in zip(
            (times, delays), (time, delay), BANDWIDTH.values(), strict=True
        )
    ]
    return bumps[0] @ bumps[1].T / (2 * np.pi * len(table)), int((~kept).sum())


def test_the_density_of_delays_over_the_day(project, run):
    project.spec(
        release={"name": "delays", "output": "delays.zarr"},
        data={"source": str(FLIGHTS)},
        data__bounds={"x": None, "y": None, "time": [0.0, 24.0], "delay": [-60.0, 180.0]},
        target={"bandwidth": list(BANDWIDTH.values())},
        mechanism={"k": 40, "h": 12},
    )
    planned = run("plan", "release.toml", "--json")
    assert planned.code == 0, planned.err
    certificate = planned.json["certificate"]
    assert planned.json["n"] == 200_000
    assert run("release", "release.toml", "--quiet").code == 0
    assert run("verify", "delays.zarr").code == 0
    times, delays = np.linspace(0, 24, 25), np.linspace(-60, 180, 33)
    truth, dropped = direct(times, delays)
    assert dropped > 0, "some flights lie outside: they count in n and nowhere else"
    mesh = np.meshgrid(times, delays, indexing="ij")
    queries = project.folder / "queries.parquet"
    columns = {"delay": mesh[1].ravel(), "time": mesh[0].ravel()}
    pq.write_table(pa.table(columns), queries)
    assert run("query", "delays.zarr", queries, "--out", "answers.parquet").code == 0
    answers = pq.read_table(project.folder / "answers.parquet")["value"].to_numpy()
    error = np.abs(answers.reshape(truth.shape) - truth).max()
    assert error <= certificate["total"]
    # The certificate is for the worst database: on this one the error is a fraction of the peak.
    assert error < 0.25 * truth.max()
    assert project.spent() == "epsilon 1, epsilon 0 reserved"
    shown = run("show", "delays.zarr", "--details")
    assert "time in [0, 24]; delay in [-60, 180]" in shown.out
