"""The release step: integer centers plus noise that is a function of key and position alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from dbern.errors import IntegrityError
from dbern.privacy.keystream import KEY_BYTES, KeyStream, subkey
from dbern.privacy.laplace import MAX_CENTER, SignedNoise
from dbern.privacy.noise_law import NoiseLaw
from dbern.types import FloatArray, Int64Array

CANONICAL_BLOCK: Final = 65536


def privatize(
    center: Int64Array, start: int, noise: NoiseLaw, key: bytes, component: str
) -> Int64Array:
    """Add the release's noise to a slice of one component's centers.

    The noise at a canonical position is a pure function of (key, component, position, law, stream
    format version): block b holds positions ``[65536 b, 65536 (b + 1))`` and has a key stream of
    its own, sampled from the block's beginning whatever slice is asked for. So a retry draws the
    same noise, and neither slices nor threads change a bit. Laws have stream keys of their own and
    never share a word. One release key must never meet two different centers: the difference of
    the outputs would be that of the data.

    The output is the exact ``center + noise`` cut to ``+-(2**63 - 1)``, which is post-processing
    (`SignedNoise.added_to`); ``-2**63`` never occurs.

    `center` is a flat slice of the component's coefficients in C order, in granules, and `start`
    the canonical position of its first one (`place_of`). Raises IntegrityError for centers that are
    not one flat ``int64`` array below ``2**62`` in magnitude, or beyond the law's values, and for a
    key of the wrong length.
    """
    if len(key) != KEY_BYTES:
        raise IntegrityError(f"noise: a release key has {KEY_BYTES} bytes")
    _check_center(center, start)
    stream_key = subkey(key, "noise", component, noise.stream_label)
    noisy = np.empty_like(center)
    stop = start + center.size
    if stop > noise.values:
        raise IntegrityError(f"noise: a vector of {noise.values} values has none at {stop}")
    for block in range(start // CANONICAL_BLOCK, -(-stop // CANONICAL_BLOCK)):
        origin = block * CANONICAL_BLOCK
        first, last = max(start, origin), min(stop, origin + CANONICAL_BLOCK)
        drawn = _block_noise(noise, last - origin, stream_key, block)[first - origin :]
        here = slice(first - start, last - start)
        noisy[here] = drawn.added_to(center[here])
    return noisy


def place_of(noise: NoiseLaw, arrays: Sequence[str], output: int, size: int) -> tuple[str, int]:
    """Component and first position of the noise of an output.

    Outputs have independent noise, but one vector of a joint law: separate vectors would cost twice
    for a record that changes its output. Names of arrays are unique in a release.
    """
    return (arrays[output], 0) if noise.values == math.inf else (arrays[0], output * size)


def _block_noise(noise: NoiseLaw, count: int, stream_key: bytes, block: int) -> SignedNoise:
    """The first `count` samples of a block; more samples would begin with the same ones."""
    return noise.draw(count, KeyStream(stream_key, block))


def _check_center(center: Int64Array, start: int) -> None:
    if center.dtype != np.int64 or center.ndim != 1 or start < 0:
        raise IntegrityError("noise: centers must be a flat int64 array at a position from 0 on")
    # The bounds are compared apart: the magnitude of -2**63 is not an int64.
    if center.size and not -MAX_CENTER < center.min() <= center.max() < MAX_CENTER:
        raise IntegrityError("noise: a center reaches 2**62 granules, which the plan excluded")


def to_grid(values: FloatArray, noise: NoiseLaw) -> Int64Array:
    """The multiples of the granularity nearest to computed values, in granules.

    Scaling by a power of two is exact (the exponents a law allows cannot overflow a value
    below ``2**62 g``, and what underflows rounds to 0 either way), and so is rounding a float to
    the nearest integer: each result is within g/2 of its value, as the calibration's proof needs.

    Raises IntegrityError for a value that is not finite or reaches ``2**62`` granules.
    """
    with np.errstate(over="ignore", under="ignore"):
        granules = values * math.ldexp(1.0, -noise.granularity_exponent)  # normal: `EXPONENTS`
    np.rint(granules, out=granules)
    limit = float(MAX_CENTER)
    if granules.size and not -limit < granules.min() <= granules.max() < limit:  # nor NaN
        raise IntegrityError("noise: a value is not finite or reaches 2**62 granules")
    return granules.astype(np.int64)
