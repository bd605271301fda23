"""Say what is wrong with a spec's schema, in the words of its file."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from types import NoneType
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

_NEAR = 0.75
"""Below it "bandwidth" would be taken for "width", another key."""

_WHAT = {
    "missing": "is missing",
    "string_pattern_mismatch": "is empty",
    "greater_than": "must be above {gt:g}",
    "finite_number": "must be finite",
    "too_short": "has too few entries",
    "too_long": "has too many entries",
    "string_too_long": "has more than {max_length} letters",
    "one_line": "must be one line that can be printed",
}


def explain(error: ValidationError, model: type[BaseModel], prefix: str = "") -> Iterable[str]:
    """Yield one line per wrong key: the key, what is wrong, what to write."""
    seen = set()
    for problem in error.errors():
        names = _field_path(problem["loc"], model)
        if names in seen:
            continue
        seen.add(names)
        yield f"{prefix}{'.'.join(names)}: {_message(problem, names, model)}"


def _field_path(loc: tuple[int | str, ...], model: type[BaseModel]) -> tuple[str, ...]:
    """The part of a location that names keys of the file, without pydantic's union branches."""
    fields: Any = model
    names = []
    for part in loc:
        if not isinstance(part, str):
            break
        names.append(part)
        field = fields.model_fields.get(part) if fields is not None else None
        fields = _section(field.annotation) if field is not None else None
        if fields is None and part not in ("bounds", "points", "units"):
            break
    return tuple(names)


def _section(annotation: Any) -> type[BaseModel] | None:
    """The section that a key holds, if it holds a section or None and nothing else."""
    kinds = [kind for kind in get_args(annotation) or (annotation,) if kind is not NoneType]
    if len(kinds) == 1 and isinstance(kinds[0], type) and issubclass(kinds[0], BaseModel):
        return kinds[0]
    return None


def _message(problem: Any, names: tuple[str, ...], model: type[BaseModel]) -> str:
    fields: Any = model
    hint = ""
    for part in names:
        siblings = fields.model_fields if fields is not None else {}
        field = siblings.get(part)
        if field is None and problem["type"] == "extra_forbidden":
            homes = [
                name
                for name, section_field in model.model_fields.items()
                if (section := _section(section_field.annotation)) and part in section.model_fields
            ]
            if homes:
                return f"is a key of [{homes[0]}]. Write it there"
            near = difflib.get_close_matches(part, siblings, n=1, cutoff=_NEAR)
            return (
                f"unknown key. Write {near[0]}"
                if near
                else (f"unknown key. Write one of: {', '.join(siblings)}")
            )
        if field is None:
            break
        hint = field.description or hint
        fields = _section(field.annotation)
    what = _WHAT.get(problem["type"], "has a wrong value or type").format(**problem.get("ctx", {}))
    return f"{what}. Write {hint}"
