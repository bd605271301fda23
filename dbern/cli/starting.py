"""``dbern init``: a commented spec from public choices alone; no file of data is opened."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbern.cli.output import common, report
from dbern.errors import SpecError

if TYPE_CHECKING:
    from dbern.domain import Domain
    from dbern.targets import Learner
    from dbern.times import Bound

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ROLES = {
    "label": ("classes", "column=no,yes", "the public list; with two, the second is +1"),
    "response": ("bounds", "column=-1.0,1.0", "public; values outside are moved to the bounds"),
    "group": ("values", "column=a,b", "the public list"),
}
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
    help="One to six, more for some kinds; limits may be dates.",
)
@click.option("--kind", help="What to release; `dbern target list` has the kinds.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A key of the target, as in TOML."
)
@click.option("--label", metavar="COLUMN=A,B", help="Classes, for the kinds that need them.")
@click.option("--response", metavar="COLUMN=LOW,HIGH", help="Likewise.")
@click.option("--group", metavar="COLUMN=A,B", help="Groups, for the kinds that take them.")
@click.option("--epsilon", metavar='"1.0"', help="What the release costs.")
@click.option("--delta", default="0", show_default=True, help="Above 0 for Gaussian noise.")
@click.option("--ledger", default="sqlite:///ledger.db", show_default=True, metavar="URL")
@click.option("--dataset", metavar="NAME", help="The account that pays.")
@common
def init(spec_path: Path, as_json: bool, quiet: bool, **given: Any) -> None:
    """Write a commented spec, asking for what no option gives.

    Looks at no data and overwrites nothing.

    For example: dbern init --source "trips/*.parquet" --axis x=0,10 --axis y=0,10 --set
    "bandwidth=[0.6, 0.6]" --epsilon 1.0 --dataset city
    """
    del quiet
    if spec_path.exists():
        raise SpecError(f"{spec_path}: exists and is left as it is; write dbern init OTHER.toml")
    text = _text(spec_path, _Answers(given, as_json))
    _check(text)
    try:
        with spec_path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise SpecError(
            f"{spec_path}: cannot be made ({error.strerror}); name a new file in a folder that "
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
    report({"spec": str(spec_path), "next": following}, "\n".join(lines), as_json=as_json)


def _check(text: str) -> None:
    """Load what was written before it is: every error names its key."""
    from dbern.spec import ReleaseSpec

    content = tomllib.loads(text)
    for key in ("name", "output"):  # a placeholder is filled by --partition when it is used
        content["release"][key] = content["release"][key].replace("{partition}", "p")
    content["data"]["source"] = content["data"]["source"].replace("{partition}", "p")
    ReleaseSpec(**content)


class _Answers:
    """Options, and on a terminal questions for those that were left out."""

    def __init__(self, given: dict[str, Any], as_json: bool) -> None:
        self._given = given
        self._asks = not as_json and terminal()

    def __call__(self, key: str, question: str, default: str | None = None) -> str:
        value = self._given.get(key)
        if value is not None:
            return str(value)
        if self._asks:
            return str(click.prompt(question, default=default, err=True))
        if default is None:
            raise click.UsageError(f"Missing option '--{key}': {question}.")
        return default

    def axes(self) -> list[tuple[str, list[Bound]]]:
        texts = list(self._given["axes"])
        question = "First axis and its public limits (column=low,high)"
        while not texts and self._asks:
            texts = [str(click.prompt(question, err=True))]
            while len(texts) < 6 and (
                more := click.prompt("Another axis (empty for none)", default="", err=True)
            ):
                texts.append(more)
        if not texts:
            raise click.UsageError("Missing option '--axis': write --axis x=0,10, one per axis.")
        return [_limits("axis", text) for text in texts]

    def settings(self, learner: type[Learner]) -> dict[str, str]:
        """TOML by key of the target: what was set, and what the learner cannot do without."""
        values = {}
        for text in self._given["settings"]:
            key, equals, value = text.partition("=")
            if not equals:
                raise click.BadParameter("write KEY=VALUE", param_hint="--set")
            values[key.strip()] = value.strip()
        for key, field in learner.model_fields.items():
            stands_for_it = learner.instead.get(key)
            if key in values or stands_for_it in values or not field.is_required():
                continue
            if not self._asks:
                example = (field.description or f"{key} = ..").partition(",  ")[0]
                raise click.UsageError(f"Missing option '--set': {learner.kind} needs {example}")
            values[key] = click.prompt(f"target.{key} ({field.description})", err=True)
        return values

    def role(self, role: str, needed: bool) -> str | None:
        """The section of a label, response or group; None where it is left out."""
        _, example, _ = _ROLES[role]
        text = self._given[role]
        if text is None and not needed:
            return None
        column, values = _split(
            role, self(role, f"{role.capitalize()} column and its public values ({example})")
        )
        key, _, why = _ROLES[role]
        if role == "response":
            shown = _pair(_limits(role, f"{column}={values}")[1])
        else:
            shown = json.dumps([_category(one) for one in values.split(",")], ensure_ascii=False)
        lines = [f"[data.{role}]", f"column = {json.dumps(column)}"]
        return "\n".join([*lines, f"{key} = {shown}  # {why}", ""])


def terminal() -> bool:
    """Whether there is someone to ask."""
    return sys.stdin.isatty()


def _split(key: str, text: str) -> tuple[str, str]:
    column, equals, rest = text.partition("=")
    if not equals or not column.strip():
        raise click.BadParameter(f'"{text}": write column=values', param_hint=f"--{key}")
    return column.strip(), rest.strip()


def _limits(key: str, text: str) -> tuple[str, list[Bound]]:
    column, rest = _split(key, text)
    try:
        low, high = (_limit(part.strip()) for part in rest.split(","))
    except ValueError:
        raise click.BadParameter(
            f'"{text}": write {column}=low,high', param_hint=f"--{key}"
        ) from None
    return column, [low, high]


def _limit(text: str) -> Bound:
    from dbern.times import moment_of

    try:
        return float(text)
    except ValueError:
        return moment_of(text)


def _pair(limits: list[Bound]) -> str:
    """In TOML, which has dates and times of its own."""
    texts = (json.dumps(one) if isinstance(one, float) else one.isoformat() for one in limits)
    return f"[{', '.join(texts)}]"


def _category(text: str) -> str | int | bool:
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _text(path: Path, answers: _Answers) -> str:
    from dbern.domain import Axis, Domain
    from dbern.targets import kinds, learner_of
    from dbern.times import bounds_of

    name = answers("name", "Name of the release", path.stem)
    source = answers("source", 'Parquet files, as "data/*.parquet"')
    axes = answers.axes()
    kind = answers("kind", f"What to release ({', '.join(kinds())})", "kernel-density")
    learner = learner_of(kind)
    settings = answers.settings(learner)
    made = learner(**{key: _value(key, value) for key, value in settings.items()})
    domain = Domain(
        tuple(Axis(column, *bounds_of(pair, f"data.bounds.{column}")) for column, pair in axes)
    )
    roles = [answers.role(role, _needs(made, domain, role)) for role in learner.uses]
    unused = [role for role in _ROLES if answers._given[role] and role not in learner.uses]
    if unused:
        raise click.UsageError(f"--{unused[0]}: {kind} has no use for it; leave it out")
    epsilon = answers("epsilon", "Epsilon, an exact decimal")
    dataset = answers("dataset", "Dataset, the account that pays")
    budget = {"epsilon": epsilon, "delta": answers("delta", ""), "ledger": answers("ledger", "")}
    parts = [
        _HEAD,
        "[release]",
        f"name   = {json.dumps(name)}  # with the dataset it names the release: another name pays "
        "again",
        f"output = {json.dumps(answers('output', 'Folder of the synopsis', f'{name}.zarr'))}"
        "  # must not exist",
        "",
        "[data]",
        f"source = {json.dumps(source)}  # a file, a folder or a glob, relative to this file",
        "# n = 1000000  # public number of rows; left out, it is read from the files' footers",
        '# unit = "row"  # or { column = "user", max_contributions = 8 }, all rows of a user, with '
        'normalizer = "1000000" in place of n',
        '# neighbors = "replace-one"  # or "add-or-remove-one", with a normalizer too',
        '# outside = "drop"  # a value outside its bounds: the row counts nothing; or "clamp"',
        "",
        "[data.bounds]  # one line per axis; public limits, never the data's own extremes",
        *(f"{_key(column)} = {_pair(limits)}" for column, limits in axes),
        "",
        *(role for role in roles if role),
        *_target(learner, kind, settings),
        "[mechanism]  # all of it may be left to the plan",
        '# objective = "typical"  # make small the error on a typical database; or "certified"',
        '# beta = "0.05"  # the certificate holds with probability 1 - beta',
        "",
        "[budget]  # exact decimals in quotes",
        *(f"{key} = {json.dumps(value)}" for key, value in budget.items()),
        f"dataset = {json.dumps(dataset)}  # as in: dbern ledger grant --dataset ..",
        "",
    ]
    return "\n".join(parts)


def _target(learner: type[Learner], kind: str, settings: dict[str, str]) -> list[str]:
    lines = ["[target]", f"kind = {json.dumps(kind)}"]
    for key, value in settings.items():
        field = learner.model_fields.get(key)
        why = f"  # as in: {field.description}" if field and field.description else ""
        lines.append(f"{_key(key)} = {value}{why}")
    for key, field in learner.model_fields.items():
        if key not in settings and isinstance(field.default, str | float | int):
            lines.append(f"# {key} = {json.dumps(field.default)}")
    return [*lines, ""]


def _value(key: str, text: str) -> Any:
    """What a key of the target is set to."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        raise click.BadParameter(
            f"{key}: {text} is no TOML value; write a number, [0.5, 0.5] or a text in quotes",
            param_hint="--set",
        ) from None


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _needs(learner: Learner, domain: Domain, role: str) -> bool:
    """Whether the learner itself refuses records without the role."""
    from dbern.domain import RecordSchema

    try:
        learner.components(RecordSchema(domain))
    except SpecError as error:
        return str(error).startswith(f"data.{role}:")
    return False
