"""From released integers back to a function: strategies, each a public linear map.

A strategy says what is released in place of a function's lattice values. It never meets a record. A
new one is a file and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dbern.privacy.families import NoiseFamily, families_with
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
"""Strategies by the map that is stored; without one, lattice values are released."""

STRATEGY_KINDS: Final = tuple(dict.fromkeys(axis_map.kind for axis_map in STRATEGIES))
"""Kinds of values that are released in place of lattice values."""


def noise_names(family: NoiseFamily) -> dict[str, str]:
    """Names of a family's noise, by kind of released values; "" for lattice values."""
    return family.names(STRATEGY_KINDS)


def noise_families(noise: str) -> tuple[NoiseFamily, ...]:
    """Return the families whose noise has a name, ours or an installed one; none for "auto"."""
    return families_with(noise, STRATEGY_KINDS)


def strategy_of(lattice: Lattice, maps: Sequence[AxisMap]) -> Strategy:
    """The strategy of a lattice with these maps; without maps its values themselves."""
    return STRATEGIES[type(maps[0])](lattice, tuple(maps)) if maps else LatticeStrategy(lattice)


def map_to_dict(axis: AxisMap) -> dict[str, Any]:
    """The map as JSON values."""
    return {"kind": axis.kind, **axis.to_dict()}


def map_from_dict(content: Mapping[str, Any]) -> AxisMap:
    """Read what `map_to_dict` wrote."""
    axis_map = map_of(content["kind"], content.get("of", ""))
    assert axis_map is not None, "a kind of the registry"  # noqa: S101 - for the types
    return axis_map.from_dict(dict(content))


def map_of(kind: str, of: str) -> type[AxisMap] | None:
    """Type of the stored map of released values of a kind; None for lattice values."""
    return {(axis_map.kind, axis_map.of): axis_map for axis_map in STRATEGIES}.get((kind, of))
