"""The worked pipelines from generated data to scores: each night spends once, whatever happens."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import dbern
from dbern.cli import main as command_line
from dbern.cli import metrics, releases
from dbern.cli import releases as schedules
from dbern.privacy.budget import Budget
from pipelines import score
from pipelines.generated import generate, risk, trips, write

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "pipelines"
TODAY = date(2026, 11, 20)
URL = "sqlite:///ledger.db"
NIGHTLY = ("nightly.toml", "--every", "day", "--today", str(TODAY))


def catch_up(*arguments):
    return command_line.run(["catch-up", *arguments])


def nightly(*arguments):
    return catch_up(*NIGHTLY, "--last", "3", *arguments)


def account(dataset):
    with dbern.BudgetLedger.open(URL, read_only=True) as ledger:
        (one,) = ledger.status(dataset)
    return str(one.spent), [row.name for row in one.releases]


def test_a_night_catches_up_and_a_second_trigger_spends_nothing(folder, capsys):
    assert nightly("--last", "1") == 0
    assert account("trips") == ("epsilon 0.1", ["trips-2026-11-19"])
    assert nightly() == 0
    everything = "epsilon 0.3", ["trips-2026-11-19", "trips-2026-11-17", "trips-2026-11-18"]
    assert account("trips") == everything
    bytes_before = {p: p.read_bytes() for p in folder.glob("out/**/*") if p.is_file()}
    capsys.readouterr()
    assert nightly() == 0
    assert capsys.readouterr().out.count("nothing was charged") == 3
    assert account("trips") == everything
    assert {p: p.read_bytes() for p in folder.glob("out/**/*") if p.is_file()} == bytes_before


@pytest.mark.parametrize(
    ("unit", "dataset", "spent", "published"),
    [("nightly", "trips", "epsilon 0.7", 7), ("year", "year", "epsilon 1", 7),
     ("weekly", "loans", "epsilon 0.4", 2)],
)  # fmt: skip
def test_a_service_does_what_it_is_for(folder, unit, dataset, spent, published):
    """The command of its unit, where the specs are; and then nothing of it is missing."""
    generate(folder / "data", days=7, weeks=0, rows=4000, today=TODAY)
    with dbern.BudgetLedger.open(URL) as ledger:
        ledger.grant("trips", Budget.parse("0.4"))
        ledger.grant("year", Budget.parse("1"), neighbors=dbern.Neighbors.ADD_OR_REMOVE_ONE)
    _, *words = unit_words(unit)
    for _ in range(2):  # a second trigger spends nothing
        assert command_line.run([*words, "--today", str(TODAY)]) == 0
        assert account(dataset)[0] == spent
    stores = dbern.published("out/risk" if unit == "weekly" else f"out/{dataset}")
    assert len(stores) == published
    due = [value for flag, value in pairwise(unit_words("metrics")) if flag == "--due"]
    (schedule,) = (metrics._schedule(value) for value in due if f"{unit}.toml" in value)
    numbers = {one.name: one.value for one in metrics.samples(URL, [schedule], [], TODAY)}
    assert (numbers["partitions_due"], numbers["partitions_missing"]) == (published, 0)


def unit_words(unit):
    """The words of a service's command, with its specs in the current folder."""
    text = (FOLDER.parent / f"deploy/systemd/dbern-{unit}.service").read_text()
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    return line.replace("/etc/dbern/", "").split()


def test_the_day_after_the_horizon_says_what_to_write(folder, capsys):
    """Its night is refused, by itself, and is missing for the alert; nothing is charged."""
    spec = (folder / "year.toml").read_text().replace("horizon = 365", "horizon = 18")
    (folder / "year.toml").write_text(f"{spec}[mechanism]\nk = 6\nh = 2\n")
    with dbern.BudgetLedger.open(URL) as ledger:
        ledger.grant("year", Budget.parse("2"), neighbors=dbern.Neighbors.ADD_OR_REMOVE_ONE)
    words = ["catch-up", "year.toml", "--every", "day", "--last", "3", "--today", str(TODAY)]
    assert command_line.run(words) == 2
    out = capsys.readouterr().out
    assert out.count("is published") == 2
    refused = (
        "2026-11-19: exit code 2: 2026-11-19: is outside the horizon, 2026-11-01 to 2026-11-18"
    )
    assert refused in out
    assert "a stream of another name" in out
    assert account("year")[0] == "epsilon 1"
    renewed = spec.replace("trips-of-the-year", "trips-of-the-second-year")
    renewed = renewed.replace("out/year", "out/second-year").replace("2026-11-01", "2026-11-19")
    (folder / "second.toml").write_text(f"{renewed}[mechanism]\nk = 6\nh = 2\n")
    words[1] = "second.toml"
    assert command_line.run([*words, "--since", "2026-11-19"]) == 0
    assert account("year")[0] == "epsilon 2"
    capsys.readouterr()
    ends = np.zeros(2)  # of rows in both streams: values and ends add up, at half of beta each
    for stream in ("year@2026-11-17..2026-11-18", "second-year"):
        words = ["ask", f"out/{stream}", "--count", "x=0..10", "--beta", "0.025", "--json"]
        assert command_line.run(words) == 0
        (row,) = json.loads(capsys.readouterr().out)["questions"][0]["answers"]
        ends += row["low"], row["high"]
    low, high = ends
    rows = [pq.read_table(f"data/trips/2026-11-{day}.parquet")["x"] for day in (17, 18, 19)]
    count = sum(int(((x >= 0) & (x <= 10)).sum()) for x in map(np.asarray, rows))
    assert low <= count <= high < low + 400


def test_a_missing_file_holds_no_other_night_back_and_is_made_up_for(folder, capsys):
    late = folder / "data/trips/2026-11-18.parquet"
    late.unlink()
    assert nightly() == 2
    assert account("trips")[1] == ["trips-2026-11-17", "trips-2026-11-19"]
    assert "2026-11-18: exit code 2: data.source: no Parquet file" in capsys.readouterr().out
    write(late, trips("2026-11-18", 4000))
    assert nightly() == 0
    assert account("trips")[0] == "epsilon 0.3"


def test_a_refused_budget_ends_the_round_and_says_what_mends_it(folder, capsys):
    generate(folder / "data", days=5, weeks=0, rows=4000, today=TODAY)
    code = catch_up(*NIGHTLY, "--last", "5", "--json")
    out, _ = capsys.readouterr()
    outcomes = json.loads(out)["partitions"]
    assert code == releases.BUDGET == json.loads(out)["exit_code"]
    assert [one["exit_code"] for one in outcomes] == [0, 0, 0, 3]  # and the fifth is not tried
    assert "dbern ledger grant" in outcomes[-1]["message"]
    with dbern.BudgetLedger.open(URL) as ledger:
        ledger.grant("trips", Budget.parse("0.2"))
    assert catch_up(*NIGHTLY, "--last", "5") == 0
    assert account("trips")[0] == "epsilon 0.5"


@pytest.mark.parametrize(
    ("codes", "tried", "code"),
    [([0, 1, 0], 3, 1), ([2, 5, 0], 3, 2), ([2, 3, 0], 2, 3), ([4, 0, 0], 1, 4), ([130], 1, 130)],
)
def test_what_ends_a_round(codes, tried, code):
    remaining, told = iter(codes), []
    partitions = [f"p{i}" for i in range(len(codes))]
    returned, outcomes = releases._release_partitions(
        lambda _words: (next(remaining), {}), "x.toml", partitions, (), told.append
    )
    assert (returned, len(outcomes)) == (code, tried)
    assert len(told) == tried


@pytest.mark.parametrize(
    ("every", "last", "today", "since", "partitions"),
    [
        ("day", 3, "2026-11-20", None, ["2026-11-17", "2026-11-18", "2026-11-19"]),
        ("day", 7, "2026-11-20", "2026-11-19", ["2026-11-19"]),
        ("week", 2, "2026-11-20", None, ["2026-11-02", "2026-11-09"]),
        ("week", 1, "2026-11-23", None, ["2026-11-16"]),  # a Monday
    ],
)
def test_the_last_complete_partitions_are_due(every, last, today, since, partitions):
    first = since and date.fromisoformat(since)
    assert schedules.due(every, last, date.fromisoformat(today), first) == partitions


def test_the_release_is_the_command_that_a_person_would_type(monkeypatch):
    typed, run = [], command_line.run
    monkeypatch.setattr(
        command_line, "run_json", lambda words: typed.append(words) or (2, {"message": "no"})
    )
    words = ["catch-up", *NIGHTLY, "--last", "1", "--scheduler", "tls://host:8786"]
    assert run(words) == 2
    assert typed == [["release", "nightly.toml", "--partition", "2026-11-19",
                      "--scheduler", "tls://host:8786"]]  # fmt: skip


def test_the_weekly_classifier_scores_a_large_table(folder, capsys):
    assert score.main(["out/risk", "data/applicants.parquet", "--out", "scored"]) == 2
    weekly = ["weekly.toml", "--every", "week", "--today", str(TODAY), "--since", "2026-11-02"]
    assert catch_up(*weekly) == 0
    assert account("loans") == ("epsilon 0.4", ["risk-2026-11-02", "risk-2026-11-09"])
    assert score.main(["out/risk", "data/applicants.parquet", "--out", "scored"]) == 0
    (file,) = (folder / "scored").iterdir()
    assert file.name == "applicants-2026-11-09.parquet"  # the newest
    scored = pq.read_table(file)
    assert scored["applicant"].to_pylist() == list(range(16_000))
    truth = risk(scored["income"].to_numpy(), scored["debt"].to_numpy())
    assert np.corrcoef(scored["value"].to_numpy(), truth)[0, 1] > 0.8
    capsys.readouterr()
    assert score.main(["out/risk", "data/applicants.parquet", "--out", "scored"]) == 0
    assert "there already" in capsys.readouterr().out
    assert account("loans")[0] == "epsilon 0.4"  # scores are free


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_a_full_disk_under_the_log_keeps_the_code(folder, as_json, unbuffered):
    """The service's next step hangs on it: 2 waits for a person, 1 is tried again."""
    missing = [*NIGHTLY, "--last", "1", *as_json]
    given = {**os.environ, "PYTHONPATH": str(FOLDER.parent), "PYTHONUNBUFFERED": unbuffered}
    (folder / "data/trips/2026-11-19.parquet").unlink()
    scores = ["out/none", "data/applicants.parquet", "--out", "scored", *as_json]
    for words in (["dbern", "catch-up", *missing], ["pipelines.score", *scores]):
        with Path("/dev/full").open("w") as full:
            ran = subprocess.run(
                [sys.executable, "-m", *words], stdout=full, stderr=full, check=False,
                env=given,
            )  # fmt: skip
        assert ran.returncode == 2, words


def test_scores_that_have_no_place_are_a_message(folder, capsys, monkeypatch):
    monkeypatch.setattr(dbern, "published", lambda where: [f"{where}/2026-11-09.zarr"])
    words = ["out/risk", "data/applicants.parquet", "--out", "nightly.toml", "--json"]
    assert score.main(words) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["message"].startswith("nightly.toml: cannot be made (File exists)")


def test_a_damaged_synopsis_scores_nothing(folder):
    weekly = ["weekly.toml", "--every", "week", "--today", str(TODAY), "--last", "1"]
    assert catch_up(*weekly) == 0
    shard = next(p for p in (folder / "out/risk").rglob("c/*/*") if p.is_file())
    content = shard.read_bytes()
    shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert score.main(["out/risk", "data/applicants.parquet", "--out", "scored"]) == 5
    assert not list((folder / "scored").iterdir())


def test_the_night_as_it_is_shipped_shows_where_the_trips_were(folder):
    shutil.copy(FOLDER / "nightly.toml", folder)
    write(folder / "data/trips/2026-11-19.parquet", trips("2026-11-19", 50_000))
    assert nightly("--last", "1") == 0
    synopsis = dbern.open("out/trips/2026-11-19.zarr")
    grid = synopsis.grid(41)
    peak = grid.stack(point=grid.dims).idxmax().item()
    assert np.hypot(peak[1] - 5.0, peak[0] - 5.2) < 1  # a Thursday: in town, not at the lake
    assert synopsis.band() < float(grid.max()) / 2


def test_all_of_it_in_a_bucket(folder, bucket, capsys):
    """Sources, synopses, the table and its scores are objects; the ledger stays on the disk."""
    for path in (folder / "data").rglob("*.parquet"):
        bucket.put(path.relative_to(folder).as_posix(), path.read_bytes())
    shutil.rmtree(folder / "data")
    for name in ("nightly.toml", "weekly.toml"):
        spec = (folder / name).read_text()
        spec = spec.replace('"data/', f'"{bucket.url("data")}/')
        (folder / name).write_text(spec.replace('"out/', f'"{bucket.url("out")}/'))
    for _ in range(2):
        assert nightly() == 0
        assert account("trips")[0] == "epsilon 0.3"
    assert catch_up("weekly.toml", "--every", "week", "--today", str(TODAY)) == 2
    assert account("loans")[0] == "epsilon 0.4"  # both weeks that there are
    where = [bucket.url("out/risk/"), bucket.url("data/applicants.parquet")]
    for already in (False, True):
        capsys.readouterr()
        assert score.main([*where, "--out", bucket.url("scored/"), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["synopsis"] == bucket.url("out/risk/2026-11-09.zarr")
        assert (told["already"], told["rows"]) == (already, None if already else 16_000)
    (scores,) = bucket.objects("scored").items()
    assert scores[0] == "applicants-2026-11-09.parquet"
    scored = pq.read_table(BytesIO(scores[1]))
    local = dbern.open(bucket.url("out/risk/2026-11-09.zarr"))
    points = np.column_stack([scored["income"].to_numpy(), scored["debt"].to_numpy()])
    np.testing.assert_allclose(scored["value"].to_numpy(), local(points), atol=1e-12)
    bucket.server.fault = lambda _request: "refuse"
    assert score.main([*where, "--out", "scored"]) == 1
    assert "Check the bucket" in capsys.readouterr().err
    assert not any(path.name.startswith("s3:") for path in folder.iterdir())


def test_a_round_that_would_try_nothing_says_so(capsys):
    assert catch_up(*NIGHTLY, "--last", "0") == 2
    assert "x>=1" in capsys.readouterr().err
    assert catch_up(*NIGHTLY, "--since", "2026-12-01") == 0
    assert "nothing is due: no complete day since 2026-12-01" in capsys.readouterr().out


def test_two_triggers_at_once_spend_once(folder):
    command = [sys.executable, "-m", "dbern", "catch-up", *NIGHTLY, "--last", "1"]
    started = [subprocess.Popen(command, env=environment()) for _ in range(2)]
    assert [process.wait(timeout=300) for process in started] == [0, 0]
    assert account("trips") == ("epsilon 0.1", ["trips-2026-11-19"])
    assert dbern.open("out/trips/2026-11-19.zarr").verify() > 0


def test_a_killed_night_goes_on_for_the_same_charge(folder):
    command = [sys.executable, "-m", "dbern", "catch-up", *NIGHTLY, "--last", "1"]
    killed = (
        "import os, signal\nimport dbern.run.stages as r\n"
        "r.publish = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"  # charged, not published
        "from dbern.cli.main import main\nmain()"
    )
    first = subprocess.run([sys.executable, "-c", killed, *command[3:]], env=environment())
    assert first.returncode == -9
    assert account("trips")[0] == "epsilon 0.1"
    assert not list(folder.glob("out/trips/*/manifest.json"))
    assert subprocess.run(command, env=environment()).returncode == 0
    assert account("trips") == ("epsilon 0.1", ["trips-2026-11-19"])


def environment():
    return {**os.environ, "PYTHONPATH": str(FOLDER.parent)}


def test_pipelines_use_public_names_only():
    """And so draw no noise and decide nothing about privacy."""
    allowed = {"dbern", "dbern.cli.main", "dbern.cli.releases"}  # which partitions are due
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {node.module}
            elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "dbern":
                assert node.attr in dbern.__all__, f"{path.name}: dbern.{node.attr}"
                continue
            else:
                continue
            ours = {name for name in names if name.split(".")[0] == "dbern"}
            assert ours <= allowed, f"{path.name}: {ours - allowed}"


def test_the_readme_is_followed_to_its_end(tmp_path):
    """By someone whose days begin during it: then it is followed again, on the new day."""
    text = (FOLDER / "README.md").read_text()
    block = text.split("```")[1]
    lines = [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
    assert len(lines) == 9
    kept = shutil.ignore_patterns("__pycache__")  # in which other processes write
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    day = None
    while day != datetime.now(UTC).date():
        day = datetime.now(UTC).date()
        trial = tmp_path / str(day)
        shutil.copytree(FOLDER, trial / "checkout" / "pipelines", ignore=kept)
        ran = subprocess.run(
            ["sh", "-ec", "\n".join(lines)], cwd=trial / "checkout", capture_output=True,
            text=True, env={**environment(), "PATH": programs},
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count(" for epsilon 0.1") == 7
    assert ran.stdout.count(" for epsilon 0.2") == 2
    assert "remaining epsilon 2.3" in " ".join(ran.stdout.split())
    assert len(list((trial / "trial" / "scored").iterdir())) == 1
