"""``dbern ledger`` with the zcdp accountant, with a period, and its log."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from fractions import Fraction

import pytest

from dbern.ledger import BudgetLedger
from dbern.ledger.composition import PERIODS
from dbern.privacy.budget import Budget
from dbern.privacy.curves import squared_for
from dbern.privacy.zcdp import pure_rho

LEDGER = ("--ledger", "sqlite:///ledger.db", "--dataset", "zcdp")
GRANT = ("ledger", "grant", *LEDGER, "--epsilon", "1", "--delta", "1e-6", "--accountant", "zcdp")
SMALL = {"dataset": "zcdp", "epsilon": "0.1", "delta": "1e-7"}


@pytest.mark.slow
def test_releases_are_charged_their_rho(project, run):
    assert run(*GRANT).code == 0
    project.spec(budget=SMALL, mechanism={"noise": "discrete-gaussian"})
    planned = run("plan", "release.toml", "--json").json
    assert run("release", "release.toml").code == 0
    project.spec(
        release={"name": "pure", "output": "pure.zarr"},
        budget={"dataset": "zcdp", "epsilon": "0.1"},
    )
    assert run("release", "release.toml").code == 0
    (account,) = run("ledger", "status", *LEDGER, "--json").json["datasets"]
    gaussian, pure = account["releases"]
    assert gaussian["rho"] == planned["rho"]
    assert 0 < Fraction(gaussian["rho"]) <= squared_for(Fraction(1, 10), Fraction(1, 10**7)) / 2
    assert Fraction(pure["rho"]) == pure_rho(Fraction(1, 10))
    spent = Fraction(account["zcdp"]["spent"]["rho"])
    assert spent == Fraction(gaussian["rho"]) + Fraction(pure["rho"])
    assert Fraction(account["zcdp"]["spent"]["delta"]) == Fraction(1, 10**6)
    text = run("ledger", "status", *LEDGER).out
    assert "zcdp composition" in text
    assert re.search(r"budget +epsilon 1, delta 0.000001\n", text)
    assert re.search(rf"spent +rho {float(spent):.6g} \(epsilon 0.\d+ at delta 0.000001\)", text)
    assert "pure: committed, rho 0.005 (epsilon 0.1)" in text


def test_advanced_composition_cannot_pay_in_zcdp(project, run):
    assert run(*GRANT).code == 0
    project.spec(budget=SMALL, mechanism={"noise": "laplace-advanced"})
    run("release", "release.toml").refused(3, 'noise = "auto"')
    assert not project.output.exists()


@pytest.mark.slow
def test_an_interrupted_release_in_zcdp_is_charged_once(project, run, monkeypatch):
    assert run(*GRANT).code == 0
    project.spec(budget=SMALL, mechanism={"noise": "discrete-gaussian"})
    for method in ("begin_reading", "spend", "commit"):
        with monkeypatch.context() as patch:
            patch.setattr(
                BudgetLedger, method, lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
            )
            assert run("release", "release.toml").code == 130
    assert run("release", "release.toml").code == 0
    (account,) = run("ledger", "status", *LEDGER, "--json").json["datasets"]
    (row,) = account["releases"]
    assert account["zcdp"]["spent"]["rho"] == row["rho"]
    assert account["zcdp"]["reserved"]["rho"] == "0"


def test_a_period_is_shown_with_what_the_others_cost(project, run, monkeypatch):
    monkeypatch.setattr("dbern.ledger.tables.now", lambda: "2026-11-20T12:00:00+00:00")
    nightly = ("--ledger", "sqlite:///ledger.db", "--dataset", "nightly")
    assert run("ledger", "grant", *nightly, "--epsilon", "1", "--period", "day").code == 0
    project.spec(budget={"dataset": "nightly"})
    assert run("release", "release.toml").code == 0
    project.spec(budget={"dataset": "nightly"}, release={"name": "b", "output": "b.zarr"})
    run("release", "release.toml").refused(3, "granted in 2026-11-20, renewed every day")
    monkeypatch.setattr("dbern.ledger.tables.now", lambda: "2026-11-21T12:00:00+00:00")
    assert run("release", "release.toml").code == 0
    ran = run("ledger", "status", *nightly)
    assert "renewed every day, now 2026-11-21\n" in ran.out
    assert re.search(r"spent +epsilon 1\n", ran.out)
    assert re.search(r"earlier +epsilon 1\n", ran.out)


@pytest.mark.parametrize("period", PERIODS)
def test_every_period_of_the_ledger_may_be_granted_for(project, run, period):
    account = ("ledger", "grant", *LEDGER[:2], "--dataset", "old", "--epsilon", "1")
    assert run(*account, "--period", period).code == 0
    shown = run("ledger", "status", *LEDGER[:2], "--dataset", "old")
    assert f"renewed every {period}, now 2" in shown.out


@pytest.mark.parametrize("as_json", [True, False])
def test_the_log_has_every_event(project, run, as_json):
    assert run("release", "release.toml").code == 0
    project.spec(release={"name": "big", "output": "b.zarr"}, budget={"epsilon": "9"})
    assert run("release", "release.toml").code == 3
    status = ("ledger", "status", "--ledger", "sqlite:///ledger.db", "--log")
    events = ["grant", "reserve", "reading", "spent", "committed", "refused"]
    if as_json:
        ran = run(*status, "--json")
        assert [line["event"] for line in ran.json["log"]] == events
        assert ran.json["log"][-1]["name"] == "big"
    else:
        lines = run(*status).out.splitlines()[-len(events) :]
        assert [line.split()[1] for line in lines] == events
        assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00 ", line) for line in lines)


def test_a_grant_fixes_neighbours_and_unit(run):
    words = ("ledger", "grant", *LEDGER[:2], "--dataset", "people")
    terms = ("--neighbors", "add-or-remove-one", "--unit", "user:8")
    assert run(*words, "--epsilon", "1.0", *terms).code == 0
    status = run("ledger", "status", *LEDGER[:2], "--dataset", "people")
    assert "people (add-or-remove-one, unit user (at most 8 rows)" in status.out
    assert run(*words, "--epsilon", "1.0").code == 0
    assert run(*words, "--epsilon", "1.0", "--unit", "user=8").code == 0  # as `init` has it
    run(*words, "--epsilon", "1.0", "--unit", "user:9").refused(3, "was granted for")
    for unit in ("user", "user:0", ":3", "user:x"):
        said = "Write row, or user:8 for a column."
        run(*words, "--epsilon", "1.0", "--unit", unit).refused(2, said)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x00b", "tr\udcff"])
def test_a_name_that_no_line_can_hold_is_2(run, name):
    commands = [
        ("grant", "--dataset", name, "--epsilon", "1"),
        ("status", "--dataset", name),
        ("abandon", "--dataset", name, "--name", "density"),
        ("abandon", "--dataset", "trips", "--name", name),
        ("reconcile", "--dataset", name, "."),
    ]
    for command in commands:
        run("ledger", *command, *LEDGER[:2]).refused(2, "must not be empty")


def test_a_budget_that_runs_low_is_3_and_named(project, run):
    status = ("ledger", "status", *LEDGER[:2])
    project.spec(budget={"epsilon": "2.4"})
    assert run("release", "release.toml").code == 0
    ran = run(*status, "--warn-below", "20%", "--json")  # a fifth is not less
    assert (ran.code, ran.json["low"]) == (0, [])
    assert ran.json["datasets"][0]["remaining_share"] == 0.2
    ran = run(*status, "--warn-below", "20.1%", "--json")
    assert (ran.code, ran.json["low"]) == (3, ["trips"])
    assert "low" not in run(*status, "--json").json
    text = run(*status, "--warn-below", "30%").out
    assert "low: trips; those who answer for its data decide" in text
    assert "dbern ledger grant" not in text  # an alert decides nothing
    run(*status, "--warn-below", "0.3").refused(2)


@pytest.mark.slow
def test_low_is_judged_by_what_the_account_counts_and_by_delta_too(project, run):
    assert run(*GRANT).code == 0  # rho 0.0244, of which the release below takes 0.005
    project.spec(budget={"dataset": "zcdp", "epsilon": "0.1"})
    assert run("release", "release.toml").code == 0
    status = ("ledger", "status", *LEDGER, "--json")
    share = run(*status).json["datasets"][0]["remaining_share"]
    assert share == pytest.approx(1 - 0.005 / 0.024356, abs=1e-4)
    assert run(*status, "--warn-below", "79%").code == 0
    assert run(*status, "--warn-below", "80%").code == 3
    both = Budget.parse("3", "1e-6")
    assert (both - Budget.parse("1", "9e-7")).fraction_of(both) == Fraction(1, 10)
    assert (both - both).fraction_of(Budget(Fraction(0))) == 0


DAMAGES = {
    "drop table grants": "no such table",
    "drop table audit": "no ledger",
    "alter table datasets rename column neighbors to nearby": "no such column",
    "update datasets set neighbors = 'x'": "damaged|fails to be read",
    "update datasets set unit_max_contributions = x'ff'": "damaged",
    "update datasets set accountant = 'x'": "damaged",
    "update datasets set period = 'x'": "damaged",
    "update grants set epsilon = x'ff'": "damaged|fails to be read",
    "update grants set epsilon = '1e-400000000'": "damaged",
    "update releases set state = 'x'": "fails to be read",
    "update releases set created = 'x'": "created of a row of releases is no time with a zone",
    "update releases set created = '2026-01-01'": "is no time with a zone",
    "update releases set identity = '[]', output = ''": "identity.*is no object",
    "update audit set at = 'x'": "at of a row of audit is no time with a zone",
    "update audit set detail = '['": "detail.*is no object",
    "update audit set detail = '{}'": "damaged|nothing",
    "update audit set dataset = x'ff'": "damaged",
    "update meta set value = 'x' where key = 'epoch'": "fails to be read",
    "delete from meta where key = 'home'": "fails to be read",
}


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("damage", DAMAGES)
def test_no_command_ends_a_damaged_ledger_with_a_traceback(project, run, damage):
    """Each says in a sentence that it is damaged, or does its work on rows that are not."""
    with closing(sqlite3.connect(project.ledger_path)) as connection:
        for (trigger,) in connection.execute("select name from sqlite_master where type='trigger'"):
            connection.execute(f"drop trigger {trigger}")
        connection.execute("pragma ignore_check_constraints = on")
        connection.execute(
            "insert into releases (release_id, dataset, name, state, epsilon, delta, identity,"
            " inputs, plan, output, salt, created) values ('00', 'trips', 'a', 'spent', '1', '0',"
            " '{}', '{}', '{}', 'a.zarr', x'00', '2026-01-01T00:00:00+00:00')"
        )
        connection.execute(damage)
        connection.commit()
    ledger = ("--ledger", "sqlite:///ledger.db")
    said = ""
    for words in (
        ("ledger", "status", *ledger, "--log"), ("metrics", *ledger), ("doctor", *ledger),
        ("report", *ledger), ("ledger", "grant", *ledger, "--dataset", "trips", "--epsilon", "1"),
    ):  # fmt: skip
        ran = run(*words)
        said += ran.out + ran.err
        assert ran.code in (0, 4, 5), ran
        assert "internal error" not in said, ran
    assert re.search(DAMAGES[damage], said), said
