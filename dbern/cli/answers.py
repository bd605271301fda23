"""Options of ``dbern init`` as the sections of a spec."""

from __future__ import annotations

import copy
import re
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from dbern.errors import SpecError
from dbern.system import number_of

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from dbern.data.times import Bound
    from dbern.planning.spec import ReleaseSpec
    from dbern.targets import Learner

ROLES = {
    "label": ("classes", "column=no,yes", "the public list; with two, the second is +1"),
    "response": ("bounds", "column=-1.0,1.0", "public; values outside are moved to the bounds"),
    "group": ("values", "column=a,b", "the public list"),
    "filter": ("values", "column=done", "the public list: other rows count nothing"),
}
"""By the name of a section of the data: its other key, an example, and what to know of it."""

_NEEDED = {"source": '"data/*.parquet"', "axis": "column=0,10", "epsilon": "1.0", "dataset": "NAME"}
_EXAMPLES = _NEEDED | {role: example for role, (_, example, _) in ROLES.items()}
_EXAMPLES |= {"normalizer": "1000000"}
"""What an option that is missing may be, as it is written."""

Sections = dict[str, dict[str, Any]]


def read_sections(options: dict[str, Any], stem: str) -> Sections:
    """Read all sections but the target of a spec that is called `stem`.

    Raises UsageError where an option is missing, and BadParameter for one that is not readable.
    """
    missing = [name for name in _NEEDED if not options["axes" if name == "axis" else name]]
    if missing:
        raise _missing(*missing)
    partition = "-{partition}" if "{partition}" in options["source"] else ""
    name = options["name"] or stem + partition
    data: dict[str, Any] = {"source": options["source"], "bounds": {}}
    for text in options["axes"]:
        column, bounds = _bounds_of("axis", text)
        if column in data["bounds"]:
            raise click.BadParameter(f'"{column}" is an axis already', param_hint="--axis")
        data["bounds"][column] = bounds
    data |= {role: _role_of(role, options[role]) for role in ROLES if options[role]}
    if options["unit"]:
        data["unit"] = _unit_of(options["unit"])
    data |= {key: options[key] for key in ("neighbors", "normalizer") if options[key]}
    return {
        "release": {"name": name, "output": options["output"] or f"{name}.zarr"},
        "data": data,
        "budget": {key: options[key] for key in ("epsilon", "delta", "ledger", "dataset")},
    }


def read_settings(learner: type[Learner], texts: tuple[str, ...]) -> dict[str, str]:
    """Read the target's keys, and those that may be "auto"; returns their TOML, by key."""
    settings = [_setting(text) for text in texts]
    fields, stated = learner.model_fields, dict(settings)
    if len(stated) < len(settings):
        raise click.BadParameter("a key is given twice", param_hint="--set")
    for key, text in stated.items():
        if key not in fields:
            known = f"{learner.kind} has no such key. Write one of: {', '.join(fields)}"
            raise click.BadParameter(f"{key}: {known}", param_hint="--set")
        try:
            tomllib.loads(f"value = {text}")
        except tomllib.TOMLDecodeError:
            message = "is not a TOML value. Write a number, [0.5, 0.5] or a text in quotes"
            raise click.BadParameter(f"{key}: {text} {message}", param_hint="--set") from None
    needed = [
        key
        for key, field in fields.items()
        if field.is_required() and key not in stated and learner.instead.get(key) not in stated
    ]
    automatic = {key: '"auto"' for key in needed if _takes_auto(fields[key])}
    for key in (key for key in needed if key not in automatic):
        example = (fields[key].description or f"{key} = ..").partition(",  ")[0]
        raise click.UsageError(f"Missing option '--set': {learner.kind} needs {example}")
    return stated | automatic


def missing_option(error: SpecError) -> Exception:
    """Return the option that gives what a spec lacks, or the error where none does."""
    key = str(error).partition(": is missing")[0].removeprefix("data.")
    return _missing(key) if key in _EXAMPLES else error


def _missing(*names: str) -> click.UsageError:
    options = "option" if len(names) == 1 else "options"
    examples = " ".join(f"--{name} {_EXAMPLES[name]}" for name in names)
    listed = ", ".join(f"'--{name}'" for name in names)
    return click.UsageError(f"Missing {options} {listed}. Write for example {examples}")


def _role_of(role: str, text: str) -> dict[str, Any]:
    if role == "response":
        column, public = _bounds_of(role, text)
        return {"column": column, "bounds": public}
    column, values = _split(role, text)
    return {
        "column": column, ROLES[role][0]: [_category(value.strip()) for value in values.split(",")]
    }  # fmt: skip


def _unit_of(text: str) -> dict[str, Any]:
    # A colon is how `dbern ledger grant` has it.
    column, max_rows = _split("unit", re.sub(r":(?=\d+$)", "=", text))
    if not re.fullmatch(r"\d+", max_rows):
        message = f'"{text}": write {column}=8, the most rows of one that count'
        raise click.BadParameter(message, param_hint="--unit")
    return {"column": column, "max_contributions": int(max_rows)}


def loaded_spec(content: Sections, folder: Path) -> ReleaseSpec:
    """Refuse sections that are no spec; one that goes into a folder may name modules there."""
    from dbern.planning.spec import ReleaseSpec
    from dbern.system import importable

    filled = copy.deepcopy(content)
    for section, key in (("release", "name"), ("release", "output"), ("data", "source")):
        with suppress(KeyError):  # a placeholder is filled by --partition when it is used
            filled[section][key] = filled[section][key].replace("{partition}", "p")
    with importable(folder):
        return ReleaseSpec(**filled)


def _takes_auto(field: FieldInfo) -> bool:
    """Return whether a key of a target may be "auto": what follows from public numbers."""
    return any("auto" in get_args(choice) for choice in get_args(field.annotation))


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter("write KEY=VALUE", param_hint="--set")
    return key.strip(), value.strip()


def _split(option: str, text: str) -> tuple[str, str]:
    """Return a column, and what is said of it after an equals sign."""
    column, equals, rest = text.partition("=")
    if not equals or not column.strip():
        raise click.BadParameter(f'"{text}": write column=values', param_hint=f"--{option}")
    return column.strip(), rest.strip()


def _bounds_of(option: str, text: str) -> tuple[str, list[Bound]]:
    """Return a column and its two limits: numbers, dates or times."""
    column, rest = _split(option, text)
    try:
        low, high = (_limit(limit.strip()) for limit in rest.split(","))
    except ValueError:
        message = f'"{text}": write {column}=low,high'
        raise click.BadParameter(message, param_hint=f"--{option}") from None
    return column, [low, high]


def _limit(text: str) -> Bound:
    from dbern.data.times import moment_of

    try:
        return number_of(text)
    except ValueError:
        return moment_of(text)


def _category(text: str) -> str | int | bool:
    """Return a value of a public list."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch("-?[0-9]{1,19}", text) else text
