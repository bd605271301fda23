"""``manifest.json``: the last object of a synopsis, and the only sign that it is one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from dbern.data.storage import MANIFEST, Place, failures_told, is_object_name
from dbern.errors import IntegrityError, printable
from dbern.synopsis.metadata import FORMAT, FORMAT_VERSION, Facts, Text, checked, require

__all__ = ["FORMAT", "FORMAT_VERSION", "Entry", "Manifest", "digest", "digest_of", "publish"]


def _object_name(name: str) -> str:
    require(is_object_name(name) and name != MANIFEST, "is no name of an object of the store")
    return name


class _Entry(Facts):
    bytes: Annotated[int, Field(ge=0, lt=2**63)]
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class _Version(Facts):
    format: Text
    format_version: int


class _Manifest(Facts):
    release_id: Text
    created: Text
    objects: dict[
        Annotated[str, StringConstraints(max_length=1024), AfterValidator(_object_name)], _Entry
    ]


@dataclass(frozen=True)
class Entry:
    """Size and SHA-256 of one object."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Which release this is and what every other object of the store must be.

    Examples
    --------
    >>> manifest = Manifest("7f", "2026-11-20T00:00:00+00:00", {"a": digest(b"b")})
    >>> Manifest.parse(manifest.text(), "a.zarr") == manifest
    True
    """

    release_id: str
    created: str
    objects: Mapping[str, Entry]

    def text(self) -> str:
        """The JSON text: keys sorted, so that equal manifests are equal bytes."""
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "release_id": self.release_id,
            "created": self.created,
            "objects": {
                path: {"bytes": entry.bytes, "sha256": entry.sha256}
                for path, entry in self.objects.items()
            },
        }
        return json.dumps(content, indent=1, sort_keys=True) + "\n"

    @classmethod
    def parse(cls, text: str | bytes, where: str) -> Manifest:
        """Read a manifest; `where` names the store in errors.

        Raises
        ------
        IntegrityError
            For anything but a manifest of this format version.
        """
        text = text.encode() if isinstance(text, str) else text
        found = checked(_Version, text, where, MANIFEST)
        if (found.format, found.format_version) != (FORMAT, FORMAT_VERSION):
            raise IntegrityError(
                f"{where}: is {printable(found.format)} version {found.format_version}, and this "
                f"dbern reads {FORMAT} version {FORMAT_VERSION}; open it with the dbern that wrote "
                "it"
            )
        content = checked(_Manifest, text, where, MANIFEST)
        objects = {name: Entry(one.bytes, one.sha256) for name, one in content.objects.items()}
        return cls(content.release_id, content.created, objects)


def digest(data: bytes) -> Entry:
    """Size and SHA-256 of an object."""
    return digest_of([data])


def digest_of(parts: Iterable[bytes]) -> Entry:
    """The same of an object in parts, for what is never whole in memory."""
    size, found = 0, hashlib.sha256()
    for part in parts:
        size += len(part)
        found.update(part)
    return Entry(size, found.hexdigest())


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
            raise IntegrityError(f"{place}: holds another release; choose another output") from None
