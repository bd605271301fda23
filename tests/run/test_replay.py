"""Neighboring data, the same key: nothing but noisy coefficients may differ, anywhere."""

from __future__ import annotations

import json
import logging
import re
import sqlite3

import click
import numpy as np
import pytest
from projects import SOLVED

import dbern
from dbern.measure.kernel_sums import KernelSumAccumulator
from dbern.privacy.budget import Neighbors, PrivacyUnit
from dbern.run import publish

COUNTED = {"components/density/coefficients/c/0/0", "manifest.json"}
RELEASED = re.compile(r"components/\w+/(coefficients|(spectral|binned)/released)/c/")
SPECTRAL = {**SOLVED, "mechanism": {"k": 6, "h": 2, "noise": "spectral-laplace"}}

ORACLE = {
    "target": {
        "kind": "oracle", "bandwidth": None, "function": "black_boxes:positive_x",
        "sensitivity": 0.01, "smoothness": "linear", "bounds": [0.0, 1.0], "on_failure": 0.25,
    },
    "mechanism": {"k": 1, "h": 1},
}  # fmt: skip

REPLACED = {
    "null": (None, 0.1),
    "NaN": (float("nan"), 0.1),
    "infinity": (float("inf"), float("-inf")),
    "out of bounds": (11.0, 0.1),
    "far out of bounds": (1e300, -1e300),
    "corner": (0.0, -1.0),
    "the other corner": (10.0, 1.0),
    "duplicate": (5.25, 0.125),
    "another": (9.875, -0.875),
    "negative zero": (-0.0, 0.0),
    "all null": (None, None),
}


COMMANDS = {
    "plan": ("plan", "release.toml", "--json"),
    "release": ("release", "release.toml", "--json", "--log-format", "json"),
    "again": ("release", "release.toml"),
    "show": ("show", "out.zarr", "--json"),
    "verify": ("verify", "out.zarr"),
    "status": ("ledger", "status", "--ledger", "sqlite:///ledger.db"),
}


def replaced(*names, **more):
    return {name: {**dict(zip("xy", REPLACED[name], strict=True)), **more} for name in names}


def log_everything(caplog):
    """DEBUG even for the loggers that distributed's configuration sets to a level of their own."""
    caplog.set_level(logging.DEBUG)
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(("distributed", "dbern")):
            caplog.set_level(logging.DEBUG, logger=name)


def normalized(text, folder):
    """What names the run and not the data: folders, addresses, ports, random names, progress."""
    text = text.replace(str(folder), "FOLDER")
    text = re.sub(r"^[a-z ]+: \d+ of \d+\n", "", text, flags=re.M)  # progress: when, by the clock
    text = re.sub(r"0x[0-9a-f]+|inproc://\S+|tcp://\S+", "ADDRESS", text)
    return re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22,}|\d+\.\d+ ?(s|ms|MiB)\b", "ID", text)


def ledger_rows(project):
    """Every row of every table, the seal and the sizes of the input files apart."""
    with sqlite3.connect(project.ledger_path) as connection:
        master = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        tables = [name for (name,) in master]
        found = {}
        for table in sorted(tables):
            cursor = connection.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor]
            for row in rows:
                for private in ("seal", "manifest_digest"):
                    row.pop(private, None)
                if "inputs" in row:
                    row["inputs"] = json.loads(row["inputs"])
                    for file in row["inputs"]["files"]:
                        file.pop("size", None)
            found[table] = normalized(repr(rows), project.folder)
    return found


def without_coefficients(objects):
    """All objects, with what follows from coefficient bytes blanked out."""
    kept = dict(objects)
    manifest = json.loads(kept["manifest.json"])
    for name, entry in manifest["objects"].items():
        if RELEASED.match(name):
            entry.update(bytes=0, sha256="")
    kept["manifest.json"] = json.dumps(manifest).encode()
    return {name: b"" if RELEASED.match(name) else text for name, text in kept.items()}


@pytest.fixture
def traces(project, run, fixed, helpers, caplog):
    """Release the project with its last record replaced, and collect everything that is seen."""
    log_everything(caplog)

    def made(name, x=2.5, y=0.5, late=True, without=0, changes=None, **terms):
        columns = helpers.records()
        columns["late"] = [value is not None and value > 4 for value in columns["x"]]
        columns["x"][-1], columns["y"][-1], columns["late"][-1] = x, y, late
        columns["x"][-2], columns["y"][-2] = 5.25, 0.125
        columns = {key: values[: len(values) - without] for key, values in columns.items()}
        other = helpers.Project(project.folder / name)
        (other.folder / "data").mkdir(parents=True)
        other.write(columns)
        other.spec(**(changes or {}))
        other.grant(**terms)
        caplog.clear()
        printed = {}
        for command, words in COMMANDS.items():
            ran = run(*words, project=other)
            printed[command] = (
                ran.code, normalized(ran.out, other.folder), normalized(ran.err, other.folder)
            )  # fmt: skip
        objects = helpers.objects(other.output)
        logs = {
            (r.name, r.levelname, normalized(r.getMessage(), other.folder))
            for r in caplog.records
            if r.name.startswith("dbern")
        }
        shapes = {
            (r.name, r.levelname, str(r.msg)[:60]) for r in caplog.records
            if r.levelno > logging.INFO and r.name != "asyncio"
            and not str(r.msg).startswith("Event loop was unresponsive")  # a busy machine
        }  # fmt: skip
        return {
            "printed": printed,
            "objects": without_coefficients(objects),
            "ledger": ledger_rows(other),
            "logs": logs,
            "warnings": shapes,
            "remains": [normalized(name, other.folder) for name in other.remains()],
        }, objects

    return made


def differences(first, second):
    """The keys of two nested dictionaries under which they differ."""
    found = []
    for key in first.keys() | second.keys():
        one, two = first.get(key), second.get(key)
        if isinstance(one, dict) and isinstance(two, dict):
            found += [f"{key}/{inner}" for inner in differences(one, two)]
        elif one != two:
            found.append(str(key))
    return sorted(found)


def published_otherwise(traces, records, may_differ=(), /, **how):
    """The objects that are others for a neighbor: coefficients, and the manifest's digests."""
    base, published = traces("base", **how)
    assert base["printed"]["release"][0] == 0
    for name, record in records.items():
        other, objects = traces(name.replace(" ", "-"), **record, **how)
        assert set(differences(base, other)) <= set(may_differ), name
        changed = {path for path in published if objects[path] != published[path]}
        assert all(RELEASED.match(path) or path == "manifest.json" for path in changed), name
        yield name, changed


@pytest.mark.parametrize(
    "names", [["null", "another"], pytest.param([*REPLACED], marks=pytest.mark.slow)]
)
def test_one_record_changes_nothing_but_coefficients(traces, names):
    neighbors = {"the same": {}, **replaced(*names)}
    for name, changed in published_otherwise(traces, neighbors):
        assert changed == (COUNTED if name != "the same" else set()), name


@pytest.mark.slow
@pytest.mark.parametrize("changes", [ORACLE, SPECTRAL], ids=["oracle", "solved"])
def test_gathered_records_change_nothing_else_either(traces, changes):
    """The oracle fails on one of the records, and says its value."""
    neighbors = replaced("null", "the other corner", "negative zero", late=False)
    for name, changed in published_otherwise(traces, neighbors, changes=changes):
        assert changed, name


REGRESSION = {
    "target": {"kind": "nadaraya-watson", "bandwidth": [2.0]}, "data__bounds": {"y": None},
    "data__response": {"column": "y", "bounds": [-1.0, 1.0]},
    "mechanism": {"k": 6, "h": 2, "noise": "binned-laplace"},
}  # fmt: skip


def test_records_enter_what_is_published_through_noisy_integers_alone(traces, monkeypatch):
    """With others in place of these, which hold nothing, every object is the same.

    Responses are spread little in their range, and more than their noise: so far they would tell.
    """
    monkeypatch.setattr(publish, "privatize", lambda center, *_rest: np.ones_like(center))
    wide = {"data__response": {"column": "y", "bounds": [-20.0, 20.0]}}
    changes = REGRESSION | wide | {"budget": {"epsilon": "1000"}}
    _, published = traces("base", changes=changes, epsilon="1000")
    _, objects = traces("other", x=0.0, y=-1.0, changes=changes, epsilon="1000")
    assert objects == published


ADDED = {"data": {"neighbors": "add-or-remove-one", "normalizer": "250"}}
USERS = {**ADDED, "data__unit": {"column": "note", "max_contributions": 2}}


@pytest.mark.slow
@pytest.mark.parametrize(("changes", "unit"), [(ADDED, None), (USERS, PrivacyUnit("note", 2))])
def test_one_unit_less_changes_nothing_but_coefficients(traces, changes, unit):
    how = {"changes": changes, "neighbors": Neighbors.ADD_OR_REMOVE_ONE, "unit": unit}
    neighbors = {f"without {rows}": {"without": rows} for rows in (1, 2)}
    for name, changed in published_otherwise(traces, neighbors, **how):
        assert changed == COUNTED, name


@pytest.mark.slow
def test_a_count_of_rows_is_caught(traces, monkeypatch):
    """As if the footers were counted, which is what planning does for replaced rows."""
    counted = "dbern.planning.planner.public_rows"
    monkeypatch.setattr(counted, lambda _spec, files: sum(file.rows for file in files))
    how = {"changes": ADDED, "neighbors": Neighbors.ADD_OR_REMOVE_ONE}
    base, _ = traces("base", **how)
    other, _ = traces("other", without=1, **how)
    found = differences(base, other)
    assert {"printed/plan", "ledger/releases", "objects/zarr.json"} <= set(found)


def planted_in_attributes(monkeypatch):
    from dbern.run import publish as publishing

    original = publishing._attributes

    def leaking(spec, plan, *rest):
        from dbern.data.domain import Column
        from dbern.data.parquet import read_batches
        from dbern.data.sources import discover

        bad = 0
        for path in discover(spec.source):
            for batch in read_batches(str(path), [0, 1], [Column(c, c) for c in "xy"]):
                bad += len(batch["x"]) - int(spec.domain.bounded(batch)[0].sum())
        return {**original(spec, plan, *rest), "dropped": bad}

    monkeypatch.setattr(publishing, "_attributes", leaking)


def planted_while_counting(monkeypatch, tell):
    original = KernelSumAccumulator.add

    def leaking(self, state, records):
        original(self, state, records)
        tell(state.sum(), self.kernel_sum.domain.bounded(records)[0].sum())

    monkeypatch.setattr(KernelSumAccumulator, "add", leaking)


def planted_in_progress(monkeypatch):
    planted_while_counting(monkeypatch, lambda _sum, kept: click.echo(f"kept {kept}", err=True))


def planted_in_the_log(monkeypatch):
    log = logging.getLogger("dbern.components")
    planted_while_counting(monkeypatch, lambda total, _kept: log.debug("sum %s", total))


def planted_in_the_plan(monkeypatch):
    """A sensitivity taken from the data: the classic mistake."""

    from dbern.run import stages

    original = stages.plan_files

    def leaking(spec, files):
        from dataclasses import replace

        import pyarrow.parquet as pq

        nulls = sum(pq.read_table(file.path)["x"].null_count for file in files)
        plan = original(spec, files)
        return replace(plan, certificate=replace(plan.certificate, rounding=float(nulls)))

    monkeypatch.setattr(stages, "plan_files", leaking)


def planted_durations(monkeypatch):
    """How long a stage took, in the log instead of the run record."""
    from dbern.ledger.release_files import RunRecord
    from dbern.run.journal import Journal

    original = Journal.__init__

    def leaking(self, record, *rest):
        original(self, record, *rest)
        monkeypatch.setattr(RunRecord, "add", lambda _, event, **facts: self.say("ran", **facts))

    monkeypatch.setattr(Journal, "__init__", leaking)


LEAKS = {
    planted_in_attributes: "objects/zarr.json",
    planted_in_progress: "printed/release",
    planted_in_the_log: "logs",
    planted_in_the_plan: "ledger/releases",
    planted_durations: "printed/release",
}


@pytest.mark.planted
@pytest.mark.slow
@pytest.mark.parametrize("plant", LEAKS)
def test_a_planted_leak_is_caught(traces, monkeypatch, plant):
    plant(monkeypatch)
    base, _ = traces("base")
    other, _ = traces("other", x=None)
    assert LEAKS[plant] in differences(base, other)


@pytest.mark.slow
def test_no_log_holds_a_record_the_key_or_the_salt(project, run, client, fixed, caplog):
    log_everything(caplog)
    columns = {"x": [3.1415926535] * 60, "y": [0.2718281828] * 60}
    project.write(columns)
    assert run("release", "release.toml").code == 0
    dbern.release(project.twin("cluster").spec(), client)
    logged = "\n".join(f"{r.getMessage()} {r.exc_text}" for r in caplog.records)
    assert "distributed" in {r.name.partition(".")[0] for r in caplog.records}
    for private in ("3.14159", "0.27182", repr(bytes(range(32))), bytes(range(32)).hex(),
                    repr(bytes(range(100, 132)))[:20], bytes(range(100, 132)).hex()):  # fmt: skip
        assert private not in logged


# --- What is chosen after the noise is chosen by noised numbers

ONE_AXIS = {"data__bounds": {"y": None}}
BINS = {"mechanism": {"k": 24, "h": 4, "noise": "binned-laplace"}}
PLAIN = {"mechanism": {"k": None, "h": None, "noise": None}}
RESPONSE = {"data__response": {"column": "z", "bounds": [-2.0, 2.0]}}
LABEL = {"data__label": {"column": "late", "classes": [False, True]}}
CATEGORIES = {"data__bounds__c": {"values": ["a", "b"]}}
PRIVATE = {
    "data": {"neighbors": "add-or-remove-one", "normalizer": "250"},
    "data__unit": {"column": "u", "max_contributions": 2},
}


def target(kind, **parameters):
    return {"target": {"kind": kind, "bandwidth": None, **parameters}}


MACHINE = {"kernel": "linear", "loss": "hinge"}
CHOOSING = {
    "bandwidth": {**target("kernel-density", bandwidth="auto"), **BINS, **ONE_AXIS},
    "bandwidths": {**target("kernel-density", bandwidth="auto"), **BINS},
    "bandwidth of units": {
        **target("kernel-density", bandwidth="auto"), **BINS, **ONE_AXIS, **PRIVATE
    },
    "least squares": {
        **target("ridge-regression", degree=2), **RESPONSE, **CATEGORIES, **PLAIN, **PRIVATE
    },
    "logistic": {**target("logistic-regression"), **LABEL, **CATEGORIES, **PLAIN},
    "logistic of units": {**target("logistic-regression"), **LABEL, **PLAIN, **PRIVATE},
    "weights": {**target("kernel-erm", **MACHINE, method="weights"), **LABEL, **PLAIN},
    "linear machine": {**target("kernel-erm", **MACHINE), **LABEL, **CATEGORIES, **PLAIN},
    "robust": {**target("kernel-erm", kernel="linear", loss="huber"), **RESPONSE, **PLAIN},
    "kernel": {
        **target("kernel-erm", loss="logistic", length_scale=[3.0, 0.6], shards=2), **LABEL
    },
    "machine": {**target("support-vector-machine", length_scale=[3.0, 0.6]), **LABEL},
    "regression": {**target("nadaraya-watson", bandwidth=[2.0, 0.4]), **RESPONSE},
    "gaps": {
        **target("priestley-chao", bandwidth=[2.0], max_gap=0.5), **RESPONSE, **ONE_AXIS
    },
    "classes": {
        **target("gaussian-naive-bayes", std_floor=[1.0, 0.2]), **LABEL, **CATEGORIES, **PLAIN
    },
    "naive Bayes": {**target("naive-bayes", bandwidth=[2.0, 0.4]), **LABEL, **CATEGORIES},
    "joint": {**target("naive-bayes", bandwidth=[2.0, 0.4], release="joint"), **LABEL},
}  # fmt: skip


def unlike(rows, seed, *, spread):
    """Records that have nothing in common with those of the other `spread` but their columns."""
    rng = np.random.default_rng(seed)
    return {
        "x": rng.uniform(-5, 12, rows) if spread else rng.normal(3, 0.01, rows),
        "y": rng.uniform(-1, 1, rows) if spread else rng.normal(0.9, 0.3, rows),
        "z": rng.normal(1, 3, rows) if spread else np.full(rows, -0.5),
        "c": rng.choice(["a", "b", "other"] if spread else ["a"], rows),
        "late": rng.random(rows) < (0.5 if spread else 0.01),
        "u": rng.integers(0, rows if spread else 9, rows),
    }


@pytest.fixture
def told(project, run, fixed, helpers, monkeypatch):
    """Release two unlike tables, the second with the noised integers of the first."""
    real, drawn = publish.privatize, {}

    def first(center, start, law, key, whose):
        drawn[whose, start, len(center)] = real(center, start, law, key, whose)
        return drawn[whose, start, len(center)]

    def second(center, start, law, key, whose):
        return drawn[whose, start, len(center)]

    def made(changes):
        found = []
        private = "data__unit" in changes
        terms = {"neighbors": Neighbors.ADD_OR_REMOVE_ONE, "unit": PrivacyUnit("u", 2)}
        for spread, privatize in ((False, first), (True, second)):
            monkeypatch.setattr(publish, "privatize", privatize)
            other = helpers.Project(project.folder / f"spread-{spread}")
            (other.folder / "data").mkdir(parents=True)
            other.write(unlike(310 if private and spread else 240, 5, spread=spread))
            other.spec(**changes)
            other.grant(**(terms if private else {}))
            ran = run("release", "release.toml", "--json", project=other)
            assert ran.code == 0, ran.err
            shown = run("show", "out.zarr", "--json", project=other)
            texts = [normalized(text, other.folder) for text in (ran.out, ran.err, shown.out)]
            found.append({**helpers.objects(other.output), "printed": texts})
        return found

    return made


@pytest.mark.slow
@pytest.mark.parametrize("case", CHOOSING)
def test_noised_integers_alone_make_what_is_published(told, case):
    first, second = told(CHOOSING[case])
    assert differences(first, second) == []


@pytest.mark.slow
def test_a_choice_by_records_is_caught(told, monkeypatch):
    """As if the bandwidth were chosen before the noise."""

    def whole(self):
        layout = self.planned.strategy.layout
        slabs = [self.staging.get(self.name, slab.index) for slab in layout.slabs()]
        return np.concatenate(slabs).reshape(layout.shape)

    monkeypatch.setattr(publish._Noisy, "all_released", property(whole))
    first, second = told(CHOOSING["bandwidth"])
    assert "zarr.json" in differences(first, second)
