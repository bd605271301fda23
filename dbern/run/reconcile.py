"""Reconcile a ledger that was put back to an earlier state with what was published."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dbern.data.objects import Objects, check_url
from dbern.data.storage import (
    MANIFEST,
    ROOT,
    Bucket,
    Folder,
    Location,
    is_published,
    location_at,
    storage_errors,
)
from dbern.errors import IntegrityError, SpecError
from dbern.ledger import BudgetLedger, Published, Reconciled
from dbern.ledger.entries import FREE
from dbern.privacy.budget import Budget, exact
from dbern.synopsis.metadata import FORMAT
from dbern.synopsis.store import ReleasedStore, entry_of
from dbern.system import dict_of, is_url


def reconcile(
    ledger: BudgetLedger,
    locations: Sequence[str | Path],
    *,
    dataset: str | None = None,
    more: bool = False,
) -> Reconciled:
    """Charge every release found at or below `locations` that the ledger does not know.

    Folders of unfinished releases count too: there may be noisy coefficients in them. `locations`
    are synopses, or folders or prefixes of buckets that are searched whole; `dataset` pays for
    what the ledger does not know, whatever a synopsis says; with `more` to reconcile spending stays
    stopped.
    Raises IntegrityError for a damaged synopsis, or one that does not say what it cost and whose
    budget paid, and BudgetError for a release that cannot be charged to its dataset.
    """
    stores = sorted({store for location in locations for store in _stores(location)})
    releases = {
        release.release_id: release for store in stores for release in _published(store, dataset)
    }
    return ledger.reconcile([*releases.values()], more=more)


def _stores(location: str | Path) -> Iterable[str]:
    return (
        _prefixes(check_url(location, "FOLDER")) if is_url(location) else _folders(Path(location))
    )


def _prefixes(url: str) -> list[str]:
    with storage_errors(Bucket(url), "read"):
        names = Objects(url).sizes()
    marked = {name.rpartition("/")[0] for name in names if name.endswith((MANIFEST, ROOT))}
    stores: list[str] = []
    for prefix in sorted(marked):
        store = f"{url}/{prefix}".rstrip("/")
        inside = any(store.startswith(f"{outer}/") for outer in stores)
        if not inside and _is_store(location_at(store)):
            stores.append(store)
    return stores


def _folders(folder_or_store: Path) -> Iterator[str]:
    """Find every synopsis, whole or not, in a folder; links are followed, each folder once."""
    if not folder_or_store.is_dir():
        raise SpecError(
            f"{folder_or_store}: is not a folder. Name synopses, or folders where they are"
        )
    waiting, seen = [folder_or_store.resolve()], set()
    while waiting:
        folder = waiting.pop()
        if folder in seen:
            continue
        seen.add(folder)
        if _is_store(Folder(folder)):
            yield str(folder)
            continue
        try:
            with os.scandir(folder) as entries:
                waiting += [Path(entry.path).resolve() for entry in entries if entry.is_dir()]
        except OSError as error:
            raise SpecError(
                f"{folder}: cannot be searched ({error.strerror}). Make it readable, or name the "
                "folders where synopses are one by one"
            ) from None


def _is_store(store: Location) -> bool:
    manifest, root = _json(store, MANIFEST), _json(store, ROOT)
    return FORMAT in (manifest.get("format"), dict_of(root.get("attributes")).get("format"))


def _json(store: Location, name: str) -> dict[str, Any]:
    try:
        content = json.loads(store.read(name))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    except OSError as error:
        raise SpecError(
            f"{store}/{name}: cannot be read ({error.strerror}). Make it readable"
        ) from None
    return dict_of(content)


def _text(value: object) -> str:
    """Return a text that is there: another ledger's name, or nobody's, is charged to nobody."""
    if not (isinstance(value, str) and value):
        raise TypeError
    return value


def _published(store: str, dataset: str | None) -> list[Published]:
    """Return the release of a store; of a stream's node its stream too, which paid for it."""
    location = location_at(store)
    with storage_errors(location, "read"):
        released = ReleasedStore(location) if is_published(location) else None
    metadata = (
        dict_of(_json(location, ROOT).get("attributes"))
        if released is None
        else released.attributes
    )
    try:
        rho = metadata.get("rho")
        release = Published(
            release_id=metadata["release_id"],
            name=metadata["name"],
            charge=Budget.parse(metadata["epsilon"], metadata["delta"]),
            rho=None if rho is None else exact(rho, "rho"),
            neighbors=metadata["neighbors"],
            unit=metadata["unit"],
            created=metadata["created"],
            output=store,
            dataset=dataset or _text(metadata["dataset"]),
            ledger_id=_text(metadata["ledger_id"]),
            manifest_digest=None if released is None else entry_of(released.manifest_bytes).sha256,
        )
        if "stream" not in metadata:
            return [release]
        of_stream = replace(  # a charge has no manifest; that a node is there says it was spent
            release,
            release_id=_text(metadata["stream"]["release_id"]),
            name=_text(metadata["stream"]["name"]),
            output="",
            manifest_digest=f"of {release.release_id}",
        )
        return [of_stream, replace(release, charge=FREE, rho=None)]
    except (KeyError, TypeError, ValueError, SpecError):
        raise IntegrityError(
            f"{store}: does not state its guarantee, or whose budget paid for it. Bring the "
            "synopsis back from a copy"
        ) from None
