"""Releases from tables that are no files: the same integers, once, with nothing left behind."""

from __future__ import annotations

import os
import sys
import traceback
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from clusters import local_cluster
from distributed import Client
from projects import KEY, SALT, Project, records

import dbern
from dbern.data import footers, frames
from dbern.data.domain import Column
from dbern.data.footers import read_footers
from dbern.data.frames import frame_batches, frame_of
from dbern.data.parquet import read_batches
from dbern.data.times import TimeUnit
from dbern.errors import (
    BudgetError,
    EnvironmentRefusedError,
    IntegrityError,
    OtherDataError,
    ReleaseError,
    SpecError,
)
from dbern.ledger import staging as ledger_spool
from dbern.run import counting, stages
from dbern.run.graph import make_tasks
from dbern.run.partitions import refuse_shared_steps
from dbern.run.stages import abandon
from dbern.run.tasks import count_portions

pytest.importorskip(
    "pyarrow.parquet.encryption", reason="this pyarrow was built without encryption"
)
if not hasattr(sys.modules["pyarrow.parquet.encryption"], "create_encryption_properties"):
    pytest.skip("this pyarrow cannot encrypt with a key of ours", allow_module_level=True)

NO_FILES = {"source": None}


def table_of(project) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in project.files()])


def polars_of(table):
    return pytest.importorskip("polars").from_arrow(table)


def relation_of(table):
    return pytest.importorskip("duckdb").from_arrow(table)


FAST = "pandas, an axis as index"
KINDS = {
    "pandas": lambda table: table.to_pandas(),
    "pandas, an axis as index": lambda table: table.to_pandas().set_index("x"),
    "pandas of Arrow": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": polars_of,
    "arrow": lambda table: table,
    "reader": lambda table: table.to_reader(max_chunksize=7),
    "dataset": ds.dataset,
    "duckdb": relation_of,
}


def values_of(folder) -> dict[str, bytes]:
    """What was released, without what says of which spec."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "/c/" in str(path)
    }


@pytest.mark.usefixtures("fixed")
@pytest.mark.parametrize(
    "kind", [pytest.param(one, marks=[pytest.mark.slow] * (one != FAST)) for one in KINDS]
)
def test_a_table_gives_the_integers_of_its_files(project, kind):
    twin = project.twin("files")
    dbern.release(twin.spec())
    n = {"n": 240} if kind == "reader" else {}
    out = dbern.release(project.spec(data={**NO_FILES, **n}), data=KINDS[kind](table_of(project)))
    assert (str(out.charge), out.notes, project.remains()) == ("epsilon 1", (), [])
    assert project.spent() == "epsilon 1, epsilon 0 reserved"
    assert values_of(project.output) == values_of(twin.output) != {}


def everything(rows: int = 400) -> pd.DataFrame:
    """Texts, categories, truths, whole numbers, decimals and times of a zone, with gaps."""
    draw = np.random.default_rng(5)
    first = pd.Timestamp("2026-03-28", tz="Europe/Zurich")
    frame = pd.DataFrame(
        {
            "when": first + pd.to_timedelta(draw.integers(0, 3 * 86400, rows), unit="s"),
            "paid": pd.array(draw.integers(0, 50, rows)).astype("Int64"),
            "who": pd.Series([f"person-{one}" for one in draw.integers(0, 90, rows)]).astype(
                "string"
            ),
            "kind": pd.Categorical(draw.choice(["a", "b", "c"], rows)),
            "tip": pd.Series(draw.integers(0, 1000, rows) / 100).astype("Float64"),
            "done": pd.array(draw.integers(0, 2, rows).astype(bool)),
            "free text": ["x"] * rows,
        },
        index=draw.integers(0, 5, rows),
    )
    frame.iloc[:3, frame.columns.get_indexer(["paid", "who", "tip"])] = None
    frame["unused"] = pd.Series([object()] * rows, dtype=object)
    return frame


ROLES = {
    "data.filter": {"column": "done", "values": [True]},
    "data.label": {"column": "kind", "classes": ["a", "c"]},
    "data.response": {"column": "tip", "bounds": [0, 9]},
    "data.group": {"column": "kind", "values": ["b", "c"]},
}
ERM = {"kind": "kernel-erm", "loss": "logistic", "length_scale": [1e4, 9.0], "C": 5.0, "shards": 2}
UNITS = {"neighbors": "add-or-remove-one", "normalizer": "400",
         "unit": {"column": "who", "max_contributions": 3}}  # fmt: skip
REGRESSION = {"kind": "nadaraya-watson", "bandwidth": [2e4, 5.0]}
SPECS = {
    "shards of units": (UNITS, ["data.filter", "data.label"], ERM),
    "shards of rows": ({}, ["data.label"], ERM),
    "a response": ({}, ["data.response", "data.filter"], REGRESSION),
    "groups": ({}, ["data.group"], {"kind": "kernel-density", "bandwidth": [2e4, 5.0]}),
}


def states(spec, files):
    """Exact sums of all passes under a fixed salt."""
    counters = stages.plan_files(spec, files).counters(spec)
    portions = tuple(part for task in make_tasks(files, SALT) for part in task)
    for index in range(max(1, counters.passes)):
        outcome = count_portions(counters, portions, SALT, index)
        assert not outcome.failure, outcome
        yield outcome.state.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pandas", "polars", "duckdb"])
@pytest.mark.parametrize("name", SPECS)
def test_every_type_of_column_counts_as_in_a_file(tmp_path, name, kind, monkeypatch):
    monkeypatch.setattr(frames, "GROUP_ROWS", 64)  # several row groups
    monkeypatch.setattr(frames, "_CONVERTED_ROWS", 30)
    data, roles, target = SPECS[name]
    frame = everything()
    bounds = {"when": ["2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z"], "paid": [0.0, 50.0]}
    named = {role.partition(".")[2]: ROLES[role] for role in roles}
    spec = dbern.ReleaseSpec(
        release={"name": "all", "output": "all.zarr"}, data={**data, **named, "bounds": bounds},
        target=target, budget={"epsilon": "1", "dataset": "all", "ledger": "sqlite:///no.db"},
    )  # fmt: skip
    written, spooled = tmp_path / "files.parquet", tmp_path / "spool.parquet"
    frame.drop(columns="unused").to_parquet(written, row_group_size=33)
    table = pq.read_table(written)
    given = frame if kind == "pandas" else KINDS[kind](table)
    with spooled.open("wb") as file:
        assert frames.write_spool(file, frame_of(given, spec.columns), KEY) == len(frame)
    expected = list(states(spec, read_footers([written], spec.columns)))
    with footers.unlocked(str(spooled), KEY):
        files = [footers.read_footer(str(spooled))]
        assert len(files[0].row_groups) > 3
        assert list(states(spec, files)) == expected
    assert np.any(expected)


# --- interrupted, resumed, given up


def interrupt(spec, table, place="dbern.run.counting.tree_reduce"):
    """Stop a release of a table there, as ctrl-c would."""

    def stop(*_arguments, **_more):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, stop)
        with pytest.raises(KeyboardInterrupt):
            dbern.release(spec, data=table)


def spooled(project) -> Path:
    name = f"{project.reservation().release_id}.spool"
    return project.ledger_path.with_name("ledger.db.staging") / name


@pytest.mark.slow
@pytest.mark.usefixtures("fixed")
def test_what_was_spooled_goes_on_without_the_frame_and_whatever_else_is_given(
    project, monkeypatch
):
    table = table_of(project)
    twin = project.twin("whole")
    dbern.release(twin.spec(data=NO_FILES), data=table)
    spec = project.spec(data=NO_FILES)
    interrupt(spec, table)
    (path,) = spooled(project).iterdir()
    content = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    assert spooled(project).stat().st_mode & 0o777 == 0o700
    assert content[:4] == content[-4:] == b"PARE"  # Parquet with an encrypted footer
    assert all(np.float64(value).tobytes() not in content for value in table["x"].to_pylist()[20:])
    other = table.slice(0, 100)
    out = dbern.release(spec, data=other)
    assert out.notes == ("what was spooled or counted before goes on: this table was not read",)
    assert values_of(project.output) == values_of(twin.output)
    assert (project.remains(), project.spent()) == ([], "epsilon 1, epsilon 0 reserved")
    assert dbern.release(spec).notes == dbern.release(spec, data=table).notes[:1] != out.notes
    monkeypatch.setattr("dbern.data.frames._TABLES", {})  # the twin's has its id
    with pytest.raises(OtherDataError, match="data: 100 rows are not the 240 that release"):
        dbern.release(spec, data=other)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "dask"])
def test_another_table_of_this_process_is_not_answered_by_the_old_release(project, kind):
    """`f / 2` with the spec of `f` was: of as many rows, a note at the end said so."""
    frame = pd.DataFrame(records())[["x", "y"]]
    made = {
        "pandas": lambda frame: frame,
        "polars": lambda frame: polars_of(pa.Table.from_pandas(frame)),
        "arrow": pa.Table.from_pandas,
        "dask": lambda frame: pytest.importorskip("dask.dataframe").from_pandas(frame, 2),
    }[kind]
    spec, table, half = project.spec(data={"source": None, "n": None}), made(frame), made(frame / 2)
    first = dbern.release(spec, data=table)
    assert first.notes == ()
    assert "already published, on 20" in dbern.release(spec, data=table).notes[0]
    with pytest.raises(OtherDataError, match="data: this is not the table that release") as told:
        dbern.release(spec, data=half)
    assert f"dbern.open({first.url!r})" in str(told.value)
    assert project.spent() == "epsilon 1, epsilon 0 reserved"


def test_where_nothing_public_tells_two_tables_apart_it_is_said_first(project, monkeypatch):
    """As in another process, which does not know the table."""
    spec, frame = project.spec(data={"source": None, "n": None}), pd.DataFrame(records())
    dbern.release(spec, data=frame)
    monkeypatch.setattr("dbern.data.frames._TABLES", {})
    first, second = dbern.release(spec, data=frame.copy()).notes
    assert first.startswith("this release was already published, on 20")
    assert second == "nothing public tells whether this is the table that it was made from"


@pytest.mark.slow
@pytest.mark.usefixtures("fixed")
def test_the_command_line_finishes_what_was_spooled(project, run):
    interrupt(project.spec(data=NO_FILES), table_of(project))
    remote = run("release", project.spec_path, "--scheduler", "127.0.0.1:1")
    assert remote.code == 2
    assert "no other has the key of its spool" in remote.err
    assert run("release", project.spec_path).code == 0
    assert project.remains() == []
    planned = run("plan", project.spec_path)
    assert (planned.code, "data.source: is missing" in planned.err) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["while", "after"])
def test_a_crash_around_the_spool_is_refunded_or_begun_again(project, when):
    place = {"while": "dbern.data.frames._groups", "after": "dbern.run.counting.unlocked"}[when]
    spec, table = project.spec(data=NO_FILES), table_of(project)
    interrupt(spec, table, place)
    assert project.reservation().state.value == "reserved"
    assert spooled(project).exists() == (when == "after")
    if when == "while":
        with pytest.raises(SpecError, match=r"^data\.source: is missing.*spec, data=frame"):
            dbern.release(spec)
        with pytest.raises(SpecError, match=r"its input changed .*\(n\)"):
            dbern.release(spec, data=table.slice(0, 100))
    with project.ledger() as ledger:
        assert abandon(ledger, "trips", "density").refunded
    assert project.remains() == []
    dbern.release(spec, data=table.slice(0, 200))
    assert project.spent() == "epsilon 1, epsilon 0 reserved"


@pytest.mark.slow
@pytest.mark.usefixtures("fixed")
def test_a_damaged_or_lost_spool_is_told_and_the_frame_can_be_given_again(project):
    spec, table = project.spec(data=NO_FILES), table_of(project)
    interrupt(spec, table)
    (path,) = spooled(project).iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-40])
    with pytest.raises(IntegrityError, match=r"is damaged\. Remove it and give the data frame"):
        dbern.release(spec)
    middle = len(content) // 2
    path.write_bytes(content[:middle] + b"\0\0\0\0" + content[middle + 4 :])
    with pytest.raises(ReleaseError, match="cannot be read as Parquet"):
        dbern.release(spec)
    path.unlink()
    with pytest.raises(SpecError, match=r"^data\.source: is missing"):
        dbern.release(spec)
    assert dbern.release(spec, data=table).notes == ()


@pytest.mark.slow
@pytest.mark.usefixtures("fixed")
def test_a_full_disk_leaves_no_spool_and_the_same_call_goes_on(project, monkeypatch):
    spec, table = project.spec(data=NO_FILES), table_of(project)
    with monkeypatch.context() as patch:
        patch.setattr(ledger_spool.os, "fsync", lambda _file: os.write(-1, b""))
        with pytest.raises((ReleaseError, EnvironmentRefusedError)):
            dbern.release(spec, data=table)
    dbern.release(spec, data=table)
    assert project.remains() == []


# --- what a plan may ask, and what is no table


def test_a_plan_asks_for_no_rows(project):
    spec, table = project.spec(data=NO_FILES), table_of(project)
    reader = table.to_reader()
    with pytest.raises(SpecError, match=r"^data\.n: is missing\. Write n"):
        dbern.plan(spec, data=reader)
    stated = project.spec(data={**NO_FILES, "n": 240})
    planned = dbern.plan(stated, data=reader)
    assert reader.read_all().num_rows == 240
    of_files = dbern.plan(project.spec())
    assert planned.to_dict()["components"] == of_files.to_dict()["components"]
    assert dbern.plan(spec, data=table.to_pandas()).n == of_files.n == 240
    known = footers.Footer("data", 0, (), 2)
    assert frame_of(table.slice(0, 0), spec.columns).footers == (known,)


def test_a_reader_of_another_number_of_rows_than_stated_is_refused_and_refunded(project):
    spec, table = project.spec(data={**NO_FILES, "n": 200}), table_of(project)
    reader = table.to_reader()
    given_up = ".*For another data.n first run: dbern ledger abandon --dataset trips --name density"
    for said in "240 rows were read, .* 200. Give a table", "0 rows .*: give a fresh one":
        with pytest.raises(SpecError, match=f"^data: {said}{given_up}"):
            dbern.release(spec, data=reader)
    assert len(project.remains()) == 1  # the key
    with project.ledger() as ledger:
        assert abandon(ledger, "trips", "density").refunded


# --- one missing value decides no type


BIG = 2**53 + 1
GAPS = {
    "integers": ([0, 1, 7], (1, 0)),
    "unsigned": (np.array([0, 1, 7], np.uint8), (1, 0)),
    "great integers": ([0, BIG, 7], (BIG, 0)),
    "booleans": ([True, False, True], (False, True)),
    "booleans of numpy": (list(np.array([True, False, True])), (False, True)),
    "nullable": (pd.array([0, 1, 7], "Int64"), (1, 0)),
    "texts": (["a", "b", "a"], ("b", "a")),
    "categories": (pd.Categorical([0, 1, 7]), (1, 0)),
}


def floats_of(table, column) -> list[float]:
    return [float(v) for rows in frames.frame_batches(frame_of(table, [column])) for v in rows["v"]]


@pytest.mark.parametrize("name", GAPS)
@pytest.mark.parametrize("kind", ["pandas", "arrow", "file"])
def test_a_missing_value_decides_no_type(tmp_path, name, kind):
    """pandas makes floats of integers of which one is missing, and objects of booleans."""
    values, listed = GAPS[name]
    column = Column("v", "data.label.classes", listed)
    whole = pd.DataFrame({"v": pd.Series(values)})
    gap = whole.shift(-1)  # the last value is missing
    assert len({str(kinds) for kinds in (whole.dtypes.v, gap.dtypes.v)}) == (
        1 if name in ("nullable", "texts", "categories") else 2
    )

    def read(frame) -> list[float]:
        if kind != "file":
            return floats_of(frame if kind == "pandas" else pa.Table.from_pandas(frame), column)
        frame.to_parquet(tmp_path / "v.parquet")
        read_footers([tmp_path / "v.parquet"], [column])
        return next(read_batches(str(tmp_path / "v.parquet"), [0], [column]))["v"].tolist()

    expected = [float(listed.index(v)) if v in listed else np.nan for v in values]
    np.testing.assert_array_equal(read(whole), expected)
    if name == "great integers":  # pandas has rounded it: it stands for two
        expected[1] = np.nan
    np.testing.assert_array_equal(read(gap), [*expected[1:], np.nan])


@pytest.mark.parametrize(
    "column", [Column("v", "data.bounds.v"), Column("v", "data.unit", ids=True)]
)
def test_what_pandas_has_no_missing_value_for_is_refused_whether_one_is_missing(column):
    """Elsewhere than in a list of true and false its values may be anything."""
    whole = pd.DataFrame({"v": [True, False, True]})
    for frame in (whole, whole.shift(1)):
        with pytest.raises(
            SpecError, match=r'^data: column "v" is of type (bool|object), .*astype'
        ):
            frame_of(frame, [column])
    assert len(floats_of(whole.astype("boolean").shift(1), Column("v", "data.bounds.v"))) == 3


@pytest.mark.parametrize("kind", ["table", "polars", "file"])
def test_a_column_without_a_value_is_missing_in_any_role(tmp_path, kind):
    """A writer that infers types knows none for it: the one value would decide."""
    table = pa.table({"v": pa.nulls(3), "x": [1.0, 2.0, 3.0]})
    roles = {"categories": ("a",)}, {"unit": TimeUnit.DAYS}, {"ids": True}, {}
    for role in roles:
        column = Column("v", "data.v", **role)
        if kind == "file":
            pq.write_table(table, tmp_path / "v.parquet")
            pq.write_table(pa.table({"v": ["a"]}), tmp_path / "w.parquet")
            files = [tmp_path / "v.parquet"] + [tmp_path / "w.parquet"] * ("ids" in role)
            assert read_footers(files, [column])[0].rows == 3
            (rows,) = read_batches(str(tmp_path / "v.parquet"), [0], [column])
        else:
            frame = frame_of(table if kind == "table" else polars_of(table), [column])
            (rows,) = frames.frame_batches(frame)
        assert rows["v"].shape == ((3, 2) if "ids" in role else (3,))
        assert np.isnan(rows["v"]).all()


@pytest.mark.parametrize("kind", ["i2", "u4", "i8", "f2", "f4", "f8", "M8[s]"])
def test_columns_of_another_byte_order_are_read(kind):
    """As FITS files have them."""
    own = np.array([0, 1, 5], kind)
    column = Column("v", "data.bounds.v", unit=TimeUnit.SECONDS if "M" in kind else None)
    swapped = pd.DataFrame({"v": own.astype(own.dtype.newbyteorder())})
    assert floats_of(swapped, column) == [0.0, 1.0, 5.0]


# --- datasets of files that differ, and what is not read of a table


def ticks(unit, zone=None):
    return pa.array([0, 1000, None]).cast(pa.timestamp(unit, zone))


WHOLE = pa.array([0, 1, None])
CENTS = pa.array([Decimal("0.25"), Decimal("1.5"), None], pa.decimal128(20, 2))
WORDS = pa.array(["a", "b", None])
TWO_TYPES = {
    "integers": [WHOLE.cast(pa.int32()), WHOLE],
    "signs": [WHOLE.cast(pa.uint8()), WHOLE.cast(pa.int8())],
    "floats": [WHOLE.cast(pa.float32()), WHOLE.cast(pa.float64())],
    "integers and floats": [WHOLE, WHOLE.cast(pa.float64())],
    "decimals": [CENTS, CENTS.cast(pa.decimal128(20, 5))],
    "booleans": [WHOLE.cast(pa.bool_()), WHOLE],
    "times": [ticks("ms"), ticks("us")],
    "zones": [ticks("us"), ticks("us", "UTC")],
    "dates": [pa.array([0, 1, None], pa.int32()).cast(pa.date32()), ticks("us")],
    "texts": [WORDS, WORDS.cast(pa.large_string())],
    "dictionaries": [WORDS.dictionary_encode(), WORDS],
    "nothing": [pa.nulls(3), WHOLE],
    "lists": [pa.array([[1.0]] * 3), pa.array([[1]] * 3)],
    "structs": [pa.array([{"z": 1}] * 3), pa.array([{"z": 1.5}] * 3)],
}


def dataset_of(folder: Path, name: str, **other) -> ds.Dataset:
    folder.mkdir(exist_ok=True)
    for number, values in enumerate(TWO_TYPES[name]):
        pq.write_table(pa.table({"v": values, "x": [1.0, 2.0, 3.0]}), folder / f"{number}.parquet")
    return ds.dataset(folder, **other)


@pytest.mark.parametrize("name", TWO_TYPES)
def test_a_dataset_whose_files_have_a_column_in_two_types_is_refused_by_them(tmp_path, name):
    """In either order and by a schema of its own; one that is not read is no obstacle."""
    column = Column("v.z" if name == "structs" else "v", "data.bounds.v")
    plain, reverse = dataset_of(tmp_path, name), [tmp_path / f"{i}.parquet" for i in (1, 0)]
    own = ds.dataset(tmp_path, schema=plain.schema)
    for files in (plain, ds.dataset(reverse), own, ds.dataset([plain])):
        with pytest.raises(SpecError, match=r'^data: column "v" is .* Name the files in data\.sou'):
            frame_of(files, [column])
        x = Column("x", "data.bounds.x")
        read = list(frames.frame_batches(frame_of(files, [x])))
        np.testing.assert_array_equal(np.concatenate([rows["x"] for rows in read]), [1, 2, 3] * 2)
    with pytest.raises(SpecError, match='"v" is'):  # which its filter may read
        frame_of(plain.filter(ds.field("v").is_valid()), [x])


@pytest.mark.parametrize("extension", ["csv", "json"])
def test_a_dataset_of_texts_is_refused(tmp_path, extension):
    """Its types are those of the first values, and any later one may not fit."""
    path = tmp_path / f"x.{extension}"
    path.write_text({"csv": "x\n1\n", "json": '{"x": 1}\n'}[extension])
    with pytest.raises(SpecError, match=f"dataset of {extension.upper()} takes its types from its"):
        frame_of(ds.dataset(path, format=extension), [Column("x", "data.bounds.x")])


def test_a_column_of_a_relation_that_is_not_read_is_not_computed():
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.sql(
        """select 1.5 as "a ""b", cast(t as int) as bad, 3 as c, {'k': 4, 'l': 5} as s
           from (values ('1'), ('private')) as v(t)"""
    )
    columns = [Column(name, f"data.bounds.{name}") for name in ("c", "s.k", 'a "b')]
    frame = frame_of(relation, columns)
    assert frame.count() == 2
    (rows,) = frames.frame_batches(frame)
    assert {name: values.tolist() for name, values in rows.items()} == {
        "c": [3.0, 3.0],
        "s.k": [4.0, 4.0],
        'a "b': [1.5, 1.5],
    }


class Stream:
    """A stream that fails, after all or before, with a text that tells of a row."""

    def __init__(self, table, batches):
        self.schema, self._table, self._batches = table.schema, table, batches

    def __arrow_c_stream__(self, requested_schema=None):
        def rows():
            yield from self._table.to_batches()[: self._batches]
            raise ValueError("private-3 of 1.5 is wrong")

        reader = pa.RecordBatchReader.from_batches(self.schema, rows())
        return reader.__arrow_c_stream__(requested_schema)


class Unread:
    def __arrow_c_stream__(self, requested_schema=None):
        raise AssertionError("was read")


def pandas_with(**columns):
    return pd.DataFrame({"x": [1.0], "y": [0.5]}).assign(**columns)


X = r"^data\.bounds\.x: "
REFUSED = {
    "a generator": (lambda: (one for one in [1]), r"of type generator .*RecordBatchReader"),
    "a list": (lambda: [{"x": 1.0}], r"^data: a table of type list cannot be read\. Give a pandas"),
    "a series": (lambda: pandas_with()["x"], "type Series cannot be read"),
    "an array": (lambda: np.zeros((3, 2)), "of type ndarray cannot be read"),
    "lazy": (lambda: polars_of(pa.table({"x": [1.0]})).lazy(), "LazyFrame .* Collect a lazy frame"),
    "a mute stream": (Unread, r"tells its columns only where it is read\. Give pyarrow\.Rec"),
    "no rows": (lambda: pandas_with().iloc[:0], r"^data\.source: there are no rows"),
    "no column": (lambda: pandas_with()[["x"]].assign(z=1),
                  r'^data\.bounds\.y: data has no column "y"\. Write one of: x, z'),
    "a column twice": (lambda: pd.concat([pandas_with(), pandas_with()], axis=1),
                       X + 'data has "x" twice'),
    "an index and a column": (lambda: pandas_with().set_index("x", drop=False), 'has "x" twice'),
    "objects": (lambda: pandas_with(x=pd.Series([1.0], dtype=object)),
                r'^data: column "x" is of type object.*frame\.astype'),
    "texts": (lambda: pandas_with(x=pd.Series(["private"]).astype("string")),
              X + "is of type (large_)?string in data"),
    "categories": (lambda: pandas_with(x=pd.Categorical(["private"])), X + "is of type dictionary"),
    "mixed categories": (lambda: pandas_with(x=pd.Categorical([1.0, "private"][:1],
                                                              categories=[1.0, "private"])),
                         r'^data: column "x" is of type category, of objects.*frame\.astype'),
    "times": (lambda: pandas_with(x=pd.Timestamp("2026-01-01", tz="UTC")), "Write two dates"),
    "spans": (lambda: pandas_with(x=pd.Timedelta(1, "s")), X + "is of type duration"),
    "periods": (lambda: pandas_with(x=pd.Period("2026-01")), X + "is of type"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_told_without_a_value(project, name):
    make, told = REFUSED[name]
    spec = project.spec(data=NO_FILES)
    for tried in (dbern.plan, dbern.release):
        with pytest.raises(SpecError, match=told) as refused:
            tried(spec, data=make())
        assert "private" not in str(refused.value)
    assert project.spent() == "epsilon 0, epsilon 0 reserved"
    assert project.remains() == []


def test_a_column_that_is_not_read_may_be_of_any_type(project):
    """Of polars' whole numbers of 128 bits Arrow has none."""
    pl = pytest.importorskip("polars")
    wide = pl.DataFrame({"x": [1.0, 2.0], "y": [1.0, 2.0], "z": pl.Series([1, 2], dtype=pl.Int128)})
    assert dbern.plan(project.spec(data=NO_FILES), data=wide).n == 2
    with pytest.raises(SpecError, match=r'^data\.bounds\.x: data has no column "x"\..*: y, z$'):
        dbern.plan(project.spec(data=NO_FILES), data=wide.drop("x"))


def test_dates_of_python_are_read_as_is_advised():
    frame = pd.DataFrame({"x": pd.Series([date(2026, 1, 5)] * 9, dtype=object)})
    columns = [Column("x", "data.bounds.x", unit=TimeUnit.DAYS)]
    with pytest.raises(SpecError, match=r'such as with pandas\.to_datetime\(frame\["x"\]\)\.$'):
        frame_of(frame, columns)
    (records,) = frame_batches(frame_of(frame.assign(x=pd.to_datetime(frame["x"])), columns))
    assert records["x"].tolist() == [TimeUnit.DAYS.of(date(2026, 1, 5))] * 9


def test_a_type_is_told_without_how_many_values_it_numbers(project):
    """pandas numbers 127 by 8 bits, and one more by 16."""
    told = set()
    for count in (127, 128):
        values = pd.Series([f"w{i}" for i in range(count)]).astype("category")
        with pytest.raises(SpecError, match="is of type dictionary of large_string in data") as one:
            dbern.release(project.spec(data=NO_FILES), data=pd.DataFrame({"x": values, "y": 1.0}))
        told.add(str(one.value))
    assert len(told) == 1


@pytest.mark.parametrize("batches", [0, 1])
def test_a_stream_that_fails_tells_no_value_and_leaves_no_spool(project, batches):
    spec = project.spec(data={**NO_FILES, "n": 240})
    with pytest.raises(SpecError, match=r"^data: its rows cannot be read\. Find") as refused:
        dbern.release(spec, data=Stream(table_of(project), batches))
    assert "private" not in "".join(traceback.format_exception(refused.value))
    assert len(project.remains()) == 1  # the key


def test_files_and_a_table_are_not_both_taken(project):
    for tried in (dbern.plan, dbern.release):
        with pytest.raises(SpecError, match=r"^data\.source: names files, and a table was"):
            tried(project.spec(), data=table_of(project))
        with pytest.raises(SpecError, match=r"^data\.source: is missing"):
            tried(project.spec(data=NO_FILES))


def test_an_account_that_cannot_pay_spools_nothing(project, monkeypatch):
    monkeypatch.setattr(counting, "write_spool", None)
    with pytest.raises(BudgetError):
        dbern.release(project.spec(data=NO_FILES, budget={"epsilon": "4"}), data=table_of(project))
    assert project.remains() == []


@pytest.mark.slow
def test_more_rows_than_a_private_number_allows_are_refused(project, monkeypatch):
    private = {**NO_FILES, "neighbors": "add-or-remove-one", "normalizer": "240"}
    twin = Project(project.folder / "private")
    twin.folder.mkdir()
    twin.grant(neighbors=dbern.Neighbors.ADD_OR_REMOVE_ONE)
    spec, table = twin.spec(data=private), table_of(project)
    monkeypatch.setattr("dbern.planning.resolved.most_rows", lambda _normalizer: 239)
    with pytest.raises(SpecError, match="more than 239 rows are not available"):
        dbern.release(spec, data=table.to_reader())
    monkeypatch.setattr("dbern.planning.resolved.most_rows", lambda _normalizer: 240)
    dbern.release(spec, data=table.to_reader())
    assert twin.reservation().content.inputs == {}


# --- Dask frames, counted where their partitions are


def dask_of(table):
    frame = table.to_pandas().sort_values("x", ignore_index=True)
    return pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=5)


@pytest.mark.slow
@pytest.mark.usefixtures("fixed")
def test_a_dask_frame_is_counted_in_this_process(project):
    twin = project.twin("files")
    dbern.release(twin.spec())
    frame = dask_of(table_of(project))
    spec = project.spec(data=NO_FILES)
    assert dbern.plan(spec, data=frame).n == 240
    interrupt(spec, frame, "dbern.run.counting.centers")
    assert project.reservation().state.value == "reading"
    with pytest.raises(SpecError, match=r"^data\.source: is missing"):
        dbern.release(spec)
    assert dbern.release(spec, data=frame).notes == ()
    assert values_of(project.output) == values_of(twin.output) != {}
    assert (project.remains(), project.spent()) == ([], "epsilon 1, epsilon 0 reserved")


@pytest.mark.slow
def test_a_release_of_partitions_that_share_steps_reserves_nothing(project):
    frame = dask_of(table_of(project)).repartition(npartitions=11)
    with pytest.raises(SpecError, match="share steps"):
        dbern.release(project.spec(data=NO_FILES), data=frame)
    assert project.spent() == "epsilon 0, epsilon 0 reserved"


@pytest.mark.slow
def test_a_persisted_dask_frame_needs_its_clusters_client(project, client):
    """Nobody else has its partitions, and nothing is reserved to find that out."""
    spec, frame = project.spec(data=NO_FILES), dask_of(table_of(project))
    kept = client.persist(frame)
    with local_cluster(1) as other, Client(other, set_as_default=False) as stranger:
        assert dbern.plan(spec, data=kept).n == 240
        for given in (None, stranger):
            for persisted in (kept, kept[kept.x > -100]):
                with pytest.raises(
                    SpecError, match=r"^data: .* is persisted on a cluster, .* Give"
                ):
                    dbern.release(spec, given, data=persisted)
        lost = stranger.persist(frame)
        assert project.spent() == "epsilon 0, epsilon 0 reserved"
    spec_of_lost = project.spec(data={**NO_FILES, "n": 240})
    with pytest.raises(SpecError):
        dbern.release(spec_of_lost, client, data=lost)
    assert project.spent() == "epsilon 0, epsilon 0 reserved"
    assert dbern.release(spec, client, data=kept).synopsis.verify()


@pytest.mark.slow
def test_a_dask_frame_whose_partitions_share_steps_is_refused_unless_persisted(client):
    """Each partition's graph runs alone, and a shuffle by chance would deal the rows out anew."""
    frame = pytest.importorskip("dask.dataframe").from_pandas(
        pd.DataFrame({"x": np.arange(200) / 200, "id": np.arange(200)}), npartitions=8
    )
    dealt = frame.map_partitions(lambda rows: rows.assign(to=np.random.default_rng().random()))
    shuffled = dealt.shuffle("to", shuffle_method="tasks")
    columns = [Column("x", "data.bounds.x")]
    for shared in (shuffled, frame.repartition(npartitions=16)):
        with pytest.raises(SpecError, match=r"data: .* share steps, .* Give data\.persist\(\)"):
            refuse_shared_steps(frame_of(shared, columns).partitions)
    for own in (
        frame,
        dealt,
        frame.repartition(npartitions=2),
        shuffled.persist(scheduler="threads"),
        client.persist(shuffled),  # futures, each its own dependency
    ):
        refuse_shared_steps(frame_of(own, columns).partitions)


@pytest.mark.slow
def test_a_dask_frame_does_not_take_the_place_of_rows_that_are_spooled(project):
    table, spec = table_of(project), project.spec(data=NO_FILES)
    interrupt(spec, table)
    with pytest.raises(SpecError, match="spooled from another table"):
        dbern.release(spec, data=dask_of(table))
    assert dbern.release(spec).synopsis.verify()
    assert project.remains() == []


@pytest.mark.slow
@pytest.mark.usefixtures("fixed")
@pytest.mark.parametrize("how", ["lazy", "persisted", "shuffled"])
def test_a_dask_frame_is_counted_where_its_partitions_are(project, processes, how):
    twin = project.twin("files")
    dbern.release(twin.spec())
    frame = dask_of(table_of(project))
    frame = {"lazy": lambda: frame[frame.note != ""], "persisted": frame.persist,
             "shuffled": lambda: frame.shuffle("note").persist()}[how]()  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        # Of this process, which sees no record.
        patch.setattr("dbern.measure.counters.frame_batches", None)
        dbern.release(project.spec(data=NO_FILES), processes, data=frame)
    assert values_of(project.output) == values_of(twin.output) != {}
    assert (project.remains(), project.spent()) == ([], "epsilon 1, epsilon 0 reserved")


@pytest.fixture(scope="module")
def processes():
    """A cluster whose workers are processes of their own."""
    from distributed import Client

    with local_cluster(2, processes=True) as local, Client(local) as connected:
        yield connected


@pytest.mark.slow
def test_partitions_that_are_not_as_told_are_told_without_a_value(project):
    frame = dask_of(table_of(project))

    def other(part):
        return part.assign(x="private") if part.x.min() > 5 else part

    spec = project.spec(data=NO_FILES)
    with pytest.raises(ReleaseError, match=r"^data: a partition has other columns") as told:
        dbern.release(spec, data=frame.map_partitions(other, meta=frame._meta))
    assert "private" not in "".join(traceback.format_exception(told.value))

    def failing(part):
        raise type("private-7", (ValueError,), {})("private-7")

    failed = frame.map_partitions(failing, meta=frame._meta)
    with pytest.raises(SpecError, match=r"^data: its rows cannot be counted\. Find") as told:
        dbern.release(spec, data=failed)
    assert "private" not in "".join(traceback.format_exception(told.value))
    counted = frames.Frame.footers
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            frames.Frame, "footers", property(lambda _: counted.fget(frame_of(frame, [])))
        )
        with pytest.raises(ReleaseError, match=r"A task was given up \(ValueError\)") as told:
            dbern.release(spec, data=failed)
    assert "private" not in "".join(traceback.format_exception(told.value))


@pytest.mark.slow
def test_passes_over_all_records_need_files(project):
    spec = project.spec(
        data={**NO_FILES, "n": 240},
        data__label={"column": "note", "classes": ["a", "b"]},
        target={"kind": "kernel-erm", "loss": "logistic", "length_scale": [3.0, 1.0], "C": 5.0,
                "bandwidth": None},
        mechanism={"k": None, "h": None},
    )  # fmt: skip
    frame = dask_of(table_of(project))
    for tried in (dbern.plan, dbern.release):
        with pytest.raises(SpecError, match=r"^data: kernel-erm, .* take passes over all records"):
            tried(spec, data=frame)
