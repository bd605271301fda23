"""Parquet from S3, synopses to S3: the bytes of a folder, exactly once, and no secret anywhere."""

from __future__ import annotations

import logging
import os
import pickle
import signal
from importlib import import_module
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from object_server import KEY, SECRET

import dbern
from dbern.cli import diagnosis
from dbern.data import objects
from dbern.data.footers import read_footer_and_schema
from dbern.data.objects import Objects, check_url, matching
from dbern.data.source_names import matches_glob
from dbern.data.sources import discover
from dbern.errors import (
    EnvironmentRefusedError,
    IntegrityError,
    ReleaseError,
    SpecError,
)
from dbern.run.stages import abandon

SMALL = {"mechanism": {"k": [40, 8]}}  # four slabs of 100 coefficients
POINTS = np.array([[1.0, 0.1], [5.0, -0.4], [9.9, 0.9]])


def remote(project, bucket, output="out.zarr", **changes):
    """The project's spec, from its files put into the bucket, to the bucket."""
    for path in project.files():
        bucket.put(f"data/{path.name}", path.read_bytes())
    return project.spec(
        data={"source": bucket.url("data/*.parquet")},
        release={"output": bucket.url(output)},
        **changes,
    )


@pytest.fixture
def slabs(monkeypatch):
    monkeypatch.setattr("dbern.reconstruct.base.SLAB_COEFFICIENTS", 100)


@pytest.fixture
def undisturbed(project, fixed, slabs, client, helpers):
    """The objects of the same release of files to a folder."""
    twin = project.twin("undisturbed")
    dbern.release(twin.spec(**SMALL), client=client)
    return helpers.objects(twin.output)


@pytest.mark.slow
def test_a_bucket_gets_the_bytes_of_a_folder(project, bucket, undisturbed, client):
    out = dbern.release(remote(project, bucket, **SMALL), client=client)
    assert out.url == bucket.url("out.zarr")
    assert bucket.objects("out.zarr") == undisturbed
    assert project.remains() == []
    local = dbern.open(project.folder / "undisturbed" / "out.zarr")
    np.testing.assert_array_equal(out.synopsis(POINTS), local(POINTS))
    assert pickle.loads(pickle.dumps(out.synopsis)).url == out.url
    assert out.synopsis.verify() == local.verify()
    again = dbern.release(remote(project, bucket, **SMALL), client=client)
    assert "already published" in again.notes[0]
    assert project.spent() == "epsilon 1, epsilon 0 reserved"


# --- reading --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_private_number_of_rows_is_counted_from_a_bucket(project, bucket, client, helpers):
    other = helpers.Project(project.folder / "private")
    other.folder.mkdir()
    other.grant(neighbors=dbern.Neighbors.ADD_OR_REMOVE_ONE)
    for path in project.files():
        Objects(bucket.url("data")).write(path.name, path.read_bytes())
    source = bucket.url("data/*.parquet")
    data = {"source": source, "neighbors": "add-or-remove-one", "normalizer": "240"}
    assert dbern.release(other.spec(data=data), client=client).synopsis.verify() > 4
    assert other.spent() == "epsilon 1, epsilon 0 reserved"


@pytest.mark.slow
def test_objects_are_asked_for_once(project, bucket, fixed, slabs, client, monkeypatch):
    dbern.release(remote(project, bucket, **SMALL), client=client)
    monkeypatch.setattr("dbern.synopsis.released.MOST_LOADED", 100)
    server = bucket.server
    server.requests.clear()
    opened = dbern.open(bucket.url("out.zarr"))
    assert sorted(server.reads()) == sorted(set(server.reads()))
    assert server.reads("/c/") == []
    server.requests.clear()
    opened(np.array([[0.5, 0.0]]))
    first = server.reads()
    assert 0 < len(first) < 4  # of four shards
    opened(POINTS)
    opened(POINTS, h=3)
    opened.grid([5, 5])
    assert len(server.requests) == len(set(server.reads("/c/"))) == 4
    assert not any("HTTP_RANGE" in one.headers for one in server.requests)
    server.requests.clear()
    monkeypatch.undo()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    whole = dbern.open(bucket.url("out.zarr"))
    whole(POINTS)
    whole(POINTS)
    assert len(server.reads("/coefficients/c/")) == 4


@pytest.mark.slow
def test_damage_and_absence_are_told(project, bucket, fixed, slabs, client):
    dbern.release(remote(project, bucket, **SMALL), client=client)
    url = bucket.url("out.zarr")
    with pytest.raises(SpecError, match="no such prefix"):
        dbern.open(bucket.url("nothing.zarr"))
    bucket.put("out.zarr/added", b"x")
    with pytest.raises(IntegrityError, match="added is not part"):
        dbern.open(url).verify()
    bucket.client.delete_object(Bucket=bucket.name, Key="out.zarr/added")
    shard = "out.zarr/components/density/coefficients/c/1/0"
    data = bucket.objects("out.zarr")[shard.partition("/")[2]]
    bucket.put(shard, data[::-1])
    with pytest.raises(IntegrityError, match="is not what was released"):
        dbern.open(url)(POINTS)
    bucket.client.delete_object(Bucket=bucket.name, Key=shard)
    with pytest.raises(IntegrityError, match="missing"):
        dbern.open(url)(POINTS)
    bucket.client.delete_object(Bucket=bucket.name, Key="out.zarr/manifest.json")
    with pytest.raises(IntegrityError, match="not finished"):
        dbern.open(url)
    bucket.server.fault = lambda _request: "refuse"
    with pytest.raises(ReleaseError, match="cannot be read"):
        dbern.open(url)


PATTERNS = [
    ("n.csv", ["n.csv"]),
    ("*.parquet", ["_m.parquet", "a.parquet", "b.parquet"]),
    ("[!a].parquet", ["b.parquet"]),
    ("**/*.parquet", ["_m.parquet", "a.parquet", "b.parquet", "sub/deep/d.parquet",
                      "sub/day=1/c.parquet"]),
    ("sub/**/c.parquet", ["sub/day=1/c.parquet"]),
    ("*/day=*/*", ["sub/day=1/c.parquet"]),
    ("**", ["a.parquet", "b.parquet", "n.csv", "_m.parquet", "sub/deep/d.parquet",
            "sub/day=1/c.parquet"]),
    (".*", [".hid.parquet"]),
]  # fmt: skip
NAMES = ["a.parquet", "b.parquet", "n.csv", "_m.parquet", ".hid.parquet", "sub/deep/d.parquet",
         "sub/day=1/c.parquet", ".cache/x.parquet"]  # fmt: skip
SHOWN = ["data/a.parquet", "data/b.parquet", "data/sub/day=1/c.parquet",
         "data/sub/deep/d.parquet"]  # fmt: skip


@pytest.mark.parametrize(("pattern", "expected"), PATTERNS)
def test_a_glob_of_objects_is_that_of_files(tmp_path, pattern, expected):
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    files = [str(Path(found).relative_to(tmp_path)) for found in discover(str(tmp_path / pattern))]
    found = [name for name in NAMES if matches_glob(name.split("/"), pattern.split("/"))]
    assert sorted(found) == sorted(files) == sorted(expected)
    below = [Path(found).relative_to(tmp_path) for found in discover(str(tmp_path))]
    assert [f"data/{path}" for path in below] == SHOWN


@pytest.mark.slow
def test_sources_are_an_object_a_prefix_or_a_glob(bucket):
    for name in NAMES:
        bucket.put(f"data/{name}", b"")
    assert matching(bucket.url("data")) == [bucket.url(name) for name in SHOWN]
    assert matching(bucket.url("data/n.csv")) == [bucket.url("data/n.csv")]
    assert matching(bucket.url("*/[ab].parquet")) == [bucket.url(name) for name in SHOWN[:2]]
    assert check_url(f"{bucket.url('a')}/", "release.output") == bucket.url("a")
    with pytest.raises(SpecError, match="no Parquet file"):
        discover(bucket.url("other"))
    with pytest.raises(SpecError, match="cannot be listed"):
        discover("s3://no-such-bucket/data")


GOVERNED = {
    "delta": "delta is a table of Delta", "delta/*.parquet": "delta is a table of Delta",
    "*/*.parquet": "delta is a table of Delta", "ice/data/x=1": "ice is a table of Apache Iceberg",
    "ice/**/*.parquet": "ice is a table of Apache Iceberg", "hudi/day=1": "hudi is a table of",
    "mixed": "mixed has 1 file whose name does not end in .*such as c.csv",
}  # fmt: skip


@pytest.mark.slow
def test_objects_of_a_table_that_a_format_governs_are_refused(bucket):
    for name in ("delta/_delta_log/0.json", "delta/a.parquet", "ice/metadata/v1.metadata.json",
                 "ice/data/x=1/a.parquet", "hudi/.hoodie/hoodie.properties", "hudi/day=1/a.parquet",
                 "mixed/A.PARQUET", "mixed/b.parq", "mixed/c.csv"):  # fmt: skip
        bucket.put(name, b"x")
    for source, said in GOVERNED.items():
        with pytest.raises(SpecError, match=said):
            discover(bucket.url(source))
    bucket.put("mixed/c.csv", b"")
    assert len(discover(bucket.url("mixed"))) == 2
    assert discover(bucket.url("delta/a.parquet")) == (bucket.url("delta/a.parquet"),)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_bucket_that_does_not_answer_is_asked_again(project, bucket, method):
    """Nobody mends or removes the file: a schedule tries again what ends with this code."""
    bucket.put("data/a.parquet", project.files()[0].read_bytes())
    bucket.put("data/b.parquet", b"no Parquet")
    objects._client.cache_clear()
    bucket.server.fault = lambda request: "refuse" if request.method == method else None
    for ask in (
        lambda: discover(bucket.url("data")),
        lambda: read_footer_and_schema(bucket.url("data/a.parquet")),
    ):
        with pytest.raises(ReleaseError, match="run the same command again"):
            ask()
    bucket.server.fault = lambda _request: None
    with pytest.raises(SpecError, match=r"b\.parquet cannot be read as Parquet"):
        read_footer_and_schema(bucket.url("data/b.parquet"))
    with pytest.raises(SpecError, match=r"none\.parquet cannot be read \(No such file"):
        read_footer_and_schema(bucket.url("data/none.parquet"))


@pytest.mark.slow
def test_a_file_that_changes_while_it_is_read_is_noticed(project, bucket, client, monkeypatch):
    """Its size and footer stay: the entity tag tells."""
    from dbern.measure import counters

    spec = remote(project, bucket)
    original = counters.read_batches

    def late(path, *arguments):
        yield from original(path, *arguments)
        content = bytearray(project.files()[0].read_bytes())
        content[4] ^= 1
        bucket.put("data/part-0.parquet", bytes(content))

    monkeypatch.setattr(counters, "read_batches", late)
    with pytest.raises(IntegrityError, match=r"part-0\.parquet changed since"):
        dbern.release(spec, client=client)


# --- exactly once -----------------------------------------------------------------------------


@pytest.mark.slow
def test_lost_answers_leave_the_bytes_the_same(project, bucket, undisturbed, client):
    """Every request is done, and its first answer never comes."""
    spec, seen = remote(project, bucket, **SMALL), set()

    def once(request):
        first = str(request) not in seen and "/out.zarr/" in request.path
        seen.add(str(request))
        return "lose" if first and request.method == "PUT" else None

    bucket.server.fault = once
    out = dbern.release(spec, client=client)
    assert sum(one.startswith("PUT") for one in seen) > 10
    assert bucket.objects("out.zarr") == undisturbed
    assert out.synopsis.verify()
    assert project.spent() == "epsilon 1, epsilon 0 reserved"


@pytest.mark.sample(verify=3)
@pytest.mark.slow
@pytest.mark.parametrize("put", [1, 2, 4, 9, 12, -1])
def test_a_store_that_fails_at_a_put_loses_nothing(project, bucket, undisturbed, client, put):
    """From some put on; the last one is the manifest."""
    spec, count = remote(project, bucket, **SMALL), [0]

    def failing(request):
        if request.method != "PUT":
            return None
        count[0] += 1
        due = "manifest.json" in request.path if put == -1 else count[0] >= put
        return "refuse" if due else None

    bucket.server.fault = failing
    with pytest.raises(ReleaseError, match="is charged twice"):
        dbern.release(spec, client=client)
    assert "manifest.json" not in bucket.objects("out.zarr")
    assert project.reservation().state == "spent"
    bucket.server.fault = lambda _request: None
    dbern.release(spec, client=client)
    assert bucket.objects("out.zarr") == undisturbed
    assert project.spent() == "epsilon 1, epsilon 0 reserved"
    assert project.remains() == []


@pytest.mark.slow
def test_a_store_that_stalls_is_asked_again(project, bucket, undisturbed, client, monkeypatch):
    monkeypatch.setattr("dbern.data.objects._TIMEOUT_SECONDS", 3)
    seen = set()

    def stall(request):
        first = request.path not in seen and "/coefficients/c/2" in request.path
        seen.add(request.path)
        return 3.5 if first else None

    bucket.server.fault = stall
    dbern.release(remote(project, bucket, **SMALL), client=client)
    assert bucket.objects("out.zarr") == undisturbed


KILLS = [
    ("dbern.data.objects:Objects.create", 1, "after"),
    ("dbern.data.objects:Objects.write", 1, "before"),
    ("dbern.data.objects:Objects.write", 8, "after"),
    ("dbern.synopsis.writer:_create_manifest", 1, "before"),
    ("dbern.synopsis.writer:_create_manifest", 1, "after"),
]


@pytest.mark.sample(verify=2)
@pytest.mark.slow
@pytest.mark.parametrize(("place", "call", "when"), KILLS)
def test_a_release_killed_at_any_put_goes_on(
    project, bucket, undisturbed, tmp_path_factory, monkeypatch, place, call, when
):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "faults")
    processes, runner = map(import_module, ("processes", "runner"))
    remote(project, bucket, **SMALL)
    output = tmp_path_factory.mktemp("client") / "said"
    processes.prepare()

    def ended(*faults):
        client = processes.fork(
            runner.client, project.folder, output, {"slab": 100, "faults": faults},
            ["release", "release.toml"], **bucket.server.environment,
        )  # fmt: skip
        client.join(300)
        return client.exitcode, output.with_suffix(".err").read_text()

    code, said = ended((place, call, when, "kill"))
    assert code == -signal.SIGKILL, said
    left = bucket.objects("out.zarr")
    assert ("manifest.json" in left) == (place.endswith("_create_manifest") and when == "after")
    code, said = ended()
    assert code == 0, said
    assert bucket.objects("out.zarr") == undisturbed
    assert project.spent() == "epsilon 1, epsilon 0 reserved"
    assert project.remains() == []


@pytest.mark.slow
def test_an_abandoned_release_leaves_no_object(project, bucket, client):
    spec = remote(project, bucket)
    bucket.server.fault = lambda one: (
        "refuse" if str(one).startswith("PUT") and ("manifest" in one.path) else None
    )
    with pytest.raises(ReleaseError):
        dbern.release(spec, client=client)
    assert bucket.objects("out.zarr")
    bucket.server.fault = lambda _request: None
    with project.ledger() as ledger:
        abandon(ledger, "trips", "density")
    assert bucket.objects("out.zarr") == {}


@pytest.mark.slow
def test_objects_that_others_wrote_stay(project, bucket, client):
    bucket.put("out.zarr/zarr.json", b"{}")
    with pytest.raises(SpecError, match="already exists"):
        dbern.release(remote(project, bucket), client=client)
    assert bucket.objects("out.zarr") == {"zarr.json": b"{}"}
    dbern.release(remote(project, bucket, "b.zarr"), client=client)
    other = {"name": "other", "output": bucket.url("b.zarr")}
    with pytest.raises(SpecError, match="already holds a synopsis"):
        dbern.release(project.spec(release=other), client=client)


@pytest.mark.slow
def test_objects_are_created_once_whatever_is_lost(bucket):
    place, server = Objects(bucket.url("p")), bucket.server
    bucket.put("pp/other", b"x")  # no object below p
    place.create("a", b"1")
    place.create("a", b"1")
    with pytest.raises(FileExistsError):
        place.create("a", b"2")
    assert place.read("a") == b"1"
    server.fault = lambda request: "lose" if request.method == "PUT" else None
    place.create("b", b"1")  # no answer ever comes, and the object says that it is there
    with pytest.raises(FileExistsError):
        place.create("a", b"2")
    server.fault = lambda request: "refuse" if request.method == "PUT" else None
    with pytest.raises(OSError, match="object store"):
        place.create("c", b"1")
    server.fault = lambda _request: None
    assert place.sizes() == {"a": 1, "b": 1}


@pytest.mark.slow
def test_a_store_without_conditions_is_refused(project, bucket, client):
    spec = remote(project, bucket)
    url = bucket.url("new.zarr")
    assert {one.state for one in diagnosis.output(url)} == {"good"}
    bucket.server.fault = lambda _request: "heedless"
    assert diagnosis.output(url)[0].state == "mend"
    with pytest.raises(EnvironmentRefusedError, match="If-None-Match"):
        dbern.release(spec, client=client)
    bucket.server.fault = lambda _request: None
    assert bucket.objects("new.zarr") == {}
    dbern.release(spec, client=client)


@pytest.mark.slow
def test_no_probe_is_left_in_what_may_be_a_synopsis(bucket, monkeypatch):
    url = bucket.url("new.zarr")
    monkeypatch.setattr(Objects, "remove", lambda *_: None)  # killed before
    assert diagnosis.output(url)[0].state == "good"
    assert bucket.objects("new.zarr") == {}
    assert len(bucket.objects("new.zarr.dbern-doctor")) == 1


@pytest.mark.parametrize(
    ("server", "state"),
    [("", "good"), ("https://s3.example", "good"), ("http://127.0.0.1:9000", "good"),
     ("http://s3.example", "mend")],
)  # fmt: skip
def test_records_in_clear_are_to_be_mended(monkeypatch, server, state):
    monkeypatch.setattr(Objects, "excludes", lambda _self: False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    pytest.importorskip("obstore", reason="obstore is not installed here: pip install obstore")
    assert [one.state for one in diagnosis.output("s3://bucket/x")] == ["mend", state]


# --- secrets ----------------------------------------------------------------------------------

LEAKY = [
    f"s3://{KEY}:{SECRET}@bucket/a",
    f"s3://bucket/a?secret={SECRET}",
    f"s3://bucket/a#{SECRET}",
    f"https://bucket.s3.amazonaws.com/a?X-Amz-Signature={SECRET}",
    f"s3://{KEY}:{SECRET}/x@bucket/a",
]


@pytest.mark.parametrize("url", LEAKY)
def test_a_secret_in_a_url_is_refused_and_not_repeated(project, url):
    for attempt in (
        lambda: check_url(url, "release.output"),
        lambda: project.spec(release={"output": url}),
        lambda: project.spec(data={"source": url}),
        lambda: dbern.open(url),
        lambda: diagnosis.output(url),
        lambda: discover(url),
    ):
        with pytest.raises(SpecError) as failure:
            attempt()
        assert SECRET not in str(failure.value)
        assert failure.value.__cause__ is None


@pytest.mark.slow
def test_credentials_are_in_no_file_and_no_output(
    project, bucket, client, caplog, capfd, monkeypatch
):
    from distributed import Client

    sent, submit = [], Client.submit
    monkeypatch.setattr(
        Client, "submit",
        lambda self, *args, **named: sent.append(cloudpickle.dumps((args[:1], [
            a for a in args[1:] if type(a).__module__.startswith("dbern") or isinstance(a, tuple)
        ]))) or submit(self, *args, **named),
    )  # fmt: skip
    caplog.set_level(logging.DEBUG)
    spec = remote(project, bucket)
    out = dbern.release(spec, client=client)
    sent.append(pickle.dumps(out.synopsis))
    sent.append(cloudpickle.dumps(spec))
    bucket.server.fault = lambda _request: "refuse"
    with pytest.raises(ReleaseError) as failure:
        dbern.open(bucket.url("out.zarr"))
    bucket.server.fault = lambda _request: None
    logs = "\n".join(  # the test's own client and server are no part of it
        one.getMessage() for one in caplog.records if not one.name.startswith(("boto", "moto"))
    )
    shown = [logs, str(failure.value), *capfd.readouterr()]
    texts = [*sent, *bucket.objects("out.zarr").values(), *(text.encode() for text in shown)]
    texts += [path.read_bytes() for path in project.folder.rglob("*") if path.is_file()]
    assert any(b"part-0.parquet" in text for text in sent)  # the tasks were looked at
    for secret in (KEY.encode(), SECRET.encode()):
        assert not any(secret in text for text in texts)
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == SECRET


# --- the command line -------------------------------------------------------------------------


@pytest.mark.slow
def test_commands_take_urls_of_objects(project, bucket, run, slabs):
    import pyarrow as pa
    import pyarrow.parquet as pq

    remote(project, bucket, **SMALL)
    url = bucket.url("out.zarr")
    assert run("init", "--show", bucket.url("data"), "--json").json["source"] == bucket.url("data")
    assert run("doctor", "--output", url).code == 0
    assert run("release", "release.toml").code == 0
    assert run("show", url, "--json").json["dataset"] == "trips"
    assert run("verify", url).code == 0
    pq.write_table(pa.table({"x": [1.0, 5.0], "y": [0.1, 0.2]}), project.folder / "q.parquet")
    assert run("query", url, "q.parquet", "--out", "a.parquet").code == 0
    assert pq.read_table(project.folder / "a.parquet").column_names == ["x", "y", "value"]


@pytest.mark.slow
def test_a_forgotten_release_is_found_in_a_bucket(project, bucket, run):
    remote(project, bucket, "releases/2026/out.zarr")
    saved = project.ledger_path.read_bytes()
    assert run("release", "release.toml").code == 0
    project.ledger_path.write_bytes(saved)
    url = ("--ledger", "sqlite:///ledger.db")
    ran = run("ledger", "reconcile", *url, bucket.url("releases"), "--restored", "--json")
    assert ran.code == 0, ran.err
    (charged,) = ran.json["charged"]
    assert charged["output"] == bucket.url("releases/2026/out.zarr")
    assert project.spent() == "epsilon 1, epsilon 0 reserved"
