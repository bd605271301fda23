"""``dbern target``: which functions of the data there are."""

from __future__ import annotations

from typing import Any

import click

from dbern.cli.output import common, report


@click.group()
def target() -> None:
    """Show what can be released: list."""


@target.command("list")
@common
def list_targets(as_json: bool, quiet: bool) -> None:
    """Show every learner: a line on what it is, and its keys."""
    del quiet
    from dbern.targets import kinds

    found = [_described(kind) for kind in kinds()]
    lines = []
    for one in found:
        lines.append(f"{one['kind']:<26}{one['summary']}")
        lines += [f"    {key['key']:<22}{_key_line(key)}" for key in one["keys"]]
        lines += [f"    [data.{role}]" for role in one["reads"]]
    report({"targets": found}, "\n".join(lines), as_json=as_json)


def _described(kind: str) -> dict[str, Any]:
    from dbern.targets import learner_of

    try:
        learner = learner_of(kind)
    except Exception as error:  # noqa: BLE001 -- another's package may fail in any way to import
        summary = f"cannot be imported ({type(error).__name__}); mend or remove its package"
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


def _key_line(key: dict[str, Any]) -> str:
    return f"{key['write']}{'' if key['required'] else '  [may be left out]'}"
