"""Stores, what each is asked, and what the records themselves say, computed with numpy alone.

Nothing in here names anything of the package but what its users may use, so that another version
can be asked the same. A new kind of store, or a new question, is a line in here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from goldens.cases import Case, points

ROWS = 4000
AXES = {"x": (0.0, 10.0), "y": (-1.0, 1.0), "z": (-1.0, 3.0)}
BANDWIDTHS = {"x": 1.0, "y": 0.3, "z": 0.6}
AT = np.linspace(1.0, 9.0, 5)[:, None]
PAIR = np.array([[2.0], [5.0]])
SOUTH = {"y": (None, 0.0)}
TRIANGLE = [[1.0, -0.8], [9.0, -0.8], [1.0, 0.9], [1.0, -0.8]]


class Records(dict[str, np.ndarray]):
    """Columns by name, of all rows or of some."""

    def where(self, mask: np.ndarray) -> Records:
        return Records({name: column[mask] for name, column in self.items()})

    def inside(self, **box: tuple[float, float]) -> np.ndarray:
        """Mask of the rows in a box."""
        sides = [(self[name] > low) & (self[name] <= high) for name, (low, high) in box.items()]
        return np.all(sides, axis=0)

    def south(self) -> Records:
        return self.where(self["y"] <= 0)

    def kernels(
        self, at: np.ndarray, axes: str = "x", scale: float = 1.0, exponential: bool = False
    ) -> np.ndarray:
        """Products over axes of Gaussian or of two-sided exponential kernels: (points, rows)."""
        product = np.ones((len(at), len(self["x"])))
        for column, name in zip(at.T, axes, strict=True):
            width = scale * BANDWIDTHS[name]
            u = np.abs(column[:, None] - self[name]) / width
            values = np.exp(-u) / 2 if exponential else np.exp(-u * u / 2) / math.sqrt(2 * math.pi)
            product *= values / width
        return product

    def density(self, at: np.ndarray, *kernel: Any, **options: Any) -> np.ndarray:
        """Sum of `kernels` over these rows, as a share of all records."""
        return self.kernels(at, *kernel, **options).sum(axis=1) / ROWS

    def curve(self, at: np.ndarray, column: str, scale: float = 1.0) -> np.ndarray:
        """Mean of a column, weighted by the kernels on x."""
        weights = self.kernels(at, "x", scale)
        return weights @ self[column] / weights.sum(axis=1)

    def median(self) -> float:
        return float(np.quantile(self["x"], 0.5, method="inverted_cdf"))


def records() -> Records:
    """One table for all stores: skewed on x, with y and a response z that follow it."""
    draw = np.random.default_rng(5)
    x = 10 * draw.beta(2, 5, size=ROWS)
    y = np.clip(0.1 * (x - 4) + draw.normal(0, 0.25, ROWS), -0.999, 0.999)
    z = np.clip(1 + np.sin(x) + draw.normal(0, 0.4, ROWS), -0.999, 2.999)
    return Records(x=x, y=y, z=z, group=(draw.random(ROWS) < x / 10).astype(np.int64))


# --- Questions


class Question(NamedTuple):
    """A question, and its answer by the records themselves; nan where that is not known."""

    ask: Callable[[Any], Any]
    truth: Callable[[Records], Any]


Questions = dict[str, Question]


def unknown(_records: Records) -> float:
    """The truth that is not known."""
    return math.nan


# Intervals for a population are wider, so that they contain what these records say, too.
SHARES: Questions = {
    "mass": Question(lambda d: d.mass({"x": (2, 5)}), lambda r: r.inside(x=(2, 5)).mean()),
    "masses": Question(
        lambda d: d.mass([{"x": (1, 4)}, {"x": (3.5, None)}]),
        lambda r: [r.inside(x=(1, 4)).mean(), r.inside(x=(3.5, 10)).mean()],
    ),
    "count": Question(lambda d: d.count({"x": (None, 5)}), lambda r: r.inside(x=(0, 5)).sum()),
    "cdf": Question(lambda d: d.cdf(AT[:, 0], "x"), lambda r: (r["x"] <= AT).mean(axis=1)),
    "median": Question(lambda d: d.quantile(0.5, "x"), Records.median),
    "mean": Question(lambda d: d.mean("x"), lambda r: r["x"].mean()),
    "var": Question(lambda d: d.var("x"), lambda r: r["x"].var()),
    "mean, population": Question(lambda d: d.mean("x", population=True), lambda r: r["x"].mean()),
    "mass, population": Question(
        lambda d: d.mass({"x": (2, 5)}, population=True), lambda r: r.inside(x=(2, 5)).mean()
    ),
}


def line(exponential: bool = False) -> Questions:
    """Questions along x, smoothed by this kernel where no other is asked for."""

    def density(r: Records, scale: float = 1.0) -> np.ndarray:
        return r.density(AT, scale=scale, exponential=exponential)

    def below(r: Records, point: float) -> np.ndarray:
        """Part of each row's kernel below a point."""
        u = (point - r["x"]) / BANDWIDTHS["x"]
        if exponential:
            return 0.5 + 0.5 * np.sign(u) * (1 - np.exp(-np.abs(u)))
        return np.array([0.5 + 0.5 * math.erf(each / math.sqrt(2)) for each in u])

    def smoothed(r: Records, low: float, high: float) -> float:
        """Integral of the rows' kernels, as a share of these rows."""
        return float((below(r, high) - below(r, low)).mean())

    return {
        **SHARES,
        "mass, smoothed": Question(
            lambda d: d.mass({"x": (2, 5)}, target="smoothed"), lambda r: smoothed(r, 2, 5)
        ),
        "cdf, smoothed": Question(
            lambda d: d.cdf([3.0, 6.0], "x", target="smoothed"),
            lambda r: [smoothed(r, 0, 3), smoothed(r, 0, 6)],
        ),
        "density": Question(lambda d: d.density(AT), density),
        "density, another bandwidth": Question(
            lambda d: d.density(AT, bandwidth=2.0), lambda r: density(r, 2)
        ),
        "density, another kernel": Question(
            lambda d: d.density(AT, bandwidth=3.0, kernel="laplace"),
            lambda r: r.density(AT, scale=3, exponential=True),
        ),
        "density, automatic bandwidth": Question(
            lambda d: d.density(AT, bandwidth="auto"), unknown
        ),
    }


PLANE: Questions = {
    **SHARES,
    "cov": Question(lambda d: d.cov("x", "y"), lambda r: np.cov(r["x"], r["y"], bias=True)[0, 1]),
    "correlation": Question(
        lambda d: d.correlation("x", "y"), lambda r: np.corrcoef(r["x"], r["y"])[0, 1]
    ),
    "mass of a box": Question(
        lambda d: d.mass({"x": (2, 5), **SOUTH}), lambda r: r.inside(x=(2, 5), y=(-1, 0)).mean()
    ),
    "conditional mass": Question(
        lambda d: d.mass({"x": (2, 5)}, given=SOUTH),
        lambda r: r.south().inside(x=(2, 5)).mean(),
    ),
    "conditional mean": Question(
        lambda d: d.mean("x", given=SOUTH), lambda r: r.south()["x"].mean()
    ),
    "conditional median": Question(
        lambda d: d.quantile(0.5, "x", given=SOUTH), lambda r: r.south().median()
    ),
    "marginal": Question(lambda d: d.marginal(AT[:, 0], "x"), lambda r: r.kernels(AT).mean(axis=1)),
    "conditional marginal": Question(
        lambda d: d.marginal(AT[:, 0], "x", given=SOUTH),
        lambda r: r.south().kernels(AT).mean(axis=1),
    ),
}
POLYGON: Questions = {
    "mass of a polygon": Question(
        lambda d: d.mass({"type": "Polygon", "coordinates": [TRIANGLE]}),
        lambda r: ((r["x"] > 1) & (r["y"] > -0.8) & (r["y"] < 0.9 - 1.7 / 8 * (r["x"] - 1))).mean(),
    ),
}


def means(column: str) -> Questions:
    """Questions about the mean of a column along x."""

    def average(r: Records) -> Any:
        return r.where(r.inside(x=(2, 5)))[column].mean()

    return {
        "curve": Question(lambda d: d.curve(AT), lambda r: r.curve(AT, column)),
        "curve, another bandwidth": Question(
            lambda d: d.curve(AT, bandwidth=2.0), lambda r: r.curve(AT, column, 2)
        ),
        "average": Question(lambda d: d.average({"x": (2, 5)}), average),
        "average, population": Question(
            lambda d: d.average({"x": (2, 5)}, population=True), average
        ),
        "difference": Question(
            lambda d: d.difference(PAIR[:1], PAIR[1:]), lambda r: -np.diff(r.curve(PAIR, column))
        ),
    }


def by_group(questions: Questions) -> Questions:
    """The same questions, answered for each group's rows: groups are the last axis."""

    def truths(truth: Callable[[Records], Any], r: Records) -> np.ndarray:
        return np.stack([truth(r.where(r["group"] == code)) for code in (0, 1)], axis=-1)

    return {name: Question(ask, partial(truths, truth)) for name, (ask, truth) in questions.items()}


def group_shares() -> Questions:
    """Questions about the shares of two groups along x, of which the second is counted as 1."""

    def truths(truth: Callable[[Records], Any], all_rows: float, r: Records) -> np.ndarray:
        second = np.asarray(truth(r))
        return np.stack([all_rows - second, second], axis=-1)

    return {
        name: Question(ask, partial(truths, truth, 0.0 if name == "difference" else 1.0))
        for name, (ask, truth) in means("group").items()
    }


def of_function(truth: Callable[[Records, np.ndarray], Any], axes: str) -> Questions:
    """Questions to a synopsis itself: values at points, with the bands there and everywhere."""
    at = points([AXES[name] for name in axes])

    def interval(s: Any, **options: Any) -> Any:
        return s(at, options.get("h")), *s.interval(at, **options)

    def band(s: Any, **options: Any) -> Any:
        values, width = s(at), s.band(**options)
        return values, values - width, values + width

    asks = {
        "interval": interval,
        "interval, any database": partial(interval, about="any-database"),
        "interval, automatic order": partial(interval, h="auto"),
        "band": band,
        "band, any database": partial(band, about="any-database"),
    }
    return {name: Question(ask, lambda r: truth(r, at)) for name, ask in asks.items()}


def of_distribution(questions: Questions, axis: str | None = None) -> Questions:
    """Questions to the distribution of a synopsis, or to that of one axis."""

    def ask_distribution(ask: Callable[[Any], Any], s: Any) -> Any:
        answer = ask(s.distribution(axis))
        return answer.value, answer.low, answer.high

    return {
        name: Question(partial(ask_distribution, ask), truth)
        for name, (ask, truth) in questions.items()
    }


# --- Stores


class Store(NamedTuple):
    """A release, and the questions to it."""

    case: Case
    questions: Questions


def _case(axes: str, sections: Mapping[str, Any]) -> Case:
    """Sections of a spec, of a table in memory, in which the plan chooses what is not said."""
    return Case(
        {
            **sections,
            "data": {"source": None, **sections.get("data", {})},
            "data.bounds": {name: list(AXES[name]) for name in axes},
            "mechanism": {"k": None, "h": None, **sections.get("mechanism", {})},
        }
    )


def _density(axes: str, questions: Questions, **sections: Any) -> Store:
    """A kernel density, with sections of its spec that are not the default's."""
    widths = [BANDWIDTHS[name] for name in axes]
    target = {"kind": "kernel-density", "bandwidth": widths, **sections.pop("target", {})}
    exponential = target.get("kernel") == "laplace"
    to_function = of_function(lambda r, at: r.density(at, axes, exponential=exponential), axes)
    case = _case(axes, {"target": target, **sections})
    return Store(case, {**to_function, **of_distribution(questions)})


_LABELS = {"column": "kind", "classes": ["a", "b"]}
_RESPONSE = {"column": "z", "bounds": list(AXES["z"])}
_ADDED = {"neighbors": "add-or-remove-one", "normalizer": str(ROWS)}


def _groups() -> Store:
    store = _density("x", {}, **{"data.group": {"column": "kind", "values": ["a", "b"]}})
    shares = of_distribution({**by_group(line()), **group_shares()})
    return Store(store.case, {**by_group(store.questions), **shares})


def _added() -> Store:
    store = _density("x", line(), data=_ADDED)
    return Store(Case(store.case.sections, {"neighbors": _ADDED["neighbors"]}), store.questions)


def _noise(noise: str, **budget: Any) -> Store:
    return _density("x", line(), mechanism={"noise": noise}, budget=budget)


def _covariance() -> Store:
    """Oblique coordinates; of a diagonal matrix, so that the truth is a product over axes."""
    diagonal = [[BANDWIDTHS["x"] ** 2, 0.0], [0.0, BANDWIDTHS["y"] ** 2]]
    return _density("xy", {}, target={"bandwidth": None, "covariance": diagonal})


def _automatic_bandwidth() -> Store:
    store = _density("x", SHARES, target={"bandwidth": "auto"})
    chosen_by_release = of_function(lambda _r, _at: math.nan, "x")
    return Store(store.case, {**store.questions, **chosen_by_release})


def _ratio() -> Store:
    target = {"kind": "nadaraya-watson", "bandwidth": [BANDWIDTHS["x"]]}
    to_function = of_function(lambda r, at: r.curve(at, "z"), "x")
    case = _case("x", {"target": target, "data.response": _RESPONSE})
    return Store(case, {**to_function, **of_distribution({**SHARES, **means("z")})})


def _bayes() -> Store:
    target = {"kind": "naive-bayes", "bandwidth": [BANDWIDTHS["x"], BANDWIDTHS["y"]]}

    def score(r: Records, at: np.ndarray) -> np.ndarray:
        """Share of a class times its likelihoods on the axes."""
        likelihood = r.kernels(at[:, 1:], "y").mean(axis=1)
        return r.density(at[:, :1]) * likelihood

    def scores(r: Records, at: np.ndarray) -> np.ndarray:
        first, second = (score(r.where(r["group"] == code), at) for code in (0, 1))
        return second - first

    shares = of_distribution({**by_group(line()), **group_shares()}, "x")
    case = _case("xy", {"target": target, "data.label": _LABELS})
    return Store(case, {**of_function(scores, "xy"), **shares})


def _moments() -> Store:
    """A regression, of which the slope of any column may be asked."""

    def slope(s: Any) -> Any:
        fit = s.regression("z", ["x"], ridge=1e-9)
        return fit.coefficients["x"], *fit.intervals["x"]

    to_function = of_function(lambda _r, _at: math.nan, "xy")
    to_function["slope"] = Question(slope, lambda r: np.polyfit(r["x"], r["z"], 1)[0])
    target = {"kind": "ridge-regression", "method": "moments"}
    return Store(_case("xy", {"target": target, "data.response": _RESPONSE}), to_function)


def stores() -> dict[str, Store]:
    """All of them by name."""
    return {
        "line": _density("x", line()),
        "plane": _density("xy", {**PLANE, **POLYGON}, mechanism={"questions": ["density", "cdf"]}),
        "space": _density("xyz", PLANE),
        "groups": _groups(),
        "added-rows": _added(),
        "ratio": _ratio(),
        "bayes": _bayes(),
        "gaussian": _noise("binned-gaussian", delta="1e-6"),
        "k-norm": _noise("binned-k-norm"),
        "laplace-kernel": _density("x", line(exponential=True), target={"kernel": "laplace"}),
        "lattice": _density("x", {}, mechanism={"noise": "laplace", "k": 12, "h": 2}),
        "covariance": _covariance(),
        "moments": _moments(),
        "automatic-bandwidth": _automatic_bandwidth(),
    }
