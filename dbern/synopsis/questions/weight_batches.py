"""Envelopes of many weights of all axes, made a batch at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dbern.bernstein.kernels import Kernel
from dbern.synopsis.questions.envelopes.kernel import density_envelope
from dbern.synopsis.questions.envelopes.splines import Envelope, products
from dbern.synopsis.questions.noisy_measure import NoisyMeasure
from dbern.synopsis.questions.regions import Boxes, Weights
from dbern.types import FloatArray


class WeightBatches(Protocol):
    """Envelopes of weights, some of them at a time."""

    def select(self, which: slice) -> Envelope:
        """Return the envelopes (m, b_1, ..) of some of the weights."""


@dataclass(frozen=True, eq=False)
class KernelsAt:
    """Kernels at points (m, l) of the unit cube."""

    measure: NoisyMeasure
    kernels: tuple[Kernel, ...]
    unit: FloatArray

    def select(self, which: slice) -> Envelope:
        """Return the envelopes of some of the points."""
        axes = zip(self.measure.splines, self.kernels, self.unit[which].T, strict=True)
        return products([density_envelope(*axis) for axis in axes])


@dataclass(frozen=True, eq=False)
class KernelsAlong:
    """Kernels at points (m,) of one axis of the unit cube, times weights of a box of the others."""

    measure: NoisyMeasure
    kernel: Kernel
    index: int
    unit: FloatArray
    weights: Weights
    condition: Boxes

    def select(self, which: slice) -> Envelope:
        """Return the envelopes of some of the points."""
        axis = density_envelope(self.measure.splines[self.index], self.kernel, self.unit[which])
        conditions = self.weights.axes(self.measure, self.condition)
        index = np.zeros(len(axis.estimate), np.intp)
        repeated = [envelope.select(index) for envelope in conditions]
        return products([*repeated[: self.index], axis, *repeated[self.index + 1 :]])


@dataclass(frozen=True, eq=False)
class InBoxes:
    """Weights of the rows in boxes."""

    measure: NoisyMeasure
    weights: Weights
    boxes: Boxes

    def select(self, which: slice) -> Envelope:
        """Return the envelopes of some of the boxes."""
        return products(self.weights.axes(self.measure, self.boxes.select(which)))
