"""Counts, numbers and tables for people."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape

from dbern.errors import printable


def counted(count: int, singular: str, plural: str = "") -> str:
    """Return a count of things in words."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def and_text(names: Sequence[str]) -> str:
    """Join names: "x", "x and y", "x, y and z"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def toml_key(name: str) -> str:
    """Return a name as a key of a spec, quoted where TOML wants it."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def format_number(value: float, digits: int = 4) -> str:
    """Format a number for people: so many digits, thousands apart by narrow spaces.

    A whole number keeps all its digits.
    """
    if 1000 <= abs(value) < 1e15:
        rounded = value if value == int(value) else float(f"{value:.{digits}g}")
        return f"{rounded:,.0f}".replace(",", "\u202f")
    return raise_powers(f"{value:.{digits}g}")


def number_of(text: str) -> float:
    """Return the number that people and files write; "1_0" is none, and neither are other digits.

    Raises ValueError for any other text.
    """
    if "_" in text or not text.isascii():  # which Python's literals may have
        raise ValueError("no number")
    return float(text)


def raise_powers(text: str) -> str:
    """Write powers of ten in a text as superscripts: 1.5e-06 as 1.5×10⁻⁶."""
    return re.sub(r"(?<=\d)e([-+]?\d+)\b", lambda power: f"×10{_raised(int(power[1]))}", text)


def _raised(power: int) -> str:
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def html_table(rows: Mapping[str, str]) -> str:
    """Return labels and texts as an HTML table, whatever they hold."""
    cells = (
        f'<tr><th style="text-align: left">{escape(printable(label))}</th>'
        f'<td style="text-align: left">{escape(printable(text))}</td></tr>'
        for label, text in rows.items()
    )
    return f"<table>{''.join(cells)}</table>"
