"""Weights of the rows in a region or under a condition, and their envelopes a batch at a time.

`NoisyMeasure.conditional` has three layers of the axis's bins: the condition from below, nearly,
and from above.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from dbern.ask.bins import NoisyMeasure
from dbern.ask.kernel_envelopes import density_envelope, mass_envelope
from dbern.ask.polygon_envelopes import polygon_envelope, smoothed_polygon_envelope
from dbern.ask.regions import Boxes, Polygons
from dbern.ask.splines import Envelope, intervals, products
from dbern.bernstein.kernels import Kernel
from dbern.types import FloatArray

_HARMLESS = 20  # of a bin's deviation, what integration may miss
LOW, NEAR, HIGH = LAYERS = (0, 1, 2)


@dataclass(frozen=True)
class Weights:
    """Weight of a point for an interval: 0 or 1, or the share of its kernel that is inside.

    There is a kernel an axis, and none where rows count themselves.
    """

    kernels: tuple[Kernel, ...] = ()

    def between(
        self, measure: NoisyMeasure, axis: int, low: FloatArray, high: FloatArray
    ) -> Envelope:
        """Return the envelopes of the weights of intervals of one axis, reversed ones empty."""
        splines = measure.splines[axis]
        if not self.kernels:
            return intervals(splines, low, high)
        return mass_envelope(splines, self.kernels[axis], low, np.maximum(low, high))

    def axes(self, measure: NoisyMeasure, boxes: Boxes) -> list[Envelope]:
        """Return the envelopes of boxes, axis by axis."""
        pairs = enumerate(zip(boxes.low.T, boxes.high.T, strict=True))
        return [self.between(measure, axis, low, high) for axis, (low, high) in pairs]

    def polygons(self, measure: NoisyMeasure, shapes: Polygons) -> Envelope:
        """Return the envelopes of polygons of both axes, (m, b_1, b_2)."""
        if not self.kernels:
            return polygon_envelope(shapes, measure.splines)
        error = measure.deviation / _HARMLESS
        return smoothed_polygon_envelope(shapes, measure.splines, self.kernels, error)

    def other_axes(self, measure: NoisyMeasure, box: Boxes, *asked_axes: int) -> Envelope:
        """Return the envelope of one box for the bins of all axes but some, (b_1, ..) each."""
        axes = [axis for i, axis in enumerate(self.axes(measure, box)) if i not in asked_axes]
        return products(axes).select(0) if axes else Envelope(*[np.ones(1)] * 3)


def slices(count: int, batch_size: int) -> Iterator[slice]:
    """Return which of `count` weights are of each batch, of one weight at least."""
    step = max(batch_size, 1)
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


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


def under_condition(weights: Envelope) -> Envelope:
    """Return weights of the layers for those of an axis times the condition.

    A minorant of the product is ``L_x U + U_x L - U_x U``.
    """
    lower = layer_weights({HIGH: weights.lower - weights.upper, LOW: weights.upper})
    upper = layer_weights({HIGH: weights.upper})
    return Envelope(lower, layer_weights({NEAR: weights.estimate}), upper)


def layer_weights(layers: Mapping[int, FloatArray]) -> FloatArray:
    """Return weights (m, layers, bins), zero but for the layers that are named."""
    rows = np.atleast_2d(next(iter(layers.values())))
    weights = np.zeros((len(rows), len(LAYERS), rows.shape[1]))
    for layer, values in layers.items():
        weights[:, layer] = values
    return weights
