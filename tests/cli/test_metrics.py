"""``dbern metrics``: what dashboards and alerts read."""

from __future__ import annotations

import itertools
import os
import re
import socket
import stat
import struct
import threading
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, date, datetime
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from dbern.cli.metrics import _HELP, Sample, Schedule, _exposition, _server_of, samples
from dbern.ledger import Request as Charge
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
        "dbern.ledger.statements.now", lambda: f"2026-11-20T12:{next(minutes):02}:00+00:00"
    )
    with project.ledger() as ledger:
        commit(ledger, Charge("trips", "density", Budget.parse("1"), output="out.zarr"))
        ledger.charge(Charge("trips", "table", Budget.parse("0.5")), "by opendp")
        ledger.reserve(Charge("trips", "refunded", Budget.parse("0.3")))
        ledger.abandon("trips", "refunded")
        ledger.reserve(Charge("trips", "night", Budget.parse("0.25")))
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
            commit(ledger, Charge("trips", f"trips-2026-11-{day}", Budget.parse("0.1")))
        ledger.reserve(Charge("trips", "trips-2026-11-18", Budget.parse("0.1")))
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
            commit(ledger, Charge("trips", f"year.2026-11-{day}", Budget.parse("0.1")))
        reserved = ledger.reserve(Charge("trips", "year.2026-11-19", Budget.parse("0.1")))
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


@contextmanager
def serving(measure):
    """The port of a server of samples."""
    with _server_of(("127.0.0.1", 0), measure) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


def test_the_endpoint_answers_while_the_ledger_is_there(spent):
    with serving(lambda: list(samples(spent.url, [], []))) as port:
        where = f"http://127.0.0.1:{port}"
        with urlopen(f"{where}/metrics", timeout=30) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert parsed(answer.read().decode())["budget_granted", "epsilon", "trips"] == 3
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{where}/", timeout=30)
        spent.ledger_path.rename(spent.folder / "elsewhere.db")
        with pytest.raises(HTTPError, match="503"):
            urlopen(f"{where}/metrics", timeout=30)


@pytest.fixture
def served(monkeypatch):
    """The port of a server of one number."""
    monkeypatch.setattr("dbern.cli.metrics._SECONDS", 1.0)
    with serving(lambda: [Sample("info", 1.0, {})]) as port:
        yield port


def scrape(port):
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return answer.read()


def ended(connection):
    """Wait until the other side has ended a connection, and return what it sent."""
    connection.settimeout(30)
    try:
        return b"".join(iter(lambda: connection.recv(4096), b""))
    except ConnectionError:
        return b""


@pytest.mark.slow
def test_idle_connections_delay_no_scrape_and_are_cut(served):
    idle = [socket.create_connection(("127.0.0.1", served)) for _ in range(60)]
    assert b"dbern_info 1.0" in scrape(served)
    assert [ended(one) for one in idle] == [b""] * 60


@pytest.mark.slow
def test_a_request_that_trickles_in_is_cut_at_its_deadline(served):
    with socket.create_connection(("127.0.0.1", served)) as slow:
        slow.settimeout(0.2)
        sent = 0
        with suppress(ConnectionError):
            while sent < 100:  # a letter each fifth of a second: 20 s in all
                sent += 1
                slow.sendall(b"G")
                with suppress(TimeoutError):
                    if slow.recv(1) == b"":
                        break
    assert sent < 50


def test_a_reset_is_no_event(served, capfd):
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", served)) as one:
            one.sendall(b"GET /met")
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert scrape(served)
    assert capfd.readouterr().err == ""


@pytest.mark.sample(test=1)
@pytest.mark.parametrize(
    ("host", "code"),
    [("localhost:9464", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("10.1.2.3:9464", 200),
     ("rebound.example:9464", 421), ("localhost.example", 421), ("", 421)],
)  # fmt: skip
def test_a_page_of_somewhere_else_is_not_answered(served, host, code):
    request = Request(f"http://127.0.0.1:{served}/metrics", headers={"Host": host})
    refused = pytest.raises(HTTPError, match=str(code)) if code != 200 else nullcontext()
    with refused, urlopen(request, timeout=30) as answer:
        assert answer.status == code


def test_what_cannot_be_measured_is_told(project, run):
    for words in (("--due", "release.toml"), ("--due", "release.toml:hour:7"),
                  ("--due", "release.toml:day:0"), ("--due", "none.toml:day:7"),
                  ("--due", "release.toml:day:7"), ("--listen", "http"),
                  ("--listen", "70000")):  # fmt: skip
        run(*METRICS, *words).refused(2)
    run(*METRICS, "--certificate", "none.pem").refused(4, "--certificate")
    run(*METRICS, "--textfile", "none/dbern.prom").refused(4)
    run("metrics", "--ledger", "sqlite:///none.db").refused(4)
    with _server_of(("127.0.0.1", 0), list) as server:
        run(*METRICS, "--listen", str(server.server_port)).refused(4, "--listen")


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
    assert run(*METRICS, "--private", "--listen", "0").code == 2


def test_a_label_is_escaped():
    assert _exposition([Sample("info", 1, {"version": 'a"b'})]) == (
        "# HELP dbern_info The version that measured this.\n"
        "# TYPE dbern_info gauge\n"
        'dbern_info{version="a\\"b"} 1.0\n'
    )
