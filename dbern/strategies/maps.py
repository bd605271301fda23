"""Linear maps of a release, axis by axis: lattice values, spectral coordinates, or bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from dbern.bernstein.basis import iterated_matrix
from dbern.bernstein.kernels import Kernel
from dbern.strategies.approximation import evaluation_matrix
from dbern.strategies.base import Entries, Lattice, Slab, Strategy
from dbern.strategies.bins import AxisBins, BinnedStrategy, bin_matrix
from dbern.strategies.gram import GramStrategy, LatticeSpectrum
from dbern.strategies.lattice import LatticeStrategy
from dbern.strategies.spectral import AxisSpectrum, SpectralStrategy
from dbern.types import FloatArray

AxisMap: TypeAlias = AxisSpectrum | AxisBins
"""What is released of one axis, or of the whole lattice, where that is not lattice values."""

Maps: TypeAlias = Sequence[AxisMap | None]


def coordinates_of(lattice: Lattice, maps: Sequence[AxisMap]) -> Strategy:
    """The coordinates of a lattice with these maps; none: its values themselves."""
    if maps and isinstance(maps[0], LatticeSpectrum):
        return GramStrategy(lattice, maps[0])
    spectra = tuple(one for one in maps if isinstance(one, AxisSpectrum))
    bins = tuple(one for one in maps if isinstance(one, AxisBins))
    if spectra:
        return SpectralStrategy(lattice, spectra)
    return BinnedStrategy(lattice, bins) if bins else LatticeStrategy(lattice)


def maps_of(strategy: Strategy | Entries) -> tuple[AxisMap, ...]:
    """The axes' maps, or the one of all; none where lattice values themselves are released."""
    if isinstance(strategy, GramStrategy):
        return (strategy.spectrum,)
    if isinstance(strategy, SpectralStrategy):
        return strategy.spectra
    return strategy.bins if isinstance(strategy, BinnedStrategy) else ()


def axis_maps(strategy: Strategy) -> Maps:
    """One for each axis, or one for all; None for lattice values."""
    return maps_of(strategy) or (None,) * len(strategy.lattice.k)


def family_of(strategy: Strategy | Entries) -> str:
    """What the released values are: "spectral", "binned", or "" where they are what is stored."""
    if isinstance(strategy, SpectralStrategy | GramStrategy):
        return "spectral"
    return "binned" if isinstance(strategy, BinnedStrategy) else ""


def synthesis_matrix(k: int, h: int, axis: AxisMap | None) -> FloatArray:
    """What takes an axis's released values to coefficients of the Bernstein basis."""
    matrix = iterated_matrix(k, h)
    return matrix if axis is None else np.asarray(matrix @ axis.synthesis)


def released_translates(
    kernel: Kernel, k: int, h: int, axis: AxisMap | None, t: FloatArray
) -> FloatArray:
    """Bernstein coefficients (k + 1, m) of what a noiseless release makes of bumps at t (m,)."""
    if isinstance(axis, AxisBins):
        return synthesis_matrix(k, h, axis) @ bin_matrix(t, axis.cells, axis.degree).T
    return evaluation_matrix(k, h, axis) @ kernel(np.arange(k + 1)[:, None] / k - t)


def map_to_dict(axis: AxisMap) -> dict[str, Any]:
    """JSON values."""
    kind = "spectral" if isinstance(axis, AxisSpectrum) else "binned"
    return {"kind": kind, **axis.to_dict()}


def map_from_dict(content: Mapping[str, Any]) -> AxisMap:
    """What `map_to_dict` wrote."""
    facts = {key: value for key, value in content.items() if key != "kind"}
    if content["kind"] == "binned":
        return AxisBins.from_dict(facts)
    return (LatticeSpectrum if "of" in facts else AxisSpectrum).from_dict(facts)


def to_released(strategy: Strategy, values: FloatArray, slab: Slab) -> FloatArray:
    """Released values of one slab, from all lattice values."""
    if isinstance(strategy, GramStrategy):
        rows = slice(slab.start, slab.stop)
        return np.asarray(strategy.spectrum.analysis[rows] @ values.ravel())
    result = values
    for axis in range(values.ndim):  # each step moves the first axis to the end
        matrix = strategy.matrix(axis)
        if axis == 0:
            rows = slice(slab.start, slab.stop)
            result = result[rows] if matrix is None else np.tensordot(matrix[rows], result, (1, 0))
            result = np.moveaxis(result, 0, -1)
        else:
            result = (
                np.moveaxis(result, 0, -1)
                if matrix is None
                else np.tensordot(result, matrix, axes=(0, 1))
            )
    return np.ascontiguousarray(result)
