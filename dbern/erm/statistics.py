"""Regularized risk minimizers as statistics: functions on a lattice, or weights as they are.

*Units.* Values on a lattice are in units of ``C M c``, c the volume of a kernel translate, so that
a minimizer with a Gaussian kernel is a mixture of densities with signed weights that sum to at most
one.

Linear functions
----------------
``f(y) = w . y + w_0 constant`` in unit-cube coordinates, for each of q outputs, is released by its
weights: as many numbers as there are features.

Sensitivity under replace-one. The weights of one output move by at most ``r`` (and the solver's
distance) in the Euclidean norm (`dbern.erm.models`), so by ``sqrt(l + 1) r`` in the l1 norm
(``sqrt(l) r`` without a constant feature): q times that, and ``sqrt(q) r`` in the l2 norm, for q
outputs, as every record is in the problem of each. ``S(f) <= r sup |phi|``, ``r sqrt(l +
constant^2)``.

Why not the corners. Values at the 2^l corners, k = 1 and h = 1 of the mechanism, would make the
function as exactly, and their l1 norm is a maximum over all signs, ``r max_s |sum_v s_v phi(v)|``:
at l = 1, 2, 3 and a constant of 1 that is 2.2, 4.9 and 10.6 times r, where the weights have 1.4,
1.7 and 2. For every constant and either norm the largest error over the cube is smaller from the
weights (the tests compare them), so nothing else is offered; and there are no 2^l numbers, so any
number of axes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.certify.approximation import FunctionClass
from dbern.data.domain import FeatureShape
from dbern.erm.gaussian_features import GaussianFeatures
from dbern.erm.models import RiskModel
from dbern.erm.solutions import ValuesAccumulator, WeightsAccumulator
from dbern.erm.spaces import GramKernel, LinearFeatures
from dbern.measure.gathered import GatheredAccumulator
from dbern.measure.statistic import Statistic
from dbern.privacy.budget import Budget
from dbern.reconstruct.base import AnyStrategy, LatticeMapStrategy, SensitivityBound, VectorStrategy
from dbern.reconstruct.gram import CubeKernel, GramStrategy


@dataclass(frozen=True)
class _RiskStatistic(RiskModel, Statistic):
    name: str = field(default="weights", kw_only=True)

    def bind(self, n: int, charge: Budget) -> Statistic:
        """Return it for n records; before, it has no sensitivities."""
        del charge
        return self.resolved(n)

    @property
    def _sensitivity(self) -> float:
        """n times the move of the weights of one output by a record, in units of values."""
        return OUTWARD * self.n * self.bounds.sensitivity / self.unit

    @property
    def _norm(self) -> float:
        """Bound the norm of the mean of the minimizers, concave in a shard's weight."""
        shard = self.risk.bounds.max_weight / self.risk.shards
        return self.risk.shard_bounds(min(shard, OUTWARD * OUTWARD * self.cost)).norm

    def params(self, strategy: AnyStrategy, n: int, tolerance: float) -> dict[str, Any]:
        """Resolve for n records: as fine as 64-bit integers allow, whatever the tolerance."""
        del strategy, tolerance
        model = self.resolved(n) if self.n != n else self
        return {"shards": model.shards, **model.stored_params}

    def from_params(
        self, strategy: AnyStrategy, n: int, params: Mapping[str, Any]
    ) -> GatheredAccumulator:
        """Return the sums of what is solved for."""
        model = self.with_params(n, params)
        if model.risk.features:
            weights = cast("LatticeMapStrategy | VectorStrategy", strategy)
            return WeightsAccumulator(model, weights, model.unit)
        lattice = cast("LatticeMapStrategy | GramStrategy", strategy)
        return ValuesAccumulator(model, lattice, model.unit)


def _repeated(outputs: int, norm: int) -> str:
    return f"{outputs}{'^{1/2}' if norm == 2 else ''}"


@dataclass(frozen=True)
class RiskMinimizer(_RiskStatistic):
    """A regularized risk minimizer as a function on the lattice."""

    space: GaussianFeatures | GramKernel

    spectral = True

    @property
    def outputs(self) -> int:
        """Number of models: each is a function."""
        return self.num_models

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Densities of the space's kernel, where it is a product."""
        return self.space.kernels

    @property
    def cube(self) -> CubeKernel | None:
        """Kernel of the space, where it is none."""
        return None if self.space.kernels else self.space.cube

    @property
    def largest_lattice(self) -> float:
        """Lattice points that are not too costly."""
        return self.space.largest_lattice

    @cached_property
    def bias(self) -> FunctionClass | None:
        """The space's class of functions, for the norm of the mean of the minimizers."""
        if not self.n:
            return None
        norm = self._norm / self.unit
        return self.space.function_class(OUTWARD * norm * math.sqrt(self.space.volume))

    @property
    def unit(self) -> float:
        """``C M c``, once n is known."""
        return self.cost * self.risk.bounds.slope * self.space.volume if self.n else 1.0

    @property
    def function_sensitivity(self) -> float:
        """``n (r + 2 distance) sup |phi|``, of `dbern.erm.models`."""
        return OUTWARD * self._sensitivity * self.space.bound if self.n else math.nan

    def sensitivity(self, strategy: AnyStrategy, norm: int) -> SensitivityBound:
        """Bound n times the sensitivity (proof in `dbern.erm.models`)."""
        bound = self.space.operator_norm(cast("LatticeMapStrategy", strategy), norm)
        outputs = math.sqrt(self.outputs) if norm == 2 else self.outputs
        text = f"{_repeated(self.outputs, norm)} x " if self.outputs > 1 else ""
        return SensitivityBound(
            OUTWARD * outputs * self._sensitivity * bound.value,
            f"{text}r {bound.derivation}, {self.derivation}",
        )


@dataclass(frozen=True)
class LinearFunctions(_RiskStatistic):
    """Weights of every output, one output after the other (*Linear functions* above)."""

    space: LinearFeatures

    @property
    def features(self) -> FeatureShape:
        """Axes and constant of the functions."""
        return FeatureShape(self.space.dimensions, self.space.kernel.constant)

    @property
    def extent(self) -> tuple[float, float] | None:
        """Bounds of a value by Cauchy and Schwarz, once n is known."""
        highest = OUTWARD * self._norm * self.space.bound if self.n else math.inf
        return (-highest, highest) if self.n else None

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the weights of each output: listed values, axes and constant."""
        names = [f"weight of {a.name} = {v}" for a in self.domain.categorical for v in a.categories]
        names += [f"weight of {axis.name}" for axis in self.domain.numeric]
        if self.space.size > len(names):
            names.append("weight of the constant")
        if self.num_models == 1:
            return tuple(names)
        return tuple(f"{name}, {output}" for output in range(self.num_models) for name in names)

    @property
    def function_sensitivity(self) -> float:
        """n times a function's sensitivity, which exceeds that of its weights."""
        return OUTWARD * self._sensitivity * max(1.0, self.space.bound) if self.n else math.nan

    def sensitivity(self, strategy: AnyStrategy, norm: int) -> SensitivityBound:
        """Bound n times the sensitivity of the weights (*Linear functions* above)."""
        del strategy
        outputs, size = self.num_models, self.space.size
        times = math.sqrt(outputs) if norm == 2 else outputs * math.sqrt(size)
        text = "r" if outputs == 1 else f"{_repeated(outputs, norm)} x r"
        text += f" sqrt({size})" if norm == 1 else ""
        return SensitivityBound(OUTWARD * times * self._sensitivity, f"{text}, {self.derivation}")
