"""Points of a request, of dask block by block: a block takes the synopsis to where it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from dbern.data.domain import Domain
from dbern.synopsis.evaluate import LEAST_RESAMPLED
from dbern.synopsis.points import Points, as_points, check_shape, plain
from dbern.system import cpu_count
from dbern.types import FloatArray


class Sent(Protocol):
    """A synopsis, which can be sent to another process."""

    @property
    def domain(self) -> Domain:
        """Axes and bounds of its points."""


def map_points(
    synopsis: Sent, points: Points, evaluate: Callable[..., FloatArray], columns: tuple[int, ...]
) -> Any:
    """Return an answer (m, *columns) at each point; of a dask array lazy.

    `evaluate` takes the synopsis, points (m, l) in memory, the count of all points of the request
    and, optionally, that of threads.
    """
    array = plain(points, synopsis.domain)
    if isinstance(array, np.ndarray):
        return evaluate(synopsis, array, len(array), cpu_count())
    check_shape(array.shape, synopsis.domain)
    total = LEAST_RESAMPLED if np.isnan(array.shape[0]) else array.shape[0]
    chunks = (array.chunks[0], *((count,) for count in columns))
    layout: dict[str, Any] = {"dtype": np.float64, "meta": np.empty((0,) * len(chunks))}
    layout |= {"chunks": chunks, "drop_axis": list(range(1, array.ndim))}
    layout |= {"new_axis": list(range(1, len(chunks)))}
    array = array.rechunk({1: -1}) if array.ndim == 2 else array
    return array.map_blocks(partial(_evaluate_block, evaluate=evaluate), synopsis, total, **layout)


def _evaluate_block(
    points: Points, synopsis: Sent, total: int, *, evaluate: Callable[..., FloatArray]
) -> FloatArray:
    return evaluate(synopsis, as_points(points, synopsis.domain), total)
