"""Budgets, reservations and keys: the only package that speaks SQL or holds a release key."""

from dbern.ledger.entries import (
    Abandoned,
    AuditLine,
    DatasetStatus,
    Published,
    Reconciled,
    ReleaseRow,
    Request,
    Reservation,
    State,
    Terms,
)
from dbern.ledger.ledger import BudgetLedger
from dbern.ledger.staging import Staging
from dbern.system import resolve_url

__all__ = [
    "Abandoned",
    "AuditLine",
    "BudgetLedger",
    "DatasetStatus",
    "Published",
    "Reconciled",
    "ReleaseRow",
    "Request",
    "Reservation",
    "Staging",
    "State",
    "Terms",
    "resolve_url",
]
