"""What is asked of a synopsis at each point, and which synopses have probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dbern.combination import Answer, Combination
from dbern.errors import SpecError
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
