"""Points that are about where the rows are: synthetic, for trying things."""

from __future__ import annotations

import numpy as np

from dbern.errors import SpecError
from dbern.privacy.accuracy import public_stream, uniform
from dbern.synopsis.questions.measure import Measure
from dbern.types import FloatArray


def sampled_points(measure: Measure, count: int, seed: int) -> FloatArray:
    """Draw points (count, l) of the unit cube by the law of `Distribution.sample`."""
    stream = public_stream("questions, sample", seed)
    shares = np.cumsum(np.maximum(measure.values, 0.0).ravel())
    if not shares[-1] > 0:
        raise SpecError(
            "sample: no released number is above 0, so the noise hides all rows. Ask for counts, "
            "whose intervals say how many there can be"
        )
    picked = np.searchsorted(shares, uniform(stream, count) * shares[-1], side="right")
    columns = []
    for splines, index in zip(
        measure.splines, np.unravel_index(picked, measure.values.shape), strict=True
    ):
        steps = uniform(stream, count * (splines.degree + 1)).reshape(count, -1).sum(axis=1)
        t = (index - splines.degree + steps) / splines.cells
        columns.append(np.clip(1.0 - np.abs(1.0 - np.abs(t)), 0.0, 1.0))
    return np.column_stack(columns)
