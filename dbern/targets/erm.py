"""Learners by regularized risk minimization: kernel machines, logistic and ridge regression.

``w = argmin (C/n) sum_i L(l_i, <w, phi(d_i)>) + |w|^2 / 2``, the paper's form; no bias, so a
constant feature for linear functions. What is proved about them is in
`dbern.targets.risk_minimizers` and `dbern.targets.spaces`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from dbern.combination import Combination
from dbern.domain import RecordSchema, Response
from dbern.errors import SpecError
from dbern.learning.losses import EpsilonInsensitive, Hinge, Huber, Logistic, Loss, Square
from dbern.targets.base import MOST_LATTICE_AXES, Component, Learner, Lengths, Vector
from dbern.targets.linear_functions import LinearFunctions
from dbern.targets.risk_minimizers import RiskMinimizer, RiskModel
from dbern.targets.spaces import GaussianSpace, LinearSpace
from dbern.targets.sums import axis_kernels
from dbern.targets.weighings import ByCategory, ByResponse, BySign, Weighing

MOST_LINEAR_AXES = 256
CLASSIFICATION = ("logistic", "hinge")
Shards = Literal["auto"] | int
_C = Field(1.0, gt=0, allow_inf_nan=False, description="C = 1.0: scikit-learn's C times n")
_SHARDS: Shards = Field("auto", description='shards = "auto", or a number of at least 1')
_CONSTANT = Field(1.0, ge=0, le=1e6, description="constant = 1.0, the constant feature's value")
_SHARE = 0.1  # of the range: what a tube or a rounding is where it is not stated


def gaussian_space(schema: RecordSchema, length_scale: Lengths) -> GaussianSpace:
    """The space of ``exp(-|x - y|^2 / (2 s^2))``, s per axis in data units."""
    kernels = axis_kernels(schema.domain, length_scale, "length_scale")
    return GaussianSpace(tuple(kernel.bandwidth for kernel in kernels))


def minimizer(
    name: str,
    schema: RecordSchema,
    loss: Loss,
    space: GaussianSpace | LinearSpace,
    cost: float,
    shards: Shards,
) -> RiskMinimizer | LinearFunctions:
    """The component: labels are classes where the schema has some, or else responses."""
    if shards != "auto" and shards < 1:
        raise SpecError('target.shards: must be at least 1; write shards = "auto"')
    count = None if shards == "auto" else shards
    radius = schema.response.radius if schema.response else 1.0
    facts = (_weighing(schema), cost, radius, count)
    if isinstance(space, LinearSpace):
        return LinearFunctions.of(RiskModel(schema.domain, loss, space, *facts))
    return RiskMinimizer(schema.domain, loss, space, *facts, name=name)


def _weighing(schema: RecordSchema) -> Weighing:
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


def response_of(schema: RecordSchema) -> Response:
    """The response.

    Raises
    ------
    SpecError
        Where there is none.
    """
    if schema.response is None:
        raise SpecError(
            "data.response: is missing; write [data.response] with column and bounds = [-1.0, 1.0]"
        )
    return schema.response


def note(cost: float, n: int) -> str:
    """C in both forms."""
    return f"C = {cost:g} in the paper's form C/n: scikit-learn's C = {cost / n:.6g}"


class KernelERM(Learner):
    """Regularized risk minimizer with a loss and a kernel.

    With two classes the second is the positive one; with more, one model a class against the rest.

    Parameters
    ----------
    loss : str
        "logistic" or "hinge" for classes; "square", "huber" or "epsilon-insensitive" for a
        response.
    kernel : str
        "gaussian", ``exp(-|x - y|^2 / (2 s^2))``, or "linear", in unit-cube coordinates, of records
        projected to the unit ball.
    length_scale : sequence of float
        s per axis, in data units; of the Gaussian kernel only.
    C : float
        The paper's, scikit-learn's times n.
    shards : "auto" or int
        The function is the mean of models of as many disjoint shards. "auto": of up to a million
        records, fewer where the kernel needs many features.
    width : float, optional
        Over which the kinks of hinge and tube are rounded: of a margin, or of a response.
    tube : float, optional
        Of the epsilon-insensitive loss, in units of the response; a tenth of half its range.
    threshold : float, optional
        Beyond which the Huber loss is linear, in units of the response; half its range.
    constant : float
        The constant feature of the linear kernel.

    Raises
    ------
    SpecError
        For parameters out of range, or records without what the loss needs.

    Examples
    --------
    >>> KernelERM(loss="logistic", length_scale=[1.0, 1.0], C=10.0).C
    10.0
    """

    kind: ClassVar[str] = "kernel-erm"
    uses: ClassVar[tuple[str, ...]] = ("label", "response")

    loss: Literal["logistic", "hinge", "square", "huber", "epsilon-insensitive"] = Field(
        description='loss = "logistic", "hinge", "square", "huber" or "epsilon-insensitive"'
    )
    kernel: Literal["gaussian", "linear"] = Field(
        "gaussian", description='kernel = "gaussian" or "linear"'
    )
    length_scale: Lengths | None = Field(
        None, description="length_scale = [1.0, 1.0], one per axis in data units"
    )
    C: float = _C
    shards: Shards = _SHARDS
    width: float | None = Field(None, gt=0, allow_inf_nan=False, description="width = 0.1")
    tube: float | None = Field(None, ge=0, allow_inf_nan=False, description="tube = 0.1")
    threshold: float | None = Field(None, gt=0, allow_inf_nan=False, description="threshold = 1.0")
    constant: float = _CONSTANT

    def components(self, schema: RecordSchema) -> tuple[Component | Vector, ...]:
        """One, of as many outputs as there are models."""
        loss = self._loss(schema)
        name = "decision" if self.loss in CLASSIFICATION else "prediction"
        return (minimizer(name, schema, loss, self._space(schema), self.C, self.shards),)

    def combination(self, schema: RecordSchema) -> Combination:
        """The decision function, or the response."""
        constant = self.constant if self.kernel == "linear" else None
        if self.loss in CLASSIFICATION:
            return of_classes(schema, constant)
        return of_responses(schema, constant)

    def notes(self, n: int) -> tuple[str, ...]:
        """C in both forms."""
        return (note(self.C, n),)

    @property
    def most_axes(self) -> int:
        """Of linear functions many."""
        return MOST_LINEAR_AXES if self.kernel == "linear" else MOST_LATTICE_AXES

    def _space(self, schema: RecordSchema) -> GaussianSpace | LinearSpace:
        if self.kernel == "linear":
            if self.length_scale is not None:
                raise SpecError("target.length_scale: a linear kernel has none; leave it out")
            return LinearSpace(schema.domain.dimensions, self.constant)
        if self.length_scale is None:
            raise SpecError(
                "target.length_scale: is missing; write length_scale = [1.0, 1.0], one per axis"
            )
        return gaussian_space(schema, self.length_scale)

    def _loss(self, schema: RecordSchema) -> Loss:
        if self.loss in CLASSIFICATION:
            if schema.response is not None:
                raise SpecError(f'data.response: loss = "{self.loss}" is for classes; leave it out')
            return Logistic() if self.loss == "logistic" else Hinge(self.width or _SHARE)
        if schema.label is not None:
            raise SpecError(f'data.label: loss = "{self.loss}" is for a response; leave it out')
        bound = response_of(schema).radius
        if self.loss == "square":
            return Square(bound)
        if self.loss == "huber":
            return Huber(self.threshold or bound, bound)
        tube = _SHARE * bound if self.tube is None else self.tube
        return EpsilonInsensitive(tube, self.width or _SHARE * bound, bound)


class LogisticRegression(Learner):
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
        As of `KernelERM`.

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
    C: float = _C
    constant: float = _CONSTANT
    shards: Shards = _SHARDS

    @property
    def most_axes(self) -> int:
        """Of linear functions many."""
        return MOST_LINEAR_AXES

    def components(self, schema: RecordSchema) -> tuple[Component | Vector, ...]:
        """One."""
        classes = schema.classes.categories
        if self.link == "sigmoid" and len(classes) > 2:
            raise SpecError(
                'target.link: "sigmoid" is for two classes in this version; write link = "linear"'
            )
        space = LinearSpace(schema.domain.dimensions, self.constant)
        return (minimizer("decision", schema, Logistic(), space, self.C, self.shards),)

    def combination(self, schema: RecordSchema) -> Combination:
        """The link."""
        if self.link == "sigmoid":
            return Combination("sigmoid", schema.classes.categories, constant=self.constant)
        return of_classes(schema, self.constant)

    def notes(self, n: int) -> tuple[str, ...]:
        """C in both forms."""
        return (note(self.C, n),)


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
        As of `KernelERM`.

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

    C: float = _C
    constant: float = _CONSTANT
    shards: Shards = _SHARDS

    @property
    def most_axes(self) -> int:
        """Of linear functions many."""
        return MOST_LINEAR_AXES

    def components(self, schema: RecordSchema) -> tuple[Component | Vector, ...]:
        """One."""
        loss = Square(response_of(schema).radius)
        space = LinearSpace(schema.domain.dimensions, self.constant)
        return (minimizer("prediction", schema, loss, space, self.C, self.shards),)

    def combination(self, schema: RecordSchema) -> Combination:
        """The response."""
        return of_responses(schema, self.constant)

    def notes(self, n: int) -> tuple[str, ...]:
        """C as scikit-learn's alpha."""
        alpha = f"scikit-learn's alpha = n/C = {n / self.C:.6g}"
        return (f"C = {self.C:g} in the paper's form C/n: {alpha}",)
