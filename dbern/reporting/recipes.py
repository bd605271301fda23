"""How to query a synopsis: in Python, on the command line and from plain zarr; texts that run."""

from __future__ import annotations

import shlex
from pathlib import Path

from dbern.synopsis.reader import Synopsis

_PYTHON = """\
import dbern
import numpy as np

synopsis = dbern.open({store!r})
points = np.array([[{point}]])  # {names}
values = synopsis(points)
low, high = synopsis.interval(points, beta={beta:g})"""

_SHELL = """\
dbern verify {store}
dbern show {store}
dbern query {store} queries.parquet --out answers.parquet"""

_ZARR = """\
import numpy as np
import zarr
from scipy.stats import binom

store = zarr.open_group({store!r}, mode="r")
facts = dict(store.attrs)
axes = {{axis["name"]: axis for axis in facts["domain"]["axes"]}}
point = {{{named}}}


def basis(y, k):
    return binom.pmf(np.arange(k + 1), k, y)


def position(name):
    return (point[name] - axes[name]["low"]) / (axes[name]["high"] - axes[name]["low"])


def released(component, name):
    array = store["components/" + name + "/coefficients"]
    values = array[...] * array.attrs["scale_factor"]
    if "entries" in component:
        return values
    y = np.array([position(axis) for axis in component["axes"]])
    if "oblique" in component:
        rows, low, width = (np.array(component["oblique"][key]) for key in ("rows", "low", "width"))
        y = np.clip((rows @ y - low) / width, 0, 1)
    for place, k, h in zip(y, component["k"], component["h"]):
        defect = np.eye(k + 1) - np.array([basis(j / k, k) for j in range(k + 1)])
        term = values
        for _ in range(h - 1):
            term = np.tensordot(defect, term, axes=1)
            values = values + term
        values = np.tensordot(basis(place, k), values, axes=1)
    return float(values)


parts = [released(one, name) for one in facts["components"] for name in one["arrays"]]
{combined}"""

_LINEAR = """\
y, constant = np.array([position(name) for name in axes]), facts["combine"]["constant"]
features = np.append(y, constant) if constant else y
parts = [float(weights @ features) for weights in parts[0].reshape(-1, len(features))]
"""

_RATIO = """\
low, high = facts["combine"]["low"], facts["combine"]["high"]
value = (low + high) / 2
if parts[1] > 0:
    value += (high - low) / 2 * parts[0] / parts[1]
value = min(max(value, low), high)"""

_BAYES = """\
peaks, floors = facts["combine"]["peaks"], facts["combine"]["floors"]
scores = []
classes = len(facts["combine"]["classes"])
for j, p in enumerate(np.clip(parts[-1], 0, 1)):
    factors = [parts[i * classes + j] / p if p > 0 else 0 for i in range(len(peaks))]
    scores.append(p * np.prod(np.clip(factors, floors, peaks)))
"""

_GAUSSIAN_BAYES = """\
peaks, floors = np.array(facts["combine"]["peaks"]), np.array(facts["combine"]["floors"])
y = np.array([position(name) for name in axes]) - 0.5
scores = []
for p, *moments in parts[0].reshape(len(facts["combine"]["classes"]), -1):
    p, (m, q) = min(max(p, 0), 1), np.reshape(moments, (2, -1))
    mean, square = (m / p, q / p) if p > 0 else (0 * m, 0 * q)
    mean = np.clip(mean, -0.5, 0.5)
    spread = np.sqrt(np.maximum(np.minimum(square, 0.25) - mean**2, floors**2))
    scores.append(p * np.prod(peaks * floors / spread * np.exp(-((y - mean) ** 2) / 2 / spread**2)))
"""

_TWO_SCORES = "value = scores[1] - scores[0]"
_COMBINED = {
    "linear": "value = parts[0]",
    "sigmoid": "value = 1 / (1 + np.exp(-parts[0]))",
    "response": 'value = parts[0] + (facts["combine"]["low"] + facts["combine"]["high"]) / 2',
    "stack": 'value = np.array(parts)  # one for each of facts["combine"]["classes"]',
    "one-vs-rest": "value = 2 * np.array(parts) - np.sum(parts)",
    "ratio": _RATIO,
    "naive-bayes": _BAYES,
    "gaussian-naive-bayes": _GAUSSIAN_BAYES,
}


def recipes(synopsis: Synopsis) -> dict[str, str]:
    """Programs that answer a query at the middle of the domain, by the name of the way.

    Run them in the folder that holds the store; the shell's needs a ``queries.parquet`` with a
    column for each axis.
    """
    store, axes = Path(synopsis.url).name, synopsis.domain.axes
    middle = {axis.name: (axis.low + axis.high) / 2 for axis in axes}
    combine = synopsis.combination
    combined = _COMBINED[combine.kind]
    combined = combined if combine.constant is None else _LINEAR + combined
    if combine.kind.endswith("naive-bayes"):
        combined += _TWO_SCORES if len(combine.classes) == 2 else "value = np.array(scores)"
    return {
        "python": _PYTHON.format(
            store=store,
            point=", ".join(map(repr, middle.values())),
            names=", ".join(" ".join(name.split()) for name in middle),
            beta=synopsis.metadata["certificate"]["beta"],
        ),
        "shell": _SHELL.format(store=shlex.quote(store)),
        "zarr": _ZARR.format(
            store=store,
            named=", ".join(f"{name!r}: {place!r}" for name, place in middle.items()),
            combined=combined,
        ),
    }
