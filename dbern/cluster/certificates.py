"""Certificates of a connection: which file is wrong, and what mends it.

distributed names no file where one is missing, is another's or has expired, and asks for a
passphrase on the terminal. Each file is checked before anything connects.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from dbern.errors import EnvironmentRefusedError
from dbern.system import read_small

_AUTHORITY, _CERTIFICATE, _KEY = (
    f"distributed.comm.tls.{name}" for name in ("ca-file", "client.cert", "client.key")
)
_MAKE = "`python deploy/certificates.py issue` makes one"

_UNTRUSTED = {18, 19, 20, 21}
"""OpenSSL's codes of a certificate whose authority is not trusted."""

_EXPIRED = 10


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
