"""What a plan costs in a new process: processor time beside that of a fixed piece of numpy.

One thread, nothing cached: each plan is that of a fork of one process, which has imported the
planner and no more. The numpy takes about a second of a processor of 2023, of which a part is run,
so a limit is about so many seconds, and no clock of this machine is in it. `make bench` asserts the
limits and writes what was found; other processors and busy ones have other ratios, so as a test it
allows twice.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from timing import BENCH, Table, keep

PROCESS = """
import json, os, sys, time
import numpy as np
from dbern import ReleaseSpec
from dbern.planning.planner import plan_files
turns = int(sys.argv[1])
for line in sys.stdin:
    if os.fork():
        if os.wait()[1]:
            print("failed", flush=True)
        continue
    spec = ReleaseSpec(**json.loads(line))
    began = time.process_time()
    plan_files(spec, ())
    planned = time.process_time()
    square = np.linspace(-1, 1, 256**2).reshape(256, 256)
    for _ in range(turns):
        np.exp(-np.abs(square @ square.T / 256)).sum() + np.sort(square, axis=None)[7]
    print(turns / 1000 * (planned - began) / (time.process_time() - planned), flush=True)
    os._exit(0)
"""
TURNS = 300 if BENCH else 100
RESPONSE = {"response": {"column": "v", "bounds": [-1.0, 3.0]}}
LABEL = {"label": {"column": "late", "classes": [False, True]}}
GROUP = {"group": {"column": "kind", "values": ["a", "b", "c"]}}
DENSITY, REGRESSION = {"kind": "kernel-density"}, {"kind": "nadaraya-watson"}
RISK = {"kind": "kernel-erm", "loss": "logistic"}
ASKED = {"mechanism": {"questions": ["density", "mass", "quantile"]}}
MACHINE, BAYES = {"kind": "support-vector-machine", "width": 0.2}, {"kind": "naive-bayes"}
SQUARES, OBLIQUE = {"kernel": "polynomial", "degree": 2}, [[0.36, 0.18], [0.18, 0.36]]
LENGTHS = ("support-vector-machine", "kernel-erm")
CASES = {  # axes, bandwidth or length scale, target, sections, delta, largest ratio
    "one axis": (1, 0.6, DENSITY, {}, "0", 0.2),
    "two axes": (2, 0.6, DENSITY, {}, "0", 0.5),  # two laws are compared
    "two axes, Gaussian noise": (2, 0.6, DENSITY, {}, "1e-6", 0.7),
    "three axes": (3, 1.0, DENSITY, {}, "0", 0.6),
    "three axes, Gaussian noise": (3, 1.0, DENSITY, {}, "1e-6", 0.7),
    "groups": (2, 0.6, DENSITY, {"data": GROUP}, "0", 0.5),
    "questions": (1, 0.6, DENSITY, ASKED, "0", 0.9),
    "regression": (1, 0.6, REGRESSION, {"data": RESPONSE}, "0", 0.3),
    "regression, three axes": (3, 1.0, REGRESSION, {"data": RESPONSE}, "0", 0.2),
    "a kink": (1, 0.6, {**DENSITY, "kernel": "triangle"}, {}, "0", 0.5),
    "a kink, two axes": (2, 0.6, {**DENSITY, "kernel": "triangle"}, {}, "0", 0.6),
    "a kink, three axes": (3, 1.0, {**DENSITY, "kernel": "triangle"}, {}, "0", 0.2),
    "narrow": (1, 0.1, DENSITY, {}, "0", 1.2),
    "very narrow": (1, 0.03, DENSITY, {}, "0", 2.3),
    "a narrow kink": (1, 0.05, {**DENSITY, "kernel": "triangle"}, {}, "0", 3.3),
    "any bandwidth": (1, "auto", DENSITY, {}, "0", 2.0),
    "any bandwidth, two axes": (2, "auto", DENSITY, {}, "0", 1.1),
    "a covariance": (2, None, {**DENSITY, "covariance": OBLIQUE}, {}, "0", 0.5),
    "machine": (2, 2.0, MACHINE, {"data": LABEL}, "0", 0.6),
    "naive Bayes": (2, 0.6, BAYES, {"data": LABEL}, "0", 0.3),
    "joint naive Bayes": (2, 0.6, {**BAYES, "release": "joint"}, {"data": LABEL}, "0", 0.3),
    "a risk": (3, 5.0, RISK, {"data": LABEL}, "0", 0.9),
    "arc-cosine": (2, None, {**RISK, "kernel": "arc-cosine"}, {"data": LABEL}, "0", 1.5),
    "polynomial": (3, None, {**RISK, **SQUARES}, {"data": LABEL}, "0", 1.2),
}


@pytest.fixture(scope="module")
def planned() -> Iterator[Callable[[str, Any], float]]:
    """What the plan of a case costs beside the numpy."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    with subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(TURNS)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **threads},
    ) as process:  # fmt: skip
        given, told, found = process.stdin, process.stdout, {}
        assert given is not None
        assert told is not None

        def ratio(case: str, spec: Any) -> float:
            print(json.dumps(spec), file=given, flush=True)
            found[case] = float(told.readline())
            return found[case]

        yield ratio
        given.close()
    keep("plans", Table.of("seconds of numpy", {"plan": found, "at most": {
        case: CASES[case][-1] for case in found
    }}))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_plan_costs_a_second(case: str, planned: Callable[[str, Any], float]) -> None:
    axes, width, target, sections, delta, limit = CASES[case]
    key = "length_scale" if target["kind"] in LENGTHS else "bandwidth"
    widths = {} if width is None else {key: width if width == "auto" else [width] * axes}
    bounds = {name: [0.0, 10.0] for name in "xyz"[:axes]}
    spec = {
        **sections,
        "release": {"name": "case", "output": "case.zarr"},
        "data": {
            "source": "*.parquet", "n": 2_000_000, "bounds": bounds, **sections.get("data", {})
        },
        "target": {**target, **widths},
        "budget": {"epsilon": "1.0", "delta": delta, "ledger": "sqlite:///l.db", "dataset": "d"},
    }  # fmt: skip
    ratio = planned(case, spec)
    assert ratio <= (limit if BENCH else 2 * limit)


if __name__ == "__main__":
    pytest.main([__file__, "-q", "-s", "-n0"])
