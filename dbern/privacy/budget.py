"""Guarantee and payment: exact budgets, the neighbouring relation, the privacy unit."""

from __future__ import annotations

import enum
import re
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any

from dbern.errors import SpecError

_DECIMAL = re.compile(r"\d+(\.\d+)?([eE][-+]?\d{1,3})?|\d+/\d+", re.ASCII)
_SHOWN = re.compile(r"(.*) \(at most ([1-9]\d{0,8}) rows\)", re.DOTALL)
_UNIT = re.compile(r"(.+)[:=]([1-9]\d{0,8})", re.DOTALL)
MOST_CONTRIBUTIONS = 1 << 20
"""Rows of a unit that a release may count."""


def exact(text: object, key: str, example: str = "1.0") -> Fraction:
    """Read a privacy parameter exactly; binary floats are refused (``0.1`` is not one tenth).

    Raises SpecError for anything but a string with a decimal or a fraction.
    """
    if not isinstance(text, str) or not _DECIMAL.fullmatch(text.strip()):
        raise SpecError(
            f"{key}: must be an exact decimal or fraction in quotes, not below 0. "
            f'Write {key.split(".")[-1]} = "{example}"'
        )
    try:
        return Fraction(text.strip())
    except ZeroDivisionError:
        raise SpecError(f'{key}: has a zero denominator. Write a decimal such as "1.0"') from None
    except ValueError:  # Python reads integers of up to 4300 digits
        raise SpecError(f'{key}: has too many digits. Write a decimal such as "1.0"') from None


def decimal_text(value: Fraction) -> str:
    """The exact value as a decimal where one exists, else as a fraction."""
    rest, twos, fives = value.denominator, 0, 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        return str(value)
    decimals = max(twos, fives)
    if decimals == 0:
        return str(value.numerator)
    digits = str(abs(value.numerator) * 10**decimals // value.denominator).rjust(decimals + 1, "0")
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[:-decimals]}.{digits[-decimals:]}"


class Neighbors(enum.Enum):
    """Which two databases differ in one privacy unit."""

    REPLACE_ONE = "replace-one"
    ADD_OR_REMOVE_ONE = "add-or-remove-one"


@dataclass(frozen=True)
class PrivacyUnit:
    """Whose data one unit of protection covers: a row, or all rows that share a column's value."""

    column: str | None = None
    max_contributions: int = 1

    def __post_init__(self) -> None:
        rows = self.max_contributions
        if not 1 <= rows <= MOST_CONTRIBUTIONS or (self.column is None and rows != 1):
            raise SpecError(
                f"unit: max_contributions must be from 1 to {MOST_CONTRIBUTIONS}. Write "
                'unit = { column = "user", max_contributions = 8 }'
            )

    @classmethod
    def parse(cls, text: str) -> PrivacyUnit:
        """Read what `text` gives, with a colon or an equals sign; else raise `SpecError`.

        Examples
        --------
        >>> str(PrivacyUnit.parse("user:8")), str(PrivacyUnit.parse("user=8"))
        ('user (at most 8 rows)', 'user (at most 8 rows)')
        """
        match = _UNIT.fullmatch(text)
        if text == "row":
            return cls()
        if match is None:
            raise SpecError(f'unit: "{text}" is not a unit. Write row, or user:8 for a column.')
        return cls(match[1], int(match[2]))

    @classmethod
    def shown(cls, text: str) -> PrivacyUnit:
        """Read what `str` gives, as synopses state their unit; else raise `SpecError`.

        Examples
        --------
        >>> PrivacyUnit.shown("user (at most 8 rows)").max_contributions
        8
        """
        match = _SHOWN.fullmatch(text)
        if text == "row":
            return cls()
        if match is None:
            raise SpecError(f'unit: "{text}" is none; a synopsis has row, or user (at most 8 rows)')
        return cls(match[1], int(match[2]))

    @property
    def text(self) -> str:
        """As on the command line."""
        return "row" if self.column is None else f"{self.column}:{self.max_contributions}"

    def __str__(self) -> str:
        if self.column is None:
            return "row"
        return f"{self.column} (at most {self.max_contributions} rows)"


@dataclass(frozen=True)
class Protection:
    """The neighbouring relation: databases differ in one unit, replaced, or added or removed."""

    neighbors: Neighbors = Neighbors.REPLACE_ONE
    unit: PrivacyUnit = field(default_factory=PrivacyUnit)

    @classmethod
    def from_dict(cls, neighbors: str, unit: dict[str, Any]) -> Protection:
        """Read what `to_dict` wrote."""
        return cls(Neighbors(neighbors), PrivacyUnit(**unit))

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values."""
        return {"neighbors": self.neighbors.value, "unit": asdict(self.unit)}

    @property
    def added(self) -> bool:
        """Whether a unit is added or removed, not replaced."""
        return self.neighbors is Neighbors.ADD_OR_REMOVE_ONE

    @property
    def private_rows(self) -> bool:
        """Whether neighbours may differ in their number of rows, which then is not public."""
        return self.added or self.unit.column is not None


@dataclass(frozen=True)
class Budget:
    """An (epsilon, delta) guarantee in exact rational numbers.

    Examples
    --------
    >>> Budget.parse("0.1") + Budget.parse("0.2") == Budget.parse("0.3")
    True
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)

    @classmethod
    def parse(cls, epsilon: str, delta: str = "0", key: str = "budget") -> Budget:
        """Read both parameters from their exact text, or raise `SpecError`; `key` is for that."""
        budget = cls(exact(epsilon, f"{key}.epsilon"), exact(delta, f"{key}.delta"))
        if budget.epsilon <= 0:
            raise SpecError(f'{key}.epsilon: must be above 0. Write epsilon = "1.0"')
        if budget.delta >= 1:
            raise SpecError(f'{key}.delta: must be below 1. Write delta = "0"')
        return budget

    def __add__(self, other: Budget) -> Budget:
        return Budget(self.epsilon + other.epsilon, self.delta + other.delta)

    def __sub__(self, other: Budget) -> Budget:
        return Budget(self.epsilon - other.epsilon, self.delta - other.delta)

    def part(self, fraction: Fraction) -> Budget:
        """This fraction of both parameters: parts whose fractions sum to one compose to this."""
        return Budget(self.epsilon * fraction, self.delta * fraction)

    def covers(self, other: Budget) -> bool:
        """Whether `other` fits inside this budget in both parameters."""
        return other.epsilon <= self.epsilon and other.delta <= self.delta

    def fraction_of(self, total: Budget) -> Fraction:
        """Fraction of `total` that this is, in the parameter of which it is less; 0 of nothing."""
        pairs = ((self.epsilon, total.epsilon), (self.delta, total.delta))
        return min((amount / limit for amount, limit in pairs if limit), default=Fraction(0))

    def __str__(self) -> str:
        epsilon = f"epsilon {decimal_text(self.epsilon)}"
        return epsilon if self.delta == 0 else f"{epsilon}, delta {decimal_text(self.delta)}"
