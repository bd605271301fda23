"""Files of answers with the ends of intervals, and why some have none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dbern

pytestmark = pytest.mark.slow

HOURS = [2.0, 5.0, 9.0, 9.5, 12.0, None]
RESPONSE = {"column": "minutes", "bounds": [0.0, 100.0]}
EMPTY = "no rows here, or so few that noise hides them"
OUTSIDE = "out of bounds, or a coordinate is missing"


@pytest.fixture
def released(project):
    """A release of rides of which none is after six, and its queries."""

    def release(kind="nadaraya-watson", **changes):
        generator = np.random.default_rng(2)
        hour = generator.uniform(0, 6, 3000)
        columns = {
            "x": hour, "minutes": 10 * hour + generator.normal(0, 2, 3000),
            "place": generator.choice(["a", "b"], 3000),
        }  # fmt: skip
        project.write(columns)
        project.grant("50")
        spec = project.spec(
            data__bounds={"x": [0.0, 10.0], "y": None}, target={"kind": kind, "bandwidth": [0.5]},
            mechanism={"k": None, "h": None, "noise": None}, budget={"epsilon": "20"}, **changes,
        )  # fmt: skip
        synopsis = dbern.release(spec).synopsis
        pq.write_table(pa.table({"x": HOURS}), project.folder / "asked.parquet")
        return synopsis

    return release


def answered(run, project, *options):
    ran = run("query", "out.zarr", "asked.parquet", "--out", "a.parquet", *options)
    assert ran.code == 0, ran.err
    table = pd.read_parquet(project.folder / "a.parquet")
    (project.folder / "a.parquet").unlink()
    return ran, table.drop(columns="x")


def test_a_query_has_no_value_where_no_rows_are_and_counts_why(released, run, project):
    synopsis = released(data__response=RESPONSE)
    ran, found = answered(run, project)
    assert ran.out.splitlines() == [
        "answered 6 rows in a.parquet",
        f"4 of 6 points have no answer: 2 {EMPTY}; 2 {OUTSIDE}",
    ]
    points = np.array([np.nan if hour is None else hour for hour in HOURS])
    np.testing.assert_array_equal(found["value"], synopsis.predict(points))
    assert np.isfinite(synopsis(points)[:4]).all()
    assert found["value"].notna().tolist() == [True, True, False, False, False, False]
    ran, ends = answered(run, project, "--interval", "--json")
    assert (ran.json["rows"], ran.json["empty"], ran.json["outside"]) == (6, 2, 2)
    assert list(ends) == ["value", "low", "high"]
    np.testing.assert_array_equal(ends["value"], found["value"])
    for name, column in zip(("low", "high"), synopsis.interval(points), strict=True):
        np.testing.assert_array_equal(ends[name], column)
    pq.write_table(pa.table({"x": HOURS[:4]}), project.folder / "asked.parquet")
    assert answered(run, project)[0].out.endswith(f"2 of 4 points have no answer: {EMPTY}\n")
    pq.write_table(pa.table({"x": HOURS[:2]}), project.folder / "asked.parquet")
    assert answered(run, project)[0].out == "answered 2 rows in a.parquet\n"


def test_each_group_has_ends_of_its_own(released, run, project):
    group = {"column": "place", "values": ["a", "b"]}
    synopsis = released(data__response=RESPONSE, data__group=group)
    ran, found = answered(run, project, "--interval")
    assert f"2 {EMPTY}; 2 {OUTSIDE}" in ran.out
    assert list(found) == ["value_a", "low_a", "high_a", "value_b", "low_b", "high_b"]
    points = np.array([2.0, 5.0])
    low, high = synopsis.interval(points)
    for i, name in enumerate("ab"):
        expected = np.stack([synopsis(points)[:, i], low[:, i], high[:, i]], axis=1)
        columns = [f"{end}_{name}" for end in ("value", "low", "high")]
        np.testing.assert_allclose(found[columns][:2], expected, rtol=1e-12)


def test_a_density_has_ends_wherever_it_is_asked(released, run, project):
    synopsis = released("kernel-density")
    ran, found = answered(run, project, "--interval", "--shape", "nonnegative")
    assert ran.out.splitlines()[1] == f"2 of 6 points have no answer: {OUTSIDE}"
    shaped = synopsis.shaped("nonnegative")
    low, high = shaped.interval(np.array(HOURS[:4]))
    np.testing.assert_array_equal(found["low"][:4], low)
    np.testing.assert_array_equal(found["high"][:4], high)
    assert (low == 0).any()
    run(
        "query", "out.zarr", "asked.parquet", "--out", "a.parquet", "--interval", "--probabilities"
    ).refused(2, "--interval: is of values. Leave out --probabilities")
