"""How often answers of a release cover what was asked: kinds of questions, databases, releases.

The bins of a database are counted once, exactly, and get the noise of one release after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from dbern.bernstein.kernels import Gaussian, kernel_of
from dbern.data.domain import Axis, Domain
from dbern.privacy.calibration import GaussianNoise, LaplaceNoise
from dbern.privacy.keystream import KeyStream
from dbern.strategies.bins import bin_matrix
from dbern.synopsis.questions import polygons, smoothing
from dbern.synopsis.questions.distribution import Distribution
from dbern.synopsis.questions.measure import Measure
from dbern.synopsis.questions.splines import AxisSplines, Sides

AXES = ("x", "y", "z")


def counted(rows: Any, cells: int = 12, degree: int = 3) -> Any:
    """The exact bins of rows (n, axes) on the unit cube, as shares of them."""
    letters = "abc"[: rows.shape[1]]
    matrices = [bin_matrix(column, cells, degree) for column in rows.T]
    terms = ",".join(f"n{letter}" for letter in letters)
    return np.einsum(f"{terms}->{letters}", *matrices, optimize=True) / len(rows)


def asked(
    rows: Any,
    key: int = 1,
    *,
    cells: int = 12,
    degree: int = 3,
    epsilon: float = 1.0,
    exact: Any = None,
    gaussian: bool = False,
) -> Distribution:
    """What a release of bins of these rows answers from, with the noise of a key, none for 0."""
    n, exponent = len(rows), -40
    exact = counted(rows, cells, degree) if exact is None else exact
    scale = round(2 / (n * epsilon) * 2**40)
    law = GaussianNoise(scale, exponent, 1) if gaussian else LaplaceNoise(scale, exponent, scale)
    center = np.rint(exact.ravel() * 2**40).astype(np.int64)
    stream = KeyStream(key.to_bytes(32, "big"), 0)
    noisy = law.draw(center.size, stream).added_to(center) if key else center
    splines = tuple(AxisSplines(cells, degree) for _ in exact.shape)
    values = np.ldexp(noisy.astype(float), exponent).reshape(exact.shape)
    domain = Domain(tuple(Axis(name, 0.0, 1.0) for name in AXES[: exact.ndim]))
    measure = Measure(values, splines, law, 2.0**-40)
    kernels = (Gaussian(0.1),) * exact.ndim
    return Distribution("case", domain, (measure,), (None,), float(n), kernels)


def databases(axes: int, n: int) -> dict[str, Any]:
    """Rows (n, axes) of several kinds; coordinates are never on an edge of a region."""
    rng = np.random.default_rng(axes)
    centered = rng.uniform(0.05, 0.95, size=(9, axes))[rng.integers(9, size=n)]
    halves = rng.uniform(size=(n, axes))
    halves[: n // 2] = rng.uniform(size=(50, axes))[rng.integers(50, size=n // 2)]
    return {
        "smooth": rng.beta(2, 5, size=(n, axes)),
        "uniform": rng.uniform(size=(n, axes)),
        "clustered": np.clip(centered + 0.01 * rng.normal(size=(n, axes)), 0, 1),
        "half at 50 places": halves,
        "at the ends": rng.integers(0, 2, size=(n, axes)).astype(float),
        "one point": np.full((n, axes), 0.4321),
    }


AT = np.linspace(0.1, 0.9, 7)
BUMP = Gaussian(0.1)
ROWS = {  # of a sharp edge: nobody can know where in a cell the rows are
    "mass": (lambda d: d.mass({"x": (0.2, 0.5)}), lambda x, _: ((x > 0.2) & (x < 0.5)).mean()),
    "masses": (
        lambda d: d.mass([{"x": (0.1, 0.4)}, {"x": (0.35, None)}]),
        lambda x, _: np.array([((x > 0.1) & (x < 0.4)).mean(), (x > 0.35).mean()]),
    ),
    "count": (lambda d: d.count({"x": (None, 0.5)}), lambda x, _: (x < 0.5).sum()),
    "cdf": (lambda d: d.cdf(AT, "x"), lambda x, _: (x <= AT[:, None]).mean(axis=1)),
    "median": (lambda d: d.quantile(0.5, "x"), lambda x, _: np.sort(x)[(len(x) + 1) // 2 - 1]),
}
MEANS = {"mean": (lambda d: d.mean("x"), lambda x, _: x.mean())}
QUESTIONS = ROWS | MEANS
ROWS_OF_TWO = {
    "conditional share": (
        lambda d: d.mass({"x": (0.2, 0.6)}, given={"y": (0.1, None)}),
        lambda x, y: ((x > 0.2) & (x < 0.6))[y > 0.1].mean(),
    ),
    "conditional mean": (
        lambda d: d.mean("x", given={"y": (0.1, None)}),
        lambda x, y: x[y > 0.1].mean(),
    ),
    "conditional quantile": (
        lambda d: d.quantile(0.3, "x", given={"y": (0.1, None)}),
        lambda x, y: np.quantile(x[y > 0.1], 0.3, method="inverted_cdf"),
    ),
    "polygon": (
        lambda d: d.mass({"type": "Polygon", "coordinates": [TRIANGLE]}),
        lambda x, y: ((x > 0.1) & (y > 0.1) & (x + y < 1.3)).mean(),
    ),
}
TRIANGLE = [[0.1, 0.1], [1.0, 0.1], [1.0, 0.3], [0.3, 1.0], [0.1, 1.0], [0.1, 0.1]]
SMOOTHED_OF_TWO = {
    "smoothed box": (
        lambda d: d.mass({"x": (0.2, 0.5), "y": (0.1, 0.7)}, target="smoothed"),
        lambda x, y: (inside(x, 0.2, 0.5) * inside(y, 0.1, 0.7)).mean(),
    ),
    "smoothed conditional share": (
        lambda d: d.mass({"x": (0.2, 0.6)}, given={"y": (0.1, None)}, target="smoothed"),
        lambda x, y: (
            (inside(x, 0.2, 0.6) * inside(y, 0.1, 1.0)).mean()
            / (inside(x, 0.0, 1.0) * inside(y, 0.1, 1.0)).mean()
        ),
    ),
    "marginal": (
        lambda d: d.marginal(AT, "x"),
        lambda x, _: BUMP(AT[:, None] - x).mean(axis=1),
    ),
}
OF_TWO = ROWS_OF_TWO | SMOOTHED_OF_TWO


def inside(x, low, high):
    """What part of each row's kernel is in an interval."""
    return BUMP.cumulative(high - x) - BUMP.cumulative(low - x)


def smoothed_share(x, low, high):
    return inside(x, low, high).mean()


SMOOTHED = {
    "smoothed share": (
        lambda d: d.mass({"x": (0.2, 0.5)}, target="smoothed"),
        lambda x, _: smoothed_share(x, 0.2, 0.5),
    ),
    "smoothed count": (
        lambda d: d.count({"x": (None, 0.5)}, target="smoothed"),
        lambda x, _: len(x) * smoothed_share(x, 0.0, 0.5),
    ),
    "smoothed cdf": (
        lambda d: d.cdf(AT, "x", target="smoothed"),
        lambda x, _: np.array([smoothed_share(x, 0.0, one) for one in AT]),
    ),
    "the density": (
        lambda d: d.density(AT[:, None]),
        lambda x, _: BUMP(AT[:, None] - x).mean(axis=1),
    ),
    "another density": (
        lambda d: d.density(AT[:, None], bandwidth=0.15),
        lambda x, _: Gaussian(0.15)(AT[:, None] - x).mean(axis=1),
    ),
    "another kernel": (
        lambda d: d.density([[0.37]], kernel="biweight", bandwidth=0.3),
        lambda x, _: kernel_of("biweight", 0.3)(0.37 - x).mean(),
    ),
    "smoothed median": (
        lambda d: d.quantile(0.5, target="smoothed"),
        lambda x, _: smoothed_median(x),
    ),
}


def smoothed_median(x):
    grid = np.linspace(0, 1, 2001)
    cumulative = np.array([smoothed_share(x, 0.0, one) for one in grid])
    return np.interp(0.5 * cumulative[-1], cumulative, grid)


@contextmanager
def without_sides() -> Iterator[None]:
    """Estimates alone, as if they were what is asked about: intervals of noise."""
    steps, fitted, polygon = AxisSplines.steps, smoothing._fitted, polygons._sides

    def near(sides: Sides) -> Sides:
        return Sides(sides.near, sides.near, sides.near)

    with (
        mock.patch.object(AxisSplines, "steps", lambda self, places: near(steps(self, places))),
        mock.patch.object(smoothing, "_fitted", lambda *asked: near(fitted(*asked))),
        mock.patch.object(polygons, "_sides", lambda *asked: near(polygon(*asked))),
    ):
        yield


def widths(axes, n, questions, names):
    """For each database and question, the interval's width over that of its noise alone."""
    found = {}
    for name in names:
        d = asked(databases(axes, n)[name])
        for question, (ask, _) in questions.items():
            own = ask(d)
            with without_sides():
                alone = ask(d)
            noise = np.sum(alone.high - alone.low)
            found[name, question] = np.sum(own.high - own.low) / noise if noise else np.nan
    return found


def covered_by_noise(axes, n, questions, names, draws):
    """Of all these databases, each with noise of its own, the share that covers what bins tell.

    That is what the exact bins answer by the splines in the middle; 0 and 1 end each share, and an
    estimate that is one of these has no noise around it.
    """
    inside, told = dict.fromkeys(questions, 0), dict.fromkeys(questions, 0)
    with without_sides():
        for place, name in enumerate(names):
            rows = databases(axes, n)[name]
            exact = counted(rows)
            still = asked(rows, 0, exact=exact)
            known = {question: ask(still).value for question, (ask, _) in questions.items()}
            for draw in range(draws):
                d = asked(rows, 1 + place + draw * len(names), exact=exact)
                for question, (ask, _) in questions.items():
                    truth = known[question]
                    if np.all((truth > 0) & (truth != 1) & (truth != n)):
                        answer = ask(d)
                        inside[question] += np.all((answer.low <= truth) & (truth <= answer.high))
                        told[question] += 1
    return {question: inside[question] / told[question] for question in questions}


def covered(axes, n, questions, names, draws):
    """For each database and question, how many of so many releases cover the answer."""
    found = {}
    for place, name in enumerate(names):
        rows = databases(axes, n)[name]
        exact, x, y = counted(rows), rows[:, 0], rows[:, -1]
        known = {asked: truth(x, y) for asked, (_, truth) in questions.items()}
        for draw in range(draws):
            d = asked(rows, 1 + place + draw * len(names), exact=exact)
            for question, (ask, _) in questions.items():
                if not np.isnan(known[question]).any():
                    answer = ask(d)
                    inside = (answer.low <= known[question]) & (known[question] <= answer.high)
                    found[name, question] = found.get((name, question), 0) + int(np.all(inside))
    return found
