"""Numbers as the report's page holds them: packed to a few bytes each, as text.

They are whole multiples of a unit, as differences, deflated. Weights and functions are smooth along
their places, so differences of differences of neighbours are small, and so are their bytes. They
are differences of integers below 2^53, which a browser's numbers add up exactly (`unpacked` in
``live.js``): a page has the multiples to their last digit.
"""

from __future__ import annotations

import base64
import math
import zlib
from typing import NamedTuple

import numpy as np

from dbern.types import FloatArray, Int64Array

_MAX_TURNS = 8
_MAX_INTEGER = 1 << 51  # twice as much, and a sign, is exact in a browser


class Packed(NamedTuple):
    """Multiples of a unit; a place's difference is from the one `lag` before it, `turns` times.

    `text` is base64 of the deflated bytes, `width` an integer: first the lowest of all integers,
    then the next. Even ones are halves of numbers from 0 on, odd ones those of numbers below.
    """

    unit: float
    lag: int
    turns: int
    width: int
    text: str


def pack(values: FloatArray, bits: int) -> Packed:
    """Round numbers to so many bits of the largest of them, at most 50, and pack them.

    Each is off by at most ``2 ** -(bits + 1)`` of the power of two above the largest; multiples of
    a power of two that have no more bits are exact. Neighbours are those along the last axis, or
    along the one before.
    """
    exponent = math.frexp(float(np.abs(values).max(initial=0.0)))[1] - bits
    multiples = np.rint(np.ldexp(values, -exponent)).astype(np.int64)
    used = int(np.bitwise_or.reduce(multiples, axis=None))
    common = max(0, (used & -used).bit_length() - 1)  # zeros at the end of all
    exponent, multiples = exponent + common, multiples >> common
    lag, turns, differences = _smallest(multiples.reshape(-1), (1, values.shape[-1]))
    codes = np.where(differences < 0, -2 * differences - 1, 2 * differences).astype("<i8")
    width = max(1, -(-int(codes.max(initial=0)).bit_length() // 8))
    planes = codes.view(np.uint8).reshape(-1, 8)[:, :width].T
    text = base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode()
    return Packed(math.ldexp(1.0, exponent), lag, turns, width, text)


def _smallest(multiples: Int64Array, lags: tuple[int, ...]) -> tuple[int, int, Int64Array]:
    """Return the lag and the turns after which differences have the fewest bits, and these."""
    best, fewest = (1, 0, multiples), math.inf
    for lag in lags:
        differences = multiples
        for turns in range(_MAX_TURNS + 1):
            if np.abs(differences).max(initial=0) >= _MAX_INTEGER:
                break
            size = float(np.log2(1.0 + np.abs(differences)).sum())
            if size < fewest:
                best, fewest = (lag, turns, differences), size
            start = differences[:lag]
            differences = np.concatenate([start, differences[lag:] - differences[:-lag]])
    return best
