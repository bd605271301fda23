"""Percentages: fractions as people read them. Python, JSON and CSV keep fractions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from dbern.system import format_number

_MAX_DECIMALS = 9


def percent(fraction: float, digits: int = 3) -> str:
    """Write a fraction as a percentage of so many digits; none before the point is lost."""
    number = 100 * fraction
    rounded = abs(number) >= 10**digits - 0.5
    return f"{number:.0f} %" if rounded else f"{format_number(number, digits)} %"


@dataclass(frozen=True)
class PercentInterval:
    """Percentages of fractions and their intervals, to the digits that the intervals leave.

    Two digits of the narrowest half-width are written. Ends are rounded outward, so that what is
    read is true where the interval is; fractions are read as they print.
    """

    decimals: int

    @classmethod
    def of(cls, lows: Iterable[float], highs: Iterable[float]) -> PercentInterval:
        """Take the digits that intervals leave; one without a width says nothing of digits."""
        widths = [high - low for low, high in zip(lows, highs, strict=True)]
        half_width = min((50 * width for width in widths if 0 < width < math.inf), default=0.1)
        return cls(min(max(1 - math.floor(math.log10(half_width)), 0), _MAX_DECIMALS))

    def value(self, fraction: float) -> str:
        """Write a fraction's number."""
        return self._rounded(fraction, ROUND_HALF_EVEN)

    def low(self, fraction: float) -> str:
        """Write the number of a lower end."""
        return self._rounded(fraction, ROUND_FLOOR)

    def high(self, fraction: float) -> str:
        """Write the number of an upper end."""
        return self._rounded(fraction, ROUND_CEILING)

    def _rounded(self, fraction: float, rounding: str) -> str:
        if not math.isfinite(fraction):
            return f"{fraction}"
        number = (100 * Decimal(repr(float(fraction)))).quantize(
            Decimal(1).scaleb(-self.decimals), rounding
        )
        return f"{number + 0 if number else abs(number):f}"
