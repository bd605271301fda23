"""Scores of diffprivlib: ``python -m rivals.library_runner linear rows.npz``, JSON to stdout.

It runs in an environment of its own (`rivals.library`) and imports nothing of dbern. The rows are
arrays: features to learn from and held out, in [-1, 1], with `truth` for both, the public `norm`
of a record's features, and the response's `radius`. Scores are a list a value of epsilon of a
dictionary a seed.
"""

from __future__ import annotations

import argparse
import json
import warnings

import numpy as np
from diffprivlib.models import GaussianNB, LinearRegression, LogisticRegression

from rivals.scoring import scored


def values(kind, rows, epsilon, seed):  # type: ignore[no-untyped-def] # not checked with its bases
    ends = (np.full(rows["learn"].shape[1], -1.0), np.ones(rows["learn"].shape[1]))
    given = {"epsilon": epsilon, "random_state": seed}
    if kind == "linear":
        model = LinearRegression(bounds_X=ends, bounds_y=(-1.0, 1.0), **given)
        return model.fit(rows["learn"], rows["learn_truth"]).predict(rows["test"])
    if kind == "bayes":
        found = GaussianNB(bounds=ends, **given).fit(rows["learn"], rows["learn_truth"])
        logs = found.predict_joint_log_proba(rows["test"])
        return logs[:, 1] - logs[:, 0]
    model = LogisticRegression(data_norm=float(rows["norm"]), **given)
    return model.fit(rows["learn"], rows["learn_truth"]).decision_function(rows["test"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="rivals.library_runner", description=__doc__)
    parser.add_argument("kind", choices=("linear", "bayes", "logistic"))
    parser.add_argument("rows")
    parser.add_argument("--epsilon", type=float, nargs="+", required=True)
    parser.add_argument("--seeds", type=int, required=True)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of solvers that stop early, as users would
    with np.load(given.rows) as loaded:
        rows = dict(loaded)
    found = [
        [
            scored(values(given.kind, rows, epsilon, seed), rows["truth"], float(rows["radius"]))
            for seed in range(given.seeds)
        ]
        for epsilon in given.epsilon
    ]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
