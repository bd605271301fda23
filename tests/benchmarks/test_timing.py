"""The page of benchmarks says what was measured, and what writes it."""

from __future__ import annotations

import itertools
import json
import re

import peers
import pytest
import timing
from timing import Table

SCALING = ("scaling", "weak scaling")  # blocks of `make scale`
TABLE = Table.of(
    "s", {"one": {"ours": 1.5, "theirs": None}, "two": {"ours": 0.25, "late": 12345.0}}
)


def test_the_page_shows_what_was_measured():
    text, found = timing.PAGE.read_text(encoding="utf-8"), timing.stored()
    assert timing.page(text, found) == text
    shown = re.findall("^<!-- (.*) -->$", text, re.MULTILINE)
    assert sorted(shown) == sorted([*found, *SCALING])
    for table in found.values():
        assert all(len(cells) == len(table.columns) for cells in table.rows.values())


def test_every_peer_was_there_when_the_page_was_made():
    rows = timing.stored()["counting"].rows
    for peer in peers.PEERS:
        assert [cell is not None for cell in rows[peer.name]][: peer.axes] == [True] * peer.axes


def test_what_is_not_measured_is_a_dash():
    assert TABLE.text() == (
        "s              one         two\n"
        "ours           1.5        0.25\n"
        "theirs           -           -\n"
        "late             -      12,345"
    )  # fmt: skip
    numbers = (0.0, 3.14159, 999.4, -0.0123456, 1.23e-7)
    assert list(map(timing.shown, numbers)) == ["0", "3.14", "999", "-0.0123", "1.2e-07"]


def test_a_table_is_written_into_page_and_numbers(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(timing, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(timing, "MEASURED", tmp_path / "page.json")
    fence = "<!-- {} -->\n```\nold {}\n```\n"
    timing.PAGE.write_text(
        "# Page\n" + fence.format("one", 1) + "between\n" + fence.format("two", 2)
    )
    timing.MEASURED.write_text("{}")
    monkeypatch.setattr(timing, "BENCH", False)
    timing.keep("two", TABLE)
    assert TABLE.text() in capsys.readouterr().out
    assert json.loads(timing.MEASURED.read_text()) == {}
    monkeypatch.setattr(timing, "BENCH", True)
    timing.keep("two", TABLE)
    assert timing.stored() == {"two": TABLE}
    written = timing.PAGE.read_text()
    assert written.startswith("# Page\n" + fence.format("one", 1) + "between\n<!-- two -->")
    assert TABLE.text() in written
    assert "old 2" not in written
    with pytest.raises(ValueError, match="no block <!-- three -->"):
        timing.keep("three", TABLE)


def test_seconds_are_the_median_of_runs_after_the_first():
    ticks = itertools.accumulate([0.0, 9.0, 0.0, 1.0, 0.0, 3.0])
    calls = []
    assert timing.seconds(lambda: calls.append(1), 3, lambda: next(ticks)) == 3.0
    assert len(calls) == 4


def test_works_that_are_compared_take_turns():
    order = []
    timing.together(lambda: order.append("a"), lambda: order.append("b"), repeats=2)
    assert "".join(order) == "aabbaabb"
