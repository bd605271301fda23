"""Linear risk minimizers, released by their weights: as many numbers as there are features.

``f(y) = w . y + w_0 constant`` in unit-cube coordinates, for each of q outputs.

Sensitivity under replace-one
-----------------------------
The weights of one output move by at most ``r`` (and the solver's distance) in the Euclidean norm
(`dbern.components.risk_models`), so by ``sqrt(l + 1) r`` in the l1 norm (``sqrt(l) r`` without a
constant feature): q times that, and ``sqrt(q) r`` in the l2 norm, for q outputs, as every record is
in the problem of each. ``S(f) <= r sup |phi| = r sqrt(l + constant^2)``.

Why not the corners
-------------------
Values at the 2^l corners, k = 1 and h = 1 of the mechanism, would make the function as exactly, and
their l1 norm is a maximum over all signs, ``r max_s |sum_v s_v phi(v)|``: at l = 1, 2, 3 and a
constant of 1 that is 2.2, 4.9 and 10.6 times r, where the weights have 1.4, 1.7 and 2. For every
constant and either norm the largest error over the cube is smaller from the weights (the tests
compare them), so nothing else is offered; and there are no 2^l numbers, so any number of axes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, cast

import numpy as np

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.coordinates import BumpBound, Entries
from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.lattice import Slab
from dbern.bernstein.spectrum import UNIT_ROUNDOFF
from dbern.components.base import WHOLE, Vector
from dbern.components.risk_models import RiskModel
from dbern.components.risk_statistics import SolvedWeights
from dbern.components.spaces import LinearSpace
from dbern.domain import Column
from dbern.privacy.budget import Protection


@dataclass(frozen=True)
class LinearFunctions(Vector):
    """The weights of every output, one output after the other; see the top of the module."""

    model: RiskModel

    @classmethod
    def of(cls, model: RiskModel, *, share: Fraction = WHOLE) -> LinearFunctions:
        """Those of a model of linear functions.

        Examples
        --------
        >>> from dbern.domain import Axis, Column, Domain
        >>> from dbern.learning.losses import Logistic
        >>> from dbern.components.weighings import BySign
        >>> label = BySign(Column("late", "data.label.classes", (False, True)))
        >>> box = Domain((Axis("x", 0.0, 1.0), Axis("y", 0.0, 1.0)))
        >>> weights = LinearFunctions.of(
        ...     RiskModel(box, Logistic(), LinearSpace(2, 1.0), label, cost=1.0)
        ... ).for_rows(1000)
        >>> weights.entries, 3.4 < weights.movement(1).value < 5
        (('weight of x', 'weight of y', 'weight of the constant'), True)
        """
        names = [f"weight of {name}" for name in model.domain.names]
        if cast("LinearSpace", model.space).size > len(names):
            names.append("weight of the constant")
        outputs = range(model.outputs)
        entries = names if model.outputs == 1 else [f"{a}, {i}" for i in outputs for a in names]
        return cls("weights", share, tuple(entries), model)

    def for_rows(self, n: int) -> LinearFunctions:
        """The same for n records."""
        return replace(self, model=self.model.for_rows(n))

    def protected(self, protection: Protection, ids: Column | None) -> LinearFunctions:
        """The same for other neighbours."""
        return replace(self, model=self.model.protected(protection, ids))

    @property
    def features(self) -> tuple[int, float]:
        """Axes, and the constant."""
        return self._space.dimensions, self._space.constant

    @property
    def _space(self) -> LinearSpace:
        return cast("LinearSpace", self.model.space)

    @property
    def _moved(self) -> float:
        return OUTWARD * self.model.n * self.model.moved

    @property
    def entry_movement(self) -> float:
        """n times the largest move of a function's value, which exceeds that of its weights."""
        return OUTWARD * self._moved * max(1.0, self._space.reach)

    def movement(self, norm: int) -> BumpBound:
        """See the top of the module."""
        outputs, size = self.model.outputs, self._space.size
        times = math.sqrt(outputs) if norm == 2 else outputs * math.sqrt(size)
        text = "r" if outputs == 1 else f"{outputs}{'^{1/2}' if norm == 2 else ''} x r"
        text += f" sqrt({size})" if norm == 1 else ""
        return BumpBound(
            OUTWARD * times * self._moved,
            f"{text}, r = {self.model.steps}M C kappa / n and twice the solver's distance",
        )

    def statistic(self, n: int) -> WeightStatistic:
        """Weights as fine as 64-bit integers allow."""
        return WeightStatistic(self.model.for_rows(n) if self.model.n != n else self.model)

    def restore(self, n: int, counting: Mapping[str, Any]) -> WeightStatistic:
        """With the planned shards."""
        return WeightStatistic(self.model.restored(n, counting))


@dataclass(frozen=True)
class WeightStatistic(SolvedWeights):
    """The means of the shards' weights as they are."""

    @property
    def _size(self) -> int:
        return self._features.size

    @property
    def coordinates(self) -> Entries:
        """One entry a weight."""
        return Entries(self.component.outputs * self._size)

    @property
    def _float_norm(self) -> float:
        """Of one output: fixed point; an integer as a float, and a division."""
        return OUTWARD * (self.step + 4 * UNIT_ROUNDOFF * self.mean_norm)

    @property
    def float_error(self) -> float:
        """No entry's is larger than the norm."""
        return self._float_norm

    def float_error_norm(self, norm: int) -> float:
        """Of all outputs."""
        outputs = self.component.outputs
        times = math.sqrt(outputs) if norm == 2 else outputs * math.sqrt(self._size)
        return OUTWARD * times * self._float_norm

    @property
    def position_error(self) -> float:
        """No entry is farther from its meaning than the weights."""
        return self.weight_error

    @property
    def value_bound(self) -> float:
        """No entry exceeds the norm."""
        return OUTWARD * 1.001 * self.mean_norm

    @property
    def table_bytes(self) -> int:
        """None."""
        return 0

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """The entries of one slab."""
        del output
        return np.asarray(self.mean(state.reshape(-1)[slab.start : slab.stop]))
