"""``manifest.json``: the last object of a synopsis, and the only sign that it is one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import AfterValidator, Field, StringConstraints

from dbern.data.storage import MANIFEST, Place, failures_told, is_object_name
from dbern.errors import IntegrityError, printable
from dbern.synopsis.metadata import FORMAT, FORMAT_VERSION, Facts, Text, checked, require


def _object_name(name: str) -> str:
    require(is_object_name(name) and name != MANIFEST, "is no name of an object of the store")
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
    >>> Manifest.parse(made.text(), "a.zarr") == made
    True
    """

    release_id: Text
    created: Text
    objects: dict[
        Annotated[str, StringConstraints(max_length=1024), AfterValidator(_object_name)], Entry
    ]

    def text(self) -> str:
        """The JSON text: keys sorted, so that equal manifests are equal bytes."""
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **self.model_dump()}
        return json.dumps(content, indent=1, sort_keys=True) + "\n"

    @classmethod
    def parse(cls, text: str | bytes, where: str) -> Self:
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
        return checked(cls, text, where, MANIFEST)


def digest(data: bytes) -> Entry:
    """Size and SHA-256 of an object."""
    return digest_of([data])


def digest_of(parts: Iterable[bytes]) -> Entry:
    """The same of an object in parts, for what is never whole in memory."""
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
            raise IntegrityError(f"{place}: holds another release; choose another output") from None
