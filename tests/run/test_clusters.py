"""A cluster that is not there, or not yet, or whose certificates will not do: what is told."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import threading
from contextlib import suppress
from unittest.mock import Mock

import dask
import pytest
from clusters import local_cluster
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from distributed import Client, Security

import dbern
from dbern.cli import diagnosis
from dbern.errors import EnvironmentRefusedError, ReleaseError
from dbern.run.connection import cluster
from dbern.run.workers import DaskWorkers
from deploy import certificates

NOTHING = "epsilon 0, epsilon 0 reserved"


def scheduler(**options):
    """One of this process that listens on the loopback, and has no worker yet."""
    return local_cluster(0, host="127.0.0.1", **options)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("dbern.run.connection._CONNECT_SECONDS", 0.3)


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_scheduler_that_is_not_there_costs_nothing(project, client):
    with pytest.raises(EnvironmentRefusedError, match="No scheduler answers at tcp") as caught:
        dbern.release(project.spec(), scheduler="tcp://127.0.0.1:1")
    assert caught.value.exit_code == 4
    assert project.spent() == NOTHING
    dbern.release(project.spec(), client=client)
    assert dbern.release(project.spec(), scheduler="tcp://127.0.0.1:1").notes  # it is published


def test_what_accepts_and_says_nothing_is_not_waited_for_long(project, monkeypatch):
    """distributed has no bound for the first words of a connection."""
    monkeypatch.setattr("dbern.run.client._ANSWER_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        refused = r"^No scheduler answers at .* \(TimeoutError\)\. Start one"
        with pytest.raises(EnvironmentRefusedError, match=refused):
            dbern.release(project.spec(), scheduler=address)
    assert project.spent() == NOTHING


@pytest.mark.slow
@pytest.mark.usefixtures("impatient")
def test_a_reservation_survives_a_missing_scheduler_and_goes_on(project, client, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("dbern.run.counting.tree_reduce", Mock(side_effect=ReleaseError("gone")))
        with pytest.raises(ReleaseError, match="gone"):
            dbern.release(project.spec(), client=client)
    with pytest.raises(EnvironmentRefusedError, match="No scheduler answers"):
        dbern.release(project.spec(), scheduler="tcp://127.0.0.1:1")
    assert project.reservation().state == "reading"
    dbern.release(project.spec(), client=client)
    assert project.spent() == "epsilon 1, epsilon 0 reserved"


@pytest.mark.slow
def test_workers_that_count_with_another_version_of_a_package_are_refused(client, monkeypatch):
    """A kernel of a package is counted by the workers' copy of it: its sensitivity is another."""
    workers = DaskWorkers(client)
    workers.require_versions({"numpy 1.0"})
    with pytest.raises(EnvironmentRefusedError, match=r"cannot say what it runs \(Packag"):
        workers.require_versions({"no-such-package 1.0"})
    versions = (f"{number}.0" for number in range(9))  # of this process too: another each time
    monkeypatch.setattr("dbern.run.tasks.version", lambda _: next(versions))
    with pytest.raises(EnvironmentRefusedError, match=r"numpy 0\.0 there, \d\.0 here"):
        workers.require_versions({"numpy 1.0"})


def test_no_worker_counts_what_is_of_no_package(project, client, monkeypatch):
    """One of another process would import what it has by that name."""
    packages = {"target.kernel": "no package"}
    monkeypatch.setattr(dbern.ReleaseSpec, "packages", lambda _: packages)
    with pytest.raises(EnvironmentRefusedError, match=r"^The spec names what is of no package"):
        dbern.release(project.spec(), client=client)
    assert project.spent() == "epsilon 0, epsilon 1 reserved"


def test_workers_are_asked_for_the_packages_of_what_they_count(project, client, monkeypatch):
    packages = {"target.kernel": "mine 1.0"}
    monkeypatch.setattr(dbern.ReleaseSpec, "packages", lambda _: packages)

    def refuse(_workers, names):
        raise EnvironmentRefusedError(f"asked for {names}")

    monkeypatch.setattr(DaskWorkers, "require_versions", refuse)
    with pytest.raises(EnvironmentRefusedError, match=r"^asked for \{'mine 1\.0'\}"):
        dbern.release(project.spec(), client=client)
    assert project.spent() == "epsilon 0, epsilon 1 reserved"


def test_a_worker_that_joins_later_with_other_versions_counts_nothing(project, client, monkeypatch):
    """Those that were asked had the same; the release goes on where all have."""
    asked = DaskWorkers.require_versions
    with monkeypatch.context() as patch:  # as good as a worker that has another numpy
        patch.setattr(
            DaskWorkers,
            "require_versions",
            lambda workers, origins: {**asked(workers, origins), "numpy": "0.1"},
        )
        with pytest.raises(EnvironmentRefusedError, match=r"^A worker that joined later runs"):
            dbern.release(project.spec(), client=client)
    assert project.spent() == "epsilon 0, epsilon 1 reserved"
    dbern.release(project.spec(), client=client)
    assert project.spent() == "epsilon 1, epsilon 0 reserved"


def test_workers_that_are_still_coming_are_waited_for(project):
    told = []
    with scheduler(protocol="tcp://") as local:
        for wait, words in ((0, "has no workers. Start some"), (0.3, "none came in 0.3 s")):
            with pytest.raises(EnvironmentRefusedError, match=words) as caught:
                dbern.release(project.spec(), scheduler=local.scheduler_address,
                              wait_for_workers=wait)  # fmt: skip
            assert "--wait-for-workers" in str(caught.value)
        with Client(local, set_as_default=False) as given, pytest.raises(EnvironmentRefusedError):
            dbern.release(project.spec(), client=given, wait_for_workers=0)
        assert project.spent() == NOTHING

        def progress(*stage):
            if not told:
                local.scale(1)
            told.append(stage)

        dbern.release(project.spec(), scheduler=local.scheduler_address, progress=progress)
    assert told[0] == ("waiting for workers, seconds", 0, 60)
    assert dbern.open(project.output).verify() > 0


def test_the_command_line_passes_the_wait_on(run, project, monkeypatch):
    asked = []
    monkeypatch.setattr("dbern.run.stages.cluster", lambda *given: asked.append(given[:2]))
    for more in ([], ["--wait-for-workers", "7.5"]):
        run("release", project.spec_path.name, "--scheduler", "tls://a:1", *more)
    assert asked == [("tls://a:1", 60.0), ("tls://a:1", 7.5)]


@pytest.fixture(scope="module")
def authorities(tmp_path_factory):
    """Ours and theirs, each with a scheduler and a client, and certificates that are over."""
    folder = tmp_path_factory.mktemp("authorities")
    for name in ("ours", "theirs"):
        certificates.make_authority(folder / name)
        for role in ("scheduler", "client"):
            certificates.issue(folder / name, role, ["127.0.0.1"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificates, "_LEEWAY", 3 * certificates.timedelta(days=1))
        certificates.issue(folder / "ours", "over", ["127.0.0.1"], days=-1)
    return folder


def configuration(role, **changed):
    files = {"ca-file": role / "ca.pem", "client.cert": role / "cert.pem",
             "client.key": role / "key.pem", **changed}  # fmt: skip
    return {f"distributed.comm.tls.{name}": value and str(value) for name, value in files.items()}


@pytest.fixture(scope="module")
def odd_files(authorities):
    """Files that are no certificate in PEM, and a key that is encrypted."""
    client = authorities / "ours/client"
    (authorities / "text.pem").write_text("no certificate\n")
    certificate = x509.load_pem_x509_certificate((client / "cert.pem").read_bytes())
    (authorities / "der.pem").write_bytes(certificate.public_bytes(serialization.Encoding.DER))
    key = serialization.load_pem_private_key((client / "key.pem").read_bytes(), None)
    (authorities / "encrypted.pem").write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"word"),
    ))  # fmt: skip
    return authorities


FILES = [
    ("ca-file", "absent.pem", r"cannot be read \(No such file"),
    ("client.cert", "absent.pem", r"cannot be read \(No such file"),
    ("client.key", "absent.pem", r"cannot be read \(No such file"),
    ("client.key", "ours", r"cannot be read \(Is a directory"),
    ("ca-file", "text.pem", "holds no certificate in PEM"),
    ("ca-file", "der.pem", "holds no certificate in PEM"),
    ("client.cert", "der.pem", "holds no certificate in PEM"),
    ("client.cert", "ours/client/key.pem", "holds no certificate in PEM"),
    ("client.key", "text.pem", "holds no private key in PEM"),
    ("client.key", "ours/client/cert.pem", "holds no private key in PEM"),
    ("client.key", "encrypted.pem", "is encrypted"),
    ("client.key", "ours/scheduler/key.pem", "is not that of the certificate"),
    ("ca-file", "theirs/ca.pem", "is not of the authority in"),
]


def refusal(files):
    """What is told of a client's files before anything is asked of a scheduler."""
    with (
        dask.config.set(files),
        pytest.raises(EnvironmentRefusedError) as caught,
        cluster("tls://127.0.0.1:1"),
    ):
        pass
    return str(caught.value)


@pytest.mark.parametrize(("setting", "name", "told"), FILES)
def test_a_certificate_file_that_will_not_do_is_named(odd_files, setting, name, told):
    path = odd_files / name
    message = refusal(configuration(odd_files / "ours/client", **{setting: path}))
    assert re.search(told, message)
    assert str(path) in message
    assert f"distributed.comm.tls.{setting}" in message


@pytest.mark.parametrize("setting", ["ca-file", "client.cert"])
def test_a_certificate_setting_that_is_missing_is_named(authorities, setting):
    message = refusal(configuration(authorities / "ours/client", **{setting: None}))
    assert f"{setting} is not set. Write" in message


def test_a_certificate_that_is_over_is_named(authorities):
    message = refusal(configuration(authorities / "ours/over"))
    assert "over/cert.pem: this certificate is valid" in message


def secured(role):
    return Security(tls_ca_file=str(role / "ca.pem"), require_encryption=True, **{
        f"tls_{of}_{part}": str(role / f"{part}.pem")
        for of in ("scheduler", "worker", "client") for part in ("cert", "key")
    })  # fmt: skip


OTHERS = [  # the scheduler's role, ours, and what is told
    ("theirs/scheduler", "ours/client", r"ours/client/ca.pem: the scheduler's certificate is not"),
    ("theirs/trusting", "theirs/client", None),
    ("ours/strict", "ours/both", r"ours/both/cert.pem: the scheduler ended the handshake"),
]


@pytest.fixture(scope="module")
def mixed(authorities):
    """Two more schedulers of other files, and a client that trusts both authorities."""
    issued = certificates.issue(authorities / "ours", "client-only", purpose="client")
    assert issued.name == "client-only"
    shutil.copytree(authorities / "theirs/scheduler", authorities / "theirs/trusting")
    shutil.copytree(authorities / "ours/scheduler", authorities / "ours/strict")
    shutil.copytree(authorities / "theirs/client", authorities / "ours/both")
    both = [(authorities / name / "ca.pem").read_text() for name in ("ours", "theirs")]
    (authorities / "ours/both/ca.pem").write_text("".join(both))
    return authorities


@pytest.mark.parametrize(("there", "here", "told"), OTHERS)
def test_a_handshake_that_either_side_refuses_is_told(mixed, there, here, told):
    with (
        scheduler(protocol="tls://", security=secured(mixed / there)) as local,
        dask.config.set(configuration(mixed / here)),
    ):
        (found, *_) = diagnosis.scheduler(local.scheduler_address)
        if told is None:
            assert found.state == "good", found
            return
        with pytest.raises(EnvironmentRefusedError, match=told):
            cluster(local.scheduler_address).__enter__()
        assert found.state == "mend"


@pytest.mark.parametrize(
    ("there", "told"),
    [("over", "The scheduler's certificate has expired"), ("client-only", "not one for servers"),
     ("scheduler", "ended the handshake")],
)  # fmt: skip
def test_a_server_that_is_no_scheduler_is_told(mixed, there, told):
    """Of a certificate that is over; of a client's, which passes for no scheduler; and of none."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(mixed / "ours" / there / "cert.pem", mixed / "ours" / there / "key.pem")

    def serve(listening):
        with suppress(OSError):
            while True:
                connected, _ = listening.accept()
                with connected, suppress(OSError), context.wrap_socket(connected, server_side=True):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=serve, args=(listening,), daemon=True)
        serving.start()
        with (
            dask.config.set(configuration(mixed / "ours/client")),
            pytest.raises(EnvironmentRefusedError, match=told),
        ):
            cluster(f"tls://127.0.0.1:{listening.getsockname()[1]}").__enter__()
        listening.shutdown(socket.SHUT_RDWR)
    serving.join(60)


def test_a_scheduler_without_tls_is_told(mixed):
    with (
        scheduler(protocol="tcp://") as local,
        dask.config.set(configuration(mixed / "ours/client")),
        pytest.raises(EnvironmentRefusedError, match=r"does not speak TLS\. Start it with"),
    ):
        cluster(local.scheduler_address.replace("tcp", "tls")).__enter__()


@pytest.mark.slow
def test_certificates_in_memory_will_do():
    security = Security.temporary()
    with (
        scheduler(protocol="tls://", security=security) as local,
        Client(local, set_as_default=False) as given,
        pytest.raises(EnvironmentRefusedError, match="has no workers"),
    ):
        dbern.run.connection.same_cluster(given, 0).__enter__()
