"""Kernel density estimation: ``F_D(y) = (1/n) sum_i K(y - d_i)``, K a product or a Gaussian.

Its sensitivities, also for densities by group, are proved in `dbern.measure.kernel_sums`. A
`Smoother` is what all learners of kernel sums share: a bandwidth or covariance, and a bandwidth
that bins choose.

A full covariance H is released in oblique coordinates (`dbern.bernstein.oblique`), where its
density is a product over axes: sensitivities, noise, certificates and choices are those of product
kernels over the box of these coordinates. A value in data units is that in the box's unit cube
times ``1 / (volume of the domain x volume of the box)``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from dbern.combination.base import Combination
from dbern.combination.functions import Identity, Stack
from dbern.data.domain import Axis, Domain, RecordSchema
from dbern.errors import SpecError
from dbern.measure.kernel_sums import KernelSum
from dbern.measure.record_weights import UNIT_WEIGHT, ByCategory, RecordWeights
from dbern.measure.statistic import WHOLE, Statistic
from dbern.privacy.budget import Budget
from dbern.targets.bandwidths import (
    equal_kernels,
    finest_deviation,
    lengths_of,
    oblique_kernels,
    rounded_kernels,
    stated_kernels,
)
from dbern.targets.learner import KernelName, Learner, Lengths

_FREE, _DETAIL = 30.0, 0.035
_SMOOTHEST = 0.4  # of an axis: with a wider kernel next to nothing is left of where rows are
_FINEST = {1: 0.006, 2: 0.01, 3: 0.03}  # what a lattice and bins of memory's size resolve
_STEP = 1.3  # from a bandwidth to the next: the best is missed by 14 % at most
_Row = Annotated[tuple[Annotated[float, Field(allow_inf_nan=False)], ...], Field(strict=False)]
Covariance = Annotated[tuple[_Row, ...], Field(strict=False)]
"""Symmetric, in data units; TOML has it as a list of lists."""


class Smoother(Learner):
    """A learner of kernel sums over all axes, with a bandwidth for each or a covariance.

    Parameters
    ----------
    bandwidth : sequence of float, or "auto"
        Per axis, in data units: standard deviation of a Gaussian, length scale of a Laplace or
        Matern kernel, half-width of a compact one. "auto": of a density what the released bins
        choose, of a regression what follows from rows, epsilon and axes.
    covariance : sequence of sequences of float
        Instead of it: the symmetric positive definite covariance of a Gaussian, in data units.
    kernel : str
        One of `dbern.bernstein.kernels.KERNELS`.
    """

    instead: ClassVar[Mapping[str, str]] = {"bandwidth": "covariance"}

    bandwidth: Lengths | Literal["auto"] = Field(
        description="bandwidth = [0.5, 0.5], one standard deviation per axis in data units"
    )
    covariance: Covariance = Field(
        (), description="covariance = [[0.25, 0.1], [0.1, 0.25]] instead of bandwidth"
    )
    kernel: KernelName = Field("gaussian", description='kernel = "gaussian"')

    @model_validator(mode="before")
    @classmethod
    def _check_covariance(cls, parameters: Any) -> Any:
        if isinstance(parameters, Mapping) and parameters.get("covariance"):
            if parameters.get("bandwidth"):
                raise SpecError("target.covariance: stands for bandwidth. Leave one of them out.")
            if parameters.get("kernel", "gaussian") != "gaussian":
                raise SpecError(
                    'target.kernel: a covariance is that of a Gaussian. Write kernel = "gaussian", '
                    "or bandwidth = [..] instead of covariance."
                )
            return {**parameters, "bandwidth": ()}
        return parameters

    def kernel_sum(
        self,
        name: str,
        domain: Domain,
        record_weights: RecordWeights,
        fraction: Fraction = WHOLE,
        counted_in: str | None = None,
    ) -> KernelSum:
        """The sum of record weights over the domain, by the learner's kernel.

        `counted_in` is that of `KernelSum`.

        Raises SpecError for a bandwidth or a covariance that does not fit the axes.
        """
        if not self.covariance:
            kernels = stated_kernels(domain, self.bandwidth, self.kernel)
            unit = domain.density_unit()
            return KernelSum(
                name, domain, kernels, record_weights, unit,
                counted_in=counted_in, output_fraction=fraction,
            )  # fmt: skip
        oblique, kernels = oblique_kernels(domain, self.covariance)
        oblique_box = Domain(
            tuple(
                Axis(axis.name, axis.low + low * axis.width, axis.low + (low + width) * axis.width)
                for axis, low, width in zip(domain.axes, oblique.low, oblique.width, strict=True)
            )
        )
        unit = domain.density_unit(math.prod(oblique.width))
        return KernelSum(
            name, oblique_box, kernels, record_weights, unit, domain, oblique, counted_in,
            output_fraction=fraction,
        )  # fmt: skip

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
        return ChosenSum(name, domain, kernels, record_weights, unit, kernel=self.kernel)


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
        count = 1 + math.ceil(math.log(_SMOOTHEST / finest) / math.log(_STEP))
        candidates = tuple(
            KernelSum(
                self.name, domain, rounded_kernels(self.kernel, domain, deviation),
                self.record_weights, self.unit, choices=count, protection=self.protection,
            )
            for deviation in np.geomspace(finest, _SMOOTHEST, count).tolist()
        )  # fmt: skip
        lengths = [
            " x ".join(f"{b:.3g}" for b in lengths_of(candidate.kernels, domain))
            for candidate in (candidates[0], candidates[-1])
        ]
        note = f"the released bins choose a bandwidth, for free: one of {count} from " + (
            " to ".join(lengths) + "; certificate and bands hold for whichever it is"
        )
        return replace(candidates[0], candidates=candidates, notes=(note,))


def _finest_bandwidth(n: int, epsilon: float, axes: int) -> float:
    """Narrowest bandwidth worth a choice, as a standard deviation relative to an axis.

    Bins that are finer than a bandwidth b needs multiply its noise by ``(b / b_0)^(l/2)``, b_0 the
    bandwidth that they are for. That is noise beside what rows say in any case where a kernel of
    b_0 holds `_FREE` ``/ epsilon^2`` of evenly spread rows. With fewer rows b_0 is the best for a
    density that varies by its size over `_DETAIL` of an axis: the least sum of squares of its bias,
    ``l b^2 / 2 _DETAIL^2``, and of the noise, ``(8 / (n epsilon)^2) (.42 / b^2)^l``.
    """
    free = (_FREE / (n * epsilon**2)) ** (1 / axes)
    noisy = 16 * _DETAIL**4 * 0.42**axes / (axes * (n * epsilon) ** 2)
    best = min(free, noisy ** (1 / (2 * axes + 4)), _SMOOTHEST / 2)
    return float(max(best, _FINEST[axes]))


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

    def components(self, schema: RecordSchema) -> tuple[Statistic, ...]:
        """One: a density, or one for each group."""
        record_weights = ByCategory(schema.group) if schema.group else UNIT_WEIGHT
        if self.bandwidth == "auto":
            return (self.chosen_sum("density", schema.domain, record_weights),)
        return (self.kernel_sum("density", schema.domain, record_weights),)

    def combination(self, schema: RecordSchema) -> Combination:
        """One column for each group."""
        return Identity() if schema.group is None else Stack(schema.group.categories)
