"""A user's function of records and points as a measurement.

Let A be the function *as it is computed*: f of the bounded records in sorted order, floats and all,
each value cut to the public bounds, a failure replaced by the stated constant. Released is

- by default ``F_D = A(D)``, of all records that count, gathered in one place;
- with ``separable``, ``F_D = sum_s A(D_s)``, D_s the records of shard s, a keyed hash of content.
  For a function that adds up over records this is the same but for the cuts.

Stated sensitivity under replace-one
------------------------------------
A stated sensitivity is taken at its word. The user states s, the largest change of a value of f
when one record is added, removed or replaced (a missing record is not there, so all three are
replacements), of any number of records up to n; for one lattice optionally ``l1``, the largest sum
of such changes. Cutting to an interval changes no difference of values for the larger.

*All records*: ``S(F) <= s``. *Shards*: a record's shard follows from its content, so a replaced one
leaves a shard and enters another, or both are one: ``S(F) <= 2 s``, and the same for l1, whether or
not f adds up. Every shard is asked, those of no records too. With N lattice points::

    Delta1 <= min(N S, l1),    Delta2 <= min(sqrt(N) S, sqrt(S l1)),

the last because ``|x|_2^2 <= |x|_inf |x|_1``. A failure that depends on a record is outside this
proof, and so is all that f does besides returning values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from dbern.bernstein.kernels import OUTWARD
from dbern.certify.approximation import Approximation, Linear
from dbern.errors import IntegrityError
from dbern.learn.lattice_values import BlackBoxAccumulator
from dbern.learn.user_functions import FUNCTION, UserFunction, try_out
from dbern.measure.measurement import Measurement
from dbern.privacy.budget import Budget
from dbern.reconstruct.base import AnyStrategy, Bound, LatticeStrategy

SHARD_ROWS = 1 << 18
"""Rows of a shard, about."""

_MAX_POINTS, _MIN_POINTS = 1 << 16, 64  # of one call
_TARGET_CALLS = 16  # to share out
_TRIAL_ROWS = 1000


@dataclass(frozen=True, kw_only=True)
class BlackBox(Measurement):
    """A user's function before its lattice is chosen.

    `smoothness` is the class of F, in values as they are and positions in the unit cube. `stated`
    is s; `l1_sensitivity` is l1, for one lattice. With `separable` it is called for shards.
    """

    name: str = "oracle"
    user: UserFunction
    smoothness: Approximation
    stated: float
    l1_sensitivity: float | None
    separable: bool = False

    @property
    def bias(self) -> Approximation:
        """The class of F."""
        return self.smoothness

    @property
    def linear(self) -> bool:
        """Whether F is linear."""
        return self.smoothness == Linear()

    @property
    def extent(self) -> tuple[float, float]:
        """The bounds, once a shard."""
        shards = self._shards(self.user.n)
        return shards * self.user.low, shards * self.user.high

    @property
    def one_lattice(self) -> bool:
        """Whether what is stated of sums is for one lattice."""
        return self.l1_sensitivity is not None

    def bind(self, n: int, charge: Budget) -> BlackBox:
        """Return the measurement for n records."""
        del charge
        return replace(self, user=replace(self.user, n=n))

    def _shards(self, n: int) -> int:
        return -(-n // SHARD_ROWS) if self.separable else 1

    @property
    def _affected_shards(self) -> int:
        return 2 if self.separable else 1

    @property
    def function_sensitivity(self) -> float:
        """``n s``, or twice that."""
        return OUTWARD * self.user.n * self._affected_shards * self.stated

    def sensitivity(self, strategy: AnyStrategy, norm: int) -> Bound:
        """Bound n times the sensitivity, by what is stated."""
        size, text = strategy.lattice.size, "stated S(F)"
        value = OUTWARD * size ** (1 / norm) * self.function_sensitivity
        bound = Bound(value, f"{'N' if norm == 1 else 'sqrt(N)'} S(F) = {size} points, {text}")
        if self.l1_sensitivity is None:
            return bound
        value = OUTWARD * self.user.n * self._affected_shards * self.l1_sensitivity
        text = "as stated"
        if norm == 2:
            value, text = OUTWARD * math.sqrt(value * self.function_sensitivity), "sqrt(S(F) l1)"
        return min(bound, Bound(value, text), key=lambda bound: bound.value)

    def params(self, strategy: AnyStrategy, n: int, tolerance: float) -> dict[str, Any]:
        """Choose shards and points of a block; refuse a function that fails on made-up records."""
        del tolerance
        user = self.user
        axes = tuple((axis.low, axis.high) for axis in user.function_domain.axes)
        try_out(user.function, user.ranges, axes, min(n, _TRIAL_ROWS))
        shards = self._shards(n)
        points_a_call = -(-strategy.lattice.size * shards // _TARGET_CALLS)
        points = min(_MAX_POINTS, max(_MIN_POINTS, points_a_call))
        return {"shards": shards, "points": points, "digest": user.digest}

    def from_params(
        self, strategy: AnyStrategy, n: int, params: Mapping[str, Any]
    ) -> BlackBoxAccumulator:
        """Return values at the lattice points; another function raises an IntegrityError."""
        if params["digest"] != self.user.digest:
            raise IntegrityError(f"{FUNCTION}: its module is not the one that was planned with")
        user, lattice = replace(self.user, n=n), cast("LatticeStrategy", strategy)
        return BlackBoxAccumulator(user, lattice, params["shards"], params["points"])
