"""``Stream``: any window of a stream's nights as a synopsis, from its published nodes.

Nodes are exact sums with noise of one law, so a window is their sum by the weights of least
variance (`dbern.nights.windows`), with the noise of that sum (`dbern.privacy.sums`). It is
made when it is asked for and stored nowhere; everything that a synopsis answers it answers.

What the nodes of a stream in a folder have in common is in ``stream.json``: it is public, and is
written again whenever a night closes; each node says the same of itself.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from dbern.ask.points import read_beta
from dbern.bernstein.blocks import Blocks, blocks_of
from dbern.data.storage import Location, location_at, storage_errors
from dbern.errors import IntegrityError, SpecError
from dbern.model.component import Component, LatticeComponent, StoredCertificate
from dbern.model.strict import StrictModel, Text, or_value_error, parse_object
from dbern.nights.horizon import Horizon, Node, StreamNode, day_of
from dbern.nights.series import WINDOW_NIGHTS, Series, WindowLength, interval_of
from dbern.nights.windows import WEIGHT_BITS, window_weights
from dbern.privacy.budget import Budget
from dbern.privacy.families import errors_of
from dbern.privacy.sums import SumNoise
from dbern.reconstruct.base import Slab
from dbern.synopsis.bands import BandRequest, ConfidenceBands
from dbern.synopsis.function import ReleasedFunction
from dbern.synopsis.metadata import ReleaseMetadata, array_groups
from dbern.synopsis.reader import Synopsis
from dbern.synopsis.released import stored_strategy
from dbern.synopsis.store import ReleasedStore
from dbern.synopsis.stored_arrays import COEFFICIENTS
from dbern.system import LRUCache, counted
from dbern.types import FloatArray

INDEX = "stream.json"
_CACHED_BYTES = 1 << 26  # of the nodes' arrays


class StreamIndex(StrictModel):
    """The horizon of a stream, and its abandoned nights, by their numbers."""

    format: Literal["dbern-stream"]
    format_version: Literal[1]
    dataset: Text
    name: Text
    first: date = Field(strict=False)
    horizon: int
    levels: list[int]
    abandoned: list[int]

    @classmethod
    def of(cls, dataset: str, name: str, horizon: Horizon, abandoned: Iterable[int]) -> Self:
        """Return the index of a stream."""
        return cls.ready()(
            format="dbern-stream",
            format_version=1,
            dataset=dataset,
            name=name,
            first=horizon.first,
            horizon=horizon.count,
            levels=list(horizon.levels),
            abandoned=sorted(abandoned),
        )

    @classmethod
    def read(cls, location: Location) -> Self | None:
        """Return the index at a location, or None where there is none."""
        with storage_errors(location, "read"):
            try:
                text = location.read(INDEX)
            except (FileNotFoundError, NotADirectoryError):
                return None
        return parse_object(cls, text, str(location), INDEX)

    def write(self, url: str | Path) -> None:
        """Write the index, unless it is there already."""
        location = location_at(url)
        if self.read(location) != self:
            with storage_errors(location):
                location.replace(INDEX, json.dumps(self.to_json(), indent=2).encode() + b"\n")

    @model_validator(mode="after")
    def _require_horizon(self) -> Self:
        or_value_error(self.to_horizon)
        return self

    def to_horizon(self) -> Horizon:
        """Return the horizon."""
        return Horizon(self.first, self.horizon, tuple(self.levels))


def open_stream(url: str | Path) -> Stream:
    """Open the stream in a folder or at ``s3://bucket/name``; each node when it is needed.

    Raises
    ------
    SpecError, IntegrityError, ReleaseError
        Where there is no stream; where its index is not what it says; where it cannot be read.
    """
    return Stream(url)


class Stream:
    """A stream of nightly releases; ask it for a window, which is a `Synopsis`.

    Parameters
    ----------
    url : str or path
        The stream's ``release.output``.
    """

    def __init__(self, url: str | Path) -> None:
        self.location = location_at(url)
        index = StreamIndex.read(self.location)
        if index is None:
            raise SpecError(
                f"{self.location}: is no stream (it has no {INDEX}). Write the release.output of "
                "its spec"
            )
        self.index = index
        self._stores: dict[Node, ReleasedStore] = {}
        self._arrays = LRUCache[FloatArray](_CACHED_BYTES, lambda array: array.nbytes)

    def __repr__(self) -> str:
        nights = f"{len(self._nights)} of {self.horizon.count} nights"
        return f"<Stream {self.index.name}, {nights} at {self.location}>"

    @cached_property
    def horizon(self) -> Horizon:
        """Nights of the stream, and the blocks that are released of them."""
        return self.index.to_horizon()

    @cached_property
    def _published(self) -> frozenset[Node]:
        nodes = {self._whole(node).store_name: node for node in self.horizon.nodes()}
        with storage_errors(self.location, "read"):
            names = (Path(name).name for name in self.location.synopses())
        return frozenset(nodes[name] for name in names if name in nodes)

    @cached_property
    def _nights(self) -> frozenset[int]:
        return frozenset(node.start for node in self._published if node.level == 0)

    def _whole(self, node: Node) -> StreamNode:
        """Return a node as it is where no night is left out."""
        return StreamNode(self.index.name, self.horizon, node)

    def at(self, day: date | str) -> Synopsis:
        """Return the total of all nights up to a day.

        Raises
        ------
        SpecError
            For a day outside the horizon, or nights that are not published.
        """
        return self._window(range(self._night(day) + 1))

    def between(self, first: date | str, last: date | str) -> Synopsis:
        """Return the total of the nights from a day to another, both included; as `at` raises."""
        return self._window(range(self._night(first), self._night(last) + 1))

    def latest(self) -> Synopsis:
        """Return the total of all nights up to the last before which none is missing."""
        if self._closed_nights == 0:
            raise SpecError(f"{self.location}: {self.horizon.first} is not published yet")
        return self._window(range(self._closed_nights))

    def series(self, what: Any, every: WindowLength = "week", beta: float | str = 0.05) -> Series:
        """Return a number of each day, week or month, with a band over all of them at once.

        Parameters
        ----------
        what : mapping or point
            A box ``{"x": (low, high)}``: the share of each window's rows in it; or a point, as
            ``{"x": 3.0}`` or its coordinates: the function there.
        every : "day", "week" or "month"
            Windows of 1, 7 or 30 nights, from the first night on; only whole ones.

        Raises
        ------
        SpecError
            Where no whole window is published.
        """
        if every not in WINDOW_NIGHTS:
            raise SpecError(f'every = "{every}": write "day", "week" or "month"')
        length, probability = WINDOW_NIGHTS[every], read_beta(beta)
        windows = [
            range(start, start + length)
            for start in range(0, self._closed_nights - length + 1, length)
            if not set(range(start, start + length)) <= set(self.index.abandoned)
        ]
        if not windows:
            raise SpecError(f"{self.location}: no whole {every} is published yet")
        beta_i = probability / len(windows)
        numbers = [interval_of(self._window(window), what, beta_i) for window in windows]
        values, low, high = np.array([ends for _, *ends in numbers]).T
        days = tuple(self.horizon.day(window[-1]) for window in windows)
        return Series(days, values, low, high, numbers[0][0], float(probability))

    @property
    def _closed_nights(self) -> int:
        """Nights before the first one that is neither published nor abandoned."""
        closed = self._nights.union(self.index.abandoned)
        return next(night for night in range(self.horizon.count + 1) if night not in closed)

    def _night(self, day: date | str) -> int:
        return self.horizon.night(day if isinstance(day, date) else day_of(day))

    def _window(self, window: range) -> Synopsis:
        if not window:
            raise SpecError("between: the first day is after the last. Write them in order")
        filled = [night for night in window if night not in self.index.abandoned]
        missing = [str(self.horizon.day(night)) for night in filled if night not in self._nights]
        if missing or not filled:
            raise SpecError(
                f"{self.location}: {', '.join(missing[:5]) or 'no night'} of the window is not "
                "published. Release or abandon what is missing, or ask for other days"
            )
        weights = window_weights(self._related(window), window)
        return WindowSynopsis(WindowStore(self, window, weights, len(filled)))

    def _related(self, window: range) -> dict[Node, frozenset[int]]:
        """Published nodes that share a block with the window, with the nights that they have."""
        largest = self.horizon.levels[-1]
        blocks = {night // largest for night in window}
        return {
            node: frozenset(self.node(node).released.stream.restore().counted_nights)
            if node.level
            else frozenset(node.nights)
            for node in self._published
            if node.start // largest in blocks
        }

    def node(self, node: Node) -> ReleasedStore:
        """Return the store of a node, opened once; it has to be of this stream's charge."""
        if node not in self._stores:
            store = self._opened(node)
            if any(_common(end) != _common(store) for end in self._ends):
                raise IntegrityError(
                    f"{store.location}: was paid by another charge, or counted otherwise, than "
                    f"others of {self.location}. Put the nodes of one stream alone there"
                )
            self._stores[node] = store
        return self._stores[node]

    @cached_property
    def _ends(self) -> list[ReleasedStore]:
        """Two nodes with which others are compared: of another charge, they differ from one."""
        return [self._opened(end(self._published)) for end in (min, max)]

    def _opened(self, node: Node) -> ReleasedStore:
        whole = self._whole(node)
        store = ReleasedStore(location_at(f"{self.location}/{whole.store_name}"))
        stated = store.released.stream
        if stated is None or replace(stated.restore(), without=frozenset()) != whole:
            raise IntegrityError(f"{store.location}: is not the node of {self.location}")
        return store

    def values(self, node: Node, path: str) -> FloatArray:
        """Return an array of a node, in data units."""
        return self._arrays((node, path), lambda: self.node(node).values(path))


def _common(node: ReleasedStore) -> tuple[object, ...]:
    """Return what the nodes of a stream have alike: the charge that paid, and their sums."""
    stream = node.released.stream
    return stream and stream.release_id, node.released.components


class WindowSynopsis(Synopsis):
    """The synopsis of a window, made by `Stream`."""

    def __init__(self, store: WindowStore) -> None:
        self._store = store

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickle, (self.url, self.metadata["release_id"]))


def _unpickle(url: str, release_id: str) -> Synopsis:
    window = window_at(url)
    if window is None:
        raise SpecError(f"{url}: there is no such stream. Check the path")
    window._store.require(release_id)
    return window


def window_at(url: str | Path) -> Synopsis | None:
    """Return the window that ``STREAM@first..last`` names, or of a stream the latest total.

    None where there is no stream.
    """
    if StreamIndex.read(location_at(url)) is not None:
        return Stream(url).latest()
    text, _, days = str(url).rpartition("@")
    if not text or StreamIndex.read(location_at(text)) is None:
        return None
    stream, (first, dots, last) = Stream(text), days.partition("..")
    if dots and not (first and last):
        raise SpecError(
            f"{url}: the window has one day. Write both days of it, as "
            f"{text}@2026-01-01..2026-01-07, or one alone for the total up to it"
        )
    return stream.between(first, last) if dots else stream.at(first)


class WindowStore:
    """Store of a window: numbers of its nodes by their weights, and the facts of any node."""

    def __init__(
        self, stream: Stream, window: range, weights: Mapping[Node, int], nights: int
    ) -> None:
        self.stream, self.nights = stream, nights  # that are counted: some may be abandoned
        scale = math.ldexp(1.0, -WEIGHT_BITS) / nights
        self.weights = {node: weight * scale for node, weight in weights.items()}
        self._days = f"{stream.horizon.day(window[0])}..{stream.horizon.day(window[-1])}"
        self.location = f"{stream.location}@{self._days}"
        self._empty = len(window) - nights
        self._first = stream.node(min(weights))

    @cached_property
    def released(self) -> ReleaseMetadata:
        """Attributes: those of a node, with the noise of the sum, over the rows of its nights."""
        node = self._first.released
        normalizer = (node.target.normalizer or 1) * self.nights
        components = [self._component(component) for component in node.components]
        changes = {
            "release_id": self.release_id,
            "name": f"{self.stream.index.name}.{self._days}",
            "target": node.target.model_copy(update={"normalizer": normalizer}),
            "components": components,
        }
        if self._empty:
            changes["description"] = f"without {counted(self._empty, 'night')}, abandoned"
        stated = node.model_fields_set - {"expected_error", "stream"}
        return ReleaseMetadata.ready().model_construct(
            **{name: getattr(node, name) for name in stated} | changes
        )

    def _component(self, component: Component) -> Component:
        weights = [*self.weights.values()]
        law = SumNoise.of(component.noise.law, weights)
        scale = errors_of(law).scale * component.noise.granularity
        errors, sensitivity = component.errors, component.sensitivity
        # A simulated draw is of a continuous law: within a granule of the discrete one.
        single = errors.released + math.ldexp(1.0, component.noise.law.granularity_exponent)
        released = math.fsum(map(abs, weights)) * single
        moves = {
            name: moved / self.nights
            for name in ("function", "l1", "l2")
            if (moved := getattr(sensitivity, name)) is not None
        }
        return component.model_copy(
            update={
                "noise": component.noise.model_copy(update={"law": law, "scale": scale}),
                "sensitivity": sensitivity.model_copy(update=moves),
                "errors": errors.model_copy(update={"released": released}),
            }
        )

    @cached_property
    def release_id(self) -> str:
        """Digest of the nodes and their weights."""
        parts = [
            f"{self.stream.node(n).released.release_id} {w!r}" for n, w in self.weights.items()
        ]
        return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()[:32]

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Attributes as JSON, with the certificate of the window's noise."""
        released, function = self.released, ReleasedFunction(self)
        bands = ConfidenceBands(function)
        request = BandRequest(Fraction(str(released.certificate.beta)), about="any-database")
        certificates = {
            array.name: StoredCertificate.of(band.certificate)
            for array, band in zip(function.arrays, bands.of_arrays(request), strict=True)
        }
        components = [
            component.model_copy(update={"certificate": certificates[component.arrays[0]]})
            for component in released.components
        ]
        whole = StoredCertificate.of(bands.certificate(request))
        changes = {"components": components, "certificate": whole}
        return released.model_copy(update=changes).to_json()

    @property
    def guarantee(self) -> Budget:
        """Guarantee of the stream: of all its windows together."""
        return self._first.guarantee

    def values(self, path: str) -> FloatArray:
        """Return the weighted sum of the nodes' arrays; lattice values are derived from it."""
        folder, _, name = path.rpartition("/")
        component = dict(array_groups(self.released)).get(folder)
        if name == COEFFICIENTS and isinstance(component, LatticeComponent):
            strategy = stored_strategy(self, folder, component)
            if strategy.kind:
                released = self._sum(f"{folder}/{strategy.kind}/released")
                return strategy.reconstruct(released, Slab(0, 0, component.lattice.shape[0]))
        return self._sum(path)

    def _sum(self, path: str) -> FloatArray:
        total = np.zeros(())
        for node, weight in self.weights.items():
            total = total + weight * self.stream.values(node, path)
        return total

    def array(self, path: str) -> tuple[Any, dict[str, Any]]:
        """Return a small array that all nodes have alike, such as a map's, and its attributes."""
        return self._first.array(path)

    def array_attributes(self, path: str) -> Mapping[str, Any]:
        """Return the attributes of an array; no noise is silenced in a sum."""
        attributes = self._first.array_attributes(path)
        return {key: attributes[key] for key in attributes if not key.startswith("silenced")}

    def blocks(self, path: str) -> Blocks:
        """Return the same as one block."""
        return blocks_of(self.values(path))

    def require(self, release_id: str) -> None:
        """Refuse another window than the given one: a node may have come since."""
        if self.release_id != release_id:
            raise IntegrityError(
                f"{self.location}: has other nodes than were opened. Open it again"
            )

    def verify(self) -> int:
        """Check every node of the window."""
        return sum(self.stream.node(node).verify() for node in self.weights)
