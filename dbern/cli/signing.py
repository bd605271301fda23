"""``dbern sign``: say whose a synopsis is."""

from __future__ import annotations

import os
import sys

import click

from dbern.cli.output import common, report
from dbern.cli.synopses import SYNOPSIS
from dbern.errors import EnvironmentRefusedError

PASSPHRASE = "DBERN_SIGNING_PASSPHRASE"  # noqa: S105 -- the variable's name


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
def sign(synopsis_path: str, key: str, as_json: bool, quiet: bool) -> None:
    """Sign a synopsis, so that others can tell that it is yours.

    Every byte is checked first; then a signature of the manifest is put beside it. Give the public
    key away: openssl pkey -in PRIVATE.pem -pubout. The passphrase of an encrypted key is asked for,
    or taken from DBERN_SIGNING_PASSPHRASE.
    """
    del quiet
    from dbern.synopsis.signatures import private_key_of
    from dbern.synopsis.store import ReleasedStore

    private = private_key_of(key, _passphrase)
    signer = ReleasedStore(synopsis_path).sign(private)
    report({"signer": signer}, f"signed by {signer}", as_json=as_json)


def _passphrase() -> str:
    given = os.environ.get(PASSPHRASE)
    if given is not None:
        return given
    if not sys.stdin.isatty():
        raise EnvironmentRefusedError(
            f"--key: is encrypted, and there is no terminal to ask for its passphrase; set "
            f"{PASSPHRASE}"
        )
    return str(click.prompt("passphrase of the key", hide_input=True, err=True))
