"""Many answers at once: in batches they are those of one, and of more they are hardly wider."""

from __future__ import annotations

import numpy as np
import pytest
from banding import columns, drawn, planned
from questioned import TRIANGLE, asked, databases, responding

from dbern.ask import bins, question, quotients

pytestmark = pytest.mark.filterwarnings("ignore:each answer holds")

ONE, TWO = (databases(axes, 10_000)["smooth"] for axes in (1, 2))


def points(count, axes=1):
    return np.random.default_rng(0).uniform(0.02, 0.98, size=(4096, axes))[:count]


def boxes(count):
    low, width = points(count, 2), points(count + 1, 2)[1:]
    ends = 0.6 * low, 0.6 * low + 0.05 + 0.3 * width
    return {name: tuple(end[:, axis] for end in ends) for axis, name in enumerate("xy")}


def regressed(rows):
    return responding(rows, 0.5 + 0.4 * np.sin(7 * rows[:, 0]))


def polygons(count):
    """The triangle on as many places."""
    corners = [0.7 * np.array(TRIANGLE) + corner for corner in 0.3 * points(count, 2)]
    shapes = [{"type": "Polygon", "coordinates": [outline.tolist()]} for outline in corners]
    features = [{"type": "Feature", "geometry": shape, "properties": {}} for shape in shapes]
    return {"type": "FeatureCollection", "features": features}


GIVEN = {"y": (0.1, 0.7)}
OF_ONE = {
    "density": lambda d, count: d.density(points(count)),
    "choice": lambda d, count: d.density(points(count), bandwidth="auto"),
    "shares": lambda d, count: d.cdf(points(count)[:, 0]),
}
OF_TWO = {
    "density of two axes": lambda d, count: d.density(points(count, 2)),
    "boxes": lambda d, count: d.mass(boxes(count)),
    "counts": lambda d, count: d.count(boxes(count)),
    "polygons": lambda d, count: d.mass(polygons(count)),
    "boxes under a condition": lambda d, count: d.mass(boxes(count), given=GIVEN),
    "marginal": lambda d, count: d.marginal(points(count)[:, 0], "x", given=GIVEN),
    "a population": lambda d, count: d.mass(boxes(count), population=True),
}
OF_RESPONSES = {
    "curve": lambda d, count: d.curve(points(count)),
    "averages": lambda d, count: d.average({"x": (0.5 * points(count)[:, 0], np.ones(count))}),
    "differences": lambda d, count: d.difference(points(count), points(count + 1)[1:]),
}
MANY = (
    {name: (asked, ONE, ask) for name, ask in OF_ONE.items()}
    | {name: (asked, TWO, ask) for name, ask in OF_TWO.items()}
    | {name: (regressed, ONE, ask) for name, ask in OF_RESPONSES.items()}
)


SLOW = ("choice", "polygons")
CASES = [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in MANY]


def answered(question, count):
    """Value and ends of so many answers."""
    release, rows, ask = MANY[question]
    answer = ask(release(rows), count)
    return np.array([answer.value, answer.low, answer.high])


@pytest.mark.parametrize("question", CASES)
def test_batches_tell_what_one_batch_tells(monkeypatch, question):
    """Of 300 a part is by itself so few that more draws would be used of it."""
    monkeypatch.setattr(quotients, "BATCH_NUMBERS", 1 << 40)
    whole = answered(question, 300)
    monkeypatch.setattr(quotients, "BATCH_NUMBERS", 1 << 19)
    np.testing.assert_allclose(answered(question, 300), whole, rtol=0, atol=1e-9 * np.ptp(whole))


@pytest.mark.slow
@pytest.mark.sample(test=1)
@pytest.mark.parametrize("question", ["density", "density of two axes", "boxes", "curve"])
def test_a_few_answers_more_are_not_much_wider(question):
    """From some 2 100 on they were by the tail: up to 4.4 times as wide."""
    (_, *some), (_, *more) = answered(question, 2000), answered(question, 2200)[:, :2000]
    assert np.diff(more, axis=0).mean() <= 1.02 * np.diff(some, axis=0).mean()


@pytest.mark.slow
@pytest.mark.sample(test=1)
def test_thousands_of_answers_are_hardly_wider_than_some():
    (_, *some), (_, *many) = answered("density", 256), answered("density", 4096)[:, :256]
    assert np.diff(many, axis=0).mean() <= 1.1 * np.diff(some, axis=0).mean()


# --- Never wider than the band that holds everywhere

ROLES = {
    "density": {},
    "groups": {"roles": '{"group": {"column": "r", "values": ["a", "b"]}}'},
    "curve": {
        "roles": '{"response": {"column": "r", "bounds": [-1.0, 1.0]}}', "kind": "nadaraya-watson",
    },
}  # fmt: skip


def released_of(kind, axes=1, rows=None, key=1):
    case = planned(axes, 20_000, 0.1 if axes == 1 else 0.15, **ROLES[kind])
    rows = databases(axes, 20_000)["smooth"] if rows is None else rows
    response = np.sin(6 * rows[:, 0])
    response = (response > 0) * 1.0 if kind == "groups" else response
    records = columns(rows) | ({} if kind == "density" else {"r": response})
    (synopsis,) = drawn(case, records, [key])
    return synopsis


def compared(synopsis, kind, count):
    """Ends of a question at points, and of the band, (2, points, groups) each."""
    ask = synopsis.distribution()
    ask, where = (
        ask.curve if kind == "curve" else ask.density,
        points(count, len(synopsis.domain.axes)),
    )
    answer, band = ask(where), synopsis.interval(where)
    return [np.reshape(ends, (2, count, -1)) for ends in ([answer.low, answer.high], band)]


@pytest.mark.parametrize("count", [1, 16, 256, 4096])
@pytest.mark.parametrize(
    ("kind", "axes"), [("density", 1), ("density", 2), ("curve", 1), ("groups", 1)]
)
def test_answers_are_not_wider_than_the_band_everywhere(kind, axes, count):
    answered, band = compared(released_of(kind, axes), kind, count)
    answered, band = (np.diff(ends, axis=0)[~np.isnan(band[:1])] for ends in (answered, band))
    assert answered.mean() <= 1.05 * band.mean()
    assert (answered <= 1.1 * band).all()


@pytest.mark.parametrize("kind", list(ROLES))
def test_where_draws_cannot_be_afforded_answers_are_the_band(monkeypatch, kind):
    """Also where no row is: of a quotient nothing is known there."""
    monkeypatch.setattr(bins, "_MAX_WORK", 0)
    synopsis = released_of(kind, rows=0.3 * databases(1, 20_000)["smooth"])
    answered, band = compared(synopsis, kind, 200)
    missing = np.isnan(band)
    assert missing.any() == (kind == "curve")
    band = np.where(missing, np.array([-1.0, 1.0])[:, None, None], band)
    least = -1.0 if kind == "curve" else 0.0
    np.testing.assert_allclose(answered, np.maximum(band, least), atol=1e-9 * np.ptp(band))


def test_public_facts_decide_between_a_band_and_draws():
    """Whatever the rows and the noise are, the same is taken; of few points never the band."""
    kinds = databases(1, 20_000)
    taken = set()
    for key, rows in enumerate(kinds.values()):
        synopsis = released_of("density", rows=rows, key=key)
        answered, band = compared(synopsis, "density", 256)
        within = 0.0, synopsis.distribution().kernels[0].peak
        taken.add(np.allclose(answered, np.clip(band, *within)))
        answered, band = compared(synopsis, "density", 32)
        assert not np.allclose(answered, np.clip(band, *within))
    assert taken == {True}


def test_another_kernel_or_a_population_has_no_band():
    synopsis = released_of("density")
    where, low, high = points(256), *synopsis.interval(points(256))
    for options in ({"bandwidth": 0.11}, {"kernel": "triangle"}, {"population": True}):
        answer = synopsis.distribution().density(where, **options)
        assert not np.allclose(answer.low, np.maximum(low, 0.0))
        assert not np.allclose(answer.high, high)


@pytest.mark.slow
@pytest.mark.parametrize("axes", [1, 2, 4])
def test_without_draws_the_narrower_of_tail_and_band_is_taken(monkeypatch, axes):
    """By public facts: of four axes the band is that of the worst database."""
    monkeypatch.setattr(bins, "_MAX_WORK", 0)
    synopsis = released_of("density", axes)
    answered, band = (np.diff(ends, axis=0).mean() for ends in compared(synopsis, "density", 200))
    monkeypatch.setattr(question, "_MANY", 1 << 30)
    tail = np.diff(compared(synopsis, "density", 200)[0], axis=0).mean()
    assert answered <= 1.01 * min(band, tail)
