"""Whether a request is the release that was reserved under its name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from dbern.errors import BudgetError, IntegrityError, SpecError
from dbern.ledger import statements
from dbern.ledger.values import PENDING, Request, Reservation, State
from dbern.privacy.budget import Budget, decimal_text

_MAX_LISTED_CHANGES = 8


def require_same(reservation: Reservation, request: Request, url: str) -> None:
    """Require that a request is the release that holds its name, and may go on.

    The charge is part of the identity even where the spec's part of it left epsilon out.
    """
    title = reservation.title
    if reservation.state is State.ABANDONED:
        raise SpecError(
            f"{title}: was abandoned, and its charge stands. Choose a new release name."
        )
    changed = changes(reservation.content.identity, request.identity)
    changed = changed or changes(_charge(reservation.charge), _charge(request.charge))
    if changed and not reservation.content.identity:
        where = f" at {reservation.output}" if reservation.output else ""  # a stream has none
        raise SpecError(
            f"{title}: was published{where} before the ledger was restored, and its spec is lost, "
            "so none can be compared with it. Use what is published, or choose a new release name, "
            "which spends again."
        )
    if changed:
        raise SpecError(
            f"{title}: is another release ({_first(changed)} changed). Undo the change, or choose "
            "a new release name, which spends again."
        )
    if reservation.state in PENDING:
        _require_same_inputs(reservation, request, url)


def require_paid(connection: Connection, request: Request, url: str) -> None:
    """Require that the charge which a release is within is in the ledger, and is what it says."""
    paid = request.within
    if paid is None:
        return
    charged = statements.named(connection, request.dataset, paid.name)
    if charged is None or charged.state in PENDING:
        raise BudgetError(
            f"release {request.name!r}: is paid by {paid.name!r}, which dataset "
            f"{request.dataset!r} was not charged for. Run dbern release with the stream's spec"
        )
    require_same(charged, paid, url)


def _require_same_inputs(reservation: Reservation, request: Request, url: str) -> None:
    changed = changes(reservation.content.inputs, request.inputs)
    if not changed:
        return
    what = f"{reservation.title}: its input changed"
    keys = _first(changed)  # alone: a file's compressed size depends on its records
    abandon = reservation.abandon_command(url)
    if reservation.state is State.RESERVED:
        raise SpecError(
            f"{what} since it was reserved ({keys}). Nothing was read. Restore the input, or "
            f"refund the charge ({abandon}) and run the same command again."
        )
    raise IntegrityError(
        f"{what} after reading began ({keys}). Restore the input, or give the release up "
        f"(its charge stands): {abandon}"
    )


def changes(was: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Return sections, or their keys, in which two JSON objects differ, order of keys included."""
    before, after = _plain(was), _plain(now)
    return [key for name in {**before, **after} for key in _differing(name, before, after)]


def _first(parts: Sequence[str]) -> str:
    rest = len(parts) - _MAX_LISTED_CHANGES
    text = "; ".join(parts[:_MAX_LISTED_CHANGES])
    return text if rest <= 0 else f"{text}; and {rest} more"


def _charge(budget: Budget) -> dict[str, object]:
    parts = {"epsilon": decimal_text(budget.epsilon), "delta": decimal_text(budget.delta)}
    return {"budget": parts}


def _plain(content: Mapping[str, object]) -> dict[str, Any]:
    """Return content as JSON has it; 10.0 is 10, and a list of files has each by its path."""
    plain: dict[str, Any] = json.loads(statements.json_text(content), parse_float=_number)
    if isinstance(plain.get("files"), list):
        plain["files"] = {file["path"]: file for file in plain["files"]}
    return plain


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


def _differing(name: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    was, now = before.get(name), after.get(name)
    if isinstance(was, dict) and isinstance(now, dict):
        keys = [f"{name}.{key}" for key in {**was, **now} if _text(was, key) != _text(now, key)]
        if keys:
            return keys
    return [name] if _text(before, name) != _text(after, name) else []


def _text(content: dict[str, Any], key: str) -> str | None:
    return json.dumps(content[key]) if key in content else None
