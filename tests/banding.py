"""Synopses in memory, straight from records, with the noise of a key or with none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from dbern.planning.plans import ReleasePlan
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.mechanism import privatize, to_grid
from dbern.reconstruct.base import Strategy
from dbern.releasing import publish
from dbern.synopsis.metadata import ReleaseMetadata
from dbern.synopsis.reader import Synopsis


class Held:
    """What a `Synopsis` asks its store for."""

    def __init__(self, attributes: dict[str, Any]) -> None:
        self.attributes = {"name": "case", **attributes, "release_id": ""}
        self.released = ReleaseMetadata.from_json(self.attributes)
        self.location, self.signers = "in memory", ()
        self.arrays: dict[str, tuple[Any, dict[str, Any]]] = {}

    def array(self, path: str) -> tuple[Any, dict[str, Any]]:
        return self.arrays[path]

    def array_attributes(self, path: str) -> Any:
        return self.arrays[path][1]

    def values(self, path: str) -> Any:
        return self.arrays[path][0]


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
    made = SimpleNamespace(created="", dataset="")
    store = Held(publish._attributes(spec, plan, publish._components(spec, plan), made, ""))
    for planned in plan.components:
        for name in planned.arrays:
            _hold(store, planned, name, integers[name], key)
    synopsis = Synopsis.__new__(Synopsis)
    synopsis._store = store  # type: ignore[assignment]
    return synopsis


def _noisy(center: Any, planned: Any, key: bytes | None, name: str) -> Any:
    noisy = center if key is None else privatize(center.ravel(), 0, planned.noise.law, key, name)
    return noisy.reshape(center.shape)


def _hold(store: Held, planned: Any, name: str, center: Any, key: bytes | None) -> None:
    law, path = planned.noise.law, f"components/{name}"
    noisy = _noisy(center, planned, key, name)
    strategy: Strategy = planned.strategy
    lattice, family = noisy, strategy.kind
    if family:
        values, told = publish._derived_from(planned, noisy)
    if family == "binned":
        store.arrays[f"{path}/binned/released"] = (noisy * planned.noise.granularity, told)
        for axis, one in zip(planned_axes(store, name), planned.maps, strict=True):
            facts = one.attributes("synthesis")
            store.arrays[f"{path}/binned/synthesis_{axis}"] = (one.synthesis, facts)
    if family:
        slabs = strategy.lattice.slabs()
        lattice = np.concatenate([to_grid(strategy.reconstruct(values, s), law) for s in slabs])
    store.arrays[f"{path}/coefficients"] = (lattice * planned.noise.granularity, {})


def planned_axes(store: Held, name: str) -> list[str]:
    (axes,) = (one["axes"] for one in store.attributes["components"] if name in one["arrays"])
    return list(axes)


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
