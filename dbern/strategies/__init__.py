"""Strategies: a new one is a file, a line here, candidates, names, and what a reader demands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dbern.strategies.approximation import AxisMap
from dbern.strategies.base import Lattice, LatticeStrategy, Strategy
from dbern.strategies.bins import AxisBins, BinnedStrategy
from dbern.strategies.gram import GramStrategy, LatticeSpectrum
from dbern.strategies.spectral import AxisSpectrum, SpectralStrategy

STRATEGIES: Final[dict[type[AxisMap], Callable[[Lattice, tuple[Any, ...]], Strategy]]] = {
    AxisSpectrum: SpectralStrategy,
    AxisBins: BinnedStrategy,
    LatticeSpectrum: lambda lattice, maps: GramStrategy(lattice, *maps),
}
"""By what is stored of it; where that is nothing, lattice values are released."""


def strategy_of(lattice: Lattice, maps: Sequence[AxisMap]) -> Strategy:
    """Return the strategy of a lattice with these maps; without maps its values themselves."""
    return STRATEGIES[type(maps[0])](lattice, tuple(maps)) if maps else LatticeStrategy(lattice)


def map_to_dict(axis: AxisMap) -> dict[str, Any]:
    """Return JSON values."""
    return {"kind": axis.kind, **axis.to_dict()}


def map_from_dict(content: Mapping[str, Any]) -> AxisMap:
    """Return what `map_to_dict` wrote."""
    found = map_of(content["kind"], content.get("of", ""))
    assert found is not None, "a kind of the registry"  # noqa: S101 - for the types
    return found.from_dict(dict(content))


def map_of(kind: str, of: str) -> type[AxisMap] | None:
    """Return what is stored of released values of a kind; None for lattice values."""
    return {(one.kind, one.of): one for one in STRATEGIES}.get((kind, of))
