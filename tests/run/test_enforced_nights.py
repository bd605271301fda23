"""Streams that enforce `max_nights`: nobody counts in more nights, whatever happens to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from shutil import copy2, copytree, rmtree
from threading import Thread
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from nights import COUNTED, FIRST, PEOPLE, PUBLISHED, SEALED, Nights, spec_of

import dbern
from dbern.cli.metrics import _account
from dbern.errors import IntegrityError, SpecError
from dbern.ledger import BudgetLedger, Staging
from dbern.nights import people
from dbern.nights.forecast import plan_stream
from dbern.nights.horizon import Node, StreamNode
from dbern.nights.section import horizon_of
from dbern.planning.planner import plan_files
from dbern.run.stages import abandon
from dbern.testing import integers_of_each

NIGHTS, LIMIT = 6, 3


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    """Person 7 has a row in every night, person 100 + n one in night n; what is released is exact.

    The horizon has two more nights, so the stream goes on.
    """
    monkeypatch.setattr("dbern.run.publish.privatize", lambda center, *_rest: center)
    return _stream(tmp_path, PEOPLE)


def _stream(folder: Path, changes: dict) -> Nights:
    folder.mkdir(exist_ok=True)
    stream = Nights(folder, changes={**changes, "stream": {**changes["stream"], "first": FIRST}})
    stream.grant()
    for night in range(NIGHTS):
        stream.write(night, [2.5, 7.5], who=[7, 100 + night])
    return stream


def counted(stream: Nights, night: int) -> list[bool]:
    """Whether person 7 counts in a night, and whether the other does: bins at either end."""
    name = f"2026-01-0{night + 1}.zarr"
    bins = dbern.open(stream.output / name).arrays[0].released.ravel()
    return [bool(half.any()) for half in np.array_split(bins, 2)]


def kept(stream: Nights) -> list[Path]:
    """Files that are there of keys and staging of a release, the stream's charge itself."""
    with stream.ledger() as ledger:
        release_id = ledger.find("trips", "trips").release_id
    places = ("keys", "staging")
    paths = [path for place in places for path in stream.folder.glob(f"ledger.db.{place}/**/*")]
    return [path for path in paths if release_id in str(path)]


@pytest.mark.slow
@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (5, 4, 3, 2, 1, 0), (3, 0, 5, 1, 4, 2)])
def test_a_person_counts_in_the_first_nights_that_come_in_any_order(nights, order):
    for night in order:
        nights.release(night)
        nights.release(night)
    assert [counted(nights, night) for night in order] == [
        [come < LIMIT, True] for come in range(NIGHTS)
    ]


@pytest.mark.slow
def test_what_is_stated_alone_leaves_nobody_out(tmp_path, monkeypatch):
    monkeypatch.setattr("dbern.run.publish.privatize", lambda center, *_rest: center)
    stated = {**PEOPLE, "stream": {**PEOPLE["stream"], "enforce": False}}
    stream = _stream(tmp_path, stated)
    for night in range(NIGHTS):
        stream.release(night)
    assert all(counted(stream, night) == [True, True] for night in range(NIGHTS))
    assert set(stream.states().values()) == {"committed"}


@pytest.mark.slow
def test_rows_that_do_not_count_take_no_night(nights):
    """Out of bounds, null, or without an id."""
    for night, x in enumerate([11.0, np.nan]):
        nights.write(night, [x, 7.5], who=[7, 100 + night])
    for night in range(NIGHTS):
        nights.release(night)
    assert [counted(nights, night)[0] for night in range(NIGHTS)] == [False] * 2 + [
        True
    ] * LIMIT + [False]


@pytest.mark.slow
def test_no_two_people_are_one(nights):
    """Ids beyond 2^53, of which the nearest float is one."""
    for night in range(NIGHTS):
        nights.write(night, [2.5, 7.5], who=[2**60, 2**60 + 1 + night])
        nights.release(night)
    assert all(counted(nights, night)[1] for night in range(NIGHTS))


@pytest.mark.slow
def test_a_night_that_is_abandoned_has_taken_one_of_a_persons_nights(nights):
    nights.interrupt(0, COUNTED)
    with nights.ledger() as ledger:
        abandon(ledger, "trips", "trips.2026-01-01")
    for night in range(1, NIGHTS):
        nights.release(night)
    assert [counted(nights, night)[0] for night in range(1, NIGHTS)] == [True] * 2 + [False] * 3


@pytest.mark.slow
def test_a_night_that_was_interrupted_counts_by_the_block_that_it_wrote(nights):
    """Nights in between have counted that block."""
    nights.interrupt(0, COUNTED)
    for night in range(1, NIGHTS):
        nights.release(night)
    nights.release(0)
    assert [counted(nights, night)[0] for night in range(NIGHTS)] == [True] * LIMIT + [False] * 3


def test_the_block_is_there_before_anything_is_sealed(nights, monkeypatch):
    def before(ledger, *_rest):
        assert list(nights.folder.glob(f"ledger.db.staging/*/{b'units'.hex()}-*.block"))
        raise KeyboardInterrupt

    monkeypatch.setattr(BudgetLedger, "spend", before)
    with pytest.raises(KeyboardInterrupt):
        nights.release(0)


@pytest.mark.slow
def test_a_night_at_once_counts_the_block_that_came_first(nights, monkeypatch):
    original = Staging.put_new

    def overtaken(staging, component, block, values):
        with monkeypatch.context() as undo:
            undo.setattr(Staging, "put_new", original)
            for night in (1, 2, 3):
                nights.release(night)
        return original(staging, component, block, values)

    with monkeypatch.context() as patch:
        patch.setattr(Staging, "put_new", overtaken)
        nights.release(0)
    assert [counted(nights, night)[0] for night in range(4)] == [False, True, True, True]


@pytest.mark.slow
def test_nights_of_many_threads_count_nobody_too_often(nights):
    threads = [Thread(target=nights.release, args=(night,)) for night in range(NIGHTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counted(nights, night)[0] for night in range(NIGHTS)) == LIMIT


def test_ids_stay_in_this_process(nights, monkeypatch):
    """Whatever cluster there is: its scheduler logs the arguments of tasks."""

    @contextmanager
    def elsewhere(*_rest):
        raise AssertionError("rows are counted elsewhere")
        yield

    monkeypatch.setattr("dbern.run.stages._cluster", elsewhere)
    assert nights.release(0).notes == ("2026-01-01 is published",)


def nights_node():
    spec = spec_of(**PEOPLE)
    horizon = horizon_of(spec.stream, FIRST, spec.charge)
    return spec.at(StreamNode("trips", horizon, Node(0, 0, 1)))


@pytest.mark.slow
def test_neighbours_lose_at_most_the_charge_over_all_nights(tmp_path):
    """A person more, with rows in every night: nights that do not count lose nothing."""
    spec, random = nights_node(), np.random.default_rng(3)
    plan, limit = plan_files(spec, ()), PEOPLE["stream"]["max_nights"]

    def database(night, person):
        others = [{"x": x, "who": (who, 0.0)} for who, x in enumerate(random_rows[night])]
        return [*others, *({"x": x, "who": (99.0, 0.0)} for x in person)]

    def loss(staged, enforced):
        total = 0
        folders = [tmp_path / f"{staged}-{enforced}-{more}" for more in (0, 1)]
        stores = [Staging(folder, bytes(32)) for folder in folders]
        for night, x in enumerate(places):
            counts = []
            for person, staging in zip(([], x), stores, strict=True):
                records = database(night, person)
                batch = {
                    name: np.array([record[name] for record in records]) for name in ("x", "who")
                }
                counters = plan.counters(spec)
                units = counters.units([batch])
                if enforced:
                    units = people._admitted(units, night, limit, staging, set()).units
                admitting = counters.admitting(units)
                of_units = SimpleNamespace(
                    counters=lambda _spec, admitting=admitting: admitting,
                    components=plan.components,
                )
                counts += [
                    components[0] for components in integers_of_each(spec, of_units, [records])
                ]
            total += int(np.abs(counts[1] - counts[0]).sum())
        return total / plan.noise.law.scale

    losses = {True: [], False: []}
    for staged, enforced in product(range(20), (True, False)):
        random_rows = random.uniform(0, 10, (limit + 3, 4))
        places = np.repeat(random.uniform(1, 9, (limit + 3, 1)), 2, axis=1)
        losses[enforced].append(loss(staged, enforced))
    assert 0.9 < max(losses[True]) <= 1.0
    assert max(losses[False]) > 1.0, "nobody left out would be found"


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["block", "lost", "staging", "key"])
def test_what_is_damaged_or_lost_stops_the_stream_until_it_is_ended(nights, damage):
    nights.release(0)
    nights.release(1)
    key, staging, *blocks = sorted(kept(nights))
    if damage == "block":
        blocks[0].write_bytes(blocks[0].read_bytes()[:-1] + b"?")
    elif damage == "lost":
        blocks[1].unlink()
    elif damage == "staging":
        staging.rename(nights.folder / "aside")
    else:
        key.unlink()
    with pytest.raises(IntegrityError, match=r"dbern ledger abandon .* --name trips$"):
        nights.release(2)
    assert nights.states()["trips.2026-01-03"] == "reading"
    with nights.ledger() as ledger:
        abandon(ledger, "trips", "trips")
    assert kept(nights) == []
    with pytest.raises(SpecError, match="was abandoned, and its charge stands"):
        nights.release(2)
    assert nights.spent() == "epsilon 1"
    assert counted(nights, 1) == [True, True]


@pytest.mark.slow
def test_key_and_blocks_go_when_the_last_night_closes(tmp_path):
    stream = Nights(tmp_path, changes={**PEOPLE, "stream": {**PEOPLE["stream"], "horizon": 3}})
    stream.grant()
    stream.fill(3)
    for night in range(2):
        stream.release(night)
    assert stream.states()["trips"] == "spent"
    assert len(kept(stream)) == 4, "a key, and a folder of two blocks"
    with stream.ledger() as ledger:
        names = [sample.name for sample in _account(ledger.status("trips")[0])]
    assert "oldest_unfinished_timestamp_seconds" not in names
    stream.interrupt(2, SEALED)  # a night that is given up closes too
    with stream.ledger() as ledger:
        abandon(ledger, "trips", "trips.2026-01-03")
    assert stream.release(2).notes == ("2026-01-03 was abandoned: it stays empty",)
    assert stream.states()["trips"] == "committed"
    assert kept(stream) == []
    assert stream.spent() == "epsilon 1"
    stream.release(1)


@pytest.mark.slow
def test_an_unfinished_night_that_ledger_and_staging_forgot_stops_the_stream(nights):
    """There may be noisy coefficients in it, and its block is gone."""
    nights.release(0)
    backup = nights.folder / "backup"
    places = ["ledger.db.keys", "ledger.db.staging"]
    for place in places:
        copytree(nights.folder / place, backup / place)
    ledger = (nights.folder / "ledger.db").read_bytes()
    nights.interrupt(1, "dbern.run.publish.SynopsisWriter.finish")
    for place in places:
        rmtree(nights.folder / place)
        copytree(backup / place, nights.folder / place)
    nights.put_back(ledger)
    assert nights.states()["trips.2026-01-02"] == "abandoned"
    with pytest.raises(IntegrityError, match="forgot which files 2026-01-02 has"):
        nights.release(2)


@pytest.mark.slow
def test_a_night_whose_seal_the_ledger_forgot_stops_the_stream(nights):
    """Its files are known, and not by which block it was counted."""
    nights.release(0)
    nights.interrupt(1, COUNTED)
    backup = (nights.folder / "ledger.db").read_bytes()
    nights.release(1)
    nights.put_back(backup)
    assert nights.states()["trips.2026-01-02"] == "committed"
    with pytest.raises(IntegrityError, match="The blocks of 1 nights are missing"):
        nights.release(2)


def test_of_two_nights_whose_blocks_are_in_two_places_the_later_is_refused(nights, monkeypatch):
    """Two machines that share a ledger and no staging."""
    original = BudgetLedger.spend

    def overtaken(ledger, reservation, seal):
        paid = ledger.find("trips", "trips")
        place, aside = ledger.staging(paid).directory, nights.folder / "aside"
        place.rename(aside)
        with monkeypatch.context() as undo:
            undo.setattr(BudgetLedger, "spend", original)
            nights.release(1)
        rmtree(place)
        aside.rename(place)
        return original(ledger, reservation, seal)

    with monkeypatch.context() as patch:
        patch.setattr(BudgetLedger, "spend", overtaken)
        with pytest.raises(IntegrityError, match="The blocks of 1 nights are missing"):
            nights.release(0)
    with pytest.raises(IntegrityError, match="The blocks of 1 nights are missing"):
        nights.release(0)
    assert not (nights.output / "2026-01-01.zarr").exists()
    assert counted(nights, 1) == [True, True]


@contextmanager
def elsewhere(stream: Nights) -> Iterator[None]:
    """Release on another machine, which shares the ledger and no staging."""
    with stream.ledger() as ledger:
        here = ledger.staging(ledger.find("trips", "trips")).directory
    there, aside = stream.folder / "there", stream.folder / "aside"
    there.mkdir(mode=0o700, exist_ok=True)
    here.rename(aside)
    there.rename(here)
    yield
    here.rename(there)
    aside.rename(here)


def once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    """A stream of nights of which a person counts in one; what is released is exact."""
    monkeypatch.setattr("dbern.run.publish.privatize", lambda center, *_rest: center)
    return _stream(folder, {**PEOPLE, "stream": {**PEOPLE["stream"], "max_nights": 1}})


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("killed_there", [PUBLISHED, SEALED, COUNTED])
def test_a_night_that_was_counted_by_another_block_than_the_one_here_is_refused(
    tmp_path, monkeypatch, first, second, killed_there
):
    """Both were begun here, where the second leaves person 7 out, and the second goes on there."""
    stream = once(tmp_path, monkeypatch)
    stream.interrupt(first, COUNTED)
    stream.interrupt(second, COUNTED)
    with elsewhere(stream):
        stream.interrupt(second, killed_there)
    if killed_there == COUNTED:  # nothing is sealed there, and all is counted by what is here
        stream.release(first)
        stream.release(second)
        assert [counted(stream, night)[0] for night in (first, second)] == [True, False]
        return
    with pytest.raises(IntegrityError, match="The blocks of 1 nights are missing"):
        stream.release(first)
    with elsewhere(stream):
        stream.release(second)
    with pytest.raises(IntegrityError, match="The blocks of 1 nights are missing"):
        stream.release(first)
    assert counted(stream, second) == [True, True]
    assert not (stream.output / f"2026-01-0{first + 1}.zarr").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_a_night_that_is_sealed_here_before_the_one_there_is_refused(
    tmp_path, monkeypatch, first, second
):
    """It finds the other sealed when it is about to be published; so does the other."""
    stream, original = once(tmp_path, monkeypatch), BudgetLedger.spend
    stream.interrupt(first, COUNTED)
    stream.interrupt(second, COUNTED)

    def overtaken(ledger, reservation, seal):
        with monkeypatch.context() as undo, elsewhere(stream):
            undo.setattr(BudgetLedger, "spend", original)
            stream.interrupt(second, PUBLISHED)
        return original(ledger, reservation, seal)

    with monkeypatch.context() as patch:
        patch.setattr(BudgetLedger, "spend", overtaken)
        with pytest.raises(IntegrityError, match="The blocks of 1 nights are missing"):
            stream.release(first)
    with elsewhere(stream):
        stream.release(second)
    assert not (stream.output / f"2026-01-0{first + 1}.zarr").exists()
    assert counted(stream, second) == [True, True]


@pytest.mark.slow
def test_blocks_that_are_brought_together_of_two_places_are_refused(tmp_path, monkeypatch):
    """Each is one by which a night was counted, and none knows of those of the other place."""
    stream = once(tmp_path, monkeypatch)
    stream.write(2, [7.5], who=[102])
    stream.interrupt(0, COUNTED)
    with elsewhere(stream):
        stream.interrupt(2, COUNTED)
        stream.release(1)
    last = f"{b'units'.hex()}-{1:020d}.block"
    with stream.ledger() as ledger:
        here = ledger.staging(ledger.find("trips", "trips")).directory
    copy2(stream.folder / "there" / last, here / last)
    with pytest.raises(
        IntegrityError, match="Block 1 was written behind another than the one here"
    ):
        stream.release(0)
    assert not (stream.output / "2026-01-01.zarr").exists()


@pytest.mark.slow
@pytest.mark.parametrize("ids", [["7", "101"], [7.0, 101.0]])
def test_ids_of_another_type_than_the_first_nights_are_refused(nights, ids):
    """Equal ones may be two units; nothing is reserved, so other files can come."""
    nights.release(0)
    nights.write(1, [2.5, 7.5], who=ids)
    with pytest.raises(SpecError, match="and exact numbers in the first night of stream trips"):
        nights.release(1)
    assert set(nights.states()) == {"trips", "trips.2026-01-01"}
    nights.write(1, [2.5, 7.5], who=[7, 101])
    nights.release(1)
    assert counted(nights, 1) == [True, True]


@pytest.mark.slow
def test_ids_without_a_type_begin_no_stream(nights):
    """Every later night was refused then, and the stream's charge was lost."""
    nights.write(0, [2.5, 7.5], who=pa.nulls(2))
    with pytest.raises(SpecError, match="who has no type in the first night, as a program"):
        nights.release(0)
    assert nights.states() == {}
    nights.write(0, [2.5, 7.5], who=pa.nulls(2, pa.int64()))
    for night in (0, 1):
        nights.release(night)
    nights.write(2, [2.5, 7.5], who=pa.nulls(2))  # of a later one it is none of another type
    nights.release(2)


def test_a_plan_says_whether_it_is_enforced():
    stated = {**PEOPLE["stream"], "enforce": False}
    for changes, enforced in ((PEOPLE, True), ({**PEOPLE, "stream": stated}, False)):
        plan = plan_stream(spec_of(**changes))
        assert plan.to_dict()["enforced"] is enforced
        assert ("left out, so this holds for everybody" in plan.explain(details=True)) is enforced
        assert ("stated and not enforced" in plan.explain(details=True)) is not enforced
