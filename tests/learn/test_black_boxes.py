"""Functions that users name: certificates of stated smoothness, shards and blocks, failures."""

from __future__ import annotations

import sys
from dataclasses import replace

import black_boxes
import numpy as np
import pandas as pd
import pytest
from conformance import CASES, counted, everyone, largest_move

import dbern
from dbern.data.domain import Axis, Column, Domain, Outside, RecordSchema, Response
from dbern.learn import black_box as boxes
from dbern.learn.user_functions import _uniform_records, load_function
from dbern.measure import gathered
from dbern.planning.planner import plan_files
from dbern.privacy.public_numbers import public_stream
from dbern.run.stages import abandon

TARGET = {
    "kind": "oracle",
    "function": "black_boxes:share",
    "sensitivity": 1 / black_boxes.N,
    "smoothness": "linear",
    "bounds": [0.0, 1.0],
    "on_failure": 0.25,
}


def spec_of(project, target, **sections):
    content = {
        "release": {"name": "mine", "output": str(project.output)},
        "data": {
            "source": str(project.folder / "data"),
            "bounds": {"x": [0.0, 10.0], "y": [-1.0, 1.0]},
            **sections.get("data", {}),
        },
        "target": {**TARGET, **target},
        "mechanism": {"noise": "auto", **sections.get("mechanism", {})},
        "budget": {
            "epsilon": "1.0", "ledger": project.url, "dataset": "trips",
            **sections.get("budget", {}),
        },
    }  # fmt: skip
    return dbern.ReleaseSpec(**content)


def bounded(project, spec):
    """The records that count, read by hand."""
    import pyarrow.parquet as pq

    tables = [pq.read_table(path).select(["x", "y"]) for path in project.files()]
    values = np.concatenate(
        [np.column_stack([t[c].to_numpy().astype(float) for c in "xy"]) for t in tables]
    )
    return values[spec.records.domain.inside(values)]


GRID = np.stack(
    np.meshgrid(np.linspace(0, 10, 41), np.linspace(-1, 1, 41), indexing="ij"), -1
).reshape(-1, 2)

CLASSES = {
    "linear": ({"function": "black_boxes:plane", "bounds": [-3.0, 3.0]}, "linear", {}),
    "holder": ({"function": "black_boxes:roof"}, {"holder": [1.0, 1.0]}, {"k": 6, "h": 2}),
    "smooth": (
        {"function": "black_boxes:trimmed", "bounds": [-20.0, 20.0]},
        {"derivatives": 2, "bound": 9.0},
        {"k": 12, "h": 1},
    ),
}


@pytest.mark.slow
@pytest.mark.usefixtures("noiseless")
@pytest.mark.parametrize("name", CLASSES)
def test_the_certificate_of_each_class_holds_without_noise(project, client, name):
    target, smoothness, mechanism = CLASSES[name]
    spec = spec_of(project, {**target, "smoothness": smoothness}, mechanism=mechanism)
    plan = dbern.plan(spec)
    synopsis = dbern.release(spec, client=client).synopsis
    called = getattr(black_boxes, target["function"].partition(":")[2])
    exact = called(bounded(project, spec), GRID)
    error = np.abs(synopsis(GRID) - exact).max()
    sure = plan.certificate
    assert error <= sure.approximation + sure.rounding
    assert synopsis.metadata["components"][0]["approximation"]["class"] == name
    if name == "linear":
        assert (plan.k, plan.h, sure.approximation) == ((1, 1), (1, 1), 0.0)
    else:
        assert error > sure.approximation / 50  # a much smaller bound would be caught
    if name == "holder":
        low = dbern.plan(spec_of(project, {**target, "smoothness": {"holder": [0.05, 1.0]}},
                                 mechanism=mechanism)).certificate  # fmt: skip
        assert error > low.approximation + low.rounding


@pytest.mark.parametrize("name", ["oracle", "oracle shards"])
def test_half_of_the_true_sensitivity_is_caught(name):
    half = {**CASES[name].target, "sensitivity": CASES[name].target["sensitivity"] / 2}
    case = replace(CASES[name], target=half)
    assert largest_move("replaced", case, 1, "laplace", k=9) > 1.5


def test_the_l1_sensitivity_is_for_the_stated_lattice_only(project):
    target = {"smoothness": {"holder": [1.0, 1.0]}, "l1_sensitivity": 0.01}
    with pytest.raises(dbern.SpecError, match=r"^mechanism\.k: is missing.*[Ww]rite k = 20"):
        dbern.plan(spec_of(project, target))
    plan = dbern.plan(spec_of(project, target, mechanism={"k": 9, "h": 1}))
    assert 0.01 < plan.sensitivity.l1 < 0.0101 < 100 / black_boxes.N
    delta = {"budget": {"delta": "1e-6"}, "mechanism": {"k": 9, "h": 1}}
    plan = dbern.plan(spec_of(project, target, **delta))
    assert plan.sensitivity.l2 == pytest.approx((0.01 / black_boxes.N) ** 0.5, rel=5e-3)


@pytest.mark.slow
def test_auto_takes_a_lattice_that_noise_and_smoothness_balance(project):
    rough, fine = (
        dbern.plan(spec_of(project, {
            "sensitivity": s, "smoothness": {"derivatives": 4, "bound": 1.0},
        }))
        for s in (1e-2, 1e-9)
    )  # fmt: skip
    assert rough.k[0] < fine.k[0]
    assert fine.certificate.total < 1e-3


@pytest.mark.parametrize("name", ["oracle", "oracle shards"])
def test_shards_and_blocks_in_any_order_and_partition_give_the_same_integers(name, monkeypatch):
    monkeypatch.setattr(boxes, "SHARD_ROWS", 16)
    monkeypatch.setattr(boxes, "_MIN_POINTS", 8)
    target = {**CASES[name].target, "bounds": (-99.0, 99.0)}
    case, rng = replace(CASES[name], target=target), np.random.default_rng(3)
    records = everyone(case, 2, rng) * 2
    spec = case.spec(2, len(records), "laplace", k=5)
    counters = plan_files(spec, ()).counters(spec)
    assert counters.passes == (5 if name == "oracle" else (len(records) + 15) // 16 * 3)
    together = counted(counters, [records])
    shuffled = [records[i] for i in rng.permutation(len(records))]
    np.testing.assert_array_equal(
        counted(counters, [shuffled[i : i + 9] for i in range(0, len(records), 9)]), together
    )
    box = counters.parts[0].user
    columns = {c.name: np.array([r[c.name] for r in records]) for c in box.columns}
    points = np.concatenate(
        [counters.parts[0].block_points(b) for b in range(counters.parts[0]._blocks)]
    )
    called = load_function(box.function)
    exact = called(box.rows(columns), points)
    found = np.ldexp(together.astype(float), -counters.parts[0].bits)
    np.testing.assert_allclose(found, np.clip(exact, box.low, box.high) if name == "oracle"
                               else exact, atol=1e-9)  # fmt: skip


def test_records_have_their_columns_in_the_order_of_the_page():
    domain = Domain((Axis("b", 0.0, 2.0), Axis("a", -1.0, 1.0)), Outside.CLAMP)
    schema = RecordSchema(
        domain, Column("who", "data.label.classes", ("n", "y")), Response("r", -5.0, 5.0),
        Column("where", "data.group.values", (7, 8, 9)),
    )  # fmt: skip
    stated = {key: value for key, value in TARGET.items() if key != "kind"}
    (statistic,) = dbern.targets.Oracle(**stated).components(schema)
    box = statistic.user
    columns = {
        "a": [0.5, -3.0, 0.5, np.inf], "b": [-0.0, 9.0, 1.0, 1.0], "who": [1.0, 0.0, np.nan, 1.0],
        "r": [-9.0, 2.0, 0.0, 0.0], "where": [2.0, 0.0, 1.0, 1.0],
    }  # fmt: skip
    rows = box.rows({name: np.array(values) for name, values in columns.items()})
    assert rows.tolist() == [[0.0, 0.5, 1.0, -5.0, 2.0], [2.0, -1.0, 0.0, 2.0, 0.0]]
    assert not np.signbit(rows[0, 0])
    assert [one.integer for one in box.ranges] == [False, False, True, False, True]
    made = _uniform_records(box.ranges, 500, public_stream("test", 0))
    assert [sorted(set(made[:, i])) for i in (2, 4)] == [[0.0, 1.0], [0.0, 1.0, 2.0]]
    assert (made.min(axis=0) >= [0, -1, 0, -5, 0]).all()
    assert (made.max(axis=0) <= [2, 1, 1, 5, 2]).all()


def test_an_empty_shard_is_asked_too():
    spec = CASES["oracle"].spec(1, 2, "laplace", k=9)
    counters = plan_files(spec, ()).counters(spec)
    empty = counted(counters, [[{"x": np.nan, "response": 0.0}] * 2])
    assert (np.ldexp(empty.astype(float), -counters.parts[0].bits) == 1.0).all()


FAILING = [
    *("raises", "nothing", "panics"),
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("exits", "flat")),
]


@pytest.mark.usefixtures("noiseless")
@pytest.mark.parametrize("name", FAILING)
def test_a_failure_gives_the_public_constant(project, client, caplog, capfd, name):
    caplog.set_level("DEBUG")
    spec = spec_of(
        project,
        {"function": f"black_boxes:{name}", "smoothness": {"holder": [1.0, 1.0]}},
        mechanism={"k": 4, "h": 1},
    )
    synopsis = dbern.release(spec, client=client).synopsis
    values = synopsis(np.array([[0.0, 0.0], [10.0, 0.0]]))
    np.testing.assert_allclose(values, [0.5 if name == "nothing" else 0.25, 0.25], atol=1e-5)
    assert "private" not in caplog.text + "".join(capfd.readouterr())


@pytest.mark.parametrize("name", FAILING)
def test_a_failure_stops_the_release_where_the_spec_says_so(project, client, caplog, capfd, name):
    caplog.set_level("DEBUG")
    spec = spec_of(
        project,
        {"function": f"black_boxes:{name}", "on_failure": "stop",
         "smoothness": {"holder": [1.0, 1.0]}},
        mechanism={"k": 4, "h": 1},
    )  # fmt: skip
    for _ in range(2):
        with pytest.raises(dbern.ReleaseError, match=r"^target\.function: failed.*abandon") as told:
            dbern.release(spec, client=client)
        assert told.value.exit_code == 1
        assert "private" not in str(told.value) + caplog.text + "".join(capfd.readouterr())
        assert told.value.__cause__ is None
        assert not project.output.exists()
    with project.ledger() as ledger:
        assert not abandon(ledger, "trips", "mine").refunded
    assert project.remains() == []


WAVE = {
    "function": "black_boxes:wave",
    "smoothness": {"derivatives": 2, "bound": 30.25},
    "points": {"t": [0, 2]},
    "bounds": [-1.0, 1.0],
}


@pytest.mark.usefixtures("noiseless")
def test_points_of_its_own_are_what_a_function_is_asked_at(project, client, monkeypatch):
    spec = spec_of(project, WAVE, mechanism={"k": 40, "h": 1})
    plan = dbern.plan(spec)
    rows = f"of at most {plan.n} rows and at most 41 points"
    assert (
        "a lattice of 41 points over t in [0, 2]: 1 call of the function, " + rows
        in plan.explain(details=True)
    )
    assert (spec.domain.names, spec.records.domain.names) == (("t",), ("x", "y"))
    asked = []

    def seen(records, points):
        asked.append((records.shape[1], points))
        return black_boxes.wave(records, points)

    monkeypatch.setattr("dbern.learn.black_box.load_function", lambda name: seen)
    synopsis = dbern.release(spec).synopsis
    ((columns, points),) = asked
    assert columns == 2
    np.testing.assert_allclose(points[:, 0], np.linspace(0, 2, 41))
    t = np.linspace(0, 2, 97)
    exact = black_boxes.wave(bounded(project, spec), t[:, None])
    error = np.abs(synopsis(t) - exact).max()
    sure = plan.certificate
    assert sure.approximation / 50 < error <= sure.approximation + sure.rounding
    assert [axis["name"] for axis in synopsis.metadata["domain"]["axes"]] == ["t"]
    assert synopsis.metadata["target"]["points"] == {"t": [0.0, 2.0]}
    table = pd.DataFrame({"t": t})
    np.testing.assert_array_equal(synopsis(table), synopsis(t))
    with pytest.raises(dbern.SpecError, match='no column "t"'):
        synopsis(table.rename(columns={"t": "x"}))
    assert np.isnan(synopsis(np.array([2.5]))).all()


def test_points_count_as_axes_and_records_keep_theirs(project):
    """Two parameters have two k; those of the records have none. Without points nothing is said."""
    two = {**WAVE, "points": {"t": [0.0, 2.0], "shift": [-1.0, 1.0]}}
    plan = dbern.plan(spec_of(project, two, mechanism={"k": [4, 3], "h": 1}))
    assert "a lattice of 5 x 4 points over t in [0, 2], shift in [-1, 1]: " in plan.explain(
        details=True
    )
    with pytest.raises(dbern.SpecError, match=r"^mechanism\.k: has 2 entries .*each of t"):
        dbern.plan(spec_of(project, WAVE, mechanism={"k": [4, 3], "h": 1}))
    plain = spec_of(project, {"smoothness": {"holder": [1.0, 1.0]}}, mechanism={"k": 2, "h": 1})
    assert "points" not in plain.learner.get_params()
    assert "a lattice of 3 x 3 points over x in [0, 10], y in [-1, 1]: " in dbern.plan(
        plain
    ).explain(details=True)


BAD = [
    ({"function": "no_such_module:f"}, r"^target\.function: .*cannot be imported \(ModuleNotFound"),
    ({"function": "black_boxes:no_such"}, r"^target\.function: .*cannot be imported \(Attribute"),
    ({"function": "black_boxes"}, r'^target\.function: .*[Ww]rite function = "module:name"'),
    ({"function": "black_boxes:not_a_function"}, r"^target\.function: .*is not a function"),
    ({"function": "black_boxes:column"}, r"^target\.function: returns shape \(3, 1\)"),
    ({"function": "black_boxes:broken"}, r"^target\.function: fails on made-up.*RuntimeError"),
    ({"sensitivity": {"gamma": "0.2"}}, r"^target\.sensitivity: .*[Ww]rite sensitivity = 0.01"),
    ({"sensitivity": 0.0}, r"^target\.sensitivity: .*[Ww]rite sensitivity = 0.01"),
    ({"sensitivity": float("nan")}, r"^target\.sensitivity: .*[Ww]rite sensitivity = 0.01"),
    ({"l1_sensitivity": -1.0}, r"^target\.l1_sensitivity: "),
    ({"smoothness": "rough"}, r"^target\.smoothness: .*holder = \[1.0, 0.5\]"),
    ({"smoothness": {"holder": [1.0, 2.0]}}, r"^target\.smoothness: .*[Ww]rite smoothness"),
    (
        {"smoothness": {"derivatives": 0, "bound": 1.0}},
        r"^target\.smoothness: .*[Ww]rite smoothness",
    ),
    ({"bounds": [1.0, 1.0]}, r"^target\.bounds: .*[Ww]rite bounds = \[0.0, 1.0\]"),
    ({"bounds": [0.0, float("inf")]}, r"^target\.bounds: "),
    ({"on_failure": 2.0}, r"^target\.on_failure: lies outside bounds. Write on_failure = 0.0"),
    ({"on_failure": "go on"}, r'^target\.on_failure: .*or "stop"'),
    ({"on_failure": None}, r"^target\.on_failure: "),
    ({"points": {"t": [2.0, 0.0]}}, r"^target\.points\.t: the lower bound must be below the upper"),
    ({"points": {"t": [1.0, 1.0]}}, r"^target\.points\.t: the lower bound must be below the upper"),
    ({"points": {"t": [0.0, float("inf")]}}, r"^target\.points\.t: both bounds must be finite"),
    ({"points": {"t": [float("nan"), 1.0]}}, r"^target\.points\.t: both bounds must be finite"),
    ({"points": {"a/b": [0.0, 1.0]}}, r"^target\.points\.a/b: this name .*Rename the parameter"),
    ({"points": {"t": [0.0]}}, r"^target\.points\.t: .*Write points = \{ t = \[0.0, 2.0\] \}"),
    ({"points": {}}, r"^target\.points: has too few entries. Write points = "),
    ({"points": [0.0, 1.0]}, r"^target\.points: has a wrong value or type. Write points = "),
    ({"points": {f"p{i}": [0.0, 1.0] for i in range(9)}}, r"^target\.points: 9 .*Keep at most 8"),
    ({"point": {"t": [0.0, 1.0]}}, r"^target\.point: unknown key\. Write points"),
    ({"sensitivty": 1.0}, r"^target\.sensitivty: unknown key\. Write sensitivity"),
]


@pytest.mark.parametrize(("target", "complaint"), BAD)
def test_a_plan_refuses_what_cannot_be(project, target, complaint):
    with pytest.raises(dbern.SpecError, match=complaint):
        dbern.plan(spec_of(project, target))


def test_noise_that_needs_a_kernel_is_refused(project):
    with pytest.raises(dbern.SpecError, match=r"^mechanism\.noise: .*[Ww]rite noise = \"laplace\""):
        dbern.plan(spec_of(project, {"smoothness": {"holder": [1.0, 1.0]}},
                           mechanism={"noise": "spectral-laplace"}))  # fmt: skip


def test_the_module_is_part_of_the_identity(project, client, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "edited.py"

    def written(text):
        module.write_text(f"import numpy as np\ndef f(r, p):\n    return {text} + 0 * p[:, 0]\n")
        sys.modules.pop("edited", None)
        return spec_of(project, {"function": "edited:f"})

    spec = written("0.5")
    held = spec.identity()["target"]["function_sha256"]
    out = dbern.release(spec, client=client)
    assert out.synopsis.metadata["target"]["function_sha256"] == held
    with pytest.raises(dbern.SpecError, match=r"target\.function_sha256 changed.*new release name"):
        dbern.release(written("0.6"), client=client)
    again = written("0.5")
    assert again.identity() == spec.identity()
    assert dbern.release(again, client=client).notes


def gone(*_given):
    raise dbern.SpecError("gone")


@pytest.mark.parametrize("what", ["source_digest", "named_function"])
def test_a_worker_with_another_module_or_none_computes_nothing(project, client, monkeypatch, what):
    spec = spec_of(project, {})
    with monkeypatch.context() as patch:
        patch.setattr(gathered, what, (lambda _: "other") if what == "source_digest" else gone)
        complaint = r"^target\.function: a worker cannot import it, or has another text"
        with pytest.raises(dbern.EnvironmentRefusedError, match=complaint):
            dbern.release(spec, client=client)
    assert dbern.release(spec, client=client).charge == spec.charge
