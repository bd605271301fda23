"""Strategies: linear maps of a function that are released; a new one is a file and a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dbern.privacy.families import NoiseFamily
from dbern.reconstruct.axis_maps import AxisMap
from dbern.reconstruct.base import Lattice, LatticeStrategy, Strategy
from dbern.reconstruct.bins import AxisBins, BinnedStrategy
from dbern.reconstruct.gram import GramStrategy, LatticeSpectrum
from dbern.reconstruct.spectral import AxisSpectrum, SpectralStrategy

STRATEGIES: Final[dict[type[AxisMap], Callable[[Lattice, tuple[Any, ...]], Strategy]]] = {
    AxisSpectrum: SpectralStrategy,
    AxisBins: BinnedStrategy,
    LatticeSpectrum: lambda lattice, maps: GramStrategy(lattice, *maps),
}
"""By what is stored of it; where that is nothing, lattice values are released."""

STRATEGY_KINDS: Final = tuple(dict.fromkeys(one.kind for one in STRATEGIES))
"""What is released in place of lattice values."""


def noise_names(family: NoiseFamily) -> dict[str, str]:
    """Names of a family's noise, by kind of released values; "" for lattice values."""
    return family.names(STRATEGY_KINDS)


def strategy_of(lattice: Lattice, maps: Sequence[AxisMap]) -> Strategy:
    """The strategy of a lattice with these maps; without maps its values themselves."""
    return STRATEGIES[type(maps[0])](lattice, tuple(maps)) if maps else LatticeStrategy(lattice)


def map_to_dict(axis: AxisMap) -> dict[str, Any]:
    """The map as JSON values."""
    return {"kind": axis.kind, **axis.to_dict()}


def map_from_dict(content: Mapping[str, Any]) -> AxisMap:
    """Read what `map_to_dict` wrote."""
    found = map_of(content["kind"], content.get("of", ""))
    assert found is not None, "a kind of the registry"  # noqa: S101 - for the types
    return found.from_dict(dict(content))


def map_of(kind: str, of: str) -> type[AxisMap] | None:
    """Type of the stored map of released values of a kind; None for lattice values."""
    return {(one.kind, one.of): one for one in STRATEGIES}.get((kind, of))
