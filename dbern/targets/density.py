"""Kernel density estimation: ``F_D(y) = (1/n) sum_i K(y - d_i)``, K a product of axis kernels.

Its sensitivities, also for densities by group, are proved in `dbern.targets.sums`.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from dbern.combination import Combination
from dbern.domain import RecordSchema
from dbern.targets.base import KernelName, Learner, Lengths
from dbern.targets.sums import KernelSum, axis_kernels
from dbern.targets.weighings import ALIKE, ByCategory


class KernelDensity(Learner):
    """Density of the records over the axes, smoothed by a product kernel.

    With ``[data.group]`` one density for each public group, all normalised by the public number of
    rows: a group's integrates to its share of the records.

    Parameters
    ----------
    bandwidth : sequence of float
        Per axis, in data units: standard deviation of a Gaussian, length scale of a Laplace or
        Matern kernel, half-width of a compact one.
    kernel : str
        One of `dbern.bernstein.kernels.KERNELS`.

    Raises
    ------
    SpecError
        For a bandwidth that is not positive and finite, or an unknown kernel.

    Examples
    --------
    >>> KernelDensity(bandwidth=(0.5, 0.5)).get_params()
    {'bandwidth': (0.5, 0.5), 'kernel': 'gaussian'}
    """

    kind: ClassVar[str] = "kernel-density"
    uses: ClassVar[tuple[str, ...]] = ("group",)

    bandwidth: Lengths = Field(
        description="bandwidth = [0.5, 0.5], one standard deviation per axis in data units"
    )
    kernel: KernelName = Field("gaussian", description='kernel = "gaussian"')

    def components(self, schema: RecordSchema) -> tuple[KernelSum, ...]:
        """One: a density, or one for each group."""
        domain = schema.domain
        kernels = axis_kernels(domain, self.bandwidth, "bandwidth", self.kernel)
        weighing = ByCategory(schema.group) if schema.group else ALIKE
        return (KernelSum("density", domain, kernels, weighing, unit=1 / domain.volume),)

    def combination(self, schema: RecordSchema) -> Combination:
        """One column for each group."""
        if schema.group is None:
            return Combination()
        return Combination("stack", schema.group.categories)
