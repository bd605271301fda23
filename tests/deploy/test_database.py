"""The ledger's database as compose.yaml starts it: by certificate of its own authority, or not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import postgres_server
import pytest
import yaml

from dbern.errors import EnvironmentRefusedError
from dbern.ledger import BudgetLedger
from dbern.privacy.budget import Budget
from deploy import certificates

pytestmark = pytest.mark.slow

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture
def database(tmp_path):
    """A server under the options and the pg_hba.conf that are deployed, and its URL."""
    server = postgres_server.start()
    if server is None:
        pytest.skip("PostgreSQL is not installed here: apt-get install postgresql")
    try:
        server.execute("CREATE DATABASE ledger")
        for authority in ("ours", "theirs"):
            certificates.make_authority(tmp_path / authority)
            for role in ("database", "steward"):
                certificates.issue(tmp_path / authority, role, ["127.0.0.1"])
        made = server.folder / "tls"
        shutil.copytree(tmp_path / "ours/database", made)
        shutil.copy(DEPLOY / "postgres" / "pg_hba.conf", made)
        facts = server.data.stat()
        for path in (made, *made.iterdir()):
            os.chown(path, facts.st_uid, facts.st_gid)
        with (server.data / "postgresql.conf").open("a") as settings:
            settings.writelines(f"{line}\n" for line in deployed(made))
        server.control("restart")
        yield server, f"{server.url('ledger')}?sslmode=verify-full"
    finally:
        postgres_server.stop(server)


def deployed(folder):
    """The settings of the command in compose.yaml, with the files where this test has them."""
    content = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    options = [word for word in content["services"]["database"]["command"] if "=" in word]
    assert len(options) == 5
    for option in options:
        key, _, value = option.partition("=")
        yield f"{key} = {value}" if value == "on" else f"{key} = '{folder / Path(value).name}'"


def test_a_certificate_is_the_password(database, tmp_path, monkeypatch):
    server, url = database

    def present(role, authority):
        monkeypatch.setenv("PGSSLCERT", str(role / "cert.pem"))
        monkeypatch.setenv("PGSSLKEY", str(role / "key.pem"))
        monkeypatch.setenv("PGSSLROOTCERT", str(authority / "ca.pem"))

    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    present(ours / "steward", ours)
    assert BudgetLedger.create(url)
    with BudgetLedger.open(url) as ledger:
        ledger.grant("trips", Budget.parse("1"))
    refused = [(theirs / "steward", ours), (ours / "steward", theirs), (ours / "database", ours)]
    for role, authority in refused:  # another's, a server of another's, another name of ours
        present(role, authority)
        with pytest.raises(EnvironmentRefusedError):
            BudgetLedger.open(url)
    present(tmp_path / "none", ours)
    monkeypatch.setenv("PGPASSWORD", server.password)  # which is right, and not asked for
    with pytest.raises(EnvironmentRefusedError):
        BudgetLedger.open(url)
    with pytest.raises(EnvironmentRefusedError):
        BudgetLedger.open(server.url("ledger") + "?sslmode=disable")
    present(ours / "steward", ours)
    with BudgetLedger.open(url, read_only=True) as ledger:
        assert str(ledger.status("trips")[0].remaining) == "epsilon 1"
