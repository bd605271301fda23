"""Choices of plans, stored for later ones: a search that was made once is not made again.

An entry holds what the search decided for each measurement, a few numbers, and nothing that a
promise rests on: sensitivity, law, certificate and notes follow from them as after a search.
Whoever can write into the user's cache chooses these numbers, as a spec may, and no more.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from dbern.bernstein.basis import MOST_H, MOST_K
from dbern.counting.measurement import Measurement
from dbern.errors import SpecError
from dbern.planning.choose import Problem
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.families import NoiseFamily
from dbern.strategies.base import Lattice, LatticeStrategy, Strategy
from dbern.strategies.bins import DEGREES, BinnedStrategy, axis_bins
from dbern.strategies.gram import GramStrategy, lattice_spectrum
from dbern.strategies.spectral import SpectralStrategy, axis_spectrum
from dbern.system import keep, kept, version

Way: TypeAlias = tuple[Any, tuple[int, ...], NoiseFamily]
"""Strategy, order and noise of a measurement."""

_Size = Annotated[int, Field(ge=1)]
_MOST_CELLS = 2000  # on an axis: a square table of them is made


class Choice(BaseModel):
    """Numbers that a way is made of again: family of noise, kind of strategy, ranks, degree.

    `family` is an index into the families of noise that the spec allows; `ranks` are those of the
    strategy's maps, of bins how many on an axis.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    family: Annotated[int, Field(ge=0)]
    kind: str
    k: tuple[Annotated[int, Field(ge=1, le=MOST_K)], ...]
    h: tuple[Annotated[int, Field(ge=1, le=MOST_H)], ...]
    ranks: tuple[_Size, ...] = ()
    degree: int = 0

    @classmethod
    def of(cls, way: Way, families: Sequence[NoiseFamily]) -> Choice:
        """Return the numbers of a way with one of these families."""
        strategy, h, family = way
        return cls(
            family=families.index(family),
            kind=strategy.kind,
            k=strategy.lattice.k,
            h=h,
            ranks=tuple(one.rank for one in strategy.maps),
            degree=strategy.maps[0].degree if strategy.kind == "binned" else 0,
        )

    def strategy(self, problem: Problem) -> Strategy | None:
        """Make the strategy anew; None where it is none that the problem's search could find."""
        lattice, asked, weighting = Lattice(self.k), problem.measurement, problem.family.weighting
        maps = (1 if asked.cube else len(self.k)) if self.kind else 0
        shaped = len(self.k) == len(self.h) == asked.domain.dimensions and len(self.ranks) == maps
        given = problem.k in (None, self.k) and problem.h in (None, self.h)
        if not (shaped and given and lattice.size <= problem.largest_lattice):
            return None
        if self.kind == "":
            return LatticeStrategy(lattice)
        if self.kind == "binned":
            return self._bins(problem, lattice)
        if self.kind != "spectral" or not asked.spectral:
            return None  # none of its strategies, or one that is not known here
        if asked.cube is not None:
            whole = lattice_spectrum(asked.cube, lattice, lattice.size, weighting)
            return GramStrategy(lattice, whole.cut(*self.ranks))
        axes = zip(problem.kernels, self.k, self.ranks, strict=True)
        cut = tuple(axis_spectrum(one, k, k + 1, weighting).cut(rank) for one, k, rank in axes)
        return SpectralStrategy(lattice, cut)

    def _bins(self, problem: Problem, lattice: Lattice) -> Strategy | None:
        cells = [rank - self.degree for rank in self.ranks]
        fits = self.degree in DEGREES and 1 <= min(cells) <= max(cells) <= _MOST_CELLS
        fits = fits and math.prod(self.ranks) <= problem.largest_lattice
        if not (fits and problem.measurement.binned):
            return None
        axes = zip(problem.kernels, self.k, cells, self.h, strict=True)
        bins = (axis_bins(kernel, k, count, self.degree, h) for kernel, k, count, h in axes)
        found = BinnedStrategy(lattice, tuple(bins))
        return found if problem.admits(found) else None


_CHOICES = TypeAdapter(dict[str, Choice])
_APART = {
    "release": ("name", "output", "title", "description"),
    "data": ("source", "n", "units"),
    "budget": ("ledger", "dataset"),
}
"""What no choice depends on: where the records are, who pays, and texts."""


def key_of(spec: ReleaseSpec, n: int) -> str:
    """Return a digest of the public facts that the choice for n rows follows from.

    Empty where it follows from code, too, that does not come with this package.
    """
    learner, reference = spec.learner, spec.mechanism.reference
    ours = type(learner).__module__.startswith("dbern.") and reference == "uniform"
    if not ours or learner.identity():
        return ""
    content = spec.model_dump(mode="json")
    facts = {name: {key: value for key, value in section.items() if key not in _APART.get(name, ())}
             for name, section in content.items()}  # fmt: skip
    text = json.dumps([n, facts, version("numpy"), *_code()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _code() -> list[Any]:
    """Tell versions of this package apart, those of a checkout too."""
    root = Path(__file__).parents[1]
    files = [(path, path.stat()) for path in sorted(root.rglob("*.py"))]
    times = [(str(path.relative_to(root)), one.st_size, one.st_mtime_ns) for path, one in files]
    return [version("dbern"), times]


def found_again(
    key: str,
    measurements: Sequence[Measurement],
    families: Sequence[NoiseFamily],
    choose: Callable[[Measurement], Way],
    problem: Callable[..., Problem],
    kinds: Callable[..., list[str]],
) -> dict[str, Way]:
    """Return the way of each measurement: of an earlier plan with the same key, or chosen now.

    The key is `key_of`'s; an empty one looks nothing up and stores nothing.
    """

    def again(one: Measurement, choice: Choice | None) -> Way | None:
        with suppress(IndexError, SpecError):  # it does not fit, or no more
            family = families[choice.family] if choice else families[-1]
            strategy = choice and choice.strategy(problem(one, noise=family))
            if choice and strategy and choice.kind in kinds(family=family, measurement=one):
                return strategy, choice.h, family
        return None

    searched = [one for one in measurements if not (one.entries or one.linear)]
    before: dict[str, Choice] = {}
    with suppress(ValueError):  # nothing is there, or something else
        before = _CHOICES.validate_json(kept(key) if key and searched else b"")
    old = {one.name: again(one, before.get(one.name)) for one in searched}
    ways = {one.name: old.get(one.name) or choose(one) for one in measurements}
    if key and None in old.values():
        new = {one.name: Choice.of(ways[one.name], families) for one in searched}
        if all(again(one, new[one.name]) == ways[one.name] for one in searched):
            keep(key, _CHOICES.dump_json(new))
    return ways
