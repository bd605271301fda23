"""Records at positions of the unit cube, and what a sketch counts of them."""

from __future__ import annotations

import numpy as np

from dbern.measure.kernel_sketch import MomentSketch
from dbern.measure.kernel_sums import add_rows
from dbern.measure.record_integers import Rows


def unit_rows(positions: np.ndarray, weight: np.ndarray | None = None) -> Rows:
    """Records at unit-cube positions (m, l), all of which count."""
    axes = positions.shape[1]
    return Rows(list(positions.T), [0.0] * axes, [1.0] * axes, weight=weight)


def add(sketch: MomentSketch, state: np.ndarray, positions: np.ndarray) -> None:
    """Add records to a state of one output, in place."""
    add_rows(state, unit_rows(positions), sketch.terms(1))


def state_of(sketch: MomentSketch, positions: np.ndarray) -> np.ndarray:
    """The state of some records."""
    state = np.zeros(sketch.shape, dtype=np.int64)
    add(sketch, state, positions)
    return state
