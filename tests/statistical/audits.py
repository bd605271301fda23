"""Confidence bounds on the chances of an event under two neighbouring databases."""

from __future__ import annotations

from scipy import stats


def chances(often: int, seldom: int, runs: int, false_alarm: float) -> tuple[float, float]:
    """A lower bound on the chance of what happened often, an upper one on that of the other.

    Each fails with the probability `false_alarm` (Clopper & Pearson 1934).
    """
    lower = stats.beta.ppf(false_alarm, often, runs - often + 1) if often else 0.0
    upper = stats.beta.isf(false_alarm, seldom + 1, runs - seldom) if seldom < runs else 1.0
    return float(lower), float(upper)
