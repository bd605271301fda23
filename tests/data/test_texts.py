"""Long texts and damaged pages: files fail where they are damaged, not by what is in them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dbern
from dbern.data.domain import Column
from dbern.data.footers import UnreadableFileError, footer_tag
from dbern.data.parquet import read_batches, reading_bytes
from dbern.errors import EnvironmentRefusedError, ReleaseError, ShortageError
from dbern.measure.counters import Counters, Portion
from dbern.run.tasks import FAILURES, count_portions

X = Column("x", "data.bounds.x")
GROUP = Column("trip.kind", "data.group.values", ("a" * 50, "bb"))
USER = Column("trip.kind", "data.unit.column", ids=True)
SALT = b"a test's salt"
ROOT = Path(dbern.__file__).parents[1]


def written(path, texts, group=100, **options):
    nested = pa.StructArray.from_arrays([pa.array(texts)], ["kind"])
    columns = {"x": np.arange(float(len(texts))), "trip": nested}
    pq.write_table(pa.table(columns), path, row_group_size=group, **options)
    return path


def read(path, *columns, only=None):
    groups = range(pq.ParquetFile(path).metadata.num_row_groups)
    batches = list(read_batches(str(path), groups, columns, only))
    found = [np.concatenate([batch[c.name] for batch in batches]) for c in columns]
    return found, [len(batch[columns[0].name]) for batch in batches]


@contextmanager
def short(monkeypatch, most, error):
    """Batches of more bytes than `most` fail as Arrow's do at 2^31."""
    original = pq.ParquetFile.iter_batches

    def batches(self, *args, **options):
        for batch in original(self, *args, **options):
            if batch.column(batch.num_columns - 1).nbytes > most:
                raise error
            yield batch

    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetFile, "iter_batches", batches)
        yield


ERRORS = [
    pa.ArrowNotImplementedError("Nested data conversions not implemented for chunked array"),
    pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes"),
    pa.ArrowMemoryError("malloc of size 2147483646 failed"),
    MemoryError(),
]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    ("columns", "only"), [((X, GROUP), None), ((X, USER), None), ((X,), GROUP)]
)
def test_texts_too_long_for_one_batch_are_read_in_several(
    tmp_path, monkeypatch, error, columns, only
):
    texts = ["bb", "a" * 50, "other", None] * 75
    texts[210] = "c" * 2000
    path = written(tmp_path / "a.parquet", texts, store_schema=False)
    whole, sizes = read(path, *columns, only=only)
    assert sizes == [300]
    with short(monkeypatch, 2100, error):
        parts, sizes = read(path, *columns, only=only)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)
    assert max(sizes) > 10 * min(sizes)  # the others' row groups are read as before


def test_one_text_without_memory_is_no_damaged_file(tmp_path, monkeypatch):
    path = written(tmp_path / "a.parquet", ["bb"] * 20)
    portion = Portion(str(path), footer_tag(str(path), SALT), (0,), 20)
    counters = Counters((Told(),), None)
    for error in ERRORS[1:]:
        with short(monkeypatch, 1, error), pytest.raises(ShortageError) as failure:
            read(path, X, GROUP)
        assert failure.value.__suppress_context__
        with short(monkeypatch, 1, error):
            outcome = count_portions(counters, [portion], SALT)
        assert (outcome.failure, outcome.location) == ("memory", str(path))
    said = FAILURES[outcome.failure](outcome.location)
    assert isinstance(said, EnvironmentRefusedError)
    assert str(said).startswith(f"{path}: there is too little memory. Raise the limit")
    assert "Parquet" not in str(said)


class Told:
    """An accumulator of two columns that counts nothing."""

    columns, shape, passes = (X, GROUP), (1,), 0

    def start_pass(self, state, salt, index):
        return _Counted(state)


class _Counted:
    surveys = False

    def __init__(self, state):
        self.state = state

    def add(self, records):
        self.state += 1

    def finish(self):
        pass


def test_nested_dictionaries_of_several_row_groups_are_read(tmp_path):
    """Which Arrow cannot put into one batch: they are two dictionaries."""
    texts = pa.array(["bb", "a" * 50, None, "bb", "other", "a" * 50]).dictionary_encode()
    path = written(tmp_path / "a.parquet", texts, group=3)
    (kinds,), (ids,) = read(path, GROUP)[0], read(path, USER)[0]
    np.testing.assert_array_equal(kinds, [1, 0, np.nan, 1, np.nan, 0])
    np.testing.assert_array_equal(np.isnan(ids).any(axis=1), [False, False, True] + [False] * 3)
    assert len(np.unique(ids[~np.isnan(ids[:, 0])], axis=0)) == 3


def many_words(words: int, index: pa.DataType) -> pa.ChunkedArray:
    """Words in two batches, each of which has no more than its indices number."""
    kind = pa.dictionary(index, pa.string())
    texts, half = [f"w{i}" for i in range(words)], words // 2
    halves = [pa.array(part).dictionary_encode() for part in (texts[:half], texts[half:])]
    return pa.chunked_array([part.cast(kind) for part in halves])


@pytest.mark.slow
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("index", "most"),
    [(pa.int8(), 128), (pa.uint8(), 256), (pa.int16(), 1 << 15), (pa.uint16(), 1 << 16)],
)
def test_a_word_more_than_a_files_indices_number_is_read(tmp_path, index, most, nested):
    group = Column("t.w" if nested else "w", "data.group.values", ("w1", f"w{most}"))
    ids = Column(group.name, "data.unit.column", ids=True)
    for words in (most, most + 1):
        table = pa.table({"w": many_words(words, index)})
        table = pa.table({"t": table.to_struct_array()}) if nested else table
        pq.write_table(table, tmp_path / "a.parquet")
        assert str(index) in str(pq.read_schema(tmp_path / "a.parquet"))  # which decides nothing
        (kinds,), _ = read(tmp_path / "a.parquet", group)
        assert kinds[1] == 0
        assert kinds[most:].tolist() == [1.0][: words - most]
        (units,), _ = read(tmp_path / "a.parquet", ids)
        assert len(np.unique(units, axis=0)) == words


def test_ids_of_texts_are_one_number_however_they_are_stored(tmp_path):
    texts = ["u1", "u" * 3000, None, "u1", "\u00e9" * 500, "u" * 3000]
    kinds = [
        pa.array(texts),
        pa.array(texts, pa.large_string()),
        pa.array(texts).dictionary_encode(),
    ]
    short_ones = [pa.array(texts[i : i + 1]) for i in range(len(texts))]
    found = [
        read(written(tmp_path / f"{i}.parquet", kind), USER)[0][0] for i, kind in enumerate(kinds)
    ]
    alone = [
        read(written(tmp_path / f"one-{i}.parquet", kind), USER)[0][0]
        for i, kind in enumerate(short_ones)
    ]
    for each in (*found, np.concatenate(alone)):
        np.testing.assert_array_equal(each, found[0])


@pytest.mark.slow
def test_memory_of_reading_long_texts_is_what_is_planned(tmp_path):
    code = (
        "import sys, pyarrow as pa; from dbern.data.parquet import *;"
        "from dbern.data.domain import Column;"
        "columns = [Column('trip.kind', '', ids=True)];"
        "[None for _ in read_batches(sys.argv[1], [0], columns)];"
        "assert pa.default_memory_pool().max_memory() <= reading_bytes(columns)"
    )
    texts = [f"{i}".zfill(1000) for i in range(50_000)]
    path = written(tmp_path / "a.parquet", texts, 50_000, use_dictionary=False)
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=300)
    assert reading_bytes([GROUP]) == reading_bytes([USER]) > reading_bytes([X])


@pytest.mark.parametrize("page", ["docs/threat-model.md", "docs/spec.md", "deploy/RUNBOOK.md"])
def test_what_a_record_that_memory_cannot_hold_does_is_said_of_texts(page):
    text = (ROOT / page).read_text().lower()
    paragraphs = re.split(r"\n(?:\n|\| )", text)
    of_texts = [
        paragraph
        for paragraph in paragraphs
        if re.search(r"\btexts?\b", paragraph) and "memory" in paragraph
    ]
    assert of_texts
    assert "shorter texts" in str(ShortageError("memory"))


_READ = """
import json, re, sys
from dbern.data.parquet import read_batches
from dbern.data.domain import Column
columns = [Column("x", ""), Column("trip.kind", "", ("a", "b"))]
rows = [len(batch["x"]) for batch in read_batches(sys.argv[1], [0], columns)]
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
print(json.dumps([sum(rows), peak]))
"""


@pytest.mark.slow
def test_three_nested_texts_of_together_more_than_two_gigabytes_are_read(tmp_path):
    text = pa.DictionaryArray.from_arrays(
        pa.array([0] * 3, pa.int32()), pa.array(["a" * 760_000_000])
    )
    lean = {"store_schema": False, "write_statistics": False}  # they hold the text twice
    path = written(tmp_path / "a.parquet", text, compression="zstd", **lean)
    del text
    assert path.stat().st_size < 100_000
    command = [sys.executable, "-c", _READ, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    rows, peak = json.loads(done.stdout)
    assert rows == 3
    assert peak < 6 << 30


# --- damaged pages -------------------------------------------------------------------------------


def damaged(path):
    """One bit of a page of values flipped, which decodes as before."""
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    content = bytearray(path.read_bytes())
    content[chunk.data_page_offset + chunk.total_compressed_size - 80] ^= 1
    path.write_bytes(content)


PAGES = {"compression": "none", "use_dictionary": False, "row_group_size": 1000}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_page_that_is_not_what_its_checksum_says_is_not_read(tmp_path, version):
    path, options = tmp_path / "a.parquet", {**PAGES, "data_page_version": version}
    table = pa.table({"x": np.arange(1000.0)})
    pq.write_table(table, path, **options, write_page_checksum=True)
    assert read(path, X)[0][0].tolist() == list(range(1000))
    damaged(path)
    with pytest.raises(UnreadableFileError):
        read(path, X)
    portion = Portion(str(path), footer_tag(str(path), SALT), (0,), 1000)
    counters = Counters((OfX(),), None)
    outcome = count_portions(counters, [portion], SALT)
    assert (outcome.failure, outcome.location) == ("unreadable", str(path))
    said = FAILURES[outcome.failure](outcome.location)
    assert isinstance(said, ReleaseError)
    assert f"{path} cannot be read as Parquet" in str(said)
    pq.write_table(table, path, **options)  # without checksums nobody can tell
    damaged(path)
    assert read(path, X)[0][0].tolist() != list(range(1000))


class OfX(Told):
    """The same of one column."""

    columns = (X,)
