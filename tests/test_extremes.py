"""The extreme value of every Arrow type in one row: the outcome is that of a tame value.

Whatever table or file holds it, the release is made, or refused for the type alone, and no text
holds the value.
"""

from __future__ import annotations

import re
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from projects import KEY, Project, objects

import dbern
from dbern.data.domain import Column
from dbern.data.footers import unlocked
from dbern.data.frames import frame_of, write_spool
from dbern.data.parquet import read_batches
from dbern.data.times import TimeUnit
from dbern.errors import DbernError, ReleaseError, SpecError
from dbern.run.stages import abandon

pytest.importorskip(
    "pyarrow.parquet.encryption", reason="this pyarrow was built without encryption"
)
if not hasattr(sys.modules["pyarrow.parquet.encryption"], "create_encryption_properties"):
    pytest.skip("this pyarrow cannot encrypt with a key of ours", allow_module_level=True)
from pyarrow.parquet.encryption import create_decryption_properties

ROWS, AT = 8, 3

# --- Types, each with a role, a tame value and extreme ones


def arrow_of(kind: pa.DataType, values: list[Any]) -> pa.Array:
    return pa.array(values, kind)


def ticks(kind: pa.DataType, values: list[int]) -> pa.Array:
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


def unscaled(kind: pa.DataType, values: list[int]) -> pa.Array:
    """Decimals of these integers, whatever their scale."""
    width = kind.bit_width // 8
    content = b"".join(value.to_bytes(width, "little", signed=True) for value in values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(content)])


def texts(kind: pa.DataType, values: list[bytes]) -> pa.Array:
    """Texts of bytes that need be no Unicode."""
    if pa.types.is_dictionary(kind):
        return texts(kind.value_type, values).dictionary_encode().cast(kind, safe=False)
    return pa.array(values, pa.large_binary()).cast(kind, safe=False)


@dataclass(frozen=True)
class Case:
    """A type, the role that a column of it has, and values for it."""

    kind: pa.DataType
    role: str
    tame: Any
    extremes: tuple[Any, ...]
    make: Callable[[pa.DataType, list[Any]], pa.Array] = arrow_of

    def table(self, value: Any) -> pa.Table:
        values = [self.tame] * ROWS
        values[AT] = value
        columns = {"v": self.make(self.kind, values), "x": np.arange(float(ROWS)),
                   "other": [f"private-{i}" for i in range(ROWS)]}  # fmt: skip
        return pa.table(columns)


def largest(bits: int) -> tuple[int, ...]:
    return 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 1 - 2 ** (bits - 1)


NO_NUMBERS = (np.inf, -np.inf, np.nan, -0.0, None)
FLOATS = {pa.float16(): (65504.0, 6e-8), pa.float32(): (3.4e38, 1e-45),
          pa.float64(): (1.79e308, 5e-324)}  # fmt: skip
DECIMALS = (pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(38, 0), pa.decimal128(38, 38),
            pa.decimal256(76, 0), pa.decimal256(76, 76), pa.decimal256(5, -180),
            pa.decimal128(38, -250))  # fmt: skip
NUMBERS = [
    *(Case(kind, "axis", 1, largest(kind.bit_width))
      for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *(Case(kind, "axis", 1, (2**kind.bit_width - 1,))
      for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    *(Case(kind, "axis", kind.to_pandas_dtype()(1),
           (*map(kind.to_pandas_dtype(), (*values, *NO_NUMBERS[:4])), None))
      for kind, values in FLOATS.items()),
    *(Case(kind, "axis", 5, (10**kind.precision - 1, 1 - 10**kind.precision), unscaled)
      for kind in DECIMALS),
    Case(pa.bool_(), "axis", True, (False,)),  # pandas itself makes objects of those with gaps
    Case(pa.null(), "axis", None, (None,)),
]  # fmt: skip
TIMES = [
    Case(kind, "time", 1, largest(kind.bit_width), ticks)
    for kind in (pa.date32(), pa.date64(), *(pa.timestamp(unit, zone)
                 for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Europe/Zurich")))
]  # fmt: skip
EXTREME_TEXTS = (b"", b"\0", b"private-" + b"x" * 70_000, b"private-\xff\xed\xa0\x80")
TEXTS = [
    Case(kind, "group", b"a", EXTREME_TEXTS, texts)
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
                 pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.uint64(), pa.string()),
                 pa.dictionary(pa.int32(), pa.large_string()))
]  # fmt: skip
UNREAD = [
    Case(pa.duration("s"), "axis", 1, (2**62 + 1,)),
    Case(pa.time32("s"), "axis", 1, (86399,)),
    Case(pa.time64("ns"), "axis", 1, (86399 * 10**9,)),
    *(
        Case(kind, "axis", [1] * 3, ([1] * 50_000, [], [None] * 3, None))
        for kind in (pa.list_(pa.float64()), pa.large_list(pa.int64()), pa.list_view(pa.float64()))
    ),
    Case(pa.month_day_nano_interval(), "axis", (1, 1, 1), ((2**31 - 1, 2**31 - 1, 2**63 - 1),)),
]
IDS = [replace(case, role="id") for case in (*NUMBERS[3:], *TEXTS) if "16" not in str(case.kind)]
CASES = {
    "numbers": NUMBERS,
    "times": TIMES,
    "texts": [*TEXTS, *(replace(case, role="filter") for case in TEXTS[::5])],
    "ids": IDS,
    "unread": UNREAD,
}


# --- Tables, files, and specs in which the column has its role


def pandas_of_arrow(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas(types_mapper=pd.ArrowDtype)


TABLES = {
    "pandas": lambda table: table.to_pandas(),
    "pandas of Arrow": pandas_of_arrow,
    "polars": lambda table: sys.modules["polars"].from_arrow(table),
    "arrow": lambda table: table,
    "reader": lambda table: table.to_reader(max_chunksize=3),
    "dataset": ds.dataset,
    "duckdb": lambda table: sys.modules["duckdb"].from_arrow(table),
    "dask": lambda table: sys.modules["dask.dataframe"].from_pandas(pandas_of_arrow(table), 2),
}


def in_file(table: pa.Table, path: Path) -> None:
    kind = table.schema.field("v").type
    if str(kind).startswith("timestamp[s"):  # which Parquet has not: the same numbers, as it can
        values = table.column("v").combine_chunks().view(pa.timestamp("ms", kind.tz))
        table = table.set_column(0, "v", values)
    pq.write_table(table, path, row_group_size=3)


ROLES: dict[str, dict[str, Any]] = {
    "axis": {"data__bounds": {"v": [0.0, 10.0]}},
    "time": {"data__bounds": {"v": ["1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z"]},
             "target": {"bandwidth": [9000.0]}},
    "group": {"data__group": {"column": "v", "values": ["a", "b"]}},
    "filter": {"data__filter": {"column": "v", "values": ["a", "b"]}},
    "id": {"data__unit": {"column": "v", "max_contributions": 2},
           "data": {"neighbors": "add-or-remove-one", "normalizer": "8"}},
}  # fmt: skip
UNIT = {"neighbors": dbern.Neighbors.ADD_OR_REMOVE_ONE, "unit": dbern.PrivacyUnit("v", 2)}


def project_in(folder: Path) -> Project:
    folder.mkdir()
    return Project(folder)


def spec_for(project: Project, role: str, **data: Any) -> dbern.ReleaseSpec:
    project.grant(**(UNIT if role == "id" else {}))
    changes = {"data": {}, "target": {"bandwidth": [2.0]}, "data__bounds": {"x": [0.0, 8.0]}}
    changes |= ROLES[role]
    changes["data"] = {"source": None, **changes["data"], **data}
    changes["data__bounds"] = {"x": None, "y": None, **changes["data__bounds"]}
    return project.spec(**changes)


def outcome(project: Project, role: str, table: pa.Table, kind: str) -> str:
    """What became of a release, and what it says; the value is in none of it."""
    if kind == "files":
        spec = spec_for(project, role, source="rows.parquet")
        given = None
    else:
        counts = kind != "reader" or role == "id"
        spec = spec_for(project, role, **({} if counts else {"n": ROWS}))
        given = TABLES[kind](table)
    try:
        dbern.release(spec, data=given)
    except DbernError as error:
        text = "".join(traceback.format_exception(error)).replace(str(project.folder), "")
        assert "private" not in text.replace("private-number", "")
        assert not re.search(r"\d{9}", text), text
        return f"{type(error).__name__}: {error}".replace(str(project.folder), "")
    with project.ledger() as ledger:
        release, (account,) = ledger.find("trips", "density"), ledger.status("trips")
    assert release is not None
    return f"{release.state.value}, {account.spent}, {account.reserved} reserved"


def held(kind: str, table: pa.Table, project: Project) -> bool:
    """Whether the table can be made, which is its user's affair."""
    try:
        if kind == "files":
            in_file(table, project.folder / "rows.parquet")
        else:
            TABLES[kind](table)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException:  # noqa: BLE001 -- polars panics
        return False
    return True


def differing(case: Case, kind: str, folder: Path, caplog: Any) -> dict[str, Any]:
    """Outcomes that are not that of the tame value."""
    outcomes = {}
    for number, value in enumerate((case.tame, *case.extremes)):
        project = project_in(folder / f"{case.role}-{number}-{abs(hash((kind, case.kind)))}")
        table = case.table(value)
        if not held(kind, table, project):
            continue
        caplog.clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = outcome(project, case.role, table, kind)
        lines = [
            record.getMessage().replace(str(project.folder), "")
            for record in caplog.records
            if not record.name.startswith("distributed")  # other tests' cluster: it says how busy
        ]
        outcomes[repr(value)[:40]] = made, len(caught), lines
    tame = next(iter(outcomes.values()), None)
    return {value: made for value, made in outcomes.items() if made != tame}


def converts(kind: str, case: Case) -> bool:
    """Whether a library changes the values while they are read: DuckDB's times are microseconds."""
    return kind == "duckdb" and re.match(r"timestamp\[m?s, tz", str(case.kind)) is not None


NEEDED = {"polars": "polars", "duckdb": "duckdb", "dask": "dask.dataframe"}


@pytest.mark.slow
@pytest.mark.usefixtures("fixed")
@pytest.mark.parametrize("kind", [*TABLES, "files"])
@pytest.mark.parametrize("name", CASES)
def test_an_extreme_value_of_any_type_ends_as_a_tame_one(tmp_path, kind, name, caplog):
    if kind in NEEDED:
        pytest.importorskip(NEEDED[kind])
    caplog.set_level("INFO")
    for case in CASES[name]:
        if not converts(kind, case):
            assert not differing(case, kind, tmp_path, caplog), (case.kind, case.role)


# --- Times in seconds, which Parquet has not

SECONDS = [ticks(pa.timestamp("s"), [9000, 9_000_000_000_000_000_123, 5, 2**63 - 1, 1 - 2**63, 70])]
FAST = ("pandas", "pandas of Arrow", "arrow", "reader", "dataset")


def released(project: Project) -> dict[str, bytes]:
    """What was released, without what says of which spec."""
    return {name: content for name, content in objects(project.output).items() if "/c/" in name}


@pytest.mark.sample(test=1)
@pytest.mark.usefixtures("fixed")
@pytest.mark.parametrize("outside", ["drop", "clamp"])
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name not in FAST))
        for name in TABLES
        if name != "polars"  # which has no seconds, and whose own milliseconds wrap around
    ],
)
def test_a_time_far_out_of_bounds_counts_as_in_a_file(tmp_path, kind, outside):
    if kind in NEEDED:
        pytest.importorskip(NEEDED[kind])
    table = pa.table({"v": SECONDS[0]})
    largest_of_file = [9_000_000, 2**63 - 1, 5000, 2**63 - 1, 1 - 2**63, 70_000]
    file, frame = (project_in(tmp_path / name) for name in ("file", "frame"))
    written = pa.table({"v": ticks(pa.timestamp("ms"), largest_of_file)})
    pq.write_table(written, file.folder / "rows.parquet")
    dbern.release(spec_for(file, "time", source="rows.parquet", outside=outside))
    rows = {"n": 6} if kind == "reader" else {}
    spec = spec_for(frame, "time", outside=outside, **rows)
    dbern.release(spec, data=TABLES[kind](table))
    assert released(frame) == released(file) != {}
    assert frame.spent() == "epsilon 1, epsilon 0 reserved"


def test_of_a_struct_only_the_leaf_is_spooled_and_missing_where_the_struct_is(tmp_path):
    leaf = ticks(pa.timestamp("s"), [1, 2**62, 3, 4])
    sibling = ticks(pa.timestamp("s"), [2**62 + 77] * 4)
    inner = pa.StructArray.from_arrays(
        [leaf, sibling], ["v", "w"], mask=pa.array([False, False, True, False])
    )
    outer = pa.StructArray.from_arrays([inner], ["s"], mask=pa.array([False, False, False, True]))
    columns = (Column("t.s.v", "data.bounds.v", unit=TimeUnit.SECONDS),)
    frame = frame_of(pa.table({"t": outer}), columns)
    path = tmp_path / "spool"
    with path.open("wb") as file:
        assert write_spool(file, frame, KEY) == 4
    with unlocked(str(path), KEY):
        options = {"decryption_properties": create_decryption_properties(KEY)}
        assert pq.ParquetFile(path, **options).schema_arrow == pa.schema({"t.s.v": pa.float64()})
        (records,) = read_batches(str(path), [0], columns)
    np.testing.assert_array_equal(records["t.s.v"], [1.0, 2.0**62, np.nan, np.nan])


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("kind", ["string[python]", "string"])
def test_a_text_that_is_no_unicode_is_a_category_like_others(tmp_path, kind, listed):
    """As JSON may hold it: half of a letter, also among those that pandas lists."""
    try:
        values = pd.array(["a", "b", "\ud800", None], dtype=kind)
    except UnicodeEncodeError:
        return  # texts in Arrow's memory cannot be it
    series = pd.Series(values).astype("category" if listed else kind)
    frame = frame_of(pd.DataFrame({"v": series}), (Column("v", "data.group.values", ("a", "b")),))
    path = tmp_path / "spool"
    with path.open("wb") as file:
        write_spool(file, frame, KEY)
    with unlocked(str(path), KEY):
        (records,) = read_batches(str(path), [0], frame.columns)
    np.testing.assert_array_equal(records["v"], [0.0, 1.0, np.nan, np.nan])


# --- Texts that a table numbers by few bits


def numbered(words: int) -> pa.Table:
    """A table of as many words in batches of 100, numbered by 8 bits in each."""
    kind = pa.dictionary(pa.int8(), pa.string())
    parts = [[f"w{i}" for i in range(at, min(at + 100, words))] for at in range(0, words, 100)]
    chunks = [pa.array(part).dictionary_encode().cast(kind) for part in parts]
    return pa.table({"v": pa.chunked_array(chunks, kind), "x": np.arange(words) % 8.0})


@pytest.mark.slow
@pytest.mark.usefixtures("fixed")
@pytest.mark.parametrize("kind", ["arrow", "reader", "files", "dask"])
def test_a_word_more_than_indices_number_ends_as_one_less(tmp_path, kind):
    if kind in NEEDED:
        pytest.importorskip(NEEDED[kind])
    outcomes = []
    for words in (128, 129, 300):
        project = project_in(tmp_path / str(words))
        table = numbered(words)
        if kind == "files":
            pq.write_table(table, project.folder / "rows.parquet")
            dbern.release(spec_for(project, "group", source="rows.parquet"))
        else:
            rows = {"n": words} if kind == "reader" else {}
            dbern.release(spec_for(project, "group", **rows), data=TABLES[kind](table))
        outcomes.append(f"{project.reservation().state.value}, {project.spent()}")
    assert outcomes == ["committed, epsilon 1, epsilon 0 reserved"] * 3


@pytest.mark.parametrize("words", [1, 128, 129])
def test_a_dataset_of_such_texts_is_refused_by_their_type(tmp_path, words):
    """Its own reader fails at the 129th, and nothing is reserved."""
    pq.write_table(numbered(words), tmp_path / "rows.parquet")
    project = Project(tmp_path)
    spec = spec_for(project, "group")
    with pytest.raises(SpecError, match=r"numbers its texts in int8, .* in data\.source"):
        dbern.release(spec, data=ds.dataset(tmp_path / "rows.parquet"))
    assert project.spent() == "epsilon 0, epsilon 0 reserved"


# --- What fails all the same: for no record, without a text, and with no refund where one may tell


SECRET = "private-1.5"


def raising(*_arguments: Any, **_more: Any) -> Any:
    raise type(SECRET, (ValueError,), {})(SECRET) from KeyError(SECRET)


@pytest.mark.parametrize(
    "place",
    ["dbern.run.stages.plan_files", "dbern.run.counting.write_spool",
     "dbern.data.frames.records_of", "dbern.run.counting.tree_reduce",
     "dbern.run.publish.privatize"],
)  # fmt: skip
def test_no_error_that_leaves_a_release_holds_anothers_text(tmp_path, monkeypatch, place):
    project = Project(tmp_path)
    spec = spec_for(project, "axis")
    table = pa.table({"v": np.arange(8.0)})
    with monkeypatch.context() as patch:
        patch.setattr(place, raising)
        with pytest.raises(DbernError) as raised:
            dbern.release(spec, data=table)
    text = "".join(traceback.format_exception(raised.value))
    assert "private-" not in text
    assert ("internal error: ValueError (its text is withheld" in text) == (
        "records_of" not in place
    )
    assert dbern.release(spec, data=table).synopsis.verify()
    assert project.spent() == "epsilon 1, epsilon 0 reserved"


def test_no_error_that_leaves_a_plan_holds_anothers_text(tmp_path, monkeypatch):
    monkeypatch.setattr("dbern.planning.planner.plan_files", raising)
    with pytest.raises(DbernError) as raised:
        dbern.plan(spec_for(Project(tmp_path), "axis"), data=pa.table({"v": np.arange(8.0)}))
    assert "private-" not in "".join(traceback.format_exception(raised.value))


class Panic(BaseException):
    """As polars raises, which is none of Python's exceptions."""


@pytest.mark.parametrize("kind", [ValueError, OSError, Panic])
def test_a_table_that_fails_while_it_is_read_is_not_refunded_and_goes_on(tmp_path, kind):
    """Whether it fails may be due to a record: then it could be asked again and again, for free."""
    project = Project(tmp_path)
    spec, table = spec_for(project, "axis", n=8), pa.table({"v": np.arange(8.0)})

    class Lazy:
        schema = table.schema

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            raise kind("private-1")

    with pytest.raises(SpecError, match=r"^data: its rows cannot be read\. Find") as raised:
        dbern.release(spec, data=Lazy())
    assert "private" not in "".join(traceback.format_exception(raised.value))
    assert project.reservation().state.value == "reading"
    notes = dbern.release(spec, data=table).notes
    assert all(note.startswith("WARNING: the noise is") for note in notes)
    assert project.spent() == "epsilon 1, epsilon 0 reserved"
    other = spec.changed({"release": {"name": "other", "output": "other.zarr"}})
    with pytest.raises(SpecError, match="rows cannot be read"):
        dbern.release(other, data=Lazy())
    with project.ledger() as ledger:
        assert not abandon(ledger, "trips", "other").refunded


def test_a_full_disk_is_told_as_one_and_can_be_refunded(tmp_path, monkeypatch):
    project = Project(tmp_path)
    spec = spec_for(project, "axis")

    def full(*_arguments: object) -> None:
        with Path("/dev/full").open("wb", buffering=0) as file:
            file.write(b"0")

    monkeypatch.setattr("dbern.data.frames.pq.ParquetWriter.write_table", full)
    with pytest.raises(ReleaseError, match=r"spool directory .*: No space left on device"):
        dbern.release(spec, data=pa.table({"v": np.arange(8.0)}))
    assert len(project.remains()) == 1  # the key
    with project.ledger() as ledger:
        assert abandon(ledger, "trips", "density").refunded
