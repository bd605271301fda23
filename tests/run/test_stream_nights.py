"""Streams: one charge for all nights, whatever comes late, twice, never, or is killed."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import traceback
from datetime import UTC, datetime, timedelta
from itertools import combinations_with_replacement, product
from pathlib import Path
from pkgutil import resolve_name
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from nights import COUNTED, FIRST, PEOPLE, RESERVED, SEALED, Nights, fixed, spec_of
from projects import objects
from scipy.optimize import brentq
from scipy.special import ndtr

import dbern
from dbern.cli.metrics import _account
from dbern.errors import BudgetError, IntegrityError, InternalError, ReleaseError, SpecError
from dbern.ledger import BudgetLedger, accounts
from dbern.nights import frozen_files
from dbern.nights.forecast import plan_stream
from dbern.nights.horizon import Node, StreamNode
from dbern.nights.night import stream_request
from dbern.nights.section import horizon_of
from dbern.planning.planner import plan_files
from dbern.privacy.budget import Budget, Neighbors
from dbern.run.reconcile import reconcile
from dbern.run.stages import abandon
from dbern.testing import integers_of_each

ALL = os.environ.get("DBERN_FAULTS") == "all"


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    stream = Nights(tmp_path)
    stream.grant()
    stream.fill(8)
    return stream


def published(stream: Nights) -> list[str]:
    return sorted(path.name.removesuffix(".zarr") for path in stream.output.glob("*.zarr"))


BLOCK = "2026-01-01.3-nights"


@pytest.mark.slow
def test_a_block_is_released_by_the_night_that_closes_it(nights):
    for night in range(8):
        out = nights.release(night)
        assert str(out.charge) == "epsilon 1"
    assert out.notes == ("2026-01-08 is published", "2026-01-07.3-nights is published")
    days = [f"2026-01-0{day}" for day in range(1, 9)]
    assert published(nights) == sorted([*days, *(f"2026-01-0{day}.3-nights" for day in (1, 4, 7))])
    assert nights.spent() == "epsilon 1"
    assert set(nights.states().values()) == {"committed"}
    assert not list(nights.folder.glob("ledger.db*keys*/*")), "every key is gone"


def test_a_later_night_than_the_first_is_released_and_says_so(nights):
    """Its stream has no total yet, of which a command could tell the guarantee."""
    out = nights.release(2, stream={"first": FIRST})
    assert str(out.guarantee) == "epsilon 1"
    assert out.notes == ("2026-01-03 is published",)
    with pytest.raises(SpecError, match="2026-01-01 is not published yet"):
        dbern.open(out.url)


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("order", [(2, 0, 1), (0, 2, 1), (0, 1, 1, 2)])
def test_nights_come_in_any_order_and_again(nights, order):
    first = min(order[:1])
    if first:  # the first to come begins the horizon: what is before it is outside
        nights.release(order[0])
        with pytest.raises(SpecError, match="outside the horizon, 2026-01-03"):
            nights.release(0)
        return
    for night in order:
        nights.release(night)
    assert BLOCK in published(nights)
    assert nights.spent() == "epsilon 1"


@pytest.mark.slow
def test_an_abandoned_night_stays_empty_and_its_block_counts_the_others(nights):
    nights.release(0)
    nights.interrupt(1, SEALED)
    with nights.ledger() as ledger:
        abandon(ledger, "trips", "trips.2026-01-02")
    assert nights.release(1).notes == ("2026-01-02 was abandoned: it stays empty",)
    nights.release(2)
    root = json.loads((nights.output / f"{BLOCK}.zarr" / "zarr.json").read_text())
    assert root["attributes"]["stream"]["without"] == [1]
    assert json.loads((nights.output / "stream.json").read_text())["abandoned"] == [1]
    assert nights.spent() == "epsilon 1"
    window = dbern.open_stream(nights.output).at("2026-01-03")
    assert window.metadata["target"]["normalizer"] == 200  # of the two nights that have rows
    assert window.metadata["description"] == "without 1 night, abandoned"


@pytest.mark.slow
def test_a_block_of_abandoned_nights_alone_is_not_released(nights):
    for night in range(3):
        nights.interrupt(night, SEALED)
        with nights.ledger() as ledger:
            abandon(ledger, "trips", f"trips.2026-01-0{night + 1}")
    assert nights.release(2).notes == ("2026-01-03 was abandoned: it stays empty",)
    assert published(nights) == []


@pytest.mark.slow
def test_a_row_that_comes_late_is_in_no_closed_node(nights, monkeypatch):
    monkeypatch.setattr("dbern.run.publish.privatize", lambda center, *_rest: center)
    nights.release(0)
    nights.release(1)
    nights.write(0, [5.0] * 40, "late")
    nights.release(2)
    stores = [dbern.open(nights.output / f"{name}.zarr") for name in published(nights)]
    block, *alone = sorted(stores, key=lambda store: "nights" not in store.metadata["name"])
    total = sum(store.arrays[0].released for store in alone)
    grid_step = block.metadata["components"][0]["noise"]["granularity"]
    np.testing.assert_allclose(block.arrays[0].released, total, rtol=0, atol=2 * grid_step)


@pytest.mark.parametrize("place", ["footers", "stream_request", "release_night"])
def test_no_error_that_leaves_a_stream_holds_anothers_text(nights, monkeypatch, place):
    module = "run.stages" if place == "release_night" else "nights.night"
    error = type("private-1", (ValueError,), {})("private-1")
    monkeypatch.setattr(f"dbern.{module}.{place}", Mock(side_effect=error))
    with pytest.raises(InternalError, match=r"internal error: ValueError .its text is") as raised:
        nights.release(0)
    assert "private-" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("error", [OSError("private-1"), pa.ArrowInvalid("private-1")])
def test_a_file_of_a_night_that_cannot_be_read_is_told_by_its_name(nights, monkeypatch, error):
    monkeypatch.setattr("dbern.nights.frozen_files.open_source", Mock(side_effect=error))
    with pytest.raises(ReleaseError, match=r"^data\.source: .*a\.parquet cannot be read") as raised:
        nights.release(0)
    assert "private-" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.slow
def test_a_file_of_a_closed_night_that_changed_stops_the_block_and_nothing_is_lost(nights):
    nights.release(0)
    path = nights.write(0, [5.0] * 40, "b")  # not part of the night
    whole = (nights.folder / "data" / "2026-01-01" / "a.parquet").read_bytes()
    nights.release(1)
    nights.write(0, [5.0] * 50)
    says = r"a.parquet is not what it was when its night closed. Bring it back and run the same"
    with pytest.raises(IntegrityError, match=says):
        nights.release(2)
    assert published(nights) == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert nights.states()[f"trips.{BLOCK}"] == "reading"
    path.with_name("a.parquet").write_bytes(whole)
    nights.release(2)
    assert BLOCK in published(nights)
    assert nights.spent() == "epsilon 1"


@pytest.mark.slow
def test_a_block_waits_for_a_lost_file_and_is_released_without_its_night_once_it_is_abandoned(
    nights,
):
    """Other blocks go on meanwhile, and metrics see the one that waits."""
    nights.release(0)
    nights.release(1)
    path = nights.folder / "data" / "2026-01-02" / "a.parquet"
    path.rename(nights.folder / "aside")
    for night in range(2, 6):
        with pytest.raises(ReleaseError, match=rf"/a.parquet, of a night of block trips.{BLOCK}, "):
            nights.release(night)
    assert {BLOCK, "2026-01-04.3-nights"} & set(published(nights)) == {"2026-01-04.3-nights"}
    assert nights.states()[f"trips.{BLOCK}"] == "reserved"
    with nights.ledger() as ledger:
        names = [sample.name for sample in _account(ledger.status("trips")[0])]
        assert "oldest_unfinished_timestamp_seconds" in names
        assert abandon(ledger, "trips", f"trips.{BLOCK}").refunded
    nights.interrupt(5, RESERVED)
    (nights.folder / "aside").rename(path)  # too late: the block goes on as it was begun
    assert nights.release(5).notes[1:] == (f"{BLOCK} is published without 2026-01-02",)
    root = json.loads((nights.output / f"{BLOCK}.zarr" / "zarr.json").read_text())
    assert root["attributes"]["stream"]["without"] == [1]
    assert dbern.open_stream(nights.output).at("2026-01-06").metadata["target"]["normalizer"] == 600
    assert nights.spent() == "epsilon 1"


@pytest.mark.parametrize(
    ("key", "value", "sections"),
    [
        ("levels", [1, 2], {}),
        ("horizon", 9, {}),
        ("first", FIRST + timedelta(days=1), {}),
        ("max_nights", 4, PEOPLE),
        ("enforce", False, PEOPLE),
    ],
)
def test_a_night_of_another_stream_is_not_paid_by_its_charge(key, value, sections):
    """What one charge hides is so many nights of a person, in so many releases."""
    identities = []
    for changes in ({}, {key: value}):
        stream = {"first": FIRST, **sections.get("stream", {}), **changes}
        spec = spec_of(**{**sections, "stream": stream})
        horizon = horizon_of(spec.stream, spec.stream.first, spec.charge)
        node = StreamNode("trips", horizon, Node(0, 0, 1))
        identities.append(stream_request(spec.at(node), node).identity)
    assert set(accounts.changes(*identities)) - {"note"} == {f"stream.{key}"}


def test_a_digest_is_of_all_bytes_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(frozen_files, "_PART_BYTES", 8)
    path, digests = tmp_path / "a.parquet", set()
    for last in range(2):
        path.write_bytes(bytes(23) + bytes([last]))
        digests.add(frozen_files._digest(str(path), bytes(32)))
    assert len(digests) == 2


def test_the_future_and_missing_files_are_refused_before_the_charge(nights):
    tomorrow = (datetime.now(UTC).date() - FIRST + timedelta(days=1)).days
    with pytest.raises(SpecError, match="is in the future"):
        nights.release(tomorrow)
    with pytest.raises(SpecError, match="no Parquet file"):
        nights.release(20)
    assert nights.states() == {}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data": {"neighbors": None, "normalizer": None}}, "stream: sums of all nights"),
        ({"data": {"source": "data/*.parquet"}}, "data.source: of a stream says where"),
        ({"data": {"source": None}}, "data.source: of a stream says where"),
        ({"release": {"name": "a-{partition}"}}, "release.name"),
        ({"stream": {"levels": [1, 3, 4]}}, "blocks of 4 nights are none of 3"),
        ({"stream": {"max_nights": 2}}, "a row is in one night"),
        ({"stream": {"enforce": True}}, "a row is in one night"),
        ({"stream": {"every": "hour"}}, "stream.every"),
        ({"target": {"bandwidth": "auto"}}, "target.bandwidth: a stream needs numbers"),
        ({"mechanism": {"noise": "binned-k-norm"}}, "mechanism.noise"),
        ({"data": {"unit": {"column": "who", "max_contributions": 2}}}, r"Write levels = \[1\]"),
        (
            {
                "data": {
                    "neighbors": "replace-one",
                    "unit": {"column": "who", "max_contributions": 2},
                },
                "stream": {"levels": [1]},
            },
            "stream: sums of all nights",
        ),
    ],
)
def test_specs_that_do_not_add_up_are_refused(changes, says):
    with pytest.raises(SpecError, match=says):
        plan_stream(spec_of(**changes))


@pytest.mark.slow
def test_a_node_is_refused_whose_stream_was_not_charged(nights):
    spec = spec_of(nights.folder)
    horizon = horizon_of(spec.stream, FIRST, spec.charge)
    node = spec.at(StreamNode("trips", horizon, Node(0, 0, 1)))
    with pytest.raises(dbern.DbernError, match=r"(is|was) not charged"):
        dbern.release(node)
    assert nights.states() == {}
    nights.release(0)
    other = spec_of(nights.folder, budget={"epsilon": "2"})
    node = other.at(StreamNode("trips", horizon, Node(0, 1, 2)))
    with pytest.raises(SpecError, match="another release"):
        dbern.release(node)
    assert nights.spent() == "epsilon 1"


@pytest.mark.slow
def test_a_node_is_released_under_its_own_name_alone(nights):
    """Under another its rows would be told of twice."""
    nights.release(0)
    spec = spec_of(nights.folder)
    horizon = horizon_of(spec.stream, FIRST, spec.charge)
    sections = spec.at(StreamNode("trips", horizon, Node(0, 0, 1))).model_dump(exclude_none=True)
    sections["release"]["name"] = "trips.again"
    with pytest.raises(SpecError, match=r"is called trips.2026-01-01 and nothing else"):
        dbern.ReleaseSpec(**sections)


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("shared", ["hard link", "link", "linked folder", "moved", "source"])
def test_a_file_of_two_nights_is_refused_under_whatever_name(nights, shared):
    changes = {"data": {"source": "data/*{partition}*/*.parquet"}} if shared == "source" else {}
    nights.release(0, **changes)
    before = nights.states()
    first, second = (nights.folder / "data" / f"2026-01-0{day}" for day in (1, 2))
    match shared:
        case "hard link":
            (second / "b.parquet").hardlink_to(first / "a.parquet")
        case "link":
            (second / "b.parquet").symlink_to(first / "a.parquet")
        case "linked folder":
            (second / "a.parquet").unlink()
            second.rmdir()
            second.symlink_to(first, target_is_directory=True)
        case "moved":
            (first / "a.parquet").rename(second / "b.parquet")
        case "source":
            first.rename(second.with_name("2026-01-01 and 2026-01-02"))
    with pytest.raises(SpecError, match=r"\.parquet is a file of 2026-01-01 too"):
        nights.release(1, **changes)
    assert nights.states() == before


@pytest.mark.slow
def test_what_a_file_holds_refuses_no_night(nights):
    """Whoever places a guess of a night's file in another night learns nothing of it."""
    nights.release(0)
    folder, copied = nights.folder / "data", nights.folder / "data" / "2026-01-02" / "copy.parquet"
    copied.write_bytes((folder / "2026-01-01" / "a.parquet").read_bytes())
    assert nights.release(1).notes == ("2026-01-02 is published",)


@pytest.mark.slow
def test_what_is_brought_back_from_a_copy_is_the_file_that_was_reserved(nights):
    nights.interrupt(0, COUNTED)
    path = nights.folder / "data" / "2026-01-01" / "a.parquet"
    copied = path.read_bytes()
    path.rename(nights.folder / "aside")
    path.write_bytes(copied)
    assert nights.release(0).notes == ("2026-01-01 is published",)


@pytest.mark.slow
def test_two_nights_at_once_do_not_share_a_file(nights, monkeypatch):
    """Each finds the other's files again before it is sealed."""
    nights.release(0)
    shared = nights.write(1, [5.0] * 30, "shared")
    original = BudgetLedger.begin_reading

    def overtaken(ledger, reservation):
        if reservation.name.endswith("02"):
            linked = nights.folder / "data" / "2026-01-03" / "shared.parquet"
            linked.hardlink_to(shared)
            with monkeypatch.context() as undo:
                undo.setattr(
                    "dbern.nights.frozen_files._refuse_shared", lambda *_rest: None
                )  # before
                undo.setattr(BudgetLedger, "begin_reading", original)
                nights.release(2)
        return original(ledger, reservation)

    monkeypatch.setattr(BudgetLedger, "begin_reading", overtaken)
    with pytest.raises(SpecError, match=r"shared.parquet is a file of 2026-01-03 too"):
        nights.release(1)
    assert published(nights) == ["2026-01-01", "2026-01-03"]


GAUSSIAN = {
    "mechanism": {"noise": "binned-gaussian"},
    "budget": {"delta": "1e-6"},
    "stream": {"levels": [1, 2, 4]},
}


@pytest.mark.slow
@pytest.mark.parametrize(("changes", "places"), [({}, 1000), (GAUSSIAN, 500)], ids=["l1", "l2"])
def test_neighbours_lose_at_most_the_charge_over_all_nodes_that_hold_them(changes, places):
    """A row more or less in its night: 10 000 pairs; noise for one node alone would be found.

    Nodes have independent noise, so those of a pair are counted each by itself: a night with some
    rows, and blocks with those and more. A loss is over what the charge allows.
    """
    spec, random = spec_of(**changes), np.random.default_rng(3)
    horizon = horizon_of(spec.stream, FIRST, spec.charge)
    node = spec.at(StreamNode("trips", horizon, horizon.node(0, 0)))
    plan = plan_files(node, ())
    law, norm = plan.noise.law, 2 if spec.charge.delta else 1
    rows = [{"x": x} for x in [*random.uniform(0, 10, places - 100), *np.linspace(0, 10, 100)]]
    others = [{"x": x} for x in random.uniform(0, 10, 12)]
    moved = []  # in a node, by how many rows it has besides and the place of the one more
    for count in (0, 1, 3, 12):
        databases = [others[:count], *([*others[:count], row] for row in rows)]
        before, *after = (numbers[0] for numbers in integers_of_each(node, plan, databases))
        moved.append((np.abs(np.array(after) - before).astype(float) ** norm).sum(axis=1))
    nodes = combinations_with_replacement(moved, len(horizon.levels))
    distances = np.array([np.sum(levels, axis=0) for levels in nodes]) ** (1 / norm)
    assert distances.size == 10_000
    if norm == 1:
        losses = distances / law.scale / float(spec.charge.epsilon)
    else:
        losses = distances / law.sigma / _allowed_distance(spec.charge)
        assert (distances**2 / (2 * law.sigma**2)).max() <= plan.rho, "what the ledger has as rho"
    assert 0.9 < losses.max() <= 1.0
    assert len(horizon.levels) ** (1 / norm) * losses.max() > 1.0, (
        "noise for one node alone is found"
    )


def _allowed_distance(charge: Budget) -> float:
    """Distance of two normal laws, in deviations, with a charge's delta (Balle & Wang 2018)."""
    epsilon = float(charge.epsilon)

    def excess(distance: float) -> float:
        near, far = distance / 2 - epsilon / distance, -distance / 2 - epsilon / distance
        return ndtr(near) - math.exp(epsilon) * ndtr(far) - float(charge.delta)

    return brentq(excess, 0.01, 10)


@pytest.mark.slow
def test_a_ledger_put_back_before_the_stream_is_charged_for_it_once(nights):
    backup = (nights.folder / "ledger.db").read_bytes()
    for night in range(3):
        nights.release(night)
    (nights.folder / "ledger.db").write_bytes(backup)
    with nights.ledger() as ledger:
        ledger.declare_restored()
        with pytest.raises(BudgetError):
            nights.release(3)
        done = reconcile(ledger, [nights.folder / "out"])
    assert sorted(release.name for release in done.charged) == sorted(
        ["trips", *(f"trips.{name}" for name in published(nights))]
    )
    assert nights.spent() == "epsilon 1"
    with pytest.raises(SpecError, match="its spec is lost"):
        nights.release(3)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, PEOPLE], ids=["rows", "people"])
def test_a_ledger_that_forgot_the_files_of_a_night_counts_no_further_one(tmp_path, changes):
    """Any file could have been among them; what it knows is published as it was, blocks too."""
    nights = Nights(tmp_path, changes=changes)
    nights.grant()
    nights.fill(5)
    for night in (0, 2):
        nights.release(night)
    backup = (nights.folder / "ledger.db").read_bytes()
    nights.release(1)
    nights.put_back(backup)
    with pytest.raises(IntegrityError, match="forgot which files 2026-01-02 has"):
        nights.release(3)
    nights.release(0)
    assert "trips.2026-01-04" not in nights.states()
    assert nights.spent() == "epsilon 1"


@pytest.mark.slow
def test_a_block_leaves_out_the_night_that_the_ledger_forgot(nights):
    for night in (0, 2):
        nights.release(night)
    backup = (nights.folder / "ledger.db").read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dbern.nights.night.OVER", ())
        nights.release(1)
    nights.put_back(backup)
    nights.release(2)
    root = json.loads((nights.output / f"{BLOCK}.zarr" / "zarr.json").read_text())
    assert root["attributes"]["stream"]["without"] == [1]
    assert nights.spent() == "epsilon 1"


@pytest.mark.slow
def test_a_forgotten_night_that_was_released_again_is_known_under_its_other_name(tmp_path):
    """Reconciled last, it finds its name taken; its files are as unknown."""
    nights = Nights(tmp_path, changes={"stream": {"first": FIRST}})
    nights.grant()
    nights.fill(3)
    nights.release(2)
    backup = (nights.folder / "ledger.db").read_bytes()
    nights.release(0)
    nights.put_back(backup, "data")
    nights.release(0, release={"output": "moved/trips"})
    with nights.ledger() as ledger:
        reconcile(ledger, [nights.folder / "out"])
    assert sum(name.startswith("trips.2026-01-01~") for name in nights.states()) == 1
    with pytest.raises(IntegrityError, match="forgot which files 2026-01-01 has"):
        nights.release(1)


@pytest.mark.slow
def test_a_node_that_is_reconciled_is_not_released_again(nights):
    nights.release(0)
    nights.release(1)
    backup = (nights.folder / "ledger.db").read_bytes()
    nights.interrupt(2, RESERVED)
    reserved = (nights.folder / "ledger.db").read_bytes()
    with nights.ledger() as ledger:
        abandon(ledger, "trips", "trips.2026-01-03")  # refunded: nothing was read
    nights.release(2)
    assert backup != reserved
    nights.put_back(reserved)
    assert nights.states()["trips.2026-01-03"] == "committed"
    notes = nights.release(2, release={"output": "moved/trips"}).notes
    assert notes[0].startswith("2026-01-03 was published before the ledger was restored")
    assert not (nights.folder / "moved" / "trips" / "2026-01-03.zarr").exists()


@pytest.mark.slow
def test_two_first_nights_at_once_begin_one_stream(nights):
    """The second finds the first one's horizon when its own charge is refused."""
    original = BudgetLedger.charge

    def overtaken(ledger, request, **terms):
        with pytest.MonkeyPatch.context() as undo:
            undo.setattr(BudgetLedger, "charge", original)
            nights.release(0)
        return original(ledger, request, **terms)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BudgetLedger, "charge", overtaken)
        nights.release(1)
    assert published(nights) == ["2026-01-01", "2026-01-02"]
    assert nights.spent() == "epsilon 1"


def _killed(stream: Nights, night: int, at: int) -> int:
    """Release a night in a process that is killed at its at-th call of ours; return calls made."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        with os.fdopen(reader) as told:
            text = told.read()
        os.waitpid(child, 0)
        return int(text or 0)
    try:
        fixed(pytest.MonkeyPatch().setattr)
        calls = 0

        def count(frame, event, _argument):
            nonlocal calls
            if event == "call" and "/dbern/" in frame.f_code.co_filename:
                calls += 1
                if calls == at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(count)
        stream.release(night, stream={"horizon": 365, "levels": [1] if stream.changes else [1, 3]})
        sys.setprofile(None)
        os.write(writer, str(calls).encode())
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.sample(verify=1)
@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, PEOPLE], ids=["rows", "people"])
def test_kills_at_any_call_leave_one_charge_the_same_bytes_and_no_key(tmp_path, changes):
    """200 kills with DBERN_FAULTS=all, else 10, in the nights of a year; each until one lives."""
    wanted, kills, random = 200 if ALL else 10, 0, np.random.default_rng(11)
    whole, torn = (Nights(tmp_path / name, changes=changes) for name in ("whole", "torn"))
    for stream in (whole, torn):
        stream.folder.mkdir()
        stream.grant()
    for night in range(-365, 0):  # all of 2025
        if kills >= wanted and night % 3 == -365 % 3:  # the last block is closed
            break
        rows, who = random.uniform(0, 10, 50), random.integers(15, size=50) if changes else None
        for stream in (whole, torn):
            stream.write(night, rows, who=who)
        calls = _killed(whole, night, 0)
        assert calls, "the night was released"
        while not _killed(torn, night, int(random.integers(1, calls))):
            kills += 1
    print(f"{kills} kills, {night + 365} nights")
    assert kills >= wanted
    assert torn.spent() == "epsilon 1"
    assert torn.states() == whole.states()
    if changes:  # its own key is there until its horizon is over, or it is given up
        with torn.ledger() as ledger:
            ledger.abandon("trips", "trips")
    assert not list(torn.folder.glob("ledger.db*keys*/*"))
    for path in sorted(whole.output.rglob("*")):
        if path.is_file():
            twin = torn.output / path.relative_to(whole.output)
            assert twin.read_bytes() == path.read_bytes(), path.name


POINTS = [  # that a night of a stream passes and no other release, in this order
    "dbern.ledger.ledger:BudgetLedger.charge",
    "dbern.nights.frozen_files:_digest",
    "dbern.nights.frozen_files:sealed_nights",
    "dbern.ledger.staging:Staging.put_new",
    "dbern.ledger.staging:Staging.get_digested",
    "dbern.run.publish:require_blocks",
]


def _ended(stream: Nights, night: int, point: str = "", when: str = "") -> int:
    """Release a night in a process, killed before or after its first call of a point."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        fixed(pytest.MonkeyPatch().setattr)
        if point:
            original = resolve_name(point)

            def struck(*arguments, **terms):
                if when == "after":
                    original(*arguments, **terms)
                os.kill(os.getpid(), signal.SIGKILL)

            pytest.MonkeyPatch().setattr(point.replace(":", "."), struck)
        stream.release(night, stream={"horizon": 365})
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.slow
def test_a_night_that_is_killed_at_each_point_of_a_stream_goes_on(tmp_path):
    """Killed at one after another: one charge, the same bytes and one block a night."""
    whole, torn = (Nights(tmp_path / name, changes=PEOPLE) for name in ("whole", "torn"))
    for stream in (whole, torn):
        stream.folder.mkdir()
        stream.grant()
        for night in (0, 1):
            stream.write(night, [2.5, 7.5], who=[7, 100 + night])
    for strike in product(POINTS, ("before", "after")):
        assert _ended(torn, 0, *strike) == -signal.SIGKILL, strike
    assert [_ended(stream, night) for stream in (whole, torn) for night in (0, 1)] == [0] * 4
    assert torn.spent() == "epsilon 1"
    assert torn.states() == whole.states()
    assert objects(torn.output) == objects(whole.output)
    assert len(list(torn.folder.glob(f"ledger.db.staging/*/{b'units'.hex()}-*.block"))) == 2


def test_terms_of_the_account_are_those_of_the_stream(tmp_path):
    stream = Nights(tmp_path)
    BudgetLedger.create(stream.url)
    with stream.ledger() as ledger:
        ledger.grant("trips", Budget.parse("1"), neighbors=Neighbors.REPLACE_ONE)
    stream.fill(1)
    with pytest.raises(BudgetError, match="neighbors"):
        stream.release(0)
    assert stream.states() == {}
