"""Risk minimizers as functions on a lattice; their sensitivity is proved in `risk_models`.

Linear functions are released by their weights instead (`dbern.components.linear_functions`).

*Weights of features* are d numbers: the mean over shards is off by ``2^-s sqrt(d) / 2`` in norm,
and a value by that times ``sup |phi|``; together with the floats of the linear map this is the
float error, which the noise's calibration counts twice.

*Kernels without features*: a shard is solved with the Gram matrix of its own records, ``f_s =
sum_i alpha_i K(d_i, .)``, and evaluated at the lattice points; these values are stored in steps of
``2^-s``, each rounded by half a step, so the sum over shards is exact. Released is a public linear
map of their mean. The float error of a value is that of evaluating the expansions
(`dbern.learning.rounding.value_error`), half a step, and that of the map: what rows of T that sum
to one make of N products of values at most V.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, cast

import numpy as np

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.bias import Approximation
from dbern.bernstein.coordinates import BumpBound, Coordinates
from dbern.bernstein.gram import CubeKernel
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.bernstein.lattice import Slab
from dbern.bernstein.maps import to_released
from dbern.bernstein.spectrum import UNIT_ROUNDOFF
from dbern.components.base import WHOLE, Statistic
from dbern.components.expansions import GramSpace
from dbern.components.hypotheses import Space
from dbern.components.risk_models import RiskModel
from dbern.components.risk_statistics import MOST_BITS, SolvedStatistic, SolvedWeights
from dbern.components.spaces import FeatureSpace
from dbern.learning.objective import STORED_ROWS
from dbern.learning.rounding import BLOCK, value_error


@dataclass(frozen=True)
class RiskMinimizer(RiskModel):
    """A regularized risk minimizer as a function on the lattice, before that is chosen."""

    space: Space
    name: str = "decision"
    share: Fraction = WHOLE

    binned = False
    spectral = True
    additive = False

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The space's."""
        return self.space.kernels

    @property
    def cube(self) -> CubeKernel | None:
        """The space's, where it has no other kernels."""
        return self.space.cube if isinstance(self.space, GramSpace) else None

    @property
    def largest_lattice(self) -> int:
        """The space's."""
        return self.space.largest_lattice

    @cached_property
    def approximation(self) -> Approximation:
        """The space's, for the norm of the mean of the minimizers, concave in a shard's weight."""
        total = min(self.risk.most_weight / self.risk.shards, OUTWARD * OUTWARD * self.cost)
        norm = self.risk.norm(total) / self.unit
        return self.space.approximation(OUTWARD * norm * math.sqrt(self.space.volume))

    @property
    def unit(self) -> float:
        """``C M c``."""
        return self.cost * self.risk.slope * self.space.volume

    @property
    def _moved(self) -> float:
        """n times what a record can do to the weights of one output, in units of values."""
        return OUTWARD * self.n * self.moved / self.unit

    @property
    def function_movement(self) -> float:
        """``n (r + instability) sup |phi|``."""
        return OUTWARD * self._moved * self.space.reach

    def movement(self, coordinates: Coordinates, norm: int, *, quick: bool = False) -> BumpBound:
        """See the proof at the top of `risk_models`."""
        del quick
        gain = self.space.gain(coordinates, norm)
        outputs = math.sqrt(self.outputs) if norm == 2 else self.outputs
        text = f"{self.outputs}{'^{1/2}' if norm == 2 else ''} x " if self.outputs > 1 else ""
        return BumpBound(
            OUTWARD * outputs * self._moved * gain.value,
            f"{text}r {gain.derivation}, r = {self.steps}M C kappa / n and twice the solver's "
            "distance",
        )

    def statistic(self, coordinates: Coordinates, n: int, tolerance: float) -> Statistic:
        """Weights as fine as 64-bit integers allow, whatever the tolerance."""
        del tolerance
        return _statistic(self.for_rows(n) if self.n != n else self, coordinates)

    def restore(self, coordinates: Coordinates, n: int, counting: Mapping[str, Any]) -> Statistic:
        """The statistic that a plan has chosen."""
        return _statistic(self.restored(n, counting), coordinates)


def _statistic(component: RiskMinimizer, coordinates: Coordinates) -> Statistic:
    """Weights of features, or where there are none values on the lattice."""
    if isinstance(component.space, FeatureSpace):
        return RiskStatistic(component, coordinates)
    return ValueStatistic(component, coordinates)


@dataclass(frozen=True)
class OnLattice(SolvedStatistic):
    """A solution of which coordinates of a lattice are released."""

    component: RiskMinimizer
    coordinates: Coordinates

    @property
    def _unit(self) -> float:
        return self.component.unit

    @property
    @abstractmethod
    def _row_error(self) -> float:
        """Bound on the error of a value whose row of the map sums to one."""

    @cached_property
    def float_error(self) -> float:
        """Bound on the error of any one released value, fixed point included."""
        return self._row_error * self._largest_row

    def float_error_norm(self, norm: int) -> float:
        """The same of all values of all outputs: the norm of the row sums, which factors."""
        outputs = math.sqrt(self.component.outputs) if norm == 2 else self.component.outputs
        axes = (self.coordinates.row_sums(axis) for axis in range(len(self.coordinates.lattice.k)))
        rows = math.prod(float((sums**norm).sum() ** (1 / norm)) for sums in axes)
        return OUTWARD * outputs * self._row_error * rows

    @property
    def _largest_row(self) -> float:
        axes = range(len(self.coordinates.lattice.k))
        return math.prod(float(self.coordinates.row_sums(axis).max()) for axis in axes)

    @cached_property
    def position_error(self) -> float:
        """That of the weights at its largest, and the kernel's cut: accuracy, never privacy."""
        space = self.component.space
        return (
            OUTWARD * (space.reach * self.weight_error + space.cut_error(self._risk)) / self._unit
        )

    @property
    def value_bound(self) -> float:
        """``sup |phi|`` times the norm of the mean, mapped; and everything floats can add."""
        reach = self.component.space.reach
        return OUTWARD * 1.001 * self._largest_row * reach * self.mean_norm / self._unit


@dataclass(frozen=True)
class RiskStatistic(OnLattice, SolvedWeights):
    """A risk minimizer's coordinates, from its weights."""

    @property
    def _space(self) -> FeatureSpace:
        return cast("FeatureSpace", self.component.space)

    @cached_property
    def _row_error(self) -> float:
        """By stationarity the mean of the minimizers has weights that sum to at most C M.

        Times the most rows over n.
        """
        space, risk = self._space, self._risk
        mass = risk.cost * risk.slope * (risk.most_rows / risk.n)
        rest = self.component.method.distance(risk) + self.step
        floats = space.value_error(self.coordinates, mass, rest)
        floats += 6 * UNIT_ROUNDOFF * space.reach * self.mean_norm
        return OUTWARD * (floats + self.step * space.reach) / self._unit

    @property
    def table_bytes(self) -> int:
        """Features at the lattice points of each axis, mapped, and the products under way."""
        nodes = self.coordinates.lattice.shape
        return 8 * 3 * (sum(nodes) + max(nodes)) * self._space.size

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Released values of one slab."""
        mean = self.mean(state[output])
        return self._space.values(mean, self.coordinates, slab) / self._unit


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
