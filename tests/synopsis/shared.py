"""A synopsis whose store states other facts."""

from __future__ import annotations

from dbern.synopsis.metadata import StoredCombination, StoredTarget


def restated(synopsis, facts):
    """The same numbers, of which a store states other facts."""
    models = {"combine": StoredCombination, "target": StoredTarget}
    of_function = {name: facts.get(name) for name in ("combine", "target", "units")}
    made = {
        name: models[name].ready().model_construct(**fact) if name in models else fact
        for name, fact in of_function.items()
    }
    synopsis._store.released = synopsis._store.released.model_copy(update=made)
    synopsis._store.attributes = facts
    vars(synopsis).pop("_function", None)
    return synopsis
