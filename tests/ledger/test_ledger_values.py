"""Amounts, differences and texts of the ledger, and the files of its keys and runs."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from dbern.errors import SpecError
from dbern.ledger.amounts import (
    PERIODS,
    Zcdp,
    charged_amount,
    granted_amount,
    period_of,
    require_positive,
    rho_of_charge,
)
from dbern.ledger.comparison import changes
from dbern.ledger.high_water_mark import HighWaterMark, Point
from dbern.ledger.key_files import KeyFiles
from dbern.ledger.opening import backend_of
from dbern.ledger.run_record import RunRecord
from dbern.ledger.sqlite import SqliteBackend
from dbern.ledger.statements import _abridged, json_text, now
from dbern.ledger.wrapped_keys import secret_of
from dbern.privacy.budget import Budget


def test_amounts_of_rho_are_told_as_an_epsilon():
    half = Zcdp(Fraction(1, 100), Fraction(1, 10**6))
    assert str(half + half) == "rho 0.02 (epsilon 0.899935 at delta 0.000001)"


def test_a_grant_in_zcdp_is_the_largest_rho_that_keeps_it():
    granted = granted_amount("zcdp", Budget.parse("1", "1e-6"))
    assert str(granted) == "rho 0.024356 (epsilon 1 at delta 0.000001)"
    charge = Budget.parse("0.1")
    assert charged_amount(granted, charge, rho_of_charge(charge)).rho == Fraction(1, 200)


def test_periods_are_those_of_the_calendar():
    created = "2026-01-01T00:00:00+00:00"
    periods = [period_of(created, period) for period in PERIODS]
    assert periods == ["2026-01-01", "2026-W01", "2026-01", "2026"]
    assert period_of(created, None) is None


def test_no_charge_is_a_grant():
    require_positive(Budget.parse("0.1"))
    with pytest.raises(SpecError):
        require_positive(Budget.parse("0"))


def test_changes_are_found_in_order_of_keys_too():
    was = {"bounds": {"x": [0, 1], "y": [0, 1]}}
    wider = changes(was, {"bounds": {"x": [0, 2], "y": [0, 1]}})
    assert wider == {"bounds.x": "was [0, 1], is [0, 2]"}
    turned = changes(was, {"bounds": {"y": [0, 1], "x": [0, 1]}})
    assert turned == {"bounds": "was in the order x, y, is in the order y, x"}


def test_texts_are_json_in_order_of_keys():
    assert json_text({"b": 1, "a": (2, 3)}) == '{"b": 1, "a": [2, 3]}'
    with pytest.raises(ValueError, match="JSON"):
        json_text({"a": float("nan")})


def test_a_long_text_is_replaced_by_its_digest():
    short = _abridged({"k": 20, "synthesis": "A" * 2000})
    assert short["k"] == 20
    assert short["synthesis"][:16] == "sha256:ccca68570"


def test_times_are_utc_to_the_second():
    assert (len(now()), now()[-6:]) == (25, "+00:00")


def test_a_secret_is_read_from_the_environment():
    assert secret_of({"DBERN_LEDGER_SECRET": "00" * 32}) == bytes(32)


def test_an_unknown_database_is_refused_with_those_that_there_are():
    with pytest.raises(SpecError, match="mysql is not available in this version"):
        backend_of("mysql://steward@host/db")


def test_keys_are_made_and_destroyed(tmp_path):
    keys = KeyFiles(tmp_path / "ledger.db.keys")
    keys.create("0" * 32)
    assert len(keys.read("0" * 32)) == 32
    assert keys.held() == ["0" * 32]
    keys.destroy("0" * 32)
    assert keys.held() == []


def test_a_run_s_record_is_private(tmp_path):
    record = RunRecord(tmp_path / "ledger.db.runs" / "7f.jsonl")
    record.add(stage="reading and counting", seconds=1.5)
    assert json.loads(record.path.read_text())["seconds"] == 1.5
    assert record.path.stat().st_mode & 0o777 == 0o600


def test_a_mark_never_falls(tmp_path):
    mark = HighWaterMark(tmp_path / "ledger.db.mark", "0" * 32, always_there=True)
    mark.advance(Point(1, 7))
    mark.advance(Point(1, 3))
    assert mark.latest() == Point(epoch=1, event=7)


def test_a_file_is_made_once(tmp_path):
    backend = SqliteBackend(tmp_path / "ledger.db")
    assert [backend.create(), backend.create()] == [True, False]
