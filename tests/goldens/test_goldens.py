"""Integers that no change of the layout may change, and what compares two checkouts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dbern
from goldens import cases
from goldens.__main__ import differences
from goldens.pins import FILE, STATES, recorded, whole_numbers


@pytest.mark.slow
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


def test_cases_have_every_learner_and_every_noise():
    """What `dbern target list` shows, and what the spec may say of noise."""
    from dbern.targets import kinds

    made = cases.cases().values()
    assert {case.sections["target"]["kind"] for case in made} >= set(kinds())
    noises = {case.sections.get("mechanism", {}).get("noise") for case in made}
    assert noises >= set(cases.UNSIGNED)


def test_what_differs_is_named():
    old = {"a": {"plan": "1", "state": "2"}, "b": {"plan": "3"}, "c": {"plan": "4"}}
    assert differences(old, {name: dict(found) for name, found in old.items()}) == {}
    new = {"a": {"plan": "1", "state": "5"}, "b": {"plan": "3", "more": "6"}}
    assert differences(old, new) == {"a": ["state"], "b": ["more"], "c": ["plan"]}
