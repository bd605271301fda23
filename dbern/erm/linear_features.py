"""Linear functions of unit-cube coordinates, released by their weights (`dbern.erm.measurement`).

Records are projected to
the unit ball of unit-cube coordinates (Aldà and Rubinstein's assumption), which bounds kappa; the
function is that of all points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.reproducing import Linear
from dbern.erm.spaces import FeatureMap
from dbern.types import FloatArray


@dataclass(frozen=True)
class LinearFeatures(FeatureMap):
    """``w . y + w_0 constant`` in unit-cube coordinates; points are projected to the unit ball."""

    dimensions: int
    kernel: Linear
    radius = OUTWARD  # of the unit ball, and the rounding of the projection

    @property
    def bound(self) -> float:
        """``|phi|`` at the far corner of the cube."""
        return OUTWARD * math.sqrt(self.dimensions + self.kernel.constant**2)

    @property
    def size(self) -> int:
        """The coordinates, and the constant where it is not zero."""
        return self.dimensions + (self.kernel.constant > 0)

    def points(self, positions: FloatArray) -> FloatArray:
        """Divide positions by their norm where it exceeds one."""
        lengths = np.sqrt((positions * positions).sum(axis=1, keepdims=True))
        return np.asarray(positions / np.maximum(lengths, 1.0))

    def drift(self, distance: float) -> float:
        """Bound by the coordinates, which are the features, and the rounding of the projection."""
        return 2 * self.dimensions * distance


class CubeFeatures(LinearFeatures):
    """Positions as they are: nothing is projected."""

    def points(self, positions: FloatArray) -> FloatArray:
        """Positions as they are."""
        return positions
