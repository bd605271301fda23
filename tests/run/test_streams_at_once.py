"""Processes that release nights of one stream at once: one charge, the same bytes, a whole index.

Over each ledger, and to each store that nights may be in.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from nights import FIRST, Nights
from object_server import Bucket
from projects import objects

import dbern
from dbern.data.storage import location_at
from dbern.nights.horizon import Horizon
from dbern.nights.stream import StreamIndex

ROOT = Path(__file__).parents[2]
AT_ONCE = """
import os, sys
from pathlib import Path
import pytest, sqlalchemy.dialects.postgresql.psycopg, sqlalchemy.dialects.sqlite
import dbern.run.stages, dbern.run.publish
from dbern.errors import DbernError
from nights import Nights, fixed
folder, ledger, output, *rounds = sys.argv[1:]
fixed(pytest.MonkeyPatch().setattr)
stream = Nights(Path(folder), ledger, output)
for nights in rounds:
    nights = nights.split(",")
    (ready, told), (waiting, go) = os.pipe(), os.pipe()
    for night in nights:
        if not os.fork():  # of a process that has imported everything, and opened nothing
            os.close(go)
            os.write(told, b".")
            os.read(waiting, 1)  # until all are there
            try:
                notes = "; ".join(stream.release(int(night)).notes)
            except DbernError as error:
                notes = f"exit code {error.exit_code}: {error}"
            os.write(1, f"{night} {notes}\\n".encode())  # whole
            os._exit(0)
    for _ in nights:
        os.read(ready, 1)
    os.close(go)
    for _ in nights:
        assert os.wait()[1] == 0
"""


def release_at_once(stream: Nights, *rounds: str) -> list[str]:
    """Release the nights of each round at once, a process each; return the nights and notes."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    words = map(str, (stream.folder, stream.ledger_url, stream.output_url, *rounds))
    ran = subprocess.run(
        [sys.executable, "-c", AT_ONCE, *words], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.splitlines()


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, bytes]:
    """Objects of seven nights that were released one after another."""
    stream = Nights(tmp_path_factory.mktemp("whole"))
    stream.grant()
    stream.fill(7)
    release_at_once(stream, *"0123456")
    return objects(stream.output)


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request) -> str:
    return "" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def store(request, ledger_url) -> Bucket | None:
    """A folder beside SQLite, a bucket beside PostgreSQL."""
    return request.getfixturevalue("bucket") if ledger_url else None


@pytest.fixture
def nights(ledger_url, store, tmp_path) -> Nights:
    stream = Nights(tmp_path, ledger_url, store.url("trips") if store else "")
    stream.grant()
    stream.fill(7)
    return stream


@pytest.mark.sample(verify=1)
@pytest.mark.slow
def test_nights_at_once_are_charged_once_and_are_what_they_are_alone(nights, store, whole):
    """The first night, the two that close a block, others beside it, and some of them again."""
    said = release_at_once(nights, "0,0,0", "1,2")
    assert nights.states()["trips.2026-01-01.3-nights"] == "committed", "by whichever ended last"
    said += release_at_once(nights, "3,4,5,5", "6,6,0,5")
    assert len(said) == 13
    assert not [line for line in said if "exit code" in line]
    assert nights.spent() == "epsilon 1"
    assert set(nights.states().values()) == {"committed"}
    assert (store.objects("trips") if store else objects(nights.output)) == whole
    assert not list(nights.folder.glob("ledger.db.keys/*"))


@pytest.mark.slow
def test_two_first_nights_at_once_begin_one_horizon(ledger_url, tmp_path):
    """Whichever is charged first: an earlier one is then outside, and told so."""
    stream = Nights(tmp_path, ledger_url)
    stream.grant()
    stream.fill(2)
    early, late = sorted(release_at_once(stream, "0,1"))
    assert late == "1 2026-01-02 is published"
    first = FIRST + timedelta(days="exit code" in early)
    if first > FIRST:
        assert early.startswith("0 exit code 2: 2026-01-01: is outside the horizon, 2026-01-02 to")
    assert StreamIndex.read(location_at(stream.output)).to_horizon().first == first
    assert stream.spent() == "epsilon 1"


@pytest.mark.slow
def test_a_stream_in_a_bucket_is_read_as_one_in_a_folder(bucket, tmp_path, run):
    stream = Nights(tmp_path / "nights", output_url=bucket.url("trips"))
    stream.folder.mkdir()
    stream.grant()
    stream.fill(3)
    for night in range(3):
        stream.release(night)
    url = bucket.url("trips")
    assert "2026-01-01.3-nights.zarr/manifest.json" in bucket.objects("trips")
    opened = dbern.open_stream(url)
    assert repr(opened) == f"<Stream trips, 3 of 8 nights at {url}>"
    nights = [*map(opened.at, ("2026-01-01", "2026-01-02", "2026-01-03"))]
    assert [night.metadata["target"]["normalizer"] for night in nights] == [100, 200, 300]
    window = opened.between("2026-01-02", "2026-01-03")
    points = np.array([[2.5], [7.5]])
    np.testing.assert_array_equal(
        dbern.open(f"{url}@2026-01-02..2026-01-03")(points), window(points)
    )
    page = tmp_path / "page.html"
    assert run("report", url, "--out", page).code == 0
    assert "trips.2026-01-01..2026-01-03" in page.read_text()


@pytest.mark.slow
def test_an_index_is_whole_whoever_writes_it_at_once(tmp_path):
    """Nights that close at once write it together."""
    horizon, location = Horizon(FIRST, 365, (1, 18)), location_at(tmp_path)

    def write(abandoned: range) -> None:
        for night in abandoned:
            StreamIndex.of("trips", "trips", horizon, range(night)).write(tmp_path)
            assert StreamIndex.read(location) is not None

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(write, range(first, 300, 4)) for first in range(4)]:
            done.result()
    assert [path.name for path in tmp_path.iterdir()] == ["stream.json"]
