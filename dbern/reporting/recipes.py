"""Programs that query a synopsis, for a report on it."""

from __future__ import annotations

import shlex
from pathlib import Path

from dbern.combination.functions import FunctionCombination
from dbern.combination.scores import ClassScores
from dbern.reporting.page_templates import template
from dbern.reporting.pictures import middle
from dbern.synopsis.reader import Synopsis

_PYTHON = """\
import dbern
import numpy as np

synopsis = dbern.open({store!r})
points = np.array([[{point}]]{kind})  # {names}
values = synopsis(points)
low, high = synopsis.interval(points, beta={beta:g})
print(values, low, high)"""

_SHELL = """\
dbern verify {store}
dbern show {store}
dbern query {store} queries.parquet --out answers.parquet"""

_NO_PROGRAM = "# FORMAT.md says how values follow from what is stored: see combine and domain"


def recipes(synopsis: Synopsis) -> dict[str, str]:
    """Write programs that answer a query at the middle of the domain, by what runs them.

    Run them in the folder that holds the store; the shell's needs a ``queries.parquet`` with a
    column for each axis.
    """
    store, axes = Path(synopsis.url).name, synopsis.domain.axes
    point = {axis.name: middle(axis) for axis in axes}
    combination, categorical = synopsis.combination, synopsis.domain.categorical
    program = template("recipe.py.txt").render(
        store=repr(store),
        point=repr(point),
        promised=any("promise" in component for component in synopsis.metadata["components"]),
        linear=isinstance(combination, FunctionCombination) and combination.constant is not None,
        kind=combination.kind,
        scores=len(combination.classes) if isinstance(combination, ClassScores) else 0,
    )
    return {
        "python": _PYTHON.format(
            store=store,
            point=", ".join(map(repr, point.values())),
            kind=", dtype=object" if categorical else "",
            names=", ".join(" ".join(name.split()) for name in point),
            beta=synopsis.metadata["certificate"]["beta"],
        ),
        "shell": _SHELL.format(store=shlex.quote(store)),
        "zarr": _NO_PROGRAM
        if categorical or "degree" in synopsis.metadata["combine"]
        else program.rstrip(),
    }
