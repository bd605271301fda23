"""``dbern ledger charge``: one budget for this and other tools."""

from __future__ import annotations

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
        run(*CHARGE, *change, "--name", "table").refused(2, "is another release")
    project.spec(release={"name": "table", "output": "table.zarr"})
    assert run("release", "release.toml").code == 2
    assert account(run)["spent"] == "epsilon 0.2"


def test_what_does_not_fit_is_refused_and_charges_nothing(project, run):
    for words in (("--epsilon", "3.1"), ("--neighbors", "add-or-remove-one"), ("--unit", "a:3")):
        run(*CHARGE, *words).refused(3)
    for words in (("--epsilon", "0"), ("--note", " "), ("--delta", "1"), ("--epsilon", "-1")):
        run(*CHARGE, *words).refused(2)
    assert account(run)["releases"] == []
    log = run("ledger", "status", *LEDGER, "--log", "--json").json["log"]
    assert [line["event"] for line in log] == ["grant", *["refused"] * 3]


def test_a_restored_ledger_charges_nothing_for_others_either(project, run):
    assert run("ledger", "reconcile", *LEDGER[:2], "--restored").code == 0
    assert run(*CHARGE).code == 3
