"""diffprivlib itself, as a process in an environment of its own: ``make build/diffprivlib``.

It gets the folds, bounds, seeds and values of epsilon that everyone gets, columns of categories as
one column of 0 and 1 a value, and the norm of a record that follows from the bounds. Its guarantee
is what it says. Where the environment is not there, `NAME` says so, and rewritten splits of its
epsilon stand in (`rivals.bayes`, `rivals.logistic`).
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from rivals.records import Table
from rivals.scoring import Scores

_CHECKOUT = Path(__file__).resolve().parents[2]
PYTHON = _CHECKOUT / "build" / "diffprivlib" / "bin" / "python"
_LONGEST = 3600  # seconds


class LibraryError(Exception):
    """The library failed: what it wrote last."""


@lru_cache
def available() -> bool:
    """Whether the environment is there, and the library is imported in it."""
    if not PYTHON.exists():
        return False
    ran = subprocess.run(
        [PYTHON, "-c", "import diffprivlib.models"], capture_output=True, timeout=120, check=False
    )
    return ran.returncode == 0


def scores(kind: str) -> Callable[[Table, Table, Sequence[float], int], list[list[Scores]]]:
    """Of one of its learners, a list an epsilon of one dictionary a seed."""

    def of(learn: Table, test: Table, epsilons: Sequence[float], seeds: int) -> list[list[Scores]]:
        with tempfile.TemporaryDirectory() as folder:
            rows = Path(folder) / "rows.npz"
            np.savez(
                rows, learn=learn.features, learn_truth=learn.truth, test=test.features,
                truth=test.truth, radius=learn.radius, norm=learn.longest,
            )  # fmt: skip
            ran = subprocess.run(
                [PYTHON, "-m", "rivals.library_runner", kind, rows, "--seeds", str(seeds),
                 "--epsilon", *map(str, epsilons)],
                capture_output=True, text=True, timeout=_LONGEST, check=False,
                env={**os.environ, "PYTHONPATH": str(_CHECKOUT / "benchmarks"),
                     "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        if ran.returncode:
            raise LibraryError((ran.stderr.strip().splitlines() or ["it wrote nothing"])[-1])
        found: list[list[Scores]] = json.loads(ran.stdout)
        return found

    return of
