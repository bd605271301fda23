"""Forecast of a release's errors beside what its plan certifies, in closed form.

For kernel sums: the typical error, the band of evenly spread records, and the widths of questions;
for other measurements only what their combination implies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from dbern.certify.bias_envelopes import MOST_AXES, bias_envelopes, even_error
from dbern.certify.certificate import shrunk_distance_if_even
from dbern.certify.noise import typical_noise
from dbern.combination.responses import Ratio
from dbern.data.domain import volume_unit
from dbern.planning.best_design import make_search
from dbern.planning.candidate_design import CandidateDesign
from dbern.planning.measurement_plan import PlannedPart
from dbern.planning.plans import ErrorForecast
from dbern.planning.question_widths import BinQuestions
from dbern.planning.rows import BoundSpec
from dbern.reconstruct import strategy_of
from dbern.reconstruct.base import Lattice, Strategy
from dbern.reconstruct.bins import BinnedStrategy


def forecast_errors(parts: Sequence[PlannedPart], bound: BoundSpec) -> ErrorForecast:
    """Predict the release's errors."""
    combination, domain = bound.spec.combination, bound.spec.domain
    measurements = [part.measurement for part in parts]
    additive = [measurement for measurement in measurements if measurement.additive]
    density = len(additive) == len(parts) and all(
        measurement.unit == 1 / domain.volume for measurement in additive
    )
    unit = combination.unit_text(volume_unit(domain.axes), density=density)
    low, high = zip(*(measurement.range for measurement in measurements), strict=True)
    extent = combination.extent((min(low), max(high)) if max(high) < math.inf else None)
    if len(additive) < len(parts):
        return ErrorForecast(extent=extent, unit=unit, pointwise=combination.pointwise)
    if isinstance(combination, Ratio):
        above, below = (_evenly_spread(part) or math.inf for part in parts)
        counts = parts[1].planned
        counted = cast("Strategy", counts.strategy)
        noise = typical_noise(counted, counts.h, counts.noise.covariance)
        quotients = combination.quotients  # of groups that are as large as one another
        even = quotients[0].even(above, below, counts.unit / len(quotients), noise)
        questions = _question_widths(parts, bound, None)
        return ErrorForecast(None, even, extent, unit, pointwise=True, questions=questions)
    errors = [error for part in parts for error in [_expected(part, bound)] * part.planned.outputs]
    known = [error for error in errors if error is not None]
    expected = combination.error(known) if len(known) == len(errors) else None
    these_data = _these_data(parts, bound)
    questions = _question_widths(parts, bound, expected)
    return ErrorForecast(expected, these_data, extent, unit, questions=questions)


def _expected(part: PlannedPart, bound: BoundSpec) -> float | None:
    """Predict the error of typical data, whatever the choice aimed at; not of several kernels."""
    if part.measurement.candidates:
        return None
    return part.planned.unit * typical_candidate(part, bound).expected


def typical_candidate(part: PlannedPart, bound: BoundSpec) -> CandidateDesign:
    """Predict the errors of a sum of kernels as it is planned, for typical data."""
    search = make_search(part.measurement, bound, part.design.family)
    typical = replace(search, certified=False, questions=None)
    strategy = strategy_of(Lattice(part.planned.k), part.planned.maps)
    return typical.candidate(strategy, part.planned.h)


def _these_data(parts: Sequence[PlannedPart], bound: BoundSpec) -> float | None:
    """Predict what a release will promise of evenly spread records."""
    if not all(part.measurement.unsigned for part in parts):
        return None
    widths = [width for part in parts for width in [_evenly_spread(part)] * part.planned.outputs]
    known = [width for width in widths if width is not None]
    if len(known) < len(widths):
        return None
    first, width = parts[0].planned, bound.spec.combination.error(known)
    bins = getattr(first.strategy, "bins", ())
    return width + shrunk_distance_if_even(first.most_silenced, bins, first.noise.law)


def _question_widths(
    parts: Sequence[PlannedPart], bound: BoundSpec, density: float | None
) -> dict[str, float]:
    """Predict the widths of questions, which the first measurement that counts rows answers."""
    bins = bins_for_questions(parts, bound)
    widths = {} if bins is None else bins.widths(density or 0.0)
    return {name: widths[name] for name in widths if name != "density" or density}


def bins_for_questions(parts: Sequence[PlannedPart], bound: BoundSpec) -> BinQuestions | None:
    """Put the spec's questions to the bins that answer them; None where there are none."""
    for part in parts:
        if part.measurement.additive:
            search = make_search(part.measurement, bound, part.design.family)
            if search.questions is not None:
                return search.ask(cast("BinnedStrategy", part.planned.strategy), search.questions)
    return None


def _evenly_spread(part: PlannedPart) -> float | None:
    """Widest half-width of the band for evenly spread records, and no noise in its first part."""
    measurement, planned = part.measurement, part.planned
    bins = getattr(planned.strategy, "bins", ())
    if not 1 <= len(bins) <= MOST_AXES:
        return None
    axes = measurement.kernels, planned.k, planned.h
    envelopes = bias_envelopes(*axes, bins, bins, finest=False)
    certificate, bias = planned.certificate, planned.unit * even_error(envelopes, bins)
    noise = certificate.noise - planned.most_silenced
    return min(bias, certificate.approximation) + certificate.rounding + noise
