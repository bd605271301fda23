"""Choose k, h and what is released by the smallest predicted error, without reading a record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from dbern.planning.bin_candidates import bin_candidates
from dbern.planning.candidate_design import CandidateDesign
from dbern.planning.design_search import DesignSearch
from dbern.planning.gram_candidates import gram_candidates
from dbern.planning.lattice_candidates import class_candidates, lattice_candidates
from dbern.planning.question_widths import USUAL, mean_width
from dbern.planning.spectral_candidates import spectral_candidates
from dbern.reconstruct import STRATEGIES
from dbern.reconstruct.bins import BinnedStrategy

_NEAR_ERROR, _NEAR_EXPECTED = 0.02, 0.05  # of the errors: so near bins differ by their promise
_TWO_LEVEL_COST = 0.15  # of errors and of noise: what narrower masses and quantiles may cost

CANDIDATES = {"binned": bin_candidates, "spectral": spectral_candidates, "": lattice_candidates}
CANDIDATES |= {
    stored.kind: stored.candidates for stored in STRATEGIES if stored.kind not in CANDIDATES
}
"""By what is released, in the order in which they are tried: what wins most often goes first."""


def best_candidate(strategy_kinds: Iterable[str], search: DesignSearch) -> CandidateDesign | None:
    """Return the candidate that a plan takes; None where there are none."""
    candidates = [
        candidate
        for kind in sorted(strategy_kinds, key=list(CANDIDATES).index)
        for candidate in _candidates_of(kind, search)
    ]
    return search.with_matrices(_preferred(candidates, search)) if candidates else None


def _candidates_of(strategy_kind: str, search: DesignSearch) -> Iterator[CandidateDesign]:
    """Yield releases of lattice values (""), of spectral coordinates or of bins."""
    cube = search.measurement.cube
    if cube is not None:
        yield from gram_candidates(strategy_kind, search, cube)
    elif strategy_kind == "" and not search.kernels:
        yield from class_candidates(search)
    else:
        yield from CANDIDATES[strategy_kind](search)


def _preferred(candidates: Sequence[CandidateDesign], search: DesignSearch) -> CandidateDesign:
    """Return the candidate of least predicted error, or of bins that err alike the surest.

    Where nothing is asked, masses and quantiles are one more weight for bins of two levels: of
    those whose noise and expected error are at most `_TWO_LEVEL_COST` above those that typical data
    have with the best of one level, and whose promise is above that of what is taken else by as
    much, and of that itself, the one with the least mean of error and widths.

    Of bins whose errors are within `_NEAR_ERROR` of the least, and expected ones within
    `_NEAR_EXPECTED`, those are taken that promise any database most, where they are all that is
    released. Beside other numbers another promise is read: what a quotient or a product is at a
    point.
    """
    if search.levels and not search.certified and search.questions is None:
        return _preferred_of_levels(candidates, search)
    best = min(candidates, key=lambda candidate: candidate.error)
    beside_others = search.measurement.output_fraction != 1
    if beside_others or search.questions is not None or best.strategy.kind != "binned":
        return best
    near = (
        candidate
        for candidate in candidates
        if candidate.strategy.kind == "binned"
        and candidate.error <= (1 + _NEAR_ERROR) * best.error
        and candidate.expected <= (1 + _NEAR_EXPECTED) * best.expected
    )
    return min(near, key=lambda candidate: candidate.noise + candidate.worst)


def _preferred_of_levels(
    candidates: Sequence[CandidateDesign], search: DesignSearch
) -> CandidateDesign:
    one_level = [candidate for candidate in candidates if not candidate.two_level]
    usual = _preferred(one_level, replace(search, levels=False))
    typical = min(one_level, key=lambda candidate: candidate.expected)
    limits = (1 + _TWO_LEVEL_COST) * np.array([typical.noise, typical.expected, usual.promise])
    two_level = (candidate for candidate in candidates if candidate.two_level)
    near = [bins for bins in two_level if np.less_equal(bins.figures, limits).all()]

    def width(candidate: CandidateDesign) -> float:
        bins = cast("BinnedStrategy", candidate.strategy)
        return mean_width(search.ask(bins, USUAL).widths(candidate.error))

    return min((usual, *near), key=width) if near else usual
