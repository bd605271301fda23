"""Spaces of functions ``f(y) = <w, phi(y)>``, phi public, that a minimizer is chosen from.

A released function has coordinates that are a public linear map of w, so what one record does to
them is the norm of that map times what it does to w. The map is computed in floats; its error is
bounded by the norm of w, and enters the noise like every other float error.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.reproducing import Kernel
from dbern.erm.risk import Risk
from dbern.erm.shards import STORED_FEATURES
from dbern.types import FloatArray

MIN_SHARD_ROWS, _MAX_SHARD_ROWS = 1 << 16, 1 << 20  # of an automatic shard of features


class Space(ABC):
    """Functions ``<w, phi(y)>`` of the Hilbert space of `kernel`, which is learned with."""

    kernel: Kernel

    @property
    @abstractmethod
    def radius(self) -> float:
        """Largest Euclidean norm of a record's point."""

    @property
    @abstractmethod
    def shard_rows(self) -> int:
        """Rows of an automatic shard."""

    @property
    def bound(self) -> float:
        """``sup |phi(y)|`` over the unit cube."""
        return OUTWARD * math.sqrt(self.kernel.bound(self.radius))

    @property
    def stored_params(self) -> dict[str, Any]:
        """Parameters that the plan stores, as JSON values; `with_params` reads them."""
        return {}

    def resolved(self, risk_factor: float, n: int) -> Self:  # noqa: ARG002 - where a cut is chosen
        """The space for n records; a cut of the kernel costs `risk_factor` times itself."""
        return self

    def largest_factor(self, wanted: float) -> float:
        """Largest `risk_factor` up to `wanted` that `resolved` does not refuse."""
        return wanted

    def with_params(self, params: Mapping[str, Any]) -> Self:  # noqa: ARG002 - where some is stored
        """The space whose `stored_params` these are."""
        return self

    def points(self, positions: FloatArray) -> FloatArray:
        """Points (m, l) of records at unit-cube positions, each by its own alone."""
        return positions

    def cut_error(self, risk: Risk) -> float:  # noqa: ARG002 - where the kernel is cut
        """Bound the change of the minimizer by cutting the kernel, at any point."""
        return 0.0

    @abstractmethod
    def drift(self, distance: float) -> float:
        """Bound how far a feature moves with its point, `distance` on each axis: accuracy alone."""


class FeatureMap(Space):
    """Linear functions ``w . phi(y)`` of public features phi."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of features."""

    @property
    def shard_rows(self) -> int:
        """Rows whose features are kept while a shard is solved."""
        return min(_MAX_SHARD_ROWS, max(MIN_SHARD_ROWS, STORED_FEATURES // self.size))
