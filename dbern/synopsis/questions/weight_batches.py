"""Envelopes of many weights of the rows, made a batch at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from dbern.bernstein.kernels import Kernel
from dbern.synopsis.questions.envelopes.kernel import density_envelope
from dbern.synopsis.questions.envelopes.splines import Envelope, products
from dbern.synopsis.questions.noisy_measure import NoisyMeasure
from dbern.synopsis.questions.regions import Boxes, Weights
from dbern.types import FloatArray


class WeightBatches(Protocol):
    """Envelopes of weights, some of them at a time; an `Envelope` has them all."""

    def __len__(self) -> int:
        """Return the number of weights."""

    def select(self, which: slice) -> Envelope:
        """Return the envelopes (m, b_1, ..) of some of the weights."""


class ProductWeights(ABC):
    """Products of weights of the axes."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of products."""

    @abstractmethod
    def axes(self, which: slice) -> list[Envelope]:
        """Return the envelopes (m, bins) of the factors of some of the products, axis by axis."""

    @property
    def used(self) -> tuple[int, ...]:
        """Axes that suffice, as weights of all others are 1; empty where all are needed."""
        return ()

    def select(self, which: slice) -> Envelope:
        """Return the envelopes (m, b_1, ..) of some of the products."""
        return products(self.axes(which))


@dataclass(frozen=True, eq=False)
class KernelsAt(ProductWeights):
    """Products of kernels, a kernel an axis, each at all of the points (m, l) of the unit cube."""

    measure: NoisyMeasure
    kernels: Sequence[tuple[Kernel, ...]]
    unit_points: FloatArray

    def __len__(self) -> int:
        return len(self.kernels) * len(self.unit_points)

    @cached_property
    def _factors(self) -> list[Envelope]:
        factors = []
        for axis, splines in enumerate(self.measure.splines):
            y, index = np.unique(self.unit_points[:, axis], return_inverse=True)  # few, of a grid
            envelopes = (density_envelope(splines, product[axis], y) for product in self.kernels)
            factors.append(Envelope.joined(envelope.select(index) for envelope in envelopes))
        return factors

    def axes(self, which: slice) -> list[Envelope]:
        """Return the envelopes of some of the kernels, axis by axis."""
        return [envelope.select(which) for envelope in self._factors]


@dataclass(frozen=True, eq=False)
class KernelsAlong(ProductWeights):
    """Kernels at points (m,) of one axis of the unit cube, times weights of a box of the others."""

    measure: NoisyMeasure
    kernel: Kernel
    index: int
    unit_points: FloatArray
    weights: Weights
    condition: Boxes

    def __len__(self) -> int:
        return len(self.unit_points)

    def axes(self, which: slice) -> list[Envelope]:
        """Return the envelopes of some of the kernels and of the box, axis by axis."""
        splines, y = self.measure.splines[self.index], self.unit_points[which]
        factors = self.weights.axes(self.measure, self.condition)
        factors = [envelope.select(np.zeros(len(y), np.intp)) for envelope in factors]
        factors[self.index] = density_envelope(splines, self.kernel, y)
        return factors


@dataclass(frozen=True, eq=False)
class InBoxes(ProductWeights):
    """Weights of the rows in boxes."""

    measure: NoisyMeasure
    weights: Weights
    boxes: Boxes

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def used(self) -> tuple[int, ...]:
        """Axes that a box bounds, where rows count themselves."""
        bounded = ((self.boxes.low > 0) | (self.boxes.high < 1)).any(axis=0)
        return () if self.weights.kernels else tuple(np.flatnonzero(bounded).tolist())

    def axes(self, which: slice) -> list[Envelope]:
        """Return the envelopes of some of the boxes, axis by axis."""
        return self.weights.axes(self.measure, self.boxes.select(which))
