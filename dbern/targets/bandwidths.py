"""Bandwidths of kernel sums: stated ones, and those that follow from public numbers alone.

A stated bandwidth is one an axis, or a full covariance of a Gaussian, in data units.

*Regressions and naive Bayes.* Released bins tell which bandwidth fits the rows, but not which fits
their responses or classes: there "auto" is a rule of public numbers. A kernel's standard deviation
is the same share b of every axis. A regression is blurred by ``b^2``, and noise is to the rows that
a value rests on as ``1 / (m b^l)``, for l axes and m rows times epsilon: the sum is least where
``b^(l + 2)`` is in proportion to ``1 / m``. From epsilon 3 on what rows differ by is left, whatever
the noise: m grows no further than to three times the rows. The factor ``.05 1.8^l`` and the bounds
are those of the least mean logarithm of errors on generated and real columns: ``make widths``.

Naive Bayes has sums of each class and axis, and the axes share epsilon: m counts the rows of an
equal class, divided by the axes. Bounds are mostly wider than where classes differ, and there a
wide kernel hides it, however small the noise. So ``b^2`` is ``.4 / m``, narrower than densities
want that are smooth over the bounds: these lose little by it, and those within a part of the bounds
gain much. ``make widths`` has both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from dbern.bernstein.kernels import Kernel, kernel_of
from dbern.bernstein.oblique import Oblique, decorrelate
from dbern.data.domain import Axis, Domain
from dbern.errors import SpecError
from dbern.targets.learner import Learner

_NARROWEST, _WIDEST = 1e-4, 1e4
_ROUNDING = 1e-9  # of a width: what is written as the least is taken, however it is rounded
_FLAT_WIDTHS = 10
_FINEST_STEPS, _FINEST_OF_FEW_STEPS = 2.0, 0.2  # of an axis
_MAX_EPSILON_PER_ROW = 3.0
_REGRESSION_FACTOR, _FACTOR_PER_AXIS = 0.05, 1.8
_MAX_DEVIATION = 0.4
_MIN_DEVIATIONS = {1: 0.015, 2: 0.015, 3: 0.03, 4: 0.06, 5: 0.1, 6: 0.15, 7: 0.25, 8: 0.3}
"""Deviation that polynomials and bins of memory's size resolve, by the number of axes."""
_CLASS_FACTOR = 0.4
_MIN_CLASS_DEVIATION, _MAX_CLASS_DEVIATION = 0.015, 0.1
PLACEHOLDER_DEVIATION = 0.1
"""What a spec is read with before the number of rows is known."""


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
    widths = [b / axis.width for b, axis in zip(bandwidth, domain.axes, strict=True)]
    for width, axis in zip(widths, domain.axes, strict=True):
        if not _NARROWEST * (1 - _ROUNDING) <= width <= _WIDEST * (1 + _ROUNDING):
            raise SpecError(
                f"target.{key}: must be from {_NARROWEST:g} to {_WIDEST:g} times the width of its "
                f"axis. Write one of {_NARROWEST * axis.width:g} to {_WIDEST * axis.width:g} for "
                f"{axis.name}{axis.unit_suffix}"
            )
    return tuple(kernel_of(name, width) for width in widths)


def lengths_of(kernels: Sequence[Kernel], domain: Domain) -> list[float]:
    """Bandwidths of the kernels in data units."""
    return [
        kernel.bandwidth * axis.width for kernel, axis in zip(kernels, domain.axes, strict=True)
    ]


def unit_notes(domain: Domain, learner: Learner) -> tuple[str, ...]:
    """Warning where a bandwidth is so wide that another unit was meant, most likely."""
    bandwidth = learner.get_params().get("bandwidth")
    if not isinstance(bandwidth, tuple):
        return ()
    return tuple(
        f"target.bandwidth: {b:g} is {b / axis.width:.0f} times the width of {axis.name}: next to "
        f"nothing is left of where records are; is it in that axis's unit{axis.unit_suffix}?"
        for b, axis in zip(bandwidth, domain.numeric, strict=False)
        if b > _FLAT_WIDTHS * axis.width
    )


def _equal_lengths(name: str, domain: Domain, deviation: float) -> tuple[float, ...]:
    """Bandwidths, in data units, of kernels whose deviation is one fraction of every axis."""
    bandwidth = deviation / kernel_of(name, 1.0).deviation
    return tuple(bandwidth * axis.width for axis in domain.axes)


def readable_lengths(name: str, domain: Domain, deviation: float) -> tuple[float, ...]:
    """Bandwidths of such kernels, to three digits, as a synopsis states them.

    Of an axis that is rounded they have a third of a step at least: between two values narrower
    ones would know of no row.
    """
    lengths = zip(_equal_lengths(name, domain, deviation), domain.axes, strict=True)
    return tuple(
        float(f"{length * max(1.0, _third_of_step(axis) / deviation):.3g}")
        for length, axis in lengths
    )


def _third_of_step(axis: Axis) -> float:
    return 0.0 if axis.multiples is None else 1 / (3 * axis.multiples.count)


def equal_kernels(name: str, domain: Domain, deviation: float) -> tuple[Kernel, ...]:
    """Kernels whose deviation is the same fraction of every axis."""
    return axis_kernels(domain, _equal_lengths(name, domain, deviation), "bandwidth", name)


def rounded_kernels(name: str, domain: Domain, deviation: float) -> tuple[Kernel, ...]:
    """Kernels of such a deviation, or on an axis that is rounded of `finest_deviation` at least."""
    unit_deviation = kernel_of(name, 1.0).deviation
    lengths = [
        max(deviation, finest_deviation(axis)) / unit_deviation * axis.width for axis in domain.axes
    ]
    return axis_kernels(domain, lengths, "bandwidth", name)


def finest_deviation(axis: Axis) -> float:
    """Return the deviation, as a share of an axis, of two of the steps that it is rounded to, or 0.

    Narrower kernels show the steps, and not where rows are more; and of so wide ones bins with one
    for each value, which shares want, have the two cells a deviation that a density wants.
    """
    if axis.multiples is None:
        return 0.0
    return min(_FINEST_STEPS / axis.multiples.count, _FINEST_OF_FEW_STEPS)


def stated_kernels(
    domain: Domain, bandwidth: Sequence[float] | Literal["auto"], name: str
) -> tuple[Kernel, ...]:
    """Kernels of a bandwidth, or those that a spec is read with before it is chosen."""
    if bandwidth == "auto":
        return equal_kernels(name, domain, PLACEHOLDER_DEVIATION)
    return axis_kernels(domain, bandwidth, "bandwidth", name)


def oblique_kernels(
    domain: Domain, covariance: Sequence[Sequence[float]]
) -> tuple[Oblique, tuple[Kernel, ...]]:
    """Oblique coordinates of a covariance in data units, and the axis kernels over their box.

    Raises SpecError for a covariance of another size, not symmetric, not positive definite, too
    narrow or too wide.
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


def regression_deviation(rows: float, epsilon: float, axes: int) -> float:
    """Return the standard deviation of a regression's kernels, as a share of each axis."""
    factor = _REGRESSION_FACTOR * math.pow(_FACTOR_PER_AXIS, axes) / _effective_rows(rows, epsilon)
    return min(max(math.pow(factor, 1 / (axes + 2)), _MIN_DEVIATIONS[axes]), _MAX_DEVIATION)


def class_deviation(rows: float, epsilon: float, axes: int) -> float:
    """Return the standard deviation of naive Bayes's kernels, for so many rows of each class."""
    deviation = math.sqrt(_CLASS_FACTOR * axes / _effective_rows(rows, epsilon))
    return min(max(deviation, _MIN_CLASS_DEVIATION), _MAX_CLASS_DEVIATION)


def _effective_rows(rows: float, epsilon: float) -> float:
    return rows * epsilon / (1 + epsilon / _MAX_EPSILON_PER_ROW)


def bandwidth_note(bandwidth: Sequence[float] | Literal["auto"]) -> tuple[str, ...]:
    """Return the text of a bandwidth as a spec has it, where there is one."""
    if bandwidth == "auto" or not bandwidth:
        return ()
    return (f"bandwidth = [{', '.join(f'{length:g}' for length in bandwidth)}]",)
