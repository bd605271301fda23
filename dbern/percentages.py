"""Percentages and intervals as people read them. Python, JSON and CSV keep all digits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from dbern.system import format_number, raise_powers

_MAX_DECIMALS, _PLAIN_FROM = 9, -4


def percent(fraction: float, digits: int = 3) -> str:
    """Write a fraction as a percentage of so many digits; none before the point is lost."""
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
        """Take the digits that intervals leave; one without a width says nothing of digits."""
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
        if rounded and rounded.adjusted() < _PLAIN_FROM and self.scale == 1:
            return raise_powers(f"{rounded:e}".replace("E", "e"))
        return f"{rounded or abs(rounded):,f}".replace(",", "\u202f")
