"""Cells and moments that a kernel sum is counted with: the fewest that are accurate enough."""

from __future__ import annotations

from collections.abc import Sequence

from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.measure.kernel_sketch import MomentSketch, cells_for, truncation_error

_MAX_STATE_BYTES = 1 << 28
_CACHE_BYTES = 1 << 22
_MAX_CUTS = 1000  # of a period of cells: plans list them


def sketch_cost(sketch: MomentSketch, nodes: Sequence[int]) -> float:
    """Relative time: moments a record adds, slower out of cache, and the tables to contract."""
    tables = (sketch.order + 2) * sum(
        count * cells for count, cells in zip(nodes, sketch.cells, strict=True)
    )
    adding = len(sketch.indices) * (1 + sketch.state_bytes / _CACHE_BYTES)
    return adding + 8 * tables / _CACHE_BYTES


def smallest_sketch(
    kernels: Sequence[Kernel], k: Sequence[int], order: int, bits: int, tolerance: float
) -> MomentSketch | None:
    """Fewest cells (in proportion to the axes' inverse bandwidths) that meet the tolerance."""

    def sketch(density: float) -> MomentSketch:
        # Rounded up past the division's rounding, so that a cell is at most two bandwidths wide.
        axes = (
            cells_for(kernel, axis_k, OUTWARD * density / kernel.bandwidth)
            for kernel, axis_k in zip(kernels, k, strict=True)
        )
        return MomentSketch(tuple(axes), order, bits)

    def fits(density: float) -> bool:
        return truncation_error(kernels, sketch(density).axes, order, bits) <= tolerance

    low, high = 0.5, 0.5
    while not fits(high):
        low, high = high, 2 * high
        following = sketch(high)
        cuts = max(len(axis.cuts) for axis in following.axes)
        if following.state_bytes > 2 ** len(kernels) * _MAX_STATE_BYTES or cuts > _MAX_CUTS:
            return None
    while high - low > 0.02 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    best = sketch(high)
    return best if best.state_bytes <= _MAX_STATE_BYTES else None
