"""Losses, spaces, sums and combinations of learners on arguments small enough to do by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dbern.bernstein.kernels import kernel_of
from dbern.bernstein.reproducing import ArcCosine, Linear
from dbern.certify.certificate import Certificate
from dbern.certify.error_summary import printed_sum
from dbern.certify.noise_quantile import _fewest_draws, quantile_rank
from dbern.combination import combination_of
from dbern.combination.functions import Identity
from dbern.combination.gaussian_scores import _gaussian_log_scores, _gaussian_scores
from dbern.combination.kernel_scores import _kernel_log_scores, _kernel_scores
from dbern.combination.responses import Quotient, Quotients
from dbern.data.domain import Axis, Column, Domain, Response
from dbern.erm.gaussian_features import GaussianFeatures, ProjectedGaussian
from dbern.erm.gram_kernels import GramKernel
from dbern.erm.linear_features import LinearFeatures
from dbern.erm.losses import EpsilonInsensitive, Hinge, Huber, Logistic, Square, one_vs_rest
from dbern.erm.objective import OutputwiseLoss, Softmax
from dbern.erm.perturbed import _row_weight, categorical_fraction
from dbern.erm.summation import sum_by_pairs
from dbern.erm.user import UserKernel, UserLoss, imported
from dbern.learn.functional_mean import CurveSums, _chosen_degree
from dbern.learn.least_squares import MomentSums
from dbern.learn.user_functions import Range, uniform_records
from dbern.privacy.public_numbers import public_stream
from dbern.reconstruct.base import VectorStrategy
from dbern.targets.class_sums import ClassSums
from dbern.targets.smoother import _finest_bandwidth
from dbern.targets.typical import typical_variances


def test_losses_have_the_constants_of_their_formulas():
    hinge = Hinge(0.5)
    assert (hinge.slope(math.inf), hinge.curvature, hinge.at_zero) == (1.0, 2.0, 0.75)
    assert (round(Logistic().slope(1.0), 3), Logistic().curvature) == (0.731, 0.25)
    assert (Square(2.0).slope(1.0), round(Square(2.0).at_zero, 9)) == (3.0, 2.0)
    assert Huber(threshold=0.5, bound=2.0).slope(math.inf) == 0.5
    assert EpsilonInsensitive(tube=0.1, width=0.1, bound=1.0).curvature == 10.0
    assert (Softmax(1).bounds.trace, Softmax(4).bounds.trace) == (0.25, 0.75)
    assert OutputwiseLoss(Hinge(1.0), 3).bounds.trace == 3.0


def test_a_user_s_loss_and_kernel_are_as_declared():
    loss = UserLoss(
        lambda l, f: np.hypot(1, f - l) - 1,  # noqa: E741 - a label
        lambda l, f: (f - l) / np.hypot(1, f - l),  # noqa: E741
        lipschitz=1.0,
        curvature=1.0,
        at_zero=0.42,
        bound=1.0,
    )
    assert loss.derivative(np.array([1.0]), np.array([1.0])).tolist() == [0.0]
    hinge = UserLoss.rounded(
        lambda l, f: np.maximum(0, 1 - l * f),  # noqa: E741
        0.1,
        lipschitz=1.0,
        at_zero=1.0,
    )
    assert round(hinge.curvature, 9) == 20.0
    assert hinge.derivative(np.array([1.0]), np.array([1.0])).round(9).tolist() == [-0.5]
    assert UserKernel(lambda x, y: np.cos(x - y.T), largest=1.0).bound(1.0) == 1.0
    assert imported("numpy:hypot", "target.loss")(np.array([3.0]), np.array([4.0])).tolist() == [5]


def test_sums_by_pairs_are_sums():
    x = np.arange(5000.0)
    assert float(sum_by_pairs(lambda block: x[block].sum(keepdims=True), 5000)[0]) == 12497500.0


def test_each_class_is_set_against_the_rest():
    labels = one_vs_rest(np.array([2.0, 0.0]), 3)
    assert labels.tolist() == [[-1.0, -1.0, 1.0], [1.0, -1.0, -1.0]]


def test_linear_features_are_projected_to_the_unit_ball():
    space = LinearFeatures(2, Linear(1.0))
    assert space.size == 3
    points = space.points(np.array([[3.0, 4.0], [0.3, 0.4]]))
    assert points.tolist() == [pytest.approx([0.6, 0.8]), [0.3, 0.4]]


def test_a_gaussian_is_cut_to_few_features():
    space = GaussianFeatures(ProjectedGaussian((0.3, 0.3))).resolved(1.0, n=1000)
    assert space.kernel.cut < 2e-4
    assert space.size < 100
    kernel = ProjectedGaussian.on_lattice([0.3], k=[20], rank=[8])
    assert kernel.features(np.array([[0.5], [0.6]])).shape == (2, 8)
    value = kernel(np.array([[0.5]]), np.array([[0.6]]))
    assert value.item() == pytest.approx(math.exp(-1 / 18), abs=1e-5)


def test_gram_kernels_have_their_bounds_and_volumes():
    space = GramKernel(ArcCosine(1.0), low=(-1.0, -1.0), width=(2.0, 2.0))
    assert round(space.bound**2, 9) == 3.0
    product = GramKernel.product([kernel_of("laplace", 0.25)])
    assert (round(product.volume, 9), round(product.bound, 9)) == (0.5, 1.0)


def test_the_shares_of_lists_grow_with_their_values():
    shares = [
        float(categorical_fraction(3, lists)) for lists in ((), (7,), (7, 15, 2), (1000,) * 10)
    ]
    assert shares == [0.0, 0.25, 0.515625, 0.984375]


def test_weights_of_many_rows_sum_to_the_most():
    assert _row_weight(1, 400) == 1.0
    assert _row_weight(799, 400) == 400 / 799
    assert _row_weight(4000, 400) == 0.1


def test_made_up_records_are_in_their_ranges():
    ranges = [Range(0.0, 10.0), Range(0.0, 1.0, integer=True)]
    records = uniform_records(ranges, 3, public_stream("example", 0))
    assert records.round(2).tolist() == [[0.51, 0.0], [3.21, 1.0], [2.4, 0.0]]


def test_the_finest_bandwidth_falls_with_epsilon():
    finest = [round(_finest_bandwidth(5000, epsilon, 1), 4) for epsilon in (1.0, 0.1)]
    assert finest == [0.006, 0.0185]


def test_the_degree_grows_with_the_rows():
    degrees = [_chosen_degree(100, n, Fraction(1)) for n in (5, 50, 500, 5000)]
    assert degrees == [0, 2, 7, 19]


def test_typical_directions_leave_half_to_the_next():
    assert (16 * typical_variances(3)).tolist() == [1.0, 0.5, 0.25]


def test_sums_name_their_entries_and_bound_their_moves():
    domain = Domain((Axis("x", 0.0, 1.0),))
    curves = CurveSums(domain, Response("y", 0.0, 9.0, points=50), 1)
    assert curves.entries == ("coefficient of degree 0", "coefficient of degree 1")
    assert curves.sensitivity(VectorStrategy(2), 2).value < 9.01
    moments = MomentSums.of(domain, Response("y", 0.0, 9.0))
    assert moments.entries[1:4] == ("sum of x", "sum of y", "square of x")
    assert round(moments.sensitivity(VectorStrategy(6), 1).value, 3) == 8.5
    label = Column("who", "data.label.classes", ("a", "b"))
    classes = ClassSums(domain, label, moments=True)
    assert classes.entries[:3] == ("count of a", "sum of x in a", "squares of x in a")
    assert classes.sensitivity(VectorStrategy(6), 1).value == 5.0


def test_kernel_scores_are_products_of_likelihoods():
    sums = np.array([[[0.6]], [[0.2]]])
    scores = _kernel_scores(sums, np.array([0.5]), [2.0, 2.0], [0.0, 0.0])
    assert scores.round(3).tolist() == [[0.24]]


def test_log_scores_say_nothing_where_noise_rules():
    sums = np.array([[[0.6, -0.1], [0.2, -0.3]]])
    noise = [np.array([0.001, 0.001]), 0.001]
    logs = _kernel_log_scores(sums, np.array([0.5, 0.5]), [2.0], [0.0], noise)
    assert (logs[0] - logs[1]).round(2).tolist() == [1.1, 0.0]  # three to one, and nothing known


def test_gaussian_scores_follow_from_moments():
    moments = np.array([[1.0, 0.25, 0.0625]])
    scores = _gaussian_scores(moments, np.array([[0.25], [0.35]]), [4.0], [0.1])
    assert scores.round(3).tolist() == [[4.0, 2.426]]
    moments = np.array([[0.5, 0.1, 0.03], [0.5, -0.1, 0.03]])
    logs = _gaussian_log_scores(moments, np.array([[0.0], [0.3]]), [0.1], 1e-4)
    assert (logs[0] - logs[1]).round(2).tolist() == [0.0, 6.0]


def test_a_ratio_is_cut_to_its_range():
    ratio = Quotient(low=-1.0, high=3.0)
    assert ratio.values([np.array([0.1, 9.0]), np.array([0.2, 1.0])]).tolist() == [2.0, 3.0]


def test_a_ratio_is_the_mean_of_rows_and_of_more_at_its_center():
    """Where the noise hides the rows near a point; of many rows it is hardly moved."""
    ratio = Quotient(low=-1.0, high=3.0).settled([0.3, 0.5], [9.0, 0.05])
    top, below = np.array([0.1, 0.4, -0.2, 500.0]), np.array([0.2, 0.0, -0.1, 1000.0])
    more = 0.1**2 / 0.2
    means = [(0.1 + more * 0.6) / (0.2 + more), 0.6, 0.6, 0.5]
    np.testing.assert_allclose(ratio.values([top, below]), 1 + 2 * np.array(means), rtol=1e-6)
    for unit in (1e-300, 1e300):  # of densities on axes with bounds of any size
        scaled = replace(ratio, noise=0.05 * unit).values([top * unit, below * unit])
        np.testing.assert_allclose(scaled, ratio.values([top, below]), rtol=1e-12)
        assert replace(ratio, noise=unit).even(0.0, 0.0, unit, unit) is None
    assert Quotient(low=-1.0, high=3.0).settled([0.3, -0.5], [1.0, 1.0]).to_dict()["center"] == 0.0
    assert Quotient(low=-1.0, high=3.0).settled([3.0, 0.5], [1.0, 1.0]).to_dict()["center"] == 1.0


def test_ratios_are_each_group_s_ratio_and_drawn_to_its_own_center():
    groups = Quotients(low=-1.0, high=3.0, classes=("a", "b"))
    parts = [
        np.array([0.1, 9.0]),
        np.array([0.3, 0.0]),
        np.array([0.2, 1.0]),
        np.array([0.6, -1.0]),
    ]
    pairs = [(parts[0], parts[2]), (parts[1], parts[3])]
    for ratios in (groups, groups.settled([0.3, -0.2, 0.5, 0.4], [9.0, 9.0, 0.05, 0.1])):
        values = ratios.values(parts)
        assert ratios.quotients == combination_of(ratios.to_dict()).quotients
        for column, (ratio, pair) in enumerate(zip(ratios.quotients, pairs, strict=True)):
            np.testing.assert_array_equal(values[:, column], ratio.values(pair))
    assert (ratios.centers, ratios.noises) == ((0.6, -0.5), (0.05, 0.1))
    assert ratios.inconsistency() == ""
    assert replace(ratios, centers=(0.0,)).inconsistency() == "centers and noises"
    assert replace(ratios, noises=()).inconsistency() == "centers and noises"
    assert replace(ratios, classes=("a", "a")).inconsistency() != ""
    assert (ratios.meaning({"kind": "mine"}), ratios.error([0.1] * 4)) == ("response", 4.0)


def test_what_evenly_spread_rows_promise_of_a_ratio_covers_its_center():
    rng, count = np.random.default_rng(0), 20_000
    m, center = rng.uniform(-1, 1, (2, count))
    top, below, noise = rng.uniform(0, 0.4, (3, count))
    bounds = [
        Quotient(low=-1.0, high=1.0).even(*one)
        for one in zip(top, below, np.ones(count), noise, strict=True)
    ]
    for sign in (-1, 1):
        parts = m + sign * top * rng.choice([-1, 1], count), 1 - below
        for one, bound, a, b in zip(range(count), bounds, *parts, strict=True):
            ratio = Quotient(low=-1.0, high=1.0, center=center[one], noise=noise[one])
            off = abs(ratio.values([np.array(a), np.array(b)]) - m[one])
            assert bound is None or off <= bound


def test_values_mean_what_their_combination_says():
    assert Quotient(low=0.0, high=1.0).meaning({"kind": "mine"}) == "response"
    assert Identity(("no", "yes")).meaning({"kind": "mine", "loss": "logistic"}) == "log-odds"


def test_a_certificate_is_the_sum_of_its_parts():
    assert Certificate(0.5, 0.25, 1.0, beta=0.05, lower_bound=0.01).total == 1.75
    parts, total = printed_sum([0.12345678, 0.0000001, 2.0], 4)
    assert (parts, total) == (["0.124", "0.001", "2"], "2.125")


def test_as_few_draws_as_have_the_rank_beyond_them():
    assert _fewest_draws(141, 0.05) == 127
    assert quantile_rank(127, 0.05) == 126
