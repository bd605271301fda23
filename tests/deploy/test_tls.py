"""A cluster under deploy/dask.yaml: mutual TLS, no plain TCP, no dashboard, no other versions."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml
from clusters import LOOPBACK, DaskProcesses, wait
from distributed import Client, Security

import dbern
from deploy import certificates

pytestmark = pytest.mark.slow

SETTINGS = Path(__file__).parents[2] / "deploy" / "dask.yaml"
NO_PAGES = ("--no-dashboard", "--dashboard-address", LOOPBACK)
# A preload of a worker that pretends to have another version of one package, or no dbern at all.
OTHER = """
import dbern.run.workers as workers
def other(packages, actual=workers.environment):
    return {**actual(packages), "numpy": "1.0.0"}
workers.environment = other
"""
NONE = """
import importlib.abc, sys
class NoDbern(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "dbern":
            raise ModuleNotFoundError("No module named 'dbern'", name="dbern")
sys.meta_path.insert(0, NoDbern())
"""


def environment(role, folder, **others):
    """The settings as they are deployed, with the certificates where this test has them."""
    made = {"DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(role / "ca.pem")}
    for part in ("SCHEDULER", "WORKER", "CLIENT"):
        made[f"DASK_DISTRIBUTED__COMM__TLS__{part}__CERT"] = str(role / "cert.pem")
        made[f"DASK_DISTRIBUTED__COMM__TLS__{part}__KEY"] = str(role / "key.pem")
    path = os.pathsep.join([str(SETTINGS.parents[1]), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "DASK_CONFIG": str(folder), "PYTHONPATH": path, **made, **others}


def connect(seconds):
    """Code that is refused in no longer than that; who is let in has as long as it takes."""
    return f"import sys; from distributed import Client; Client(sys.argv[1], timeout={seconds})"


def deployed(role):
    """The command of compose.yaml, on the loopback and on any port."""
    _, *words = yaml.safe_load((SETTINGS.parent / "compose.yaml").read_text())["services"][role][
        "command"
    ]
    return ["0" if word == "8786" else word for word in words]


class Cluster(DaskProcesses):
    def __init__(self, folder):
        super().__init__(folder)
        (folder / "settings").mkdir()
        shutil.copy(SETTINGS, folder / "settings")
        for authority in ("ours", "theirs"):
            certificates.make_authority(folder / authority)
            for role in ("scheduler", "worker"):
                certificates.issue(folder / authority, role, ["127.0.0.1"])
            certificates.issue(folder / authority, "client", purpose="client")
        _, *words = deployed("scheduler")
        found = self.scheduler(*words, env=self.environment("ours/scheduler"))
        self.address, self.services = found["address"], found["services"]

    def environment(self, role, **others):
        return environment(self.folder / role, self.folder / "settings", **others)

    def worker(self, role="ours/worker", *more):
        return self.dask("worker", self.address, "--nthreads", "1", "--no-nanny", *NO_PAGES,
                         "--local-directory", str(self.folder), "--death-timeout", "300",
                         *more, env=self.environment(role))  # fmt: skip

    def deployed_worker(self):
        words = [self.address if "://" in word else word for word in deployed("worker")]
        words[words.index("/scratch")] = str(self.folder)
        return self.dask(*words, env=self.environment("ours/worker"))

    def preloaded(self, code):
        (self.folder / "preload.py").write_text(code)
        return self.worker("ours/worker", "--preload", "preload.py")

    def workers(self):
        """How many there are, asked by a process with our certificate."""
        role = self.folder / "ours/client"
        secured = Security(
            tls_ca_file=str(role / "ca.pem"), tls_client_cert=str(role / "cert.pem"),
            tls_client_key=str(role / "key.pem"), require_encryption=True,
        )  # fmt: skip
        with Client(self.address, security=secured, timeout=60, set_as_default=False) as client:
            return len(client.nthreads())

    def python(self, role, code, address=None):
        return subprocess.run(
            [sys.executable, "-c", code, address or self.address], cwd=self.folder, text=True,
            env=self.environment(role), capture_output=True, timeout=300,
        )  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("tls"))
    try:
        made.deployed_worker()
        wait(lambda: made.workers() == 1, pause=0.1)
        yield made
    finally:
        made.close()


def release(project, cluster, role, address=None, command="release"):
    where = [project.spec_path.name] if command == "release" else []
    return subprocess.run(
        [sys.executable, "-c", "from dbern.cli.main import main; main()", command, *where,
         "--scheduler", address or cluster.address, "--json"],
        cwd=project.folder, env=cluster.environment(role), capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip


def test_a_release_over_mutual_tls(project, cluster):
    assert cluster.address.startswith("tls://")
    ran = release(project, cluster, "ours/client")
    assert ran.returncode == 0, ran.stderr
    assert dbern.open(project.output).verify() > 0
    found = json.loads(release(project, cluster, "ours/client", command="doctor").stdout)
    states = {one["what"]: one["state"] for one in found["findings"]}
    assert states["scheduler"] == states["workers"] == states["worker memory"] == "good"


def test_a_client_of_another_authority_is_refused(project, cluster):
    ran = release(project, cluster, "theirs/client")
    assert ran.returncode == 4, ran.stderr
    assert "certificate" in json.loads(ran.stdout)["message"]
    assert project.spent() == "epsilon 0, epsilon 0 reserved"
    assert release(project, cluster, "ours/client").returncode == 0  # and goes on


def test_a_client_that_trusts_ours_and_has_no_certificate_of_it_is_refused(cluster):
    host, port = cluster.address.removeprefix("tls://").split(":")
    context = ssl.create_default_context(cafile=cluster.folder / "ours/ca.pem")

    def greeted():
        with (
            socket.create_connection((host, int(port)), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            return secured.recv(1)

    with pytest.raises(ssl.SSLError, match=r"(?i)certificate required"):
        greeted()
    ours = cluster.folder / "ours/client"
    context.load_cert_chain(ours / "cert.pem", ours / "key.pem")
    assert greeted()


def test_plain_tcp_is_refused_by_both_sides(project, cluster):
    plain = cluster.address.replace("tls://", "tcp://")
    assert release(project, cluster, "ours/client", plain).returncode == 4  # require-encryption
    lax = "import dask; dask.config.set({'distributed.comm.require-encryption': False})\n"
    ran = cluster.python("ours/client", lax + connect(5), plain)
    assert ran.returncode != 0
    assert cluster.python("ours/client", lax + connect(60)).returncode == 0  # what differs is tcp


def test_a_worker_of_another_authority_never_joins(cluster):
    stranger = cluster.worker("theirs/worker", "--death-timeout", "4")
    assert stranger.wait(timeout=300) != 0
    assert cluster.workers() == 1


def test_no_dashboard_is_served(cluster):
    base = f"http://127.0.0.1:{cluster.services['dashboard']}"
    assert urlopen(f"{base}/health").read() == b"ok"
    for page in ("status", "info/main/workers.html", "info/logs.html", "json/counts.json", "sites"):
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{base}/{page}")


@pytest.mark.parametrize(("preload", "told"), [(OTHER, "numpy 1.0.0 there"), (NONE, "no dbern")])
def test_a_worker_of_another_environment_is_4_and_nothing_is_read(project, cluster, preload, told):
    odd = cluster.preloaded(preload)
    try:
        wait(lambda: cluster.workers() == 2, pause=0.1)
        ran = release(project, cluster, "ours/client")
        assert ran.returncode == 4, ran.stderr
        assert told in json.loads(ran.stdout)["message"]
        assert project.spent() == "epsilon 0, epsilon 0 reserved"
    finally:
        odd.kill()
        odd.wait()
    wait(lambda: cluster.workers() == 1, pause=0.1)


def test_authorities_are_rotated_without_a_gap(cluster):
    """Trust both, then change the certificates, then trust the new one alone."""
    old, new = cluster.folder / "ours", cluster.folder / "next"
    certificates.make_authority(new)
    client = certificates.issue(new, "client", ["127.0.0.1"])
    both = (old / "ca.pem").read_text() + (new / "ca.pem").read_text()
    (client / "ca.pem").write_text(both)
    assert cluster.python("next/client", connect(5)).returncode != 0  # the scheduler trusts the old
    scheduler = old / "scheduler" / "ca.pem"
    scheduler.write_text(both)
    words = ("--port", "0", "--dashboard-address", LOOPBACK)
    address = cluster.scheduler(*words, env=cluster.environment("ours/scheduler"))["address"]
    assert cluster.python("next/client", connect(60), address).returncode == 0
    assert cluster.python("ours/client", connect(60), address).returncode == 0


def test_nothing_is_overwritten(tmp_path):
    certificates.make_authority(tmp_path)
    certificates.issue(tmp_path, "client")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.pem")}
    assert certificates.main(["authority", str(tmp_path)]) == 1
    assert certificates.main(["issue", str(tmp_path), "client"]) == 1
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.pem")} == before
    assert {path.stat().st_mode & 0o777 for path in before} == {0o600}
