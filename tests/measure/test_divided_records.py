"""Records that are in two outputs, by their response: one budget pays for both."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from conformance import CASES, integers

from dbern.data.domain import Response
from dbern.measure.record_weights import DividedResponse
from dbern.planning.planner import plan_files

RESPONSE = Response("r", -1.0, 3.0)
NOISES = ("binned-laplace", "binned-k-norm", "binned-gaussian", "laplace", "discrete-gaussian")


def test_weights_and_their_rests_are_exact():
    rng = np.random.default_rng(0)
    near = 2.0 ** -rng.uniform(0, 60, size=2000)
    values = np.concatenate([[-1.0, 3.0, -9.0, 1e300], rng.uniform(-1, 3, 2000), near - 1])
    known, output, weight = DividedResponse(RESPONSE)({"r": np.append(values, np.nan)})
    assert output is None
    assert known.tolist() == [True] * len(values) + [False]
    clipped = np.clip(values, -1, 3)
    for value, one in zip(clipped.tolist(), weight[:-1].tolist(), strict=True):
        assert 0 <= one <= 1
        assert Fraction(one) + Fraction(1 - one) == 1
        assert abs(Fraction(one) - (Fraction(value) + 1) / 4) <= Fraction(1, 2**50)
    assert weight[:2].tolist() == pytest.approx([0, 1], abs=1e-15)


def neighbors(count):
    """Two records each, far apart or near, with responses at the bounds or anywhere."""
    rng = np.random.default_rng(1)
    for index in range(count):
        x = rng.uniform(size=2) if index % 3 else np.full(2, rng.uniform())
        r = rng.choice([-1.0, 3.0], 2) if index % 2 else rng.uniform(-1, 3, 2)
        yield [{"x": a, "response": b} for a, b in zip(x, r, strict=True)]


@pytest.mark.parametrize("noise", NOISES)
def test_no_neighbors_move_both_outputs_further_than_one_record(noise):
    """By the integers that carry the noise; the bound is nearly reached by divided records too."""
    spec = CASES["regression"].spec(1, 1, noise, k=8)
    plan = plan_files(spec, ())
    (planned,) = plan.components
    law, reached, divided = planned.noise.law, 0.0, 0.0
    assert planned.arrays == ("responses_0", "responses_1")
    for index, pair in enumerate(neighbors(120)):
        first, second = (integers(spec, plan, [one])[0] for one in pair)
        move = (second - first).astype(float)
        size = np.linalg.norm(move, 1 if "gaussian" not in law.kind else 2)
        if law.kind == "k-norm":
            size = 2 * max(np.maximum(move, 0).sum(), np.maximum(-move, 0).sum())
        assert size <= law.sensitivity_in_granules
        reached = max(reached, size / law.sensitivity_in_granules)
        divided = max(divided, 0.0 if index % 2 else size / law.sensitivity_in_granules)
    assert reached > 0.8
    assert divided > (0.5 if "gauss" in noise else 0.75)


def test_both_outputs_are_released_for_what_one_sum_costs():
    """The noise of a density of groups, of which a record is in one, has the same scale."""
    laws = []
    for name in ("regression", "groups"):
        spec = CASES[name].spec(1, 2000, "binned-laplace", k=8)
        (statistic,) = spec.components
        assert statistic.output_fraction == 1
        (planned,) = plan_files(spec, ()).components
        laws.append(planned.noise.law)
    moves = [np.ldexp(law.l1_sensitivity_granules, law.granularity_exponent) for law in laws]
    assert moves[0] == pytest.approx(moves[1], rel=0.01)
    scales = [np.ldexp(law.scale, law.granularity_exponent) for law in laws]
    assert scales[0] == pytest.approx(scales[1], rel=0.01)
