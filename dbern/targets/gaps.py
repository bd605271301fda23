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

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dbern.arrays import FloatArray, Int64Array, UInt64Array
from dbern.bernstein.coordinates import Coordinates, Entries
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.bernstein.lattice import Slab
from dbern.bernstein.maps import BinnedCoordinates
from dbern.domain import Axis, Column, Domain
from dbern.targets.base import Statistic
from dbern.targets.sums import KernelSum
from dbern.targets.weighings import ByResponse

if TYPE_CHECKING:
    from dbern.targets.priestley_chao import GapSum

POSITION_BITS = 32
PASS_ROWS = 1 << 20
"""Distinct positions that a pass is to hold."""

_CELL_BITS = 16
_CELLS = 1 << (POSITION_BITS - _CELL_BITS)
_IN_CELL = 1 << _CELL_BITS
_LEAST_MERGED = 1 << 18  # records that are gathered before they are put in order
_POSITION_BYTES = 220  # of a position while runs are merged: measured
_TIMES = 3  # as many atoms as one of a kernel sum: see `dbern.targets.priestley_chao`


@dataclass(frozen=True)
class Atoms:
    """Atoms count with the weights that they come with."""

    columns: tuple[Column, ...] = ()
    outputs: int = 1
    signed: bool = True

    def __call__(self, records: Mapping[str, FloatArray]) -> tuple[None, None, FloatArray]:
        """All, first, theirs."""
        return None, None, records["weight"]


def atom_sum(kernels: tuple[Kernel, ...]) -> KernelSum:
    """The sum over atoms, at positions in the unit interval."""
    return KernelSum("atoms", Domain((Axis("position", 0.0, 1.0),)), kernels, Atoms())


@dataclass(frozen=True)
class GapStatistic:
    """A sum over gaps resolved: `atoms` are added up as a kernel sum's records are.

    The kernel sum's normalizer is ``2^g``, and the absolute weights of all atoms sum to at most
    that; there are at most n atoms, each rounded by at most a unit of its integers.
    """

    component: GapSum
    atoms: Statistic

    @property
    def coordinates(self) -> Coordinates | Entries:
        """What is released."""
        return self.atoms.coordinates

    @property
    def columns(self) -> tuple[Column, ...]:
        """The axis and the response."""
        return (*self.component.domain.columns, self.component.response.column)

    @property
    def counting(self) -> dict[str, Any]:
        """How atoms are counted."""
        return self.atoms.counting

    @property
    def description(self) -> str:
        """The atoms' and the passes."""
        passes = f"{self.passes} passes over the files" if self.passes > 1 else "one pass"
        return f"{self.atoms.description}, of gaps in {passes}"

    @property
    def _scale(self) -> int:
        return 1 << self.component.scale

    @property
    def _atoms_times(self) -> float:
        """What n atoms are of the normalizer, and a record's in a movement: three for one."""
        return OUTWARD * _TIMES * self.component.n / self._scale

    @property
    def _spread(self) -> float:
        """Absolute integers of all atoms, of what a kernel sum's are at most."""
        units = math.ldexp(self._scale, self.atoms.counting["bits"])
        return OUTWARD * (1 + self.component.n / units)

    @property
    def _response_error(self) -> float:
        """A response rounded, and a mean: half a unit each. Gaps sum to one at most."""
        return 2.0**-self.component.response_bits

    @property
    def kernel_error(self) -> float:
        """What a replaced record's atoms are off by, times n; no less than all atoms together."""
        return self._atoms_times * self.atoms.kernel_error

    @property
    def position_error(self) -> float:
        """That of positions in the middle of their step, and of the rounded responses."""
        peak = OUTWARD * max(kernel.peak for kernel in self.component.kernels)
        return self.atoms.position_error + peak * self._response_error

    @property
    def float_error(self) -> float:
        """The atoms'; of bins, whose errors are counted nowhere else, what they are off exactly."""
        floats = self._spread * self.atoms.float_error
        if isinstance(self.coordinates, BinnedCoordinates):
            return OUTWARD * (floats + self.kernel_error + self._response_error)
        return floats

    @property
    def value_bound(self) -> float:
        """The atoms', all of them off by what they may be."""
        peak = min(1.0, *(kernel.peak for kernel in self.component.kernels))
        return OUTWARD * self.atoms.value_bound * self._spread * (1 + self.kernel_error / peak)

    def kernel_error_norm(self, norm: int) -> float:
        """Three times that of a kernel sum, in units of n."""
        return self._atoms_times * self.atoms.kernel_error_norm(norm)

    def float_error_norm(self, norm: int) -> float:
        """The atoms', whose integers sum to no more than `_spread`."""
        return self._spread * self.atoms.float_error_norm(norm)

    @property
    def batch_bytes(self) -> int:
        """Positions, responses, keys and what they are made of."""
        return 8 * 20

    @property
    def table_bytes(self) -> int:
        """The atoms'."""
        return self.atoms.table_bytes

    @property
    def shape(self) -> tuple[int, ...]:
        """The atoms'."""
        return self.atoms.shape

    @property
    def passes(self) -> int:
        """Equal parts of the rows."""
        return -(-self.component.n // PASS_ROWS)

    @property
    def gathered_bytes(self) -> int:
        """Memory of one pass: the positions it may hold, and the count of cells."""
        held = self.component.n if self.passes == 1 else PASS_ROWS + _IN_CELL
        return _POSITION_BYTES * (held + _LEAST_MERGED) + 4 * 8 * _CELLS

    def add(self, state: Int64Array, records: Mapping[str, FloatArray]) -> None:
        """Records are not added one by one."""
        raise NotImplementedError("gaps are between records: these are gathered in order")

    def gather(self, salt: bytes, index: int) -> OrderedPass:
        """What one pass puts in order."""
        del salt
        return OrderedPass(self) if self.passes == 1 else SurveyedPass(self, index=index)

    def finish(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Released values of one slab, in unit-cube units."""
        return self.atoms.finish(state, output, slab)

    def keys(self, records: Mapping[str, FloatArray]) -> UInt64Array:
        """Position and response of the records that count, in one number each, in that order.

        The step of a position is public and no part of the error: the function is that of records
        at the middle of their step.
        """
        component = self.component
        kept, unit = component.domain.bounded(records)
        known, _, weight = ByResponse(component.response)(records)
        place = np.floor(unit[known[kept], 0] * 2.0**POSITION_BITS).astype(np.uint64)
        place = np.minimum(place, np.uint64((1 << POSITION_BITS) - 1))
        unit_response = 1 << component.response_bits
        response = np.rint(weight[kept & known] * unit_response) + unit_response
        return np.asarray((place << np.uint64(POSITION_BITS)) | response.astype(np.uint64))

    def add_atoms(self, state: Int64Array, run: Run, before: int | None) -> None:
        """Add the atoms of a run of positions whose nearest one below is `before`, if any."""
        bits = self.component.response_bits
        first = run.positions[:1] if before is None else np.array([before])  # no gap, or to there
        gaps = np.diff(run.positions, prepend=first)
        gaps = np.minimum(gaps, self.component.max_gap)
        means = (2 * run.sums + run.counts) // (2 * run.counts)  # floor(mean + 1/2)
        weight = gaps.astype(np.float64) * means.astype(np.float64)
        weight = np.ldexp(weight, self.component.scale - POSITION_BITS - bits)
        position = np.ldexp(run.positions + 0.5, -POSITION_BITS)
        self.atoms.add(state, {"position": position, "weight": weight})


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
    """One pass, of all positions: batches of records in, the integers of their atoms out."""

    statistic: GapStatistic
    index: int = 0
    _waiting: list[UInt64Array] = field(default_factory=list, repr=False)
    _rows: int = 0
    _run: Run | None = field(default=None, repr=False)
    _before: int | None = None

    def add(self, records: Mapping[str, FloatArray]) -> None:
        """Keep the batch's records that are in this pass's run."""
        mine = self._chosen(self.statistic.keys(records))
        self._waiting.append(mine)
        self._rows += len(mine)
        if self._rows > max(_LEAST_MERGED, 0 if self._run is None else len(self._run.positions)):
            self._merge()

    def _chosen(self, keys: UInt64Array) -> UInt64Array:
        return keys

    def _merge(self) -> None:
        """Put what waits in order; at least half of what is sorted is new."""
        run = Run.of(np.concatenate(self._waiting), 1 << self.statistic.component.response_bits)
        self._waiting.clear()
        self._rows = 0
        self._run = run if self._run is None else self._run.merged(run)

    def finish(self, state: Int64Array) -> None:
        """Add the run's atoms to `state`, in place."""
        if self._waiting:
            self._merge()
        if self._run is not None and len(self._run.positions):
            self.statistic.add_atoms(state, self._run, self._before)


@dataclass
class SurveyedPass(OrderedPass):
    """One of several passes: see the top of the module."""

    _cells: Int64Array = field(default_factory=lambda: np.zeros(_CELLS, dtype=np.int64), repr=False)

    def survey(self, records: Mapping[str, FloatArray]) -> None:
        """Count the batch's records in their cells."""
        cells = self.statistic.keys(records) >> np.uint64(POSITION_BITS + _CELL_BITS)
        self._cells += np.bincount(cells.astype(np.int64), minlength=_CELLS)

    @cached_property
    def _ends(self) -> tuple[int, int]:
        """The first position of the run and the first beyond it."""
        most = np.minimum(self._cells, _IN_CELL)
        begins = np.cumsum(most) - most
        ends = np.searchsorted(begins // PASS_ROWS, [self.index, self.index + 1])
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
