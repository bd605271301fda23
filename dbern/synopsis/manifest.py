"""``manifest.json``: the last object of a synopsis, and the only sign that it is one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dbern.errors import IntegrityError
from dbern.synopsis.places import MANIFEST, Place, failures_told

FORMAT = "dbern-synopsis"
FORMAT_VERSION = 1


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
    >>> manifest = Manifest("7f", "2026-11-20T00:00:00+00:00", {"zarr.json": Entry(2, "ab")})
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
        try:
            content: dict[str, Any] = json.loads(text)
            found = (content["format"], content["format_version"])
            if found != (FORMAT, FORMAT_VERSION):
                raise IntegrityError(
                    f"{where}: is {found[0]} version {found[1]}, and this dbern reads {FORMAT} "
                    f"version {FORMAT_VERSION}; open it with the dbern that wrote it"
                )
            objects = {path: Entry(**entry) for path, entry in content["objects"].items()}
            return cls(content["release_id"], content["created"], objects)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise IntegrityError(
                f"{where}: its {MANIFEST} is damaged; copy the synopsis again"
            ) from None


def digest(data: bytes) -> Entry:
    """Size and SHA-256 of an object."""
    return Entry(len(data), hashlib.sha256(data).hexdigest())


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
