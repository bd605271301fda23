"""Axes that count in something: records are rounded exactly, and answers have no edges."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from banding import synopsis_of
from strategies import sections

import dbern
from dbern.ask.splines import AxisSplines, intervals, steps_of_multiples
from dbern.cli import main
from dbern.data.columns import resolution_of
from dbern.data.domain import Axis
from dbern.data.footers import footer_tag
from dbern.data.resolution import Multiples
from dbern.data.times import TimeUnit
from dbern.errors import SpecError
from dbern.measure.counters import Portion, Reading, TableReading
from dbern.planning.planner import plan_files
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.mechanism import to_grid
from dbern.synopsis.metadata import StoredAxis
from dbern.targets import KernelDensity
from dbern.testing import search

AXES = {  # bounds and what is counted in
    "halves": (0.0, 100.0, 0.5),
    "whole numbers": (17.0, 90.0, 1.0),
    "hundredths": (0.2, 5.0, 0.01),
    "tenths of both signs": (-0.7, 0.5, 0.1),
    "thirds of a decimal": (0.1, 1.0, 0.3),
    "one step": (-3.0, 7.0, 10.0),
    "powers of two": (-1.0, 1.0, 0.125),
    "far from zero": (1e9, 1e9 + 60.0, 0.1),
    "seconds": (1767225600.0, 1767225720.0, 0.25),
    "huge": (-3e90, 3e90, 1e90),
    "small": (0.0, 1e-95, 1e-96),
    "around zero": (-1.0, 2.0, 3.0),
    "symmetric": (-0.5, 0.5, 1.0),
}
SALT = bytes(range(32))


def axis_of(low, high, step, unit=None):
    return Axis("x", low, high, unit, resolution=step)


def rounded_exactly(value, low, high, step):
    """The definition, in fractions of the decimals: Python's `round` takes ties to even."""
    if not (low <= value <= high):
        return value
    first, exact = Fraction(repr(low)), Fraction(repr(step))
    return float(first + round((Fraction(value) - first) / exact) * exact)


def beside(values):
    """Each value, and two floats on either side of it."""
    values, near = np.asarray(values, dtype=np.float64), []
    for direction in (-np.inf, np.inf):
        there = values
        for _ in range(2):
            there = np.nextafter(there, direction)
            near.append(there)
    return np.concatenate([values, *near])


def difficult(low, high, step):
    """Values at multiples, at ties and next to both; tiny, huge, missing, and some at random."""
    first, exact = Fraction(repr(low)), Fraction(repr(step))
    count = int((Fraction(repr(high)) - first) / exact)
    chosen = range(count) if count < 600 else [*range(300), *range(count - 300, count)]
    ties = [float(first + (i + Fraction(1, 2)) * exact) for i in chosen]
    multiples = [float(first + i * exact) for i in chosen]
    spread = np.random.default_rng(5).uniform(low, high, 2000)
    others = [5e-324, -5e-324, 2.0**-1022, -0.0, 0.0, 1e300, -1e300, np.inf, -np.inf, np.nan]
    with np.errstate(over="ignore"):
        single = np.asarray([*ties, *spread]).astype(np.float32).astype(np.float64)
    return np.concatenate([beside([*ties, *multiples, low, high]), spread, single, others])


# --- Rounding


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("name", AXES)
def test_records_are_rounded_as_exact_fractions_are(name):
    values = difficult(*AXES[name])
    rounded = axis_of(*AXES[name]).multiples.rounded(values)
    expected = [rounded_exactly(value, *AXES[name]) for value in values.tolist()]
    assert np.array_equal(rounded, expected, equal_nan=True)


def test_ties_go_to_even_multiples():
    multiples = axis_of(0.0, 4.0, 1.0).multiples
    assert multiples.rounded(np.array([0.5, 1.5, 2.5, 3.5])).tolist() == [0.0, 2.0, 2.0, 4.0]
    from_one = axis_of(1.0, 5.0, 1.0).multiples  # i counts from the lower bound
    assert from_one.rounded(np.array([1.5, 2.5])).tolist() == [1.0, 3.0]
    assert multiples.rounded(np.array([0.5, np.nextafter(0.5, 1)])).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("name", AXES)
def test_floats_that_stand_for_multiples_stay(name):
    multiples = axis_of(*AXES[name]).multiples
    values = multiples.values
    assert (values[0], values[-1]) == AXES[name][:2]
    assert np.array_equal(multiples.rounded(values), values)
    assert np.array_equal(multiples.at(multiples.positions), values)
    assert np.all(np.diff(values) > 0)
    nominal = np.arange(multiples.count + 1) / multiples.count
    assert np.abs(multiples.positions - nominal).max() <= multiples.deviation + 2.0**-51


@pytest.mark.slow
def test_as_many_multiples_as_are_available_are_rounded_to_in_seconds():
    multiples = axis_of(0.0, float(1 << 20), 1.0).multiples
    values = beside(np.arange(0.5, 2000)) * 500
    expected = [rounded_exactly(value, 0.0, float(1 << 20), 1.0) for value in values.tolist()]
    assert np.array_equal(multiples.rounded(values), expected)


# --- What is counted: of files and tables, of every type, in every way


def spec_of(step=0.5, low=0.0, high=10.0, bandwidth=0.7, **keys):
    content = sections(
        data={"bounds": {"x": [low, high]}, "n": None, **keys},
        target={"bandwidth": [bandwidth]},
        mechanism={"k": None, "h": None, "noise": "auto"},
    )
    if step:
        content["data"]["resolution"] = {"x": step}
    return ReleaseSpec(**content)


RAW = beside([0.25, 0.75, 5.25, 9.75, 9.9, 3.0, 0.0, 10.0, -0.2, 10.2, 1e300, 5e-324])
COLUMNS = {
    "floats": pa.array(RAW),
    "floats of 32 bits": pa.array(RAW.clip(-1e30, 1e30).astype(np.float32)),
    "integers": pa.array([0, 1, 3, 9, 10, 11, -1, None, 7], pa.int16()),
    "decimals": pa.array([*map(Decimal, ("0.25", "0.75", "1.24", "9.99", "-0.01"))]),
    "booleans": pa.array([True, False, None]),
    "nothing": pa.array([None, math.nan, math.inf, -math.inf], pa.float64(), from_pandas=False),
}


def as_numbers(values):
    return np.array([np.nan if one is None else float(one) for one in values.to_pylist()])


def state_of(spec, batches):
    counters = plan_files(spec.changed({"data": {"n": 100}}), ()).counters(spec)
    return counters, counters.count(batches, SALT)


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("outside", ["drop", "clamp"])
@pytest.mark.parametrize("name", COLUMNS)
def test_counts_are_those_of_records_that_were_rounded_before(name, outside, tmp_path):
    """Read from a file, and from a table; beside fractions of the numbers, and no resolution."""
    values = COLUMNS[name]
    numbers = as_numbers(values)
    numbers = numbers.clip(0.0, 10.0) if outside == "clamp" else numbers
    numbers[~np.isfinite(as_numbers(values))] = np.nan
    exact = np.array([rounded_exactly(one, 0.0, 10.0, 0.5) for one in numbers.tolist()])
    plain, raw = spec_of(None, outside=outside), spec_of(outside=outside)
    expected = state_of(plain, [{"x": exact}])[1]
    counters, found = state_of(raw, TableReading(pa.table({"x": values}), state_of(raw, [])[0]))
    assert np.array_equal(found, expected)
    path = str(tmp_path / "x.parquet")
    pq.write_table(pa.table({"x": values}), path)
    reading = Reading([Portion(path, footer_tag(path, SALT), (0,), len(values))], counters, SALT)
    assert np.array_equal(counters.count(reading, SALT), expected)
    assert expected.any() == (name != "nothing")


@pytest.mark.parametrize("unit", ["days", "seconds"])
def test_dates_and_times_are_rounded(unit):
    start, stop = (date(2026, 1, 1), date(2026, 3, 2))
    if unit == "seconds":
        start, stop = (datetime(2026, 1, 1, hour=hour, tzinfo=UTC) for hour in (0, 12))
    step = 7.5 if unit == "days" else 900.0
    spec = spec_of(step, start, stop, 3 * step)
    (axis,) = spec.domain.axes
    moments = np.datetime64("2026-01-01T00:07:30.000000000") + np.arange(40) * np.timedelta64(
        15 * 60 * 10**9 + 1, "ns"
    )
    numbers = axis.unit.of_datetimes(moments)
    exact = np.array([rounded_exactly(one, axis.low, axis.high, step) for one in numbers.tolist()])
    plain = spec_of(None, start, stop, 3 * step)
    table = pa.table({"x": pa.array(moments)})
    found = state_of(spec, TableReading(table, state_of(spec, [])[0]))[1]
    assert np.array_equal(found, state_of(plain, [{"x": exact}])[1])


def test_units_of_several_rows_and_what_is_solved_count_rounded_records():
    unit = {"unit": {"column": "user", "max_contributions": 2}, "normalizer": "100"}
    ids = np.column_stack([np.arange(40) % 13, np.zeros(40)])
    raw = np.random.default_rng(1).uniform(-1, 11, 40)
    exact = np.array([rounded_exactly(one, 0.0, 10.0, 0.5) for one in raw.tolist()])
    states = []
    for step, values in ((0.5, raw), (None, exact)):
        spec = spec_of(step, **unit)
        counters = plan_files(spec, ()).counters(spec)
        states.append(counters.count([{"x": values, "user": ids}], SALT))
    # Which rows of a unit count is a hash of their content: of the rounded one.
    assert np.array_equal(*states)


def test_two_batches_are_counted_as_one_and_batches_are_read_again():
    spec = spec_of()
    whole = state_of(spec, [{"x": RAW}])[1]
    assert np.array_equal(state_of(spec, [{"x": RAW[:7]}, {"x": RAW[7:]}])[1], whole)


# --- Specs


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"resolution": {"x": 0.3}}, r"\[0.0, 1.0\] are not a whole number of times 0.3 apart. "
         r"Write bounds as x = \[0.0, 0.9\]"),
        ({"resolution": {"x": 30.0}}, "not a whole number of times 30 apart. Write a smaller one"),
        ({"resolution": {"x": 0.0}}, "must be a number above 0. Write x = 0.5"),
        ({"resolution": {"x": -1}}, "must be a number above 0"),
        ({"resolution": {"x": math.inf}}, "must be a number above 0"),
        ({"resolution": {"x": math.nan}}, "must be a number above 0"),
        ({"resolution": {"x": 5e-7}}, "more than 1048576 times 5e-07 apart. Write a larger x"),
        ({"resolution": {"y": 1}}, "data.resolution.y: is what an axis .* Write it of x"),
        ({"resolution": {"x": "1 day"}}, r"\[data.resolution\] with one line per axis"),
        ({"resolution": {}}, r"\[data.resolution\] with one line per axis"),
        ({"resolution": {"x": 7}, "bounds": {"x": [date(2026, 1, 1), date(2026, 2, 1)]}},
         r"\[2026-01-01, 2026-02-01\] are not .* 7 days .* x = \[2026-01-01, 2026-01-29\]"),
        ({"resolution": {"z": 1}, "bounds": {"x": [0, 1], "z": {"values": ["a", "b"]}}},
         "data.resolution.z: is what an axis of numbers or dates counts in. Write it of x"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_resolution_is_refused(keys, message):
    with pytest.raises(SpecError, match=message):
        ReleaseSpec(**sections(data=keys))


def test_a_resolution_is_part_of_what_a_release_is():
    plain, rounded = spec_of(None), spec_of(0.5)
    assert "resolution" not in plain.identity()["data"]
    assert rounded.identity()["data"]["resolution"] == {"x": 0.5}
    assert pickle.loads(pickle.dumps(rounded)).domain == rounded.domain
    notes = plan_files(rounded.changed({"data": {"n": 100}}), ()).notes
    assert "x: rows are rounded to 0.5, ties to even multiples; 21 values" in notes


def test_integers_and_dates_are_what_people_write():
    spec = spec_of(1, 0, 99)
    assert spec.domain.axes[0].multiples.count == 99
    days = spec_of(1, date(2026, 1, 1), date(2026, 12, 31))
    assert days.domain.axes[0].multiples.count == 364
    assert days.domain.axes[0].unit is TimeUnit.DAYS


# --- Splines


@pytest.mark.parametrize("name", [name for name in AXES if name not in ("huge", "small")])
@pytest.mark.parametrize("between", [1, 3])
def test_steps_of_rounded_rows_are_exact_where_a_bin_is_at_each(name, between):
    multiples = axis_of(*AXES[name]).multiples
    splines = AxisSplines(between * multiples.count, 1, multiples)
    last = np.arange(-1, multiples.count + 1)
    envelope = steps_of_multiples(splines, last)
    assert_between(splines, envelope, np.arange(multiples.count + 1) <= last[:, None])
    assert (envelope.upper - envelope.lower).max() <= 8 * splines.cells * multiples.deviation


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("degree", [1, 2, 3, 5])
@pytest.mark.parametrize("cells", [7, 40, 73, 200])
@pytest.mark.parametrize("name", ["halves", "whole numbers", "one step", "far from zero"])
def test_steps_of_rounded_rows_lie_between_other_splines(name, cells, degree):
    multiples = axis_of(*AXES[name]).multiples
    splines = AxisSplines(cells, degree, multiples)
    last = np.arange(-1, multiples.count + 1)[:: 1 if multiples.count < 80 else 7]
    envelope = steps_of_multiples(splines, last)
    assert_between(splines, envelope, np.arange(multiples.count + 1) <= last[:, None])


def assert_between(splines, envelope, exact):
    """At the floats of multiples; a rounding of sums of products is allowed."""
    rows, allowed = splines.values(splines.multiples.positions).T, 1e-13 * splines.count
    assert np.all(envelope.lower @ rows <= exact + allowed)
    assert np.all(envelope.upper @ rows >= exact - allowed)


def test_an_edge_between_two_multiples_is_one_question():
    multiples = axis_of(0.0, 10.0, 0.5).multiples
    splines = AxisSplines(20, 1, multiples)
    low, high = np.array([2.5, 2.3, 2.01, 2.5]), np.array([7.0, 7.2, 7.49, 7.4])
    same = intervals(splines, low / 10, high / 10)
    assert np.ptp(same.estimate, axis=0).max() == 0
    expected = (multiples.values >= 2.5) & (multiples.values <= 7.0)
    assert np.array_equal(same.estimate[0], expected)
    nothing = intervals(splines, np.array([0.21]), np.array([0.24]))
    assert not nothing.estimate.any()
    assert nothing.upper.max() < 1e-9


# --- Answers


def counted(rows, low, high, step, mechanism=None):
    """The spec, the plan and the exact integers of a release of rows."""
    given = {"questions": ["mass"], "k": None, "h": None, "noise": "auto", **(mechanism or {})}
    content = sections(
        data={"bounds": {"x": [low, high]}, "n": len(rows), "resolution": {"x": step}},
        target={"bandwidth": [(high - low) / 20]},
        mechanism=given,
    )
    return exact_integers(ReleaseSpec(**content), {"x": np.asarray(rows, float)})


def exact_integers(spec, records):
    plan = plan_files(spec, ())
    counters = plan.counters(spec)
    state, (planned,) = counters.count([records], SALT), plan.components
    slabs = planned.strategy.layout.slabs()
    values = np.concatenate([counters.to_values(state, 0, 0, slab) for slab in slabs])
    return spec, plan, {planned.arrays[0]: to_grid(values, planned.noise.law)}


def released(rows, step, key=None, mechanism=None):
    """The synopsis of rows, with the noise of a key or with none."""
    noise = None if key is None else key.to_bytes(32, "big")
    return synopsis_of(*counted(rows, 0.0, 100.0, step, mechanism), noise)


FARES = np.round(np.random.default_rng(2).gamma(2.2, 6, 4000).clip(0, 100) * 2) / 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:each answer holds")
def test_boxes_of_rounded_rows_are_exact_without_noise():
    raw = FARES + np.random.default_rng(3).uniform(-0.2, 0.2, len(FARES))
    d = released(raw.clip(0, 100), 0.5).distribution()
    assert (d.measures[0].splines[0].cells, d.measures[0].splines[0].degree) == (200, 1)
    for low, high in ((0, 10), (2.5, 2.5), (2.3, 7.2), (30, 100), (99.6, 99.8), (0, 100)):
        answer = d.mass({"x": (low, high)})
        share = np.mean((low <= FARES) & (high >= FARES))
        assert answer.value == pytest.approx(share, abs=1e-7)
        assert answer.low <= share <= answer.high
    for level in (0.1, 0.25, 0.5, 0.9):
        exact = np.quantile(FARES, level, method="inverted_cdf")
        assert d.quantile(level).value == exact


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:each answer holds")
def test_boxes_under_a_condition_are_met_with_both_ends():
    d = released(FARES, 0.5).distribution()
    within = FARES[(FARES >= 8) & (FARES <= 12)]
    for low, high in ((2, 7.5), (2, 8), (12, 20), (12.5, 20), (9, 10), (12.2, 12.4)):
        answer = d.mass({"x": (low, high)}, given={"x": (8, 12)})
        share = np.mean((low <= within) & (high >= within))
        assert answer.value == pytest.approx(share, abs=1e-6)
        assert answer.low <= share + 1e-9
        assert share <= answer.high + 1e-9


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:each answer holds")
def test_answers_say_that_rows_are_rounded():
    d = released(FARES, 0.5, 1).distribution()
    answer = d.mass({"x": (10, 20)})
    assert answer.question == "share of the rows in x 10 to 20, of rows rounded to 0.5"
    assert " % of the rows lie in x 10 to 20, of rows rounded to 0.5 (" in str(answer)
    assert not answer.note
    asked = (
        d.count({"x": (0, 5)}),
        d.quantile(0.5),
        d.mean(),
        d.cdf(7),
        d.compare(d, {"x": (0, 5)}),
    )
    assert all("of rows rounded to 0.5" in one.question for one in asked)
    assert asked[0].to_dataset().attrs["question"].endswith("of rows rounded to 0.5")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:each answer holds")
def test_quantiles_of_rounded_rows_are_multiples():
    d = released(FARES, 0.5, 5).distribution()
    answer = d.quantile([0.05, 0.5, 0.95])
    for numbers in (answer.value, answer.low, answer.high):
        assert np.all(np.rint(2 * numbers) == 2 * numbers)
    exact = np.quantile(FARES, [0.05, 0.5, 0.95], method="inverted_cdf")
    assert np.all((answer.low <= exact) & (exact <= answer.high))
    assert (answer.high - answer.low).max() <= 5.0
    zero = released(np.where(FARES < 12, 0.0, FARES), 0.5, 6).distribution()
    least = zero.quantile(0.1)  # the first of all multiples
    assert (least.value, least.low, least.high) == (0.0, 0.0, 0.0)


HALVES = {
    "share": (lambda d: d.mass({"x": (10, 20)}), np.mean((FARES >= 10) & (FARES <= 20))),
    "small share": (lambda d: d.mass({"x": (0, 1)}), np.mean(FARES <= 1)),
    "count": (lambda d: d.count({"x": (None, 15.2)}), np.sum(FARES <= 15)),
    "median": (lambda d: d.quantile(0.5), np.quantile(FARES, 0.5, method="inverted_cdf")),
    "tail": (lambda d: d.quantile(0.99), np.quantile(FARES, 0.99, method="inverted_cdf")),
}


@pytest.mark.turns("coverage", 8)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:each answer holds")
@pytest.mark.parametrize("mechanism", [{}, {"noise": "binned-laplace", "questions": ["density"]}])
def test_answers_of_rounded_rows_cover_at_least_as_often_as_they_say(mechanism):
    """With a bin at each multiple, and with bins that a density wants."""
    draws, inside = 60, dict.fromkeys(HALVES, 0)
    case = counted(FARES, 0.0, 100.0, 0.5, mechanism)
    for key in range(1, draws + 1):
        d = synopsis_of(*case, key.to_bytes(32, "big")).distribution()
        for name, (ask, exact) in HALVES.items():
            answer = ask(d)
            inside[name] += bool(answer.low - 1e-9 <= exact <= answer.high + 1e-9)
    assert min(inside.values()) >= 0.95 * draws - 3.5 * np.sqrt(0.0475 * draws), inside


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:each answer holds")
@pytest.mark.parametrize("key", [None, 4])
def test_bins_that_a_density_wants_answer_for_rounded_rows_too(key):
    mechanism = {"questions": ["density"]}
    rows = np.where(np.arange(len(FARES)) % 2, 20.0, FARES)  # half of them at one multiple
    d = released(rows, 0.5, key, mechanism).distribution()
    assert d.measures[0].splines[0].degree > 1
    plain = released(rows, 100.0 / (1 << 20), key, mechanism).distribution()
    for low, high in ((20, 25), (5, 19.5), (20.5, 40), (0, 20)):
        answer = d.mass({"x": (low, high)})
        share = np.mean((rows >= low) & (rows <= high))
        assert answer.low <= share <= answer.high
        wide = plain.mass({"x": (low, high)})
        assert answer.high - answer.low <= (wide.high - wide.low) * 1.01
    for level in (0.2, 0.5, 0.8):
        exact, answer = np.quantile(rows, level, method="inverted_cdf"), d.quantile(level)
        assert answer.low <= exact <= answer.high


@pytest.mark.slow
def test_axes_that_are_no_multiples_and_conditions_on_those_that_are():
    """Two axes: the answers of both, and of one under a condition on the other."""
    rng = np.random.default_rng(8)
    hours, miles = rng.integers(0, 25, 3000).astype(float), rng.uniform(0, 1, 3000)
    content = sections(
        data={"bounds": {"hour": [0.0, 24.0], "miles": [0.0, 1.0]}, "n": 3000,
              "resolution": {"hour": 1}},
        target={"bandwidth": [3.0, 0.2]},
        mechanism={"questions": ["mass"], "k": None, "h": None, "noise": "auto"},
    )  # fmt: skip
    exact = exact_integers(ReleaseSpec(**content), {"hour": hours, "miles": miles})
    d = synopsis_of(*exact).distribution()
    with d.confidence(0.05, questions=3) as c:
        share = c.mass({"hour": (8, 17)})
        both = c.mass({"hour": (8, 17), "miles": (None, 0.5)})
        within = c.quantile(0.5, "hour", given={"miles": (None, 0.5)})
    assert "of rows rounded to 1 in hour" in share.question
    inside = (hours >= 8) & (hours <= 17)
    assert share.value == pytest.approx(inside.mean(), abs=1e-6)
    assert both.low <= np.mean(inside & (miles <= 0.5)) <= both.high
    exact = np.quantile(hours[miles <= 0.5], 0.5, method="inverted_cdf")
    assert within.low <= exact <= within.high
    assert within.value == np.rint(within.value)


# --- What a column's type says

DAYS, SECONDS = TimeUnit.DAYS, TimeUnit.SECONDS
MIDNIGHT, LATER = 20454 * 86400.0, 20484 * 86400.0


@pytest.mark.parametrize(
    ("kind", "bounds", "step"),
    [
        (pa.int16(), (17.0, 90.0, None), 1.0),
        (pa.uint64(), (0.0, 5.0, None), 1.0),
        (pa.dictionary(pa.int8(), pa.int32()), (0.0, 5.0, None), 1.0),
        (pa.bool_(), (0.0, 1.0, None), 1.0),
        (pa.decimal128(9, 2), (0.0, 100.0, None), 0.01),
        (pa.decimal128(9, 2), (0.1, 0.3, None), 0.01),
        (pa.decimal128(9, -2), (0.0, 1000.0, None), 100.0),
        (pa.date32(), (20454.0, 20484.0, DAYS), 1.0),
        (pa.date64(), (MIDNIGHT, LATER, SECONDS), 86400.0),
        # Bounds that are no such values, or too many of them between
        (pa.int16(), (16.5, 90.5, None), None),
        (pa.int16(), (17.0, 90.5, None), None),
        (pa.int64(), (0.0, 2.0**20 + 1, None), None),
        (pa.decimal128(9, 1), (0.0, 0.25, None), None),
        (pa.date64(), (MIDNIGHT + 3600, LATER, SECONDS), None),
        (pa.int16(), (0.0, math.inf, None), None),
        # Types that do not tell
        (pa.float64(), (0.0, 24.0, None), None),
        (pa.timestamp("s"), (MIDNIGHT, LATER, SECONDS), None),
        (pa.date32(), (0.0, 1.0, None), None),
        (pa.null(), (0.0, 1.0, None), None),
    ],
)
def test_a_type_says_what_a_column_counts_in(kind, bounds, step):
    assert resolution_of(kind, *bounds) == step
    if step is not None:
        axis_of(*bounds[:2], step, bounds[2])  # refuses what the bounds are no multiples of


# --- Stores


@pytest.mark.slow
def test_a_release_keeps_what_its_axes_count_in(project, client, capsys):
    project.write({"x": [1.0, 2.2, 2.3, 9.0], "y": [0.0] * 4}, files=1)
    project.grant()
    spec = project.spec(
        data__bounds={"x": [0.0, 10.0], "y": [-1.0, 1.0]}, data__resolution={"x": 0.5}
    )
    synopsis = dbern.release(spec, client=client).synopsis
    axis = synopsis.metadata["domain"]["axes"][0]
    assert axis == {"name": "x", "low": 0.0, "high": 10.0, "resolution": 0.5}
    assert main.run(["show", synopsis.url, "--details"]) == 0
    assert "x in [0, 10], rounded to 0.5; y in [-1, 1]" in capsys.readouterr().out
    assert main.run(["report", synopsis.url, "--out", str(project.folder / "report.html")]) == 0
    page = (project.folder / "report.html").read_text()
    assert "from 4 rows rounded to 0.5 in x" in page
    assert "rounded to 0.5" in synopsis._repr_html_()
    again = dbern.open(synopsis.url)
    assert again.domain.axes[0].multiples.count == 20
    window = again.grid(11, window={"x": (1.1, 2.9)})  # parts of the domain need no multiples
    assert window.shape == (11, 11)


STORED = {"name": "x", "low": 0.0, "high": 10.0}


@pytest.mark.parametrize(
    "wrong",
    [
        *({"resolution": one} for one in (0.3, 0.0, -0.5, 1e-9, 1e200, "0.5", None, [0.5], True)),
        *({"resolution": one} for one in (math.nan, math.inf)),
        {"resolution": 1.0, "values": ["a", "b"], "high": 1.0},
        {"resolution": 1.0, "high": 10.5},
        {"resolution": 7e5, "unit": "days since 1970-01-01", "high": 1e300},
    ],
)
def test_a_strangers_resolution_is_checked(wrong):
    assert StoredAxis.model_validate(STORED | {"resolution": 0.5}).resolution == 0.5
    with pytest.raises(ValueError, match=r"resolution|low and high|bounds"):
        StoredAxis.model_validate(STORED | wrong)


# --- The search for a counterexample

ROUNDED = {
    "data": {"bounds": {"x": [0.0, 10.0]}, "resolution": {"x": 2.5}},
    "target": {"bandwidth": [2.0]},
    "mechanism": {"noise": "binned-laplace", "questions": ["mass"]},
}


def test_no_neighbor_of_rounded_records_moves_more_than_planned():
    found = search(KernelDensity, ROUNDED)
    assert 0.9 < found.largest <= 1


def test_rounding_that_looks_at_other_records_is_caught(monkeypatch):
    def rounded(multiples, numbers):
        side = -1 if (numbers > multiples.values.mean()).any() else 0
        return np.where(np.isfinite(numbers), multiples.values[side], numbers)

    monkeypatch.setattr(Multiples, "rounded", rounded)
    assert search(KernelDensity, ROUNDED).found
