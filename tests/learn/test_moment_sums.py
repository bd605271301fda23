"""Moments of numbers and categories: what one record moves, integers, and what is solved."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from banding import in_memory
from conformance import NULL, accumulator_of, state_of, sums_of
from sklearn.linear_model import LinearRegression, Ridge
from strategies import spec_of

from dbern.data.domain import Axis, Domain, Response
from dbern.learn.moment_sums import MomentSums
from dbern.measure.accumulator import most_rows
from dbern.reconstruct.least_squares import NoisyMoments, coefficient_intervals, least_squares
from dbern.reconstruct.moments import Moments

SEED = 1807
STATES, KINDS = ["NY", "CA", "TX"], [1, 2]


def columns_of(moments: Moments, z: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """One, a column a listed value, and the numbers, of each record."""
    listed = [np.eye(size)[own] for size, own in zip(moments.blocks, codes.T, strict=True)]
    return np.hstack([np.ones((len(z), 1)), *listed, z])


def exact(moments: Moments, z: np.ndarray, codes: np.ndarray | None = None) -> np.ndarray:
    """The entries of records, by their definition."""
    codes = np.zeros((len(z), len(moments.blocks)), dtype=int) if codes is None else codes
    v, (first, second) = columns_of(moments, z, codes), moments.column_pairs
    squares = (first == second) & (first > 0)
    kinds = np.append(0, np.repeat([1, 2, 3], [sum(moments.blocks), moments.numeric - 1, 1]))
    scales = np.array([
        [moments.weight, 2, 1, moments.weight],  # one with one, a value, a feature, the response
        [0, 1, 0.5, 4], [0, 0, 1, 2], [0, 0, 0, 2],
    ])[kinds[first], kinds[second]]  # fmt: skip
    return scales * (v[:, first] * v[:, second] - 0.5 * squares)


def starts(d: int, rng: np.random.Generator):
    """Pairs of records where the proofs' corners are, and others."""
    ones, zeros = np.ones(d), np.zeros(d - 1)
    yield from ((ones, np.append(zeros, last)) for last in (-0.5, -1.0))
    yield ones, np.where(np.arange(d) < d // 2, 1.0, -1.0)
    yield from ((rng.choice([-1.0, 0.0, 1.0], d), rng.uniform(-1, 1, d)) for _ in range(8))
    yield from ((ones, rng.uniform(-1, 1, d)) for _ in range(2))


def largest(moments: Moments, norm: int, rng: np.random.Generator) -> float:
    """The largest distance of two records' entries that a search finds: starts, then single moves.

    The distance is convex in each coordinate of a record but for the kinks of its absolute values,
    so ends, zero, and where an entry is the other record's are tried for each coordinate in turn.
    All, half or none of the categories change.
    """
    d, m, best = moments.numeric, len(moments.blocks), 0.0
    for (z, w), same in itertools.product(starts(d, rng), {0, m // 2, m}):
        codes = np.tile(np.arange(m) >= same, (41, 1)).astype(int)
        found = -1.0
        for _ in range(8):
            before = found
            for i in range(2 * d):
                tried = np.repeat([np.append(z, w)], 41, axis=0)
                tried[:, i] = np.append(np.linspace(-1, 1, 40), tried[0, i])
                apart = exact(moments, tried[:, :d]) - exact(moments, tried[:, d:], codes)
                sizes = np.linalg.norm(apart, norm, axis=1)
                z, w = np.split(tried[sizes.argmax()], 2)
                found = float(sizes.max())
            if found <= before:
                break
        best = max(best, found)
    return best


SIZES = [  # of numbers, a weight, and lists of three values
    *((numbers, weight, 0) for numbers in (2, 3) for weight in (2, 5)),
    *((2, 4, 1), (2, 2, 2), (3, 4, 2), (3, 2, 4)),
    *(pytest.param(5, weight, 0, marks=pytest.mark.slow) for weight in (2, 5)),
    *(pytest.param(*size, marks=pytest.mark.slow)
      for size in itertools.product((2, 3, 5), (2, 5), (1, 2, 3))),
]  # fmt: skip


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize(("numbers", "weight", "lists"), SIZES)
def test_no_replacement_moves_the_moments_by_more_than_is_proved(numbers, weight, lists, norm):
    moments, rng = Moments(numbers, weight, (3,) * lists), np.random.default_rng(SEED + numbers)
    everyone = np.vstack([rng.choice([-1, 0, 1], (400, numbers)), np.ones(numbers)])
    missing = float(np.linalg.norm(exact(moments, everyone), norm, axis=1).max())
    added = moments.added_sensitivity(norm).value
    assert 0.999 * added <= missing <= added
    bound, found = moments.sensitivity(norm).value, max(largest(moments, norm, rng), missing)
    if lists:
        near = 0.999 if norm == 1 and lists > 1 and numbers % 2 == 0 else 0.95
        assert added < bound  # of other lists half of one is not attained
    else:
        near = 0.9 if norm == 2 else 0.999 if weight == 2 else 0.95
    assert near * bound <= found <= bound


def test_the_bound_does_not_depend_on_how_many_values_are_listed():
    for norm in (1, 2):
        one, other = (Moments(4, 2, (size,) * 3).sensitivity(norm).value for size in (2, 40))
        assert one == other


def test_the_count_and_the_response_are_weighed_more_where_entries_are_many():
    assert [Moments.of(d).weight for d in (1, 7, 8, 20, 64)] == [2, 3, 3, 8, 57]
    lists = (3,) * 7
    costs = [Moments(6, a, lists).sensitivity(1).value for a in (2, Moments.of(6, lists).weight)]
    assert 1 < costs[1] / costs[0] < 1.06


def test_older_moments_weigh_the_count_and_sums_of_the_response_alone():
    x, y = drawn(300, 5, axes=2)
    v = np.column_stack([np.ones(300), np.arange(300) % 2, 1 - np.arange(300) % 2, x, y])
    products = v.T @ v / 300
    older = Moments(3, 7, (2,), older=True)
    entries = older.of_products(products)
    assert entries[[0, 3]] == pytest.approx([7.0, 7 * y.mean()])
    assert entries[9] == pytest.approx(np.square(y).mean() - 0.5)
    assert entries[[10, 13]] == pytest.approx([0.5, 7 * y[1::2].sum() / 300])
    np.testing.assert_allclose(older.products(entries, 1.0), products, atol=1e-12)
    found = [least_squares(NoisyMoments.of(one, one.of_products(products), 1e-9), 4, range(4))
             for one in (older, Moments.of(3, (2,)))]  # fmt: skip
    np.testing.assert_allclose(found[0].slopes, found[1].slopes, atol=1e-6)


# --- Integers


def numbers(axes: int) -> MomentSums:
    domain = Domain(tuple(Axis(f"x{i}", -3.0, 1.0) for i in range(axes)))
    return MomentSums.of(domain, Response("y", 0.1, 0.7))


PLACE = (Axis("x", 0.0, 10.0), Axis.of_values("state", STATES), Axis.of_values("kind", KINDS))
PLANE = (Axis("x", 0.0, 10.0), Axis("y", -1.0, 1.0), Axis.of_values("kind", KINDS))
MINUTES = Response("minutes", 0.0, 60.0)
VECTORS = {
    "one axis": numbers(1),
    "six axes": numbers(6),
    "categories": MomentSums.of(Domain(PLACE), MINUTES),
    "products": MomentSums.of(Domain(PLANE), MINUTES, 2),
}


def records(vector: MomentSums, rows: int) -> dict[str, np.ndarray]:
    """Records whose first ones are missing, and responses some of which are beyond their bounds."""
    rng, response = np.random.default_rng(SEED), vector.response
    columns = {axis.name: rng.uniform(axis.low, axis.high, rows) for axis in vector.domain.axes}
    for axis in vector.domain.categorical:
        columns[axis.name] = rng.integers(0, len(axis.categories), rows).astype(float)
        columns[axis.name][3] = NULL  # a value that is not listed
    span = response.high - response.low
    columns[response.name] = rng.uniform(response.low - span, response.high + span, rows)
    columns[vector.domain.names[0]][:2] = NULL, vector.domain.axes[0].high + 1e-9
    columns[vector.domain.names[0]][4] = math.inf
    columns[response.name][5] = NULL
    return columns


def scaled(vector: MomentSums, columns) -> tuple[np.ndarray, np.ndarray]:
    """Numbers in [-1, 1] and codes of the records that count."""
    listed = [columns[axis.name] for axis in vector.domain.categorical]
    z = [2 * (columns[axis.name] - axis.low) / (axis.high - axis.low) - 1
         for axis in vector.domain.numeric]  # fmt: skip
    pairs = itertools.combinations_with_replacement(z, 2) if vector.degree == 2 else ()
    z += [2 * one**2 - 1 if one is other else one * other for one, other in pairs]
    low, high = vector.response.low, vector.response.high
    z.append(2 * (np.clip(columns[vector.response.name], low, high) - low) / (high - low) - 1)
    keep = np.isfinite([*columns.values()]).all(axis=0) & (np.abs(z).max(axis=0) <= 1)
    codes = np.column_stack([np.zeros((len(keep), 0)), *listed])[keep].astype(int)
    return np.column_stack(z)[keep], codes


@pytest.mark.parametrize("name", VECTORS)
def test_integers_are_the_moments_rounded_and_add_up_in_any_order(name):
    vector = VECTORS[name]
    accumulator, columns = accumulator_of(vector, 301), records(vector, 301)
    order = np.random.default_rng(SEED).permutation(301)
    parts = (state_of(accumulator, {key: own[[i]] for key, own in columns.items()}) for i in order)
    assert (state_of(accumulator, columns) == sum(parts)).all()
    z, codes = scaled(vector, columns)
    assert 290 < len(z) < 300
    wanted = exact(vector.moments, z, codes).sum(axis=0)
    found = sums_of(accumulator, columns)
    np.testing.assert_allclose(found, wanted, atol=300 * 2.0**-accumulator.bits)


def test_entries_are_named_by_what_they_count():
    vector = VECTORS["categories"]
    columns, names = records(vector, 301), vector.entries
    found, (z, codes) = sums_of(accumulator_of(vector, 301), columns), scaled(vector, columns)
    assert len(names) == len(set(names)) == vector.moments.size
    for name, value in {
        "count": vector.moments.weight * len(z),
        "count of state = CA": 2 * (codes[:, 0] == 1).sum(),
        "sum of x where kind = 2": z[codes[:, 1] == 1, 0].sum() / 2,
        "count of state = TX and kind = 1": ((codes == [2, 0]).all(axis=1)).sum(),
    }.items():
        assert found[names.index(name)] == pytest.approx(value, abs=1e-6), name
    products = VECTORS["products"]
    assert products.moments == Moments.of(6, (2,))
    assert {"sum of x^2", "product of x * y and minutes", "sum of y^2 where kind = 2"} <= {
        *products.entries
    }


@pytest.mark.parametrize("n", [2, most_rows(1)])
@pytest.mark.parametrize("norm", [1, 2])
def test_rounding_moves_no_integer_by_more_than_a_unit(n, norm):
    """Of many rows the units are coarse; the worst pairs of the exact moments are tried too."""
    rng, vector = np.random.default_rng(SEED), numbers(6)
    accumulator, d = accumulator_of(vector, n), 7
    unit = 2.0**accumulator.bits
    z = np.vstack([rng.uniform(-1, 1, (300, d)), np.ones((3, d)), np.full((1, d), -1 / 8)])
    z[-2] = np.append(np.zeros(d - 1), -0.5)
    z[-4] = [1, 1, 1, -1, -1, -1, -1]
    integers = vector._integers(z, accumulator.bits).astype(float)
    apart = np.linalg.norm(integers[:, None] - integers, norm, axis=-1)
    allowed = vector.moments.sensitivity(norm).value + accumulator.errors.kernel_norms[norm - 1]
    assert 0.9 * allowed < apart.max() / unit <= allowed
    rounding = integers / unit - exact(vector.moments, z)
    assert np.abs(rounding).max() <= 0.5005 / unit
    added = np.linalg.norm(rounding[:, None] - rounding, norm, axis=-1).max()
    assert 0.3 * accumulator.errors.kernel_norms[norm - 1] < added
    assert added <= accumulator.errors.kernel_norms[norm - 1]


def test_no_sum_overflows():
    for n in (1, 10**6, most_rows(1), 2**45 - 1):
        vector = numbers(62)
        accumulator = accumulator_of(vector, n)
        assert n * vector.moments.largest_entry << accumulator.bits < 2**62
        assert accumulator.bits >= 9


# --- What is solved


def drawn(n, seed, axes=4, noise=0.3, scale=0.5):
    rng = np.random.default_rng(seed)
    x = scale * rng.uniform(-1, 1, (n, axes))
    slopes = np.linspace(-0.5, 0.6, axes)
    return x, np.clip(0.1 + x @ slopes + noise * rng.uniform(-1, 1, n), -1, 1)


def measured(x, y, epsilon, seed, n=None):
    """Moments with Laplace noise, in floats: a simulation of what is released."""
    moments, rows = Moments.of(x.shape[1] + 1), n or len(x)
    entries = exact(moments, np.column_stack([x, y])).sum(axis=0) / rows
    scale = moments.sensitivity(1).value / rows / epsilon
    noise = np.random.default_rng(seed).laplace(0, scale, moments.size)
    return NoisyMoments.of(moments, entries + noise, math.sqrt(2) * scale)


def test_without_noise_any_response_and_columns_are_least_squares():
    x, y = drawn(500, 1)
    found = measured(x, y, 1e12, 0)
    both = np.column_stack([x, y])
    for response, columns in ((4, [0, 1, 2, 3]), (1, [4, 0]), (0, [])):
        fit = least_squares(found, response, columns)
        if columns:
            peer = LinearRegression().fit(both[:, columns], both[:, response])
            np.testing.assert_allclose(fit.slopes, peer.coef_, atol=1e-6)
            assert fit.intercept == pytest.approx(peer.intercept_, abs=1e-6)
            score = peer.score(both[:, columns], both[:, response])
            assert fit.explained / fit.varied == pytest.approx(score, abs=1e-6)
        else:
            assert fit.intercept == pytest.approx(both[:, response].mean(), abs=1e-6)
    fit = least_squares(found, 4, range(4), ridge=0.3)
    peer = Ridge(alpha=0.3 * 500).fit(x, y)
    np.testing.assert_allclose(fit.slopes, peer.coef_, atol=1e-6)


def rmse(x, y, fit) -> float:
    predicted = np.clip(fit.intercept + x[:, : len(fit.slopes)] @ fit.slopes, -1, 1)
    return float(np.sqrt(np.mean((predicted - y) ** 2)))


@pytest.mark.parametrize(("n", "epsilon", "within"), [(20_000, 1.0, 1.01), (2000, 1.0, 1.25)])
def test_noisy_moments_are_nearly_least_squares(n, epsilon, within):
    x, y = drawn(n, 2)
    best = np.sqrt(np.mean((LinearRegression().fit(x, y).predict(x) - y) ** 2))
    found = [rmse(x, y, least_squares(measured(x, y, epsilon, i), 4, range(4))) for i in range(20)]
    assert np.mean(found) <= within * best


@pytest.mark.parametrize("epsilon", [0.3, 0.03, 0.003])
def test_where_noise_rules_it_is_hardly_worse_than_a_noisy_constant(epsilon):
    x, y = drawn(2000, 3, axes=8)
    noisy = [measured(x, y, epsilon, i) for i in range(20)]
    found = np.mean([rmse(x, y, least_squares(one, 8, range(8))) ** 2 for one in noisy])
    constant = np.mean([rmse(x, y, least_squares(one, 8, [])) ** 2 for one in noisy])
    assert found <= 1.1 * constant


def test_the_doubt_of_what_is_left_is_how_far_noise_moves_it():
    x, y = drawn(2000, 4, axes=2, noise=0.1)
    fits = [least_squares(measured(x, y, 1.0, i), 2, range(2)) for i in range(60)]
    left = np.std([fit.varied - fit.explained for fit in fits])
    assert 0.7 * left <= np.mean([fit.doubt for fit in fits]) <= 1.4 * left


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
def test_intervals_cover_least_squares_about_as_often_as_they_say():
    covered = []
    for seed in range(60):
        x, y = drawn(10_000, seed)
        ends = ends_of(measured(x, y, 1.0, seed), 4)
        assert ends is not None
        covered.append(around(ends, LinearRegression().fit(x, y)))
    assert np.mean(covered) > 0.94


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
def test_errors_are_told_where_two_columns_of_many_depend_on_each_other():
    """Their covariance is far above its noise, however many others are nothing but noise."""
    covered = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x = np.clip(rng.normal(0, 0.2, size=(8000, 8)), -1, 1)
        x[:, 1] = np.clip(0.8 * x[:, 0] + 0.1 * rng.normal(size=8000), -1, 1)
        y = np.clip(0.5 * x[:, 0] + 0.1 * rng.normal(size=8000), -1, 1)
        fit = least_squares(measured(x, y, 1.0, seed), 8, range(8))
        off = fit.slopes - LinearRegression().fit(x, y).coef_
        covered.append(np.abs(off) <= 1.96 * np.sqrt(np.diag(fit.spread))[:-1])
    assert np.mean(covered, axis=0).min() >= 0.75  # .63 where all share one prior


def ends_of(moments, axes, ridge=None):
    """Intervals of the slopes, and of the intercept."""
    return coefficient_intervals(moments, axes, range(axes), np.eye(axes + 1), 0.05, ridge)


def around(ends, peer):
    """Which intervals hold what a fit without noise has; where there are none, nothing is said."""
    if ends is None:
        return np.ones(len(peer.coef_) + 1, dtype=bool)
    known = np.append(peer.coef_, peer.intercept_)
    return (ends[:, 0] <= known) & (known <= ends[:, 1])


def wide(n, axes, times):
    """Records whose bounds are so many times as wide as they are, all at the lower end."""
    x, y = drawn(n, 1, axes, scale=1.0)
    return x / times - (1 - 1 / times), y


WIDTHS = [(2000, 1, 0.5, 30.0), *(
    pytest.param(n, axes, epsilon, times, marks=pytest.mark.slow)
    for n, epsilon in ((2000, 0.5), (20_000, 1.0), (200_000, 0.2))
    for axes in (1, 2, 4)
    for times in (1.0, 2.0, 5.0, 10.0, 30.0, 100.0, 1000.0)
)]  # fmt: skip


@pytest.mark.parametrize(("n", "axes", "epsilon", "times"), WIDTHS)
def test_intervals_cover_however_wide_bounds_are_or_there_is_none(n, axes, epsilon, times):
    """Coefficients are drawn to zero where A is hardly above its noise, and no interval knew."""
    x, y = wide(n, axes, times)
    peer = LinearRegression().fit(x, y)
    moments, draws = Moments.of(axes + 1), 200
    entries = exact(moments, np.column_stack([x, y])).mean(axis=0)
    scale = moments.sensitivity(1).value / n / epsilon
    noise = np.random.default_rng(SEED).laplace(0, scale, (draws, moments.size))
    noisy = [NoisyMoments.of(moments, entries + one, math.sqrt(2) * scale) for one in noise]
    ends = [ends_of(one, axes) for one in noisy]
    covered = np.mean([around(some, peer) for some in ends], axis=0)
    assert covered.min() >= 0.95 - 2.5 * math.sqrt(0.05 * 0.95 / draws)
    known = np.mean([some is not None for some in ends])
    assert known > 0.98 if times == 1 and n > 2000 else known < 0.05 if times >= 100 else True


def test_an_interval_of_a_penalty_is_about_the_penalized():
    """In its units: its count is released with noise too."""
    (x, y), ridge = drawn(3000, 0), 0.3
    peer = Ridge(alpha=ridge * len(x)).fit(x, y)
    noisy = [measured(x, y, 3.0, seed) for seed in range(40)]
    covered = [around(ends_of(one, 4, ridge), peer) for one in noisy]
    assert np.mean(covered, axis=0).min() >= 0.85
    assert ends_of(measured(*wide(2000, 1, 1000.0), 0.5, 0), 1, ridge) is not None


@pytest.mark.parametrize(
    ("x", "n"),
    [
        (np.full((400, 3), 0.25), 400),  # constant columns
        (np.linspace(-1, 1, 6).reshape(2, 3), 2),  # fewer rows than columns
        (1e-3 * np.linspace(-1, 1, 1200).reshape(400, 3), 400),  # bounds a thousand times too wide
        (np.repeat(np.linspace(-1, 1, 400)[:, None], 3, axis=1), 400),  # one column thrice
        (np.zeros((0, 3)), 400),  # not a valid row
    ],
)
@pytest.mark.parametrize("epsilon", [1e-4, 1.0, 1e6])
def test_poor_records_have_an_answer(x, n, epsilon):
    y = np.clip(x.sum(axis=1), -1, 1)
    for ridge in (None, 0.1):
        fit = least_squares(measured(x, y, epsilon, 0, n), 3, range(3), ridge)
        assert np.isfinite([*fit.slopes, fit.intercept, *np.diag(fit.spread)]).all()
        assert (np.diag(fit.spread) > 0).all()
        ends = ends_of(measured(x, y, epsilon, 0, n), 3, ridge)
        assert ends is None or (np.isfinite(ends).all() and (ends[:, 0] < ends[:, 1]).all())
        assert abs(fit.intercept + fit.slopes.sum()) < 1e3
    if len(x) and epsilon == 1e6:
        fit, peer = least_squares(measured(x, y, epsilon, 0, n), 3, range(3)), LinearRegression()
        assert (
            rmse(x, y, fit) < 1.01 * math.sqrt(np.mean((peer.fit(x, y).predict(x) - y) ** 2)) + 0.01
        )


@pytest.mark.parametrize("deviation", [1e-300, 1e-9, 1.0, 1e300])
@pytest.mark.parametrize("size", [0.0, 1e-300, 1.0, 1e300, math.inf])
def test_whatever_a_store_says_there_is_an_answer(deviation, size):
    """A synopsis may be a stranger's."""
    signs = np.random.default_rng(SEED).choice([-1.0, 1.0], Moments.of(4).size)
    released = signs * size if size else np.zeros(signs.size)
    for ridge in (None, 1e-9):
        for given in (released, np.abs(released), -np.abs(released)):
            moments = NoisyMoments.of(Moments.of(4), given, deviation)
            fit, ends = least_squares(moments, 3, range(3), ridge), ends_of(moments, 3, ridge)
            assert ends is None or np.isfinite(ends).all()
            assert np.isfinite([*fit.slopes, fit.intercept, *fit.spread.ravel()]).all()


def test_without_noise_coefficients_are_those_of_least_squares():
    rng, moments = np.random.default_rng(SEED), Moments.of(3, (3, 2))
    codes = np.column_stack([rng.integers(0, 3, 500), rng.integers(0, 2, 500)])
    z = 0.5 * rng.uniform(-1, 1, (500, 3))
    z[:, 2] = 0.3 * z[:, 0] + np.array([0.1, -0.2, 0.3])[codes[:, 0]] - 0.1 * codes[:, 1]
    z[:, 2] += 0.1 * rng.uniform(-1, 1, 500)
    v = columns_of(moments, z, codes)
    found = NoisyMoments.of(moments, moments.of_products(v.T @ v), 1e-9)
    fit = least_squares(found, 7, range(7))
    peer = LinearRegression().fit(v[:, 1:-1], z[:, 2])
    values = fit.intercept + v[:, 1:-1] @ fit.slopes
    np.testing.assert_allclose(values, peer.predict(v[:, 1:-1]), atol=1e-6)
    assert abs(fit.slopes[:3].sum()) < 1e-9
    assert abs(fit.slopes[3:5].sum()) < 1e-9


def test_noise_of_many_cells_costs_little_where_lists_are_independent():
    """Without what `NoisyMoments.columns_covariance` leaves out it is 1.09 times as much."""
    rng, moments = np.random.default_rng(SEED), Moments.of(3, (3, 5, 8, 12))
    codes = np.column_stack([rng.integers(0, size, 20_000) for size in moments.blocks])
    effects = [rng.normal(0, 0.1, size) for size in moments.blocks]
    z = rng.uniform(-0.6, 0.6, (20_000, 3))
    z[:, 2] = 0.2 * z[:, 0] + sum(own[codes[:, i]] for i, own in enumerate(effects))
    z[:, 2] = np.clip(z[:, 2] + 0.1 * rng.normal(size=20_000), -1, 1)
    v = columns_of(moments, z, codes)
    entries, scale = moments.of_products(v.T @ v / 20_000), moments.sensitivity(1).value / 20_000

    def error(noise: np.ndarray, deviation: float) -> float:
        measured, last = NoisyMoments.of(moments, entries + noise, deviation), moments.columns - 1
        fit = least_squares(measured, last, range(last))
        return float(np.std(z[:, 2] - v[:, 1:-1] @ fit.slopes))

    noises = rng.laplace(0, scale, (4, moments.size))
    found = np.mean([error(noise, math.sqrt(2) * scale) for noise in noises])
    assert found < 1.06 * error(np.zeros(moments.size), 0.0)


@pytest.mark.parametrize("width", [1.0, 1000.0])
def test_a_regression_without_intervals_says_why(width):
    spec = spec_of(
        data={"bounds": {"x": [0.0, width]}, "n": 5000,
              "response": {"column": "y", "bounds": [0.0, 1.0]}},
        target={"kind": "ridge-regression", "method": "moments"}, budget={"epsilon": "1"},
    )  # fmt: skip
    x = np.linspace(0, 1, 5000)
    fit = in_memory(spec, {"x": x, "y": x / 2}).regression()
    assert list(fit.intervals) == (["x", "intercept"] if width == 1 else [])
    assert ("no intervals: the noise hides" in str(fit)) == bool(fit.note) == (width > 1)
    for name, (low, high) in fit.intervals.items():
        assert low <= {"x": 0.5, "intercept": 0.0}[name] <= high
