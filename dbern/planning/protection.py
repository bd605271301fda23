"""Whom a spec protects: neighbours, unit, and the public number of rows that goes with them."""

from __future__ import annotations

import re

from dbern.errors import SpecError
from dbern.planning.sections import DataSection
from dbern.privacy.budget import Neighbors, PrivacyUnit, Protection

_NORMALIZER = re.compile(r"[1-9]\d{0,11}|10{12}")


def _unit(data: DataSection) -> PrivacyUnit:
    if isinstance(data.unit, str):
        return PrivacyUnit()
    try:
        return PrivacyUnit(data.unit.column, data.unit.max_contributions)
    except SpecError as error:
        raise SpecError(f"data.{error}") from None


def protection_of(data: DataSection) -> Protection:
    """Neighbours and unit of ``[data]``, with the n or the normalizer that goes with them.

    Raises SpecError where another of the two is there, or none that is needed.
    """
    protection = Protection(Neighbors(data.neighbors), _unit(data))
    if not protection.private_rows and data.normalizer is not None:
        raise SpecError(
            "data.normalizer: the number of rows is public when a row is replaced. Write "
            "n = 2000000, or neither."
        )
    if protection.private_rows and data.n is not None:
        raise SpecError(
            "data.n: the number of rows is private here. Write in its place normalizer = "
            '"2000000", public and chosen without looking.'
        )
    if protection.private_rows and data.normalizer is None:
        raise SpecError(
            'data.normalizer: is missing. Write normalizer = "2000000", a public number near that '
            "of the rows, which is private here."
        )
    if data.normalizer is not None and not _NORMALIZER.fullmatch(data.normalizer):
        raise SpecError(
            'data.normalizer: must be a whole number from 1 to 10^12. Write normalizer = "2000000"'
        )
    return protection


def protection_lines(protection: Protection, n: int) -> tuple[str, ...]:
    """Write neighbours, unit and n in words, for a plan."""
    if not protection.private_rows:
        return (f"n = {n}, one row replaced",)
    unit, change = protection.unit, "added or removed" if protection.added else "replaced"
    rows = unit.max_contributions
    lines = [f"sums are over {n}: their number is private; one row {change}"]
    if unit.column is not None:
        lines = [
            f"sums are over {n}: their number is private",
            f"one {unit.column} {change}, whose rows count up to {rows}, chosen by a keyed hash",
            *([f"{rows} cost {rows} times the noise of 1"] if rows > 1 else []),
        ]
    return (*lines, f"the certificate is for up to {n} rows that count")
