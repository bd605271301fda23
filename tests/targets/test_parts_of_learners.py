"""Losses, spaces, sums and combinations of learners on arguments small enough to do by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from conformance import pinball

from dbern.bernstein.kernels import kernel_of
from dbern.bernstein.reproducing import ArcCosine
from dbern.certify.certificate import Certificate
from dbern.certify.noise import _fewest_draws, quantile_rank
from dbern.combination import combination_of
from dbern.combination.base import ArraySummary
from dbern.combination.functions import Identity
from dbern.combination.responses import Quotient, Quotients
from dbern.data.domain import Axis, Column, Domain, Response
from dbern.erm.gaussian_features import GaussianFeatures, ProjectedGaussian
from dbern.erm.losses import EpsilonInsensitive, Hinge, Huber, Logistic, Square, UserLoss
from dbern.erm.objective import OutputwiseLoss, Softmax
from dbern.erm.perturbed import categorical_fraction
from dbern.erm.spaces import GramKernel
from dbern.erm.summation import sum_by_pairs
from dbern.learn.moment_sums import MomentSums
from dbern.learn.user_functions import Range, _uniform_records
from dbern.privacy.public_numbers import public_stream
from dbern.targets.class_sums import ClassSums
from dbern.targets.kernel_density import _finest_bandwidth
from dbern.targets.typical import typical_variances

HINGE = Hinge(0.5)
SIDE = Domain((Axis("x", 0.0, 1.0),))
GRAM = GramKernel(ArcCosine(1.0), low=(-1.0, -1.0), width=(2.0, 2.0))
LAPLACE = GramKernel.product([kernel_of("laplace", 0.25)])
BY_HAND = {
    "rounded hinge": (lambda: [HINGE.slope(math.inf), HINGE.curvature, HINGE.at_zero],
                      [1.0, 2.0, 0.75]),
    "logistic": (lambda: [Logistic().slope(1.0), Logistic().curvature], [0.731059, 0.25]),
    "square": (lambda: [Square(2.0).slope(1.0), Square(2.0).at_zero], [3.0, 2.0]),
    "huber": (lambda: Huber(threshold=0.5, bound=2.0).slope(math.inf), 0.5),
    "tube": (lambda: EpsilonInsensitive(tube=0.1, width=0.1, bound=1.0).curvature, 10.0),
    "traces": (lambda: [loss.bounds.trace for loss in (
        Softmax(1), Softmax(4), OutputwiseLoss(Hinge(1.0), 3))], [0.25, 0.75, 3.0]),
    "curvature of a rounded loss": (lambda: UserLoss.rounded(
        pinball, 0.1, lipschitz=1.0, at_zero=1.0).curvature, 20.0),
    "more rows than a block, by pairs": (lambda: sum_by_pairs(
        lambda block: np.arange(5000.0)[block].sum(keepdims=True), 5000), [12497500.0]),
    "volume and bound of a Gram kernel": (lambda: [GRAM.bound**2, LAPLACE.volume, LAPLACE.bound],
                                          [3.0, 0.5, 1.0]),
    "fractions of lists, which grow with their values": (
        lambda: [float(categorical_fraction(3, lists))
                 for lists in ((), (7,), (7, 15, 2), (1000,) * 10)],
        [0.0, 0.25, 0.515625, 0.984375]),
    "records made up in their ranges": (
        lambda: _uniform_records([Range(0.0, 10.0), Range(0.0, 1.0, integer=True)], 3,
                                public_stream("example", 0)).round(2),
        [[0.51, 0.0], [3.21, 1.0], [2.4, 0.0]]),
    "finest bandwidths, which fall with epsilon": (
        lambda: [round(_finest_bandwidth(5000, epsilon, 1), 4) for epsilon in (1.0, 0.1)],
        [0.006, 0.0185]),
    "typical directions, which leave half to the next": (
        lambda: 16 * typical_variances(3), [1.0, 0.5, 0.25]),
    "a ratio, cut to its range": (lambda: Quotient(low=-1.0, high=3.0).values(
        [np.array([0.15, 5.0]), np.array([0.05, -4.0])]), [2.0, 3.0]),
    "a certificate": (lambda: Certificate(0.5, 0.25, 1.0, beta=0.05, lower_bound=0.01).total, 1.75),
    "as few draws as have the rank beyond them": (
        lambda: [_fewest_draws(141, 0.05), quantile_rank(127, 0.05)], [127, 126]),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_values_are_those_by_hand(name):
    value, expected = BY_HAND[name]
    np.testing.assert_allclose(value(), expected, rtol=1e-6, atol=1e-12)


def test_a_gaussian_is_cut_to_few_features():
    space = GaussianFeatures(ProjectedGaussian((0.3, 0.3))).resolved(1.0, n=1000)
    assert space.kernel.cut < 2e-4
    assert space.size < 100


def test_sums_name_their_entries():
    moments = MomentSums.of(SIDE, Response("y", 0.0, 9.0))
    assert moments.entries[1:4] == ("sum of x", "sum of y", "square of x")
    classes = ClassSums(SIDE, Column("who", "data.label.classes", ("a", "b")), moments=True)
    assert classes.entries[:3] == ("count of a", "sum of x in a", "squares of x in a")


def test_values_mean_what_their_combination_says():
    assert Quotient(low=0.0, high=1.0).meaning({"kind": "mine"}) == "response"
    assert Identity(("no", "yes")).meaning({"kind": "mine", "loss": "logistic"}) == "log-odds"


def totals_of(totals, noise):
    """What arrays tell that are no bins, but for their totals."""
    return [ArraySummary(*each) for each in zip(totals, noise, strict=True)]


@pytest.mark.parametrize("unit", [1.0, 1e-250, 1e250])
@pytest.mark.parametrize("spread", [0.0, 0.01, 0.1, 0.5])
def test_a_ratio_is_drawn_as_far_as_responses_are_spread_little_beside_the_noise(spread, unit):
    """Of a quotient that is so far from its center everywhere, with noise as large as half of D."""
    rng, center, nodes, noise = np.random.default_rng(3), 0.6, 4000, 0.5
    below = rng.uniform(0.5, 2.0, nodes)
    top = below * (center + rng.choice([-spread, spread], nodes))
    exact = np.array([below + top, below - top]) / 2
    noisy = exact + rng.normal(0, noise / math.sqrt(2), exact.shape)
    roots, shares = math.sqrt(1 / nodes), np.full(nodes, 1 / nodes)
    arrays = [
        ArraySummary(total * unit, noise * unit, values * roots * unit, shares)
        for total, values in zip((0.8, 0.2), noisy, strict=True)
    ]
    settled = Quotient(low=-1.0, high=3.0).settled(arrays)
    assert settled.center == pytest.approx(center)
    if spread < 0.05:  # noise hides it, and it is surely small
        assert settled.noise > 2 * noise * unit
    else:
        more = max(1, math.hypot(1, center) / (6 * spread))
        assert settled.noise == pytest.approx(more * noise * unit, rel=0.15)


def test_a_ratio_without_rows_at_any_node_is_its_center():
    """What is spread so little as nothing tells is drawn to it however many rows are there."""
    arrays = [ArraySummary(0.5, 0.05, np.full(50, -0.1), np.full(50, 1 / 50))] * 2
    settled = Quotient(low=-1.0, high=3.0).settled(arrays)
    assert settled.noise == pytest.approx(0.05 / 6e-4, rel=1e-5)
    np.testing.assert_allclose(settled.values([np.array([1.0]), np.array([0.0])]), 1.0, atol=1e-3)


def test_a_ratio_is_the_mean_of_rows_and_of_more_at_its_center():
    """Where the noise hides the rows near a point; of many rows it is hardly moved."""
    ratio = Quotient(low=-1.0, high=3.0).settled(totals_of([0.4, 0.1], [0.05, 9.0]))
    top, below = np.array([0.1, 0.4, -0.2, 500.0]), np.array([0.2, 0.0, -0.1, 1000.0])
    parts = np.array([below + top, below - top]) / 2
    more = 0.1**2 / 0.2
    means = [(0.1 + more * 0.6) / (0.2 + more), 0.6, 0.6, 0.5]
    np.testing.assert_allclose(ratio.values(parts), 1 + 2 * np.array(means), rtol=1e-6)
    for unit in (1e-300, 1e300):  # of densities on axes with bounds of any size
        scaled = replace(ratio, noise=0.05 * unit).values(parts * unit)
        np.testing.assert_allclose(scaled, ratio.values(parts), rtol=1e-12)
        assert replace(ratio, noise=unit).even(0.0, unit, unit) is None
    for totals, center in (([-0.1, -0.4], 0.0), ([1.75, -1.25], 1.0)):
        settled = Quotient(low=-1.0, high=3.0).settled(totals_of(totals, [1.0, 1.0]))
        assert settled.to_dict()["center"] == center


def test_ratios_are_each_group_s_ratio_and_drawn_to_its_own_center():
    groups = Quotients(low=-1.0, high=3.0, classes=("a", "b"))
    parts = [
        np.array([0.1, 9.0]),
        np.array([0.3, 0.0]),
        np.array([0.2, 1.0]),
        np.array([0.6, -1.0]),
    ]
    pairs = [(parts[0], parts[2]), (parts[1], parts[3])]
    arrays = totals_of([0.4, 0.1, 0.1, 0.3], [0.05, 0.1, 9.0, 9.0])
    for ratios in (groups, groups.settled(arrays)):
        values = ratios.values(parts)
        assert ratios.quotients == combination_of(ratios.to_dict()).quotients
        for column, (ratio, pair) in enumerate(zip(ratios.quotients, pairs, strict=True)):
            np.testing.assert_array_equal(values[:, column], ratio.values(pair))
    np.testing.assert_allclose(ratios.centers, (0.6, -0.5))
    assert ratios.noises == (0.05, 0.1)
    assert ratios.inconsistency() == ""
    assert replace(ratios, centers=(0.0,)).inconsistency() == "centers and noises"
    assert replace(ratios, noises=()).inconsistency() == "centers and noises"
    assert replace(ratios, classes=("a", "a")).inconsistency() != ""
    assert (ratios.meaning({"kind": "mine"}), ratios.error([0.1] * 4)) == ("response", 4.0)


@pytest.mark.slow
def test_what_evenly_spread_rows_promise_of_a_ratio_covers_its_center():
    rng, count = np.random.default_rng(0), 20_000
    m, center = rng.uniform(-1, 1, (2, count))
    error, noise = rng.uniform(0, 0.3, (2, count))
    bounds = [
        Quotient(low=-1.0, high=1.0).even(*one)
        for one in zip(error, np.ones(count), noise, strict=True)
    ]
    assert 0 < sum(bound is None for bound in bounds) < count
    for signs in itertools.product((-1, 1), repeat=2):
        parts = (1 + m) / 2 + signs[0] * error, (1 - m) / 2 + signs[1] * error
        for one, bound, a, b in zip(range(count), bounds, *parts, strict=True):
            ratio = Quotient(low=-1.0, high=1.0, center=center[one], noise=noise[one])
            off = abs(ratio.values([np.array(a), np.array(b)]) - m[one])
            assert bound is None or off <= bound
