"""Releases from data frames that are killed, or whose disk is full, around the spool."""

from __future__ import annotations

import json
import os
import signal

import points
import processes
import pytest
import runner
from projects import Project, objects, records

pytestmark = pytest.mark.slow

ALL = os.environ.get("DBERN_FAULTS") == "all"
SPEC = {"data": {"source": None}, "mechanism": {"k": 6, "h": 2}}
SETTINGS = {"slab": runner.SLAB, "rows_a_task": 30, "frame": "rows"}


class Frames:
    """Projects whose rows are given as a frame, and what must hold of each."""

    def __init__(self, folder):
        self.folder, self.made = folder, 0
        whole = self.project()
        assert self.ran(whole, count=points.PLACES_OF_FRAMES) == 0
        self.calls = json.loads((whole.folder / "calls.json").read_text())
        self.undisturbed = objects(whole.output)

    def project(self) -> Project:
        self.made += 1
        project = Project(self.folder / str(self.made))
        project.folder.mkdir()
        project.write(records())
        project.folder.joinpath("data").rename(project.folder / "rows")
        project.spec(**SPEC)
        project.grant()
        return project

    def chosen(self, place: str) -> list[int]:
        """Calls of a place: all, or the middle one."""
        every = list(range(1, self.calls[place] + 1))
        assert every, "never passed"
        return every if ALL else [every[len(every) // 2]]

    def ran(self, project: Project, *faults, arguments=(), **settings) -> int:
        given = {**SETTINGS, "faults": faults, **settings}
        output = self.folder / f"{project.folder.name}-client"
        process = processes.fork(runner.client, project.folder, output, given, arguments)
        process.join(300)
        return process.exitcode

    def endure(self, project: Project, *, frame: bool) -> None:
        """The release goes on to its end, with a frame or what was spooled, charged once."""
        settings = {} if frame else {"frame": "", "arguments": ["release", "release.toml"]}
        assert self.ran(project, **settings) == 0
        assert project.remains() == []
        assert objects(project.output) == self.undisturbed
        assert project.spent() == "epsilon 1, epsilon 0 reserved"


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    processes.prepare()
    return Frames(tmp_path_factory.mktemp("frames"))


def spooled(project: Project) -> bool:
    return any(path.endswith(".spool") for path in project.remains())


@pytest.mark.sample(verify=8)
@pytest.mark.parametrize("place", points.SPOOLING)
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_the_spool_it_goes_on_or_is_begun_again(frames, place, when):
    for call in frames.chosen(place):
        project = frames.project()
        assert frames.ran(project, (place, call, when, "kill")) == -signal.SIGKILL
        state = project.reservation().state.value
        whole = list(project.folder.glob("ledger.db.staging/*.spool/rows.parquet"))
        assert whole or state in ("reserved", "committed"), "counted without a spool"
        # Where it is whole, or counted, the frame is not needed any more.
        frames.endure(project, frame=not whole and state == "reserved")


@pytest.mark.parametrize("place", ["os:fsync", "dbern.data.frames:_groups", "pathlib:Path.rename"])
def test_a_full_disk_is_said_and_the_frame_can_be_given_again(frames, place):
    for call in frames.chosen(place):
        project = frames.project()
        assert frames.ran(project, (place, call, "before", "full")) in (0, 1, 2, 4)
        frames.endure(project, frame=True)


@pytest.mark.parametrize("when", ["before", "after"])
def test_after_it_is_abandoned_there_is_no_spool(frames, when):
    project = frames.project()
    fault = (f"{points.COUNTING}:tree_reduce", 1, when, "kill")
    assert frames.ran(project, fault) == -signal.SIGKILL
    assert spooled(project)
    given_up = ["ledger", "abandon", "--ledger", project.url, "--dataset", "trips",
                "--name", "density"]  # fmt: skip
    destroyed = ("dbern.ledger.keys:KeyFiles.destroy", 1, "after", "kill")
    faults = [destroyed] if when == "before" else []
    ended = frames.ran(project, *faults, frame="", arguments=given_up)
    assert ended == (-signal.SIGKILL if faults else 0)
    assert spooled(project) == bool(faults), "encrypted under a key that is gone"
    with project.ledger():
        assert project.remains() == []
