"""What effective kernels and fixed point add to a move: `Errors.kernel_norms`, of all that count.

A twin of the same statistic, of many more bits, has the exact move, or nearly.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from conformance import CASES

from dbern.measure.accumulator import Accumulator
from dbern.measure.statistic import Statistic
from dbern.planning.component_plan import PlannedComponent
from dbern.planning.planner import plan_files
from dbern.privacy.budget import Neighbors, PrivacyUnit, Protection

ROWS = 5
COARSE, FINE = {"bits": 9}, {"bits": 30}
UNITS = Protection(unit=PrivacyUnit("user", 3))
ADDED = Protection(Neighbors.ADD_OR_REMOVE_ONE)


def planned(name: str, noise: str, **mechanism: Any) -> tuple[Statistic, PlannedComponent]:
    spec = CASES[name].spec(2 if name == "bayes-joint" else 1, ROWS, noise, **mechanism)
    return spec.components[-1], plan_files(spec, ()).components[-1]


def by_tolerance(name: str) -> list[Accumulator]:
    statistic, plan = planned(name, "laplace", k=6)
    return [statistic.accumulator(plan.strategy, ROWS, error) for error in (1e-2, 1e-9)]


def by_bits(
    name: str, noise: str = "laplace", protection: Protection | None = None
) -> list[Accumulator]:
    statistic, plan = planned(name, noise)
    statistic = statistic.protected(protection or Protection(), None)
    return [statistic.from_params(plan.strategy, ROWS, bits) for bits in (COARSE, FINE)]


def state_of(part: Accumulator, columns: dict[str, np.ndarray]) -> np.ndarray:
    state = np.zeros(part.shape, dtype=np.int64)
    counted = part.start_pass(state, bytes(32), 0)
    counted.add(columns)
    counted.finish()
    return state


def values(part: Accumulator, state: np.ndarray, outputs: int) -> np.ndarray:
    """Values of the records before they are rounded to the grid of the noise."""
    slabs = itertools.product(range(outputs), part.strategy.layout.slabs())
    finished = np.concatenate([part.to_values(state, i, slab).ravel() for i, slab in slabs])
    return finished.astype(np.longdouble)


def databases(part: Accumulator, counts: list[int]) -> list[dict[str, np.ndarray]]:
    """The same first record, and beside it another as many times as each count says."""
    rng = np.random.default_rng(7)
    records = {}
    for column in part.columns:
        shape, classes = len(counts) + 1, len(column.categories)
        records[column.name] = (
            rng.integers(0, classes, shape) * 1.0 if classes else rng.uniform(size=shape)
        )
    return [
        {name: np.concatenate([column[:1], *[column[[i + 1]]] * count])
         for name, column in records.items()}
        for i, count in enumerate(counts)
    ]  # fmt: skip


SUMS = [
    pytest.param(lambda: by_tolerance("density"), 1, 1, id="lattice"),
    pytest.param(lambda: by_tolerance("groups"), 3, 1, id="outputs"),
    pytest.param(lambda: by_tolerance("gaps"), 1, 1, id="gaps"),
    pytest.param(lambda: by_bits("density", "binned-laplace"), 1, 1, id="bins"),
    pytest.param(lambda: by_bits("bayes-gaussian"), 1, 1, id="classes"),
    pytest.param(lambda: by_bits("least squares"), 1, 1, id="moments"),
    pytest.param(lambda: by_bits("density", "binned-laplace", UNITS), 1, 3, id="unit"),
    pytest.param(lambda: by_bits("density", "binned-laplace", ADDED), 1, 0, id="added"),
]
JOINT = pytest.param(lambda: by_tolerance("bayes-joint"), 1, 1, id="joint")


@pytest.mark.parametrize(("twins", "outputs", "rows"), [*SUMS, JOINT])
def test_a_move_is_exact_but_for_what_is_stated(twins, outputs, rows):
    """Records are replaced by others, as often as a unit has rows; the first is added to none."""
    rough, fine = twins()
    counts = [rows] * 24 if rows else [0, *[1] * 23]
    errors = ROWS * np.subtract(*(
        [values(part, state_of(part, columns), outputs)
         for columns in databases(part, counts)]
        for part in (rough, fine)
    ))  # fmt: skip
    neighbors = errors[:, None] if rows else errors[:1, None]
    moved = (neighbors - errors).reshape(-1, errors.shape[1])
    for norm in (1, 2):
        stated, rest = (part.errors.kernel_norms[norm - 1] for part in (rough, fine))
        floats = 2 * ROWS * sum(part.errors.float_norms[norm - 1] for part in (rough, fine))
        largest = np.linalg.norm(moved.astype(float), norm, axis=1).max()
        assert rest + floats < largest <= stated + rest + floats


@pytest.mark.parametrize(("twins", "outputs", "_rows"), SUMS)
def test_floats_of_values_are_off_by_no_more_than_is_stated(twins, outputs, _rows):
    """Values are linear in integers: what they are of a sum, less those of its terms, is floats."""
    part = twins()[1]
    states = [state_of(part, columns) for columns in databases(part, [1] * 24)]
    pairs = list(itertools.combinations(states, 2))
    off = np.array([
        values(part, a + b, outputs) - values(part, a, outputs) - values(part, b, outputs)
        for a, b in pairs
    ])  # fmt: skip
    for norm in (1, 2):
        stated = 3 * part.errors.float_norms[norm - 1]
        assert 0 < np.linalg.norm(off.astype(float), norm, axis=1).max() <= stated
