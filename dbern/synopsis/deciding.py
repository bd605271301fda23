"""scikit-learn's names on a synopsis: decisions, classes and probabilities of points."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dbern.combination import Answer, Combination
from dbern.domain import Domain
from dbern.errors import SpecError
from dbern.synopsis.points import Points, plain
from dbern.synopsis.selection import Smoothing

Order: TypeAlias = int | Sequence[int] | str | None
"""Order of the iterated operator: one, one per axis, "auto", or None for the released one."""


@dataclass(frozen=True)
class Question:
    """What is asked of every point of a request.

    Attributes
    ----------
    smoothings : tuple of Smoothing, optional
        One for each released array; None for the nearest node's value.
    noise : tuple of float
        The deviation of the noise of each array, where `answer` needs it.
    """

    smoothings: tuple[Smoothing, ...] | None
    answer: Answer = "value"
    noise: tuple[float, ...] = ()


class Deciding(ABC):
    """What a released classifier says, beside the values of its function.

    All of it is post-processing of what is released. Bands and certificates are for the values.
    """

    @property
    @abstractmethod
    def combination(self) -> Combination:
        """How the arrays make the function."""

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """Axes and bounds."""

    @property
    @abstractmethod
    def metadata(self) -> dict[str, Any]:
        """What was released."""

    @abstractmethod
    def __call__(self, points: Points, h: Order = None) -> Any:
        """Values of the function."""

    @abstractmethod
    def _question(self, h: Order, answer: Answer = "value") -> Question: ...

    @abstractmethod
    def _answered(self, points: Points, question: Question) -> Any: ...

    @property
    def classes(self) -> tuple[Any, ...]:
        """Public labels of the classes or groups, in order; empty where it has none."""
        return self.combination.classes

    def decision_function(self, points: Points, h: Order = None) -> Any:
        """What decides: above zero for the second of two classes, or the largest column's class.

        Of naive Bayes the log odds of the second of two classes, of more the logarithms of their
        probabilities: not the values, which are differences of densities and large where records
        are many. Of other classifiers the values, or what a sigmoid is taken of. No band is
        promised for them but for that of the values. NaN outside the bounds.

        Returns
        -------
        array (m,) or (m, classes)

        Raises
        ------
        SpecError
            Where what was released has no classes.
        """
        if not self.classes:
            raise SpecError("decision_function: this function has no classes; call the synopsis")
        return self._answered(points, self._question(h, "decision"))

    def predict(self, points: Points, h: Order = None) -> Any:
        """The class of each point, by `decision_function`.

        A function without classes predicts its values. Outside the bounds the first class.

        Returns
        -------
        array (m,)
        """
        if not self.classes:
            return self(points, h)
        values = self.decision_function(plain(points, self.domain), h)
        codes = values.argmax(axis=1) if values.ndim == 2 else (values > 0).astype(np.int64)
        return np.array(self.classes)[codes]

    def predict_proba(self, points: Points, h: Order = None) -> Any:
        """The probability of each class: of naive Bayes, and of logistic loss and two classes.

        Where the noise hides what records say of a point, naive Bayes answers with the shares of
        the classes. NaN outside the bounds.

        Returns
        -------
        array (m, classes)
            In the order of `classes`; rows sum to one. A table gives columns
            ``probability_<class>``.

        Raises
        ------
        SpecError
            Where what was released gives no probabilities.
        """
        return self._answered(points, self._question(h, "probability"))


def require_probabilities(combination: Combination, target: Mapping[str, Any]) -> None:
    """Refuse a function that leaves no probabilities of its classes.

    Raises
    ------
    SpecError
        Which says what does.
    """
    kind = target["kind"]
    if not combination.classes:
        raise SpecError("probabilities: this function has no classes; ask for its values")
    logistic = kind == "logistic-regression" or target.get("loss") == "logistic"
    if combination.log_odds or (logistic and not combination.several):
        return
    if kind == "naive-bayes":
        raise SpecError(
            "probabilities: a joint release is the difference of two scores, which do not follow "
            'from it; release naive Bayes with release = "factored", or ask for decisions'
        )
    several = " of more than two classes" if logistic else ""
    raise SpecError(
        f"probabilities: a {kind}{several} has none; use decision_function or predict, or release "
        "naive-bayes or, of two classes, logistic-regression"
    )
