"""Forecast of a release: its errors beside what its plan certifies, and notes for a steward.

*Errors*, in closed form. For kernel sums: the typical error, the band of evenly spread records, and
the widths of questions; for other statistics only what their combination implies.

*Notes* are what the learner, the statistics and the choices of a plan should tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from dbern.certify.bias_envelopes import MOST_AXES, bias_envelopes, even_error
from dbern.certify.certificate import shrunk_distance_if_even
from dbern.certify.mean_square import typical_noise
from dbern.combination.responses import Ratio
from dbern.data.domain import rounded_text, volume_unit
from dbern.planning.choice import allowed_strategies, best_countable, errs_less, make_search
from dbern.planning.component_plan import PlannedPart
from dbern.planning.predicted import BinQuestions
from dbern.planning.release_plan import EDGES, ErrorForecast
from dbern.planning.resolved import ResolvedSpec
from dbern.planning.search import Candidate
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.budget import Budget
from dbern.privacy.families import named
from dbern.reconstruct import STRATEGY_KINDS, strategy_of
from dbern.reconstruct.base import Lattice, Strategy
from dbern.reconstruct.bins import BinnedStrategy
from dbern.system import and_text, format_number, toml_key
from dbern.targets.bandwidths import unit_notes
from dbern.targets.learner import DesignedStatistic
from dbern.targets.typical import TYPICAL, WARNING

_NOTABLY_MISSED = 1.0  # times the noise: from there on approximation is noted


def forecast_errors(parts: Sequence[PlannedPart], resolved: ResolvedSpec) -> ErrorForecast:
    """Predict the release's errors."""
    combination, domain = resolved.spec.combination, resolved.spec.domain
    statistics = [part.statistic for part in parts]
    additive = [statistic for statistic in statistics if statistic.additive]
    density = len(additive) == len(parts) and all(
        statistic.unit == 1 / domain.volume for statistic in additive
    )
    unit = combination.unit_text(volume_unit(domain.axes), density=density)
    low, high = zip(*(statistic.range for statistic in statistics), strict=True)
    extent = combination.extent((min(low), max(high)) if max(high) < math.inf else None)
    if len(additive) < len(parts):
        return ErrorForecast(extent=extent, unit=unit, pointwise=combination.pointwise)
    if isinstance(combination, Ratio):
        (part,), quotients = parts, combination.quotients  # groups as large as one another
        planned, strategy = part.planned, cast("Strategy", part.planned.strategy)
        covariance = planned.noise.covariance.of_sum(combination.arrays_of_rows)
        noise = typical_noise(strategy, planned.h, covariance)
        error = _evenly_spread(part) or math.inf
        even = quotients[0].even(error, planned.unit / len(quotients), noise)
        questions = _question_widths(parts, resolved, None)
        return ErrorForecast(None, even, extent, unit, pointwise=True, questions=questions)
    errors = [
        error for part in parts for error in [_expected(part, resolved)] * part.planned.outputs
    ]
    known = [error for error in errors if error is not None]
    expected = combination.error(known) if len(known) == len(errors) else None
    these_data = _these_data(parts, resolved)
    questions = _question_widths(parts, resolved, expected)
    return ErrorForecast(expected, these_data, extent, unit, questions=questions)


def _expected(part: PlannedPart, resolved: ResolvedSpec) -> float | None:
    """Predict the error of typical data, whatever the choice aimed at; not of several kernels."""
    if part.statistic.candidates:
        return None
    at_edges = math.prod(kernel.typical_edge_factor for kernel in part.statistic.kernels)
    return at_edges * part.planned.unit * typical_candidate(part, resolved).expected


def typical_candidate(part: PlannedPart, resolved: ResolvedSpec) -> Candidate:
    """Predict the errors of a sum of kernels as it is planned, for typical data."""
    search = make_search(part.statistic, resolved, part.design.family)
    typical = replace(search, certified=False, questions=None)
    strategy = strategy_of(Lattice(part.planned.k), part.planned.maps)
    return typical.candidate(strategy, part.planned.h)


def _these_data(parts: Sequence[PlannedPart], resolved: ResolvedSpec) -> float | None:
    """Predict what a release will promise of evenly spread records."""
    if not all(part.statistic.unsigned for part in parts):
        return None
    widths = [width for part in parts for width in [_evenly_spread(part)] * part.planned.outputs]
    known = [width for width in widths if width is not None]
    if len(known) < len(widths):
        return None
    first, width = parts[0].planned, resolved.spec.combination.error(known)
    bins = getattr(first.strategy, "bins", ())
    return width + shrunk_distance_if_even(first.most_silenced, bins, first.noise.law)


def _question_widths(
    parts: Sequence[PlannedPart], resolved: ResolvedSpec, density: float | None
) -> dict[str, float]:
    """Predict the widths of questions, which the first statistic that counts rows answers."""
    bins = bins_for_questions(parts, resolved)
    widths = {} if bins is None else bins.widths(density or 0.0)
    return {name: widths[name] for name in widths if name != "density" or density}


def bins_for_questions(parts: Sequence[PlannedPart], resolved: ResolvedSpec) -> BinQuestions | None:
    """Put the spec's questions to the bins that answer them; None where there are none."""
    for part in parts:
        if part.statistic.additive:
            search = make_search(part.statistic, resolved, part.design.family)
            if search.questions is not None:
                return search.ask(cast("BinnedStrategy", part.planned.strategy), search.questions)
    return None


def _evenly_spread(part: PlannedPart) -> float | None:
    """Widest half-width of the band for evenly spread records, and no noise in its first part."""
    statistic, planned = part.statistic, part.planned
    bins = getattr(planned.strategy, "bins", ())
    if not 1 <= len(bins) <= MOST_AXES:
        return None
    axes = statistic.kernels, planned.k, planned.h
    envelopes = bias_envelopes(*axes, bins, bins, finest=False)
    certificate, bias = planned.certificate, planned.unit * even_error(envelopes, bins)
    noise = certificate.noise - planned.most_silenced
    return min(bias, certificate.approximation) + certificate.rounding + noise


def notes_of(parts: Sequence[PlannedPart], resolved: ResolvedSpec) -> Iterator[str]:
    """Yield the notes of a plan."""
    spec, n = resolved.spec, resolved.n
    yield from spec.learner.notes(n)
    for key, package in spec.packages().items():
        yield f"{key} is of {package}: as stated, not checked, and privacy rests on it"
    for part in parts:
        yield from part.statistic.notes
    designs = [
        DesignedStatistic(
            part.statistic, part.design.strategy, part.design.h, part.planned.noise.law
        )
        for part in parts
    ]
    predictions = spec.learner.predictions(spec.records, n, designs)
    yield from predictions
    yield from _notes_of_stated(spec, [note for part in parts for note in part.statistic.notes])
    yield from _notes_of_stated(spec, predictions)
    yield from unit_notes(spec.domain, spec.learner)
    for axis in spec.records.domain.axes:
        if axis.multiples is not None:
            values = f"{axis.multiples.count + 1} values"
            yield f"{axis.name}: rows are {rounded_text([axis])}, ties to even multiples; {values}"
    for axis in spec.records.domain.categorical:
        many = len(axis.categories)
        yield f"{axis.name}: {many} listed values; a record with another counts as missing"
    yield from _notes_of_edges(parts, resolved)
    if any(part.statistic.candidates for part in parts):
        yield (
            "bins and promises of this plan are for the narrowest bandwidth; a release has those "
            "of what it chooses, which are no larger"
        )
    if spec.combination.meaning({"kind": spec.learner.kind}) == "density":
        yield from _notes_of_noise(parts[0], resolved)
    for part in parts:
        yield from _notes_of_approximation(part, resolved)
    if len(parts) == 1:
        yield from _notes_without_delta(parts[0], resolved)


def _notes_of_edges(parts: Sequence[PlannedPart], resolved: ResolvedSpec) -> Iterator[str]:
    """Note by what factor the edges of shares widen intervals that a resolution would narrow."""
    bins, axes = bins_for_questions(parts, resolved), resolved.spec.domain.axes
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


def _notes_of_noise(part: PlannedPart, resolved: ResolvedSpec) -> Iterator[str]:
    """Warn where the noise of a density is as large as an even spread, which is 1 on the cube."""
    if not part.statistic.kernels or part.statistic.candidates:
        return
    noise = typical_candidate(part, resolved).noise * part.planned.outputs
    if noise >= 1:
        yield (
            f"WARNING: the noise is predicted to be {format_number(noise, 2)} times the density of "
            "evenly spread rows: what a picture shows below that is noise. Write a larger "
            "epsilon, a wider bandwidth, or fewer axes"
        )


def _notes_of_approximation(part: PlannedPart, resolved: ResolvedSpec) -> Iterator[str]:
    """Note where what is missed of typical data is more than the noise."""
    statistic, mechanism = part.statistic, resolved.spec.mechanism
    if not statistic.kernels or statistic.candidates:
        return
    candidate = typical_candidate(part, resolved)
    missed = math.sqrt(max(0.0, candidate.expected**2 - candidate.noise**2))
    if missed <= _NOTABLY_MISSED * candidate.noise:
        return
    stated = [key for key in ("k", "h") if getattr(mechanism, key) != "auto"]
    remedies = [f"leave out {' and '.join(stated)} in [mechanism]"] if stated else []
    remedies += ["write a wider bandwidth"]
    remedies += (
        ['write kernel = "gaussian"'] if any(kernel.kinks for kernel in statistic.kernels) else []
    )
    unit = part.planned.unit
    yield (
        f"{part.planned.name}: what is missed of typical data is predicted to be "
        f"{unit * missed:.3g}, more than the noise's {unit * candidate.noise:.3g}: a larger "
        f"epsilon hardly helps. To err less, {', or '.join(remedies)}"
    )


def _notes_without_delta(part: PlannedPart, resolved: ResolvedSpec) -> Iterator[str]:
    """Note where noise that needs no delta errs less.

    It is not taken: an account that composes in zCDP charges some twenty times as much for it, and
    a plan does not know the account.
    """
    statistic, strategy, spec = part.statistic, part.design.strategy, resolved.spec
    chooses_bins = statistic.candidates or resolved.questions
    if not statistic.kernels or chooses_bins or spec.mechanism.noise != "auto":
        return
    if not resolved.charge.delta or not isinstance(strategy, Strategy):
        return
    usual = make_search(statistic, resolved, part.design.family).candidate(strategy, part.design.h)
    best, pure = usual, replace(resolved, charge=Budget(resolved.charge.epsilon))
    for family in named("auto", STRATEGY_KINDS, with_delta=False):
        search = make_search(statistic, pure, family)
        design, _ = best_countable(allowed_strategies(family, statistic, pure), search, pure)
        if design is not None:
            candidate = search.candidate(design.strategy, design.h)
            best = candidate if errs_less(candidate, best) else best
    if best is not usual:
        unit = statistic.unit
        yield (
            f"noise that needs no delta is predicted to err by {unit * best.expected:.3g}, this "
            f'plan by {unit * usual.expected:.3g}. Write delta = "0" in [budget], unless the '
            "account is in zCDP"
        )
