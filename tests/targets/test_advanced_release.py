"""The paper's noise for a delta: what one record does to each integer, and where it is refused."""

import math
from fractions import Fraction

import numpy as np
import pytest
from conformance import CASES, granules_of_each, integers_of_each, moves, release_spec

import dbern
from dbern.planning.planner import plan_files
from dbern.planning.release_plan import ReleasePlan
from dbern.planning.target_error import smallest_epsilon


def specified(bandwidths, n, **mechanism):
    target = {"kind": "kernel-density", "bandwidth": list(bandwidths)}
    bounds = {key: [-1.0, 3.0] for key in "xyz"[: len(bandwidths)]}
    mechanism = {"noise": "laplace-advanced", **mechanism}
    return release_spec(target, bounds, n=n, delta="1e-5", mechanism=mechanism)


@pytest.mark.parametrize("bandwidths", [(0.4,), (0.6, 0.9)])
def test_no_replacement_moves_one_integer_by_more_than_the_plan_says(bandwidths):
    spec = specified(bandwidths, n=2, k=12, h=3)
    plan = plan_files(spec, ())
    assert plan.noise.law.l1_sensitivity_granules % plan.lattice.size == 0
    rng = np.random.default_rng(3)
    nodes = rng.choice([-1.0, 3.0, 1.0], (10, len(bandwidths)))  # a bump's peak is at its node
    nothing = [[np.nan] * len(bandwidths), [9.0] * len(bandwidths)]
    rows = np.vstack([rng.uniform(-1, 3, (20, len(bandwidths))), nodes, nothing])
    databases = [np.vstack([rows[:1], [row]]) for row in rows]
    assert 0.9 < max(moves(plan, granules_of_each(spec, plan, databases))) <= 1


def regression(n, **mechanism):
    return release_spec(
        {"kind": "nadaraya-watson", "bandwidth": [0.4]}, {"x": [-1.0, 3.0]}, n=n, delta="1e-5",
        mechanism={"k": 12, "h": 3, **mechanism}, response={"column": "z", "bounds": [-2.0, 2.0]},
    )  # fmt: skip


def test_divided_records_move_one_integer_as_far_as_whole_ones():
    spec = regression(n=1, noise="laplace-advanced")
    plan = plan_files(spec, ())
    records = [{"x": x, "z": z} for x in (-1.0, 1.0, 0.3) for z in (-2.0, 2.0, 0.0, np.nan)]
    staged = integers_of_each(spec, plan, [[record] for record in records])
    assert 0.9 < moves(plan, staged)[0] <= 1


def test_signed_weights_move_one_integer_twice_as_far_and_no_farther():
    machine, mechanism = CASES["machine"], {"k": 12, "h": 3, "noise": "laplace-advanced"}
    spec = release_spec(
        machine.target, "x", n=1, delta="1e-5", mechanism=mechanism, **machine.roles
    )
    plan = plan_files(spec, ())
    records = [{"x": x, "label": c} for x in (0.0, 1.0, 0.5) for c in (0.0, 1.0, np.nan)]
    staged = integers_of_each(spec, plan, [[record] for record in records])
    assert 0.9 < moves(plan, staged)[0] <= 1


def test_several_components_cost_the_rhos_of_their_laws_together():
    bayes = {"kind": "naive-bayes", "bandwidth": [0.4]}
    label = {"column": "c", "classes": [0, 1]}
    spec = release_spec(
        bayes, {"x": [-1.0, 3.0]}, n=1000, delta="1e-5", label=label,
        mechanism={"k": 12, "h": 3, "noise": "discrete-gaussian"},
    )  # fmt: skip
    plan = plan_files(spec, ())
    rhos = [component.noise.law.rho for component in plan.components]
    assert len(rhos) == 2
    assert sum(rhos) <= plan.rho <= sum(rhos) * (1 + Fraction(1, 10**27))
    assert plan_files(regression(n=1000, noise="laplace-advanced"), ()).rho is None


def test_the_plan_has_the_papers_scale_and_comes_back():
    plan = plan_files(specified((0.4,), n=1000, k=12, h=3), ())
    assert plan.noise.kind == "laplace-advanced"
    wanted = 2 * plan.sensitivity.function * math.sqrt(2 * 13 * math.log(1e5))
    assert wanted <= plan.noise.scale <= 1.02 * wanted
    assert plan.rho is None
    assert "no rho" in plan.explain(details=True)
    assert ReleasePlan.from_dict(plan.to_dict()) == plan


@pytest.mark.slow
def test_the_plan_chooses_for_this_noise():
    """Of lattices and orders, that whose error is predicted smallest for the noise it gets."""
    free = plan_files(specified((0.2,), n=1000, objective="certified"), ())
    assert not free.components[0].maps
    for k, h in [(6, 1), (60, 4), (400, 24)]:
        other = plan_files(specified((0.2,), n=1000, k=k, h=h), ())
        assert free.certificate.total < other.certificate.total


def test_it_is_not_offered_as_a_choice(project):
    spec = project.spec(
        budget={"epsilon": "0.5", "delta": "1e-6"}, mechanism={"noise": "laplace-advanced"}
    )
    with pytest.raises(dbern.SpecError, match=r"mechanism.noise: .*[Ww]rite"):
        smallest_epsilon(spec, 1.0)
