"""A synopsis from a stranger: whatever it says, it is answered or refused, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import shutil
import tracemalloc
import unicodedata
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from goldens.cases import cases, write
from mutations import (
    EVIL,
    MANIFEST,
    NAMES,
    changed,
    extremes,
    mutations,
    redigest,
)
from projects import SOLVED, Project, Ran, labelled, released_in

import dbern
from dbern.cli import main as command_line
from dbern.errors import DbernError, IntegrityError, printable
from dbern.report import page, svg

POINTS = np.array([[5.0, 0.0], [0.0, -1.0], [9.0, 0.7]])
SHARD = "components/density/coefficients/c/0/0"
COEFFICIENTS = "components/density/coefficients/zarr.json"
NODES = "components/density/x/zarr.json"
EVERY = 165  # mutations of a store that are tried
MEBIBYTES = 64


@pytest.fixture(scope="module")
def stores(one, tmp_path_factory, client):
    """A release of lattice values, and one of spectral coordinates, whose matrices are read."""
    folder, noise = tmp_path_factory.mktemp("spectral"), "spectral-laplace"
    spectral = released_in(folder, client, labelled(), mechanism={"noise": noise}, **SOLVED)
    return {"laplace": one, noise: spectral}


@pytest.fixture
def copied(stores, tmp_path):
    return shutil.copytree(stores["laplace"].url, tmp_path / "copy.zarr")


@pytest.fixture
def run(capfd):
    def command(*arguments):
        capfd.readouterr()
        return Ran(command_line.run([str(one) for one in arguments]), *capfd.readouterr())

    return command


@contextmanager
def bounded():
    """Fails what takes memory by the gigabyte; what hangs fails by the test's own time limit."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MEBIBYTES << 20
    finally:
        tracemalloc.stop()


def obeyed(text):
    """Letters that a terminal would obey."""
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return {one for one in text if one not in "\n\t" and unicodedata.category(one) in kinds}


@pytest.fixture(scope="module")
def ways(stores):
    return {noise: mutations(Path(synopsis.url)) for noise, synopsis in stores.items()}


@pytest.fixture(scope="module")
def _drawn_once():
    """The same picture is drawn once: most mutations leave it as it was."""
    drawn = {}

    def draw(picture, name):
        key = pickle.dumps((picture, name))
        if key not in drawn:
            drawn[key] = svg.draw(picture, name)
        return drawn[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "draw", draw)
        yield


@pytest.mark.sample(test=4, verify=60)
@pytest.mark.usefixtures("_drawn_once")
@pytest.mark.slow
@pytest.mark.parametrize("index", range(EVERY))
@pytest.mark.parametrize("noise", ["laplace", "spectral-laplace"])
def test_a_mutated_store_is_answered_or_refused(stores, ways, tmp_path, run, noise, index):
    synopsis, mutation = stores[noise], ways[noise][index]
    store = shutil.copytree(synopsis.url, tmp_path / "store.zarr")
    mutation.apply(store)
    queries = tmp_path / "queries.parquet"
    pq.write_table(pa.table({"x": POINTS[:, 0], "y": POINTS[:, 1]}), queries)
    with bounded():
        try:
            opened = dbern.open(store)
            values = opened(POINTS)
            opened.band()
            refused = ""
        except IntegrityError as error:
            refused = str(error)
            assert not obeyed(refused), mutation.name
        if not refused and mutation.covered:
            np.testing.assert_array_equal(values, synopsis(POINTS), mutation.name)
    commands = [("verify", store), ("show", store)]
    if not refused:
        commands += [("report", store, "--out", tmp_path / "report.html")]
        commands += [("query", store, queries, "--out", tmp_path / "answers.parquet")]
    for command in commands:
        ran = run(*command)
        # A store of other axes is asked for what it does not have: the usage is wrong.
        assert ran.code in ((0, 5) if command[0] != "query" else (0, 2, 5)), (mutation, ran)
        assert not obeyed(ran.out + ran.err), (mutation.name, ran)
    if (tmp_path / "report.html").exists():
        assert not obeyed((tmp_path / "report.html").read_text(encoding="utf-8"))


# --- extremes of every field ------------------------------------------------------------------

KINDS = (
    *("auto/pure", "times", "density-groups/binned-laplace", "regression/binned-laplace"),
    *("bayes/laplace", "bayes-gaussian/laplace", "density-covariance/binned-gaussian"),
    *("erm-polynomial/spectral-laplace", "logistic-sigmoid/laplace", "ridge-lists/laplace"),
    "gaps/binned-laplace",
)
OF_PART, PARTS = 12, 25  # mutations of a kind that are tried


@pytest.fixture(scope="module")
def kinds(tmp_path_factory, client):
    """Makes a release of a kind, once."""
    folder = tmp_path_factory.mktemp("kinds")
    write(folder / "data")
    listed, made = cases(), {}

    def released(name):
        if name not in made:
            project = Project(folder / name.replace("/", "-"))
            project.folder.mkdir()
            (project.folder / "data").symlink_to(folder / "data")
            project.grant()
            with project.ledger() as ledger:
                ledger.grant("trips", dbern.Budget.parse("1", "1e-3"))
            text = listed[name].toml(str(project.ledger_path), str(project.output))
            project.spec_path.write_text(text)
            made[name] = Path(dbern.release(project.spec_path, client=client).url)
        return made[name]

    return released


def answered(store, run, queries):
    """Every command that reads a store, and what it printed."""
    out = store.parent / "answers.parquet"
    axis = "t" if "t" in queries.column_names else "at" if "at" in queries.column_names else "x"
    pq.write_table(queries, store.parent / "queries.parquet")
    commands = [("verify", store), ("show", store), ("show", store, "--json")]
    commands += [("ask", store, "--mass", f"{axis}=..5", "--quantile", f"{axis}=.5", "--mean")]
    for order in ((), ("--h", "auto")):
        commands += [("query", store, store.parent / "queries.parquet", "--out", out, *order)]
    commands += [("report", store, "--out", store.parent / "report.html")]
    for command in commands:
        out.unlink(missing_ok=True)
        yield command[0], run(*command)


def queries_of(store):
    """One point, as a table with a column for each axis."""
    axes = json.loads((store / "zarr.json").read_text())["attributes"]["domain"]["axes"]
    middles = {
        axis["name"]: axis["values"][0] if "values" in axis else (axis["low"] + axis["high"]) / 2
        for axis in axes
    }
    return pa.table({name: [middle] for name, middle in middles.items()})


@pytest.mark.sample(verify=24)
@pytest.mark.slow
@pytest.mark.usefixtures("_drawn_once")
@pytest.mark.filterwarnings("ignore")  # of numpy and matplotlib, about numbers that are extreme
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", KINDS)
def test_extremes_of_every_field_are_answered_or_refused(kinds, tmp_path, run, name, part):
    """By the checks at opening: what the net below them catches is told, so that they catch it."""
    original = kinds(name)
    queries = queries_of(original)
    store = tmp_path / "store.zarr"
    for mutation in extremes(original)[part * OF_PART : (part + 1) * OF_PART]:  # none adds objects
        shutil.copytree(original, store, copy_function=shutil.copyfile, dirs_exist_ok=True)
        mutation.apply(store)
        try:
            dbern.open(store).band()
            refused = ""
        except IntegrityError as error:
            refused = str(error)
        assert "fails to be read" not in refused, (mutation.name, refused)
        commands = [] if refused else answered(store, run, queries)
        for command, ran in commands:
            codes = (0, 2, 5) if command in ("ask", "query") else (0, 5)
            assert ran.code in codes, (mutation.name, command, ran)
            assert "fails to be read" not in ran.err, (mutation.name, command, ran)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "path", "value", "reason"),
    [
        ("auto/pure", ("target", "chosen_of"), 5, "chosen_of"),
        (
            "auto/pure",
            ("target",),
            {"kind": "kernel-density", "n": 240, "chosen_of": [[1.0]]},
            "chosen_of: needs the bandwidth",
        ),
        ("auto/pure", ("target", "chosen_of"), [["a"]], "chosen_of"),
        ("auto/pure", ("components", 0, "noise", "law", "kind"), [[]], "kind is none of"),
        ("auto/pure", ("components", 0, "noise", "scale"), 1e300, "scale"),
        ("auto/pure", ("certificate", "total"), 1e300, "certificate.total: .* equal to 1e.150"),
        (
            "auto/pure",
            ("certificate", "beta"),
            5e-324,
            "certificate.beta: .* equal to 0.00000000001",
        ),
        ("auto/pure", ("unit",), "0", "unit"),
        ("auto/pure", ("certificate", "total"), 5e-324, "total: is too small to divide by"),
        ("auto/pure", ("components", 0, "value_unit"), 1e100, "noise: granularity is not that of"),
        ("auto/pure", ("components", 0, "noise", "scale"), 1.0, "noise: scale is not that of law"),
        ("auto/pure", ("components", 0, "noise", "law", "granularity_exponent"), 900, "exponent"),
        ("ridge-lists/laplace", ("combine", "high"), -1.0, "low must be below high"),
        ("auto/pure", ("rho",), "1e-320", "rho: .*at least 1e-150"),
        ("bayes/laplace", ("combine", "peaks"), [1e300, 1e300], "peaks"),
        ("bayes/laplace", ("combine", "peaks"), [1e100, 1e100], "peaks: their product"),
        ("bayes-gaussian/laplace", ("combine", "floors"), [1e300, 1e300], "floors"),
        ("bayes-gaussian/laplace", ("combine", "floors"), [0.0, 0.1], "floors: must be above 0"),
        ("regression/binned-laplace", ("combine", "low"), -1e300, "low"),
    ],
)
def test_fields_are_of_their_type_and_range(kinds, tmp_path, run, name, path, value, reason):
    """Before, commands ended with 1 and asked to report it."""
    store = shutil.copytree(kinds(name), tmp_path / "store.zarr")
    attributes(store, path, value)
    with pytest.raises(IntegrityError, match=f"zarr.json is damaged: .*{reason}"):
        dbern.open(store)
    assert {ran.code for _, ran in answered(store, run, queries_of(kinds(name)))} == {5}


# --- the net below the checks -----------------------------------------------------------------


def test_a_store_that_makes_its_reader_fail_is_refused_with_the_line(copied, run, monkeypatch):
    def failing(*_, **__):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("dbern.combination.base.Combination.meaning", failing)
    ran = run("show", copied)
    ran.refused(5, "please report this as a fault of dbern")
    assert re.search(r"fails to be read .*\(ZeroDivisionError in \w+\.py, line \d+\)", ran.err)
    assert "secret" not in ran.err
    monkeypatch.setattr("dbern.synopsis.store.stored_arrays", failing)
    with pytest.raises(IntegrityError, match="fails to be read") as refused:
        dbern.open(copied)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("fault", [AssertionError, AttributeError, NameError, OSError])
def test_what_no_content_raises_is_still_a_fault_of_ours(copied, run, monkeypatch, fault):
    def failing(*_, **__):
        raise fault

    monkeypatch.setattr("dbern.combination.base.Combination.meaning", failing)
    run("show", copied).refused(1, "internal error")


# --- damages, one by one ----------------------------------------------------------------------


def document(name, path, value):
    """A damage: another value in metadata, whose digest is right."""

    def apply(store):
        text = json.dumps(changed(json.loads((store / name).read_text()), path, value))
        redigest(store, name, text.encode())

    return apply


def attribute(path, value):
    return document("zarr.json", ("attributes", *path), value)


def attributes(store, path, value):
    attribute(path, value)(store)


def manifest(change):
    """A damage: the manifest after something is done to it."""

    def apply(store):
        content = json.loads((store / MANIFEST).read_text())
        change(content)
        (store / MANIFEST).write_text(json.dumps(content))

    return apply


def endless(name):
    def apply(store):
        with (store / name).open("ab") as file:
            file.truncate(1 << 40)  # sparse

    return apply


def tiny(store):
    for axis in (0, 1):
        attributes(store, ("domain", "axes", axis, "low"), 0.0)
        attributes(store, ("domain", "axes", axis, "high"), 1e-90)


def crowded(objects):
    """A damage: the manifest names so many objects more."""
    entry = {"bytes": 0, "sha256": "0" * 64}
    names = {f"more/{i}": entry for i in range(objects)}
    return manifest(lambda content: content["objects"].update(names))


LATTICE = [  # what no array of lattice values, and of their nodes, may be
    (("shape",), [7, 10**9]),
    (("chunk_grid", "configuration", "chunk_shape"), [7, 1]),
    (("attributes", "scale_factor"), 1.0),
    (("codecs", 0, "name"), "gzip"),
    (("storage_transformers",), [{"name": "x"}]),
    (("dimension_names",), ["y", "x"]),
    (("shape",), [7.0, 7]),
    (("codecs", 0, "configuration", "chunk_shape"), [True, 7]),
    (("codecs", 0, "configuration", "codecs", 1, "configuration"), {}),
    (("attributes", "add_offset"), False),
    (("attributes", "oblique"), None),
    (("consolidated_metadata",), None),
]
NODES_OF_X = [
    (("chunk_grid",), {"name": "rectilinear"}),
    (("data_type",), "int64"),
    (("dimension_names",), ["y"]),
    (("shape",), [8]),
]
OPENING = {  # a damage, and what is said at opening
    "an endless manifest": (endless(MANIFEST), r"manifest\.json .* more than 2097152"),
    # Of a list of empty lists readers would make five million objects of 16 MiB.
    "large metadata": (
        attribute(("more",), [[]] * (1 << 20)), r"zarr\.json .* more than 2097152 bytes",
    ),
    "300 objects more": (crowded(300), r"manifest\.json is damaged: objects: names"),
    "another release": (
        manifest(lambda content: content.update(release_id="0" * 32)), "is not that of the man",
    ),
    "a newer format": (
        manifest(lambda content: content.update(format_version=2)), "version 2, and this dbern re",
    ),
    **{f"manifest {text!r}": (lambda store, text=text: (store / MANIFEST).write_text(text),
                              r"manifest\.json is damaged")
       for text in ("", "{", "[]", "{}", "null", '{"format": 1}')},
    "a tiny volume": (tiny, "domain: its volume is too small or too large"),
    **{f"{name} {path} {value}": (document(name, path, value), f"{name} is damaged: {path[0]}")
       for name, rows in ((COEFFICIENTS, LATTICE), (NODES, NODES_OF_X)) for path, value in rows},
}  # fmt: skip
VALUES = {  # the same, before a value is answered
    "an endless shard": (endless(SHARD), "it has more than"),
    # Before, it answered as if the lattice were another.
    **{f"k = {k}": (attribute(("components", 0, "k"), k), r"zarr\.json is damaged: .*(k|shape)")
       for k in ([5, 6], [6, 5], [6], [6, 6, 6], [0, 6], [1001, 6], [6.0, 6], "6")},
}  # fmt: skip
ADDED = "added is not part of the release"
VERIFYING = {
    "an endless shard": (endless(SHARD), "it has more than"),
    "a FIFO": (lambda store: os.mkfifo(store / "added"), ADDED),
    "a link": (lambda store: (store / "added").symlink_to("/"), ADDED),
}


def refused_by(ask, store, damage, said):
    damage(store)
    with bounded(), pytest.raises(IntegrityError, match=said):
        ask(store)


@pytest.mark.parametrize("name", OPENING)
def test_a_damage_is_refused_at_opening(copied, name):
    refused_by(dbern.open, copied, *OPENING[name])


@pytest.mark.parametrize("name", VALUES)
def test_a_damage_is_refused_before_a_value_is_answered(copied, name):
    refused_by(lambda store: dbern.open(store)(POINTS), copied, *VALUES[name])


@pytest.mark.parametrize("name", VERIFYING)
def test_a_damage_is_found_by_verifying(copied, name):
    refused_by(lambda store: dbern.open(store).verify(), copied, *VERIFYING[name])


SAID = {  # of some mutations
    # Before, a device was read until memory ended, and a FIFO waited for.
    **{f"{name} as {kind}": "objects are plain files"
       for name in (MANIFEST, "zarr.json", SHARD, "components")
       for kind in ("a link to a device", "a FIFO", "a link to itself")},
    f"{SHARD} as nothing": "missing",
    f"{SHARD} nowhere digested anew": "coefficients are missing",
    f"{SHARD} bomb in a shard digested anew": f"{SHARD} is",
    f"{SHARD} another size digested anew": "a chunk does not hold its own values",
    f"{SHARD} checksum flipped digested anew": "the checksum of its index is wrong",
    f"{SHARD} index flipped digested anew": "the checksum of its index is wrong",
    # Before, `verify` read a file outside and said that it was as released.
    **{f"{MANIFEST} names {name!r}": r"manifest\.json is damaged: objects.*is not the name"
       for name in NAMES},
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_some_mutations_are_refused_by_what_they_are(copied, ways, name):
    (damage,) = [mutation.apply for mutation in ways["laplace"] if mutation.name == name]
    refused_by(lambda store: dbern.open(store)(POINTS), copied, damage, SAID[name])


def test_a_manifest_may_name_as_many_objects_as_a_release_can_have(copied):
    crowded(255)(copied)
    dbern.open(copied)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a", "a" * 40])
def test_folders_in_folders_are_refused(copied, run, tmp_path, name):
    """Before, those of short names ended the command by Python's own depth, with 1."""
    with nested(copied, tmp_path, name):
        run("verify", copied).refused(5, "is a folder deeper than any of a release")


@contextmanager
def nested(store, folder, name):
    """Put 1300 folders in folders into a store; from inside out, as no path may be that long."""
    deep, outer = folder / "deep", folder / "outer"
    deep.mkdir()
    for _ in range(1300):
        outer.mkdir()
        deep.rename(outer / name)
        outer.rename(deep)
    deep.rename(store / "deep")
    deep = store / "deep"
    try:
        yield
    finally:  # or pytest's own removal would end by its depth
        while (deep / name).exists():
            (deep / name).rename(outer)
            deep.rmdir()
            outer.rename(deep)


# --- metadata ---------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["cells", "degree"])
def test_bins_of_another_number_than_was_released_are_refused(kinds, tmp_path, key):
    store = shutil.copytree(kinds("auto/pure"), tmp_path / "store.zarr")
    name = "components/density/binned/synthesis_x/zarr.json"
    value = json.loads((store / name).read_text())["attributes"][key]
    document(name, ("attributes", key), value + 1)(store)
    with pytest.raises(IntegrityError, match=r"binned/released/zarr\.json is damaged: shape"):
        dbern.open(store)


def test_metadata_of_a_later_minor_version_is_read_without_its_new_keys(copied, stores):
    for path in (("added",), ("components", 0, "added"), ("combine", "added"),
                 ("components", 0, "noise", "law", "added")):  # fmt: skip
        attributes(copied, path, {"x": [1, "y"]})
    redigest(copied, "added", (copied / SHARD).read_bytes())
    opened = dbern.open(copied)
    np.testing.assert_array_equal(opened(POINTS), stores["laplace"](POINTS))
    assert opened.metadata == stores["laplace"].metadata
    assert opened.band() == stores["laplace"].band()
    assert opened.verify() == 10


@pytest.mark.slow
def test_the_manifest_has_to_name_every_object_of_the_format(stores, tmp_path):
    """A chunk that is not there would be read as zeros."""
    store = shutil.copytree(stores["spectral-laplace"].url, tmp_path / "s.zarr")
    whole = (store / MANIFEST).read_text()
    chunks = [name for name in json.loads(whole)["objects"] if "/c/" in name]
    assert len(chunks) == 8
    for name in chunks:
        (store / MANIFEST).write_text(whole)
        manifest(lambda content, name=name: content["objects"].pop(name))(store)
        with pytest.raises(IntegrityError, match=f"does not name {name}"):
            dbern.open(store)


# --- what is printed --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [("name",), ("unit",), ("target", "kind"), ("target", "kernel"), ("created",)]
)
def test_a_terminal_obeys_no_metadata(copied, run, path):
    attributes(copied, path, f"{EVIL} (at most 2 rows)" if path == ("unit",) else EVIL)
    if path == ("created",):
        manifest = json.loads((copied / MANIFEST).read_text())
        (copied / MANIFEST).write_text(json.dumps(manifest | {"created": EVIL}))
    for command in (("show", copied), ("show", copied, "--json")):
        ran = run(*command)
        assert ran.code == 0, ran.err
        assert not obeyed(ran.out + ran.err)
        assert "\nepsilon 0.1" not in ran.out
    assert not obeyed(repr(dbern.open(copied)))


def test_a_weaker_guarantee_is_not_read_as_this_one(copied, run):
    """Of releases of a sampled sensitivity, whose epsilon is not of every database."""
    attributes(copied, ("random_dp",), {"gamma": "0.1"})
    for command in ("show", "verify"):
        run(command, copied).refused(5, "random_dp", "is a weaker guarantee")


def test_no_error_says_what_a_terminal_obeys():
    assert not obeyed(str(DbernError(f"x {EVIL}")))
    assert printable("café\u202f1\u00a0000 €", "") == "café\u202f1\u00a0000 €"
    assert printable("\ud800\x00\u2028") == "\\ud800\\x00\\u2028"


# --- objects ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_objects_of_a_bucket_are_guarded_alike(project, bucket, client):
    for path in project.files():
        bucket.put(f"data/{path.name}", path.read_bytes())
    url = bucket.url("out.zarr")
    spec = project.spec(data={"source": bucket.url("data/*.parquet")}, release={"output": url})
    synopsis = dbern.release(spec, client=client).synopsis
    assert synopsis.verify() == 9
    objects = bucket.objects("out.zarr")
    bucket.put(f"out.zarr/{SHARD}", objects[SHARD] + bytes(1000))
    bucket.server.requests.clear()
    with pytest.raises(IntegrityError, match="it has more than"):
        dbern.open(url)(POINTS)
    bucket.put(f"out.zarr/{SHARD}", objects[SHARD])
    bucket.put("secret", b"secret")
    manifest = json.loads(objects[MANIFEST])
    entry = {"bytes": 6, "sha256": hashlib.sha256(b"secret").hexdigest()}
    manifest["objects"]["../secret"] = entry
    bucket.put(f"out.zarr/{MANIFEST}", json.dumps(manifest).encode())
    with pytest.raises(IntegrityError, match="is not the name of an object"):
        dbern.open(url)
    bucket.put(f"out.zarr/{MANIFEST}", bytes((16 << 20) + 1))
    with pytest.raises(IntegrityError, match="it has more than 2097152"):
        dbern.open(url)
