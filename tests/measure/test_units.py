"""Units of many rows: bounded free of order, ids, plans, an attack, planted bugs."""

from __future__ import annotations

import datetime
import math
from dataclasses import replace
from decimal import Decimal
from itertools import permutations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conformance import CASES, SALT, USER, USERS, counted, everyone, integers, of

import dbern
from dbern.data.columns import as_floats
from dbern.data.domain import Axis, Column, Domain
from dbern.data.footers import read_footers
from dbern.data.parquet import read_batches
from dbern.measure import counters as counting_passes
from dbern.measure import unit_bounding
from dbern.measure.counters import Counters
from dbern.measure.unit_bounding import Bounding
from dbern.planning.planner import plan_files
from dbern.privacy.budget import PrivacyUnit, Protection
from dbern.privacy.keystream import content_words
from dbern.privacy.mechanism import privatize
from dbern.synopsis.bands import lower_bound_of

NULL = math.nan


def planned(name, **mechanism):
    rows = {**USERS, "neighbors": "replace-one"}
    spec = CASES[name].spec(1, 4, "laplace", rows=rows, **mechanism)
    return spec, plan_files(spec, ())


def by_arrival(ids, hashes, rows, most, kept=unit_bounding._smallest):
    """Planted: the first rows of a unit."""
    return kept(ids, np.arange(len(ids)), rows, most)


# --- which rows count --------------------------------------------------------------------------

BOX = Domain((Axis("x", 0.0, 1.0),))


def bounded(ids, x, most=2, passes=1, parts=1, salt=SALT):
    """Sorted (user, x) that count, of batches in as many parts, over all passes."""
    rule = Bounding(USER, PrivacyUnit("user", most), BOX, BOX.columns, 1, 2 * passes, passes)
    batches = [
        {"user": a, "x": b}
        for a, b in zip(np.array_split(ids, parts), np.array_split(x, parts), strict=True)
    ]
    found = []
    for index in range(passes):
        for batch in rule.bound_batches(iter(batches), salt, index):
            found += list(zip(batch["user"][:, 0].tolist(), batch["x"].tolist(), strict=True))
    return sorted(found)


def people():
    rng = np.random.default_rng(3)
    return rng.integers(60, size=400).astype(float), rng.uniform(size=400).round(2)


def free_of_order():
    ids, x = people()
    whole, rng = bounded(ids, x), np.random.default_rng(4)
    for parts, passes in ((1, 1), (7, 1), (3, 4), (40, 3)):
        order = rng.permutation(len(ids))
        if bounded(ids[order], x[order], passes=passes, parts=parts) != whole:
            return False
    return True


def test_what_counts_is_free_of_order_parts_and_passes(monkeypatch):
    assert free_of_order()
    monkeypatch.setattr(unit_bounding, "BATCH_ROWS", 8)  # merged every few rows, not at the end
    assert free_of_order()
    monkeypatch.setattr(unit_bounding, "_smallest", by_arrival)
    assert not free_of_order()


def test_every_unit_counts_as_many_rows_as_it_may():
    ids, x = people()
    found = bounded(ids, x, most=3)
    for user in np.unique(ids):
        assert sum(one == user for one, _ in found) == min(3, int((ids == user).sum()))


def test_another_unit_changes_no_other_unit():
    ids, x = people()
    more = np.concatenate([np.full(50, 3.0), ids]), np.concatenate([np.linspace(0, 1, 50), x])
    before, after = bounded(ids, x), bounded(*more)
    assert [row for row in before if row[0] != 3.0] == [row for row in after if row[0] != 3.0]


def test_equal_rows_count_as_often_as_they_are_there():
    ids, x = np.array([1.0, 1.0, 1.0, 2.0, 2.0]), np.array([0.5, 0.5, 0.5, 0.25, -0.0])
    assert bounded(ids, x) == [(1.0, 0.5), (1.0, 0.5), (2.0, 0.0), (2.0, 0.25)]


def test_rows_without_an_id_or_outside_the_bounds_count_nothing_and_take_no_place():
    ids, x = np.array([NULL, 1.0, 1.0, 1.0]), np.array([0.5, NULL, 2.0, 0.75])
    assert bounded(ids, x, most=1) == [(1.0, 0.75)]
    assert bounded(np.zeros(0), np.zeros(0)) == []


def test_equal_records_have_equal_hashes():
    """Of either zero, and of numbers that are none, whatever their bits."""
    bits = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000], dtype=np.uint64)
    values = [*bits.view(np.float64), 0.0, -0.0, 1.0]
    words = content_words(np.array([[0.5, value] for value in values]), SALT)
    assert words[0] == words[1] == words[2] != words[3] == words[4] != words[5]


def test_the_salt_chooses():
    ids, x = people()
    assert bounded(ids, x) != bounded(ids, x, salt=bytes(32))


def test_a_pass_keeps_no_more_than_its_share():
    spec, plan = planned("density")
    rows = 10 * counting_passes.PASS_ROWS
    many = Counters.of(plan.counters(spec).parts, spec.records, spec.protection.unit, rows)
    assert many.passes == 10
    assert many.gathered_bytes < 2 << 30
    assert plan.counters(spec).gathered_bytes < 16 << 20


# --- ids as they are in files ------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", "b", None, "a"]),
        pa.array(["a", "b", None, "a"], pa.large_string()),
        pa.array(["a", "b", None, "a"]).dictionary_encode(),
        pa.array([2**40, -1, None, 2**40]),
        pa.array([0.5, -0.0, None, 0.5]),
        pa.array([2**62 + 1, 2**62, None, 2**62 + 1]),
        pa.array([-(2**63), 1 - 2**63, None, -(2**63)]),
        pa.array([2**64 - 1, 2**64 - 2, None, 2**64 - 1], pa.uint64()),
        pa.array([Decimal(f"0.{i:020}1") for i in (1, 2)], pa.decimal128(38, 21)).take(
            [0, 1, None, 0]
        ),
        pa.array([Decimal(7), Decimal(8)], pa.decimal32(9)).take(pa.array([0, 1, None, 0])),
        pa.array([Decimal(10**75 + i) for i in (1, 2)], pa.decimal256(76)).take([0, 1, None, 0]),
    ],
)
def test_ids_of_any_type_tell_units_apart(tmp_path, values):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"user": values}), path)
    read_footers([path], [USER])
    (batch,) = read_batches(str(path), [0], [USER])
    ids = [tuple(one) for one in batch["user"].tolist()]
    assert ids[0] == ids[3] != ids[1]
    assert np.isnan(ids[2]).all()


def test_a_unit_is_the_same_in_text_of_any_kind_and_in_a_folder(tmp_path):
    text = pa.array(["7", "8"])
    found = []
    for name, table in (
        ("a", {"user": text}), ("b", {"user": text.dictionary_encode()}), ("user=7", {"x": [1, 2]}),
    ):  # fmt: skip
        path = tmp_path / name / "a.parquet"
        path.parent.mkdir()
        pq.write_table(pa.table(table), path)
        (batch,) = read_batches(str(path), [0], [USER])
        found.append((path, tuple(batch["user"][0])))
    read_footers([path for path, _ in found], [USER])
    assert len({first for _, first in found}) == 1


def test_a_row_that_is_filtered_out_or_in_no_folder_has_no_id(tmp_path):
    path = tmp_path / "user=__HIVE_DEFAULT_PARTITION__" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"who": ["a", "b"], "kept": [True, False]}), path)
    columns, kept = [replace(USER, name="who"), USER], Column("kept", "data.filter", (True,))
    (batch,) = read_batches(str(path), [0], columns, kept)
    assert np.isnan(batch["who"]).tolist() == [[False, False], [True, True]]
    assert np.isnan(batch["user"]).tolist() == [[True, True], [True, True]]


def test_a_unit_is_the_same_in_exact_numbers_of_any_kind():
    for value in (0, -1, 2**53 + 1, -(2**62) - 1, 2**63 - 1):
        kinds = [pa.int64(), pa.decimal128(19), pa.decimal128(38, 2), pa.decimal256(60, 0)]
        kinds += [pa.uint64()] if value >= 0 else []
        kinds += [pa.int8(), pa.decimal128(3)] if abs(value) < 2 else []
        ids = [as_floats(pa.array([Decimal(value)]).cast(kind), USER) for kind in kinds]
        assert all((one == ids[0]).all() for one in ids)
        assert sum(map(int, ids[0][0])) == value


WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
DECIMALS = (pa.decimal32(9, 2), pa.decimal64(18), pa.decimal128(38), pa.decimal256(50, 7))
EXACT = [
    *(pa.array([1, 0], getattr(pa, kind)()) for kind in WHOLE),
    *(pa.array([Decimal(1), Decimal(0)], kind) for kind in DECIMALS),
    pa.array([True, False]),
]
TENTHS = [pa.array([Decimal(1), Decimal("0.1")], pa.decimal128(20, scale)) for scale in (1, 2, 18)]
WRITTEN = ["1", "private-\u00e9"]
INDEXED = pa.dictionary(pa.int8(), pa.large_string())
IN_WORDS = [
    *(pa.array(WRITTEN, kind) for kind in (pa.string(), pa.large_string())),
    pa.array(WRITTEN).dictionary_encode(),
    pa.array(WRITTEN).dictionary_encode().cast(INDEXED),
]
HALF, SINGLE, DOUBLE = (
    [pa.array(np.array([0.1, 1.0], kind))] for kind in (np.float16, np.float32, np.float64)
)
FORMS = [EXACT + TENTHS, IN_WORDS, HALF, SINGLE, DOUBLE]
NO_IDS = [
    *(pa.array([1, 0], pa.int32()).cast(kind) for kind in (pa.date32(), pa.time32("s"))),
    *(pa.array([1, 0]).cast(kind) for kind in (pa.timestamp("ms"), pa.timestamp("ns", "UTC"))),
    *(pa.array(["1", "0"]).cast(kind) for kind in (pa.binary(), pa.large_binary(), pa.binary(1))),
    pa.array([datetime.date(1970, 1, 2)], pa.date64()),
]


def paired(tmp_path, ids, others):
    """Ids of two files by the numbers that they are compared by, after footers were read."""
    paths = [tmp_path / f"{i}.parquet" for i in range(2)]
    for path, values in zip(paths, (ids, others), strict=True):
        pq.write_table(pa.table({"user": values}), path)
    read_footers(paths, [USER])
    return [next(read_batches(str(path), [0], [USER]))["user"].tolist() for path in paths]


@pytest.mark.parametrize("form", [EXACT, TENTHS, IN_WORDS], ids=["exact", "decimals", "texts"])
def test_a_unit_in_two_files_of_one_form_is_one_whatever_their_types(tmp_path, form):
    for values in form:
        ids, others = paired(tmp_path, form[0], values)
        assert ids == others
        assert ids[0] != ids[1]


def test_units_in_files_whose_types_are_of_two_forms_are_refused(tmp_path):
    """One of them would be two units, as .1 is in floats of two widths; in either order."""
    for first, second in permutations(FORMS, 2):
        with pytest.raises(dbern.SpecError, match=r"^data\.unit: .* one unit could be two"):
            paired(tmp_path, first[0], second[-1])
    for values in NO_IDS:
        with pytest.raises(dbern.SpecError, match=r"^data\.unit: .* ids are numbers or text"):
            paired(tmp_path, values, values)


def test_a_folder_is_a_text(tmp_path):
    """It meets a column of texts, and no number."""
    folder = tmp_path / "user=1"
    folder.mkdir()
    pq.write_table(pa.table({"x": [1]}), folder / "a.parquet")
    for values in (EXACT[0], SINGLE[0], DOUBLE[0]):
        pq.write_table(pa.table({"user": values}), tmp_path / "b.parquet")
        with pytest.raises(dbern.SpecError, match="one unit could be two"):
            read_footers([folder / "a.parquet", tmp_path / "b.parquet"], [USER])


# --- plans and releases ------------------------------------------------------------------------


def test_a_plan_says_what_a_unit_costs():
    row = CASES["density"].spec(1, 4, "laplace", k=9, rows={"n": 4})
    _, user = planned("density", k=9)
    assert user.noise.scale == pytest.approx(3 * plan_files(row, ()).noise.scale, rel=0.1)
    for text in (
        "one user replaced, whose rows count up to 3",
        "3 cost 3 times the noise of 1",
        "3 rows x",
    ):
        assert text in user.explain(details=True)
    assert user.protection == Protection(unit=PrivacyUnit("user", 3))
    assert dbern.ReleasePlan.from_dict(user.to_dict()) == user


@pytest.mark.usefixtures("noiseless")
def test_a_release_counts_what_is_bounded(project, client, monkeypatch):
    monkeypatch.setattr(counting_passes, "PASS_ROWS", 20)
    rng = np.random.default_rng(0)
    x, users = rng.uniform(0, 10, 120), [f"user {i}" for i in rng.integers(30, size=120)]
    project.write({"x": x, "y": np.zeros(120), "user": users})
    spec = project.spec(
        data={"normalizer": "60"}, data__unit={"column": "user", "max_contributions": 2},
        budget={"dataset": "people"},
    )  # fmt: skip
    with pytest.raises(dbern.BudgetError, match=r"--unit user:2$"):
        dbern.release(spec, client=client)
    with project.ledger() as ledger:
        ledger.grant("people", spec.charge, unit=PrivacyUnit("user", 2))
    assert dbern.plan(spec).cost.tasks == 3
    synopsis = dbern.release(spec, client=client).synopsis
    assert synopsis.metadata["unit"] == "user (at most 2 rows)"
    moved = synopsis.metadata["components"][0]["sensitivity"]["function"]
    least = lower_bound_of(synopsis._store.released, 1e-40).value
    assert 29.9 < least / (moved / 2) <= 30  # units of 2 in 60 rows
    total = float(synopsis.grid(201).integrate(["x", "y"]))
    rows = sum(min(2, users.count(user)) for user in set(users))
    # Most of the kernel lies inside the bounds.
    assert 0.7 * rows / 60 < total <= rows / 60


# --- the attack --------------------------------------------------------------------------------


def found_epsilon(plan, with_user, without, draws=20_000):  # a record in the open shows from 60 on
    """A lower bound on epsilon, with confidence 99.9 %, by the likelihood ratio as the test.

    Positions of a release have independent noise, so one call draws for all runs.
    """
    law = plan.noise.law
    apart = np.sign(with_user - without)
    middle = ((with_user + without) / 2 * apart).sum()

    def scores(center, label):
        centers = np.tile(center.ravel(), draws)
        noisy = privatize(centers, 0, law, bytes(32), label).reshape(draws, -1)
        return noisy.astype(float) @ apart.ravel() - middle

    hits = int((scores(with_user, "with") > 0).sum())
    false = int((scores(without, "without") > 0).sum())
    slack = math.sqrt(math.log(2000) / (2 * draws))  # Hoeffding, for each of the two
    return math.log(max(1e-9, hits / draws - slack) / (false / draws + slack))


@pytest.mark.slow
def test_row_noise_fails_an_audit_by_user_and_unit_noise_passes():
    """Someone with 20 rows at one place, there or not, under epsilon 1: it must not be seen."""
    rows = of(1, [{"x": 0.0}] * 20)
    unit = {"unit": {"column": "user", "max_contributions": 20}, "normalizer": "100"}
    for data, seen in (({"normalizer": "100"}, True), (unit, False)):
        terms = {**data, "neighbors": "add-or-remove-one"}
        spec = CASES["density"].spec(1, 4, "laplace", k=1, rows=terms)
        plan = plan_files(spec, ())
        (there,), (gone,) = integers(spec, plan, rows), integers(spec, plan, [])
        assert (there != gone).any()
        epsilon = found_epsilon(plan, there, gone)
        assert (epsilon > float(plan.charge.epsilon)) == seen, epsilon


@pytest.mark.parametrize("name", ["regression", "kernel logistic"])
def test_the_order_of_the_records_is_free_end_to_end(name):
    spec, plan = planned(name, k=5)
    counters = plan.counters(spec)
    rng = np.random.default_rng(1)
    records = everyone(CASES[name], 1, rng)
    records = [{**r, "user": float(i % 7)} for i, r in enumerate(records)]
    whole = counted(counters, [records])
    shuffled = [records[i] for i in rng.permutation(len(records))]
    np.testing.assert_array_equal(
        counted(counters, [shuffled[i : i + 5] for i in range(0, len(shuffled), 5)]), whole
    )
    assert whole.any()


def test_passes_keep_whole_shards_of_units(monkeypatch):
    """A risk minimizer in four shards: two passes give the integers that one gives."""
    case = CASES["kernel logistic"]
    sharded = replace(case, target={**case.target, "shards": 4})
    unit = {"unit": {"column": "user", "max_contributions": 3}, "normalizer": "40"}
    spec = sharded.spec(1, 40, "laplace", rows=unit, k=5)
    plan = plan_files(spec, ())
    records = everyone(case, 1, np.random.default_rng(1))
    records = [{**r, "user": float(i % 9)} for i, r in enumerate(records)]
    whole = counted(plan.counters(spec), [records])
    monkeypatch.setattr("dbern.erm.solutions.PASS_ROWS", 20)
    counters = plan.counters(spec)
    assert counters.passes == 2
    np.testing.assert_array_equal(counted(counters, [records]), whole)
    assert whole.any()
