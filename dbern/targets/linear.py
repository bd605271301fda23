"""Learners by regularized risk minimization of linear functions, and their common parts.

``w = argmin (C/n) sum_i L(l_i, <w, phi(d_i)>) + |w|^2 / 2``, the paper's form; no bias, so a
constant feature for linear functions. Proofs about them are in `dbern.erm.models` and
`dbern.erm.spaces`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from dbern.bernstein.reproducing import Linear
from dbern.combination.base import Combination
from dbern.combination.functions import Identity, Sigmoid, Stack
from dbern.combination.least_squares import LeastSquares
from dbern.combination.polynomials import count_with_products
from dbern.combination.responses import Shifted
from dbern.counting.gathered import GatheredAccumulator
from dbern.counting.measurement import Measurement
from dbern.counting.record_weights import ByCategory, RecordWeights, ResponseWeight, SignWeight
from dbern.data.domain import RecordSchema
from dbern.erm.measurement import LinearFunctions, RiskMinimizer
from dbern.erm.perturbed import PerturbedFunctions, listed_noise, lists_share, loss_of
from dbern.erm.risk import Huber, Logistic, Loss, Risk, Square
from dbern.erm.spaces import (
    LEAST_ROWS,
    GaussianFeatures,
    GramKernel,
    LinearFeatures,
    ProjectedGaussian,
)
from dbern.errors import SpecError
from dbern.privacy.budget import Budget
from dbern.strategies.base import AnyStrategy, Entries
from dbern.strategies.moments import MOST_COLUMNS, MOST_NUMBERS
from dbern.targets.base import Learner, Lengths, Way, response_of
from dbern.targets.density import axis_kernels
from dbern.targets.least_squares import MomentSums
from dbern.targets.predictions import (
    determinant_share,
    deviation_of,
    predicted_moments,
    predicted_perturbed,
    predicted_weights,
)
from dbern.targets.typical import (
    UNEXPLAINED,
    UNPREDICTED,
    WARNING,
    Typical,
    TypicalClasses,
    TypicalResponses,
    typical_variances,
)

# --- How weights are released, and with which C, from public facts alone


MOST_ROWS = 1 << 22
"""Rows that "auto" has the releasing process hold at most."""

_GRID = tuple(4.0**power for power in range(11))
_DETERMINANT_SHARES = tuple(Fraction(1, 1 << power) for power in range(1, 7))
_MOST_PREDICTED = 64  # numbers: above, a prediction takes seconds
_MOST_LISTED = 256  # with lists, where weights are no choice
_WHERE = (
    'target.method: "objective" is for a pure epsilon. Write method = "weights", or delta = "0" '
    "under budget"
)
_LISTED = (
    'budget.delta: linear functions with lists of values are for a pure epsilon. Write delta = "0"'
)


@dataclass(frozen=True, kw_only=True)
class Classifier(LinearFunctions):
    """Linear functions before a plan chooses the method and C.

    Where C is `chosen`, `cost` is none yet. Functions are predicted for the records of `typical`.
    """

    release_method: Literal["auto", "objective", "weights"]
    typical: Typical

    @property
    def model(self) -> LinearFunctions:
        """The functions alone."""
        names = [parameter.name for parameter in fields(LinearFunctions)]
        return LinearFunctions(**{name: getattr(self, name) for name in names})

    def from_params(
        self, strategy: AnyStrategy, n: int, params: Mapping[str, Any]
    ) -> GatheredAccumulator:
        """Return the sums of the method that a plan has chosen."""
        if "weight" in params:
            functions = PerturbedFunctions.restored(self.model, n, params)
            return functions.from_params(strategy, n, params)
        return self.model.from_params(strategy, n, params)

    def bind(self, n: int, charge: Budget) -> Measurement:
        """The method and C that predict the smaller risk, with the prediction's text.

        The risk of more than two classes is the share of wrong ones, as noise costs the log loss
        long before it costs the largest score.
        """
        lists, epsilon = self.domain.lists, charge.epsilon
        stated = self.release_method == "objective"
        if (stated or lists) and charge.delta:
            raise SpecError(_LISTED if lists else _WHERE)
        numbers = (self.space.dimensions + 1) * max(2, self.num_models)
        small = numbers <= (_MOST_LISTED if lists else _MOST_PREDICTED)
        free = self.release_method == "auto" and not lists
        usual = self.chosen and (self.space.kernel.constant, self.shards) == (1, None)
        candidates: list[LinearFunctions | PerturbedFunctions] = []
        with suppress(SpecError) if free else nullcontext():  # too few rows for an objective
            if stated or lists or (free and usual and not charge.delta and n <= MOST_ROWS):
                candidates += self._perturbed(n, epsilon, self._shares(n, epsilon, small=small))
        if not candidates or (free and small):
            costs = _GRID if self.chosen and small else (self.cost,)
            candidates += [replace(self.model, cost=cost).for_rows(n) for cost in costs]
        if not small:
            return replace(candidates[0], notes=UNPREDICTED)
        risks = [self._predicted(candidate, epsilon) for candidate in candidates]
        risk = min(risks)
        return replace(candidates[risks.index(risk)], notes=self.typical.note(risk))

    def _predicted(
        self, functions: LinearFunctions | PerturbedFunctions, epsilon: Fraction
    ) -> tuple[float, float]:
        if isinstance(functions, PerturbedFunctions):
            return predicted_perturbed(self.typical, functions)
        sensitivity = functions.sensitivity(Entries(len(functions.entries)), 1).value
        noise = math.sqrt(2) * sensitivity / functions.n / float(epsilon)
        facts = functions.space, functions.loss, functions.cost, noise
        return predicted_weights(self.typical, *facts)[0]

    def _shares(self, n: int, epsilon: Fraction, *, small: bool) -> Sequence[Fraction]:
        """Fractions of epsilon that the Jacobian may have: by formula, or to be predicted with.

        No formula says how many of several classes are told wrong: there a penalty costs little
        that shrinks all scores alike, but draws to the most frequent class.
        """
        if self.typical.models > 1 and small:
            return _DETERMINANT_SHARES
        a_row = epsilon / self.protection.unit.max_contributions
        return (determinant_share(n, a_row, loss_of(self.model), self.typical),)

    def _perturbed(
        self, n: int, epsilon: Fraction, shares: Sequence[Fraction]
    ) -> list[PerturbedFunctions]:
        model = self.model
        if self.chosen:
            return [PerturbedFunctions.for_budget(model, n, epsilon, share) for share in shares]
        # A weight of the unit cube is twice one of [-1, 1], and J is divided by the penalty.
        weight = self.cost / (4 * n)
        for k in range(1, 125):
            functions = PerturbedFunctions.for_budget(model, n, epsilon, Fraction(k, 128))
            if functions.risk.weight >= weight:
                return [replace(functions, risk=replace(functions.risk, weight=weight))]
        raise SpecError(
            f"target.C: too large for {n} rows and epsilon {float(epsilon):g} by objective. Write "
            f'C = {0.99 * self.cost * functions.risk.weight / weight:.2g} or less, or C = "auto"'
        )


Shards = Literal["auto"] | int
SHARDS: Shards = Field("auto", description='shards = "auto", or a number of at least 1')
CONSTANT = Field(1.0, ge=0, le=1e6, description="constant = 1.0, the constant feature's value")

_NUMBERS_ALONE = (
    'target.method: weights are of axes of numbers in this version. Write method = "{}".'
)


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
    """The minimizer as a measurement: labels are classes where there are some, or responses.

    `sources` as of `RiskModel`.
    """
    count = _count(shards)
    radius = schema.response.radius if schema.response else 1.0
    facts = (_weighing(schema), cost, radius, count)
    if isinstance(space, LinearFeatures):
        return LinearFunctions(schema.domain, loss, space, *facts, sources=sources)
    return RiskMinimizer(schema.domain, loss, space, *facts, name=name, sources=sources)


Method = Literal["auto", "objective", "weights"]
METHOD: Method = Field("auto", description='method = "auto", "objective" or "weights"')
LEAST_COST = 1e-9  # where a constant is learned, long before floats underflow
Cost = Literal["auto"] | Annotated[float, Field(ge=LEAST_COST, allow_inf_nan=False)]
AUTO: Cost = Field("auto", description='C = "auto", or C = 1.0: scikit-learn\'s C times n')


def cost_of(cost: Cost) -> float:
    """The number that is stated, or 1 where none is yet."""
    return 1.0 if cost == "auto" else float(cost)


_COSTS = (*(c * 10.0**power for power in range(3) for c in (1, 1.5, 2, 3, 5, 7)), 1000.0)
_MOVED = 1 / 40  # of the half-width of what is predicted, times epsilon, by one record
_STEEPEST = 1000  # steps of the solver grow with its root


def chosen_cost(
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
    most, shards = _MOVED * predicted * float(epsilon), 1 + n // LEAST_ROWS
    first = Risk(loss, space.kernel, 1.0, n, space.radius, schema.domain.dimensions)
    risks = [replace(first, cost=cost) for cost in _COSTS]
    fitting = {
        risk.cost: 1 + math.sqrt(risk.cost * shards * loss.curvature) / 2
        for risk in risks
        if risk.bounds.sensitivity <= most
        and risk.shard_bounds(risk.cost).smoothness < 1.01 * _STEEPEST
    }
    largest = space.largest_factor(max(fitting.values(), default=1.0))
    return max((cost for cost, factor in fitting.items() if factor <= largest), default=1.0)


def linear_functions(
    schema: RecordSchema, loss: Loss, method: Method, cost: Cost, constant: float, shards: Shards
) -> Measurement:
    """Linear functions by objective or weights, as the plan chooses.

    Raises SpecError for parameters that the method, or an axis of categories, has no use for.
    """
    domain, response = schema.domain, schema.response
    if domain.lists and method == "weights":
        raise SpecError(_NUMBERS_ALONE.format("objective"))
    if (method == "objective" or domain.lists) and (constant, shards) != (1.0, "auto"):
        raise SpecError(
            'target.constant, target.shards: are of method = "weights". Leave them out.'
        )
    numbers, weights = len(domain.numbers), _weighing(schema)
    space = LinearFeatures(sum(domain.blocks) + numbers, Linear(constant))
    radius, classes = response.radius if response else 1.0, max(2, weights.outputs)
    by_log_loss = loss == Logistic() and classes == 2
    typical: Typical = (
        TypicalResponses(numbers, domain.blocks, radius)
        if response
        else TypicalClasses(numbers, domain.blocks, classes, by_log_loss)
    )
    return Classifier(
        domain, loss, space, weights, cost_of(cost), radius, _count(shards),
        chosen=cost == "auto", release_method=method, typical=typical,
    )  # fmt: skip


def _count(shards: Shards) -> int | None:
    if shards != "auto" and shards < 1:
        raise SpecError('target.shards: must be at least 1. Write shards = "auto"')
    return None if shards == "auto" else shards


def _weighing(schema: RecordSchema) -> RecordWeights:
    if schema.response is not None:
        return ResponseWeight(schema.response)
    label = schema.classes
    return SignWeight(label) if len(label.categories) == 2 else ByCategory(label)


def of_classes(schema: RecordSchema, constant: float | None = None) -> Combination:
    """Combination of classes: one function whose sign decides, or the largest of one a class."""
    classes = schema.classes.categories
    return (Identity if len(classes) == 2 else Stack)(classes, constant=constant)


def of_responses(schema: RecordSchema, constant: float | None = None) -> Combination:
    """Combination of responses, learned from the middle of the range, which is added again."""
    response = response_of(schema)
    return Shifted(low=response.low, high=response.high, constant=constant)


def method_taken(counting: Mapping[str, Any]) -> dict[str, Any]:
    """Method of linear functions with these counting parameters."""
    return {"method": "objective" if "weight" in counting else "weights"}


def told(cost: float, n: int) -> str:
    """Text of C in both forms."""
    return f"C = {cost:g} in the paper's form C/n: scikit-learn's C = {cost / n:.6g}"


class LogisticRegression(Learner):
    """Linear logistic regression; of more than two classes one function each.

    *By objective*: the minimizer of the loss of all records, of a penalty and of a random linear
    term (`dbern.erm.perturbed`), multinomial where there are more than two classes. It is solved in
    the releasing process, which holds all records. *By weights*, the paper's: the minimizer for
    records projected to the unit ball of the unit cube, one class against the rest, with noise that
    hides what a record can do to it.

    Parameters
    ----------
    link : str
        "linear": the linear function, log odds of the second class. "sigmoid": its probability,
        computed from what is released.
    method : "auto", "objective" or "weights"
        "auto" takes what predicts the smaller error, up to 4 million rows, for a pure epsilon where
        rows are replaced; and weights where C, constant or shards are stated.
    C : "auto" or float
        The paper's, scikit-learn's times n, of positions in the unit cube.
    constant : float
        By weights: of the constant feature that stands for a bias; 0 for none.
    shards : "auto" or int
        By weights: as of `dbern.targets.KernelERM`.

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
    uses: ClassVar[tuple[str, ...]] = ("label", "categories")

    link: Literal["linear", "sigmoid"] = Field(
        "linear", description='link = "linear" or link = "sigmoid"'
    )
    method: Method = METHOD
    C: Cost = AUTO
    constant: float = CONSTANT
    shards: Shards = SHARDS

    def components(self, schema: RecordSchema) -> tuple[Measurement, ...]:
        """One."""
        classes = schema.classes.categories
        if self.link == "sigmoid" and len(classes) > 2:
            raise SpecError(
                'target.link: "sigmoid" is for two classes in this version. Write link = "linear"'
            )
        parameters = self.method, self.C, self.constant, self.shards
        return (linear_functions(schema, Logistic(), *parameters),)

    def combination(self, schema: RecordSchema) -> Combination:
        """The link."""
        if self.link == "sigmoid":
            return Sigmoid(schema.classes.categories, constant=self.constant)
        return of_classes(schema, self.constant)

    def taken(self, counting: Mapping[str, Any]) -> dict[str, Any]:
        """Return the method."""
        return method_taken(counting)

    def notes(self, n: int) -> tuple[str, ...]:
        """C in both forms."""
        return super().notes(n) if self.C == "auto" else (told(float(self.C), n),)


_RESIDUAL = 0.5
"""Of half the range: twice what responses deviate typically, and what noise grows with."""
_LINEAR = 0.75
"""Of epsilon, about: what an objective has for its linear term."""
_COSTLY, _TIMES = 0.0005, 3.0
"""Of the rest's variance, and of an objective's noise: where moments have more an objective, with
some three quarters of epsilon for its linear term, answers better. Rare values make moments' noise
some ten times as much as these say; penalty and cut residuals cost an objective as much as that."""
_CUT = 0.0025
"""Of the rest's variance: what cut residuals cost an objective besides its noise."""


class RidgeRegression(Learner):
    """Linear or quadratic least squares with a penalty.

    *By moments*: released are the count, sums, squares and products of the axes and the response;
    what is solved of them is post-processing, for any of these numbers as the response
    (`dbern.Synopsis.regression`). *By objective*: the weights that minimize the loss of all
    records, of a penalty and of a random linear term, as of `LogisticRegression`, for the response
    alone; residuals beyond a quarter of its range pull no more than that. Its noise is several
    times less. *By weights*, the paper's: the minimizer of ``(C/n) sum_i
    (l_i - f(d_i))^2 / 2 + |w|^2 / 2`` of records projected to the unit ball. Responses are clamped
    to their bounds and counted from the middle of these.

    Parameters
    ----------
    method : "auto", "moments", "objective" or "weights"
        "auto" takes moments, up to 63 axes and where no parameter of weights is stated; but an
        objective, up to 4 million rows and for a pure epsilon, where the noise of moments would add
        more to squared errors than that of an objective and a four-hundredth of a typical
        residual's variance, of columns each of which leaves half of its variance to the next; or,
        of responses by listed value, as frequent as each other, more than a two-thousandth of it
        and three times what is added by objective.
    degree : 1 or 2
        By moments: 2 adds the products of two axes of numbers, and their squares, each moved to
        [-1, 1]. What that costs grows with the fourth power of the number of axes.
    C : "auto" or float
        The paper's: scikit-learn's alpha is n/C, of positions in the unit cube. By moments "auto"
        lets the released numbers and the known noise decide; by weights it is 1.
    constant : float
        By weights: of the constant feature that stands for a bias; 0 for none.
    shards : "auto" or int
        By weights: as of `dbern.targets.KernelERM`.

    Raises
    ------
    SpecError
        For parameters out of range, or records without a response.

    Examples
    --------
    >>> RidgeRegression(C=4.0).get_params()
    {'method': 'auto', 'degree': 1, 'C': 4.0, 'constant': 1.0, 'shards': 'auto'}
    """

    kind: ClassVar[str] = "ridge-regression"
    uses: ClassVar[tuple[str, ...]] = ("response", "categories")
    chooses: ClassVar[bool] = True

    method: Literal["auto", "moments", "objective", "weights"] = Field(
        "auto", description='method = "auto", "moments", "objective" or "weights"'
    )
    degree: Literal[1, 2] = Field(1, description="degree = 1 or degree = 2")
    C: Cost = Field("auto", description='C = "auto", or C = 1.0: scikit-learn\'s alpha is n / C')
    constant: float = CONSTANT
    shards: Shards = SHARDS

    def components(self, schema: RecordSchema) -> tuple[Measurement, ...]:
        """One."""
        response = response_of(schema)
        if self._by_moments(schema):
            return (MomentSums.of(schema.domain, response, self.degree),)
        if self.method == "objective":
            robust = Huber(_RESIDUAL * response.radius, response.radius)
            facts = self.C, self.constant, self.shards
            return (linear_functions(schema, robust, "objective", *facts),)
        loss = Square(response.radius)
        space = LinearFeatures(schema.domain.dimensions, Linear(self.constant))
        return (minimizer("prediction", schema, loss, space, cost_of(self.C), self.shards),)

    def for_rows(self, schema: RecordSchema, n: int, charge: Budget) -> RidgeRegression:
        """Return it with its method: by objective where moments are too noisy."""
        if self.method != "auto":
            return self
        method = "moments" if self._by_moments(schema) else "weights"
        usual = (method, self.degree, self.C) == ("moments", 1, "auto") and not charge.delta
        if usual and n <= MOST_ROWS and self._are_noisy(schema, n, charge.epsilon):
            method = "objective"
        return RidgeRegression(**self.get_params() | {"method": method})

    def _are_noisy(self, schema: RecordSchema, n: int, epsilon: Fraction) -> bool:
        """Whether noise of moments adds more to squared errors than that of an objective."""
        lists, sums = schema.domain.blocks, MomentSums.of(schema.domain, response_of(schema))
        by_value, of_numbers = sums.typical_noise(n, epsilon)
        numbers = len(schema.domain.numbers)
        share = float(lists_share(numbers, lists))
        scale = 2 * _RESIDUAL / (_LINEAR * float(epsilon)) / n  # of b, over n, where it has all
        listed = listed_noise(lists) * (scale / share) ** 2 if lists else 0.0
        b_variance = (scale / (1 - share)) ** 2 * (numbers + 2) * (numbers + 3) / 3
        objective = b_variance * float(np.sum(1 / typical_variances(numbers)))
        objective += _CUT * UNEXPLAINED
        noisy_lists = by_value > max(_COSTLY * UNEXPLAINED, _TIMES * listed)
        return noisy_lists or of_numbers > objective

    def notes(self, n: int) -> tuple[str, ...]:
        """C in both forms, and what else is not least squares."""
        if self.method != "objective":
            return ()
        said = (
            "by objective: residuals beyond a quarter of the response's range pull no more",
            'for intervals of regression() and other responses write method = "moments", of larger '
            "noise",
        )
        return said if self.C == "auto" else (*said, told(float(self.C), n))

    def combination(self, schema: RecordSchema) -> Combination:
        """The response."""
        if not self._by_moments(schema):
            return of_responses(schema, self.constant)
        response = response_of(schema)
        weight = MomentSums.of(schema.domain, response, self.degree).moments.weight
        quadratic = self.degree == 2
        return LeastSquares(
            low=response.low, high=response.high, constant=1.0,
            response=response.name, weight=weight, products="weighted", ridge=self._ridge,
            degree=2 if quadratic else None,
            lists=schema.domain.blocks if quadratic else (),
        )  # fmt: skip

    def predictions(self, schema: RecordSchema, n: int, ways: Sequence[Way]) -> tuple[str, ...]:
        """Predict the excess risk on typical records, beside a constant's."""
        response = response_of(schema)
        typical = TypicalResponses(schema.domain.dimensions, (), response.radius)
        if self._by_moments(schema):
            moments = MomentSums.of(schema.domain, response, self.degree).moments
            found = predicted_moments(moments, ways[0].law, self._ridge)
            solved = "automatic" if self._ridge is None else f"{self._ridge:g}, C = {self.C:g}"
            said = [f"by moments, ridge {solved}"]
            if self.degree == 2:
                alone = MomentSums.of(schema.domain, response).moments.sensitivity(1).value
                times = moments.sensitivity(1).value / alone
                said.append(f"degree 2: {times:.2g} times the sensitivity of degree 1")
            note = typical.note((found, found))
            if schema.domain.lists and note[-1:] == (WARNING,):
                note = (*note, 'of listed values method = "objective" may have less noise: plan it')
            return (*said, *note)
        if self.method == "objective":
            return ()  # the measurement, which chooses, says it
        space = LinearFeatures(schema.domain.dimensions, Linear(self.constant))
        loss, noise = Square(response.radius), deviation_of(ways[0].law)
        ours, _ = predicted_weights(typical, space, loss, cost_of(self.C), noise)
        alpha = f"scikit-learn's alpha = n/C = {n / cost_of(self.C):.6g}"
        paper = f"by weights, C = {cost_of(self.C):g} in the paper's form C/n: {alpha}"
        return (paper, *typical.note(ours))

    def _by_moments(self, schema: RecordSchema) -> bool:
        if self.method == "objective" and self.degree == 1:
            return False
        numbers = count_with_products(len(schema.domain.numbers), self.degree)
        listed = sum(schema.domain.blocks)
        if self.degree == 2 and numbers >= MOST_NUMBERS:
            raise SpecError(
                f"target.degree: axes and products are {numbers}, and moments are of at most "
                f"{MOST_NUMBERS - 1}. Write degree = 1, or leave out axes."
            )
        if numbers < MOST_NUMBERS and numbers + listed >= MOST_COLUMNS:
            raise SpecError(
                f"data.bounds: {numbers} axes and {listed} listed values, and moments are of at "
                f"most {MOST_COLUMNS - 1} together. List fewer values, or leave out axes."
            )
        fits = numbers < MOST_NUMBERS
        if self.method == "auto" and not listed and self.degree == 1:
            return fits and (self.constant, self.shards) == (1.0, "auto")
        if self.method in ("objective", "weights") and self.degree == 2:
            raise SpecError('target.degree: 2 is of moments. Write method = "moments".')
        if self.method == "weights" and listed:
            raise SpecError(_NUMBERS_ALONE.format("moments"))
        if self.method != "weights" and not fits:
            raise SpecError(
                f"target.method: moments are of at most {MOST_NUMBERS - 1} axes. Write method = "
                '"weights", or leave out axes.'
            )
        if self.method != "weights" and (self.constant, self.shards) != (1.0, "auto"):
            raise SpecError(
                'target.constant, target.shards: are of method = "weights". Leave them out.'
            )
        return self.method != "weights"

    @property
    def _ridge(self) -> float | None:
        """The ridge for numbers in [-1, 1], which are twice as long as those of the unit cube."""
        return None if self.C == "auto" else 4 / self.C
