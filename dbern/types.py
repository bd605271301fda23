"""Array types and the unit roundoff of floats."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

BoolArray: TypeAlias = NDArray[np.bool_]
ComplexArray: TypeAlias = NDArray[np.complex128]
FloatArray: TypeAlias = NDArray[np.float64]
Int64Array: TypeAlias = NDArray[np.int64]
UInt64Array: TypeAlias = NDArray[np.uint64]


UNIT_ROUNDOFF = 2.0**-53
