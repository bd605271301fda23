"""Linear maps of a release, axis by axis: lattice values, spectral coordinates, or bins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from dbern.arrays import FloatArray
from dbern.bernstein.approximation import evaluation_matrix
from dbern.bernstein.basis import iterated_matrix
from dbern.bernstein.bins import AxisBins, bin_matrix
from dbern.bernstein.coordinates import (
    BumpBound,
    Coordinates,
    Entries,
    PlainCoordinates,
    SpectralCoordinates,
)
from dbern.bernstein.gram import GramCoordinates, LatticeSpectrum
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.bernstein.lattice import Box, Lattice, Slab
from dbern.bernstein.spectrum import AxisSpectrum

AxisMap: TypeAlias = AxisSpectrum | AxisBins
"""What is released of one axis, or of the whole lattice, where that is not lattice values."""

Maps: TypeAlias = Sequence[AxisMap | None]


@dataclass(frozen=True)
class BinnedCoordinates:
    """Sums of B-spline weights, bin by bin: see `dbern.bernstein.bins`.

    A record of weight w in [-1, 1] moves the bins of its output by ``w beta(t)``, and products of
    B-splines are nonnegative and sum to one. So ``|w beta(t) - w' beta(t')|_1 <= |w| + |w'| <= 2``
    in one output or in two, whatever the signs; the null record gives half.
    """

    lattice: Lattice
    bins: tuple[AxisBins, ...]

    @cached_property
    def layout(self) -> Box:
        """One integer for each product of B-splines."""
        return Box(tuple(axis.rank for axis in self.bins))

    @cached_property
    def lattice_gain(self) -> float:
        """Root mean square row of the synthesis, which factors over axes."""
        return math.sqrt(math.prod(axis.gain for axis in self.bins))

    def matrix(self, axis: int) -> FloatArray | None:
        """Bins are no map of lattice values."""
        raise NotImplementedError(f"axis {axis} of bins is no map of lattice values")

    def row_sums(self, axis: int) -> FloatArray:
        """Errors of single bins add up: ones."""
        return np.ones(self.bins[axis].rank)

    def bump_bound(
        self, kernels: Sequence[Kernel], *, apart: bool = False, quick: bool = False
    ) -> BumpBound:
        """Two, for any kernel and any number of axes."""
        del kernels, apart, quick
        return BumpBound(2.0, "2 / n: a record's weights in the bins sum to at most one")

    def bump_bound_l2(
        self, kernels: Sequence[Kernel], *, signed: bool = False, several: bool = False
    ) -> BumpBound:
        """``sqrt(2) max_t |beta(t)|_2``, whose entries are nonnegative; of opposite signs, twice.

        The maximum factors over axes.
        """
        del kernels, several
        largest = math.prod(axis.largest_l2 for axis in self.bins)
        factor, text = (2.0, "2") if signed else (math.sqrt(2), "sqrt(2)")
        return BumpBound(OUTWARD * factor * largest, f"{text} max_t |beta(t)|_2 / n")

    def ball_bound(self, kernels: Sequence[Kernel], norm: int) -> BumpBound:
        """Bins are sums over records, not values of a function."""
        raise NotImplementedError("bins hold sums over records, not values of a function")

    def to_lattice(self, values: FloatArray, slab: Slab) -> FloatArray:
        """``(A_1 x .. x A_l) y``, the slab's rows of A_1 only."""
        result = values
        for axis, bins in enumerate(self.bins):
            rows = slice(slab.start, slab.stop) if axis == 0 else slice(None)
            result = np.tensordot(result, bins.synthesis[rows], axes=(0, 1))
        return result


def coordinates_of(lattice: Lattice, maps: Sequence[AxisMap]) -> Coordinates:
    """The coordinates of a lattice with these maps; none: its values themselves."""
    if maps and isinstance(maps[0], LatticeSpectrum):
        return GramCoordinates(lattice, maps[0])
    spectra = tuple(one for one in maps if isinstance(one, AxisSpectrum))
    bins = tuple(one for one in maps if isinstance(one, AxisBins))
    if spectra:
        return SpectralCoordinates(lattice, spectra)
    return BinnedCoordinates(lattice, bins) if bins else PlainCoordinates(lattice)


def maps_of(coordinates: Coordinates | Entries) -> tuple[AxisMap, ...]:
    """The axes' maps, or the one of all; none where lattice values themselves are released."""
    if isinstance(coordinates, GramCoordinates):
        return (coordinates.spectrum,)
    if isinstance(coordinates, SpectralCoordinates):
        return coordinates.spectra
    return coordinates.bins if isinstance(coordinates, BinnedCoordinates) else ()


def axis_maps(coordinates: Coordinates) -> Maps:
    """One for each axis, or one for all; None for lattice values."""
    return maps_of(coordinates) or (None,) * len(coordinates.lattice.k)


def family_of(coordinates: Coordinates | Entries) -> str:
    """What the released values are: "spectral", "binned", or "" where they are what is stored."""
    if isinstance(coordinates, SpectralCoordinates | GramCoordinates):
        return "spectral"
    return "binned" if isinstance(coordinates, BinnedCoordinates) else ""


def synthesis_matrix(k: int, h: int, axis: AxisMap | None) -> FloatArray:
    """What takes an axis's released values to coefficients of the Bernstein basis."""
    matrix = iterated_matrix(k, h)
    return matrix if axis is None else np.asarray(matrix @ axis.synthesis)


def released_bumps(
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


def to_released(coordinates: Coordinates, values: FloatArray, slab: Slab) -> FloatArray:
    """Released values of one slab, from all lattice values."""
    if isinstance(coordinates, GramCoordinates):
        rows = slice(slab.start, slab.stop)
        return np.asarray(coordinates.spectrum.analysis[rows] @ values.ravel())
    result = values
    for axis in range(values.ndim):  # each step moves the first axis to the end
        matrix = coordinates.matrix(axis)
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
