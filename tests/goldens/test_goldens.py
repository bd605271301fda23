"""Integers that no change of the layout may change, plans, and what compares two checkouts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import dbern
from goldens import answers, cases, plans, questions
from goldens.__main__ import differences, main
from goldens.pins import FILE, STATES, recorded, whole_numbers

PARTS = 17  # of the committed plans: one of them is planned again in a second or ten


@pytest.mark.slow
@pytest.mark.sample(test=1)
def test_the_integers_are_those_that_are_kept():
    assert recorded() == json.loads(FILE.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("name", STATES)
def test_the_integers_do_not_hang_on_a_rounding(tmp_path: Path, name):
    """Cells, bits and granularity are far from where another rounding would change them."""
    cases.write(tmp_path / "data")
    case = cases.cases()[name]
    target, found = dict(case.sections["target"]), []
    key = next(one for one in ("bandwidth", "length_scale", "std_floor") if one in target)
    for factor in (1 - 1e-9, 1, 1 + 1e-9):
        given = {**target, key: [width * factor for width in target[key]]}
        spec = tmp_path / "release.toml"
        changed = cases.Case({**case.sections, "target": given})
        spec.write_text(changed.toml("ledger.db", "out.zarr"))
        plan = dbern.plan(dbern.ReleaseSpec.load(spec))
        found.append(whole_numbers(json.loads(json.dumps(plan.to_dict()))))
    assert found[0] == found[1] == found[2]


def test_cases_have_every_learner_every_noise_and_every_kernel():
    """What `dbern target list` shows, and what the spec may say of noise and kernels."""
    from dbern.bernstein.kernels import KERNELS
    from dbern.privacy.families import FAMILIES
    from dbern.reconstruct import noise_names
    from dbern.targets import kinds

    assert tuple(KERNELS) == plans.KERNELS
    made = cases.cases().values()
    assert {case.sections["target"]["kind"] for case in made} >= set(kinds())
    noises = {case.sections.get("mechanism", {}).get("noise") for case in made}
    named = {name for family in FAMILIES for name in noise_names(family).values()}
    assert noises >= {*named, *cases.UNSIGNED, *cases.SOLVED}


def test_what_differs_is_named():
    old = {"a": {"plan": "1", "state": "2"}, "b": {"plan": "3"}, "c": {"plan": "4"}}
    assert differences(old, {name: dict(found) for name, found in old.items()}) == {}
    new = {"a": {"plan": "1", "state": "5"}, "b": {"plan": "3", "more": "6"}}
    assert differences(old, new) == {"a": ["state"], "b": ["more"], "c": ["plan"]}


# --- Answers


def recorded_answers(**parts: list) -> answers.Recorded:
    """One question under four keys: a value of 2 within 1 and 3, and a truth of 2."""
    line = {"value": [[2.0]] * 4, "low": [[1.0]] * 4, "high": [[3.0]] * 4, "truth": [2.0], **parts}
    return {"line": {"mean": {name: np.array(part) for name, part in line.items()}}}


def test_answers_that_differ_are_named_with_their_widths_and_coverage():
    (same,) = answers.compare(recorded_answers(), recorded_answers())
    assert same.equal
    assert same.covered == (1.0, 1.0)
    assert not [*answers.shortfalls([same], 4, 1.0)]
    wide = recorded_answers(high=[[3.0], [3.0], [3.0], [3.8]])
    (wider,) = answers.compare(recorded_answers(), wide)
    assert (wider.differing, wider.answers) == (1, 12)
    assert wider.absolute == pytest.approx(0.8)
    assert wider.relative == pytest.approx(0.8 / 3.8)
    assert (wider.width, wider.widest) == pytest.approx((1.1, 1.4))
    assert not [*answers.shortfalls([wider], 4, 1.1)]
    assert [*answers.shortfalls([wider], 4, 1.05)] == [
        "line: mean: 1.1000 times as wide, more than 1.05"
    ]
    assert "line: mean: 1 of 12 numbers differ" in answers.report([wider])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"low": [[2.5]] * 3 + [[1.0]]}, "line: mean: covers 25.0 % of the keys"),
        ({"high": [[np.inf]] * 4}, "line: mean: inf times as wide, more than 1.05"),
        ({"high": [[np.nan]] * 4}, "line: mean: inf times as wide, more than 1.05"),
        ({"refusal": "SpecError: no bins"}, "line: mean: answered -> SpecError: no bins"),
        ({"value": [[2.0, 2.0]] * 4}, "line: mean: numbers (4, 1) -> (4, 2)"),
    ],
)
def test_answers_that_fall_short_are_named(parts, message):
    comparisons = answers.compare(recorded_answers(), recorded_answers(**parts))
    assert message in [*answers.shortfalls(comparisons, 4, 1.05)]
    lost = answers.compare(recorded_answers(), {})
    assert [*answers.shortfalls(lost, 4, 1.05)] == ["line: mean: answered -> not asked"]


def test_truths_have_the_size_of_their_question():
    """Of every store at least its function is asked; all together more than twenty questions."""
    stores, rows = questions.stores(), questions.records()
    assert len(stores) >= 10
    assert len({question for store in stores.values() for question in store.questions}) >= 20
    for store in stores.values():
        for question in store.questions.values():
            assert np.ndim(question.truth(rows)) <= 2


PLANTED = """
Synopsis = __getattr__("Synopsis")
interval, distribution = Synopsis.interval, Synopsis.distribution

def wider(self, *points, **how):
    low, high = interval(self, *points, **how)
    return low, high + 0.1 * (high - low)

def other_quantiles(self, axis=None):
    bins = distribution(self, axis)
    right = bins.quantile
    object.__setattr__(bins, "quantile", lambda level, *on, **how: right(level + 0.3, *on, **how))
    return bins

Synopsis.interval, Synopsis.distribution = wider, other_quantiles
"""


@pytest.mark.slow
def test_a_wider_band_and_a_wrong_quantile_are_named(tmp_path: Path, capsys):
    """Both are planted in a copy of this checkout; all other answers are the same."""
    here, copy = Path(__file__).parents[2], tmp_path / "copy"
    shutil.copytree(here / "dbern", copy / "dbern")
    with (copy / "dbern/__init__.py").open("a") as file:
        file.write(PLANTED)
    command = ["compare", str(here), str(copy), "--answers", "--keys", "2", "--only", "line"]
    assert main([*command, "--wider", "1.05"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("line: interval: 1.1000 times as wide") for line in lines)
    assert "line: median: covers 0.0 % of the keys" in lines
    differ = {line.split(": ")[1] for line in lines if line.startswith("  line: ")}
    assert differ == {
        "interval", "interval, any database", "interval, automatic order", "median"
    }  # fmt: skip


# --- Plans


@pytest.mark.slow
@pytest.mark.sample(verify=1)
@pytest.mark.parametrize("first", range(PARTS))
def test_plans_are_those_that_are_committed(first):
    """Of each part: kernels, axes, with a delta and without."""
    part = plans.committed()[first::PARTS]
    text, equal = plans.report(part, [plans.summary(plans.planned(entry)) for entry in part])
    assert equal, text


def test_plans_that_differ_are_named():
    few = plans.committed()[:3]
    worse = [{**entry["plan"], "expected": 1.1 * entry["plan"]["expected"]} for entry in few]
    text, equal = plans.report(few, worse)
    assert not equal
    assert "mean 1.1000, median 1.1000" in text
    assert "0 of 3 designs differ" in text
    refused = [plans.summary(None)] * 3
    text, equal = plans.report(few, refused)
    assert not equal
    assert "expected: 3 plans have none in one of the two" in text
