"""Percentages: how shares are written for people. Python, JSON and CSV keep them as fractions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from dbern.system import format_number

_MOST_DECIMALS = 9


def percent(share: float, digits: int = 3) -> str:
    """Write a share as a percentage of so many digits, of which none before the point is lost."""
    return f"{percent_number(share, digits)} %"


def percent_number(share: float, digits: int = 3) -> str:
    """Write the number of `percent`, without its sign."""
    number = 100 * share
    whole = abs(number) >= 10**digits - 0.5
    return f"{number:.0f}" if whole else format_number(number, digits)


@dataclass(frozen=True)
class PercentInterval:
    """Numbers of percentages of shares and their intervals, to the digits that the intervals leave.

    Two digits of the narrowest half-width are written. Ends are rounded outward, so that what is
    read is true where the interval is; shares are read as they print.
    """

    decimals: int

    @classmethod
    def of(cls, lows: Iterable[float], highs: Iterable[float]) -> PercentInterval:
        """Return that of intervals; an interval without a width says nothing of digits."""
        widths = [high - low for low, high in zip(lows, highs, strict=True)]
        half = min((50 * width for width in widths if 0 < width < math.inf), default=0.1)
        return cls(min(max(1 - math.floor(math.log10(half)), 0), _MOST_DECIMALS))

    def value(self, share: float) -> str:
        """Write a share's number."""
        return self._rounded(share, ROUND_HALF_EVEN)

    def low(self, share: float) -> str:
        """Write the number of a lower end."""
        return self._rounded(share, ROUND_FLOOR)

    def high(self, share: float) -> str:
        """Write the number of an upper end."""
        return self._rounded(share, ROUND_CEILING)

    def _rounded(self, share: float, rounding: str) -> str:
        if not math.isfinite(share):
            return f"{share}"
        number = (100 * Decimal(repr(float(share)))).quantize(
            Decimal(1).scaleb(-self.decimals), rounding
        )
        return f"{number + 0 if number else abs(number):f}"
