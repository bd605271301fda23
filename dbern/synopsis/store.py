"""The objects of a released store, each checked against the manifest before it is used."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from dbern.arrays import FloatArray
from dbern.errors import IntegrityError, ReleaseError
from dbern.privacy.budget import Budget
from dbern.privacy.random_privacy import RandomPrivacy
from dbern.synopsis.kept import Kept
from dbern.synopsis.manifest import MANIFEST, Manifest, digest, list_objects
from dbern.synopsis.writer import ABSENT

SHARD_BYTES = 1 << 28
"""Most bytes of shards that are kept after they were read."""


class ReleasedStore:
    """A store that has a manifest; its metadata is checked at once, arrays when first read.

    Parameters
    ----------
    path : Path
        The store's folder.

    Raises
    ------
    IntegrityError
        Where there is no manifest, or an object is not what the manifest says.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            text = (path / MANIFEST).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise _not_a_synopsis(path) from None
        self._manifest = Manifest.parse(text, str(path))
        self._verified: set[str] = set()
        self._shards = Kept[FloatArray](SHARD_BYTES, lambda shard: shard.nbytes)
        for name in self._manifest.objects:
            if name.endswith("zarr.json"):
                self._check(name)

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the root group.

        Raises
        ------
        ReleaseError
            Where the folder cannot be read.
        """
        try:
            return dict(zarr.open_group(self.path, mode="r").attrs.asdict())
        except OSError as error:
            raise ReleaseError(
                f"{self.path}: cannot be read ({error.strerror}); mend the folder and run the same "
                "command again"
            ) from None

    @property
    def guarantee(self) -> Budget | RandomPrivacy:
        """What the attributes state."""
        budget = Budget.parse(self.attributes["epsilon"], self.attributes["delta"])
        random_dp = self.attributes.get("random_dp")
        return RandomPrivacy.from_dict(random_dp, budget) if random_dp else budget

    def array(self, path: str) -> Any:
        """An array whose every object was checked."""
        for name in self._manifest.objects:
            if name.startswith(f"{path}/"):
                self._check(name)
        return zarr.open_array(self.path, path=path, mode="r")

    def values(self, path: str) -> FloatArray:
        """An array of released integers in data units."""
        array = self.array(path)
        return self._decoded(array, array[...])

    def shard(self, path: str, index: int) -> FloatArray:
        """One shard of an array that is cut along its first axis; the last few are kept."""

        def read() -> FloatArray:
            array = zarr.open_array(self.path, path=path, mode="r")
            self._check("/".join([path, "c", str(index), *["0"] * (array.ndim - 1)]))
            layers = self.shard_layers(path)
            return self._decoded(array, array[index * layers : (index + 1) * layers])

        return self._shards((path, index), read)

    def shard_layers(self, path: str) -> int:
        """Layers of the first axis in each shard of an array but the last."""
        array = zarr.open_array(self.path, path=path, mode="r")
        return int((array.shards or array.chunks)[0])

    def _decoded(self, array: Any, integers: Any) -> FloatArray:
        if (integers == ABSENT).any():
            raise IntegrityError(f"{self.path}: coefficients are missing; copy the synopsis again")
        return np.asarray(integers * float(array.attrs["scale_factor"]))

    def verify(self) -> int:
        """Check every object, and that there is no other; returns how many there are."""
        unknown = set(list_objects(self.path)) - set(self._manifest.objects)
        if unknown:
            raise IntegrityError(
                f"{self.path}: {min(unknown)} is not part of the release; remove it"
            )
        self._verified.clear()
        for name in self._manifest.objects:
            self._check(name)
        return len(self._manifest.objects)

    def _check(self, name: str) -> None:
        if name in self._verified:
            return
        if name not in self._manifest.objects:
            raise IntegrityError(f"{self.path}: {name} was not released; copy the synopsis again")
        try:
            found = digest(self.path / name)
        except OSError:
            raise IntegrityError(
                f"{self.path}: {name} is missing; copy the synopsis again"
            ) from None
        if found != self._manifest.objects[name]:
            raise IntegrityError(
                f"{self.path}: {name} is not what was released; copy the synopsis again"
            )
        self._verified.add(name)


def _not_a_synopsis(path: Path) -> IntegrityError:
    if not path.exists():
        return IntegrityError(f"{path}: there is no such folder; check the path")
    if (path / "zarr.json").exists():
        return IntegrityError(
            f"{path}: has no {MANIFEST}, so its release is not finished; run the release again"
        )
    return IntegrityError(f"{path}: is not a dbern synopsis (no {MANIFEST}); check the path")
