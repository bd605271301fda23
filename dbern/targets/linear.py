"""Learners by regularized risk minimization of linear functions, and what all of them share.

``w = argmin (C/n) sum_i L(l_i, <w, phi(d_i)>) + |w|^2 / 2``, the paper's form; no bias, so a
constant feature for linear functions. What is proved about them is in
`dbern.erm.models` and `dbern.erm.spaces`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from dbern.bernstein.reproducing import Linear
from dbern.combination import Combination
from dbern.counting.kernel_sums import ByCategory, ByResponse, BySign, RecordWeights
from dbern.counting.measurement import Measurement
from dbern.data.domain import RecordSchema
from dbern.erm.losses import Logistic, Loss, Square
from dbern.erm.measurement import LinearFunctions, RiskMinimizer
from dbern.erm.spaces import GaussianFeatures, GramKernel, LinearFeatures, ProjectedGaussian
from dbern.errors import SpecError
from dbern.targets.bandwidths import axis_kernels
from dbern.targets.base import Learner, Lengths, response_of

Shards = Literal["auto"] | int
COST = Field(1.0, gt=0, allow_inf_nan=False, description="C = 1.0: scikit-learn's C times n")
SHARDS: Shards = Field("auto", description='shards = "auto", or a number of at least 1')
CONSTANT = Field(1.0, ge=0, le=1e6, description="constant = 1.0, the constant feature's value")


def gaussian_space(schema: RecordSchema, length_scale: Lengths) -> GaussianFeatures:
    """The space of ``exp(-|x - y|^2 / (2 s^2))``, s per axis in data units."""
    kernels = axis_kernels(schema.domain, length_scale, "length_scale")
    return GaussianFeatures(ProjectedGaussian(tuple(kernel.bandwidth for kernel in kernels)))


def minimizer(
    name: str,
    schema: RecordSchema,
    loss: Loss,
    space: GaussianFeatures | GramKernel | LinearFeatures,
    cost: float,
    shards: Shards,
    sources: tuple[tuple[str, str, str], ...] = (),
) -> Measurement:
    """Return the measurement: labels are classes where the schema has some, or else responses.

    `sources` as of `RiskModel`.
    """
    if shards != "auto" and shards < 1:
        raise SpecError('target.shards: must be at least 1; write shards = "auto"')
    count = None if shards == "auto" else shards
    radius = schema.response.radius if schema.response else 1.0
    facts = (_weighing(schema), cost, radius, count)
    if isinstance(space, LinearFeatures):
        return LinearFunctions(schema.domain, loss, space, *facts, sources=sources).measurement()
    model = RiskMinimizer(schema.domain, loss, space, *facts, name=name, sources=sources)
    return model.measurement()


def _weighing(schema: RecordSchema) -> RecordWeights:
    if schema.response is not None:
        return ByResponse(schema.response)
    label = schema.classes
    return BySign(label) if len(label.categories) == 2 else ByCategory(label)


def of_classes(schema: RecordSchema, constant: float | None = None) -> Combination:
    """One function whose sign decides, or one a class of which the largest does."""
    classes = schema.classes.categories
    return Combination("linear" if len(classes) == 2 else "stack", classes, constant=constant)


def of_responses(schema: RecordSchema, constant: float | None = None) -> Combination:
    """Learned from the middle of the range; the middle is added again."""
    response = response_of(schema)
    return Combination("response", low=response.low, high=response.high, constant=constant)


class Regularized(Learner):
    """A learner with the paper's C."""

    def notes(self, n: int) -> tuple[str, ...]:
        """C in both forms."""
        cost = self.get_params()["C"]
        return (f"C = {cost:g} in the paper's form C/n: scikit-learn's C = {cost / n:.6g}",)


class LogisticRegression(Regularized):
    """Linear logistic regression, of records projected to the unit ball of the unit cube.

    Released are its weights, one for each axis and one for the constant. With more than two
    classes, one model a class against the rest.

    Parameters
    ----------
    link : str
        "linear": the linear function, log odds of the second class. "sigmoid": its probability,
        computed from what is released, at a quarter of the error.
    C : float
        The paper's, scikit-learn's times n.
    constant : float
        Of the constant feature that stands for a bias; 0 for none.
    shards : "auto" or int
        As of `dbern.targets.KernelERM`.

    Raises
    ------
    SpecError
        For parameters out of range, or records without classes.

    Examples
    --------
    >>> LogisticRegression(C=10.0).link
    'linear'
    """

    kind: ClassVar[str] = "logistic-regression"
    uses: ClassVar[tuple[str, ...]] = ("label",)

    link: Literal["linear", "sigmoid"] = Field(
        "linear", description='link = "linear" or link = "sigmoid"'
    )
    C: float = COST
    constant: float = CONSTANT
    shards: Shards = SHARDS

    def components(self, schema: RecordSchema) -> tuple[Measurement, ...]:
        """One."""
        classes = schema.classes.categories
        if self.link == "sigmoid" and len(classes) > 2:
            raise SpecError(
                'target.link: "sigmoid" is for two classes in this version; write link = "linear"'
            )
        space = LinearFeatures(schema.domain.dimensions, Linear(self.constant))
        return (minimizer("decision", schema, Logistic(), space, self.C, self.shards),)

    def combination(self, schema: RecordSchema) -> Combination:
        """The link."""
        if self.link == "sigmoid":
            return Combination("sigmoid", schema.classes.categories, constant=self.constant)
        return of_classes(schema, self.constant)


class RidgeRegression(Learner):
    """Linear least squares with a penalty, of records projected to the unit ball.

    ``(C/n) sum_i (l_i - f(d_i))^2 / 2 + |w|^2 / 2``, responses clamped to their bounds and counted
    from the middle of these. Released like `LogisticRegression`.

    Parameters
    ----------
    C : float
        The paper's: scikit-learn's alpha is n/C.
    constant : float
        Of the constant feature that stands for a bias; 0 for none.
    shards : "auto" or int
        As of `dbern.targets.KernelERM`.

    Raises
    ------
    SpecError
        For parameters out of range, or records without a response.

    Examples
    --------
    >>> RidgeRegression(C=4.0).get_params()
    {'C': 4.0, 'constant': 1.0, 'shards': 'auto'}
    """

    kind: ClassVar[str] = "ridge-regression"
    uses: ClassVar[tuple[str, ...]] = ("response",)

    C: float = COST
    constant: float = CONSTANT
    shards: Shards = SHARDS

    def components(self, schema: RecordSchema) -> tuple[Measurement, ...]:
        """One."""
        loss = Square(response_of(schema).radius)
        space = LinearFeatures(schema.domain.dimensions, Linear(self.constant))
        return (minimizer("prediction", schema, loss, space, self.C, self.shards),)

    def combination(self, schema: RecordSchema) -> Combination:
        """The response."""
        return of_responses(schema, self.constant)

    def notes(self, n: int) -> tuple[str, ...]:
        """C as scikit-learn's alpha."""
        alpha = f"scikit-learn's alpha = n/C = {n / self.C:.6g}"
        return (f"C = {self.C:g} in the paper's form C/n: {alpha}",)
