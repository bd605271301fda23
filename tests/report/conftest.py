"""Releases that the tests of several files read."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from projects import Project
from samples import make

import dbern


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, client: Any) -> Callable[[str], dbern.Synopsis]:
    """From a kind to its synopsis, made when a test first wants it."""
    return cache(lambda kind: make(Project(tmp_path_factory.mktemp(kind)), kind, client))
