"""From a sealed center to a published synopsis: exact noise, shards, manifest.

The only place where a key meets a center. Everything here is a function of what the ledger and the
staging hold, so repeating it writes the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from threading import Lock
from typing import Any

import numpy as np

from dbern.counting.measurement import Measurement
from dbern.data.storage import place_at
from dbern.errors import IntegrityError
from dbern.ledger import BudgetLedger, Reservation, Staging
from dbern.planning.plans import WRITERS, PlannedMeasurement, ReleasePlan, spec_for_rows
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.budget import decimal_text
from dbern.privacy.contract import array_names
from dbern.privacy.keystream import subkey
from dbern.privacy.mechanism import Noise, place_of, privatize, to_grid
from dbern.strategies.base import Lattice, Slab
from dbern.synopsis.metadata import FORMAT, FORMAT_VERSION
from dbern.synopsis.writer import Component, SynopsisWriter
from dbern.system import Progress, one_thread, version
from dbern.types import Int64Array

_DRAWING = Lock()  # two threads that draw, by short numpy calls, are slower than one

_PROMISED = ("of", "factor", "rest", "bins", "cells", "degree", "noise", "least")


def publish(
    ledger: BudgetLedger,
    spec: ReleaseSpec,
    plan: ReleasePlan,
    reservation: Reservation,
    progress: Progress,
) -> str:
    """Add the noise to the sealed center and publish; returns the manifest's digest.

    Raises
    ------
    IntegrityError
        Where the staged center is not the sealed one; no noise is drawn.
    ReleaseError
        Where the output cannot be written; nothing is published.
    """
    writer = SynopsisWriter(place_at(reservation.output), reservation.release_id)
    published = writer.published()
    if published is not None:
        return published
    staging = ledger.staging(reservation)
    staging.verify(reservation.seal)
    key = ledger.key(reservation)

    def noisy(planned: PlannedMeasurement, name: str) -> _Noisy:
        return _Noisy(staging, planned, name, _noise_key(key, reservation, planned.noise.law))

    choice: dict[str, Any] = {}
    rho, preferred = plan.rho, None
    if any("choices" in planned.approximation for planned in plan.components):
        from dbern.releasing.choosing import chosen  # of few releases, and of what is noised alone

        with one_thread():  # as plans do
            plan, choice = chosen(spec, plan, lambda planned, name: noisy(planned, name).whole)
    if sum(bool(planned.promise) for planned in plan.components) > 1:
        from dbern.releasing.choosing import prefer

        plan, preferred = prefer(
            spec, plan, lambda planned, name: noisy(planned, name).whole, staging.decide
        )
    stored = {
        name: _stored(spec, planned, name) for planned in plan.components for name in planned.arrays
    }
    attributes = _attributes(spec, plan, reservation, ledger.id, choice)
    attributes["rho"] = None if rho is None else decimal_text(rho)  # of whatever was preferred
    writer.begin(attributes, list(stored.values()))
    total = sum(len(list(one.lattice.slabs())) for one in stored.values())
    done = 0
    for planned in plan.components:
        one = preferred if preferred and planned is plan.components[0] else planned
        for name, staged in zip(planned.arrays, one.arrays, strict=True):
            for _ in _write(writer, stored[name], noisy(one, staged)):
                done += 1
                progress("adding noise and writing", done, total)
    return writer.finish(reservation.created, just_before=ledger.require_lock)


@dataclass(frozen=True)
class _Noisy:
    staging: Staging
    planned: PlannedMeasurement
    name: str
    key: bytes = field(repr=False)

    def released(self, slab: Slab) -> Int64Array:
        center = self.staging.get(self.name, slab.index)
        layout, law = self.planned.strategy.layout, self.planned.noise.law
        arrays = self.planned.arrays
        whose, first = place_of(law, arrays, arrays.index(self.name), layout.size)
        with _DRAWING:
            return privatize(center, first + slab.start * layout.layer, law, self.key, whose)

    @property
    def whole(self) -> Int64Array:
        """Every released integer, in the order of the strategy's layout."""
        layout = self.planned.strategy.layout
        return np.concatenate([*map(self.released, layout.slabs())]).reshape(layout.shape)


def _write(writer: SynopsisWriter, stored: Component, noisy: _Noisy) -> Iterator[None]:
    """Write an array's lattice, on all cores; one that is derived, from what is released."""
    strategy, law = noisy.planned.strategy, noisy.planned.noise.law
    lattice_slab = noisy.released
    if stored.maps:
        released = noisy.whole
        writer.write_released(stored, released, strategy.kind)
        values = np.ldexp(released.astype(np.float64), law.granularity_exponent)

        def lattice_slab(slab: Slab) -> Int64Array:
            return to_grid(strategy.reconstruct(values, slab), law)

    def write(slab: Slab) -> None:
        writer.write(stored, slab, lattice_slab(slab))

    with one_thread(), ThreadPoolExecutor(WRITERS) as pool:
        yield from pool.map(write, stored.lattice.slabs())


def _noise_key(key: bytes, reservation: Reservation, law: Noise) -> bytes:
    """The key of this very center's noise.

    It is bound to the seal and to the law: should the ledger ever be put back to before the charge,
    another center, or another scale, draws independent noise instead of the same.
    """
    if reservation.seal is None:
        raise IntegrityError(f"release {reservation.name} has no sealed center: no noise is drawn")
    terms = json.dumps(asdict(law), sort_keys=True)
    return subkey(key, "noise of a sealed center", reservation.seal.hex(), terms)


def _stored(spec: ReleaseSpec, planned: PlannedMeasurement, name: str) -> Component:
    granularity = planned.noise.granularity
    if planned.entries:
        return Component(name, planned.lattice, ("entry",), (), granularity)
    lattice = Lattice(planned.k)
    ((domain, oblique),) = {
        (one.domain, one.oblique)
        for one in spec.components
        if one.name == planned.name and not one.entries
    }
    positions = tuple(axis.at(lattice.nodes(i)) for i, axis in enumerate(domain.axes))
    return Component(name, lattice, domain.names, positions, granularity, planned.maps, oblique)


def _attributes(
    spec: ReleaseSpec,
    plan: ReleasePlan,
    reservation: Reservation,
    ledger_id: str,
    choice: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The public facts a user needs to use the synopsis and to judge it (see FORMAT.md)."""
    content, expected, extent = plan.to_dict(), plan.outlook.expected, plan.outlook.extent
    kernels = any(one.kernels for one in spec.components)  # of which a reader has the largest value
    spec = spec_for_rows(spec, plan.n)
    measured = {one.name: one for one in spec.components}
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "dbern_version": version("dbern"),
        "name": plan.name,
        "created": reservation.created,
        "dataset": reservation.dataset,
        "ledger_id": ledger_id,
        "domain": _domain(spec),
        "target": {
            "kind": spec.learner.kind,
            **_given(spec),
            **spec.learner.taken(plan.components[0].counting),
            **(choice or {}),
            **spec.learner.identity(),
            "normalizer" if plan.protection.private_rows else "n": plan.n,
        },
        "combine": spec.combination.to_dict(),
        "components": [
            _described(measured.get(planned.name, spec.components[0]), planned, facts)
            for planned, facts in zip(plan.components, content["components"], strict=True)
        ],
        "epsilon": decimal_text(plan.charge.epsilon),
        "delta": decimal_text(plan.charge.delta),
        "rho": content["rho"],
        "neighbors": plan.protection.neighbors.value,
        "unit": str(plan.protection.unit),
        "certificate": content["certificate"],
        **({} if expected is None else {"expected_error": expected}),
        **({"extent": list(extent)} if extent and not kernels else {}),
        **({"random_dp": content["random_dp"]} if plan.random_dp else {}),
    }


def _domain(spec: ReleaseSpec) -> dict[str, Any]:
    kept, volume = spec.records.filter, spec.domain.volume
    return {
        "axes": [axis.to_dict() for axis in spec.domain.axes],
        "outside": spec.domain.outside.value,
        "volume": volume if math.isfinite(volume) else None,
        **({"filter": {"column": kept.name, "values": list(kept.categories)}} if kept else {}),
    }


def _given(spec: ReleaseSpec) -> dict[str, Any]:
    return {key: value for key, value in spec.learner.get_params().items() if value != ()}


def _described(
    measurement: Measurement, planned: PlannedMeasurement, facts: dict[str, Any]
) -> dict[str, Any]:
    share = decimal_text(measurement.fraction)
    if planned.entries:
        axes: tuple[str, ...] = ()
        shown: dict[str, Any] = {"entries": list(planned.entries)}
        if planned.promise:  # of what the first measures
            shown["promise"] = {key: planned.promise[key] for key in _PROMISED}
            share = planned.promise["share"]
        if measurement.features is not None:
            names = ("axes", "constant", "grid")
            shown["features"] = dict(zip(names, measurement.features, strict=False))
    else:
        axes, shown = measurement.domain.names, {"additive": measurement.additive}
        oblique = measurement.oblique
        shown |= {} if oblique is None else {"oblique": oblique.to_dict()}
        if measurement.counted_in is not None:
            shown["counted_in"] = list(array_names(measurement.counted_in, measurement.outputs))
        shown |= {key: facts[key] for key in ("k", "h", "approximation")}
        whole = any(one.of == "lattice" for one in planned.maps)
        shown |= {"spectral": "lattice"} if whole else {}
    return {
        "arrays": list(planned.arrays),
        "axes": list(axes),
        "share": share,
        "value_unit": planned.unit,
        **shown,
        **{key: facts[key] for key in ("noise", "sensitivity", "certificate")},
        "errors": {"lattice": planned.lattice_error, "released": planned.released_error},
    }
