"""``dbern init``, ``target`` and ``doctor``: what comes before a first release.

`init` asks for what a spec needs, checks each answer, and writes the spec. Answers come from
options or a terminal. Until all are given placeholders stand for the rest of the spec, so each
answer is checked as a spec would be.
"""

from __future__ import annotations

import copy
import json
import re
import sys
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbern.cli.output import common
from dbern.errors import SpecError

if TYPE_CHECKING:
    from dbern.data.domain import Bound
    from dbern.planning.spec import ReleaseSpec
    from dbern.targets import Learner


# --- What dbern init is told, by options or on a terminal, each answer checked when it is given


ROLES = {
    "label": ("classes", "column=no,yes", "the public list; with two, the second is +1"),
    "response": ("bounds", "column=-1.0,1.0", "public; values outside are moved to the bounds"),
    "group": ("values", "column=a,b", "the public list"),
    "filter": ("values", "column=done", "the public list: other rows count nothing"),
}
"""By the name of a section of the data: its other key, an example, and what to know of it."""

_PLACEHOLDERS: dict[str, dict[str, Any]] = {
    "release": {"name": "release", "output": "release.zarr"},
    "data": {"source": "data.parquet"},
    "budget": {"epsilon": "1.0", "ledger": "sqlite:///ledger.db", "dataset": "dataset"},
}
_NEEDED: dict[str, Any] = {
    "label": {"column": "a label", "classes": [False, True]},
    "response": {"column": "a response", "bounds": [-1.0, 1.0]},
    "group": {"column": "a group", "values": [1]},
    "normalizer": "1000000",
}
_MOST_ASKED = 6  # axes; options give more


class Answers:
    """Options by name, and questions for those that are None or wrong, where there is a terminal.

    With `asks` a wrong answer is asked for again, with what is wrong with it, and all others stay.
    Otherwise it is refused. The spec goes into `folder`.
    """

    def __init__(self, given: dict[str, Any], *, asks: bool, folder: Path) -> None:
        self._given, self._asks, self._folder = given, asks, folder
        self._awaited: set[str] = set()
        self.content: dict[str, dict[str, Any]] = {"release": {}, "data": {}, "budget": {}}

    def __call__(self, section: str, key: str, question: str, default: str | None = None) -> str:
        """Ask for one key of the spec; returns its text."""
        return self._answer(key, question, default, lambda text: self._put(section, key, text))

    def axes(self) -> dict[str, list[Bound]]:
        """Ask for the bounds of each axis; returns them by column."""
        for text in self._given["axes"]:
            self._answer("axis", "Axis and its public limits (column=low,high)", None, self._axis,
                         text)  # fmt: skip
        if not self._given["axes"]:
            question = "First axis and its public limits (column=low,high)"
            self._answer("axis", question, None, self._axis)
            while len(self.bounds) < _MOST_ASKED and self._answer(
                "axis", "Another axis (empty for none)", "", self._axis
            ):
                pass
        return self.bounds

    def kind(self, question: str, default: str) -> str:
        """Ask for the kind of the target, which there must be."""
        from dbern.targets import learner_of

        return self._answer("kind", question, default, learner_of)

    def needs(self, learner: type[Learner], role: str) -> bool:
        """Whether the learner itself refuses records without a label, response or group."""
        from dbern.data.domain import Axis, Domain, RecordSchema, bounds_of

        parameters = {k: value for k, value in self.content["target"].items() if k != "kind"}
        axes = (
            Axis(column, *bounds_of(pair, f"data.bounds.{column}"))
            for column, pair in self.bounds.items()
        )
        try:
            learner(**parameters).components(RecordSchema(Domain(tuple(axes))))
        except SpecError as error:
            return str(error).startswith(f"data.{role}:")
        return False

    @property
    def bounds(self) -> dict[str, list[Bound]]:
        """Of the axes so far."""
        found: dict[str, list[Bound]] = self.content["data"].setdefault("bounds", {})
        return found

    def settings(self, learner: type[Learner]) -> dict[str, str]:
        """Ask for the target's keys; returns their TOML by key."""
        texts: dict[str, str] = {}

        def put(key: str) -> Callable[[str], None]:
            def found(text: str) -> None:
                self.content["target"][key] = _toml_value(key, text)
                texts[key] = text

            return found

        self.content["target"] = {"kind": learner.kind}
        for text in self._given["settings"]:
            key, equals, value = text.partition("=")
            if not equals:
                raise click.BadParameter("write KEY=VALUE", param_hint="--set")
            if key.strip() not in learner.model_fields:
                known = ", ".join(learner.model_fields)
                raise click.BadParameter(
                    f"{key.strip()}: {learner.kind} has no such key. Write one of: {known}",
                    param_hint="--set",
                )
            put(key.strip())(value.strip())
        fields = learner.model_fields
        needed = [
            key
            for key, field in fields.items()
            if field.is_required() and key not in texts and learner.instead.get(key) not in texts
        ]
        for key in needed if not self._asks else ():
            example = (fields[key].description or f"{key} = ..").partition(",  ")[0]
            raise click.UsageError(f"Missing option '--set': {learner.kind} needs {example}")
        self._awaited = {f"target.{key}" for key in needed}
        for key in needed:
            self._awaited.discard(f"target.{key}")
            self._answer("set", f"target.{key} ({fields[key].description})", None, put(key))
        self._check_settings(learner, put)
        return texts

    def _check_settings(
        self, learner: type[Learner], put: Callable[[str], Callable[[str], None]]
    ) -> None:
        while self._asks and (wrong := self._problem()):
            key = wrong.partition(":")[0].removeprefix("target.")
            if key not in learner.model_fields:
                raise SpecError(wrong)
            click.echo(wrong, err=True)
            self.content["target"].pop(key, None)
            what = learner.model_fields[key].description
            self._answer("set", f"target.{key} ({what})", None, put(key))

    def role(self, role: str, *, needed: bool) -> None:
        """Ask for the section of a label, response, group or filter, which may be left out."""
        other, example, _ = ROLES[role]

        def put(text: str) -> None:
            if not text and not needed:
                return
            column, values = split(role, text)
            found: Any = [category(one) for one in values.split(",")]
            if role == "response":
                _, found = limits(role, f"{column}={values}")
            self._put("data", role, {"column": column, other: found})

        asked = needed or role == "filter"  # groups and labels that may be left out are options
        if asked or self._given[role] is not None:
            empty = "" if needed else "; empty for none"
            question = f"{role.capitalize()} column and its public values ({example}{empty})"
            self._answer(role, question, None if needed else "", put)

    def protection(self) -> None:
        """Ask whose data it is: unit, neighbors and, where n is private, a normalizer."""

        def put(text: str) -> None:
            if text:
                # A colon is how `dbern ledger grant` has it.
                column, most = split("unit", re.sub(r":(?=\d+$)", "=", text))
                if not re.fullmatch(r"\d+", most):
                    raise click.BadParameter(
                        f'"{text}": write {column}=8, the most rows of one that count',
                        param_hint="--unit",
                    )
                self._put("data", "unit", {"column": column, "max_contributions": int(most)})

        self._answer("unit", "Whose rows are protected (user=8, column and the most rows of one "
                     "that count; empty for each row)", "", put)  # fmt: skip
        self("data", "neighbors", "Neighbors (replace-one or add-or-remove-one)", "replace-one")
        data = self.content["data"]
        private = "unit" in data or data["neighbors"] == "add-or-remove-one"
        if private or self._given["normalizer"] is not None:
            self("data", "normalizer", "Normalizer, a public number near that of the rows")

    def _answer(
        self,
        key: str,
        question: str,
        default: str | None,
        put: Callable[[str], object],
        given: str | None = None,
    ) -> str:
        """One answer, put into the spec; it is asked for until nothing is wrong with it."""
        text = given if given is not None else self._given.get(key)
        while True:
            if text is None:
                text = self._prompt(key, question, default)
            before = copy.deepcopy(self.content)
            try:
                put(str(text))
                self._refuse_wrong()
            except (SpecError, click.BadParameter) as error:
                if not self._asks:
                    raise
                self.content = before
                click.echo(str(error), err=True)
                text = None
            else:
                return str(text)

    def _refuse_wrong(self) -> None:
        if self._asks and (wrong := self._problem()):
            raise SpecError(wrong)

    def _prompt(self, key: str, question: str, default: str | None) -> str:
        if self._asks:
            return str(click.prompt(question, default=default, err=True))
        if default is None:
            raise click.UsageError(f"Missing option '--{key}': {question}.")
        return default

    def _put(self, section: str, key: str, value: Any) -> None:
        self.content[section][key] = value

    def _axis(self, text: str) -> None:
        if text:
            column, pair = limits("axis", text)
            if column in self.bounds:
                raise click.BadParameter(f'"{column}" is an axis already', param_hint="--axis")
            self.bounds[column] = pair

    def _problem(self) -> str:
        """What is wrong with the spec so far, the rest a placeholder; empty for nothing."""
        from dbern.targets import PLACEHOLDER

        content = {
            name: {**_PLACEHOLDERS.get(name, {}), **self.content.get(name, {})}
            for name in ("release", "data", "target", "budget")
        }
        content["target"] = content["target"] or PLACEHOLDER
        content["data"]["bounds"] = content["data"].get("bounds") or {"an axis": [0.0, 1.0]}
        for _ in range(len(_NEEDED) + 1):
            try:
                _loaded(content, self._folder)
            except SpecError as error:
                lines = str(error).splitlines()
            else:
                return ""
            key = lines[0].partition(": is missing")[0].removeprefix("data.")
            if key not in _NEEDED or key in content["data"]:
                break
            content["data"][key] = _NEEDED[key]  # it is asked for later
        wrong = [line for line in lines if line.partition(": is missing")[0] not in self._awaited]
        return "\n".join(wrong)


def _loaded(content: dict[str, dict[str, Any]], folder: Path) -> ReleaseSpec:
    """Refuse sections that are no spec; one that goes into a folder may name modules there."""
    from dbern.planning.spec import ReleaseSpec
    from dbern.system import importable

    filled = copy.deepcopy(content)
    for section, key in (("release", "name"), ("release", "output"), ("data", "source")):
        with suppress(KeyError):  # a placeholder is filled by --partition when it is used
            filled[section][key] = filled[section][key].replace("{partition}", "p")
    with importable(folder):
        return ReleaseSpec(**filled)


def split(key: str, text: str) -> tuple[str, str]:
    """Return a column, and what is said of it after an equals sign."""
    column, equals, rest = text.partition("=")
    if not equals or not column.strip():
        raise click.BadParameter(f'"{text}": write column=values', param_hint=f"--{key}")
    return column.strip(), rest.strip()


def limits(key: str, text: str) -> tuple[str, list[Bound]]:
    """Return a column and its two limits: numbers, dates or times."""
    column, rest = split(key, text)
    try:
        low, high = (_limit(part.strip()) for part in rest.split(","))
    except ValueError:
        raise click.BadParameter(
            f'"{text}": write {column}=low,high', param_hint=f"--{key}"
        ) from None
    return column, [low, high]


def _limit(text: str) -> Bound:
    from dbern.data.domain import moment_of

    try:
        return float(text)
    except ValueError:
        return moment_of(text)


def category(text: str) -> str | int | bool:
    """Return a value of a public list."""
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch("-?[0-9]{1,19}", text) else text


def _toml_value(key: str, text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        raise click.BadParameter(
            f"{key}: {text} is not a TOML value. Write a number, [0.5, 0.5] or a text in quotes",
            param_hint="--set",
        ) from None


# --- dbern init

_BETA = '# beta = "0.05"  # the certificate holds with probability 1 - beta'
_QUESTIONS = """\
# If shares of rows and quantiles will be asked, let bins be narrow enough for them, and write
# here: questions = ["density", "mass", "quantile"]"""
_HEAD = """\
# A release of dbern. Every value in this file must be public knowledge, chosen without looking at
# the records: the guarantee covers what is released, not a choice made after plotting the data.
# Keys that start with "# " have the default shown. docs/spec.md explains each.
"""


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
def init(
    spec_path: Path, show: str | None, as_json: bool, quiet: bool, **given: Any
) -> tuple[Any, str]:
    """Write a commented spec, asking for what no option gives.

    On a terminal it asks again for an answer that is wrong. Reads no data and overwrites no file.

    For example: dbern init --source "trips/*.parquet" --axis x=0,10 --axis y=0,10 --set
    "bandwidth=[0.6, 0.6]" --epsilon 1.0 --dataset city
    """
    from dbern.data.inspection import inspect_source
    from dbern.planning.planner import counts_rows

    if show is not None:
        source = inspect_source(show)
        return source.to_dict(), source.explain()
    if spec_path.exists():
        raise SpecError(f"{spec_path}: exists and is left as it is. Write dbern init OTHER.toml")
    asks, folder = not as_json and terminal(), spec_path.resolve().parent
    text = _text(spec_path, Answers(given, asks=asks, folder=folder), given)
    spec = _loaded(tomllib.loads(text), folder)
    if counts_rows(spec, spec.components):
        text = text.replace(_BETA, f"{_BETA}\n{_QUESTIONS}")
    try:
        with spec_path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise SpecError(
            f"{spec_path}: cannot be made ({error.strerror}). Name a new file in a folder that "
            "exists and is writable"
        ) from None
    content = tomllib.loads(text)["budget"]
    account = f"--ledger {content['ledger']} --dataset {content['dataset']}"
    following = [
        f"dbern plan {spec_path}",
        f"dbern ledger init --ledger {content['ledger']}",
        f'dbern ledger grant {account} --epsilon "{content["epsilon"]}"'
        + (f' --delta "{content["delta"]}"' if content["delta"] != "0" else ""),
        f"dbern release {spec_path}",
    ]
    lines = [f"wrote {spec_path}; read it, then:", *(f"  {line}" for line in following)]
    text = f"wrote {spec_path}" if quiet else "\n".join(lines)
    return {"spec": str(spec_path), "next": following}, text


def terminal() -> bool:
    """Whether there is someone to ask."""
    return sys.stdin.isatty()


def _pair(limits: list[Bound]) -> str:
    texts = (json.dumps(one) if isinstance(one, float) else one.isoformat() for one in limits)
    return f"[{', '.join(texts)}]"


def _toml_key(name: str) -> str:
    bare = re.fullmatch("[A-Za-z0-9_-]+", name)
    return name if bare else json.dumps(name, ensure_ascii=False)


def _text(path: Path, answers: Answers, given: dict[str, Any]) -> str:
    from dbern.targets import kinds, learner_of

    name = answers("release", "name", "Name of the release", path.stem)
    source = answers("data", "source", 'Parquet files, as "data/*.parquet"')
    axes = answers.axes()
    kind = answers.kind(f"What to release ({', '.join(kinds())})", kinds()[0])
    learner = learner_of(kind)
    settings = answers.settings(learner)
    for role in (one for one in learner.uses if one in ROLES):
        answers.role(role, needed=answers.needs(learner, role))
    unused = [role for role in ROLES if given[role] and role not in (*learner.uses, "filter")]
    if unused:
        raise click.UsageError(f"--{unused[0]}: {kind} has no use for it. Leave it out")
    answers.role("filter", needed=False)
    answers.protection()
    answers("budget", "epsilon", "Epsilon, an exact decimal")
    answers("budget", "delta", "")
    answers("budget", "ledger", "")
    dataset = answers("budget", "dataset", "Dataset, the account that pays")
    output = answers("release", "output", "Folder of the synopsis", f"{name}.zarr")
    data, budget = answers.content["data"], answers.content["budget"]
    parts = [
        _HEAD,
        "[release]",
        f"name   = {json.dumps(name)}  # with the dataset it names the release: another name pays "
        "again",
        f"output = {json.dumps(output)}  # must not exist",
        "",
        "[data]",
        f"source = {json.dumps(source)}  # a file, a folder or a glob, relative to this file",
        *_protection(data),
        '# outside = "drop"  # a value outside its bounds: the row counts nothing; or "clamp"',
        "",
        "[data.bounds]  # one line per axis; public limits, never the data's own extremes",
        *(f"{_toml_key(column)} = {_pair(limits)}" for column, limits in axes.items()),
        "",
        *(_role(role, data[role]) for role in ROLES if role in data),
        *_target(learner, kind, settings),
        "[mechanism]  # all of it may be left to the plan",
        '# objective = "typical"  # make small the error on a typical database; or "certified"',
        _BETA,
        "",
        "[budget]  # exact decimals in quotes",
        *(f"{key} = {json.dumps(budget[key])}" for key in ("epsilon", "delta", "ledger")),
        f"dataset = {json.dumps(dataset)}  # as in: dbern ledger grant --dataset ..",
        "",
    ]
    return "\n".join(parts)


def _protection(data: dict[str, Any]) -> list[str]:
    unit, lines = data.get("unit"), []
    if "normalizer" in data:
        lines.append(
            f"normalizer = {json.dumps(data['normalizer'])}  # public; sums are divided by it, and "
            "the number of rows is private"
        )
    else:
        lines.append("# n = 1000000  # public number of rows; left out, it is read from the files' "
                     "footers")  # fmt: skip
    if unit:
        found = f"column = {json.dumps(unit['column'])}, max_contributions = "
        found += str(unit["max_contributions"])
        lines.append(f"unit = {{ {found} }}  # all rows of one together, of which so many count")
    else:
        lines.append('# unit = "row"  # or { column = "user", max_contributions = 8 }, all rows of '
                     'a user, with normalizer = "1000000" in place of n')  # fmt: skip
    if data["neighbors"] != "replace-one":
        lines.append(f"neighbors = {json.dumps(data['neighbors'])}  # a unit is there or not")
    else:
        lines.append('# neighbors = "replace-one"  # or "add-or-remove-one", with a normalizer too')
    return lines


def _role(role: str, section: dict[str, Any]) -> str:
    key, _, why = ROLES[role]
    values = section[key]
    shown = _pair(values) if role == "response" else json.dumps(values, ensure_ascii=False)
    lines = [f"[data.{role}]", f"column = {json.dumps(section['column'])}"]
    return "\n".join([*lines, f"{key} = {shown}  # {why}", ""])


def _target(learner: type[Learner], kind: str, settings: dict[str, str]) -> list[str]:
    lines = ["[target]", f"kind = {json.dumps(kind)}"]
    for key, value in settings.items():
        field = learner.model_fields.get(key)
        why = f"  # as in: {field.description}" if field and field.description else ""
        lines.append(f"{key} = {value}{why}")
    for key, field in learner.model_fields.items():
        if key not in settings and isinstance(field.default, str | float | int):
            lines.append(f"# {key} = {json.dumps(field.default)}")
    return [*lines, ""]


# --- dbern target: which functions of the data there are


@click.group()
def target() -> None:
    """Show what can be released: list."""


@target.command("list")
@common
def list_targets() -> tuple[Any, str]:
    """Show every learner with a line of description, and its keys."""
    from dbern.targets import kinds

    found = [_described(kind) for kind in kinds()]
    lines = []
    for one in found:
        lines.append(f"{one['kind']:<26}{one['summary']}")
        for key in one["keys"]:
            free = "" if key["required"] else "  [may be left out]"
            lines.append(f"    {key['key']:<22}{key['write']}{free}")
        lines += [f"    [data.{role}]" for role in one["reads"]]
    return {"targets": found}, "\n".join(lines)


def _described(kind: str) -> dict[str, Any]:
    from dbern.targets import learner_of

    try:
        learner = learner_of(kind)
    except Exception as error:  # noqa: BLE001 -- another's package may fail in any way to import
        summary = f"cannot be imported ({type(error).__name__}). Mend or remove its package"
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


# --- dbern doctor: does this installation hold what a release relies on


_ENVIRONMENT = 4


@click.command()
@click.option("--ledger", "url", metavar="URL", help="Look at this ledger, as sqlite:///ledger.db.")
@click.option("--scheduler", metavar="ADDRESS", help="Look at this Dask cluster.")
@click.option(
    "--output", metavar="PATH", type=click.Path(), help="Where a synopsis is to go: path or URL."
)
@common
def doctor(
    url: str | None, scheduler: str | None, output: str | None, quiet: bool
) -> tuple[Any, str, int]:
    """Check an installation and say how to mend it.

    Reads no record and spends no budget. Checks versions and the clock, and what you name: a
    ledger's permissions and locks, or its database connection; an output's file system or store; a
    cluster's transport, dashboards, versions and memory. Exit code 4 means that something must be
    mended before a release. Warnings alone end with 0.
    """
    from dbern.cli import diagnosis

    findings = diagnosis.installation()
    if url is not None:
        findings += diagnosis.ledger(url)
    if output is not None:
        findings += diagnosis.output(output)
    if scheduler is not None:
        findings += diagnosis.scheduler(scheduler)
    broken = sum(finding.state == "mend" for finding in findings)
    lines = []
    for one in findings:
        if quiet and one.state == "good":
            continue
        lines.append(f"{one.state:<6}{one.what:<18}{one.found}")
        if one.mend:
            lines.append(f"{'':<24}{one.mend}")
    warned = sum(finding.state == "warn" for finding in findings)
    lines.append(f"{broken} to mend, {warned} warned, {len(findings) - broken - warned} good")
    content = {"ok": not broken, "findings": [vars(finding) for finding in findings]}
    return content, "\n".join(lines), _ENVIRONMENT if broken else 0
