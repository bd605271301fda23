"""After a ledger was put back to an earlier state: find what was published, and account for it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from dbern.errors import IntegrityError, SpecError
from dbern.ledger import BudgetLedger, Published, Reconciled
from dbern.privacy.budget import Budget
from dbern.synopsis.manifest import FORMAT, MANIFEST, digest
from dbern.synopsis.reader import open_synopsis

_ROOT = "zarr.json"


def reconcile(
    ledger: BudgetLedger,
    places: Sequence[Path],
    *,
    dataset: str | None = None,
    more: bool = False,
) -> Reconciled:
    """Charge every release found at or below `places` that the ledger does not know.

    Folders of unfinished releases count too: there may be noisy coefficients in them.

    Parameters
    ----------
    places : sequence of Path
        Synopses, or folders that are searched whole.
    dataset : str, optional
        Whose budget pays for what the ledger does not know, whatever a synopsis says.
    more : bool
        There is more to reconcile: spending stays stopped.

    Raises
    ------
    SpecError
        When a place cannot be searched, or nothing says whose budget paid for a synopsis.
    IntegrityError
        When a synopsis is damaged; bring it back from a copy.
    BudgetError
        When a release cannot be charged to its dataset.
    """
    stores = sorted({store for place in places for store in _stores(place)})
    return ledger.reconcile([_published(store, dataset) for store in stores], more=more)


def _stores(place: Path) -> Iterator[Path]:
    """Every synopsis, whole or not, at or below a place; links are followed, each folder once."""
    if not place.is_dir():
        raise SpecError(f"{place}: is no folder; name synopses, or folders where they are")
    waiting, seen = [place.resolve()], set()
    while waiting:
        folder = waiting.pop()
        if folder in seen:
            continue
        seen.add(folder)
        if _is_store(folder):
            yield folder
            continue
        try:
            with os.scandir(folder) as entries:
                waiting += [Path(entry.path).resolve() for entry in entries if entry.is_dir()]
        except OSError as error:
            raise SpecError(
                f"{folder}: cannot be searched ({error.strerror}); make it readable, or name the "
                "folders where synopses are one by one"
            ) from None


def _is_store(folder: Path) -> bool:
    manifest, root = _json(folder / MANIFEST), _json(folder / _ROOT)
    return FORMAT in (manifest.get("format"), _attributes(root).get("format"))


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror}); make it readable") from None
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _attributes(root: dict[str, Any]) -> dict[str, Any]:
    found = root.get("attributes")
    return found if isinstance(found, dict) else {}


def _published(store: Path, dataset: str | None) -> Published:
    whole = (store / MANIFEST).exists()
    facts = open_synopsis(store).metadata if whole else _attributes(_json(store / _ROOT))
    try:
        rho, random_dp = facts.get("rho"), facts.get("random_dp")
        return Published(
            release_id=facts["release_id"],
            name=facts["name"],
            charge=Budget.parse(facts["epsilon"], facts["delta"]),
            rho=None if rho is None else Fraction(rho),
            neighbors=facts["neighbors"],
            unit=facts["unit"],
            created=facts["created"],
            output=str(store),
            dataset=dataset or facts.get("dataset"),
            ledger_id=facts.get("ledger_id"),
            manifest_digest=digest(store / MANIFEST).sha256 if whole else None,
            gamma=Fraction(random_dp["gamma"]) if random_dp else None,
        )
    except (KeyError, TypeError, ValueError):
        raise IntegrityError(
            f"{store}: does not state its guarantee; bring the synopsis back from a copy"
        ) from None
