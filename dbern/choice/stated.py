"""Candidates for functions of which no kernel is known, but a class that they are in."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dbern.bernstein.coordinates import PlainCoordinates
from dbern.bernstein.lattice import Lattice
from dbern.choice.problem import Candidate, Problem

_STATED_K = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)  # where no kernel says how fine
_STATED_ORDERS = (1, 2, 4, 8)


def stated_candidates(problem: Problem) -> Iterator[Candidate]:
    """Lattice values of a function of which a class is known: its worst member is the typical."""
    axes, best = problem.component.domain.dimensions, math.inf
    for k in [problem.k] if problem.k is not None else [(k,) * axes for k in _STATED_K]:
        coordinates = PlainCoordinates(Lattice(k))
        if best < math.inf and coordinates.layout.size > problem.largest_lattice:
            break
        found = []
        for h in problem.orders(_STATED_ORDERS):
            error = problem.component.approximation.error(k, h, (None,) * axes)
            noise = problem.noise(coordinates, h)
            found.append(Candidate(coordinates, h, noise, error, error, problem.certified))
        yield from found
        if min(candidate.noise for candidate in found) > best:
            break  # noise grows with k
        best = min(best, *(candidate.error for candidate in found))
