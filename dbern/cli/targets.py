"""``dbern target list``: the functions of the data that can be released."""

from __future__ import annotations

from typing import Any

import click

from dbern.cli.output import common
from dbern.errors import SpecError


@click.group()
def target() -> None:
    """Show what can be released: list."""


@target.command("list")
@common
def list_targets() -> tuple[Any, str]:
    """Show every learner with a line of description, and its keys."""
    from dbern.targets import kinds

    learners = [_describe_learner(kind) for kind in kinds()]
    lines = []
    for learner in learners:
        lines.append(f"{learner['kind']:<26}{learner['summary']}")
        for key in learner["keys"]:
            free = "" if key["required"] else "  [may be left out]"
            lines.append(f"    {key['key']:<22}{key['write']}{free}")
        lines += [f"    [data.{role}]" for role in learner["reads"]]
    return {"targets": learners}, "\n".join(lines)


def _describe_learner(kind: str) -> dict[str, Any]:
    from dbern.targets import learner_of

    try:
        learner = learner_of(kind)
    except SpecError as error:  # an installed package that fails to import
        summary = str(error).partition(f'"{kind}" of ')[2]
        return {"kind": kind, "summary": summary, "keys": [], "reads": []}
    keys = [
        {
            "key": name,
            "required": field.is_required(),
            "default": None if field.is_required() else field.default,
            "write": field.description or "",
        }
        for name, field in learner.model_fields.items()
    ]
    summary = (learner.__doc__ or "").strip().partition("\n")[0]
    return {"kind": kind, "summary": summary, "keys": keys, "reads": list(learner.uses)}
