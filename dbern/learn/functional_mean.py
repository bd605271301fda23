"""The mean of curves: records that are lists of numbers on a public grid.

A curve's values at the regular grid t_1 .. t_g of the one axis are moved to their public bounds and
mapped to z in [-1, 1]^g. The function F is the mean curve's least squares polynomial of degree d,
whose d + 1 coefficients ``a_b = (1/g) sum_j p_b(t_j) z_j`` by Gram's orthonormal polynomials
(`dbern.combination.polynomials`) are released. A curve that is null, of another length, or has
a null or infinite value is a missing record: it adds nothing, as one does that is in the middle of
the bounds, and is still counted in n.

Counting
--------
A record is rounded to integers x_j of size at most ``2^20``, the polynomials on the grid are a
public table P of integers, near ``2^20 p_b(t_j)``, and a record adds ``sum_j P_bj x_j / (g 2^(40 -
s))``, rounded: whole numbers alone, the same on every host and in every order.

Sensitivity under replace-one
-----------------------------
The difference of two records' x is any vector of ``[-2^21, 2^21]^g``, so before the last rounding
the entries move, in absolute values together, by ``2^21 max |P v|_1`` over v in [-1, 1]^g at most:
a convex function of v. As ``|P v|_1 = max_s s'P v`` over signs s, and ``s'P v <= |P's|_1``, that is
``2^21 max_s sum_j |sum_b s_b P_bj|``, attained by ``v_j = sign (P's)_j``; there are ``2^d`` pairs
of signs to try. In units of the entries, ``Delta1 = 2 max_s sum_j |(P's)_j| / (g 2^20)``, near ``2
sqrt(d + 1)`` or below. Rounding adds a unit an entry. *Euclidean*: ``|P v|_2^2 <= lambda_max(P P')
g``, and an eigenvalue is at most the largest row sum of ``|P P'|``. From degree 12 on Delta1 is
bounded by ``sqrt(d + 1)`` times that. A missing record is x = 0, so it, and adding or removing a
record, move half of that.

The degree
----------
The noise of a value is near ``2 sqrt 2 (d + 1) / (n epsilon)`` in units of half the bounds. Where
the error of a mean curve's polynomials falls as ``(d + 1)^(-3/2)``, d + 1 in proportion to ``(n
epsilon)^(2/5)`` makes the sum least, whatever the records: "auto" is the d whose ``d + 1`` is
nearest to ``2/3`` of that power.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from dbern.bernstein.kernels import OUTWARD
from dbern.combination.polynomials import grid_polynomials
from dbern.combination.responses import Shifted
from dbern.data.domain import Column, Domain, RecordSchema, Response
from dbern.errors import SpecError
from dbern.measure.accumulator import Errors, Memory
from dbern.measure.measurement import Measurement
from dbern.measure.vector_sums import VectorSum
from dbern.privacy.budget import Budget
from dbern.reconstruct.base import AnyStrategy, Bound
from dbern.targets.base import DesignedMeasurement, Learner, response_of
from dbern.targets.predicted_functions import deviation_of
from dbern.types import UNIT_ROUNDOFF, FloatArray, Int64Array

_FINE = 20  # bits of a value, and of a polynomial
_MOST_BITS = 30
_MOST_SIGNS = 11  # degrees whose signs are tried
_MOST_DEGREE = 31
_ROWS = 1 << 11  # whose products are in memory at a time


@dataclass(frozen=True)
class CurveSums(VectorSum):
    """Coefficients of a curve, in units of half the bounds."""

    domain: Domain
    response: Response
    degree: int
    name: str = field(default="curve", kw_only=True)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Column of the curves."""
        return (self.response.column,)

    @property
    def features(self) -> tuple[float, ...]:
        """One axis, no constant, and the points of the grid."""
        return 1, 0.0, self.response.points

    @property
    def entry_unit(self) -> float:
        """Half the bounds."""
        return self.response.radius

    @property
    def description(self) -> str:
        """Exact integers."""
        return f"{self.size} exact integer sums of {self.response.points} values"

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the coefficients."""
        return tuple(f"coefficient of degree {b}" for b in range(self.degree + 1))

    @cached_property
    def table(self) -> Int64Array:
        """P, (d + 1, g)."""
        points = self.response.points
        values = grid_polynomials(np.linspace(0.0, 1.0, points), points, self.degree + 1)
        return np.rint(np.ldexp(values.T, _FINE)).astype(np.int64)

    @cached_property
    def _absolute(self) -> float:
        """n times Delta1 before the last rounding (*Sensitivity under replace-one* above)."""
        if self.degree > _MOST_SIGNS:
            return OUTWARD * math.sqrt(self.degree + 1) * self._euclidean
        signs = itertools.product((1, -1), repeat=self.degree)
        largest = max(int(np.abs(np.array((1, *s)) @ self.table).sum()) for s in signs)
        return OUTWARD * self.response.radius * 2 * largest / (self.response.points * 2.0**_FINE)

    @cached_property
    def _euclidean(self) -> float:
        rows = np.abs((self.table @ self.table.T).astype(np.float64)).sum(axis=1)
        spread = math.sqrt(float(rows.max()) / self.response.points) / 2.0**_FINE
        return OUTWARD * self.response.radius * 2 * spread

    def function_move(self, *, added: bool) -> float:
        """A value of F moves by less than all the coefficients' sizes; by half of that if added."""
        largest = self._absolute * float(np.abs(self.table).max()) / 2.0**_FINE
        return OUTWARD * largest / (2 if added else 1)

    def move(self, strategy: AnyStrategy, norm: int, *, added: bool) -> Bound:
        """Bound n times it (*Sensitivity under replace-one* above); half of an added record."""
        del strategy
        value = self._absolute if norm == 1 else self._euclidean
        shown = f"({value:g}) / n: a curve from one bound to the other, by the polynomials' signs"
        bound = Bound(value, shown if norm == 1 else f"({value:g}) / n")
        return bound.half if added else bound

    def bits(self, n: int) -> int:
        """As many bits as never overflow: a record's entry is below 2^(s + 4)."""
        return min(_MOST_BITS, 58 - n.bit_length())

    def sums(self, records: Mapping[str, FloatArray], bits: int) -> Int64Array:
        """Integer sums of a batch."""
        response = self.response
        curves = records[response.name].reshape(-1, response.points)
        curves = curves[np.isfinite(curves).all(axis=1)]
        curves = np.clip(curves, response.low, response.high)  # first: nothing then overflows
        values = np.clip((curves - response.middle) / response.radius, -1.0, 1.0)
        whole = np.rint(np.ldexp(values, _FINE)).astype(np.int64)
        over = response.points << (2 * _FINE - bits)
        sums = np.zeros(self.size, dtype=np.int64)
        for start in range(0, len(whole), _ROWS):
            products = whole[start : start + _ROWS] @ self.table.T
            sums += ((2 * products + over) // (2 * over)).sum(axis=0)
        return sums

    def errors(self, bits: int) -> Errors:
        """Bound errors; rounding adds a unit for each entry to the sensitivity.

        *Position*: a value and a polynomial are rounded by ``2^-21`` each. *Floats*: an integer as
        a float, two products and a division, of at most all entries, ``sqrt(d + 1)``.
        """
        count, radius = self.size, self.response.radius
        unit, largest = radius * 2.0**-bits, radius * (math.sqrt(count) + 0.001)
        top = float(np.abs(self.table).max()) / 2.0**_FINE
        floats = OUTWARD * 5 * UNIT_ROUNDOFF * largest
        return Errors(
            kernel=unit,
            kernel_norms=(OUTWARD * count * unit, OUTWARD * math.sqrt(count) * unit),
            position=OUTWARD * radius * (top + 1) * 2.0**-_FINE,
            floats=floats,
            float_norms=(count * floats, count * floats),
            value_bound=OUTWARD * largest,
        )

    @property
    def memory(self) -> Memory:
        """Memory of masks, of values as floats and integers, and of products of a few."""
        points = self.response.points
        return Memory(8 * (4 + 4 * points), tables=8 * self.size * (points + 4 * _ROWS))


class FunctionalMean(Learner):
    """The mean of curves, as a polynomial; a missing curve counts as the middle of the bounds.

    The certificate is about the least squares polynomial of the mean curve on the grid: how far
    that is from the mean curve itself depends on how smooth this is.

    Parameters
    ----------
    degree : "auto" or int
        Of the polynomial. The noise of a value grows in proportion to ``degree + 1``; "auto" is
        chosen from the number of rows, epsilon and the grid.

    Raises
    ------
    SpecError
        For a degree out of range, or records without curves.

    Examples
    --------
    >>> FunctionalMean(degree=4).get_params()
    {'degree': 4}
    """

    kind: ClassVar[str] = "functional-mean"
    chooses: ClassVar[bool] = True
    uses: ClassVar[tuple[str, ...]] = ("response", "curves")

    degree: Literal["auto"] | Annotated[int, Field(ge=0, le=_MOST_DEGREE)] = Field(
        "auto", description='degree = "auto", or degree = 6, from 0 to 31'
    )

    def components(self, schema: RecordSchema) -> tuple[Measurement, ...]:
        """One; before rows are known, of degree 0."""
        return (self._sums(schema),)

    def for_rows(self, schema: RecordSchema, n: int, charge: Budget) -> FunctionalMean:
        """Return it with a degree."""
        if self.degree != "auto":
            return self
        points = response_of(schema).points
        return FunctionalMean(degree=_chosen_degree(points, n, charge.epsilon))

    def combination(self, schema: RecordSchema) -> Shifted:
        """The response."""
        sums = self._sums(schema)
        response = sums.response
        return Shifted(
            low=response.low, high=response.high, grid=response.points, degree=sums.degree
        )

    def predictions(
        self, schema: RecordSchema, n: int, designs: Sequence[DesignedMeasurement]
    ) -> tuple[str, ...]:
        """Predict the noise of a value, whatever the records."""
        del n
        sums = self._sums(schema)
        noise, radius = (
            math.sqrt(sums.degree + 1) * deviation_of(designs[0].law),
            sums.response.radius,
        )
        text = (
            f"degree {sums.degree}: noise of a value {noise:.3g}, root mean square over the axis; "
            f"of a constant, the middle of the bounds, errors are up to {radius:.3g}"
        )
        if noise < radius / 4:
            return (text,)
        return (text, "WARNING: it hides any curve. Write a larger epsilon or a smaller degree.")

    def _sums(self, schema: RecordSchema) -> CurveSums:
        response, domain = response_of(schema), schema.domain
        if not response.points:
            raise SpecError(
                "data.response.points: is missing. Write points = 100, the length of each list"
            )
        if domain.dimensions != 1 or domain.categorical:
            raise SpecError(
                f"data.bounds: curves are over one axis of numbers, not {domain.dimensions}. Write "
                "the axis of the grid alone, such as t = [0.0, 1.0]."
            )
        if schema.unit is not None:
            raise SpecError('data.unit: curves are for unit = "row" in this version.')
        degree, most = 0 if self.degree == "auto" else self.degree, _most_degree(response.points)
        if degree > most:
            raise SpecError(
                f"target.degree: at most {most} for a grid of {response.points} points. Write "
                f'degree = {most} or less, or "auto"'
            )
        return CurveSums(domain, response, degree)


def _most_degree(points: int) -> int:
    """Largest degree whose polynomials stay bounded between the points of a grid."""
    return min(_MOST_DEGREE, math.isqrt(4 * points) - 1)


def _chosen_degree(points: int, n: int, epsilon: Fraction) -> int:
    """Degree of "auto", exactly: the largest d with ``d + 1/2 <= 2/3 (n epsilon)^(2/5)``."""
    fits = (d for d in range(1, _most_degree(points) + 1)
            if (Fraction(3, 4) * (2 * d + 1)) ** 5 <= (n * epsilon) ** 2)  # fmt: skip
    return max(fits, default=0)
