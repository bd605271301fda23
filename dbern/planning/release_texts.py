"""Texts about what a spec releases: for its plan, and for readers of the store."""

from __future__ import annotations

from typing import Any

from dbern.planning.spec import ReleaseSpec
from dbern.synopsis.titles import function_title


def release_texts(spec: ReleaseSpec) -> dict[str, Any]:
    """Texts of a release for people: the spec's, and its columns by their role."""
    release, records = spec.release, spec.records
    roles = {"response": records.response, "label": records.label, "group": records.group}
    texts = {
        "title": release.title,
        "description": release.description,
        "columns": {role: column.name for role, column in roles.items() if column},
        "units": spec.data.units,
    }
    return {key: text for key, text in texts.items() if text}


def plan_title(spec: ReleaseSpec) -> str:
    """Name the function that a spec releases."""
    target = {"kind": spec.learner.kind, **spec.learner.get_params()}
    return function_title(spec.combination, spec.domain, {"target": target, **release_texts(spec)})
