"""The command line: exit codes, messages, one JSON object, and no more than that."""

from __future__ import annotations

import errno
import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dbern
from dbern.cli import output
from dbern.cli.show import _describe
from dbern.data import storage
from dbern.ledger import BudgetLedger, ledger, sqlite

SECRET = "37.4219983"


LEDGER = ("--ledger", "sqlite:///ledger.db")
GRANT = ("ledger", "grant", *LEDGER, "--dataset", "trips")


@pytest.fixture
def released(project, run):
    assert run("release", "release.toml").code == 0
    return project


@pytest.fixture
def queries(project):
    path = project.folder / "queries.parquet"
    pq.write_table(pa.table({"y": [0.5, 2.0], "x": [1, 2], "who": ["a", None]}), path)
    return path


COMMANDS = ["plan", "release", "catch-up", "query", "ask", "show", "report", "change", "verify",
            "ledger", "ledger init", "ledger grant", "ledger status",
            "ledger abandon", "demo", "init", "target", "target list", "doctor"]  # fmt: skip


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_every_command_has_help(run, command):
    ran = run(*command.split(), "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Usage: dbern {command}".rstrip())
    assert ("--quantile AXIS=LEVELS" in ran.out) == (command == "ask")
    if command in ("", "ledger", "target"):  # click cuts a sentence that is too long for its line
        assert "..." not in ran.out.replace("[ARGS]...", "")


def test_the_group_lists_every_command_and_every_exit_code(run):
    ran = run("--help")
    for command in {command.split()[0] for command in COMMANDS}:
        assert re.search(rf"^  {command} ", ran.out, re.MULTILINE)
    for code in range(6):
        assert f"{code} " in ran.out


# --- exit codes ------------------------------------------------------------------------------


def test_0_for_the_whole_story(project, run, queries):
    assert run("plan", "release.toml").code == 0
    assert project.spent() == "epsilon 0, epsilon 0 reserved"
    assert not project.output.exists()
    ran = run("release", "release.toml")
    left = "dataset trips has epsilon 2 left"
    assert (ran.code, ran.out) == (0, f"released ./out.zarr for epsilon 1; {left}\n")
    ran = run("release", "release.toml")
    assert ran.code == 0
    assert ran.out.startswith("note: this release was already published")
    ran = run("query", "out.zarr", queries, "--out", "answers.parquet")
    missing = "1 of 2 points have no answer: out of bounds, or a coordinate is missing"
    assert (ran.code, ran.out) == (0, f"answered 2 rows in answers.parquet\n{missing}\n")
    ran = run("show", "out.zarr")
    assert ran.code == 0
    assert "\nprotects  one row, replaced by any other: epsilon 1\n" in ran.out
    assert "epsilon 1, neighbors replace-one, unit row" in run("show", "out.zarr", "--details").out
    assert re.fullmatch(r"\d+ objects are as released\n", run("verify", "out.zarr").out)
    ran = run("ledger", "status", *LEDGER)
    assert ran.code == 0
    assert "density: committed, epsilon 1" in ran.out
    assert re.search(r"remaining +epsilon 2", ran.out)


@pytest.mark.parametrize(
    ("removed", "instead"),
    [
        (("export", "out.zarr"), "export: is no command. Write show SYNOPSIS --json"),
        (("sign", "out.zarr", "--key", "key.pem"), "sign: is no command. Write ssh-keygen -Y sign"),
        (
            (*GRANT, "--epsilon", "1", "--allow-random-dp"),
            "--allow-random-dp: is no option. Write a",
        ),
        (("metrics", *LEDGER, "--listen", "9464"), "--listen: is no option. Write --textfile"),
        (("plan", "release.toml", "--table"), "plan --table: is no option. Write --target-error A"),
        (("verify", "out.zarr", "--trusted=a.pub"), "--trusted: is no option. Write ssh-keygen"),
    ],
)
def test_commands_and_options_that_left_name_what_to_write(run, removed, instead):
    run(*removed).refused(2, instead)


@pytest.mark.slow
def test_shapes_are_asked_for_and_named(released, run, queries):
    asked = ("query", "out.zarr", queries, "--shape", "normalized", "--shape", "nonnegative")
    ran = run(*asked, "--out", "a.parquet", "--json")
    assert (ran.code, ran.json["post_processing"]) == (0, ["nonnegative", "normalized"])
    ran = run(*asked, "--out", "b.parquet")
    assert ran.out.startswith("answered 2 rows in b.parquet (nonnegative, normalized)\n")
    ran = run("query", "out.zarr", queries, "--out", "c.parquet", "--json")
    assert ran.json["post_processing"] == []
    a, b, c = (pq.read_table(released.folder / f"{name}.parquet")["value"][0] for name in "abc")
    assert a == b != c
    run("query", "out.zarr", queries, "--out", "d.parquet", "--shape", "increasing:x").refused(
        2, 'shape "increasing:x": not known. Write nonnegative or normalized, or both'
    )
    assert not (released.folder / "d.parquet").exists()


USAGE = [
    ["nonsense"],
    ["release"],
    ["release", "release.toml", "--color"],
    ["query", "out.zarr", "queries.parquet"],
    *(["query", "out.zarr", "queries.parquet", "--out", "a.parquet", "--h", order]
      for order in ("0", "²", "9" * 5000)),
    ["metrics", *LEDGER, "--due", "release.toml:day:" + "9" * 5000],
    ["release", "missing.toml"],
    ["release", "release.toml", "--partition", "2026"],
    [*GRANT, "--epsilon", "much"],
    [*GRANT, "--epsilon", "-1"],
    ["ledger", "grant", "--ledger", "mysql://somewhere", "--dataset", "trips", "--epsilon", "1"],
    ["ledger", "abandon", *LEDGER, "--dataset", "trips", "--name", "no"],
    ["demo", "--folder", "data"],
    *(["release", "release.toml", "--scheduler", where]
      for where in ("nonsense", "", "tls://host", "ws://host:8786", "host:8786/x")),
    ["doctor", "--scheduler", "nonsense"],
]  # fmt: skip


@pytest.mark.parametrize("arguments", USAGE, ids=lambda words: " ".join(words)[:80])
def test_wrong_usage_ends_with_2(project, run, arguments):
    ran = run(*arguments)
    ran.refused(2)
    assert ran.err
    assert "Traceback" not in ran.err


def test_a_demo_on_a_full_disk_says_so(run, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("dbern.cli.demo._write_trips", full)
    run("demo", "--folder", "city").refused(
        1,
        "city: cannot be written (No space left on device)",
        "free some space, then run the same command again",
    )


def test_a_wrong_amount_names_its_option(project, run):
    said = "'--delta': write an exact decimal or fraction, not below 0, as 0.5"
    run(*GRANT, "--epsilon", "1", "--delta", "1/0").refused(2, said)


def test_wrong_keys_are_all_named_with_what_to_write(project, run):
    project.spec_path.write_text(
        project.spec_path.read_text().replace("bandwidth", "bandwith").replace('"1.0"', "1.0")
    )
    said = 'budget.epsilon: has a wrong value or type. Write epsilon = "1.0"'
    run("release", "release.toml").refused(2, said)


@pytest.mark.slow
def test_3_says_spent_requested_and_remaining(released, run):
    released.spec(release={"name": "second", "output": "b.zarr"}, budget={"epsilon": "2.5"})
    ran = run("release", "release.toml")
    ran.refused(3, "requested epsilon 2.5", "spent epsilon 1", "remaining epsilon 2 of epsilon 3")
    assert not (released.folder / "b.zarr").exists()
    mend = re.search(r"dbern (ledger grant .*)$", ran.err, re.MULTILINE)
    assert mend, "the message ends with the command that mends it"
    assert run(*mend[1].split()).code == 0
    assert run("release", "release.toml").code == 0


def test_3_where_nothing_was_granted_or_on_other_terms(project, run):
    project.spec(budget={"dataset": "nobody"})
    run("release", "release.toml").refused(3, "no budget")
    terms = ("--neighbors", "add-or-remove-one")
    run(*GRANT, "--epsilon", "1", *terms).refused(3, "was granted for")
    run("ledger", "status", *LEDGER, "--dataset", "nobody").refused(3)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "ledger init"), ("a shopping list, and a long one\n" * 100, "not a")],
)
def test_4_without_a_ledger_or_for_a_file_that_is_something_else(project, run, content, said):
    project.ledger_path.unlink()
    if content:
        project.ledger_path.write_text(content)
    for command in (("release", "release.toml"), ("ledger", "status", "--ledger", project.url)):
        run(*command).refused(4, said)
    assert project.ledger_path.exists() == bool(content)


def test_4_for_a_locked_ledger(project, run, monkeypatch):
    quickly = ledger.backend_of

    def impatient(url, *, read_only=False, busy_timeout=30.0):
        return quickly(url, read_only=read_only, busy_timeout=0.1)

    monkeypatch.setattr("dbern.ledger.ledger.backend_of", impatient)
    with closing(sqlite3.connect(project.ledger_path, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        run("release", "release.toml").refused(4, "another process holds it")
    assert run("release", "release.toml").code == 0


def test_4_for_a_ledger_that_sqlite_opens_read_only(project, run, monkeypatch):
    """For root too, whom no mode stops."""
    original = sqlite._engine.__wrapped__
    monkeypatch.setattr(sqlite, "_engine", lambda path, _, busy: original(path, True, busy))
    run("release", "release.toml").refused(4, "read-only")


def test_show_keeps_long_names_of_arrays_apart_from_what_is_said_of_them(released):
    facts = dbern.open(released.output).metadata
    (component,) = facts["components"]
    facts["components"] = [{**component, "arrays": ["density_0", "density_1", "density_2"]}]
    assert "\ndensity_0 density_1 density_2 k [6, 6], h [2, 2]" in _describe(facts)


@pytest.mark.parametrize("command", ["show", "verify", "query"])
def test_a_mistyped_path_ends_with_2_and_a_path_without_a_release_with_5(
    project, run, queries, command
):
    rest = (queries, "--out", "a.parquet") if command == "query" else ()
    run(command, "nothing.zarr", *rest).refused(2, "there is no such folder. Check the path")
    run(command, "data", *rest).refused(5, "not a dbern synopsis")


def test_5_for_damage_to_any_object(released, run, queries, helpers):
    """Every object in turn, one byte flipped, one byte fewer, gone; then restored."""
    objects = helpers.objects(released.output)
    assert len(objects) == 10
    for name, content in objects.items():
        path = released.output / name
        flipped = content[:-2] + bytes([content[-2] ^ 1]) + content[-1:]
        for damaged in (flipped, content[:-1], None):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            if name == "manifest.json" and damaged is not None and len(damaged) < len(content):
                path.write_bytes(content.replace(b"{", b"", 1))
            code = run("verify", "out.zarr").code
            # A changed byte inside the manifest's last lines is not always seen: it has no digest.
            assert code == 5 or (name == "manifest.json" and damaged == flipped), name
            path.write_bytes(content)
    coefficients = next(name for name in objects if "coefficients/c/" in name)
    path = released.output / coefficients
    content = objects[coefficients]
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert run("query", "out.zarr", queries, "--out", "a.parquet").code == 5
    assert not list(released.folder.glob("*a.parquet*"))
    path.write_bytes(objects[coefficients])
    (released.output / "added").write_text("x")
    assert run("verify", "out.zarr").code == 5


def test_abandon_refunds_only_before_reading(project, run, monkeypatch):
    abandon = ("ledger", "abandon", *LEDGER, "--dataset", "trips")
    for name, method, refunded in [("a", "begin_reading", True), ("b", "spend", False)]:
        project.spec(release={"name": name, "output": f"{name}.zarr"})
        with monkeypatch.context() as patch:
            patch.setattr(BudgetLedger, method, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            assert run("release", "release.toml").code == 130
        ran = run(*abandon, "--name", name, "--json")
        assert ran.code == 0
        assert ran.json == {"name": name, "refunded": refunded}
    assert project.spent() == "epsilon 1, epsilon 0 reserved"
    ran = run(*abandon, "--name", "b", "--json")  # once more, as after any crash, is as once
    assert (ran.code, ran.json) == (0, {"name": "b", "refunded": False})
    assert run(*abandon, "--name", "a").code == 2  # refunded, it was never there
    assert project.spent() == "epsilon 1, epsilon 0 reserved"


# --- JSON, quiet -----------------------------------------------------------------------------


def test_json_is_exactly_one_object_everywhere(project, run, queries):
    commands = [
        (("plan", "release.toml"), {"components", "certificate", "cost"}),
        (("release", "release.toml"), {"url", "name", "charge", "notes"}),
        (("release", "release.toml"), {"url", "name", "charge", "notes"}),
        (
            ("query", "out.zarr", str(queries), "--out", "a.parquet"),
            {"rows", "answers", "post_processing"},
        ),
        (("show", "out.zarr"), {"epsilon", "domain", "components", "certificate"}),
        (("verify", "out.zarr"), {"objects", "ok"}),
        (("ledger", "init", *LEDGER), {"ledger", "created"}),
        ((*GRANT, "--epsilon", "0.1"), {"remaining"}),
        (("ledger", "status", *LEDGER), {"datasets"}),
    ]
    for arguments, keys in commands:
        ran = run(*arguments, "--json")
        assert ran.code == 0, ran.err
        assert isinstance(ran.json, dict)
        assert keys <= ran.json.keys(), arguments


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (["release", "missing.toml"], 2, "spec"),
        (["show", "nothing.zarr"], 2, "spec"),
        (["show", "data"], 5, "integrity"),
        (["ledger", "status", "--ledger", "sqlite:///no.db"], 4, "environment"),
    ],
)
def test_an_error_is_one_json_object_too(project, run, arguments, code, kind):
    ran = run(*arguments, "--json")
    assert ran.code == code
    assert (ran.json["error"], ran.json["exit_code"]) == (kind, code)
    assert ran.err.startswith("dbern: ")
    assert ran.json["message"].split(";")[-1].split(":")[0] in ran.err


@pytest.mark.parametrize(
    "arguments", [["release"], ["nonsense"], ["show", "--color", "x"], ["query", "a", "b"]]
)
def test_a_usage_error_is_one_json_object_too(project, run, arguments):
    ran = run(*arguments, "--json")
    assert (ran.code, ran.json["exit_code"]) == (2, 2)


@pytest.mark.slow
def test_quiet_prints_results_and_errors_only(project, run, queries, monkeypatch):
    monkeypatch.setattr(output, "_LINE_SECONDS", -1.0)
    loud = run("release", "release.toml")
    assert "reading and counting: 1 of" in loud.err
    assert "staging the lattice: 1 of 1" in loud.err
    project.spec(release={"name": "second", "output": "b.zarr"})
    quiet = run("release", "release.toml", "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (
            0, "released ./b.zarr for epsilon 1; dataset trips has epsilon 1 left\n", ""
        )  # fmt: skip

    assert run("query", "b.zarr", queries, "--out", "a.parquet", "--quiet").err == ""
    assert run("show", "nothing", "--quiet").err != ""


@pytest.mark.slow
def test_a_partition_fills_name_output_and_source(project, run):
    data = project.folder / "data"
    for day in ("2026-11-19", "2026-11-20"):
        (data / day).mkdir()
        (data / day / "a.parquet").write_bytes((data / "part-0.parquet").read_bytes())
    project.spec(
        release={"name": "density-{partition}", "output": "out/{partition}.zarr"},
        data={"source": "data/{partition}/*.parquet"},
    )
    for day in ("2026-11-19", "2026-11-20"):
        ran = run("release", "release.toml", "--partition", day, "--json")
        assert ran.code == 0, ran.err
        assert ran.json["name"] == f"density-{day}"
        assert (project.folder / "out" / f"{day}.zarr" / "manifest.json").exists()
    assert project.spent() == "epsilon 2, epsilon 0 reserved"
    run("release", "release.toml").refused(2, "--partition")
    run("plan", "release.toml", "--partition", "../../etc").refused(2)


# --- what must never be printed --------------------------------------------------------------


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    "place",
    ["dbern.run.stages.plan_files", "dbern.run.counting.make_tasks",
     "dbern.run.publish.privatize",
     "dbern.ledger.staging._encode", "dbern.synopsis.writer._create_component"],
)  # fmt: skip
def test_the_text_of_an_unforeseen_error_is_never_printed(
    project, run, monkeypatch, place, as_json
):
    def raising(*_arguments, **_named):
        raise ValueError(f"could not convert {SECRET}") from KeyError(SECRET)

    monkeypatch.setattr(place, raising)
    ran = run("release", "release.toml", *(["--json"] if as_json else []))
    assert ran.code == 1
    assert "ValueError" in ran.err
    assert "its text is withheld" in ran.err
    assert SECRET not in ran.err + ran.out
    if as_json:
        assert ran.json["error"] == "internal"


# --- start-up --------------------------------------------------------------------------------

HEAVY = ("numpy", "scipy", "pyarrow", "dask", "distributed", "zarr", "xarray", "sqlalchemy",
         "pydantic", "rich", "cryptography", "pandas", "matplotlib")  # fmt: skip


PLAN = """
from dbern.planning.planner import plan_files
from dbern.planning.spec import ReleaseSpec
plan_files(ReleaseSpec(
    release={"name": "case", "output": "case.zarr"},
    data={"source": "*.parquet", "n": 1000, "bounds": {"x": [0.0, 1.0]}},
    target={"kind": "kernel-density", "bandwidth": [0.5]},
    budget={"epsilon": "1", "ledger": "sqlite:///l.db", "dataset": "d"},
), ())
"""
FEW_QUERIES = """
import numpy, dbern.cli.main, dbern.synopsis.tables
from dbern.data.domain import Axis, Domain
from dbern.synopsis.evaluate import Polynomial
Polynomial(numpy.ones(3), Domain((Axis('x', 0.0, 1.0),)))(numpy.zeros((1, 1)), 1)
"""
ASK_HELP = "from dbern.cli.main import run; run(['ask', '--help'])"
WITHOUT = {  # what a process does without: each takes a third to half a second
    "import dbern": HEAVY,
    "import dbern.errors": HEAVY,
    "import dbern.cli.main": HEAVY,
    ASK_HELP: (*HEAVY, "dbern.ask.question"),
    FEW_QUERIES: ("numba",),
    PLAN: ("numba", "scipy", "pandas", "sqlalchemy", "zarr"),
}


@pytest.mark.parametrize(
    "program", [pytest.param(one, marks=[pytest.mark.slow] * (one == PLAN)) for one in WITHOUT]
)
def test_heavy_modules_are_imported_late(program):
    script = f"{program}\nimport sys, json; print(); print(json.dumps([*sys.modules]))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(WITHOUT[program]).isdisjoint(json.loads(ran.stdout.splitlines()[-1]))


@pytest.mark.slow
@pytest.mark.parametrize("module", [False, True])
def test_the_installed_command_returns_the_exit_code(executable, project, module):
    ran = subprocess.run(
        [*([sys.executable, "-m", "dbern"] if module else [executable]),
         "show", "nothing.zarr", "--json"],
        cwd=project.folder, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 2
    assert json.loads(ran.stdout)["exit_code"] == 2
    assert ran.stderr.startswith("dbern: ")


def test_a_disk_that_fails_right_after_publication_is_said_and_loses_nothing(
    project, run, monkeypatch
):
    def failing(*_where):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def failing_once_it_is_there(path):
        if (project.output / "manifest.json").exists():
            failing()
        sync(path)

    sync = storage._sync
    with monkeypatch.context() as patch:
        patch.setattr(storage, "_sync", failing_once_it_is_there)
        ran = run("release", "release.toml")
    ran.refused(1, "run the same command again")
    assert "internal" not in ran.err
    assert run("release", "release.toml").code == 0
    assert project.spent() == "epsilon 1, epsilon 0 reserved"
    monkeypatch.setattr(storage.Folder, "read", failing)
    run("release", "release.toml").refused(1, "cannot be read")


@pytest.mark.parametrize("url", ["mysql://host/db", "postgresql+psycopg://user:hush@host/db"])
def test_a_plan_refuses_a_ledger_that_the_release_would_refuse(project, run, url):
    project.spec(budget={"ledger": url})
    ran = run("plan", "release.toml")
    ran.refused(2, "ledger: ")
    assert "hush" not in ran.err
