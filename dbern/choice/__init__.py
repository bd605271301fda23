"""What "auto" means: k, h, noise and rank with the smallest predicted error, no record read.

The predicted error is the mean sup of the noise with the approximation error, either of the worst
database ("certified") or of a typical one. Typical is a sample of the public reference density
that the spec names; without one, 64 equal clusters narrower than the kernel at uniformly random
positions, and a smooth density that varies by its size over a fifth of an axis: rough enough that
real structure is not smoothed away, far from the worst case, where all records are one point.
"""

from __future__ import annotations

from collections.abc import Iterator

from dbern.choice.gram import gram_candidates
from dbern.choice.prediction import Reference
from dbern.choice.problem import Candidate, Problem
from dbern.choice.products import CANDIDATES, require_positive_definite
from dbern.choice.stated import stated_candidates
from dbern.components.capabilities import cube_of

__all__ = ["Candidate", "Problem", "Reference", "candidates", "require_positive_definite"]


def candidates(family: str, problem: Problem) -> Iterator[Candidate]:
    """Releases of lattice values (""), of spectral coordinates or of bins, for any component."""
    cube = cube_of(problem.component)
    if cube is not None:
        yield from gram_candidates(family, problem, cube)
    elif family == "" and not problem.kernels:
        yield from stated_candidates(problem)
    else:
        yield from CANDIDATES[family](problem)
