"""The objects of a released store: each is read whole, at most once, and checked as it is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from pydantic import AfterValidator, Field, StringConstraints

from dbern.data.storage import (
    MANIFEST,
    MOST_METADATA,
    ROOT,
    Place,
    failures_told,
    is_object_name,
    owner,
    too_large,
)
from dbern.errors import IntegrityError, SpecError, printable
from dbern.privacy.budget import Budget
from dbern.privacy.random_privacy import RandomPrivacy
from dbern.synopsis.metadata import (
    FORMAT,
    FORMAT_VERSION,
    Facts,
    Root,
    Text,
    checked,
    damaged,
    require,
)
from dbern.synopsis.stored import ABSENT, described, stored_arrays
from dbern.system import LRUCache
from dbern.types import FloatArray

if TYPE_CHECKING:
    from dbern.synopsis.signatures import PrivateKey


# --- The manifest: the last object of a synopsis, and the only sign that it is one


def _object_name(name: str) -> str:
    require(is_object_name(name) and name != MANIFEST, "is not the name of an object of the store")
    return name


class Entry(Facts):
    """Size and SHA-256 of one object."""

    bytes: Annotated[int, Field(ge=0, lt=2**63)]
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class _Version(Facts):
    format: Text
    format_version: int


class Manifest(Facts):
    """Which release this is and what every other object of the store must be.

    Examples
    --------
    >>> objects = {"a": digest(b"b")}
    >>> made = Manifest(release_id="7f", created="2026-11-20T00:00:00+00:00", objects=objects)
    >>> Manifest.parse(made.text().encode(), "a.zarr") == made
    True
    """

    release_id: Text
    created: Text
    objects: dict[
        Annotated[str, StringConstraints(max_length=1024), AfterValidator(_object_name)], Entry
    ]

    def text(self) -> str:
        """Return the JSON text: keys sorted, so that equal manifests are equal bytes."""
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **self.model_dump()}
        return json.dumps(content, indent=1, sort_keys=True) + "\n"

    @classmethod
    def parse(cls, text: bytes, where: str) -> Self:
        """Read a manifest; `where` names the store in errors.

        Raises
        ------
        IntegrityError
            For anything but a manifest of this format version.
        """
        found = checked(_Version, text, where, MANIFEST)
        if (found.format, found.format_version) != (FORMAT, FORMAT_VERSION):
            raise IntegrityError(
                f"{where}: is {printable(found.format)} version {found.format_version}, and this "
                f"dbern reads {FORMAT} version {FORMAT_VERSION}. Open it with the dbern that wrote "
                "it"
            )
        return checked(cls, text, where, MANIFEST)


def digest(data: bytes) -> Entry:
    """Return the size and SHA-256 of an object."""
    return _digest_of([data])


def _digest_of(parts: Iterable[bytes]) -> Entry:
    size, found = 0, hashlib.sha256()
    for part in parts:
        size += len(part)
        found.update(part)
    return Entry(bytes=size, sha256=found.hexdigest())


def publish(place: Place, manifest: Manifest) -> None:
    """Create the manifest, whole or not at all, unless it is there already.

    Raises
    ------
    IntegrityError
        Where another manifest is there.
    ReleaseError
        Where it cannot be written.
    """
    with failures_told(place):
        try:
            place.create(MANIFEST, manifest.text().encode())
        except FileExistsError:
            raise IntegrityError(f"{place}: holds another release. Choose another output") from None


SHARD_BYTES = 1 << 28
"""Most bytes of shards that are kept after they were read."""

_READERS = 8
_LARGEST = 1e100  # number of a matrix: products of several stay finite


def functions_of(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the components that a synopsis's function is made of: all but promises."""
    return [one for one in facts["components"] if "promise" not in one]


class ReleasedStore:
    """A store that has a manifest; its metadata is checked at once, arrays when they are read.

    An object is never read in part: its digest could not be checked.

    Parameters
    ----------
    place : Place
        Where the store is.

    Raises
    ------
    SpecError
        Where there is nothing at all.
    IntegrityError
        Where there is no manifest, or an object is not what the manifest says.
    ReleaseError
        Where the place cannot be read.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        with failures_told(place, "read"):
            try:
                text = place.read(MANIFEST)
            except (FileNotFoundError, NotADirectoryError):
                raise _not_a_synopsis(place) from None
        self.manifest = text
        self._manifest = Manifest.parse(text, str(place))
        self._shards = LRUCache[FloatArray](SHARD_BYTES, lambda shard: shard.nbytes)
        self._root = checked(Root, self._metadata(ROOT), str(place), ROOT)
        released = self._root.attributes
        for key in ("release_id", "created"):
            if getattr(released, key) != getattr(self._manifest, key):
                raise damaged(str(place), ROOT, f"attributes.{key}", "is not that of the manifest")
        names = described(released)
        texts = dict(zip(names, self._each(self._metadata, names), strict=True))
        self._arrays = stored_arrays(released, texts, str(place))
        for array in self._arrays.values():
            for name in array.names:
                if self._entry(name).bytes > array.object_bytes:
                    raise too_large(str(place), name, array.object_bytes)

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the root group that FORMAT.md names."""
        return self._root.as_dict()

    @property
    def guarantee(self) -> Budget | RandomPrivacy:
        """What the attributes state."""
        budget = Budget.parse(self.attributes["epsilon"], self.attributes["delta"])
        random_dp = self.attributes.get("random_dp")
        return RandomPrivacy.from_dict(random_dp, budget) if random_dp else budget

    def require(self, release_id: str) -> None:
        """Refuse another release than the one that is meant: it may have come to its place.

        Raises
        ------
        IntegrityError
            Where this is another.
        """
        if self._manifest.release_id != release_id:
            raise IntegrityError(
                f"{self.place}: holds another release than was opened. Open it again"
            )

    def array(self, path: str) -> tuple[Any, dict[str, Any]]:
        """Return a whole small array, read into memory, and its attributes."""
        values = self._decoded(path, 0)
        least = 1 / _LARGEST if "/eigenvalues" in path else -_LARGEST
        if not ((values >= least) & (values <= _LARGEST)).all():
            name = self._arrays[path].name(0)
            raise damaged(str(self.place), name, "", "holds what is no such number")
        return values, self._arrays[path].attributes

    def values(self, path: str) -> FloatArray:
        """Return an array of released integers in data units."""
        array = self._arrays[path]
        values = np.empty(array.shape)

        def fill(index: int) -> None:
            place = slice(index * array.layers, (index + 1) * array.layers)
            values[place] = self._shard(path, index)

        self._each(fill, range(len(array.names)))
        return values

    def shard(self, path: str, index: int) -> FloatArray:
        """Return one shard of an array that is cut along its first axis; the last few are kept."""
        return self._shards((path, index), lambda: self._shard(path, index))

    def shard_layers(self, path: str) -> int:
        """Return the layers of the first axis in each shard of an array but the last."""
        return self._arrays[path].layers

    def _shard(self, path: str, index: int) -> FloatArray:
        integers = self._decoded(path, index)
        if (integers == ABSENT).any():
            raise IntegrityError(f"{self.place}: coefficients are missing. Copy the synopsis again")
        return np.asarray(integers * float(self._arrays[path].attributes["scale_factor"]))

    def _decoded(self, path: str, index: int) -> Any:
        array = self._arrays[path]
        return array.decoded(index, self._checked(array.name(index)), str(self.place))

    def verify(self, trusted: Sequence[str | Path] = ()) -> int:
        """Check every object, and that there is no other; returns how many there are.

        With `trusted`, files of public keys, also that one of them signed the release.
        """
        from dbern.synopsis.signatures import is_signature, public_key_of, require_signed

        keys = [public_key_of(path) for path in trusted]
        with failures_told(self.place, "read"):
            there = {name for name in self.place.names() if not is_signature(name)}
        unknown = there - set(self._manifest.objects)
        if unknown:
            raise IntegrityError(
                f"{self.place}: {printable(min(unknown))} is not part of the release. Remove it"
            )
        found = self._each(self._looked_at, self._manifest.objects)
        require_signed(self.signers, keys, self.place)
        return len(found)

    @cached_property
    def signers(self) -> tuple[str, ...]:
        """Fingerprints of the keys that signed the manifest; empty: it is unsigned."""
        from dbern.synopsis.signatures import signers_of  # the library takes 15 ms to import

        return signers_of(self.place, self.manifest)

    def sign(self, key: PrivateKey) -> str:
        """Sign the manifest, once all is as it says; returns the key's fingerprint."""
        from dbern.synopsis.signatures import sign

        self.verify()
        return sign(self.place, self.manifest, key)

    def _looked_at(self, name: str) -> None:
        """Never whole in memory: what a newer version added may be of any size."""
        entry = self._entry(name)
        with self._reading(name):
            found = _digest_of(self.place.parts(name, entry.bytes))
        self._require_same(name, found)

    def _each(self, read: Callable[[Any], Any], items: Collection[Any]) -> list[Any]:
        """Some at a time, where that is worth the threads."""
        if len(items) < self.place.worth_threads:
            return list(map(read, items))
        with ThreadPoolExecutor(_READERS) as pool:
            return list(pool.map(read, items))

    def _entry(self, name: str) -> Entry:
        if name not in self._manifest.objects:
            why = f"does not name {name}, which the release has to have"
            raise damaged(str(self.place), MANIFEST, "objects", why)
        return self._manifest.objects[name]

    def _metadata(self, name: str) -> bytes:
        if self._entry(name).bytes > MOST_METADATA:
            raise too_large(str(self.place), name, MOST_METADATA)
        return self._checked(name)

    def _checked(self, name: str) -> bytes:
        with self._reading(name):
            data = self.place.read(name, self._entry(name).bytes)
        self._require_same(name, digest(data))
        return data

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        with failures_told(self.place, "read"):
            try:
                yield
            except (FileNotFoundError, NotADirectoryError):
                raise IntegrityError(
                    f"{self.place}: {name} is missing. Copy the synopsis again"
                ) from None

    def _require_same(self, name: str, found: Entry) -> None:
        if found != self._manifest.objects[name]:
            raise IntegrityError(
                f"{self.place}: {name} is not what was released. Copy the synopsis again"
            )


def _not_a_synopsis(place: Place) -> IntegrityError | SpecError:
    if not place.exists():
        return SpecError(f"{place}: there is no such {place.noun}. Check the path")
    if owner(place) is not None:
        return IntegrityError(
            f"{place}: has no {MANIFEST}, so its release is not finished. Run the release again"
        )
    return IntegrityError(f"{place}: is not a dbern synopsis (no {MANIFEST}). Check the path")
