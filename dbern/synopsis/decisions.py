"""Decisions between classes: their labels, and which functions give probabilities of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dbern.combination.base import Combination
from dbern.errors import SpecError
from dbern.types import FloatArray


def labels_of(decisions: FloatArray, classes: Sequence[Any]) -> Any:
    """Return the classes that are decided for, (m,); where a decision is NaN, None.

    `decisions` are above zero for the second of two classes, or largest in the column of a class.
    """
    codes = decisions.argmax(axis=1) if decisions.ndim == 2 else (decisions > 0).astype(np.int64)
    labels = np.array(classes)[codes]
    unknown = np.isnan(decisions.reshape(len(decisions), -1)).any(axis=1)
    if unknown.any():
        labels = labels.astype(object)
        labels[unknown] = None
    return labels


def require_probabilities(combination: Combination, target: Mapping[str, Any]) -> None:
    """Refuse a function that leaves no probabilities of its classes, and say what does."""
    if not combination.classes:
        raise SpecError("probabilities: this function has no classes. Ask for its values")
    if combination.log_odds or combination.meaning(target) == "log-odds":
        return
    if target.get("release") == "joint":
        raise SpecError(
            "probabilities: a joint release is the difference of two scores, which do not follow "
            'from it. Release naive Bayes with release = "factored", or ask for decisions'
        )
    raise SpecError(
        f"probabilities: a {target['kind']} of {len(combination.classes)} classes has none. Use "
        "decision_function or predict, or release naive-bayes or, of two classes, "
        "logistic-regression"
    )
