"""What is wrong with the certificates of a connection: the file, and what mends it.

distributed names no file where one is missing, is another's or has expired, and asks for a
passphrase on the terminal. Here each is looked at before anything is connected.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from dbern.errors import EnvironmentRefusedError

_AUTHORITY, _CERTIFICATE, _KEY = (
    f"distributed.comm.tls.{name}" for name in ("ca-file", "client.cert", "client.key")
)
_MAKE = "`python deploy/certificates.py issue` makes one"
_UNTRUSTED = {18, 19, 20, 21}
"""OpenSSL's codes of a certificate whose authority is not trusted."""
_EXPIRED = 10


def check_files(security: Any) -> None:
    """Refuse files of distributed's `Security` with which no connection can succeed.

    Raises
    ------
    EnvironmentRefusedError
        With the setting, the file's path, and what mends it.
    """
    authorities = list(_certificates(_AUTHORITY, security.tls_ca_file))
    own, *chain = _certificates(_CERTIFICATE, security.tls_client_cert)
    # Without a key of its own, the certificate's file has both.
    key_setting = _KEY if security.tls_client_key else _CERTIFICATE
    key = security.tls_client_key or security.tls_client_cert
    where, what = _told(_CERTIFICATE, security.tls_client_cert), _told(key_setting, key)
    if _public(own) != _public(_private_key(key_setting, key)):
        raise EnvironmentRefusedError(
            f"{what}: this key is not that of the certificate {security.tls_client_cert}; write "
            "the paths of a pair that was issued together"
        )
    now = datetime.now(UTC)
    if not own.not_valid_before_utc <= now <= own.not_valid_after_utc:
        raise EnvironmentRefusedError(
            f"{where}: this certificate is valid from {own.not_valid_before_utc:%Y-%m-%d} to "
            f"{own.not_valid_after_utc:%Y-%m-%d}; issue a new one ({_MAKE})"
        )
    if not any(_signed(own, issuer) for issuer in [*authorities, *chain]):
        raise EnvironmentRefusedError(
            f"{where}: this certificate is not of the authority in {security.tls_ca_file}; issue "
            f"one under it ({_MAKE}), or write the path of its own authority in {_AUTHORITY}"
        )
    if all(one.not_valid_after_utc < now for one in authorities):
        raise EnvironmentRefusedError(
            f"{_told(_AUTHORITY, security.tls_ca_file)}: this authority has expired; make a new "
            "one and issue all certificates anew, as the runbook says"
        )


def ends(path: str, setting: str) -> datetime:
    """Return when the first of a file's certificates ends.

    Raises
    ------
    EnvironmentRefusedError
        Where the file cannot be read or holds none; `setting` is what named it.
    """
    return min(one.not_valid_after_utc for one in _certificates(setting, path))


def refusal(error: BaseException, security: Any) -> str | None:
    """What a connection failed of, if it was a certificate that either side refused."""
    for one in _causes(error):
        if isinstance(one, ssl.SSLCertVerificationError):
            authority = _told(_AUTHORITY, security.tls_ca_file)
            if one.verify_code in _UNTRUSTED:
                return (
                    f"{authority}: the scheduler's certificate is not of this authority; write the "
                    "path of the one that issued it"
                )
            if one.verify_code == _EXPIRED:
                return "the scheduler's certificate has expired; issue it a new one and restart it"
            return (
                "the scheduler's certificate is not one for servers, or is refused otherwise; "
                f"issue it a new one under {authority} ({_MAKE})"
            )
        wrong_bytes = isinstance(one, ssl.SSLError) and one.reason == "WRONG_VERSION_NUMBER"
        # Tornado's words where bytes came before the handshake.
        if wrong_bytes or "cannot convert to SSL" in str(one):
            return "the scheduler does not speak TLS; start it with --protocol tls"
    if type(error).__name__.endswith("CommClosedError"):  # it answered, and then went away
        return (
            f"{_told(_CERTIFICATE, security.tls_client_cert)}: the scheduler ended the handshake, "
            "as it does where it does not trust this certificate; issue one under the authority "
            "that it trusts, or mend the ca-file that it reads"
        )
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _told(setting: str, value: str) -> str:
    return f"{setting} = {value}" if "\n" not in value else setting


def _content(setting: str, value: str | None) -> bytes:
    """The file's content, or what is given in its place."""
    if not value:
        raise EnvironmentRefusedError(
            f"{setting} is not set; write the file's path there, in the configuration of Dask "
            "(deploy/dask.yaml), or write a tcp:// address on a closed network"
        )
    if "\n" in value:
        return value.encode()
    try:
        return Path(value).read_bytes()
    except OSError as error:
        raise EnvironmentRefusedError(
            f"{_told(setting, value)}: cannot be read ({error.strerror}); write the path of a PEM "
            f"file that this user may read ({_MAKE})"
        ) from None


def _certificates(setting: str, value: str | None) -> Sequence[x509.Certificate]:
    content = _content(setting, value)
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        raise EnvironmentRefusedError(
            f"{_told(setting, str(value))}: holds no certificate in PEM, which begins with "
            f"-----BEGIN CERTIFICATE-----; write the path of one that does ({_MAKE})"
        ) from None


def _private_key(setting: str, value: str) -> Any:
    content = _content(setting, value)
    try:
        return serialization.load_pem_private_key(content, None)
    except TypeError:
        wrong = "is encrypted, and nobody is asked for its passphrase; write it unencrypted, 0600"
    except (ValueError, UnsupportedAlgorithm):
        wrong = (
            "holds no private key in PEM, as -----BEGIN PRIVATE KEY-----; write the path of the "
            "certificate's key"
        )
    raise EnvironmentRefusedError(f"{_told(setting, value)}: {wrong}")


def _public(owner: Any) -> bytes:
    """The public key of a certificate or of a private key."""
    public = owner.public_key()
    kinds = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return bytes(public.public_bytes(*kinds))


def _signed(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
