"""Whether a request is the release that was reserved: what differs, named key by key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dbern.ledger.values import Request, Reservation
from dbern.privacy.budget import Budget, decimal_text

_ABSENT = object()
_LONGEST_TEXT = 200
_MOST_CHANGES = 8
_LONGEST_KEPT = 1000


@dataclass(frozen=True)
class Change:
    """One difference: the dotted key and both values as text.

    Examples
    --------
    >>> print(Change("mechanism.k", "20", "30"))
    mechanism.k was 20, is 30
    """

    key: str
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.key} was {self.was}, is {self.now}"


@dataclass(frozen=True)
class Comparison:
    """A request beside the release of the same name."""

    reservation: Reservation
    identity: tuple[Change, ...]
    inputs: tuple[Change, ...]


def compared(reservation: Reservation, request: Request) -> Comparison:
    """Set a request beside the stored release.

    The charge is part of the identity even where the spec's part of it left epsilon out.
    """
    identity = changes(reservation.identity, request.identity)
    charge = changes(_charge(reservation.charge), _charge(request.charge))
    return Comparison(
        reservation,
        tuple(identity or charge),
        tuple(changes(reservation.inputs, request.inputs)),
    )


def changes(was: Mapping[str, object], now: Mapping[str, object]) -> list[Change]:
    """Every difference between two JSON objects, order of keys included.

    Examples
    --------
    >>> was = {"bounds": {"x": [0, 1], "y": [0, 1]}}
    >>> [str(change) for change in changes(was, {"bounds": {"x": [0, 2], "y": [0, 1]}})]
    ['bounds.x was [0, 1], is [0, 2]']
    >>> [str(change) for change in changes(was, {"bounds": {"y": [0, 1], "x": [0, 1]}})]
    ['bounds was in the order x, y, is in the order y, x']
    """
    return _differences(json.loads(json_text(was)), json.loads(json_text(now)), "")


def json_text(value: Mapping[str, object]) -> str:
    """The text that the ledger stores: ASCII, for file names may be no Unicode; key order is kept.

    Raises
    ------
    TypeError, ValueError
        When the value is not JSON (NaN included).

    Examples
    --------
    >>> json_text({"b": 1, "a": (2, 3)})
    '{"b": 1, "a": [2, 3]}'
    """
    return json.dumps(value, allow_nan=False)


def abridged(value: Any) -> Any:
    """A JSON value with the digest of each long text in its place: a plan's matrices are such.

    Examples
    --------
    >>> abridged({"k": 20, "synthesis": "A" * 2000})["synthesis"][:16]
    'sha256:ccca68570'
    """
    if isinstance(value, dict):
        return {key: abridged(one) for key, one in value.items()}
    if isinstance(value, list):
        return [abridged(one) for one in value]
    if isinstance(value, str) and len(value) > _LONGEST_KEPT:
        return f"sha256:{hashlib.sha256(value.encode()).hexdigest()}"
    return value


def listed(found: Sequence[Change]) -> str:
    """The changes as one phrase; a list of thousands of files is cut after a few.

    Examples
    --------
    >>> listed([Change("n", "1", "2"), Change("k", "3", "4")])
    'n was 1, is 2; k was 3, is 4'
    """
    text = "; ".join(str(change) for change in found[:_MOST_CHANGES])
    rest = len(found) - _MOST_CHANGES
    return text if rest <= 0 else f"{text}; and {rest} more"


def named(found: Sequence[Change]) -> str:
    """The changed keys without their values: a file's compressed size depends on its records.

    Examples
    --------
    >>> named([Change("files.a.parquet.size", "1", "2")])
    'files.a.parquet.size changed'
    """
    text = "; ".join(f"{change.key} changed" for change in found[:_MOST_CHANGES])
    rest = len(found) - _MOST_CHANGES
    return text if rest <= 0 else f"{text}; and {rest} more"


def _charge(budget: Budget) -> dict[str, object]:
    parts = {"epsilon": decimal_text(budget.epsilon), "delta": decimal_text(budget.delta)}
    return {"budget": parts}


def _differences(was: Any, now: Any, key: str) -> list[Change]:
    before, after = _children(was), _children(now)
    if before is None or after is None or type(was) is not type(now):
        return [] if _same(was, now) else [Change(key or "it", _text(was), _text(now))]
    found = [
        change
        for name in {**before, **after}
        for change in _differences(
            before.get(name, _ABSENT), after.get(name, _ABSENT), f"{key}.{name}" if key else name
        )
    ]
    if not found and list(before) != list(after):
        found.append(Change(key or "it", _order(before), _order(after)))
    return found


def _children(value: Any) -> dict[str, Any] | None:
    """A mapping's entries; a list's too where each item names itself, as files do."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, list) or not value:
        return None
    names = [_own_name(item) for item in value]
    named = {name: item for name, item in zip(names, value, strict=True) if name is not None}
    return named if len(named) == len(value) else None


def _own_name(item: Any) -> str | None:
    """``{"path": "a.parquet", ..}`` and ``["a.parquet", ..]`` name themselves."""
    if isinstance(item, dict):
        item = item.get("path")
    elif isinstance(item, list) and item:
        item = item[0]
    else:
        return None
    return item if isinstance(item, str) else None


def _same(was: Any, now: Any) -> bool:
    # 10 and 10.0 are the same bound, True and 1 are not the same setting.
    if isinstance(was, list) and isinstance(now, list):
        return len(was) == len(now) and all(map(_same, was, now))
    return bool(was == now) and isinstance(was, bool) == isinstance(now, bool)


def _text(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    return _cut(json.dumps(value, ensure_ascii=False))


def _order(named: dict[str, Any]) -> str:
    return _cut(f"in the order {', '.join(named)}")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
