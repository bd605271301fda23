"""The base of learners of kernel sums: a bandwidth or a covariance, and the sum by its kernel.

A full covariance H is released in oblique coordinates (`dbern.bernstein.oblique`), where its
density is a product over axes: sensitivities, noise, certificates and choices are those of product
kernels over the box of these coordinates. A value in data units is that in the box's unit cube
times ``1 / (volume of the domain x volume of the box)``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from dbern.data.domain import Axis, Domain
from dbern.errors import SpecError
from dbern.measure.kernel_sums import KernelSum
from dbern.measure.record_weights import RecordWeights
from dbern.targets.bandwidths import oblique_kernels, stated_kernels
from dbern.targets.learner import KernelName, Learner, Lengths

_Row = Annotated[tuple[Annotated[float, Field(allow_inf_nan=False)], ...], Field(strict=False)]
Covariance = Annotated[tuple[_Row, ...], Field(strict=False)]
"""Symmetric, in data units; TOML has it as a list of lists."""


class Smoother(Learner):
    """A learner of kernel sums over all axes, with a bandwidth for each or a covariance.

    Each learner documents its parameters, as each chooses "auto" in its own way.
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

    def kernel_sum(self, name: str, domain: Domain, record_weights: RecordWeights) -> KernelSum:
        """The sum of record weights over the domain, by the learner's kernel.

        Raises SpecError for a bandwidth or a covariance that does not fit the axes.
        """
        if not self.covariance:
            kernels = stated_kernels(domain, self.bandwidth, self.kernel)
            return KernelSum(name, domain, kernels, record_weights, domain.density_unit())
        oblique, kernels = oblique_kernels(domain, self.covariance)
        oblique_box = Domain(
            tuple(
                Axis(axis.name, axis.low + low * axis.width, axis.low + (low + width) * axis.width)
                for axis, low, width in zip(domain.axes, oblique.low, oblique.width, strict=True)
            )
        )
        unit = domain.density_unit(math.prod(oblique.width))
        return KernelSum(name, oblique_box, kernels, record_weights, unit, domain, oblique)
