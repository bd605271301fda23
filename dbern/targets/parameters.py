"""A section of a spec: a strict model, and what is wrong with its keys in the words of the file.

Parameters that nothing uses are wrong, too (`refuse_unused`).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from dbern.errors import SpecError

_MIN_SIMILARITY = 0.75
"""Below it "bandwidth" would be taken for "width", another key."""
_REMOVED = {
    "data.response.points": "no learner takes lists. Write a column for each point of a curve, for "
    "a learner as that of notebooks/own_learner.ipynb",
    "mechanism.tune": "is no key. Leave it out: bands about these data are read off the released "
    "bins alone",
}
"""Keys that left, with what to write instead."""
USERS_OWN = "module:name"
"""Kind of a user's own function, and the form of its name."""
_MESSAGES = {
    "missing": "is missing",
    "string_pattern_mismatch": "is empty",
    "greater_than": "must be above {gt:g}",
    "finite_number": "must be finite",
    "too_short": "has too few entries",
    "too_long": "has too many entries",
    "string_too_long": "has more than {max_length} letters",
    "unknown": "is unknown",
    "one_line": "must be one line that can be printed",
}


class Section(BaseModel):
    """A strict and frozen section of a spec; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def explain(error: ValidationError, model: type[BaseModel], prefix: str = "") -> Iterable[str]:
    """Yield one line per wrong key: the key, what is wrong, what to write."""
    seen = set()
    for problem in error.errors():
        names = _field_path(problem["loc"], model)
        if names in seen:
            continue
        seen.add(names)
        key = f"{prefix}{'.'.join(names)}"
        yield f"{key}: {_REMOVED.get(key) or _message(problem, names, model)}"


def _field_path(loc: tuple[int | str, ...], model: type[BaseModel]) -> tuple[str, ...]:
    """The part of a location that names keys of the file, without pydantic's union branches."""
    fields: Any = model
    names = []
    for key in loc:
        if not isinstance(key, str):
            break
        names.append(key)
        field = fields.model_fields.get(key) if fields is not None else None
        fields = _section(field.annotation) if field is not None else None
        if fields is None and key not in ("bounds", "points", "units"):
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
    for key in names:
        siblings = fields.model_fields if fields is not None else {}
        field = siblings.get(key)
        if field is None and problem["type"] == "extra_forbidden":
            homes = [
                name
                for name, home in model.model_fields.items()
                if (section := _section(home.annotation)) and key in section.model_fields
            ]
            if homes:
                return f"is a key of [{homes[0]}]. Write it there"
            near = difflib.get_close_matches(key, siblings, n=1, cutoff=_MIN_SIMILARITY)
            remedy = near[0] if near else f"one of: {', '.join(siblings)}"
            return f"unknown key. Write {remedy}"
        if field is None:
            break
        hint = field.description or hint
        fields = _section(field.annotation)
    message = _MESSAGES.get(problem["type"], "has a wrong value or type").format(
        **problem.get("ctx", {})
    )
    return f"{message}. Write {hint}"


def refuse_unused(section: Section, **choices: Mapping[str, Collection[str]]) -> None:
    """Refuse a parameter that a chosen kind has no use for, unless it is as by default.

    `choices` has, by the key of each choice, such as ``loss``, the parameters that each of its
    kinds uses. A parameter that several choices have a use for needs all of them to use it. A kind
    that is not listed is skipped: another check refuses it.

    Raises SpecError with the kinds that the parameter is of.
    """
    for key, field in type(section).model_fields.items():
        if getattr(section, key) == field.default:
            continue  # estimators hand all parameters on
        for choice, uses in choices.items():
            kind = getattr(section, choice)
            chosen = USERS_OWN if ":" in kind else kind
            owners = [name for name, parameters in uses.items() if key in parameters]
            if owners and chosen in uses and chosen not in owners:
                instead = "that" if len(owners) == 1 else "one of these"
                raise SpecError(
                    f"target.{key}: is of {choice} = {quote_choices(owners)}, not of "
                    f'{choice} = "{kind}". Leave it out, or write {instead}.'
                )


def quote_choices(names: Sequence[str]) -> str:
    """Return a choice of names as text, in quotation marks."""
    *first, last = (f'"{name}"' for name in names)
    return f"{', '.join(first)} or {last}" if first else last
