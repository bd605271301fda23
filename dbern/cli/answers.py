"""Answers to ``dbern init``, by options or on a terminal, each checked when it is given.

Until all are given placeholders stand for the rest of the spec, so each answer is checked as a spec
would be.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
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

_PLACEHOLDERS: dict[str, dict[str, Any]] = {
    "release": {"name": "release", "output": "release.zarr"},
    "data": {"source": "data.parquet"},
    "budget": {"epsilon": "1.0", "ledger": "sqlite:///ledger.db", "dataset": "dataset"},
}
_STAND_INS: dict[str, Any] = {
    "label": {"column": "a label", "classes": [False, True]},
    "response": {"column": "a response", "bounds": [-1.0, 1.0]},
    "group": {"column": "a group", "values": [1]},
    "normalizer": "1000000",
}
_MAX_ASKED_AXES = 6  # axes; options give more


class Answers:
    """Options by name, and questions for those that are None or wrong, where there is a terminal.

    With `asks` a wrong answer is asked for again, with what is wrong with it, and all others stay.
    Otherwise it is refused. The spec goes into `folder`.
    """

    def __init__(self, options: dict[str, Any], *, asks: bool, folder: Path) -> None:
        self._options, self._asks, self._folder = options, asks, folder
        self._awaited: set[str] = set()
        self.content: dict[str, dict[str, Any]] = {
            "release": {}, "data": {"bounds": {}}, "target": {}, "budget": {},
        }  # fmt: skip

    def ask(self, section: str, key: str, question: str, default: str | None = None) -> str:
        """Ask for one key of the spec; returns its text."""
        return self._answer(key, question, partial(self._put, section, key), default)

    def ask_axes(self) -> None:
        """Ask for the bounds of each axis."""
        question = "axis and its public limits (column=low,high)"
        for text in self._options["axes"]:
            self._answer("axis", question.capitalize(), self._put_axis, text=text)
        if not self._options["axes"]:
            self._answer("axis", f"First {question}", self._put_axis)
            while len(self.content["data"]["bounds"]) < _MAX_ASKED_AXES:
                if not self._answer("axis", "Another axis (empty for none)", self._put_axis, ""):
                    break

    def ask_learner(self) -> type[Learner]:
        """Ask for the kind of the target, which there must be."""
        from dbern.targets import kinds, learner_of

        question = f"What to release ({', '.join(kinds())})"
        return learner_of(self._answer("kind", question, learner_of, kinds()[0]))

    def ask_settings(self, learner: type[Learner]) -> dict[str, str]:
        """Ask for the target's keys that it needs; returns the TOML of those given, by key."""
        settings = [_setting(text) for text in self._options["settings"]]
        fields, texts = learner.model_fields, dict(settings)
        if len(texts) < len(settings):
            raise click.BadParameter("a key is given twice", param_hint="--set")
        for key in texts.keys() - fields.keys():
            known = f"{learner.kind} has no such key. Write one of: {', '.join(fields)}"
            raise click.BadParameter(f"{key}: {known}", param_hint="--set")
        needed = [
            key
            for key, field in fields.items()
            if field.is_required() and key not in texts and learner.instead.get(key) not in texts
        ]
        automatic = {key: '"auto"' for key in needed if _takes_auto(fields[key])}
        for key in (key for key in needed if key not in automatic and not self._asks):
            example = (fields[key].description or f"{key} = ..").partition(",  ")[0]
            raise click.UsageError(f"Missing option '--set': {learner.kind} needs {example}")
        self.content["target"] = {"kind": learner.kind}
        self._awaited = {f"target.{key}" for key in (*texts, *needed)}
        for key in (*texts, *needed):
            self._awaited.discard(f"target.{key}")
            question = f"target.{key} ({fields[key].description})"
            put = partial(self._put_setting, key)
            texts[key] = self._answer("set", question, put, automatic.get(key), texts.get(key))
        return texts

    def ask_role(self, role: str, *, needed: bool) -> None:
        """Ask for the section of a label, response, group or filter, which may be left out."""
        # Groups and labels that may be left out are options.
        if needed or role == "filter" or self._options[role] is not None:
            empty, default = ("", None) if needed else ("; empty for none", "")
            example = f"{ROLES[role][1]}{empty}"
            question = f"{role.capitalize()} column and its public values ({example})"
            self._answer(role, question, partial(self._put_role, role), default)

    def ask_protection(self) -> None:
        """Ask whose data it is: unit, neighbors and, where n is private, a normalizer."""
        question = "Whose rows are protected (user=8, column and the most rows of one that count; "
        self._answer("unit", f"{question}empty for each row)", self._put_unit, "")
        neighbors = "Neighbors (replace-one or add-or-remove-one)"
        added = self.ask("data", "neighbors", neighbors, "replace-one") == "add-or-remove-one"
        if added or "unit" in self.content["data"] or self._options["normalizer"] is not None:
            self.ask("data", "normalizer", "Normalizer, a public number near that of the rows")

    def needs(self, role: str) -> bool:
        """Return whether the learner refuses records without a label, response or group."""
        return role in self._check()[1]

    def _answer(
        self,
        option: str,
        question: str,
        put: Callable[[str], object],
        default: str | None = None,
        text: str | None = None,
    ) -> str:
        """Put an answer into the spec; it is asked for until nothing is wrong with it."""
        text = self._options.get(option) if text is None else text
        if not self._asks:
            text = default if text is None else text
            if text is None:
                raise click.UsageError(f"Missing option '--{option}': {question}.")
            put(text)
            return text
        checked = partial(self._put_checked, put)
        if text is not None:
            try:
                return checked(text)
            except click.UsageError as error:
                click.echo(error.message, err=True)
        return str(click.prompt(question, default=default, err=True, value_proc=checked))

    def _put_checked(self, put: Callable[[str], object], text: str) -> str:
        """Refuse an answer as click's prompts do, which then ask again."""
        before = copy.deepcopy(self.content)
        try:
            put(text)
            wrong, _ = self._check()
        except (SpecError, click.BadParameter) as error:
            wrong = str(error)
        if wrong:
            self.content = before
            raise click.UsageError(wrong)
        return text

    def _put(self, section: str, key: str, value: Any) -> None:
        self.content[section][key] = value

    def _put_axis(self, text: str) -> None:
        if text:
            column, bounds = _bounds_of("axis", text)
            if column in self.content["data"]["bounds"]:
                raise click.BadParameter(f'"{column}" is an axis already', param_hint="--axis")
            self.content["data"]["bounds"][column] = bounds

    def _put_setting(self, key: str, text: str) -> None:
        try:
            self._put("target", key, tomllib.loads(f"value = {text}")["value"])
        except tomllib.TOMLDecodeError:
            message = "is not a TOML value. Write a number, [0.5, 0.5] or a text in quotes"
            raise click.BadParameter(f"{key}: {text} {message}", param_hint="--set") from None

    def _put_role(self, role: str, text: str) -> None:
        if text:
            column, values = _split(role, text)
            public: list[Any] = [_category(value.strip()) for value in values.split(",")]
            if role == "response":
                _, public = _bounds_of(role, text)
            self._put("data", role, {"column": column, ROLES[role][0]: public})

    def _put_unit(self, text: str) -> None:
        if text:
            # A colon is how `dbern ledger grant` has it.
            column, max_rows = _split("unit", re.sub(r":(?=\d+$)", "=", text))
            if not re.fullmatch(r"\d+", max_rows):
                message = f'"{text}": write {column}=8, the most rows of one that count'
                raise click.BadParameter(message, param_hint="--unit")
            self._put("data", "unit", {"column": column, "max_contributions": int(max_rows)})

    def _check(self) -> tuple[str, set[str]]:
        """Return what is wrong with the spec so far, and the keys that it lacks."""
        from dbern.targets import PLACEHOLDER

        content = {name: _PLACEHOLDERS.get(name, {}) | keys for name, keys in self.content.items()}
        content["target"] = content["target"] or PLACEHOLDER
        content["data"]["bounds"] = content["data"]["bounds"] or {"an axis": [0.0, 1.0]}
        lacking: set[str] = set()
        while True:
            try:
                loaded_spec(content, self._folder)
            except SpecError as error:
                lines = str(error).splitlines()
            else:
                return "", lacking
            key = lines[0].partition(": is missing")[0].removeprefix("data.")
            if key not in _STAND_INS or key in content["data"]:
                break
            content["data"][key] = _STAND_INS[key]  # it is asked for later
            lacking.add(key)
        wrong = [line for line in lines if line.partition(": is missing")[0] not in self._awaited]
        return "\n".join(wrong), lacking


def loaded_spec(content: dict[str, dict[str, Any]], folder: Path) -> ReleaseSpec:
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
