"""Naive Bayes with kernel or Gaussian likelihoods, factored or as one function.

The score of a class is its share times one likelihood an axis, a kernel density or Gaussian.
*Factored* releases are noisy sums: one kernel sum an axis and class (`dbern.measure.kernel_sums`)
with the counts of the classes, which those do not determine, or counts, sums and squares; the
scores follow, with proved errors (`dbern.combination.class_scores`). A *joint* release is the
paper's one function on the lattice (`dbern.targets.joint_bayes`). A record that is null in any
axis, or of an unknown class, counts nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar, Literal

from pydantic import Field

from dbern.combination.base import Combination
from dbern.combination.class_scores import KernelScores
from dbern.combination.functions import Identity
from dbern.combination.gaussian_scores import GaussianScores
from dbern.data.domain import Domain, RecordSchema
from dbern.errors import SpecError
from dbern.measure.kernel_sums import KernelSum
from dbern.measure.record_weights import ByCategory
from dbern.measure.statistic import Statistic
from dbern.privacy.budget import Budget
from dbern.targets.bandwidths import (
    bandwidth_note,
    class_deviation,
    readable_lengths,
    stated_kernels,
)
from dbern.targets.class_sums import ClassSums
from dbern.targets.joint_bayes import NaiveBayesProduct
from dbern.targets.learner import DesignedStatistic, KernelName, Learner, Lengths
from dbern.targets.parameters import refuse_unused
from dbern.targets.predicted_functions import bayes_notes, kernel_bayes_notes

_COUNTS = Fraction(1, 10)
"""Of the budget: a count's noise is small beside that of a likelihood at the same epsilon."""
_LEAST_STD, _MOST_STD = 1e-3, 1.0


class NaiveBayes(Learner):
    """Naive Bayes with kernel density likelihoods.

    Of two classes, F is the score of the second minus that of the first.

    Parameters
    ----------
    bandwidth : sequence of float, or "auto"
        Per axis, in data units: standard deviation of the Gaussian, length scale of Laplace and
        Matern kernels, half-width of compact ones. "auto", of a factored release: by the public
        number of rows and epsilon, as `dbern.targets.bandwidths` says.
    kernel : str
        One of `dbern.bernstein.kernels.KERNELS`.
    release : "factored" or "joint"
        One sum an axis and class, and the counts; or, for two classes, F itself.
    floor : float
        Of a factored release: what a likelihood at least counts as, as a share of the uniform
        density on its axis; part of the function that is certified.

    Raises
    ------
    SpecError
        For a parameter out of range, records without classes, or more than two for "joint".

    Examples
    --------
    >>> NaiveBayes(bandwidth=[0.5, 0.5]).release
    'factored'
    """

    kind: ClassVar[str] = "naive-bayes"
    chooses: ClassVar[bool] = True
    uses: ClassVar[tuple[str, ...]] = ("label", "categories")

    bandwidth: Lengths | Literal["auto"] = Field(
        description="bandwidth = [0.5, 0.5], one standard deviation per axis in data units"
    )
    kernel: KernelName = Field("gaussian", description='kernel = "gaussian"')
    release: Literal["factored", "joint"] = Field(
        "factored", description='release = "factored" or "joint"'
    )
    floor: float = Field(0.0, ge=0, le=1, description="floor = 0.01, from 0 to 1")

    def components(self, schema: RecordSchema) -> tuple[Statistic, ...]:
        """One an axis and the counts; or F."""
        refuse_unused(self, release={"factored": ("floor",), "joint": ()})
        label, domain = schema.classes, schema.domain
        numbers = Domain(domain.numeric, domain.outside)
        kernels = stated_kernels(numbers, self.bandwidth, self.kernel)
        if self.release == "joint":
            if self.bandwidth == "auto":
                raise SpecError(
                    'target.bandwidth: "auto" is for release = "factored". Write one number for '
                    f"each of {', '.join(numbers.names)}"
                )
            if domain.categorical:
                raise SpecError(
                    'target.release: "joint" is for axes of numbers. Write release = "factored"'
                )
            if len(label.categories) != 2:
                raise SpecError(
                    'target.release: "joint" is for two classes. Write release = "factored"'
                )
            return (NaiveBayesProduct(domain, label, kernels, domain.density_unit()),)
        fraction = (1 - _COUNTS) / domain.dimensions
        sums = (
            KernelSum(
                f"axis_{i}", numbers.axis(i), (kernel,), ByCategory(label),
                1 / numbers.axes[i].width, validity_domain=domain, output_fraction=fraction,
            )
            for i, kernel in enumerate(kernels)
        )  # fmt: skip
        counts = _COUNTS + fraction * len(domain.categorical)
        return (*sums, ClassSums(domain, label, moments=False, output_fraction=counts))

    def for_rows(self, schema: RecordSchema, n: int, charge: Budget) -> NaiveBayes:
        """Return it with its bandwidth."""
        if self.bandwidth != "auto":
            return self
        domain, classes = schema.domain, len(schema.classes.categories)
        deviation = class_deviation(n / classes, float(charge.epsilon), domain.dimensions)
        lengths = readable_lengths(self.kernel, Domain(domain.numeric), deviation)
        return NaiveBayes(**self.get_params() | {"bandwidth": lengths})

    def notes(self, n: int) -> tuple[str, ...]:
        """The bandwidth, which may have been chosen."""
        del n
        return bandwidth_note(self.bandwidth)

    def combination(self, schema: RecordSchema) -> Combination:
        """The scores, or F itself."""
        label, domain = schema.classes, Domain(schema.domain.numeric)
        if self.release == "joint":
            return Identity(label.categories)
        kernels = stated_kernels(domain, self.bandwidth, self.kernel)
        axes = list(zip(domain.axes, kernels, strict=True))
        return KernelScores(
            label.categories,
            peaks=tuple(kernel.peak / axis.width for axis, kernel in axes),
            floors=tuple(min(self.floor, kernel.peak) / axis.width for axis, kernel in axes),
            lists=schema.domain.blocks,
        )

    def predictions(
        self, schema: RecordSchema, n: int, designs: Sequence[DesignedStatistic]
    ) -> tuple[str, ...]:
        """Predict the share of wrong classes of typical records, beside a constant's."""
        del n
        return kernel_bayes_notes(self.combination(schema), designs, len(schema.domain.numeric))


class GaussianNaiveBayes(Learner):
    """Naive Bayes with Gaussian likelihoods, whose variances have a public floor.

    Released are each class's count and its sums and squares of every axis, all at once. The
    variances are those of scikit-learn's GaussianNB but for the floor, which there is an addition.

    Parameters
    ----------
    std_floor : sequence of float
        The least standard deviation of a likelihood per axis, in data units.
    release : "factored"

    Raises
    ------
    SpecError
        For a floor out of range, or records without classes.

    Examples
    --------
    >>> GaussianNaiveBayes(std_floor=[0.5]).get_params()
    {'std_floor': (0.5,), 'release': 'factored'}
    """

    kind: ClassVar[str] = "gaussian-naive-bayes"
    uses: ClassVar[tuple[str, ...]] = ("label", "categories")

    std_floor: Lengths = Field(description="std_floor = [0.5, 0.5], one per axis in data units")
    release: Literal["factored"] = Field("factored", description='release = "factored"')

    def components(self, schema: RecordSchema) -> tuple[Statistic, ...]:
        """One vector."""
        self._floors(schema)
        return (ClassSums(schema.domain, schema.classes, moments=True),)

    def combination(self, schema: RecordSchema) -> GaussianScores:
        """The scores."""
        classes, floors = schema.classes.categories, self._floors(schema)
        peaks = tuple(1 / (math.sqrt(2 * math.pi) * std) for std in self.std_floor)
        lists = schema.domain.blocks
        return GaussianScores(classes, peaks=peaks, floors=floors, lists=lists, squares="centred")

    def predictions(
        self, schema: RecordSchema, n: int, designs: Sequence[DesignedStatistic]
    ) -> tuple[str, ...]:
        """Predict the share of wrong classes of typical records, beside a constant's."""
        del n
        return bayes_notes(self.combination(schema), designs[0].law)

    def _floors(self, schema: RecordSchema) -> tuple[float, ...]:
        """Floors of the deviations in unit-cube units."""
        axes = schema.domain.numeric
        if len(self.std_floor) != len(axes):
            raise SpecError(
                f"target.std_floor: has {len(self.std_floor)} entries for {len(axes)} "
                f"axes of numbers. Write one for each of {', '.join(axis.name for axis in axes)}"
            )
        widths = [axis.width for axis in axes]
        floors = tuple(std / width for std, width in zip(self.std_floor, widths, strict=True))
        if not all(_LEAST_STD <= floor <= _MOST_STD for floor in floors):
            raise SpecError(
                f"target.std_floor: must be from {_LEAST_STD:g} to {_MOST_STD:g} times the width "
                "of its axis. Write a std_floor nearer to the bounds' scale."
            )
        return floors
