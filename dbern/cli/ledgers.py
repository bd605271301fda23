"""``dbern ledger``: budgets, and what became of them."""

from __future__ import annotations

from typing import Any

import click

from dbern.cli.output import common, report

_LEDGER = click.option(
    "--ledger", "url", required=True, metavar="URL", help="As sqlite:///ledger.db."
)
_DATASET = click.option("--dataset", required=True, metavar="NAME", help="Whose budget it is.")


@click.group()
def ledger() -> None:
    """Keep the budgets: init, grant, status, abandon."""


@ledger.command()
@_LEDGER
@common
def init(url: str, as_json: bool, quiet: bool) -> None:
    """Create a ledger; one that is there is left as it is."""
    del quiet
    from dbern.ledger import BudgetLedger

    created = BudgetLedger.create(url)
    report(
        {"ledger": url, "created": created},
        f"{url} {'created' if created else 'is there already; left as it is'}",
        as_json=as_json,
    )


@ledger.command()
@_LEDGER
@_DATASET
@click.option("--epsilon", required=True, metavar='"3.0"', help="Exact decimal to add.")
@click.option("--delta", default="0", metavar='"0"', help="Exact decimal to add.")
@click.option(
    "--neighbors", type=click.Choice(["replace-one"]), help="Which databases count as neighbours."
)
@click.option("--unit", type=click.Choice(["row"]), help="Whose data one unit of budget covers.")
@click.option("--accountant", type=click.Choice(["basic"]), help="How charges add up.")
@common
def grant(
    url: str, dataset: str, epsilon: str, delta: str, neighbors: str | None, unit: str | None,
    accountant: str | None, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Add budget to a dataset's account; a grant cannot be taken back.

    The first grant fixes neighbors, unit and accountant for good.
    """
    del quiet
    from dbern.ledger import BudgetLedger
    from dbern.privacy.budget import Budget, Neighbors, PrivacyUnit

    if not dataset.strip():
        raise click.BadParameter("must not be empty", param_hint="--dataset")
    with BudgetLedger.open(url) as opened:
        added = Budget.parse(epsilon, delta, key="grant")
        opened.grant(
            dataset,
            added,
            neighbors=Neighbors(neighbors) if neighbors else None,
            unit=PrivacyUnit() if unit else None,
            accountant=accountant,
        )
        account = _account(opened.status(dataset)[0])
    report(
        account,
        f"{dataset}: {added} added; granted in all {account['granted']}, "
        f"remaining {account['remaining']}",
        as_json=as_json,
    )


@ledger.command()
@_LEDGER
@click.option("--dataset", metavar="NAME", help="Only this one.")
@common
def status(url: str, dataset: str | None, as_json: bool, quiet: bool) -> None:
    """Show what was granted, reserved, spent and remains, and on what."""
    del quiet
    from dbern.ledger import BudgetLedger

    with BudgetLedger.open(url, read_only=True) as opened:
        accounts = [_account(one) for one in opened.status(dataset)]
    text = "\n".join(_status_lines(accounts)) or "no budget was granted yet"
    report({"datasets": accounts}, text, as_json=as_json)


@ledger.command()
@_LEDGER
@_DATASET
@click.option("--name", required=True, metavar="RELEASE", help="The release to give up.")
@common
def abandon(url: str, dataset: str, name: str, as_json: bool, quiet: bool) -> None:
    """Give a release up: refunded if no record was read, else its charge stands."""
    del quiet
    from dbern.ledger import BudgetLedger
    from dbern.releasing import abandon as give_up

    with BudgetLedger.open(url) as opened:
        given_up = give_up(opened, dataset, name)
    charge = given_up.reservation.charge
    text = (
        f"{charge} refunded"
        if given_up.refunded
        else f"the charge of {charge} stands: records may have been read"
    )
    report({"name": name, "refunded": given_up.refunded}, f"{name}: {text}", as_json=as_json)


def _account(status: Any) -> dict[str, Any]:
    return {
        "dataset": status.dataset,
        "neighbors": status.neighbors.value,
        "unit": str(status.unit),
        "accountant": status.accountant,
        "granted": str(status.granted),
        "reserved": str(status.reserved),
        "spent": str(status.spent),
        "remaining": str(status.remaining),
        "releases": [
            {"name": row.name, "state": str(row.state), "charge": str(row.charge),
             "release_id": row.release_id, "created": row.created}
            for row in status.releases
        ],
    }  # fmt: skip


def _status_lines(accounts: list[dict[str, Any]]) -> list[str]:
    lines = []
    for account in accounts:
        lines.append(
            f"{account['dataset']} ({account['neighbors']}, unit {account['unit']}, "
            f"{account['accountant']} composition)"
        )
        lines += [
            f"  {key:<10}{account[key]}" for key in ("granted", "reserved", "spent", "remaining")
        ]
        lines += [
            f"    {row['name']}: {row['state']}, {row['charge']}, {row['created']}"
            for row in account["releases"]
        ]
    return lines
