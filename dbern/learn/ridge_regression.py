"""Linear and quadratic least squares with a penalty."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from dbern.bernstein.reproducing import Linear
from dbern.combination.base import Combination
from dbern.combination.functions import count_with_products
from dbern.combination.responses import LeastSquares
from dbern.data.domain import RecordSchema
from dbern.erm.losses import Huber, Square
from dbern.erm.perturbed import categorical_fraction, categorical_noise
from dbern.erm.spaces import LinearFeatures
from dbern.errors import SpecError
from dbern.learn.linear_functions import (
    MAX_OBJECTIVE_ROWS,
    NUMERIC_ONLY,
    WEIGHTS_ONLY,
    build_linear_functions,
)
from dbern.learn.minimizers import (
    CONSTANT,
    METHODS,
    SHARDS,
    Cost,
    Shards,
    alpha_text,
    build_minimizer,
    combine_responses,
    stated_cost,
)
from dbern.learn.moment_sums import MomentSums
from dbern.learn.predictions import predicted_moments, predicted_weights
from dbern.measure.statistic import Statistic
from dbern.privacy.budget import Budget
from dbern.reconstruct.moments import MOST_COLUMNS, MOST_NUMBERS
from dbern.targets.learner import DesignedStatistic, Learner, response_of
from dbern.targets.parameters import refuse_unused
from dbern.targets.predicted_functions import deviation_of
from dbern.targets.typical import (
    UNEXPLAINED,
    WARNING,
    TypicalResponses,
    typical_variances,
)

_METHODS = {**METHODS, "auto": ("degree", *METHODS["auto"]), "moments": ("degree",)}
_RELATIVE_THRESHOLD = 0.5
"""Of half the range: twice what responses deviate typically, and what noise grows with."""
_LINEAR_TERM_FRACTION = 0.75
"""Of epsilon, about: what an objective has for its linear term."""
_MAX_NOISE_BY_VALUE, _MAX_NOISE_RATIO = 0.0005, 3.0
"""Of the rest's variance, and of an objective's noise: where moments have more an objective, with
some three quarters of epsilon for its linear term, answers better. Rare values make moments' noise
some ten times as much as these say; penalty and cut residuals cost an objective as much as that."""
_CUT_RESIDUALS = 0.0025
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

    def components(self, schema: RecordSchema) -> tuple[Statistic, ...]:
        """One."""
        refuse_unused(self, method=_METHODS)
        response = response_of(schema)
        if self._by_moments(schema):
            return (MomentSums.of(schema.domain, response, self.degree),)
        if self.method == "objective":
            robust = Huber(_RELATIVE_THRESHOLD * response.radius, response.radius)
            parameters = self.C, self.constant, self.shards
            return (build_linear_functions(schema, robust, "objective", *parameters),)
        loss = Square(response.radius)
        space = LinearFeatures(schema.domain.dimensions, Linear(self.constant))
        return (build_minimizer(schema, loss, space, stated_cost(self.C), self.shards),)

    def for_rows(self, schema: RecordSchema, n: int, charge: Budget) -> RidgeRegression:
        """Return it with its method: by objective where moments are too noisy."""
        if self.method != "auto":
            return self
        method = "moments" if self._by_moments(schema) else "weights"
        usual = (method, self.degree, self.C) == ("moments", 1, "auto") and not charge.delta
        if usual and n <= MAX_OBJECTIVE_ROWS and self._are_noisy(schema, n, charge.epsilon):
            method = "objective"
        return RidgeRegression(**self.get_params() | {"method": method})

    def _are_noisy(self, schema: RecordSchema, n: int, epsilon: Fraction) -> bool:
        """Whether noise of moments adds more to squared errors than that of an objective."""
        lists, sums = schema.domain.blocks, MomentSums.of(schema.domain, response_of(schema))
        by_value, of_numbers = sums.typical_noise(n, epsilon)
        numbers = len(schema.domain.numeric)
        categorical = float(categorical_fraction(numbers, lists))
        scale = (
            2 * _RELATIVE_THRESHOLD / (_LINEAR_TERM_FRACTION * float(epsilon)) / n
        )  # of b, over n, where it has all
        listed = categorical_noise(lists) * (scale / categorical) ** 2 if lists else 0.0
        b_variance = (scale / (1 - categorical)) ** 2 * (numbers + 2) * (numbers + 3) / 3
        objective = b_variance * float(np.sum(1 / typical_variances(numbers)))
        objective += _CUT_RESIDUALS * UNEXPLAINED
        noisy_lists = by_value > max(_MAX_NOISE_BY_VALUE * UNEXPLAINED, _MAX_NOISE_RATIO * listed)
        return noisy_lists or of_numbers > objective

    def notes(self, n: int) -> tuple[str, ...]:
        """C in both forms, and what else is not least squares."""
        if self.method != "objective":
            return ()
        notes = (
            "by objective: residuals beyond a quarter of the response's range pull no more",
            'for intervals of regression() and other responses write method = "moments", of larger '
            "noise",
        )
        return notes if self.C == "auto" else (*notes, alpha_text(float(self.C), n))

    def combination(self, schema: RecordSchema) -> Combination:
        """The response."""
        if not self._by_moments(schema):
            return combine_responses(schema, self.constant)
        response = response_of(schema)
        weight = MomentSums.of(schema.domain, response, self.degree).moments.weight
        quadratic = self.degree == 2
        return LeastSquares(
            low=response.low, high=response.high, constant=1.0,
            response=response.name, weight=weight, products="weighted", ridge=self._ridge,
            degree=2 if quadratic else None,
            lists=schema.domain.blocks if quadratic else (),
        )  # fmt: skip

    def predictions(
        self, schema: RecordSchema, n: int, designs: Sequence[DesignedStatistic]
    ) -> tuple[str, ...]:
        """Predict the excess risk on typical records, beside a constant's."""
        response = response_of(schema)
        typical = TypicalResponses(schema.domain.dimensions, (), response.radius)
        if self._by_moments(schema):
            moments = MomentSums.of(schema.domain, response, self.degree).moments
            excess_risk = predicted_moments(moments, designs[0].law, self._ridge)
            solved = "automatic" if self._ridge is None else f"{self._ridge:g}, C = {self.C:g}"
            lines = [f"by moments, ridge {solved}"]
            if self.degree == 2:
                linear_only = MomentSums.of(schema.domain, response).moments.sensitivity(1).value
                times = moments.sensitivity(1).value / linear_only
                lines.append(f"degree 2: {times:.2g} times the sensitivity of degree 1")
            note = typical.note((excess_risk, excess_risk))
            if schema.domain.categorical and note[-1:] == (WARNING,):
                note = (*note, 'of listed values method = "objective" may have less noise: plan it')
            return (*lines, *note)
        if self.method == "objective":
            return ()  # the statistic, which chooses, says it
        space = LinearFeatures(schema.domain.dimensions, Linear(self.constant))
        loss, noise = Square(response.radius), deviation_of(designs[0].law)
        ours, _ = predicted_weights(typical, space, loss, stated_cost(self.C), noise)
        return (f"by weights, {alpha_text(stated_cost(self.C), n)}", *typical.note(ours))

    def _by_moments(self, schema: RecordSchema) -> bool:
        if self.method == "objective":
            return False
        numbers = count_with_products(len(schema.domain.numeric), self.degree)
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
        if self.method == "weights" and listed:
            raise SpecError(NUMERIC_ONLY.format("moments"))
        if self.method != "weights" and not fits:
            raise SpecError(
                f"target.method: moments are of at most {MOST_NUMBERS - 1} axes. Write method = "
                '"weights", or leave out axes.'
            )
        if self.method != "weights" and (self.constant, self.shards) != (1.0, "auto"):
            raise SpecError(WEIGHTS_ONLY)
        return self.method != "weights"

    @property
    def _ridge(self) -> float | None:
        """The ridge for numbers in [-1, 1], which are twice as long as those of the unit cube."""
        return None if self.C == "auto" else 4 / self.C
