"""Valid specs for hypothesis, as section mappings, helpers to build one by hand, and numbers."""

from __future__ import annotations

import copy
import json
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from dbern.planning.planner import plan_files
from dbern.planning.release_plan import ReleasePlan
from dbern.planning.spec import ReleaseSpec
from dbern.reconstruct.base import Slab

MINIMAL: dict[str, dict[str, Any]] = {
    "release": {"name": "demo", "output": "out/demo.zarr"},
    "data": {"source": "data/*.parquet", "bounds": {"x": [0.0, 1.0]}, "n": 1000},
    "target": {"kind": "kernel-density", "bandwidth": [0.1]},
    "mechanism": {"k": 20, "h": 2, "noise": "laplace"},
    "budget": {"epsilon": "1.0", "ledger": "sqlite:///ledger.db", "dataset": "trips"},
}

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,12}", fullmatch=True)
TAKEN = {"coefficients", "spectral", "binned", "value", "zarr.json"}  # by the store itself
LETTERS = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])
COLUMNS = st.text(LETTERS, min_size=1, max_size=8).filter(  # what a store can hold
    lambda name: not (name.startswith((".", "__")) or set(name) & set("/\\") or name in TAKEN)
)
DECIMALS = st.one_of(
    st.decimals("0.001", "50", places=3, allow_nan=False).map(str).filter(lambda d: float(d) > 0),
    st.tuples(st.integers(1, 40), st.integers(1, 40)).map("{0[0]}/{0[1]}".format),
    st.sampled_from(["1e-3", "2", "0.10", "1.5E+1"]),
)
BETAS = st.sampled_from(["0.05", "1/3", "1e-6", "0.5", "0.999"])

POSITIVE = st.builds(Fraction, st.integers(1, 10**6), st.integers(1, 10**9))
FLOAT_ERRORS = st.just(Fraction(0)) | st.builds(Fraction, st.integers(0, 10**12), st.just(10**15))
SOME_DELTAS = st.sampled_from([Fraction(1, 10**k) for k in (1, 2, 5, 10, 30)] + [Fraction(9, 10)])


def sections(**changes: dict[str, Any]) -> dict[str, Any]:
    """The minimal spec with some keys of some sections replaced; a value of None removes one."""
    content: dict[str, Any] = copy.deepcopy(MINIMAL)
    for section, keys in changes.items():
        for key, value in keys.items():
            content.setdefault(section, {})[key] = value
            if value is None:
                del content[section][key]
    return content


def spec_of(**changes: dict[str, Any]) -> ReleaseSpec:
    """The minimal spec with changes; of another kind of target, with nothing but what is said."""
    content = sections(**changes)
    if "kind" in changes.get("target", {}):
        content["target"] = changes["target"]
        content["mechanism"] = changes.get("mechanism", {})
    return ReleaseSpec(**content)


def plan_of(**changes: dict[str, Any]) -> ReleasePlan:
    """The plan of `spec_of`, from its n alone."""
    return plan_files(spec_of(**changes), ())


def density_spec(
    bandwidth: tuple[float, ...],
    k: tuple[int, ...],
    *,
    h: int = 2,
    n: int = 1000,
    epsilon: str = "1",
    calibration: str = "tight",
    outside: str = "drop",
    bounds: tuple[tuple[float, float], ...] | None = None,
    source: str = "data/*.parquet",
    kernel: str = "gaussian",
    noise: str = "laplace",
) -> ReleaseSpec:
    """A kernel density over axes x, y, z; the unit cube unless bounds say otherwise."""
    axes = bounds or ((0.0, 1.0),) * len(k)
    named = {name: list(pair) for name, pair in zip("xyz", axes, strict=False)}
    return ReleaseSpec(
        **sections(
            data={"bounds": named, "n": n, "outside": outside, "source": source},
            target={"bandwidth": list(bandwidth), "kernel": kernel},
            mechanism={"k": list(k), "h": h, "calibration": calibration, "noise": noise},
            budget={"epsilon": epsilon},
        )
    )


def density_plan(bandwidth: tuple[float, ...], k: tuple[int, ...], **more: Any) -> ReleasePlan:
    """The plan of `density_spec`, from its n alone."""
    return plan_files(density_spec(bandwidth, k, **more), ())


def whole(plan: ReleasePlan) -> Slab:
    """All layers of the lattice in one slab."""
    return Slab(0, 0, plan.lattice.shape[0])


@st.composite
def spec_sections(draw: st.DrawFn) -> dict[str, Any]:
    """Sections of a valid spec: everything optional is sometimes left out."""
    dimensions = draw(st.integers(1, 3))
    names = draw(st.lists(COLUMNS, min_size=dimensions, max_size=dimensions, unique=True))
    bounds, bandwidth = {}, []
    for name in names:
        low = draw(st.floats(-1e6, 1e6))
        width = draw(st.floats(1e-2, 1e6)) + abs(low) * 1e-5
        bounds[name] = [low, low + width]
        bandwidth.append(draw(st.floats(0.05, 3.0)) * width)
    content = {
        "release": {"name": draw(NAMES), "output": draw(NAMES)},
        "data": {"source": draw(NAMES) + "/*.parquet", "bounds": bounds},
        "target": {"kind": "kernel-density", "bandwidth": bandwidth},
        "budget": {"epsilon": draw(DECIMALS), "ledger": "sqlite:///l.db", "dataset": draw(NAMES)},
    }
    content["data"]["n"] = draw(st.integers(1, 10**9))
    for section, key, values in OPTIONAL:
        if draw(st.booleans()):
            content.setdefault(section, {})[key] = draw(values)
    for key, most in (("k", 12), ("h", 6)):
        one = st.integers(1, most)
        each = st.lists(one, min_size=dimensions, max_size=dimensions)
        value = draw(st.one_of(st.none(), st.just("auto"), one, each))
        if value is not None:
            content.setdefault("mechanism", {})[key] = value
    return content


OPTIONAL = [
    ("data", "unit", st.just("row")),
    ("data", "neighbors", st.just("replace-one")),
    ("data", "outside", st.sampled_from(["drop", "clamp"])),
    ("target", "kernel", st.just("gaussian")),
    ("mechanism", "noise", st.sampled_from(["auto", "laplace"])),
    ("mechanism", "calibration", st.sampled_from(["tight", "paper"])),
    ("mechanism", "beta", BETAS),
    ("budget", "delta", st.sampled_from(["0", "0.0", "0e5"])),
]


def toml(content: dict[str, Any]) -> str:
    """TOML of tables of plain values; JSON's strings, numbers and lists are TOML's too."""
    lines = []
    for section, table in content.items():
        plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
        nested = {key: value for key, value in table.items() if isinstance(value, dict)}
        for title, pairs in [
            (section, plain),
            *((f"{section}.{key}", v) for key, v in nested.items()),
        ]:
            lines.append(f"[{title}]")
            lines += [f"{quoted(key)} = {quoted(value)}" for key, value in pairs.items()]
    return "\n".join(lines) + "\n"


def quoted(value: Any) -> str:
    """A TOML value or key."""
    return json.dumps(value, ensure_ascii=False)
