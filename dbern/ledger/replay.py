"""The log against the tables: what either says and the other does not.

A ledger's tables follow from its log: grants and terms, each release with its charge and state,
and restore epochs. Whoever changed a table past `dbern`, or wrote a line of the log by hand,
contradicts the other; whoever changed both alike left what happened in the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, RowMapping, Table, select

from dbern.ledger import tables
from dbern.ledger.entries import NEXT, AuditLine, State
from dbern.ledger.tables import TERMS, datasets, grants, meta, releases, rows_of
from dbern.system import dict_of

_GRANT = ("dataset", "epsilon", "delta")
_AMOUNTS = ("epsilon", "delta", "rho")
_RELEASE = ("dataset", "name", "state", "output", *_AMOUNTS)
_EPOCHS = {"epoch": "1", "reconciled": "1"}  # of a new ledger


@dataclass
class _Tables:
    """Content of the tables, as far as the log tells it."""

    terms: dict[str, dict[str, Any]] = field(default_factory=dict)
    grants: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    releases: dict[str, dict[str, Any]] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=_EPOCHS.copy)


def contradictions(connection: Connection) -> list[str]:
    """Return what log and tables do not tell alike; nothing where only `dbern` changed a ledger."""
    replayed = _Tables()
    differing = [
        f"log entry {number} ({line.event!r})"
        for number, line in enumerate(tables.log(connection, None), 1)
        if not _replay(replayed, line)
    ]
    stored = _stored(connection)
    differing += [f"terms of dataset {name!r}" for name in _unlike(replayed.terms, stored.terms)]
    differing += sorted(
        {f"grants of dataset {grant[0]!r}" for grant in _unlike(replayed.grants, stored.grants)}
    )
    for release_id in _unlike(replayed.releases, stored.releases):
        row = stored.releases.get(release_id) or replayed.releases[release_id]
        differing.append(f"release {row['name']!r} of dataset {row['dataset']!r}")
    metadata = {key: stored.metadata.get(key) for key in replayed.metadata}
    return differing + [f"the ledger's {key}" for key in _unlike(replayed.metadata, metadata)]


def _unlike(logged: Mapping[Any, Any], stored: Mapping[Any, Any]) -> Iterator[Any]:
    for key in {**logged, **stored}:
        if logged.get(key) != stored.get(key):
            yield key


def _replay(replayed: _Tables, line: AuditLine) -> bool:
    """Do what a line tells; return whether it can have happened."""
    detail, release_id = dict_of(line.detail), str(line.release_id)
    match line.event:
        case "refused" | "restored":
            return True
        case "grant":
            amounts = (detail.get(name) for name in ("epsilon", "delta"))
            replayed.grants[tuple(str(value) for value in (line.dataset, *amounts))] += 1
            terms = {name: detail.get(name) for name in TERMS}
            return replayed.terms.setdefault(line.dataset, terms) == terms
        case "metadata":
            key, was = str(detail.get("key")), detail.get("was")
            before, replayed.metadata[key] = replayed.metadata.get(key, was), detail.get("is")
            return bool(before == was)
    row = replayed.releases.setdefault(release_id, {})
    if not row:
        state = State.RESERVED if line.event == "reserve" else str(detail.get("state"))
        row |= {"dataset": line.dataset, "name": line.name, "state": state}
        row |= {name: detail.get(name) for name in ("output", *_AMOUNTS)}
        return line.event == "reserve" or detail.get("was") == "unknown"
    if line.event != "reconciled":
        row["output"] = detail.get("output", row["output"])
    if line.event == "set-output":
        return True
    state = str(detail.get("state")) if line.event == "reconciled" else line.event
    possible = state in NEXT.get(row["state"], ())
    row |= {"state": state, "name": line.name}
    return possible


def _stored(connection: Connection) -> _Tables:
    def rows(table: Table) -> Sequence[RowMapping]:
        return rows_of(connection, select(table))

    return _Tables(
        {row["name"]: {name: row[name] for name in TERMS} for row in rows(datasets)},
        Counter(tuple(row[name] for name in _GRANT) for row in rows(grants)),
        {row["release_id"]: {name: row[name] for name in _RELEASE} for row in rows(releases)},
        {row["key"]: row["value"] for row in rows(meta)},
    )
