"""What is said and what the ledger knows of releases that were killed, interrupted or refused."""

from __future__ import annotations

import json

import points
import processes
import pytest
from ranges import RELEASE, killed

pytestmark = pytest.mark.slow

LEDGER, WRITER = points.LEDGER, points.WRITER

# place, call, when, state that the ledger must be in afterwards; the slow ones lie in between.
STATES = [
    (f"{LEDGER}.reserve", 1, "before", None),
    ("dbern.ledger.keys:KeyFiles.create", 1, "after", None),
    (f"{LEDGER}.reserve", 1, "after", "reserved"),
    (f"{LEDGER}.begin_reading", 1, "before", "reserved"),
    (f"{LEDGER}.begin_reading", 1, "after", "reading"),
    (f"{points.COUNTING}:tree_reduce", 1, "after", "reading"),
    (f"{points.STAGING}.clear", 1, "after", "reading"),
    (f"{points.STAGING}.put", 1, "before", "reading"),
    (f"{points.STAGING}.put", 4, "after", "reading"),
    (f"{LEDGER}.spend", 1, "before", "reading"),
    (f"{LEDGER}.spend", 1, "after", "spent"),
    (f"{points.STAGING}.verify", 1, "after", "spent"),
    (f"{WRITER}.begin", 1, "before", "spent"),
    (f"{WRITER}.write", 3, "after", "spent"),
    (f"{WRITER}.finish", 1, "before", "spent"),
    ("dbern.synopsis.writer:_create_manifest", 1, "before", "spent"),
    ("dbern.synopsis.writer:_create_manifest", 1, "after", "spent"),
    (f"{LEDGER}.commit", 1, "before", "spent"),
    ("dbern.ledger.release_files:ReleaseSecrets.destroy", 1, "before", "committed"),
    ("dbern.ledger.release_files:destroy_staging", 1, "before", "committed"),
    (f"{LEDGER}.commit", 1, "after", "committed"),
]


SHARED = [  # under a ledger in PostgreSQL
    (f"{LEDGER}.reserve", 1, "after", "reserved"),
    (f"{points.STAGING}.put", 2, "after", "reading"),
    (f"{WRITER}.write", 3, "after", "spent"),
    ("dbern.ledger.release_files:ReleaseSecrets.destroy", 1, "before", "committed"),
]


@pytest.mark.sample(test=3, verify=12)
@pytest.mark.parametrize(
    ("ground", "place", "call", "when", "state"),
    [*(("local", *one) for one in STATES), *(("shared", *one) for one in SHARED)],
)
def test_the_ledger_knows_how_far_a_killed_client_came(request, ground, place, call, when, state):
    ground = request.getfixturevalue(ground)
    project = ground.project()
    killed(ground)(project, (place, call, when, "kill"))
    with ground.environment(project), project.ledger() as ledger:
        found = ledger.find("trips", "density")
    assert (found.state if found else None) == state
    published = (project.output / "manifest.json").exists()
    assert published == ((place, when) == ("dbern.synopsis.writer:_create_manifest", "after")
                         or "commit" in place or state == "committed")  # fmt: skip
    ground.endure(project)


OTHERS = [
    # The key draws the same linear term again, or what was sealed is published.
    ("perturbed", f"{points.COUNTING}:tree_reduce", 1, "after"),
    ("perturbed", f"{points.STAGING}.put", 1, "after"),
    ("perturbed", f"{points.STAGING}.seal", 1, "after"),
    ("perturbed", f"{LEDGER}.spend", 1, "before"),
    ("perturbed", f"{LEDGER}.spend", 1, "after"),
    ("perturbed", f"{WRITER}.write", 1, "before"),
    # Two centers, each with noise of its own.
    ("centers", f"{points.STAGING}.put", 1, "after"),
    ("centers", f"{points.STAGING}.seal", 1, "after"),
    ("centers", f"{LEDGER}.spend", 1, "after"),
    ("centers", "dbern.run.publish:privatize", 1, "after"),
    ("centers", "dbern.run.publish:privatize", 2, "after"),
    ("centers", f"{WRITER}.begin", 1, "after"),
    ("centers", f"{WRITER}.write", 2, "after"),
    ("centers", f"{WRITER}.finish", 1, "before"),
]


@pytest.mark.sample(verify=5)
@pytest.mark.parametrize(("ground", "place", "call", "when"), OTHERS)
def test_other_releases_have_the_same_bytes_for_one_charge(request, ground, place, call, when):
    ground = request.getfixturevalue(ground)
    project = ground.project()
    killed(ground)(project, (place, call, when, "kill"))
    ground.endure(project)


def test_naive_bayes_has_two_centers(centers):
    components = json.loads(centers.undisturbed["zarr.json"])["attributes"]["components"]
    assert len(components) == 2


def test_killed_before_the_folder_says_whose_it_is(local):
    project = local.project()
    killed(local)(project, ("pathlib:Path.replace", 1, "before", "kill"))
    assert project.reservation().state == "spent"
    local.endure(project)


def test_killed_twice_the_second_time_while_removing_the_torso(local):
    project = local.project()
    killed(local)(project, (f"{WRITER}.write", 3, "after", "kill"))
    killed(local)(project, ("shutil:rmtree", 1, "before", "tear"))
    local.endure(project)


def test_killed_between_the_manifest_and_its_drafts_removal(local):
    project = local.project()
    killed(local)(project, ("os:link", "manifest.json", "after", "kill"))
    assert (project.output / "manifest.json").exists()
    local.endure(project)


def test_killed_over_and_over_it_still_goes_on(local):
    project = local.project()
    for place, call, when, _ in [STATES[1], STATES[8], STATES[12], STATES[16]]:
        killed(local)(project, (place, call, when, "kill"))
    local.endure(project)


INTERRUPTED = [
    ("dbern.measure.counters:read_batches", 1, "before"),
    (f"{points.STAGING}.put", 2, "after"),
    (f"{WRITER}.begin", 1, "after"),
    (f"{WRITER}.finish", 1, "before"),
]


@pytest.mark.sample(verify=4)
@pytest.mark.parametrize(("place", "call", "when"), INTERRUPTED)
@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_is_130_and_it_goes_on(local, place, call, when, as_json):
    """Of a release whose workers are threads of the same process."""
    project = local.project()
    arguments = [*RELEASE, *(["--json"] if as_json else [])]
    client = local.start(project, (place, call, when, "interrupt"), arguments=arguments)
    assert client.outcome() == 130, client.said
    assert "run the same command again" in client.err.lower()
    assert "Traceback" not in client.err
    if as_json:
        assert json.loads(client.out)["exit_code"] == 130
    assert not (project.output / "manifest.json").exists()
    local.endure(project)


FULL = [
    ("dbern.data.drafts:write_new", 2, "reading"),  # the first is the key's
    ("dbern.data.drafts:write_new", 4, "reading"),
    (points.STORE_WRITE, 1, "spent"),
    (points.STORE_WRITE, 9, "spent"),
    ("os:link", "manifest.json", "spent"),
]


@pytest.mark.parametrize(("place", "call", "state"), FULL)
def test_a_full_disk_is_said_and_loses_nothing(local, place, call, state):
    project = local.project()
    client = local.start(project, (place, call, "before", "full"))
    assert (client.outcome(), client.out) == (1, ""), client.said
    assert "free" in client.err.lower()
    assert "space" in client.err
    assert "internal error" not in client.err
    assert project.reservation().state == state
    assert not (project.output / "manifest.json").exists()
    local.endure(project)


def test_a_second_client_waits_until_the_first_is_gone(local):
    project = local.project()
    there = local.folder / "there"
    first = local.start(project, (f"{LEDGER}.spend", 1, "before", f"wait:{there}"))
    processes.wait(there.exists)
    second = local.start(project)
    second.process.join(2)
    assert second.process.is_alive()
    first.process.kill()
    assert second.outcome() == 0, second.said
    local.endure(project)


@pytest.mark.parametrize("ground", ["local", "shared"])
def test_four_clients_at_once_all_succeed_and_charge_once(ground, request):
    place = request.getfixturevalue(ground)
    project = place.project()
    clients = [place.start(project, arguments=(*RELEASE, "--json")) for _ in range(4)]
    assert [one.outcome() for one in clients] == [0] * 4, [one.said for one in clients]
    notes = ["; ".join(json.loads(one.out)["notes"]) for one in clients]
    assert sorted("already published" in note for note in notes) == [False, True, True, True]
    place.endure(project)
