"""Choose the design of a statistic: the spec's, or of the smallest predicted error.

Candidates of one family of noise are compared, then families; no record is read. What a spec
states, or what its questions need, limits them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from dbern.certify.approximation import Linear
from dbern.errors import SpecError
from dbern.measure.statistic import Statistic
from dbern.planning.candidates import (
    bin_candidates,
    class_candidates,
    lattice_candidates,
    spectral_candidates,
)
from dbern.planning.component_plan import Design
from dbern.planning.gram_candidates import gram_candidates
from dbern.planning.noise_scale import sensitivity_and_params
from dbern.planning.predicted import USUAL, Questions, Reference, mean_width
from dbern.planning.resolved import ResolvedSpec
from dbern.planning.search import Candidate, Search
from dbern.privacy.families import PAPER, NoiseFamily
from dbern.reconstruct import STRATEGIES, noise_names
from dbern.reconstruct.base import Lattice, LatticeStrategy, Strategy, VectorStrategy
from dbern.reconstruct.bins import BinnedStrategy
from dbern.types import FloatArray

_NEAR_ERROR, _NEAR_EXPECTED = 0.02, 0.05  # of the errors: so near bins differ by their promise
_TWO_SCALE_COST = 0.15  # of errors and of noise: what narrower masses and quantiles may cost
MIN_RELATIVE_GAIN = 0.01  # of another law's error, or the usual one is taken
_PAPER_H, _LARGEST_PAPER_K = 2, 64
_LARGEST_AUTO_LATTICE, _LARGEST_OF_MANY_AXES = 1_000_000, 6_000_000  # the second from 7 axes on
_LARGEST_LATTICE = 1_000_000_000

CANDIDATES = {"binned": bin_candidates, "spectral": spectral_candidates, "": lattice_candidates}
CANDIDATES |= {
    stored.kind: stored.candidates for stored in STRATEGIES if stored.kind not in CANDIDATES
}
"""By what is released, in the order in which they are tried: what wins most often goes first."""


def best_candidate(strategy_kinds: Iterable[str], search: Search) -> Candidate | None:
    """Return the candidate that a plan takes; None where there are none."""
    candidates = [
        candidate
        for kind in sorted(strategy_kinds, key=list(CANDIDATES).index)
        for candidate in _candidates_of(kind, search)
    ]
    return search.with_matrices(_best_of(candidates, search)) if candidates else None


def _candidates_of(strategy_kind: str, search: Search) -> Iterator[Candidate]:
    """Yield releases of lattice values (""), of spectral coordinates or of bins."""
    cube = search.statistic.cube
    if cube is not None:
        yield from gram_candidates(strategy_kind, search, cube)
    elif strategy_kind == "" and not search.kernels:
        yield from class_candidates(search)
    else:
        yield from CANDIDATES[strategy_kind](search)


def _best_of(candidates: Sequence[Candidate], search: Search) -> Candidate:
    """Return the candidate of least predicted error; of bins that err alike the surest.

    Of bins whose errors are within `_NEAR_ERROR` of the least, and expected ones within
    `_NEAR_EXPECTED`, the one with the least error for any database is taken, where it is all that
    is released. Beside other arrays another promise is read: that of a quotient or a product at a
    point.
    """
    if search.two_scales and not search.certified and search.questions is None:
        return _best_of_scales(candidates, search)
    best = min(candidates, key=lambda candidate: candidate.error)
    beside_others = search.statistic.output_fraction != 1 or search.statistic.divided
    if beside_others or search.questions is not None or best.strategy.kind != "binned":
        return best
    near = (
        candidate
        for candidate in candidates
        if candidate.strategy.kind == "binned"
        and candidate.error <= (1 + _NEAR_ERROR) * best.error
        and candidate.expected <= (1 + _NEAR_EXPECTED) * best.expected
    )
    return min(near, key=lambda candidate: candidate.promise)


def _best_of_scales(candidates: Sequence[Candidate], search: Search) -> Candidate:
    """Return bins of two scales where they narrow masses and quantiles, else the usual candidate.

    The usual candidate is the best without bins of two scales. Bins of two scales are compared with
    it if their noise and expected error are at most `_TWO_SCALE_COST` above those of the candidate
    of one scale with the least expected error, and their promise is as little above the usual one.
    Of these and the usual candidate, the one with the least mean of error and widths is taken.
    """
    one_scale = [candidate for candidate in candidates if not candidate.two_scales]
    usual = _best_of(one_scale, replace(search, two_scales=False))
    typical = min(one_scale, key=lambda candidate: candidate.expected)
    limits = (1 + _TWO_SCALE_COST) * np.array([typical.noise, typical.expected, usual.promise])
    two_scales = (candidate for candidate in candidates if candidate.two_scales)
    near = [
        bins
        for bins in two_scales
        if np.less_equal((bins.noise, bins.expected, bins.promise), limits).all()
    ]

    def width(candidate: Candidate) -> float:
        bins = cast("BinnedStrategy", candidate.strategy)
        return mean_width(search.ask(bins, USUAL).widths(candidate.error))

    return min((usual, *near), key=width) if near else usual


def best_design(statistic: Statistic, resolved: ResolvedSpec) -> Design:
    """Choose a design: what the spec states, the rest by the smallest predicted error."""
    spec, domain = resolved.spec, statistic.domain
    noise, usual = spec.mechanism.noise, spec.families[0]
    if statistic.entries:
        return Design(VectorStrategy(len(statistic.entries)), (), usual)
    if isinstance(statistic.bias, Linear):
        return _corner_design(statistic, resolved)
    k, h = _stated_k(statistic, resolved), spec.per_axis("h", domain)
    if not any(allowed_strategies(family, statistic, resolved) for family in spec.families):
        _refuse_missing_bins(statistic, resolved)
    if usual is PAPER:
        h = h or (_PAPER_H,) * domain.dimensions
        k = k or _paper_k(statistic, resolved, max(h))
    plain_only = noise == usual.lattice_name or not usual.strategy_suffix
    if k is not None and h is not None and plain_only:
        return Design(LatticeStrategy(Lattice(k)), h, usual)
    best: Candidate | None = None
    best_family, refusal = usual, None
    for family in spec.families:
        search = replace(make_search(statistic, resolved, family), k=k, h=h)
        strategy_kinds = [""] if plain_only else allowed_strategies(family, statistic, resolved)
        candidate, why = best_countable(strategy_kinds, search, resolved)
        refusal = refusal or why
        if candidate and errs_less(candidate, best):
            best, best_family = candidate, family
    if best is None:
        raise refusal or SpecError(
            f'mechanism.noise: "{noise}" is not for what target.kind = "{spec.learner.kind}" '
            f'releases. Write noise = "{usual.lattice_name}" or "auto"'
        )
    return Design(best.strategy, best.h, best_family)


def errs_less(candidate: Candidate, usual: Candidate | None) -> bool:
    """Return whether a later law's candidate errs less than an earlier one's, if there is one."""
    return usual is None or (1 + MIN_RELATIVE_GAIN) * candidate.error < usual.error


def best_countable(
    strategy_kinds: Sequence[str], search: Search, resolved: ResolvedSpec
) -> tuple[Candidate | None, SpecError | None]:
    """Return the best candidate that can be counted, and why a better one cannot.

    Bins always can. Of lattices that are too fine, coarser ones are tried, where k is open.
    """
    best, refusal = best_candidate(strategy_kinds, search), None
    coarsest = Lattice((1,) * search.statistic.domain.dimensions)
    while best is not None and (why := _uncounted(best.strategy, search, resolved)):
        refusal = refusal or why
        finest = search.cells(best.strategy.lattice) - 1
        coarser = search.k is None and search.cells(coarsest) <= finest
        smaller = replace(search, most_values=finest)
        best = best_candidate(strategy_kinds, smaller) if coarser else None
        if best is not None and search.cells(best.strategy.lattice) > finest:
            best = None  # the coarsest that is worth a look
    return best, refusal


def _uncounted(strategy: Strategy, search: Search, resolved: ResolvedSpec) -> SpecError | None:
    """Return why a sum of kernels over records cannot be counted for a strategy, if it cannot."""
    statistic = search.statistic
    if strategy.kind == "binned" or not statistic.kernels:
        return None
    try:
        sensitivity_and_params(statistic, strategy, search.family, resolved)
    except SpecError as error:
        return error
    return None


def allowed_strategies(
    family: NoiseFamily, statistic: Statistic, resolved: ResolvedSpec
) -> list[str]:
    """Strategies that may be released with this noise; only bins where something needs them."""
    names = noise_names(family)
    spec = resolved.spec
    kinds = [kind for kind, name in names.items() if spec.mechanism.noise in ("auto", name)]
    usual = "binned" in kinds and statistic.binned  # lattice values err more: only by name
    needed = statistic.candidates or _questions_of(statistic, resolved)
    return [kind for kind in kinds if kind == "binned" or not (usual or needed)]


def make_search(
    statistic: Statistic, resolved: ResolvedSpec, family: NoiseFamily | None = None
) -> Search:
    """Collect the public facts that the choice of k, h and rank starts from."""
    family = family or resolved.spec.families[0]
    k = _stated_k(statistic, resolved)
    many = statistic.domain.dimensions > 6
    largest = _LARGEST_OF_MANY_AXES if many else _LARGEST_AUTO_LATTICE
    return Search(
        statistic=statistic,
        n=resolved.n,
        family=family,
        noise_ratio=family.predicted_scale(resolved.charge.part(statistic.output_fraction)),
        k=k,
        h=resolved.spec.per_axis("h", statistic.domain),
        certified=resolved.certified,
        reference=_reference(statistic, resolved.reference),
        most_values=int(min(largest, statistic.largest_lattice)),
        questions=_questions_of(statistic, resolved),
        two_scales=_takes_two_scales(statistic, resolved),
    )


def _questions_of(statistic: Statistic, resolved: ResolvedSpec) -> Questions | None:
    """Questions that its bins are to answer about rows, where they count them on all axes."""
    return resolved.questions if statistic.unsigned else None


def _takes_two_scales(statistic: Statistic, resolved: ResolvedSpec) -> bool:
    """Return whether bins of two scales may be released: of rows on all axes there are.

    A bandwidth is chosen with bins of one scale.
    """
    all_axes = resolved.spec.domain.dimensions == statistic.domain.dimensions
    return all_axes and statistic.unsigned and not statistic.candidates


def _reference(statistic: Statistic, density: Reference | None) -> Reference | None:
    oblique = statistic.oblique
    if density is None or oblique is None:
        return density

    def over_the_box(positions: FloatArray) -> FloatArray:
        points, inside = oblique.points(positions)
        values = np.zeros(len(points))
        values[inside] = density(points[inside])
        return values

    return over_the_box


def _stated_k(statistic: Statistic, resolved: ResolvedSpec) -> tuple[int, ...] | None:
    k = resolved.spec.per_axis("k", statistic.domain)
    if k is None and statistic.one_lattice:
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


def _paper_k(statistic: Statistic, resolved: ResolvedSpec, h: int) -> tuple[int, ...]:
    """Return the k that proves Theorem 1, its constants set to one."""
    dimensions = statistic.domain.dimensions
    epsilon = float(resolved.charge.part(statistic.output_fraction).epsilon)
    tail_exponent = math.log(1 / resolved.spec.beta)
    ratio = epsilon * resolved.n / (statistic.function_sensitivity * tail_exponent)
    return (min(_LARGEST_PAPER_K, max(1, int(ratio ** (1 / (h + dimensions))))),) * dimensions


def _corner_design(statistic: Statistic, resolved: ResolvedSpec) -> Design:
    """Return the lattice of corners: a linear function is its values there."""
    spec, domain = resolved.spec, statistic.domain
    ones, family = (1,) * domain.dimensions, spec.families[0]
    if {spec.per_axis("k", domain), spec.per_axis("h", domain)} - {None, ones}:
        raise SpecError("mechanism.k, mechanism.h: a linear function needs 1. Leave them out.")
    if spec.mechanism.noise not in ("auto", family.lattice_name):
        raise SpecError('mechanism.noise: is not for a linear function. Write noise = "auto"')
    return Design(LatticeStrategy(Lattice(ones)), ones, family)


def _refuse_missing_bins(statistic: Statistic, resolved: ResolvedSpec) -> None:
    """Name the key that needs bins, where the noise or the paper's calibration has none."""
    need, remedy = "shares and quantiles are told by bins", "leave out questions"
    if statistic.candidates:
        need, remedy = "bins choose a bandwidth", 'write numbers in place of bandwidth = "auto"'
    raise SpecError(
        f"mechanism.noise, mechanism.calibration: {need}, and "
        f'"{resolved.spec.mechanism.noise}" has none here. Write noise = "auto" and calibration = '
        f'"tight", or {remedy}'
    )
