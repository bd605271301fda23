"""Parquet to batches: nulls as NaN, every numeric type, and fingerprints that need the salt."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbern.domain import Column
from dbern.records import (
    BATCH_ROWS,
    UnreadableFileError,
    discover,
    footer_tag,
    read_batches,
    read_footers,
    write_records,
)


def plain(*names):
    return [Column(name, f"data.bounds.{name}") for name in names]


def read(path, groups=None, columns=("x",)):
    groups = range(pq.ParquetFile(path).metadata.num_row_groups) if groups is None else groups
    batches = list(read_batches(str(path), list(groups), plain(*columns)))
    return {name: np.concatenate([np.empty(0), *(b[name] for b in batches)]) for name in columns}


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "int64", "uint64", "float", "double"])
def test_nulls_become_nan_in_every_numeric_type(tmp_path, kind):
    column = pa.array([1, None, 3], getattr(pa, {"float": "float32", "double": "float64"}.get(
        kind, kind))())  # fmt: skip
    pq.write_table(pa.table({"x": column}), tmp_path / "a.parquet")
    got = read(tmp_path / "a.parquet")["x"]
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, [1.0, np.nan, 3.0])


def test_half_floats_are_read(tmp_path):
    column = pa.array(np.array([0.5, 2.0], np.float16))
    pq.write_table(pa.table({"x": column}), tmp_path / "a.parquet")
    read_footers([tmp_path / "a.parquet"], plain("x"))  # the plan takes it
    assert read(tmp_path / "a.parquet")["x"].tolist() == [0.5, 2.0]


def test_nan_infinities_and_great_integers_pass_through(tmp_path):
    write_records(tmp_path / "a.parquet", {"x": np.array([np.nan, np.inf, -np.inf, -0.0])})
    np.testing.assert_array_equal(read(tmp_path / "a.parquet")["x"], [np.nan, np.inf, -np.inf, 0])
    great = pa.array([2**63 - 1, -(2**63), 2**53 + 1], pa.int64())
    pq.write_table(pa.table({"x": great}), tmp_path / "b.parquet")
    assert read(tmp_path / "b.parquet")["x"].tolist() == [2.0**63, -(2.0**63), 2.0**53]


def test_batches_are_small_complete_and_in_order(tmp_path):
    values = np.arange(3 * BATCH_ROWS + 17, dtype=float)
    write_records(tmp_path / "a.parquet", {"x": values, "y": -values, "z": values})
    groups = range(pq.ParquetFile(tmp_path / "a.parquet").metadata.num_row_groups)
    batches = list(read_batches(str(tmp_path / "a.parquet"), list(groups), plain("y", "x")))
    assert all(set(batch) == {"x", "y"} for batch in batches)
    assert max(len(batch["x"]) for batch in batches) <= BATCH_ROWS
    np.testing.assert_array_equal(np.concatenate([b["x"] for b in batches]), values)
    np.testing.assert_array_equal(np.concatenate([b["y"] for b in batches]), -values)


def test_only_the_row_groups_asked_for_are_read(tmp_path):
    pq.write_table(pa.table({"x": np.arange(10.0)}), tmp_path / "a.parquet", row_group_size=3)
    assert read(tmp_path / "a.parquet", [1, 3])["x"].tolist() == [3, 4, 5, 9]
    assert read(tmp_path / "a.parquet", [])["x"].tolist() == []
    (facts,) = read_footers([tmp_path / "a.parquet"], plain("x"))
    assert (facts.row_groups, facts.rows) == ((3, 3, 3, 1), 10)
    assert facts.size == (tmp_path / "a.parquet").stat().st_size


def test_unreadable_files_tell_nothing_of_their_content(tmp_path):
    path = tmp_path / "a.parquet"
    write_records(path, {"x": np.arange(1000.0)})
    content = bytearray(path.read_bytes())
    content[10:200] = b"\xff" * 190
    path.write_bytes(content)
    with pytest.raises(UnreadableFileError) as error:
        read(path, [0])
    assert str(error.value) == ""
    assert error.value.__suppress_context__
    with pytest.raises(UnreadableFileError):
        list(read_batches(str(tmp_path / "absent"), [0], plain("x")))
    with pytest.raises(UnreadableFileError):
        footer_tag(str(tmp_path / "absent"), b"salt")


def test_footer_tags_need_the_salt_and_follow_the_file(tmp_path):
    path = tmp_path / "a.parquet"
    write_records(path, {"x": np.arange(10.0)})
    tag = footer_tag(str(path), b"salt")
    assert footer_tag(str(path), b"salt") == tag
    assert footer_tag(str(path), b"other") != tag
    write_records(path, {"x": np.arange(1.0, 11.0)})  # same size, other statistics
    assert footer_tag(str(path), b"salt") != tag
    short = tmp_path / "short"
    short.write_bytes(b"abc")
    assert footer_tag(str(short), b"salt") != tag


def test_sources_are_a_file_a_folder_or_a_glob(tmp_path):
    names = [
        "b.parquet",
        "a.parquet",
        "sub/c.parquet",
        "_metadata.parquet",
        ".hid.parquet",
        "n.csv",
    ]
    (tmp_path / "sub").mkdir()
    for name in names:
        (tmp_path / name).write_bytes(b"")
    listed = [str(p.relative_to(tmp_path)) for p in discover(str(tmp_path))]
    assert listed == ["a.parquet", "b.parquet", "sub/c.parquet"]
    assert [p.name for p in discover(str(tmp_path / "[ab].parquet"))] == ["a.parquet", "b.parquet"]
    assert [p.name for p in discover(str(tmp_path / "**/c.parquet"))] == ["c.parquet"]
    assert [p.name for p in discover(str(tmp_path / "n.csv"))] == ["n.csv"]
