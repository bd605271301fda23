"""Records in the order of their positions, in bounded memory: what a sum over gaps is made of.

Each pass goes over all records and keeps those of one run of positions, with the nearest position
below: whatever else there is, its gaps are then known, and the integers of all passes add up.
Equal positions are kept once, with the sum of their responses and their number. A run is of whole
cells, 2^-16 of the axis, which hold at most 2^16 distinct positions each. Where there are several
passes, each first counts the records of every cell, and takes the cells that begin in its equal
part of them: it holds at most that part and one cell more, however the records are spread.

Positions, sums, counts and gaps are integers, and an atom is a function of its own integers: the
result depends on no order, partition or number of passes or workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dbern.arrays import FloatArray, Int64Array, UInt64Array

POSITION_BITS = 32

_CELL_BITS = 16
_CELLS = 1 << (POSITION_BITS - _CELL_BITS)
_IN_CELL = 1 << _CELL_BITS
_LEAST_MERGED = 1 << 18  # records that are gathered before they are put in order
_POSITION_BYTES = 220  # of a position while runs are merged: measured


def pass_bytes(rows: int, *, whole: bool) -> int:
    """Memory of a pass that is to hold so many positions; one of several may hold a cell's more."""
    held = rows if whole else rows + _IN_CELL
    return _POSITION_BYTES * (held + _LEAST_MERGED) + 4 * 8 * _CELLS


@dataclass(frozen=True)
class Run:
    """Distinct positions in order, sums of their responses, and how many these are."""

    positions: Int64Array
    sums: Int64Array
    counts: Int64Array

    @classmethod
    def of(cls, keys: UInt64Array, response_unit: int) -> Run:
        """That of records by their keys."""
        keys = np.sort(keys)
        responses = (keys & np.uint64((1 << POSITION_BITS) - 1)).astype(np.int64) - response_unit
        positions = (keys >> np.uint64(POSITION_BITS)).astype(np.int64)
        return cls(positions, responses, np.ones(len(keys), dtype=np.int64)).reduced()

    def reduced(self) -> Run:
        """Equal positions, which are neighbours, as one."""
        first = np.flatnonzero(np.diff(self.positions, prepend=-1))
        if len(first) == len(self.positions):
            return self
        sums, counts = (np.add.reduceat(each, first) for each in (self.sums, self.counts))
        return Run(self.positions[first], sums, counts)

    def merged(self, other: Run) -> Run:
        """The run of both."""
        positions = np.concatenate([self.positions, other.positions])
        order = np.argsort(positions, kind="stable")
        sums = np.concatenate([self.sums, other.sums])[order]
        counts = np.concatenate([self.counts, other.counts])[order]
        return Run(positions[order], sums, counts).reduced()


@dataclass
class OrderedPass:
    """One pass, of all positions: batches of records in, the integers of their atoms out.

    Parameters
    ----------
    keys : callable
        Position and response of a batch's records that count, in one number each, in that order.
    atoms : callable
        Adds to a state the atoms of a run whose nearest position below is given, if there is one.
    response_unit : int
        What a key's response exceeds the response by, which is at most that.
    """

    keys: Callable[[Mapping[str, FloatArray]], UInt64Array] = field(repr=False)
    atoms: Callable[[Int64Array, Run, int | None], None] = field(repr=False)
    response_unit: int
    _waiting: list[UInt64Array] = field(default_factory=list, repr=False)
    _rows: int = 0
    _run: Run | None = field(default=None, repr=False)
    _before: int | None = None

    def add(self, records: Mapping[str, FloatArray]) -> None:
        """Keep the batch's records that are in this pass's run."""
        mine = self._chosen(self.keys(records))
        self._waiting.append(mine)
        self._rows += len(mine)
        if self._rows > max(_LEAST_MERGED, 0 if self._run is None else len(self._run.positions)):
            self._merge()

    def _chosen(self, keys: UInt64Array) -> UInt64Array:
        return keys

    def _merge(self) -> None:
        """Put what waits in order; at least half of what is sorted is new."""
        run = Run.of(np.concatenate(self._waiting), self.response_unit)
        self._waiting.clear()
        self._rows = 0
        self._run = run if self._run is None else self._run.merged(run)

    def finish(self, state: Int64Array) -> None:
        """Add the run's atoms to `state`, in place."""
        if self._waiting:
            self._merge()
        if self._run is not None and len(self._run.positions):
            self.atoms(state, self._run, self._before)


@dataclass
class SurveyedPass(OrderedPass):
    """One of several passes: see the top of the module.

    Parameters
    ----------
    index : int
        Which.
    rows : int
        Distinct positions that each is to hold.
    """

    index: int = field(kw_only=True)
    rows: int = field(kw_only=True)
    _cells: Int64Array = field(default_factory=lambda: np.zeros(_CELLS, dtype=np.int64), repr=False)

    def survey(self, records: Mapping[str, FloatArray]) -> None:
        """Count the batch's records in their cells."""
        cells = self.keys(records) >> np.uint64(POSITION_BITS + _CELL_BITS)
        self._cells += np.bincount(cells.astype(np.int64), minlength=_CELLS)

    @cached_property
    def _ends(self) -> tuple[int, int]:
        """The first position of the run and the first beyond it."""
        most = np.minimum(self._cells, _IN_CELL)
        begins = np.cumsum(most) - most
        ends = np.searchsorted(begins // self.rows, [self.index, self.index + 1])
        low, high = (ends << _CELL_BITS).tolist()
        return low, high

    def _chosen(self, keys: UInt64Array) -> UInt64Array:
        """Those in the run; the nearest position below it is remembered."""
        low, high = (np.uint64(end) for end in self._ends)
        positions = keys >> np.uint64(POSITION_BITS)
        below = positions[positions < low]
        if len(below):
            self._before = max(int(below.max()), -1 if self._before is None else self._before)
        return keys[(positions >= low) & (positions < high)]
