"""Promises for the data at hand: `[mechanism] tune`."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import strategies
from banding import KINDS, centers, database, synopsis_of

from dbern.bernstein.basis import bernstein_basis
from dbern.bernstein.chebyshev import enclosing_nodes
from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.splines import bin_matrix
from dbern.certify.certificate import bias_from_statistic
from dbern.certify.failure import BAND
from dbern.certify.noise_quantile import noise_bound
from dbern.errors import IntegrityError, SpecError
from dbern.planning.bias_statistic import NAME
from dbern.planning.bin_grids import BIN_RESOLUTIONS
from dbern.planning.finer_bins import _OVERSAMPLING_OF_CELL, _refinement, _sup
from dbern.planning.planner import plan_files
from dbern.planning.plans import ReleasePlan
from dbern.planning.tune import _finer_bins
from dbern.privacy.mechanism import privatize
from dbern.synopsis import metadata
from dbern.synopsis.strict import parse_object

AXES = "xyz"
QUICK = {"k": 20, "h": 8, "noise": "binned-laplace", "tune": "0.1"}


def spec_of(axes=1, n=1000, bandwidth=0.2, epsilon="1", data=None, budget=None, **mechanism):
    return strategies.spec_of(
        data={"n": n, "bounds": {x: [0.0, 1.0] for x in AXES[:axes]}, **(data or {})},
        target={"bandwidth": [bandwidth] * axes}, mechanism={**QUICK, **mechanism},
        budget={"epsilon": epsilon, **(budget or {})},
    )  # fmt: skip


def planned(axes=1, **given):
    spec = spec_of(axes, **given)
    return spec, plan_files(spec, ())


@pytest.fixture(scope="module")
def one():
    return planned()


@pytest.fixture(scope="module")
def told_well():
    """The numbers' noise costs less than a quarter of what the worst records lose."""
    return planned(epsilon="3")


@pytest.mark.parametrize("degree", [2, 3, 5])
def test_w_bounds_what_is_between_its_nodes(degree):
    """Some polynomials are larger there than at any node."""
    rng, cells, beyond = np.random.default_rng(degree), 3, 0
    between = bin_matrix(np.linspace(0, 1, 3001), cells, degree)
    nodes = (enclosing_nodes(degree, _OVERSAMPLING_OF_CELL)[0] + np.arange(cells)[:, None]) / cells
    there = bin_matrix(nodes.ravel(), cells, degree)
    for coefficients in rng.normal(size=(300, cells + degree)):
        largest = np.abs(between @ coefficients).max()
        assert largest <= _sup(coefficients[None], degree) <= 1.2 * largest
        beyond += largest > 1.0001 * np.abs(there @ coefficients).max()
    assert beyond > 30


def parts_of(spec, plan):
    """The accumulator of the promise, and what it is a share of."""
    part = plan.counters(spec).parts[1]
    return part, part.finer


def told(part, *columns):
    """T/W of records at these positions, before any noise."""
    state = np.zeros(part.shape, dtype=np.int64)
    taken = part.start_pass(state, b"", 0)
    taken.add(dict(zip(AXES, columns, strict=False)))
    taken.finish()
    (slab,) = part.strategy.layout.slabs()
    return float(part.to_values(state, 0, slab)[0])


@pytest.mark.parametrize("degree", BIN_RESOLUTIONS)
@pytest.mark.parametrize("times", [2, 3, 4])
def test_wide_splines_are_sums_of_narrow_ones(degree, times):
    t = np.concatenate([[0.0, 1.0], np.random.default_rng(degree).random(60)])
    matrix = _refinement(7, degree, times)
    wide, narrow = bin_matrix(t, 7, degree), bin_matrix(t, 7 * times, degree)
    np.testing.assert_allclose(narrow @ matrix.T, wide, atol=4e-15)
    np.testing.assert_allclose(matrix.sum(axis=0), 1, atol=1e-15)  # moves do not grow


def test_two_parts_are_one_charge(one):
    spec, plan = one
    assert [part.name for part in plan.components] == ["density", NAME]
    bins, number = (part.noise.law.epsilon for part in plan.components)
    assert number <= Fraction(plan.components[1].promise["share"]) == Fraction("0.1")
    assert bins + number <= spec.charge.epsilon == plan.charge.epsilon
    assert plan.rho == (Fraction("0.1") ** 2 + Fraction("0.9") ** 2) / 2
    assert ReleasePlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    _, free = planned(tune="0")
    bins, alone = plan.components[0].noise, free.components[0].noise
    assert bins.scale == pytest.approx(alone.scale / 0.9, rel=1e-3)


def test_no_replaced_record_moves_the_number_by_more_than_is_charged(one):
    """All records but one at one place, and that one anywhere: the largest number moves with it."""
    places = np.append(np.linspace(0, 1, 33), np.nan)
    (part, _), number = parts_of(*one), one[1].components[1]
    bound = number.noise.law.l1_sensitivity_granules * number.noise.granularity
    n, largest = 1000, 0.0
    for crowd in places[:17:4]:
        x = np.full(n, crowd)
        found = []
        for place in places:
            x[-1] = place
            found.append(told(part, x))
        largest = max(largest, np.ptp(found))
    assert 0.6 * bound < largest <= bound


@pytest.mark.slow
@pytest.mark.parametrize("axes", [1, 2])
def test_what_floats_move_of_a_number_is_that_of_its_parts(axes):
    """As shares of W: of its bins, of sums over all of them, and as much in every norm."""
    part, finer = parts_of(*planned(axes))
    inner, found = part.inner.errors, part.errors
    size = inner.value_bound  # of bins together
    largest = sum(
        math.prod(float(np.abs(pair[side]).max()) for pair in finer.bases) for side in (0, 1)
    )
    share = largest / finer.bound
    terms = sum(ours.shape[1] for ours, _ in finer.bases)
    sums = terms * 2.0**-53 * largest * size / finer.bound  # of so many products, each rounded
    assert share > 1.5
    assert found.floats >= share * inner.float_norms[0] + sums
    assert found.position >= share * inner.position
    assert found.kernel >= share * inner.kernel_norms[0]
    assert min(found.float_norms) >= found.floats  # it is one number
    assert found.value_bound >= share * size


def test_a_number_and_its_rest_bound_what_bins_miss_of_any_database(one):
    """Without the rest it does not: what finer bins miss counts."""
    spec, plan = one
    own = plan.components[0]
    finer, facts = _finer_bins(spec.components[0], own.strategy, own.h, math.inf)
    y, rng, short = np.linspace(0, 1, 201), np.random.default_rng(0), 0
    basis = bernstein_basis(y, 20) @ own.strategy.matrices(own.h)[0]
    for x in (*np.linspace(0, 1, 41)[:, None], rng.random(40), rng.beta(9, 9, 99), np.zeros(0)):
        kernel = np.exp(-np.square((y[:, None] - x) / 0.2) / 2) / (0.2 * np.sqrt(2 * np.pi))
        bins = bin_matrix(x, own.maps[0].cells, own.maps[0].degree)
        missed = np.abs(basis @ bins.sum(axis=0) - kernel.sum(axis=1)).max() / max(1, len(x))
        fine = finer.finer.bins[0]
        counted = bin_matrix(x, fine.cells, fine.degree).sum(axis=0) / max(1, len(x))
        number = finer.largest_difference(counted) / finer.bound
        promised = bias_from_statistic(number, facts["factor"], facts["rest"])
        assert missed <= promised <= 1.3 * missed + 2.5 * facts["rest"]
        short += missed > facts["factor"] * number
    assert short > 0


def test_nodes_and_cells_bound_what_lies_between(one):
    """T between its nodes, and W between the places that it was found at."""
    spec, plan = one
    part, finer = parts_of(spec, plan)
    y, t = np.linspace(0, 1, 501), np.linspace(0, 1, 801)
    own, fine = finer.bins, finer.finer
    ours = bernstein_basis(y, own.lattice.k[0]) @ own.matrices(finer.h)[0]
    theirs = bernstein_basis(y, fine.lattice.k[0]) @ fine.matrices(finer.h)[0]
    apart = (
        ours @ bin_matrix(t, own.bins[0].cells, own.bins[0].degree).T
        - theirs @ bin_matrix(t, fine.bins[0].cells, fine.bins[0].degree).T
    )
    largest = np.abs(apart).max()
    assert 0.5 * finer.bound < largest <= finer.factor * finer.bound + finer.loose
    times, between = plan.components[1].promise["factor"] / spec.components[0].unit, 0
    for column in range(0, 401, 8):
        number, largest = told(part, np.full(1000, t[column])), np.abs(apart[:, column]).max()
        assert largest <= finer.factor * finer.bound * number + finer.loose
        assert largest <= times * number + finer.loose
        between += largest > finer.bound * number + finer.loose
    assert between > 0


@pytest.mark.slow
def test_over_axes_too():
    spec, plan = planned(2, bandwidth=0.3, k=8)
    part, finer = parts_of(spec, plan)
    law, moved = plan.components[1].noise, 0.0
    places = [*itertools.product(np.linspace(0, 1, 9), repeat=2), (np.nan, 0.5)]
    for crowd in ((0.0, 0.0), (0.5, 0.5), (0.25, 0.5)):
        records = np.transpose([crowd] * 1000)
        found = []
        for place in places:
            records[:, -1] = place
            found.append(told(part, *records))
        assert max(found) <= 1
        moved = max(moved, np.ptp(found))
    bound = law.law.l1_sensitivity_granules * law.granularity
    assert 0.25 * bound < moved <= bound
    assert finer.finer.bins[0].cells > finer.bins.bins[0].cells


@pytest.mark.slow
@pytest.mark.parametrize(("changes", "epsilon"), [
    ({"data": {"n": None, "normalizer": "1000", "neighbors": "add-or-remove-one"}}, 1),
    ({"data": {"n": None, "normalizer": "1000",
               "unit": {"column": "user", "max_contributions": 3}}}, 6),
])  # fmt: skip
def test_private_rows_move_it_as_they_move_bins(changes, epsilon, one):
    _, plan = planned(**changes)
    _, usual = one
    moved = plan.components[1].sensitivity.l1 / usual.components[1].sensitivity.l1
    assert moved == pytest.approx(epsilon / 2, rel=3e-2)  # and errors, which it pays too


@pytest.mark.slow
def test_with_a_delta_the_number_needs_none():
    _, plan = planned(budget={"delta": "1e-6"}, noise="auto", bandwidth=0.3)
    law = plan.components[1].noise.law
    assert (law.kind, law.epsilon <= Fraction("0.1")) == ("laplace", True)
    rho = plan.components[0].noise.law.rho + Fraction("0.1") ** 2 / 2
    assert rho <= plan.rho <= rho + Fraction(1, 10**9)


def keep_components(synopsis, *places):
    """The same store as if the others had not been released."""
    released = synopsis._store.released
    components = [released.components[place] for place in places]
    synopsis._store.released = released.model_copy(update={"components": components})


PROMISE_KEYS = ["of", "factor", "rest", "least"]


def test_a_release_tells_these_data_apart(told_well):
    spec, plan = told_well
    x = np.random.default_rng(2).random(1000)
    synopsis = synopsis_of(spec, plan, centers(spec, plan, {"x": x}), bytes(range(32)))
    assert [array.name for array in synopsis.arrays] == ["density"]
    shown, facts = synopsis.metadata["components"]
    assert shown["arrays"] == facts["promise"]["of"] == ["density"]
    assert Fraction(shown["share"]) + Fraction(facts["share"]) == 1
    assert [*facts["promise"]] == PROMISE_KEYS
    assert synopsis._store.released.to_json()["components"] == synopsis.metadata["components"]
    about, sure = synopsis.bound(), synopsis.bound(about="any-database")
    assert about.approximation < 0.5 * sure.approximation
    other = synopsis_of(spec, plan, centers(spec, plan, {"x": x}), bytes(range(32)))
    keep_components(other, 0)
    assert about.total < other.bound().total
    y = np.linspace(0, 1, 101)
    truth = np.exp(-np.square((y[:, None] - x) / 0.2) / 2).mean(axis=1) / (0.2 * np.sqrt(2 * np.pi))
    assert np.abs(synopsis(y) - truth).max() <= synopsis.band()
    shaped = synopsis.shaped("nonnegative")
    assert about.total <= shaped.band() < sure.total
    later = synopsis.bound(h=1)  # another operator: of it the number says nothing
    assert later.approximation == other.bound(h=1).approximation


@pytest.mark.slow
@pytest.mark.parametrize(("n", "epsilon", "banded"), [(200_000, "1", True), (1000, "0.1", False)])
def test_densities_are_asked_at_the_band_where_it_promises_more_than_bins_tell(
    n, epsilon, banded, monkeypatch
):
    """Which of both is told by public facts of the bins that are released, here wide ones."""
    if banded:
        monkeypatch.setattr("dbern.planning.bin_grids.BIN_RESOLUTIONS", {2: (0.75,)})
    given = {"n": n, "epsilon": epsilon, "bandwidth": 0.1, "tune": "0.02"}
    spec, plan = planned(**given, k="auto", h="auto", noise="auto")
    x = database("smooth", n, 1)[:, 0]
    synopsis = synopsis_of(spec, plan, centers(spec, plan, {"x": x}), bytes(32))
    y, told = np.linspace(0, 1, 31), synopsis.distribution()

    def asked(**given):
        found = told.density(y, **given)
        assert ((found.low <= found.value) & (found.value <= found.high)).all()
        return np.array([found.low, found.high])

    low, high = synopsis.interval(y)
    first, at_band, promised = asked(), [np.maximum(low, 0), high], told.promised
    people, wider = asked(population=True), asked(bandwidth=0.2)
    told.promised = None
    of_bins = asked()
    np.testing.assert_array_equal(first, at_band if banded else of_bins)
    assert not banded or np.ptp(first, axis=0).mean() < 0.3 * np.ptp(of_bins, axis=0).mean()
    # Of a population, and of other kernels, nothing is promised.
    np.testing.assert_array_equal([asked(population=True), asked(bandwidth=0.2)], [people, wider])
    told.promised = replace(promised, min_half_width=math.inf if banded else 0.0)
    np.testing.assert_array_equal(asked(), of_bins if banded else at_band)


@pytest.mark.slow
def test_a_plan_says_what_it_costs_and_what_it_is_worth(one):
    _, plan = one
    _, free = planned(tune="0")
    text = plan.explain(details=True)
    assert (
        "10 % of epsilon tells what the bins miss of these data; their noise is 1.111 times" in text
    )
    assert "\npromise      approximation <= " in text
    assert "half the squares of its parts" in text
    of_many = [planned(2, n=20_000, tune=tune)[1].outlook.these_data for tune in ("0.02", "0")]
    assert of_many[0] < of_many[1]
    assert "promise" not in free.to_dict()["components"][0]
    assert "tune" not in spec_of(tune="0").identity()["mechanism"]
    assert spec_of().identity()["mechanism"]["tune"] == "0.1"


def test_a_share_that_tells_nothing_is_warned_of(one):
    warning = "WARNING: tune = 1e-06 tells nothing: the noise of the number alone is more"
    told = planned(tune="1e-6")[1]
    assert any(note.startswith(warning) for note in told.notes)
    assert told.explain(details=True).startswith("WARNING      tune = 1e-06 tells nothing")
    assert "WARNING" in told._repr_html_()
    assert not any("WARNING" in note for note in one[1].notes)


@pytest.mark.parametrize(("changes", "message"), [
    ({"mechanism": {"tune": "0.6"}}, "mechanism.tune: is 0.6, a share of epsilon, and at most 1/2"),
    ({"mechanism": {"tune": 0.02}}, 'mechanism.tune: .*Write tune = "0.02"'),
    ({"target": {"bandwidth": "auto"}}, "kernels that it is counted with, and .* after the noise"),
    ({"target": {"kind": "nadaraya-watson", "bandwidth": [0.1]},
      "data": {"response": {"column": "z", "bounds": [0.0, 1.0]}}}, "releases another"),
    ({"mechanism": {"noise": "laplace"}}, 'promise for these data is told by bins, and "laplace"'),
])  # fmt: skip
def test_what_is_not_proved_is_refused(changes, message):
    mechanism = {"tune": "0.02", "noise": "auto", **changes.get("mechanism", {})}
    with pytest.raises(SpecError, match=message):
        strategies.plan_of(**{**changes, "mechanism": mechanism})


@pytest.mark.parametrize(("change", "message"), [
    ({"of": ["nobody"]}, "names an array that is not there"), ({"factor": -1.0}, "factor"),
    ({"rest": None}, "rest"), ({"least": -1.0}, "least"), ({}, "two promises are of one array"),
])  # fmt: skip
def test_a_stranger_s_promise_is_checked(change, message, one):
    spec, plan = one
    facts = synopsis_of(spec, plan, centers(spec, plan, {"x": np.zeros(3)})).metadata
    facts = {**facts, "release_id": "0", "dbern_version": "1"}
    facts["components"][-1]["promise"] |= change
    if not change:  # as of releases whose bins numbers chose, whose noise takes part in the choice
        facts["components"].append({**facts["components"][-1], "arrays": ["promise_too"]})
    root = {"zarr_format": 3, "node_type": "group", "attributes": facts}
    with pytest.raises(IntegrityError, match=message):
        parse_object(metadata.Root, json.dumps(root).encode(), "here", "zarr.json")


def test_the_number_s_noise_counts_beside_that_of_the_values():
    """A promise is missed where the number is low and the values are off: one quantile has both."""
    spec, plan = planned(tune="0.02")
    synopsis = synopsis_of(spec, plan, centers(spec, plan, {"x": np.full(1000, 0.4)}), bytes(32))
    bins, number = plan.components
    beta, factor = Fraction(1, 20) * BAND["values"], OUTWARD * number.promise["factor"]
    law, unit = bins.noise.law, bins.unit
    bounds = [
        unit * noise_bound(plan.strategy, plan.h, law, beta, extra)
        for extra in (None, (number.noise.law, factor / unit))
    ]
    assert synopsis.bound("0.05").noise == pytest.approx(bounds[1], rel=1e-9)
    assert bounds[1] > 1.02 * bounds[0]


RELEASES = 200


def function_of(plan, columns, width, y):
    """What takes the bins' values to the function at points, and what that is of the records."""
    bumps = [np.exp(-np.square((y[:, None] - x) / width) / 2) for x in columns]
    truth = bumps[0].mean(axis=1) if len(columns) == 1 else bumps[0] @ bumps[1].T / len(columns[0])
    axes = zip(plan.k, plan.strategy.matrices(plan.h), strict=True)
    bases = [bernstein_basis(y, k) @ matrix for k, matrix in axes]
    return bases, truth / (width * math.sqrt(2 * math.pi)) ** len(columns)


def released(integers, planned):
    """Many releases of the same integers (releases, values): positions of one have own noise."""
    centers_of_all = np.tile(integers[planned.name].ravel(), RELEASES)
    noisy = privatize(centers_of_all, 0, planned.noise.law, bytes(32), planned.name)
    values = np.ldexp(noisy.astype(float), planned.noise.law.granularity_exponent)
    return values.reshape(RELEASES, -1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axes", [1, 2])
def test_no_promise_is_exceeded_more_often_than_it_says(kind, axes):
    """Many releases of one database: what each promises of it, and how far it is off."""
    n, width = 20_000, 0.1 if axes == 1 else 0.2
    spec, plan = planned(axes, n=n, bandwidth=width, k=40 if axes == 1 else 20, h=16, tune="0.02")
    x = database(kind, n, axes)
    integers = centers(spec, plan, {name: x[:, i].copy() for i, name in enumerate(AXES[:axes])})
    y = np.linspace(0, 1, 201 if axes == 1 else 61)
    bases, truth = function_of(plan, x.T, width, y)
    sure = synopsis_of(spec, plan, integers, bytes(32)).bound()  # noise as of each
    own, number = plan.components
    values = released(integers, own).reshape(RELEASES, *integers[own.name].shape)
    for basis in bases:
        values = np.tensordot(values, basis, axes=(1, 1))
    error = np.abs(values - truth).reshape(RELEASES, -1).max(axis=1)
    told = released(integers, number)[:, 0] + number.lattice_error + number.released_error
    terms = number.promise
    bias = [bias_from_statistic(value, terms["factor"], terms["rest"]) for value in told.tolist()]
    promise = np.minimum(bias, own.certificate.approximation) + sure.rounding + sure.noise
    assert (error > promise).sum() <= 0.05 * RELEASES + 3 * math.sqrt(0.0475 * RELEASES)
    assert np.median(promise / error) < (2.5 if kind != "one point" else 3)
    # One point is nearly the worst database: bins tell as much, and their noise less surely.
    assert np.median(promise) < (1.02 if kind == "one point" else 1.0) * plan.certificate.total
