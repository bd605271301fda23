"""A real task: is a flight more than 15 minutes late, from its time of day and its distance?

``make flights`` releases every learner at every epsilon and prints accuracy and ranking (the area
under the ROC curve: how often a late flight is given more than one that is not) on flights that
it never saw, beside the same learner without noise and scikit-learn.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rivals.tasks import FLIGHTS
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import GaussianNB

import dbern
from dbern.ledger import BudgetLedger
from dbern.privacy.budget import Budget
from dbern.run.connection import cluster
from dbern.types import BoolArray, FloatArray

LATE = 15
BOUNDS = {"time": [0.0, 24.0], "distance": [0.0, 5000.0]}
LEARNERS: dict[str, dict[str, Any]] = {
    "logistic, linear": {"kind": "logistic-regression", "C": 100.0},
    "logistic, Gaussian kernel": {
        "kind": "kernel-erm", "loss": "logistic", "length_scale": [3.0, 800.0], "C": 30.0,
    },
    "support vector machine": {"kind": "support-vector-machine", "length_scale": [3.0, 800.0]},
    "naive Bayes": {"kind": "naive-bayes", "bandwidth": [1.0, 150.0]},
}  # fmt: skip
EPSILONS = ("0.1", "0.5", "1", "2")
NOISELESS = "100"  # its noise is far below everything else


@dataclass(frozen=True)
class Split:
    """Flights to learn from and to be judged by: times and distances (m, 2), and which are late."""

    points: FloatArray
    late: BoolArray
    others: FloatArray
    others_late: BoolArray


def split(path: Path = FLIGHTS, rows: int | None = None) -> Split:
    """A quarter of the flights is held out."""
    table = pq.read_table(path, columns=[*BOUNDS, "delay"])
    points = np.column_stack([table[name].to_numpy().astype(float) for name in BOUNDS])
    late = table["delay"].to_numpy() > LATE
    order = np.random.default_rng(2020).permutation(len(late))[:rows]
    learned, held = np.split(order, [3 * len(order) // 4])
    return Split(points[learned], late[learned], points[held], late[held])


@dataclass(frozen=True)
class Scores:
    """Share of flights that are told rightly, and the area under the curve."""

    accuracy: float
    area: float

    @classmethod
    def of(cls, values: FloatArray, decided: BoolArray, late: BoolArray) -> Scores:
        """Those of values (m,), above which the second class is likelier, and decisions."""
        return cls(float((decided == late).mean()), float(roc_auc_score(late, values)))


@contextmanager
def workshop(flights: Split) -> Iterator[tuple[Path, str]]:
    """A folder with the flights to learn from, and a ledger with more than enough budget."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        columns = dict(zip(BOUNDS, flights.points.T, strict=True))
        pq.write_table(pa.table({**columns, "late": flights.late}), folder / "flights.parquet")
        url = f"sqlite:///{folder / 'ledger.db'}"
        BudgetLedger.create(url)
        with BudgetLedger.open(url) as ledger:
            ledger.grant("flights", Budget.parse("1000000000"))
        yield folder, url


def released(
    place: tuple[Path, str], target: Mapping[str, Any], epsilon: str, name: str, client: Any
) -> dbern.Synopsis:
    """One release, files to synopsis."""
    folder, url = place
    spec = dbern.ReleaseSpec(
        release={"name": name, "output": str(folder / f"{name}.zarr")},
        data={"source": str(folder / "flights.parquet"), "bounds": BOUNDS,
              "label": {"column": "late", "classes": [False, True]}},
        target=dict(target),
        budget={"epsilon": epsilon, "ledger": url, "dataset": "flights"},
    )  # fmt: skip
    return dbern.release(spec, client=client).synopsis


def judged(synopsis: dbern.Synopsis, flights: Split) -> Scores:
    """On flights that were held out."""
    values = synopsis.decision_function(flights.others)
    return Scores.of(values, synopsis.predict(flights.others), flights.others_late)


def peers(flights: Split) -> dict[str, Scores]:
    """scikit-learn's, and saying that no flight is late."""
    low, high = np.array([*BOUNDS.values()]).T
    points, others = ((x - low) / (high - low) for x in (flights.points, flights.others))
    found = {"nobody is late": Scores(float((~flights.others_late).mean()), 0.5)}
    for name, model in {
        "scikit-learn, logistic": LogisticRegression(),
        "scikit-learn, Gaussian naive Bayes": GaussianNB(),
    }.items():
        model.fit(points, flights.late)
        chances = model.predict_proba(others)[:, 1]
        found[name] = Scores.of(chances, chances > 0.5, flights.others_late)
    return found


def table(
    flights: Split, client: Any, epsilons: Sequence[str], learners: Sequence[str], repeats: int
) -> Iterator[tuple[str, str, Scores]]:
    """Learner, epsilon and mean scores; epsilon "" is without noise."""
    with workshop(flights) as place:
        for number, name in enumerate(learners):
            for epsilon in (*epsilons, NOISELESS):
                times = 1 if epsilon == NOISELESS else repeats
                scores = [
                    judged(released(place, LEARNERS[name], epsilon,
                                    f"l{number}-{epsilon}-{i}", client), flights)
                    for i in range(times)
                ]  # fmt: skip
                mean = Scores(
                    float(np.mean([one.accuracy for one in scores])),
                    float(np.mean([one.area for one in scores])),
                )
                yield name, "" if epsilon == NOISELESS else epsilon, mean


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="flights", description=__doc__)
    parser.add_argument("--epsilon", nargs="+", default=EPSILONS)
    parser.add_argument("--learner", nargs="+", default=list(LEARNERS), choices=list(LEARNERS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, help="only so many flights, held-out ones included")
    given = parser.parse_args(arguments)
    if not FLIGHTS.exists():
        sys.exit(f"{FLIGHTS} is not there")
    flights = split(rows=given.rows)
    print(f"{len(flights.late)} flights, {flights.late.mean():.1%} of them late; "
          f"{len(flights.others)} held out")  # fmt: skip
    print("| learner | epsilon | accuracy | area |\n| --- | --- | --- | --- |")
    for name, scores in peers(flights).items():
        print(f"| {name} | none | {scores.accuracy:.4f} | {scores.area:.4f} |")
    with cluster() as client:
        rows = table(flights, client, given.epsilon, given.learner, given.repeats)
        for name, epsilon, scores in rows:
            shown = f"{scores.accuracy:.4f} | {scores.area:.4f}"
            print(f"| {name} | {epsilon or 'none'} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
