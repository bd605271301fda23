"""What is released: every learner with every noise that it admits, and what else there is.

Small data, so that all cases together take about two minutes on one core.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from goldens.plans import KERNELS

ROWS = 240
LAPLACE = ("laplace", "binned-laplace")
GAUSSIAN = ("discrete-gaussian", "binned-gaussian")
ADVANCED = "laplace-advanced"
K_NORM = "binned-k-norm"
EVERY = (*LAPLACE, *GAUSSIAN, ADVANCED)
UNSIGNED = (*EVERY, K_NORM)
PLAIN = ("laplace", "discrete-gaussian", ADVANCED)
VECTOR = ("laplace", "discrete-gaussian")
SOLVED = ("laplace", "spectral-laplace", "discrete-gaussian", "spectral-gaussian", ADVANCED)

_BASE: dict[str, dict[str, Any]] = {
    "release": {"name": "golden"},
    "data": {"source": "data/*.parquet"},
    "data.bounds": {"x": [0.0, 10.0]},
    "target": {},
    "mechanism": {"k": 12, "h": 2},
    "budget": {"epsilon": "1.0", "dataset": "trips"},
}
_LABEL = {"column": "late", "classes": [False, True]}
_KIND = {"column": "kind", "classes": ["a", "b", "c"]}
_RESPONSE = {"column": "z", "bounds": [-1.0, 3.0]}
_GROUP = {"column": "kind", "values": ["a", "b", "c"]}
_PLANE = {"x": [0.0, 10.0], "y": [-1.0, 1.0]}
_ADDED = {"neighbors": "add-or-remove-one", "normalizer": "250"}
_UNIT = {"normalizer": "250", "unit": {"column": "who", "max_contributions": 3}}


@dataclass(frozen=True)
class Case:
    """Sections of a spec that differ from the base's; `None` takes a key away.

    `grant` is what the first grant says besides the budget. `crash` names a point at which the
    release is ended once before it goes on. `shell`: the command line is asked as well.
    """

    sections: Mapping[str, Mapping[str, Any]]
    grant: Mapping[str, Any] = field(default_factory=dict)
    crash: str = ""
    shell: bool = False

    def toml(self, ledger: str, output: str) -> str:
        """The spec's text."""
        sections = {name: dict(keys) for name, keys in _BASE.items()}
        sections["release"]["output"] = output
        sections["budget"]["ledger"] = f"sqlite:///{ledger}"
        for name, keys in self.sections.items():
            sections.setdefault(name, {}).update(keys)
        lines = []
        for name, keys in sections.items():
            lines.append(f"[{name}]")
            lines += [f"{key} = {_value(one)}" for key, one in keys.items() if one is not None]
        return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


def write(folder: Path) -> None:
    """The records: two axes and other columns, with what is missing, infinite or out of bounds.

    Made by single IEEE operations alone: no sine or exponential, which differ between processors.
    """
    generator = np.random.default_rng(7)
    x = generator.random(ROWS) * 10
    y = generator.random((4, ROWS)).sum(axis=0) - 2
    z = np.abs(x / 2.5 - 2) - 1 + y
    x[[1, 2, 3, 4, 20]] = [np.nan, np.inf, -5.0, 10.0, 0.0]
    y[[6, 7, 8]] = [-np.inf, 1.0, -1.0]
    z[[9, 10, 11]] = [np.nan, 9.0, -9.0]
    began = datetime(2026, 1, 1, tzinfo=UTC)
    hours = (generator.random(ROWS) * 24 * 365).tolist()
    columns = {
        "x": _without(x, 0),
        "y": _without(y, 5),
        "z": _without(z, 12),
        "late": [None if i == 13 else bool(x[i] + y[i] > 5) for i in range(ROWS)],
        "kind": [None if i == 14 else "abcd"[int(generator.integers(4))] for i in range(ROWS)],
        "who": [None if i == 15 else f"user-{i % 70}" for i in range(ROWS)],
        "at": [None if i == 16 else began + timedelta(hours=hour) for i, hour in enumerate(hours)],
    }
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    folder.mkdir()
    for number, (start, stop) in enumerate(pairwise((0, 70, 160, ROWS))):
        path = folder / f"part-{number}.parquet"
        pq.write_table(table.slice(start, stop - start), path, row_group_size=40)


def _without(values: np.ndarray, index: int) -> list[float | None]:
    found: list[float | None] = values.tolist()
    found[index] = None
    return found


def points(axes: list[tuple[float, float]]) -> np.ndarray:
    """Where the function is asked: in the box of the bounds, and on its edge."""
    generator = np.random.default_rng(11)
    low, high = np.array(axes).T
    inside = low + generator.random((20, len(axes))) * (high - low)
    return np.vstack([inside, [low], [high]])


def _with(noise: str, sections: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    delta = "0" if noise in (*LAPLACE, "spectral-laplace", K_NORM) else "1e-6"
    merged = {name: dict(keys) for name, keys in sections.items()}
    merged["mechanism"] = {"noise": noise, **merged.get("mechanism", {})}
    merged["budget"] = {"delta": delta, **merged.get("budget", {})}
    if noise == ADVANCED:  # small charges alone are proved
        merged["budget"]["epsilon"] = "0.5"
    return merged


def _learners() -> dict[str, tuple[tuple[str, ...], dict[str, dict[str, Any]]]]:
    density = {"kind": "kernel-density", "bandwidth": [1.03]}
    flat = {"kind": "kernel-density", "bandwidth": [2.1, 0.43]}
    covariance = {"kind": "kernel-density", "covariance": [[1.0, 0.08], [0.08, 0.04]]}
    machine = {"kind": "support-vector-machine", "length_scale": [3.1], "width": 0.2}
    bayes = {"kind": "naive-bayes", "bandwidth": [2.1, 0.43], "floor": 0.01}
    erm = {"kind": "kernel-erm", "loss": "logistic", "length_scale": [3.0], "C": 5.0, "shards": 2}
    square = {**erm, "loss": "square"}
    oracle = {"kind": "oracle", "bounds": [-1.0, 3.0], "on_failure": 1.0}
    label, three = {"data.label": _LABEL}, {"data.label": _KIND}
    response, group = {"data.response": _RESPONSE}, {"data.group": _GROUP}
    plane, small = {"data.bounds": _PLANE}, {"mechanism": {"k": [6, 6], "h": 2}}
    vector, corners = {"mechanism": {"k": "auto", "h": "auto"}}, {"mechanism": {"k": 1, "h": 1}}
    return {
        "density": (UNSIGNED, {"target": density}),
        "density-plane": (EVERY, {"target": flat, **plane, **small}),
        "density-covariance": (EVERY, {"target": covariance, **plane, **small}),
        "density-groups": (UNSIGNED, {"target": density, **group}),
        "regression": (EVERY, {"target": {"kind": "nadaraya-watson", "bandwidth": [1.03]},
                               **response}),
        "regression-covariance": (("laplace", "discrete-gaussian"), {
            "target": {**covariance, "kind": "nadaraya-watson"}, **plane, **small, **response}),
        "gaps": (EVERY, {"target": {"kind": "priestley-chao", "bandwidth": [1.03], "max_gap": 0.5},
                         **response}),
        "bayes": (EVERY, {"target": bayes, **plane, **three}),
        "bayes-joint": (PLAIN, {"target": {**bayes, "release": "joint", "bandwidth": [5.1, 1.03],
                                           "floor": None}, **plane, **label, **small}),
        "bayes-gaussian": (VECTOR, {"target": {"kind": "gaussian-naive-bayes",
                                               "std_floor": [1.0, 0.1]},
                                    **plane, **three, **vector}),
        "machine": (EVERY, {"target": machine, **label}),
        "machines": (("laplace", "binned-gaussian"), {"target": machine, **three}),
        "machine-solved": (SOLVED, {"target": {**machine, "C": 2.0}, **label}),
        "machines-solved": (("laplace",), {"target": {**machine, "C": 1.5}, **three}),
        "erm": (SOLVED, {"target": erm, **label}),
        "erm-square": (("laplace", "spectral-gaussian"), {"target": square, **response}),
        "erm-huber": (("laplace",), {"target": {**erm, "loss": "huber", "threshold": 0.5},
                                     **response}),
        "erm-tube": (("laplace",), {"target": {**erm, "loss": "epsilon-insensitive", "tube": 0.2},
                                    **response}),
        "erm-own-loss": (("laplace",), {
            "target": {**erm, "loss": "goldens.functions:pinball", "lipschitz": 0.75,
                       "at_zero": 1.5}, **response}),
        **{f"erm-{kernel.replace('/', '-')}": (("laplace", "spectral-gaussian"), {
            "target": {**erm, "kernel": kernel, "loss": "hinge", "C": 1.1}, **label})
           for kernel in ("laplace", "matern-3/2", "matern-5/2")},
        "erm-polynomial": (SOLVED, {
            "target": {**erm, "kernel": "polynomial", "degree": 2, "length_scale": None,
                       "constant": 0.5, "C": 0.1}, **label}),
        "erm-arc-cosine": (("laplace", "spectral-gaussian"), {
            "target": {**square, "kernel": "arc-cosine", "length_scale": None, "C": 0.5},
            **response}),
        "erm-linear": (VECTOR, {
            "target": {**erm, "kernel": "linear", "length_scale": None}, **label, **corners}),
        "erm-own-kernel": (("laplace", "spectral-gaussian"), {
            "target": {**erm, "kernel": "goldens.functions:cosine", "kernel_bound": 1.0,
                       "kernel_lipschitz": 0.4, "length_scale": None, "C": 1.1}, **three}),
        **{f"logistic-{link}": (VECTOR, {
            "target": {"kind": "logistic-regression", "method": "weights", "C": 40.0, "link": link},
            **plane, **label, **vector}) for link in ("linear", "sigmoid")},
        "logistics": (("laplace",), {"target": {"kind": "logistic-regression"}, **plane, **three,
                                     **vector}),
        "logistic-objective": (("laplace",), {
            "target": {"kind": "logistic-regression", "method": "objective"}, **plane, **label,
            **vector}),
        "erm-objective": (("laplace",), {
            "target": {"kind": "kernel-erm", "loss": "huber", "kernel": "linear",
                       "method": "objective"}, **response, **vector}),
        "ridge": (VECTOR, {"target": {"kind": "ridge-regression", "C": 30.0}, **plane, **response,
                           **vector}),
        "ridge-lists": (VECTOR, {
            "target": {"kind": "ridge-regression", "method": "moments"}, **response, **vector,
            "data.bounds": {"x": [0.0, 10.0], "late": {"values": [False, True]}}}),
        "bayes-lists": (("laplace", "binned-laplace"), {
            "target": {**bayes, "bandwidth": [2.1]}, **three,
            "data.bounds": {"x": [0.0, 10.0], "late": {"values": [False, True]}}}),
        "oracle": (PLAIN, {
            "target": {**oracle, "function": "goldens.functions:nearest", "sensitivity": 2.0,
                       "smoothness": {"holder": [9.0, 0.5]}, "on_failure": "stop"},
            **response, "mechanism": {"k": 4, "h": 1}}),
        "oracle-shards": (VECTOR, {
            "target": {**oracle, "function": "goldens.functions:margins", "sensitivity": 0.5,
                       "smoothness": {"derivatives": 2, "bound": 9.0}, "separable": True},
            **label, "mechanism": {"k": 4, "h": 1}}),
        "oracle-linear": (VECTOR, {
            "target": {**oracle, "function": "goldens.functions:share", "sensitivity": 0.01,
                       "smoothness": "linear"}, **corners}),
    }  # fmt: skip


def _private_rows() -> dict[str, Case]:
    """Added and removed rows, and units of several rows, of a learner of each sort."""
    found = {}
    learners = _learners()
    wanted = {
        "density": ("laplace", "binned-laplace", "discrete-gaussian"),
        "density-groups": ("laplace",),
        "density-covariance": ("binned-gaussian",),
        "regression": ("laplace", "binned-gaussian"),
        "bayes": ("laplace",),
        "bayes-gaussian": VECTOR,
        "machine": ("laplace",),
        "machine-solved": ("laplace", "spectral-gaussian"),
        "erm": ("laplace", "spectral-laplace"),
        "erm-polynomial": ("discrete-gaussian",),
        "logistic-sigmoid": ("laplace",),
        "logistic-objective": ("laplace",),
        "erm-objective": ("laplace",),
        "ridge": ("discrete-gaussian",),
    }
    unit = {**_UNIT, "neighbors": "replace-one"}
    both = {**_ADDED, **_UNIT}
    for learner, noises in wanted.items():
        for noise in noises:
            sections = _with(noise, learners[learner][1])
            for how, data in (("added", _ADDED), ("units", unit), ("added-units", both)):
                found[f"{learner}/{noise}/{how}"] = Case(
                    {**sections, "data": {**sections.get("data", {}), **data}}, _terms(data)
                )
    return found


def _terms(data: Mapping[str, Any]) -> dict[str, Any]:
    unit = data.get("unit")
    return {
        "neighbors": data.get("neighbors", "replace-one"),
        **({"unit": (unit["column"], unit["max_contributions"])} if unit else {}),
    }


def _others() -> dict[str, Case]:
    density = {"kind": "kernel-density", "bandwidth": [1.03]}
    free = {"k": "auto", "h": "auto"}
    plane = {"data.bounds": _PLANE}
    found = {
        f"kernel-{kernel.replace('/', '-')}/{noise}": Case(
            _with(noise, {"target": {**density, "kernel": kernel}})
        )
        for kernel in KERNELS[1:]  # the other cases have the first
        for noise in LAPLACE
    }
    for delta, name in (("0", "pure"), ("1e-6", "delta")):
        chosen = {"target": density, "mechanism": free, "budget": {"delta": delta}}
        found[f"auto/{name}"] = Case(chosen, shell=True)
        found[f"auto-certified/{name}"] = Case(
            {**chosen, "mechanism": {**free, "objective": "certified"}}
        )
        found[f"zcdp/{name}"] = Case(
            {"target": density, "budget": {"delta": delta, "epsilon": "0.3"}},
            {"accountant": "zcdp"},
        )
    laplace = _with("laplace", {"target": density})
    found |= {
        "reference": Case({"target": density, "mechanism": {
            **free, "reference": "goldens.functions:hill"}}),
        "paper": Case({"target": density, "mechanism": {**free, "calibration": "paper"}}),
        "clamped": Case({**laplace, "data": {"outside": "clamp"}}),
        "filtered": Case({**laplace, "data.filter": {"column": "kind", "values": ["a", "b"]}}),
        "times": Case({**laplace, "target": {"kind": "kernel-density", "bandwidth": [30.0]},
                       "data.bounds": {"x": None, "at": ["2026-01-01", "2027-01-01"]}}),
        "period": Case(laplace, {"period": "month"}),
        "many-blocks": Case({**_with("laplace", {"target": {
            "kind": "kernel-density", "bandwidth": [2.1, 0.43]}}), **plane,
            "mechanism": {"k": [400, 200], "h": 3, "noise": "laplace"}}),
        "many-slabs": Case({**_with("laplace", {"target": {
            "kind": "kernel-density", "bandwidth": [4.0, 0.8, 1.6]}}),
            "data.bounds": {**_PLANE, "z": [-1.0, 3.0]},
            "mechanism": {"k": [102, 100, 100], "h": 2, "noise": "laplace"}}),
        "crash-counting": Case(laplace, crash="staging"),
        "crash-sealing": Case(laplace, crash="sealing"),
        "crash-publishing": Case(laplace, crash="publishing"),
        "shell": Case(_with("laplace", {"target": {"kind": "naive-bayes", "bandwidth": [2.1, 0.43]},
                                        **plane, "data.label": _KIND}), shell=True),
    }  # fmt: skip
    return found


def cases() -> dict[str, Case]:
    """All of them by name."""
    found = {
        f"{name}/{noise}": Case(_with(noise, sections))
        for name, (noises, sections) in _learners().items()
        for noise in noises
    }
    return {**found, **_private_rows(), **_others()}
