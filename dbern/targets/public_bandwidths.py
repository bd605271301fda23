"""Bandwidths of regressions and of naive Bayes that follow from rows, epsilon and axes alone.

Released bins tell which bandwidth fits the rows, but not which fits their responses or classes:
there "auto" is a rule of public numbers. A kernel's standard deviation is the same share b of every
axis. It blurs by ``b^2``, and noise is to the rows that a value rests on as ``1 / (m b^l)``, for l
axes and m rows times epsilon: the sum is least where ``b^(l + 2)`` is in proportion to ``1 / m``.
From epsilon 3 on what rows differ by is left, whatever the noise: m grows no further than to three
times the rows.

The factors, ``.03 3^l`` of a regression and 1.5 of naive Bayes, whose sums have one axis each, and
the bounds are those of the least mean logarithm of errors on generated columns: ``make widths``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

_MAX_EPSILON_PER_ROW = 3.0
_REGRESSION_FACTOR, _FACTOR_PER_AXIS = 0.03, 3.0
_MAX_DEVIATION = 0.4
_MIN_DEVIATIONS = {1: 0.015, 2: 0.015, 3: 0.03, 4: 0.06, 5: 0.1, 6: 0.15, 7: 0.25, 8: 0.3}
"""Deviation that polynomials and bins of memory's size resolve, by the number of axes."""
_CLASS_FACTOR = 1.5
_MIN_CLASS_DEVIATION, _MAX_CLASS_DEVIATION = 0.03, 0.1
PLACEHOLDER_DEVIATION = 0.1
"""What a spec is read with before the number of rows is known."""


def regression_deviation(rows: float, epsilon: float, axes: int) -> float:
    """Return the standard deviation of a regression's kernels, as a share of each axis."""
    factor = _REGRESSION_FACTOR * math.pow(_FACTOR_PER_AXIS, axes) / _effective_rows(rows, epsilon)
    return min(max(math.pow(factor, 1 / (axes + 2)), _MIN_DEVIATIONS[axes]), _MAX_DEVIATION)


def class_deviation(rows: float, epsilon: float) -> float:
    """Return the standard deviation of naive Bayes's kernels, as a share of each axis."""
    deviation = math.cbrt(_CLASS_FACTOR / _effective_rows(rows, epsilon))
    return min(max(deviation, _MIN_CLASS_DEVIATION), _MAX_CLASS_DEVIATION)


def _effective_rows(rows: float, epsilon: float) -> float:
    return rows * epsilon / (1 + epsilon / _MAX_EPSILON_PER_ROW)


def bandwidth_note(bandwidth: Sequence[float] | Literal["auto"]) -> tuple[str, ...]:
    """Return the text of a bandwidth as a spec has it, where there is one."""
    if bandwidth == "auto" or not bandwidth:
        return ()
    return (f"bandwidth = [{', '.join(f'{length:g}' for length in bandwidth)}]",)
