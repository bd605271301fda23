"""The mean of curves: what a record moves, what is released, and what is asked of it."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conformance import accumulator_of, state_of, sums_of

import dbern
from dbern.certify.noise_quantile import polynomial_noise_bound
from dbern.combination.polynomials import grid_polynomials
from dbern.data.domain import Axis, Domain, Response
from dbern.learn.functional_mean import CurveSums, _chosen_degree, _most_degree
from dbern.privacy.laws import LaplaceNoise
from dbern.reconstruct.base import VectorStrategy

SEED = 230900125
DOMAIN, ENTRIES = Domain((Axis("t", 0.0, 24.0),)), VectorStrategy(1)


def sums(degree=4, points=40, low=-2.0, high=3.0):
    return CurveSums(DOMAIN, Response("load", low, high, points=points), degree)


@pytest.mark.parametrize("points", [2, 3, 10, 100, 4096])
def test_the_polynomials_are_orthonormal_on_their_grid(points):
    count = min(12, math.isqrt(4 * points))
    found = grid_polynomials(np.linspace(0, 1, points), points, count)
    np.testing.assert_allclose(found.T @ found / points, np.eye(count), atol=1e-9)


@pytest.mark.parametrize(("degree", "points"), [(0, 2), (2, 9), (5, 40), (9, 300), (13, 64)])
def test_the_worst_curves_move_the_integers_by_all_that_is_proved(degree, points):
    vector = sums(degree, points)
    accumulator = accumulator_of(vector, 1)
    unit = vector.response.radius * 2.0**-accumulator.bits
    most = {norm: vector.sensitivity(ENTRIES, norm).value for norm in (1, 2)}
    moved = {1: 0.0, 2: 0.0}
    tried = itertools.product((1, -1), repeat=degree + 1)
    few = np.random.default_rng(SEED).choice([1, -1], (4000, degree + 1))  # where they are many
    for signs in tried if degree < 12 else few:
        curve = np.where(np.array(signs) @ vector.table > 0, 3.0, -2.0)
        apart = state_of(accumulator, {"load": curve[None]}) - state_of(
            accumulator, {"load": 1.0 - curve[None]}
        )
        for norm in (1, 2):
            moved[norm] = max(moved[norm], unit * float(np.linalg.norm(apart, norm)))
    slack = [accumulator.errors.kernel_norms[norm - 1] for norm in (1, 2)]
    assert (0.9999 if degree < 12 else 0.85) * most[1] <= moved[1] <= most[1] + slack[0]
    assert 0.8 * most[2] <= moved[2] <= most[2] + slack[1]
    assert most[1] <= 2.0001 * 2.5 * math.sqrt(degree + 1)
    added = vector.move(ENTRIES, 1, added=True).value
    assert added == pytest.approx(most[1] / 2)


def test_no_random_curves_move_more():
    rng, vector = np.random.default_rng(SEED), sums(5, 60)
    accumulator = accumulator_of(vector, 10**6)
    unit = vector.response.radius * 2.0**-accumulator.bits
    curves = rng.choice([-9.0, -2.0, 3.0, 40.0], (200, 60))
    curves[:50] = rng.uniform(-2, 3, (50, 60))
    integers = np.array([state_of(accumulator, {"load": one[None]}) for one in curves])
    for norm in (1, 2):
        apart = np.linalg.norm((integers[:, None] - integers) * unit, norm, axis=-1)
        bound = vector.sensitivity(ENTRIES, norm).value
        assert apart.max() <= bound + accumulator.errors.kernel_norms[norm - 1]
        alone = np.linalg.norm(integers * unit, norm, axis=-1)
        added = vector.move(ENTRIES, norm, added=True).value
        assert alone.max() <= added + accumulator.errors.kernel_norms[norm - 1] / 2


def test_integers_are_the_coefficients_in_any_order_and_missing_curves_add_nothing():
    rng, vector = np.random.default_rng(SEED), sums(4, 40)
    curves = rng.uniform(-3, 4, (100, 40))
    curves[0, 3], curves[1, 0], curves[2] = math.nan, math.inf, math.nan
    accumulator = accumulator_of(vector, 100)
    whole = state_of(accumulator, {"load": curves})
    assert (whole == sum(state_of(accumulator, {"load": one[None]}) for one in curves)).all()
    z = (np.clip(curves[3:], -2, 3) - 0.5) / 2.5
    basis = grid_polynomials(np.linspace(0, 1, 40), 40, 5)
    wanted = (z @ basis / 40).sum(axis=0)
    found = sums_of(accumulator, {"load": curves})
    np.testing.assert_allclose(found, wanted, atol=100 * 4 * 2.0**-20)


def test_no_value_of_a_curve_makes_a_warning_however_large():
    response = Response("y", -0.1, 0.1, points=20)
    accumulator = accumulator_of(CurveSums(DOMAIN, response, 3), 10)
    with np.errstate(all="raise"):
        states = [state_of(accumulator, {"y": size * np.array([[1.0, -1.0] * 10])})
                  for size in (0.1, np.finfo(np.float64).max)]  # fmt: skip
    assert states[0].any()
    np.testing.assert_array_equal(*states)


def test_the_bound_of_the_noise_holds_between_nodes_too():
    law = LaplaceNoise(scale=1 << 20, granularity_exponent=-20, l1_sensitivity_granules=1)
    bound, gain = polynomial_noise_bound(law, 5, 50, Fraction(1, 10))
    rng = np.random.default_rng(SEED)
    table = grid_polynomials(np.linspace(0, 1, 999), 50, 5)
    noise = rng.laplace(size=(4000, 5))
    sups = np.abs(noise @ table.T).max(axis=1)
    assert np.quantile(sups, 0.85) < bound
    assert (sups <= gain * np.abs(noise).max(axis=1)).all()
    assert bound < np.quantile(sups, 0.95)


# --- Releases

KINDS = [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 50)]
TARGET = {"kind": "functional-mean", "bandwidth": None}


def spec(project, **changes):
    return project.spec(
        **{
            "data__bounds": {"x": None, "y": None, "t": [0.0, 24.0]},
            "data__response": {"column": "load", "bounds": [-2.0, 3.0], "points": 50},
            "target": TARGET,
            "mechanism": {"k": None, "h": None, "noise": None},
        }
        | changes
    )


def write(project, kind=KINDS[0], rows=200):
    rng, t = np.random.default_rng(SEED), np.linspace(0, 1, 50)
    curves = (
        np.sin(5 * t) + 0.2 * rng.normal(size=(rows, 1)) * t + 0.1 * rng.normal(size=(rows, 50))
    )
    project.folder.joinpath("data").mkdir(exist_ok=True)
    listed = [None, *curves[1:].astype(np.float32).tolist()]
    path = project.folder / "data" / "curves.parquet"
    for old in path.parent.iterdir():
        old.unlink()
    pq.write_table(pa.table({"load": pa.array(listed, kind)}), path, row_group_size=64)
    return curves


@pytest.mark.parametrize(
    "kind", [KINDS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in KINDS[1:])]
)
@pytest.mark.usefixtures("noiseless")
def test_without_noise_it_is_the_polynomial_of_the_mean_curve(project, client, kind):
    curves = write(project, kind)
    project.grant("1000000")
    given = spec(project, budget={"epsilon": "1000000"})
    synopsis = dbern.release(given, client=client).synopsis
    assert synopsis.metadata["target"]["degree"] == synopsis.combination.degree == 13
    t = np.linspace(0, 24, 50)
    mean = (curves[1:].astype(np.float32).sum(axis=0) + 0.5) / 200  # the missing one in the middle
    basis = grid_polynomials(t / 24, 50, 14)
    np.testing.assert_allclose(synopsis(t), basis @ (basis.T @ mean) / 50, atol=1e-4)
    assert synopsis.meaning == "response"
    assert np.isnan(synopsis([25.0])).all()
    np.testing.assert_allclose(synopsis.grid(5), synopsis(np.linspace(0, 24, 5)), atol=1e-12)
    low, high = synopsis.interval(t)
    assert np.ptp(high - low) < 1e-12
    assert synopsis.band() == pytest.approx((high - low)[0] / 2)


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
def test_the_band_covers_and_is_not_wide(project, client):
    curves = write(project, rows=4000)
    project.grant()
    synopsis = dbern.release(spec(project, target={**TARGET, "degree": 6}), client=client).synopsis
    t = np.linspace(0, 24, 50)
    basis = grid_polynomials(t / 24, 50, 7)
    mean = (curves[1:].sum(axis=0) + 0.5) / 4000
    off = np.abs(synopsis(t) - basis @ (basis.T @ mean) / 50).max()
    assert off < synopsis.band() < 0.1


def test_lists_that_are_not_as_stated_are_refused(project):
    column = {"column": "load", "bounds": [-2.0, 3.0]}
    write(project, pa.list_(pa.float32(), 50))
    given = spec(project, data__response={**column, "points": 49})
    with pytest.raises(dbern.SpecError, match="is 49, and load has lists of 50"):
        dbern.plan(given)
    project.write({"load": np.ones(5)})
    with pytest.raises(dbern.SpecError, match="curves are lists of numbers"):
        dbern.plan(spec(project))


def test_a_plan_warns_of_noise_that_hides_any_curve(project):
    write(project)
    notes = dbern.plan(spec(project, budget={"epsilon": "0.01"})).notes
    assert any(note.startswith("WARNING: it hides any curve") for note in notes)
    assert not any("WARNING" in note for note in dbern.plan(spec(project)).notes)


def test_auto_is_nearest_to_a_power_of_rows_times_epsilon():
    for points, n, epsilon in itertools.product((2, 9, 100, 4096), (1, 40, 3000), (0.1, 1, 50)):
        most, ideal = _most_degree(points), 2 / 3 * (n * epsilon) ** 0.4 - 1
        found = _chosen_degree(points, n, Fraction(epsilon))
        assert found == min(max(math.floor(ideal + 0.5), 0), most)


def test_a_plan_tells_the_degree_that_it_chose(project):
    write(project)
    notes = dbern.plan(spec(project, budget={"epsilon": "0.3"})).notes
    assert notes[0].startswith("degree 2: noise of a value ")
