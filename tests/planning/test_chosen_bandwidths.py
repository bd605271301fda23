"""Densities whose bandwidth the released bins choose: `bandwidth = "auto"` in a spec."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from projects import objects
from test_spec import sections

import dbern
from dbern.ask import kernel_envelopes
from dbern.ask.splines import AxisSplines
from dbern.bernstein.kernels import kernel_of
from dbern.certify.approximation import KernelMixture
from dbern.cli.show import _describe
from dbern.errors import DbernError, SpecError
from dbern.model.function_classes import _Mixture, read_class, stored_class
from dbern.planning.planner import plan_files
from dbern.planning.release_plan import ReleasePlan
from dbern.planning.target_error import smallest_epsilon
from dbern.report import live
from dbern.run import publish
from dbern.synopsis.reader import Synopsis
from dbern.targets.bandwidths import lengths_of
from dbern.targets.kernel_density import _finest_bandwidth

AUTO = {"kind": "kernel-density", "bandwidth": "auto"}
ONE = {"data__bounds": {"y": None}, "mechanism": {"k": "auto", "h": "auto", "noise": "auto"}}


@pytest.fixture
def spec(project):
    return project.spec(target=AUTO, budget={"epsilon": "2"}, **ONE)


def rows_of(project):
    import pyarrow.parquet as pq

    x = pq.read_table(project.folder / "data").column("x").to_pylist()
    kept = [one for one in x if one is not None and 0 <= one <= 10]
    return np.array(kept), len(x)


def density(points, rows, n, bandwidth):
    bumps = np.exp(-np.square((points[:, None] - rows) / bandwidth) / 2)
    return bumps.sum(axis=1) / (n * bandwidth * math.sqrt(2 * math.pi))


@pytest.mark.slow
def test_the_released_bins_choose_and_the_release_is_of_what_they_chose(project, spec):
    planned = plan_files(spec, dbern.planning.planner.footers(spec))
    assert ReleasePlan.from_dict(json.loads(json.dumps(planned.to_dict()))) == planned
    assert "the released bins choose a bandwidth, for free: one of " in planned.explain(
        details=True
    )
    synopsis = dbern.release(spec).synopsis
    facts = synopsis.metadata
    (b,), every = facts["target"]["bandwidth"], facts["target"]["chosen_of"]
    ends = _finest_bandwidth(240, 2.0, 1), 0.3
    assert [every[0][0], every[-1][0]] == pytest.approx([10 * one for one in ends])
    assert [b] in every
    assert facts["components"][0]["approximation"] == {
        "class": "chosen mixture of bumps", "choices": len(every),
        "kernels": [{"name": "gaussian", "bandwidth": b / 10}],
    }  # fmt: skip
    y = np.linspace(0, 10, 41)
    rows, n = rows_of(project)
    truth = density(y, rows, n, b)
    apart = np.abs(synopsis(y) - truth).max()
    assert 0 < apart <= synopsis.band()
    assert facts["certificate"]["total"] <= planned.certificate.total
    told = synopsis.distribution()
    assert told.choices == len(every)
    answer = told.density(y)
    assert ((answer.low <= truth) & (truth <= answer.high)).all()
    np.testing.assert_allclose(
        answer.value, np.clip(synopsis(y), answer.low, answer.high), atol=5e-3
    )
    assert synopsis.verify() > 0
    assert f"bandwidth {b:.4g}" in answer.question
    assert f"as narrow as bandwidth {every[0][0]:.3g} takes" in _describe(facts)


@pytest.fixture(scope="module")
def case():
    """A plan, and its candidates."""
    given = sections(target={**AUTO}, data={"n": 500}, budget={"epsilon": "0.05"},
                     mechanism={"k": "auto", "h": "auto", "noise": "auto"})  # fmt: skip
    spec = dbern.ReleaseSpec(**given)
    return spec, plan_files(spec, ())


def test_what_is_chosen_depends_on_what_is_released_alone(case):
    """Two databases whose noised integers are alike have the same bandwidth, and others another."""
    spec, plan = case
    shape, law = plan.components[0].strategy.layout.shape, plan.components[0].noise.law
    cells = np.arange(shape[0])
    seen = []

    def released(values):
        def given(planned, name):
            seen.append((planned, name))
            return np.rint(values * 2.0**-law.granularity_exponent).astype(np.int64)

        return given

    flat = np.full(shape, 1 / shape[0])
    narrow = (np.abs(cells - shape[0] // 2) < 2) / 4.0
    (wide, of_flat), (fine, of_narrow) = (
        publish.choose_bandwidth(spec, plan, released(one)) for one in (flat, narrow)
    )
    assert of_narrow["bandwidth"] < of_flat["bandwidth"]
    assert wide.certificate.total < fine.certificate.total < plan.certificate.total
    assert {name for _, name in seen} == {"density"}
    assert wide.sensitivity.function < fine.sensitivity.function < plan.sensitivity.function


def test_a_plan_says_that_its_promises_are_of_the_narrowest(case):
    """A release has those of its own: of the widest a small part of them."""
    spec, plan = case
    (told,) = [note for note in plan.notes if note.startswith("bins and promises of this plan")]
    flat = np.full(plan.components[0].strategy.layout.shape, 1 << 8)
    found, facts = publish.choose_bandwidth(spec, plan, lambda *_: flat)
    assert facts["bandwidth"] == facts["chosen_of"][-1]
    assert told.endswith("a release has those of what it chooses, which are no larger")
    assert 3 * found.certificate.total < plan.certificate.total


def test_a_choice_that_errs_by_more_than_was_planned_is_not_taken(case, monkeypatch):
    spec, plan = case
    with_kernels = publish.with_kernels

    def worse(*given):
        found = with_kernels(*given)
        return found.model_copy(update={"certificate": replace(found.certificate, noise=1e9)})

    monkeypatch.setattr(publish, "with_kernels", worse)
    shape = plan.components[0].strategy.layout.shape
    found, facts = publish.choose_bandwidth(spec, plan, lambda *_: np.full(shape, 1 << 20))
    assert found.components == plan.components
    assert facts["bandwidth"] == facts["chosen_of"][0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:each answer holds")
def test_bands_hold_for_every_bandwidth_that_may_be_chosen(project, spec, monkeypatch):
    """Each has its part of beta: what holds for one alone is narrower."""
    synopsis = dbern.release(spec).synopsis
    count = len(synopsis.metadata["target"]["chosen_of"])

    def asked(synopsis, beta):
        told = synopsis.distribution()
        smoothed = told.mass({"x": (2.0, 5.0)}, target="smoothed", beta=beta)
        records = told.mass({"x": (2.0, 5.0)}, beta=beta)
        (tail,) = json.loads(live.live(synopsis)["facts"])["counting"]["tails"]
        return [synopsis.bound(beta).noise, synopsis.bound(beta, about="any-database").noise,
                float(smoothed.high - smoothed.low), tail[0] if beta == "0.05" else None,
                float(records.high - records.low)]  # fmt: skip

    chosen = asked(synopsis, "0.05")
    monkeypatch.setattr(KernelMixture, "choices", property(lambda _: 1, lambda *_: None))
    alone = Synopsis(synopsis.url)
    part, whole = asked(alone, str(Fraction("0.05") / count)), asked(alone, "0.05")
    assert chosen[:3] == pytest.approx(part[:3])
    assert all(one > other for one, other in zip(chosen[:4], whole, strict=False))
    assert chosen[4] == whole[4]  # rows have no bandwidth


@pytest.mark.slow
@pytest.mark.usefixtures("fixed")
def test_a_rerun_after_a_crash_chooses_the_same(project, spec, monkeypatch):
    twin = project.twin("twin")
    with monkeypatch.context() as patch:
        patch.setattr(publish.SynopsisWriter, "write", lambda *_: 1 / 0)
        with pytest.raises(DbernError, match="ZeroDivisionError"):
            dbern.release(spec)
    dbern.release(spec)
    dbern.release(twin.spec_path)
    assert objects(project.output) == objects(twin.output)
    assert project.spent() == "epsilon 2, epsilon 0 reserved"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"mechanism": {"noise": "laplace"}}, 'bins choose a bandwidth, and "laplace" has none'),
        ({"mechanism": {"noise": "spectral-laplace"}}, '"spectral-laplace" has none'),
        ({"mechanism": {"calibration": "paper"}}, 'Write noise = "auto" and calibration = "tight"'),
        ({"target": {"covariance": [[1.0]]}}, "target.covariance: stands for bandwidth"),
        ({"target": {"bandwidth": "wide"}}, r"target.bandwidth: .*Write bandwidth = \[0.5"),
        ({"data": {"bounds": {x: [0.0, 1.0] for x in "abcd"}}}, "is for one to 3 axes, not 4"),
    ],
)
def test_where_no_bins_can_choose_it_is_refused(changes, says):
    given = {"target": dict(AUTO), "data": {"n": 500}, "mechanism": {"k": "auto", "h": "auto"}}
    for name, keys in changes.items():
        given[name] = {**given.get(name, {}), **keys}
    if "noise" not in given["mechanism"]:
        given["mechanism"]["noise"] = "auto"
    with pytest.raises(SpecError, match=says):
        plan_files(dbern.ReleaseSpec(**sections(**given)), ())


@pytest.mark.parametrize(
    "data",
    [
        {"n": None, "neighbors": "add-or-remove-one", "normalizer": "500"},
        {"n": None, "normalizer": "500", "unit": {"column": "u", "max_contributions": 3}},
        {"n": 500, "group": {"column": "g", "values": ["a", "b"]}},
    ],
)
def test_private_rows_units_and_groups_may_choose_too(data, case):
    plain = case[1].components[0]
    given = sections(target={**AUTO}, data=data, budget={"epsilon": "0.05"},
                     mechanism={"k": "auto", "h": "auto", "noise": "binned-laplace"})  # fmt: skip
    given["data"] = {key: one for key, one in given["data"].items() if one is not None}
    spec = dbern.ReleaseSpec(**given)
    (planned,) = plan_files(spec, ()).components
    (one,) = (spec.components[0].bind(500, spec.charge),)
    assert planned.approximation.name == "chosen mixture of bumps"
    times = {"add-or-remove-one": 0.5}.get(data.get("neighbors"), 3 if "unit" in data else 1)
    assert planned.sensitivity.l1 == pytest.approx(times * plain.sensitivity.l1, rel=1e-2)
    assert all(other.outputs == planned.outputs == one.outputs for other in one.candidates)
    # Its candidates are protected as it is: one of a wider kernel moves by less.
    moves = [other.function_sensitivity for other in one.candidates]
    assert moves[0] == one.function_sensitivity
    assert moves == sorted(moves, reverse=True)


def candidates_of(resolution, high):
    """Bandwidths (candidates, axes) that a release of many rows may choose from."""
    data = {"n": 200_000, "bounds": {"x": [0.0, high], "y": [0.0, 1.0]}, "resolution": resolution}
    spec = dbern.ReleaseSpec(**sections(target={**AUTO}, data=data, mechanism=AUTO_BINS))
    (statistic,) = (one.bind(200_000, spec.charge) for one in spec.components)
    return np.array([lengths_of(one.kernels, spec.domain) for one in statistic.candidates])


AUTO_BINS = {"k": "auto", "h": "auto", "noise": "auto"}


def test_no_bandwidth_is_narrower_than_two_of_the_steps_that_rows_are_rounded_to():
    """On the axis that is rounded: the other has all that it would have."""
    free, rounded = candidates_of(None, 20.0), candidates_of({"x": 1.0}, 20.0)
    assert free[0, 0] < 1
    assert rounded[:, 0].min() == pytest.approx(2.0)
    np.testing.assert_allclose(rounded[:, 1], free[:, 1])
    both = candidates_of({"x": 1.0, "y": 0.1}, 20.0)
    assert both.min(axis=0) == pytest.approx([2.0, 0.2])
    assert candidates_of({"x": 1.0}, 2.0)[:, 0].min() == pytest.approx(0.4)  # a fifth of the axis


def test_an_estimate_by_wide_sums_of_fine_bins_is_that_of_the_bins(monkeypatch):
    """Bins for shares are so fine that the estimate by all of them would take minutes."""
    rows = np.random.default_rng(6).beta(2, 7, 4000)
    for degree in (1, 2, 3):
        splines = AxisSplines(400, degree)
        law = SimpleNamespace(deviation=1e-5, correlation=-0.1)
        measure = SimpleNamespace(
            splines=(splines,), bins=splines.values(rows).mean(axis=0), covariance=law,
            on_released=lambda weights, *_: weights,
        )  # fmt: skip
        kernels = [(kernel_of("gaussian", width),) for width in (0.03, 0.06, 0.12)]
        wide = [kernel_envelopes._cross_validation(measure, one, 4000.0) for one in kernels]
        with monkeypatch.context() as patch:
            patch.setattr(kernel_envelopes, "_CELLS", 1e9)
            fine = [kernel_envelopes._cross_validation(measure, one, 4000.0) for one in kernels]
        np.testing.assert_allclose(wide, fine, rtol=2e-3)
        assert wide != fine


def test_no_epsilon_is_searched_for_where_it_changes_the_bandwidths(case):
    with pytest.raises(SpecError, match='--target-error: with bandwidth = "auto"'):
        smallest_epsilon(case[0], 1.0)


def test_stored_choices_are_read_strictly():
    content = {"class": "chosen mixture of bumps", "choices": 14,
               "kernels": [{"name": "gaussian", "bandwidth": 0.1}]}  # fmt: skip
    assert read_class(content).to_json() == content
    assert stored_class(read_class(content).restore()).to_json() == content
    assert _Mixture.from_json(content).require_axes(1) is None
    for wrong in ({"choices": 1}, {"choices": "14"}, {"class": "mixture of bumps"}):
        with pytest.raises((ValueError, dbern.errors.IntegrityError)):
            _Mixture.from_json({**content, **wrong}).require_axes(1)
    without = {key: one for key, one in content.items() if key != "choices"}
    with pytest.raises((ValueError, dbern.errors.IntegrityError)):
        _Mixture.from_json(without).require_axes(1)
