"""``dbern catch-up``: which partitions, which outcome ends a round, and what is printed when."""

from __future__ import annotations

import json
from datetime import date

import pytest

from dbern.cli.releases import catch_up, due
from dbern.errors import SpecError
from dbern.nights.horizon import Horizon

WORDS = ["nightly.toml", "--every", "day", "--last", "3", "--today", "2026-11-20"]


def caught_up(outcomes, *more):
    """Exit code of a round whose nights end so, and the nights that were tried."""
    tried = []

    def run_json(arguments):
        night = arguments[arguments.index("--partition") + 1]
        tried.append(night)
        code, fields = outcomes.get(night, (0, {}))
        done = {"url": "out", "name": f"trips-{night}", "charge": "epsilon 1", "notes": []}
        return code, done | fields if code == 0 else fields

    return catch_up.main([*WORDS, *more], obj=run_json, standalone_mode=False), tried


@pytest.mark.parametrize(
    ("code", "error", "nights"),
    [(4, "environment", 1), (4, "other-version", 3), (3, "budget-refused", 1), (1, "x", 3)],
)
def test_a_night_that_another_version_began_stops_no_other(code, error, nights):
    message = {"error": error, "message": "release was planned by dbern 0.0"}
    ended, tried = caught_up({"2026-11-17": (code, message)})
    assert (ended, len(tried)) == (code, nights)


def test_a_night_that_was_published_of_other_files_is_no_failure(capsys):
    """It stays as it is: files that came late are no reason to wake an operator each night."""
    message = {"error": "other-data", "message": "data.source: the files are not those"}
    ended, tried = caught_up({"2026-11-17": (2, message)})
    assert (ended, len(tried)) == (0, 3)
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "2026-11-17: published before: data.source: the files are not those"


def test_an_outcome_is_printed_before_the_next_night_is_begun(capsys, monkeypatch):
    printed = []
    monkeypatch.setattr("dbern.cli.releases.click.echo", printed.append)
    caught_up({"2026-11-18": (130, {"message": "stopped"})})
    assert [line.partition(":")[0] for line in printed] == ["2026-11-17", "2026-11-18"]
    monkeypatch.undo()
    caught_up({}, "--json")
    assert len(json.loads(capsys.readouterr().out)["partitions"]) == 3


def test_a_night_of_a_stream_costs_nothing_by_itself(capsys):
    caught_up({"2026-11-17": (0, {"name": "trips", "notes": ["2026-11-17 is published"]})})
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first == "2026-11-17: out; 2026-11-17 is published"
    assert second == "2026-11-18: out for epsilon 1"


@pytest.mark.parametrize(
    ("every", "last", "today"),
    [("day", 10**8, None), ("day", 999_999_999, None), ("week", 3, date(1, 1, 1)),
     ("day", 1, date(1, 1, 1)), ("week", 1, date(1, 1, 7))],
)  # fmt: skip
def test_dates_that_no_calendar_has_are_refused(every, last, today):
    with pytest.raises(SpecError, match="Look back on fewer"):
        due(every, last, today)


def test_the_first_dates_and_the_last_ones_are_dates():
    assert due("day", 1, date(1, 1, 2)) == ["0001-01-01"]
    assert due("week", 1, date(1, 1, 14)) == ["0001-01-01"]
    assert str(Horizon(date(9999, 12, 23), 8).day(7)) == "9999-12-30"
    with pytest.raises(SpecError, match="beyond the year 9999"):
        Horizon(date(9999, 12, 30), 8)
