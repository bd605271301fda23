"""An authority of one's own and certificates under it: a cluster's, a database's or a store's.

    python deploy/certificates.py authority secrets/dask
    python deploy/certificates.py issue secrets/dask scheduler --host dask-scheduler
    python deploy/certificates.py issue secrets/dask worker
    python deploy/certificates.py issue secrets/dask client --purpose client

The first writes ``ca.pem`` and ``ca-key.pem``, each other a pair ``NAME/cert.pem`` and
``NAME/key.pem`` with a copy of ``ca.pem``: the folder that a process of that role mounts. Nothing
is ever overwritten. Keep ``ca-key.pem`` offline: only issuing needs it.

Dask looks at the authority, never at the name: a scheduler takes whoever connects for what it says
that it is, so a worker's certificate is as good as a client's. What a certificate is for is all
that is told apart: a client's opens connections, and passes for no scheduler and no worker.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_AUTHORITY_DAYS = 3650
_LEEWAY = timedelta(minutes=5)  # clocks differ
_PURPOSES = {
    "client": [ExtendedKeyUsageOID.CLIENT_AUTH],
    "server": [ExtendedKeyUsageOID.SERVER_AUTH],
    "both": [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
}


def make_authority(folder: Path, days: int = _AUTHORITY_DAYS) -> None:
    """Write a new authority's ``ca.pem`` and ``ca-key.pem``; its name is unlike any other's.

    Raises
    ------
    FileExistsError
        Where there is one.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"dbern authority {x509.random_serial_number():x}")
    builder = (
        _builder(name, name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "ca-key.pem", _pem(key))
    _write(folder / "ca.pem", _pem(builder.sign(key, hashes.SHA256())))


def issue(
    folder: Path, role: str, hosts: Sequence[str] = (), days: int = 365, purpose: str = "both"
) -> Path:
    """Write ``role/cert.pem``, ``role/key.pem`` and ``role/ca.pem`` under the folder's authority.

    Parameters
    ----------
    role : str
        The certificate's common name, which PostgreSQL takes for the user's.
    hosts : sequence of str
        Names and addresses at which clients reach it.
    purpose : str
        ``"client"`` opens connections and is refused as a server, ``"server"`` the other way
        round; schedulers and workers do both.

    Raises
    ------
    FileExistsError
        Where the role has a key already.
    """
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    signing = serialization.load_pem_private_key((folder / "ca-key.pem").read_bytes(), None)
    if not isinstance(signing, ec.EllipticCurvePrivateKey):
        raise TypeError("ca-key.pem is not of an authority made here")
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_name(role), authority.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_PURPOSES[purpose]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
        )
    )
    if hosts:
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    made = folder / role
    made.mkdir(exist_ok=True)
    _write(made / "key.pem", _pem(key))
    _write(made / "cert.pem", _pem(builder.sign(signing, hashes.SHA256())))
    _write(made / "ca.pem", (folder / "ca.pem").read_bytes())
    return made


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LEEWAY)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False,
        key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(what: ec.EllipticCurvePrivateKey | x509.Certificate) -> bytes:
    if isinstance(what, x509.Certificate):
        return what.public_bytes(serialization.Encoding.PEM)
    return what.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, content: bytes) -> None:
    """A file of this user alone that did not exist."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    authority = commands.add_parser("authority", help="make a new authority")
    authority.add_argument("folder", type=Path)
    issuing = commands.add_parser("issue", help="make a certificate under it")
    issuing.add_argument("folder", type=Path)
    issuing.add_argument("role")
    issuing.add_argument("--host", action="append", default=[], help="may be repeated")
    issuing.add_argument("--days", type=int, default=365)
    issuing.add_argument(
        "--purpose", choices=sorted(_PURPOSES), default="both", help="schedulers and workers: both"
    )
    given = parser.parse_args(arguments)
    try:
        if given.command == "authority":
            make_authority(given.folder)
        else:
            issue(given.folder, given.role, given.host, given.days, given.purpose)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
