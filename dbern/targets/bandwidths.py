"""Bandwidths of kernel sums: one an axis, or a full covariance of a Gaussian.

A full covariance H is released in oblique coordinates (`dbern.bernstein.oblique`), where its
density is a product over axes: sensitivities, noise, certificates and choices are those of product
kernels over the box of these coordinates. A value in data units is that in the box's unit cube
times ``1 / (volume of the domain x volume of the box)``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from dbern.bernstein.kernels import Kernel, kernel_of
from dbern.bernstein.oblique import Oblique, decorrelate
from dbern.counting.kernel_sums import KernelSum, RecordWeights
from dbern.counting.measurement import WHOLE, Measurement
from dbern.data.domain import Axis, Domain
from dbern.errors import SpecError
from dbern.targets.base import KernelName, Learner, Lengths

_NARROWEST, _WIDEST = 1e-4, 1e4
_FLAT = 10
_Row = Annotated[tuple[Annotated[float, Field(allow_inf_nan=False)], ...], Field(strict=False)]
Covariance = Annotated[tuple[_Row, ...], Field(strict=False)]
"""Symmetric, in data units; TOML has it as a list of lists."""


def axis_kernels(
    domain: Domain, bandwidth: Sequence[float], key: str, name: str = "gaussian"
) -> tuple[Kernel, ...]:
    """Axis kernels in unit-cube units; `key` names the bandwidth in ``[target]``.

    Raises
    ------
    SpecError
        For bandwidths that do not fit the axes.
    """
    if len(bandwidth) != domain.dimensions:
        raise SpecError(
            f"target.{key}: has {len(bandwidth)} entries for {domain.dimensions} "
            f"axes. Write one for each of {', '.join(domain.names)}"
        )
    shares = [b / axis.width for b, axis in zip(bandwidth, domain.axes, strict=True)]
    for share, axis in zip(shares, domain.axes, strict=True):
        if not _NARROWEST <= share <= _WIDEST:
            raise SpecError(
                f"target.{key}: must be from {_NARROWEST:g} to {_WIDEST:g} times the width of its "
                f"axis. Write one of {_NARROWEST * axis.width:g} to {_WIDEST * axis.width:g} for "
                f"{axis.name}{axis.counted}"
            )
    return tuple(kernel_of(name, share) for share in shares)


def unit_notes(domain: Domain, learner: Learner) -> tuple[str, ...]:
    """What to look at where a bandwidth is so wide that another unit was meant, most likely."""
    bandwidth = learner.get_params().get("bandwidth")
    if not isinstance(bandwidth, tuple):
        return ()
    return tuple(
        f"target.bandwidth: {b:g} is {b / axis.width:.0f} times the width of {axis.name}: next to "
        f"nothing is left of where records are; is it in that axis's unit{axis.counted}?"
        for b, axis in zip(bandwidth, domain.numbers, strict=False)
        if b > _FLAT * axis.width
    )


class Smoother(Learner):
    """A learner of kernel sums over all axes, with a bandwidth for each or a covariance.

    Parameters
    ----------
    bandwidth : sequence of float
        Per axis, in data units: standard deviation of a Gaussian, length scale of a Laplace or
        Matern kernel, half-width of a compact one.
    covariance : sequence of sequences of float
        Instead of it: the symmetric positive definite covariance of a Gaussian, in data units.
    kernel : str
        One of `dbern.bernstein.kernels.KERNELS`.
    """

    instead: ClassVar[Mapping[str, str]] = {"bandwidth": "covariance"}

    bandwidth: Lengths = Field(
        description="bandwidth = [0.5, 0.5], one standard deviation per axis in data units"
    )
    covariance: Covariance = Field(
        (), description="covariance = [[0.25, 0.1], [0.1, 0.25]] instead of bandwidth"
    )
    kernel: KernelName = Field("gaussian", description='kernel = "gaussian"')

    @model_validator(mode="before")
    @classmethod
    def _one_of_two(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("covariance"):
            if given.get("bandwidth"):
                raise SpecError("target.covariance: stands for bandwidth. Leave one of them out.")
            if given.get("kernel", "gaussian") != "gaussian":
                raise SpecError(
                    'target.kernel: a covariance is that of a Gaussian. Write kernel = "gaussian", '
                    "or bandwidth = [..] instead of covariance."
                )
            return {**given, "bandwidth": ()}
        return given

    def kernel_sum(
        self,
        name: str,
        domain: Domain,
        record_weights: RecordWeights,
        fraction: Fraction = WHOLE,
        counted_in: str | None = None,
    ) -> Measurement:
        """The sum of record weights over the domain, by the learner's kernel.

        `counted_in` is that of `KernelSum`.

        Raises
        ------
        SpecError
            For a bandwidth or a covariance that does not fit the axes.
        """
        if not self.covariance:
            kernels = axis_kernels(domain, self.bandwidth, "bandwidth", self.kernel)
            unit = 1 / domain.volume
            return KernelSum(
                name, domain, kernels, record_weights, unit, fraction, counted_in=counted_in
            )
        oblique, kernels = oblique_kernels(domain, self.covariance)
        box = Domain(
            tuple(
                Axis(axis.name, axis.low + low * axis.width, axis.low + (low + width) * axis.width)
                for axis, low, width in zip(domain.axes, oblique.low, oblique.width, strict=True)
            )
        )
        unit = 1 / (domain.volume * math.prod(oblique.width))
        return KernelSum(
            name, box, kernels, record_weights, unit, fraction, domain, oblique, counted_in
        )


def oblique_kernels(
    domain: Domain, covariance: Sequence[Sequence[float]]
) -> tuple[Oblique, tuple[Kernel, ...]]:
    """Oblique coordinates of a covariance in data units, and the axis kernels over their box.

    Raises
    ------
    SpecError
        For one of another size, not symmetric, not positive definite, or too narrow or wide.
    """
    axes = domain.dimensions
    if len(covariance) != axes or any(len(row) != axes for row in covariance):
        raise SpecError(
            f"target.covariance: must have {axes} rows of {axes} numbers, in the order "
            f"{', '.join(domain.names)}. Write covariance = [[0.25, 0.1], [0.1, 0.25]]"
        )
    if any(covariance[i][j] != covariance[j][i] for i in range(axes) for j in range(i)):
        raise SpecError(
            "target.covariance: is not symmetric. Write the same number at [i][j] and [j][i]"
        )
    widths = [Fraction(axis.width) for axis in domain.axes]
    unit = [
        [Fraction(entry) / (w * v) for entry, v in zip(row, widths, strict=True)]
        for row, w in zip(covariance, widths, strict=True)
    ]
    try:
        oblique, deviations = decorrelate(unit)
    except ValueError:
        raise SpecError(
            "target.covariance: is not positive definite. Write one whose correlations are "
            "possible, such as covariance = [[0.25, 0.1], [0.1, 0.25]]"
        ) from None
    if not all(_NARROWEST <= deviation <= _WIDEST for deviation in deviations):
        raise SpecError(
            "target.covariance: standard deviations, also of an axis given the others, must be "
            f"from {_NARROWEST:g} to {_WIDEST:g} times the width of the axis. Write a covariance "
            "nearer to the bounds' scale, or weaker correlations."
        )
    return oblique, tuple(kernel_of("gaussian", deviation) for deviation in deviations)
