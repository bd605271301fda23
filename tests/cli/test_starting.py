"""What a new user meets first: init, target list, doctor."""

from __future__ import annotations

import os
import re
import shutil
import time
import tomllib
from contextlib import nullcontext
from datetime import date
from datetime import time as clock
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dbern.cli import diagnosis
from dbern.data.times import TimeUnit, moment_of
from dbern.errors import SpecError
from dbern.planning.planner import plan_files
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.budget import Budget
from dbern.targets import kinds, learner_of

BASE = ("--source", "data/*.parquet", "--axis", "x=0,10", "--axis", "y=-1,1", "--epsilon", "0.5",
        "--dataset", "trips")  # fmt: skip
KINDS = {
    "ridge-regression": ("--response", "delay=-60,180"),
    "gaussian-naive-bayes": ("--set", "std_floor=[0.1, 0.1]", "--label", "late=no,yes"),
    "kernel-density": ("--set", "bandwidth=[2.0, 0.4]"),
    "nadaraya-watson": ("--set", "bandwidth=[2.0, 0.4]", "--response", "delay=-60,180"),
    "support-vector-machine": ("--set", "length_scale=[2.0, 0.4]", "--label", "late=no,yes"),
}
DENSITY = (*BASE, *KINDS["kernel-density"])


# --- init ------------------------------------------------------------------------------------


@pytest.fixture
def init(project, run):
    """Write a new spec, and return it with its text."""

    def written(*words):
        ran = run("init", "new.toml", *words)
        assert ran.code == 0, ran.err
        path = project.folder / "new.toml"
        return ReleaseSpec.load(path), path.read_text()

    return written


@pytest.mark.parametrize("kind", KINDS)
def test_init_writes_a_spec_that_loads(init, kind):
    spec, _ = init(*BASE, "--kind", kind, *KINDS[kind])
    assert (spec.release.name, spec.learner.kind) == ("new", kind)
    assert spec.domain.axes[1].low == -1
    assert str(spec.charge) == "epsilon 0.5"


def test_a_source_of_partitions_names_each_release(project, run):
    words = ("--source", "data/{partition}/*.parquet", *DENSITY[2:], "--kind", "kernel-density")
    ran = run("init", "new.toml", *words)
    lines = [line.strip() for line in ran.out.splitlines()]
    assert "dbern plan new.toml --partition P" in lines
    assert "dbern release new.toml --partition P" in lines
    spec = ReleaseSpec.load(project.folder / "new.toml", partition="2026-01-01")
    assert spec.release.name == "new-2026-01-01"
    assert spec.release.output == "new-2026-01-01.zarr"


@pytest.mark.parametrize(
    ("limits", "unit"),
    [
        ("2026-01-01, 2027-01-01", TimeUnit.DAYS),
        ("2026-01-01T00:00:00Z,2026-01-02T06:00:00+02:00", TimeUnit.SECONDS),
    ],
)
def test_limits_may_be_dates_or_times(init, limits, unit):
    given = ("--axis", f"trip.when={limits}", "--response", f"until={limits}")
    kind = ("--kind", "nadaraya-watson", "--set", "bandwidth=[2.0, 0.4, 30.0]")
    spec, _ = init(*BASE, *given, *kind)
    low, high = (unit.of(moment_of(text.strip())) for text in limits.split(","))
    for found in (spec.domain.axes[2], spec.records.response):
        assert (found.low, found.high, found.unit) == (low, high, unit)


@pytest.mark.parametrize("kind", KINDS)
def test_every_default_in_the_comments_is_the_default(init, kind):
    _, text = init(*BASE, "--kind", kind, *KINDS[kind])
    spoken = re.sub(r"(?m)^# (\w+ = )", r"\1", text)
    assert spoken.count("\n# ") < text.count("\n# ")
    plain = ReleaseSpec(**tomllib.loads(text)).model_dump(mode="json")
    full = ReleaseSpec(**tomllib.loads(spoken)).model_dump(mode="json")
    assert full["data"].pop("n") == 1000000
    del plain["data"]["n"]
    plain["target"] = full["target"] | plain["target"]
    assert plain == full
    learner = learner_of(kind)(**{k: v for k, v in plain["target"].items() if k != "kind"})
    fields = learner_of(kind).model_fields.items()
    defaults = {name: field.default for name, field in fields if not field.is_required()}
    assert learner.get_params().items() >= defaults.items()


@pytest.mark.parametrize("kind", KINDS)
def test_a_spec_proposes_questions_where_they_can_be_asked(init, kind):
    """A density's spec asks them; a regression's says how."""
    _, text = init(*BASE, "--kind", kind, *KINDS[kind])
    assert bool(re.search("(?m)^questions = ", text)) == (kind == "kernel-density")
    proposed = re.findall(r"(?m)^(?:# here: )?(questions = \[.*\])", text)
    assert len(proposed) == (kind in ("kernel-density", "nadaraya-watson"))
    for questions in proposed:
        changed = text.replace(f"# here: {questions}", questions)
        spec = ReleaseSpec(**tomllib.loads(changed.replace("# n = ", "n = ")))
        assert set(plan_files(spec, ()).outlook.questions) >= {"mass", "quantile"}


TYPED = {  # columns by their types alone: as many rows of one value tell nothing more
    "age": (pa.int16(), 0, "17,90"),
    "fare": (pa.decimal128(9, 2), Decimal("1.50"), "0,100"),
    "day": (pa.date32(), date(2026, 1, 2), "2026-01-01,2026-02-01"),
    "half": (pa.int16(), 0, "0.5,90.5"),
    "km": (pa.float64(), 1.0, "0,10"),
    "none": (pa.null(), None, "0,10"),
}


def test_a_type_says_what_an_axis_counts_in_and_a_comment_asks_for_the_rest(project, init):
    columns = {name: pa.array([value] * 9, kind) for name, (kind, value, _) in TYPED.items()}
    project.write(columns)
    axes = [word for name, (*_, ends) in TYPED.items() for word in ("--axis", f"{name}={ends}")]
    others = ("--set", f"bandwidth={[1.0] * len(TYPED)}", *BASE[:2], *BASE[6:])
    spec, text = init(*axes, *others)
    assert spec.data.resolution == {"age": 1.0, "fare": 0.01, "day": 1.0}
    assert "# Are values of half, km, none rounded" in text
    shutil.rmtree(project.folder / "data")
    (project.folder / "new.toml").unlink()
    spec, text = init(*axes, *others)
    assert spec.data.resolution is None
    assert f"# Are values of {', '.join(TYPED)} rounded" in text


def test_two_files_of_other_types_count_in_nothing(project, init):
    project.write({"x": pa.array([1, 2, 3], pa.int64())})
    pq.write_table(pa.table({"x": [0.5]}), project.folder / "data" / "another.parquet")
    words = ("--axis", "x=0,10", *BASE[:2], *BASE[6:])
    assert init(*words)[0].data.resolution is None


@pytest.mark.parametrize(
    ("ends", "settings", "edges"),
    [
        ("0,24", (), ("periodic", "natural")),
        ("0,24", ("--set", 'edges="normalized"'), "normalized"),
        ("0,24", ("--set", "covariance=[[1.0, 0.0], [0.0, 0.1]]"), None),
        ("0,24", ("--set", "bandwidth=[6.0, 0.1]"), None),  # too wide to go on
        ("0,20", (), None),
    ],
)
def test_a_density_of_times_of_day_goes_on_at_midnight(project, init, ends, settings, edges):
    """By the column's type, unless the bounds are not a whole day, or the edges are stated."""
    project.write({"at": [clock(23, 59)] * 9, "x": [0.5] * 9})
    spec, text = init("--axis", f"at={ends}", "--axis", "x=0,1", *settings, *BASE[:2], *BASE[6:])
    assert spec.learner.edges == edges
    assert ("# Are values of at" in text) == (ends != "0,24")  # hours have no decimal step
    empty = pa.table({"at": pa.nulls(1), "x": [0.5]})  # of no values
    pq.write_table(empty, project.folder / "data" / "another.parquet")
    (project.folder / "new.toml").unlink()
    spec, _ = init("--axis", f"at={ends}", "--axis", "x=0,1", *settings, *BASE[:2], *BASE[6:])
    assert spec.learner.edges == edges
    pq.write_table(pa.table({"at": [0.5], "x": [0.5]}), project.folder / "data" / "another.parquet")
    (project.folder / "new.toml").unlink()
    spec, _ = init("--axis", f"at={ends}", "--axis", "x=0,1", *settings, *BASE[:2], *BASE[6:])
    assert spec.learner.edges == (edges if edges == "normalized" else None)


def test_data_in_place_of_a_spec_is_refused_with_what_to_write(project, run):
    project.write({"x": [1.0]}, files=1)
    said = r'is data.* --source "data'
    for name in ("data/part-0.parquet", "data"):
        ran = run("init", name)
        assert (ran.code, bool(re.search(said, ran.err))) == (2, True), ran.err
        (command,) = re.findall(r"dbern (init --show .*)$", ran.err)
        assert "x  " in run(*command.replace('"', "").split()).out


def test_a_covariance_stands_for_the_bandwidth(init):
    spec, text = init(*BASE, "--set", "covariance=[[0.04, 0.03], [0.03, 0.04]]")
    assert "questions" not in text
    assert spec.learner.covariance == ((0.04, 0.03), (0.03, 0.04))


def test_init_runs_from_its_own_advice(project, run):
    ran = run("init", "new.toml", *DENSITY, "--ledger", "sqlite:///n.db",
              "--delta", "1e-6", "--json")  # fmt: skip
    assert ran.json["next"][0] == "dbern plan new.toml"
    for command in ran.json["next"][1:3]:
        done = run(*(word.strip('"') for word in command.split()[1:]))
        assert done.code == 0, done.err


def test_init_overwrites_nothing_and_opens_no_data(project, run, init):
    shutil.rmtree(project.folder / "data")
    before = project.spec_path.read_bytes()
    run("init", *DENSITY).refused(2, "release.toml: exists")
    assert project.spec_path.read_bytes() == before
    init(*DENSITY)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Missing options '--source', '--axis', '--epsilon', '--dataset'. Write for example "
             '--source "data/*.parquet" --axis column=0,10 --epsilon 1.0 --dataset NAME'),
        (BASE[2:], "Missing option '--source'. Write for example --source"),
        ((*BASE, "--kind", "support-vector-machine", "--label", "late=no,yes"),
         "length_scale = [1.0, 1.0]"),
        ((*BASE, "--axis", "x=0,9"), '"x" is an axis already'),
        (("--axis", "a=0,1", "--axis", "b=0,1", *BASE), '"auto" is for one to 3 axes'),
        ((*BASE, "--set", "bandwidth=wide"), "is not a TOML value"),
        ((*BASE, "--set", "bandwidth=[1.0]"), "bandwidth"),
        ((*DENSITY, "--set", "bandwidth=[1.0, 1.0]"), "--set: a key is given twice"),
        ((*BASE, "--set", "bandwith=[1.0]"), "bandwith: kernel-density has no such key"),
        ((*BASE, "--axis", "z=5", *KINDS["kernel-density"]), "write z=low,high"),
        ((*BASE, "--axis", "z=5,2026-01-01", *KINDS["kernel-density"]), "must be of one kind"),
        ((*BASE, "--axis", "z=5,1", *KINDS["kernel-density"]), "data.bounds.z"),
        ((*BASE, "--kind", "kernel-densty", "--set", "bandwidth=[1.0]"), "kernel-density"),
        ((*BASE, "--kind", "nadaraya-watson", "--set", "bandwidth=[1.0, 1.0]"),
         "Missing option '--response'. Write for example --response column=-1.0,1.0"),
        ((*DENSITY, "--response", "d=0,1"), "has no use for it"),
        ((*BASE[:6], "--epsilon", "much", "--dataset", "d", *KINDS["kernel-density"]),
         "budget.epsilon"),
        ((*DENSITY, "--unit", "rider"), "--unit"),
        ((*DENSITY, "--unit", "rider=x"), "write rider=8"),
        ((*DENSITY, "--unit", "rider=3"), "Missing option '--normalizer'"),
        ((*DENSITY, "--neighbors", "both"), "data.neighbors"),
        ((*DENSITY, "--normalizer", "5000"), "data.normalizer"),
        ((*DENSITY, "--filter", "status"), "--filter"),
        ((*DENSITY, "--filter", "x=1"), "two roles"),
    ],
)  # fmt: skip
def test_init_says_what_is_missing_or_wrong(project, run, arguments, said):
    run("init", "new.toml", *arguments).refused(2, said)
    assert not (project.folder / "new.toml").exists()


@pytest.mark.parametrize("unit", ["rider=3", "rider:3"])
def test_options_say_whose_data_it_is_and_which_rows_count(init, unit):
    given = ("--unit", unit, "--neighbors", "add-or-remove-one", "--normalizer", "5000",
             "--filter", "status=done,late")  # fmt: skip
    data = init(*DENSITY, *given)[0].data
    assert (data.unit.column, data.unit.max_contributions) == ("rider", 3)
    assert (data.neighbors, data.normalizer) == ("add-or-remove-one", "5000")
    assert data.filter.values == ["done", "late"]


def test_odd_names_survive_toml(init):
    odd = ["--axis", "km from center=0,10", "--set", "bandwidth=[1.0]", "--group", "a b=1,2,x y"]
    spec, _ = init("--source", 'a "b".parquet', *odd, *BASE[6:])
    assert spec.domain.names == ("km from center",)
    assert spec.data.source == 'a "b".parquet'
    assert spec.data.group.values == [1, 2, "x y"]


# --- target list -----------------------------------------------------------------------------


def test_target_list_has_every_kind_and_every_key(run):
    ran = run("target", "list", "--json")
    assert [one["kind"] for one in ran.json["targets"]] == kinds()
    for one in ran.json["targets"]:
        assert one["summary"].endswith(".")
        fields = learner_of(one["kind"]).model_fields
        assert [key["key"] for key in one["keys"]] == list(fields)
        for key in one["keys"]:
            assert key["write"].startswith(f"{key['key']} = ")
            assert key["required"] == fields[key["key"]].is_required()
    text = run("target", "list").out
    assert re.search(r"nadaraya-watson +Regression of a bounded response", text)
    assert "[data.response]" in text


def test_a_broken_learner_does_not_hide_the_others(run, monkeypatch):
    def load():
        raise ImportError("no such module: " + "x" * 10)

    package = SimpleNamespace(name="others", version="2.1")
    broken = SimpleNamespace(name="broken", module="others", load=load, dist=package)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [broken])
    ran = run("target", "list")
    assert ran.code == 0
    assert re.search(r"broken +others 2.1 cannot be imported \(ImportError\)", ran.out)
    assert "kernel-density" in ran.out


# --- doctor ----------------------------------------------------------------------------------


@pytest.fixture
def doctor(project, run):
    """The exit code, and the state of each thing that was looked at."""

    def looked(*words):
        ran = run("doctor", "--ledger", project.url, *words, "--json")
        assert ran.json["ok"] == (ran.code == 0)
        return ran.code, {one["what"]: one["state"] for one in ran.json["findings"]}

    return looked


def states(findings):
    return {finding.subject: finding.state for finding in findings}


def test_doctor_finds_a_sound_project_sound(project, run, doctor):
    assert run("release", "release.toml").code == 0
    before = sorted(project.folder.rglob("*"))
    code, found = doctor("--output", "new.zarr")
    assert code == 0, found
    for what in ("python", "numpy", "zarr", "ledger file", "keys", "staging",
                 "ledger content", "file locks", "ledger locks", "create-if-absent"):  # fmt: skip
        assert found[what] == "good", what
    assert sorted(project.folder.rglob("*")) == before
    assert "0 to mend" in run("doctor", "--ledger", project.url).out


def test_doctor_says_what_to_run_where_others_can_read(project, run, doctor):
    assert run("release", "release.toml").code == 0
    project.ledger_path.chmod(0o644)
    keys = project.ledger_path.with_name("ledger.db.keys")
    keys.chmod(0o750)
    ran = run("doctor", "--ledger", "sqlite:///ledger.db", "--quiet")
    assert ran.code == 4
    for path, mode in (("ledger.db", "600"), ("ledger.db.keys", "700")):
        assert f"run: chmod {mode} ./{path}\n" in ran.out
    assert "python" not in ran.out
    project.ledger_path.chmod(0o600)
    keys.chmod(0o700)
    assert run("doctor", "--ledger", "sqlite:///ledger.db").code == 0
    keys.rename(keys.with_name("moved"))
    keys.symlink_to("moved")
    assert doctor()[1]["keys"] == "mend"


def test_doctor_without_a_ledger_or_with_another_file(project, run, doctor):
    ran = run("doctor", "--ledger", "sqlite:///none.db")
    assert ran.code == 4
    assert "run: dbern ledger init --ledger sqlite:///none.db" in ran.out
    assert not (project.folder / "none.db").exists()
    project.ledger_path.write_bytes(b"no database at all" * 100)
    assert doctor()[1]["ledger locks"] == "mend"
    assert run("doctor", "--ledger", "mysql://host/db").code == 2


def test_locks_and_links_that_exclude_no_one_are_found(doctor, monkeypatch):
    monkeypatch.setattr("dbern.cli.diagnosis.fcntl.flock", lambda file, how: None)
    monkeypatch.setattr("dbern.cli.diagnosis.os.link", lambda source, target: None)
    code, found = doctor("--output", "o.zarr")
    assert (code, found["file locks"], found["create-if-absent"]) == (4, "mend", "mend")
    assert found["ledger locks"] == "good"  # SQLite's own


def test_old_packages_and_missing_ones_are_found(monkeypatch):
    asked = ["numpy>=99.0", "no-such-package>=1.0", "zarr>=3.0"]
    monkeypatch.setattr(
        "dbern.cli.diagnosis.requires", lambda name: [*asked, 'extra>=1; extra == "x"']
    )
    found = {one.subject: one for one in diagnosis.installation()}
    assert found["numpy"].state == found["no-such-package"].state == "mend"
    assert found["numpy"].remedy == 'run: python -m pip install "numpy>=99.0"'
    assert found["zarr"].state == "good"
    assert "extra" not in found


def test_a_ledger_written_in_the_future_is_found(project, set_clock):
    past = time.time() - 86400
    set_clock("dbern.cli.diagnosis", lambda: past)
    found = {one.subject: one for one in diagnosis.ledger(project.url)}
    assert found["ledger content"].state == "mend"
    assert "of the future" in found["ledger content"].observed


FIRST, LATE, BACK = "2101-03-02T10:00:00+00:00", "2101-03-02T10:05:00+00:00", "2101-02-27T23:00"
MIDNIGHT = ("2101-03-01T23:59:58+00:00", "2101-03-02T00:00:01+00:00")
CLOCKS = {  # period and times of grants, and what is found
    "set back and right again": (
        "day", [FIRST, LATE, f"{BACK}:00+00:00", f"{BACK}:09+00:00", LATE], "warn",
        ["set back at 1 place of", "entry 4 by 212700 s",
         "each day from 2101-02-27 to before 2101-03-02 of nightly"],
    ),
    "set back twice": (
        "month", [f"2101-03-0{day}T00:00:00+00:00" for day in (1, 5, 4, 6, 2, 9)], "warn",
        ["set back at 2 places", "no budget by period reopened"],
    ),
    "clocks that differ a little within a period": (
        "day", [f"2101-03-01T12:00:{s}+00:00" for s in ("10", "30", "28", "31")], "good",
        ["by at most 2 s"],
    ),
    "a short step into a period that is over": (
        "day", [MIDNIGHT[0], *MIDNIGHT, MIDNIGHT[0]], "warn",
        ["from 2101-03-01 to before 2101-03-02 of nightly"],
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CLOCKS)
def test_a_clock_that_was_set_back_is_found(project, doctor, monkeypatch, case):
    """The fixture's own grant is of this very day: the log's first entry."""
    period, times, state, sentences = CLOCKS[case]
    with project.ledger() as ledger:
        for number, time_of_grant in enumerate(times):
            monkeypatch.setattr("dbern.ledger.tables.now", lambda now=time_of_grant: now)
            name = "nightly" if number else "other"
            ledger.grant(name, Budget.parse("1"), period=period if number else None)
    (found,) = (one for one in diagnosis.ledger(project.url) if one.subject == "ledger's clock")
    assert found.state == state
    for sentence in sentences:
        assert sentence in found.observed
    assert doctor()[1]["ledger's clock"] == state


@pytest.mark.parametrize(
    ("address", "state"),
    [("tcp://10.1.2.3:8786", "warn"), ("10.1.2.3:8786", "warn"), ("tls://10.1.2.3:8786", "good"),
     ("tcp://127.0.0.1:8786", "good"), ("localhost:8786", "good"), ("tcp://[::1]:8786", "good"),
     ("tcp://0.0.0.0:8786", "warn")],
)  # fmt: skip
def test_plain_tcp_beyond_loopback_is_warned_of(address, state):
    assert diagnosis._scheduler_transport(address)[0] == state


@pytest.mark.slow
def test_doctor_on_a_cluster(client, monkeypatch):
    def looked():
        return diagnosis.scheduler("tcp://127.0.0.1:1")

    # The session's client stays open.
    monkeypatch.setattr("dbern.cli.diagnosis.connect", lambda *_: nullcontext(client))
    found = states(looked())
    assert (found["workers"], found["worker memory"]) == ("good", "good")
    monkeypatch.setattr("dbern.cli.diagnosis._spills", lambda: spilling)
    assert states(looked())["worker memory"] == "mend"
    monkeypatch.setattr(
        "dbern.run.tasks.version", lambda name: f"other {os.getpid()} {time.time_ns()}"
    )
    (workers,) = (finding for finding in looked() if finding.subject == "workers")
    assert workers.state == "mend"
    assert "runs other versions" in workers.observed


def spilling(dask_worker):
    return b'{"spills": true}'


def test_a_scheduler_that_is_not_there(monkeypatch):
    monkeypatch.setattr("dbern.cli.diagnosis._CONNECT_SECONDS", 0.2)
    (found,) = diagnosis.scheduler("tcp://127.0.0.1:9")
    assert (found.subject, found.state) == ("scheduler", "mend")


def test_an_output_is_a_path_or_of_s3():
    with pytest.raises(SpecError, match="--output"):
        diagnosis.output("gs://bucket/x")


# --- doctor, of a ledger in PostgreSQL, as a client sees it ------------------------------------

HOST = "postgresql+psycopg://steward@database.example/ledger"
WAYS = [
    (HOST, "", "mend"),  # libpq prefers TLS, and goes on without
    (HOST, "require", "warn"),
    (HOST, "verify-full", "good"),
    (f"{HOST}?sslmode=verify-full", "disable", "good"),  # the URL's counts
    (f"{HOST}?sslmode=verify-ca", "", "warn"),
    (f"{HOST}?sslmode=disable", "verify-full", "mend"),
    ("postgresql+psycopg:///ledger?service=ledger", "", "mend"),
    ("postgresql+psycopg:///ledger", "", "good"),  # by its socket
    ("postgresql+psycopg:///ledger?host=database.example", "", "mend"),
    ("postgresql+psycopg://steward@127.0.0.1:5432/ledger", "", "good"),
]


@pytest.mark.parametrize(("url", "mode", "state"), WAYS)
def test_doctor_looks_at_the_way_to_a_database(monkeypatch, url, mode, state):
    monkeypatch.delenv("PGHOST", raising=False)
    monkeypatch.setenv("PGSSLMODE", mode)
    found = next(one for one in diagnosis.database(url) if one.subject == "ledger's transport")
    assert found.state == state
    assert (found.remedy == "") is (state == "good")


def test_doctor_looks_at_who_may_read_a_secret_s_file(monkeypatch, tmp_path):
    def found():
        return states(diagnosis.database(HOST))["ledger's secret"]

    monkeypatch.delenv("DBERN_LEDGER_SECRET_FILE", raising=False)
    assert found() == "good"
    secret = tmp_path / "secret"
    monkeypatch.setenv("DBERN_LEDGER_SECRET_FILE", str(secret))
    assert found() == "mend"  # there is none
    secret.write_text("00" * 32)
    secret.chmod(0o644)
    assert found() == "mend"
    secret.chmod(0o440)  # as a cluster mounts it
    assert found() == "good"
