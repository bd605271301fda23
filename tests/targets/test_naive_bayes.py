"""Naive Bayes: sensitivities, errors, and the model without noise."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from conformance import CASES, LABEL, THREE, Case, accumulator_of, integers, state_of, sums_of

import dbern
from dbern.combination import combination_of
from dbern.combination.class_scores import _kernel_log_scores, _kernel_score_error, _kernel_scores
from dbern.combination.gaussian_scores import (
    _gaussian_log_scores,
    _gaussian_score_error,
    _gaussian_scores,
    _uncentred,
)
from dbern.planning.planner import plan_files
from dbern.reconstruct.base import Lattice, LatticeStrategy, Slab, VectorStrategy
from dbern.synopsis.store import ReleasedStore
from dbern.targets.class_sums import ClassSums
from dbern.targets.joint_bayes import NaiveBayesProduct

WIDTH = 0.15
KERNEL = {"kind": "naive-bayes", "bandwidth": [WIDTH], "floor": 0.0}
JOINT = {**KERNEL, "release": "joint"}
NORMAL = {"kind": "gaussian-naive-bayes", "std_floor": [0.05]}
GRID = np.stack(np.meshgrid(*[np.linspace(0, 1, 9)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)


def spec(target, roles, axes, n, **mechanism):
    return Case(target, {"label": roles}).spec(axes, n, "laplace", **mechanism)


# --- sensitivity -------------------------------------------------------------------------------


def flipped(bandwidth, n, k):
    """What the integers of F move by when one of n labels at one point is flipped."""
    target = {**JOINT, "bandwidth": [bandwidth]}
    content = spec(target, LABEL, 2, n, k=k)
    plan = plan_files(content, ())
    rows = [{"x": 0.0, "y": 0.0, "label": 1.0}] * n
    other = [*rows[:-1], {"x": 0.0, "y": 0.0, "label": 0.0}]
    (before,), (after,) = integers(content, plan, rows), integers(content, plan, other)
    return plan, np.abs(before - after) * plan.noise.granularity


def printed(bandwidth, n):
    """The paper's bound on S(F), of two axes."""
    return 2 * (1 / n + 3 / (n * math.sqrt(2 * math.pi) * bandwidth))


def test_a_flipped_label_moves_the_function_beyond_what_is_printed():
    plan, move = flipped(0.05, 100, 4)
    assert printed(0.05, 100) == pytest.approx(0.499, abs=5e-4)
    assert move.max() == pytest.approx(1.273, abs=5e-4)
    assert plan.sensitivity.function == pytest.approx(1.2732, abs=5e-4)
    assert move.max() <= plan.sensitivity.function + plan.noise.granularity  # of rounding


def test_the_printed_constant_fails(monkeypatch):
    def spent():
        plan, move = flipped(0.02, 20, 1)
        return move.sum() / plan.sensitivity.l1

    assert spent() <= 1
    monkeypatch.setattr(NaiveBayesProduct, "function_move", lambda self, *, added: printed(0.02, 1))
    assert spent() > 1


def score(points, members, n, width):
    """One class's score at points (m, l), from its members (k, l)."""
    if not len(members):
        return np.zeros(len(points))
    apart = (points[:, None] - members) / width
    bumps = np.exp(-(apart**2) / 2) / (width * math.sqrt(2 * math.pi))
    return len(members) / n * bumps.mean(axis=1).prod(axis=1)


@pytest.mark.parametrize(("axes", "attained"), [(1, 1.0), (2, 1.0), (3, 0.7)])
def test_no_replacement_moves_the_function_by_more_than_its_sensitivity(axes, attained):
    """Searched where the proof's corners are: each coordinate at the point or far from it."""
    width, bound = 0.02, 2 * max(1, axes - 1) / (0.02 * math.sqrt(2 * math.pi)) ** axes
    points = np.zeros((1, axes))
    corners = [np.array(one) for one in itertools.product((0.0, 1.0), repeat=axes)]
    records = [(corner, sign) for corner in corners for sign in (-1, 1)] + [(corners[0], 0)]
    largest = 0.0
    for first, second in itertools.product((0, 1, 40), repeat=2):
        n = first + second + 1
        for one, other in itertools.combinations_with_replacement(range(2), 2):
            plus, minus = np.tile(corners[-one], (first, 1)), np.tile(corners[-other], (second, 1))
            values = []
            for record, sign in records:
                groups = {1: plus, -1: minus}
                if sign:
                    groups[sign] = np.vstack([groups[sign], record])
                values += [sum(s * score(points, d, n, width)[0] for s, d in groups.items())]
            largest = max(largest, n * (max(values) - min(values)))
    assert attained * 0.99 * bound <= largest <= bound * (1 + 1e-12)


@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "epanechnikov"])
def test_lattice_values_are_as_close_as_the_plan_says(kernel):
    """The effective kernel, floats and the grid, all that is between records and integers."""
    content = spec({**JOINT, "kernel": kernel, "bandwidth": [0.3]}, LABEL, 2, 60, k=6)
    plan = plan_files(content, ())
    rng = np.random.default_rng(2)
    points, labels = rng.uniform(size=(60, 2)), rng.integers(0, 2, 60)
    rows = [{"x": x, "y": y, "label": c} for (x, y), c in zip(points, labels, strict=True)]
    (granules,) = integers(content, plan, rows)
    (component,) = content.components
    nodes = np.stack(np.meshgrid(*[np.linspace(0, 1, 7)] * 2, indexing="ij"), axis=-1)
    exact = np.zeros((7, 7))
    for sign, code in ((1, 1), (-1, 0)):
        own, apart = points[labels == code], nodes[:, :, None] - points[labels == code]
        means = [one(apart[..., i]).mean(axis=2) for i, one in enumerate(component.kernels)]
        exact += sign * len(own) / 60 * means[0] * means[1]
    (planned,) = plan.components
    error = np.abs(granules.reshape(7, 7) * planned.noise.granularity - exact).max()
    assert error <= planned.lattice_error + planned.released_error < 0.1


def test_a_record_that_is_null_in_one_axis_counts_nowhere():
    content = spec(KERNEL, LABEL, 2, 2, k=9)
    plan = plan_files(content, ())
    kept = {"x": 0.5, "y": 0.5, "label": 1.0}
    null = integers(content, plan, [kept, {"x": math.nan, "y": 0.5, "label": 1.0}])
    for other in (
        {"x": 0.5, "y": math.nan, "label": 1.0},
        {"x": 0.5, "y": 1.5, "label": 1.0},
        {"x": 0.5, "y": 0.5, "label": math.nan},
    ):
        found = integers(content, plan, [kept, other])
        assert all(np.array_equal(a, b) for a, b in zip(null, found, strict=True))
    assert [one.name for one in plan.components] == ["axis_0", "axis_1", "classes"]
    counts = null[-1] * plan.components[-1].noise.granularity
    np.testing.assert_allclose(counts, [0.0, 0.5], atol=1e-6)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_no_replacement_moves_counts_sums_and_squares_by_more_than_is_proved(axes):
    """All corners and middles, and the missing record; another class attains the bound."""
    records = CASES["bayes-gaussian"].spec(axes, 2, "laplace").records
    sums = ClassSums(records.domain, records.classes, moments=True)
    accumulator = accumulator_of(sums, 2)
    places = itertools.product((0.0, 0.3, 0.5, 1.0, math.nan), repeat=axes)
    names = ["label", *"xyz"[:axes]]
    rows = [
        sums_of(accumulator, dict(zip(names, np.array([[label, *place]]).T, strict=True)))
        for label, place in itertools.product((0.0, 1.0), places)
    ]
    table = np.array(rows)
    for norm in (1, 2):
        apart = max(np.linalg.norm(table - row, norm, axis=1).max() for row in rows)
        bound = sums.sensitivity(VectorStrategy(sums.size), norm).value
        assert bound * (1 - 1e-9) <= apart <= bound, norm
    assert max(np.abs(table - row).max() for row in rows) == sums.function_sensitivity


def test_rounding_adds_a_unit_for_each_sum_and_square():
    """Of many rows, whose units are coarse; within a class, where the counts cancel."""
    records = CASES["bayes-gaussian"].spec(3, 2, "laplace").records
    sums = ClassSums(records.domain, records.classes, moments=True)
    accumulator, added = accumulator_of(sums, 2**40), []
    for place in np.random.default_rng(5).uniform(size=(200, 3)):
        z = 2 * place - 1
        found = sums_of(
            accumulator, dict(zip(["label", *"xyz"], [[1.0], *place[:, None]], strict=True))
        )
        added.append(found.reshape(3, -1)[1] - np.hstack([1, z, z**2 - 0.5]))
    table = np.array(added)
    for norm, slack in zip((1, 2), accumulator.errors.kernel_norms, strict=True):
        assert 0.5 * slack < np.linalg.norm(table[:, None] - table, norm, axis=-1).max() <= slack


def scores_at(nodes, kernels, rows):
    """F of positions and labels at the nodes of a product grid, from its definition."""
    total = 0.0
    for sign, code in ((1, 1.0), (-1, 0.0)):
        members = rows[rows[:, 2] == code, :2]
        if len(members):
            means = [
                kernel(nodes[:, None] - members[:, axis]).mean(axis=1)
                for axis, kernel in enumerate(kernels)
            ]
            total = total + sign * len(members) / len(rows) * np.multiply.outer(*means)
    return total


def test_effective_kernels_move_no_replacement_by_more_than_is_added():
    """Of coarse ones, beside which floats are nothing."""
    n, rng = 6, np.random.default_rng(3)
    (component,) = spec({**JOINT, "bandwidth": [0.3]}, LABEL, 2, n, k=6).components
    accumulator = component.accumulator(LatticeStrategy(Lattice((6, 6))), n, 0.5)
    slack = np.array(accumulator.errors.kernel_norms)

    def added(rows):
        state = state_of(accumulator, dict(zip(("x", "y", "label"), rows.T, strict=True)))
        found = accumulator.to_values(state, 0, Slab(0, 0, 7)).reshape(7, 7)
        return n * (found - scores_at(np.arange(7) / 6, component.kernels, rows))

    largest = np.zeros(2)
    for _ in range(60):
        rows = np.column_stack([rng.uniform(size=(n, 2)), rng.integers(0, 2, n)])
        other = np.vstack([rows[:-1], [*rng.uniform(size=2), rng.integers(0, 2)]])
        moved = (added(rows) - added(other)).ravel()
        largest = np.maximum(largest, [np.linalg.norm(moved, norm) for norm in (1, 2)])
    assert (0.005 * slack < largest).all()
    assert (largest <= slack).all()
    assert (2 * n * np.array(accumulator.errors.float_norms) < 1e-6 * slack).all()


# --- errors of scores --------------------------------------------------------------------------


def members(rng, axes):
    """Records of a class, from none to all of n = 20, spread or at corners."""
    count = rng.integers(0, 21)
    if rng.random() < 0.5:
        return rng.choice([0.0, 1.0], (count, axes))
    return rng.uniform(size=(count, axes))


@pytest.mark.slow
def test_errors_of_sums_and_shares_move_scores_by_no_more_than_is_proved():
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(3000):
        axes, width = rng.integers(1, 4), 0.2
        peak = 1 / (width * math.sqrt(2 * math.pi))
        own, y = members(rng, axes), rng.choice([0.0, 1.0], axes)
        floors = [rng.choice([0.0, 0.3])] * axes
        sums = np.exp(-(((y - own) / width) ** 2) / 2).sum(axis=0) * peak / 20
        sums, share = sums.reshape(axes, 1, 1), np.array([len(own) / 20])
        errors, moved = rng.uniform(0, 0.1, axes), rng.uniform(0, 0.1)
        signs = rng.choice([-1.0, 1.0], axes + 1)
        noisy = sums + (signs[1:] * errors).reshape(axes, 1, 1)
        exact = _kernel_scores(sums, share, [peak] * axes, floors)
        found = _kernel_scores(noisy, share + signs[0] * moved, [peak] * axes, floors)
        bound = _kernel_score_error(errors.tolist(), moved, [peak] * axes)
        worst = max(worst, float(np.abs(found - exact).max()) / bound)
    assert 0.8 < worst <= 1 + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("centred", [False, True])
def test_errors_of_moments_move_gaussian_scores_by_no_more_than_is_proved(centred):
    rng, worst = np.random.default_rng(1), 0.0
    for _ in range(4000):
        axes, error = rng.integers(1, 3), 10 ** rng.uniform(-5, -1)
        floor = rng.choice([0.05, 0.2])
        peaks, floors = [1 / (floor * math.sqrt(2 * math.pi))] * axes, [floor] * axes
        own = 0.5 + (members(rng, axes) - 0.5) * rng.choice([0.1, 0.4, 1.0])
        u = own - 0.5
        moments = np.concatenate([[len(u)], u.sum(axis=0), (u**2).sum(axis=0)])[None] / 20
        signs = error * rng.choice([-1.0, 1.0], moments.shape)
        noisy = moments + (_uncentred(signs) if centred else signs)
        near = (u.mean(axis=0) if len(u) else 0) + rng.normal(0, floor, (5, axes))
        points = np.clip(near, -0.5, 0.5)
        exact = _gaussian_scores(moments, points, peaks, floors)
        found = _gaussian_scores(noisy, points, peaks, floors)
        bound = _gaussian_score_error(error, peaks, floors, centred=centred)
        worst = max(worst, float(np.abs(found - exact).max()) / bound)
    assert 0.2 < worst <= 1


def test_earlier_releases_are_read_as_they_were():
    """Sums of u and its squares, with no word of squares in the metadata."""
    rng = np.random.default_rng(15)
    facts = {"kind": "gaussian-naive-bayes", "classes": ["no", "yes"], "peaks": [4.0, 4.0],
             "floors": [0.1, 0.1]}  # fmt: skip
    u = rng.uniform(-0.5, 0.5, (2, 30, 2))
    shares = np.full((2, 1), 0.5)
    plain = np.hstack([shares, u.mean(axis=1) / 2, (u**2).mean(axis=1) / 2])
    now = np.hstack([shares, u.mean(axis=1), 2 * (u**2).mean(axis=1) - 0.25])
    points = rng.uniform(size=(20, 2))
    old, new = (combination_of(facts | more) for more in ({}, {"squares": "centred"}))
    assert "squares" not in old.to_dict()
    before, after = old.values([plain.ravel()], points), new.values([now.ravel()], points)
    np.testing.assert_allclose(before, after, rtol=1e-12)
    exact = _gaussian_scores(plain, points - 0.5, [4.0, 4.0], [0.1, 0.1])
    np.testing.assert_allclose(before, exact[1] - exact[0])
    assert old.error([1e-3]) > new.error([1e-3])


# --- the model without noise -------------------------------------------------------------------


def table(rows, classes, rng):
    """Overlapping classes, with nulls and labels that are none of them."""
    labels = rng.choice([*classes, *([9] if classes[0] == 0 else ["maybe"])], rows)
    middles = {c: 0.3 + 0.4 * i / (len(classes) - 1) for i, c in enumerate(classes)}
    x, y = (np.clip([rng.normal(middles.get(c, 0.5), s) for c in labels], 0, 1) for s in (0.1, 0.2))
    columns = {"x": x.tolist(), "y": y.tolist(), "label": labels.tolist()}
    columns["x"][0] = columns["y"][1] = columns["label"][2] = None
    return columns


def released(release, target, columns, classes, *, epsilon="1000000", **mechanism):
    """At an epsilon at which no law expects much noise, unless another is asked for."""
    roles, mechanism = {"column": "label", "classes": classes}, {"k": 60, "h": 8, **mechanism}
    made = spec(target, roles, 2, len(columns["x"]), **mechanism)
    made = made.changed({"budget": {"epsilon": epsilon}})
    return made, *release(made, columns)


@pytest.fixture
def exact_release(project, exact_release):
    """With a grant for so large an epsilon."""
    project.grant("1000000")
    return exact_release


def by_class(columns, classes):
    """Points of each class, of the records that count."""
    rows = [
        (x, y, c)
        for x, y, c in zip(columns["x"], columns["y"], columns["label"], strict=True)
        if x is not None and y is not None
    ]
    return [np.array([(x, y) for x, y, c in rows if c == one]).reshape(-1, 2) for one in classes]


def assert_posterior(synopsis, scores):
    """Decisions and probabilities are those of the scores (classes, m), where these say much."""
    known = scores.max(axis=0) > 0.05
    exact = (scores / scores.sum(axis=0)).T[known]
    found, decided = synopsis.predict_proba(GRID)[known], synopsis.decision_function(GRID)[known]
    np.testing.assert_allclose(found, exact, atol=0.05)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    logs = np.log(found)
    logs = logs[:, 1] - logs[:, 0] if len(scores) == 2 else logs
    np.testing.assert_allclose(decided, logs, atol=1e-6)
    sure = np.ptp(exact, axis=1) > 0.2
    best = np.array(synopsis.classes)[exact.argmax(axis=1)]
    assert known.sum() > 30 < sure.sum()
    assert (synopsis.predict(GRID)[known] == best)[sure].all()


@pytest.mark.slow
@pytest.mark.parametrize("classes", [["no", "yes"], [0, 1, 2]])
@pytest.mark.parametrize("sizes", ["usual", "empty and one"])
def test_the_factored_release_is_naive_bayes(exact_release, classes, sizes):
    rng = np.random.default_rng(3)
    columns = table(120, classes, rng)
    if sizes != "usual":  # no member, and one
        columns["label"] = [None, None, None, classes[1], *[classes[-1]] * 116]
        columns["label"][3] = classes[0] if len(classes) == 2 else classes[1]
    made, plan, synopsis = released(exact_release, KERNEL, columns, classes)
    scores = [score(GRID, own, 120, WIDTH) for own in by_class(columns, classes)]
    exact = scores[1] - scores[0] if len(classes) == 2 else np.stack(scores, axis=1)
    found = synopsis(GRID)
    parts = [
        one.certificate.approximation + one.certificate.rounding
        for one in plan.components
        for _ in range(one.outputs)
    ]
    assert np.abs(found - exact).max() <= made.combination.error(parts) < 0.2
    assert np.abs(exact).max() > 0.8
    assert plan.certificate.total <= 2 * math.prod(made.combination.peaks) * (1 + 1e-12)
    clear = np.abs(found) > 0.1 if found.ndim == 1 else np.ptp(found, axis=1) > 0.1
    best = (exact > 0) if found.ndim == 1 else exact.argmax(axis=1)
    predicted = synopsis.predict(GRID)
    assert predicted[clear].tolist() == np.array(classes)[best.astype(int)][clear].tolist()
    if sizes == "usual":
        assert_posterior(synopsis, np.stack(scores))
    grid = synopsis.grid(9).transpose(*synopsis.domain.names, ...)
    np.testing.assert_allclose(grid.values.reshape(found.shape), found, atol=1e-9)
    low, high = synopsis.interval(GRID)
    assert ((low <= exact) & (exact <= high)).all()
    assert np.isnan(synopsis(np.array([[0.5, 1.5]]))).all()


@pytest.mark.slow
def test_the_joint_release_is_the_same_function(exact_release):
    columns = table(120, ["no", "yes"], np.random.default_rng(4))
    _, plan, synopsis = released(exact_release, JOINT, columns, ["no", "yes"], k=40)
    no, yes = (score(GRID, own, 120, WIDTH) for own in by_class(columns, ["no", "yes"]))
    certificate, found = plan.certificate, synopsis(GRID)
    error = certificate.approximation + certificate.rounding
    assert np.abs(found - (yes - no)).max() <= error < 0.5
    assert certificate.lower_bound == 0 == synopsis.bound().lower_bound
    assert synopsis.predict(GRID).tolist() == np.where(found > 0, "yes", "no").tolist()


@pytest.mark.slow
def test_a_lattice_of_one_cell_is_released(exact_release):
    columns = table(120, ["no", "yes"], np.random.default_rng(5))
    _, plan, synopsis = released(exact_release, JOINT, columns, ["no", "yes"], k=1, h=1)
    corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    no, yes = (score(corners, own, 120, WIDTH) for own in by_class(columns, ["no", "yes"]))
    np.testing.assert_allclose(synopsis(corners), yes - no, atol=plan.certificate.rounding)


def test_the_gaussian_release_is_that_of_scikit_learn(exact_release):
    from sklearn.naive_bayes import GaussianNB

    classes = [0, 1, 2]
    columns = table(200, classes, np.random.default_rng(6))
    made, plan, synopsis = released(exact_release, NORMAL, columns, classes)
    groups = by_class(columns, classes)
    model = GaussianNB(var_smoothing=0.0).fit(
        np.vstack(groups), np.repeat(classes, [len(one) for one in groups])
    )
    kept = sum(len(one) for one in groups) / 200  # its priors are over the records that count
    exact = np.exp(model.predict_joint_log_proba(GRID)) * kept
    found = synopsis(GRID)
    vector = plan.components[0].certificate
    allowed = made.combination.error([vector.approximation + vector.rounding])
    assert np.abs(found - exact).max() <= allowed < 0.1
    assert found.max() > 1
    assert_posterior(synopsis, exact.T)
    clear = np.ptp(found, axis=1) > 0.1
    assert (synopsis.predict(GRID) == model.predict(GRID))[clear].all()
    grid = synopsis.grid(9).transpose(*synopsis.domain.names, ...)
    np.testing.assert_allclose(grid.values.reshape(-1, 3), found, atol=1e-9)
    assert grid["class"].values.tolist() == classes


def test_variances_have_a_floor_and_an_empty_class_no_score(exact_release):
    columns = {"x": [0.25] * 8, "y": [0.75] * 8, "label": ["yes"] * 8}
    _, _, synopsis = released(exact_release, NORMAL, columns, ["no", "yes"])
    values = synopsis(np.array([[0.25, 0.75], [0.3, 0.75], [0.25, 0.65]]))
    top = 1 / (2 * math.pi * 0.05**2)
    np.testing.assert_allclose(values, [top, top * math.exp(-0.5), top * math.exp(-2)], rtol=1e-3)


@pytest.mark.usefixtures("fixed")
def test_any_zarr_reader_can_rebuild_the_gaussian_scores(release):
    """With nothing but the store and FORMAT.md."""
    columns = table(200, ["no", "yes"], np.random.default_rng(7))
    *_, synopsis = released(release, NORMAL, columns, ["no", "yes"], epsilon="1.0")
    root = zarr.open_group(synopsis.url, mode="r")
    facts = dict(root.attrs)
    (component,) = facts["components"]
    assert component["entries"][:2] == ["count of no", "sum of x in no"]
    page = (Path(dbern.__file__).parent / "synopsis" / "FORMAT.md").read_text()
    assert [key for key in [*component, *facts["combine"]] if f"`{key}`" not in page] == []
    array = root["components/classes/coefficients"]
    assert array.metadata.dimension_names == ("entry",)
    numbers = array[...] * array.attrs["scale_factor"]
    scores = []
    assert facts["combine"]["squares"] == "centred"
    for p, *released_ in numbers.reshape(2, 5):
        moments = [m / 2 for m in released_[:2]] + [(q + p / 2) / 4 for q in released_[2:]]
        p, value = min(max(p, 0), 1), min(max(p, 0), 1)
        axes = zip(facts["combine"]["peaks"], facts["combine"]["floors"], strict=True)
        for i, (peak, floor) in enumerate(axes):
            mu = min(max(moments[i] / p, -0.5), 0.5)
            sigma = math.sqrt(max(min(moments[2 + i] / p, 0.25) - mu**2, floor**2))
            apart = GRID[:, i] - 0.5 - mu
            value = value * peak * floor / sigma * np.exp(-(apart**2) / (2 * sigma**2))
        scores.append(value)
    np.testing.assert_allclose(synopsis(GRID), scores[1] - scores[0], atol=1e-9)
    exact = np.array([p for own in by_class(columns, ["no", "yes"])
                      for p in [len(own) / 200]])  # fmt: skip
    band = component["certificate"]["total"]
    assert 0 < np.abs(numbers.reshape(2, 5)[:, 0] - exact).max() <= band
    assert synopsis.bound().total == pytest.approx(facts["certificate"]["total"])


def test_scores_of_a_lazy_array_and_of_many_points_are_the_same(exact_release):
    import dask.array as da

    columns = table(100, [0, 1, 2], np.random.default_rng(8))
    *_, synopsis = released(exact_release, NORMAL, columns, [0, 1, 2])
    lazy = synopsis(da.from_array(GRID, chunks=(20, 2)))
    assert lazy.shape == (81, 3)
    np.testing.assert_allclose(lazy.compute(scheduler="sync"), synopsis(GRID), atol=1e-12)
    many = np.tile(GRID, (500, 1))
    np.testing.assert_allclose(synopsis(many)[:81], synopsis(GRID), atol=1e-12)
    chances = synopsis.predict_proba(da.from_array(GRID, chunks=(20, 2)))
    assert chances.shape == (81, 3)
    np.testing.assert_allclose(chances.compute(scheduler="sync"), synopsis.predict_proba(GRID))
    arrow = pa.table({"x": GRID[:, 0], "y": GRID[:, 1]})
    names = ["probability_0", "probability_1", "probability_2"]
    assert synopsis.predict_proba(arrow).column_names == names
    assert np.isnan(synopsis.predict_proba(np.array([[0.5, 1.5]]))).all()


# --- what ranks, and what noise leaves of it ----------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "yes", "no"),
    [
        ({**KERNEL, "bandwidth": [0.05]}, [(540, 0.3, 0.03), (95, 0.8, 0.05)],
         [(360, 0.3, 0.03), (5, 0.8, 0.05)]),
        (NORMAL, [(900, 0.4, 0.06)], [(100, 0.4, 0.05)]),
    ],
    ids=["kernel", "gaussian"],
)  # fmt: skip
def test_points_are_ranked_by_probability_and_not_by_density(exact_release, target, yes, no):
    """Most records lie where the second class is only a little likelier than elsewhere."""
    rng = np.random.default_rng(9)
    parts = [rng.normal(middle, spread, (rows, 2)) for rows, middle, spread in (*yes, *no)]
    x, y = np.clip(np.vstack(parts), 0, 1).T
    labels = np.repeat(["yes", "no"], [sum(rows for rows, *_ in one) for one in (yes, no)])
    columns = {"x": x.tolist(), "y": y.tolist(), "label": labels.tolist()}
    *_, synopsis = released(exact_release, target, columns, ["no", "yes"])
    middle = yes[0][1]
    points = np.array([[middle] * 2, [0.8 if len(yes) > 1 else 0.65] * 2])
    dense, sparse = synopsis(points)
    assert dense > 2 * sparse > 0
    chances = synopsis.predict_proba(points)[:, 1]
    assert chances[0] < 0.9 < 0.92 < chances[1]
    decisions = synopsis.decision_function(points)
    np.testing.assert_allclose(decisions, np.log(chances / (1 - chances)), rtol=1e-6)


def test_where_noise_hides_the_likelihoods_the_shares_decide():
    shares, noise = np.array([0.75, 0.25]), [np.array([0.01, 0.01])] * 2 + [0.001]
    lost = _kernel_log_scores(np.full((2, 2, 1), -0.02), shares, [9.0] * 2, [0.0] * 2, noise)
    assert (lost[0] - lost[1]).item() == pytest.approx(math.log(3))
    one = np.array([[[0.3], [-0.02]], [[-0.02], [-0.02]]])  # the first axis knows the first class
    found = _kernel_log_scores(one, shares, [9.0] * 2, [0.0] * 2, noise)
    assert math.log(3) < (found[0] - found[1]).item() < math.log(3 * 31 * 3)
    absent = _kernel_log_scores(one, np.array([0.75, -0.1]), [9.0] * 2, [0.0] * 2, noise)
    assert (absent[0] - absent[1]).item() > math.log(0.75 / 0.001) - 1
    assert np.isfinite(absent).all()


def test_a_variance_that_noise_hides_is_as_large_as_the_noise():
    """And no larger than what the classes have in common, which is 1.5 times its noise here."""
    moments = np.array([[0.5, 0.0, -0.001], [0.5, 0.0, 0.02]])
    logs = _gaussian_log_scores(moments, np.array([[0.0], [0.3]]), [0.001], 0.01)
    common = 1.5 * 0.02 / math.sqrt(2)  # of two variances, each over a share of a half
    apart = (-0.002 - common) ** 2 + (0.04 - common) ** 2
    other = common + (1 - 0.02**2 / apart) * (0.04 - common)
    found = 0.3**2 / (2 * (logs[:, 0] - logs[:, 1]))
    np.testing.assert_allclose(found, [common, other], rtol=1e-2)
    absent = _gaussian_log_scores(-moments, np.array([[0.0]]), [0.001], 0.01)
    assert np.isfinite(absent).all()


@pytest.mark.parametrize("noise", [1e-300, 1e-9, 1e9, 1e300])
def test_whatever_the_noise_is_said_to_be_there_are_log_scores(noise):
    """A synopsis may be a stranger's."""
    moments = np.array([[0.5, 0.1, 0.03], [0.5, -0.1, 0.03], [0.0, 1.0, -1.0]])
    for centred in (False, True):
        logs = _gaussian_log_scores(moments, np.array([[0.2]]), [1e-3], noise, centred=centred)
        assert np.isfinite(logs).all()


def test_differences_of_classes_that_noise_explains_are_drawn_together():
    """Half of the noise apart is nothing; twenty times as much is kept, but for 1/400 of it."""
    noise = 1e-3
    for apart, kept in ((0.5, 0.0), (20.0, 1 - 1 / 400)):
        step = apart * noise * math.sqrt(2)  # of two means, both noisy, of two classes
        moments = np.array([[0.5, 0.25 * step, 0.02], [0.5, -0.25 * step, 0.02]])
        points = np.array([[0.3], [-0.3]])
        # Means are over shares of a half, so their noise is twice as much; half of it if centred.
        logs = _gaussian_log_scores(moments, points, [0.01], noise, centred=True)
        odds = (logs[0] - logs[1])[0]
        whole = 0.6 * step / (2 * 0.04)
        assert odds == pytest.approx(kept * whole, rel=0.05, abs=1e-9)


def test_noise_leaves_more_of_the_ranking_than_a_rival_s_does():
    """Means by class, variances about them and counts at a third of epsilon each, in 20 lines."""
    rng = np.random.default_rng(14)
    rows, epsilon, axes = 20_000, 0.1, 6
    labels = rng.random(rows) < 0.25
    u = np.clip(rng.normal(0, 0.1, (rows, axes)) + 0.05 * labels[:, None], -0.5, 0.5)
    groups = [u[~labels], u[labels]]
    sums = np.array([[len(own), *own.sum(axis=0), *(own**2).sum(axis=0)] for own in groups]) / rows
    stored = np.array([[own[0], *2 * own[1:7], *4 * own[7:] - own[0] / 2] for own in sums])

    def ranked(logs):
        order, yes = np.argsort(np.argsort(logs[1] - logs[0])), int(labels.sum())
        return (order[labels].sum() - yes * (yes - 1) / 2) / (yes * (rows - yes))

    found = []
    for _ in range(12):
        scale = (2 + 3.0 * axes) / rows / epsilon
        moments = _uncentred(stored + rng.laplace(0, scale, stored.shape))
        noise = math.sqrt(2) * scale
        ours = ranked(_gaussian_log_scores(moments, u, [0.01] * axes, noise, centred=True))
        each, logs = 3 * axes / epsilon, []
        for own in groups:
            mean = (own.sum(axis=0) + rng.laplace(0, each, axes)) / len(own)
            mean = np.clip(mean, -0.5, 0.5)
            spread, apart = ((own - mean) ** 2).sum(axis=0), (0.5 + np.abs(mean)) ** 2
            variance = np.abs(spread + rng.laplace(0, apart * each)) / len(own)
            likely = -np.log(variance) / 2 - (u - mean) ** 2 / (2 * variance)
            logs.append(math.log(len(own)) + likely.sum(axis=1))
        found.append([ranked(logs), ours])
    rival, ours = np.mean(found, axis=0)
    assert ours > rival + 0.02


@pytest.mark.parametrize("axes", [1, 3])
def test_log_scores_without_noise_are_logarithms_of_scores(axes):
    rng = np.random.default_rng(10)
    shares, peaks, floors = np.array([0.5, 0.3, 0.2]), [4.0] * axes, [0.01] * axes
    sums = rng.uniform(-0.1, 1.0, (axes, 3, 50))
    noise = [np.full(3, 1e-12)] * axes + [1e-12]
    exact = np.log(_kernel_scores(sums, shares, peaks, floors))
    found = _kernel_log_scores(sums, shares, peaks, floors, noise)
    np.testing.assert_allclose(found - found[0], exact - exact[0], atol=1e-8)
    moments = np.array([[p, 0.1 * p, 0.05 * p] for p in shares])
    points = rng.uniform(-0.5, 0.5, (50, 1))
    exact = np.log(_gaussian_scores(moments, points, [4.0], [0.1]))
    found = _gaussian_log_scores(moments, points, [0.1], 1e-12)
    np.testing.assert_allclose(found - found[0], exact - exact[0], atol=1e-9)


@pytest.mark.slow
def test_the_noise_that_decisions_expect_is_public_and_what_there_is(release, monkeypatch):
    """It is known with no coefficient read, the same for other records, and that of the draws."""
    columns = table(120, ["no", "yes"], np.random.default_rng(11))
    *_, noisy = released(release, KERNEL, columns, ["no", "yes"], epsilon="1.0")
    opened = dbern.open(noisy.url)
    with monkeypatch.context() as patch:
        for name in ("values", "shard"):
            patch.setattr(ReleasedStore, name, lambda *_: pytest.fail("a coefficient was read"))
        expected = opened._function.evaluation(None, "decision").noise
    points = np.linspace(0.0, 1.0, 201)
    draws = {}
    for array, deviation in zip(noisy.arrays[:4], expected, strict=False):
        exact = by_class(columns, ["no", "yes"])[int(array.name.endswith("yes"))]
        axis = int(array.axes == ("y",))
        bumps = np.exp(-(((points[:, None] - exact[:, axis]) / WIDTH) ** 2) / 2).sum(axis=1)
        truth = bumps / (120 * WIDTH * math.sqrt(2 * math.pi))
        values = array.values(points[:, None], array.smoothing(array.order), 201)
        draws[array.name] = np.sqrt(np.mean((values - truth) ** 2)) / deviation
    assert len(draws) == 4
    assert all(0.3 < ratio < 2.5 for ratio in draws.values()), draws
    assert 0.6 < np.sqrt(np.mean(np.square(list(draws.values())))) < 1.5, draws


@pytest.mark.slow
def test_probabilities_by_the_command_line(project, exact_release, run):
    columns = table(100, ["no", "yes"], np.random.default_rng(12))
    *_, synopsis = released(exact_release, NORMAL, columns, ["no", "yes"])
    queries = project.folder / "queries.parquet"
    pq.write_table(pa.table({"id": np.arange(81), "x": GRID[:, 0], "y": GRID[:, 1]}), queries)
    ran = run("query", "out.zarr", queries, "--out", "a.parquet", "--probabilities")
    assert ran.code == 0, ran.err
    found = pq.read_table(project.folder / "a.parquet")
    assert found.column_names == ["id", "x", "y", "probability_no", "probability_yes"]
    both = np.column_stack([found["probability_no"], found["probability_yes"]])
    np.testing.assert_array_equal(both, synopsis.predict_proba(GRID))


@pytest.mark.slow
def test_a_joint_release_leaves_no_probabilities(exact_release):
    columns = table(120, ["no", "yes"], np.random.default_rng(13))
    *_, synopsis = released(exact_release, JOINT, columns, ["no", "yes"], k=2, h=1)
    np.testing.assert_array_equal(synopsis.decision_function(GRID), synopsis(GRID))
    with pytest.raises(dbern.SpecError, match=r'joint release .*release = "factored"'):
        synopsis.predict_proba(GRID)


# --- plans and errors --------------------------------------------------------------------------


def test_a_plan_shows_vectors_and_the_function():
    text = plan_files(spec({**NORMAL, "std_floor": [0.1]}, THREE, 1, 10**6), ()).explain(
        details=True
    )
    assert "vector       9 numbers" in text
    assert "(2 + 3 x 1) / n" in text
    assert "the function sup error <=" in text
    large = plan_files(spec({**KERNEL, "floor": 0.01}, LABEL, 2, 10**6, k=60, h=8), ())
    assert 0.01 < large.certificate.total < 1  # and not the public range, 14


@pytest.mark.parametrize(("classes", "least"), [(LABEL, 0.25), (THREE, 0.37)])
def test_a_plan_predicts_the_share_of_wrong_classes(classes, least):
    def predicted(n):
        notes = plan_files(spec({**NORMAL, "std_floor": [0.05]}, classes, 3, n), ()).notes
        wrong = re.match(r"for typical rows of equally large classes (\S+) %", notes[0])[1]
        return float(wrong) / 100, notes

    shares = [predicted(n)[0] for n in (10**7, 10**4, 300)]
    assert shares == sorted(shares)
    assert shares[0] == pytest.approx(least, abs=0.02)
    assert "one class for all " in predicted(300)[1][0]
    assert any("WARNING: no better" in note for note in predicted(30)[1])
    assert not any("WARNING" in note for note in predicted(10**4)[1])
