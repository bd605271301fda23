"""Searching for files: what a source names, and searches that would not end."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from dbern.data import footers, sources
from dbern.data.sources import discover
from dbern.errors import EnvironmentRefusedError, ShortageError, SpecError


def made(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@pytest.mark.parametrize("source", ["/", "/**", "/**/*.parquet", "//**", "/tmp/../**/a.parquet"])
def test_the_whole_disk_is_not_searched(source):
    with pytest.raises(SpecError, match=r"data\.source: searches the whole disk"):
        discover(source)


@pytest.mark.parametrize("link", ["back", "deep/back", "to/and/from"])
def test_links_that_lead_back_end_a_search(tmp_path, link):
    """`glob` follows each of them 40 levels deep, and two of them 2^40 times."""
    made(tmp_path, "data/a.parquet", "data/other/b.parquet")
    first = tmp_path / "data" / link
    first.parent.mkdir(parents=True, exist_ok=True)
    first.symlink_to(tmp_path / "data")
    (tmp_path / "data" / "second").symlink_to(tmp_path / "data")
    with pytest.raises(SpecError, match="is a link that leads back to"):
        discover(str(tmp_path / "data" / "**" / "x*.parquet"))
    names = [Path(path).name for path in discover(str(tmp_path / "data"))]  # which follows none
    assert names == ["a.parquet", "b.parquet"]


def test_links_between_two_folders_end_a_search(tmp_path):
    made(tmp_path, "one/a.parquet", "two/b.parquet")
    (tmp_path / "one" / "there").symlink_to(tmp_path / "two")
    (tmp_path / "two" / "there").symlink_to(tmp_path / "one")
    with pytest.raises(SpecError, match="is a link that leads back to"):
        discover(str(tmp_path / "one" / "**" / "*.parquet"))


@pytest.mark.parametrize("pattern", ["", "**", "*/*.parquet"])
@pytest.mark.parametrize(
    ("code", "refused"),
    [(errno.EIO, EnvironmentRefusedError), (errno.EMFILE, ShortageError), (errno.EACCES, None)],
)
def test_a_folder_that_fails_is_not_left_out(tmp_path, monkeypatch, pattern, code, refused):
    """Its files would be missing from a release that is charged for all; one may hide itself."""
    made(tmp_path, "one/a.parquet", "two/b.parquet")

    def scandir(place, actual=os.scandir):
        if str(place).endswith("two"):
            raise OSError(code, os.strerror(code))
        return actual(place)

    monkeypatch.setattr(os, "scandir", scandir)
    if refused is None:
        assert [Path(path).name for path in discover(str(tmp_path / pattern))] == ["a.parquet"]
        return
    with pytest.raises(refused, match=r"data\.source: .*two"):
        discover(str(tmp_path / pattern))


def test_links_onward_are_followed(tmp_path):
    made(tmp_path, "far/day=1/a.parquet", "here/b.parquet", "here/.cache/c.parquet")
    (tmp_path / "here" / "far").symlink_to(tmp_path / "far")
    (tmp_path / "here" / ".cache" / "back").symlink_to(tmp_path)  # `**` enters no hidden folder
    for pattern in ("**/*.parquet", "**", "**/**/*.parquet"):
        found = discover(str(tmp_path / "here" / pattern))
        assert [Path(path).name for path in found] == ["b.parquet", "a.parquet"]
    (found,) = discover(str(tmp_path / "here" / "*" / "*" / "*.parquet"))
    assert found.endswith("here/far/day=1/a.parquet")


@pytest.mark.parametrize("source", ["", "**/*.parquet", "*/*.parquet"])
def test_a_search_has_a_most(tmp_path, monkeypatch, source):
    made(tmp_path, *(f"sub/{i}.parquet" for i in range(20)))
    monkeypatch.setattr(sources, "_MAX_ENTRIES", 21)
    assert len(discover(str(tmp_path / source))) == 20
    monkeypatch.setattr(sources, "_MAX_ENTRIES", 20)
    with pytest.raises(SpecError, match=f"more than 20 entries to search below {tmp_path}"):
        discover(str(tmp_path / source))


def test_a_search_counts_only_what_its_pattern_can_enter(tmp_path, monkeypatch):
    made(tmp_path, "day=1/a.parquet", *(f"other/{i}" for i in range(20)))
    monkeypatch.setattr(sources, "_MAX_ENTRIES", 5)
    assert len(discover(str(tmp_path / "day=*" / "*.parquet"))) == 1


TABLES = {
    "Delta Lake": "_delta_log/00000000000000000000.json",
    "Apache Hudi": ".hoodie/hoodie.properties",
    "Apache Iceberg": "metadata/00000-4f1c.metadata.json",
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    "source", ["", "lake/t", "lake/t/data", "lake/t/data/day=1/*.parquet", "lake/**/*.parquet",
               "lake/t/d*/**", "link"],
)  # fmt: skip
def test_files_of_a_table_that_a_format_governs_are_not_a_folder_of_parquet(tmp_path, name, source):
    """Rows that were deleted or written anew are in them too: one person would count twice."""
    made(tmp_path, f"lake/t/{TABLES[name]}", "lake/t/data/day=1/a.parquet", "lake/other/b.parquet")
    (tmp_path / "link").symlink_to(tmp_path / "lake" / "t" / "data")
    with pytest.raises(SpecError, match=rf"lake/t is a table of {name}.*docs/frames\.md") as error:
        discover(str(tmp_path / source))
    assert {"Delta Lake": "file_uris()", "Apache Hudi": "get_file_slices()"}.get(
        name, "plan_files()"
    ) in str(error.value)


@pytest.mark.parametrize("mark", ["metadata/readme.txt", "_delta_log", "data/.hoodie_x", "x.avro"])
def test_a_folder_that_no_format_governs_is_one_of_parquet(tmp_path, mark):
    made(tmp_path, f"t/{mark}", "t/data/a.parquet", "other/_delta_log/0.json", "other/b.parquet")
    assert (
        len(discover(str(tmp_path / "t"))) == len(discover(str(tmp_path / "t/**/*.parquet"))) == 1
    )
    (one,) = discover(str(tmp_path / "other" / "b.parquet"))  # a file that is named is meant
    assert one.endswith("b.parquet")


@pytest.mark.parametrize("pattern", ["**/*.parquet", "*/*.parquet", "?d*/**", "**", "*/**/*.parq*"])
def test_no_wildcard_enters_what_writers_hide(tmp_path, pattern):
    made(
        tmp_path, "d/a.parquet", "_d/b.parquet", ".d/c.parquet", "d/_old/d.parquet", "dd/e.parquet"
    )
    names = {Path(path).name for path in discover(str(tmp_path / pattern))}
    assert names <= {"a.parquet", "e.parquet"}
    for literal in ("_d/*.parquet", "**/_old/*.parquet", "_*/b.parquet"):
        assert len(discover(str(tmp_path / literal))) == 1


def test_files_of_a_folder_that_do_not_say_they_are_parquet_are_not_left_out(tmp_path):
    made(
        tmp_path, "a.parquet", "b.PARQUET", "sub/c.parq", "sub/d.pq", "_SUCCESS", "empty", ".e.crc"
    )
    assert [Path(path).name for path in discover(str(tmp_path))] == [
        "a.parquet", "b.PARQUET", "c.parq", "d.pq",
    ]  # fmt: skip
    for name in ("sub/000000_0", "f.parquet.tmp"):
        (tmp_path / name).write_bytes(b"PAR1")
    with pytest.raises(SpecError, match=r"has 2 files whose name .*f\.parquet\.tmp"):
        discover(str(tmp_path))
    assert len(discover(str(tmp_path / "*.[pP]*"))) == 3


@pytest.mark.parametrize("source", ["", "*.parquet", "**"])
@pytest.mark.parametrize(("kind", "said"), [("link", "b.parquet cannot be listed"),
                                            ("loop", "b.parquet cannot be listed"),
                                            ("pipe", "b.parquet is no plain file")])  # fmt: skip
def test_a_link_to_nothing_and_a_pipe_are_not_left_out(tmp_path, source, kind, said):
    made(tmp_path, "a.parquet", "c.parquet")
    if kind == "pipe":
        os.mkfifo(tmp_path / "b.parquet")
    else:
        (tmp_path / "b.parquet").symlink_to("b.parquet" if kind == "loop" else "gone")
    with pytest.raises(SpecError, match=said):
        discover(str(tmp_path / source))


def test_a_disk_that_fails_is_not_a_file_to_remove(tmp_path, monkeypatch):
    made(tmp_path, "a.parquet")

    def failing(_path):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(footers.pa, "OSFile", failing)
    with pytest.raises(EnvironmentRefusedError, match="run the same command again"):
        footers.read_footer_and_schema(str(tmp_path / "a.parquet"))


@pytest.mark.parametrize("source", ["x" * 5000, "a\0b", "*\0", "x" * 5000 + "/*"])
def test_a_source_that_no_path_can_be_is_refused_in_a_sentence(source):
    with pytest.raises(SpecError, match=re.escape("data.source: ")) as error:
        discover(source)
    assert ". Write a " in str(error.value)
