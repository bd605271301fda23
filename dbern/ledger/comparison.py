"""Whether a request is the release that was reserved under its name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from dbern.errors import BudgetError, IntegrityError, SpecError
from dbern.ledger import statements
from dbern.ledger.values import (
    PENDING,
    Request,
    Reservation,
    State,
)
from dbern.privacy.budget import Budget, decimal_text

_ABSENT = object()
_MAX_TEXT_LENGTH = 200
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
        shown = _first([f"{key} {change}" for key, change in changed.items()])
        raise SpecError(
            f"{title}: is another release ({shown}). Undo the change, or choose a new release "
            "name, which spends again."
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
    keys = _first(list(changed))  # alone: a file's compressed size depends on its records
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


def changes(was: Mapping[str, object], now: Mapping[str, object]) -> dict[str, str]:
    """Return what differs between two JSON objects by its dotted key, order of keys included."""
    before, after = json.loads(statements.json_text(was)), json.loads(statements.json_text(now))
    return dict(_differences(before, after, ""))


def _first(parts: Sequence[str]) -> str:
    rest = len(parts) - _MAX_LISTED_CHANGES
    text = "; ".join(parts[:_MAX_LISTED_CHANGES])
    return text if rest <= 0 else f"{text}; and {rest} more"


def _charge(budget: Budget) -> dict[str, object]:
    parts = {"epsilon": decimal_text(budget.epsilon), "delta": decimal_text(budget.delta)}
    return {"budget": parts}


def _differences(was: Any, now: Any, key: str) -> Iterator[tuple[str, str]]:
    before, after = _children(was), _children(now)
    if before is None or after is None or type(was) is not type(now):
        if not _same(was, now):
            yield key, f"was {_text(was)}, is {_text(now)}"
        return
    differing: list[tuple[str, str]] = []
    for name in {**before, **after}:
        inner = f"{key}.{name}" if key else name
        differing += _differences(before.get(name, _ABSENT), after.get(name, _ABSENT), inner)
    yield from differing
    if not differing and list(before) != list(after):
        yield key or "it", f"was {_order(before)}, is {_order(after)}"


def _children(value: Any) -> dict[str, Any] | None:
    """Return a mapping's entries; of a list of files each by its path."""
    match value:
        case dict():
            return value
        case [_, *_]:
            named = [file for file in value if isinstance(file, dict)]
            files = {file["path"]: file for file in named if isinstance(file.get("path"), str)}
            return files if len(files) == len(value) else None
    return None


def _same(was: Any, now: Any) -> bool:
    # 10 and 10.0 are the same bound, True and 1 are not the same setting.
    match was, now:
        case list(), list():
            return len(was) == len(now) and all(map(_same, was, now))
        case (bool(), _) | (_, bool()):
            return was is now
    return bool(was == now)


def _text(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    return _cut(json.dumps(value, ensure_ascii=False))


def _order(named: dict[str, Any]) -> str:
    return _cut(f"in the order {', '.join(named)}")


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT_LENGTH else f"{text[:_MAX_TEXT_LENGTH]}…"
