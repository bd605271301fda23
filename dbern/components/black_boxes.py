"""A user's function of records and points as a component: its sensitivity is taken at its word.

Let A be the function *as it is computed*: f of the bounded records in sorted order, floats and all,
each value cut to the public bounds, a failure replaced by the stated constant. Released is

- by default ``F_D = A(D)``, of all records that count, gathered in one place;
- with ``separable``, ``F_D = sum_s A(D_s)``, D_s the records of shard s, a keyed hash of content.
  For a function that adds up over records this is the same but for the cuts.

Sensitivity under replace-one
-----------------------------
The user states s, the largest change of a value of f when one record is added, removed or replaced
(a null record is not there, so all three are replacements), of any number of records up to n; for
one lattice optionally ``l1``, the largest sum of such changes. Cutting to an interval changes no
difference of values for the larger.

*All records*: ``S(F) <= s``. *Shards*: a record's shard follows from its content, so a replaced one
leaves a shard and enters another, or both are one: ``S(F) <= 2 s``, and the same for l1, whether or
not f adds up. Every shard is asked, those of no records too. With N lattice points::

    Delta1 <= min(N S, l1),    Delta2 <= min(sqrt(N) S, sqrt(S l1)),

the last because ``|x|_2^2 <= |x|_inf |x|_1``. A failure that depends on a record is outside this
proof, and so is all that f does besides returning values.

From floats to integers
-----------------------
A value is rounded to a multiple of ``2^-b``, by half of that at most; sums over m shards are exact
integers below ``2^52`` and so are floats again without error: eta is ``m 2^-(b+1)``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dbern.bernstein.bias import Approximation
from dbern.bernstein.coordinates import BumpBound, Coordinates
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.bernstein.smoothness import Linear
from dbern.components.base import WHOLE
from dbern.components.black_box_statistics import BlackBoxStatistic
from dbern.components.made_up import try_out
from dbern.components.sampling import Sampling, sampled_distances
from dbern.components.user_functions import FUNCTION, UserFunction
from dbern.errors import IntegrityError
from dbern.privacy.budget import Budget
from dbern.privacy.random_privacy import RandomPrivacy

SHARD_ROWS = 1 << 18
"""Rows of a shard, about."""

_MOST_POINTS, _FEWEST_POINTS = 1 << 16, 64  # of one call
_CALLS = 16  # to share out
_TRIAL_ROWS = 1000


@dataclass(frozen=True)
class BlackBox(UserFunction):
    """A user's function before its lattice is chosen: see the top of the module.

    Parameters
    ----------
    smoothness : Approximation
        The class that F is in, in values as they are and positions in the unit cube.
    sensitivity : float or Sampling
        s of the module, or how it is estimated; then `one_lattice`.
    l1_sensitivity : float, optional
        l1 of the module; then `one_lattice`.
    separable : bool
        Whether it is asked of shards.
    sampled : tuple of float, optional
        Where it is estimated, for one lattice: the distances of `sampled_distances`.
    """

    smoothness: Approximation
    sensitivity: float | Sampling
    l1_sensitivity: float | None
    separable: bool = False
    sampled: tuple[float, float, float] | None = None
    share: Fraction = WHOLE

    name = "oracle"
    outputs = 1
    unit = 1.0
    kernels: tuple[Kernel, ...] = ()
    binned = False
    spectral = False
    additive = False

    def for_rows(self, n: int) -> BlackBox:
        """The same for n records."""
        return replace(self, n=n)

    @property
    def linear(self) -> bool:
        """Whether it is stated to be."""
        return isinstance(self.smoothness, Linear)

    @property
    def one_lattice(self) -> bool:
        """Whether what is known is for one lattice."""
        return self.l1_sensitivity is not None or isinstance(self.sensitivity, Sampling)

    def for_lattice(self, coordinates: Coordinates) -> BlackBox:
        """The same with its sensitivities sampled for a lattice, where they are."""
        if not isinstance(self.sensitivity, Sampling):
            return self
        statistic = self.statistic(coordinates, self.n, 0.0)
        return replace(self, sampled=sampled_distances(statistic, self.sensitivity))

    def random(self, charge: Budget) -> RandomPrivacy | None:
        """What a charge buys where the sensitivity is an estimate."""
        sampling = self.sensitivity
        return sampling.guarantee(charge) if isinstance(sampling, Sampling) else None

    @property
    def approximation(self) -> Approximation:
        """As stated."""
        return self.smoothness

    @property
    def _twice(self) -> int:
        return 2 if self.separable else 1

    @property
    def function_movement(self) -> float:
        """``n s``, or twice that; of an estimate that of lattice values, once it is made."""
        if isinstance(self.sensitivity, Sampling):
            return OUTWARD * self.n * (self.sampled[0] if self.sampled else math.nan)
        return OUTWARD * self.n * self._twice * self.sensitivity

    def movement(self, coordinates: Coordinates, norm: int, *, quick: bool = False) -> BumpBound:
        """See the proof at the top of this module, and for estimates `random_privacy`."""
        del quick
        if isinstance(self.sensitivity, Sampling):
            moved = (self.sampled or self.for_lattice(coordinates).sampled or ())[norm]
            order, samples = self.sensitivity.order, self.sensitivity.samples
            text = f"distance {order} of {samples} sampled, an estimate"
            return BumpBound(OUTWARD * self.n * moved, text)
        size, text = coordinates.lattice.size, "stated S(F)"
        value = OUTWARD * size ** (1 / norm) * self.function_movement
        bound = BumpBound(value, f"{'N' if norm == 1 else 'sqrt(N)'} S(F) = {size} points, {text}")
        if self.l1_sensitivity is None:
            return bound
        value = OUTWARD * self.n * self._twice * self.l1_sensitivity
        text = "as stated"
        if norm == 2:
            value, text = OUTWARD * math.sqrt(value * self.function_movement), "sqrt(S(F) l1)"
        return min(bound, BumpBound(value, text), key=lambda one: one.value)

    def statistic(self, coordinates: Coordinates, n: int, tolerance: float) -> BlackBoxStatistic:
        """How it is asked; what fails on made-up records is refused.

        Raises
        ------
        SpecError
            See `try_out`.
        """
        del tolerance
        try_out(self.function, self.ranges, self.domain.dimensions, min(n, _TRIAL_ROWS))
        shards = -(-n // SHARD_ROWS) if self.separable else 1
        share = -(-coordinates.lattice.size * shards // _CALLS)
        points = min(_MOST_POINTS, max(_FEWEST_POINTS, share))
        return BlackBoxStatistic(self.for_rows(n), coordinates, shards, points)

    def restore(
        self, coordinates: Coordinates, n: int, counting: Mapping[str, Any]
    ) -> BlackBoxStatistic:
        """As planned.

        Raises
        ------
        IntegrityError
            Where the function is not the one that was planned.
        """
        if counting["digest"] != self.digest:
            raise IntegrityError(f"{FUNCTION}: its module is not the one that was planned with")
        component, points = self.for_rows(n), counting["points"]
        return BlackBoxStatistic(component, coordinates, counting["shards"], points)
