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

_MOST_WORTH = 3.0
_BLURRED, _BY_AXIS = 0.03, 3.0
_WIDEST = 0.4
_FINEST = {1: 0.015, 2: 0.015, 3: 0.03, 4: 0.06, 5: 0.1, 6: 0.15, 7: 0.25, 8: 0.3}
"""Deviation that polynomials and bins of memory's size resolve, by the number of axes."""
_OF_CLASSES = 1.5
_FINEST_OF_CLASSES, _WIDEST_OF_CLASSES = 0.03, 0.1
BEFORE_ROWS = 0.1
"""What a spec is read with before the number of rows is known."""


def regression_share(rows: float, epsilon: float, axes: int) -> float:
    """Return the standard deviation of a regression's kernels, as a share of each axis."""
    blurred = _BLURRED * math.pow(_BY_AXIS, axes) / _worth(rows, epsilon)
    return min(max(math.pow(blurred, 1 / (axes + 2)), _FINEST[axes]), _WIDEST)


def class_share(rows: float, epsilon: float) -> float:
    """Return the standard deviation of naive Bayes's kernels, as a share of each axis."""
    share = math.cbrt(_OF_CLASSES / _worth(rows, epsilon))
    return min(max(share, _FINEST_OF_CLASSES), _WIDEST_OF_CLASSES)


def _worth(rows: float, epsilon: float) -> float:
    return rows * epsilon / (1 + epsilon / _MOST_WORTH)


def readable_lengths(lengths: Sequence[float]) -> tuple[float, ...]:
    """Return lengths to three digits, as a synopsis states them."""
    return tuple(float(f"{length:.3g}") for length in lengths)


def told_bandwidth(bandwidth: Sequence[float] | Literal["auto"]) -> tuple[str, ...]:
    """Return the text of a bandwidth as a spec has it, where there is one."""
    if bandwidth == "auto" or not bandwidth:
        return ()
    return (f"bandwidth = [{', '.join(f'{length:g}' for length in bandwidth)}]",)
