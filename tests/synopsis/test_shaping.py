"""Shapes asked of a released function: they hold, they are labelled, and the band still covers."""

from __future__ import annotations

import json
import pickle
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from banding import unshrunk
from projects import fix_reservations, released_in
from shared import restated

import dbern
from dbern.bernstein.kernels import Gaussian
from dbern.certify.certificate import SHRUNK_FRACTION
from dbern.errors import SpecError
from dbern.privacy.covariance import NoiseCovariance
from dbern.synopsis.smoothing import shrink
from dbern.synopsis.tables import answer

BOUNDS = {"x": [0.0, 10.0], "y": [-1.0, 1.0]}
BANDWIDTH = {"x": 1.5, "y": 0.4}
BOTH = ("normalized", "nonnegative")  # in another order than they are made
ROWS = 400
OTHERS = [pytest.param(h, marks=pytest.mark.slow) for h in (1, 9, "auto")]


def columns():
    """Mass that reaches over the lower bound of x and falls, then rises a little at its end."""
    generator = np.random.default_rng(4)
    x = np.abs(generator.normal(0, 2.0, ROWS)).clip(0, 10)
    x[:40] = generator.uniform(9, 10, 40)
    return {"x": x, "y": generator.normal(0.2, 0.3, ROWS).clip(-1, 1)}


def released(folder, client, names, epsilon, mechanism, groups=None, bandwidth=None):
    return released_in(
        folder,
        client,
        columns() if groups is None else {**columns(), "group": groups},
        epsilon,
        data__bounds={name: BOUNDS[name] if name in names else None for name in BOUNDS},
        target={"bandwidth": bandwidth or [BANDWIDTH[name] for name in names]},
        mechanism=mechanism,
        budget={"epsilon": epsilon},
        **({} if groups is None else {"data__group": {"column": "group", "values": ["a", "b"]}}),
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory, client):
    """One axis with little noise, and two axes with so much that values are negative."""

    def folder(name):
        return tmp_path_factory.mktemp(name)

    with pytest.MonkeyPatch.context() as patch:  # bands may fail: noise of one key does not
        fix_reservations(patch.setattr)
        return {
            1: released(folder("one"), client, ["x"], "100", {"k": 24, "h": 16}),
            2: released(folder("two"), client, ["x", "y"], "0.3", {"k": [8, 6], "h": 3}),
        }


@pytest.fixture(params=[1, 2])
def synopsis(made, request):
    return made[request.param]


@pytest.fixture
def two(made):
    return made[2]


def truth(synopsis, points, bandwidth=None):
    """The non-private density, straight from its definition."""
    data, total = columns(), 1.0
    widths = bandwidth or [BANDWIDTH[name] for name in synopsis.domain.names]
    for axis, column, width in zip(synopsis.domain.axes, points.T, widths, strict=True):
        total = total * Gaussian(width)(column[:, None] - data[axis.name])
    return np.mean(total, axis=1)


def points_of(synopsis, count):
    axes = [np.linspace(axis.low, axis.high, count) for axis in synopsis.domain.axes]
    return np.column_stack([one.ravel() for one in np.meshgrid(*axes, indexing="ij")])


def integral(grid):
    for name in grid.dims:
        grid = grid.integrate(name)
    return float(grid)


def fine(synopsis, h=None):
    grid = synopsis.grid(4001 if synopsis.domain.dimensions == 1 else 401, h=h)
    return grid.transpose(*synopsis.domain.names, ...)


@pytest.mark.slow
@pytest.mark.parametrize("h", [None, *OTHERS])
def test_every_shape_holds_on_dense_points(synopsis, h):
    raw, shaped = synopsis, synopsis.shaped
    values = fine(shaped("nonnegative"), h).values
    np.testing.assert_array_equal(values, np.maximum(fine(raw, h).values, 0.0))
    both = fine(shaped(*BOTH), h)
    assert both.min() >= 0
    for grid in (both, fine(shaped("normalized"), h)):
        assert integral(grid) == pytest.approx(1, abs=2e-4)
    assert integral(fine(raw, h)) != pytest.approx(1, abs=2e-2)


# --- the label -------------------------------------------------------------------------------


def test_post_processing_is_labelled_in_order(two):
    assert "post_processing" not in two.metadata
    assert two.grid(3).attrs == {"long_name": "density per unit of x and y"}
    shaped = two.shaped(*BOTH)
    done = ["nonnegative", "normalized"]
    assert shaped.metadata["post_processing"] == done
    for grid in (shaped.grid(3), shaped(shaped.grid(3))):
        assert grid.attrs["post_processing"] == "nonnegative, normalized"
    assert {k: v for k, v in shaped.metadata.items() if k != "post_processing"} == two.metadata
    again = two.shaped("normalized").shaped("nonnegative").shaped("nonnegative")
    assert again.metadata["post_processing"] == done
    assert two.shaped(*done).metadata == shaped.metadata
    assert "nonnegative, normalized" in repr(shaped)
    assert "post_processing" not in two.metadata


def test_answers_carry_the_label(two, tmp_path):
    queries, answers = tmp_path / "queries.parquet", tmp_path / "answers.parquet"
    points = points_of(two, 21)
    pq.write_table(pa.table({"x": points[:, 0], "y": points[:, 1]}), queries)
    shaped = two.shaped("nonnegative", "normalized")
    assert answer(shaped, queries, answers).rows == len(points)
    table = pq.read_table(answers)
    np.testing.assert_allclose(table["value"].to_numpy(), shaped(points), rtol=1e-12)
    label = table.schema.field("value").metadata[b"post_processing"]
    assert json.loads(label) == ["nonnegative", "normalized"]
    answers.unlink()
    answer(two, queries, answers)
    assert not pq.read_schema(answers).field("value").metadata


# --- it answers as a synopsis does -----------------------------------------------------------


@pytest.mark.slow
def test_it_answers_as_a_synopsis_does(two, client):
    import dask.array as da

    shaped = two.shaped(*BOTH)
    points = points_of(two, 9)
    expected = shaped(points)
    np.testing.assert_allclose(shaped.grid(9).values.T.ravel(), expected, rtol=1e-10, atol=1e-15)
    table = {"y": points[:, 1], "x": points[:, 0]}
    np.testing.assert_array_equal(shaped(table), expected)
    assert np.isnan(shaped(np.array([[11.0, 0.0], [np.nan, 0.0]]))).all()
    assert shaped.verify() == two.verify()
    sent = pickle.dumps(shaped)
    assert len(sent) < 1000
    received = pickle.loads(sent)
    assert received is not shaped
    assert pickle.loads(sent) is received  # shaped once for all blocks of a worker
    np.testing.assert_array_equal(received(points), expected)
    lazy = shaped(da.from_array(points, chunks=(20, 2)))
    for values in (lazy.compute(scheduler="sync"), client.compute(lazy).result(timeout=300)):
        np.testing.assert_allclose(values, expected, rtol=1e-10, atol=1e-15)


def test_lazy_answers_stay_lazy(two, monkeypatch):
    import dask.array as da

    monkeypatch.setattr("dbern.synopsis.shaping.positive_mean", lambda _: pytest.fail("too early"))
    lazy = two.shaped(*BOTH)(da.zeros((50, 2), chunks=(10, 2)))
    assert isinstance(lazy, da.Array)
    assert lazy.numblocks == (5,)
    low, high = two.shaped("nonnegative").interval(da.zeros((50, 2), chunks=(10, 2)))
    assert isinstance(low, da.Array)
    assert isinstance(high, da.Array)
    assert (low <= high).all().compute(scheduler="sync")


# --- bands -----------------------------------------------------------------------------------

SHAPES = [("nonnegative",), ("normalized",), ("nonnegative", "normalized")]


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("shapes", SHAPES, ids=" ".join)
def test_no_step_errs_by_more_than_the_raw_error_and_what_it_says(synopsis, shapes):
    """The band's proof itself: ``sup |g - F| <= sup |f - F| + shaping``, whatever F is."""
    points = points_of(synopsis, 3001 if synopsis.domain.dimensions == 1 else 101)
    exact = truth(synopsis, points)
    raw = np.abs(synopsis(points) - exact).max()
    shaped = synopsis.shaped(*shapes)
    parts = shaped.bound()
    error = np.abs(shaped(points) - exact).max()
    assert error <= raw + parts.shaping + 1e-12
    assert error <= shaped.band() == parts.total
    assert parts.total == pytest.approx(synopsis.band() + parts.shaping)
    assert (parts.shaping == 0) == (shapes == ("nonnegative",))
    promised = [function.promises().any_database for function in (synopsis, shaped)]
    assert promised[1] == pytest.approx(promised[0] + parts.shaping)


def test_the_widening_is_needed_and_not_much_more_than_needed(made):
    """Where F has another shape than what was asked for, the raw band is wrong and ours is not."""
    one = made[1]
    points = points_of(one, 3001)
    exact = truth(one, points)
    for shapes in (("normalized",), ("nonnegative", "normalized")):
        shaped = one.shaped(*shapes)
        error = np.abs(shaped(points) - exact).max()
        assert one.band() < error <= shaped.band()
        moved = np.abs(shaped(points) - one(points)).max()
        assert shaped.bound().shaping <= 1.1 * moved + 1e-12


@pytest.mark.parametrize("shapes", SHAPES, ids=" ".join)
def test_the_interval_contains_the_curve_within_the_band(synopsis, shapes):
    points = points_of(synopsis, 31)
    shaped = synopsis.shaped(*shapes)
    values, (low, high) = shaped(points), shaped.interval(points, beta=0.1)
    slack = 1e-12
    assert (low <= values).all()
    assert (values <= high).all()
    assert (values - shaped.band(0.1) - slack <= low).all()
    assert (high <= values + shaped.band(0.1) + slack).all()
    exact = truth(synopsis, points)
    assert (low - slack <= exact).all()
    assert (exact <= high + slack).all()


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
@pytest.mark.parametrize("shapes", SHAPES, ids=" ".join)
def test_bands_cover_over_simulated_noise(synopsis, shapes):
    """Fresh noise on the true lattice values: 95 % bands, and the same with no room for chance.

    A band with a wrong shaping part could hide behind the certificate's slack. So the error that
    was drawn also takes the place of the certificate.
    """
    points = points_of(synopsis, 301 if synopsis.domain.dimensions == 1 else 41)
    exact = truth(synopsis, points)
    nodes = [
        np.linspace(axis.low, axis.high, k + 1)
        for axis, k in zip(synopsis.domain.axes, synopsis.arrays[0].lattice.k, strict=True)
    ]
    mesh = np.column_stack([one.ravel() for one in np.meshgrid(*nodes, indexing="ij")])
    lattice = truth(synopsis, mesh).reshape(synopsis.arrays[0].lattice.shape)
    generator, misses = np.random.default_rng(8), 0
    scale = synopsis.metadata["components"][0]["noise"]["scale"]
    width, raw, shaped = synopsis.band(), dbern.open(synopsis.url), synopsis.shaped(*shapes)
    for _ in range(20):
        noise = generator.laplace(0, scale, lattice.shape)
        for array in (raw.arrays[0], shaped.arrays[0]):
            vars(array)["_lattice_values"] = lattice + noise
            array._polynomials._values.clear()
        shaped.arrays[0]._scales.clear()
        error, drawn = (np.abs(one(points) - exact).max() for one in (shaped, raw))
        moved = shaped.arrays[0].moved
        assert error <= drawn + moved + 1e-12
        misses += error > width + moved
    assert misses <= 1


# --- bins that are shrunk --------------------------------------------------------------------


@pytest.fixture(scope="module")
def noisy(tmp_path_factory, client):
    """Bins of two axes of which most are empty."""
    with pytest.MonkeyPatch.context() as patch:
        fix_reservations(patch.setattr)
        folder, mechanism = tmp_path_factory.mktemp("noisy"), {"noise": "binned-laplace", "k": 30}
        return released(folder, client, ["x", "y"], "4", mechanism, bandwidth=[0.5, 0.1])


def test_bins_are_shrunk_and_what_stands_out_of_it_stays():
    """A noise that is told wrong by half leaves noise, or takes peaks."""
    noise = np.random.default_rng(6).laplace(scale=0.5**0.5, size=(40, 40))  # of deviation one
    kept = shrink(noise, NoiseCovariance(1.0))
    assert (kept == 0).mean() > 0.8
    loud = shrink(noise, NoiseCovariance(0.5))
    assert 10 * np.square(kept).sum() < 0.2 * np.square(noise).sum() < 2 * np.square(loud).sum()
    noise[20, 20] += 40
    noise[5:12, 5:12] += 3
    kept = shrink(noise, NoiseCovariance(1.0))
    assert kept[20, 20] > 0.95 * noise[20, 20]
    assert kept[6:11, 6:11].sum() > 0.95 * noise[6:11, 6:11].sum()
    assert shrink(noise, NoiseCovariance(2.0))[6:11, 6:11].sum() < 0.92 * noise[6:11, 6:11].sum()


def test_sums_of_windows_have_the_variance_that_is_counted():
    """At the ends of the domain, and of noise that leaves the sum of the bins alone."""
    assert shrink(np.ones((3, 3)), NoiseCovariance(1.0)).max() == pytest.approx(1 - 4 / 9)
    assert shrink(np.ones((3, 3)), NoiseCovariance(1.0, -1 / 8)).max() == pytest.approx(1)


@pytest.mark.slow
def test_bins_are_shrunk_by_as_much_as_the_store_and_the_certificate_say(noisy):
    """At the order of the release alone; the ends of the band stay those of what was released."""
    points, plain = points_of(noisy, 81), unshrunk(noisy)
    exact = truth(noisy, points, [0.5, 0.1])
    own, raw = noisy(points), plain(points)
    (array,), (raw_array,) = noisy.arrays, plain.arrays
    moved, most = (
        np.abs(own - raw).max(),
        SHRUNK_FRACTION
        * raw_array.certificate(raw_array.smoothing(), Fraction(1, 20), 1, selected=False).noise,
    )
    assert 0.5 * array.shrunk_distance < moved <= array.shrunk_distance <= most
    assert array.shrunk_distance > 0.99 * most  # here it is scaled down
    assert np.abs(own - exact).max() < np.abs(raw - exact).max()
    assert noisy.band() == pytest.approx(plain.band() + array.shrunk_distance)
    assert noisy.bound().noise == pytest.approx(plain.bound().noise + array.shrunk_distance)
    assert noisy.band(about="any-database") <= noisy.metadata["certificate"]["total"]
    ends = [one.interval(points) for one in (noisy, plain)]
    np.testing.assert_array_equal(ends[0][0], np.minimum(ends[1][0], own))
    np.testing.assert_array_equal(ends[0][1], np.maximum(ends[1][1], own))
    order = array.order[0] + 1
    np.testing.assert_array_equal(*(one(points, h=order) for one in (noisy, plain)))
    np.testing.assert_array_equal(*(one(points, h="auto") for one in (noisy, plain)))


# --- densities by group ----------------------------------------------------------------------


def test_densities_by_group_are_clipped_and_nothing_else(tmp_path, client, fixed):
    groups = np.random.default_rng(5).choice(["a", "b", "c"], ROWS)
    raw = released(tmp_path, client, ["x"], "0.1", {"k": 12, "h": 3}, groups)
    shaped, points = raw.shaped("nonnegative"), points_of(raw, 501)
    kernels = Gaussian(BANDWIDTH["x"])(points - columns()["x"])
    exact = np.column_stack([(kernels * (groups == one)).mean(axis=1) for one in "ab"])
    values = shaped(points)
    np.testing.assert_array_equal(values, np.maximum(raw(points), 0.0))
    assert (raw(points) < -0.01).any(axis=0).all()
    assert (np.abs(values - exact) <= np.abs(raw(points) - exact)).all()
    assert shaped.bound() == raw.bound()
    low, high = shaped.interval(points)
    assert low.min() == 0
    assert ((low <= exact) & (exact <= high)).all()
    np.testing.assert_allclose(shaped.grid(501).values, values, atol=1e-12)
    with pytest.raises(SpecError, match='can only be "nonnegative"'):
        shaped.shaped("normalized")


# --- wrong requests --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        *(
            (lambda two, shapes=shapes: two.shaped(*shapes), message)
            for shapes, message in (
                ((), "none is named. Write nonnegative or normalized, or both"),
                (("positive",), 'shape "positive": not known. Write nonnegative or normalized'),
                (("increasing:x",), 'shape "increasing:x": not known. Write nonnegative or'),
                ((["nonnegative"],), "not known. Write nonnegative or"),
                ((3,), "not known. Write nonnegative or"),
            )
        ),
        (
            lambda two: two.shaped("nonnegative")(np.zeros((1, 2)), method="nearest"),
            'method = "nearest": only the polynomial is shaped',
        ),
    ],
)
def test_wrong_shapes_are_refused(two, ask, message):
    with pytest.raises(SpecError, match=message):
        ask(two)


def with_facts(synopsis, **changes):
    """The same store as if it held something else."""
    opened = dbern.open(synopsis.url)
    return restated(opened, {**opened.metadata, **changes})


def test_a_function_that_is_not_a_density_is_not_normalized_and_clipping_widens_its_band(two):
    target = {**two.metadata["target"], "kind": "regression"}
    other = with_facts(two, target=target)
    with pytest.raises(SpecError, match="only a density integrates to one, and this is a regress"):
        other.shaped("nonnegative", "normalized")
    with pytest.raises(SpecError, match='"mean" of arrays cannot be shaped'):
        with_facts(two, combine={"kind": "mean", "low": 0.0, "high": 1.0}).shaped("nonnegative")
    clipped = other.shaped("nonnegative")
    vars(clipped)["metadata"] = {**clipped.metadata, "target": target}
    points = points_of(two, 101)
    depth = -two(points).min()
    assert depth <= clipped.bound().shaping <= 1.2 * depth
    assert clipped.interval(points)[0].min() < 0


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (("normalized",), 'no positive integral. Add "nonnegative", or leave it out'),
        (("normalized", "nonnegative"), "no positive integral. Leave it out"),
    ],
)
def test_values_without_a_positive_integral_are_not_normalized(two, shapes, message):
    shaped = two.shaped(*shapes)
    vars(shaped.arrays[0])["_lattice_values"] = np.full(two.arrays[0].lattice.shape, -1.0)
    with pytest.raises(SpecError, match=message):
        shaped(np.zeros((1, 2)))


def test_an_integral_that_is_not_known_well_is_refused(two, monkeypatch):
    monkeypatch.setattr("dbern.synopsis.shaping.positive_mean", lambda _, **__: (0.5, 0.01))
    with pytest.raises(SpecError, match=r'not known to within 1%\. Leave out "nonnegative"'):
        two.shaped("nonnegative", "normalized").grid(3)
