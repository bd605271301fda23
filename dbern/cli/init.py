"""``dbern init``: a commented spec of options."""

from __future__ import annotations

import copy
import glob
import json
import re
import tomllib
from collections.abc import Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from dbern.cli.output import common
from dbern.errors import DbernError, SpecError
from dbern.system import is_url, number_of, toml_key

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from dbern.data.times import Bound
    from dbern.planning.spec import ReleaseSpec
    from dbern.targets import Learner


_ROLES = {
    "label": ("classes", "column=no,yes", "the public list; with two, the second is +1"),
    "response": ("bounds", "column=-1.0,1.0", "public; values outside are moved to the bounds"),
    "group": ("values", "column=a,b", "the public list"),
    "filter": ("values", "column=done", "the public list: other rows count nothing"),
}
"""By the name of a section of the data: its other key, an example, and what to know of it."""
_EXAMPLES = {
    "source": '"data/*.parquet"',
    "axis": "column=0,10",
    "epsilon": "1.0",
    "dataset": "NAME",
    "normalizer": "1000000",
    **{role: example for role, (_, example, _) in _ROLES.items()},
}
"""What an option that is missing may be, as it is written."""
_NEEDED = ("source", "axis", "epsilon", "dataset")
_Sections = dict[str, dict[str, Any]]
_Types = Mapping[str, Set[Any]]  # of columns in Arrow, by axis
_QUESTIONS = 'questions = ["density", "mass", "quantile"]'
_OF_DENSITY = f"{_QUESTIONS}  # what will be asked: bins are narrow enough for all of it"
_OF_REGRESSION = f"""\
# If shares of rows and quantiles will be asked, let bins be narrow enough for them, and write
# here: {_QUESTIONS}"""
_COUNTED = """\
[data.resolution]  # what an axis counts in, by its type: shares have no edges to guess. Take a line
# out where a program inferred the type from the values: one missing value may have changed it"""
_OPEN = """\
# Are values of {0} rounded, to hundredths say, and is that public? Then shares have no edges to
# guess either: write in a line of its own {1} = 0.01, below [data.resolution]"""
_SPEC = """\
# A release of dbern. Every value in this file must be public knowledge, chosen without looking at
# the records: the guarantee covers what is released, not a choice made after plotting the data.
# Keys that start with "# " have the default shown. docs/spec.md explains each.

[release]
name   = {name}  # with the dataset it names the release: another name pays again
output = {output}  # must not exist

[data]
source = {source}  # a file, a folder or a glob, relative to this file
{protection}
# outside = "drop"  # a value outside its bounds: the row counts nothing; or "clamp"

[data.bounds]  # one line per axis; public limits, never the data's own extremes
{bounds}

{roles}{resolution}[target]
{target}

[mechanism]  # all of it may be left to the plan
# objective = "typical"  # make small the error on a typical database; or "certified"
# beta = "0.05"  # the certificate holds with probability 1 - beta
{questions}
[budget]  # exact decimals in quotes
epsilon = {epsilon}
delta = {delta}
ledger = {ledger}
dataset = {dataset}  # as in: dbern ledger grant --dataset ..
"""
_PROTECTION = {
    "normalizer": (
        "normalizer = {}  # public; sums are divided by it, and the number of rows is private",
        "# n = 1000000  # public number of rows; left out, it is read from the files' footers",
    ),
    "unit": (
        "unit = {}  # all rows of one together, of which so many count",
        '# unit = "row"  # or { column = "user", max_contributions = 8 }, all rows of a user, with '
        'normalizer = "1000000" in place of n',
    ),
    "neighbors": (
        "neighbors = {}  # a unit is there or not",
        '# neighbors = "replace-one"  # or "add-or-remove-one", with a normalizer too',
    ),
}
"""By key: the line that states it, and the one where it has its default."""


@click.command()
@click.argument(
    "spec_path", metavar="[SPEC]", default="release.toml", type=click.Path(path_type=Path)
)
@click.option("--name", help="Of the release.  [default: SPEC's name]")
@click.option("--output", metavar="PATH", help="Of the synopsis.  [default: NAME.zarr]")
@click.option("--source", metavar="GLOB", help='Parquet files, as "data/*.parquet".')
@click.option(
    "--axis",
    "axes",
    multiple=True,
    metavar="COLUMN=LOW,HIGH",
    help="One to eight, more for some kinds; limits may be dates.",
)
@click.option("--kind", help="What to release; `dbern target list` has the kinds.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A key of the target, as in TOML."
)
@click.option("--label", metavar="COLUMN=A,B", help="Classes, for the kinds that need them.")
@click.option("--response", metavar="COLUMN=LOW,HIGH", help="Likewise.")
@click.option("--group", metavar="COLUMN=A,B", help="Groups, for the kinds that take them.")
@click.option("--filter", metavar="COLUMN=A,B", help="Of rows, those that count.")
@click.option("--unit", metavar="COLUMN=N", help="Whose rows are protected, N of one at most.")
@click.option("--neighbors", help="replace-one or add-or-remove-one.  [default: replace-one]")
@click.option("--normalizer", metavar="N", help="Public, where the number of rows is private.")
@click.option("--epsilon", metavar='"1.0"', help="What the release costs.")
@click.option("--delta", default="0", show_default=True, help="Above 0 for Gaussian noise.")
@click.option("--ledger", default="sqlite:///ledger.db", show_default=True, metavar="URL")
@click.option("--dataset", metavar="NAME", help="The account that pays.")
@click.option(
    "--show",
    metavar="SOURCE",
    help="Show columns and types of Parquet files instead. It never shows a value or a statistic.",
)
@common
def init(spec_path: Path, show: str | None, quiet: bool, **options: Any) -> tuple[Any, str]:
    """Write a commented spec of these options. Reads no data and overwrites no file.

    For example: dbern init --source "trips/*.parquet" --axis x=0,10 --axis y=0,10 --set
    "bandwidth=[0.6, 0.6]" --epsilon 1.0 --dataset city
    """
    from dbern.data.source_schemas import inspect_source
    from dbern.ledger.accounts import grant_command
    from dbern.ledger.entries import Terms
    from dbern.planning.planner import counts_rows

    if show is not None:
        source = inspect_source(show)
        return source.to_dict(), source.explain()
    if spec_path.suffix == ".parquet" or spec_path.is_dir():
        raise SpecError(
            f"{spec_path}: is data, and init writes a spec. Write dbern init release.toml --source "
            f'"{spec_path}" --axis COLUMN=LOW,HIGH --epsilon 1.0 --dataset NAME, with columns '
            f'that this shows: dbern init --show "{spec_path}"'
        )
    if spec_path.exists():
        raise SpecError(f"{spec_path}: exists and is left as it is. Write dbern init OTHER.toml")
    folder, slots = spec_path.resolve().parent, _slots_of(options, spec_path.stem)
    text = _SPEC.format(**slots)
    try:
        spec = _loaded_spec(tomllib.loads(text), folder)
    except SpecError as error:
        raise _missing_option(error) from None
    questions = ""
    if counts_rows(spec, spec.components):
        questions = _OF_REGRESSION if spec.records.response else _OF_DENSITY
        types = _types_of_axes(spec, folder)
        resolution = _resolution_text(spec, types)
        slots |= {"questions": f"{questions}\n", "resolution": f"{resolution}\n\n"}
        slots["target"] = _periodic_target(slots, spec, types, folder)
        text = _SPEC.format(**slots)
    try:
        with spec_path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise SpecError(
            f"{spec_path}: cannot be made ({error.strerror}). Name a new file in a folder that "
            "exists and is writable"
        ) from None
    content = tomllib.loads(text)["budget"]
    terms = Terms(spec.protection.neighbors, spec.protection.unit)
    partition = " --partition P" if "{partition}" in text else ""
    following = [
        f"dbern plan {spec_path}{partition}",
        f"dbern ledger init --ledger {content['ledger']}",
        grant_command(content["ledger"], content["dataset"], spec.charge, terms),
        f"dbern release {spec_path}{partition}",
    ]
    if questions == _OF_DENSITY and not partition:
        output, axis = tomllib.loads(text)["release"]["output"], spec.domain.names[0]
        following.append(f'dbern ask {output} --mean --quantile "{axis}=.5"')
    lines = [f"wrote {spec_path}; read it, then:", *(f"  {line}" for line in following)]
    text = f"wrote {spec_path}" if quiet else "\n".join(lines)
    return {"spec": str(spec_path), "next": following}, text


def _loaded_spec(content: _Sections, folder: Path) -> ReleaseSpec:
    """Refuse sections that are no spec; one that goes into a folder may name modules there."""
    from dbern.planning.spec import ReleaseSpec
    from dbern.system import importable

    filled = copy.deepcopy(content)
    for section, key in (("release", "name"), ("release", "output"), ("data", "source")):
        with suppress(KeyError):  # a placeholder is filled by --partition when it is used
            filled[section][key] = filled[section][key].replace("{partition}", "p")
    with importable(folder):
        return ReleaseSpec(**filled)


def _missing_option(error: SpecError) -> Exception:
    """Return the option that gives what a spec lacks, or the error where none does."""
    key = str(error).partition(": is missing")[0].removeprefix("data.")
    return _missing(key) if key in _EXAMPLES else error


def _missing(*names: str) -> click.UsageError:
    options = "option" if len(names) == 1 else "options"
    examples = " ".join(f"--{name} {_EXAMPLES[name]}" for name in names)
    listed = ", ".join(f"'--{name}'" for name in names)
    return click.UsageError(f"Missing {options} {listed}. Write for example {examples}")


def _slots_of(options: dict[str, Any], stem: str) -> dict[str, str]:
    """Return what `_SPEC` says of these options, as TOML; what the spec itself decides is empty."""
    from dbern.targets import kinds, learner_of

    sections = _read_sections(options, stem)
    learner = learner_of(options["kind"] or kinds()[0])
    unused = [role for role in _ROLES if options[role] and role not in (*learner.uses, "filter")]
    if unused:
        raise click.UsageError(f"--{unused[0]}: {learner.kind} has no use for it. Leave it out")
    settings, data = _read_settings(learner, options["settings"]), sections["data"]
    values = {**sections["release"], "source": data["source"], **sections["budget"]}
    return {
        **{key: _toml(value) for key, value in values.items()},
        "protection": "\n".join(
            default
            if data.get(key, "replace-one") == "replace-one"
            else line.format(_toml(data[key]))
            for key, (line, default) in _PROTECTION.items()
        ),
        "bounds": "\n".join(_line(column, bounds) for column, bounds in data["bounds"].items()),
        "roles": "".join(_role_text(role, data[role]) for role in _ROLES if role in data),
        "resolution": "",
        "target": "\n".join(_target_lines(learner, settings)),
        "questions": "",
    }


def _read_sections(options: dict[str, Any], stem: str) -> _Sections:
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
    data |= {role: _role_of(role, options[role]) for role in _ROLES if options[role]}
    if options["unit"]:
        data["unit"] = _unit_of(options["unit"])
    data |= {key: options[key] for key in ("neighbors", "normalizer") if options[key]}
    return {
        "release": {"name": name, "output": options["output"] or f"{name}.zarr"},
        "data": data,
        "budget": {key: options[key] for key in ("epsilon", "delta", "ledger", "dataset")},
    }


def _role_of(role: str, text: str) -> dict[str, Any]:
    if role == "response":
        column, public = _bounds_of(role, text)
        return {"column": column, "bounds": public}
    column, values = _split(role, text)
    return {
        "column": column, _ROLES[role][0]: [_category(value.strip()) for value in values.split(",")]
    }  # fmt: skip


def _unit_of(text: str) -> dict[str, Any]:
    # A colon is how `dbern ledger grant` has it.
    column, max_rows = _split("unit", re.sub(r":(?=\d+$)", "=", text))
    if not re.fullmatch(r"\d+", max_rows):
        message = f'"{text}": write {column}=8, the most rows of one that count'
        raise click.BadParameter(message, param_hint="--unit")
    return {"column": column, "max_contributions": int(max_rows)}


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


def _split(option: str, text: str) -> tuple[str, str]:
    """Return a column, and what is said of it after an equals sign."""
    column, equals, rest = text.partition("=")
    if not equals or not column.strip():
        raise click.BadParameter(f'"{text}": write column=values', param_hint=f"--{option}")
    return column.strip(), rest.strip()


def _category(text: str) -> str | int | bool:
    """Return a value of a public list."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch("-?[0-9]{1,19}", text) else text


def _read_settings(learner: type[Learner], texts: tuple[str, ...]) -> dict[str, str]:
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
        example = fields[key].description or f"{key} = .."
        raise click.UsageError(f"Missing option '--set': {learner.kind} needs {example}")
    return stated | automatic


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter("write KEY=VALUE", param_hint="--set")
    return key.strip(), value.strip()


def _takes_auto(field: FieldInfo) -> bool:
    """Return whether a key of a target may be "auto": what follows from public numbers."""
    return any("auto" in get_args(choice) for choice in get_args(field.annotation))


def _types_of_axes(spec: ReleaseSpec, folder: Path) -> _Types:
    """Read schemas where the files are there already, and no value."""
    from dbern.data.source_schemas import types_of

    source = spec.data.source or ""
    if not is_url(source):
        base = glob.escape(str(folder)) if glob.has_magic(source) else folder
        source = str(Path(base) / source)
    with suppress(DbernError):  # of files that are not there yet, or cannot be read from here
        return types_of(source, spec.records.domain.numeric)
    return {}


def _periodic_target(slots: dict[str, str], spec: ReleaseSpec, types: _Types, folder: Path) -> str:
    """Return the target, a density of times of day with periodic edges where it may have them.

    It may not where edges are stated, or such a spec is refused: of too wide a kernel.
    """
    from dbern.data.source_schemas import clocks_of

    target = slots["target"]
    params, axes = spec.learner.get_params(), spec.records.domain.numeric
    clocks = clocks_of(axes, types)
    if not clocks or "edges" not in params or params["edges"] is not None:
        return target
    edges = ["periodic" if axis.name in clocks else "natural" for axis in axes]
    line = _line("edges", edges if len(edges) > 1 else edges[0])
    periodic = f"{target}\n{line}  # times of day go on at midnight"
    content = tomllib.loads(_SPEC.format(**slots | {"target": periodic}))
    with suppress(SpecError):
        return periodic if _loaded_spec(content, folder).components else target
    return target


def _resolution_text(spec: ReleaseSpec, types: _Types) -> str:
    """Write what each axis counts in by its column's type, and ask where that is open."""
    from dbern.data.source_schemas import clocks_of, resolutions_of

    axes = spec.records.domain.numeric
    resolutions = resolutions_of(axes, types)
    counted = [
        f"{toml_key(name)} = {_toml(step).removesuffix('.0')}" for name, step in resolutions.items()
    ]
    known = {*resolutions, *clocks_of(axes, types)}  # hours have no decimal step
    rest = [axis.name for axis in axes if axis.name not in known]
    text = [_COUNTED, *counted] if counted else []
    return "\n".join([*text, *([_OPEN.format(", ".join(rest), toml_key(rest[0]))] if rest else [])])


def _role_text(role: str, section: dict[str, Any]) -> str:
    lines = [f"[data.{role}]", *(_line(key, value) for key, value in section.items())]
    return "\n".join(lines) + f"  # {_ROLES[role][2]}\n\n"


def _target_lines(learner: type[Learner], settings: dict[str, str]) -> list[str]:
    lines = [_line("kind", learner.kind)]
    for key, text in settings.items():
        description = learner.model_fields[key].description
        chosen = "chosen by public or released numbers; or " if text == '"auto"' else ""
        lines.append(f"{key} = {text}{f'  # {chosen}as in: {description}' if description else ''}")
    return lines + [
        f"# {_line(key, field.default)}"
        for key, field in learner.model_fields.items()
        if key not in settings and isinstance(field.default, str | float | int)
    ]


def _line(key: str, value: Any) -> str:
    return f"{toml_key(key)} = {_toml(value)}"


def _toml(value: Any) -> str:
    match value:
        case dict():
            return f"{{ {', '.join(_line(key, entry) for key, entry in value.items())} }}"
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case str() | int() | float():
            return json.dumps(value, ensure_ascii=False)
    return str(value.isoformat())
