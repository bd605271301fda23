"""Finite feature spaces that risk minimizers are learned in and released from.

A function of a space is ``f(y) = w . phi(y)``, phi public, so its released coordinates are a public
linear map ``y = (T_1 x .. x T_l) (phi(p))_p w`` of its weights. What one record can do to them is
the norm of that map times what it can do to w. The map is computed in floats; its error is bounded
by the Euclidean norm of w, and enters the noise like every other float error.

*Gaussian kernels* are cut to features (`dbern.learning.projected`), ``phi(x) = T K_x`` with a
stored T of their own, fine enough for the public n. The norm of f in the kernel's own Hilbert space
is ``(w' T G T' w)^{1/2} <= lambda_max(T G T')^{1/2} |w|``, as f is ``sum_v (T'w)_v K_v``; and of
the coordinates a function of norm one can have, `Coordinates.ball_bound` knows. It speaks of
densities ``K / c``, c the product of their ``b sqrt(2 pi)``, in whose Hilbert space norms are
``sqrt(c)`` times as large.

*Linear functions* are released by their weights (`dbern.components.linear_functions`). Records are
projected to the unit ball of unit-cube coordinates (Aldà and Rubinstein's assumption), which bounds
kappa; the function is that of all points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dbern.arrays import FloatArray
from dbern.bernstein.bias import Bumps
from dbern.bernstein.coordinates import BumpBound, Coordinates
from dbern.bernstein.kernels import OUTWARD, Gaussian
from dbern.bernstein.lattice import Slab
from dbern.bernstein.reproducing import ExplicitKernel, Kernel, Linear
from dbern.bernstein.spectrum import UNIT_ROUNDOFF, AxisSpectrum
from dbern.components.hypotheses import MOST_POINTS, Hypotheses, Space
from dbern.errors import SpecError
from dbern.learning.objective import STORED_FEATURES
from dbern.learning.projected import ProjectedGaussian, project_gaussian
from dbern.learning.risk import Risk

_LEAST_ROWS, _MOST_ROWS = 1 << 16, 1 << 20
_MOST_FEATURES = 4096
_NODES = 6  # lattice steps of the features a bandwidth
_CUT_SHARE = 0.2  # of C M / n: a tenth of the sensitivity, far below any noise
_NARROWEST = 0.01  # of an axis: eigenvectors of a lattice finer than that take long
_THRESHOLDS = (1e-2, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)  # of the largest eigenvalue
_COARSEST_CUT = 0.01  # of C M: a kernel that needs more features than there may be is refused


class FeatureKernel(Kernel, ExplicitKernel, Protocol):
    """A kernel by its features."""


@runtime_checkable
class Features(Hypotheses, Protocol):
    """Linear functions of public features."""

    @property
    def kernel(self) -> FeatureKernel:
        """What is learned with."""

    @property
    def size(self) -> int:
        """Features."""


@runtime_checkable
class FeatureSpace(Features, Space, Protocol):
    """Such functions, released on a lattice."""

    def values(self, weights: FloatArray, coordinates: Coordinates, slab: Slab) -> FloatArray:
        """Coordinates of one slab, for weights (size,)."""

    def value_error(self, coordinates: Coordinates, mass: float, rest: float) -> float:
        """Float error of a value whose row of T sums to one.

        For weights ``sum_i alpha_i phi(d_i)``, ``sum |alpha_i|`` at most `mass`, and a remainder of
        norm at most `rest`.
        """


def feature_rows(size: int) -> int:
    """Rows of an automatic shard: as many as have their features kept while it is solved."""
    return min(_MOST_ROWS, max(_LEAST_ROWS, STORED_FEATURES // size))


@dataclass(frozen=True)
class GaussianSpace:
    """The Gaussian kernel ``exp(-|x - y|^2 / (2 s^2))``, s per axis in unit-cube units.

    Examples
    --------
    >>> space = GaussianSpace((0.3, 0.3)).resolved(1.0, n=1000)
    >>> space.kernel.cut < 2e-4, space.size < 100
    (True, True)
    """

    scales: tuple[float, ...]
    spectra: tuple[AxisSpectrum, ...] = ()
    largest_lattice = MOST_POINTS

    @property
    def dimensions(self) -> int:
        """Axes."""
        return len(self.scales)

    @cached_property
    def kernel(self) -> ProjectedGaussian:
        """The cut kernel."""
        return ProjectedGaussian(self.scales, self.spectra)

    @property
    def radius(self) -> float:
        """Of the unit cube."""
        return OUTWARD * math.sqrt(self.dimensions)

    @property
    def reach(self) -> float:
        """kappa."""
        return OUTWARD * math.sqrt(self.kernel.bound(self.radius))

    @property
    def volume(self) -> float:
        """``prod b sqrt(2 pi)``, c of the module."""
        return math.prod(scale * math.sqrt(2 * math.pi) for scale in self.scales)

    @property
    def kernels(self) -> tuple[Gaussian, ...]:
        """Densities, one an axis."""
        return tuple(Gaussian(scale) for scale in self.scales)

    @property
    def size(self) -> int:
        """Products of the axes' features."""
        return math.prod(spectrum.rank for spectrum in self.spectra)

    @property
    def shard_rows(self) -> int:
        """See `Space`."""
        return feature_rows(self.size)

    def approximation(self, norm: float) -> Bumps:  # noqa: ARG002 - of the expansion's weights
        """A minimizer is ``sum_i alpha_i K(d_i, .)`` with ``sum |alpha_i| <= C M``.

        By stationarity ``alpha_i = -a_i L'_i`` in each shard, and the mean over shards weighs the
        records by C/n each.
        """
        return Bumps(self.kernels)

    @property
    def counting(self) -> dict[str, Any]:
        """The stored matrices."""
        return {"features": [spectrum.to_dict() for spectrum in self.spectra]}

    def resolved(self, risk_factor: float, n: int) -> GaussianSpace:
        """Enough features for a cut of a tenth of the sensitivity, or as many as there may be.

        Raises
        ------
        SpecError
            For a kernel too narrow for any number of features that is allowed.
        """
        projected = _projection(self.scales, min(_CUT_SHARE / n, _COARSEST_CUT) / risk_factor)
        if projected is None or projected.cut * risk_factor > _COARSEST_CUT:
            raise SpecError(
                f"target.length_scale: too short for {_MOST_FEATURES} features over "
                f"{self.dimensions} axes; write a larger length_scale"
            )
        return replace(self, spectra=projected.spectra)

    def restored(self, counting: Mapping[str, Any]) -> GaussianSpace:
        """See `Space`."""
        spectra = tuple(AxisSpectrum.from_dict(one) for one in counting["features"])
        return replace(self, spectra=spectra)

    def points(self, positions: FloatArray) -> FloatArray:
        """Where they are."""
        return positions

    def nodes(self, axes: Sequence[FloatArray]) -> list[FloatArray]:
        """Where they are."""
        return list(axes)

    def drift(self, distance: float) -> float:
        """Gaussian features are Lipschitz."""
        slopes = [kernel.slope / kernel.peak for kernel in self.kernels]
        return distance * sum(slopes) * (1 + max(slopes))

    def cut_error(self, risk: Risk) -> float:
        """The theorem of `dbern.learning.projected`, in the mean over shards.

        It is convex in a shard's weight and zero at 0: most with all records in one shard.
        """
        return self.kernel.cut_error(risk) / risk.shards

    def gain(self, coordinates: Coordinates, norm: int) -> BumpBound:
        """See the module."""
        ball = coordinates.ball_bound(self.kernels, norm)
        return BumpBound(
            OUTWARD * ball.value * self.reach * math.sqrt(self.volume), ball.derivation
        )

    def values(self, weights: FloatArray, coordinates: Coordinates, slab: Slab) -> FloatArray:
        """Axis by axis."""
        result = weights.reshape([spectrum.rank for spectrum in self.spectra])
        for axis, table in enumerate(self._tables(coordinates)):
            rows = slice(slab.start, slab.stop) if axis == 0 else slice(None)
            result = np.tensordot(result, table[rows], axes=(0, 1))
        return result

    def _tables(self, coordinates: Coordinates) -> list[FloatArray]:
        tables = []
        for axis in range(self.dimensions):
            features = self.kernel.along_axis(axis, coordinates.lattice.nodes(axis))
            matrix = coordinates.matrix(axis)
            tables.append(features if matrix is None else matrix @ features)
        return tables

    def value_error(self, coordinates: Coordinates, mass: float, rest: float) -> float:
        """Errors of features, and of the products of them.

        *Remainder.* Terms sum to at most ``|phi| |w|``; per axis there is one product over features
        and one over lattice points, and the factor 2 is for higher orders. *Mass.* A weight is at
        most `mass` times the product of the axes' ``s_j = sup |phi_j|``, and s_j is small exactly
        where T_j is large and phi_j is far from its float: with errors e_j the terms sum to
        ``prod_axes sum_j s_j (s_j + e_j)``, of which ``prod_axes sum_j s_j^2`` is exact.
        """
        depth = sum(spectrum.rank + 4 for spectrum in self.spectra)
        depth += sum(nodes + 4 for nodes in coordinates.lattice.shape)
        rounding = 2 * depth * UNIT_ROUNDOFF
        norms = 1.01 * self.kernel.feature_error + rounding * self.reach
        exact = grown = 1.0
        for axis in range(self.dimensions):
            sup, error = self.kernel.feature_sups(axis), self.kernel.feature_errors(axis)
            exact *= float((sup * sup).sum())
            grown *= float((sup * (sup + error)).sum())
        terms = 1.01 * (grown - exact) + 4 * UNIT_ROUNDOFF * grown + rounding * grown
        return OUTWARD * (mass * terms + rest * norms)


@lru_cache(maxsize=64)
def _projection(scales: tuple[float, ...], wanted: float) -> ProjectedGaussian | None:
    """The fewest features whose cut is at most `wanted`, or the best that are allowed."""
    best = None
    if min(scales) < _NARROWEST or math.prod(max(1.0, 0.5 / b) for b in scales) > _MOST_FEATURES:
        return None
    k = [max(8, math.ceil(_NODES / scale)) for scale in scales]
    full = project_gaussian(scales, k, [count + 1 for count in k])
    for threshold in _THRESHOLDS:
        rank = [sum(mu > threshold * s.levels[0] for mu in s.levels) for s in full.spectra]
        if math.prod(rank) > _MOST_FEATURES:
            return best
        cut = tuple(s.cut(d) for s, d in zip(full.spectra, rank, strict=True))
        found = ProjectedGaussian(scales, cut)
        if best is None or found.cut < best.cut:
            best = found
        if best.cut <= wanted:
            return best
    return best


@dataclass(frozen=True)
class LinearSpace:
    """``w . y + w_0 constant`` in unit-cube coordinates; see the module.

    Examples
    --------
    >>> space = LinearSpace(2, constant=1.0)
    >>> space.size, space.points(np.array([[3.0, 4.0], [0.3, 0.4]])).tolist()
    (3, [[0.6, 0.8], [0.3, 0.4]])
    """

    dimensions: int
    constant: float
    radius = OUTWARD  # of the unit ball, and the rounding of the projection

    @cached_property
    def kernel(self) -> Linear:
        """``x . y + constant^2``."""
        return Linear(self.constant)

    @property
    def reach(self) -> float:
        """At the far corner."""
        return OUTWARD * math.sqrt(self.dimensions + self.constant**2)

    @property
    def size(self) -> int:
        """The coordinates, and the constant where it is not zero."""
        return self.dimensions + (self.constant > 0)

    @property
    def shard_rows(self) -> int:
        """See `Hypotheses`."""
        return feature_rows(self.size)

    @property
    def counting(self) -> dict[str, Any]:
        """Nothing to store."""
        return {}

    def resolved(self, risk_factor: float, n: int) -> LinearSpace:
        """Itself."""
        del risk_factor, n
        return self

    def restored(self, counting: Mapping[str, Any]) -> LinearSpace:
        """Itself."""
        del counting
        return self

    def points(self, positions: FloatArray) -> FloatArray:
        """Divided by their norm where it exceeds one."""
        lengths = np.sqrt((positions * positions).sum(axis=1, keepdims=True))
        return np.asarray(positions / np.maximum(lengths, 1.0))

    def drift(self, distance: float) -> float:
        """The coordinates are the features."""
        return 2 * self.dimensions * distance
