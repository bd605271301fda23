"""Sums over gaps: responses weighted by the gaps between the records' positions.

``F(y) = sum_{j >= 2} c(x_j - x_{j-1}) m_j K(y - x_j)`` over the distinct positions ``x_1 < x_2 <
..`` of the records on one axis: K is a density (the paper's ``K(u/b)/b``), m_j the mean response of
the records at x_j, in [-1, 1] of half its public range from the middle, and ``c(u) = min(u, G)``
cuts gaps at a public G. Positions are integers in steps of 2^-32 of the axis, gaps and G too.

Records in order, in bounded memory
-----------------------------------
Each pass goes over all records and keeps those of one run of positions, with the nearest position
below: whatever else there is, its gaps are then known, and the integers of all passes add up.
Equal positions are kept once, with the sum of their responses and their number. A run is of whole
cells, 2^-16 of the axis, which hold at most 2^16 distinct positions each. Where there are several
passes, each first counts the records of every cell, and takes the cells that begin in its equal
part of them: it holds at most that part and one cell more, however the records are spread.

Positions, sums, counts and gaps are integers, and an atom is a function of its own integers: the
result depends on no order, partition or number of passes or workers.

Sensitivity under replace-one, for all databases
------------------------------------------------
``F = sum_j v_j K(. - x_j)`` is K smoothed over a signed measure v on the axis.

*One more record*, at p with response r, changes v by at most 2G in total variation. Between
neighbours, with ``a = p - x_{j-1}`` and ``b = x_j - p``, p gets ``c(a) |r|``, and x_j changes by
``(c(a + b) - c(b)) |m_j| <= c(a)``, as c is subadditive: together at most ``2 c(a) <= 2G``. Below
all others, p weighs nothing, being first, and x_1 gets ``c(x_1 - p) <= G``. Above all others, p
gets at most G. At a position that q records have, their mean moves by ``|r - m|/(q + 1) <= 1``: at
most G. A replacement takes a record away and adds one, and no v is larger than the sum of its
gaps, which is at most one:

    ``|v - v'| <= tau = min(4G, 2)``,  half of 4G with the missing record.

*Released values* are a public linear map of v, ``sum_j v_j T K_{x_j}``. They move by at most ``tau
max_t |T K_t|`` in any norm: ``S(F) <= tau sup K``, ``Delta1 <= tau max_t sum_v K(v/k - t)`` for
lattice values, and tau for B-spline bins, whose weights sum to one at every t. With the response's
half-range B this is the corrected bound ``4 B G sup K / b``. It is attained: let p be one step
below an x_j with the other sign and a >= G, then taking p away moves v by -G at p and by -G (less a
step) at x_j; let the record come back in the same way, with signs turned, elsewhere. The paper asks
instead that every record have some neighbour within c/n, which does not bound its gaps, so its
``4 B c sup K / (n b)`` is false; and where equal positions count in order of arrival, another order
of the same records moves F beyond any such bound. Both are in the tests.

Rounding adds nothing
---------------------
Responses are integers in units of ``2^-R``, at most ``2^R`` in absolute value. The mean is rounded
by ``floor(u + 1/2)``, which keeps order and commutes with integers: numbers in ``[-2^R, 2^R]`` stay
there, and two that differ by at most the integer ``2^R`` still do. Nothing else was used of means,
so tau holds for the integers ``c(x_j - x_{j-1}) m_j`` exactly.

Effective kernel
----------------
The atoms (x_j, v_j) are summed like records of a kernel sum (`dbern.measure.kernel_sums`) with
weights ``2^g v_j`` in [-1, 1] and normalizer ``2^g <= 1/G``. Each is represented within rho. Taking
a record away replaces at most two atoms by one, and adding one replaces one by two: six atoms enter
where a kernel sum has two, so what it adds to the movement is taken three times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.certify.approximation import KernelMixture
from dbern.data.domain import Axis, Column, Domain, Response
from dbern.measure.accumulator import Accumulator, Errors, Memory, Pass
from dbern.measure.kernel_sums import KernelSum, SumAccumulator
from dbern.measure.record_weights import RecordWeights, ResponseWeight
from dbern.measure.statistic import Statistic
from dbern.privacy.budget import Budget
from dbern.reconstruct.base import AnyStrategy, AxisStrategy, SensitivityBound, Slab
from dbern.types import FloatArray, Int64Array, UInt64Array

POSITION_BITS = 32
PASS_ROWS = 1 << 20
"""Distinct positions that a pass is to hold."""

_CELL_BITS = 16
_CELLS = 1 << (POSITION_BITS - _CELL_BITS)
_IN_CELL = 1 << _CELL_BITS
_MIN_MERGED_ROWS = 1 << 18  # records that are gathered before they are put in order
_POSITION_BYTES = 220  # of a position while runs are merged: measured


@dataclass(frozen=True)
class Run:
    """Distinct positions in order, sums of their responses, and their numbers."""

    positions: Int64Array
    sums: Int64Array
    counts: Int64Array

    @classmethod
    def of(cls, keys: UInt64Array, response_unit: int) -> Run:
        """The run of records, by their keys."""
        keys = np.sort(keys)
        responses = (keys & np.uint64((1 << POSITION_BITS) - 1)).astype(np.int64) - response_unit
        positions = (keys >> np.uint64(POSITION_BITS)).astype(np.int64)
        return cls(positions, responses, np.ones(len(keys), dtype=np.int64)).reduced()

    def reduced(self) -> Run:
        """Merge equal positions, which are neighbours."""
        first = np.flatnonzero(np.diff(self.positions, prepend=-1))
        if len(first) == len(self.positions):
            return self
        sums, counts = (np.add.reduceat(numbers, first) for numbers in (self.sums, self.counts))
        return Run(self.positions[first], sums, counts)

    def merged(self, other: Run) -> Run:
        """The union of both runs."""
        positions = np.concatenate([self.positions, other.positions])
        order = np.argsort(positions, kind="stable")
        sums = np.concatenate([self.sums, other.sums])[order]
        counts = np.concatenate([self.counts, other.counts])[order]
        return Run(positions[order], sums, counts).reduced()


@dataclass
class OrderedPass(Pass):
    """The pass of `index` over all positions: adds the integers of its atoms to the state.

    Where there are several, each is for `PASS_ROWS` distinct positions.
    """

    accumulator: GapAccumulator
    state: Int64Array = field(repr=False)
    index: int
    _cells: Int64Array = field(default_factory=lambda: np.zeros(_CELLS, dtype=np.int64), repr=False)
    _waiting: list[UInt64Array] = field(default_factory=list, repr=False)
    _rows: int = 0
    _run: Run | None = field(default=None, repr=False)
    _before: int | None = None

    @property
    def surveys(self) -> bool:
        """Whether there are several passes."""
        return self.accumulator.passes > 1

    def survey(self, records: Mapping[str, FloatArray]) -> None:
        """Count the batch's records in their cells."""
        cells = self.accumulator.keys(records) >> np.uint64(POSITION_BITS + _CELL_BITS)
        self._cells += np.bincount(cells.astype(np.int64), minlength=_CELLS)

    def add(self, records: Mapping[str, FloatArray]) -> None:
        """Keep the batch's records that are in this pass's run."""
        keys = self.accumulator.keys(records)
        keys = self._in_run(keys) if self.surveys else keys
        self._waiting.append(keys)
        self._rows += len(keys)
        if self._rows > max(_MIN_MERGED_ROWS, 0 if self._run is None else len(self._run.positions)):
            self._merge()

    def _in_run(self, keys: UInt64Array) -> UInt64Array:
        """Records in the run; the nearest position below it is remembered."""
        low, high = (np.uint64(bound) for bound in self._bounds)
        positions = keys >> np.uint64(POSITION_BITS)
        below = positions[positions < low]
        if len(below):
            self._before = max(int(below.max()), -1 if self._before is None else self._before)
        return keys[(positions >= low) & (positions < high)]

    @cached_property
    def _bounds(self) -> tuple[int, int]:
        """The first position of the run and the first beyond it."""
        positions = np.minimum(self._cells, _IN_CELL)  # at most
        begins = np.cumsum(positions) - positions
        cells = np.searchsorted(begins // PASS_ROWS, [self.index, self.index + 1])
        low, high = (cells << _CELL_BITS).tolist()
        return low, high

    def _merge(self) -> None:
        """Sort the waiting records; at least half of what is sorted is new."""
        run = Run.of(np.concatenate(self._waiting), 1 << self.accumulator.gaps.response_bits)
        self._waiting.clear()
        self._rows = 0
        self._run = run if self._run is None else self._run.merged(run)

    def finish(self) -> None:
        """Add the run's atoms to the state."""
        if self._waiting:
            self._merge()
        if self._run is not None and len(self._run.positions):
            self.accumulator.add_atoms(self.state, self._run, self._before)


_MAX_BITS = 30
_ATOMS_PER_MOVE = 3  # as many atoms as one of a kernel sum: *Effective kernel*, above


@dataclass(frozen=True)
class GapSum(Statistic):
    """A Priestley-Chao estimate.

    `domain` has the one axis, `max_gap` is G in steps of a position. `n` is the public number of
    rows, 0 before a plan: sensitivities are known only afterwards.
    """

    domain: Domain
    response: Response
    max_gap: int
    kernels: tuple[Kernel, ...] = ()
    n: int = 0
    name: str = field(default="prediction", kw_only=True)
    binned = True

    def bind(self, n: int, charge: Budget) -> GapSum:
        """Return the estimate for n records."""
        del charge
        return replace(self, n=n)

    @property
    def unit(self) -> float:
        """Half the response's range: gaps and densities have inverse units."""
        return self.response.radius

    @cached_property
    def bias(self) -> KernelMixture:
        """Mixtures of translates with signed weights, which sum to one at most.

        In an interval they sum to its length and G, as all its gaps but the first lie in it.
        """
        return KernelMixture(self.kernels, gap=math.ldexp(self.max_gap, -POSITION_BITS))

    @property
    def variation(self) -> float:
        """Exact tau, the most that a record moves v by."""
        return math.ldexp(min(4 * self.max_gap, 2 << POSITION_BITS), -POSITION_BITS)

    @property
    def function_sensitivity(self) -> float:
        """``n tau sup K``."""
        return OUTWARD * self.n * self.variation * math.prod(kernel.peak for kernel in self.kernels)

    def sensitivity(self, strategy: AnyStrategy, norm: int) -> SensitivityBound:
        """Bound n times the sensitivity: tau/2 times the move of a translate, of variation two."""
        strategy = cast("AxisStrategy", strategy)
        bound = (
            strategy.l2_sensitivity(self.kernels, signed=True)
            if norm == 2
            else strategy.l1_sensitivity(self.kernels, signed=True)
        )
        times = self.n * self.variation / 2
        return SensitivityBound(
            OUTWARD * times * bound.value,
            f"2 G n = {times:.6g} (G = max_gap's share of the axis) times {bound.derivation}",
        )

    @property
    def scale(self) -> int:
        """g: weights of ``2^g`` times a gap are at most one."""
        return POSITION_BITS - (self.max_gap - 1).bit_length()

    @property
    def response_bits(self) -> int:
        """R: no sum of responses overflows, and no number made of one."""
        return min(_MAX_BITS, 60 - self.n.bit_length())

    def params(self, strategy: AnyStrategy, n: int, tolerance: float) -> dict[str, Any]:
        """Choose sums so accurate that all atoms that a record moves meet the tolerance."""
        of_atoms = tolerance * 2.0**self.scale / (_ATOMS_PER_MOVE * n)
        return self._atoms.counter_params(strategy, 1 << self.scale, of_atoms)

    def from_params(
        self, strategy: AnyStrategy, n: int, params: Mapping[str, Any]
    ) -> GapAccumulator:
        """Return the sums of atoms."""
        atoms = self._atoms.counter(strategy, 1 << self.scale, params)
        return GapAccumulator(replace(self, n=n), cast("AxisStrategy", strategy), atoms)

    @property
    def _atoms(self) -> KernelSum:
        return KernelSum("atoms", Domain((Axis("position", 0.0, 1.0),)), self.kernels, Atoms())


@dataclass(frozen=True)
class Atoms(RecordWeights):
    """Atoms, which count with their own weights."""

    signed = True

    def __call__(self, records: Mapping[str, FloatArray]) -> tuple[None, None, FloatArray]:
        """Every record, the first output, the atom's weight."""
        return None, None, records["weight"]


@dataclass(frozen=True)
class GapAccumulator(Accumulator):
    """A sum over gaps resolved: `atoms` are added up as a kernel sum's records are.

    The kernel sum's normalizer is ``2^g``, and the absolute weights of all atoms sum to at most
    that; there are at most n atoms, each rounded by at most a unit of its integers.
    """

    gaps: GapSum
    strategy: AxisStrategy
    atoms: SumAccumulator

    @property
    def columns(self) -> tuple[Column, ...]:
        """The axis and the response."""
        return (*self.gaps.domain.columns, self.gaps.response.column)

    @property
    def description(self) -> str:
        """The atoms' counting and the passes, in words."""
        passes = f"{self.passes} passes over the files" if self.passes > 1 else "one pass"
        return f"{self.atoms.description}, of gaps in {passes}"

    @property
    def _scale(self) -> int:
        return 1 << self.gaps.scale

    @property
    def _move_factor(self) -> float:
        """Ratio of n atoms to the normalizer, and three for one in a record's movement."""
        return OUTWARD * _ATOMS_PER_MOVE * self.gaps.n / self._scale

    @property
    def _spread(self) -> float:
        """Absolute integers of all atoms, relative to the most of a kernel sum's."""
        steps = math.ldexp(self._scale, self.atoms.bits)
        return OUTWARD * (1 + self.gaps.n / steps)

    @property
    def _response_error(self) -> float:
        """Bound a response's and a mean's rounding, half a unit each: gaps sum to one at most."""
        return 2.0**-self.gaps.response_bits

    @property
    def errors(self) -> Errors:
        """Bound errors by those of atoms, three for each record of a kernel sum.

        *Kernel*: what a replaced record's atoms are off by, times n; no less than all atoms
        together. *Positions* in the middle of their step, and rounded responses. *Floats*: integers
        sum to no more than `_spread`; of bins, whose errors are counted nowhere else, what they are
        off exactly. *Values*: all atoms are off by what they may be.
        """
        atoms = self.atoms.errors
        times, spread = self._move_factor, self._spread
        kernel, floats = times * atoms.kernel, spread * atoms.floats
        if self.strategy.kind == "binned":
            floats = OUTWARD * (floats + kernel + self._response_error)
        peaks = [kernel.peak for kernel in self.gaps.kernels]
        l1, l2 = (times * norm for norm in atoms.kernel_norms)
        floats_l1, floats_l2 = (spread * norm for norm in atoms.float_norms)
        return Errors(
            kernel=kernel,
            kernel_norms=(l1, l2),
            position=atoms.position + OUTWARD * max(peaks) * self._response_error,
            floats=floats,
            float_norms=(floats_l1, floats_l2),
            value_bound=OUTWARD * atoms.value_bound * spread * (1 + kernel / min(1.0, *peaks)),
        )

    @property
    def memory(self) -> Memory:
        """Memory of positions, responses and keys; of the atoms' tables; of one pass."""
        # One of several passes may hold a cell's positions more.
        positions = self.gaps.n if self.passes == 1 else PASS_ROWS + _IN_CELL
        gathered = _POSITION_BYTES * (positions + _MIN_MERGED_ROWS) + 4 * 8 * _CELLS
        return Memory(8 * 20, self.atoms.memory.tables, gathered)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the atoms' state."""
        return self.atoms.shape

    @property
    def passes(self) -> int:
        """Number of passes, each over an equal part of the rows."""
        return -(-self.gaps.n // PASS_ROWS)

    def start_pass(self, state: Int64Array, salt: bytes, index: int) -> OrderedPass:
        """Begin a pass that puts records in order."""
        del salt
        return OrderedPass(self, state, index)

    def to_values(self, state: Int64Array, output: int, slab: Slab) -> FloatArray:
        """Released values of one slab, in unit-cube units."""
        return self.atoms.to_values(state, output, slab)

    def keys(self, records: Mapping[str, FloatArray]) -> UInt64Array:
        """Position and response of the records that count, in one number each, ordered like pairs.

        A number exceeds the response, in units of ``2^-R``, by ``2^R``. The step of a position is
        public and no part of the error: the function is that of records at the middle of their
        step.
        """
        gaps = self.gaps
        valid, positions = gaps.domain.bounded(records)
        has_response, _, weight = ResponseWeight(gaps.response)(records)
        position = positions[has_response[valid], 0] * 2.0**POSITION_BITS
        position = np.floor(position).astype(np.uint64)
        position = np.minimum(position, np.uint64((1 << POSITION_BITS) - 1))
        response_unit = 1 << gaps.response_bits
        response = np.rint(weight[valid & has_response] * response_unit) + response_unit
        return np.asarray((position << np.uint64(POSITION_BITS)) | response.astype(np.uint64))

    def add_atoms(self, state: Int64Array, run: Run, before: int | None) -> None:
        """Add the atoms of a run of positions whose nearest one below is `before`, if any."""
        bits = self.gaps.response_bits
        first = run.positions[:1] if before is None else np.array([before])  # no gap, or to there
        gaps = np.diff(run.positions, prepend=first)
        gaps = np.minimum(gaps, self.gaps.max_gap)
        means = (2 * run.sums + run.counts) // (2 * run.counts)  # floor(mean + 1/2)
        weight = gaps.astype(np.float64) * means.astype(np.float64)
        weight = np.ldexp(weight, self.gaps.scale - POSITION_BITS - bits)
        position = np.ldexp(run.positions + 0.5, -POSITION_BITS)
        self.atoms.add(state, {"position": position, "weight": weight})
