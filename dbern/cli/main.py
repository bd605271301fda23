"""The command group, and how errors become messages and exit codes."""

from __future__ import annotations

import gc
import json
import sys
from contextlib import redirect_stdout, suppress
from io import StringIO
from typing import Any

import click

from dbern.cli.ask import ask, query
from dbern.cli.demo import demo
from dbern.cli.doctor import doctor
from dbern.cli.init import init
from dbern.cli.ledgers import ledger
from dbern.cli.metrics import metrics
from dbern.cli.output import JsonLines, close_quietly, escape_unencodable, print_line
from dbern.cli.releases import catch_up, plan, release
from dbern.cli.reports import draw_change, write_report
from dbern.cli.show import show, verify
from dbern.cli.targets import target
from dbern.errors import DbernError, EnvironmentRefusedError, without_text
from dbern.system import address_limit

INTERRUPTED = 130
_MIN_ADDRESSES, _MIN_RELEASE_ADDRESSES = 640 << 20, 2560 << 20
"""Measured on two cores: libraries and threads take far more addresses than memory."""

_REMOVED = {
    "export": "is no command. Write show SYNOPSIS --json for all that a release states",
    "sign": "is no command. Write ssh-keygen -Y sign -n dbern -f KEY SYNOPSIS/manifest.json",
    "ledger grant --allow-random-dp": "is no option. Write a sensitivity that holds for every "
    "database in the spec, and leave it out",
    "metrics --listen": "is no option. Write --textfile FILE.prom, which node_exporter serves",
    "plan --table": "is no option. Write --target-error A for the epsilon that an error of A takes",
    "verify --trusted": "is no option. Write ssh-keygen -Y verify for whose the manifest is",
}
"""Commands and options that left, with what to write instead."""

_HELP = {"-h", "--help", "--version"}
_OBJECTS_PER_COLLECTION = 10_000
"""New objects after which garbage is looked for: a command makes 10^5 by imports, which stay."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dbern")
def cli() -> None:
    """Release functions of private datasets under differential privacy.

    Plan a release, charge it to a ledger, publish a synopsis, query the synopsis for ever.
    Exit codes: 0 done, 1 failed, 2 usage or spec, 3 budget refused, 4 environment, 5 integrity.
    """


for _command in (
    *(init, plan, release, catch_up, query, ask, show, write_report, draw_change, verify),
    *(ledger, metrics, target, doctor, demo),
):
    cli.add_command(_command)


def main() -> None:
    """Run the command line; every failure ends with a message that says what mends it."""
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    code = run(sys.argv[1:])
    # Python would look for garbage among all modules as it ends: a fifth of a small release.
    gc.freeze()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    as_json = "--json" in arguments
    escape_unencodable()
    try:
        _refuse_removed(arguments)
        _check_addresses(arguments)
        # A command that runs others is given how.
        code = cli.main(arguments, prog_name="dbern", standalone_mode=False, obj=run_json)
        return int(code or 0)
    except click.ClickException as error:
        if as_json:
            _print_failure("usage", error.format_message(), error.exit_code)
        with suppress(OSError):
            error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        message = "stopped. Run the same command again to go on"
        return _fail("interrupted", message, INTERRUPTED, as_json)
    except Exception as error:  # noqa: BLE001 -- the text of an unforeseen error may quote a value
        reported = error if isinstance(error, DbernError) else without_text(error)
        return _fail(reported.kind, str(reported), reported.exit_code, as_json)
    finally:
        if lines := JsonLines.installed():
            lines.remove()
        close_quietly()


def run_json(arguments: list[str]) -> tuple[int, dict[str, Any]]:
    """Run one command as a person would type it, with ``--json``.

    Returns its exit code and the object that it prints; an empty one where it printed none.
    """
    with redirect_stdout(StringIO()) as printed:
        code = run([*arguments, "--json"])
    return code, json.loads(printed.getvalue() or "{}")


def _refuse_removed(arguments: list[str]) -> None:
    """Refuse a command or an option that left, and say what to write instead."""
    words = {argument.partition("=")[0] for argument in arguments[1:]}
    for removed, instead in _REMOVED.items():
        command, *options = removed.split()
        if arguments[:1] == [command] and words.issuperset(options):
            raise click.UsageError(f"{removed}: {instead}")


def _check_addresses(arguments: list[str]) -> None:
    """Refuse to load libraries that try for ever, or die, where addresses are too few."""
    limit = address_limit()
    if limit is None or not arguments or _HELP & set(arguments):
        return
    minimum = _MIN_RELEASE_ADDRESSES if arguments[0] == "release" else _MIN_ADDRESSES
    if limit < minimum:
        raise EnvironmentRefusedError(
            f"{limit >> 20} MiB of addresses (ulimit -v) are too little memory to start in. Allow "
            f"{minimum >> 20} MiB or more, or limit memory by a control group instead"
        )


def _fail(kind: str, message: str, code: int, as_json: bool) -> int:
    if as_json:
        _print_failure(kind, message, code)
    if lines := JsonLines.installed():
        lines.print_failure(kind, message, code)
    else:
        print_line(f"dbern: {message}")
    return code


def _print_failure(kind: str, message: str, code: int) -> None:
    """Print a failure as JSON; if that fails too the code stands, and no traceback has its text."""
    with suppress(OSError):
        click.echo(json.dumps({"error": kind, "message": message, "exit_code": code}))
