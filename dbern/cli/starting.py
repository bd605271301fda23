"""``dbern init``: a commented spec of what options say."""

from __future__ import annotations

import glob
import json
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbern.cli.answers import ROLES, loaded_spec, missing_option, read_sections, read_settings
from dbern.cli.output import common
from dbern.errors import DbernError, SpecError
from dbern.system import is_url, toml_key

if TYPE_CHECKING:
    from dbern.planning.spec import ReleaseSpec
    from dbern.targets import Learner

_BETA = '# beta = "0.05"  # the certificate holds with probability 1 - beta'
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
_SPEC = f"""\
# A release of dbern. Every value in this file must be public knowledge, chosen without looking at
# the records: the guarantee covers what is released, not a choice made after plotting the data.
# Keys that start with "# " have the default shown. docs/spec.md explains each.

[release]
name   = {{name}}  # with the dataset it names the release: another name pays again
output = {{output}}  # must not exist

[data]
source = {{source}}  # a file, a folder or a glob, relative to this file
{{protection}}
# outside = "drop"  # a value outside its bounds: the row counts nothing; or "clamp"

[data.bounds]  # one line per axis; public limits, never the data's own extremes
{{bounds}}

{{roles}}[target]
{{target}}

[mechanism]  # all of it may be left to the plan
# objective = "typical"  # make small the error on a typical database; or "certified"
{_BETA}

[budget]  # exact decimals in quotes
epsilon = {{epsilon}}
delta = {{delta}}
ledger = {{ledger}}
dataset = {{dataset}}  # as in: dbern ledger grant --dataset ..
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
    from dbern.data.sources import inspect_source
    from dbern.ledger.accounts import grant_command
    from dbern.ledger.values import Terms
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
    folder, text = spec_path.resolve().parent, _spec_text(options, spec_path.stem)
    try:
        spec = loaded_spec(tomllib.loads(text), folder)
    except SpecError as error:
        raise missing_option(error) from None
    if counts_rows(spec, spec.components):
        questions = _OF_REGRESSION if spec.records.response else _OF_DENSITY
        text = text.replace(_BETA, f"{_BETA}\n{questions}")
        resolution = _resolution_text(spec, folder)
        text = text.replace("\n\n[target]\n", f"\n\n{resolution}\n\n[target]\n", 1)
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
    if _OF_DENSITY in text and not partition:
        output, axis = tomllib.loads(text)["release"]["output"], spec.domain.names[0]
        following.append(f'dbern ask {output} --mean --quantile "{axis}=.5"')
    lines = [f"wrote {spec_path}; read it, then:", *(f"  {line}" for line in following)]
    text = f"wrote {spec_path}" if quiet else "\n".join(lines)
    return {"spec": str(spec_path), "next": following}, text


def _spec_text(options: dict[str, Any], stem: str) -> str:
    """Return the spec of these options as TOML."""
    from dbern.targets import kinds, learner_of

    sections = read_sections(options, stem)
    learner = learner_of(options["kind"] or kinds()[0])
    unused = [role for role in ROLES if options[role] and role not in (*learner.uses, "filter")]
    if unused:
        raise click.UsageError(f"--{unused[0]}: {learner.kind} has no use for it. Leave it out")
    settings, data = read_settings(learner, options["settings"]), sections["data"]
    values = {**sections["release"], "source": data["source"], **sections["budget"]}
    return _SPEC.format(
        **{key: _toml(value) for key, value in values.items()},
        protection="\n".join(
            default
            if data.get(key, "replace-one") == "replace-one"
            else line.format(_toml(data[key]))
            for key, (line, default) in _PROTECTION.items()
        ),
        bounds="\n".join(_line(column, bounds) for column, bounds in data["bounds"].items()),
        roles="".join(_role_text(role, data[role]) for role in ROLES if role in data),
        target="\n".join(_target_lines(learner, settings)),
    )


def _resolution_text(spec: ReleaseSpec, folder: Path) -> str:
    """Write what each axis counts in by its column's type, and ask where that is open.

    Schemas are read where the files are there already, and no value.
    """
    from dbern.data.sources import resolutions_of

    source = spec.data.source or ""
    if not is_url(source):
        base = glob.escape(str(folder)) if glob.has_magic(source) else folder
        source = str(Path(base) / source)
    axes, resolutions = spec.records.domain.numeric, dict[str, float]()
    with suppress(DbernError):  # of files that are not there yet, or cannot be read from here
        resolutions = resolutions_of(source, axes)
    counted = [
        f"{toml_key(name)} = {_toml(step).removesuffix('.0')}" for name, step in resolutions.items()
    ]
    rest = [axis.name for axis in axes if axis.name not in resolutions]
    text = [_COUNTED, *counted] if counted else []
    return "\n".join([*text, *([_OPEN.format(", ".join(rest), toml_key(rest[0]))] if rest else [])])


def _toml(value: Any) -> str:
    match value:
        case dict():
            return f"{{ {', '.join(_line(key, entry) for key, entry in value.items())} }}"
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case str() | int() | float():
            return json.dumps(value, ensure_ascii=False)
    return str(value.isoformat())


def _line(key: str, value: Any) -> str:
    return f"{toml_key(key)} = {_toml(value)}"


def _role_text(role: str, section: dict[str, Any]) -> str:
    lines = [f"[data.{role}]", *(_line(key, value) for key, value in section.items())]
    return "\n".join(lines) + f"  # {ROLES[role][2]}\n\n"


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
