"""Release functions of large private datasets under differential privacy.

The Bernstein mechanism (Alda and Rubinstein, AAAI 2017) on Dask, Parquet and zarr.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dbern.data.storage import published
    from dbern.errors import (
        BudgetError,
        DbernError,
        EnvironmentRefusedError,
        IntegrityError,
        ReleaseError,
        SpecError,
    )
    from dbern.ledger import BudgetLedger
    from dbern.nights.stream import open_stream
    from dbern.planning.planner import plan
    from dbern.planning.release_plan import ReleasePlan
    from dbern.planning.spec import ReleaseSpec
    from dbern.privacy.budget import Budget, Neighbors, PrivacyUnit
    from dbern.run.stages import Release, release
    from dbern.synopsis.opening import open_synopsis as open  # noqa: A004 -- the documented name
    from dbern.synopsis.reader import Synopsis

_HOMES = {
    "Budget": "dbern.privacy.budget",
    "BudgetError": "dbern.errors",
    "BudgetLedger": "dbern.ledger",
    "DbernError": "dbern.errors",
    "EnvironmentRefusedError": "dbern.errors",
    "IntegrityError": "dbern.errors",
    "Neighbors": "dbern.privacy.budget",
    "PrivacyUnit": "dbern.privacy.budget",
    "Release": "dbern.run.stages",
    "ReleaseError": "dbern.errors",
    "ReleasePlan": "dbern.planning.release_plan",
    "ReleaseSpec": "dbern.planning.spec",
    "SpecError": "dbern.errors",
    "Synopsis": "dbern.synopsis.reader",
    "open": "dbern.synopsis.opening",
    "open_stream": "dbern.nights.stream",
    "plan": "dbern.planning.planner",
    "published": "dbern.data.storage",
    "release": "dbern.run.stages",
    "targets": "dbern",
}
_RENAMED = {"open": "open_synopsis"}

__all__ = [
    "Budget",
    "BudgetError",
    "BudgetLedger",
    "DbernError",
    "EnvironmentRefusedError",
    "IntegrityError",
    "Neighbors",
    "PrivacyUnit",
    "Release",
    "ReleaseError",
    "ReleasePlan",
    "ReleaseSpec",
    "SpecError",
    "Synopsis",
    "open",
    "open_stream",
    "plan",
    "published",
    "release",
    "targets",
]
__version__ = "0.1.0"


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: ``import dbern`` stays fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'dbern' has no attribute {name!r}")
    if name == "targets":
        return import_module("dbern.targets")
    return getattr(import_module(_HOMES[name]), _RENAMED.get(name, name))
