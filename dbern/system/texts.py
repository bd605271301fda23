"""Texts for people: counts, numbers, percentages, tables, progress; dicts of strangers' JSON.

Python, JSON and CSV keep all digits.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from html import escape
from typing import Any, TypeAlias

from dbern.errors import printable

_MAX_DECIMALS, _MIN_PLAIN_EXPONENT = 9, -4
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a stage's name, units done and units in all; never with anything private."""


def counted(count: int, singular: str, plural: str = "") -> str:
    """Return a count of things in words."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def and_text(names: Sequence[str]) -> str:
    """Join names: "x", "x and y", "x, y and z"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def toml_key(name: str) -> str:
    """Return a name as a key of a spec, quoted where TOML wants it."""
    if re.fullmatch(r"[A-Za-z0-9_-]+", name):
        return name
    return json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")


def format_number(value: float, digits: int = 4) -> str:
    """Format a number for people: so many digits, thousands apart by narrow spaces.

    A whole number keeps all its digits.
    """
    if 1000 <= abs(value) < 1e15:
        rounded = value if value == int(value) else float(f"{value:.{digits}g}")
        return f"{rounded:,.0f}".replace(",", "\u202f")
    return raise_powers(f"{value:.{digits}g}")


def number_of(text: str) -> float:
    """Read a number that people or files write, in ASCII digits and without "_".

    Raises ValueError for any other text.
    """
    if "_" in text or not text.isascii():  # Python's `float` takes both
        raise ValueError("no number")
    return float(text)


def raise_powers(text: str) -> str:
    """Write powers of ten in a text as superscripts: 1.5e-06 as 1.5×10⁻⁶."""
    return re.sub(
        r"(?<=\d)e([-+]?\d+)\b",
        lambda power: f"×10{str(int(power[1])).translate(_SUPERSCRIPTS)}",
        text,
    )


def html_table(rows: Mapping[str, str]) -> str:
    """Return labels and texts as an HTML table, escaped."""
    cells = (
        f'<tr><th style="text-align: left">{escape(printable(label))}</th>'
        f'<td style="text-align: left">{escape(printable(text))}</td></tr>'
        for label, text in rows.items()
    )
    return f"<table>{''.join(cells)}</table>"


def percent(fraction: float, digits: int = 3) -> str:
    """Write a fraction as a percentage of so many digits, and all before the point."""
    number = 100 * fraction
    rounded = abs(number) >= 10**digits - 0.5
    return f"{number:.0f} %" if rounded else f"{format_number(number, digits)} %"


@dataclass(frozen=True)
class IntervalDigits:
    """Numbers and their intervals, to the digits that the intervals leave.

    Two digits of the narrowest half-width are written. Ends are rounded outward, so that what is
    read is true where the interval is. `scale` is 100 where fractions are read as percentages.
    """

    decimals: int
    scale: int = 1

    @classmethod
    def of(cls, lows: Iterable[float], highs: Iterable[float], scale: int = 1) -> IntervalDigits:
        """Return the digits that intervals leave; intervals without a width do not count."""
        ends = list(zip(lows, highs, strict=True))
        widths = [scale * (high - low) / 2 for low, high in ends]
        half_widths = [width for width in widths if 0 < width < math.inf]
        if half_widths:
            size = max(abs(end) for pair in ends for end in pair if math.isfinite(end)) or 1.0
            digits = 15 - math.floor(math.log10(scale * size))  # a float has no more
            decimals = min(1 - math.floor(math.log10(min(half_widths))), digits)
        elif scale == 100:
            decimals = 2
        else:
            exact = [
                Decimal(repr(float(end))) for pair in ends for end in pair if math.isfinite(end)
            ]
            exponents = [end.normalize().as_tuple().exponent for end in exact]
            decimals = min(max([0, *(-e for e in exponents if isinstance(e, int))]), _MAX_DECIMALS)
        return cls(min(max(decimals, 0), _MAX_DECIMALS) if scale == 100 else decimals, scale)

    def value(self, number: float) -> str:
        """Write a number."""
        return self._rounded(number, ROUND_HALF_EVEN)

    def low(self, number: float) -> str:
        """Write a lower end."""
        return self._rounded(number, ROUND_FLOOR)

    def high(self, number: float) -> str:
        """Write an upper end."""
        return self._rounded(number, ROUND_CEILING)

    def _rounded(self, number: float, rounding: str) -> str:
        if not math.isfinite(number):
            return f"{number}"
        exact = self.scale * Decimal(repr(float(number)))
        rounded = exact.quantize(Decimal(1).scaleb(-self.decimals), rounding) + 0
        if rounded and rounded.adjusted() < _MIN_PLAIN_EXPONENT and self.scale == 1:
            return raise_powers(f"{rounded:e}".replace("E", "e"))
        return f"{rounded or abs(rounded):,f}".replace(",", "\u202f")


def dict_of(value: object) -> dict[Any, Any]:
    """Return a dict, an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}


def silent(stage: str, done: int, total: int) -> None:
    """Report no progress."""
    del stage, done, total
