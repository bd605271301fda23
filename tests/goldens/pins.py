"""Integers that are the same on every processor, kept in ``integers.json``.

Of the cases in `STATES`, the exact sums over all records. A record's integers come from single
IEEE operations, none fused (`dbern/measure/record_integers.py`), and sums of integers are exact:

- B-spline bins: a subtraction, a division and products of shares, no kernel at all.
- Chebyshev moments of Gaussian sums: products of offsets in equal cells. The kernel's exponential
  enters only later, where sums are contracted with tables. Kernels with kinks have cells whose cuts
  are floats of the kernel's; they are not here.
- Counts, sums and squares of classes: positions and their squares.
- Weights are one, minus one, or follow from a response: a difference, a division and a rounding.
- Which rows of a unit count is decided by AES of their bytes.

What floats decide are whole numbers of the plan: cells, bits, order, granularity. The test plans
each case with its bandwidth off by a part in 10^9, a million times what processors differ by, and
wants the same.

Of the cases in `STAGED`, the integers that get the noise too: sums times a power of two, divided by
n and rounded. Those of lattice values and spectral coordinates are products with tables of
exponentials, and minimizers of risks are solved for in floats: none of them is here. Oblique
coordinates are products of matrices, whose order of addition is the library's.

``python -m goldens.pins`` writes the file again, for a change that is meant to change integers.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).resolve().parents[1]
FILE = Path(__file__).with_name("integers.json")
STAGED = (
    "bayes-gaussian/discrete-gaussian",
    "bayes-gaussian/laplace",
    "bayes-gaussian/laplace/added",
    "bayes-gaussian/laplace/units",
    "density-groups/binned-laplace",
    "density-plane/binned-laplace",
    "density/binned-gaussian",
    "density/binned-laplace",
    "density/binned-laplace/added-units",
    "machine/binned-laplace",
    "regression/binned-laplace",
)
STATES = (
    *STAGED,
    "bayes-joint/laplace",
    "bayes/binned-laplace",
    "bayes/laplace",
    "clamped",
    "density-groups/laplace",
    "density-plane/laplace",
    "density/laplace",
    "density/laplace/units",
    "filtered",
    "machine/laplace",
    "machines/laplace",
    "regression/laplace",
)


def recorded() -> dict[str, dict[str, Any]]:
    """Release the cases with the `dbern` of this checkout, and return their integers."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        command = [sys.executable, "-m", "goldens", "--out", str(folder / "digests.json")]
        command += ["--artefacts", str(folder / "made")]
        command += [word for name in STATES for word in ("--case", name)]
        path = os.pathsep.join((str(TESTS.parent), str(TESTS)))
        environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
        subprocess.run(
            command, check=True, cwd=folder, env=environment, timeout=600, capture_output=True
        )
        return {name: _pinned(folder / "made" / name, name in STAGED) for name in sorted(STATES)}


def _pinned(made: Path, staged: bool) -> dict[str, Any]:
    state = np.frombuffer((made / "state").read_bytes(), dtype=np.int64)
    found = {"plan": whole_numbers(json.loads((made / "plan").read_text())), "state": _said(state)}
    for path in sorted((made / "staged").rglob("*")) if staged else ():
        if path.is_file():
            values = np.frombuffer(path.read_bytes()[12:], dtype="<i8")  # behind one dimension
            found[path.relative_to(made).as_posix()] = _said(values)
    return found


def _said(values: np.ndarray) -> dict[str, Any]:
    digest = hashlib.sha256(values.astype("<i8").tobytes()).hexdigest()
    return {"size": values.size, "sum": int(values.sum()), "sha256": digest}


def whole_numbers(plan: Mapping[str, Any]) -> list[Any]:
    """What of a plan decides on the integers: of each component its cells, bits and granularity."""
    return [
        {
            "counting": one["counting"],
            "cells": [axis.get("cells") for axis in one["maps"]],
            "granularity": one["noise"]["law"]["granularity_exponent"],
        }
        for one in plan["components"]
    ]


if __name__ == "__main__":
    FILE.write_text(json.dumps(recorded(), indent=1, sort_keys=True) + "\n")
