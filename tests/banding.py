"""Synopses in memory, straight from records, with the noise of a key or with none."""

from __future__ import annotations

import json
from collections.abc import Iterable
from copy import copy, deepcopy
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from strategies import sections

from dbern.planning.planner import plan_files
from dbern.planning.release_plan import ReleasePlan
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.mechanism import privatize, to_grid
from dbern.reconstruct.base import Strategy
from dbern.run import publish
from dbern.synopsis.metadata import ReleaseMetadata
from dbern.synopsis.reader import Synopsis
from dbern.system.machine import LRUCache

STORES = LRUCache[Any](16)


class Held:
    """What a `Synopsis` asks its store for."""

    def __init__(self, attributes: dict[str, Any]) -> None:
        self.attributes = {"name": "case", **attributes, "release_id": ""}
        self.released = ReleaseMetadata.from_json(self.attributes)
        self.location = "in memory"
        self.arrays: dict[str, tuple[Any, dict[str, Any]]] = {}

    def array(self, path: str) -> tuple[Any, dict[str, Any]]:
        return self.arrays[path]

    def array_attributes(self, path: str) -> Any:
        return self.arrays[path][1]

    def values(self, path: str) -> Any:
        values, _ = self.arrays[path]
        return values() if callable(values) else values


AXES = "xyzw"


@lru_cache(maxsize=64)
def planned(
    axes: int = 1,
    n: int = 5000,
    bandwidth: float | str | None = 0.1,
    noise: str = "binned-laplace",
    epsilon: str = "1",
    roles: str = "{}",
    questions: tuple[str, ...] = (),
    **target: Any,
) -> tuple[ReleaseSpec, ReleasePlan]:
    """A spec on the unit cube and its plan, free to choose; `roles` are more keys of its data."""
    mechanism = {"k": None, "h": None, "noise": noise}
    content = sections(
        data={"bounds": {name: [0.0, 1.0] for name in AXES[:axes]}, "n": n, **json.loads(roles)},
        target={"bandwidth": bandwidth and per_axis(bandwidth, axes), **target},
        mechanism=mechanism | ({"questions": list(questions)} if questions else {}),
        budget={"epsilon": epsilon, "delta": "1e-6" if "gaussian" in noise else "0"},
    )
    spec = ReleaseSpec(**content)
    return spec, plan_files(spec, ())


def per_axis(bandwidth: float | str, axes: int) -> Any:
    """A bandwidth for each axis, or the text."""
    return bandwidth if isinstance(bandwidth, str) else [bandwidth] * axes


def columns(rows: Any) -> dict[str, Any]:
    """Rows (n, axes) by column name."""
    return dict(zip(AXES, np.ascontiguousarray(rows.T), strict=False))


def in_memory(spec: ReleaseSpec, records: dict[str, Any]) -> Synopsis:
    """The synopsis of these records, by the plan of their spec."""
    plan = plan_files(spec, ())
    return synopsis_of(spec, plan, centers(spec, plan, records), bytes(32))


def drawn(case: Any, records: dict[str, Any], draws: Iterable[int]) -> Iterable[Synopsis]:
    """Synopses of the same records, each with the noise of its own key."""
    integers = centers(*case, records)
    return (synopsis_of(*case, integers, draw.to_bytes(32, "big")) for draw in draws)


def released(case: Any, records: dict[str, Any], key: int = 1) -> Any:
    """The distribution that one release gives."""
    (synopsis,) = drawn(case, records, [key])
    return synopsis.distribution()


def centers(spec: ReleaseSpec, plan: ReleasePlan, records: dict[str, Any]) -> dict[str, Any]:
    """Each array's noiseless integers."""
    found, counters = {}, plan.counters(spec)
    for column in counters.columns:
        if column.multiples is not None:
            records = {**records, column.name: column.multiples.rounded(records[column.name])}
    for planned, part in zip(plan.components, counters.parts, strict=True):
        state = np.zeros(part.shape, dtype=np.int64)
        taken = part.start_pass(state, b"", 0)
        taken.add(records)
        taken.finish()
        for output, name in enumerate(planned.arrays):
            slabs = planned.strategy.layout.slabs()
            values = [part.to_values(state, output, slab) for slab in slabs]
            found[name] = to_grid(np.concatenate(values), planned.noise.law)
    return found


def synopsis_of(
    spec: ReleaseSpec, plan: ReleasePlan, integers: dict[str, Any], key: bytes | None = None
) -> Synopsis:
    """The synopsis of a release whose noise is that of `key`; without one it has none."""
    store = copy(_empty_store(spec, plan))
    store.attributes, store.arrays = deepcopy(store.attributes), {}
    for planned in plan.components:
        for name in planned.arrays:
            _hold(store, planned, name, integers[name], key)
    synopsis = Synopsis.__new__(Synopsis)
    synopsis._store = store  # type: ignore[assignment]
    return synopsis


def _empty_store(spec: ReleaseSpec, plan: ReleasePlan) -> Held:
    """The store of a plan without arrays: the last plans' are kept, as their releases share it."""

    def make() -> tuple[Any, Held]:
        made = SimpleNamespace(created="", dataset="")
        components = publish._components(spec, plan)
        return (spec, plan), Held(publish._attributes(spec, plan, components, made, ""))

    return STORES((id(spec), id(plan)), make)[1]


def _noisy(center: Any, planned: Any, key: bytes | None, name: str) -> Any:
    noisy = center if key is None else privatize(center.ravel(), 0, planned.noise.law, key, name)
    return noisy.reshape(center.shape)


def _hold(store: Held, planned: Any, name: str, center: Any, key: bytes | None) -> None:
    path = f"components/{name}"
    noisy = _noisy(center, planned, key, name)
    strategy: Strategy = planned.strategy
    family = strategy.kind
    if family:
        values, told = publish._derived_from(planned, noisy)
    if family == "binned":
        store.arrays[f"{path}/binned/released"] = (noisy * planned.noise.granularity, told)
        for axis, one in zip(planned_axes(store, name), planned.maps, strict=True):
            facts = one.attributes("synthesis")
            store.arrays[f"{path}/binned/synthesis_{axis}"] = (one.synthesis, facts)
    if family:
        store.arrays[f"{path}/coefficients"] = (partial(_lattice, planned, values), {})
    else:
        store.arrays[f"{path}/coefficients"] = (noisy * planned.noise.granularity, {})


def _lattice(planned: Any, values: Any) -> Any:
    """The lattice values of released ones: made when they are asked for."""
    strategy, law = planned.strategy, planned.noise.law
    slabs = strategy.lattice.slabs()
    lattice = np.concatenate([to_grid(strategy.reconstruct(values, s), law) for s in slabs])
    return lattice * planned.noise.granularity


def planned_axes(store: Held, name: str) -> list[str]:
    (axes,) = (one["axes"] for one in store.attributes["components"] if name in one["arrays"])
    return list(axes)


def covers(answer: Any, known: Any) -> bool:
    """Whether all ends of an answer are around what is known."""
    return bool(np.all((np.asarray(answer.low) <= known) & (known <= np.asarray(answer.high))))


def covering(releases: Iterable[Any], questions: dict[str, tuple[Any, Any]]) -> dict[Any, int]:
    """How many releases cover what is known, for each question and what it is known to be."""
    found = dict.fromkeys([(name,) for name in questions], 0)
    for release in releases:
        for name, (ask, known) in questions.items():
            found[name,] += covers(ask(release), known)
    return found


# --- Records of five kinds

KINDS = ("smooth", "clustered", "rounded", "half at 50 places", "one point")


def database(kind: str, n: int, axes: int) -> Any:
    """Positions (n, axes) in the unit cube."""
    rng = np.random.default_rng(KINDS.index(kind))
    x = rng.beta(2, 3, (n, axes))
    if kind == "clustered":
        x = rng.random((12, axes))[rng.integers(12, size=n)] + 0.01 * rng.standard_normal((n, axes))
        x = np.clip(x, 0, 1)
    if kind == "rounded":
        x = np.round(x, 1)
    if kind == "half at 50 places":
        x[: n // 2] = rng.random((50, axes))[rng.integers(50, size=n // 2)]
    return np.full((n, axes), 0.437) if kind == "one point" else x


def unshrunk(synopsis):
    """The same release, read as if its bins had not been shrunk."""
    opened = Synopsis.__new__(Synopsis)
    opened._store = synopsis._store
    for array in opened.arrays:
        array.smoothing = partial(_unshrunk_smoothing, array)
    return opened


def _unshrunk_smoothing(array, h=()):
    return array.unshrunk(type(array).smoothing(array, h))
