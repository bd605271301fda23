"""Releases that several files of tests read: a density on two axes, or one for each group."""

from __future__ import annotations

from typing import Any

import pytest
from projects import fix_reservations, labelled, released_in

import dbern


def _released(folders: pytest.TempPathFactory, client: Any, **sections: Any) -> dbern.Synopsis:
    bounds = {"x": [0.0, 10.0], "y": [-1.1, 1.03]}  # -1.1 + 2.13 is below 1.03
    columns = {**labelled(), "group": ["a", "b", "c"] * 80}
    with pytest.MonkeyPatch.context() as patch:
        fix_reservations(patch.setattr)
        return released_in(
            folders.mktemp("shared"), client, columns, data__bounds=bounds, **sections
        )


@pytest.fixture(scope="session")
def one(tmp_path_factory: pytest.TempPathFactory, client: Any) -> dbern.Synopsis:
    return _released(tmp_path_factory, client)


@pytest.fixture(scope="session")
def several(tmp_path_factory: pytest.TempPathFactory, client: Any) -> dbern.Synopsis:
    group = {"column": "group", "values": ["a", "b", "c"]}
    return _released(tmp_path_factory, client, data__group=group)
