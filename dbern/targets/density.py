"""Kernel density estimation: ``F_D(y) = (1/n) sum_i K(y - d_i)``, K a product or a Gaussian.

Its sensitivities, also for densities by group, are proved in `dbern.components.sums`.
"""

from __future__ import annotations

from typing import ClassVar

from dbern.combination import Combination
from dbern.components.sums import KernelSum
from dbern.components.weighings import ALIKE, ByCategory
from dbern.domain import RecordSchema
from dbern.targets.bandwidths import Smoother


class KernelDensity(Smoother):
    """Density of the records over the axes, smoothed by a product kernel, or by any Gaussian.

    With ``[data.group]`` one density for each public group, all normalised by the public number of
    rows: a group's integrates to its share of the records.

    Parameters
    ----------
    bandwidth : sequence of float
        Per axis, in data units: standard deviation of a Gaussian, length scale of a Laplace or
        Matern kernel, half-width of a compact one.
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

    def components(self, schema: RecordSchema) -> tuple[KernelSum, ...]:
        """One: a density, or one for each group."""
        weighing = ByCategory(schema.group) if schema.group else ALIKE
        return (self.kernel_sum("density", schema.domain, weighing),)

    def combination(self, schema: RecordSchema) -> Combination:
        """One column for each group."""
        if schema.group is None:
            return Combination()
        return Combination("stack", schema.group.categories)
