"""What ``dbern init`` is told, by options or on a terminal, each answer checked when it is given.

Until all are given the rest of the spec is made up, so the checks are those of a spec.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbern.errors import SpecError

if TYPE_CHECKING:
    from dbern.targets import Learner
    from dbern.times import Bound

ROLES = {
    "label": ("classes", "column=no,yes", "the public list; with two, the second is +1"),
    "response": ("bounds", "column=-1.0,1.0", "public; values outside are moved to the bounds"),
    "group": ("values", "column=a,b", "the public list"),
    "filter": ("values", "column=done", "the public list: other rows count nothing"),
}
"""By the name of a section of the data: its other key, an example, and what to know of it."""

_MADE_UP: dict[str, dict[str, Any]] = {
    "release": {"name": "release", "output": "release.zarr"},
    "data": {"source": "data.parquet"},
    "budget": {"epsilon": "1.0", "ledger": "sqlite:///ledger.db", "dataset": "dataset"},
}
_MADE_UP_TARGET = {"kind": "ridge-regression", "C": 1.0}  # which takes any axes
_NEEDED: dict[str, Any] = {
    "label": {"column": "a label", "classes": [False, True]},
    "response": {"column": "a response", "bounds": [-1.0, 1.0]},
    "group": {"column": "a group", "values": [1]},
    "normalizer": "1000000",
}
_MOST_ASKED = 6  # axes; options give more


class Answers:
    """Options, and on a terminal questions for those that were left out or are wrong.

    Parameters
    ----------
    given : dict
        Options by name, None for those that were left out.
    asks : bool
        Whether there is someone to ask: then a wrong answer is asked for again, with what is wrong
        with it, and all others stay. Otherwise it is refused.
    folder : Path
        Where the spec goes.
    """

    def __init__(self, given: dict[str, Any], *, asks: bool, folder: Path) -> None:
        self._given, self._asks, self._folder = given, asks, folder
        self._awaited: set[str] = set()
        self.content: dict[str, dict[str, Any]] = {"release": {}, "data": {}, "budget": {}}

    def __call__(self, section: str, key: str, question: str, default: str | None = None) -> str:
        """The text of one key of the spec."""
        return self._answer(key, question, default, lambda text: self._put(section, key, text))

    def axes(self) -> dict[str, list[Bound]]:
        """The bounds of each axis by its column."""
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
        """The kind of the target, which there must be."""
        from dbern.targets import learner_of

        def put(kind: str) -> None:
            learner_of(kind)

        return self._answer("kind", question, default, put)

    def needs(self, learner: type[Learner], role: str) -> bool:
        """Whether the learner itself refuses records without a label, response or group."""
        from dbern.domain import Axis, Domain, RecordSchema
        from dbern.times import bounds_of

        parameters = {k: value for k, value in self.content["target"].items() if k != "kind"}
        axes = (
            Axis(column, *bounds_of(pair, f"data.bounds.{column}"))
            for column, pair in self.bounds.items()
        )
        made, domain = learner(**parameters), Domain(tuple(axes))
        try:
            made.components(RecordSchema(domain))
        except SpecError as error:
            return str(error).startswith(f"data.{role}:")
        return False

    @property
    def bounds(self) -> dict[str, list[Bound]]:
        """Of the axes so far."""
        found: dict[str, list[Bound]] = self.content["data"].setdefault("bounds", {})
        return found

    def settings(self, learner: type[Learner]) -> dict[str, str]:
        """TOML by key of the target: what was set, and what the learner cannot do without."""
        texts: dict[str, str] = {}

        def put(key: str) -> Callable[[str], None]:
            def found(text: str) -> None:
                self.content["target"][key] = toml_value(key, text)
                texts[key] = text

            return found

        self.content["target"] = {"kind": learner.kind}
        for text in self._given["settings"]:
            key, equals, value = text.partition("=")
            if not equals:
                raise click.BadParameter("write KEY=VALUE", param_hint="--set")
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
        """Ask again for the settings that are wrong, by option or with each other."""
        while self._asks and (wrong := self._complaint()):
            key = wrong.partition(":")[0].removeprefix("target.")
            if key not in learner.model_fields:
                raise SpecError(wrong)
            click.echo(wrong, err=True)
            self.content["target"].pop(key, None)
            what = learner.model_fields[key].description
            self._answer("set", f"target.{key} ({what})", None, put(key))

    def role(self, role: str, *, needed: bool) -> None:
        """The section of a label, response, group or filter; nothing where it is left out."""
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
        """Whose data: unit, neighbours and, where the number of rows is private, a normalizer."""

        def put(text: str) -> None:
            if text:
                column, most = split("unit", text)
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
        put: Callable[[str], None],
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
                click.echo(error.message if isinstance(error, click.BadParameter) else str(error),
                           err=True)  # fmt: skip
                text = None
            else:
                return str(text)

    def _refuse_wrong(self) -> None:
        if self._asks and (wrong := self._complaint()):
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

    def _complaint(self) -> str:
        """What is wrong with the spec so far, the rest made up; empty for nothing."""
        content = {
            name: {**_MADE_UP.get(name, {}), **self.content.get(name, {})}
            for name in ("release", "data", "target", "budget")
        }
        content["target"] = content["target"] or _MADE_UP_TARGET
        content["data"]["bounds"] = content["data"].get("bounds") or {"an axis": [0.0, 1.0]}
        for _ in range(len(_NEEDED) + 1):
            try:
                loaded(content, self._folder)
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


def loaded(content: dict[str, dict[str, Any]], folder: Path) -> None:
    """Refuse sections that are no spec; one that goes into a folder may name modules there.

    Raises
    ------
    SpecError
        Every error names its key.
    """
    from dbern.functions import importable
    from dbern.spec import ReleaseSpec

    filled = copy.deepcopy(content)
    for section, key in (("release", "name"), ("release", "output"), ("data", "source")):
        with suppress(KeyError):  # a placeholder is filled by --partition when it is used
            filled[section][key] = filled[section][key].replace("{partition}", "p")
    with importable(folder):
        ReleaseSpec(**filled)


def split(key: str, text: str) -> tuple[str, str]:
    """A column, and what is said of it after an equals sign."""
    column, equals, rest = text.partition("=")
    if not equals or not column.strip():
        raise click.BadParameter(f'"{text}": write column=values', param_hint=f"--{key}")
    return column.strip(), rest.strip()


def limits(key: str, text: str) -> tuple[str, list[Bound]]:
    """A column and its two limits: numbers, dates or times."""
    column, rest = split(key, text)
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


def category(text: str) -> str | int | bool:
    """A value of a public list."""
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def toml_value(key: str, text: str) -> Any:
    """What a key of the target is set to."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        raise click.BadParameter(
            f"{key}: {text} is no TOML value; write a number, [0.5, 0.5] or a text in quotes",
            param_hint="--set",
        ) from None
