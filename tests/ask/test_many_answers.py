"""Many answers at once: in batches they are those of one, and of more they are hardly wider."""

from __future__ import annotations

import numpy as np
import pytest
from questioned import TRIANGLE, asked, databases, responding

from dbern.ask import interval

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
    monkeypatch.setattr(interval, "_BATCH_NUMBERS", 1 << 40)
    whole = answered(question, 300)
    monkeypatch.setattr(interval, "_BATCH_NUMBERS", 1 << 19)
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
