"""Releases that several files of tests read, made when the first of them wants one."""

from __future__ import annotations

from typing import Any

import pytest
from projects import fix_reservations, labelled, released_in

import dbern
from dbern.synopsis.metadata import StoredCombination, StoredTarget

GROUPS = ["a", "b", "c"]
KINDS: dict[str, dict[str, Any]] = {
    "one": {},
    "several": {"data__group": {"column": "group", "values": GROUPS}},
}
_MADE: dict[str, dbern.Synopsis] = {}


def shared(kind: str, folders: pytest.TempPathFactory, client: Any) -> dbern.Synopsis:
    """A density on two axes, or one for each of three groups."""
    if kind not in _MADE:
        bounds = {"x": [0.0, 10.0], "y": [-1.1, 1.03]}  # -1.1 + 2.13 is below 1.03
        columns = {**labelled(), "group": GROUPS * 80}
        with pytest.MonkeyPatch.context() as patch:
            fix_reservations(patch.setattr)
            _MADE[kind] = released_in(
                folders.mktemp(kind), client, columns, data__bounds=bounds, **KINDS[kind]
            )
    return _MADE[kind]


def restated(synopsis, facts):
    """The same numbers, of which a store states other facts."""
    models = {"combine": StoredCombination, "target": StoredTarget}
    of_function = {name: facts.get(name) for name in ("combine", "target", "units")}
    made = {
        name: models[name].ready().model_construct(**fact) if name in models else fact
        for name, fact in of_function.items()
    }
    synopsis._store.released = synopsis._store.released.model_copy(update=made)
    synopsis._store.attributes = facts
    vars(synopsis).pop("_function", None)
    return synopsis
