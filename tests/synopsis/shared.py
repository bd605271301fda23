"""Releases that several files of tests read, made when the first of them wants one."""

from __future__ import annotations

from typing import Any

import pytest
from projects import fix_reservations, labelled, released_in

import dbern

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
