"""Plans of many specs with what they predict, committed in ``plans.json``.

``python -m goldens plans`` plans all of them again and compares predicted errors with those that
are committed; ``--write`` commits today's plans.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("plans.json")
ERRORS = ("expected", "these_data", "certificate")
"""Of typical data; of evenly spread records, with the bins' band; of the worst database."""
DESIGN = ("noise", "k", "h", "bins")
TOLERANCE = 1e-6
"""Relative: predictions are sums of floats, whose last bits differ between processors."""

KERNELS = ("gaussian", "laplace", "matern-3/2", "matern-5/2", "triangle", "epanechnikov",
           "biweight", "triweight")  # fmt: skip
"""By name, for what is compared may be an earlier version."""
PURE = ("laplace", "binned-laplace", "binned-k-norm")
WITH_DELTA = ("discrete-gaussian", "binned-gaussian")
_SIZES = ((2000, 0.1, "1"), (20_000, 0.02, "1"), (20_000, 0.1, "0.1"), (200_000, 0.05, "0.3"),
          (1_000_000, 0.03, "2"))  # fmt: skip
"""Rows, bandwidth as a share of an axis, epsilon."""


# --- What is planned


def spec_of(entry: Mapping[str, Any]) -> Any:
    """Make the spec of an entry: axes from 0 to 1, one bandwidth for all of them."""
    import dbern

    names = "xyz"[: entry["axes"]]
    data = {"source": "no.parquet", "n": entry["n"], "bounds": {name: [0.0, 1.0] for name in names}}
    budget = {"epsilon": entry["epsilon"], "delta": entry["delta"], "dataset": "plans"}
    return dbern.ReleaseSpec(
        release={"name": "plans", "output": "plans.zarr"},
        data=data | entry.get("data", {}),
        target={
            "kind": entry.get("kind", "kernel-density"),
            "kernel": entry["kernel"],
            "bandwidth": [entry["bandwidth"]] * entry["axes"],
        },
        mechanism={"noise": entry["noise"], **entry.get("mechanism", {})},
        budget={"ledger": "sqlite:///plans.db", **budget},
    )


def entries() -> Iterator[dict[str, Any]]:
    """All kernels on one to three axes, by the default and by bins; then all else there is."""
    count = 0
    for axes in (1, 2, 3):
        for kernel in KERNELS:
            for delta, bins in (("0", "binned-laplace"), ("1e-6", "binned-gaussian")):
                for noise in ("auto", bins):
                    for _ in range(2):
                        yield _entry(axes, kernel, _SIZES[count % len(_SIZES)], delta, noise)
                        count += 1
    for kernel in ("gaussian", "laplace"):
        for axes in (1, 2):
            for size in _SIZES[:2]:
                for noise in (*PURE, *WITH_DELTA):
                    delta = "1e-6" if noise in WITH_DELTA else "0"
                    if not noise.startswith("binned-l"):
                        yield _entry(axes, kernel, size, delta, noise)
    others: list[dict[str, Any]] = [
        {"mechanism": {"objective": "certified"}},
        {"mechanism": {"questions": ["density", "cdf"]}},
        {"data": {"n": None, "neighbors": "add-or-remove-one", "normalizer": "20000"}},
        {"kind": "nadaraya-watson", "data": {"response": {"column": "z", "bounds": [0.0, 1.0]}}},
        {"kind": "naive-bayes", "data": {"label": {"column": "z", "classes": ["a", "b"]}}},
        {"data": {"group": {"column": "z", "values": ["a", "b"]}}},
    ]
    for other in others:
        for axes in (1, 2):
            for delta in ("0", "1e-6"):
                yield {**_entry(axes, "gaussian", (20_000, 0.1, "1"), delta, "auto"), **other}


def _entry(
    axes: int, kernel: str, size: tuple[int, float, str], delta: str, noise: str
) -> dict[str, Any]:
    n, bandwidth, epsilon = size
    return {"axes": axes, "kernel": kernel, "n": n, "bandwidth": bandwidth, "epsilon": epsilon,
            "delta": delta, "noise": noise}  # fmt: skip


def planned(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """Plan an entry: the plan as JSON values, or None where the spec is refused."""
    import dbern
    from dbern.planning.planner import plan_files

    try:
        plan = plan_files(spec_of(entry), ())
    except dbern.SpecError:
        return None
    content: dict[str, Any] = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    if dbern.ReleasePlan.from_dict(content) != plan:
        raise RuntimeError(f"{entry}: its plan is another one after JSON")
    return content


def summary(plan: Mapping[str, Any] | None) -> dict[str, Any]:
    """The design of the first component, and what is predicted of the whole."""
    if plan is None:
        return dict.fromkeys((*DESIGN, *ERRORS))
    first = plan["components"][0]
    return {
        "noise": first["noise"]["kind"],
        "k": first["k"],
        "h": first["h"],
        "bins": [[axis["cells"], axis["degree"]] for axis in first["maps"] if "degree" in axis],
        "expected": plan["outlook"]["expected"],
        "these_data": plan["outlook"]["these_data"],
        "certificate": plan["certificate"]["total"],
    }


def committed() -> list[dict[str, Any]]:
    """Entries with their `plan`, as they were written."""
    content: list[dict[str, Any]] = json.loads(FILE.read_text())
    return content


# --- Compare


def ratios(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], error: str
) -> np.ndarray:
    """New over old prediction of each plan; nan where neither has one, infinite where one has."""
    pairs = [(before[error], after[error]) for before, after in zip(old, new, strict=True)]
    return np.array([
        math.nan if pair == (None, None) else math.inf if None in pair else pair[1] / pair[0]
        for pair in pairs
    ])  # fmt: skip


def report(
    entries: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> tuple[str, bool]:
    """Lines that say how predictions compare, and whether all are as they were."""
    old, lines, equal = [entry["plan"] for entry in entries], [], True
    for error in ERRORS:
        ratio = ratios(old, new, error)
        changed, known = np.isinf(ratio), ratio[np.isfinite(ratio)]
        equal &= not changed.any() and bool((np.abs(known - 1) <= TOLERANCE).all())
        if known.size:
            worst = int(np.argmax(np.where(np.isfinite(ratio), ratio, 0.0)))
            entry = {name: value for name, value in entries[worst].items() if name != "plan"}
            lines.append(
                f"{error}: new / old of {known.size} plans: mean {known.mean():.4f}, median "
                f"{np.median(known):.4f}, 95 % quantile {np.quantile(known, 0.95):.4f}, worst "
                f"{ratio[worst]:.4f}: {json.dumps(entry)}"
            )
        if changed.any():
            lines.append(f"{error}: {changed.sum()} plans have none in one of the two")
    designs = sum(
        any(before[key] != after[key] for key in DESIGN)
        for before, after in zip(old, new, strict=True)
    )
    return "\n".join([*lines, f"{designs} of {len(old)} designs differ"]), equal


def run(*, write: bool, every: int) -> int:
    """Plan every n-th entry again, and compare or write; 0 where all predictions are equal."""
    chosen = list(entries()) if write else committed()[::every]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as workers:
        plans = list(workers.map(planned, chosen))
    if write:
        lines = [json.dumps({**entry, "plan": summary(plan)})
                 for entry, plan in zip(chosen, plans, strict=True) if plan]  # fmt: skip
        FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n")
        print(f"{len(lines)} plans in {FILE}, {len(plans) - len(lines)} were refused")
        return 0
    text, equal = report(chosen, [summary(plan) for plan in plans])
    print(text)
    return 0 if equal else 1
