"""How often answers of a release cover what was asked: kinds of questions, databases, releases.

The bins of a database are counted once, exactly, and get the noise of one release after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from dbern.ask import kernel_envelopes, polygon_envelopes
from dbern.ask import splines as step
from dbern.ask.bins import NoisyMeasure
from dbern.ask.distribution import Distribution
from dbern.ask.question import ReleasedResponses
from dbern.ask.splines import AxisSplines, Envelope
from dbern.bernstein.kernels import Gaussian, kernel_of
from dbern.bernstein.splines import bin_matrix
from dbern.data.domain import Axis, Domain
from dbern.privacy.keystream import KeyStream
from dbern.privacy.laws import GaussianNoise, LaplaceNoise

AXES = ("x", "y", "z")


def counted(rows: Any, cells: int = 12, degree: int = 3, weights: Any = None) -> Any:
    """The exact bins of rows (n, axes) on the unit cube, as shares of them; each by its weight."""
    letters = "abc"[: rows.shape[1]]
    matrices = [bin_matrix(column, cells, degree) for column in rows.T]
    if weights is not None:
        matrices[0] = matrices[0] * weights[:, None]
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
    measure = NoisyMeasure(values, splines, law, 2.0**-40)
    kernels = (Gaussian(0.1),) * exact.ndim
    return Distribution("case", domain, (measure,), (None,), float(n), kernels)


def responding(rows: Any, responses: Any, key: int = 1, exact: Any = None, **how: Any) -> Any:
    """The same of a regression of responses from 0 to 1; `exact` has the bins of both parts."""
    exact = exact or [counted(rows, weights=part) for part in (responses, 1 - responses)]
    first, second = (
        asked(rows, key and key + 10_000 * i, exact=e, **how) for i, e in enumerate(exact)
    )
    (measure,), (rest,) = first.measures, second.measures
    both = replace(measure, values=np.stack([measure.values, rest.values]))
    response = ReleasedResponses((both,), 0.0, 1.0)
    return replace(first, measures=(both.of_sum(),), response=response)


def grouped(rows: Any, codes: Any, key: int = 1, exact: Any = None, **how: Any) -> Any:
    """The same of a density by group, of as many groups as there are codes."""
    exact = exact or [counted(rows, weights=(codes == one) * 1.0) for one in np.unique(codes)]
    parts = [asked(rows, key and key + 10_000 * i, exact=e, **how) for i, e in enumerate(exact)]
    measures = [replace(one.measures[0], stream=i) for i, one in enumerate(parts)]
    return replace(parts[0], measures=tuple(measures), groups=tuple(range(len(measures))))


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


def correlation(x, y):
    return np.corrcoef(x, y)[0, 1] if x.std() > 1e-9 and y.std() > 1e-9 else np.nan


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
QUESTIONS = ROWS | {
    "mean": (lambda d: d.mean("x"), lambda x, _: x.mean()),
    "variance": (lambda d: d.var("x"), lambda x, _: x.var()),
}
ROWS_OF_TWO = {
    "conditional share": (
        lambda d: d.mass({"x": (0.2, 0.6)}, given={"y": (0.1, None)}),
        lambda x, y: ((x > 0.2) & (x < 0.6))[y > 0.1].mean(),
    ),
    "conditional mean": (
        lambda d: d.mean("x", given={"y": (0.1, None)}),
        lambda x, y: x[y > 0.1].mean(),
    ),
    "covariance": (
        lambda d: d.cov("x", "y"),
        lambda x, y: ((x - x.mean()) * (y - y.mean())).mean(),
    ),
    "correlation": (lambda d: d.correlation("x", "y"), lambda x, y: correlation(x, y)),
    "conditional deviation": (
        lambda d: d.std("x", given={"y": (0.1, None)}),
        lambda x, y: x[y > 0.1].std(),
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
        lambda x, y: (kernel_share(x, 0.2, 0.5) * kernel_share(y, 0.1, 0.7)).mean(),
    ),
    "smoothed conditional share": (
        lambda d: d.mass({"x": (0.2, 0.6)}, given={"y": (0.1, None)}, target="smoothed"),
        lambda x, y: (
            (kernel_share(x, 0.2, 0.6) * kernel_share(y, 0.1, 1.0)).mean()
            / (kernel_share(x, 0.0, 1.0) * kernel_share(y, 0.1, 1.0)).mean()
        ),
    ),
    "marginal": (
        lambda d: d.marginal(AT, "x"),
        lambda x, _: BUMP(AT[:, None] - x).mean(axis=1),
    ),
}
OF_TWO = ROWS_OF_TWO | SMOOTHED_OF_TWO


def kernel_share(x, low, high):
    """What part of each row's kernel is in an interval."""
    return BUMP.cumulative(high - x) - BUMP.cumulative(low - x)


def smoothed_share(x, low, high):
    return kernel_share(x, low, high).mean()


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
    patched = (step, "steps"), (kernel_envelopes, "_fitted"), (polygon_envelopes, "_envelope")

    def estimate(exact: Any) -> Any:
        def alone(*arguments: Any) -> Envelope:
            around = exact(*arguments)
            return Envelope(around.estimate, around.estimate, around.estimate)

        return alone

    with ExitStack() as patches:
        for module, name in patched:
            exact = getattr(module, name)
            patches.enter_context(mock.patch.object(module, name, estimate(exact)))
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


# --- Responses, and shares of groups

PLACES = np.array([0.15, 0.4321, 0.8])


def responses(x: Any) -> dict[str, Any]:
    """Responses from 0 to 1 of rows at x: some at their bounds, by where in its cell a row is."""
    phase = 12 * x % 1
    return {
        "smooth": 0.5 + 0.4 * np.sin(7 * x),
        "by its place in the cell": (phase < 0.5) * 1.0,
        "inside of the region": ((x > 0.2) & (x < 0.5)) * 1.0,
        "all at a bound": np.ones_like(x),
    }


def near(x: Any, v: Any, places: Any = PLACES, bandwidth: float = 0.1) -> Any:
    """The mean of v with the weights of a kernel."""
    weights = Gaussian(bandwidth)(np.reshape(places, (-1, 1)) - x)
    with np.errstate(invalid="ignore"):
        return weights @ v / weights.sum(axis=1)


def inside(x: Any, v: Any, low: float, high: float) -> Any:
    """The mean of v of the rows in an interval; NaN where there is none."""
    here = (x > low) & (x < high)
    return v[here].mean() if here.any() else np.nan


OF_RESPONSES = {
    "curve": (lambda d: d.curve(PLACES[:, None]), near),
    "wider curve": (
        lambda d: d.curve(PLACES[:, None], bandwidth=0.2),
        lambda x, v: near(x, v, bandwidth=0.2),
    ),
    "average": (lambda d: d.average({"x": (0.2, 0.5)}), lambda x, v: inside(x, v, 0.2, 0.5)),
    "difference": (
        lambda d: d.difference({"x": (0.2, 0.5)}, {"x": (0.5, None)}),
        lambda x, v: inside(x, v, 0.2, 0.5) - inside(x, v, 0.5, 1.0),
    ),
    "difference of places": (
        lambda d: d.difference([[0.3]], [[0.7]]),
        lambda x, v: -np.diff(near(x, v, [0.3, 0.7])),
    ),
}


def covered_responses(n: int, names: Any, draws: int, groups: bool = False) -> Any:
    """As `covered`, for each kind of rows and of responses: of groups those above and below 1/2."""
    found: dict[Any, int] = {}
    first = 1
    for name in names:
        rows = databases(1, n)[name]
        for kind, v in responses(rows[:, 0]).items():
            codes = (v > 0.5) * 1
            weights = [1 - codes, codes] if groups else [v, 1 - v]
            exact = [counted(rows, weights=one) for one in weights]
            for draw in range(draws):
                make, given = (grouped, codes) if groups else (responding, v)
                d = make(rows, given, first + draw, exact=exact)
                for question, (ask, truth) in OF_RESPONSES.items():
                    known, answer = np.asarray(truth(rows[:, 0], codes if groups else v)), ask(d)
                    if np.isnan(known).any():
                        continue
                    low, high = (np.asarray(one) for one in (answer.low, answer.high))
                    if groups:
                        low, high = low[..., 1], high[..., 1]
                    sure = np.all((low - 1e-9 <= known) & (known <= high + 1e-9))
                    key = (name, kind, question)
                    found[key] = found.get(key, 0) + int(sure)
            first += draws
    return found


def too_few(found: Any, draws: int, level: float = 0.95) -> Any:
    """What covers less often than so: cells of a question, and the question over all of them.

    `found` has the question last in its keys; no two cells have the same noise.
    """
    cells: dict[Any, list[int]] = {}
    for (*_, question), count in found.items():
        cells.setdefault(question, []).append(count)
    together = {
        question: sum(counts) for question, counts in cells.items()
        if sum(counts) < _least(draws * len(counts), level)
    }  # fmt: skip
    return together | {key: one for key, one in found.items() if one < _least(draws, level)}


def _least(draws: int, level: float) -> float:
    return draws * level - 3.5 * float(np.sqrt(draws * level * (1 - level)))
