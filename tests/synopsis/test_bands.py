"""Bands that look at the release: brackets that hold for every database, coverage, planted bugs."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import dask.array as da
import numpy as np
import pytest
import questioned
from banding import centers, columns, drawn, planned, synopsis_of, unshrunk

from dbern.bernstein.basis import bernstein_basis, iterated_matrix
from dbern.bernstein.kernels import KERNELS, kernel_of
from dbern.bernstein.splines import bin_matrix
from dbern.certify import bias_envelopes
from dbern.certify import bin_errors as module
from dbern.certify.approximation import KernelMixture
from dbern.certify.bias_envelopes import _axis_envelope
from dbern.certify.certificate import SHRUNK_FRACTION, Certificate
from dbern.certify.noise import Radius, noise_bound, quantile_rank, ratio_radius
from dbern.combination.responses import Quotient
from dbern.errors import SpecError
from dbern.planning.bin_grids import BIN_RESOLUTIONS
from dbern.privacy.error_law import LaplaceErrors
from dbern.privacy.families import errors_of
from dbern.privacy.keystream import KeyStream
from dbern.privacy.laws import GaussianNoise, KNormNoise, LaplaceNoise
from dbern.privacy.public_numbers import public_stream
from dbern.reconstruct.bins import axis_bins
from dbern.synopsis import array_bands, quotient_bands
from dbern.synopsis.array_bands import ArrayBand
from dbern.synopsis.bands import BandRequest
from dbern.synopsis.quotient_bands import JointBand, SeparateBands

# --- Brackets


@pytest.fixture
def fresh():
    """Forgets brackets: before and after a test that changes how they are made, and when called."""

    def forget():
        _axis_envelope.cache_clear()
        bias_envelopes._bin_errors.cache_clear()

    forget()
    yield forget
    forget()


def missed(kernel, k, h, bins, y, t):
    """r_y(t), (m,)."""
    weights = bernstein_basis(y, k) @ iterated_matrix(k, h) @ bins.synthesis
    beta = bin_matrix(t, bins.cells, bins.degree)
    return kernel(y - t) - (weights * beta).sum(axis=1)


def worst_places(kernel, k, h, bins, cells, count):
    """Pairs (y, t): random ones, and the worst of those near the worst so far, cell by cell."""
    rng = np.random.default_rng(0)
    y = (np.arange(cells).repeat(count) + rng.uniform(size=cells * count)) / cells
    t = np.clip(y + kernel.bandwidth * rng.normal(size=len(y)), 0, 1)
    t[::3] = y[::3]
    found = np.abs(missed(kernel, k, h, bins, y, t))
    for step in (0.3, 0.1, 0.03, 0.01, 0.003, 0.001):
        inside = np.minimum(np.floor(y * cells), cells - 1) / cells
        other_y = np.clip(y + step / cells * rng.normal(size=len(y)), inside, inside + 1 / cells)
        other_t = np.clip(t + step / bins.cells * rng.normal(size=len(t)), 0, 1)
        other = np.abs(missed(kernel, k, h, bins, other_y, other_t))
        better = other > found
        y, t = np.where(better, other_y, y), np.where(better, other_t, t)
        found = np.where(better, other, found)
    return y, t, found


def bounds_at(kernel, bins, counted, cells, y, t):
    """What bounds the release's error of a record at t, and the kernel itself, in y's cell."""
    found = _axis_envelope(kernel, 60, 12, bins, counted, cells)
    cell, beta = np.minimum((y * cells).astype(int), cells - 1), bin_matrix(t, *counted)
    return [(side[cell] * beta).sum(axis=1) for side in (found.error, found.kernel)]


@pytest.mark.parametrize(
    ("name", "degree"),
    [
        ("gaussian", 2),
        ("triangle", 2),
        *(
            pytest.param(name, degree, marks=pytest.mark.slow)
            for name in KERNELS
            for degree in BIN_RESOLUTIONS
        ),
    ],
)
def test_brackets_hold_where_most_is_missed(name, degree):
    kernel, cells = kernel_of(name, 0.15), 40
    bins = axis_bins(kernel, 60, 16, degree, 12)
    y, t, size = worst_places(kernel, 60, 12, bins, cells, 40)
    bound, kappa = bounds_at(kernel, bins, (16, degree), cells, y, t)
    assert (size <= bound).all()
    assert (size > 0.9 * bound).any()  # and it is no wider than it has to be
    assert (kernel(y - t) <= kappa).all()


@pytest.mark.parametrize(
    "name", ["triangle", *(pytest.param(one, marks=pytest.mark.slow) for one in KERNELS)]
)
def test_the_worst_database_is_bounded_within_a_twentieth_also_with_kinks(name):
    """The certificate's part of bins: above every point mass, and hardly above the worst."""
    kernel = kernel_of(name, 0.15)
    bins = axis_bins(kernel, 60, 16, h=12)
    _, _, size = worst_places(kernel, 60, 12, bins, 200, 40)
    bound = KernelMixture((kernel,)).error([60], [12], [bins])
    assert size.max() <= bound <= 1.08 * size.max()


def test_a_bracket_of_other_bins_than_those_counted():
    kernel = kernel_of("gaussian", 0.1)
    bins = axis_bins(kernel, 60, 20, 2, 12)
    y, t, size = worst_places(kernel, 60, 12, bins, 30, 20)
    assert (size <= bounds_at(kernel, bins, (13, 3), 30, y, t)[0]).all()


@pytest.mark.parametrize(("name", "cells"), [("gaussian", 32), ("triangle", 31)])
@pytest.mark.parametrize("counted", [(16, 3), (13, 2)])
def test_half_of_a_bracket_is_the_other_half_in_reverse(name, cells, counted):
    """The fast path beside the whole: bins that are the same in reverse, and off by a rounding."""
    kernel = kernel_of(name, 0.1)
    bins = axis_bins(kernel, 60, 16, 3, 12)
    changed = bins.synthesis.copy()
    changed[7, 5] += 1e-15
    other = replace(bins, packed=changed.astype("<f8").tobytes())
    assert bins.mirrored
    assert not other.mirrored
    half, whole = (_axis_envelope(kernel, 60, 12, one, counted, cells) for one in (bins, other))
    for one, two in ((half.error, whole.error), (half.kernel, whole.kernel)):
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-6 * kernel.peak)


@pytest.mark.parametrize("name", ["gaussian", "triangle"])
def test_a_bracket_in_strips_bounds_as_much(name, monkeypatch, fresh):
    """Where polynomials of all cells are more than memory holds: some cells after others."""
    kernel = kernel_of(name, 0.1)
    bins = axis_bins(kernel, 60, 16, 3, 12)
    y, t, size = worst_places(kernel, 60, 12, bins, 31, 40)
    brackets = []
    for numbers in (1 << 22, 1 << 10):
        monkeypatch.setattr(module, "NUMBERS_TOGETHER", numbers)
        fresh()
        brackets.append(_axis_envelope(kernel, 60, 12, bins, (16, 3), 31))
    assert len(list(module.BinErrors.of(kernel, 60, 12, bins, 31).strips)) >= 4
    for field in ("kernel", "error"):
        whole, strips = (getattr(bracket, field) for bracket in brackets)
        np.testing.assert_allclose(strips, whole, rtol=0.02, atol=0.005 * kernel.peak)
    assert (size <= bounds_at(kernel, bins, (16, 3), 31, y, t)[0]).all()


def shares(cells, degree):
    """Of records that are spread evenly, in the bins."""
    return bin_matrix((np.arange(64 * cells) + 0.5) / (64 * cells), cells, degree).mean(axis=0)


@pytest.mark.parametrize(("name", "degree", "most"), [("gaussian", 3, 1.2), ("triangle", 2, 2.0)])
def test_brackets_are_closer_than_the_largest_over_supports(name, degree, most):
    kernel, even = kernel_of(name, 0.1), shares(16, degree)
    bins = axis_bins(kernel, 60, 16, degree, 12)
    found = _axis_envelope(kernel, 60, 12, bins, (16, degree), 32)
    boxes = module.BinErrors.of(kernel, 60, 12, bins, 32)
    wide = bias_envelopes._over_supports(boxes.bounds.max(axis=2), (16, degree))
    assert (found.error @ even).max() < 0.85 * (wide @ even).max()
    inside = slice(8, 24)  # where the kernel's integral is one
    narrow, twice = (
        found.kernel @ even,
        bias_envelopes._kernel_maxima(kernel, (16, degree), 32) @ even,
    )
    assert narrow[inside].max() < most < 0.9 * twice[inside].max()


@pytest.mark.planted
@pytest.mark.parametrize("planted", ["missed", "highest"])
def test_a_spline_near_what_is_missed_is_no_bound(planted, monkeypatch, fresh):
    """It is raised by what exceeds it; and that of K by what the release misses of it."""
    kernel = kernel_of("triangle", 0.1)
    bins = axis_bins(kernel, 60, 16, 2, 12)
    y, t, size = worst_places(kernel, 60, 12, bins, 32, 100)

    def holds() -> bool:
        _axis_envelope.cache_clear()
        error, kappa = bounds_at(kernel, bins, (16, 2), 32, y, t)
        return bool((size <= error).all() and (kernel(y - t) <= kappa).all())

    assert holds()
    if planted == "missed":
        whole = module.BinErrors.of(kernel, 60, 12, bins, 32).bounds
        monkeypatch.setattr(module.BinErrors, "missed", lambda *_: 0.0 * whole)
    else:
        highest = module._Strip.highest
        monkeypatch.setattr(module._Strip, "highest", lambda pieces: 0.8 * highest(pieces))
    assert not holds()


def of_polynomials_alone(*given, found=module._Expansion.of):
    return replace(found(*given), cut=0.0, tail=0.0)


@pytest.mark.planted
@pytest.mark.parametrize(
    ("name", "bandwidth", "cells", "most", "planted", "wrong"),
    [
        ("gaussian", 0.15, 10, {"_MOST_STEPS": 1}, "_between", lambda *_: np.zeros(1)),
        ("triangle", 0.15, 10, {"_MOST_STEPS": 1}, "_between", lambda *_: np.zeros(1)),
        ("laplace", 0.3, 40, {"_SHARE": 0.3}, "_on_kink", lambda *_: np.zeros(1)),
        ("gaussian", 0.05, 2, {"_MOST_LOCAL": 12}, "of", of_polynomials_alone),
    ],
)
def test_what_a_bracket_leaves_out_is_covered(
    name, bandwidth, cells, most, planted, wrong, monkeypatch, fresh
):
    """Steps of a grid, kinks between them, and polynomials of few terms."""
    kernel = kernel_of(name, bandwidth)
    bins = axis_bins(kernel, 60, 16, 2, 12)
    y, t, size = worst_places(kernel, 60, 12, bins, cells, 4000 // cells)
    for limit, value in most.items():
        monkeypatch.setattr(module, limit, value)

    assert (size <= bounds_at(kernel, bins, (16, 2), cells, y, t)[0]).all()
    owners = {"_between": module, "of": module._Expansion}
    monkeypatch.setattr(owners.get(planted, module._Strip), planted, wrong)
    fresh()
    assert (size > bounds_at(kernel, bins, (16, 2), cells, y, t)[0]).any()


def test_on_small_boxes_few_terms_miss_no_more_of_the_kernel_than_is_said(monkeypatch):
    monkeypatch.setattr(module, "_TRUNCATION", 0.001)
    kernel, cells, own = kernel_of("gaussian", 0.15), 10, 16
    bins = axis_bins(kernel, 60, own, 1, 12)
    local = module._Expansion.of(kernel, 60, iterated_matrix(60, 12) @ bins.synthesis, bins, cells)
    pieces, count = local.strip(range(cells)), local.count
    assert count == 5
    rows, columns = np.divmod(np.arange(cells * own), own)
    fine = np.linspace(-1, 1, 21)
    y, t = pieces._points(rows, columns, fine[:, None], fine[:, None])
    terms = module.cosines(np.arccos(fine), count)
    found = terms @ np.tensordot(terms, pieces._bumps(rows, columns), axes=1)
    worst = np.abs(kernel(y - t[:, None]) - found).max()
    times = 1 + (1 + 2 / np.pi * np.log(count)) ** 2
    assert worst <= times * local.tail
    _, of_eight = kernel.degree_for(0.001, 0.5 / cells + 0.5 / own)
    assert worst > times * of_eight  # which says nothing of the terms between


# --- Synopses of records, in memory


def density(points, records, bandwidth):
    """The exact function at points, for the share of `records` that each is."""
    total = np.zeros(len(points))
    for part in np.array_split(records, max(1, len(records) // 4096)):
        apart = (points[:, None] - part) / bandwidth
        total += np.exp(-0.5 * np.square(apart).sum(axis=2)).sum(axis=1)
    return total / len(records) / (bandwidth * math.sqrt(2 * math.pi)) ** points.shape[1]


KINDS = ("smooth", "clustered", "half at 50 places", "one point")


def databases(axes, n):
    return {name: questioned.databases(axes, n)[name] for name in KINDS}


@pytest.fixture
def kept_noise(monkeypatch):
    """The noise's quantile depends on public facts alone: found once for all draws."""
    found = {}

    def kept(strategy, h, law, beta):
        key = (tuple(h), law, beta)
        if key not in found:
            found[key] = noise_bound(strategy, h, law, beta)
        return scale * found[key]

    scale = 1.0

    def scaled(factor):
        nonlocal scale
        scale = factor

    monkeypatch.setattr("dbern.certify.certificate.noise_bound", kept)
    return scaled


def inside(interval, truth):
    low, high = interval
    return bool(((low <= truth) & (truth <= high)).all())


def denied_nowhere(interval, truth):
    """Where an interval is missing it denies nothing; somewhere it is there."""
    low, high = interval
    missing = np.isnan(low)
    np.testing.assert_array_equal(missing, np.isnan(high))
    known = truth[~missing]
    return known.size > 0 and inside((low[~missing], high[~missing]), known)


def covered(case, draws, records, points, bandwidth, first=0, **asked):
    """How many of so many releases cover the function at all points at once; `first` draws it."""
    truth = density(points, records, bandwidth)
    synopses = drawn(case, columns(records), range(first, first + draws))
    return sum(inside(one.interval(points, **asked), truth) for one in synopses)


def at_least(draws, level, sigmas=3.5):
    return draws * level - sigmas * math.sqrt(draws * level * (1 - level))


def surely(counts, draws):
    """Whether each kind of records is covered often enough, and all together, by other noise each.

    Four kinds with 150 draws each show bands that cover 89 % together, or 84 % of one of them.
    """
    together = draws * len(counts)
    return min(counts.values()) >= at_least(draws, 0.95) and sum(counts.values()) >= at_least(
        together, 0.95
    )


@pytest.mark.turns("coverage", 8)
@pytest.mark.parametrize(
    ("axes", "bandwidth", "draws"),
    [
        (1, 0.1, 40),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((1, 0.05, 150), (2, 0.1, 150), (3, 0.2, 150))
        ),
    ],
)
def test_bands_cover_at_least_as_often_as_they_say(kept_noise, axes, bandwidth, draws):
    n = 400 if draws <= 100 else 20_000
    points = np.random.default_rng(5).uniform(size=(150, axes))
    case = planned(axes, n, bandwidth)
    counts = {
        name: covered(case, draws, records, points, bandwidth, first=place * draws)
        for place, (name, records) in enumerate(databases(axes, n).items())
    }
    assert surely(counts, draws), counts


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
@pytest.mark.usefixtures("one_scale")
def test_bins_of_a_high_degree_have_bands_that_cover(kept_noise):
    case = planned(1, 200_000, 0.05, epsilon="10")
    (bins,) = case[1].components[0].maps
    assert bins.degree >= 5
    few = np.repeat(np.random.default_rng(7).beta(2, 5, size=(1000, 1)), 200, axis=0)
    points = np.linspace(0, 1, 40)[:, None]
    for records in (few, np.full((200_000, 1), 0.4321)):
        assert covered(case, 20, records, points, 0.05) >= at_least(20, 0.95)


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
def test_half_of_the_noise_is_caught(kept_noise):
    """Where no record is near there is nothing but noise, and the band is not much wider."""
    records, points = np.zeros((20_000, 1)), np.linspace(0.5, 1, 100)[:, None]
    case = planned(1, 20_000, 0.05)
    assert covered(case, 60, records, points, 0.05) >= at_least(60, 0.95)
    kept_noise(0.5)
    assert covered(case, 60, records, points, 0.05) < at_least(60, 0.95)


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
def test_a_choice_made_after_the_release_is_covered(kept_noise):
    records = np.random.default_rng(2).beta(2, 5, size=(5000, 1))
    points = np.linspace(0, 1, 100)[:, None]
    case = planned(1, 5000, 0.1)
    assert covered(case, 200, records, points, 0.1, h="auto") >= at_least(200, 0.95)


_ROLES = '{"response": {"column": "r", "bounds": [-1.0, 1.0]}}'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("axes", "bandwidth", "noise", "target"),
    [
        (2, 0.15, "binned-laplace", {}),
        (2, 0.15, "binned-k-norm", {}),
        (2, 0.15, "binned-gaussian", {}),
        (2, 0.15, "auto", {"kernel": "triangle"}),
        (2, None, "auto", {"covariance": ((0.01, 0.005), (0.005, 0.01))}),
        (3, 0.15, "binned-laplace", {}),
    ],
)
def test_no_release_is_moved_further_by_shrinking_than_it_says(axes, bandwidth, noise, target):
    """Of six kinds of records, of which none and few that hardly stand out of the noise."""
    case = planned(axes, 5000, bandwidth, noise, "0.2", **target)
    points = np.random.default_rng(1).uniform(size=(4000, axes))
    shrunk, few = 0, [np.full((count, axes), 0.5) for count in (1, 40)]
    for draw, records in enumerate([*databases(axes, 5000).values(), *few]):
        (found,) = drawn(case, columns(records), [draw])
        (array,), raw = found.arrays, unshrunk(found)
        sure, released = (one.bound(about="any-database") for one in (found, raw))
        moved, most = np.abs(found(points) - raw(points)).max(), SHRUNK_FRACTION * released.noise
        assert moved <= array.shrunk_distance <= most
        assert (moved > 0) == (array.shrunk_distance > 0)
        shrunk += array.shrunk_distance > 0.99 * most
        assert sure.noise == pytest.approx(released.noise + array.shrunk_distance)
        assert sure.total <= found.metadata["certificate"]["total"]
    assert shrunk >= 2


@pytest.mark.slow
def test_where_records_are_nearly_everywhere_nothing_is_shrunk():
    """And the band is as wide as it was; one axis with few of them is enough."""
    spread = np.random.default_rng(0).uniform(size=(20_000, 2))
    for width, shrunk in ((1.0, False), (0.1, True)):
        (found,) = drawn(planned(2, 20_000), columns(spread * [1.0, width]), [0])
        assert bool(found.arrays[0].shrunk_distance) is shrunk
        assert (found.band() > unshrunk(found).band()) is shrunk


@pytest.mark.parametrize(
    ("axes", "bandwidth", "noise", "target"),
    [
        (1, 0.1, "auto", {}),
        (2, 0.1, "laplace", {}),
        (2, 0.1, "auto", {"kind": "nadaraya-watson", "roles": _ROLES}),
        (4, 0.4, "auto", {}),
    ],
)
def test_other_releases_are_answered_as_they_are(axes, bandwidth, noise, target):
    _, plan = planned(axes, 5000, bandwidth, noise, "0.2", **target)
    assert not any(one.most_silenced for one in plan.components)
    assert "most_silenced" not in plan.to_dict()["components"][0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "axes", [1, *(pytest.param(count, marks=pytest.mark.slow) for count in (2, 3))]
)
def test_the_worst_records_are_inside_without_any_noise(axes, monkeypatch):
    """All records where r_y is largest: the approximation part alone, all noise taken out."""
    bandwidth = {1: 0.05, 2: 0.1, 3: 0.2}[axes]
    spec, plan = planned(axes, 100_000, bandwidth)
    rng = np.random.default_rng(3)
    places = rng.uniform(size=(8, axes))
    beside = rng.uniform(-1.5, 1.5, size=(20, axes)) * bandwidth
    ones = np.ones((100, 1))
    monkeypatch.setattr(LaplaceErrors, "weighted_tail", lambda _law, root, *_: np.zeros_like(root))
    outside = 0
    for place in places:
        near = np.clip(place + beside, 0, 1)
        records = np.repeat(near[:1], 100, axis=0)  # of the 20 the worst
        best = 0.0
        for one in near:
            there = ones * one
            synopsis = unshrunk(synopsis_of(spec, plan, centers(spec, plan, columns(there))))
            share = float(density(place[None], there, bandwidth)[0]) * len(there) / plan.n
            found = abs(float(synopsis(place[None])[0]) - share)
            if found > best:
                best, records = found, there
        synopsis = unshrunk(synopsis_of(spec, plan, centers(spec, plan, columns(records))))
        (band,) = synopsis._bands.of_arrays(BandRequest(Fraction(1, 20)))
        sure = band.certificate
        bias = float(band.at(place[None])[0]) - sure.noise
        assert best <= bias
        assert best <= 1.001 * sure.approximation
        outside += best > sure.rounding  # without its majorant the bracket would not hold
    assert outside > len(places) // 2


@pytest.mark.slow
def test_a_bracket_without_its_majorant_is_caught(kept_noise, monkeypatch):
    """All at one point, and no noise: the value is off by what only e covers."""
    kept_noise(0.0)
    records, points = np.full((200_000, 1), 0.4321), np.linspace(0.3, 0.6, 60)[:, None]
    case = planned(1, 200_000, 0.05)
    truth = density(points, records[:1], 0.05)
    integers = centers(*case, columns(records))

    def covers():
        return inside(synopsis_of(*case, integers).interval(points), truth)

    assert covers()
    monkeypatch.setattr(array_bands, "weighed", lambda values, _brackets: 0.0 * values.sum())
    assert not covers()


@pytest.fixture
def one_scale(monkeypatch):
    """Plans of bins of one scale, which miss enough of the worst database to tell data apart."""
    monkeypatch.setattr("dbern.planning.choice._takes_two_scales", lambda *_: False)
    planned.cache_clear()
    yield
    planned.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("one_scale")
def test_the_width_follows_the_data_and_never_the_worst_database(monkeypatch):
    monkeypatch.setattr("dbern.planning.bin_grids.BIN_RESOLUTIONS", {2: (1.3,)})  # wide ones
    spec, plan = planned(1, 20_000, 0.05)
    found = {}
    for name, records in databases(1, 20_000).items():
        (synopsis,) = drawn((spec, plan), columns(records), [0])
        found[name] = synopsis.band()
        assert synopsis.band(about="any-database") == pytest.approx(plan.certificate.total)
        assert synopsis.about == "these-data"
        points = np.random.default_rng(0).uniform(size=(500, 1))
        assert np.ptp(synopsis.interval(points), axis=0).max() <= 2.0001 * found[name]
    assert max(found.values()) <= 1.02 * plan.certificate.total
    assert found["smooth"] < 0.7 * found["one point"]
    assert found["smooth"] < 0.7 * plan.certificate.total


# --- Quotients


def regression(n=400, bandwidth=0.1, epsilon="1", axes=1):
    return planned(axes, n, bandwidth, epsilon=epsilon, roles=_ROLES, kind="nadaraya-watson")


def joint_band(synopsis):
    """The band of the one quotient, whose arrays err together."""
    (band,) = synopsis._bands.of_quotients(synopsis.combination, BandRequest(Fraction(1, 20)))
    assert isinstance(band, JointBand)
    return band


def smoothed_responses(points, records, responses, bandwidth):
    """Numerator and denominator, but for a factor, at points."""
    apart = (points[:, None] - records) / bandwidth
    weights = np.exp(-0.5 * np.square(apart).sum(axis=2)) / len(records)
    weights /= (bandwidth * math.sqrt(2 * math.pi)) ** points.shape[1]
    return weights @ responses, weights.sum(axis=1)


def answers(records):
    """Responses in [-1, 1] of all sizes, and of signs as bad as can be."""
    t = records[:, 0]
    return {
        "all the largest": np.ones(len(t)),
        "half the range": np.full(len(t), -0.5),
        "a slope": 2 * t - 1,
        "turning": np.where(np.sin(90 * t) > 0, 1.0, -1.0),
    }


@pytest.fixture
def kept_quotients(monkeypatch):
    """The noise of quotients depends on public facts alone: found once for all draws."""
    found, real = {}, quotient_bands.ratio_radius

    def kept(strategy, h, law, beta):
        key = (*h, law, beta)
        if key not in found:
            found[key] = real(strategy, h, law, beta)
        return found[key]

    monkeypatch.setattr(quotient_bands, "ratio_radius", kept)


def covered_quotients(case, draws, records, responses, points, bandwidth, first=0):
    top, below = smoothed_responses(points, records, responses, bandwidth)
    truth = (top / below).clip(-1, 1)  # of equal responses, but for a float
    own = {**columns(records), "r": responses}
    synopses = drawn(case, own, range(first, first + draws))
    return sum(denied_nowhere(one.interval(points), truth) for one in synopses)


@pytest.mark.sample(verify=2)
@pytest.mark.turns("coverage", 8)
@pytest.mark.usefixtures("kept_quotients")
@pytest.mark.parametrize(
    ("axes", "bandwidth", "n", "draws"),
    [
        (1, 0.1, 400, 20),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((1, 0.05, 20_000, 50), (1, 0.1, 400, 50), (2, 0.15, 5000, 50))
        ),
    ],
)
def test_quotients_cover_at_least_as_often_as_they_say(axes, bandwidth, n, draws):
    case = regression(n, bandwidth, axes=axes)
    points = np.random.default_rng(5).uniform(size=(100, axes))
    counts = {}
    for place in (one for one in databases(axes, n) if one != "one point"):
        records = databases(axes, n)[place]
        for name, responses in answers(records).items():
            given = records, responses, points, bandwidth, draws * len(counts)
            counts[place, name] = covered_quotients(case, draws, *given)
    assert surely(counts, draws), counts


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
def test_the_noise_of_a_quotient_is_that_of_both_arrays():
    """Of all m at once, for noise that the bound was not drawn from; nor much wider."""
    case, t = regression(5000, 0.1), np.random.default_rng(3).uniform(size=(5000, 1))
    records = {**columns(t), "r": t[:, 0]}
    points, draws, within, half = np.linspace(0, 1, 100)[:, None], 60, 0, 0
    quiet = synopsis_of(*case, centers(*case, records))
    smoothings = quiet._function.smoothings(None)
    found = joint_band(quiet)
    of_top, at_ends = (one.certificate.noise for one in found.at_nodes[1:])
    m = np.linspace(-1, 1, 41)[:, None]
    widths = np.hypot(of_top, m * math.sqrt(at_ends**2 - of_top**2))
    exact = quiet._function.parts(points, smoothings, len(points))
    for noisy in drawn(case, records, range(draws)):
        parts = noisy._function.parts(points, smoothings, len(points))
        high, low = (one - two for one, two in zip(parts, exact, strict=True))
        top, below = high - low, high + low
        size = np.abs(top - m * below)
        within += bool((size <= widths).all())
        half += bool((size <= 0.5 * widths).all())
    assert within >= at_least(draws, 0.95)
    assert half < at_least(draws, 0.95)


@pytest.mark.slow
def test_what_a_release_misses_of_a_quotient_is_bounded_without_any_noise(monkeypatch):
    """Of ``N - m D`` at every m, for responses of all signs and sizes."""
    case = regression(200_000, 0.05)
    monkeypatch.setattr(quotient_bands, "ratio_radius", lambda *_: Radius(0.0))
    monkeypatch.setattr(LaplaceErrors, "weighted_tail", lambda _law, root, *_: np.zeros_like(root))
    points = np.linspace(0, 1, 400)[:, None]
    tight = 0.0
    for records in (np.full((100, 1), 0.4321), np.random.default_rng(1).uniform(size=(500, 1))):
        share = len(records) / 200_000
        for name, responses in answers(records).items():
            integers = centers(*case, {**columns(records), "r": responses})
            synopsis = synopsis_of(*case, integers)
            found = joint_band(synopsis)
            function = synopsis._function
            high, low = function.parts(points, function.smoothings(None), len(points))
            exact = smoothed_responses(points, records, responses, 0.05)
            top, below = high - low - share * exact[0], high + low - share * exact[1]
            bounds = np.array([band.at(points) for band in found.at_nodes])
            for m in np.linspace(-1, 1, 9):
                between = [np.interp(m, quotient_bands._NODES, one) for one in bounds.T]
                missed = np.abs(top - m * below)
                assert (missed <= between).all(), (name, m)
                tight = max(tight, float((missed / between).max()))
    assert tight > 0.8  # and it is no wider than it has to be


def test_ends_of_a_quotient_are_those_of_all_that_are_not_denied():
    """Of numbers off by anything that obeys the bounds of each m, no true m is left out."""
    rng, count = np.random.default_rng(0), 4000
    combination = Quotient(low=-3.0, high=5.0)
    m, below = rng.uniform(-1, 1, count), rng.exponential(size=count)
    errors = rng.normal(size=(2, count)) * 10.0 ** rng.uniform(-3, 1, count)
    nodes, sizes = (
        np.array(quotient_bands._NODES),
        np.array([0.2, 0.3]),
    )  # of noise, as much as there is
    noises = np.hypot(sizes[0], nodes * sizes[1])
    over = np.maximum(np.abs(errors[0] - nodes[:, None] * errors[1]) - 0.1, 0.0) + 1e-9
    certificates = [Certificate(0.0, 0.0, noise, 0.05, 0.0) for noise in noises]
    pairs = zip(certificates, over, strict=True)
    array = SimpleNamespace(relative_errors=lambda _: 1.0)
    found = [
        ArrayBand(one, SimpleNamespace(at=lambda _, own=own: own), array=array)
        for one, own in pairs
    ]
    parts = [m * below + errors[0], below + errors[1]]
    halves = [(parts[1] + sign * parts[0]) / 2 for sign in (1, -1)]
    errors = JointBand(tuple(found)).errors(np.zeros((count, 1)))
    low, high = quotient_bands.ratio_ends(combination, halves, errors)
    assert not (low > 1 + 4 * m + 1e-6).any()
    assert not (1 + 4 * m - 1e-6 > high).any()
    some = slice(300)
    tried = np.linspace(-1, 1, 2001)
    allowed = np.array([np.interp(tried, nodes, one) for one in over[:, some].T])
    allowed += np.hypot(sizes[0], tried * sizes[1])
    kept = np.abs(parts[0][some, None] - tried * parts[1][some, None]) <= allowed
    ends = (
        np.where(kept, 1 + 4 * tried, np.inf).min(1),
        np.where(kept, 1 + 4 * tried, -np.inf).max(1),
    )
    value = combination.values(halves)[some]
    both = np.abs([parts[0] + parts[1], parts[0] - parts[1]]).max(0)[some] <= noises[-1]
    assert 0 < both.sum() < 300
    assert (np.abs(parts[1][some][both]) <= noises[-1]).all()
    assert kept[both][:, [0, -1]].all()  # of whose interval nothing would be left out
    for one, side in ((low, np.minimum(ends[0], value)), (high, np.maximum(ends[1], value))):
        np.testing.assert_array_equal(np.isnan(one[some]), both)
        np.testing.assert_allclose(one[some][~both], side[~both], atol=0.0041)


@pytest.mark.parametrize("joint", [False, True])
def test_the_radius_of_a_quotient_is_that_of_a_dense_grid(joint):
    """The same draws on dense points and of dense m: hardly less, and never more."""
    case, t = regression(400, 0.1), np.linspace(0, 1, 400)
    (synopsis,) = drawn(case, {"x": t, "r": t}, [0])
    high, beta = synopsis.arrays[0], Fraction(1, 20)
    law, count = high.law, high.strategy.layout.size
    if joint:
        law = KNormNoise(law.scale, law.granularity_exponent, law.scale, values=2 * count)
    (k,), (matrix,) = high.strategy.lattice.k, high.strategy.matrices([12])
    found = ratio_radius(high.strategy, (12,), law, beta)
    both = errors_of(law).simulate(2 * count, 400, public_stream("certificate", 0)) / law.scale
    y = bernstein_basis(np.linspace(0, 1, 601), k) @ matrix
    of_p, of_q = y @ both[:count], y @ both[count:]
    sups = np.max(
        [np.abs((1 - m) * of_p - (1 + m) * of_q).max(0) / math.hypot(1 - m, 1 + m)
         for m in np.linspace(-1, 1, 81)], axis=0,
    )  # fmt: skip
    dense = float(np.sort(sups)[quantile_rank(400, float(beta))])
    assert dense <= found.q <= 1.02 * dense


@pytest.mark.usefixtures("kept_quotients")
def test_an_interval_is_missing_where_no_rows_are_and_the_value_with_it():
    """Far from all records a denominator is noise, which no band takes for rows; near them it is.

    The function itself has a number everywhere, as FORMAT.md says.
    """
    case, t = regression(5000, 0.05), np.random.default_rng(6).uniform(0, 0.4, size=(5000, 1))
    records, draws, quiet = {**columns(t), "r": 2 * t[:, 0]}, 20, 0
    near, far = np.linspace(0.05, 0.35, 30)[:, None], np.linspace(0.8, 1, 30)[:, None]
    for synopsis in drawn(case, records, range(draws)):
        low, high = synopsis.interval(near)
        assert np.isfinite([low, high]).all()
        quiet += np.isnan(synopsis.interval(far)).all()
        assert np.isfinite(synopsis(far)).all()
        np.testing.assert_array_equal(synopsis.predict(near), synopsis(near))
        points = np.concatenate([near, far, [[1.5]]])
        predicted, ends = synopsis.predict(points), synopsis.interval(points)
        np.testing.assert_array_equal(np.isnan(predicted), np.isnan(ends[0]))
        lazy = synopsis.predict(da.from_array(points, chunks=7))
        np.testing.assert_allclose(lazy.compute(scheduler="threads"), predicted, rtol=1e-9)
    assert quiet >= at_least(draws, 0.95)


@pytest.mark.slow
@pytest.mark.parametrize("bandwidth", [0.02, 0.1])
def test_a_plan_promises_what_evenly_spread_records_keep(bandwidth):
    """Far from the bounds; of few records it says nothing, as a constant promises as much."""
    case = regression(20_000, bandwidth)
    told = case[1].outlook.these_data
    assert told < 0.3
    assert "away from the bounds" in dict(case[1].promises.lines())["these data"]
    t, points = ((np.arange(20_000) + 0.5) / 20_000)[:, None], np.linspace(0.3, 0.7, 60)[:, None]
    worst = []
    for responses in answers(t).values():
        top, below = smoothed_responses(points, t, responses, bandwidth)
        made = drawn(case, {**columns(t), "r": responses}, range(5))
        worst += [float(np.abs(one(points) - top / below).max()) for one in made]
    assert sum(one <= told for one in worst) >= at_least(len(worst), 0.95)
    assert max(worst) > 0.2 * told
    assert regression(100, bandwidth)[1].outlook.these_data is None


@pytest.mark.slow
def test_arrays_that_do_not_err_together_have_bounds_that_add_up():
    """A choice after the release, and any database: of D the bound times the size of m."""
    case, t = regression(5000, 0.1), np.random.default_rng(4).uniform(size=(5000, 1))
    (synopsis,) = drawn(case, {**columns(t), "r": 2 * t[:, 0] - 1}, [0])
    points = np.linspace(0, 1, 50)[:, None]
    made, beta = synopsis._bands.of_quotients, Fraction(1, 20)
    assert joint_band(synopsis)
    for request in (BandRequest(beta, "auto"), BandRequest(beta, about="any-database")):
        (apart,) = made(synopsis.combination, request)
        assert isinstance(apart, SeparateBands)
    top, below = smoothed_responses(points, t, 2 * t[:, 0] - 1, 0.1)
    for asked in ({"h": "auto"}, {"about": "any-database"}, {}):
        assert inside(synopsis.interval(points, **asked), top / below)


# --- Other functions


@pytest.mark.usefixtures("one_scale")
def test_responses_use_the_bins_that_count_them():
    """Signs that follow r_y are as bad as they can be; the quotient's band holds all the same."""
    t = np.random.default_rng(4).uniform(size=5000)
    signs = np.where(np.sin(90 * t) > 0, 1.0, -1.0)
    (synopsis,) = drawn(regression(5000), {"x": t, "r": signs}, [0])
    assert synopsis.about == "these-data"
    counting = [one.count_array.name for one in synopsis._bands.biases_of_data]
    assert counting == ["responses_0", "responses_1"]
    points = np.linspace(0, 1, 50)[:, None]
    weights = np.exp(-0.5 * ((points - t) / 0.1) ** 2)
    truth = (weights * signs).sum(axis=1) / weights.sum(axis=1)
    band = synopsis.interval(points)
    assert inside(band, truth)
    worst = synopsis.interval(points, about="any-database")
    assert np.ptp(band, axis=0).mean() < 0.8 * np.ptp(worst, axis=0).mean()


@pytest.mark.slow
def test_groups_have_widths_of_their_own():
    roles = '{"group": {"column": "g", "values": ["a", "b"]}}'
    t = np.random.default_rng(5).uniform(size=20_000)
    few = (np.arange(20_000) >= 200).astype(float)  # "a" has 200 records
    (synopsis,) = drawn(planned(1, 20_000, roles=roles), {"x": t, "g": few}, [0])
    points = np.linspace(0.2, 0.8, 20)[:, None]
    low, high = synopsis.interval(points)
    assert low.shape == (20, 2)
    assert ((high - low)[:, 0] < (high - low)[:, 1]).all()
    truth = density(points, t[:200, None], 0.1) * 200 / 20_000
    assert ((low[:, 0] <= truth) & (truth <= high[:, 0])).all()
    lazy = synopsis.interval(da.from_array(points, chunks=7))
    found = np.stack([one.compute(scheduler="threads") for one in lazy])
    np.testing.assert_allclose(found, np.stack([low, high]), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("private", [False, True])
def test_oblique_coordinates_have_bands_and_keep_them_under_private_rows(private):
    covariance = np.array([[0.02, 0.012], [0.012, 0.02]])
    roles = '{"n": null, "normalizer": "2000", "neighbors": "add-or-remove-one"}'
    spec, plan = planned(
        2, 2000, bandwidth=None, roles=roles if private else "{}", epsilon="10",
        covariance=tuple(map(tuple, covariance.tolist())),
    )  # fmt: skip
    records = np.random.default_rng(0).uniform(0.2, 0.8, size=(2000, 2))
    (synopsis,) = drawn((spec, plan), columns(records), [0])
    points = np.random.default_rng(1).uniform(0.1, 0.9, size=(50, 2))
    apart = points[:, None] - records
    squares = np.einsum("ijk,kl,ijl->ij", apart, np.linalg.inv(covariance), apart)
    size = 2 * math.pi * math.sqrt(np.linalg.det(covariance))
    truth = np.exp(-squares / 2).mean(axis=1) / size
    band = synopsis.interval(points)
    assert synopsis.about == "these-data"
    assert inside(band, truth)
    assert np.ptp(band, axis=0).max() < 0.3 * truth.max()


@pytest.mark.slow
def test_gaussian_noise_has_bands_too(kept_noise):
    records, points = np.full((2000, 1), 0.3), np.linspace(0, 1, 40)[:, None]
    case = planned(1, 2000, 0.1, noise="binned-gaussian")
    assert covered(case, 20, records, points, 0.1) >= at_least(20, 0.95)


def test_elsewhere_bands_are_those_of_any_database():
    spec, plan = planned(1, 500, 0.1, noise="laplace")
    t = np.random.default_rng(6).uniform(size=(500, 1))
    synopsis = synopsis_of(spec, plan, centers(spec, plan, columns(t)))
    assert synopsis.about == "any-database"
    assert synopsis.band() == synopsis.band(about="any-database")
    assert synopsis.band() == pytest.approx(plan.certificate.total)


@pytest.mark.parametrize("noise", ["binned-laplace", "laplace"])
def test_a_synopsis_explains_who_may_fail_with_which_share(noise):
    spec, plan = planned(1, 400, 0.1, noise=noise)
    records = columns(np.full((400, 1), 0.5))
    text = synopsis_of(spec, plan, centers(spec, plan, records)).explain("0.1")
    heading, first, *lines = text.split("\n")
    assert heading == "each part may fail with this share of beta 0.1"
    follows = noise == "binned-laplace"
    assert first == "band and interval" + ", about these data" * follows
    assert lines[0].split() == (["0.099", "values"] if follows else ["0.099", "at", "nodes"])
    assert ("a question of distribution()" in lines) == follows
    text = [line.split(maxsplit=1)[1] for line in lines[: 7 if follows else 6]]
    nodes = ["at nodes", "quantile", "draws", "between nodes", "values at nodes", "largest draw"]
    assert text == ["values"] * follows + nodes


def test_another_about_is_refused():
    (synopsis,) = drawn(planned(1, 400), columns(np.full((400, 1), 0.5)), [0])
    with pytest.raises(SpecError, match="any-database"):
        synopsis.interval(np.array([0.5]), about="my-data")


# --- The tail of a weighted sum of noise


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("weights", [[1.0], [1.0, 1.0, 0.2, 0.1], [0.3] * 30])
def test_no_weighted_sum_of_noise_goes_beyond_its_tail(gaussian, weights):
    law = GaussianNoise(50, 0, 2500) if gaussian else LaplaceNoise(50, 0, 50)
    zeros = np.zeros(20_000 * len(weights), dtype=np.int64)
    drawn = law.draw(len(zeros), KeyStream(bytes(32), 0)).added_to(zeros)
    sums = drawn.reshape(-1, len(weights)) @ np.array(weights)
    norms = (np.array(np.linalg.norm(weights, order)) for order in (2, np.inf))
    reached = float(errors_of(law).weighted_tail(*norms, math.log(100)))
    share = float((sums > reached).mean())
    assert share <= 0.01
    assert float((sums > reached / 3).mean()) > 0.01  # a third of it would not do
