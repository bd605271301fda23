"""Points that are about where the rows are: synthetic, for trying things."""

from __future__ import annotations

import numpy as np

from dbern.errors import SpecError
from dbern.privacy.public_numbers import public_stream, uniform
from dbern.synopsis.points import per_axis
from dbern.synopsis.questions.noisy_measure import NoisyMeasure
from dbern.system import memory_limit
from dbern.types import FloatArray

_BYTES_OF_DRAW = 24  # of each uniform number that a point is made of, with what computes it


def read_counts(measure: NoisyMeasure, n: object, seed: object) -> tuple[int, int]:
    """Read how many points to draw, of a seed. Raises SpecError for more than fit into memory."""
    counts = per_axis([n, seed], 2, 0, 2**63)
    if counts is None or counts[0] < 1:
        raise SpecError(
            "sample: n and seed are integers. Write how many points to draw, at least 1, and "
            "a seed that is not negative"
        )
    count, number = counts
    degree = max(splines.degree for splines in measure.splines)
    largest = memory_limit() // (_BYTES_OF_DRAW * (degree + len(measure.splines) + 4))
    if count > largest:
        raise SpecError(f"sample: n = {largest} and less fit into memory. Draw several parts")
    return count, number


def sampled_points(measure: NoisyMeasure, count: int, seed: int) -> FloatArray:
    """Draw points (count, l) of the unit cube by the law of `Distribution.sample`."""
    stream = public_stream("questions, sample", seed)
    cumulative = np.cumsum(_nearest_measure(measure.bins.ravel()))
    if not cumulative[-1] > 0:
        raise SpecError(
            "sample: the released numbers do not sum to more than 0, so the noise hides all rows. "
            "Ask for counts, whose intervals say how many there can be"
        )
    bin_indices = np.searchsorted(cumulative, uniform(stream, count) * cumulative[-1], side="right")
    columns = []
    for splines, index in zip(
        measure.splines, np.unravel_index(bin_indices, measure.shape), strict=True
    ):
        steps = uniform(stream, count * (splines.degree + 1)).reshape(count, -1).sum(axis=1)
        t = (index - splines.degree + steps) / splines.cells
        columns.append(np.clip(1.0 - np.abs(1.0 - np.abs(t)), 0.0, 1.0))
    return np.column_stack(columns)


def _nearest_measure(values: FloatArray) -> FloatArray:
    """Return the nearest numbers (m,) to some that are not negative and have the same sum.

    They are what is left above a threshold. All numbers of noise above 0 together would be a
    uniform law beside that of the rows, as large as there are bins. Zeros for a sum below 0.
    """
    total, falling = float(values.sum()), np.sort(values)[::-1]
    if total <= 0:
        return np.zeros_like(values)
    thresholds = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    last = np.flatnonzero(falling > thresholds)[-1]
    return np.asarray(np.maximum(values - thresholds[last], 0.0))
