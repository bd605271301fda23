"""Plans: exact round trips, the paper's k, public row counts, and no record read."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from datetime import date
from fractions import Fraction

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from pydantic import ValidationError
from strategies import density_plan, density_spec, plan_of, spec_of, spec_sections
from threadpoolctl import threadpool_info, threadpool_limits

import dbern.data.parquet
from dbern.bernstein.basis import INTERPOLATED, iterated_basis
from dbern.bernstein.kernels import kernel_of
from dbern.bernstein.splines import bin_matrix
from dbern.certify.error_summary import ErrorSummary, printed_sum
from dbern.certify.noise import noise_sups
from dbern.data.footers import Footer
from dbern.data.parquet import write_records
from dbern.errors import SpecError
from dbern.planning import planner
from dbern.planning.candidates import (
    _RESOLUTIONS,
    FINE_RESOLUTIONS,
    _fitting_grids,
    lattices_to_try,
)
from dbern.planning.choice import _best_of, _candidates_of, best_candidate, make_search
from dbern.planning.cost import task_rows
from dbern.planning.planner import plan, plan_files
from dbern.planning.predicted import fit
from dbern.planning.release_plan import ReleasePlan
from dbern.planning.resolved import ResolvedSpec
from dbern.planning.spec import ReleaseSpec
from dbern.planning.target_error import smallest_epsilon
from dbern.privacy.families import errors_of, family_of
from dbern.reconstruct.bins import axis_bins
from dbern.system import one_thread

RISK = {"kind": "kernel-erm", "loss": "logistic"}


def test_what_a_plan_says_of_a_statistic_is_of_its_type():
    content = density_plan((0.1,), (20,)).to_dict()
    content["components"][0]["k"] = [20.0]
    with pytest.raises(ValidationError, match=r"k\.0\n.*valid integer"):
        ReleasePlan.from_dict(content)


def test_other_plans_are_not_equal_after_the_round_trip():
    planned = density_plan((0.1,), (20,))
    for path in (
        ("n",),
        ("components", 0, "noise", "law", "scale"),
        ("certificate", "noise"),
        ("components", 0, "counting", "order"),
    ):
        content = json.loads(json.dumps(planned.to_dict()))
        inner = content
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] += 1
        assert ReleasePlan.from_dict(content) != planned


@pytest.mark.parametrize("epsilon", ["1", "0.1", "1/3", "2.5"])
@pytest.mark.parametrize("n", [7, 1000, 10**6])
def test_noise_is_calibrated_to_the_planned_sensitivity(epsilon, n):
    planned = density_plan((0.1,), (12,), n=n, epsilon=epsilon)
    law = planned.noise.law
    exact = Fraction(epsilon)
    assert law.epsilon <= exact
    assert law.scale == math.ceil(law.l1_sensitivity_granules / exact)
    assert planned.noise.scale == pytest.approx(planned.sensitivity.l1 / float(exact), rel=1e-3)
    assert planned.charge.epsilon == exact


@pytest.mark.slow
def test_three_axes_are_counted_at_a_lower_degree_where_a_higher_one_gains_little():
    planned = density_plan((0.1,) * 3, (20,) * 3, h=4, n=10**7, noise="auto")
    assert {axis.degree for axis in planned.components[0].strategy.bins} == {5}


def test_a_thousandth_is_all_that_rounding_costs():
    planned = density_plan((0.1,), (20,), n=100_000)
    exact = planned.lattice.size * float(planned.noise.law.granularity)
    assert exact <= planned.sensitivity.l1 / 1000


@pytest.mark.parametrize(
    ("bandwidth", "h", "n", "epsilon"),
    [((0.1,), 2, 5000, "1"), ((0.3,), 1, 10**5, "0.5"), ((0.5, 0.4), 3, 10**6, "2"),
     ((0.1,), 2, 1, "0.001"), ((0.9,), 1, 10**7, "1")],
)  # fmt: skip
def test_auto_k_is_the_papers_choice_with_constants_one(bandwidth, h, n, epsilon):
    named = {name: [0.0, 1.0] for name in "xy"[: len(bandwidth)]}
    planned = plan_of(
        data={"bounds": named, "n": n}, target={"bandwidth": list(bandwidth)},
        mechanism={"k": "auto", "h": h, "beta": "0.05", "calibration": "paper"},
        budget={"epsilon": epsilon},
    )  # fmt: skip
    sup = 1 / (math.prod(bandwidth) * (2 * math.pi) ** (len(bandwidth) / 2)) / n
    power = 1 / (h + len(bandwidth))
    formula = (float(Fraction(epsilon)) / (sup * math.log(1 / 0.05))) ** power
    expected = min(64, max(1, math.floor(formula * (1 - 1e-12))))
    assert planned.k == (expected,) * len(bandwidth)


def facts(*groups):
    return [Footer(f"/f{i}", 1000, rows) for i, rows in enumerate(groups)]


def test_n_is_the_number_of_rows_of_the_files():
    spec = spec_of(data={"n": None})
    assert plan_files(spec, facts((100, 50), (), (7,))).n == 157
    assert plan_files(spec, facts((100, 50), (), (7,))).cost.rows == 157
    assert plan_files(spec_of(data={"n": 1000}), facts((1000,))).n == 1000


def cube(axes, width, target, **data):
    """Axes of one width, and a bandwidth or the like that is a third of it."""
    lengths = {key: [width / 3] * len(axes) if value is None else value
               for key, value in target.items()}  # fmt: skip
    return {"data": {"bounds": {axis: [0.0, width] for axis in axes}, **data}, "target": lengths}


YEAR = {"when": [date(2026, 1, 1), date(2027, 1, 1)]}
LABEL = {"column": "note", "classes": ["no", "yes"]}
DENSITY = {"bandwidth": None}
LONG_TEXT = ["a" * 10_001]
VOLUME = r"^data\.bounds: their volume, .*in other units"
REFUSED = {
    "n of no files": ({"data": {"n": None}}, (), r"^data\.n: is missing. Write n = "),
    **{f"{rows} rows for a stated n": (
        {}, facts((rows,)), rf"^data\.n: .* 1000 .*Write n = {rows}") for rows in (999, 1001, 0)},
    **{f"no rows in {groups}": (
        {"data": {"n": None}}, facts(*groups), r"^data\.source: .*no rows. Write ")
       for groups in ([()], [(0,)], [(), (0, 0)])},
    # Before, such a release was charged and published, and no reader opened it.
    **{f"volume of {axes} {width}": (cube(axes, width, DENSITY), facts((1000,)), VOLUME)
       for axes, width in (("xy", 1e-100), ("xy", 1e-75), ("xy", 1e90), ("xyzu", 1e-100))},
    # A certificate is of all components together: before, such a plan could not be written down.
    **{f"certificate of {kind} {width}": (
        cube("xyz", width, {"kind": kind, key: None}, label=LABEL), facts((1000,)), VOLUME)
       for kind, key in (("naive-bayes", "bandwidth"), ("gaussian-naive-bayes", "std_floor"))
       for width in (1e-50, 1e60)},
    **{f"a long text of {place} {key}": (
        {"data": {place: column}}, (), rf"^data\.{place}\.\w+: has .*Write")
       for place, key, column in (
           ("group", "values", {"column": "note", "values": LONG_TEXT}),
           ("filter", "values", {"column": "note", "values": LONG_TEXT}),
           ("filter", "column", {"column": "a" * 256, "values": ["a"]}),
           ("label", "classes", {"column": "note", "classes": ["a", *LONG_TEXT]}))},
    "too many coefficients": (
        {**cube("xyz", 1.0, DENSITY), "mechanism": {"k": [1000] * 3}}, (),
        r"^mechanism\.k: .*Write a smaller k"),
    "a bandwidth beyond all scales": (
        {"data": {"bounds": YEAR, "n": 9}, "target": {"bandwidth": [1e-6]}}, (),
        r"Write one of 0\.0365 to 3\.65e\+06 for when \(days\)$"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "files", "message"), REFUSED.values(), ids=REFUSED)
def test_what_no_release_can_be_made_of_is_refused_with_its_key(changes, files, message):
    with pytest.raises(SpecError, match=message):
        plan_files(spec_of(**changes), files)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1e-100, 1e-38, 1e38, 1e100])
@pytest.mark.parametrize("axes", [1, 3, 4])
@pytest.mark.parametrize(
    ("target", "data"),
    [({"kind": "kernel-density", "bandwidth": 0.3}, {}),
     ({"kind": "kernel-density", "covariance": 0.09}, {}),
     ({"kind": "nadaraya-watson", "bandwidth": 0.3}, {"response": True}),
     ({"kind": "naive-bayes", "bandwidth": 0.3, "release": "joint"}, {"label": True}),
     ({"kind": "naive-bayes", "bandwidth": 0.3}, {"label": True}),
     ({"kind": "gaussian-naive-bayes"}, {"label": True}),
     ({"kind": "support-vector-machine", "length_scale": 0.3}, {"label": True}),
     ({"kind": "ridge-regression"}, {"response": True}),
     ({"kind": "logistic-regression"}, {"label": True})],
)  # fmt: skip
def test_bounds_of_any_size_are_planned_or_refused(target, data, axes, width):
    """On four axes a volume of 1e-400 is 0 in floats."""
    names, target = "xyzu"[:axes], dict(target)
    for key in {"bandwidth", "length_scale"} & set(target):
        target[key] = [target[key] * width] * axes
    if "covariance" in target:
        share = target["covariance"] * width * width
        target["covariance"] = [[share if i == j else 0.0 for j in names] for i in names]
    roles = {"response": {"column": "r", "bounds": [0.0, width]},
             "label": {"column": "l", "classes": ["a", "b"]}}  # fmt: skip
    bounds = {name: [0.0, width] for name in names}
    with suppress(SpecError):
        plan_of(data={"bounds": bounds, **{role: roles[role] for role in data}}, target=target)


@pytest.mark.slow
@given(content=spec_sections())
@settings(max_examples=5)
def test_explanations_are_complete(content):
    try:
        planned = plan_files(ReleaseSpec(**content), ())
    except SpecError:
        return
    text = planned.explain(details=True)
    assert str(planned) == planned.explain() != text
    for label in ("release", "lattice", "sensitivity", "noise", "certificate", "memory"):
        assert any(line.startswith(label) for line in text.splitlines())
    assert f"N = {planned.lattice.size} " in text
    sure = planned.components[0].certificate
    assert printed_sum((sure.approximation, sure.rounding, sure.noise))[1] in text
    assert f"{planned.sensitivity.l1:.6g}" in text


@pytest.mark.parametrize(("bandwidth", "count"), [(7.0, 0), (3650.0, 0), (604800.0, 1)])
def test_a_bandwidth_in_another_unit_is_noted(bandwidth, count):
    planned = plan_of(data={"bounds": YEAR}, target={"bandwidth": [bandwidth]})
    notes = [note for note in planned.notes if "typical data" not in note]
    assert len(notes) == count
    assert all("1657 times the width of when" in one and "unit (days)?" in one for one in notes)


def wide(bandwidths, kernel, n, **mechanism):
    """Sections of a density on axes from 0 to 10, of whose design nothing is said."""
    return {
        "data": {"bounds": {name: [0.0, 10.0] for name in "stuvw"[: len(bandwidths)]}, "n": n},
        "target": {"bandwidth": bandwidths, "kernel": kernel},
        "mechanism": {"k": None, "h": None, "noise": "auto", **mechanism},
    }


def _refused(bandwidths, kernel):
    """The message, if any, of the steps that refuse narrow kernels: no search is made."""
    spec = spec_of(**wide(bandwidths, kernel, 10**6))
    search = make_search(spec.components[0], ResolvedSpec.of(spec, 10**6))
    try:
        for resolutions in (_RESOLUTIONS[:3], FINE_RESOLUTIONS):
            lattices_to_try(search, resolutions)
        _fitting_grids(search)
    except SpecError as error:
        with pytest.raises(SpecError, match=re.escape(str(error)[:30])):
            plan_files(spec, ())
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("bandwidths", "kernel"),
    [
        ([0.003], "gaussian"),
        ([0.004, 3.0], "gaussian"),
        ([0.01, 0.03, 0.05], "gaussian"),
        ([0.004, 0.1, 0.1], "gaussian"),
        ([0.03, 0.03, 0.03], "triangle"),
        ([0.04], "triangle"),
        ([0.005], "laplace"),
        ([0.05] * 4, "gaussian"),
        ([0.1, 0.2, 0.1, 0.2, 0.1], "laplace"),
    ],
)
def test_a_refusal_of_narrow_bandwidths_names_the_least_that_fit(bandwidths, kernel):
    refused = _refused(bandwidths, kernel)
    named = json.loads(re.search(r"Write at least (\[.*?\])", refused)[1])
    assert _refused(named, kernel) == ""
    least = [max(own, 0.98 * one) for own, one in zip(bandwidths, named, strict=True)]
    assert _refused(least, kernel)


@pytest.mark.sample(verify=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("axes", "kernel", "bandwidth"),
    [(1, "triangle", 0.1), (1, "laplace", 0.05), (1, "gaussian", 0.05), (2, "gaussian", 0.1)],
)
def test_functions_of_narrow_kernels_are_lines_where_k_and_h_are_open(axes, kernel, bandwidth):
    def planned(**mechanism):
        return plan_of(**wide([bandwidth] * axes, kernel, 10**6, **mechanism))

    lines, polynomials = planned(), planned(h=48)
    assert set(lines.h) == {INTERPOLATED}
    assert "values, lines between them" in lines.explain(details=True)
    assert set(polynomials.h) == {48}
    assert lines.certificate.total < 0.7 * polynomials.certificate.total
    assert lines.outlook.expected < 0.7 * polynomials.outlook.expected


@pytest.mark.parametrize("kernel", ["laplace", "triangle", "epanechnikov"])
def test_bins_are_fine_where_a_slope_jumps_and_rows_are_many(kernel):
    """What is missed of typical data adds at most half to the noise."""
    spec = spec_of(**wide([1.0], kernel, 200_000), budget={"epsilon": "0.1"})
    search = make_search(spec.components[0], ResolvedSpec.of(spec, 200_000))
    best = best_candidate(["binned"], search)
    assert best.h == (INTERPOLATED,)
    assert best.expected < 1.5 * best.noise


@pytest.mark.parametrize("name", ["laplace", "triangle", "epanechnikov"])
@pytest.mark.parametrize(("cells", "degree"), [(39, 1), (39, 2), (78, 1), (117, 2), (320, 2)])
def test_the_worst_database_is_predicted_whatever_the_number_of_cells(name, cells, degree):
    """Also where nodes of the bins are as far apart as the places that are tried, or half."""
    kernel = kernel_of(name, 0.1)
    bins = axis_bins(kernel, 2000, cells, degree, INTERPOLATED)
    t = np.linspace(0, 1, 16 * cells + 1)
    missed = kernel(np.arange(1001)[:, None] / 2000 - t)
    missed -= bins.synthesis[:1001] @ bin_matrix(t, cells, degree).T
    worst = np.abs(missed).max()
    assert 0.8 * worst <= fit(kernel, 0, 0, cells, degree).error <= 1.1 * worst


@pytest.mark.slow
def test_a_plan_says_when_more_is_missed_than_noise_adds():
    def planned(kernel, bandwidth, epsilon, **mechanism):
        changes = wide([bandwidth], kernel, 20_000, **mechanism)
        return plan_of(**changes, budget={"epsilon": epsilon})

    def noted(plan):
        return "".join(note for note in plan.notes if "is missed of typical data" in note)

    assert noted(planned("gaussian", 1.0, "1")) == ""
    kinked = noted(planned("triangle", 0.1, "1"))
    assert re.search(r"predicted to be 0\.\S+, more than the noise's 0\.\S+: a larger", kinked)
    assert 'write a wider bandwidth, or write kernel = "gaussian"' in kinked
    coarse = planned("gaussian", 1.0, "10", k=20, h=2)
    assert "leave out k and h in [mechanism]" in noted(coarse)


def test_tasks_are_shared_out_evenly():
    assert task_rows(1) == task_rows(16) == 1
    assert task_rows(17) == 2
    assert task_rows(10**12) == 20_000_000
    assert density_plan((0.1,), (20,), n=10**6).cost.tasks == 16


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(3):
        write_records(folder / f"{i}.parquet", {"x": rng.uniform(size=100), "z": np.zeros(100)})
    return folder


def file_spec(folder, **data):
    return spec_of(data={"source": str(folder), "n": None, **data})


def test_planning_reads_no_record(source, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a record was read")

    monkeypatch.setattr(dbern.data.parquet, "read_batches", refuse)
    for method in ("iter_batches", "read", "read_row_group", "read_row_groups", "scan_contents"):
        monkeypatch.setattr(pq.ParquetFile, method, refuse)
    for function in ("read_table", "read_pandas", "ParquetDataset"):
        monkeypatch.setattr(pq, function, refuse)
    assert plan(file_spec(source)).n == 300
    with pytest.raises(AssertionError, match="a record was read"):  # the trap works
        pq.ParquetFile(source / "0.parquet").read()


def test_plans_are_the_same_whatever_the_records_are(source):
    before = plan(file_spec(source))
    for i in range(3):
        path = source / f"{i}.parquet"
        write_records(path, {"x": np.full(100, np.nan), "z": np.ones(100)})
    assert plan(file_spec(source)) == before


def test_statistics_agree_between_plan_and_spec():
    spec, planned = density_spec((0.1,), (20,)), density_plan((0.1,), (20,))
    (component,), (accumulator,) = planned.components, planned.counters(spec).parts
    assert accumulator.sketch.to_dict() == component.counting
    assert accumulator.n == planned.n


@pytest.mark.parametrize("name", ["w", "X"])
def test_a_missing_column_is_named_with_those_there(source, name):
    with pytest.raises(SpecError, match=rf"^data\.bounds\.{name}: .*Write one of: x, z"):
        plan(file_spec(source, bounds={name: [0.0, 1.0]}))


def test_one_bad_file_among_many_is_named(source):
    (source / "9.parquet").write_bytes(b"PAR1 not really PAR1")
    with pytest.raises(SpecError, match=r"^data\.source: .*9\.parquet cannot be read as Parquet"):
        plan(file_spec(source))


@pytest.mark.parametrize("name", ["", "*.parquet", "absent.parquet"])
def test_no_files_are_refused(tmp_path, name):
    with pytest.raises(SpecError, match=r"^data\.source: no Parquet file at .* Write "):
        plan(file_spec(tmp_path / name))


def _draws_of(plan):
    """Sups of the noise of a planned component, drawn, on a grid of its own; in unit-cube units."""
    strategy, law = plan.strategy, plan.noise.law
    points = {1: 201, 2: 51, 3: 21}[len(plan.h)]
    y = (1 - np.cos(np.linspace(0, np.pi, points))) / 2
    maps = [None] * len(plan.h) if strategy.joint_synthesis is not None else strategy.axis_maps
    axes = zip((iterated_basis(y, *axis) for axis in zip(plan.k, plan.h, strict=True)), maps,
               strict=True)  # fmt: skip
    bases = [rows if axis is None else rows @ axis.synthesis for rows, axis in axes]
    draws = noise_sups(bases, errors_of(law).simulate, 60, "test", strategy.joint_synthesis)
    return draws * math.ldexp(1.0, law.granularity_exponent)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("axes", "noise", "target"),
    [
        (1, "laplace", {"bandwidth": [0.6]}),
        (1, "binned-laplace", {"bandwidth": [0.6]}),
        (1, "binned-laplace", {"bandwidth": [1.0], "kernel": "laplace"}),
        (1, "binned-k-norm", {"bandwidth": [0.6]}),
        (2, "binned-k-norm", {"bandwidth": [1.0, 2.0]}),
        (2, "discrete-gaussian", {"bandwidth": [1.0, 2.0]}),
        (2, "binned-gaussian", {"bandwidth": [1.0, 2.0]}),
        (3, "binned-laplace", {"bandwidth": [3.0] * 3}),
        (3, "laplace", {"bandwidth": [3.0] * 3}),
        (1, "spectral-laplace", {**RISK, "length_scale": [2.0]}),
        (2, "spectral-gaussian", {**RISK, "length_scale": [2.0, 3.0]}),
        (1, "spectral-laplace", {**RISK, "kernel": "arc-cosine"}),
        (2, "laplace", {**RISK, "kernel": "arc-cosine"}),
    ],
)
def test_noise_is_predicted_to_be_about_as_large_as_what_is_drawn(axes, noise, target):
    """In closed form: a design is chosen by it, and a plan tells it."""
    data = {"bounds": {name: [0.0, 10.0] for name in "xyz"[:axes]}, "n": 20_000}
    if "loss" in target:
        data["label"] = {"column": "c", "classes": [False, True]}
    spec = spec_of(
        data=data, target={"kind": "kernel-density", **target}, mechanism={"noise": noise},
        budget={"delta": "1e-6" if "gaussian" in noise else "0"},
    )  # fmt: skip
    bound = ResolvedSpec.of(spec, 20_000)
    plan = plan_files(bound.spec, ())
    search = make_search(bound.statistics[0], bound, family_of(plan.noise.law))
    with one_thread():  # as plans do: the last bits of a fit differ
        best = best_candidate([plan.strategy.kind], search)
    assert (best.strategy, best.h) == (plan.strategy, plan.h)
    assert best.noise == pytest.approx(_draws_of(plan).mean(), rel=0.2)


# --- What a plan tells of the error


BINNED = {"noise": "binned-laplace", "k": None, "h": None}
RATIO = {"kind": "nadaraya-watson", "bandwidth": [0.1]}
RESPONSE = {"column": "r", "bounds": [0.0, 8.0]}


@pytest.fixture
def no_files(monkeypatch):
    """The spec's n is enough."""
    monkeypatch.setattr("dbern.planning.target_error.footers", lambda _spec: ())


@pytest.mark.parametrize("bandwidth", [0.01, 0.1, 0.3])
def test_a_quotient_is_predicted_where_no_lattice_point_is_near(bandwidth):
    """Of a kernel without tails and two points it is of 0 by 0: the prediction was no number."""
    target = RATIO | {"kernel": "epanechnikov", "bandwidth": [bandwidth]}
    lattice = {"noise": "laplace", "k": 1, "h": 1}
    plan = plan_of(data={"response": RESPONSE}, target=target, mechanism=lattice)
    assert "nan" not in plan.explain(details=True)


def test_a_plan_tells_three_errors_in_this_order():
    """Of bins all three; of lattice values there is no band that follows the data."""
    one = plan_of(mechanism={"noise": "binned-laplace", "k": None})
    labels = [label for label, _ in one.promises.lines()]
    assert labels == ["expected", "these data", "any database"]
    found = one.promises
    assert 0 < found.expected < found.these_data <= one.certificate.total * 1.01
    places = [one.explain(details=True).index(f"\n{label} ") for label in labels]
    assert places == sorted(places)
    assert "per unit of x, " in one.explain(details=True)
    assert " % of the largest value possible" in one.explain(details=True)
    assert plan_of().promises.these_data is None
    assert ReleasePlan.from_dict(one.to_dict()) == one
    old = one.to_dict()
    del old["outlook"]  # as plans were
    assert ReleasePlan.from_dict(old).certificate == one.certificate


@pytest.mark.slow
def test_what_is_expected_is_what_the_choice_predicts():
    """Of typical data, whatever the plan aims at: the choice and what its lattice misses."""
    spec = spec_of(mechanism=BINNED)
    bound = ResolvedSpec.of(spec, 1000)
    (statistic,) = bound.statistics
    search = make_search(statistic, bound)
    each = list(_candidates_of("binned", search))
    choice = _best_of(each, search).expected * statistic.unit
    one = plan_files(spec, ())
    assert choice <= one.outlook.expected < 1.01 * choice
    least = min(candidate.expected for candidate in each) * statistic.unit
    certified = plan_of(mechanism={**BINNED, "objective": "certified"})
    assert least <= certified.outlook.expected < one.certificate.total


def test_a_promise_that_a_constant_makes_is_called_empty():
    one = plan_of(data={"n": 50}, budget={"epsilon": "0.01"})
    assert one.certificate.total >= one.promises.extent[1] / 2
    assert one.promises.empty
    text = one.explain(details=True)
    assert "any database empty: a constant is never off by more than" in text
    assert "write a larger epsilon" in text
    assert ": empty, a constant does better\n" in text  # once, and not in two ways
    assert not plan_of().promises.empty
    told = plan_of(
        data={"response": {**RESPONSE, "bounds": [0.0, 40_000.0]}}, target=RATIO
    ).promises
    assert told.empty
    words = dict(told.lines())
    assert words["these data"].startswith("interval() tells it place by place")
    assert "20000 of the response" in words["any database"]
    assert "whatever epsilon is" in words["any database"]


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize(("these", "empty"), [(0.5, True), (0.4, False)])
def test_a_promise_for_these_data_that_a_constant_makes_is_called_empty(released, these, empty):
    found = ErrorSummary(None, these, 0.6, 0.05, "", None, (0.0, 1.0), released)
    words = dict(found.lines())["these data"]
    assert words.endswith("empty: a constant is never off by more than 0.5") == empty
    assert ("empty" in words) == empty


@pytest.mark.parametrize("these", [0.3, 0.31])
def test_a_release_never_claims_more_error_of_these_data_than_of_any(these):
    """The line then repeats no number: one more claim would be one more that may fail."""
    (_, (_, said), (_, worst)) = ErrorSummary(None, these, 0.3, 0.05, "", None, None, True).lines()
    assert said == "what is promised for any database"
    assert worst.startswith("no value is off by more than 0.3, ")
    planned = ErrorSummary(None, these, 0.3, 0.05, "", None, None, False)
    assert str(these) in dict(planned.lines())["these data"]


def test_a_promise_beyond_the_response_is_called_empty_and_names_no_key_of_others():
    one = plan_of(data={"response": RESPONSE, "n": 2000}, target={"kind": "ridge-regression"})
    assert one.certificate.total > 4
    said = dict(one.promises.lines())["any database"]
    assert said.startswith("empty: half of the response's range is 4; write method = ")
    assert not any(key in said for key in ("bandwidth", "kernels", "certified"))


@pytest.mark.usefixtures("no_files")
@pytest.mark.parametrize(
    ("changes", "keys"),
    [({"mechanism": {"k": 4, "h": None}}, "error, or a larger target.bandwidth, or a larger "
      "mechanism.k."),
     ({"data": {"label": LABEL}, "target": {"kind": "logistic-regression"}}, "error.")],
)  # fmt: skip
def test_advice_on_an_error_names_keys_that_the_learner_has(changes, keys):
    with pytest.raises(SpecError) as refused:
        smallest_epsilon(spec_of(**changes), 1e-9)
    assert str(refused.value).endswith(f"Write a larger {keys}")


@pytest.mark.slow
@pytest.mark.sample(test=1)
@pytest.mark.usefixtures("no_files")
@pytest.mark.parametrize(
    ("target", "question"),
    [(RATIO, "interval()"), ({"kind": "ridge-regression", "method": "moments"}, "regression()")],
)
def test_no_error_of_a_function_that_data_may_leave_open_is_promised(target, question):
    spec = spec_of(data={"response": RESPONSE}, target=target)
    told = plan_files(spec, ()).promises
    assert told.empty
    words = dict(told.lines())
    assert words["any database"].startswith("empty: a constant is never off by more than 4 of the")
    assert words["these data"].startswith(f"{question} tells it place by place")
    with pytest.raises(SpecError, match="leave all values open"):
        smallest_epsilon(spec, 1.0)


@pytest.mark.slow
@pytest.mark.usefixtures("no_files")
def test_what_even_records_keep_of_a_quotient_can_be_aimed_at():
    """At a small epsilon nothing is told of it."""
    given = {"data": {"response": RESPONSE}, "target": RATIO}
    epsilon, found = smallest_epsilon(spec_of(**given), 1.0, about="these-data")
    assert 0.8 < found.outlook.these_data <= 1.0
    less = plan_of(**given, budget={"epsilon": str(epsilon / 1000)})
    assert less.outlook.these_data is None


@pytest.mark.slow
@pytest.mark.usefixtures("no_files")
@pytest.mark.parametrize("about", ["expected", "these-data", "any-database"])
def test_each_error_can_be_aimed_at(about):
    aim = 0.2
    epsilon, found = smallest_epsilon(spec_of(mechanism=BINNED), aim, about=about)
    reached = {
        "expected": found.outlook.expected,
        "these-data": found.outlook.these_data,
        "any-database": found.certificate.total,
    }
    assert 0.5 * aim < reached[about] <= aim
    assert epsilon > 0


@pytest.mark.usefixtures("no_files")
def test_an_error_that_a_plan_does_not_tell_is_not_aimed_at():
    with pytest.raises(SpecError, match="--of"):
        smallest_epsilon(spec_of(), 1.0, about="these-data")


@pytest.mark.slow
def test_a_plan_with_a_delta_says_where_noise_without_one_errs_less():
    """It is not taken: in zCDP it would cost twenty times as much."""

    def planned(delta, noise="auto"):
        mechanism = {"k": None, "h": None, "noise": noise}
        return plan_of(mechanism=mechanism, budget={"delta": delta})

    free, paid = planned("0"), planned("1e-6")
    (note,) = paid.notes
    assert free.notes == planned("1e-6", noise=paid.noise.kind).notes == ()
    pure, ours = map(float, re.findall(r"by ([\d.e-]+\d)", note))
    assert pure == pytest.approx(free.outlook.expected, rel=0.02)
    assert ours == pytest.approx(paid.outlook.expected, rel=0.02)
    assert pure < ours
    assert paid.noise.law.kind == "discrete-gaussian"


def test_a_plan_takes_one_thread_however_many_there_are(monkeypatch):
    seen = []

    def rows(*_):
        seen.extend(one["num_threads"] for one in threadpool_info())
        raise SpecError("enough")

    monkeypatch.setattr(planner, "public_rows", rows)
    with threadpool_limits(2), pytest.raises(SpecError, match="enough"):
        plan_files(density_spec((0.1,), (8,)), ())
    assert seen
    assert set(seen) == {1}
