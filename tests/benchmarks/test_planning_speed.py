"""What a plan costs in a new process: processor time beside that of a fixed piece of numpy.

One thread, nothing cached. The numpy takes about a second of a processor of 2023, so a limit is
about so many seconds, and no clock of this machine is in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

PROCESS = """
import json, sys, time
import numpy as np
from dbern import ReleaseSpec
from dbern.planning.planner import plan_files
spec = ReleaseSpec(**json.loads(sys.argv[1]))
began = time.process_time()
plan_files(spec, ())
planned = time.process_time()
square = np.linspace(-1, 1, 256**2).reshape(256, 256)
for _ in range(1000):
    np.exp(-np.abs(square @ square.T / 256)).sum() + np.sort(square, axis=None)[7]
print((planned - began) / (time.process_time() - planned))
"""
RESPONSE = {"response": {"column": "v", "bounds": [-1.0, 3.0]}}
GROUP = {"group": {"column": "kind", "values": ["a", "b", "c"]}}
DENSITY = {"kind": "kernel-density"}
CASES = {  # axes, bandwidth, target, records, delta, largest ratio
    "one axis": (1, 0.6, DENSITY, {}, "0", 0.7),
    "two axes": (2, 0.6, DENSITY, {}, "0", 1.4),  # two laws are compared
    "two axes, Gaussian noise": (2, 0.6, DENSITY, {}, "1e-6", 1.4),
    "three axes": (3, 1.0, DENSITY, {}, "0", 2.1),
    "groups": (2, 0.6, DENSITY, GROUP, "0", 1.3),
    "regression": (1, 0.6, {"kind": "nadaraya-watson"}, RESPONSE, "0", 1.0),
    "a kink": (1, 0.6, {**DENSITY, "kernel": "triangle"}, {}, "0", 3.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_plan_costs_a_second(case: str) -> None:
    axes, bandwidth, target, records, delta, limit = CASES[case]
    spec = {
        "release": {"name": "case", "output": "case.zarr"},
        "data": {"source": "*.parquet", "n": 2_000_000, **records,
                 "bounds": {name: [0.0, 10.0] for name in "xyz"[:axes]}},
        "target": {**target, "bandwidth": [bandwidth] * axes},
        "budget": {"epsilon": "1.0", "delta": delta, "ledger": "sqlite:///l.db", "dataset": "d"},
    }  # fmt: skip
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    ran = subprocess.run(
        [sys.executable, "-c", PROCESS, json.dumps(spec)],
        check=True, capture_output=True, text=True, env={**os.environ, **threads},
    )  # fmt: skip
    ratio = float(ran.stdout)
    print(f"\n{case}: {ratio:.2f} of the numpy, at most {limit}")
    assert ratio <= limit


if __name__ == "__main__":
    pytest.main([__file__, "-q", "-s", "-n0"])
