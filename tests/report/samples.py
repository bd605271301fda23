"""One small release of each kind of picture, with names that a page must escape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from projects import Project, fix_reservations

import dbern

EVIL = "<script>document.title='x'</script> & \"co\""
ROWS = 600


def columns() -> dict[str, Any]:
    """Three clouds in a cube, with a class, a response and a group."""
    generator = np.random.default_rng(5)
    cloud = generator.integers(0, 3, ROWS)
    centers = np.array([[2.5, 0.4, 3.0], [6.5, -0.4, 6.0], [7.5, 0.5, 2.0]])
    x, y, z = (centers[cloud] + generator.normal(size=(ROWS, 3)) * [0.9, 0.2, 1.0]).T
    return {
        "x": x, "y": y, "z": z, "response": np.sin(x) + generator.normal(0, 0.2, ROWS),
        "cloud": np.array(["a", "b", "<b>c</b>"])[cloud], "left": (cloud == 0).tolist(),
        **{f"a{i}": generator.uniform(0, 1, ROWS) for i in range(9)},
    }  # fmt: skip


_X, _Y, _Z = {"x": [0.0, 10.0]}, {"y": [-1.0, 1.0]}, {"z": [0.0, 8.0]}
_CLASSES = {"column": "cloud", "classes": ["a", "b", "<b>c</b>"]}
_TWO = {"column": "left", "classes": [False, True]}
_MACHINE = {"kind": "support-vector-machine", "length_scale": [1.0, 0.4], "C": 1.0}
_AXES: dict[str, dict[str, Any]] = {"1": _X, "2": _X | _Y, "3": _X | _Y | _Z}
_AXES["upright"] = _Y | _Z  # y is drawn upward, whichever axis is the first
_AXES["4"] = _AXES["3"] | {"a0": [0.0, 1.0]}
_AXES["12"] = _AXES["3"] | {f"a{i}": [0.0, 1.0] for i in range(9)}
_WIDTHS = {
    "1": [1.0],
    "2": [1.0, 0.3],
    "upright": [0.3, 1.0],
    "3": [1.5, 0.4, 1.5],
    "4": [1.5, 0.4, 1.5, 0.3],
}


def _density(axes: str, **others: Any) -> tuple[str, dict[str, Any]]:
    return axes, {"target": {"bandwidth": _WIDTHS[axes]}, **others}


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "curve": _density("1"),
    "chosen bandwidth": ("1", {"target": {"kind": "kernel-density", "bandwidth": "auto"}}),
    "map": _density("2"),
    "upright": _density("upright", mechanism={"k": None, "h": None, "noise": "binned-laplace"}),
    "tilted": ("2", {
        "target": {"kind": "kernel-density", "covariance": [[0.8, 0.1], [0.1, 0.06]]},
    }),
    "slices": _density("3", mechanism={"k": 4}),
    "four axes": _density("4", mechanism={"k": 3}),
    "twelve axes": ("12", {
        "target": {"kind": "logistic-regression", "method": "weights", "C": 1.0},
        "data__label": _TWO,
    }),
    "groups": _density("2", data__group={"column": "cloud", "values": ["a", "b", "<b>c</b>"]}),
    "bins": _density("2", mechanism={"k": None, "h": None, "noise": "binned-laplace"}, data__group={
        "column": "cloud", "values": ["a", "b", "<b>c</b>"],
    }),
    "normalized edges": ("2", {
        "target": {"bandwidth": _WIDTHS["2"], "edges": "normalized"},
        "mechanism": {"k": None, "h": None, "noise": "binned-laplace"},
        "data__group": {"column": "cloud", "values": ["a", "b", "<b>c</b>"]},
    }),
    "group curves": _density(
        "1", mechanism={"k": None, "h": None, "noise": "binned-laplace"},
        data__group={"column": "cloud", "values": ["a", "b", "<b>c</b>"]},
    ),
    "rounded": _density(
        "1", mechanism={"k": None, "h": None, "noise": None, "questions": ["mass", "quantile"]},
        data__resolution={"x": 0.5},
    ),
    "rounded map": _density(
        "2", mechanism={"k": None, "h": None, "noise": "binned-laplace"},
        data__resolution={"x": 0.5},
    ),
    "halved": _density(
        "1", mechanism={"k": None, "h": None, "noise": None, "questions": ["mass"]},
        data__resolution={"x": 0.02},
    ),
    "halved map": _density(
        "2", mechanism={"k": None, "h": None, "noise": None, "questions": ["mass"]},
        data__resolution={"x": 0.1, "y": 0.04},
    ),
    "gaussian": _density("1", budget={"delta": "1e-6"}, mechanism={"noise": "discrete-gaussian"}),
    "regression": ("1", {
        "target": {"kind": "nadaraya-watson", "bandwidth": [1.0]},
        "data__response": {"column": "response", "bounds": [-1.5, 1.5]},
    }),
    "response map": ("2", {
        "target": {"kind": "nadaraya-watson", "bandwidth": [1.0, 0.3]},
        "data__response": {"column": "response", "bounds": [-1.5, 1.5]},
    }),
    "regressions": ("1", {
        "target": {"kind": "nadaraya-watson", "bandwidth": [1.0]},
        "data__response": {"column": "response", "bounds": [-1.5, 1.5]},
        "data__group": {"column": "cloud", "values": ["a", "b", "<b>c</b>"]},
    }),
    "regression maps": ("2", {
        "target": {"kind": "nadaraya-watson", "bandwidth": [1.0, 0.3]},
        "data__response": {"column": "response", "bounds": [-1.5, 1.5]},
        "data__group": {"column": "cloud", "values": ["a", "b", "<b>c</b>"]},
    }),
    "boundary": ("2", {"target": _MACHINE, "data__label": _TWO}),
    "regions": ("2", {"target": _MACHINE, "data__label": _CLASSES}),
    "sigmoid": ("1", {
        "target": {"kind": "logistic-regression", "method": "weights", "C": 1.0, "link": "sigmoid"},
        "data__label": _TWO,
    }),
    "ridge": ("1", {
        "target": {"kind": "ridge-regression", "C": 1.0},
        "data__response": {"column": "response", "bounds": [-1.5, 1.5]},
    }),
    "weights": ("1", {
        "target": {"kind": "ridge-regression", "method": "weights"},
        "data__response": {"column": "response", "bounds": [-1.5, 1.5]},
    }),
    "least squares": ("12", {
        "target": {"kind": "ridge-regression", "method": "moments"},
        "data__response": {"column": "response", "bounds": [-1.5, 1.5]},
    }),
    "bayes": ("2", {
        "target": {"kind": "naive-bayes", "bandwidth": [1.0, 0.3]}, "data__label": _CLASSES,
    }),
    "gaussian-bayes": ("2", {
        "target": {"kind": "gaussian-naive-bayes", "std_floor": [0.5, 0.1]}, "data__label": _TWO,
    }),
}  # fmt: skip


def make(project: Project, kind: str, client: Any) -> dbern.Synopsis:
    """Release one of the kinds at an epsilon so large that the picture is of the records."""
    axes, sections = KINDS[kind]
    changes = {
        "data__bounds": dict.fromkeys(_AXES["12"]) | _AXES[axes],
        "budget": {"epsilon": "50"},
        "mechanism": {"k": 6, "h": 2},
    }
    for name, keys in sections.items():
        changes[name] = {**changes.get(name, {}), **keys}
    if sections["target"].get("kind"):
        changes["target"] = {"bandwidth": None, **sections["target"]}
        changes["mechanism"] = {"k": None, "h": None, "noise": None}
    project.write(columns())
    project.grant("50")
    if "delta" in changes["budget"]:
        with project.ledger() as ledger:
            ledger.grant("trips", dbern.Budget.parse("1", "1e-6"))
    with pytest.MonkeyPatch.context() as patch:  # whichever test wants it first
        fix_reservations(patch.setattr)
        return dbern.release(project.spec(**changes), client=client).synopsis
