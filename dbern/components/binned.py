"""Counting records into B-spline bins: integers from the record to the noise.

A record of weight w adds ``round(2^s w beta_j(t))`` to each of the (p + 1)^l bins j that its
position t touches. What it adds differs from ``2^s w beta_j(t)`` by half a unit for the rounding
and far less than another half for the floats that computed it (a few dozen roundings of numbers up
to one, 2^-53 each, with s at most 40): by rho = 2^-s at most, in units of w beta. Replacing a
record then moves the bins by at most ``2 (p + 1)^l rho / n`` more than exact weights would, in the
l1 norm, and by ``2 (p + 1)^{l/2} rho / n`` in the l2 norm, whether it stays in its output or not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dbern.arrays import FloatArray, Int64Array
from dbern.bernstein.counting import add_rows
from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.lattice import Slab
from dbern.bernstein.maps import BinnedCoordinates
from dbern.bernstein.rows import EQUAL, Terms, strides
from dbern.components.weighings import Summands
from dbern.domain import Column

_ULP = 2.0**-53


@dataclass(frozen=True)
class BinnedSumStatistic:
    """A kernel sum before its kernel: bins, one array for each output.

    Parameters
    ----------
    bits : int
        s; ``n 2^s < 2^62`` so that no sum overflows.
    """

    summands: Summands
    coordinates: BinnedCoordinates
    n: int
    bits: int

    @property
    def columns(self) -> tuple[Column, ...]:
        """The summands'."""
        return self.summands.columns

    @property
    def counting(self) -> dict[str, Any]:
        """The fixed-point bits."""
        return {"bits": self.bits}

    @property
    def description(self) -> str:
        """Bins and degree."""
        bins = " x ".join(map(str, self.coordinates.layout.shape))
        text = f"{bins} bins, B-splines of degree {self.coordinates.bins[0].degree}"
        return text + self.summands.coordinates_text

    @property
    def kernel_error(self) -> float:
        """rho."""
        return 2.0**-self.bits

    @property
    def position_error(self) -> float:
        """A bin's share of a position that is a few roundings off; slopes are at most 2 g."""
        return OUTWARD * self.summands.shift * sum(2 * axis.cells for axis in self.coordinates.bins)

    @property
    def float_error(self) -> float:
        """An integer as a float, and a division, of at most one; and what bins are off exactly."""
        return OUTWARD * (3 * _ULP + self.kernel_error + self.position_error)

    @property
    def value_bound(self) -> float:
        """No bin exceeds one, but for rounding."""
        return 1.001

    def kernel_error_norm(self, norm: int) -> float:
        """See the top of the module."""
        touched = math.prod(axis.degree + 1 for axis in self.coordinates.bins)
        return OUTWARD * 2 * self.kernel_error * (math.sqrt(touched) if norm == 2 else touched)

    def float_error_norm(self, norm: int) -> float:
        """``3 2^-53`` of the sum of all bins of all outputs, which is at most one."""
        del norm
        return OUTWARD * 3 * _ULP

    @property
    def batch_bytes(self) -> int:
        """What the weighing makes; records are located and added block by block."""
        return self.summands.row_bytes

    @property
    def table_bytes(self) -> int:
        """None."""
        return 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Outputs, bins."""
        return (self.summands.outputs, *self.coordinates.layout.shape)

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Add a batch of records to `state`, in place."""
        add_rows(state, self.summands.rows(records), self._terms)

    @cached_property
    def _terms(self) -> Terms:
        axes = self.coordinates.bins
        touched = itertools.product(range(axes[0].degree + 1), repeat=len(axes))
        indices = np.array(list(touched), dtype=np.int64)
        extents = self.coordinates.layout.shape
        return Terms(
            indices=indices,
            places=indices @ np.array(strides(extents), dtype=np.int64),
            outputs=self.summands.outputs,
            extents=extents,
            periods=tuple(axis.cells for axis in axes),
            edges=(EQUAL,) * len(axes),
            bits=self.bits,
            order=axes[0].degree,
            splines=True,
        )

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Bins of one slab over n."""
        part = state[output, slab.start : slab.stop].astype(np.float64)
        return np.ldexp(part, -self.bits) / self.n
