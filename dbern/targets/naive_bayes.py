"""Naive Bayes: the score of a class is its share times one likelihood an axis.

With kernel density likelihoods, or Gaussian ones. *Factored* releases are noisy sums: one kernel
sum an axis and class (`dbern.components.sums`) with the counts of the classes, which those do not
determine, or counts, sums and squares (`dbern.components.vectors`); the scores follow, with proved
errors (`dbern.likelihoods`). A *joint* release is the paper's one function on the lattice
(`dbern.components.products`). A record that is null in any axis, or of an unknown class, counts
nowhere.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar, Literal

from pydantic import Field

from dbern.combination import Combination
from dbern.components.base import Component, Vector
from dbern.components.products import NaiveBayesProduct
from dbern.components.sums import KernelSum
from dbern.components.vectors import ClassSums
from dbern.components.weighings import ByCategory
from dbern.domain import RecordSchema
from dbern.errors import SpecError
from dbern.targets.bandwidths import axis_kernels
from dbern.targets.base import KernelName, Learner, Lengths

_COUNTS = Fraction(1, 10)
"""Of the budget: a count's noise is small beside that of a likelihood at the same epsilon."""
_LEAST_STD, _MOST_STD = 1e-3, 1.0


class NaiveBayes(Learner):
    """Naive Bayes with kernel density likelihoods.

    Of two classes, F is the score of the second minus that of the first.

    Parameters
    ----------
    bandwidth : sequence of float
        Per axis, in data units: standard deviation of the Gaussian, length scale of Laplace and
        Matern kernels, half-width of compact ones.
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
    uses: ClassVar[tuple[str, ...]] = ("label",)

    bandwidth: Lengths = Field(
        description="bandwidth = [0.5, 0.5], one standard deviation per axis in data units"
    )
    kernel: KernelName = Field("gaussian", description='kernel = "gaussian"')
    release: Literal["factored", "joint"] = Field(
        "factored", description='release = "factored" or "joint"'
    )
    floor: float = Field(0.0, ge=0, le=1, description="floor = 0.01, from 0 to 1")

    def components(self, schema: RecordSchema) -> tuple[Component | Vector, ...]:
        """One an axis and the counts; or F."""
        label, domain = schema.classes, schema.domain
        kernels = axis_kernels(domain, self.bandwidth, "bandwidth", self.kernel)
        if self.release == "joint":
            if len(label.categories) != 2:
                raise SpecError(
                    'target.release: "joint" is for two classes; write release = "factored"'
                )
            return (NaiveBayesProduct("score", domain, kernels, label, 1 / domain.volume),)
        share = (1 - _COUNTS) / domain.dimensions
        sums = (
            KernelSum(
                f"axis_{i}", domain.axis(i), (kernel,), ByCategory(label),
                1 / domain.axes[i].width, share, box=domain,
            )
            for i, kernel in enumerate(kernels)
        )  # fmt: skip
        return (*sums, ClassSums.of(domain, label, moments=False, share=_COUNTS))

    def combination(self, schema: RecordSchema) -> Combination:
        """The scores, or F itself."""
        label, domain = schema.classes, schema.domain
        if self.release == "joint":
            return Combination("linear", label.categories)
        kernels = axis_kernels(domain, self.bandwidth, "bandwidth", self.kernel)
        axes = list(zip(domain.axes, kernels, strict=True))
        return Combination(
            "naive-bayes",
            label.categories,
            peaks=tuple(kernel.peak / axis.width for axis, kernel in axes),
            floors=tuple(min(self.floor, kernel.peak) / axis.width for axis, kernel in axes),
        )


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
    uses: ClassVar[tuple[str, ...]] = ("label",)

    std_floor: Lengths = Field(description="std_floor = [0.5, 0.5], one per axis in data units")
    release: Literal["factored"] = Field("factored", description='release = "factored"')

    def components(self, schema: RecordSchema) -> tuple[Vector, ...]:
        """One vector."""
        self._floors(schema)
        return (ClassSums.of(schema.domain, schema.classes, moments=True),)

    def combination(self, schema: RecordSchema) -> Combination:
        """The scores."""
        classes, floors = schema.classes.categories, self._floors(schema)
        peaks = tuple(1 / (math.sqrt(2 * math.pi) * std) for std in self.std_floor)
        return Combination("gaussian-naive-bayes", classes, peaks=peaks, floors=floors)

    def _floors(self, schema: RecordSchema) -> tuple[float, ...]:
        """In unit-cube units."""
        domain = schema.domain
        if len(self.std_floor) != domain.dimensions:
            raise SpecError(
                f"target.std_floor: has {len(self.std_floor)} entries for {domain.dimensions} "
                f"axes; write one for each of {', '.join(domain.names)}"
            )
        widths = [axis.width for axis in domain.axes]
        floors = tuple(std / width for std, width in zip(self.std_floor, widths, strict=True))
        if not all(_LEAST_STD <= floor <= _MOST_STD for floor in floors):
            raise SpecError(
                f"target.std_floor: must be from {_LEAST_STD:g} to {_MOST_STD:g} times the width "
                "of its axis; write a std_floor nearer to the bounds' scale"
            )
        return floors
