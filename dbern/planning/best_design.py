"""Choose the design of a measurement: the spec's, or of the smallest predicted error.

`dbern.planning.best_candidate` compares designs of one family of noise; here families are compared,
and what a spec states, or what its questions need, limits them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from dbern.errors import SpecError
from dbern.measure.statistic import Measurement
from dbern.planning.best_candidate import best_candidate
from dbern.planning.candidate_design import CandidateDesign
from dbern.planning.closed_form_error import Reference
from dbern.planning.design_search import DesignSearch
from dbern.planning.measurement_plan import Design
from dbern.planning.noise_scale import sensitivity_and_params
from dbern.planning.question_widths import Questions
from dbern.planning.rows import BoundSpec
from dbern.privacy.families import PAPER, NoiseFamily
from dbern.reconstruct import noise_names
from dbern.reconstruct.base import Lattice, LatticeStrategy, Strategy, VectorStrategy
from dbern.types import FloatArray

MIN_RELATIVE_GAIN = 0.01  # of another law's error, or the usual one is taken
_PAPER_H, _LARGEST_PAPER_K = 2, 64
_LARGEST_AUTO_LATTICE, _LARGEST_OF_MANY_AXES = 1_000_000, 6_000_000  # the second from 7 axes on
_LARGEST_LATTICE = 1_000_000_000


def best_design(measurement: Measurement, bound: BoundSpec) -> Design:
    """Return what the spec states; what is open in it has the smallest predicted error."""
    spec, domain = bound.spec, measurement.domain
    noise, usual = spec.mechanism.noise, spec.families[0]
    if measurement.entries:
        return Design(VectorStrategy(len(measurement.entries)), (), usual)
    if measurement.linear:
        return _corners(measurement, bound)
    k, h = _stated_k(measurement, bound), spec.per_axis("h", domain)
    if not any(allowed_strategies(family, measurement, bound) for family in spec.families):
        _refuse_bins(measurement, bound)
    if usual is PAPER:
        h = h or (_PAPER_H,) * domain.dimensions
        k = k or _paper_k(measurement, bound, max(h))
    plain_only = noise == usual.lattice_name or not usual.strategy_suffix
    if k is not None and h is not None and plain_only:
        return Design(LatticeStrategy(Lattice(k)), h, usual)
    best: CandidateDesign | None = None
    best_family, refusal = usual, None
    for family in spec.families:
        search = replace(make_search(measurement, bound, family), k=k, h=h)
        strategy_kinds = [""] if plain_only else allowed_strategies(family, measurement, bound)
        candidate, why = countable(strategy_kinds, search, bound)
        refusal = refusal or why
        if candidate and errs_less(candidate, best):
            best, best_family = candidate, family
    if best is None:
        raise refusal or SpecError(
            f'mechanism.noise: "{noise}" is not for what target.kind = "{spec.learner.kind}" '
            f'releases. Write noise = "{usual.lattice_name}" or "auto"'
        )
    return Design(best.strategy, best.h, best_family)


def share_bins_with_denominator(measurement: Measurement, designs: Mapping[str, Design]) -> Design:
    """Give a ratio's numerator the bins of its denominator, so that both can be queried jointly.

    Either choice errs nearly as little, and noise and sensitivity are those of what is taken.
    """
    design = designs[measurement.name]
    denominator = designs.get(measurement.counted_in or "", design)
    if not design.strategy.kind == denominator.strategy.kind == "binned":
        return design
    return replace(denominator, family=design.family)


def errs_less(candidate: CandidateDesign, usual: CandidateDesign | None) -> bool:
    """Return whether a later law's candidate errs less than an earlier one's, if there is one."""
    return usual is None or (1 + MIN_RELATIVE_GAIN) * candidate.error < usual.error


def countable(
    strategy_kinds: Sequence[str], search: DesignSearch, bound: BoundSpec
) -> tuple[CandidateDesign | None, SpecError | None]:
    """Return the least predicted error of what can be counted, and why less of it cannot.

    Bins always can. Of lattices that are too fine, coarser ones are tried, where k is open.
    """
    best, refusal = best_candidate(strategy_kinds, search), None
    coarsest = Lattice((1,) * search.measurement.domain.dimensions)
    while best is not None and (why := _uncounted(best.strategy, search, bound)):
        refusal = refusal or why
        finest = search.cells(best.strategy.lattice) - 1
        coarser = search.k is None and search.cells(coarsest) <= finest
        smaller = replace(search, largest_lattice=finest)
        best = best_candidate(strategy_kinds, smaller) if coarser else None
        if best is not None and search.cells(best.strategy.lattice) > finest:
            best = None  # the coarsest that is worth a look
    return best, refusal


def _uncounted(strategy: Strategy, search: DesignSearch, bound: BoundSpec) -> SpecError | None:
    """Return why a sum of kernels over records cannot be counted for a strategy, if it cannot."""
    measurement = search.measurement
    if strategy.kind == "binned" or not measurement.kernels:
        return None
    try:
        sensitivity_and_params(measurement, strategy, search.family, bound)
    except SpecError as error:
        return error
    return None


def allowed_strategies(
    family: NoiseFamily, measurement: Measurement, bound: BoundSpec
) -> list[str]:
    """Strategies that may be released with this noise; only bins where something needs them."""
    names = noise_names(family)
    spec = bound.spec
    kinds = [kind for kind, name in names.items() if spec.mechanism.noise in ("auto", name)]
    usual = "binned" in kinds and measurement.binned  # lattice values err more: only by name
    needed = measurement.candidates or _questions_of(measurement, bound)
    return [kind for kind in kinds if kind == "binned" or not (usual or needed)]


def make_search(
    measurement: Measurement, bound: BoundSpec, family: NoiseFamily | None = None
) -> DesignSearch:
    """Return the public facts that the choice of k, h and rank starts from."""
    family = family or bound.spec.families[0]
    k = _stated_k(measurement, bound)
    many = measurement.domain.dimensions > 6
    largest = _LARGEST_OF_MANY_AXES if many else _LARGEST_AUTO_LATTICE
    return DesignSearch(
        measurement=measurement,
        n=bound.n,
        family=family,
        noise_ratio=family.scale_per_unit_sensitivity(
            bound.charge.part(measurement.output_fraction)
        ),
        k=k,
        h=bound.spec.per_axis("h", measurement.domain),
        certified=bound.certified,
        reference=_reference(measurement, bound.reference),
        largest_lattice=int(min(largest, measurement.largest_lattice)),
        questions=_questions_of(measurement, bound),
        levels=_takes_levels(measurement, bound),
    )


def _questions_of(measurement: Measurement, bound: BoundSpec) -> Questions | None:
    """Questions that its bins are to answer about rows, where they count them on all axes."""
    return bound.questions if measurement.unsigned else None


def _takes_levels(measurement: Measurement, bound: BoundSpec) -> bool:
    """Return whether bins of two levels may be released: of rows on the one axis there is.

    A bandwidth is chosen with bins of one level.
    """
    one_axis = bound.spec.domain.dimensions == measurement.domain.dimensions == 1
    return one_axis and measurement.unsigned and not measurement.candidates


def _reference(measurement: Measurement, density: Reference | None) -> Reference | None:
    oblique = measurement.oblique
    if density is None or oblique is None:
        return density

    def over_the_box(positions: FloatArray) -> FloatArray:
        points, inside = oblique.points(positions)
        values = np.zeros(len(points))
        values[inside] = density(points[inside])
        return values

    return over_the_box


def _stated_k(measurement: Measurement, bound: BoundSpec) -> tuple[int, ...] | None:
    k = bound.spec.per_axis("k", measurement.domain)
    if k is None and measurement.one_lattice:
        raise SpecError(
            "mechanism.k: is missing, and what the target states of its sensitivity is for one "
            "lattice. Write k = 20"
        )
    if k is not None and Lattice(k).size > _LARGEST_LATTICE:
        raise SpecError(
            f"mechanism.k: {Lattice(k).size} coefficients, more than the {_LARGEST_LATTICE} of "
            "this version. Write a smaller k."
        )
    return k


def _paper_k(measurement: Measurement, bound: BoundSpec, h: int) -> tuple[int, ...]:
    """Choice of k that proves Theorem 1, its constants set to one."""
    dimensions = measurement.domain.dimensions
    epsilon = float(bound.charge.part(measurement.output_fraction).epsilon)
    certain = math.log(1 / bound.spec.beta)
    ratio = epsilon * bound.n / (measurement.function_sensitivity * certain)
    return (min(_LARGEST_PAPER_K, max(1, int(ratio ** (1 / (h + dimensions))))),) * dimensions


def _corners(measurement: Measurement, bound: BoundSpec) -> Design:
    """Return the lattice of corners: a linear function is its values there."""
    spec, domain = bound.spec, measurement.domain
    ones, family = (1,) * domain.dimensions, spec.families[0]
    if {spec.per_axis("k", domain), spec.per_axis("h", domain)} - {None, ones}:
        raise SpecError("mechanism.k, mechanism.h: a linear function needs 1. Leave them out.")
    if spec.mechanism.noise not in ("auto", family.lattice_name):
        raise SpecError('mechanism.noise: is not for a linear function. Write noise = "auto"')
    return Design(LatticeStrategy(Lattice(ones)), ones, family)


def _refuse_bins(measurement: Measurement, bound: BoundSpec) -> None:
    """Name the key that needs the bins that a noise, or the paper's calibration, has not."""
    what, remedy = "shares and quantiles are told by bins", "leave out questions"
    if measurement.candidates:
        what, remedy = "bins choose a bandwidth", 'write numbers in place of bandwidth = "auto"'
    raise SpecError(
        f"mechanism.noise, mechanism.calibration: {what}, and "
        f'"{bound.spec.mechanism.noise}" has none here. Write noise = "auto" and calibration = '
        f'"tight", or {remedy}'
    )
