"""A ledger restored from a backup after a release: it spends nothing until the release is found."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from itertools import product
from unittest.mock import Mock

import pytest

from dbern.ledger import BudgetLedger
from dbern.privacy.budget import Budget
from dbern.synopsis.store import Manifest, entry_of

URL = ("--ledger", "sqlite:///ledger.db")


@pytest.fixture
def restored(project, run):
    """A release is published between the backup of the ledger and its restoring."""
    backup = project.folder / "backup.db"
    shutil.copy(project.ledger_path, backup)
    assert run("release", "release.toml").code == 0
    shutil.copy(backup, project.ledger_path)
    return project


def account(run):
    (found,) = run("ledger", "status", *URL, "--json").json["datasets"]
    return found


@pytest.mark.slow
def test_the_attack_and_the_way_out(restored, run):
    assert account(run)["spent"] == "epsilon 0"  # what the backup says; epsilon 1 was spent
    restored.spec(release={"name": "again", "output": "again.zarr"}, budget={"epsilon": "3.0"})
    ran = run("release", "release.toml")
    assert (ran.code, ran.out) == (3, "")
    assert f"dbern ledger reconcile --ledger {restored.url} FOLDER" in ran.err
    assert not (restored.folder / "again.zarr").exists()
    assert "spending is blocked" in run("ledger", "status", *URL).out
    ran = run("ledger", "reconcile", *URL, ".")
    assert ran.code == 0
    assert ran.out == (
        "./out.zarr: epsilon 1 charged to trips\n1 charged, 0 known before; spending is allowed\n"
    )
    assert (account(run)["spent"], account(run)["remaining"]) == ("epsilon 1", "epsilon 2")
    ran = run("release", "release.toml")
    assert ran.code == 3
    assert "remaining epsilon 2" in ran.err
    restored.spec(release={"name": "again", "output": "again.zarr"}, budget={"epsilon": "2.0"})
    assert run("release", "release.toml").code == 0
    assert account(run)["remaining"] == "epsilon 0"
    log = run("ledger", "status", *URL, "--log", "--json").json["log"]
    events = [line["event"] for line in log if line["event"] != "metadata"]
    assert events[:4] == ["grant", "restored", "refused", "reconciled"]


def test_the_same_release_again_is_refused_too_and_then_known(restored, run):
    ran = run("release", "release.toml")
    assert ran.code != 0
    assert run("ledger", "reconcile", *URL, "out.zarr").code == 0
    # The ledger forgot its plan and files for good: the name is taken, and stays so.
    ran = run("release", "release.toml")
    assert ran.code == 2
    assert "was published at ./out.zarr" in ran.err.replace(str(restored.folder), ".")
    assert "bounds" not in ran.err  # no difference is told from what is not known
    assert account(run)["spent"] == "epsilon 1"


@pytest.mark.slow
def test_granting_and_abandoning_go_on_meanwhile(project, run, monkeypatch):
    backup = project.folder / "backup.db"
    with monkeypatch.context() as patch:
        patch.setattr(BudgetLedger, "begin_reading", Mock(side_effect=OSError))
        run("release", "release.toml")
    shutil.copy(project.ledger_path, backup)
    assert run("release", "release.toml").code == 0
    shutil.copy(backup, project.ledger_path)
    abandon = ("ledger", "abandon", *URL, "--dataset", "trips", "--name", "density")
    assert "refunded" in run(*abandon).out  # which the ledger cannot know better yet
    assert run("ledger", "grant", *URL, "--dataset", "trips", "--epsilon", "1").code == 0
    assert run("ledger", "reconcile", *URL, ".", "--json").json["charged"][0]["name"] == "density"
    assert account(run)["spent"] == "epsilon 1"
    assert account(run)["remaining"] == "epsilon 3"


@pytest.mark.slow
def test_reconcile_more_keeps_spending_blocked(restored, run):
    assert run("ledger", "reconcile", *URL, "out.zarr", "--more", "--json").json["reconcile"]
    restored.spec(release={"name": "again", "output": "again.zarr"})
    assert run("release", "release.toml").code == 3
    assert run("ledger", "reconcile", *URL, ".").code == 0
    assert run("release", "release.toml").code == 0


@pytest.mark.slow
def test_an_operator_may_declare_it(project, run):
    assert run("release", "release.toml").code == 0
    shown = run("show", "out.zarr", "--json").json
    with project.ledger() as ledger:
        assert (shown["dataset"], shown["ledger_id"]) == ("trips", ledger.id)
    ran = run("ledger", "reconcile", *URL, "--restored")
    assert (ran.code, ran.out) == (0, "0 charged, 0 known before; spending is blocked\n")
    project.spec(release={"name": "again", "output": "again.zarr"})
    assert run("release", "release.toml").code == 3
    assert "1 known before; spending is allowed" in run("ledger", "reconcile", *URL, ".").out
    assert run("release", "release.toml").code == 0
    ran = run("ledger", "reconcile", *URL)
    assert (ran.code, "--restored" in ran.err) == (2, True)


def changed(root, manifest, key, *value):
    """Another value of an attribute of the root, or none, and a manifest of its digest."""
    content = json.loads(root)
    assert content["attributes"].pop(key)
    content["attributes"].update(zip([key], value, strict=False))  # none: it is left out
    root = json.dumps(content).encode()
    whole = Manifest.parse(manifest, "out.zarr")
    objects = {**whole.objects, "zarr.json": entry_of(root)}
    return root, whole.model_copy(update={"objects": objects}).text()


@pytest.mark.slow
@pytest.mark.parametrize("key", ["dataset", "ledger_id"])
def test_a_synopsis_that_does_not_say_who_paid_reconciles_nothing(restored, run, key):
    root, manifest = restored.output / "zarr.json", restored.output / "manifest.json"
    originals = root.read_bytes(), manifest.read_bytes()
    named = ["--dataset", "trips"] if key == "ledger_id" else []
    for value, whole in product([(), (None,), (7,), ("",)], [True, False]):
        content, text = changed(*originals, key, *value)
        root.write_bytes(content)
        manifest.write_text(text)
        if not whole:
            manifest.unlink()
        ran = run("ledger", "reconcile", *URL, ".", *named)
        assert ran.code == 5, (value, whole, ran.err)
        told = f"{key}: " if whole and value != ("",) else "whose budget paid"
        assert told in ran.err, (value, whole)
        assert account(run)["spent"] == "epsilon 0", (value, whole)


def test_the_dataset_that_is_named_pays_whatever_a_synopsis_says(restored, run):
    assert run("ledger", "grant", *URL, "--dataset", "riders", "--epsilon", "2").code == 0
    assert run("ledger", "reconcile", *URL, ".", "--dataset", "riders").code == 0
    accounts = run("ledger", "status", *URL, "--json").json["datasets"]
    spent = {account["dataset"]: account["spent"] for account in accounts}
    assert spent == {"riders": "epsilon 1", "trips": "epsilon 0"}


def test_a_damaged_synopsis_reconciles_nothing(restored, run):
    root = restored.output / "zarr.json"
    root.write_text(root.read_text().replace('"epsilon":"1"', '"epsilon":"0.001"').replace(
        '"epsilon": "1"', '"epsilon": "0.001"'))  # fmt: skip
    assert run("ledger", "reconcile", *URL, ".").code == 5
    root.unlink()
    assert run("ledger", "reconcile", *URL, ".").code == 5
    assert run("ledger", "status", *URL, "--json").json["reconcile"]


def test_reconcile_skips_other_folders_and_follows_links(restored, run):
    elsewhere = restored.folder / "elsewhere"
    (elsewhere / "web").mkdir(parents=True)
    (elsewhere / "web" / "manifest.json").write_text('{"format": 3}')
    (elsewhere / "web" / "zarr.json").write_text("not json")
    (elsewhere / "list").mkdir()
    (elsewhere / "list" / "manifest.json").write_text("[]")
    (elsewhere / "loop").symlink_to(elsewhere)
    assert run("ledger", "reconcile", *URL, "elsewhere", "--more", "--json").json["charged"] == []
    (elsewhere / "linked").symlink_to(restored.output)
    found = run("ledger", "reconcile", *URL, "elsewhere", "--json").json["charged"]
    assert [one["output"] for one in found] == ["./out.zarr"]
    assert run("ledger", "reconcile", *URL, "nowhere").code == 2


def test_an_unfinished_folder_may_hold_noise_and_is_charged(restored, run):
    (restored.output / "manifest.json").unlink()
    assert run("ledger", "reconcile", *URL, ".").code == 0
    with restored.ledger() as ledger:
        (status,) = ledger.status("trips")
    assert (status.spent, status.releases[0].state) == (Budget(Fraction(1)), "abandoned")


def test_another_ledgers_synopses_are_left_alone(project, run, helpers, tmp_path):
    other = helpers.Project(tmp_path / "other")
    other.folder.mkdir()
    other.write(helpers.records())
    other.spec()
    BudgetLedger.create(other.url)
    with other.ledger() as ledger:
        ledger.grant("trips", Budget.parse("3"))
    assert run("release", "release.toml", project=other).code == 0
    found = run("ledger", "reconcile", *URL, "other", "--json").json
    assert (found["charged"], found["foreign"]) == ([], ["./other/out.zarr"])
    assert account(run)["spent"] == "epsilon 0"
