"""Kernel density estimation: ``F_D(y) = (1/n) sum_i K(y - d_i)``, K a product or a Gaussian.

Its sensitivities, also for densities by group, are proved in `dbern.measure.kernel_sums`. The
kernel and its widths are those of a `Smoother`; of a density the released bins may choose them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from dbern.bernstein.kernels import WIDEST, Edges, with_edges
from dbern.combination.base import Combination
from dbern.combination.functions import Identity, Stack
from dbern.data.domain import Domain, RecordSchema
from dbern.errors import SpecError
from dbern.measure.kernel_sums import KernelSum
from dbern.measure.record_weights import UNIT_WEIGHT, ByCategory, RecordWeights
from dbern.measure.statistic import Statistic
from dbern.privacy.budget import Budget
from dbern.targets.bandwidths import equal_kernels, finest_deviation, lengths_of, rounded_kernels
from dbern.targets.smoother import Smoother

_SMOOTHEST = 0.3  # of an axis: wider kernels lose more rows beyond the bounds than they save noise
_FINEST = {1: 0.006, 2: 0.01, 3: 0.03}  # what a lattice and bins of memory's size resolve


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
    edges : "natural", "normalized" or "periodic", or a sequence of them, optional
        Of all axes or of each. "natural", the default: kernels reach over the bounds, and where
        rows are as dense there as inside the density falls to a half. "normalized": it is divided
        by the part of a kernel that lies within the bounds, so that an even spread is even; errors
        at the bounds double. "periodic": the bounds are one period, as of hours and angles.

    Raises
    ------
    SpecError
        For a bandwidth that is not positive and finite, an unknown kernel, or both a bandwidth and
        a covariance.

    Examples
    --------
    >>> KernelDensity(bandwidth=(0.5, 0.5)).get_params()
    {'bandwidth': (0.5, 0.5), 'covariance': (), 'kernel': 'gaussian', 'edges': None}
    """

    kind: ClassVar[str] = "kernel-density"
    uses: ClassVar[tuple[str, ...]] = ("group",)

    edges: Edges | Annotated[tuple[Edges, ...], Field(strict=False)] | None = Field(
        None,
        description='edges = "normalized" or "periodic", or a list of one for each axis; '
        'left out it is "natural"',
    )

    def components(self, schema: RecordSchema) -> tuple[Statistic, ...]:
        """One: a density, or one for each group."""
        record_weights = ByCategory(schema.group) if schema.group else UNIT_WEIGHT
        if self.bandwidth == "auto":
            return (self.chosen_sum("density", schema.domain, record_weights),)
        density = self.kernel_sum("density", schema.domain, record_weights)
        edges = self._edges(schema.domain)
        if self.covariance and {*edges} != {"natural"}:
            raise SpecError(
                "target.edges: the bounds cut a kernel of a full covariance aslant. Leave it out, "
                "or write bandwidth = [..] instead of covariance"
            )
        for kernel, edge, axis in zip(density.kernels, edges, schema.domain.axes, strict=True):
            if edge == "periodic" and kernel.deviation > WIDEST:
                # Less by more than its three digits are off: what is written is taken.
                widest = 0.99 * WIDEST / kernel.deviation * kernel.bandwidth * axis.width
                raise SpecError(
                    "target.edges: next to nothing is left of a period under so wide a kernel. "
                    f"Write a bandwidth of {widest:.3g} or less for {axis.name}"
                )
        return (replace(density, kernels=with_edges(density.kernels, edges)),)

    def _edges(self, domain: Domain) -> tuple[Edges, ...]:
        """Return the edges of each axis."""
        if isinstance(self.edges, tuple):
            if len(self.edges) != domain.dimensions:
                raise SpecError(
                    f"target.edges: has {len(self.edges)} entries for {domain.dimensions} axes. "
                    f"Write one for each of {', '.join(domain.names)}, or one text"
                )
            return self.edges
        return (self.edges or "natural",) * domain.dimensions

    def combination(self, schema: RecordSchema) -> Combination:
        """One column for each group."""
        return Identity() if schema.group is None else Stack(schema.group.categories)

    def chosen_sum(self, name: str, domain: Domain, record_weights: RecordWeights) -> Statistic:
        """The sum whose bandwidth the released bins choose, a common share of every axis.

        Bins count rows whatever the kernel, so nothing is inferred from them before the release:
        candidates follow from the public n, epsilon and axes (`_finest_bandwidth`).

        Raises SpecError for more than three axes.
        """
        if domain.dimensions not in _FINEST:
            raise SpecError(
                f'target.bandwidth: "auto" is for one to {max(_FINEST)} axes, not '
                f"{domain.dimensions}. Write one number for each axis"
            )
        unit, kernels = domain.density_unit(), equal_kernels(self.kernel, domain, _SMOOTHEST)
        kernels = with_edges(kernels, self._edges(domain))
        return ChosenSum(name, domain, kernels, record_weights, unit, kernel=self.kernel)


_STEP = 1.3  # from a bandwidth to the next: the best is missed by 14 % at most


@dataclass(frozen=True)
class ChosenSum(KernelSum):
    """A sum of which the released bins choose the bandwidth, before its candidates are known."""

    kernel: str = field(default="gaussian", kw_only=True)
    chooses = True

    def bind(self, n: int, charge: Budget) -> KernelSum:
        """Return the sum of the narrowest candidate, with all of them."""
        domain = self.domain
        finest = max(
            _finest_bandwidth(n, float(charge.epsilon), domain.dimensions),
            min(map(finest_deviation, domain.axes)),
        )
        edges = tuple(kernel.edges for kernel in self.kernels)
        smoothest = WIDEST if "periodic" in edges else _SMOOTHEST
        finest = min(finest, smoothest / 2)
        count = 1 + math.ceil(math.log(smoothest / finest) / math.log(_STEP))
        candidates = tuple(
            KernelSum(
                self.name, domain,
                with_edges(rounded_kernels(self.kernel, domain, deviation), edges),
                self.record_weights, self.unit, choices=count, protection=self.protection,
            )
            for deviation in np.geomspace(finest, smoothest, count).tolist()
        )  # fmt: skip
        lengths = [
            " x ".join(f"{b:.3g}" for b in lengths_of(candidate.kernels, domain))
            for candidate in (candidates[0], candidates[-1])
        ]
        note = f"the released bins choose a bandwidth, for free: one of {count} from " + (
            " to ".join(lengths) + "; certificate and bands hold for whichever it is"
        )
        return replace(candidates[0], candidates=candidates, notes=(note,))


_KERNEL_ROWS, _DETAIL = 30.0, 0.035


def _finest_bandwidth(n: int, epsilon: float, axes: int) -> float:
    """Narrowest bandwidth worth a choice, as a standard deviation relative to an axis.

    Bins that are finer than a bandwidth b needs multiply its noise by ``(b / b_0)^(l/2)``, b_0 the
    bandwidth that they are for. This noise is small beside the sampling error where a kernel of
    b_0 holds `_KERNEL_ROWS` ``/ epsilon^2`` evenly spread rows. With fewer rows b_0 is the best for
    a density that varies by its size over `_DETAIL` of an axis: the least sum of squares of its
    bias, ``l b^2 / 2 _DETAIL^2``, and of the noise, ``(8 / (n epsilon)^2) (.42 / b^2)^l``.
    """
    many_rows = (_KERNEL_ROWS / (n * epsilon**2)) ** (1 / axes)
    least_squares = 16 * _DETAIL**4 * 0.42**axes / (axes * (n * epsilon) ** 2)
    best = min(many_rows, least_squares ** (1 / (2 * axes + 4)), _SMOOTHEST / 2)
    return float(max(best, _FINEST[axes]))
