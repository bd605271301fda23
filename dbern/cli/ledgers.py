"""``dbern ledger``: budgets, and what became of them."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from unicodedata import category
from uuid import uuid4

import click

from dbern.cli.output import common, parse_with, show_progress

if TYPE_CHECKING:
    from dbern.ledger import DatasetStatus
    from dbern.privacy.budget import Budget

_LEDGER = click.option(
    "--ledger",
    "url",
    required=True,
    metavar="URL",
    help="As sqlite:///ledger.db or postgresql+psycopg://user@host/database.",
)
_EXIT_BUDGET = 3
_WHO_DECIDES = (
    "those who answer for its data decide whether to release less, to stop, or to grant more"
)


def _percentage(value: str) -> Fraction:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)%", value)
    if match is None:
        raise click.BadParameter("write a percentage of what was granted, as 20%")
    from dbern.privacy.budget import exact

    return exact(match[1], "--warn-below", "20%") / 100


def _name(value: str) -> str:
    unprintable = {"Cc", "Cs"}  # control characters, and what is no UTF-8
    if not value.strip() or unprintable & set(map(category, value)):
        raise click.BadParameter(
            "must not be empty, nor hold control characters or anything but UTF-8"
        )
    return value


def _amount(value: str) -> Fraction:
    from dbern.errors import SpecError
    from dbern.privacy.budget import exact

    try:
        return exact(f"0{value}" if value.startswith(".") else value, "")
    except SpecError:
        message = "write an exact decimal or fraction, not below 0, as 0.5"
        raise click.BadParameter(message) from None


_TEXT, _DECIMAL = parse_with(_name), parse_with(_amount)
_DATASET = click.option(
    "--dataset", required=True, callback=_TEXT, metavar="NAME", help="Whose budget it is."
)


@click.group()
def ledger() -> None:
    """Keep the budgets: init, grant, charge, status and more."""


@ledger.command()
@_LEDGER
@common
def init(url: str) -> tuple[Any, str]:
    """Create a ledger. An existing ledger is left as it is."""
    from dbern.ledger import BudgetLedger

    created = BudgetLedger.create(url)
    text = f"{url} {'created' if created else 'is there already; left as it is'}"
    return {"ledger": url, "created": created}, text


@ledger.command()
@_LEDGER
@_DATASET
@click.option(
    "--epsilon", required=True, callback=_DECIMAL, metavar='"3.0"', help="Exact decimal to add."
)
@click.option(
    "--delta",
    default="0",
    callback=_DECIMAL,
    metavar='"0"',
    help="Exact decimal to add; zcdp needs one above 0.",
)
@click.option(
    "--neighbors",
    type=click.Choice(["replace-one", "add-or-remove-one"]),
    help="Which databases count as neighbours.  [default: replace-one]",
)
@click.option(
    "--unit",
    metavar="row|COLUMN:ROWS",
    help="Whose data the budget covers: a row, or ROWS rows of equal COLUMN.  [default: row]",
)
@click.option(
    "--accountant",
    type=click.Choice(["basic", "zcdp"]),
    help="How charges add up: epsilons and deltas, or rhos.  [default: basic]",
)
@click.option(
    "--period",
    type=click.Choice(["day", "week", "month", "year"]),
    help="The budget is whole again in each (UTC).  [default: never]",
)
@common
def grant(
    url: str, dataset: str, epsilon: Fraction, delta: Fraction, neighbors: str | None,
    unit: str | None, **terms: Any,
) -> tuple[Any, str]:  # fmt: skip
    """Add budget to a dataset's account. It cannot be taken back.

    The first grant fixes neighbors, unit, accountant and period for good. In zcdp each
    release costs its rho (half the square of a pure epsilon), and together they may cost what
    converts to the granted epsilon at the granted delta: more room for many small releases, less
    for a large one. With a period the promise is the granted budget for each period, and so m times
    it for m.
    """
    from dbern.ledger import BudgetLedger
    from dbern.privacy.budget import Neighbors, PrivacyUnit

    added = _budget(epsilon, delta)  # either may be 0
    terms["neighbors"] = Neighbors(neighbors) if neighbors else None
    terms["unit"] = PrivacyUnit.parse(unit) if unit else None
    with BudgetLedger.open(url) as opened:
        account = _account(opened.grant(dataset, added, **terms))
    amounts = f"granted in all {account['granted']}, remaining {account['remaining']}"
    return account, f"{dataset}: {added} added; {amounts}"


def _budget(epsilon: Fraction, delta: Fraction) -> Budget:
    from dbern.privacy.budget import Budget

    if delta >= 1:
        raise click.BadParameter("must be below 1", param_hint="--delta")
    return Budget(epsilon, delta)


@ledger.command()
@_LEDGER
@_DATASET
@click.option(
    "--epsilon", required=True, callback=_DECIMAL, metavar='"0.2"', help="Exact decimal to charge."
)
@click.option("--delta", default="0", callback=_DECIMAL, metavar='"0"', help="The charge's delta.")
@click.option(
    "--rho",
    callback=_DECIMAL,
    metavar='"0.02"',
    help="Its zCDP, which a zcdp account counts; of a pure epsilon it follows.",
)
@click.option("--note", required=True, callback=_TEXT, metavar="TEXT", help="What was released.")
@click.option(
    "--name", callback=_TEXT, metavar="NAME", help="Charge once under it.  [default: a new one]"
)
@click.option(
    "--neighbors",
    type=click.Choice(["replace-one", "add-or-remove-one"]),
    default="replace-one",
    show_default=True,
    help="What the epsilon is for; it must be the account's.",
)
@click.option(
    "--unit", default="row", show_default=True, metavar="row|COLUMN:ROWS", help="Likewise."
)
@common
def charge(
    url: str, dataset: str, epsilon: Fraction, delta: Fraction, rho: Fraction | None, note: str,
    name: str | None, neighbors: str, unit: str,
) -> tuple[Any, str]:  # fmt: skip
    """Charge what another tool releases of a dataset. Run it before that tool does.

    The charge is for good. Under a --name it is made once, however often the command is run;
    without one, each run charges again. Exit code 3 where the budget does not cover it: then do
    not release.
    """
    from dbern.ledger import BudgetLedger, Request
    from dbern.privacy.budget import Neighbors, PrivacyUnit

    cost = _budget(epsilon, delta)
    chosen = name or f"charge-{uuid4().hex[:12]}"
    terms = Neighbors(neighbors), PrivacyUnit.parse(unit)
    request = Request(dataset, chosen, cost, *terms, rho=rho)
    with BudgetLedger.open(url) as opened:
        known = opened.find(dataset, chosen)
        held = opened.charge(request, note)
        account = _account(opened.status(dataset)[0])
    again = known is not None and known.release_id == held.release_id
    text = "was charged before; nothing was charged again" if again else "charged"
    content = {"dataset": dataset, "name": chosen, "charge": str(cost), "note": note,
               "charged": not again, "remaining": account["remaining"]}  # fmt: skip
    return content, f"{chosen}: {cost} {text}; {dataset} has {account['remaining']} left"


@ledger.command()
@_LEDGER
@click.option("--dataset", callback=_TEXT, metavar="NAME", help="Only this one.")
@click.option("--log", "with_log", is_flag=True, help="Add every event since the beginning.")
@click.option(
    "--warn-below",
    callback=parse_with(_percentage),
    metavar="20%",
    help="Exit with 3 where less than this of what was granted (in this period) remains.",
)
@common
def status(
    url: str, dataset: str | None, with_log: bool, warn_below: Fraction | None
) -> tuple[Any, str, int]:
    """Show what was granted and spent, on what, and what remains.

    For alerts, --warn-below ends with exit code 3 and names the datasets that run low.
    """
    from dbern.ledger import BudgetLedger

    with BudgetLedger.open(url, read_only=True) as opened:
        statuses = opened.status(dataset)
        accounts = [_account(status) for status in statuses]
        log = [vars(line) for line in opened.log(dataset)] if with_log else []
        pending = opened.is_pending()
    lines = _status_lines(accounts) or ["no budget was granted yet. Run: dbern ledger grant"]
    if pending:
        lines.append("restored or copied: spending is blocked until you run dbern ledger reconcile")
    low = [
        status.dataset
        for status in statuses
        if warn_below is not None and status.remaining_share < warn_below
    ]
    lines += [f"low: {name}; {_WHO_DECIDES}" for name in low]
    content = {
        "datasets": accounts,
        "reconcile": pending,
        **({"low": low} if warn_below is not None else {}),
        **({"log": log} if with_log else {}),
    }
    return content, "\n".join([*lines, *map(_log_line, log)]), _EXIT_BUDGET if low else 0


@ledger.command()
@_LEDGER
@_DATASET
@click.option(
    "--name", required=True, callback=_TEXT, metavar="RELEASE", help="The release to give up."
)
@common
def abandon(url: str, dataset: str, name: str, quiet: bool) -> tuple[Any, str]:
    """Give a release up. It is refunded if no record was read; else its charge stands."""
    from dbern.ledger import BudgetLedger
    from dbern.run.stages import abandon as give_up

    with show_progress(quiet) as progress, BudgetLedger.open(url) as opened:
        given_up = give_up(opened, dataset, name, progress)
    charge = given_up.reservation.charge
    text = (
        f"{charge} refunded"
        if given_up.refunded
        else f"the charge of {charge} stands: records may have been read"
    )
    return {"name": name, "refunded": given_up.refunded}, f"{name}: {text}"


@ledger.command()
@_LEDGER
@click.argument("folders", nargs=-1, metavar="FOLDER..", type=click.Path())
@click.option(
    "--restored",
    is_flag=True,
    help="Declare that the ledger was restored. Without FOLDER it does no more.",
)
@click.option(
    "--dataset", callback=_TEXT, metavar="NAME", help="Who pays, whatever a synopsis says."
)
@click.option("--more", is_flag=True, help="More folders follow: spending stays blocked.")
@common
def reconcile(
    url: str, folders: tuple[str, ...], restored: bool, dataset: str | None, more: bool
) -> tuple[Any, str]:
    """Charge published synopses that a restored ledger forgot.

    Each FOLDER is a synopsis or is searched for some. Name every folder where synopses of this
    ledger were published: one that is left out is never charged. Spending is allowed again after.
    """
    from dbern.ledger import BudgetLedger, Reconciled
    from dbern.run.reconcile import reconcile as account_for

    if not folders and not restored:
        raise click.UsageError("name the folders where synopses are, or write --restored")
    done = Reconciled((), (), ())
    with BudgetLedger.open(url) as opened:
        if restored:
            opened.declare_restored()
        if folders:
            done = account_for(opened, folders, dataset=dataset, more=more)
        pending = opened.is_pending()
    lines = [
        f"{synopsis.output}: {synopsis.charge} charged to {synopsis.dataset}"
        for synopsis in done.charged
    ]
    lines += [
        f"{synopsis.output}: belongs to another ledger, not charged" for synopsis in done.foreign
    ]
    lines.append(
        f"{len(done.charged)} charged, {len(done.known)} known before; "
        f"spending {'is blocked' if pending else 'is allowed'}"
    )
    content = {
        "charged": [
            {"output": synopsis.output, "dataset": synopsis.dataset, "name": synopsis.name,
             "release_id": synopsis.release_id, "charge": str(synopsis.charge)}
            for synopsis in done.charged
        ],
        "known": [synopsis.output for synopsis in done.known],
        "foreign": [synopsis.output for synopsis in done.foreign],
        "reconcile": pending,
    }  # fmt: skip
    return content, "\n".join(lines)


def _account(status: DatasetStatus) -> dict[str, Any]:
    """One account as JSON values; amounts as text, and in zcdp also as exact numbers."""
    from dbern.privacy.budget import decimal_text

    amounts = {key: getattr(status, key) for key in ("granted", "reserved", "spent", "remaining")}
    if status.period:
        amounts["earlier"] = status.earlier
    return {
        "dataset": status.dataset,
        "neighbors": status.neighbors.value,
        "unit": str(status.unit),
        "accountant": status.accountant,
        "budget": str(status.budget),
        **{key: str(amount) for key, amount in amounts.items()},
        "remaining_share": float(status.remaining_share),
        **({"period": status.period, "renewed": status.terms.period} if status.period else {}),
        **({"zcdp": {key: {quantity: decimal_text(getattr(amount, quantity))
                           for quantity in ("rho", "epsilon", "delta")}
                     for key, amount in amounts.items()}} if status.accountant == "zcdp" else {}),
        "releases": [
            {"name": row.name, "state": str(row.state), "charge": str(row.charge),
             "rho": None if row.rho is None else decimal_text(row.rho),
             "release_id": row.release_id, "created": row.created,
             **({} if row.note is None else {"note": row.note})}
            for row in status.releases
        ],
    }  # fmt: skip


def _status_lines(accounts: list[dict[str, Any]]) -> list[str]:
    lines = []
    for account in accounts:
        zcdp = account["accountant"] == "zcdp"
        lines.append(
            f"{account['dataset']} ({account['neighbors']}, unit {account['unit']}, "
            f"{account['accountant']} composition)"
        )
        if "period" in account:
            lines.append(f"  renewed every {account['renewed']}, now {account['period']}")
        if zcdp:
            lines.append(f"  {'budget':<10}{account['budget']}")
        lines += [
            f"  {key:<10}{account[key]}"
            for key in ("granted", "reserved", "spent", "remaining", "earlier")
            if key in account
        ]
        lines += [
            f"    {row['name']}: {row['state']}, {_charge(row, zcdp)}, {row['created']}"
            f"{_whose(row['note']) if 'note' in row else ''}"
            for row in account["releases"]
        ]
    return lines


def _charge(row: dict[str, Any], zcdp: bool) -> str:
    return f"rho {float(Fraction(row['rho'])):.6g} ({row['charge']})" if zcdp else row["charge"]


def _log_line(line: dict[str, Any]) -> str:
    release = "/".join(name for name in (line["dataset"], line["name"]) if name)
    detail = ", ".join(f"{key} {value}" for key, value in line["detail"].items() if value)
    text = f"{line['at']} {line['event']}{' ' * bool(release)}{release}"
    return f"{text}: {detail}" if detail else text


def _whose(note: str) -> str:
    """Say whose charge a note is of: a stream's, or another tool's."""
    return f" for a {note}" if note.startswith("stream of ") else f" by another tool: {note}"
