"""Risk minimizers by their values on the lattice: for kernels without features.

A shard is solved with the Gram matrix of its own records, ``f_s = sum_i alpha_i K(d_i, .)``, and
evaluated at the lattice points; these values are stored in steps of ``2^-s``, each rounded by half
a step, so the sum over shards is exact. Released is a public linear map of their mean. The float
error of a value is that of evaluating the expansions (`dbern.learning.rounding.value_error`), half
a step, and that of the map: what rows of T that sum to one make of N products of values at most V.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.lattice import Slab
from dbern.bernstein.maps import to_released
from dbern.bernstein.spectrum import UNIT_ROUNDOFF
from dbern.learning.objective import STORED_ROWS
from dbern.learning.rounding import BLOCK, value_error
from dbern.targets.risk_statistics import MOST_BITS, OnLattice


@dataclass(frozen=True)
class ValueStatistic(OnLattice):
    """A solution is its values on the lattice."""

    @property
    def solution(self) -> str:
        """Where."""
        return f"values at {self.coordinates.lattice.size} lattice points"

    @property
    def bits(self) -> int:
        """s: the sum over shards stays below 2^62."""
        norm = self._risk.norm(self._risk.most_weight) + self._apart + 1
        largest = self._risk.shards * max(1.0, self.component.space.reach) * norm
        return min(MOST_BITS, 61 - math.frexp(largest)[1])

    @property
    def step(self) -> float:
        """The functions themselves are not rounded."""
        return 0.0

    @cached_property
    def _row_error(self) -> float:
        space, risk = self.component.space, self._risk
        radius = max(space.radius, risk.radius)
        floats = value_error(risk, radius) + math.ldexp(0.5, -self.bits)
        depth = 6 + sum(nodes + 4 for nodes in self.coordinates.lattice.shape)
        if len(self.coordinates.layout.shape) != len(self.coordinates.lattice.shape):
            depth = 10 + self.coordinates.lattice.size  # one product over the whole lattice
        floats += 2 * depth * UNIT_ROUNDOFF * (space.reach * self.mean_norm + floats)
        return OUTWARD * floats / self._unit

    @property
    def gathered_bytes(self) -> int:
        """Memory of one pass: its records, a shard's Gram matrix, and values under way."""
        heavy = min(self._pass_rows, math.ceil(1.25 * self._risk.n / self._risk.shards) + 64)
        gram = heavy**2 if heavy <= STORED_ROWS else BLOCK**2
        values = self.coordinates.lattice.size * (2 * self.component.outputs + BLOCK)
        return self._rows_bytes + 8 * (2 * gram + values)

    @property
    def table_bytes(self) -> int:
        """The mean's values, and the products under way."""
        return 8 * 4 * self.coordinates.lattice.size

    @property
    def shape(self) -> tuple[int, ...]:
        """Outputs, then the lattice."""
        return (self.component.outputs, *self.coordinates.lattice.shape)

    def _solved(self, rows: FloatArray, counts: FloatArray) -> Int64Array:
        problem, state = self.component.fitted(rows[:, :-1], rows[:, -1], counts)
        lattice, space = self.coordinates.lattice, self.component.space
        axes = space.nodes([lattice.nodes(axis) for axis in range(len(lattice.k))])
        values = problem.model(state).on_grid(axes)
        return np.rint(np.ldexp(np.moveaxis(values, -1, 0), self.bits)).astype(np.int64)

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Released values of one slab."""
        mean = np.ldexp(state[output].astype(np.float64), -self.bits) / self._risk.shards
        return to_released(self.coordinates, mean, slab) / self._unit
