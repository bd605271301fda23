"""Lower bounds: each part of their proofs, and that no mechanism that is known does better."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from strategies import density_plan

from dbern.bernstein.kernels import KERNELS, Gaussian, kernel_of
from dbern.certify import lower_bounds
from dbern.certify.lower_bounds import (
    GroupPrivacy,
    _packings,
    _sites,
    _tensor_steps,
    lower_bound,
    strongest_bound,
)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("bandwidths", [(0.07,), (0.3, 0.11)])
def test_places_fit_and_are_as_far_apart_as_they_say(name, bandwidths):
    kernels = [kernel_of(name, one) for one in bandwidths]
    found = list(_packings(kernels))
    assert found
    for gap, (places, apart) in zip(lower_bounds._GAPS, found, strict=False):
        counts = [math.floor(1 / (gap * one.deviation)) + 1 for one in kernels]
        if math.prod(counts) != places or places > 400:
            continue
        axes = [np.linspace(0, 1, count) for count in counts]
        points = np.array(list(itertools.product(*axes)))
        near = np.ones((places, places))
        for kernel, place in zip(kernels, points.T, strict=True):
            near *= kernel(place[:, None] - place) / kernel.peak
        assert (near - np.eye(places)).max() <= 1 - apart + 1e-12
    for count, gamma in _sites(kernels):
        assert gamma >= 1
        assert count <= 128 ** len(kernels)


def test_the_inverse_of_a_gram_matrix_is_bounded():
    for gap, count in ((0.1, 5), (0.05, 12), (0.2, 3)):
        kernel = Gaussian(0.1)
        at = np.arange(count) * gap
        inverse = np.linalg.inv(kernel(at[:, None] - at) / kernel.peak)
        exact = np.abs(inverse).sum(axis=1).max()
        assert exact <= lower_bounds._inverse_norm(kernel, gap, count) <= 1.001 * exact


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_sites_that_are_left_out_would_tell_no_more(name):
    for bandwidths in ((0.01,), (0.05, 0.1), (0.4,)):
        kernels = [kernel_of(name, one) for one in bandwidths]
        every, few = (
            [math.isqrt(9 * count) / gamma for count, gamma in found]
            for found in (_sites(kernels), _sites(kernels, lambda count: math.isqrt(9 * count)))
        )
        assert max(few) == max(every)


@pytest.mark.parametrize("decay", [0.3, 0.8])
@pytest.mark.parametrize("window", [1, 2, 3, 4, 7])
def test_no_window_holds_more_of_a_slowly_changing_sequence(decay, window):
    """Against log-Lipschitz weights: tents with any tip, which are extreme, and unions of them."""
    bound = (
        1 - 2 * decay ** ((window + 1) / 2) / (1 + decay)
        if window % 2
        else 1 - decay ** (window / 2)
    )
    places = np.arange(-300, 301)
    best = 0.0
    for tip in np.linspace(0, 1, 21):
        weights = decay ** np.abs(places - tip)
        best = max(best, _largest_window(weights, window))
    rng = np.random.default_rng(0)
    for _ in range(50):  # steps of at most the factor, away from nothing in particular
        tips = rng.uniform(-5, 5, size=3)
        weights = np.max(decay ** np.abs(places[:, None] - tips), axis=1)
        assert _largest_window(weights, window) <= bound + 1e-9
    assert bound - 1e-9 <= best <= bound + 1e-9


def _largest_window(weights, window):
    sums = np.convolve(weights, np.ones(window), mode="valid")
    return float(sums.max() / weights.sum())


def test_windows_are_no_wider_than_the_proof_has_them():
    """W is the least that the inequality allows: with one less it fails, for the eta chosen."""
    for count, units, epsilon, beta in ((3, 5000, 1.0, 0.05), (25, 10**6, 0.1, 0.01)):
        steps = _tensor_steps(count, GroupPrivacy(epsilon, beta, units))
        allowed = []
        for eta in epsilon * lower_bounds._RATES:
            q, a = math.exp(-eta), math.exp(-epsilon - eta)
            out = 2 * count * q ** (units // (2 * count) + 1) / (1 + q)
            if out >= 1:
                continue
            shares = [
                1 - 2 * a ** ((w + 1) / 2) / (1 + a) if w % 2 else 1 - a ** (w / 2)
                for w in range(1, 4000)
            ]
            hit = [share**count >= (1 - beta) * (1 - out) for share in shares]
            allowed.append(hit.index(True) + 1)
        assert steps + 1 == max(allowed)
        assert _tensor_steps(count, GroupPrivacy(2 * epsilon, beta, units)) < steps


def test_figures_that_were_worked_out_by_hand():
    found = {
        (axes, b, n, epsilon): strongest_bound(
            1.0, GroupPrivacy(epsilon, 0.05, n), (Gaussian(b),) * axes
        ).value
        for axes, b, n, epsilon in (
            (1, 0.1, 5000, 1.0),
            (1, 0.1, 5000, 0.1),
            (1, 0.05, 5000, 1.0),
            (2, 0.06, 2_000_000, 1.0),
        )
    }
    assert list(found.values()) == pytest.approx([4.0, 37.7, 4.5, 6.0], rel=0.01)


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("epsilon", ["1e-6", "0.001", "0.1", "1", "20"])
@pytest.mark.parametrize("n", [1, 3, 40, 5000])
def test_a_constant_never_certifies_less(epsilon, n):
    """Half of the range of F, whatever epsilon and n; and no plan certifies less either."""
    for bandwidths in ((0.05,), (0.3, 0.1)):
        kernels = tuple(Gaussian(one) for one in bandwidths)
        for rows in (1, 2, 7):
            moved = rows / n  # of a largest value of one
            privacy = GroupPrivacy(float(epsilon), 0.05, n, unit_rows=rows)
            bound = strongest_bound(moved, privacy, kernels)
            assert bound.value <= 0.5
    plan = density_plan((0.1,), (20,), h=8, n=n, epsilon=epsilon)
    assert plan.certificate.lower_bound <= plan.certificate.total


def test_a_mechanism_that_knows_where_to_look_obeys_the_packing():
    """The exponential mechanism over the M databases is private, and errs as often as it must."""
    epsilon, kernel = 0.5, Gaussian(0.05)
    for places, apart in list(_packings([kernel]))[::24]:
        for m in range(1, 20):
            inside = math.exp(m * epsilon)  # its odds of the true place, all others alike
            beta = 1 - inside / (inside + places - 1)
            least = lower_bound(apart, GroupPrivacy(epsilon, beta, 1000), places - 1)
            assert least <= m * apart / 2


def test_delta_and_signs_leave_what_is_proved():
    kernels = (Gaussian(0.05),)
    privacy = GroupPrivacy(1.0, 0.05, 5000)
    with_delta = strongest_bound(1.0, replace(privacy, delta=1e-6), kernels)
    assert with_delta.kind == "packing"
    assert with_delta.value <= strongest_bound(1.0, privacy, kernels).value
    alone = strongest_bound(1.0, privacy)
    assert (alone.kind, alone.value) == ("two databases", lower_bound(1.0, privacy))
    assert strongest_bound(1.0, GroupPrivacy(100.0, 0.05, 5000)).kind == ""
