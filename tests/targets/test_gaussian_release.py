"""What one record does, in the l2 norm, to the integers that carry Gaussian noise."""

from fractions import Fraction

import numpy as np
import pytest
from conformance import release_spec

import dbern
from dbern.bernstein.kernels import Gaussian
from dbern.planning.planner import plan_files
from dbern.privacy.curves import SPREAD_SQUARED, _delta_at
from dbern.privacy.zcdp import _delta_of
from dbern.reconstruct.base import Lattice, LatticeStrategy


def planned(delta="1e-5", **mechanism):
    target = {"kind": "kernel-density", "bandwidth": [0.4]}
    spec = release_spec(target, {"x": [-1.0, 3.0]}, n=1000, delta=delta, mechanism=mechanism)
    return spec, plan_files(spec, ())


@pytest.mark.parametrize(("bandwidth", "k"), [(0.05, 20), (0.1, 40), (0.3, 9), (2.0, 20)])
def test_the_l2_bounds_are_bounds_and_tight(bandwidth, k):
    kernel = Gaussian(bandwidth)
    t = np.linspace(0, 1, 301)
    rows = kernel(np.arange(k + 1) / k - t[:, None])
    worst = max(np.sqrt(np.square(rows - row).sum(axis=1)).max() for row in rows)
    worst = max(worst, np.sqrt(np.square(rows).sum(axis=1)).max())
    bound = LatticeStrategy(Lattice((k,))).l2_sensitivity([kernel]).value
    assert worst <= bound
    if bandwidth < 0.2:
        assert bound <= 1.1 * worst


@pytest.mark.slow
def test_the_plan_keeps_its_delta_and_reports_its_rho():
    spec, plan = planned()
    assert plan.noise.kind == "binned-gaussian"
    law = plan.noise.law
    apart = Fraction(law.l2_sensitivity_granules_squared, law.sigma**2 - SPREAD_SQUARED)
    assert _delta_at(spec.charge.epsilon, apart) <= spec.charge.delta
    assert _delta_of(plan.rho, spec.charge.epsilon) > spec.charge.delta
    assert plan.noise.law.rho <= plan.rho <= plan.noise.law.rho * (1 + Fraction(1, 10**27))
    assert Fraction(plan.to_dict()["rho"]) == plan.rho
    assert f"rho = {float(plan.rho):.6g} in zCDP" in plan.explain(details=True)


def test_a_pure_plan_reports_half_epsilon_squared():
    _, plan = planned(delta="0", noise="laplace", k=9, h=2)
    assert (plan.rho, plan.to_dict()["rho"]) == (Fraction(1, 2), "0.5")


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["auto", "laplace-advanced"])
def test_a_release_with_delta_charges_both(project, client, noise):
    spec = project.spec(
        budget={"epsilon": "0.5", "delta": "1e-6"}, mechanism={"k": 12, "h": 3, "noise": noise}
    )
    with pytest.raises(dbern.BudgetError, match="delta"):
        dbern.release(spec, client=client)
    with project.ledger() as ledger:
        ledger.grant("trips", dbern.Budget.parse("1", "1e-6"))
    synopsis = dbern.release(spec, client=client).synopsis
    assert synopsis.metadata["delta"] == "0.000001"
    kind = synopsis.metadata["components"][0]["noise"]["kind"]
    assert kind.endswith("gaussian" if noise == "auto" else "laplace-advanced")
    assert (synopsis.metadata["rho"] is None) == (noise != "auto")
    points = np.array([[5.0, 0.0], [1.0, -0.5]])
    low, high = synopsis.interval(points)
    assert (low < synopsis(points, h="auto")).all()
    assert (synopsis(points) < high).all()
    assert project.spent().startswith("epsilon 0.5, delta 0.000001")
