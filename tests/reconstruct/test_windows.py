"""Weights of nodes for windows, and the blocks that are chosen without data."""

from __future__ import annotations

import math
from datetime import date

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dbern.nights.horizon import Horizon
from dbern.nights.windows import WEIGHT_BITS, best_levels, running_variances, window_weights

FIRST = date(2026, 1, 1)


@st.composite
def cases(draw):
    count = draw(st.integers(2, 40))
    sizes = draw(st.sampled_from([(1,), (1, 3), (1, 2, 6), (1, 2, 4, 8)]))
    horizon = Horizon(FIRST, count, tuple(size for size in sizes if size < count))
    empty = draw(st.sets(st.integers(0, count - 1), max_size=3))
    published = {}
    for node in horizon.nodes():
        counted = frozenset(node.nights) - empty
        if counted and (node.level == 0 or draw(st.booleans())):
            published[node] = counted
    start, stop = sorted(draw(st.tuples(st.integers(0, count - 1), st.integers(1, count))))
    return published, range(start, max(stop, start + 1)), empty


def least_variance(published, window, empty):
    """The same by a dense solution of the normal equations (Gauss and Markov)."""
    nodes = sorted(published)
    nights = sorted({night for node in nodes for night in published[node]})
    counts = np.array([[night in published[node] for node in nodes] for night in nights], float)
    wanted = np.array([night in window and night not in empty for night in nights], float)
    return dict(zip(nodes, np.linalg.pinv(counts) @ wanted, strict=True))


@pytest.mark.slow
@settings(deadline=None)
@given(cases())
def test_weights_count_the_window_just_once_with_the_least_variance(case):
    published, window, empty = case
    assume(published)
    counted = {night for night in window if night not in empty}
    weights = window_weights(published, window)
    totals = dict.fromkeys(range(50), 0)
    for node, weight in weights.items():
        for night in published[node]:
            totals[night] += weight
    assert {night for night, total in totals.items() if total} == counted  # exactly
    assert all(totals[night] == 1 << WEIGHT_BITS for night in counted)
    oracle = least_variance(published, window, empty)
    for node, weight in oracle.items():
        assert math.ldexp(weights.get(node, 0), -WEIGHT_BITS) == pytest.approx(weight, abs=1e-6)


def test_a_night_that_the_largest_block_left_out_still_counts():
    """As of a night that a restored ledger forgot between two blocks."""
    horizon = Horizon(FIRST, 6, (1, 2, 4))
    published = {n: frozenset(n.nights) - ({1} if n.level == 2 else set()) for n in horizon.nodes()}
    weights = window_weights(published, range(4))
    totals = [sum(w for n, w in weights.items() if night in published[n]) for night in range(6)]
    assert totals == [1 << WEIGHT_BITS] * 4 + [0, 0]


def test_a_night_without_a_node_is_no_sum():
    horizon = Horizon(FIRST, 6, (1, 3))
    published = {n: frozenset(n.nights) for n in horizon.nodes() if n.level or n.start in (0, 3)}
    with pytest.raises(ValueError, match="no node of its own"):
        window_weights(published, range(1, 2))


@pytest.mark.parametrize(
    ("count", "levels"), [(20, (1,)), (21, (1, 3)), (24, (1, 2, 8)), (36, (1, 4, 12))]
)
def test_variances_of_totals_are_those_of_the_weights(count, levels):
    horizon = Horizon(FIRST, count, levels)
    for night, variance in enumerate(running_variances(count, levels)):
        closed = {n: frozenset(n.nights) for n in horizon.nodes() if n.stop <= night + 1}
        weights = window_weights(closed, range(night + 1)).values()
        squares = math.fsum(math.ldexp(weight, -WEIGHT_BITS) ** 2 for weight in weights)
        assert squares == pytest.approx(variance)


def test_two_levels_are_best_for_laplace_noise_and_a_tree_for_gaussian_noise():
    """The referee's figures, in units of sensitivity over epsilon, for a year."""
    levels = best_levels(365, float)
    deviations = math.sqrt(2) * 2 * np.sqrt(running_variances(365, levels))
    assert levels == (1, 18)
    assert math.sqrt(np.square(deviations).mean()) < 11.9
    assert deviations.max() < 16.8
    tree = best_levels(365, math.sqrt)
    deviations = np.sqrt(len(tree) * running_variances(365, tree))
    assert math.sqrt(np.square(deviations).mean()) < 4.56
    assert best_levels(1, float) == (1,)
