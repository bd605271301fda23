"""Grids of bins that are tried for a statistic: degrees and cells of every axis.

Wide cells err more, narrow ones have more noise. Cells between are listed where the best ones of
kernels in use are; where questions are asked, also narrower ones, those of rounded values, and
bins of two scales, which on one axis are tried without questions too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dbern.bernstein.kernels import Kernel
from dbern.planning.predicted import FINER, Questions
from dbern.planning.search import FEW_AXES, Search
from dbern.reconstruct.base import Lattice
from dbern.reconstruct.bins import AxisBins, BinnedStrategy
from dbern.reconstruct.two_scales import MOST_NARROW

BIN_RESOLUTIONS = {  # cells a deviation, by degree
    1: (2.0, 3.0, 4.0),
    2: (0.4, 0.55, 0.65, 0.75, 0.85, 1.0, 1.15, 1.3, 1.5, 1.7, 1.95, 2.2, 2.6, 3.0, 4.0),
    3: (0.75, 0.85, 1.0, 1.1, 1.25, 1.35, 1.5, 1.75, 2.0),
    5: (1.25, 1.5, 2.0),
    7: (1.25, 1.5, 1.75, 2.0, 2.5),
}
_RESOLUTIONS_OF_JUMPS = (5.5, 8.0, 11.0, 16.0, 23.0, 32.0)
"""Of degree 2 besides, where a slope jumps: what bins miss falls no faster than their width."""
_MOST_CELLS_OF_JUMPS = 400  # of those: at least three of the places that bins are fitted to a cell
_RESOLUTIONS_OF_THREE_AXES = {5: (1.75,)}  # besides: degree 7 adds a record to 512 bins, 5 to 216
_MAX_BINS_OF_RECORD = 512  # more of them is slower than a release should be
_TWO_SCALES = (  # degree, wide cells a deviation, narrow cells a wide one, parts of a record
    *((2, 1.25, 4, 12), (2, 1.25, 8, 8), (2, 1.25, 8, 12), (2, 1.25, 16, 8), (2, 1.25, 16, 12)),
    *((3, 1.25, 4, 20), (3, 1.25, 8, 12), (3, 1.25, 8, 20)),
)
_HALVED_CELLS = (64, 128, 256, 512, 768, 1024)
_FEWEST_HALVED = 400  # narrow cells: of fewer, shares of usual boxes are sums of few numbers anyway
_FEWEST_OF_AXES = 48  # the same of several axes, whose numbers multiply
_MAX_NARROW_CELLS = 512  # of `_TWO_SCALES`
_ROUNDING = 1e-9  # of cells: a kernel of two steps has as many however its width is rounded
_MAX_CELLS = 2000  # of an axis of one scale


@dataclass(frozen=True)
class BinGrid:
    """Degree and cells of every axis; of two scales also narrow cells a wide one, and parts."""

    degree: int
    resolution: float
    cells: tuple[int, ...]
    times: tuple[int, ...] = ()
    parts: int = 1

    @property
    def size(self) -> int:
        """Number of bins."""
        return math.prod(cells + self.degree for cells in self.cells)

    def bins_for(self, lattice: Lattice) -> BinnedStrategy:
        """Return bins without matrices, which neither values nor sensitivities depend on."""
        axes = zip(self.cells, self.times or (1,) * len(self.cells), strict=True)
        bins = (
            AxisBins(cells, self.degree, b"", times=times, parts=self.parts if times > 1 else 1)
            for cells, times in axes
        )
        return BinnedStrategy(lattice, tuple(bins))


def bin_grids(search: Search) -> list[BinGrid]:
    """Return the grids to try, however many bins they have."""
    kernels, grids = search.kernels, {}
    for degree, usual in BIN_RESOLUTIONS.items():
        resolutions = usual + (FINER.get(degree, ()) if search.questions else ())
        if len(kernels) == FEW_AXES:
            resolutions += _RESOLUTIONS_OF_THREE_AXES.get(degree, ())
        if search.jumps and degree == 2:
            narrowest = min(kernel.deviation for kernel in kernels)
            resolutions += tuple(
                resolution
                for resolution in _RESOLUTIONS_OF_JUMPS
                if resolution <= _MOST_CELLS_OF_JUMPS * narrowest
            )
        if degree == 2 or (degree + 1) ** len(kernels) <= _MAX_BINS_OF_RECORD:
            for resolution in reversed(resolutions):  # of those with the same cells the coarsest
                grid = BinGrid(degree, resolution, tuple(_cells(kernels, resolution)))
                grids[degree, grid.cells] = grid
    exact = _grids_of_multiples(search) if search.questions else ()
    one_scale = grids | {(grid.degree, grid.cells): grid for grid in exact}
    if not search.two_scales:
        return [*one_scale.values()]
    halves = _grids_of_halves(search, search.questions) if search.questions else ()
    return [*one_scale.values(), *_grids_of_two_scales(search), *halves]


def fewest_bins(grids: Sequence[BinGrid]) -> int:
    """Return how many bins the smallest grid has, of one scale: what is asked of it aside."""
    return min(grid.size for grid in grids if grid.parts == 1)


def _grids_of_two_scales(search: Search) -> Iterator[BinGrid]:
    """Yield bins of two scales of an axis, the wide ones as for the function alone, or hardly."""
    widest = max(kernel.deviation for kernel in search.kernels)
    for degree, resolution, times, parts in _TWO_SCALES if len(search.kernels) == 1 else ():
        cells = times * math.ceil(resolution / widest)
        if cells <= _MAX_NARROW_CELLS:
            yield BinGrid(degree, resolution, (cells,), (times,), parts)


def _grids_of_halves(search: Search, questions: Questions) -> Iterator[BinGrid]:
    """Yield bins of axes whose two scales count half of each record, for questions of rows.

    The narrow ones of an axis have a node at each multiple and no other, or are as narrow as may
    be where no density is asked for, which would err nearly twice as much, and on each axis so. A
    share is then a sum of few numbers: of wide cells, and of narrow ones at its ends, least many
    where a wide cell has about the root of all narrow ones. Axes of few cells have one scale.
    """
    one_axis, anywhere = len(search.multiples) == 1, None in search.multiples
    if "density" in questions.names and (anywhere or not one_axis):
        return
    fewest = _FEWEST_HALVED if one_axis else _FEWEST_OF_AXES
    for narrow in _HALVED_CELLS if anywhere else _HALVED_CELLS[:1]:
        cells = tuple(narrow if axis is None else axis.count for axis in search.multiples)
        times = tuple(math.isqrt(count) if count >= fewest else 1 for count in cells)
        if max(times) > 1 and max(cells) <= MOST_NARROW:
            yield BinGrid(1, 1.0, cells, times, 2)


def _grids_of_multiples(search: Search) -> Iterator[BinGrid]:
    """Yield bins of degree 1 with a node at each multiple, of some axes or of all that have them.

    Masses of rows that are rounded to these have no edges. Cells end at multiples alone, or at so
    many places between them that the kernel has as many as without a resolution.
    """
    choices = [(0,) if axis is None else (axis.count, 0) for axis in search.multiples]
    for nodes in itertools.product(*choices):
        for resolution in (*BIN_RESOLUTIONS[1], *FINER[1]) if any(nodes) else ():
            usual = _cells(search.kernels, resolution)
            coarse = tuple(node or cell for node, cell in zip(nodes, usual, strict=True))
            needed = [resolution / kernel.deviation * (1 - _ROUNDING) for kernel in search.kernels]
            fine = tuple(
                node * math.ceil(least / node) if node else cell
                for node, cell, least in zip(nodes, usual, needed, strict=True)
            )
            for cells in dict.fromkeys((coarse, fine)):
                if max(cells) <= _MAX_CELLS:
                    yield BinGrid(1, resolution, cells)


def _cells(kernels: Sequence[Kernel], resolution: float) -> list[int]:
    return [min(_MAX_CELLS, math.ceil(resolution / kernel.deviation)) for kernel in kernels]
