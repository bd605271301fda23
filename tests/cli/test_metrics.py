"""``dbern metrics``: what dashboards and alerts read."""

from __future__ import annotations

import itertools
import os
import re
import stat
from datetime import UTC, date, datetime

import pytest

from dbern.cli.metrics import _HELP, Sample, Schedule, _exposition, samples
from dbern.ledger import Request
from dbern.privacy.budget import Budget
from deploy import certificates

URL = "sqlite:///ledger.db"
METRICS = ("metrics", "--ledger", URL)
_LINE = re.compile(r'(\w+)(?:\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)')


def parsed(text):
    """Every sample of the text format, after its HELP and its TYPE."""
    found, told = {}, {}
    for line in text.splitlines():
        if line.startswith("# "):
            _, what, name, said = line.split(" ", 3)
            assert name not in told.setdefault(what, {}), line
            told[what][name] = said
            continue
        name, labels, value = _LINE.fullmatch(line).groups()
        assert told["TYPE"][name] == "gauge"
        assert told["HELP"][name]
        key = (name.removeprefix("dbern_"), *sorted(re.findall(r'"([^"]*)"', labels or "")))
        assert key not in found, line
        found[key] = float(value)
    return found


def commit(ledger, charge):
    held = ledger.begin_reading(ledger.reserve(charge))
    held = ledger.spend(held, ledger.staging(held).seal())
    ledger.commit(held, "sha256:0")


@pytest.fixture
def spent(project, monkeypatch):
    """One publication, one charge of another tool, one release under way, one refunded."""
    minutes = itertools.count()
    monkeypatch.setattr(
        "dbern.ledger.tables.now", lambda: f"2026-11-20T12:{next(minutes):02}:00+00:00"
    )
    with project.ledger() as ledger:
        commit(ledger, Request("trips", "density", Budget.parse("1"), output="out.zarr"))
        ledger.charge(Request("trips", "table", Budget.parse("0.5")), "by opendp")
        ledger.reserve(Request("trips", "refunded", Budget.parse("0.3")))
        ledger.abandon("trips", "refunded")
        ledger.reserve(Request("trips", "night", Budget.parse("0.25")))
    return project


def test_a_collector_reads_budgets_states_times_and_certificates(spent, run):
    certificates.make_authority(spent.folder / "authority")
    umask = os.umask(0o077)
    try:
        file = "authority/ca.pem"
        ran = run(*METRICS, "--certificate", file, "--textfile", "dbern.prom")
    finally:
        os.umask(umask)
    assert (ran.code, ran.out) == (0, "wrote dbern.prom\n")
    written = spent.folder / "dbern.prom"
    assert stat.S_IMODE(written.stat().st_mode) == 0o644
    found = parsed(written.read_text())
    assert found["budget_granted", "epsilon", "trips"] == 3
    assert found["budget_remaining", "epsilon", "trips"] == 1.25
    assert found["budget_remaining_ratio", "trips"] == pytest.approx(1.25 / 3)
    states = {
        "reserved": 1,
        "reading": 0,
        "spent": 0,
        "committed": 2,
        "abandoned": 0,
        "refunded": 1,
    }
    for state, count in states.items():
        assert found["releases", *sorted((state, "trips"))] == count, state
    with spent.ledger() as ledger:
        rows = {row.name: row for row in ledger.status("trips")[0].releases}
    for name, row in (("newest_publication", "density"), ("oldest_unfinished", "night")):
        at = datetime.fromisoformat(rows[row].created).timestamp()
        assert found[f"{name}_timestamp_seconds", "trips"] == at
    assert found["ledger_reconciliation_pending",] == found["ledger_leftover_staging",] == 0
    ends = found["certificate_end_timestamp_seconds", file]
    assert 3640 < (ends - datetime.now(UTC).timestamp()) / 86400 < 3660
    printed = {key: value for key, value in parsed(run(*METRICS).out).items() if "info" not in key}
    del printed["measured_timestamp_seconds",]
    assert printed.items() <= found.items()
    assert run(*METRICS, "--json").json["metrics"][0]["name"] == "info"


def test_a_ledger_without_anything_is_measured_and_one_in_trouble_says_so(project, run):
    found = parsed(run(*METRICS).out)
    assert ("newest_publication_timestamp_seconds", "trips") not in found
    (project.folder / "ledger.db.staging" / ("0" * 32)).mkdir(parents=True)
    assert run("ledger", "reconcile", *METRICS[1:], "--restored").code == 0
    (project.folder / "ledger.db.staging" / ("0" * 32)).mkdir(parents=True)  # opening removed it
    found = parsed(run(*METRICS).out)
    assert found["ledger_reconciliation_pending",] == found["ledger_leftover_staging",] == 1


def test_nights_that_are_not_published_are_counted(project):
    project.spec(
        release={"name": "trips-{partition}", "output": "{partition}.zarr"},
        data={"source": "{partition}.parquet"},
    )
    with project.ledger() as ledger:
        for day in (10, 17):
            commit(ledger, Request("trips", f"trips-2026-11-{day}", Budget.parse("0.1")))
        ledger.reserve(Request("trips", "trips-2026-11-18", Budget.parse("0.1")))
    for last, missing in ((3, 2), (10, 8)):
        schedule = Schedule(str(project.spec_path), "day", last)
        every = list(samples(project.url, [schedule], [], date(2026, 11, 20)))
        values = {one.name: one.value for one in every if "spec" in one.labels}
        assert values == {"partitions_due": last, "partitions_missing": missing}


def test_nights_of_a_stream_are_counted_from_its_first_until_it_is_renewed(project):
    """An abandoned one stays empty; those after the horizon are missed until somebody acts."""
    project.spec(
        release={"name": "year", "output": "year"},
        data={
            "source": "{partition}.parquet",
            "neighbors": "add-or-remove-one",
            "normalizer": "100",
        },
        stream={"every": "day", "horizon": 5, "first": "2026-11-16"},
    )
    with project.ledger() as ledger:
        for day in (16, 17, 18, 20):
            commit(ledger, Request("trips", f"year.2026-11-{day}", Budget.parse("0.1")))
        reserved = ledger.reserve(Request("trips", "year.2026-11-19", Budget.parse("0.1")))
        ledger.begin_reading(reserved)
        ledger.abandon("trips", "year.2026-11-19")
    schedule = Schedule(str(project.spec_path), "day", 7)
    for today, due, missing in ((19, 3, 0), (21, 5, 0), (22, 6, 1), (24, 7, 3)):
        every = list(samples(project.url, [schedule], [], date(2026, 11, today)))
        values = {one.name: one.value for one in every if "spec" in one.labels}
        assert values == {"partitions_due": due, "partitions_missing": missing}, today


def test_no_public_metric_is_a_duration(spent, run):
    """What a stage took is in the private run record; times are those of reservations."""
    assert {name for name in _HELP if name.endswith("seconds")} - {"stage_seconds"} == {
        name for name in _HELP if name.endswith("_timestamp_seconds")
    }
    runs = spent.folder / "ledger.db.runs"
    runs.mkdir(exist_ok=True)
    for name in ("a", "b"):
        (runs / f"{name * 32}.jsonl").write_text('{"stage": "counting", "seconds": 4321.5}\n')
    assert "4321" not in run(*METRICS).out


def test_what_cannot_be_measured_is_told(project, run):
    for words in (("--due", "release.toml"), ("--due", "release.toml:hour:7"),
                  ("--due", "release.toml:day:0"), ("--due", "none.toml:day:7"),
                  ("--due", "release.toml:day:7")):  # fmt: skip
        run(*METRICS, *words).refused(2)
    run(*METRICS, "--certificate", "none.pem").refused(4, "--certificate")
    run(*METRICS, "--textfile", "none/dbern.prom").refused(4)
    run("metrics", "--ledger", "sqlite:///none.db").refused(4)


def test_durations_are_told_where_they_are_asked_for_and_to_the_owner_alone(spent, run):
    with spent.ledger() as ledger:
        (status,) = ledger.status()
        (density,) = [one for one in status.releases if one.name == "density"]
        for seconds in (1.5, 0.25):
            ledger.run_record(density.release_id).add(event="done", stage="count", seconds=seconds)
    assert "stage_seconds" not in run(*METRICS).out
    written = spent.folder / "private.prom"
    assert run(*METRICS, "--private", "--textfile", "private.prom").code == 0
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    found = parsed(written.read_text())
    assert found["stage_seconds", "count", "density", "trips"] == 1.75


def test_a_label_is_escaped():
    assert _exposition([Sample("info", 1, {"version": 'a"b'})]) == (
        "# HELP dbern_info The version that measured this.\n"
        "# TYPE dbern_info gauge\n"
        'dbern_info{version="a\\"b"} 1.0\n'
    )
