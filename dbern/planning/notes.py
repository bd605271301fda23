"""Notes of a plan: what its learner, its measurements and its choices should tell a steward."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dbern.data.domain import rounded_text
from dbern.planning.best_design import allowed_strategies, countable, errs_less, make_search
from dbern.planning.error_forecast import bins_for_questions, typical_candidate
from dbern.planning.measurement_plan import PlannedPart
from dbern.planning.plans import EDGES
from dbern.planning.rows import BoundSpec
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.budget import Budget
from dbern.privacy.families import named
from dbern.reconstruct import STRATEGY_KINDS
from dbern.reconstruct.base import Strategy
from dbern.system import and_text, format_number, toml_key
from dbern.targets.bandwidths import unit_notes
from dbern.targets.learner import DesignedMeasurement
from dbern.targets.typical import TYPICAL, WARNING

_NOTABLY_MISSED = 1.0  # times the noise: from there on approximation is noted


def notes_of(parts: Sequence[PlannedPart], bound: BoundSpec) -> Iterator[str]:
    """Yield the notes of a plan."""
    spec, n = bound.spec, bound.n
    yield from spec.learner.notes(n)
    for part in parts:
        yield from part.measurement.notes
    designs = [
        DesignedMeasurement(
            part.measurement, part.design.strategy, part.design.h, part.planned.noise.law
        )
        for part in parts
    ]
    predictions = spec.learner.predictions(spec.records, n, designs)
    yield from predictions
    yield from _notes_of_stated(spec, [note for part in parts for note in part.measurement.notes])
    yield from _notes_of_stated(spec, predictions)
    yield from unit_notes(spec.domain, spec.learner)
    for axis in spec.records.domain.axes:
        if axis.multiples is not None:
            values = f"{axis.multiples.count + 1} values"
            yield f"{axis.name}: rows are {rounded_text([axis])}, ties to even multiples; {values}"
    for axis in spec.records.domain.categorical:
        many = len(axis.categories)
        yield f"{axis.name}: {many} listed values; a record with another counts as missing"
    yield from _notes_of_edges(parts, bound)
    if any(part.measurement.candidates for part in parts):
        yield (
            "bins and promises of this plan are for the narrowest bandwidth; a release has those "
            "of what it chooses, which are no larger"
        )
    if spec.combination.meaning({"kind": spec.learner.kind}) == "density":
        yield from _notes_of_noise(parts[0], bound)
    for part in parts:
        yield from _notes_of_approximation(part, bound)
    if len(parts) == 1:
        yield from _notes_without_delta(parts[0], bound)


def _notes_of_edges(parts: Sequence[PlannedPart], bound: BoundSpec) -> Iterator[str]:
    """Note by what factor the edges of shares widen intervals that a resolution would narrow."""
    bins, axes = bins_for_questions(parts, bound), bound.spec.domain.axes
    names = [axis.name for axis in axes if axis.multiples is None]
    if bins is None or not names:
        return
    pairs = zip(bins.exact, axes, strict=True)
    rounded = replace(bins, exact=tuple(exact or axis.multiples is None for exact, axis in pairs))
    narrow = rounded.widths(0.0)
    factors = [
        width / narrow[name] for name, width in bins.widths(0.0).items() if name != "density"
    ]
    if factors:
        yield (
            f"{EDGES}are up to {max(factors):.1f} times as wide as with one, and more where values "
            f"are few. Where values of {and_text(names)} are rounded, and that is public, write "
            f"what they count in: [data.resolution] {toml_key(names[0])} = 0.01"
        )


def _notes_of_stated(spec: ReleaseSpec, predictions: Sequence[str]) -> Iterator[str]:
    """Note a penalty that is stated where no better than a constant is predicted."""
    stated = spec.target.model_dump().get("C", "auto")
    if WARNING in predictions and stated != "auto":
        predicted = next(note for note in predictions if note.startswith(TYPICAL))
        yield (
            f'WARNING: with C = {stated:g}, {predicted}. Write C = "auto" for one that noise allows'
        )


def _notes_of_noise(part: PlannedPart, bound: BoundSpec) -> Iterator[str]:
    """Warn where the noise of a density is as large as an even spread, which is 1 on the cube."""
    if not part.measurement.kernels or part.measurement.candidates:
        return
    noise = typical_candidate(part, bound).noise * part.planned.outputs
    if noise >= 1:
        yield (
            f"WARNING: the noise is predicted to be {format_number(noise, 2)} times the density of "
            "evenly spread rows: what a picture shows below that is noise. Write a larger "
            "epsilon, a wider bandwidth, or fewer axes"
        )


def _notes_of_approximation(part: PlannedPart, bound: BoundSpec) -> Iterator[str]:
    """Note where what is missed of typical data is more than the noise."""
    measurement, mechanism = part.measurement, bound.spec.mechanism
    if not measurement.kernels or measurement.candidates:
        return
    candidate = typical_candidate(part, bound)
    missed = math.sqrt(max(0.0, candidate.expected**2 - candidate.noise**2))
    if missed <= _NOTABLY_MISSED * candidate.noise:
        return
    stated = [key for key in ("k", "h") if getattr(mechanism, key) != "auto"]
    remedies = [f"leave out {' and '.join(stated)} in [mechanism]"] if stated else []
    remedies += ["write a wider bandwidth"]
    remedies += (
        ['write kernel = "gaussian"'] if any(kernel.kinks for kernel in measurement.kernels) else []
    )
    unit = part.planned.unit
    yield (
        f"{part.planned.name}: what is missed of typical data is predicted to be "
        f"{unit * missed:.3g}, more than the noise's {unit * candidate.noise:.3g}: a larger "
        f"epsilon hardly helps. To err less, {', or '.join(remedies)}"
    )


def _notes_without_delta(part: PlannedPart, bound: BoundSpec) -> Iterator[str]:
    """Note where noise that needs no delta errs less.

    It is not taken: an account that composes in zCDP charges some twenty times as much for it, and
    a plan does not know the account.
    """
    measurement, strategy, spec = part.measurement, part.design.strategy, bound.spec
    chooses_bins = measurement.candidates or bound.questions
    if not measurement.kernels or chooses_bins or spec.mechanism.noise != "auto":
        return
    if not bound.charge.delta or not isinstance(strategy, Strategy):
        return
    usual = make_search(measurement, bound, part.design.family).candidate(strategy, part.design.h)
    best, pure = usual, replace(bound, charge=Budget(bound.charge.epsilon))
    for family in named("auto", STRATEGY_KINDS, with_delta=False):
        search = make_search(measurement, pure, family)
        design, _ = countable(allowed_strategies(family, measurement, pure), search, pure)
        if design is not None:
            candidate = search.candidate(design.strategy, design.h)
            best = candidate if errs_less(candidate, best) else best
    if best is not usual:
        unit = measurement.unit
        yield (
            f"noise that needs no delta is predicted to err by {unit * best.expected:.3g}, this "
            f'plan by {unit * usual.expected:.3g}. Write delta = "0" in [budget], unless the '
            "account is in zCDP"
        )
