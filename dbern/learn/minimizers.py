"""Parts of every learner that minimizes a regularized risk.

``w = argmin (C/n) sum_i L(l_i, <w, phi(d_i)>) + |w|^2 / 2``, the paper's form; no bias, so a
constant feature for linear functions. Proofs about them are in `dbern.erm.models` and
`dbern.erm.spaces`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from dbern.combination.base import Combination
from dbern.combination.functions import Identity, Stack
from dbern.combination.responses import Shifted
from dbern.data.domain import RecordSchema
from dbern.erm.gaussian_features import GaussianFeatures, ProjectedGaussian
from dbern.erm.losses import Loss
from dbern.erm.risk import Risk
from dbern.erm.spaces import MIN_SHARD_ROWS, GramKernel, LinearFeatures
from dbern.erm.statistics import LinearFunctions, RiskMinimizer
from dbern.errors import SpecError
from dbern.measure.record_weights import ByCategory, RecordWeights, ResponseWeight, SignWeight
from dbern.targets.bandwidths import axis_kernels
from dbern.targets.learner import Lengths, response_of

Shards = Literal["auto"] | int
SHARDS: Shards = Field("auto", description='shards = "auto", or a number of at least 1')
CONSTANT = Field(1.0, ge=0, le=1e6, description="constant = 1.0, the constant feature's value")


Method = Literal["auto", "objective", "weights"]
METHODS = {"auto": ("constant", "shards"), "objective": (), "weights": ("constant", "shards")}
"""The parameters that each method uses, of those that not all do."""
METHOD: Method = Field("auto", description='method = "auto", "objective" or "weights"')
MIN_COST = 1e-9  # where a constant is learned, long before floats underflow
Cost = Literal["auto"] | Annotated[float, Field(ge=MIN_COST, allow_inf_nan=False)]
AUTO: Cost = Field("auto", description='C = "auto", or C = 1.0: scikit-learn\'s C times n')


def stated_cost(cost: Cost) -> float:
    """The number that is stated, or 1 where none is yet."""
    return 1.0 if cost == "auto" else float(cost)


_COST_GRID = (*(c * 10.0**power for power in range(3) for c in (1, 1.5, 2, 3, 5, 7)), 1000.0)
_MAX_RELATIVE_MOVE = 1 / 40  # of the half-width of what is predicted, times epsilon, by one record
_MAX_SMOOTHNESS = 1000  # steps of the solver grow with its root


def choose_cost(
    schema: RecordSchema, loss: Loss, space: GaussianFeatures | GramKernel | LinearFeatures,
    n: int, epsilon: Fraction,
) -> float:  # fmt: skip
    """The C of "auto": the largest whose noise is small beside the predictions.

    The bias of regularization falls with C, and the noise grows: in proportion to ``r / epsilon``,
    r the move of the weights by one of n records (`dbern.erm.models`). That is at most a fortieth
    of what is predicted, 1 for two classes and half the range of a response. Of q > 2 classes it is
    q^2 times less: a record is in the model of each, so the noise is q times as large, and scores
    of classes whose shares sum to one are a q-th as far from each other. The loss with its weights
    is at most a thousand times as curved as the penalty, which bounds the solver's steps.
    Where none is, it is 1.
    """
    classes = len(schema.label.categories) if schema.label else 0
    predicted = schema.response.radius if schema.response else 1.0
    if classes > 2:
        predicted /= classes**2
    max_move = _MAX_RELATIVE_MOVE * predicted * float(epsilon)
    shards = 1 + n // MIN_SHARD_ROWS
    first = Risk(loss, space.kernel, 1.0, n, space.radius, schema.domain.dimensions)
    risks = [replace(first, cost=cost) for cost in _COST_GRID]
    fitting = {
        risk.cost: 1 + math.sqrt(risk.cost * shards * loss.curvature) / 2
        for risk in risks
        if risk.bounds.sensitivity <= max_move
        and risk.shard_bounds(risk.cost).smoothness < 1.01 * _MAX_SMOOTHNESS
    }
    largest = space.largest_factor(max(fitting.values(), default=1.0))
    return max((cost for cost, factor in fitting.items() if factor <= largest), default=1.0)


def gaussian_space(schema: RecordSchema, length_scale: Lengths) -> GaussianFeatures:
    """The space of ``exp(-|x - y|^2 / (2 s^2))``, s per axis in data units."""
    kernels = axis_kernels(schema.domain, length_scale, "length_scale")
    return GaussianFeatures(ProjectedGaussian(tuple(kernel.bandwidth for kernel in kernels)))


def build_minimizer(
    schema: RecordSchema,
    loss: Loss,
    space: GaussianFeatures | GramKernel | LinearFeatures,
    cost: float,
    shards: Shards,
) -> LinearFunctions | RiskMinimizer:
    """The minimizer as a statistic: labels are classes where there are some, or responses."""
    radius = schema.response.radius if schema.response else 1.0
    parameters = (label_weights(schema), cost, radius, num_shards(shards))
    if isinstance(space, LinearFeatures):
        return LinearFunctions(schema.domain, loss, space, *parameters)
    name = "prediction" if schema.response else "decision"
    return RiskMinimizer(schema.domain, loss, space, *parameters, name=name)


def num_shards(shards: Shards) -> int | None:
    """Number of shards that is stated, None for "auto"."""
    if shards != "auto" and shards < 1:
        raise SpecError('target.shards: must be at least 1. Write shards = "auto"')
    return None if shards == "auto" else shards


def label_weights(schema: RecordSchema) -> RecordWeights:
    """Record weights that give responses, signs of two classes, or the classes of more."""
    if schema.response is not None:
        return ResponseWeight(schema.response)
    label = schema.classes
    return SignWeight(label) if len(label.categories) == 2 else ByCategory(label)


def combine_classes(schema: RecordSchema, constant: float | None = None) -> Combination:
    """Combination of classes: one function whose sign decides, or the largest of one a class."""
    classes = schema.classes.categories
    return (Identity if len(classes) == 2 else Stack)(classes, constant=constant)


def combine_responses(schema: RecordSchema, constant: float | None = None) -> Combination:
    """Combination of responses, learned from the middle of the range, which is added again."""
    response = response_of(schema)
    return Shifted(low=response.low, high=response.high, constant=constant)


def cost_text(cost: float, n: int) -> str:
    """Text of C in both forms."""
    return f"C = {cost:g} in the paper's form C/n: scikit-learn's C = {cost / n:.6g}"


def alpha_text(cost: float, n: int) -> str:
    """Text of C of a regression, which scikit-learn calls alpha."""
    return f"C = {cost:g} in the paper's form C/n: scikit-learn's alpha = n/C = {n / cost:.6g}"
