"""Proved bounds on ``sup_y |released(y) - F_D(y)|``, from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction

from dbern.bernstein.bias import Approximation
from dbern.bernstein.coordinates import Coordinates, PlainCoordinates
from dbern.bernstein.maps import axis_maps, maps_of
from dbern.combination import Combination
from dbern.noise_bounds import (
    largest_draw,
    lattice_norm,
    linear_noise_bound,
    noise_bound,
    released_norm,
)
from dbern.privacy.mechanism import Noise

_ROOM = 2.0**-32  # for rounding, downward


@dataclass(frozen=True)
class Certificate:
    """With probability at least ``1 - beta`` no point of the domain errs by more than `total`.

    Each part is a worst case over all databases, in data units.

    Attributes
    ----------
    lower_bound : float
        No mechanism with the same epsilon and delta certifies less at the same confidence; whether
        one certifies as little is not known. 0 where no bound is known.

    Examples
    --------
    >>> Certificate(0.5, 0.25, 1.0, beta=0.05, lower_bound=0.01).total
    1.75
    """

    approximation: float
    rounding: float
    noise: float
    beta: float
    lower_bound: float

    @property
    def total(self) -> float:
        """The sum of the three parts."""
        return self.approximation + self.rounding + self.noise


def printed_sum(parts: Sequence[float], digits: int = 6) -> tuple[list[str], str]:
    """Texts of the parts of a bound and of their sum, which is the sum of the texts.

    Each part is rounded up, to a decimal place that leaves the sum about so many digits.

    Examples
    --------
    >>> printed_sum([0.12345678, 0.0000001, 2.0], 4)
    (['0.124', '0.001', '2'], '2.125')
    """
    total = sum(parts)
    if not 0 < total < math.inf:
        return [f"{part:g}" for part in parts], f"{total:g}"
    place = Decimal(1).scaleb(math.floor(math.log10(total)) - digits + 1)
    rounded = [Decimal(part).quantize(place, ROUND_CEILING) for part in parts]
    return [_plain(one) for one in rounded], _plain(sum(rounded, Decimal(0)))


def _plain(number: Decimal) -> str:
    short = number.normalize()
    near = not short or -5 <= short.adjusted() <= 6
    return f"{short:f}" if near else f"{short:e}"


@dataclass(frozen=True)
class ErrorModel:
    """The public facts from which a bound follows for any order and any confidence.

    Attributes
    ----------
    lattice_error : float
        Bound on the error of a lattice value before release (effective kernel, positions).
    released_error : float
        Bound on the error of a released value but for the noise (floats, rounding to the grid).
    unit : float
        Multiplies unit-cube values to give data units.
    """

    approximation: Approximation
    coordinates: Coordinates
    law: Noise
    lattice_error: float
    released_error: float
    unit: float

    def bound(
        self, h: Sequence[int], beta: Fraction, at_once: int = 1, least: float = 0.0
    ) -> Certificate:
        """The bound on the sup error at order `h`; `least` is the known lower bound.

        `at_once` is how many such bounds are to hold together: arrays of one function, or
        candidates that `h` was chosen from after the noise was drawn.
        """
        coordinates, lattice = self.coordinates, self.coordinates.lattice
        maps = axis_maps(coordinates)
        rounding = lattice_norm(coordinates, h) * self.lattice_error
        rounding += released_norm(coordinates, h) * self.released_error
        if maps_of(coordinates):  # the derived lattice is rounded again
            half_granule = math.ldexp(0.5, self.law.granularity_exponent)
            rounding += lattice_norm(PlainCoordinates(lattice), h) * half_granule
        return Certificate(
            approximation=self.approximation.error(lattice.k, h, maps) * self.unit,
            rounding=rounding * self.unit,
            noise=noise_bound(coordinates, h, self.law, beta / at_once) * self.unit,
            beta=float(beta),
            lower_bound=least,
        )


def vector_bound(
    law: Noise,
    count: int,
    features: tuple[int, float] | None,
    error: float,
    beta: Fraction,
    at_once: int = 1,
) -> Certificate:
    """The bound on every entry of a vector of so many: `error` but for the noise, and that.

    With `features`, axes l and constant c, entries are weights of linear functions: of each in turn
    those of coordinates in [0, 1] and, unless c is zero, of c. Then the bound is on every function,
    at every point.
    `at_once` as in `ErrorModel.bound`.
    """
    if features is None:
        noise = largest_draw(law, count, beta / at_once)
        return Certificate(0.0, error, noise, float(beta), 0.0)
    noise = linear_noise_bound(law, count, *features, beta / at_once)
    return Certificate(0.0, error * sum(features), noise, float(beta), 0.0)


def combined(
    combination: Combination, parts: Sequence[Certificate], lower_bound: float
) -> Certificate:
    """The certificate of a function made of arrays whose certificates hold at once.

    `lower_bound` is that of its arrays; it bounds the function's error where values are theirs.
    """
    if combination.kind not in ("linear", "stack"):
        lower_bound = 0.0
    total = combination.error([part.total for part in parts])
    noise = min(total, combination.error([part.noise for part in parts]))
    rounding = min(total - noise, combination.error([part.rounding for part in parts]))
    if combination.kind in ("linear", "response"):
        return replace(parts[0], lower_bound=lower_bound)
    return Certificate(
        approximation=total - noise - rounding,
        rounding=rounding,
        noise=noise,
        beta=parts[0].beta,
        lower_bound=lower_bound,
    )


def lower_bound(
    function_sensitivity: float,
    epsilon: float,
    beta: float,
    n: int,
    delta: float = 0.0,
    unit_rows: int = 1,
) -> float:
    """``m S / 2``, rounded down: m the most units that group privacy keeps from being told apart.

    *Two databases.* At most n rows count, so ``floor(n / unit_rows)`` whole units of `unit_rows`
    rows fit. Let all rows of m of them be at one point in one database, and in the other be null
    (signed weights: of the opposite sign; added units: not there), all else the same. F is a sum
    over records of which each attains its bound, so at that point the two values are m S apart: S,
    `function_sensitivity`, is what all rows of a unit move together.

    *No mechanism tells less.* One that is within less than half of that of both, each with
    probability ``1 - beta``, has two disjoint events, and by group privacy ``1 - beta <= e^{m eps}
    beta + delta (e^{m eps} - 1) / (e^eps - 1)``. So for every m for which that fails, ``m S / 2``
    is a lower bound; with delta 0 these are the m below ``ln((1 - beta) / beta) / epsilon``.

    *Never above a constant.* What a row attains is at most the width of F's range over n, so ``m
    unit_rows <= n`` keeps ``m S / 2`` at most half of that range, which a constant certifies.

    *Rounding.* S comes rounded outward by a few parts in 2^40, and floats add some in 2^52: the
    logarithm and the result are taken smaller by far more.

    Parameters
    ----------
    n : int
        The public number of rows, or the normalizer.
    unit_rows : int
        The most rows of a unit.

    Examples
    --------
    >>> round(lower_bound(0.5, 1.0, 0.05, 100), 6)
    0.5
    >>> lower_bound(0.5, 0.001, 0.05, 100, unit_rows=8) <= 100 // 8 * 0.5 / 2
    True
    """
    # With u = e^{m eps} the condition is linear: u (beta + d) < 1 - beta + d.
    d = delta / math.expm1(epsilon) if epsilon < 700 else 0.0
    told_apart = math.log((1 - beta + d) / (beta + d))
    reach = (told_apart - _ROOM * (1 + abs(told_apart))) / epsilon
    units = min(n // unit_rows, max(0, math.ceil(reach) - 1))
    return (1 - _ROOM) * units * function_sensitivity / 2
