"""Minimizers with kernels that are learned with as they are, and losses of one's own."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import zarr
from conformance import (
    CASES,
    LABEL,
    NULL,
    THREE,
    Case,
    counted,
    integers,
    largest_move,
    pinball,
    release_spec,
)
from models import released, table

import dbern
from dbern.erm.losses import Logistic, Secant, UserLoss
from dbern.erm.shards import objective
from dbern.erm.solver import minimize
from dbern.measure.accumulator import StoppedError
from dbern.planning.planner import plan_files
from dbern.planning.release_plan import ReleasePlan
from dbern.reconstruct import gram


def test_the_store_of_a_whole_spectrum_is_what_the_format_says(project, exact_release):
    """Any zarr reader: the released integers make the lattice, but for a granule."""
    target = {"kind": "kernel-erm", "loss": "logistic", "kernel": "polynomial", "C": 5.0}
    case = Case(target, {"label": LABEL}, {"label": (0.0,)})
    released(exact_release, case, table(200, 1), noise="spectral-laplace", k=12)
    root = zarr.open_group(project.output, mode="r")
    (facts,) = root.attrs["components"]
    assert facts["spectral"] == "lattice"
    group = root["components/decision"]
    analysis, eigenvalues = group["spectral/analysis"], group["spectral/eigenvalues"][...]
    stored = analysis[...] * 2.0 ** analysis.attrs["exponent"]
    back = stored.T * eigenvalues ** (2 * analysis.attrs["weighting"])
    scale = group["coefficients"].attrs["scale_factor"]
    values = back @ (group["spectral/released"][...] * scale)
    assert stored.shape == (len(eigenvalues), 13)
    np.testing.assert_allclose(group["coefficients"][...] * scale, values, atol=0.51 * scale)


def test_the_sum_of_a_signed_gram_matrix_is_exceeded_by_two_records(monkeypatch):
    """A linear kernel on a centred axis: G sums to zero, and a record moves every value."""
    target = {"kind": "kernel-erm", "kernel": "polynomial", "degree": 1, "constant": 0.0,
              "loss": "hinge", "C": 0.9}  # fmt: skip
    case = Case(target, {"label": LABEL}, {"label": (0.0, 1.0, NULL)})
    assert 0.5 < largest_move("replaced", case, 1, "laplace", k=9) <= 1
    gram._plain_bound.cache_clear()
    monkeypatch.setattr(
        gram, "_absolute", lambda cube, points, rows: cube.kernel(points[rows], points) + 1e-9
    )
    assert largest_move("replaced", case, 1, "laplace", k=9) > 1
    gram._plain_bound.cache_clear()


@pytest.mark.slow
def test_plain_noise_works_beyond_the_limit():
    plan = plan_files(CASES["kernel polynomial"].spec(2, 100, "laplace", k=64), ())
    assert plan.k == (64, 64)
    with pytest.raises(dbern.SpecError, match=r"^mechanism\.k: 16641 lattice points, .*smaller k"):
        plan_files(CASES["kernel polynomial"].spec(2, 100, "laplace", k=128), ())


@pytest.mark.parametrize(
    "noise", [pytest.param("auto", marks=pytest.mark.slow), "spectral-gaussian"]
)
def test_the_planner_chooses_for_any_kernel(noise):
    spec = release_spec(
        CASES["own kernel"].target, "x", n=20_000, label=THREE,
        mechanism={"noise": noise, "objective": "certified"},
    )  # fmt: skip
    plan = plan_files(spec, ())
    assert plan.noise.kind.startswith("spectral-")
    again = ReleasePlan.from_dict(json.loads(json.dumps(plan.to_dict(), allow_nan=False)))
    assert again == plan
    assert again.counters(spec).parts[0].strategy == plan.strategy
    worse = spec.changed({"mechanism": {"k": 4, "h": 1}})
    assert plan.certificate.total < plan_files(worse, ()).certificate.total


WIDTH = 0.3


def bump(x, y):
    """A Gaussian kernel of one's own, along every axis alike."""
    return np.exp(-np.square((x[:, None, :] - y) / WIDTH).sum(axis=-1) / 2)


@pytest.mark.slow
@pytest.mark.parametrize(("axes", "k", "near", "slopes"), [(2, 10, 1.6, 5), (3, 6, 1.2, 4)])
def test_a_gaussian_of_one_s_own_errs_by_nearly_what_ours_does(axes, k, near, slopes, monkeypatch):
    """Its curvature is what does it; ours is a sum of translates as well, and less by that."""
    # Of the noise nothing is asked, and to simulate it took half a minute on three axes.
    monkeypatch.setattr("dbern.certify.certificate.noise_bound", lambda *_: 1.0)
    ours = {"kind": "kernel-erm", "loss": "logistic", "C": 5.0, "length_scale": [WIDTH]}
    own = {**ours, "length_scale": None, "kernel": "test_exact_kernels:bump", "kernel_bound": 1.0,
           "kernel_lipschitz": 1.000001 / WIDTH}  # fmt: skip
    bent = {**own, "kernel_curvature": 1.000001 * np.sqrt(3) / WIDTH**2}

    def missed(target):
        case = Case({key: one for key, one in target.items() if one}, {"label": LABEL}, {})
        plan = plan_files(case.spec(axes, 10**5, "laplace", k=k, h=6 if axes == 2 else 4), ())
        return plan.certificate.approximation

    known = missed(ours)
    assert known < missed(bent) < near * known
    assert missed(own) > slopes * known
    with pytest.raises(
        dbern.SpecError, match=r"^target\.kernel_curvature: is 10, and the kernel has"
    ):
        missed(bent | {"kernel_curvature": 10.0})
    with pytest.raises(
        dbern.SpecError, match=r"^target\.kernel_lipschitz: is 2, and the kernel has"
    ):
        missed(own | {"kernel_lipschitz": 2.0})
    with pytest.raises(
        dbern.SpecError, match=r'^target\.kernel_curvature: is of kernel = "module:name", not of'
    ):
        missed(ours | {"kernel_curvature": 10.0})


def logistic(labels, predictions):
    """A loss of one's own that is one of ours."""
    return np.logaddexp(0.0, -labels * predictions)


def test_a_secant_is_a_convex_loss_s_slope_with_its_kinks_rounded():
    rng = np.random.default_rng(3)
    labels, predictions = rng.uniform(-2, 2, 4000), np.sort(rng.uniform(-4, 4, 4000))
    for width in (0.05, 0.5):
        loss = UserLoss.rounded(pinball, width, lipschitz=0.75, at_zero=1.5, bound=2.0)
        at = loss.derivative(np.full(4000, 0.3), predictions)
        assert (np.diff(at) >= -1e-12).all()  # convex
        assert np.abs(at).max() <= 0.75 + 1e-12
        assert (np.diff(at) <= loss.curvature * np.diff(predictions) + 1e-12).all()
        far = np.abs(predictions - labels) > width / 2
        slope = np.where(predictions > labels, 0.25, -0.75)
        np.testing.assert_allclose(Secant(pinball, width)(labels, predictions)[far], slope[far])


APART = "import numpy as np\ndef k(x, y):\n    return (np.abs(x - y.T) < 1e-9) * 1.0\n"
ALIKE = "import numpy as np\ndef k(x, y):\n    return np.ones((len(x), len(y)))\n"


def test_a_kernel_of_another_text_is_refused_because_the_plan_s_noise_is_not_for_it(
    tmp_path, monkeypatch
):
    """Both are positive definite and at most one: what is stated of them holds of either."""
    monkeypatch.syspath_prepend(tmp_path)

    def written(text):
        (tmp_path / "edited_kernel.py").write_text(text)
        sys.modules.pop("edited_kernel", None)
        target = {"kind": "kernel-erm", "kernel": "edited_kernel:k", "kernel_bound": 1.0,
                  "loss": "hinge", "C": 0.5}  # fmt: skip
        return Case(target, {"label": LABEL}, {"label": (0.0,)}).spec(1, 2, "laplace", k=20)

    spec = written(APART)
    held = spec.identity()
    plan, counters = plan_files(spec, ()), plan_files(spec, ()).counters(spec)
    records = [[{"x": 0.1, "label": 0.0}, {"x": 0.2, "label": label}] for label in (0.0, 1.0)]
    assert counted(counters, records[:1]).any()
    other = written(ALIKE)
    assert other.identity() != held
    with pytest.raises(StoppedError, match="unlike") as told:
        counted(counters, records[:1])
    assert told.value.location == "target.kernel"
    one, two = (integers(other, plan, some)[0] for some in records)  # were it not refused
    assert np.abs(one - two).sum() > 4 * plan.noise.law.l1_sensitivity_granules
    sys.modules.pop("edited_kernel")
    (tmp_path / "edited_kernel.py").unlink()
    with pytest.raises(StoppedError, match="unlike"):
        counted(counters, records[:1])


def concave(labels, predictions):
    """No loss at all: its gradient has no zero to converge to."""
    return 9.0 - np.minimum(8.0, (labels - predictions) ** 2)


def test_a_loss_that_is_not_as_stated_is_seen_to_fail():
    case = CASES["own loss"]
    target = {**case.target, "loss": "test_exact_kernels:concave", "lipschitz": 8.0, "at_zero": 9.0,
              "curvature": 1e-4, "C": 50.0}  # fmt: skip
    spec = Case(target, case.roles, case.values).spec(1, 4, "laplace", k=5)
    plan = plan_files(spec, ())
    accumulator = plan.counters(spec).parts[0]
    rows = np.array([[0.1, 1.0], [0.5, -1.0], [0.6, 2.0], [0.9, 0.5]])
    with pytest.raises(dbern.SpecError, match=r"^target\.loss: did not converge"):
        accumulator.model.fitted(rows[:, :1], rows[:, 1], np.ones(4))
    problem = objective(accumulator.model.risk, rows[:, :1], rows[:, 1], np.ones(4))
    assert (
        minimize(problem, accumulator.model.bounds.tolerance).distance > 0.1
    )  # and is not raised here


def test_the_logistic_loss_is_what_its_twin_says():
    assert Logistic().value(np.array([1.0]), np.array([0.5])) == logistic(1.0, 0.5)
