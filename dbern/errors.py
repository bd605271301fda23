"""The one tree of errors: each has a stable ``kind`` and the exit code the command line returns."""

from __future__ import annotations


class DbernError(Exception):
    """Anything that stops ``dbern``; the message says what was wrong, where, and what mends it.

    No message ever holds a record's value, a key, or a number derived from either.
    """

    kind = "failure"
    exit_code = 1


class ReleaseError(DbernError):
    """A release that started could not finish; the same command goes on from where it stopped."""

    kind = "release-failed"


class SpecError(DbernError):
    """The specification or the command line asks for something impossible or misspelt."""

    kind = "spec"
    exit_code = 2


class BudgetError(DbernError):
    """The ledger refuses the charge: not granted, not enough left, or granted on other terms."""

    kind = "budget-refused"
    exit_code = 3


class EnvironmentRefusedError(DbernError):
    """This installation, cluster or ledger cannot run the command as it stands."""

    kind = "environment"
    exit_code = 4


class IntegrityError(DbernError):
    """Something is not what it was recorded to be: a store, an input file, a staged center."""

    kind = "integrity"
    exit_code = 5
