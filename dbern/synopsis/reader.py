"""``Synopsis``: query a released function; never touches data, ledger or key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dbern.arrays import FloatArray
from dbern.bernstein.basis import iterate
from dbern.bernstein.coordinates import Coordinates, PlainCoordinates, SpectralCoordinates
from dbern.bernstein.kernels import kernel_of
from dbern.bernstein.lattice import Lattice
from dbern.bernstein.spectrum import AxisSpectrum
from dbern.certificate import Certificate, ErrorModel, lower_bound
from dbern.domain import Axis, Domain
from dbern.errors import SpecError
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

if TYPE_CHECKING:
    import xarray

Points: TypeAlias = Any
"""A numpy or dask array (m, l), or (m,) where l = 1, or a table by column name."""

Order: TypeAlias = int | Sequence[int] | str | None
"""Order of the iterated operator: one, one per axis, "auto", or None for the released one."""


def open_synopsis(url: str | Path) -> Synopsis:
    """Open a synopsis for queries; its metadata is checked now, each shard when first read.

    Raises
    ------
    IntegrityError
        Where there is no manifest (not released), or an object is not what the manifest says.
    """
    return Synopsis(Path(url))


class Synopsis:
    """A released function. Call it with points to get values.

    Parameters
    ----------
    path : Path
        The store's folder; use `dbern.open`.
    """

    def __init__(self, path: Path) -> None:
        self._store = ReleasedStore(path)
        self._bernstein: dict[Smoothing, FloatArray] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return (open_synopsis, (self._store.path,))

    def __repr__(self) -> str:
        axes = ", ".join(self.domain.names)
        return f"<Synopsis {self.metadata['name']} over {axes} at {self._store.path}>"

    @property
    def url(self) -> str:
        """Where it is."""
        return str(self._store.path)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """What was released and under which guarantee; FORMAT.md describes every field."""
        return self._store.attributes

    @cached_property
    def domain(self) -> Domain:
        """Axes and bounds, in the order of a point's coordinates."""
        axes = self.metadata["domain"]["axes"]
        return Domain(tuple(Axis(axis["name"], axis["low"], axis["high"]) for axis in axes))

    def __call__(self, points: Points, h: Order = None, *, method: str = "bernstein") -> Any:
        """Evaluate the released function.

        Parameters
        ----------
        points : array (m, l) in axis order, (m,) where l = 1, or a table by column name
            In data units. A dask array gives a lazy dask array.
        h : int, one per axis, or "auto", optional
            Order of the iterated operator; any order is free post-processing. "auto" chooses order
            and rank from the released values and the known noise (`choose`).
        method : "bernstein" or "nearest"
            "nearest" is the paper's piecewise-constant baseline.

        Returns
        -------
        array (m,)
            In data units (a density is per unit of data volume); NaN outside the bounds.

        Raises
        ------
        SpecError
            For points of the wrong shape, or an order below 1.
        """
        if method not in ("bernstein", "nearest"):
            raise SpecError(f'method = "{method}": write method = "bernstein" or "nearest"')
        smoothing = None if method == "nearest" else self._smoothing(h)
        if hasattr(points, "dask") and hasattr(points, "rechunk"):
            return self._lazy(points, smoothing)
        if isinstance(points, np.ndarray | list | tuple | float | int | np.number):
            return self._evaluate(self._floats(points), smoothing)
        return self._evaluate(self._stack(points), smoothing)

    def _floats(self, values: Any) -> FloatArray:
        try:
            return np.asarray(values, dtype=np.float64)
        except (ValueError, TypeError):  # whose text quotes the value
            raise SpecError(
                f"points must be numbers; write an array (m, {self.domain.dimensions}) in the "
                f"order {', '.join(self.domain.names)}"
            ) from None

    def _stack(self, table: Any) -> FloatArray:
        names = self.domain.names
        if not hasattr(table, "__getitem__") or hasattr(table, "to_dask_array"):
            raise SpecError(
                f"points of type {type(table).__name__} cannot be used; write a numpy or dask "
                f"array (m, {len(names)}), or a table with the columns {', '.join(names)}"
            )
        try:
            columns = [table[name] for name in names]
        except (KeyError, IndexError, TypeError):
            raise SpecError(
                f"the table has not every axis; it needs the columns {', '.join(names)}"
            ) from None
        stacked = [self._floats(column) for column in columns]
        if len({column.shape for column in stacked}) > 1 or stacked[0].ndim != 1:
            raise SpecError(f"the columns {', '.join(names)} must be flat and equally long")
        return np.column_stack(stacked)

    def _evaluate(self, points: FloatArray, smoothing: Smoothing | None) -> FloatArray:
        self._check_shape(points.shape)
        points = points.reshape(len(points), self.domain.dimensions)
        values = np.full(len(points), np.nan)
        inside = self.domain.inside(points)
        unit = np.clip(self.domain.to_unit(points[inside]), 0.0, 1.0)
        if smoothing is None:
            nearest = tuple(np.rint(unit * self.lattice.k).astype(np.int64).T)
            values[inside] = self._lattice_values[nearest]
        else:
            values[inside] = evaluate(self._coefficients(smoothing), unit)
        return values

    def _lazy(self, points: Any, smoothing: Smoothing | None) -> Any:
        self._check_shape(points.shape)
        facts: dict[str, Any] = {"dtype": np.float64, "meta": np.empty(0)}
        if points.ndim == 2:
            points, facts["drop_axis"] = points.rechunk({1: -1}), 1
        return points.map_blocks(_block, self, smoothing, **facts)

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        dimensions = self.domain.dimensions
        flat = dimensions == 1 and len(shape) == 1
        if not flat and (len(shape) != 2 or shape[1] != dimensions):
            raise SpecError(
                f"points have shape {shape}; write (m, {dimensions}) in the order "
                f"{', '.join(self.domain.names)}"
            )

    def choose(self) -> Smoothing:
        """Order and rank with the least estimated mean squared error (`h="auto"`)."""
        return self._chosen

    def band(self, beta: float | str = 0.05, h: Order = None) -> float:
        """Half-width of a simultaneous confidence band for the non-private function.

        With probability at least ``1 - beta`` it covers at every point of the domain at once:
        approximation of the worst database, rounding, and the quantile of the noise's public law.
        For ``h="auto"`` the noise part holds over all candidates at once.

        Raises
        ------
        SpecError
            For a beta outside (0, 1).
        """
        return self.bound(beta, h).total

    def bound(self, beta: float | str = 0.05, h: Order = None) -> Certificate:
        """The parts of `band`."""
        try:
            level = Fraction(str(beta))
        except (ValueError, ZeroDivisionError):
            level = Fraction(0)
        if not 0 < level < 1:
            raise SpecError(f"beta = {beta}: write a number between 0 and 1, such as 0.05")
        smoothing = self._smoothing(h)
        coordinates = self._coordinates
        choices = len(smoothings(coordinates, self.metadata["h"])) if isinstance(h, str) else 1
        if isinstance(coordinates, SpectralCoordinates):
            cut = zip(coordinates.spectra, smoothing.ranks, strict=True)
            spectra = tuple(one.cut(rank or one.rank) for one, rank in cut)
            coordinates = SpectralCoordinates(coordinates.lattice, spectra)
        least = self._lower_bound(float(level))
        return self._error_model(coordinates).bound(smoothing.h, level, choices, least)

    def interval(
        self, points: Points, beta: float | str = 0.05, h: Order = None
    ) -> tuple[Any, Any]:
        """Lower and upper ends of the simultaneous band at the points."""
        values, width = self(points, h), self.band(beta, h)
        return values - width, values + width

    def grid(self, shape: Sequence[int] | int, h: Order = None) -> xarray.DataArray:
        """Values on a regular grid over the whole domain, ends included, as a labelled array."""
        import xarray

        axes = self.domain.axes
        counts: list[Any] = list(shape) if isinstance(shape, list | tuple) else [shape] * len(axes)
        whole = all(isinstance(count, int | np.integer) and count >= 2 for count in counts)
        if len(counts) != len(axes) or not whole:
            names = ", ".join(self.domain.names)
            raise SpecError(
                f"grid shape {shape}: write one count of at least 2 for each of {names}"
            )
        unit = [np.linspace(0.0, 1.0, count) for count in counts]
        values = evaluate_grid(self._coefficients(self._smoothing(h)), unit)
        coordinates = {
            axis.name: axis.low + positions * axis.width
            for axis, positions in zip(axes, unit, strict=True)
        }
        return xarray.DataArray(
            values, coords=coordinates, dims=self.domain.names, name=self.metadata["output"]
        )

    def verify(self) -> int:
        """Check every object against the manifest; returns how many there are.

        Raises
        ------
        IntegrityError
            For the first object that is missing, added or changed.
        """
        return self._store.verify()

    @property
    def _component(self) -> str:
        return f"components/{self.metadata['output']}"

    @cached_property
    def _lattice_values(self) -> FloatArray:
        return self._store.values(f"{self._component}/coefficients")

    @cached_property
    def _released(self) -> FloatArray:
        """What carries the noise, in data units: spectral coordinates or lattice values."""
        if isinstance(self._coordinates, SpectralCoordinates):
            return self._store.values(f"{self._component}/spectral/released")
        return self._lattice_values

    def _coefficients(self, smoothing: Smoothing) -> FloatArray:
        """Coefficients of the Bernstein basis; the whole rank is what the lattice holds."""
        if smoothing not in self._bernstein:
            if smoothing.ranks == whole_ranks(self._coordinates):
                values = iterate(self._lattice_values, smoothing.h)
            else:
                values = self._released
                for matrix in evaluation_matrices(self._coordinates, smoothing):
                    values = np.tensordot(values, matrix, axes=(0, 1))
            self._bernstein[smoothing] = np.ascontiguousarray(values)
        return self._bernstein[smoothing]

    @cached_property
    def _coordinates(self) -> Coordinates:
        if not self.metadata["noise"]["kind"].startswith("spectral"):
            return PlainCoordinates(self.lattice)
        spectra = []
        for axis in self.domain.names:
            analysis = self._store.array(f"{self._component}/spectral/analysis_{axis}")
            levels = self._store.array(f"{self._component}/spectral/eigenvalues_{axis}")
            packed = np.asarray(analysis[...]).astype("<i8").tobytes()
            exponent, weighting = int(analysis.attrs["exponent"]), analysis.attrs["weighting"]
            spectra.append(
                AxisSpectrum(packed, exponent, tuple(levels[...].tolist()), float(weighting))
            )
        return SpectralCoordinates(self.lattice, tuple(spectra))

    @cached_property
    def _law(self) -> Noise:
        return noise_law(self.metadata["noise"]["law"])

    @cached_property
    def _chosen(self) -> Smoothing:
        scale = self.metadata["noise"]["scale"]
        gaussian = isinstance(self._law, GaussianNoise)
        deviation = scale if gaussian else math.sqrt(2) * scale
        return select(self._released, deviation, self._coordinates, self.metadata["h"])

    def _lower_bound(self, beta: float) -> float:
        facts = self.metadata
        epsilon, delta = float(Fraction(facts["epsilon"])), float(Fraction(facts["delta"]))
        function, n = facts["sensitivity"]["function"], facts["target"]["n"]
        return lower_bound(function, epsilon, beta, n, delta)

    def _error_model(self, coordinates: Coordinates) -> ErrorModel:
        widths = (axis.width for axis in self.domain.axes)
        target = self.metadata["target"]
        errors = self.metadata["errors"]
        return ErrorModel(
            kernels=tuple(
                kernel_of(target["kernel"], bandwidth / width)
                for bandwidth, width in zip(target["bandwidth"], widths, strict=True)
            ),
            coordinates=coordinates,
            law=self._law,
            lattice_error=errors["lattice"],
            released_error=errors["released"],
            volume=self.domain.volume,
        )

    @cached_property
    def lattice(self) -> Lattice:
        """The lattice of the coefficients."""
        return Lattice(tuple(self.metadata["k"]))

    def _smoothing(self, h: Order) -> Smoothing:
        if isinstance(h, str) and h == "auto":
            return self._chosen
        chosen: Any = self.metadata["h"] if h is None else h
        several = isinstance(chosen, list | tuple | np.ndarray)
        order = tuple(chosen) if several else (chosen,) * self.domain.dimensions
        whole = all(isinstance(each, int | np.integer) and each >= 1 for each in order)
        if len(order) != self.domain.dimensions or not whole:
            raise SpecError(
                f'h = {h}: write an integer of at least 1, one for each axis, or "auto"'
            )
        return Smoothing(order, whole_ranks(self._coordinates))


def _block(points: FloatArray, synopsis: Synopsis, smoothing: Smoothing | None) -> FloatArray:
    return synopsis._evaluate(np.asarray(points, dtype=np.float64), smoothing)
