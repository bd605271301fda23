"""``dbern ledger charge`` and ``events``: one budget for this and other tools."""

from __future__ import annotations

import json
import math
from fractions import Fraction

from dbern.cli.ledgers import _composed_event
from dbern.ledger import BudgetLedger, Request
from dbern.privacy.budget import Budget, Neighbors

LEDGER = ("--ledger", "sqlite:///ledger.db", "--dataset", "trips")
CHARGE = ("ledger", "charge", *LEDGER, "--epsilon", ".2", "--note", "table by opendp")


def account(run):
    (found,) = run("ledger", "status", *LEDGER, "--json").json["datasets"]
    return found


def test_a_named_charge_is_made_once_and_listed(project, run):
    for charged in (True, False):
        ran = run(*CHARGE, "--name", "table", "--json")
        assert (ran.code, ran.json["charged"]) == (0, charged)
    found = account(run)
    (row,) = found["releases"]
    assert found["remaining"] == "epsilon 2.8"
    assert (row["name"], row["state"], row["note"]) == ("table", "committed", "table by opendp")
    told = run("ledger", "status", *LEDGER, "--log").out
    assert "table: committed, epsilon 0.2" in told
    assert "by another tool: table by opendp" in told
    assert "committed trips/table: note table by opendp" in told
    assert not list(project.folder.glob("ledger.db.keys/*"))


def test_each_charge_without_a_name_is_another(project, run):
    names = {run(*CHARGE, "--json").json["name"] for _ in range(2)}
    assert len(names) == 2
    assert account(run)["remaining"] == "epsilon 2.6"


def test_a_name_is_not_used_for_another_charge(project, run):
    assert run(*CHARGE, "--name", "table").code == 0
    for change in (("--epsilon", "0.3"), ("--note", "another"), ("--rho", "0.01")):
        again = run(*CHARGE, *change, "--name", "table")
        assert again.code == 2
        assert "is another release" in again.err
    project.spec(release={"name": "table", "output": "table.zarr"})
    assert run("release", "release.toml").code == 2
    assert account(run)["spent"] == "epsilon 0.2"


def test_what_does_not_fit_is_refused_and_charges_nothing(project, run):
    for words in (("--epsilon", "3.1"), ("--neighbors", "add-or-remove-one"), ("--unit", "a:3")):
        ran = run(*CHARGE, *words)
        assert (ran.code, ran.out) == (3, "")
    for words in (("--epsilon", "0"), ("--note", " "), ("--delta", "1"), ("--epsilon", "-1")):
        assert run(*CHARGE, *words).code == 2
    assert account(run)["releases"] == []
    log = run("ledger", "status", *LEDGER, "--log", "--json").json["log"]
    assert [line["event"] for line in log] == ["grant", *["refused"] * 3]


def test_a_restored_ledger_charges_nothing_for_others_either(project, run):
    assert run("ledger", "reconcile", *LEDGER[:2], "--restored").code == 0
    assert run(*CHARGE).code == 3


def events(run):
    ran = run("ledger", "events", *LEDGER)
    assert ran.code == 0
    told = json.loads(ran.out)
    assert told["event"] == "ComposedDpEvent"
    return told["events"]


def promised(event):
    """The epsilon of randomized response on two buckets."""
    p = Fraction(event["noise_parameter"])
    return math.log((1 - p / 2) / (p / 2))


def test_a_pure_charge_is_a_randomized_response_of_at_least_its_epsilon(project, run):
    amounts = "0.0001", "1/3", "0.2", "1.9"
    for epsilon in amounts:
        assert run(*CHARGE, "--epsilon", epsilon).code == 0
    for epsilon, event in zip(map(Fraction, amounts), events(run), strict=True):
        assert (event["event"], event["num_buckets"]) == ("RandomizedResponseDpEvent", 2)
        assert epsilon <= promised(event) < epsilon + Fraction(1, 10**12)


def test_what_has_no_narrower_event_is_its_rho_or_refused(project, run):
    assert run(*CHARGE, "--name", "refunded").code == 0
    assert run("ledger", "grant", *LEDGER, "--epsilon", "1", "--delta", "1e-3").code == 0
    gaussian = ("--epsilon", "0.5", "--delta", "1e-6", "--note", "histogram")
    assert run(*CHARGE, *gaussian, "--rho", "1/300").code == 0
    assert run(*CHARGE, *gaussian).code == 0
    _, with_rho, without = events(run)
    assert with_rho["event"] == "ZCDpEvent"
    assert 0 <= Fraction(with_rho["rho"]) - Fraction(1, 300) < Fraction(1, 10**15)
    assert without["event"] == "UnsupportedDpEvent"


def test_a_refund_is_no_event_and_added_records_are_in_zcdp(tmp_path):
    url = f"sqlite:///{tmp_path}/ledger.db"
    BudgetLedger.create(url)
    added = Neighbors.ADD_OR_REMOVE_ONE
    with BudgetLedger.open(url) as ledger:
        ledger.grant("d", Budget.parse("3"), neighbors=added)
        ledger.charge(Request("d", "a", Budget.parse("0.2"), added), "x")
        ledger.reserve(Request("d", "b", Budget.parse("0.5"), added))
        ledger.abandon("d", "b")
        (status,) = ledger.status("d")
    (event,) = _composed_event(status)["events"]
    assert (event["name"], event["event"], event["rho"]) == ("a", "ZCDpEvent", 0.02)
