"""Queries and answers in a bucket: the same values, whole or not at all, once."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from projects import objects

import dbern
from dbern.errors import ReleaseError, SpecError
from dbern.synopsis.tables import answer

pytestmark = pytest.mark.slow

ROWS = 300_000


@pytest.fixture
def synopsis(project, client):
    return dbern.release(project.spec(mechanism={"k": [12, 8], "h": 1}), client=client).synopsis


@pytest.fixture
def table(bucket):
    """Queries of several row groups in the bucket."""
    rng = np.random.default_rng(4)
    made = pa.table({
        "id": np.arange(ROWS), "x": rng.uniform(0, 10, ROWS), "y": rng.uniform(-1, 1, ROWS)
    })  # fmt: skip
    content = BytesIO()
    pq.write_table(made, content, row_group_size=50_000)
    bucket.put("q.parquet", content.getvalue())
    return made


def test_answers_in_a_bucket_are_those_of_a_file(project, synopsis, bucket, table, run):
    local = project.folder / "q.parquet"
    pq.write_table(table, local)
    answer(synopsis, local, project.folder / "a.parquet")
    expected = pq.read_table(project.folder / "a.parquet")
    place = project.output
    for queries, answers in [(bucket.url("q.parquet"), bucket.url("out/a.parquet")),
                             (bucket.url("q.parquet"), "b.parquet"),
                             (local, bucket.url("b.parquet"))]:  # fmt: skip
        ran = run("query", place, queries, "--out", answers, "--json")
        assert ran.code == 0, ran.err
        assert (ran.json["rows"], ran.json["already"]) == (ROWS, False)
    found = [bucket.objects("out")["a.parquet"], (project.folder / "b.parquet").read_bytes(),
             bucket.client.get_object(Bucket=bucket.name, Key="b.parquet")["Body"].read(),
    ]  # fmt: skip
    assert all(pq.read_table(BytesIO(one)).equals(expected) for one in found)
    assert not any(path.name.startswith("s3:") for path in project.folder.iterdir())


def test_answers_that_are_there_stay(project, synopsis, bucket, table, run):
    bucket.put("a.parquet", b"precious")
    query = ("query", project.output, bucket.url("q.parquet"), "--out", bucket.url("a.parquet"))
    assert "already exists" in (ran := run(*query)).err
    assert ran.code == 2
    ran = run(*query, "--once", "--json")
    assert (ran.code, ran.json["already"], ran.json["rows"]) == (0, True, None)
    assert bucket.client.get_object(Bucket=bucket.name, Key="a.parquet")["Body"].read() == (
        b"precious"
    )
    local = ("query", project.output, bucket.url("q.parquet"), "--out", "a.parquet", "--once")
    assert [run(*local, "--json").json["already"] for _ in range(2)] == [False, True]


def test_large_answers_go_in_parts_and_those_that_fail_never_appear(
    synopsis, bucket, table, monkeypatch
):
    monkeypatch.setattr("dbern.data.objects._PART_BYTES", 5 << 20)
    monkeypatch.setattr("dbern.synopsis.tables._GROUP_ROWS", 50_000)
    original, calls = pq.ParquetWriter.write_table, []

    def failing(self, group, *rest):
        calls.append(group)
        if len(calls) == 5:
            raise MemoryError
        return original(self, group, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "write_table", failing)
        with pytest.raises(MemoryError):
            answer(synopsis, bucket.url("q.parquet"), bucket.url("out/a.parquet"))
    assert any(one.method == "PUT" for one in bucket.server.requests)  # a part had gone
    assert bucket.objects("out") == {}
    answer(synopsis, bucket.url("q.parquet"), bucket.url("out/a.parquet"))
    (content,) = bucket.objects("out").values()
    assert len(content) > 5 << 20
    assert pq.read_table(BytesIO(content))["id"].equals(table["id"])


def test_a_store_that_fails_is_told_from_a_file_that_is_wrong(synopsis, bucket, table, tmp_path):
    bucket.put("text.parquet", b"PAR1 and nothing else")
    for queries in ("none.parquet", "text.parquet"):
        with pytest.raises(SpecError, match="cannot be read as Parquet"):
            answer(synopsis, bucket.url(queries), tmp_path / "a.parquet")
    bucket.server.fault = lambda one: "refuse" if one.method in ("PUT", "POST") else None
    with pytest.raises(ReleaseError, match=r"cannot be written .*Check the bucket"):
        answer(synopsis, bucket.url("q.parquet"), bucket.url("out/a.parquet"))
    bucket.server.fault = lambda one: "refuse" if one.method == "GET" else None
    with pytest.raises(ReleaseError, match=r"cannot be read .*Check the bucket"):
        answer(synopsis, bucket.url("q.parquet"), tmp_path / "a.parquet")
    assert list(tmp_path.glob("*a.parquet*")) == []
    bucket.server.fault = lambda _one: None
    assert bucket.objects("out") == {}


def test_published_names_what_is_whole_and_right_below(project, bucket, client):
    made = dbern.release(project.spec(mechanism={"k": [12, 8], "h": 1}), client=client)
    whole = objects(project.output)
    for where in ("out/2026-02.zarr", "out/2026-01.zarr", "out/deep/er.zarr", "outer/x.zarr"):
        for name, data in whole.items():
            bucket.put(f"{where}/{name}", data)
    bucket.put("out/2026-03.zarr/zarr.json", whole["zarr.json"])  # not finished
    names = [bucket.url(f"out/2026-0{number}.zarr") for number in (1, 2)]
    assert dbern.published(bucket.url("out")) == dbern.published(bucket.url("out/")) == names
    assert dbern.published(bucket.url("none")) == []
    assert dbern.published(project.folder) == [made.url]
    with pytest.raises(ReleaseError, match="cannot be read"):
        dbern.published(project.spec_path)  # no folder, which is not to hold none
    with pytest.raises(SpecError, match="credentials come from the environment"):
        dbern.published("s3://user@bucket/out")
