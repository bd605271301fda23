"""A choice as a few numbers, which a later process may find again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dbern.bernstein.basis import MOST_H, MOST_K
from dbern.planning.choose import (
    MOST_CELLS,
    Grid,
    Problem,
    bins_of,
    gram_spectrum,
    require_positive_definite,
    spectra,
)
from dbern.privacy.families import NoiseFamily
from dbern.strategies.base import Lattice, LatticeStrategy, Strategy
from dbern.strategies.bins import DEGREES
from dbern.strategies.gram import GramStrategy
from dbern.strategies.spectral import SpectralStrategy


class Choice(BaseModel):
    """What was chosen for a measurement; nothing that a promise rests on.

    Attributes
    ----------
    family : int
        Which of the families of noise that the spec allows.
    kind : str
        Of the strategy.
    ranks : tuple of int
        Of its maps; of bins, how many on an axis.
    degree : int
        Of bins.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    family: Annotated[int, Field(ge=0)]
    kind: Literal["", "spectral", "binned"]
    k: tuple[Annotated[int, Field(ge=1, le=MOST_K)], ...]
    h: tuple[Annotated[int, Field(ge=1, le=MOST_H)], ...]
    ranks: tuple[Annotated[int, Field(ge=1)], ...] = ()
    degree: int = 0

    @classmethod
    def of(
        cls,
        strategy: Any,
        h: tuple[int, ...],
        family: NoiseFamily,
        families: Sequence[NoiseFamily],
    ) -> Choice:
        """Return that of a strategy, an order and one of these families."""
        maps, kind = strategy.maps, strategy.kind
        return cls(
            family=families.index(family),
            kind=kind,
            k=strategy.lattice.k,
            h=h,
            ranks=tuple(one.rank for one in maps),
            degree=maps[0].degree if kind == "binned" else 0,
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
        if self.kind == "spectral" and asked.cube is not None:
            whole = gram_spectrum(asked.cube, lattice, weighting)
            return GramStrategy(lattice, whole.cut(*self.ranks))
        if self.kind == "spectral":
            require_positive_definite(problem.kernels)
            full = zip(spectra(problem.kernels, self.k, weighting), self.ranks, strict=True)
            cut = tuple(one.cut(rank) for one, rank in full)
            return SpectralStrategy(lattice, cut) if asked.spectral else None
        grid = Grid(self.degree, 0.0, tuple(rank - self.degree for rank in self.ranks))
        if not asked.binned or grid.size > problem.largest_lattice:
            return None
        if self.degree not in DEGREES or not 1 <= min(grid.cells) <= max(grid.cells) <= MOST_CELLS:
            return None
        bins = bins_of(problem, lattice, self.h, grid)
        return bins if problem.admits(bins) else None
