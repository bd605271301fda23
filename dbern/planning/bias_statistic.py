"""A promise about the data at hand, for a fraction of the budget: ``[mechanism] tune``.

A release of bins answers ``sum_j a_j(y) c_j`` where ``F(y) = int K(y - t) dD(t)``. What it misses
is certified for the worst database. Of *these* data it is told by bins that are `times` as fine and
of the same degree: with their operator a', which misses at most w' of any database,

    ``|F(y) - sum_j a_j(y) c_j| <= |sum_i g_i(y) c'_i| + w'``,   ``g = R' a - a'``,

for the finer bins c' of the same records. Here ``c = R c'`` exactly: a B-spline is a sum of
narrower ones, ``beta_j = r^-p sum_i C_i beta'_{r j - (r - 1) p + i}``, C the coefficients of ``(1 +
z + .. + z^{r-1})^{p+1}``; those out of range are zero on the unit interval.

*What is released* beside the bins is one number, T/W: T the largest ``|sum_i g_i(y) c'_i|`` over
public nodes y and all outputs, W a public number with ``sup_t |sum_i g_i(y) beta'_i(t)| <= W`` at
every node.

*How far a record moves it.* ``sum_i g_i(y) c'_i = int g_y(t) dD(t)``, ``|g_y| <= W``. A move of
the database is a signed measure of total variation at most 2/n (a record replaced, whatever its
output), 1/n (added), u times that of units of u rows: just what bounds the l1 norm of bins. So each
of these numbers moves by at most W times that, and so does the largest size of them. What integers
make of c' is within an l1 distance that the bins' own bound counts too; it is weighed by
``max_i |g_i|``, which may be far above W: near the ends B-splines of high degree are nearly
dependent.

*Order.* The number is a center like any other: staged and sealed with the bins, noised after the
one charge, by the very draw that key, seal, law and name make. Its noise and that of the bins
compose: ``tune epsilon`` and ``(1 - tune) epsilon``, in zCDP half the squares of both.

*Between nodes.* g is a polynomial in y but for a tail; nodes of its degree enclose it
(`dbern.certify.noise_quantile.enclose`). With f their factor, l what the tails add (bins sum to
one at most) and X the number's noise,

    ``|F(y) - sum_j a_j(y) c_j| <= f W (T'/W - X + errors) + l + w'``

at every y at once, T' what is released: only X below zero makes it wrong without X, and X is
bounded together with the noise of the bins (`dbern.synopsis.bands`). It holds for the operator a
that T was computed with, and no other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, cast

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.certify.bias_envelopes import MOST_AXES
from dbern.errors import SpecError
from dbern.measure.accumulator import DerivedAccumulator, Errors, Memory
from dbern.measure.measurement import Measurement
from dbern.planning.finer_bins import FinerBins
from dbern.reconstruct.base import AnyStrategy, Bound, VectorStrategy
from dbern.reconstruct.layouts import Slab
from dbern.types import UNIT_ROUNDOFF, FloatArray, Int64Array

NAME = "promise"
"""The array's, and its component's."""

_MAX_FRACTION = Fraction(1, 2)


def reserve_for_tune(
    components: Sequence[Measurement], fraction: Fraction, kind: str
) -> tuple[Measurement, ...]:
    """Leave a learner's measurements the budget but for the fraction that `tune` pays.

    Raises SpecError where nothing is proved of such a promise, or the fraction is too large.
    """
    if fraction > _MAX_FRACTION:
        raise SpecError(
            f"mechanism.tune: is {float(fraction):g}, a share of epsilon, and at most 1/2. Write "
            'tune = "0.02"'
        )
    measurement = components[0]
    single_density = len(components) == 1 and measurement.unsigned and measurement.binned
    if single_density and measurement.chooses:
        raise SpecError(
            "mechanism.tune: a promise for these data is proved for the kernels that it is counted "
            'with, and bandwidth = "auto" chooses them after the noise. Write numbers as its '
            'bandwidth, or tune = "0"'
        )
    num_axes = len(measurement.kernels)
    if not single_density or measurement.one_lattice or not 1 <= num_axes <= MOST_AXES:
        raise SpecError(
            f"mechanism.tune: a promise for these data is for one sum of kernels without signs on "
            f'up to {MOST_AXES} axes, and "{kind}" releases another. Write tune = "0", or kind = '
            '"kernel-density" with numbers as its bandwidth'
        )
    remaining = measurement.output_fraction * (1 - fraction)
    return (replace(measurement, output_fraction=remaining),)


@dataclass(frozen=True)
class BiasStatisticAccumulator(DerivedAccumulator):
    """Counts of finer bins that finish as T/W, the largest over their outputs."""

    outputs: int
    finer: FinerBins
    strategy: VectorStrategy

    @cached_property
    def errors(self) -> Errors:
        """Errors as fractions of W.

        *Floats*: of the bins, in the l1 norm, and of their contraction, and of a division.
        *Positions*: a derivative of ``sum_i g_i beta'_i`` is at most that of a bin times 2 max
        ``|g_i|``, which is counted in a bin's.
        """
        errors, finer = self.inner.errors, self.finer
        weight, size = finer.largest / finer.bound, errors.value_bound + errors.kernel_norms[0]
        floats = weight * errors.float_norms[0] + finer.contraction * size / finer.bound
        floats = OUTWARD * (floats + 4 * UNIT_ROUNDOFF * weight * size)
        moved = OUTWARD * weight * errors.kernel_norms[0]
        return Errors(
            kernel=moved,
            kernel_norms=(moved, moved),
            position=OUTWARD * weight * errors.position,
            floats=floats,
            float_norms=(floats, floats),
            value_bound=OUTWARD * 2 * weight * size,
        )

    @property
    def memory(self) -> Memory:
        """Memory of bins as floats, and values at nodes; the bins count their own batches too."""
        memory = self.inner.memory
        nodes = math.prod(len(basis) for basis, _ in self.finer.bases)
        size = self.finer.finer.layout.size
        return replace(memory, tables=memory.tables + 8 * (4 * size + 4 * min(nodes, 1 << 22)))

    def to_values(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Return T/W, one number."""
        del output, slab
        layout, largest = self.finer.finer.layout, 0.0
        for index in range(self.outputs):
            bins = [self.inner.to_values(state, index, bin_slab) for bin_slab in layout.slabs()]
            largest = max(largest, self.finer.largest_difference(np.concatenate(bins)))
        return np.array([largest / self.finer.bound])


@dataclass(frozen=True)
class BiasStatistic(Measurement):
    """T/W of the records that a measurement counts, for a fraction of the budget."""

    measurement: Measurement
    finer: FinerBins
    name: str = field(default=NAME, kw_only=True)
    entries = ("what these data make the bins miss, as a share of the most",)

    @property
    def function_sensitivity(self) -> float:
        """As of the finer bins, over W."""
        return self.measurement.sensitivity(self.finer.finer, 1).value

    def sensitivity(self, strategy: AnyStrategy, norm: int) -> Bound:
        """As of the finer bins, over W."""
        del strategy, norm
        bins = self.measurement.sensitivity(self.finer.finer, 1)
        return Bound(bins.value, "as the bins, over W")

    def params(self, strategy: AnyStrategy, n: int, tolerance: float) -> dict[str, Any]:
        """Choose integers of the finer bins."""
        del strategy
        return self.measurement.params(self.finer.finer, n, tolerance)

    def from_params(
        self, strategy: AnyStrategy, n: int, params: Mapping[str, Any]
    ) -> BiasStatisticAccumulator:
        """Return the finer bins, which finish as T/W."""
        bins, outputs = (
            self.measurement.from_params(self.finer.finer, n, params),
            self.measurement.outputs,
        )
        return BiasStatisticAccumulator(bins, outputs, self.finer, cast("VectorStrategy", strategy))


def restored(measurement: Measurement, number: Any, bins: Any) -> BiasStatistic:
    """Return the measurement of a planned number that tells of planned bins."""
    finer = FinerBins.of(measurement.kernels, bins.strategy, bins.h, tuple(number.promise["how"]))
    fraction = Fraction(number.promise["share"])
    domain = measurement.domain
    return BiasStatistic(
        measurement, finer, name=number.name, domain=domain, output_fraction=fraction
    )
