"""Kernel densities, Nadaraya-Watson regression, and the bandwidths of all kernel sums.

Kernel density estimation: ``F_D(y) = (1/n) sum_i K(y - d_i)``, K a product or a Gaussian.

Its sensitivities, also for densities by group, are proved in `dbern.measure.kernel_sums`.

Nadaraya-Watson regression: a weighted mean of the responses near a point.

``F(y) = sum_i l_i K(y - d_i) / sum_i K(y - d_i)``, from two released sums over n: of responses,
centred and scaled to [-1, 1], and of ones. Their sensitivities are proved in
`dbern.measure.kernel_sums`; each takes half of the budget, which for Laplace noise is the joint
calibration: both move by at most ``2 max_t sum_v K / n``. The quotient is post-processing, cut to
the public range.

Bandwidths are one an axis, or a full covariance of a Gaussian.

A full covariance H is released in oblique coordinates (`dbern.bernstein.oblique`), where its
density is a product over axes: sensitivities, noise, certificates and choices are those of product
kernels over the box of these coordinates. A value in data units is that in the box's unit cube
times ``1 / (volume of the domain x volume of the box)``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from dbern.bernstein.kernels import Kernel, kernel_of
from dbern.bernstein.oblique import Oblique, decorrelate
from dbern.combination.base import Combination
from dbern.combination.functions import Identity, Stack
from dbern.combination.responses import Quotient, Quotients, pull_scale
from dbern.data.domain import Axis, Domain, RecordSchema
from dbern.errors import SpecError
from dbern.measure.kernel_sums import KernelSum
from dbern.measure.measurement import WHOLE, Measurement
from dbern.measure.record_weights import (
    UNIT_WEIGHT,
    ByCategory,
    HasResponse,
    InGroups,
    RecordWeights,
    ResponseWeight,
)
from dbern.privacy.budget import Budget
from dbern.targets.base import DesignedMeasurement, KernelName, Learner, Lengths, response_of
from dbern.targets.predicted_functions import Function, predicted_sums
from dbern.targets.public_bandwidths import (
    BEFORE_ROWS,
    readable_lengths,
    regression_share,
    told_bandwidth,
)
from dbern.targets.typical import TypicalResponses

# --- Bandwidths of kernel sums


_NARROWEST, _WIDEST = 1e-4, 1e4
_EXACTLY = 1e-9  # of a share: what is written as the least is taken, however it is rounded
_FLAT = 10
_FREE, _DETAIL = 30.0, 0.035
_SMOOTHEST = 0.4  # of an axis: with a wider kernel next to nothing is left of where rows are
_FINEST = {1: 0.006, 2: 0.01, 3: 0.03}  # what a lattice and bins of memory's size resolve
_STEP = 1.3  # from a bandwidth to the next: the best is missed by 14 % at most
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
        if not _NARROWEST * (1 - _EXACTLY) <= share <= _WIDEST * (1 + _EXACTLY):
            raise SpecError(
                f"target.{key}: must be from {_NARROWEST:g} to {_WIDEST:g} times the width of its "
                f"axis. Write one of {_NARROWEST * axis.width:g} to {_WIDEST * axis.width:g} for "
                f"{axis.name}{axis.counted}"
            )
    return tuple(kernel_of(name, share) for share in shares)


def lengths_of(kernels: Sequence[Kernel], domain: Domain) -> list[float]:
    """Bandwidths of the kernels in data units."""
    return [one.bandwidth * axis.width for one, axis in zip(kernels, domain.axes, strict=True)]


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


def unit_notes(domain: Domain, learner: Learner) -> tuple[str, ...]:
    """Warning where a bandwidth is so wide that another unit was meant, most likely."""
    bandwidth = learner.get_params().get("bandwidth")
    if not isinstance(bandwidth, tuple):
        return ()
    return tuple(
        f"target.bandwidth: {b:g} is {b / axis.width:.0f} times the width of {axis.name}: next to "
        f"nothing is left of where records are; is it in that axis's unit{axis.counted}?"
        for b, axis in zip(bandwidth, domain.numeric, strict=False)
        if b > _FLAT * axis.width
    )


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
        oblique, kernels = _oblique_kernels(domain, self.covariance)
        box = Domain(
            tuple(
                Axis(axis.name, axis.low + low * axis.width, axis.low + (low + width) * axis.width)
                for axis, low, width in zip(domain.axes, oblique.low, oblique.width, strict=True)
            )
        )
        unit = domain.density_unit(math.prod(oblique.width))
        return KernelSum(
            name, box, kernels, record_weights, unit, domain, oblique, counted_in,
            output_fraction=fraction,
        )  # fmt: skip

    def chosen_sum(self, name: str, domain: Domain, record_weights: RecordWeights) -> Measurement:
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
        unit, kernels = domain.density_unit(), _equal_kernels(self.kernel, domain, _SMOOTHEST)
        return ChosenSum(name, domain, kernels, record_weights, unit, kernel=self.kernel)


@dataclass(frozen=True)
class ChosenSum(KernelSum):
    """A sum of which the released bins choose the bandwidth, before its candidates are known."""

    kernel: str = field(default="gaussian", kw_only=True)
    chooses = True

    def bind(self, n: int, charge: Budget) -> KernelSum:
        """Return the sum of the narrowest candidate, with all of them."""
        domain = self.domain
        finest = _finest_bandwidth(n, float(charge.epsilon), domain.dimensions)
        count = 1 + math.ceil(math.log(_SMOOTHEST / finest) / math.log(_STEP))
        candidates = tuple(
            KernelSum(
                self.name, domain, _equal_kernels(self.kernel, domain, share),
                self.record_weights, self.unit, choices=count, protection=self.protection,
            )
            for share in np.geomspace(finest, _SMOOTHEST, count).tolist()
        )  # fmt: skip
        lengths = [
            " x ".join(f"{b:.3g}" for b in lengths_of(candidate.kernels, domain))
            for candidate in (candidates[0], candidates[-1])
        ]
        note = f"the released bins choose a bandwidth, for free: one of {count} from " + (
            " to ".join(lengths) + "; certificate and bands hold for whichever it is"
        )
        return replace(candidates[0], candidates=candidates, notes=(note,))


def _equal_kernels(name: str, domain: Domain, deviation: float) -> tuple[Kernel, ...]:
    """Kernels whose deviation is the same fraction of every axis."""
    return axis_kernels(domain, equal_lengths(name, domain, deviation), "bandwidth", name)


def equal_lengths(name: str, domain: Domain, deviation: float) -> tuple[float, ...]:
    """Bandwidths, in data units, of kernels whose deviation is one fraction of every axis."""
    bandwidth = deviation / kernel_of(name, 1.0).deviation
    return tuple(bandwidth * axis.width for axis in domain.axes)


def stated_kernels(
    domain: Domain, bandwidth: Sequence[float] | Literal["auto"], name: str
) -> tuple[Kernel, ...]:
    """Kernels of a bandwidth, or those that a spec is read with before it is chosen."""
    if bandwidth == "auto":
        return _equal_kernels(name, domain, BEFORE_ROWS)
    return axis_kernels(domain, bandwidth, "bandwidth", name)


def _oblique_kernels(
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


# --- Kernel density estimation


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


# --- Nadaraya-Watson regression

_HALF = Fraction(1, 2)


class NadarayaWatson(Smoother):
    """Regression of a bounded response on the axes.

    With ``[data.group]`` one regression for each public group, of its own records: groups share no
    record, so all are released for what one costs.

    Parameters
    ----------
    bandwidth : sequence of float, or "auto"
        Per axis, in data units: standard deviation of the Gaussian, length scale of Laplace and
        Matern kernels, half-width of compact ones. "auto": by the public number of rows, epsilon
        and the number of axes, as `dbern.targets.public_bandwidths` says.
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
    >>> NadarayaWatson(bandwidth=[0.5]).get_params()
    {'bandwidth': (0.5,), 'covariance': (), 'kernel': 'gaussian'}
    """

    kind: ClassVar[str] = "nadaraya-watson"
    chooses: ClassVar[bool] = True
    uses: ClassVar[tuple[str, ...]] = ("response", "group")

    def components(self, schema: RecordSchema) -> tuple[Measurement, ...]:
        """The sum of responses and the density of the records that have one; of each group."""
        response, domain, group = response_of(schema), schema.domain, schema.group
        by_response: RecordWeights = ResponseWeight(response)
        present: RecordWeights = HasResponse(response)
        if group is not None:
            by_response, present = InGroups(group, by_response), InGroups(group, present)
        return (
            self.kernel_sum("numerator", domain, by_response, _HALF, "denominator"),
            self.kernel_sum("denominator", domain, present, _HALF),
        )

    def for_rows(self, schema: RecordSchema, n: int, charge: Budget) -> NadarayaWatson:
        """Return it with its bandwidth; groups are taken to be as large as one another."""
        if self.bandwidth != "auto":
            return self
        domain, groups = schema.domain, len(schema.group.categories) if schema.group else 1
        share = regression_share(n / groups, float(charge.epsilon), domain.dimensions)
        lengths = readable_lengths(equal_lengths(self.kernel, domain, share))
        return NadarayaWatson(**self.get_params() | {"bandwidth": lengths})

    def notes(self, n: int) -> tuple[str, ...]:
        """The bandwidth, which may have been chosen."""
        del n
        return told_bandwidth(self.bandwidth)

    def combination(self, schema: RecordSchema) -> Combination:
        """The quotient, in units of the response, or one for each group."""
        response = response_of(schema)
        low, high = response.low, response.high
        if schema.group is None:
            return Quotient(low=low, high=high)
        return Quotients(low=low, high=high, classes=schema.group.categories)

    def predictions(
        self, schema: RecordSchema, n: int, designs: Sequence[DesignedMeasurement]
    ) -> tuple[str, ...]:
        """Predict the excess risk on typical records, beside a constant's."""
        del n
        typical = TypicalResponses(schema.domain.dimensions, (), response_of(schema).radius)
        groups = len(schema.group.categories) if schema.group else 1  # as large as one another
        weights = np.column_stack([typical.wanted, np.ones(typical.count)]) / groups
        predicted = predicted_sums(typical, designs, weights.repeat(groups, axis=1))
        sums, variance, exact = (columns[:, ::groups] for columns in predicted)
        plain = np.clip(exact[:, :1] / exact[:, 1:], -1, 1)
        # To first order in the noise, and in mean squares of what the quotient is divided by. The
        # center of typical responses is 0.
        (top, below), deviations = sums.T, np.sqrt(variance).T
        root = np.hypot(below, deviations[1])
        size = np.hypot(root, pull_scale(Function(designs[1], typical.unit).deviation))
        released = (top / size * (below / size))[:, None]
        moved = np.hypot(deviations[0], np.clip(top / below, -1, 1) * deviations[1]) / size
        return typical.noted(released, (moved * root / size) ** 2, plain)
