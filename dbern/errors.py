"""The one tree of errors: each has a stable ``kind`` and the exit code the command line returns."""

from __future__ import annotations

import unicodedata

_OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, directions, halves of a letter, line ends


def printable(text: str, keep: str = "") -> str:
    r"""A stranger's text with what a terminal would obey written out, but for what is in `keep`.

    Examples
    --------
    >>> print(printable("caf\u00e9 \x1b[2J"))
    café \x1b[2J
    """
    if text.isprintable():
        return text
    return "".join(
        letter.encode("unicode_escape").decode()
        if letter not in keep and unicodedata.category(letter) in _OBEYED
        else letter
        for letter in text
    )


class DbernError(Exception):
    """Anything that stops ``dbern``; the message says what was wrong, where, and what mends it.

    No message ever holds a record's value, a key, or a number derived from either.
    """

    kind = "failure"
    exit_code = 1

    def __str__(self) -> str:
        """The message; names in it may be a stranger's, and no terminal obeys it."""
        return printable(super().__str__(), keep="\n\t")


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
