"""Releases of a sampled sensitivity: random DP, in every place where someone might look."""

from __future__ import annotations

import json
from fractions import Fraction

import black_boxes
import numpy as np
import pytest

import dbern
from dbern.planning.plans import ReleasePlan
from dbern.privacy.public_numbers import public_stream, uniform
from dbern.privacy.random_privacy import RandomPrivacy

pytestmark = pytest.mark.slow

SAMPLED = {"gamma": "0.5", "distribution": "black_boxes:drawn", "seed": 3}


@pytest.fixture
def spec_of(project):
    def made(target=(), mechanism=(), budget=()):
        return dbern.ReleaseSpec(
            release={"name": "sampled", "output": str(project.output)},
            data={"source": str(project.folder / "data"),
                  "bounds": {"x": [0.0, 10.0], "y": [-1.0, 1.0]}},
            target={
                "kind": "oracle", "function": "black_boxes:trimmed", "sensitivity": SAMPLED,
                "smoothness": {"derivatives": 2, "bound": 9.0}, "bounds": [-20.0, 20.0],
                "on_failure": 0.0, **dict(target),
            },
            mechanism={"k": 3, "h": 1, **dict(mechanism)},
            budget={"epsilon": "1.0", "ledger": project.url, "dataset": "made", **dict(budget)},
        )  # fmt: skip

    return made


def by_hand(seed, pairs, rows):
    """The sampler again, from its definition."""
    points = np.array([[x, y] for x in np.arange(4) / 3 * 10 for y in -1 + np.arange(4) / 3 * 2])
    found = []
    for pair in range(pairs):
        stream = public_stream(f"sensitivity sampler, seed {seed}", pair)
        made = black_boxes.drawn(rows + 1, lambda count, stream=stream: uniform(stream, count))
        kept = (np.abs(made[:, 0] - 5) <= 5) & (np.abs(made[:, 1]) <= 1)
        one, other = ([i for i in range(rows + 1) if i != out and kept[i]]
                      for out in (rows, rows - 1))  # fmt: skip
        found.append(
            black_boxes.trimmed(made[one], points) - black_boxes.trimmed(made[other], points)
        )
    return np.abs(found)


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_the_noise_is_calibrated_to_the_order_statistic(spec_of, delta):
    spec = spec_of(budget={"delta": delta})
    plan = dbern.plan(spec)
    random = plan.guarantee
    assert (random.samples, random.order, random.gamma) == (8, 8, Fraction(1, 2))
    apart = by_hand(3, 8, black_boxes.N)
    expected = np.sort(apart.sum(axis=1) if delta == "0" else np.sqrt((apart**2).sum(axis=1)))[7]
    found = plan.sensitivity.l1 if delta == "0" else plan.sensitivity.l2
    assert expected <= found <= expected * 1.01
    assert plan.sensitivity.function == pytest.approx(np.sort(apart.max(axis=1))[7], rel=1e-6)
    assert dbern.plan(spec) == plan
    other = dbern.plan(spec_of({"sensitivity": {**SAMPLED, "seed": 4}}, budget={"delta": delta}))
    assert other.sensitivity != plan.sensitivity


def test_no_dataset_pays_for_it_unless_it_was_granted_so(spec_of, project, client):
    spec = spec_of(budget={"dataset": "trips"})
    with pytest.raises(dbern.BudgetError, match=r"RANDOM DP only.*--allow-random-dp"):
        dbern.release(spec, client=client)
    assert not project.output.exists()
    assert project.remains() == []


def test_it_is_labelled_everywhere(spec_of, project, client, run):
    grant = ("ledger", "grant", "--ledger", project.url, "--dataset", "made", "--epsilon", "2")
    assert run(*grant, "--allow-random-dp").code == 0
    spec = spec_of()
    plan = dbern.plan(spec)
    assert isinstance(plan.guarantee, RandomPrivacy)
    assert isinstance(plan.guarantee, dbern.RandomPrivacy)
    assert "\nRANDOM DP    RANDOM DP only: epsilon 1 for all but gamma 0.5" in plan.explain(
        details=True
    )
    assert "this is not differential privacy" in plan.explain(details=True)
    stored = json.loads(json.dumps(plan.to_dict()))
    assert stored["random_dp"]["guarantee"] == "random differential privacy"
    assert ReleasePlan.from_dict(stored) == plan
    out = dbern.release(spec, client=client)
    synopsis = out.synopsis
    assert out.guarantee == synopsis.guarantee == plan.guarantee
    assert repr(synopsis).startswith("<RANDOM DP Synopsis")
    assert synopsis.metadata["random_dp"] == plan.guarantee.to_dict()
    assert len(synopsis.metadata["target"]["distribution_sha256"]) == 64
    assert run("show", "out.zarr").out.startswith("RANDOM DP    only: ")
    assert "\nguarantee    RANDOM DP only, epsilon 1, neighbors" in run("show", "out.zarr").out
    assert "random_dp" in run("show", "out.zarr", "--json").json
    (project.folder / "spec.toml").write_text(_toml(spec))
    again = run("release", "spec.toml", "--json")
    assert again.code == 0, again.err
    assert again.json["guarantee"].startswith("RANDOM DP only")
    status = run("ledger", "status", "--ledger", project.url, "--dataset", "made")
    assert "basic composition, RANDOM DP allowed" in status.out
    assert "RANDOM DP: for all but gamma 0.5" in status.out
    assert "sampled: committed, epsilon 1, RANDOM DP with gamma 0.5" in status.out


def _toml(spec):
    def inline(value):
        if isinstance(value, dict):
            return "{ " + ", ".join(f"{key} = {inline(v)}" for key, v in value.items()) + " }"
        return json.dumps(value)

    content = spec.model_dump(exclude_none=True)
    return "".join(
        f"[{section}]\n" + "".join(f"{key} = {inline(value)}\n" for key, value in keys.items())
        for section, keys in content.items()
    )


def test_what_is_proved_has_no_such_label(spec_of, project, client):
    with project.ledger() as ledger:
        ledger.grant("made", dbern.Budget.parse("2"))
    spec = spec_of({"sensitivity": 0.1})
    plan = dbern.plan(spec)
    assert plan.guarantee == dbern.Budget.parse("1")
    assert "RANDOM" not in plan.explain(details=True)
    synopsis = dbern.release(spec, client=client).synopsis
    assert synopsis.guarantee == plan.charge
    assert "random_dp" not in synopsis.metadata


@pytest.mark.parametrize("mechanism", [
    {"noise": "laplace-advanced"}, {"noise": "discrete-gaussian"},
])  # fmt: skip
def test_an_order_is_chosen_for_the_estimate(spec_of, mechanism):
    plan = dbern.plan(spec_of((), {**mechanism, "h": "auto", "k": 6}, {"delta": "1e-6"}))
    assert plan.h[0] >= 1
    assert 0 < plan.certificate.noise < np.inf
    assert plan.random_dp is not None


def test_uniform_draws_every_column_and_a_linear_function_needs_no_k(spec_of):
    spec = spec_of(
        {"function": "black_boxes:heights", "smoothness": "linear",
         "sensitivity": {"gamma": "0.5"}},
        {"k": "auto", "h": "auto"},
    )  # fmt: skip
    plan = dbern.plan(spec)
    assert plan.k == (1, 1)
    # Eight pairs of y's apart by up to 2, over N, at four corners.
    assert 2 / black_boxes.N < plan.sensitivity.l1 <= 1.01 * 8 / black_boxes.N
    assert plan.guarantee.distribution == "uniform"


def test_uniform_records_say_nothing_of_those_that_pass_a_filter(spec_of):
    """Calibrated to records that all count, the noise is far too small where one in ten does."""
    plans = []
    for distribution in ("uniform", "black_boxes:few_count"):
        sensitivity = {"gamma": "0.5", "distribution": distribution}
        spec = spec_of({"function": "black_boxes:mean_height", "sensitivity": sensitivity})
        plans.append(dbern.plan(spec))
        kept = {**spec.data.model_dump(exclude_none=True)}
        kept["filter"] = {"column": "kind", "values": ["late"]}
        sections = {**spec.model_dump(exclude_none=True), "data": kept}
        if distribution == "uniform":
            with pytest.raises(dbern.SpecError, match=r"^data\.filter: .*[Ww]rite .*NaN"):
                dbern.ReleaseSpec(**sections)
        else:
            assert dbern.ReleaseSpec(**sections).records.filter is not None
    alike, few = (plan.sensitivity.l1 for plan in plans)
    assert few > 4 * alike


BAD = [
    ({"sensitivity": {**SAMPLED, "gamma": "2"}}, {}, r"^target\.sensitivity\.gamma: must be above"),
    ({"sensitivity": {**SAMPLED, "gamma": "a"}}, {}, r"^target\.sensitivity\.gamma: must be an ex"),
    ({"sensitivity": {**SAMPLED, "gamma": 0.1}}, {}, r"^target\.sensitivity: .*gamma = \"0.1\""),
    ({"sensitivity": {"seed": 1}}, {}, r"^target\.sensitivity: .*gamma = \"0.1\""),
    ({"sensitivity": {**SAMPLED, "samples": 7}}, {}, r"samples: too few .*[Ww]rite samples = 8"),
    ({"sensitivity": {**SAMPLED, "distribution": "no:f"}}, {}, r"distribution: .*cannot be import"),
    ({"sensitivity": {**SAMPLED, "distribution": "black_boxes:share"}}, {},
     r"^target\.sensitivity\.distribution: .*fails \(TypeError\)"),
    ({"sensitivity": {**SAMPLED, "distribution": "black_boxes:thin"}}, {},
     r"^target\.sensitivity\.distribution: .*gives shape \(241, 1\); return \(241, 2\)"),
    ({"separable": True}, {}, r"^target\.sensitivity: is estimated.*Leave out separable"),
    ({"l1_sensitivity": 0.1}, {}, r"^target\.sensitivity: is estimated.*Leave out separable"),
    ({"function": "black_boxes:flat", "on_failure": "stop"}, {},
     r"^target\.function: fails on records drawn.*on_failure = -20"),
    ({"function": "black_boxes:constant"}, {}, r"constant target needs no release"),
    ({}, {"k": "auto"}, r"^mechanism\.k: is missing.*[Ww]rite k = 20"),
]  # fmt: skip


@pytest.mark.parametrize(("target", "mechanism", "complaint"), BAD)
def test_a_plan_refuses_what_cannot_be(spec_of, target, mechanism, complaint):
    with pytest.raises(dbern.SpecError, match=complaint):
        dbern.plan(spec_of(target, mechanism))
