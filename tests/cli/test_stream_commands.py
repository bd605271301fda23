"""Commands on a stream: what is refused says why, is charged nothing and loses nothing."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pyarrow.parquet as pq
import pytest
from nights import Nights, sections
from projects import objects

from dbern.ledger.tables import metadata


@pytest.fixture
def folder(tmp_path):
    """A folder beside the project whose commands `run` runs."""
    (tmp_path / "nights").mkdir()
    return tmp_path / "nights"


@pytest.fixture
def nights(folder) -> Nights:
    """Three nights' files, a grant and a spec; two of the nights are released."""
    stream = Nights(folder)
    stream.grant()
    stream.fill(3)
    write_spec(stream)
    for night in range(2):
        stream.release(night)
    return stream


def write_spec(nights, **changes):
    lines = []
    for name, keys in sections(**changes).items():
        bounds = keys.pop("bounds", None)
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
        lines += ["[data.bounds]", f"x = {bounds['x']}"] if bounds else []
    (nights.folder / "stream.toml").write_text("\n".join(lines))


@pytest.fixture
def refused(run):
    """Release a night by the command; see it refused, and that nothing is charged or lost."""

    def release(stream, night, code, *says):
        before = stream.states(), stream.spent(), objects(stream.output)
        words = ["--partition", night] if night else []
        run("release", "stream.toml", *words, project=stream).refused(code, *says)
        after = stream.states(), stream.spent(), objects(stream.output)
        assert after == before

    return release


@pytest.mark.sample(test=1)
@pytest.mark.parametrize(
    ("night", "changes", "code", "says"),
    [
        ("2026-01-09", {}, 2, "is outside the horizon, 2026-01-01 to 2026-01-08. Name one of its"),
        ("2025-12-31", {}, 2, "is outside the horizon, 2026-01-01 to 2026-01-08"),
        ("2999-01-01", {}, 2, "--partition: 2999-01-01 is in the future; today is"),
        ("monday", {}, 2, "monday: is no date. Write one such as"),
        (None, {}, 2, "released night by night. Write --partition"),
        ("2026-01-04", {}, 2, "no Parquet file"),
        ("2026-01-03", {"stream": {"horizon": 9}}, 2, "stream.horizon"),
        ("2026-01-03", {"data": {"bounds": {"x": [0.0, 20.0]}}}, 2, "another release (data.bounds"),
        ("2026-01-03", {"budget": {"epsilon": "0.5"}}, 2, "another release (budget.epsilon"),
        ("2026-01-03", {"release": {"name": "others"}}, 3, "cannot pay"),
    ],
)
def test_nights_and_specs_that_are_not_the_streams(nights, refused, night, changes, code, says):
    write_spec(nights, **changes)
    refused(nights, night, code, says)


@pytest.mark.parametrize(("period", "horizon"), [("week", 8), ("day", 2), ("year", 8)])
def test_a_horizon_that_is_longer_than_the_accounts_period(folder, refused, period, horizon):
    stream = Nights(folder)
    stream.grant(period=period)
    stream.fill(1)
    write_spec(stream, stream={"horizon": horizon, "levels": [1]})
    refused(stream, "2026-01-01", 3, f"whole again every {period}", "Grant another dataset")
    assert stream.states() == {}


@pytest.mark.slow
def test_a_night_that_comes_twice_is_done_already(nights, run):
    before = nights.states(), nights.spent(), objects(nights.output)
    ran = run("release", "stream.toml", "--partition", "2026-01-02", project=nights)
    assert ran.code == 0
    assert "2026-01-02 is published" in ran.out
    assert (nights.states(), nights.spent(), objects(nights.output)) == before


@pytest.mark.slow
def test_a_night_that_never_comes_is_a_file_without_rows(nights, run):
    """Nothing was begun that could be abandoned; its block and its totals wait for it."""
    missing, last = (nights.folder / "data" / f"2026-01-0{day}" / "a.parquet" for day in (3, 2))
    missing.unlink()
    name = ("--dataset", "trips", "--name", "trips.2026-01-03")
    run("ledger", "abandon", "--ledger", nights.url, *name).refused(2, "has no release")
    run("ask", "out/trips@2026-01-03", "--mass", "x=2..7", project=nights).refused(
        2, "2026-01-03 of the window is not published"
    )
    pq.write_table(pq.read_table(last).slice(0, 0), missing)  # as the runbook says
    ran = run("release", "stream.toml", "--partition", "2026-01-03", project=nights)
    assert ran.code == 0
    assert "2026-01-01.3-nights is published" in ran.out
    assert run("ask", "out/trips@2026-01-03", "--mass", "x=2..7", project=nights).code == 0
    assert nights.spent() == "epsilon 1"


@pytest.mark.slow
def test_a_plan_says_when_the_horizon_ends(nights, run):
    out = run("plan", "stream.toml", "--details", project=nights).out
    assert "its first night is the one that is released first; a later night is another" in out
    write_spec(nights, stream={"first": "2026-01-01"})
    out = run("plan", "stream.toml", "--details", project=nights).out
    assert "its nights are 2026-01-01 to 2026-01-08; a later night is another stream's" in out
    told = run("plan", "stream.toml", "--json", project=nights).json
    assert (told["first"], told["last"], told["horizon"]) == ("2026-01-01", "2026-01-08", 8)


@pytest.mark.slow
def test_a_run_says_that_its_nights_were_paid_once(nights, run):
    ran = run("release", "stream.toml", "--partition", "2026-01-03", project=nights)
    assert ran.out.startswith("2026-01-03 is published; 2026-01-01.3-nights is published; ")
    assert ran.out.endswith("out/trips: its 8 nights were paid once: epsilon 1\n")
    for place in ("out/trips", "out/trips@2026-01-02", "out/trips/2026-01-01.zarr"):
        said = " ".join(run("show", place, project=nights).out.split())
        assert "part of trips, whose 8 nights were paid once: the guarantee is of all" in said


COLUMNS = {
    f"{table}.{column.name}" for table in metadata.tables.values() for column in table.columns
}
KEYS = {"meta.key", "grants.id", "audit.id", "datasets.name"}  # and what is unique
KEYS |= {f"releases.{name}" for name in ("id", "release_id", "dataset", "name")}
WRONG = ("'x'", "x'ff'", "NULL", "-1", "'{}'", "'[]'", "9e999", "'1e-400000000'")


@pytest.mark.slow
@pytest.mark.sample(verify=4)
@pytest.mark.parametrize("column", sorted(COLUMNS - KEYS))
def test_no_command_ends_a_stream_s_damaged_ledger_with_a_traceback(nights, run, column):
    """Whatever a column holds, each command says so in a sentence, or does its work without it."""
    ledger, tried = ("--ledger", "sqlite:///ledger.db"), 0
    for value in WRONG:
        if not damaged(nights.folder / "ledger.db", column, value):
            continue
        tried += 1
        for words in (
            ("ledger", "status", *ledger, "--log"), ("metrics", *ledger), ("doctor", *ledger),
            ("report", *ledger), ("ledger", "reconcile", *ledger, "--dataset", "trips", "out"),
            ("ledger", "abandon", *ledger, "--dataset", "trips", "--name", "trips/2026-01-02"),
            ("release", "stream.toml", "--partition", "2026-01-03"),
            ("catch-up", "stream.toml", "--every", "day", "--last", "2", "--today", "2026-01-03"),
        ):  # fmt: skip
            ran = run(*words, project=nights)
            assert ran.code in (0, 1, 2, 3, 4, 5), (value, ran)
            assert "internal error" not in ran.out + ran.err, (value, ran)
            assert "database is locked" not in ran.out + ran.err, (value, ran)
    assert tried > 2


def damaged(path, column, value) -> bool:
    """Write a value into all rows of a column, or do not where SQLite itself refuses it."""
    table, name = column.split(".")
    with closing(sqlite3.connect(path)) as connection:
        for (trigger,) in connection.execute("select name from sqlite_master where type='trigger'"):
            connection.execute(f"drop trigger {trigger}")
        connection.execute("pragma ignore_check_constraints = on")
        try:
            connection.execute(f"update {table} set {name} = {value}")
        except sqlite3.IntegrityError:
            return False
        connection.commit()
    return True
