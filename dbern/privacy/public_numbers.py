"""Public numbers, for simulations and demonstrations: anyone can draw them again."""

from __future__ import annotations

from typing import Final

import numpy as np

from dbern.privacy.keystream import KEY_BYTES, KeyStream, subkey
from dbern.types import FloatArray

# Published here for everyone to read: what it draws is reproducible and protects nothing.
_PUBLIC_KEY: Final = bytes(KEY_BYTES)


def public_stream(label: str, index: int) -> KeyStream:
    """A reproducible stream for demonstration data and simulations. NEVER for a release.

    Its key is public: anyone can subtract what it draws. The purpose separates it from all noise.
    """
    return KeyStream(subkey(_PUBLIC_KEY, "public-simulation", label), index)


def uniform(stream: KeyStream, count: int) -> FloatArray:
    """Floats in [0, 1), multiples of ``2**-53``: for simulations, not for noise."""
    return (stream.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
