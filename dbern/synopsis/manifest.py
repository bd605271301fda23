"""The manifest: the last object of a synopsis, and the only sign that it is one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import Field, StringConstraints

from dbern.data.plain_files import MAX_NAME, is_object_name
from dbern.data.storage import MANIFEST
from dbern.errors import IntegrityError, printable
from dbern.synopsis.metadata import FORMAT, FORMAT_VERSION
from dbern.synopsis.strict import StrictModel, Text, checked, parse_object, require


def _require_object(name: str) -> None:
    require(is_object_name(name) and name != MANIFEST, "is not the name of an object of the store")


class Entry(StrictModel):
    """Size and SHA-256 of one object."""

    bytes: Annotated[int, Field(ge=0, lt=2**63)]
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class _Version(StrictModel):
    format: Text
    format_version: int


class Manifest(StrictModel):
    """Identity of a release, and size and digest of every other object of its store."""

    release_id: Text
    created: Text
    objects: dict[
        Annotated[str, StringConstraints(max_length=MAX_NAME), checked(_require_object)], Entry
    ]

    def text(self) -> str:
        """Return the JSON text: keys sorted, so that equal manifests are equal bytes."""
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **self.model_dump()}
        return json.dumps(content, indent=1, sort_keys=True) + "\n"

    @classmethod
    def parse(cls, text: bytes, where: str) -> Self:
        """Read a manifest of this format version; `where` names the store in errors."""
        version = parse_object(_Version, text, where, MANIFEST)
        if (version.format, version.format_version) != (FORMAT, FORMAT_VERSION):
            raise IntegrityError(
                f"{where}: is {printable(version.format)} version {version.format_version}, and "
                f"this dbern reads {FORMAT} version {FORMAT_VERSION}. Open it with the dbern that "
                "wrote it"
            )
        return parse_object(cls, text, where, MANIFEST)


def digest(data: bytes) -> Entry:
    """Return the size and SHA-256 of an object."""
    return digest_of([data])


def digest_of(chunks: Iterable[bytes]) -> Entry:
    """Return the size and SHA-256 of an object that comes in parts."""
    size, sha256 = 0, hashlib.sha256()
    for chunk in chunks:
        size += len(chunk)
        sha256.update(chunk)
    return Entry(bytes=size, sha256=sha256.hexdigest())
