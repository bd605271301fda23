"""Releases of a learner's spec in the project of a test, with noise and without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from distributed import Client
from projects import Project

import dbern

Release = Callable[[dbern.ReleaseSpec, Mapping[str, Any]], tuple[dbern.ReleasePlan, dbern.Synopsis]]


@pytest.fixture
def noiseless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release publishes the exact integers that would carry its noise."""
    monkeypatch.setattr("dbern.releasing.publish.privatize", lambda center, *_rest: center)


@pytest.fixture
def release(project: Project, client: Client) -> Release:
    """Write columns into the project, and release them by a spec; returns plan and synopsis."""

    def made(
        spec: dbern.ReleaseSpec, columns: Mapping[str, Any]
    ) -> tuple[dbern.ReleasePlan, dbern.Synopsis]:
        project.write(columns)
        local = project.local(spec)
        return dbern.plan(local), dbern.release(local, client=client).synopsis

    return made


@pytest.fixture
def exact_release(noiseless: None, release: Release) -> Release:
    """The same without noise."""
    return release
