"""Every command of the runbook and of the pipelines' page exists, with its options and files."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from dbern.cli.main import cli
from deploy import certificates
from pipelines import generated, score

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("deploy/RUNBOOK.md", "pipelines/README.md", "docs/ledger.md")]
TOPICS = ("Install", "First release", "Keys and secrets", "A failed job", "A stream of nights",
          "A refused budget", "A lost worker", "A cluster by hand", "Metrics and alerts",
          "Restoring a ledger", "Rotating authorities", "Upgrading")  # fmt: skip
PARSERS = {
    "-m pipelines.score": score.main,
    "-m pipelines.generated": generated.main,
    "deploy/certificates.py": certificates.main,
}


def typed(text):
    """The command lines of blocks, each whole."""
    for block in re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
            yield from re.split(r" && | > ", line)


def commands(text):
    """Those, and what the prose mentions, which may leave options out."""
    yield from typed(text)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"`((?:dbern|python) [^`]+)`", prose)


def refusal(words):
    """What is wrong with a `dbern` command line, or nothing; a group alone is none."""
    command = cli
    while isinstance(command, click.Group):
        if not words or words[0] not in command.commands:
            return f"{command.name} has no {words[:1]}"
        command, words = command.commands[words[0]], words[1:]
    known = {option: param for param in command.params for option in param.opts}
    plain, waiting = 0, (word for word in words if word != "..")  # what is left out
    for word in waiting:
        if not word.startswith("--"):
            plain += 1
        elif word not in known:
            return f"{command.name} has no {word}"
        elif not known[word].is_flag and next(waiting, None) is None:
            return f"{word} wants a value"
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    if plain > len(arguments) and all(param.nargs == 1 for param in arguments):
        return f"{command.name} takes {len(arguments)} arguments"
    return None


def whole(words):
    """A command line that can be typed as it is: required options are there."""
    command = cli
    while isinstance(command, click.Group):
        command, words = command.commands[words[0]], words[1:]
    with command.make_context("x", list(words), resilient_parsing=False):
        pass


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_dbern_command_exists(page):
    text = page.read_text(encoding="utf-8")
    found = [shlex.split(one) for one in commands(text) if one.startswith("dbern ")]
    assert len(found) > 3
    for words in found:
        assert refusal(words[1:]) is None, (page.name, words)
    for words in map(shlex.split, typed(text)):
        if words[0] == "dbern":
            whole(words[1:])


def test_a_command_that_is_not_there_is_found():
    for said in ("ledger forget", "ledger status --warn 20%", "realease x", "plan a b c",
                 "ledger status --dataset"):  # fmt: skip
        assert refusal(said.split()) is not None, said
    with pytest.raises(click.UsageError):
        whole(["ledger", "init"])


@pytest.mark.parametrize("page", PAGES[:2], ids=lambda page: page.name)
def test_every_script_and_its_options_exist(page, monkeypatch, capsys):
    """Each is parsed by its own parser, and then does nothing."""
    for name in ("score.score", "generated.generate",
                 "certificates.make_authority", "certificates.issue"):  # fmt: skip
        module, _, function = name.partition(".")
        answer = (2, {"message": ""}) if function == "score" else 0
        place = globals()[module]
        monkeypatch.setattr(place, function, lambda *_a, answer=answer, **_k: answer)
    seen = 0
    for said in commands(page.read_text(encoding="utf-8")):
        words = said.removeprefix("python ").split(" ")
        name = " ".join(words[:2]) if words[0] == "-m" else words[0]
        if not said.startswith("python ") or name not in PARSERS or len(words) < 3:
            continue
        try:
            PARSERS[name](words[len(name.split()) :])
        except SystemExit as error:
            pytest.fail(f"{page.name}: {said}: {capsys.readouterr().err} {error}")
        seen += 1
    assert seen > 1


def test_every_file_that_is_named_is_there():
    text = PAGES[0].read_text(encoding="utf-8")
    named = set(re.findall(r"deploy/(?!secrets)[\w./-]+\w", text))
    assert len(named) > 5
    compose = (ROOT / "deploy/compose.yaml").read_text()
    made = {f"deploy/{folder}" for folder in re.findall(r"- \./(\w+):/", compose)}  # by the runbook
    assert made & named == {"deploy/out", "deploy/staging", "deploy/objects"}
    for name in named - made - {"deploy/systemd/dbern"}:
        assert (ROOT / name).exists(), name
    units = re.findall(r"dbern-\w+\.timer", text)
    assert {path.name for path in (ROOT / "deploy/systemd").glob("*.timer")} == set(units)


def test_the_secrets_that_are_made_are_those_that_are_mounted():
    text = PAGES[0].read_text(encoding="utf-8")
    schedules = (ROOT / "deploy/kubernetes/schedules.yaml").read_text()
    cluster = (ROOT / "deploy/kubernetes/cluster.yaml").read_text()
    mounted = set(re.findall(r"secretName: ([\w-]+)", schedules + cluster))
    assert set(re.findall(r"create secret generic ([\w-]+)", text)) == mounted
    compose = (ROOT / "deploy/compose.yaml").read_text()
    for name in re.findall(r"file: \./secrets/([\w/-]+)", compose):
        assert f"deploy/secrets/{name}" in text or f"`{name}`" in text, name
    for folder in re.findall(r"\./secrets/((?:dask|ledger|objects)/\w+)[:/]", compose):
        authority, role = folder.split("/")
        assert f"issue deploy/secrets/{authority} {role}" in text, folder


def test_every_topic_has_its_chapter():
    chapters = re.findall(r"^## (.*)$", PAGES[0].read_text(encoding="utf-8"), re.MULTILINE)
    assert tuple(chapters) == TOPICS
