"""``dbern verify`` and ``dbern sign``: whether a synopsis is as released, and whose it is."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from dbern.cli.output import SYNOPSIS, common
from dbern.errors import EnvironmentRefusedError, SpecError

PASSPHRASE_VARIABLE = "DBERN_SIGNING_PASSPHRASE"  # noqa: S105 -- the variable's name


@click.command()
@SYNOPSIS
@click.option(
    "--trusted",
    multiple=True,
    metavar="PUBLIC.pem",
    type=click.Path(),
    help="A public key of a signer whom you trust. One of the keys named must have signed. May be "
    "repeated.",
)
@common
def verify(synopsis_path: str, trusted: tuple[str, ...]) -> tuple[Any, str]:
    """Check every byte of a synopsis, and who signed it.

    Ends with exit code 5 where a byte differs from the manifest. Without --trusted it lists the
    keys that signed, and cannot tell whose they are.
    """
    from dbern.reporting.wording import signed_by
    from dbern.synopsis.opening import open_synopsis
    from dbern.synopsis.signatures import fingerprint, public_key_of

    synopsis = open_synopsis(synopsis_path)
    count, keys = synopsis.verify(trusted), {fingerprint(public_key_of(path)) for path in trusted}
    trust = {signer: signer in keys if keys else None for signer in synopsis.signers}
    signers = [{"fingerprint": signer, "trusted": trusts} for signer, trusts in trust.items()]
    lines = [signed_by(signer, trusted=trusts) for signer, trusts in trust.items()]
    text = "\n".join([f"{count} objects are as released", *(lines or [signed_by(None)])])
    return {"objects": count, "ok": True, "signers": signers}, text


@click.command()
@SYNOPSIS
@click.option(
    "--key",
    required=True,
    metavar="PRIVATE.pem",
    type=click.Path(),
    help="Ed25519 private key (PKCS #8, PEM), from: openssl genpkey -algorithm ed25519.",
)
@common
def sign(synopsis_path: str, key: str) -> tuple[Any, str]:
    """Sign a synopsis, so that others can tell that it is yours.

    Checks every byte, then writes a signature beside the manifest. Publish the public key: openssl
    pkey -in PRIVATE.pem -pubout. An encrypted key's passphrase is asked for, or read from
    DBERN_SIGNING_PASSPHRASE.
    """
    from dbern.data.storage import location_at
    from dbern.synopsis.opening import stream_at
    from dbern.synopsis.signatures import private_key_of
    from dbern.synopsis.store import ReleasedStore

    if stream_at(synopsis_path) is not None:
        raise SpecError(
            f"{synopsis_path}: is a stream, whose nights and blocks are synopses of their own. "
            "Sign each, such as STREAM/2026-11-20.zarr"
        )
    private = private_key_of(key, _passphrase)
    signer = ReleasedStore(location_at(synopsis_path)).sign(private)
    return {"signer": signer}, f"signed by {signer}"


def _passphrase() -> str:
    passphrase = os.environ.get(PASSPHRASE_VARIABLE)
    if passphrase is not None:
        return passphrase
    if not sys.stdin.isatty():
        raise EnvironmentRefusedError(
            f"--key: is encrypted, and there is no terminal to ask for its passphrase. Set "
            f"{PASSPHRASE_VARIABLE}"
        )
    return str(click.prompt("passphrase of the key", hide_input=True, err=True))
