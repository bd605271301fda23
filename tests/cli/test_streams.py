"""What cannot be printed: it stops no release, changes no exit code, and lets no text out."""

from __future__ import annotations

import errno
import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from dbern.cli import main
from dbern.cli import output as progress_lines

SECRET = "37.4219983"
NO_LEDGER = ("ledger", "status", "--ledger", "sqlite:///none.db")


class Refusing(io.StringIO):
    """A terminal that was closed, or a log on a full disk."""

    def __init__(self, number):
        super().__init__()
        self._number = number

    def write(self, _text):
        raise OSError(self._number, os.strerror(self._number))


@pytest.fixture(params=[errno.EPIPE, errno.ENOSPC, errno.EIO])
def refuse(request, monkeypatch):
    def refuse(*names):
        for name in names:
            monkeypatch.setattr(sys, name, Refusing(request.param))

    return refuse


@pytest.mark.slow
@pytest.mark.parametrize("lines", ["plain", "json"])
def test_a_closed_terminal_stops_no_release(project, run, monkeypatch, refuse, lines):
    monkeypatch.setattr(progress_lines, "_LINE_SECONDS", -1.0)  # every line of progress
    refuse("stderr")
    assert run("release", "release.toml", "--log-format", lines).code == 0
    assert project.spent() == "epsilon 1, epsilon 0 reserved"


def test_a_terminal_that_is_closed_under_a_bar_stops_nothing(monkeypatch):
    reader, writer = pty.openpty()
    terminal = os.fdopen(writer, "w")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        with progress_lines.show_progress(quiet=False) as progress:
            progress("counting", 1, 2)
            os.close(reader)
            progress("counting", 2, 2)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        terminal.close()  # what was drawn last could not be


@pytest.mark.parametrize(
    ("command", "code"), [(NO_LEDGER, 4), (("show", "data"), 5), (("show", "--nonsense"), 2)]
)
@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_a_failure_that_cannot_be_told_keeps_its_code(run, refuse, command, code, as_json):
    refuse("stdout", "stderr")
    assert run(*command, *as_json).code == code


def test_an_unforeseen_error_that_cannot_be_told_is_not_raised(project, run, monkeypatch, refuse):
    """Python would print it, and the text of what it came from."""

    def raising(*_arguments, **_named):
        raise ValueError(f"could not convert {SECRET}")

    monkeypatch.setattr("dbern.run.stages.plan_files", raising)
    refuse("stdout")
    ran = run("release", "release.toml", "--json")
    assert ran.code == 1
    assert SECRET not in ran.err


def test_a_result_that_cannot_be_printed_is_said(run, monkeypatch):
    grant = ("ledger", "grant", "--ledger", "sqlite:///ledger.db", "--dataset", "trips")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Refusing(errno.ENOSPC))
        ran = run(*grant, "--epsilon", "1")
    assert ran.code == 1
    assert "cannot be printed (No space left on device), and what was asked is done" in ran.err
    assert "internal" not in ran.err
    (account,) = run("ledger", "status", *grant[2:4], "--json").json["datasets"]
    assert account["granted"] == "epsilon 4"


def test_a_reader_that_has_enough_ends_it_in_silence(project, capfd, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Refusing(errno.EPIPE))
    with pytest.raises(SystemExit) as ended:
        main.run(["ledger", "status", "--ledger", project.url])
    assert (ended.value.code, capfd.readouterr().err) == (1, "")


def test_whoever_waits_is_told_at_once(capsys):
    with progress_lines.show_progress(quiet=False) as progress:
        progress("waiting for another process", 0, 1)
        assert capsys.readouterr().err == "waiting for another process: 0 of 1\n"
        progress("counting", 1, 2)
        assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("words", "code"), [(["show", "nowhere.zarr"], 2), (["target", "list"], 1)]
)
def test_a_full_disk_under_the_streams_keeps_the_code(words, code, unbuffered):
    """Of a message that cannot be told, and of a result: buffered or not, never 120."""
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "dbern", *words], stdout=full, stderr=full, check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert ran.returncode == code


def test_what_the_encoding_of_stdout_lacks_is_spelt(project, monkeypatch):
    """A terminal of latin-1 has no narrow space and no superscript minus."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "latin-1"))
    words = ["--ledger", project.url, "--dataset", "\u2264 \u4e00", "--epsilon", "1"]
    assert main.run(["ledger", "grant", *words]) == 0
    sys.stdout.flush()
    assert written.getvalue().startswith(b"\\u2264 \\u4e00: epsilon 1 added")
