"""What a record adds to its bins, at every degree: an oracle with fractions, and neighbours."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbern.bernstein.kernels import Gaussian
from dbern.bernstein.splines import _cell_of
from dbern.data.domain import Axis, Domain
from dbern.measure import record_integers
from dbern.measure.kernel_sums import KernelSum
from dbern.measure.loops import add_rows_compiled
from dbern.measure.record_integers import Rows
from dbern.planning.bin_grids import BIN_RESOLUTIONS
from dbern.reconstruct.base import Lattice
from dbern.reconstruct.bins import AxisBins, BinnedStrategy

BITS = 40
CELLS = (3, 1, 2)
ENDS = [0.0, 5e-324, 2.0**-53, 1 / 3, np.nextafter(1 / 3, 0), 0.5, 2 / 3, 1 - 2.0**-53, 1.0]
positions = st.one_of(st.sampled_from(ENDS), st.floats(0, 1))


def exact_weights(position: float, cells: int, degree: int) -> tuple[int, list[Fraction]]:
    """The cell, and the B-splines there by their truncated powers, of the offset as it is read."""
    cell, offset = _cell_of(np.array([position]), cells)
    u = (Fraction(float(offset[0])) + 1) / 2
    return int(cell[0]), [_cardinal(u + degree - r, degree) for r in range(degree + 1)]


def _cardinal(x: Fraction, degree: int) -> Fraction:
    """``(1/p!) sum_i (-1)^i C(p + 1, i) (x - i)_+^p``; no recurrence."""
    total, binomial, factorial = Fraction(0), 1, 1
    for i in range(degree + 2):
        total += (-1) ** i * binomial * max(x - i, Fraction(0)) ** degree
        binomial = binomial * (degree + 1 - i) // (i + 1)
    for i in range(1, degree + 1):
        factorial *= i
    return total / factorial


def accumulator(degree: int, axes: int, n: int = 100):
    domain = Domain(tuple(Axis(name, 0.0, 1.0) for name in "xyz"[:axes]))
    bins = tuple(AxisBins(cells, degree, b"") for cells in CELLS[:axes])
    strategy = BinnedStrategy(Lattice((4,) * axes), bins)
    return KernelSum("density", domain, (Gaussian(0.2),) * axes).accumulator(strategy, n, 1.0)


def counted(part, point, weight, add=add_rows_compiled) -> np.ndarray:
    columns = [np.array([float(x)]) for x in point]
    ends = [0.0] * len(columns), [1.0] * len(columns)
    state = np.zeros(part.shape, dtype=np.int64)
    add(state, Rows(columns, *ends, weight=np.array([weight])), part._terms)
    return state[0]


def off_by(part, point, weight, add=add_rows_compiled) -> Fraction:
    """How many units the integers of a record are from exact ones, at most."""
    found, axes = counted(part, point, weight, add), part.strategy.bins
    places = [exact_weights(x, a.cells, a.degree) for x, a in zip(point, axes, strict=True)]
    largest, touched = Fraction(0), np.zeros(found.shape, dtype=bool)
    for index in itertools.product(*(range(axis.degree + 1) for axis in axes)):
        exact = Fraction(weight) * 2**part.bits
        for (_, weights), r in zip(places, index, strict=True):
            exact *= weights[r]
        where = tuple(cell + r for (cell, _), r in zip(places, index, strict=True))
        touched[where] = True
        largest = max(largest, abs(int(found[where]) - exact))
    assert not found[~touched].any()
    return largest


@pytest.mark.slow
@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("degree", BIN_RESOLUTIONS)
@given(point=st.tuples(positions, positions), weight=st.sampled_from([1.0, -1.0, 0.3]))
@settings(max_examples=15, deadline=None)
def test_integers_are_within_a_unit_of_exact_weights(degree, axes, point, weight):
    """Half a unit for the rounding, and a hundredth for the floats: `errors.kernel` is one."""
    part = accumulator(degree, axes)
    assert part.bits == BITS
    assert part.errors.kernel * 2**BITS == 1
    assert off_by(part, point[:axes], weight) <= Fraction(51, 100)


@pytest.mark.parametrize("degree", BIN_RESOLUTIONS)
def test_a_weight_that_is_off_by_a_unit_is_caught(degree, monkeypatch):
    def wrong(offset, order):
        first, *others = weights(offset, order)
        return [first + 2.0**-BITS, *others]

    weights = record_integers.local_weights
    part, point = accumulator(degree, 1), [0.4]
    assert off_by(part, point, 1.0, record_integers.add_rows_plainly) <= Fraction(51, 100)
    monkeypatch.setattr(record_integers, "local_weights", wrong)
    assert off_by(part, point, 1.0, record_integers.add_rows_plainly) > Fraction(51, 100)


@pytest.mark.parametrize("axes", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("degree", BIN_RESOLUTIONS)
def test_no_replacement_moves_the_integers_beyond_two_and_their_rounding(degree, axes):
    """Signs turned, places far apart and near, missing records: `errors.kernel_norms` holds."""
    part, rng = accumulator(degree, axes), np.random.default_rng(degree)
    points = [rng.choice([*ENDS, *rng.uniform(size=9)], axes) for _ in range(40)]
    weighed = [1.0, -1.0, 1.0, 0.7]
    added = np.array([counted(part, p, w).ravel() for p in points for w in weighed])
    added = np.vstack([added, np.zeros_like(added[:1])])
    assert (added[::4] >= 0).all()
    moves = np.abs(added[:, None] - added).sum(axis=2).max()
    assert 2**part.bits * 1.9 < moves <= 2**part.bits * (2 + part.errors.kernel_norms[0])
    squares = np.square(np.abs(added[:, None] - added) / 2.0**part.bits).sum(axis=2).max() ** 0.5
    assert squares <= 2 * math_largest(part) + part.errors.kernel_norms[1]


def math_largest(part) -> float:
    return float(np.prod([axis.largest_l2 for axis in part.strategy.bins]))
