"""The worked pipelines in a folder of their own: specs, data and a ledger."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path

import pytest

import dbern
from dbern.privacy.budget import Budget
from pipelines.generated import generate

FOLDER = Path(__file__).parents[2] / "pipelines"
TODAY = date(2026, 11, 20)


@pytest.fixture(scope="session")
def generated(tmp_path_factory):
    """Three days and two weeks, and the specs; the density's plan is given, which takes seconds."""
    made = tmp_path_factory.mktemp("pipelines")
    for spec in FOLDER.glob("*.toml"):
        shutil.copy(spec, made)
    with (made / "nightly.toml").open("a") as nightly:
        nightly.write('[mechanism]\nk = 6\nh = 2\nnoise = "laplace"\n')
    generate(made / "data", days=3, weeks=2, rows=4000, today=TODAY)
    return made


@pytest.fixture
def folder(generated, tmp_path, monkeypatch):
    """A copy of them with a ledger; the current folder."""
    shutil.copytree(generated, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    dbern.BudgetLedger.create("sqlite:///ledger.db")
    with dbern.BudgetLedger.open("sqlite:///ledger.db") as ledger:
        ledger.grant("trips", Budget.parse("0.3"))
        ledger.grant("loans", Budget.parse("1"))
    return tmp_path
