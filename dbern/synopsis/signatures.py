"""Who vouches for a synopsis: Ed25519 signatures of the exact bytes of its manifest.

Digests say that a store is unchanged, and nothing about whose it is: whoever can write objects can
write a manifest for them. A signature is an object ``signatures/<fingerprint>.json`` beside the
manifest, see FORMAT.md. Keys are the files that openssl makes: a private key
in PKCS #8, a public key in SubjectPublicKeyInfo, both PEM.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
    load_pem_private_key,
    load_pem_public_key,
)
from pydantic import StringConstraints

from dbern.data.storage import Location, storage_errors
from dbern.errors import EnvironmentRefusedError, IntegrityError, SpecError
from dbern.synopsis.strict import StrictModel, damaged, parse_object

PrivateKey: TypeAlias = Ed25519PrivateKey
"""What signs."""

_SIGNED = b"dbern synopsis manifest, signature format 1\n"
"""What stands before the manifest in what is signed: a signature of it is one of nothing else."""

_NAME = re.compile(r"signatures/([0-9a-f]{64})\.json")
_MAX_SIGNATURES, _MAX_SIGNATURE_BYTES = 256, 4096
_MAX_KEY_BYTES = 1 << 16
_MAKE = "openssl genpkey -algorithm ed25519 -out signing.pem"
_ENCRYPTED, _PUBLIC = b"ENCRYPTED PRIVATE KEY", b"BEGIN PUBLIC KEY"

_Base64 = Annotated[str, StringConstraints(pattern="^[A-Za-z0-9+/]{1,256}={0,2}$")]


class _Signature(StrictModel):
    format: Literal["dbern-signature"]
    format_version: Literal[1]
    algorithm: Literal["ed25519"]
    public_key: _Base64
    signature: _Base64


def is_signature(name: str) -> bool:
    """Whether an object's name is that of a signature."""
    return _NAME.fullmatch(name) is not None


def fingerprint(key: Ed25519PublicKey) -> str:
    """Return the SHA-256 of a public key's DER form, in hexadecimal."""
    return hashlib.sha256(_der(key)).hexdigest()


def private_key_of(path: str | Path, passphrase: Callable[[], str]) -> Ed25519PrivateKey:
    """Return a private key from its file.

    `passphrase`: asked only where the key is encrypted. Raises SpecError for a file that is not
    there, or holds no such key, or another passphrase's; EnvironmentRefusedError for a file that
    others than its owner and group may read or write.
    """
    pem = _content(path, "--key", private=True)
    secret = passphrase().encode() if _ENCRYPTED in pem else None
    try:
        key = load_pem_private_key(pem, secret)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        why = "does not open with this passphrase" if secret is not None else "holds no private key"
        raise SpecError(f"--key: {path} {why}. Make one with: {_MAKE}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SpecError(f"--key: {path} is a key of another kind. Make one with: {_MAKE}")
    return key


def public_key_of(path: str | Path) -> Ed25519PublicKey:
    """Return a public key from its file.

    Raises SpecError for a file that is not there, or holds no such key.
    """
    pem = _content(path, "--trusted", private=False)
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise SpecError(
            f"--trusted: {path} is not an Ed25519 public key. Write the signer's, from: openssl "
            "pkey -in signing.pem -pubout -out signing.pub"
        )
    return key


def sign(location: Location, manifest: bytes, key: Ed25519PrivateKey) -> str:
    """Put a signature beside a manifest; return the fingerprint. The same one twice is as once.

    `manifest`: exactly as it is there. Raises IntegrityError where something else is there in its
    name; ReleaseError where it cannot be written.
    """
    public = key.public_key()
    key_fingerprint = fingerprint(public)
    content = {
        "format": "dbern-signature",
        "format_version": 1,
        "algorithm": "ed25519",
        "public_key": base64.b64encode(_der(public)).decode(),
        "signature": base64.b64encode(key.sign(_SIGNED + manifest)).decode(),
    }
    name = f"signatures/{key_fingerprint}.json"
    with storage_errors(location):
        try:
            location.create(name, _text(content))
        except FileExistsError:
            raise IntegrityError(
                f"{location}: {name} is there, and is not this key's signature. Remove it, then "
                "sign"
            ) from None
    return key_fingerprint


def signers_of(location: Location, manifest: bytes) -> tuple[str, ...]:
    """Return the fingerprints of the keys that signed a manifest, sorted.

    Raises IntegrityError for a signature that is damaged, or of another manifest; ReleaseError
    where the place cannot be read.
    """
    with storage_errors(location, "read"):
        names = sorted(filter(is_signature, location.names()))
        if len(names) > _MAX_SIGNATURES:
            raise IntegrityError(
                f"{location}: has {len(names)} signatures, more than {_MAX_SIGNATURES}. Remove some"
            )
        return tuple(_signer(location, name, manifest) for name in names)


def require_signed(
    signers: Sequence[str], trusted: Sequence[Ed25519PublicKey], at: Location
) -> None:
    """Refuse a synopsis that none of the trusted keys signed, where there are any.

    Raises IntegrityError saying who signed it.
    """
    wanted = [fingerprint(key) for key in trusted]
    if wanted and not set(wanted) & set(signers):
        by = f"is signed by {', '.join(signers)}" if signers else "is unsigned"
        raise IntegrityError(
            f"{at}: {by}, so by none of the trusted keys ({', '.join(wanted)}). Ask the publisher "
            "for the key, or for the synopsis again"
        )


def _signer(location: Location, name: str, manifest: bytes) -> str:
    where, text = str(location), location.read(name, _MAX_SIGNATURE_BYTES)
    signature = parse_object(_Signature, text, where, name)
    if text != _text(signature.model_dump()):
        raise damaged(where, name, "", "is not written as a signature is: FORMAT.md says how")
    try:
        der = base64.b64decode(signature.public_key, validate=True)
        key = load_der_public_key(der)
        if not isinstance(key, Ed25519PublicKey) or name != f"signatures/{fingerprint(key)}.json":
            raise damaged(where, name, "public_key", "is not the key that its name says")
        key.verify(base64.b64decode(signature.signature, validate=True), _SIGNED + manifest)
    except (ValueError, UnsupportedAlgorithm):
        raise damaged(where, name, "", "holds no key, or no signature") from None
    except InvalidSignature:
        why = "is not of this manifest: it was changed, or the signature is another release's"
        raise damaged(where, name, "signature", why) from None
    return fingerprint(key)


def _text(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def _der(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _content(path: str | Path, option: str, *, private: bool) -> bytes:
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_MAX_KEY_BYTES)
    except OSError as error:
        raise SpecError(
            f"{option}: {path} cannot be read ({error.strerror}). Write the path of a key's file"
        ) from None
    if private and _PUBLIC in content:
        raise SpecError(
            f"{option}: {path} is a public key, and only a private key signs. Write the path of "
            "the private key that it was made from."
        )
    if private and mode & (stat.S_IROTH | stat.S_IWOTH):
        raise EnvironmentRefusedError(
            f"{option}: {path} may be read by everybody on this machine. Run chmod 600 on it, and "
            "make a new key if it was so for long"
        )
    return content
