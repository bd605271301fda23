"""``manifest.json``: the last object of a synopsis, and the only sign that it is one."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dbern.errors import IntegrityError, ReleaseError

MANIFEST = "manifest.json"
FORMAT = "dbern-synopsis"
FORMAT_VERSION = 1
_CHUNK = 1 << 20


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


def digest(path: Path) -> Entry:
    """Size and SHA-256 of a file, read in pieces."""
    value, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            value.update(piece)
            size += len(piece)
    return Entry(size, value.hexdigest())


def list_objects(store: Path) -> list[str]:
    """Every object of a store but the manifest, as sorted paths relative to it."""
    files = (path for path in store.rglob("*") if path.is_file())
    names = (path.relative_to(store).as_posix() for path in files)
    return sorted(name for name in names if name != MANIFEST)


def publish(store: Path, manifest: Manifest) -> None:
    """Create the manifest, whole or not at all, unless it is there already.

    Raises
    ------
    IntegrityError
        Where another manifest is there.
    """
    target, draft = store / MANIFEST, store / f"{MANIFEST}.{os.getpid()}.tmp"
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(manifest.text())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, target)  # fails where the target exists: create-if-absent
        except FileExistsError:
            if target.read_text(encoding="utf-8") != manifest.text():
                raise IntegrityError(
                    f"{store}: holds another release; choose another output"
                ) from None
        draft.unlink(missing_ok=True)
        sync_path(store)
    except OSError as error:
        raise storage_error(store, error) from None
    finally:
        draft.unlink(missing_ok=True)


def sync_path(path: Path) -> None:
    """Make a file's content, or a folder's entries, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def storage_error(store: Path, error: OSError) -> ReleaseError:
    """What to do about a store that cannot be written."""
    full = "the disk is full: free some space" if error.errno == errno.ENOSPC else "mend the folder"
    return ReleaseError(
        f"{store}: cannot be written ({error.strerror or type(error).__name__}); {full} and run "
        "the same command again: nothing is lost, and it will not be charged twice"
    )
