"""Connect to a scheduler, checking certificates first, and that its workers can do a release.

distributed names no file where one is missing, is another's or has expired, and asks for a
passphrase on the terminal. Each file is checked before anything connects.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from dbern.errors import EnvironmentRefusedError, SpecError
from dbern.run.threads import Threads
from dbern.run.workers import DaskWorkers, check_workers
from dbern.system import Progress, cpu_count, read_small, silent

if TYPE_CHECKING:
    from distributed import Client, Security


_AUTHORITY, _CERTIFICATE, _KEY = (
    f"distributed.comm.tls.{name}" for name in ("ca-file", "client.cert", "client.key")
)
_MAKE = "`python deploy/certificates.py issue` makes one"
_UNTRUSTED = {18, 19, 20, 21}
"""OpenSSL's codes of a certificate whose authority is not trusted."""
_EXPIRED = 10
UNREACHABLE = (OSError, RuntimeError, TimeoutError, TypeError, ValueError)
"""What connecting raises: nobody there, plain TCP where encryption is required, no port."""
_SCHEDULER = re.compile(r"(?:(?:tcp|tls)://)?(?:\[[^\s/\[\]]+\]|[^\s:/\[\]]+):\d{1,5}")
WAIT_SECONDS = 60.0
"""How long a cluster without workers is waited for, unless the caller says."""
_CONNECT_SECONDS = 10


def check_files(security: Any) -> None:
    """Refuse files of distributed's `Security` with which no connection can succeed."""
    authorities = list(_certificates(_AUTHORITY, security.tls_ca_file))
    certificate, *chain = _certificates(_CERTIFICATE, security.tls_client_cert)
    # Without a key of its own, the certificate's file has both.
    key_setting = _KEY if security.tls_client_key else _CERTIFICATE
    key = security.tls_client_key or security.tls_client_cert
    where, what = (
        _setting_text(_CERTIFICATE, security.tls_client_cert),
        _setting_text(key_setting, key),
    )
    if _public(certificate) != _public(_private_key(key_setting, key)):
        raise EnvironmentRefusedError(
            f"{what}: this key is not that of the certificate {security.tls_client_cert}. Write "
            "the paths of a pair that was issued together."
        )
    now = datetime.now(UTC)
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        raise EnvironmentRefusedError(
            f"{where}: this certificate is valid from {certificate.not_valid_before_utc:%Y-%m-%d} "
            f"to {certificate.not_valid_after_utc:%Y-%m-%d}. Issue a new one ({_MAKE})."
        )
    if not any(_signed(certificate, issuer) for issuer in [*authorities, *chain]):
        raise EnvironmentRefusedError(
            f"{where}: this certificate is not of the authority in {security.tls_ca_file}. Issue "
            f"one under it ({_MAKE}), or write the path of its own authority in {_AUTHORITY}."
        )
    if all(authority.not_valid_after_utc < now for authority in authorities):
        raise EnvironmentRefusedError(
            f"{_setting_text(_AUTHORITY, security.tls_ca_file)}: this authority has expired. Make "
            "a new one and issue all certificates anew, as the runbook says."
        )


def expiry(path: str, setting: str) -> datetime:
    """Return when the first of a file's certificates ends; `setting` named the file."""
    return min(certificate.not_valid_after_utc for certificate in _certificates(setting, path))


def refusal(error: BaseException, security: Any) -> str | None:
    """Return the reason of a failed connection, if either side refused a certificate."""
    for cause in _causes_of(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            authority = _setting_text(_AUTHORITY, security.tls_ca_file)
            if cause.verify_code in _UNTRUSTED:
                return (
                    f"{authority}: the scheduler's certificate is not of this authority. Write the "
                    "path of the one that issued it."
                )
            if cause.verify_code == _EXPIRED:
                return "The scheduler's certificate has expired. Issue it a new one and restart it."
            return (
                "The scheduler's certificate is not one for servers, or is refused otherwise. "
                f"Issue it a new one under {authority} ({_MAKE})."
            )
        wrong_bytes = isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER"
        # Tornado's words where bytes came before the handshake.
        if wrong_bytes or "cannot convert to SSL" in str(cause):
            return "The scheduler does not speak TLS. Start it with --protocol tls."
    if type(error).__name__.endswith("CommClosedError"):  # it answered, and then went away
        return (
            f"{_setting_text(_CERTIFICATE, security.tls_client_cert)}: the scheduler ended the "
            "handshake, as it does where it does not trust this certificate. Issue one under the "
            "authority that it trusts, or mend the ca-file that it reads."
        )
    return None


def _causes_of(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _setting_text(setting: str, value: str) -> str:
    return f"{setting} = {value}" if "\n" not in value else setting


def _content(setting: str, value: str | None) -> bytes:
    if not value:
        raise EnvironmentRefusedError(
            f"{setting} is not set. Write the file's path there, in the configuration of Dask "
            "(deploy/dask.yaml), or write a tcp:// address on a closed network."
        )
    if "\n" in value:
        return value.encode()
    try:
        return read_small(value)
    except OSError as error:
        raise EnvironmentRefusedError(
            f"{_setting_text(setting, value)}: cannot be read ({error.strerror}). Write the path "
            f"of a PEM file that this user may read ({_MAKE})."
        ) from None


def _certificates(setting: str, value: str | None) -> Sequence[x509.Certificate]:
    content = _content(setting, value)
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        raise EnvironmentRefusedError(
            f"{_setting_text(setting, str(value))}: holds no certificate in PEM, which begins with "
            f"-----BEGIN CERTIFICATE-----. Write the path of one that does ({_MAKE})."
        ) from None


def _private_key(setting: str, value: str) -> Any:
    content = _content(setting, value)
    try:
        return serialization.load_pem_private_key(content, None)
    except TypeError:
        wrong = "is encrypted, and nobody is asked for its passphrase. Write it unencrypted, 0600."
    except (ValueError, UnsupportedAlgorithm):
        wrong = (
            "holds no private key in PEM, as -----BEGIN PRIVATE KEY-----. Write the path of the "
            "certificate's key."
        )
    raise EnvironmentRefusedError(f"{_setting_text(setting, value)}: {wrong}")


def _public(owner: Any) -> bytes:
    public = owner.public_key()
    kinds = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return bytes(public.public_bytes(*kinds))


def _signed(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def require_address(address: str) -> None:
    """Refuse what cannot be a scheduler's address, before anything waits for an answer from it."""
    if not _SCHEDULER.fullmatch(address):
        raise SpecError(
            f"scheduler: {address!r} is not the address of a Dask scheduler, which is a host and a "
            "port. Write one such as tls://host:8786."
        )


def connect(address: str, seconds: float, security: Security | None = None) -> Client:
    """Return a client of a scheduler, with distributed's configured certificates or others.

    It unpickles nothing that it is sent (`dbern.run.client`). Besides certificates that are
    refused, it raises what `UNREACHABLE` lists.
    """

    from dbern.run.client import PlainClient, is_tls, security_of

    secured = security or security_of(address)
    if not is_tls(address):
        return PlainClient(address, timeout=seconds, security=secured)
    check_files(secured)
    try:
        return PlainClient(address, timeout=seconds, security=secured)
    except UNREACHABLE as error:
        if reason := refusal(error, secured):
            raise EnvironmentRefusedError(reason) from None
        raise


def is_here(client: Client) -> bool:
    """Return whether scheduler and workers are this very process, and nothing crosses a wire."""
    return str(client.scheduler.address).startswith("inproc://")


def workers_of(client: Client | Threads) -> DaskWorkers | Threads:
    """Return the workers behind a client, or the threads that `cluster` started in this process."""
    return client if type(client) is Threads else DaskWorkers(client)


@contextmanager
def cluster(
    address: str | None = None, wait: float = WAIT_SECONDS, progress: Progress = silent
) -> Iterator[Any]:
    """Connect to a running scheduler, or start threads in this process.

    A small release does not wait for processes to start. `wait`: seconds that workers have to come.
    Raises EnvironmentRefusedError where no scheduler answers, no worker comes, or one runs other
    versions.
    """
    if address is None:
        with Threads(cpu_count()) as threads:
            yield threads
        return
    import dask
    import distributed  # noqa: F401 -- brings its defaults: set before them, ours would end them

    memory = "distributed.worker.memory"
    settings = {f"{memory}.target": False, f"{memory}.spill": False}
    with dask.config.set(settings), _reached(address) as client:
        check_workers(client, wait, progress)
        yield client


@contextmanager
def same_cluster(
    client: Client, wait: float = WAIT_SECONDS, progress: Progress = silent
) -> Iterator[Client]:
    """Connect to the cluster of a caller's client, by a client of ours, which unpickles nothing."""
    if is_here(client):
        check_workers(client, wait, progress)
        yield client
        return
    with _reached(client.scheduler.address, client.security) as connected:
        check_workers(connected, wait, progress)
        yield connected


def _reached(address: str, security: Security | None = None) -> Client:
    try:
        return connect(address, _CONNECT_SECONDS, security)
    except UNREACHABLE as error:
        raise EnvironmentRefusedError(
            f"No scheduler answers at {address} ({type(error).__name__}). Start one with `dask "
            "scheduler`, write its address as tls://host:8786, or leave out --scheduler."
        ) from None
