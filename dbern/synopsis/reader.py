"""``Synopsis``: query a released function; never touches data, ledger or key."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import zarr

from dbern.arrays import FloatArray
from dbern.bernstein.basis import iterate
from dbern.bernstein.lattice import Lattice
from dbern.domain import Axis, Domain
from dbern.errors import IntegrityError, SpecError
from dbern.synopsis.evaluator import evaluate, evaluate_grid
from dbern.synopsis.manifest import MANIFEST, Manifest, digest, list_objects
from dbern.synopsis.writer import ABSENT

if TYPE_CHECKING:
    import xarray

Points: TypeAlias = Any
"""A numpy or dask array (m, l), or (m,) where l = 1, or a table by column name."""


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
        self._path = path
        try:
            text = (path / MANIFEST).read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            raise IntegrityError(
                f"{path}: has no {MANIFEST}, so it is not a released synopsis; run the release "
                "again to finish it, or check the path"
            ) from None
        self._manifest = Manifest.parse(text, str(path))
        self._verified: set[str] = set()
        for name in self._manifest.objects:
            if name.endswith("zarr.json"):
                self._check(name)
        self._root = zarr.open_group(path, mode="r")
        self._bernstein: dict[tuple[int, ...], FloatArray] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return (open_synopsis, (self._path,))

    def __repr__(self) -> str:
        axes = ", ".join(self.domain.names)
        return f"<Synopsis {self.metadata['name']} over {axes} at {self._path}>"

    @property
    def url(self) -> str:
        """Where it is."""
        return str(self._path)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """What was released and under which guarantee; FORMAT.md describes every field."""
        return dict(self._root.attrs.asdict())

    @cached_property
    def domain(self) -> Domain:
        """Axes and bounds, in the order of a point's coordinates."""
        axes = self.metadata["domain"]["axes"]
        return Domain(tuple(Axis(axis["name"], axis["low"], axis["high"]) for axis in axes))

    def __call__(self, points: Points, h: int | Sequence[int] | None = None) -> Any:
        """Evaluate the released function.

        Parameters
        ----------
        points : array (m, l) in axis order, (m,) where l = 1, or a table by column name
            In data units. A dask array gives a lazy dask array.
        h : int or one per axis, optional
            Order of the iterated operator; any order is free post-processing.

        Returns
        -------
        array (m,)
            In data units (a density is per unit of data volume); NaN outside the bounds.

        Raises
        ------
        SpecError
            For points of the wrong shape, or an order below 1.
        """
        order = self._order(h)
        if hasattr(points, "dask"):
            return self._lazy(points, order)
        if isinstance(points, np.ndarray | list | tuple):
            return self._evaluate(np.asarray(points, dtype=np.float64), order)
        return self._evaluate(self._stack(points), order)

    def _stack(self, table: Any) -> FloatArray:
        try:
            columns = [np.asarray(table[name], dtype=np.float64) for name in self.domain.names]
        except KeyError:
            raise SpecError(
                f"the table has not every axis; it needs the columns {', '.join(self.domain.names)}"
            ) from None
        return np.column_stack(columns)

    def _evaluate(self, points: FloatArray, order: tuple[int, ...]) -> FloatArray:
        dimensions = self.domain.dimensions
        if points.ndim == 1 and dimensions == 1:
            points = points[:, None]
        if points.ndim != 2 or points.shape[1] != dimensions:
            raise SpecError(
                f"points have shape {points.shape}; write (m, {dimensions}) in the order "
                f"{', '.join(self.domain.names)}"
            )
        values = np.full(len(points), np.nan)
        inside = self.domain.inside(points)
        unit = np.clip(self.domain.to_unit(points[inside]), 0.0, 1.0)
        values[inside] = evaluate(self._coefficients(order), unit)
        return values

    def _lazy(self, points: Any, order: tuple[int, ...]) -> Any:
        if points.ndim == 2:
            points = points.rechunk({1: -1})
            return points.map_blocks(
                _block, self, order, drop_axis=1, dtype=np.float64, meta=np.empty(0)
            )
        return points.map_blocks(_block, self, order, dtype=np.float64, meta=np.empty(0))

    def grid(
        self, shape: Sequence[int] | int, h: int | Sequence[int] | None = None
    ) -> xarray.DataArray:
        """Values on a regular grid over the whole domain, ends included, as a labelled array."""
        import xarray

        axes = self.domain.axes
        counts = [shape] * len(axes) if isinstance(shape, int) else list(shape)
        if len(counts) != len(axes) or min(counts) < 2:
            names = ", ".join(self.domain.names)
            raise SpecError(
                f"grid shape {shape}: write one count of at least 2 for each of {names}"
            )
        unit = [np.linspace(0.0, 1.0, count) for count in counts]
        values = evaluate_grid(self._coefficients(self._order(h)), unit)
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
        unknown = set(list_objects(self._path)) - set(self._manifest.objects)
        if unknown:
            raise IntegrityError(
                f"{self._path}: {min(unknown)} is not in the manifest; copy the synopsis again"
            )
        self._verified.clear()
        for name in self._manifest.objects:
            self._check(name)
        self._released()
        return len(self._manifest.objects)

    def _check(self, name: str) -> None:
        if name in self._verified:
            return
        try:
            found = digest(self._path / name)
        except OSError:
            raise IntegrityError(
                f"{self._path}: {name} is missing; copy the synopsis again"
            ) from None
        if found != self._manifest.objects[name]:
            raise IntegrityError(
                f"{self._path}: {name} is not what was released; copy the synopsis again"
            )
        self._verified.add(name)

    def _released(self) -> FloatArray:
        """The lattice in data units, every shard checked."""
        path = f"components/{self.metadata['output']}/coefficients"
        array = zarr.open_array(self._path, path=path, mode="r")
        for name in self._manifest.objects:
            if name.startswith(f"{path}/"):
                self._check(name)
        integers = np.asarray(array[...])
        if (integers == ABSENT).any():
            raise IntegrityError(f"{self._path}: coefficients are missing; copy the synopsis again")
        scale_factor: Any = array.attrs["scale_factor"]
        return np.asarray(integers * float(scale_factor))

    def _coefficients(self, order: tuple[int, ...]) -> FloatArray:
        if order not in self._bernstein:
            self._bernstein[order] = iterate(self._released(), order)
        return self._bernstein[order]

    @cached_property
    def lattice(self) -> Lattice:
        """The lattice of the coefficients."""
        return Lattice(tuple(self.metadata["k"]))

    def _order(self, h: int | Sequence[int] | None) -> tuple[int, ...]:
        chosen = self.metadata["h"] if h is None else h
        order = (chosen,) * self.domain.dimensions if isinstance(chosen, int) else tuple(chosen)
        if len(order) != self.domain.dimensions or min(order) < 1:
            raise SpecError(f"h = {h}: write an integer of at least 1, or one for each axis")
        return order


def _block(points: FloatArray, synopsis: Synopsis, order: tuple[int, ...]) -> FloatArray:
    return synopsis._evaluate(np.asarray(points, dtype=np.float64), order)
