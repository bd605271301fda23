"""One released array: its coefficients under any smoothing, its values and its error bound."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from dbern.arrays import FloatArray
from dbern.bernstein.basis import iterate
from dbern.bernstein.bias import approximation_of
from dbern.bernstein.coordinates import Coordinates, PlainCoordinates, SpectralCoordinates
from dbern.bernstein.lattice import Lattice
from dbern.bernstein.spectrum import AxisSpectrum
from dbern.certificate import Certificate, ErrorModel
from dbern.privacy.calibration import GaussianNoise
from dbern.privacy.mechanism import Noise, noise_law
from dbern.synopsis.evaluator import evaluate, evaluate_grid
from dbern.synopsis.selection import (
    Smoothing,
    evaluation_matrices,
    select,
    smoothings,
    whole_ranks,
)
from dbern.synopsis.store import ReleasedStore


class ReleasedArray:
    """A function on some axes of the unit cube, in data units.

    Parameters
    ----------
    store : ReleasedStore
    name : str
        Of the array's group below ``components/``.
    facts : mapping
        The public facts of its component, from the root attributes.
    """

    def __init__(self, store: ReleasedStore, name: str, facts: Mapping[str, Any]) -> None:
        self.name = name
        self.axes: tuple[str, ...] = tuple(facts["axes"])
        self.lattice = Lattice(tuple(facts["k"]))
        self._store = store
        self._facts = facts
        self._path = f"components/{name}"
        self._bernstein: dict[Smoothing, FloatArray] = {}

    @property
    def order(self) -> tuple[int, ...]:
        """The order it was released with, per axis."""
        return tuple(self._facts["h"])

    def smoothing(self, h: Sequence[int]) -> Smoothing:
        """The whole release at an order."""
        return Smoothing(tuple(h), whole_ranks(self.coordinates))

    @cached_property
    def chosen(self) -> Smoothing:
        """Order and rank with the least estimated mean squared error."""
        scale = self._facts["noise"]["scale"]
        deviation = scale if isinstance(self.law, GaussianNoise) else math.sqrt(2) * scale
        return select(self._released, deviation, self.coordinates, self.order)

    def values(self, unit: FloatArray, smoothing: Smoothing | None) -> FloatArray:
        """Values at points (m, l) of the unit cube; without a smoothing, of the nearest node."""
        if smoothing is None:
            nearest = tuple(np.rint(unit * self.lattice.k).astype(np.int64).T)
            return np.asarray(self._lattice_values[nearest])
        return evaluate(self._coefficients(smoothing), unit)

    def on_grid(self, positions: Sequence[FloatArray], smoothing: Smoothing) -> FloatArray:
        """Values on a product grid of positions in the unit cube."""
        return evaluate_grid(self._coefficients(smoothing), positions)

    def bound(
        self, smoothing: Smoothing, beta: Fraction, at_once: int, *, selected: bool
    ) -> Certificate:
        """Bound on its error; `selected`: the smoothing was chosen by looking at the values."""
        coordinates, errors = self.coordinates, self._facts["errors"]
        if selected:
            at_once *= len(smoothings(coordinates, self.order))
        if isinstance(coordinates, SpectralCoordinates):
            cut = zip(coordinates.spectra, smoothing.ranks, strict=True)
            spectra = tuple(one.cut(rank or one.rank) for one, rank in cut)
            coordinates = SpectralCoordinates(coordinates.lattice, spectra)
        model = ErrorModel(
            approximation=approximation_of(self._facts["approximation"]),
            coordinates=coordinates,
            law=self.law,
            lattice_error=errors["lattice"],
            released_error=errors["released"],
            unit=self._facts["value_unit"],
        )
        return model.bound(smoothing.h, beta, at_once)

    @cached_property
    def law(self) -> Noise:
        """The exact integer law of its noise."""
        return noise_law(self._facts["noise"]["law"])

    @cached_property
    def coordinates(self) -> Coordinates:
        """What was released of the lattice values."""
        if not self._facts["noise"]["kind"].startswith("spectral"):
            return PlainCoordinates(self.lattice)
        spectra = []
        for axis in self.axes:
            analysis = self._store.array(f"{self._path}/spectral/analysis_{axis}")
            levels = self._store.array(f"{self._path}/spectral/eigenvalues_{axis}")
            packed = np.asarray(analysis[...]).astype("<i8").tobytes()
            exponent, weighting = int(analysis.attrs["exponent"]), analysis.attrs["weighting"]
            spectra.append(
                AxisSpectrum(packed, exponent, tuple(levels[...].tolist()), float(weighting))
            )
        return SpectralCoordinates(self.lattice, tuple(spectra))

    @cached_property
    def _lattice_values(self) -> FloatArray:
        return self._store.values(f"{self._path}/coefficients")

    @cached_property
    def _released(self) -> FloatArray:
        """What carries the noise, in data units: spectral coordinates or lattice values."""
        if isinstance(self.coordinates, SpectralCoordinates):
            return self._store.values(f"{self._path}/spectral/released")
        return self._lattice_values

    def _coefficients(self, smoothing: Smoothing) -> FloatArray:
        """Coefficients of the Bernstein basis; the whole rank is what the lattice holds."""
        if smoothing not in self._bernstein:
            if smoothing.ranks == whole_ranks(self.coordinates):
                values = iterate(self._lattice_values, smoothing.h)
            else:
                values = self._released
                for matrix in evaluation_matrices(self.coordinates, smoothing):
                    values = np.tensordot(values, matrix, axes=(0, 1))
            self._bernstein[smoothing] = np.ascontiguousarray(values)
        return self._bernstein[smoothing]
