"""Records of no one: what a user's function is asked of before it sees the real ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from dbern.arrays import FloatArray
from dbern.components.user_functions import FUNCTION, Range, load
from dbern.errors import SpecError
from dbern.privacy.entropy import KeyStream
from dbern.privacy.mechanism import public_stream, uniform

_POINTS = 3


def uniform_records(ranges: Sequence[Range], rows: int, stream: KeyStream) -> FloatArray:
    """Independent records (rows, columns), uniform over their public ranges.

    Examples
    --------
    >>> ranges = [Range(0.0, 10.0), Range(0.0, 1.0, whole=True)]
    >>> uniform_records(ranges, 3, public_stream("example", 0)).round(2).tolist()
    [[0.51, 0.0], [3.21, 1.0], [2.4, 0.0]]
    """
    columns = []
    shares = uniform(stream, rows * len(ranges)).reshape(rows, len(ranges))
    for share, one in zip(shares.T, ranges, strict=True):
        if one.whole:
            columns.append(np.floor(share * (one.high + 1)))
        else:
            columns.append(np.clip(one.low + share * (one.high - one.low), one.low, one.high))
    return np.column_stack(columns)


@lru_cache(maxsize=16)
def try_out(function: str, ranges: tuple[Range, ...], axes: int, rows: int) -> None:
    """Ask a function once, of made-up records and a few points.

    Raises
    ------
    SpecError
        Where it raises, or does not return one number a point.
    """
    records = uniform_records(ranges, rows, public_stream("trial of a function", 0))
    share = np.linspace(0, 1, _POINTS)[:, None]
    ends = np.array([(one.low, one.high - one.low) for one in ranges[:axes]])
    points = ends[:, 0] + share * ends[:, 1]
    called = load(function)
    try:
        with np.errstate(all="ignore"):
            values = np.asarray(called(records, points), dtype=np.float64)
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- it may fail in any way
        shapes = f"records {(rows, len(ranges))} and points {(_POINTS, axes)}"
        raise SpecError(
            f"{FUNCTION}: fails on made-up records ({type(error).__name__}); it gets {shapes}; "
            "mend it"
        ) from None
    if values.shape != (_POINTS,):
        raise SpecError(
            f"{FUNCTION}: returns shape {values.shape} for {_POINTS} points; return one number a "
            f"point, shape ({_POINTS},)"
        )
