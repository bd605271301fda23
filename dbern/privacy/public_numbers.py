"""Public numbers, for simulations and demonstrations: anyone can draw them again."""

from __future__ import annotations

from typing import Final

import numpy as np

from dbern.privacy.keystream import KEY_BYTES, KeyStream, subkey
from dbern.types import FloatArray

_PUBLIC_KEY: Final = bytes(KEY_BYTES)


def public_stream(label: str, index: int) -> KeyStream:
    """Return a reproducible stream for demonstration data and simulations. NEVER for a release.

    Its key is public: anyone can subtract its numbers. The purpose separates it from all noise.
    """
    return KeyStream(subkey(_PUBLIC_KEY, "public-simulation", label), index)


def uniform(stream: KeyStream, count: int) -> FloatArray:
    """Draw floats in [0, 1), multiples of ``2**-53``: for simulations, not for noise."""
    return (stream.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
