"""One release from files to answers: what changes it, what must not, and what is refused."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from projects import SOLVED, labelled, records

import dbern
from dbern.data import storage
from dbern.data.footers import UnreadableFileError
from dbern.errors import (
    BudgetError,
    DbernError,
    EnvironmentRefusedError,
    IntegrityError,
    OtherDataError,
    ReleaseError,
    SpecError,
)
from dbern.ledger import BudgetLedger, State
from dbern.measure import counters
from dbern.privacy.budget import Budget
from dbern.privacy.mechanism import privatize
from dbern.run import connection, counting, graph, publish, tasks
from dbern.run import stages as releasing
from dbern.run.stages import abandon
from dbern.system import cpu_count


def direct_density(points, x, y):
    """The mean over all rows of Gaussian bumps, null and dropped rows adding nothing."""
    x, y = (np.array([np.nan if v is None else v for v in c], dtype=float) for c in (x, y))
    kept = np.isfinite(x) & np.isfinite(y) & (x >= 0) & (x <= 10) & (y >= -1) & (y <= 1)
    u = (points[:, None, 0] - x[kept]) / 2.0
    v = (points[:, None, 1] - y[kept]) / 0.4
    bumps = np.exp(-0.5 * (u**2 + v**2)) / (2 * np.pi * 2.0 * 0.4)
    return bumps.sum(axis=1) / len(x)


NEVER = Mock(side_effect=AssertionError("a release that nothing pays for was planned"))
CHARGED, UNCHARGED = "epsilon 1, epsilon 0 reserved", "epsilon 0, epsilon 0 reserved"
NOBODY_PAYS = [
    ({"budget": {"dataset": "others"}}, r"dataset 'others': has no budget .* --epsilon 1"),
    (
        {"data": {"neighbors": "add-or-remove-one", "normalizer": "240"}},
        "granted for neighbors replace-one",
    ),
    (
        {"data": {"normalizer": "60"}, "data__unit": {"column": "note", "max_contributions": 2}},
        r"unit note \(at most 2 rows\)",
    ),
    ({"budget": {"epsilon": "3.5"}}, r"'trips': cannot pay: .*--epsilon 0\.5"),
]


@pytest.mark.parametrize(("changes", "told"), NOBODY_PAYS)
def test_a_release_that_no_grant_covers_is_refused_before_it_is_planned(
    project, monkeypatch, changes, told
):
    spec = project.spec(**changes)
    with pytest.raises(BudgetError, match=told) as refused:
        dbern.release(spec)
    for name in ("footers", "plan_files", "check_output"):
        monkeypatch.setattr(releasing, name, NEVER)
    with pytest.raises(BudgetError) as again:
        dbern.release(spec)
    assert (str(again.value), again.value.exit_code) == (str(refused.value), 3)
    with project.ledger() as ledger:
        lines = [line for line in ledger.log() if line.event == "refused"]
        logged = [(line.name, Budget.parse(line.detail["epsilon"])) for line in lines]
        assert logged == [("density", spec.charge)] * 2
        assert ledger.find("trips", "density") is None


def test_a_release_of_a_ledger_to_be_reconciled_is_refused_before_it_is_planned(
    project, monkeypatch
):
    with project.ledger() as ledger:
        ledger.declare_restored()
    monkeypatch.setattr(releasing, "plan_files", NEVER)
    with pytest.raises(BudgetError, match="dbern ledger reconcile"):
        dbern.release(project.spec())


def points_in_bounds(count, seed):
    return np.random.default_rng(seed).uniform([0, -1], [10, 1], (count, 2))


@pytest.mark.usefixtures("fixed")
def test_a_release_is_published_charged_and_close_to_the_truth(project, client, helpers):
    columns = helpers.records(4000)
    project.write(columns, files=2, row_group_size=700)
    spec = project.spec(mechanism={"k": 12, "h": 4})
    plan = dbern.plan(spec)
    out = dbern.release(spec, client=client)
    assert (out.url, str(out.charge), out.notes) == (str(project.output), "epsilon 1", ())
    assert project.remains() == []  # before the ledger is opened again, which would sweep
    assert project.spent() == CHARGED
    synopsis = out.synopsis
    assert synopsis.verify() > 4
    points = points_in_bounds(50, 0)
    truth = direct_density(points, columns["x"], columns["y"])
    assert np.abs(synopsis(points) - truth).max() <= plan.certificate.total
    facts = synopsis.metadata
    assert facts["components"][0]["k"] == [12, 12]
    assert facts["components"][0]["h"] == [4, 4]
    assert facts["epsilon"] == "1"
    assert facts["target"]["n"] == 4000
    assert facts["created"] == project.reservation().created


@pytest.mark.slow
@pytest.mark.parametrize("outside", ["drop", "clamp"])
def test_without_noise_only_the_certified_approximation_is_left(
    project, exact_release, helpers, outside
):
    """Records out of bounds are dropped, and counted in n; or they count at the bound."""
    columns = helpers.records(4000)
    columns["x"][100:500] = [12.0] * 400
    spec = project.spec(data={"outside": outside}, mechanism={"k": 24, "h": 10})
    plan, synopsis = exact_release(spec, columns)
    x, y = columns["x"], columns["y"]
    if outside == "clamp":
        x = [None if v is None or np.isinf(v) else float(np.clip(v, 0, 10)) for v in x]
        y = [None if v is None or np.isinf(v) else float(np.clip(v, -1, 1)) for v in y]
    points = points_in_bounds(200, 1)
    truth = direct_density(points, x, y)
    allowed = plan.certificate.approximation + plan.certificate.rounding
    assert 0 < np.abs(synopsis(points) - truth).max() <= allowed
    assert allowed < 0.03 * truth.max()


CUTS = [
    ({"files": 1, "row_group_size": 1000}, 17),
    ({"files": 5, "row_group_size": 7}, None),
    ({"files": 2, "compression": "gzip"}, 1),
]


@pytest.mark.slow
@pytest.mark.usefixtures("fixed")
def test_bytes_do_not_depend_on_how_the_records_are_cut(project, client, helpers, monkeypatch):
    """Files, row groups, row order and task sizes differ: the same integers come out."""
    dbern.release(project.spec(), client=client)
    backwards = {name: values[::-1] for name, values in helpers.records().items()}
    for number, (layout, rows_a_task) in enumerate(CUTS):
        other = project.twin(f"other-{number}")
        other.write(backwards, **layout)
        with monkeypatch.context() as patch:
            if rows_a_task:
                patch.setattr(graph, "task_rows", lambda _rows, size=rows_a_task: size)
            dbern.release(other.spec(), client=client)
        assert helpers.objects(other.output) == helpers.objects(project.output)


@pytest.mark.slow
@pytest.mark.usefixtures("fixed")
def test_bytes_do_not_depend_on_slabs_staged_out_of_order_or_threads(
    project, client, helpers, monkeypatch
):
    spec = {"mechanism": {"k": [200, 8], "h": 1}}
    monkeypatch.setattr("dbern.reconstruct.base.SLAB_COEFFICIENTS", 200)
    other = project.twin("other")
    dbern.release(project.spec(**spec), client=client)
    assert sum("/c/" in name for name in helpers.objects(project.output)) > 5

    def backwards(*arguments):
        yield from sorted(graph.centers(*arguments), key=lambda one: -one[0].slab.index)

    monkeypatch.setattr(counting, "centers", backwards)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    dbern.release(other.spec(**spec), client=client)
    assert helpers.objects(other.output) == helpers.objects(project.output)


@pytest.mark.slow
@pytest.mark.usefixtures("fixed")
def test_the_slab_size_changes_shards_but_no_coefficient(project, client, monkeypatch):
    """Under one noise key: the seal, which the key is bound to, is that of the staged slabs."""
    monkeypatch.setattr(publish, "_noise_key", lambda key, *_: key)
    spec = {"mechanism": {"k": [60, 8], "h": 1}}
    other = project.twin("other")
    whole = dbern.release(project.spec(**spec), client=client).synopsis
    monkeypatch.setattr("dbern.reconstruct.base.SLAB_COEFFICIENTS", 100)
    cut = dbern.release(other.spec(**spec), client=client).synopsis
    assert cut.verify() > whole.verify()
    points = points_in_bounds(50, 3)
    np.testing.assert_array_equal(whole(points), cut(points))


def test_every_release_has_noise_of_its_own(project, client):
    first = dbern.release(project.spec(), client=client).synopsis
    second = {"release": {"name": "again", "output": "again.zarr"}}
    again = dbern.release(project.spec(**second), client=client).synopsis
    points = np.array([[5.0, 0.0], [1.0, 0.5]])
    assert (first(points) != again(points)).all()
    assert project.spent() == "epsilon 2, epsilon 0 reserved"


def test_run_again_prints_what_is_there_and_charges_once(project, client, helpers):
    spec = project.spec()
    first = dbern.release(spec, client=client)
    before = helpers.objects(project.output)
    moved = project.spec(release={"output": "b.zarr"})
    for given, notes in ((spec, 1), (moved, 2)):  # the second says where the synopsis is
        again = dbern.release(given, client=client)
        assert again.url == first.url
        assert len(again.notes) == notes
        assert "already published" in again.notes[0]
    assert helpers.objects(project.output) == before
    assert not (project.folder / "b.zarr").exists()
    assert project.spent() == CHARGED


CHANGES = {
    "mechanism.k": {"mechanism": {"k": 7}},
    "target.bandwidth": {"target": {"bandwidth": [2.0, 0.5]}},
    "data.outside": {"data": {"outside": "clamp"}},
    "data.bounds": {"data__bounds": {"x": [0.0, 11.0]}},
    "budget.epsilon": {"budget": {"epsilon": "0.5"}},
    "mechanism.beta": {"mechanism": {"beta": "0.1"}},
    "mechanism.calibration": {"mechanism": {"calibration": "paper"}},
    "data.source": {"data": {"source": "data"}},
}


def test_another_process_that_published_meanwhile_is_no_obstacle(project, client, monkeypatch):
    """It came between this one's look into the ledger and its look at the output."""
    spec, plan_files = project.spec(), releasing.plan_files

    def planned(*arguments):
        monkeypatch.setattr(releasing, "plan_files", plan_files)
        assert dbern.release(spec, client=client).notes == ()
        return plan_files(*arguments)

    monkeypatch.setattr(releasing, "plan_files", planned)
    assert "already published" in dbern.release(spec, client=client).notes[0]
    assert project.spent() == CHARGED


@pytest.mark.slow
@pytest.mark.parametrize("state", ["reserved", "committed"])
def test_a_changed_spec_under_the_same_name_is_refused(project, client, state, interrupted):
    interrupted(project, state)
    for key, change in CHANGES.items():
        with pytest.raises(SpecError, match=key.replace(".", r"\.")) as refusal:
            dbern.release(project.spec(**change), client=client)
        assert refusal.value.exit_code == 2
    assert project.reservation().state == state
    assert project.spent().count("epsilon 1") == 1


def test_reordered_axes_are_another_release(project, client, interrupted):
    interrupted(project, "committed")
    text = project.spec_path.read_text().splitlines()
    x = next(i for i, line in enumerate(text) if line.startswith("x ="))
    text[x], text[x + 1] = text[x + 1], text[x]
    project.spec_path.write_text("\n".join(text))
    with pytest.raises(SpecError, match=r"data\.bounds"):
        dbern.release(dbern.ReleaseSpec.load(project.spec_path), client=client)


@pytest.fixture
def interrupted(client, monkeypatch):
    """Take the standard release up to a state, as a crash would leave it."""

    class Crash(BaseException):
        pass

    at = {
        "reserved": (BudgetLedger, "begin_reading"),
        "reading": (counting, "_stage"),
        "staged": (BudgetLedger, "spend"),
        "spent": (releasing, "publish"),
        "published": (BudgetLedger, "commit"),
    }

    def stop(project, state, **changes):
        spec = project.spec(**changes)
        if state == "committed":
            dbern.release(spec, client=client)
            return
        with monkeypatch.context() as patch:
            patch.setattr(*at[state], Mock(side_effect=Crash))
            with pytest.raises(Crash):
                dbern.release(spec, client=client)
        expected = {"staged": "reading", "published": "spent"}.get(state, state)
        assert project.reservation().state == expected

    return stop


STATES = ["reserved", "reading", "staged", "spent", "published"]
FEW = [s if s in ("reserved", "spent") else pytest.param(s, marks=pytest.mark.slow) for s in STATES]


@pytest.mark.slow
@pytest.mark.usefixtures("fixed")
@pytest.mark.parametrize("state", FEW)
def test_a_release_goes_on_from_any_state_with_the_same_bytes(
    project, client, interrupted, helpers, state
):
    undisturbed = project.twin("undisturbed")
    dbern.release(undisturbed.spec(), client=client)
    interrupted(project, state)
    dbern.release(project.spec(), client=client)
    assert helpers.objects(project.output) == helpers.objects(undisturbed.output)
    assert project.remains() == []  # before the ledger is opened again, which would sweep
    assert project.spent() == CHARGED


@pytest.mark.parametrize("state", ["reserved", "committed"])
def test_another_h_is_the_same_release(project, client, interrupted, state):
    interrupted(project, state)
    out = dbern.release(project.spec(mechanism={"h": 5}), client=client)
    assert project.spent() == CHARGED
    assert out.synopsis.metadata["components"][0]["h"] == [2, 2]


@pytest.mark.parametrize("state", ["reserved", "spent"])
def test_another_output_is_followed_until_it_is_published(project, client, interrupted, state):
    interrupted(project, state)
    out = dbern.release(project.spec(release={"output": "elsewhere/b.zarr"}), client=client)
    assert out.url == str(project.folder / "elsewhere/b.zarr")
    assert not project.output.exists()
    assert out.synopsis.verify()
    assert project.spent() == CHARGED


@pytest.mark.parametrize("kind", ["a file above it", "no right to write"])
def test_an_output_that_cannot_be_written_is_refused_before_anything_is_charged(
    project, client, monkeypatch, kind
):
    above = "data/part-0.parquet" if kind == "a file above it" else "deep"
    if above == "deep":  # for root, whom no mode stops
        denied = PermissionError(errno.EACCES, "Permission denied")
        monkeypatch.setattr(tempfile, "TemporaryFile", Mock(side_effect=denied))
    spec = project.spec(release={"output": f"{above}/out.zarr"})
    with pytest.raises(EnvironmentRefusedError, match=r"^release\.output: .* cannot be written"):
        dbern.release(spec, client=client)
    assert project.spent() == UNCHARGED
    with project.ledger() as ledger:
        assert ledger.find("trips", "density") is None


def leave_a_torso(project, client, monkeypatch, crash=OSError, message="OSError"):
    """Fail a release where its synopsis is published."""
    with monkeypatch.context() as patch:
        patch.setattr("dbern.synopsis.writer._create_manifest", Mock(side_effect=crash))
        with pytest.raises(DbernError, match=message) as failure:
            dbern.release(project.spec(), client=client)
    assert project.output.exists()
    return failure.value


def test_a_torso_at_the_old_output_is_removed(project, client, monkeypatch):
    failure = leave_a_torso(project, client, monkeypatch, MemoryError, "too little memory")
    assert isinstance(failure, EnvironmentRefusedError)
    with pytest.raises(IntegrityError, match="its release is not finished"):
        dbern.open(project.output)
    out = dbern.release(project.spec(release={"output": "b.zarr"}), client=client)
    assert not project.output.exists()
    assert out.synopsis.verify()


def replaced(project):
    """Replace the last file by one of the same row count."""
    path = project.files()[-1]
    rows = pq.ParquetFile(path).metadata.num_rows
    groups = [pq.ParquetFile(path).metadata.row_group(0).num_rows]
    table = pa.table({"x": np.full(rows, 3.25), "y": np.zeros(rows), "note": ["new"] * rows})
    pq.write_table(table, path, row_group_size=groups[0])


def cut(project):
    """Replace the last file by one of a single row."""
    pq.write_table(pa.table({"x": [1.0], "y": [0.5]}), project.files()[-1])


def added(project):
    (project.folder / "data" / "part-9.parquet").write_bytes(project.files()[0].read_bytes())


def removed(project):
    project.files()[1].unlink()


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("state", ["reserved", "reading", "staged"])
@pytest.mark.parametrize(("change", "name"), [(replaced, "2"), (added, "9"), (removed, "1")])
def test_changed_files_stop_a_release_until_they_are_charged(
    project, client, interrupted, state, change, name
):
    interrupted(project, state)
    originals = {path: path.read_bytes() for path in project.files()}
    change(project)
    error = SpecError if state == "reserved" else IntegrityError
    with pytest.raises(error, match=rf"part-{name}\.parquet") as refusal:
        dbern.release(project.spec(), client=client)
    assert refusal.value.exit_code == (2 if state == "reserved" else 5)
    assert not project.output.exists()
    for path in project.files():
        path.unlink()
    for path, content in originals.items():
        path.write_bytes(content)
    dbern.release(project.spec(), client=client)
    assert project.spent() == CHARGED


@pytest.mark.parametrize("readable", [True, False])
def test_a_file_that_changes_while_it_is_read_is_noticed_and_may_be_brought_back(
    project, client, monkeypatch, readable
):
    """Its size and footer stay: the time of its change tells, until counting begins anew."""
    spec, path = project.spec(), project.files()[0]
    read, original = counters.read_batches, path.read_bytes()

    def late(where, *arguments):
        yield from read(where, *arguments)
        if where == str(path):
            with path.open("r+b") as file:  # in place: another thread may be reading it
                file.seek(4)
                file.write(bytes([original[4] ^ 1]))
            if not readable:
                raise UnreadableFileError

    with monkeypatch.context() as patch:
        patch.setattr(counters, "read_batches", late)
        with pytest.raises(IntegrityError, match=r"part-0\.parquet changed since"):
            dbern.release(spec, client=client)
    path.write_bytes(original)
    os.utime(path, (1, 1))
    assert dbern.release(spec, client=client).synopsis.verify()
    assert project.spent() == CHARGED


@pytest.mark.parametrize("state", ["spent", "published"])
def test_changed_files_after_the_charge_change_nothing(project, client, interrupted, state):
    interrupted(project, state)
    for path in project.files():
        path.unlink()
    out = dbern.release(project.spec(), client=client)
    assert out.synopsis.verify()


def test_a_published_release_is_printed_whatever_became_of_its_files(project, client):
    dbern.release(project.spec(), client=client)
    for change in (
        lambda project: project.files()[0].write_text("not Parquet"),
        lambda project: pq.write_table(pa.table({"z": [1.0]}), project.files()[0]),
        lambda project: [path.unlink() for path in project.files()],
    ):
        change(project)
        out = dbern.release(project.spec(), client=client)
        assert any("files have changed" in note for note in out.notes)


OTHERS = {  # what is public of files: their paths, sizes and numbers of rows
    "another size": replaced,
    "one less": removed,
    "one more": added,
    "fewer rows": lambda project: project.write(records(100)),
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_other_files_under_the_same_name_are_refused_with_the_two_ways_on(project, run, change):
    """They were answered by the old release, with a note at the end."""
    spec = project.spec()
    first = dbern.release(spec)
    change(project)
    message = "the files are not those that release 'density' of dataset 'trips' was made from, on"
    with pytest.raises(OtherDataError, match=message) as refused:
        dbern.release(spec)
    assert "Choose another release.name, which is paid for again" in str(refused.value)
    assert f"dbern.open({first.url!r})" in str(refused.value)
    run("release", "release.toml").refused(2, message)
    assert project.spent() == CHARGED
    again = dbern.release(project.spec(release={"name": "again", "output": "b.zarr"}))
    assert all(note.startswith("WARNING: the noise is") for note in again.notes)


@pytest.mark.parametrize("framed", [False, True])
def test_a_ledger_that_lost_what_was_read_refuses_in_a_sentence(project, framed):
    spec, frame = project.spec(data={"source": None, "n": None} if framed else {}), None
    if framed:
        frame = pa.table({name: records()[name] for name in ("x", "y")})
    dbern.release(spec, data=frame)
    with closing(sqlite3.connect(project.ledger_path)) as connection:
        for (name,) in connection.execute("select name from sqlite_master where type='trigger'"):
            connection.execute(f"drop trigger {name}")
        connection.execute("update releases set inputs = '{}'")
        connection.commit()
    with pytest.raises(OtherDataError, match="was made from, on 20"):
        dbern.release(spec, data=frame)


@pytest.mark.parametrize(
    ("owner", "step", "change"),
    [
        (BudgetLedger, "begin_reading", replaced),
        (counting, "tree_reduce", replaced),  # before the workers read
        (BudgetLedger, "begin_reading", cut),  # without the reserved row groups
    ],
)
def test_a_file_that_changes_between_reservation_and_read_stops_it(
    project, client, monkeypatch, drawn, owner, step, change
):
    """A file that is replaced has another size, and the row counts of the old one."""
    original = getattr(owner, step)

    def meanwhile(*arguments):
        change(project)
        return original(*arguments)

    monkeypatch.setattr(owner, step, meanwhile)
    with pytest.raises(IntegrityError, match=r"part-2\.parquet") as refusal:
        dbern.release(project.spec(), client=client)
    assert refusal.value.exit_code == 5
    assert drawn == []
    assert project.reservation().state is State.READING


def test_a_stated_n_must_be_the_rows_there_are(project, client):
    with pytest.raises(SpecError, match=r"data\.n: .*9.*240"):
        dbern.release(project.spec(data={"n": 9}), client=client)
    assert project.spent() == UNCHARGED
    dbern.release(project.spec(data={"n": 240}), client=client)


@pytest.mark.parametrize("content", [{}, {"thesis.txt": "precious"}])
def test_an_output_that_is_something_else_is_never_touched(project, client, content):
    project.output.mkdir()
    for name, text in content.items():
        (project.output / name).write_text(text)
    with pytest.raises(SpecError, match=r"release\.output.*already exists") as refusal:
        dbern.release(project.spec(), client=client)
    assert refusal.value.exit_code == 2
    assert project.spent() == UNCHARGED
    assert {path.name: path.read_text() for path in project.output.iterdir()} == content


def test_a_published_synopsis_that_is_gone_is_an_integrity_error(project, client):
    dbern.release(project.spec(), client=client)
    shutil.rmtree(project.output)
    with pytest.raises(IntegrityError, match="only a new"):
        dbern.release(project.spec(), client=client)


@pytest.mark.parametrize("state", FEW)
def test_abandoning_refunds_only_what_no_record_was_read_for(project, client, interrupted, state):
    interrupted(project, state)
    with project.ledger() as ledger:
        given_up = abandon(ledger, "trips", "density")
    assert given_up.refunded == (state == "reserved")
    charge = "epsilon 0" if state == "reserved" else "epsilon 1"
    assert project.remains() == []
    assert project.spent() == f"{charge}, epsilon 0 reserved"
    if state == "reserved":
        dbern.release(project.spec(), client=client)
    else:
        with pytest.raises(SpecError, match="abandoned"):
            dbern.release(project.spec(), client=client)


def test_abandoning_removes_an_unfinished_output(project, client, monkeypatch):
    leave_a_torso(project, client, monkeypatch)
    with project.ledger() as ledger:
        abandon(ledger, "trips", "density")
    assert not project.output.exists()


class _Failing:
    """In place of a function, or of a module whose `rmtree` finds a folder in use."""

    def __call__(self, *_: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    def rmtree(self, _path: object, *, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            self()


@pytest.mark.slow
@pytest.mark.parametrize("refused", [(storage.Folder, "discard"), (storage, "shutil")])
def test_abandoning_again_removes_what_could_not_be_removed(project, client, monkeypatch, refused):
    """The key is destroyed all the same: the output may be gone for good."""
    leave_a_torso(project, client, monkeypatch)
    with project.ledger() as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(*refused, _Failing())  # before or after the torso is renamed
            with pytest.raises(ReleaseError, match="run the same command again"):
                abandon(ledger, "trips", "density")
        assert list(project.output.parent.glob("*out.zarr*"))
        assert not list(project.folder.glob("ledger.db.keys/*"))
        for _ in range(2):
            assert not abandon(ledger, "trips", "density").refunded
            assert not list(project.output.parent.glob("*out.zarr*"))
    assert project.spent() == CHARGED


@pytest.mark.slow
def test_abandoning_says_that_it_waits(project, interrupted):
    interrupted(project, "reserved")
    told = []
    with project.ledger() as ledger, project.ledger() as other, ThreadPoolExecutor(1) as pool:
        waits = threading.Event()
        with ledger.lock(project.reservation()):
            given_up = pool.submit(
                abandon, other, "trips", "density", lambda *said: (told.append(said), waits.set())
            )
            assert waits.wait(20)
        assert given_up.result().refunded
    assert told == [("waiting for another process with this release", 0, 1)]


# --- the sealed center ----------------------------------------------------------------------


@pytest.fixture
def drawn(monkeypatch):
    """Every call that draws noise."""
    calls = []

    def recorded(*arguments):
        calls.append(arguments)
        return privatize(*arguments)

    monkeypatch.setattr(publish, "privatize", recorded)
    return calls


def first_block(project):
    return min((project.folder / "ledger.db.staging").glob("*/*.block"))


DAMAGES = {
    "flipped": lambda content: content[:-5] + bytes([content[-5] ^ 1]) + content[-4:],
    "truncated": lambda content: content[:-8],
    "empty": lambda content: b"",
    "missing": lambda content: None,
}


def test_no_noise_is_drawn_for_a_staged_center_that_was_tampered_with(
    project, client, interrupted, drawn
):
    interrupted(project, "spent")
    other = project.twin("other")
    interrupted(other, "spent")
    path, content = first_block(project), first_block(project).read_bytes()
    foreign = first_block(other).read_bytes()
    damaged = {name: damage(content) for name, damage in DAMAGES.items()} | {"foreign": foreign}
    for name, block in damaged.items():
        path.unlink()
        if block is not None:
            path.write_bytes(block)
        with pytest.raises(IntegrityError) as refusal:
            dbern.release(project.spec(), client=client)
        assert (refusal.value.exit_code, drawn) == (5, []), name
        assert not (project.output / "manifest.json").exists(), name
        path.write_bytes(content)
    dbern.release(project.spec(), client=client)
    assert drawn


@pytest.mark.parametrize("what", ["another center", "one more block"])
def test_no_noise_is_drawn_for_a_center_staged_from_other_data(
    project, client, interrupted, drawn, what
):
    """Rightly encrypted under the release's own key, and yet not what was sealed."""
    interrupted(project, "spent")
    with project.ledger() as ledger:
        staging = ledger.staging(ledger.find("trips", "density"))
        center = staging.get("density", 0)
        if what == "another center":
            staging.clear()
            center[3] += 1
            staging.put("density", 0, center)
        else:
            staging.put("density", 1, center)
    with pytest.raises(IntegrityError, match="no noise is drawn"):
        dbern.release(project.spec(), client=client)
    assert drawn == []


def test_the_seal_meets_the_center_before_any_noise(project, client, monkeypatch):
    """The order of the story: staged whole, charged, then noise."""
    story = []

    def spy(owner, name):
        original = getattr(owner, name)

        def told(*arguments, **named):
            story.append(name)
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, told)

    from dbern.ledger import Staging
    from dbern.synopsis.writer import SynopsisWriter

    for owner, name in [(BudgetLedger, "reserve"), (BudgetLedger, "begin_reading"),
                        (counting, "make_tasks"), (Staging, "put"), (BudgetLedger, "spend"),
                        (publish, "privatize"), (SynopsisWriter, "finish"),
                        (BudgetLedger, "commit")]:  # fmt: skip
        spy(owner, name)
    dbern.release(project.spec(), client=client)
    assert story == ["reserve", "begin_reading", "make_tasks", "put", "spend", "privatize",
                     "finish", "commit"]  # fmt: skip


# --- failures of tasks ----------------------------------------------------------------------

SECRET = "37.4219983"
RAISING = Mock(side_effect=ValueError(f"could not convert {SECRET}"))


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("place", [
    "dbern.data.parquet.as_floats", "dbern.run.tasks.to_grid",
    "dbern.measure.counters.read_batches",
])  # fmt: skip
def test_a_failing_task_says_its_type_and_nothing_else(project, client, monkeypatch, caplog, place):
    caplog.set_level("DEBUG")
    monkeypatch.setattr(place, RAISING)
    with pytest.raises(ReleaseError, match="ValueError") as failure:
        dbern.release(project.spec(), client=client)
    assert SECRET not in str(failure.value)
    assert SECRET not in caplog.text
    monkeypatch.undo()
    dbern.release(project.spec(), client=client)


@pytest.mark.parametrize("place", ["Counters.empty", "merge"])
def test_no_task_raises_because_the_scheduler_logs_its_arguments(
    project, client, monkeypatch, caplog, place
):
    caplog.set_level("DEBUG")
    if place == "merge":
        monkeypatch.setattr(tasks, "np", SimpleNamespace(add=RAISING))
        monkeypatch.setattr(graph, "task_rows", lambda _rows: 10)
    else:
        monkeypatch.setattr(f"dbern.measure.counters.{place}", RAISING)
    with pytest.raises(ReleaseError):
        dbern.release(project.spec(), client=client)
    salt = repr(project.reservation().salt)
    logged = "\n".join(f"{r.getMessage()} {r.exc_text}" for r in caplog.records)
    assert "Compute Failed" not in logged
    assert SECRET not in logged
    assert salt[:20] not in logged


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["snappy", "none"])
def test_damaged_data_pages_name_the_file_and_no_value(
    project, client, helpers, compression, fixed
):
    """The footer is fine: only reading finds out."""
    project.write(helpers.records(), compression=compression)
    undisturbed = project.twin("undisturbed")
    dbern.release(undisturbed.spec(), client=client)
    path = project.files()[1]
    whole = path.read_bytes()
    metadata = pq.ParquetFile(path).metadata.row_group(0).column(0)
    start = metadata.dictionary_page_offset or metadata.data_page_offset
    torn = bytearray(whole)
    torn[start : start + 60] = bytes(byte ^ 0xA5 for byte in torn[start : start + 60])
    path.write_bytes(bytes(torn))
    with pytest.raises(ReleaseError, match=r"part-1\.parquet cannot be read") as failure:
        dbern.release(project.spec(), client=client)
    assert failure.value.exit_code == 1
    assert "private-" not in str(failure.value)
    assert not project.output.exists()
    path.write_bytes(whole)
    dbern.release(project.spec(), client=client)
    assert helpers.objects(project.output) == helpers.objects(undisturbed.output)
    assert project.spent() == CHARGED


def test_no_key_or_seal_reaches_a_task(project, client, monkeypatch, fixed):
    """Everything that is sent to the cluster is pickled here and searched."""
    import cloudpickle

    from dbern.privacy.keystream import subkey

    key = bytes(range(32))
    secrets = [key, *(subkey(key, use) for use in ("staging", "seal")),
               subkey(key, "noise", "density", "stream-1")]  # fmt: skip
    sent = []
    original = type(client).submit

    def submit(self, function, *arguments, **named):
        plain = [a for a in arguments if not hasattr(a, "key")]
        sent.append(cloudpickle.dumps((function, plain)))
        return original(self, function, *arguments, **named)

    monkeypatch.setattr(type(client), "submit", submit)
    dbern.release(project.spec(), client=client)
    assert len(sent) >= 3
    assert bytes(range(100, 132)) in sent[0], "the salt is there: the search works"
    for secret in secrets:
        assert not any(secret in message for message in sent)


def test_the_given_client_is_used_where_there_is_no_default_one(project, client, monkeypatch):
    """As `Client(.., set_as_default=False)` leaves it, or another client that is the default."""
    from distributed import client as module

    def nobody():
        raise ValueError("No clients found")

    monkeypatch.setattr(module, "default_client", nobody)
    dbern.release(project.spec(), client=client)


def test_a_release_here_has_a_thread_for_each_processor():
    import dask.system

    with connection.cluster() as started:
        assert started.thread_count() == cpu_count() == dask.system.CPU_COUNT


@pytest.mark.parametrize("asked", [True, False])
def test_stages_are_spans_where_they_are_asked_for(project, client, monkeypatch, asked):
    """Of OpenTelemetry's interface; without what an exception says."""
    told = []

    def start(name, **how):
        told.append((name, how["attributes"]["release"], how["record_exception"]))
        return nullcontext()

    tracer = SimpleNamespace(start_as_current_span=start)
    trace = SimpleNamespace(get_tracer=lambda _name: tracer)
    monkeypatch.setitem(sys.modules, "opentelemetry", SimpleNamespace(trace=trace))
    if asked:
        monkeypatch.setenv("DBERN_SPANS", "private")
    dbern.release(project.spec(), client=client)
    stages = ["reading and counting", "adding noise and publishing"]
    assert [one for one in told if one[0] in stages] == [
        (stage, "density", False) for stage in stages if asked
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"mechanism": {"k": 6, "h": 2, "noise": "binned-laplace"}},
        pytest.param({"mechanism": {"k": 6, "h": 2}}, marks=pytest.mark.slow),
        pytest.param(
            {**SOLVED, "mechanism": {"k": 6, "h": 2, "noise": "spectral-laplace"}},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["bins", "lattice", "spectral"],
)
def test_a_released_tensor_of_zeros_is_read_as_any_other(project, monkeypatch, changes):
    """Nothing was left out of the store, in which zeros are what a missing object would mean."""
    monkeypatch.setattr(publish, "privatize", lambda center, *_rest: np.zeros_like(center))
    if "data__label" in changes:
        project.write(labelled())
    out = dbern.release(project.spec(**changes))
    assert out.synopsis.verify() > 0
    assert not out.synopsis(np.array([[1.0, 0.1]])).any()


@pytest.mark.slow
def test_progress_tells_no_private_number_of_rows(project):
    """Tasks are files then, whatever their rows and row groups."""
    with project.ledger() as ledger:
        ledger.grant("private", Budget.parse("2"), neighbors=dbern.Neighbors.ADD_OR_REMOVE_ONE)
    told: dict[int, list] = {}
    for rows in (3, 240):
        project.write({name: values[:rows] for name, values in records().items()})
        spec = project.spec(
            data={"neighbors": "add-or-remove-one", "normalizer": "240"},
            release={"name": f"of-{rows}", "output": f"of-{rows}.zarr"},
            budget={"dataset": "private"},
        )
        calls = told[rows] = []
        dbern.release(spec, progress=lambda *call, to=calls: to.append(call))
    assert told[3] == told[240]
    assert ("reading and counting", 3, 3) in told[3]
