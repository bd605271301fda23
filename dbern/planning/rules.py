"""Read the sections of a spec into `Parsed`, and refuse what does not go together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pydantic import Field

from dbern.bernstein.basis import MOST_AXES, MOST_H, MOST_K
from dbern.combination.base import Combination
from dbern.data.domain import Axis, Column, Domain, Outside, RecordSchema, Response
from dbern.data.times import Bound, bounds_of
from dbern.errors import SpecError
from dbern.measure.statistic import Statistic, require_counted
from dbern.nights.section import StreamSection, check_partition, check_summed, node_of
from dbern.planning.sections import (
    BudgetSection,
    DataSection,
    MechanismSection,
    ReleaseSection,
    TargetSection,
    ValuesTable,
    needs_delta,
)
from dbern.privacy.budget import Budget, Neighbors, PrivacyUnit, Protection, exact
from dbern.privacy.contract import require_one_charge
from dbern.privacy.families import ADVANCED, PAPER, NoiseFamily, named
from dbern.reconstruct import STRATEGY_KINDS
from dbern.targets import Learner, learner_of
from dbern.targets.parameters import Section

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LEAST_DELTA = Fraction(1, 10**15)
_LEAST_BETA = Fraction(1, 10**9)
_LEAST_EPSILON = Fraction(1, 10**6)
_NORMALIZER = re.compile(r"[1-9]\d{0,11}|10{12}")


class Sections(Section):
    """Sections of a spec as they are written, each key of the type that it has to be."""

    release: ReleaseSection = Field(description="[release] with name and output")
    data: DataSection = Field(description="[data] with source and [data.bounds]")
    target: TargetSection = Field(description='[target] with kind = "kernel-density"')
    mechanism: MechanismSection = Field(default_factory=lambda: MechanismSection.model_validate({}))
    budget: BudgetSection = Field(description="[budget] with epsilon, ledger and dataset")
    stream: StreamSection | None = Field(None, description="[stream] with every and horizon")


@dataclass(frozen=True)
class Parsed:
    """Meaning of the sections: public choices, checked against each other."""

    records: RecordSchema
    learner: Learner
    components: tuple[Statistic, ...]
    charge: Budget
    families: tuple[NoiseFamily, ...]
    beta: Fraction
    protection: Protection


def parse(spec: Sections) -> Parsed:
    """Check what the schema cannot: values against each other, and what this version offers."""
    paths = {
        "release.output": spec.release.output,
        "data.source": spec.data.source or "",
        "budget.ledger": spec.budget.ledger,
        "budget.dataset": spec.budget.dataset,
    }
    for where, path in paths.items():
        if "\x00" in path:
            raise SpecError(f"{where}: no path and no name holds a NUL. Leave it out")
    if not NAME.fullmatch(spec.release.name):
        raise SpecError(
            'release.name: letters, digits, ".", "_" and "-" only. Write name = "trip-density"'
        )
    beta = exact(spec.mechanism.beta, "mechanism.beta")
    if not _LEAST_BETA <= beta <= 1 - _LEAST_BETA:
        raise SpecError('mechanism.beta: must be from 1e-9 to 1 - 1e-9. Write beta = "0.05"')
    protection = _protection(spec)
    schema = _schema(spec, _domain(spec.data))
    parameters = spec.target.model_dump()
    learner = learner_of(parameters.pop("kind"))(**parameters)
    _check_per_axis(spec, learner.function_domain(schema))
    charge = Budget.parse(spec.budget.epsilon, spec.budget.delta)
    if not _LEAST_EPSILON <= charge.epsilon <= 1 / _LEAST_EPSILON:
        raise SpecError('budget.epsilon: must be from 1e-6 to 1e6. Write epsilon = "1.0"')
    families = _families(spec, charge)
    if charge.delta and charge.delta < _LEAST_DELTA:
        raise SpecError('budget.delta: must be 0 or at least 1e-15. Write delta = "1e-6"')
    for role in ("label", "response", "group"):
        if getattr(schema, role) is not None and role not in learner.uses:
            raise SpecError(f'data.{role}: "{learner.kind}" has no use for it. Leave it out.')
    _check_lists(learner, schema)
    _check_units(spec.data.units or {}, schema)
    components = learner.components(schema)
    parts = [
        (statistic.name, statistic.outputs, statistic.output_fraction) for statistic in components
    ]
    require_one_charge(learner.kind, parts)
    require_counted(components)
    num_axes = max((c.domain.dimensions for c in components if not c.entries), default=0)
    if num_axes > MOST_AXES:
        raise SpecError(
            f"data.bounds: {num_axes} axes, and a lattice has at most {MOST_AXES}. Keep at "
            f"most {MOST_AXES} (factored naive Bayes and linear functions take more)"
        )
    components = tuple(statistic.protected(protection, schema.unit) for statistic in components)
    _check_stream(spec, protection, components, learner.combination(schema))
    return Parsed(schema, learner, components, charge, families, beta, protection)


def _check_units(units: Mapping[str, str], schema: RecordSchema) -> None:
    numbers = [axis.name for axis in schema.domain.numeric if axis.unit is None]
    if schema.response and schema.response.unit is None:
        numbers.append(schema.response.name)
    for name in units:
        if name not in numbers:
            columns = ", ".join(numbers) or "no column: all have lists, dates or times"
            raise SpecError(
                f"data.units.{name}: units are of columns of numbers that the spec reads. Write "
                f"those of {columns}"
            )


def _check_lists(learner: Learner, schema: RecordSchema) -> None:
    domain = schema.domain
    if domain.categorical and "categories" not in learner.uses:
        free = {"group": "group" in learner.uses and not schema.group, "filter": not schema.filter}
        sections = " or ".join(f"[data.{role}]" for role, usable in free.items() if usable)
        instead = f", or write its column and values in {sections}" if sections else ""
        raise SpecError(
            f'data.bounds.{domain.categorical[0].name}: "{learner.kind}" has no use for a list of '
            f"values. Leave it out{instead}."
        )


def _domain(data: DataSection) -> Domain:
    counted_in = data.resolution or {}
    for name in counted_in:
        if not isinstance(data.bounds.get(name), list):
            numbers = [axis for axis, bounds in data.bounds.items() if isinstance(bounds, list)]
            raise SpecError(
                f"data.resolution.{name}: is what an axis of numbers or dates counts in. Write it "
                f"of {', '.join(numbers) or 'such an axis'}"
            )
    axes = (_axis(name, bounds, counted_in.get(name)) for name, bounds in data.bounds.items())
    return Domain(tuple(axes), Outside(data.outside))


def _axis(name: str, bounds: list[Bound] | ValuesTable, resolution: float | None) -> Axis:
    match bounds:
        case ValuesTable():
            return Axis.of_values(name, bounds.values)
        case _:
            return Axis(name, *bounds_of(bounds, f"data.bounds.{name}"), resolution=resolution)


def _protection(spec: Sections) -> Protection:
    protection = protection_of(spec.data)
    if protection.private_rows and spec.mechanism.noise == ADVANCED.lattice_name:
        raise SpecError(
            f'mechanism.noise: "{ADVANCED.lattice_name}" is for replaced rows, as in the paper. '
            'Write noise = "auto"'
        )
    return protection


def _check_stream(
    spec: Sections,
    protection: Protection,
    components: Sequence[Statistic],
    combination: Combination,
) -> None:
    if spec.stream is None:
        return
    check_partition(spec.release, spec.data)
    check_summed(spec.stream, protection, components)
    node = node_of(spec.stream)
    if node is not None and spec.release.name != node.release_name:
        raise SpecError(
            f"stream.node: is called {node.release_name} and nothing else: it comes once. "
            "Leave the table out, and release the stream night by night"
        )
    if combination.looks_at_totals:
        raise SpecError(
            "stream: what is told of one night's data adds up to nothing. Write a kind that is a "
            "sum over rows, such as kernel-density"
        )


def _families(spec: Sections, charge: Budget) -> tuple[NoiseFamily, ...]:
    noise, paper = spec.mechanism.noise, spec.mechanism.calibration == "paper"
    with_delta = needs_delta(noise)
    if paper and with_delta is False and noise != PAPER.lattice_name:
        raise SpecError(
            'mechanism.calibration: "paper" is proved for noise = "laplace" only. '
            'Write calibration = "tight"'
        )
    if charge.delta and with_delta is False:
        raise SpecError(
            'budget.delta: Laplace noise needs none. Write delta = "0", or noise = "auto"'
        )
    if not charge.delta and with_delta:
        raise SpecError(
            f'mechanism.noise: "{noise}" needs a delta. Write delta = "1e-6" in '
            '[budget], or noise = "auto"'
        )
    if charge.delta and paper:
        raise SpecError(
            'mechanism.calibration: "paper" is for delta = "0". Write calibration = "tight"'
        )
    families = named(noise, STRATEGY_KINDS, with_delta=charge.delta > 0, paper=paper)
    if spec.stream is not None:  # noise of the K-norm law is drawn for one release alone
        families = tuple(family for family in families if not family.balanced)
    return families


def _check_per_axis(spec: Sections, domain: Domain) -> None:
    for key, maximum in (("k", MOST_K), ("h", MOST_H)):
        value = getattr(spec.mechanism, key)
        if isinstance(value, list) and len(value) != domain.dimensions:
            raise SpecError(
                f"mechanism.{key}: has {len(value)} entries for {domain.dimensions} axes. "
                f"Write one for each of {', '.join(domain.names)}"
            )
        if value != "auto" and max(value if isinstance(value, list) else [value]) > maximum:
            raise SpecError(
                f"mechanism.{key}: above {maximum} is not available in this version. "
                f"Write {key} = {maximum} or less."
            )


def _schema(spec: Sections, domain: Domain) -> RecordSchema:
    data = spec.data
    label, response, group, rows = data.label, data.response, data.group, data.filter
    return RecordSchema(
        domain,
        Column(label.column, "data.label.classes", tuple(label.classes)) if label else None,
        Response(response.column, *bounds_of(response.bounds, "data.response.bounds"))
        if response
        else None,
        Column(group.column, "data.group.values", tuple(group.values)) if group else None,
        Column(rows.column, "data.filter.values", tuple(rows.values)) if rows else None,
        None if isinstance(data.unit, str) else Column(data.unit.column, "data.unit", ids=True),
    )


def _unit(data: DataSection) -> PrivacyUnit:
    if isinstance(data.unit, str):
        return PrivacyUnit()
    try:
        return PrivacyUnit(data.unit.column, data.unit.max_contributions)
    except SpecError as error:
        raise SpecError(f"data.{error}") from None


def protection_of(data: DataSection) -> Protection:
    """Neighbours and unit of ``[data]``, with the n or the normalizer that goes with them.

    Raises SpecError where another of the two is there, or none that is needed.
    """
    protection = Protection(Neighbors(data.neighbors), _unit(data))
    if not protection.private_rows and data.normalizer is not None:
        raise SpecError(
            "data.normalizer: the number of rows is public when a row is replaced. Write "
            "n = 2000000, or neither."
        )
    if protection.private_rows and data.n is not None:
        raise SpecError(
            "data.n: the number of rows is private here. Write in its place normalizer = "
            '"2000000", public and chosen without looking.'
        )
    if protection.private_rows and data.normalizer is None:
        raise SpecError(
            'data.normalizer: is missing. Write normalizer = "2000000", a public number near that '
            "of the rows, which is private here."
        )
    if data.normalizer is not None and not _NORMALIZER.fullmatch(data.normalizer):
        raise SpecError(
            'data.normalizer: must be a whole number from 1 to 10^12. Write normalizer = "2000000"'
        )
    return protection
