"""How well values tell what they are for: imported by `rivals.library_runner` too, elsewhere."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

Scores = dict[str, float]
LOWER_IS_BETTER = ("RMSE", "error")
"""`error` is that of a released function."""


def scored(values: Any, truth: Any, radius: float) -> Scores:
    """RMSE of values in [-1, 1] times `radius`, or of classes the share told right, and AUC of two.

    Classes are booleans, and values what is above zero for the second; or numbers, with a column
    each.
    """
    if truth.dtype.kind == "f":
        return {"RMSE": radius * math.sqrt(np.mean((np.clip(values, -1, 1) - truth) ** 2))}
    if truth.dtype.kind == "b":
        told = {"AUC": float(roc_auc_score(truth, np.ravel(values)))}
        return told | {"accuracy": float(np.mean((np.ravel(values) > 0) == truth))}
    return {"accuracy": float(np.mean(values.argmax(axis=1) == truth))}
