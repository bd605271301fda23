"""Learners that people try first, beside what one would write: ``make learners``.

Linear regression by its root mean squared error, Gaussian naive Bayes and logistic regression by
the area under the ROC curve (of more classes by the share told right), each on a quarter of the
records that it never saw: real data beside this repository, and a made-up table of collinear
columns. Every learner gets the same public bounds and epsilon, replace one, and its defaults; rows
of dbern are the engine's own integers and noise. The others are some 20 lines of floats each, as
one would write them; of logistic regression `rivals.logistic`.

`Diffprivlib` is that library's split of epsilon for its GaussianNB: a third each for counts, sums
and squares about the noisy mean, in equal parts over the axes.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from sklearn.linear_model import LinearRegression
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import CategoricalNB, GaussianNB

import dbern
from dbern.cluster.graph import Piece, center, count, merge, passes, share_out
from dbern.data.parquet import discover, read_footers, write_records
from dbern.privacy.keystream import KEY_BYTES
from dbern.privacy.mechanism import privatize
from dbern.strategies.moments import Measured, Moments, least_squares
from dbern.targets.predictions import deviation_of
from dbern.types import BoolArray, FloatArray, Int64Array
from rivals import logistic
from rivals.tasks import FLIGHTS

ADULT = FLIGHTS.with_name("adult.parquet")
EPSILONS = (0.1, 0.5, 1.0, 3.0)
SEEDS = 20
_SALT = bytes(KEY_BYTES)
Predictor = Callable[["Table", "Table", float, int], FloatArray]
_KEYED = ("logistic-regression", "logistic-regression, objective")
"""Whose integers depend on the key."""

Bounds = dict[str, tuple[float, float]]
Labels = Callable[[Any], BoolArray | Int64Array]
_ADULT: Bounds = {
    "age": (16, 100), "education_num": (0, 17), "fnlwgt": (0, 1.5e6), "capital_gain": (0, 1e5),
    "capital_loss": (0, 5000), "hours_per_week": (0, 100),
}  # fmt: skip
_LISTS = (
    "marital_status", "occupation", "sex", "workclass", "education", "relationship", "race",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Table:
    """Columns and their bounds; last a response, or with `late` a label from its value.

    Records out of bounds are not there; the response is moved to its bounds. `lists` are the values
    of columns of categories.
    """

    name: str
    columns: dict[str, Any]
    bounds: Bounds
    label: BoolArray | Int64Array | None = None
    lists: dict[str, list[str]] = field(default_factory=dict)

    @property
    def axes(self) -> list[str]:
        names = [*self.bounds]
        return names if self.label is not None else names[:-1]

    def numbers(self) -> FloatArray:
        """In [-1, 1], (n, D)."""
        ends = np.array([*self.bounds.values()], dtype=np.float64)
        values = np.column_stack([self.columns[name] for name in self.bounds])
        return np.clip(2 * (values - ends[:, 0]) / (ends[:, 1] - ends[:, 0]) - 1, -1, 1)

    def features(self) -> FloatArray:
        """One column a listed value, and then the numbers."""
        listed = [
            np.equal.outer(self.columns[name], values).astype(np.float64)
            for name, values in self.lists.items()
        ]
        return np.column_stack([*listed, self.numbers()])

    @property
    def radius(self) -> float:
        low, high = [*self.bounds.values()][-1]
        return (high - low) / 2

    def parts(self) -> tuple[Table, Table]:
        """Three quarters to learn from, and what is held out."""
        rows = len(next(iter(self.columns.values())))
        held = np.random.default_rng(7).permutation(rows) < rows // 4
        return self._where(~held), self._where(held)

    def _where(self, kept: BoolArray) -> Table:
        columns = {name: column[kept] for name, column in self.columns.items()}
        label = None if self.label is None else self.label[kept]
        return Table(self.name, columns, self.bounds, label, self.lists)


def read(
    name: str,
    path: Path,
    bounds: Bounds,
    label: Callable[[Any], BoolArray | Int64Array] | None,
    lists: Sequence[str] = (),
) -> Table:
    found = pq.read_table(path)
    columns: dict[str, Any] = {one: found[one].to_numpy().astype(np.float64) for one in bounds}
    columns |= {one: np.array(found[one].to_pylist()) for one in lists}
    values = {one: np.unique(columns[one]).tolist() for one in lists}  # as in the codebook
    axes = [*bounds] if label is not None else [*bounds][:-1]
    kept = np.all(
        [(columns[a] >= bounds[a][0]) & (columns[a] <= bounds[a][1]) for a in axes], axis=0
    )
    classes = None if label is None else label(found)[kept]
    kept_columns = {one: column[kept] for one, column in columns.items()}
    return Table(name, kept_columns, bounds, classes, values)


def collinear(rows: int = 50_000) -> Table:
    """Sizes that determine each other, and a price: as in tables of things that are sold."""
    rng = np.random.default_rng(2020)
    size = np.exp(rng.normal(-0.4, 0.6, rows)).clip(0.2, 5)
    depth, width = rng.normal(61.7, 1.4, rows).clip(43, 79), rng.normal(57.5, 2.2, rows)
    x = 6.45 * np.cbrt(size) * np.exp(rng.normal(0, 0.007, rows))
    y, z = x * np.exp(rng.normal(0, 0.01, rows)), x * depth / 100
    price = np.exp(8.45 + 1.67 * np.log(size) + rng.normal(0, 0.25, rows)).clip(326, 18_800)
    bounds: Bounds = {"size": (0, 5.5), "depth": (40, 80), "width": (40, 100), "x": (0, 15),
                      "y": (0, 60), "z": (0, 32), "price": (0, 20_000)}  # fmt: skip
    columns = dict(zip(bounds, (size, depth, width.clip(43, 95), x, y, z, price), strict=True))
    return Table("made up, collinear", columns, bounds)


def regressions() -> Iterator[Table]:
    if FLIGHTS.exists():
        bounds: Bounds = {"distance": (0, 5000), "time": (0, 24), "delay": (-60, 180)}
        yield read("flights, delay", FLIGHTS, bounds, None)
    if ADULT.exists():
        yield read("adult, hours_per_week", ADULT, _ADULT, None)
        aged = {name: ends for name, ends in _ADULT.items() if name != "age"}
        aged |= {"age": _ADULT["age"]}
        yield read("adult, age", ADULT, aged, None)
        yield read("adult, hours, 3 lists", ADULT, _ADULT, None, _LISTS[:3])
        yield read("adult, age, 3 lists", ADULT, aged, None, _LISTS[:3])
        yield read("adult, age, 7 lists", ADULT, aged, None, _LISTS)
    yield collinear()


def classifications() -> Iterator[Table]:
    if ADULT.exists():
        few = {name: _ADULT[name] for name in ("age", "education_num", "hours_per_week")}
        for name, bounds, lists in (
            ("adult, 6 axes", _ADULT, ()), ("adult, 3 axes", few, ()),
            ("adult, 3 axes, 1 list", few, _LISTS[:1]),
            ("adult, 3 axes, 3 lists", few, _LISTS[:3]), ("adult, 6 axes, 7 lists", _ADULT, _LISTS),
        ):  # fmt: skip
            over = lambda found: found["over_50k"].to_numpy() == 1  # noqa: E731
            yield read(name, ADULT, bounds, over, lists)
    if FLIGHTS.exists():
        axes: Bounds = {"time": (0, 24), "distance": (0, 5000)}
        yield read("flights, late", FLIGHTS, axes, lambda found: found["delay"].to_numpy() > 15)


def logistics() -> Iterator[Table]:
    yield from classifications()
    if ADULT.exists():
        axes = {name: ends for name, ends in _ADULT.items() if name != "education_num"}

        def groups(found: Any) -> Int64Array:
            years = found["education_num"].to_numpy()
            return np.searchsorted([9, 10, 11, 13], years, side="right")

        yield read("adult, education in five groups", ADULT, axes, groups)


# --- dbern: the engine's integers, and its noise


@lru_cache(maxsize=8)
def planned(
    table: Table, target: str, epsilon: float, key: bytes = b""
) -> tuple[Any, Any, Int64Array]:
    """The spec, its plan, and the integers that it would stage: with a key, if that is needed."""
    kind, _, method = target.partition(", ")
    axes = {name: list(map(float, table.bounds[name])) for name in table.axes}
    lists = {name: {"values": values} for name, values in table.lists.items()}
    data: dict[str, Any] = {"bounds": axes | lists}
    given: dict[str, Any] = {"kind": kind}
    columns: dict[str, Any] = dict(table.columns)
    if table.label is not None:
        data["label"] = {"column": "label", "classes": list(range(int(table.label.max()) + 1))}
        columns["label"] = table.label.astype(np.int64)
        if kind == "gaussian-naive-bayes":
            given["std_floor"] = [0.01 * (high - low) for low, high in axes.values()]
    else:
        response = [*table.bounds][-1]
        data["response"] = {"column": response, "bounds": list(map(float, table.bounds[response]))}
    given |= {"method": method} if method else {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "records.parquet"
        write_records(source, columns)
        spec = dbern.ReleaseSpec(
            release={"name": "rival", "output": "rival.zarr"},
            data={"source": str(source), **data},
            target=given,
            budget={"epsilon": f"{epsilon:g}", "ledger": "sqlite:///l.db", "dataset": "rivals"},
        )
        plan = dbern.plan(spec)
        counters = plan.counters(spec).with_key(key)
        files = read_footers(discover(spec.source), spec.columns)
        tasks = passes(counters, share_out(files, _SALT))
        total = merge([count(counters, portions, _SALT, index) for portions, index in tasks])
        pieces = [Piece(0, 0, slab) for slab in plan.strategy.layout.slabs()]
        parts = [center(total, counters, piece, plan.noise.law, _SALT) for piece in pieces]
    if any(part.state is None for part in parts):
        raise RuntimeError(f"a task failed: {parts[0].failure}")
    return spec, plan, np.concatenate([part.state.ravel() for part in parts])


def released(table: Table, target: str, epsilon: float, seed: int) -> tuple[Any, Any, FloatArray]:
    key = np.random.default_rng(seed).bytes(KEY_BYTES)
    keyed = (key,) if target in _KEYED else ()
    spec, plan, granules = planned(table, target, epsilon, *keyed)
    noisy = privatize(granules, 0, plan.noise.law, key, "rival").astype(np.float64)
    return spec, plan, np.ldexp(noisy, plan.noise.law.granularity_exponent)


def ours(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    spec, plan, values = released(learn, "ridge-regression", epsilon, seed)
    moments = Moments.of(len(learn.axes) + 1, spec.domain.blocks)
    measured, columns = Measured.of(moments, values, deviation_of(plan.noise.law)), moments.columns
    fit = least_squares(measured, columns - 1, range(columns - 1))
    return fit.intercept + test.features()[:, :-1] @ fit.slopes


def papers(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    _, _, weights = released(learn, "ridge-regression, weights", epsilon, seed)
    unit = (test.numbers()[:, :-1] + 1) / 2
    return (np.column_stack([unit, np.ones(len(unit))]) @ weights) / learn.radius


def our_bayes(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    spec, plan, values = released(learn, "gaussian-naive-bayes", epsilon, seed)
    listed, numbers = np.split(test.features(), [sum(spec.domain.blocks)], axis=1)
    unit = np.hstack([listed, (numbers + 1) / 2])
    return spec.combination.decisions([values], unit, [deviation_of(plan.noise.law)])


def our_logistic(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    _, _, weights = released(learn, "logistic-regression", epsilon, seed)
    listed, numbers = np.split(test.features(), [-len(test.bounds)], axis=1)
    unit = np.column_stack([listed, (numbers + 1) / 2])
    return np.column_stack([unit, np.ones(len(unit))]) @ weights.reshape(-1, unit.shape[1] + 1).T


# --- the others


def rival(weights: Callable[[FloatArray, FloatArray, float, int], FloatArray]) -> Predictor:
    def predictor(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
        z = test.features()
        found = weights(learn.features(), np.asarray(learn.label, np.float64), epsilon, seed)
        return np.column_stack([z, np.ones(len(z))]) @ found.T

    return predictor


def constant(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    del epsilon, seed
    return np.full(len(test.numbers()), learn.numbers()[:, -1].mean())


def without_privacy(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    del epsilon, seed
    z = learn.features()
    return LinearRegression().fit(z[:, :-1], z[:, -1]).predict(test.features()[:, :-1])


def _noisy(learn: Table, largest: float, epsilon: float, seed: int) -> tuple[FloatArray, float]:
    """The mean of ``(1, z) (1, z)'`` with symmetric Laplace noise, and the noise's scale."""
    z = learn.numbers()
    features = np.column_stack([np.ones(len(z)), z])
    scale = largest / len(z) / epsilon
    noise = np.triu(np.random.default_rng(seed).laplace(0, scale, (features.shape[1],) * 2))
    noise[0, 0] = 0.0  # the number of rows is public
    return features.T @ features / len(z) + noise + np.triu(noise, 1).T, scale


def noisy_moments(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    """Each sum and product moves by 2, each square by 1; negative eigenvalues are cut at 1e-3."""
    d = len(learn.bounds)
    gram, _ = _noisy(learn, 2 * d + d * (d - 1) + d, epsilon, seed)
    values, vectors = np.linalg.eigh(gram[:-1, :-1])
    w = vectors @ ((vectors.T @ gram[:-1, -1]) / np.maximum(values, 1e-3))
    return w[0] + test.numbers()[:, :-1] @ w[1:]


def functional(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    """Zhang et al. 2012: sensitivity 2 (d + 1)^2, a ridge of four deviations, spectral trimming."""
    d = len(learn.bounds)
    gram, scale = _noisy(learn, 2 * (d + 1) ** 2, epsilon, seed)
    values, vectors = np.linalg.eigh(gram[:-1, :-1] + 4 * math.sqrt(2) * scale * np.eye(d))
    kept = values > 0
    w = vectors[:, kept] @ ((vectors[:, kept].T @ gram[:-1, -1]) / values[kept])
    return w[0] + test.numbers()[:, :-1] @ w[1:]


def bayes_without_privacy(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    del epsilon, seed
    logs = GaussianNB().fit(learn.numbers(), learn.label).predict_joint_log_proba(test.numbers())
    for name, values in learn.lists.items():
        codes, own = (
            np.searchsorted(values, part.columns[name])[:, None] for part in (learn, test)
        )
        peer = CategoricalNB(min_categories=len(values)).fit(codes, learn.label)
        logs = logs + peer.predict_joint_log_proba(own) - peer.class_log_prior_
    return logs[:, 1] - logs[:, 0]


def diffprivlib(learn: Table, test: Table, epsilon: float, seed: int) -> FloatArray:
    rng, z, at = np.random.default_rng(seed), (learn.numbers() + 1) / 2, (test.numbers() + 1) / 2
    each, logs = 3 * z.shape[1] / epsilon, []
    if learn.label is None:
        raise ValueError("naive Bayes needs classes")
    for own in (z[~learn.label], z[learn.label]):
        rows = max(1.0, len(own) + rng.laplace(0, 3 / epsilon))
        mean = np.clip((own.sum(axis=0) + rng.laplace(0, each, z.shape[1])) / rows, 0, 1)
        spread, wide = ((own - mean) ** 2).sum(axis=0), np.maximum(mean, 1 - mean) ** 2
        tries = spread + wide * rng.laplace(0, each, (1000, z.shape[1]))
        fits = (tries >= 0) & (tries <= wide * rows)
        drawn = np.where(fits.any(axis=0), tries[fits.argmax(axis=0), range(z.shape[1])], spread)
        variance = drawn / rows + 1e-9
        likely = -np.log(variance) / 2 - (at - mean) ** 2 / (2 * variance)
        logs.append(math.log(rows) + likely.sum(axis=1))
    return logs[1] - logs[0]


LINEAR: dict[str, Predictor] = {
    "constant, not private": constant, "least squares, not private": without_privacy,
    "noisy moments, 20 lines": noisy_moments, "functional mechanism": functional,
    "dbern, weights (the paper's)": papers, "dbern": ours,
}  # fmt: skip
BAYES: dict[str, Predictor] = {
    "GaussianNB, not private": bayes_without_privacy, "diffprivlib's split": diffprivlib,
    "dbern": our_bayes,
}  # fmt: skip
logistic_without_privacy = rival(logistic.without_privacy)
_WITH_LISTS = (
    constant, without_privacy, ours, bayes_without_privacy, our_bayes, logistic_without_privacy,
    our_logistic,
)  # fmt: skip
LOGISTIC: dict[str, Predictor] = {
    "LogisticRegression, not private": logistic_without_privacy,
    "output perturbation": rival(logistic.output),
    "objective perturbation": rival(logistic.objective),
    "diffprivlib's split": rival(logistic.diffprivlib), "dbern": our_logistic,
}  # fmt: skip
PANELS = {
    "linear": (regressions, LINEAR), "bayes": (classifications, BAYES),
    "logistic": (logistics, LOGISTIC),
}  # fmt: skip
_FIXED = (constant, without_privacy, bayes_without_privacy, logistic_without_privacy)


def measure(table: Table, predictor: Predictor, epsilon: float, seeds: int) -> tuple[float, float]:
    """The mean, and its standard error over the noise, of RMSE in data units or AUC."""
    learn, test = parts_of(table)
    found = []
    for seed in range(1 if predictor in _FIXED else seeds):
        values = predictor(learn, test, epsilon, seed)
        if test.label is not None and values.ndim == 2 and values.shape[1] > 1:
            found.append(float(np.mean(values.argmax(axis=1) == test.label)))
        elif test.label is not None:
            found.append(roc_auc_score(test.label, values))
        else:
            off = np.clip(values, -1, 1) - test.numbers()[:, -1]
            found.append(table.radius * math.sqrt(np.mean(off**2)))
    return float(np.mean(found)), float(np.std(found) / math.sqrt(len(found)))


@lru_cache(maxsize=8)
def parts_of(table: Table) -> tuple[Table, Table]:
    return table.parts()


def rows(panels: Sequence[str], epsilons: Sequence[float], seeds: int) -> Iterator[list[str]]:
    """One line a table and learner, one column an epsilon."""
    for tables, predictors in (PANELS[name] for name in panels):
        for table in tables():
            for name, predictor in predictors.items():
                if table.lists and predictor not in _WITH_LISTS:
                    continue
                cells = (measure(table, predictor, epsilon, seeds) for epsilon in epsilons)
                texts = [f"{mean:.5g} ({error:.1g})" if error else f"{mean:.5g}"
                         for mean, error in cells]  # fmt: skip
                yield [table.name, name, *texts]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="rivals.learners", description=__doc__)
    parser.add_argument("--epsilon", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--panels", nargs="+", choices=PANELS, default=[*PANELS])
    given = parser.parse_args(arguments)
    head = ["records", "learner", *(f"epsilon {epsilon:g}" for epsilon in given.epsilon)]
    print(f"| {' | '.join(head)} |\n| --- | --- {'| ---: ' * len(given.epsilon)}|")
    for row in rows(given.panels, given.epsilon, given.seeds):
        print(f"| {' | '.join(row)} |", flush=True)
    print(
        "\nRMSE in the response's unit; AUC, of five classes the share told right (standard error)"
    )


if __name__ == "__main__":
    main()
