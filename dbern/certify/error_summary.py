"""Sentences on a function's errors: expected, of these data, of any database."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from dbern.system import format_number
from dbern.system.texts import percent

_EVEN = (
    "told by the release; for evenly spread records ",
    "interval() tells it place by place; for evenly spread records, away from the bounds, ",
)


@dataclass(frozen=True)
class ErrorSummary:
    """Error bounds of a function, in the order of printing; `unit` follows a number in words.

    `expected` was predicted for typical data and is no promise. `these_data` is the half-width of
    the band about the data at hand, before the release that of evenly spread records; None where
    the structure gives none. `any_database` was promised before a record was read. Promises fail
    with probability at most `beta`. `largest` is the largest released value (before the release:
    possible value), `extent` the range of possible values. `pointwise`: no single width describes
    the error, as for quotients and least squares. `on_lattice`: a function is released, and not
    numbers that make one. `remedies`: what to write so that more is promised of any database.
    """

    expected: float | None
    these_data: float | None
    any_database: float
    beta: float
    unit: str
    largest: float | None
    extent: tuple[float, float] | None
    released: bool
    pointwise: bool = False
    on_lattice: bool = True
    remedies: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether a constant promises as much for any database."""
        return self._is_empty(self.any_database)

    def _is_empty(self, amount: float) -> bool:
        return self.extent is not None and amount >= self._half_range

    @property
    def headline(self) -> float:
        """The smaller promise that holds for the data at hand."""
        promised = self.these_data if self.released else None
        return self.any_database if promised is None else promised

    @property
    def _half_range(self) -> float:
        low, high = self.extent or (-math.inf, math.inf)
        return (high - low) / 2

    @property
    def constant(self) -> str:
        """The constant that promises as much; empty where more is promised of any database."""
        return self._constant if self.empty else ""

    @property
    def headline_constant(self) -> str:
        """The constant that promises as much as the headline; empty where that promises more."""
        return self._constant if self._is_empty(self.headline) else ""

    @property
    def _constant(self) -> str:
        if self.unit.startswith(" of ") and not self.pointwise:  # of a response
            # A linear function may leave the bounds, and a constant be off by more.
            return f"half of the response's range is {upward(self._half_range)}"
        return f"a constant is never off by more than {upward(self._half_range)}{self.unit}"

    def brief(self, rows: str, even: float | None = None, typical: str = "") -> list[str]:
        """Lines of a plan for people: what typical rows have, and what holds whatever `rows` are.

        `even` is the value of an even spread, of which errors of a density are told as shares;
        `typical` a learner's own prediction, in place of the expected error.
        """
        share = "" if even is None else f" of an even spread ({even:.3g})"
        if not typical and self.expected is not None:
            typical = f"about {self._of_even(self.expected, even)}{share} for typical rows"
            share = ""
        most = f"{self._of_even(self.any_database, even, ROUND_CEILING)}{share}"
        worst = f"at most {most}" if even else f"no value is off by more than {most}"
        worst = f"whatever {rows} are, {worst}, {self.confidence}"
        return [*filter(None, [typical]), self.no_promise if self.empty else worst]

    @property
    def confidence(self) -> str:
        """Confidence of a promise, in words."""
        return f"{100 * (1 - self.beta):.6g} % sure"

    @property
    def no_promise(self) -> str:
        """Say that nothing is promised of any data, and what is there in its place."""
        text = "no promise that holds for all kinds of data"
        if self.pointwise:
            return f"{text}: each {'answer' if self.on_lattice else 'coefficient'} has its interval"
        return f"{text}; {self._mended()}" if self.remedies else text

    def _of_even(self, amount: float, even: float | None, rounding: str = ROUND_HALF_EVEN) -> str:
        if even is None:
            return f"{_outward(amount, rounding, 2)}{self.unit}"
        return f"{_outward(100 * amount / even, rounding, 2)} %"

    def lines(self) -> list[tuple[str, str]]:
        """Expected error, promise for these data, promise for any database: a sentence each."""
        confidence = f"with probability {1 - self.beta:g}"
        expected = "no error of a single value is predicted"
        these = "what is promised for any database"
        if self.pointwise:
            these = f"{'interval' if self.on_lattice else 'regression'}() tells it place by place"
        if self.expected is not None:
            amount = _plain(Decimal(f"{self.expected:.3g}"))
            expected = f"about {amount}{self.unit}{self._share(self.expected)}, for typical data"
        # A band that is no narrower claims nothing of its own, so that each line is as sure.
        promised = self.these_data
        if promised is not None and not (self.released and promised >= self.any_database):
            text = self._stated(promised)
            text = f"no value is off by more than {text}, {confidence}" if self.released else text
            these = "" if self.released else _EVEN[self.pointwise]
            these += f"empty: {self._constant}" if self._is_empty(promised) else text
        worst = f"no value is off by more than {self._stated(self.any_database)}, {confidence}"
        if self.empty:
            worst = f"empty: {self._constant}; {self._mended()}"
        return [("expected", expected), ("these data", these), ("any database", worst)]

    def _mended(self) -> str:
        if self.pointwise:
            return "some databases leave all values open, whatever epsilon is"
        if not self.remedies:
            return "go by what the plan predicts for typical records"
        *first, last = self.remedies
        either = f"{', '.join(first)} or {last}" if first else last
        return f"{'release with' if self.released else 'write'} {either}"

    def _stated(self, amount: float) -> str:
        return f"{upward(amount)}{self.unit}{self._share(amount)}"

    def _share(self, amount: float) -> str:
        if not self.largest:
            return ""
        reference = "largest value" if self.released else "largest value possible"
        return f", {percent(amount / self.largest, 2)} of the {reference}"


def upper_bound_text(amount: float) -> str:
    """Write a proved bound for people, rounded up: what is promised is no less than it is."""
    return format_number(float(upward(amount)))


def lower_bound_text(amount: float) -> str:
    """Write a bound that nothing is below, rounded down."""
    return format_number(float(_outward(amount, ROUND_FLOOR)))


def upward(amount: float, digits: int = 4) -> str:
    """Write a bound rounded up, to four digits where `show --details` has it."""
    return _outward(amount, ROUND_CEILING, digits)


def _outward(amount: float, rounding: str, digits: int = 4) -> str:
    if not 0 < amount < math.inf:
        return f"{amount:g}"
    return _plain(Decimal(amount).quantize(_decimal_place(amount, digits), rounding))


def printed_sum(amounts: Sequence[float]) -> tuple[list[str], str]:
    """Write the parts of a bound and their sum, which is the sum of the texts.

    Each part is rounded up, to a decimal place that leaves the sum about six digits.
    """
    total = sum(amounts)
    if not 0 < total < math.inf:
        return [f"{amount:g}" for amount in amounts], f"{total:g}"
    decimal_place = _decimal_place(total, 6)
    rounded = [Decimal(amount).quantize(decimal_place, ROUND_CEILING) for amount in amounts]
    return [_plain(number) for number in rounded], _plain(sum(rounded, Decimal(0)))


def _decimal_place(number: float, digits: int) -> Decimal:
    return Decimal(1).scaleb(math.floor(math.log10(number)) - digits + 1)


def _plain(number: Decimal) -> str:
    short = number.normalize()
    near = not short or -5 <= short.adjusted() <= 6
    return f"{short:f}" if near else f"{short:e}"
