"""``dbern init``: a commented spec from public choices alone; no file of data is opened."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbern.cli.answers import ROLES, Answers, loaded
from dbern.cli.output import common, report
from dbern.errors import SpecError

if TYPE_CHECKING:
    from dbern.targets import Learner
    from dbern.times import Bound

_BARE = re.compile(r"[A-Za-z0-9_-]+")
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
@click.option("--filter", metavar="COLUMN=A,B", help="Of rows, those that count.")
@click.option("--unit", metavar="COLUMN=N", help="Whose rows are protected, N of one at most.")
@click.option("--neighbors", help="replace-one or add-or-remove-one.  [default: replace-one]")
@click.option("--normalizer", metavar="N", help="Public, where the number of rows is private.")
@click.option("--epsilon", metavar='"1.0"', help="What the release costs.")
@click.option("--delta", default="0", show_default=True, help="Above 0 for Gaussian noise.")
@click.option("--ledger", default="sqlite:///ledger.db", show_default=True, metavar="URL")
@click.option("--dataset", metavar="NAME", help="The account that pays.")
@common
def init(spec_path: Path, as_json: bool, quiet: bool, **given: Any) -> None:
    """Write a commented spec, asking for what no option gives.

    On a terminal it asks again for what is wrong. Looks at no data and overwrites nothing.

    For example: dbern init --source "trips/*.parquet" --axis x=0,10 --axis y=0,10 --set
    "bandwidth=[0.6, 0.6]" --epsilon 1.0 --dataset city
    """
    del quiet
    if spec_path.exists():
        raise SpecError(f"{spec_path}: exists and is left as it is; write dbern init OTHER.toml")
    asks, folder = not as_json and terminal(), spec_path.resolve().parent
    text = _text(spec_path, Answers(given, asks=asks, folder=folder), given)
    loaded(tomllib.loads(text), folder)
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


def terminal() -> bool:
    """Whether there is someone to ask."""
    return sys.stdin.isatty()


def _pair(limits: list[Bound]) -> str:
    """In TOML, which has dates and times of its own."""
    texts = (json.dumps(one) if isinstance(one, float) else one.isoformat() for one in limits)
    return f"[{', '.join(texts)}]"


def _text(path: Path, answers: Answers, given: dict[str, Any]) -> str:
    from dbern.targets import kinds, learner_of

    name = answers("release", "name", "Name of the release", path.stem)
    source = answers("data", "source", 'Parquet files, as "data/*.parquet"')
    axes = answers.axes()
    kind = answers.kind(f"What to release ({', '.join(kinds())})", "kernel-density")
    learner = learner_of(kind)
    settings = answers.settings(learner)
    for role in learner.uses:
        answers.role(role, needed=answers.needs(learner, role))
    unused = [role for role in ROLES if given[role] and role not in (*learner.uses, "filter")]
    if unused:
        raise click.UsageError(f"--{unused[0]}: {kind} has no use for it; leave it out")
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
        *(f"{_key(column)} = {_pair(limits)}" for column, limits in axes.items()),
        "",
        *(_role(role, data[role]) for role in ROLES if role in data),
        *_target(learner, kind, settings),
        "[mechanism]  # all of it may be left to the plan",
        '# objective = "typical"  # make small the error on a typical database; or "certified"',
        '# beta = "0.05"  # the certificate holds with probability 1 - beta',
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
        lines.append(f"{_key(key)} = {value}{why}")
    for key, field in learner.model_fields.items():
        if key not in settings and isinstance(field.default, str | float | int):
            lines.append(f"# {key} = {json.dumps(field.default)}")
    return [*lines, ""]


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)
