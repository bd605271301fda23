"""Where two releases differ: the band covers the difference everywhere, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from banding import columns, drawn, planned
from questioned import databases, too_few

from dbern.bernstein.kernels import Gaussian
from dbern.errors import SpecError
from dbern.report import changes as module
from dbern.report.changes import CELLS_PER_AXIS, change_between, change_picture

MIDDLES = {axes: (np.arange(count) + 0.5) / count for axes, count in CELLS_PER_AXIS.items()}


def drawn_changes(axes, draws, beta):
    """Changes of pairs of releases of two databases, and the change without noise."""
    rows = [databases(axes, 5000)[name] for name in ("clustered", "smooth")]
    at, densities = MIDDLES[axes], []
    for one in rows:
        kernels = [Gaussian(0.1)(at[:, None] - column) for column in one.T]
        letters = "yx"[-axes:]
        terms = ",".join(f"{letter}n" for letter in "xy"[:axes])
        densities.append(np.einsum(f"{terms}->{letters}", *kernels) / len(one))
    keys = range(1, 2 * draws, 2), range(2, 2 * draws + 1, 2)
    sides = (drawn(planned(axes), columns(one), own) for one, own in zip(rows, keys, strict=True))
    for new, old in zip(*sides, strict=True):
        yield change_between(new, old, beta), densities[0] - densities[1]


@pytest.mark.slow
@pytest.mark.turns("coverage", 8)
@pytest.mark.parametrize(
    ("axes", "draws"),
    [
        (1, 5),
        (2, 1),
        pytest.param(1, 200, marks=pytest.mark.slow),
        pytest.param(2, 10, marks=pytest.mark.slow),
    ],
)
def test_the_band_covers_the_difference_everywhere_at_least_as_often_as_it_says(axes, draws):
    found = 0
    for change, known in drawn_changes(axes, draws, "0.2"):
        inside = (change["low"].values <= known) & (known <= change["high"].values)
        found += int(inside.all())
        assert (change["low"] <= change["value"]).all()
        assert (change["value"] <= change["high"]).all()
        assert change["value"].dims == ("y", "x")[-axes:]
        np.testing.assert_allclose(change["x"], MIDDLES[axes])
        proven = (change["low"].values > 0) | (change["high"].values < 0)
        assert 0 < proven.mean() < 1
    assert too_few({("all",): found}, draws, 0.8) == {}


def test_each_side_has_half_of_beta():
    rows = databases(1, 5000)
    (new,) = drawn(planned(1), columns(rows["clustered"]), [1])
    (old,) = drawn(planned(1), columns(rows["smooth"]), [2])
    change = change_between(new, old, "0.1")
    points = MIDDLES[1][:, None]
    ends = [side.interval(points, "0.0475") for side in (new, old)]  # and .0025 for the rows
    # Points may be on the edge of two cells of a band, but for roundings.
    whole = {"x": (None, None)}
    counts = [side.distribution().count(whole, beta="0.0025") for side in (new, old)]
    shares = [[float(part) / 5000 for part in (one.low, one.high)] for one in counts]

    def scaled(end, divisors):
        return end / np.where(end < 0, *divisors)

    low, high = (
        [scaled(ends[side][i], shares[side][:: 1 if i == 0 else -1]) for side in (0, 1)]
        for i in (0, 1)
    )
    np.testing.assert_allclose(change["low"], low[0] - high[1], rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(change["high"], high[0] - low[1], rtol=1e-3, atol=1e-9)
    total = [float(one.value) / 5000 for one in counts]
    np.testing.assert_allclose(
        change["value"], new(points) / total[0] - old(points) / total[1], atol=1e-9
    )
    names = {"new": "demo", "old": "demo", "beta": 0.1}
    assert change.attrs == {
        **names,
        **{key: pytest.approx(5000, abs=60) for key in ("new_rows", "old_rows")},
    }


def test_missing_values_are_no_change():
    """Half of the rows of one release had none: its density was half as high everywhere."""
    x = databases(1, 5000)["smooth"]
    gone = np.where(np.arange(5000)[:, None] % 2, x, np.nan)
    (new,), (old,) = (drawn(planned(1), columns(rows), [key]) for key, rows in ((1, gone), (2, x)))
    change = change_between(new, old)
    assert not ((change["low"] > 0) | (change["high"] < 0)).any()
    assert change.attrs["new_rows"] == pytest.approx(2500, abs=60)
    answer = new.distribution().compare(old.distribution(), {"x": (0.2, 0.5)})
    here, there = (f"{change.attrs[name]:,}".replace(",", " ") for name in ("new_rows", "old_rows"))
    note = f"about {here} rows here and {there} there had a value"
    smoothed = new.distribution().compare(old.distribution(), {"x": (0.2, 0.5)}, target="smoothed")
    assert note in str(answer)
    assert str(smoothed).endswith(note)


@pytest.mark.slow
def test_groups_are_compared_one_by_one():
    roles = '{"group": {"column": "g", "values": ["a", "b"]}}'
    x = np.random.default_rng(1).uniform(size=5000)
    new, old = (next(drawn(planned(1, roles=roles), {"x": x, "g": g * 1.0}, [1]))
                for g in (x > 0.5, x < 0.5))  # fmt: skip
    change = change_between(new, old)
    assert change["group"].values.tolist() == ["a", "b"]
    first = change["low"].sel(group="a").values, change["high"].sel(group="b").values
    assert first[0][100] > 0 > first[1][100]


def regression(name="r", most=1.0, high=1.0):
    roles = f'{{"response": {{"column": "{name}", "bounds": [0.0, {high}]}}}}'
    x = most * databases(1, 5000)["uniform"][:, 0]
    case = planned(1, roles=roles, kind="nadaraya-watson")
    return next(drawn(case, {"x": x, name: x}, [1]))


@pytest.mark.slow
def test_regressions_are_compared():
    change = change_between(regression(), regression())
    np.testing.assert_allclose(change["value"], 0, atol=1e-12)
    assert change["value"].attrs["long_name"] == "r"
    assert ((change["low"] < 0) & (change["high"] > 0)).all()


@pytest.mark.parametrize(
    ("other", "said"),
    [({"name": "s"}, "s from 0.0 to 1.0"), ({"high": 0.5}, "r from 0.0 to 0.5")],
)
def test_regressions_of_other_responses_are_no_change(other, said):
    """Bounds cut a response, and another column is another one."""
    with pytest.raises(SpecError, match=f"response is r from 0.0 to 1.0 here and {said} there"):
        change_between(regression(), regression(**other))


@pytest.mark.slow
def test_where_one_of_two_regressions_has_no_rows_there_is_no_change():
    change = change_between(regression(), regression(most=0.3))
    missing = np.isnan(change["low"].to_numpy())
    assert missing[change["x"] > 0.9].all()
    assert not missing[change["x"] < 0.3].any()
    for name in ("value", "high"):
        np.testing.assert_array_equal(np.isnan(change[name].to_numpy()), missing)
    assert change_picture(change, "png", "r")


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (lambda: planned(1, bandwidth=0.2), "bandwidth is .* here and .* there.*by it alone"),
        (lambda: planned(2), "over other axes or bounds"),
        (lambda: planned(1, roles='{"bounds": {"x": [0.0, 2.0]}}'), "over other axes or bounds"),
        (lambda: planned(1, edges="periodic"), "edges is natural here and periodic there"),
        (
            lambda: planned(1, roles='{"resolution": {"x": 0.25}}'),
            "resolution is None here and rounded to 0.25 there",
        ),
        (lambda: planned(1, roles='{"outside": "clamp"}'), "outside is drop here and clamp there"),
    ],
)
def test_releases_that_are_not_alike_are_refused(case, said):
    rows = columns(databases(2, 5000)["uniform"])
    new, old = (next(drawn(made, rows, [1])) for made in (planned(1), case()))
    with pytest.raises(SpecError, match=said):
        change_between(new, old)


@pytest.mark.slow
def test_what_has_no_map_of_change_is_refused():
    density, _, solid = (
        next(drawn(planned(axes), columns(databases(axes, 50)["smooth"]), [1]))
        for axes in (1, 2, 3)
    )
    with pytest.raises(SpecError, match="two densities, or of two regressions"):
        change_between(density, regression())
    with pytest.raises(SpecError, match="one or two axes of numbers"):
        change_between(solid, solid)


def test_one_side_of_a_band_in_place_of_the_other_is_caught(monkeypatch):
    exact = module._value_and_band

    def planted(*arguments):
        value, low, high = exact(*arguments)
        return value, high, low

    monkeypatch.setattr(module, "_value_and_band", planted)
    ((change, known),) = drawn_changes(1, 1, "0.2")
    assert not ((change["low"].values <= known) & (known <= change["high"].values)).all()
