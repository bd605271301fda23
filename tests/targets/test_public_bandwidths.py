"""`bandwidth = "auto"` of regressions and naive Bayes: from rows, epsilon and axes, never data."""

from __future__ import annotations

import numpy as np
import pytest
from conformance import Case

import dbern
from dbern.bernstein.kernels import KERNELS, kernel_of
from dbern.errors import SpecError
from dbern.planning.planner import plan_files
from dbern.planning.resolved import spec_for_rows
from dbern.planning.target_error import smallest_epsilon
from dbern.targets.bandwidths import class_deviation, regression_deviation

RESPONSE = {"column": "response", "bounds": [0.0, 1.0]}
LABEL = {"column": "label", "classes": [0, 1]}
LEARNERS = {
    "nadaraya-watson": {"response": RESPONSE},
    "naive-bayes": {"label": LABEL},
}
PRIVATE = {"unit": {"column": "who", "max_contributions": 10}, "normalizer": "10000"}


def spec_of(kind, axes=1, n=10_000, epsilon="1", rows=None, **more):
    target = {"kind": kind, "bandwidth": "auto", **more.pop("target", {})}
    case = Case(target, {**LEARNERS[kind], **more})
    spec = case.spec(axes, n, "auto", **({"rows": rows} if rows else {}))
    return spec.changed({"budget": {"epsilon": epsilon}})


def bandwidth_of(*given, n=10_000, **more):
    return spec_for_rows(spec_of(*given, n=n, **more), n).learner.bandwidth


@pytest.mark.parametrize("kind", LEARNERS)
def test_more_rows_and_a_larger_epsilon_never_choose_a_wider_kernel(kind):
    rows, epsilons = [10**power for power in range(1, 10)], ["0.01", "0.3", "1", "10"]
    chosen = [[bandwidth_of(kind, n=n, epsilon=epsilon)[0] for epsilon in epsilons] for n in rows]
    assert (np.diff(chosen, axis=0) <= 0).all()
    assert (np.diff(chosen, axis=1) <= 0).all()
    assert len(np.unique(chosen)) >= 8


def test_a_regression_is_at_the_least_sum_of_what_is_blurred_and_noise():
    """Of ``b^2 + c / (m b^l)`` the least is at ``b^(l + 2) = c l / 2 m``."""
    for axes in (1, 2, 3):
        few, many = (regression_deviation(rows, 1.0, axes) for rows in (2000, 16_000))
        assert few / many == pytest.approx(8 ** (1 / (axes + 2)))


def test_classes_and_axes_share_the_rows_and_epsilon_of_naive_bayes():
    """Half the rows of a class, or twice the axes, are worth half the rows."""
    usual = class_deviation(1000, 1.0, 1)
    assert class_deviation(250, 1.0, 1) == class_deviation(1000, 1.0, 4) == 2 * usual
    four = {"label": {"column": "label", "classes": [0, 1, 2, 3]}}
    two = bandwidth_of("naive-bayes", n=2000)
    assert bandwidth_of("naive-bayes", n=4000, **four) == two > bandwidth_of("naive-bayes", n=4000)
    lists = {"data": {"bounds": {"x": [0.0, 1.0], "c": {"values": ["a", "b"]}}}}
    listed = spec_for_rows(spec_of("naive-bayes", n=4000).changed(lists), 4000).learner
    assert listed.bandwidth == two


@pytest.mark.parametrize("kind", LEARNERS)
def test_a_rounded_axis_has_a_kernel_of_a_third_of_a_step_at_least(kind):
    """Between two values a narrower one would know of no row: halfway this is a third as high."""
    rounded = {"data": {"bounds": {"x": [0.0, 10.0]}, "resolution": {"x": 1}}}
    spec = spec_of(kind, n=10**7).changed(rounded)
    assert spec_for_rows(spec, 10**7).learner.bandwidth == (0.333,)
    fine = spec.changed({"data": {"resolution": {"x": 0.01}}})
    assert spec_for_rows(fine, 10**7).learner.bandwidth == (0.15,)


def test_a_large_epsilon_is_worth_three_times_the_rows():
    assert regression_deviation(1000, 1e6, 1) == pytest.approx(regression_deviation(4000, 1.0, 1))


@pytest.mark.parametrize("kind", LEARNERS)
def test_bounds_scale_it_and_every_kernel_has_the_same_deviation(kind):
    (usual,) = bandwidth_of(kind)
    for name in KERNELS:
        (b,) = bandwidth_of(kind, target={"kernel": name})
        deviation = kernel_of(name, b).deviation
        assert deviation == pytest.approx(kernel_of("gaussian", usual).deviation, rel=0.01)
    spec = spec_of(kind, 2).changed({"data": {"bounds": {"x": [0.0, 1.0], "y": [0.0, 50.0]}}})
    first, second = spec_for_rows(spec, 10_000).learner.bandwidth
    assert second == pytest.approx(50 * first, rel=0.01)


def test_a_group_of_several_has_as_many_rows_less():
    groups = {"group": {"column": "g", "values": ["a", "b", "c", "d"]}}
    assert bandwidth_of("nadaraya-watson", n=40_000, **groups) == bandwidth_of("nadaraya-watson")


@pytest.mark.parametrize("kind", LEARNERS)
def test_a_unit_of_many_rows_has_that_of_as_many_times_less_epsilon(kind):
    private = spec_for_rows(spec_of(kind, rows=PRIVATE), 10_000).learner.bandwidth
    assert private == bandwidth_of(kind, epsilon="0.1") > bandwidth_of(kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LEARNERS)
def test_the_plan_says_it_and_is_that_of_the_number_written(kind):
    spec, (b,) = spec_of(kind), bandwidth_of(kind)
    planned = plan_files(spec, ())
    assert f"bandwidth = [{b:g}]" in planned.explain(details=True)
    assert plan_files(spec.changed({"target": {"bandwidth": [b]}}), ()) == planned


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["gaussian", "triangle", "laplace"])
@pytest.mark.parametrize("axes", range(1, 7))
def test_the_narrowest_on_any_axes_can_be_planned(axes, kernel):
    n, target = 10**9, {"kernel": kernel}
    spec = spec_of("nadaraya-watson", axes, n=n, epsilon="3", target=target)
    assert plan_files(spec, ()).n == n


def test_a_joint_score_and_an_aim_at_an_error_take_a_number():
    with pytest.raises(SpecError, match=r'"auto" is for release = "factored"\. Write one number'):
        spec_of("naive-bayes", target={"release": "joint"})
    with pytest.raises(SpecError, match="Write numbers in place of it"):
        smallest_epsilon(spec_of("nadaraya-watson"), 0.1)


@pytest.mark.slow
def test_a_release_states_the_number(project):
    response = {"column": "y", "bounds": [-1.0, 1.0]}
    spec = project.spec(
        target={"kind": "nadaraya-watson", "bandwidth": "auto"},
        data__bounds={"y": None}, data__response=response,
        mechanism={"k": "auto", "h": "auto", "noise": "auto"},
    )  # fmt: skip
    facts = dbern.release(spec).synopsis.metadata
    assert facts["target"]["bandwidth"] == [
        pytest.approx(10 * regression_deviation(240, 1, 1), rel=0.01)
    ]
