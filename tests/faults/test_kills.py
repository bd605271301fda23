"""A release that is killed anywhere goes on: the same bytes, one charge, nothing private left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUNNER = Path(__file__).with_name("runner.py")
SPEC = {"mechanism": {"k": [40, 8], "h": 2}}
SLAB = 100  # coefficients: four slabs


def start(project, *faults, arguments=("release", "release.toml"), **settings):
    """The command line in a process of its own, with faults."""
    settings = {"slab": SLAB, "faults": faults, **settings}
    return subprocess.Popen(
        [sys.executable, str(RUNNER), json.dumps(settings), *arguments],
        cwd=project.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process, timeout=120):
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, request):
    """The objects of the release that nothing disturbed, by the very same runner."""
    from projects import Project, objects, records

    project = Project(tmp_path_factory.mktemp("undisturbed"))
    project.write(records())
    project.spec(**SPEC)
    project.grant()
    code, _, err = outcome(start(project))
    assert code == 0, err
    return objects(project.output)


@pytest.fixture
def resumes(undisturbed, helpers):
    """Run the plain command again and look at everything that must hold at the end."""

    def check(project):
        code, out, err = outcome(start(project))
        assert code == 0, err
        assert "released" in out
        assert helpers.objects(project.output) == undisturbed
        assert project.remains() == []
        assert project.spent() == "epsilon 1, epsilon 0 reserved"
        assert leftovers(project) == []
        assert len(project.ledger().status("trips")[0].releases) == 1

    return check


def leftovers(project):
    """What should not be in the project's folder any more."""
    known = {"data", "release.toml", "out.zarr", "ledger.db", "ledger.db.keys",
             "ledger.db.staging", "ledger.db.locks", "ledger.db.mark",
             "ledger.db.runs"}  # fmt: skip
    return sorted(p.name for p in project.folder.iterdir() if p.name not in known)


LEDGER, WRITER = "dbern.ledger.ledger:BudgetLedger", "dbern.synopsis.writer:SynopsisWriter"
RELEASING = "dbern.releasing"

# place, call, when, state that the ledger must be in afterwards; the slow ones lie in between.
POINTS = [
    (f"{LEDGER}.reserve", 1, "before", None),
    ("dbern.ledger.keys:KeyFiles.create", 1, "after", None),
    (f"{LEDGER}.reserve", 1, "after", "reserved"),
    (f"{LEDGER}.begin_reading", 1, "before", "reserved"),
    (f"{LEDGER}.begin_reading", 1, "after", "reading"),
    (f"{RELEASING}:add_up", 1, "after", "reading"),
    ("dbern.ledger.staging:Staging.clear", 1, "after", "reading"),
    ("dbern.ledger.staging:Staging.put", 1, "before", "reading"),
    ("dbern.ledger.staging:write_new", 2, "after", "reading"),
    ("dbern.ledger.staging:Staging.put", 2, "after", "reading"),
    ("dbern.ledger.staging:Staging.put", 4, "after", "reading"),
    (f"{LEDGER}.spend", 1, "before", "reading"),
    (f"{LEDGER}.spend", 1, "after", "spent"),
    ("dbern.ledger.staging:Staging.verify", 1, "after", "spent"),
    (f"{WRITER}.begin", 1, "before", "spent"),
    ("dbern.synopsis.writer:_create_component", 1, "before", "spent"),
    (f"{WRITER}.begin", 1, "after", "spent"),
    ("dbern.publishing:privatize", 2, "after", "spent"),
    (f"{WRITER}.write", 1, "before", "spent"),
    (f"{WRITER}.write", 3, "after", "spent"),
    (f"{WRITER}.finish", 1, "before", "spent"),
    ("dbern.synopsis.writer:publish", 1, "before", "spent"),
    ("dbern.synopsis.writer:publish", 1, "after", "spent"),
    (f"{LEDGER}.commit", 1, "before", "spent"),
    ("dbern.ledger.remains:Remains.destroy", 1, "before", "committed"),
    ("dbern.ledger.keys:KeyFiles.destroy", 1, "after", "committed"),
    ("dbern.ledger.remains:destroy_staging", 1, "before", "committed"),
    (f"{LEDGER}.commit", 1, "after", "committed"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("place", "call", "when", "state"), POINTS)
def test_killed_anywhere_it_goes_on(project, resumes, place, call, when, state):
    project.spec(**SPEC)
    code, _, err = outcome(start(project, (place, call, when, "kill")))
    assert code == -signal.SIGKILL, err
    with project.ledger() as ledger:
        found = ledger.find("trips", "density")
    assert (found.state if found else None) == state
    published = (project.output / "manifest.json").exists()
    assert published == ((place, when) == ("dbern.synopsis.writer:publish", "after")
                         or "commit" in place or state == "committed")  # fmt: skip
    resumes(project)


@pytest.mark.slow
def test_killed_while_writing_it_goes_on(project, resumes):
    """One of the points above in the fast suite."""
    project.spec(**SPEC)
    code, _, err = outcome(start(project, (f"{WRITER}.write", 3, "after", "kill")))
    assert code == -signal.SIGKILL, err
    assert project.reservation().state == "spent"
    assert not (project.output / "manifest.json").exists()
    resumes(project)


@pytest.mark.slow
def test_killed_before_the_folder_says_whose_it_is(project, resumes):
    project.spec(**SPEC)
    code, _, err = outcome(start(project, ("pathlib:Path.replace", 1, "before", "kill")))
    assert code == -signal.SIGKILL, err
    assert project.reservation().state == "spent"
    resumes(project)


@pytest.mark.slow
def test_killed_twice_the_second_time_while_removing_the_torso(project, resumes):
    project.spec(**SPEC)
    outcome(start(project, (f"{WRITER}.write", 3, "after", "kill")))
    code, _, err = outcome(start(project, ("shutil:rmtree", 1, "before", "tear")))
    assert code == -signal.SIGKILL, err
    resumes(project)


@pytest.mark.slow
def test_killed_between_the_manifest_and_its_drafts_removal(project, resumes):
    project.spec(**SPEC)
    code, _, err = outcome(start(project, ("os:link", "manifest.json", "after", "kill")))
    assert code == -signal.SIGKILL, err
    assert (project.output / "manifest.json").exists()
    resumes(project)


@pytest.mark.slow
def test_killed_over_and_over_it_still_goes_on(project, resumes):
    project.spec(**SPEC)
    for place, call, when, _ in [POINTS[1], POINTS[9], POINTS[16], POINTS[22]]:
        code, _, err = outcome(start(project, (place, call, when, "kill")))
        assert code == -signal.SIGKILL, err
    resumes(project)


INTERRUPTED = [
    ("dbern.reading:read_batches", 1, "before"),
    ("dbern.ledger.staging:Staging.put", 2, "after"),
    (f"{WRITER}.begin", 1, "after"),
    (f"{WRITER}.finish", 1, "before"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("place", "call", "when"), INTERRUPTED)
@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_is_130_and_it_goes_on(project, resumes, place, call, when, as_json):
    project.spec(**SPEC)
    arguments = ["release", "release.toml", *(["--json"] if as_json else [])]
    code, out, err = outcome(start(project, (place, call, when, "interrupt"), arguments=arguments))
    assert code == 130, err
    assert "run the same command again" in err
    assert "Traceback" not in err
    if as_json:
        assert json.loads(out)["exit_code"] == 130
    assert not (project.output / "manifest.json").exists()
    resumes(project)


FULL = [
    ("dbern.ledger.staging:write_new", 1, "reading"),
    ("dbern.ledger.staging:write_new", 3, "reading"),
    ("dbern.synopsis.places:_write", 1, "spent"),
    ("dbern.synopsis.places:_write", 2, "spent"),
    ("dbern.synopsis.places:_write", 9, "spent"),
    ("dbern.synopsis.places:os.link", "manifest.json", "spent"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("place", "call", "state"), FULL)
def test_a_full_disk_is_said_and_loses_nothing(project, resumes, place, call, state):
    project.spec(**SPEC)
    code, out, err = outcome(start(project, (place, call, "before", "full")))
    assert (code, out) == (1, ""), err
    assert "free" in err
    assert "space" in err
    assert "internal error" not in err
    assert project.reservation().state == state
    assert not (project.output / "manifest.json").exists()
    resumes(project)


@pytest.mark.slow
def test_two_clients_on_one_release_charge_once(project, undisturbed, helpers, tmp_path):
    project.spec(**SPEC)
    first = start(project, ("dbern.ledger.ledger:BudgetLedger.spend", 1, "before",
                            f"wait:{tmp_path / 'in'}"))  # fmt: skip
    wait_for(tmp_path / "in")
    second = start(project)
    with pytest.raises(subprocess.TimeoutExpired):
        second.communicate(timeout=3)
    first.kill()
    first.communicate()
    code, _, err = outcome(second)
    assert code == 0, err
    assert helpers.objects(project.output) == undisturbed
    assert project.spent() == "epsilon 1, epsilon 0 reserved"


@pytest.mark.slow
def test_four_clients_at_once_all_succeed_and_charge_once(project, undisturbed, helpers):
    project.spec(**SPEC)
    clients = [start(project, arguments=("release", "release.toml", "--json")) for _ in range(4)]
    ended = [outcome(one) for one in clients]
    assert [code for code, _, _ in ended] == [0] * 4, ended
    notes = [json.loads(out)["notes"] for _, out, _ in ended]
    assert sorted(len(note) for note in notes) == [0, 1, 1, 1]
    assert helpers.objects(project.output) == undisturbed
    assert project.remains() == []
    assert project.spent() == "epsilon 1, epsilon 0 reserved"


def wait_for(path, seconds=60):
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} never appeared"
        time.sleep(0.02)
