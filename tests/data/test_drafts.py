"""Files that appear whole: what a killed process left goes, what a living one writes stays."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager

import pytest

from dbern.data import drafts
from dbern.data.drafts import draft_of, remove_drafts


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_after_the_block_and_is_replaced_whole(tmp_path):
    target = tmp_path / "a.txt"
    for text in ("first", "second"):
        with draft_of(target) as draft:
            draft.write_text(text)
            assert text == "first" or target.read_text() == "first"
        assert (names(tmp_path), target.read_text()) == (["a.txt"], text)


def test_where_the_block_fails_what_was_there_stays(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("first")
    with pytest.raises(IsADirectoryError), draft_of(target) as draft:
        draft.write_bytes(tmp_path.read_bytes())
    assert (names(tmp_path), target.read_text()) == (["a.txt"], "first")


def test_drafts_whose_processes_are_gone_go_and_no_others(tmp_path):
    target = tmp_path / "a[1].txt"
    left = [f".a[1].txt.{digits}.tmp" for digits in ("0123456789abcdef", "00" * 8)]
    others = [f".{name}.{'00' * 8}.tmp" for name in ("a1.txt", "b.txt")]
    others += ["a[1].txt.tmp", ".a[1].txt.notes.tmp", ".a[1].txt.7.tmp"]  # a user's own
    for name in (*left, *others):
        tmp_path.joinpath(name).touch()
    with draft_of(target) as draft:
        assert names(tmp_path) == sorted([draft.name, *others])
        remove_drafts(target)
        assert draft.exists()
    assert names(tmp_path) == sorted([target.name, *others])


def test_a_link_in_place_of_a_draft_is_left_alone(tmp_path):
    tmp_path.joinpath("theirs").write_text("theirs")
    name = f".a.txt.{'00' * 8}.tmp"
    tmp_path.joinpath(name).symlink_to("theirs")
    remove_drafts(tmp_path / "a.txt")
    assert names(tmp_path) == [name, "theirs"]


def test_a_pipe_in_place_of_a_draft_stops_nothing(tmp_path):
    os.mkfifo(tmp_path / f".a.txt.{'00' * 8}.tmp")
    remove_drafts(tmp_path / "a.txt")
    assert names(tmp_path) == []


def test_a_draft_that_was_removed_before_it_was_locked_is_made_again(tmp_path, monkeypatch):
    """Another process looks just between: it takes the new draft for a dead one's."""
    target, looked, original = tmp_path / "a.txt", [], drafts.open_descriptor

    @contextmanager
    def seen(path, flags):
        with original(path, flags) as handle:
            if path.suffix == ".tmp" and not looked:
                looked.append(path)
                remove_drafts(target)
                assert not path.exists()
            yield handle

    monkeypatch.setattr(drafts, "open_descriptor", seen)
    with draft_of(target) as draft:
        assert draft not in looked
        draft.write_text("whole")
    assert (names(tmp_path), target.read_text(), len(looked)) == (["a.txt"], "whole", 1)


def test_without_locks_nothing_is_removed(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError("no locks here")

    monkeypatch.setattr(fcntl, "flock", refused)
    left = tmp_path / ".a.txt.7.tmp"
    left.touch()
    with draft_of(tmp_path / "a.txt") as draft:
        draft.write_text("whole")
    assert names(tmp_path) == [left.name, "a.txt"]
