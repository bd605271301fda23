"""From a sealed center to a published synopsis: exact noise, shards, manifest.

The noise key and the center meet here and nowhere else; the release key has sealed the center
(`Staging.seal`) and, for a perturbed objective, entered the count. Everything here is a function of
what the ledger and the staging hold, so repeating it writes the same bytes.

*A bandwidth is chosen* from released bins, after the noise: nothing but noised integers and public
facts is read. What is published is the function of the bandwidth that cross-validation of the bins
finds best. Bounds on its error hold for all that it was chosen from at once
(`FunctionClass.choices`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from threading import Lock
from typing import Any, cast

import numpy as np

from dbern.certify.mean_square import noise_at_nodes, typical_noise, values_at_nodes
from dbern.combination.base import ArraySummary, Combination
from dbern.data.domain import Domain
from dbern.data.storage import location_at
from dbern.errors import IntegrityError
from dbern.ledger import BudgetLedger, Reservation, Staging
from dbern.model.component import Component
from dbern.model.function_classes import StoredClass
from dbern.nights.horizon import StreamNode
from dbern.nights.people import require_blocks
from dbern.planning.component_plan import PlannedComponent, released_component, with_kernels
from dbern.planning.cost import WRITERS
from dbern.planning.planner import whole_certificate
from dbern.planning.release_plan import ReleasePlan, measured_pairs, release_texts
from dbern.planning.resolved import ResolvedSpec, spec_for_rows
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.budget import decimal_text
from dbern.privacy.families import family_of
from dbern.privacy.keystream import subkey
from dbern.privacy.mechanism import place_of, privatize, to_grid
from dbern.privacy.noise_law import NoiseLaw
from dbern.reconstruct.base import Lattice, Slab, Strategy
from dbern.reconstruct.bins import AxisBins, BinnedStrategy
from dbern.synopsis.metadata import FORMAT, FORMAT_VERSION
from dbern.synopsis.smoothing import shrink_within
from dbern.synopsis.writer import ReleasedGroup, SynopsisWriter
from dbern.system import Progress, one_thread, version
from dbern.targets.bandwidths import lengths_of
from dbern.types import FloatArray, Int64Array

_DRAWING = Lock()  # two threads that draw, by short numpy calls, are slower than one


def choose_bandwidth(
    spec: ReleaseSpec, plan: ReleasePlan, released: Callable[[PlannedComponent, str], Int64Array]
) -> tuple[ReleasePlan, dict[str, Any]]:
    """Return the plan of a density with the bandwidth that its bins choose, and what it says of it.

    `released` returns the noised integers of a planned statistic and the name of its array.
    """
    from dbern.ask.bins import NoisyMeasure
    from dbern.ask.kernel_envelopes import best_kernels  # a release seldom asks
    from dbern.ask.splines import AxisSplines

    resolved = ResolvedSpec.of(spec, plan.n)
    (statistic,), (planned,) = resolved.statistics, plan.components
    candidates, law = statistic.candidates, planned.noise.law
    maps = cast("tuple[AxisBins, ...]", planned.maps)
    splines = tuple(AxisSplines(bins.cells, bins.degree) for bins in maps)
    measures = [
        NoisyMeasure(np.ldexp(released(planned, name).astype(np.float64), law.granularity_exponent),
                splines, law, planned.released_error)
        for name in planned.arrays
    ]  # fmt: skip
    kernels = [candidate.kernels for candidate in candidates]
    best = candidates[best_kernels(measures, kernels, float(plan.n))]
    best_planned = with_kernels(planned, best, resolved)
    if best_planned.certificate.total > planned.certificate.total:  # more than the plan promised
        best, best_planned = candidates[0], planned
    certificate = whole_certificate(spec.combination, (best_planned,))
    lengths = [lengths_of(candidate.kernels, spec.domain) for candidate in candidates]
    choice = {"bandwidth": lengths_of(best.kernels, spec.domain), "chosen_of": lengths}
    return replace(plan, components=(best_planned,), certificate=certificate), choice


def publish(
    ledger: BudgetLedger,
    spec: ReleaseSpec,
    plan: ReleasePlan,
    reservation: Reservation,
    progress: Progress,
) -> str:
    """Add the noise to the sealed center and publish; return the manifest's digest.

    Raises IntegrityError where the staged center is not the sealed one: no noise is drawn.
    """
    writer = SynopsisWriter(location_at(reservation.output), reservation.release_id)
    published = writer.published()
    if published is not None:
        return published
    staging = ledger.staging(reservation)
    staging.verify(reservation.center_seal)
    if spec.stream_node is not None and spec.enforces_nights:
        require_blocks(ledger, spec, spec.stream_node)
    key = ledger.key(reservation)

    def noisy(planned: PlannedComponent, name: str) -> _Noisy:
        return _Noisy(staging, planned, name, _noise_key(key, reservation, planned.noise.law))

    choice: dict[str, Any] = {}
    classes = [planned.approximation for planned in plan.components]
    if any(function_class and function_class.restore().choices > 1 for function_class in classes):
        with one_thread():  # as plans do
            plan, choice = choose_bandwidth(
                spec, plan, lambda planned, name: noisy(planned, name).all_released
            )
    components = _components(spec, plan)
    stored = {group.name: group for group in _groups(components, plan)}
    attributes = _attributes(spec, plan, components, reservation, ledger.id, choice)
    if spec.stream_node is not None:
        attributes["stream"] = _stream(ledger, spec.stream_node, reservation)
    if spec.combination.looks_at_totals:
        arrays = [noisy(planned, name) for planned in plan.components for name in planned.arrays]
        with one_thread():  # so that its last bit is the same whoever goes on
            attributes["combine"] = _settled(spec.combination, arrays).to_dict()
    writer.begin(attributes, list(stored.values()))
    total = sum(len(list(group.component.lattice.slabs())) for group in stored.values())
    done = 0
    for planned in plan.components:
        for name in planned.arrays:
            for _ in _write(writer, stored[name], noisy(planned, name)):
                done += 1
                progress("adding noise and writing", done, total)
    return writer.finish(reservation.created, just_before=ledger.require_lock)


@dataclass(frozen=True)
class _Noisy:
    staging: Staging
    planned: PlannedComponent
    name: str
    key: bytes = field(repr=False)

    def released(self, slab: Slab) -> Int64Array:
        center = self.staging.get(self.name, slab.index)
        layout, law = self.planned.strategy.layout, self.planned.noise.law
        arrays = self.planned.arrays
        component, first = place_of(law, arrays, arrays.index(self.name), layout.size)
        with _DRAWING:
            return privatize(center, first + slab.start * layout.layer, law, self.key, component)

    @property
    def all_released(self) -> Int64Array:
        layout = self.planned.strategy.layout
        return np.concatenate([*map(self.released, layout.slabs())]).reshape(layout.shape)


def _settled(combination: Combination, arrays: Sequence[_Noisy]) -> Combination:
    """Return the combination with what the released numbers say of all records."""
    summaries = []
    for array in arrays:
        released = array.all_released if array.planned.strategy.kind == "binned" else None
        summaries.append(summary_of(array.planned, released, combination.arrays_of_rows))
    return combination.settled(summaries)


def summary_of(
    planned: PlannedComponent, released: Int64Array | None, arrays_of_rows: int
) -> ArraySummary:
    """Summarize an array of released bins; `released` is None of anything else."""
    strategy = cast("Strategy", planned.strategy)
    covariance = planned.noise.covariance.of_sum(arrays_of_rows)
    noise = typical_noise(strategy, planned.h, covariance)
    if released is None or not isinstance(strategy, BinnedStrategy):
        return ArraySummary(0.0, noise)
    unit = math.ldexp(planned.unit, planned.noise.law.granularity_exponent)
    total, values = strategy.total([released]), values_at_nodes(strategy, planned.h, released)
    shares = noise_at_nodes(strategy, planned.h, covariance)
    return ArraySummary(unit * total, noise, unit * values, shares)


def _write(writer: SynopsisWriter, stored: ReleasedGroup, noisy: _Noisy) -> Iterator[None]:
    """Write an array's lattice, on all cores; one that is derived, from what is released."""
    strategy, law = noisy.planned.strategy, noisy.planned.noise.law
    lattice_slab = noisy.released
    if stored.maps:
        released = noisy.all_released
        with one_thread():
            values, shrinkage = _derived_from(noisy.planned, released)
        writer.write_released(stored, released, shrinkage)

        def lattice_slab(slab: Slab) -> Int64Array:
            return to_grid(strategy.reconstruct(values, slab), law)

    def write(slab: Slab) -> None:
        writer.write(stored, slab, lattice_slab(slab))

    with one_thread(), ThreadPoolExecutor(WRITERS) as pool:
        yield from pool.map(write, stored.component.lattice.slabs())


def _derived_from(
    planned: PlannedComponent, released: Int64Array
) -> tuple[FloatArray, dict[str, float]]:
    """Values that a lattice is derived from, in unit-cube units, and the facts for readers."""
    law, limit = planned.noise.law, planned.most_silenced
    values = np.ldexp(released.astype(np.float64), law.granularity_exponent)
    if not limit:
        return values, {}
    noise = family_of(law).covariance(law.values).scaled(planned.noise.scale / planned.unit)
    strategy, stored = (
        cast("Strategy", planned.strategy),
        cast("StoredClass", planned.approximation),
    )
    error_unit = planned.unit * stored.restore().edge_factor
    values, moved, fraction = shrink_within(values, noise, strategy, planned.h, limit / error_unit)
    return values, {
        "silenced": moved * error_unit,
        "silenced_share": fraction,
    } if fraction else {}


def _noise_key(key: bytes, reservation: Reservation, law: NoiseLaw) -> bytes:
    """Derive the key of this very center's noise.

    It is bound to the seal and to the law: should the ledger ever be put back to before the charge,
    another center, or another scale, draws independent noise instead of the same.
    """
    if reservation.center_seal is None:
        raise IntegrityError(f"release {reservation.name} has no sealed center: no noise is drawn")
    terms = json.dumps(asdict(law), sort_keys=True)
    return subkey(key, "noise of a sealed center", reservation.center_seal.hex(), terms)


def _components(spec: ReleaseSpec, plan: ReleasePlan) -> list[tuple[Component, Domain]]:
    """Return what readers are told of each component, once its choices are made, and its domain."""
    statistics = spec_for_rows(spec, plan.n).components
    pairs = measured_pairs(statistics, plan.components)
    return [(released_component(*pair), pair[0].domain) for pair in pairs]


def _groups(
    components: Sequence[tuple[Component, Domain]], plan: ReleasePlan
) -> Iterator[ReleasedGroup]:
    for (component, domain), planned in zip(components, plan.components, strict=True):
        positions = {
            axis.name: axis.at(Lattice(planned.k).nodes(i))
            for i, axis in enumerate(domain.axes)
            if component.axes
        }
        for name in component.arrays:
            yield ReleasedGroup(name, component, positions, planned.maps)


def _attributes(
    spec: ReleaseSpec,
    plan: ReleasePlan,
    components: Sequence[tuple[Component, Domain]],
    reservation: Reservation,
    ledger_id: str,
    choice: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Public facts that a user needs to use the synopsis and to judge it (FORMAT.md)."""
    content, expected, extent = plan.to_dict(), plan.outlook.expected, plan.outlook.extent
    kernels = any(
        component.kernels for component in spec.components
    )  # of which a reader has the largest value
    spec = spec_for_rows(spec, plan.n)
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "dbern_version": version("dbern"),
        "name": plan.name,
        **release_texts(spec),
        "created": reservation.created,
        "dataset": reservation.dataset,
        "ledger_id": ledger_id,
        **({"packages": packages} if (packages := spec.packages()) else {}),
        "domain": _domain(spec),
        "target": {
            "kind": spec.learner.kind,
            **_target_params(spec),
            **spec.learner.taken(plan.components[0].counting),
            **(choice or {}),
            **spec.learner.identity(),
            "normalizer" if plan.protection.private_rows else "n": plan.n,
        },
        "combine": spec.combination.to_dict(),
        "components": [component.to_json() for component, _ in components],
        "epsilon": decimal_text(plan.charge.epsilon),
        "delta": decimal_text(plan.charge.delta),
        "rho": content["rho"],
        "neighbors": plan.protection.neighbors.value,
        "unit": str(plan.protection.unit),
        "certificate": content["certificate"],
        **({} if expected is None else {"expected_error": expected}),
        **({"extent": list(extent)} if extent and not kernels else {}),
    }


def _stream(ledger: BudgetLedger, node: StreamNode, reservation: Reservation) -> dict[str, Any]:
    """Return which node of a stream it is, and the release that paid for it."""
    paid, horizon = ledger.find(reservation.dataset, node.stream), node.horizon
    if paid is None:
        raise IntegrityError(f"stream {node.stream}: its charge is not in the ledger any more")
    return {
        "name": node.stream,
        "release_id": paid.release_id,
        "first": str(horizon.first),
        "horizon": horizon.count,
        "levels": list(horizon.levels),
        "level": node.span.level,
        "start": node.span.start,
        "without": sorted(node.without),
    }


def _domain(spec: ReleaseSpec) -> dict[str, Any]:
    row_filter, volume = spec.records.filter, spec.domain.volume
    return {
        "axes": [axis.to_dict() for axis in spec.domain.axes],
        "outside": spec.domain.outside.value,
        "volume": volume if math.isfinite(volume) else None,
        **(
            {"filter": {"column": row_filter.name, "values": list(row_filter.categories)}}
            if row_filter
            else {}
        ),
    }


def _target_params(spec: ReleaseSpec) -> dict[str, Any]:
    parameters = spec.learner.get_params().items()
    return {key: value for key, value in parameters if value not in ((), None)}
