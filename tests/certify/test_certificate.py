"""The certificate against databases made to break it, and its noise against simulation."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import reference
from strategies import density_plan, density_spec, sections

from dbern.bernstein.basis import bernstein_basis, iterated_basis
from dbern.bernstein.kernels import Gaussian
from dbern.certify import noise as noise_quantile
from dbern.certify import noise as noise_sups
from dbern.certify.approximation import KernelMixture
from dbern.certify.certificate import Certificate, combine_certificates
from dbern.certify.failure import SIMULATION
from dbern.certify.lower_bounds import GroupPrivacy, LowerBound, lower_bound
from dbern.certify.noise import COARSE, FINER, enclose
from dbern.certify.translate_errors import translate_error
from dbern.combination.functions import Identity, OneVersusRest, Sigmoid, Stack
from dbern.combination.responses import Quotient, Shifted
from dbern.planning.planner import plan_files
from dbern.planning.spec import ReleaseSpec
from dbern.privacy import laplace
from dbern.privacy.error_law import LaplaceErrors
from dbern.privacy.families import errors_of
from dbern.privacy.keystream import KeyStream
from dbern.privacy.laplace import discrete_laplace
from dbern.privacy.public_numbers import public_stream
from dbern.reconstruct.base import Lattice, LatticeStrategy
from dbern.reconstruct.series import excess_between_nodes, released_series

ONE = [(0.3, 20, 1), (0.1, 20, 1), (0.1, 20, 4), (0.05, 10, 2), (0.02, 20, 3), (0.2, 64, 8),
       (1.0, 5, 2), (0.1, 1, 1), (0.15, 20, 50), (0.01, 100, 2)]  # fmt: skip
DENSE = np.concatenate([np.linspace(0, 1, 1501), np.geomspace(1e-6, 1e-3, 40)])


def sup_error(records, bandwidth, k, h):
    """``sup_y |F - B^(h) F|`` of these records over a dense grid, every record counted in n."""
    axes = [np.linspace(0, 1, 61) for _ in k] if len(k) > 1 else [DENSE]
    points = np.array(np.meshgrid(*axes, indexing="ij")).reshape(len(k), -1).T
    exact = reference.density(points, records, bandwidth, len(records))
    values = reference.density(reference.lattice_points(k), records, bandwidth, len(records))
    polynomial = values.reshape([count + 1 for count in k])
    for y, count, order in zip(axes, k, h, strict=True):
        polynomial = np.tensordot(polynomial, iterated_basis(y, count, order), axes=(0, 1))
    return np.abs(exact - polynomial.ravel()).max()


@pytest.mark.parametrize(("bandwidth", "k", "h"), ONE)
def test_approximation_bounds_every_database_of_one_axis_and_is_tight(bandwidth, k, h):
    bound = translate_error(Gaussian(bandwidth), k, h)
    places = np.concatenate([np.linspace(0, 1, 41), (np.arange(k) + 0.5) / k,
                             [1e-4, 0.5 + 0.25 / k]])  # fmt: skip
    masses = [sup_error(np.array([[t]]), (bandwidth,), (k,), (h,)) for t in places]
    assert max(masses) <= bound <= 1.15 * max(masses) + 2e-5 / bandwidth  # the proved tails
    rng = np.random.default_rng(0)
    for records in (
        np.array([[0.0], [1.0]]),
        np.repeat([[0.2], [0.8]], [3, 1], axis=0),
        np.concatenate([rng.normal(0.3, 0.01, 20), rng.normal(0.7, 0.01, 20)])[:, None].clip(0, 1),
        rng.uniform(size=(30, 1)),
    ):
        assert sup_error(records, (bandwidth,), (k,), (h,)) <= bound


TWO = [((0.3, 0.2), (6, 9), (1, 3)), ((0.1, 0.1), (10, 10), (2, 2)), ((0.5, 0.08), (3, 12), (2, 1))]


@pytest.mark.parametrize(("bandwidth", "k", "h"), TWO)
def test_approximation_bounds_databases_of_two_axes(bandwidth, k, h):
    bound = KernelMixture(tuple(Gaussian(b) for b in bandwidth)).error(k, h, [None] * len(k))
    rng = np.random.default_rng(1)
    ends = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.5], [0.5, 0.5]])
    masses = [sup_error(t[None], bandwidth, k, h) for t in [*ends, *rng.uniform(size=(25, 2))]]
    assert max(masses) <= bound <= 4 * max(masses)
    for records in (ends, rng.beta(0.3, 0.3, size=(40, 2)), np.repeat(ends[:1], 5, axis=0)):
        assert sup_error(records, bandwidth, k, h) <= bound


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_nothing_worse_than_the_telescoped_product(dimensions):
    kernels, k, h = [Gaussian(0.2)] * dimensions, [10] * dimensions, [2] * dimensions
    peak, error = kernels[0].peak, translate_error(kernels[0], 10, 2)
    assert KernelMixture(tuple(kernels)).error(k, h, [None] * dimensions) == pytest.approx(
        (peak + error) ** dimensions - peak**dimensions, rel=1e-9
    )


def test_operator_norm_bounds_noise_of_any_signs():
    k, h = (6, 9), (4, 7)
    rng = np.random.default_rng(2)
    y = np.linspace(0, 1, 201)
    first, second = (iterated_basis(y, *axis) for axis in zip(k, h, strict=True))
    plain = LatticeStrategy(Lattice(k))
    norm = plain.released_norm(h)
    assert plain.lattice_norm(h) == pytest.approx(norm, rel=1e-9)  # the same thing here
    worst = 0.0
    for _ in range(200):
        noise = rng.choice([-1.0, 1.0], size=(7, 10))
        worst = max(worst, np.abs(first @ noise @ second.T).max())
    signs = np.outer(*(np.sign(b[np.abs(b).sum(axis=1).argmax()]) for b in (first, second)))
    attained = np.abs(first @ signs @ second.T).max()
    assert max(worst, attained) <= norm <= 1.06 * attained


def users(rows, n, neighbors="replace-one"):
    unit = {"column": "user", "max_contributions": rows}
    return {"n": None, "normalizer": str(n), "unit": unit, "neighbors": neighbors}


ROWS = [(5, 1), (5, 2), (5, 5), (5, 8), (3, 100), (1, 2)]  # n, rows of a unit


@pytest.mark.sample(test=1)
@pytest.mark.parametrize(("n", "rows"), ROWS)
@pytest.mark.parametrize("neighbors", ["replace-one", "add-or-remove-one"])
@pytest.mark.parametrize("signed", [False, True])
def test_a_constant_never_certifies_less_than_the_lower_bound(n, rows, neighbors, signed):
    """Half of the width of F over every database of n rows: at most n rows count, whoever's."""
    data = users(rows, n, neighbors)
    if signed:
        target = {"kind": "support-vector-machine", "length_scale": [0.1], "bandwidth": None}
        data["label"] = {"column": "late", "classes": ["no", "yes"]}
    spec = ReleaseSpec(
        **sections(data=data, target=target if signed else {}, budget={"epsilon": "1e-6"})
    )
    plan = plan_files(spec, ())
    places, points = np.array([0.0, 0.3, 1.0]), np.linspace(0, 1, 11)
    shape = np.exp(-(((points[:, None] - places) / 0.1) ** 2) / 2)
    one = shape if signed else reference.gaussian(points[:, None] - places, 0.1)
    kinds = [*one.T, *(-one.T if signed else [])]  # what one row adds, times n; null adds nothing
    counts = itertools.product(range(n + 1), repeat=len(kinds))
    found = np.array([np.dot(c, kinds) / n for c in counts if sum(c) <= n])
    constant = (found.max(axis=0) - found.min(axis=0)).max() / 2
    least = plan.certificate.lower_bound
    assert least <= constant <= plan.certificate.total
    assert least >= 0.4 * constant * (n // rows * rows / n)  # or it would say nothing


def test_units_that_do_not_fit_do_not_count():
    assert lower_bound(8.0, GroupPrivacy(1e-3, 0.05, 5, unit_rows=8)) == 0
    assert lower_bound(8.0, GroupPrivacy(1e-3, 0.05, 8, unit_rows=8)) == pytest.approx(4.0)
    assert lower_bound(1.0, GroupPrivacy(1e-3, 0.05, 7)) == pytest.approx(3.5)


@pytest.mark.parametrize("units", [1, 2, 3, 7])
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.01])
def test_the_lower_bound_is_rounded_down(units, epsilon, delta):
    """At a beta where group privacy just allows so many units, one fewer is all that counts."""
    u, d = math.exp(units * epsilon), delta / math.expm1(epsilon)
    beta = (1 + d - u * d) / (1 + u)
    if not 0 < beta < 0.5:
        return
    for near in (beta, math.nextafter(beta, 0), math.nextafter(beta, 1)):
        assert lower_bound(1.0, GroupPrivacy(epsilon, near, 100, delta)) <= (units - 1) / 2
    below = GroupPrivacy(epsilon, beta * (1 - 1e-3), 100, delta)
    assert lower_bound(1.0, below) > units / 2 - 1e-6


def test_a_function_of_other_values_than_its_arrays_has_no_lower_bound():
    part = Certificate(0.1, 0.1, 1.0, 0.05, 0.3)
    classes, bounds = ("no", "yes"), {"low": 0.0, "high": 1.0}
    for combination in (
        *(Identity(classes), Sigmoid(classes), Stack(classes), OneVersusRest(classes)),
        *(Quotient(**bounds), Shifted(**bounds)),
    ):
        least = combine_certificates(combination, [part, part], LowerBound(0.3, "packing"))
        assert least.lower_bound == (0.3 if isinstance(combination, Identity | Stack) else 0.0)
        assert least.lower_bound_kind == ("packing" if least.lower_bound else "")


@pytest.mark.parametrize("beta", ["0.5", "0.1"])
@pytest.mark.parametrize("coefficients", [1, 21, 400])
def test_the_tail_is_reached_as_rarely_as_it_says_and_not_much_more_rarely(beta, coefficients):
    law, repeats = density_plan((0.1,), (20,)).noise.law, 3000
    noise = discrete_laplace(law.scale, repeats * coefficients, public_stream("coverage", 7))
    signed = noise.added_to(np.zeros(repeats * coefficients, np.int64)) * float(law.granularity)
    largest = np.abs(signed).reshape(repeats, coefficients).max(axis=1)
    missed = float((largest > errors_of(law).tail(coefficients, Fraction(beta))).mean())
    allowed = float(Fraction(beta))
    deviation = 5 * math.sqrt(allowed / repeats)
    expected = 1 - (1 - allowed / coefficients) ** coefficients  # independent draws
    assert missed <= allowed + deviation
    assert abs(missed - expected) <= deviation


@pytest.mark.parametrize(("bandwidth", "k", "h"), [((0.1,), (20,), 4), ((0.3, 0.2), (5, 8), 3)])
def test_noise_stays_inside_its_part_with_the_stated_probability(bandwidth, k, h):
    plan = density_plan(bandwidth, k, h=h, n=500)
    law, repeats = plan.noise.law, 600
    drawn = discrete_laplace(law.scale, repeats * plan.lattice.size, public_stream("coverage", 8))
    noise = drawn.added_to(np.zeros(repeats * plan.lattice.size, np.int64))
    values = (noise * float(law.granularity)).reshape(repeats, *plan.lattice.shape)
    for count in k:  # each step moves the first lattice axis to the end
        rows = iterated_basis(np.linspace(0, 1, 81), count, h)
        values = np.tensordot(values, rows, axes=(1, 1))
    sup = np.abs(values).reshape(repeats, -1).max(axis=1)
    beta = float(density_spec(bandwidth, k).beta)
    assert (sup > plan.certificate.noise).mean() <= beta
    assert np.quantile(sup, 1 - beta) >= plan.certificate.noise / 3  # a union bound, not more


def test_the_certificate_is_in_data_units():
    unit = density_plan((0.1, 0.2), (8, 9), n=900)
    stretched = density_plan((0.4, 5.0), (8, 9), n=900, bounds=((-2.0, 2.0), (10.0, 35.0)))
    for part in ("approximation", "rounding", "noise", "total"):
        assert getattr(stretched.certificate, part) == pytest.approx(
            getattr(unit.certificate, part) / 100, rel=1e-6
        )
    assert unit.certificate.beta == 0.05


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("kind", ["laplace", "spectral-laplace", "binned-laplace"])
@pytest.mark.parametrize("k", [(12,), (60,), (9, 14)])
def test_fewer_nodes_enclose_the_noise_all_the_same(kind, k):
    """The degree is cut where the synthesis is smooth; a dense grid never exceeds the enclosure."""
    roles: dict[str, object] = {}
    target: dict[str, object] = {"bandwidth": [0.15] * len(k)}
    if kind == "spectral-laplace":  # of what a solver finds
        roles = {"label": {"column": "late", "classes": [False, True]}}
        target = {"kind": "kernel-erm", "loss": "logistic", "length_scale": [0.15] * len(k)}
        target["bandwidth"] = None
    content = sections(
        data={"bounds": {c: [0.0, 1.0] for c in "xy"[: len(k)]}, **roles},
        target=target,
        mechanism={"k": list(k), "h": 8, "noise": kind},
    )
    plan = plan_files(ReleaseSpec(**content), ())
    enclosure = enclose(plan.strategy, plan.h, 4)
    dense = np.linspace(0, 1, 40 * max(k) + 1 if len(k) == 1 else 201)
    matrices = plan.strategy.matrices(plan.h)
    rng = np.random.default_rng(3)
    for draw in range(8):
        size = plan.strategy.layout.shape
        noise = rng.laplace(size=size) if draw % 2 else np.sign(rng.normal(size=size))
        found, field = noise, noise
        for each, basis, matrix in zip(k, enclosure.bases, matrices, strict=True):
            found = np.tensordot(found, basis, axes=(0, 1))
            field = np.tensordot(field, bernstein_basis(dense, each) @ matrix, axes=(0, 1))
        bound = enclosure.factor * np.abs(found).max() + enclosure.loose * np.abs(noise).max()
        assert np.abs(field).max() <= bound <= 1.25 * np.abs(field).max()
    if kind == "binned-laplace" and k == (60,):
        assert len(enclosure.bases[0]) < 4 * 60  # and fewer they are


@pytest.mark.parametrize(("k", "width", "oversampling"), [((40,), 0.1, 2), ((30, 24), 0.3, 3)])
def test_what_is_between_nodes_is_bent_no_further(k, width, oversampling):
    """Nodes and their parts bound the sup of any noise; without the parts they do not."""
    plan = density_plan((width,) * len(k), k, h=8, noise="binned-laplace")
    axes = zip(k, plan.h, plan.strategy.axis_maps, strict=True)
    series = [released_series(*axis) for axis in axes]
    dense = [np.cos(np.outer(np.linspace(0, np.pi, 301), range(len(one.coefficients))))
             @ one.coefficients for one in series]  # fmt: skip
    nodes = [one.at_nodes(oversampling)[0] for one in series]
    parts, rng, short = [*excess_between_nodes(series, oversampling)], np.random.default_rng(4), 0

    def sup(noise, bases):
        for basis in bases:
            noise = np.tensordot(noise, basis, axes=(0, 1))
        return np.abs(noise).max()

    for _ in range(30):
        noise = rng.laplace(size=plan.strategy.layout.shape)
        found, largest = sup(noise, nodes), sup(noise, dense)
        more = sum(size * sup(noise, rows) for size, rows in parts)
        assert largest <= found + more <= 1.3 * largest
        short += largest > found + 0.1 * more
    assert short > 0


# --- The work of a simulated quantile


def bins_of(axes, noise):
    return density_plan((0.2,) * axes, (20,) * axes, h=4, n=10**4, noise=noise)


@pytest.mark.parametrize(
    ("axes", "noise"),
    [(2, "binned-laplace"), pytest.param(1, "binned-k-norm", marks=pytest.mark.slow)],
)
def test_a_simulated_quantile_takes_the_work_that_it_accounts_for(axes, noise, monkeypatch):
    plan = bins_of(axes, noise)
    strategy, h, law = plan.strategy, plan.h, plan.noise.law
    numbers, products = [], []
    bases = noise_quantile.enclose(strategy, h, 2).bases
    draws, product, samples, words = 640, np.tensordot, laplace._samples, KeyStream.words

    def counted(scale, stream):
        found = samples(scale, stream)
        numbers.append(len(found[0]))
        return found

    def read(stream, count):  # where all are drawn jointly, but for those of other samplers
        numbers.append(0 if noise == "binned-laplace" else count * noise_quantile._JOINTLY / 2)
        return words(stream, count)

    def multiplied(one, other, axes):
        products.append(one.size * len(other))
        return product(one, other, axes=axes)

    monkeypatch.setattr(laplace, "_samples", counted)
    monkeypatch.setattr(KeyStream, "words", read)
    monkeypatch.setattr(np, "tensordot", multiplied)
    noise_sups.noise_sups(bases, errors_of(law).simulate, draws)
    taken = noise_quantile._DRAWING * sum(numbers) + sum(products)
    accounted = draws * noise_quantile._work(strategy, bases, law)
    spare = noise_quantile._DRAWING * 2 * 8400  # of the last batch, and of chance
    assert 0.7 * accounted < taken + spare
    assert taken < 1.3 * accounted + spare


def test_draws_are_as_many_as_the_work_allows(monkeypatch):
    plan = bins_of(2, "binned-laplace")
    strategy, h, law = plan.strategy, plan.h, plan.noise.law
    seen, real = [], noise_quantile.sup_order_statistic

    def counted(series, excess, draw, draws, rank):
        seen.append(draws)
        return real(series, excess, draw, draws, rank)

    monkeypatch.setattr(noise_quantile, "sup_order_statistic", counted)
    axes = zip(strategy.lattice.k, h, strategy.axis_maps, strict=True)
    bases = [released_series(*axis).at_nodes(COARSE)[0] for axis in axes]
    work = noise_quantile._work(strategy, bases, law)
    # as many of these are beyond the rank as of 8000, 500 and 200; of a draw less, fewer
    for little, allowed, drawn in ((1e12, 1e12, 7979), (work, 1e12, 478), (work, 200.5 * work, 175),
                                   (work, work, None)):  # fmt: skip
        seen.clear()
        monkeypatch.setattr(noise_quantile, "_LITTLE_WORK", little)
        monkeypatch.setattr(noise_quantile, "_WORK", allowed)
        found = noise_quantile._simulated_quantile(strategy, h, law, 0.05)
        assert seen == ([] if drawn is None else [drawn])
        assert (found is None) == (drawn is None)


# --- Sups between the nodes of draws


def test_finer_nodes_lie_around_the_others_and_beyond_the_ends():
    plan = bins_of(1, "binned-laplace")
    series = released_series(*plan.k, *plan.h, *plan.strategy.axis_maps)
    nodes, _ = series.at_nodes(3)
    finer = series.at_finer_nodes(3, 4)
    np.testing.assert_allclose(finer[4:-4:4], nodes, atol=1e-12)
    np.testing.assert_allclose(finer[[0, -1]], nodes[[0, -1]], atol=1e-12)  # mirrored
    angles = (np.arange(-4, len(finer) - 4) / 4 + 0.5) * np.pi / len(nodes)
    terms = np.cos(np.outer(angles, np.arange(len(series.coefficients))))
    np.testing.assert_allclose(finer, terms @ series.coefficients, atol=1e-12)


@pytest.mark.sample(test=1, verify=3)
@pytest.mark.parametrize(
    ("k", "width", "count"),
    [
        ((40,), 0.1, 801),
        ((30, 24), 0.3, 101),
        pytest.param((12,) * 3, 0.4, 31, marks=pytest.mark.slow),
    ],
)
def test_sups_of_draws_are_those_of_a_dense_grid(k, width, count, monkeypatch):
    """Whatever is not looked at again; those at nodes alone are less."""
    plan, draws = density_plan((width,) * len(k), k, h=8, noise="binned-laplace"), 120
    draw = errors_of(plan.noise.law).simulate
    axes = zip(k, plan.h, plan.strategy.axis_maps, strict=True)
    series = [released_series(*axis) for axis in axes]
    angles = np.linspace(0, np.pi, count)
    dense = [np.cos(np.outer(angles, range(len(one.coefficients)))) @ one.coefficients
             for one in series]  # fmt: skip
    excess = sum(size * noise_sups.noise_sups(rows, draw, draws).max()
                 for size, rows in excess_between_nodes(series, COARSE))  # fmt: skip
    sups = noise_sups.noise_sups(dense, draw, draws)
    ranks = range(60, 119, 4)

    def found():
        return np.array([noise_sups.sup_order_statistic(series, excess, draw, draws, rank)
                         for rank in ranks])  # fmt: skip

    true, seen = np.sort(sups)[ranks], found()
    np.testing.assert_allclose(seen, true, rtol=0, atol=excess / FINER**2)
    # Of all draws and all nodes it is the same.
    bases = [one.at_nodes(COARSE)[0] for one in series]
    tables = [one.at_finer_nodes(COARSE, FINER) for one in series]
    fields = draw(plan.strategy.layout.size, draws, public_stream("certificate", 0))
    fields = fields.reshape(*plan.strategy.layout.shape, draws)
    whole = noise_sups._between_nodes(fields, bases, tables, np.zeros(draws), excess)
    np.testing.assert_allclose(seen, np.sort(whole)[ranks], rtol=1e-12)
    monkeypatch.setattr(noise_sups, "_between_nodes", lambda *given: 0.0 * given[3])
    assert (found() < true - excess / FINER**2).any()


@pytest.mark.parametrize(("work", "share"), [(1e12, SIMULATION["quantile"]), (1.0, 1)])
def test_what_a_simulation_may_miss_is_not_given_to_the_other_bounds(work, share, monkeypatch):
    plan, given, real = bins_of(1, "binned-laplace"), [], LaplaceErrors.tail
    monkeypatch.setattr(noise_quantile, "_WORK", work)
    monkeypatch.setattr(noise_quantile, "_LITTLE_WORK", work)
    monkeypatch.setattr(
        noise_quantile, "_tail_at_nodes", lambda *facts: given.append(facts[-1]) or math.inf
    )
    monkeypatch.setattr(
        LaplaceErrors, "tail", lambda *facts: given.append(facts[-1]) or real(*facts)
    )
    law, beta = plan.noise.law, Fraction(1, 20)
    found = noise_quantile.noise_bound.__wrapped__(plan.strategy, plan.h, law, beta)
    assert 0 < found < math.inf
    assert given[-2:] == [share * beta] * 2  # before these, what is between the nodes of draws
    assert [float(one) for one in given[:-2]] == [pytest.approx(0.001 * float(beta))] * (work > 1)
