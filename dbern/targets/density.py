"""Kernel density estimation: ``F_D(y) = (1/n) sum_i K(y - d_i)``, K a product or a Gaussian.

Its sensitivities, also for densities by group, are proved in `dbern.measure.kernel_sums`.
"""

from __future__ import annotations

from typing import ClassVar

from dbern.combination.base import Combination
from dbern.combination.functions import Identity, Stack
from dbern.data.domain import RecordSchema
from dbern.measure.measurement import Measurement
from dbern.measure.record_weights import UNIT_WEIGHT, ByCategory
from dbern.targets.smoother import Smoother


class KernelDensity(Smoother):
    """Density of the records over the axes, smoothed by a product kernel, or by any Gaussian.

    With ``[data.group]`` one density for each public group, all normalised by the public number of
    rows: a group's integrates to its share of the records.

    Parameters
    ----------
    bandwidth : sequence of float, or "auto"
        Per axis, in data units: standard deviation of a Gaussian, length scale of a Laplace or
        Matern kernel, half-width of a compact one. "auto": one that the released bins choose.
    covariance : sequence of sequences of float
        Instead of it: the covariance of a Gaussian, symmetric and positive definite.
    kernel : str
        One of `dbern.bernstein.kernels.KERNELS`.

    Raises
    ------
    SpecError
        For a bandwidth that is not positive and finite, an unknown kernel, or both a bandwidth and
        a covariance.

    Examples
    --------
    >>> KernelDensity(bandwidth=(0.5, 0.5)).get_params()
    {'bandwidth': (0.5, 0.5), 'covariance': (), 'kernel': 'gaussian'}
    """

    kind: ClassVar[str] = "kernel-density"
    uses: ClassVar[tuple[str, ...]] = ("group",)

    def components(self, schema: RecordSchema) -> tuple[Measurement, ...]:
        """One: a density, or one for each group."""
        record_weights = ByCategory(schema.group) if schema.group else UNIT_WEIGHT
        if self.bandwidth == "auto":
            return (self.chosen_sum("density", schema.domain, record_weights),)
        return (self.kernel_sum("density", schema.domain, record_weights),)

    def combination(self, schema: RecordSchema) -> Combination:
        """One column for each group."""
        return Identity() if schema.group is None else Stack(schema.group.categories)
