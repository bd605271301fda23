"""``--log-format json``: every line one object with the release's id, and no duration in any."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys

import pytest

SECRET = "se" + "cret"


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_every_line_is_an_object_with_the_releases_id(project, run):
    ran = run("release", "release.toml", "--log-format", "json")
    assert ran.code == 0
    told = lines(ran.err)
    release_id = project.reservation().release_id
    assert {one["release_id"] for one in told} == {release_id}
    assert {one["dataset"] for one in told} == {"trips"}
    begun = [one["stage"] for one in told if one["event"] == "begin"]
    assert begun == [one["stage"] for one in told if one["event"] == "done"]
    assert begun[0] == "reading and counting"
    assert begun[-1] == "committing"
    steps = [one for one in told if one["event"] == "progress"]
    assert {"reading and counting", "staging the lattice"} <= {one["stage"] for one in steps}
    assert all(0 <= one["done"] <= one["total"] for one in steps)
    assert "released" in ran.out


def test_durations_are_in_the_private_record_and_nowhere_else(project, run, helpers):
    ran = run("release", "release.toml", "--log-format", "json")
    assert not re.search(r"second|duration|elapsed|\d\.\d|\d:\d", ran.err)
    folder = project.ledger_path.with_name("ledger.db.runs")
    (path,) = folder.iterdir()
    assert path.name == f"{project.reservation().release_id}.jsonl"
    assert oct(path.stat().st_mode)[-3:] == "600"
    assert oct(folder.stat().st_mode)[-3:] == "700"
    timed = {one["stage"]: one["seconds"] for one in lines(path.read_text()) if "stage" in one}
    assert {"planning and reserving", "reading and counting", "committing"} <= timed.keys()
    assert all(seconds >= 0 for seconds in timed.values())
    assert timed["reading and counting"] > 0
    for name, content in helpers.objects(project.output).items():
        assert b"seconds" not in content, name


def test_a_failure_is_a_line_too(project, run, monkeypatch):
    def failing(*_):
        raise OSError(SECRET)

    monkeypatch.setattr("dbern.run.counting.tree_reduce", failing)
    ran = run("release", "release.toml", "--log-format", "json")
    last = lines(ran.err)[-1]
    assert ran.code == last["exit_code"] == 1
    assert (last["event"], last["error"]) == ("failed", "internal")
    assert last["release_id"] == project.reservation().release_id
    assert SECRET not in ran.err
    record = project.ledger_path.with_name("ledger.db.runs") / f"{last['release_id']}.jsonl"
    assert lines(record.read_text())[-1]["event"] == "stopped"
    project.spec(budget={"epsilon": "0.5"})
    ran = run("release", "release.toml", "--log-format", "json", "--quiet")
    (told,) = lines(ran.err)
    assert (told["error"], told["release_id"]) == ("spec", None)


def test_log_lines_of_other_libraries_leave_their_values_out(project, run, monkeypatch):
    from dbern.run import counting

    original = counting.tree_reduce

    def warning(*arguments):
        logging.getLogger("distributed.worker").info("of no interest")
        logging.getLogger("distributed.worker").warning("Compute failed: %s", "a record")
        return original(*arguments)

    monkeypatch.setattr(counting, "tree_reduce", warning)
    ran = run("release", "release.toml", "--log-format", "json")
    (told,) = [one for one in lines(ran.err) if one["logger"] == "distributed.worker"]
    assert (told["level"], told["message"]) == ("warning", "Compute failed: %s")
    assert told["release_id"] == project.reservation().release_id


@pytest.mark.parametrize("broken", ["a file", "open to others"])
def test_a_record_that_cannot_be_kept_stops_nothing(project, run, broken):
    folder = project.ledger_path.with_name("ledger.db.runs")
    if broken == "a file":
        folder.write_text("")
    else:
        folder.mkdir()
        folder.chmod(0o755)
    assert run("release", "release.toml").code == 0
    assert folder.is_file() or list(folder.iterdir()) == []


def test_plain_lines_are_what_they_were(project, run):
    """On a fast release none at all; and nothing is left behind by one with JSON lines."""
    assert run("release", "release.toml", "--log-format", "json").code == 0
    assert run("release", "release.toml").err == ""


@pytest.mark.slow
def test_a_local_release_with_json_lines_starts_no_client(project):
    """What logs for a cluster's client takes a second to import: a release in threads has none."""
    program = (
        "import sys; from dbern.cli.main import run; "
        "code = run(['release', 'release.toml', '--log-format', 'json']); "
        "print(*{module.partition('.')[0] for module in sys.modules}); sys.exit(code)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=project.folder, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert lines(ran.stderr)[-1]["stage"] == "committing"
    assert {"distributed", "tornado"}.isdisjoint(ran.stdout.split())
