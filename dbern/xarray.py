"""Released coefficients that were opened with xarray, as a function: ``dataset.dbern``.

``import dbern.xarray`` registers the accessor. It needs no more of the store than one component's
group, so it works on a copy of it, a selection from a catalogue, or a store behind any reader. It
knows nothing of the manifest or of how several arrays make a function; for these `dbern.open`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import xarray

from dbern.bernstein.basis import INTERPOLATED, MOST_H, MOST_K, iterate, iterated_matrix
from dbern.bernstein.blocks import Blocks
from dbern.data.domain import Axis, Domain
from dbern.data.times import TimeUnit
from dbern.errors import DbernError, SpecError
from dbern.reconstruct.layouts import Lattice
from dbern.synopsis.arrays import MOST_LOADED
from dbern.synopsis.evaluate import Interpolant, Polynomial
from dbern.synopsis.grids import grid_axes
from dbern.synopsis.labels import labelled
from dbern.synopsis.lazy_polynomial import AnyFunction, LazyPolynomial
from dbern.synopsis.points import Points, Shape, Window, as_points, like, per_axis
from dbern.synopsis.questions.regions import part_of
from dbern.synopsis.store import SHARD_BYTES
from dbern.system import LRUCache
from dbern.types import FloatArray

_COEFFICIENTS = "coefficients"


@xarray.register_dataset_accessor("dbern")  # type: ignore[no-untyped-call]  # has no types
class ReleasedDataset:
    """The function of one released array, by its lattice values alone.

    Parameters
    ----------
    dataset : Dataset
        As ``xarray.open_zarr(store, group="components/<name>", consolidated=False)`` gives it:
        ``coefficients``, decoded by their scale factor, with the lattice as coordinates.

    Raises
    ------
    SpecError
        For a dataset without them, with others than decoded ones of the whole lattice, or
        whose lattice is oblique to the axes.

    Examples
    --------
    >>> x = np.linspace(0.0, 10.0, 3)
    >>> line = xarray.Dataset({"coefficients": ("x", [0.0, 0.5, 1.0])}, {"x": x})
    >>> line.dbern(np.array([2.5, 5.0]), h=1).tolist()
    [0.25, 0.5]
    >>> line.dbern.grid(3, h=1).to_numpy().tolist()
    [0.0, 0.5, 1.0]
    """

    def __init__(self, dataset: xarray.Dataset) -> None:
        self._dataset = dataset

    def __call__(self, points: Points, h: int | Sequence[int] | None = None) -> Any:
        """Return values at points, in data units; NaN outside the domain.

        Parameters
        ----------
        points : array (m, l) in axis order, (m,) where l = 1, or a table by column name
        h : int or one per axis, optional
            Order of the operator, 0 for lines between lattice values; if left out that of the
            release, where its store can be found.

        Returns
        -------
        array (m,)
            A table of pandas or of Arrow is answered in kind; coordinates of xarray that have a
            dimension each give a labelled grid over these.

        Raises
        ------
        SpecError
            For points of the wrong shape, or an order that is not known or below 1.
        """
        array = as_points(points, self.domain)
        return like(points, self._polynomial(h)(array, len(array)), self.domain, ["value"])

    def grid(
        self, shape: Shape, h: int | Sequence[int] | None = None, *, window: Window = None
    ) -> xarray.DataArray:
        """Return values on a regular grid over the domain, or a window, as `Synopsis.grid` does."""
        box = None if window is None else part_of(window, self.domain)
        values = self._polynomial(h).grid(grid_axes(shape, self.domain, window=box))
        return labelled(values, box or self.domain)

    @cached_property
    def domain(self) -> Domain:
        """The axes and their bounds: the ends of the lattice."""
        values = self._dataset.get(_COEFFICIENTS)
        if values is None or any(str(name) not in self._dataset.coords for name in values.dims):
            raise SpecError(
                "the dataset has no released coefficients on a lattice. Open it with group = "
                '"components/<name>", consolidated = False'
            )
        if "scale_factor" in values.attrs:  # decoding takes it away
            raise SpecError(
                "the dataset is not decoded, so its values have no unit. Open it with "
                "mask_and_scale = True"
            )
        components = self._released.get("components", [])
        if "oblique" in values.attrs or any("oblique" in component for component in components):
            raise SpecError(
                "the dataset is of a density of a full covariance, whose lattice is oblique to the "
                "axes. Open its store with dbern.open"
            )
        counts = {str(name): count - 1 for name, count in values.sizes.items()}
        if components and all(_lattice_of(component) != counts for component in components):
            raise SpecError(
                "the dataset is a part of a released lattice, and a function is of the whole. "
                "Evaluate that, then select"
            )
        return Domain(tuple(self._axis(str(name)) for name in values.dims))

    def _axis(self, name: str) -> Axis:
        low, high = self._dataset[name].to_numpy()[[0, -1]]
        axes = self._released.get("domain", {}).get("axes", [])
        stored: Mapping[str, Any] = next((axis for axis in axes if axis["name"] == name), {})
        time = TimeUnit(stored["unit"]) if "unit" in stored else None
        units = self._released.get("units", {}).get(name, "")
        return Axis(name, float(low), float(high), time, units=units)

    @cached_property
    def _released(self) -> dict[str, Any]:
        """Metadata of the store that xarray says the dataset came from; empty where unknown."""
        from dbern.synopsis.opening import open_synopsis

        try:
            return open_synopsis(self._dataset.encoding["source"]).metadata
        except (KeyError, TypeError, DbernError):
            return {}

    @cached_property
    def _lattice(self) -> Lattice:
        return Lattice(tuple(count - 1 for count in self._dataset[_COEFFICIENTS].shape))

    @cached_property
    def _values(self) -> FloatArray:
        return _read_layers(self._dataset, 0, self._lattice.shape[0])

    @cached_property
    def _blocks(self) -> Blocks:
        """Lattice values by shards, as they were written, the last of them cached."""
        cache = LRUCache[FloatArray](SHARD_BYTES, lambda block: block.nbytes)
        lattice = self._lattice
        return _DatasetBlocks(lattice.shape, lattice.slab_layers, self._dataset, cache)

    def _polynomial(self, h: int | Sequence[int] | None) -> AnyFunction:
        order = self._released_order() if h is None else h
        orders = per_axis(order, self.domain.dimensions, INTERPOLATED, MOST_H)
        if orders is None or len({order == INTERPOLATED for order in orders}) > 1:
            raise SpecError(
                f"h = {h}: write an integer from 1 to {MOST_H}, one for each axis, or 0 for a "
                "function that is linear between its lattice values"
            )
        if set(orders) == {INTERPOLATED}:
            return Interpolant(self._values, self.domain)
        if max(self._lattice.k) > MOST_K:
            raise SpecError(
                f"h = {h}: polynomials have degrees up to {MOST_K}, and this function is linear "
                "between its lattice values. Write h = 0"
            )
        if self._lattice.size > MOST_LOADED:
            matrices = [
                iterated_matrix(*axis) for axis in zip(self._lattice.k, orders, strict=True)
            ]
            return LazyPolynomial(self._blocks, matrices, self.domain)
        return Polynomial(iterate(self._values, orders), self.domain)

    def _released_order(self) -> tuple[int, ...]:
        k = list(self._lattice.k)
        orders = {
            tuple(component["h"])
            for component in self._released.get("components", [])
            if component["axes"] == list(self.domain.names) and component.get("k") == k
        }
        if len(orders) != 1:
            raise SpecError(
                "h: the dataset does not say with which order it was released. Write h = 2, or "
                "what the store's root attributes say in components"
            )
        return orders.pop()


def _lattice_of(component: Mapping[str, Any]) -> dict[str, int]:
    return dict(zip(component["axes"], component.get("k", ()), strict=True))


@dataclass(frozen=True)
class _DatasetBlocks(Blocks):
    """Lattice values of a dataset, by shards of a store."""

    dataset: xarray.Dataset
    cache: LRUCache[FloatArray]

    def read(self, index: int) -> FloatArray:
        start, stop = index * self.layers, (index + 1) * self.layers
        return self.cache(index, partial(_read_layers, self.dataset, start, stop))


def _read_layers(dataset: xarray.Dataset, start: int, stop: int) -> FloatArray:
    return np.asarray(dataset[_COEFFICIENTS][start:stop].to_numpy(), dtype=np.float64)
