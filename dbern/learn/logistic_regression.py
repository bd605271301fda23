"""Linear logistic regression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from dbern.combination.base import Combination
from dbern.combination.functions import Sigmoid
from dbern.data.domain import RecordSchema
from dbern.erm.losses import Logistic
from dbern.errors import SpecError
from dbern.learn.linear_functions import (
    build_linear_functions,
    released_method,
)
from dbern.learn.minimizers import (
    AUTO,
    CONSTANT,
    METHOD,
    METHODS,
    SHARDS,
    Cost,
    Method,
    Shards,
    combine_classes,
    cost_text,
)
from dbern.measure.statistic import Statistic
from dbern.targets.learner import Learner
from dbern.targets.parameters import refuse_unused


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

    def components(self, schema: RecordSchema) -> tuple[Statistic, ...]:
        """One."""
        refuse_unused(self, method=METHODS)
        classes = schema.classes.categories
        if self.link == "sigmoid" and len(classes) > 2:
            raise SpecError(
                'target.link: "sigmoid" is for two classes in this version. Write link = "linear"'
            )
        parameters = self.method, self.C, self.constant, self.shards
        return (build_linear_functions(schema, Logistic(), *parameters),)

    def combination(self, schema: RecordSchema) -> Combination:
        """The link."""
        if self.link == "sigmoid":
            return Sigmoid(schema.classes.categories, constant=self.constant)
        return combine_classes(schema, self.constant)

    def taken(self, counting: Mapping[str, Any]) -> dict[str, Any]:
        """Return the method."""
        return released_method(counting)

    def notes(self, n: int) -> tuple[str, ...]:
        """C in both forms."""
        return super().notes(n) if self.C == "auto" else (cost_text(float(self.C), n),)
