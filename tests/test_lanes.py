"""Which cases `make test` and `make verify` run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import lanes
import pytest

NAMED = "tests/privacy/test_a.py::test_claim"


@dataclass(frozen=True)
class Item:
    """What a lane looks at of a test."""

    nodeid: str
    marks: Mapping[str, pytest.Mark] = field(default_factory=dict, hash=False)

    @property
    def path(self) -> Path:
        return Path(self.nodeid.partition("::")[0])

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.marks.get(name)


def cases(function, count, *marks):
    return [Item(f"{function}[{i}]", {one.name: one.mark for one in marks}) for i in range(count)]


def names(items, lane, **options):
    return sorted(item.nodeid for item in lanes.choose(items, lane, "seed", **options))


@pytest.fixture(autouse=True)
def _one_claim(monkeypatch):
    monkeypatch.setattr(lanes, "_named", lambda: {NAMED, "tests/a/test_a.py::test_many[3]"})


@pytest.mark.parametrize(
    ("marks", "test", "verify"),
    [
        ([], 2, 6),
        ([pytest.mark.slow], 0, 6),
        ([pytest.mark.slow, pytest.mark.planted], 10, 10),
        ([pytest.mark.slow, pytest.mark.sample(test=3, verify=8)], 3, 8),
        ([pytest.mark.sample(test=1)], 1, 6),
        ([pytest.mark.slow, pytest.mark.dist], 0, 0),
    ],
)
def test_a_lane_runs_so_many_cases_of_a_function(marks, test, verify):
    items = cases("tests/a/test_a.py::test_one", 10, *marks)
    assert len(names(items, "test")) == test
    assert len(names(items, "verify")) == verify
    assert len(names(items, "verify", cases="all")) == (verify and 10)


@pytest.mark.parametrize(
    ("function", "marks", "test", "verify"),
    [
        ("tests/faults/test_a.py::test_one", [pytest.mark.slow], 0, 10),
        ("tests/goldens/test_a.py::test_one", [], 10, 10),
        ("tests/benchmarks/test_a.py::test_one", [pytest.mark.slow], 0, 1),
        ("tests/benchmarks/test_a_speed.py::test_one", [pytest.mark.slow], 0, 0),
        ("tests/benchmarks/test_a.py::test_one", [], 2, 6),
        (NAMED, [pytest.mark.slow, pytest.mark.turns("one", 0)], 0, 10),
    ],
)
def test_some_functions_run_whole_or_by_another_command(function, marks, test, verify):
    items = cases(function, 10, *marks)
    assert len(names(items, "test")) == test
    assert len(names(items, "verify")) == verify


def test_of_a_function_that_is_slow_in_part_the_quick_cases_are_the_sample():
    sample = pytest.mark.sample(test=1)
    quick = cases("tests/a/test_a.py::test_one", 2, sample)
    slow = [
        Item(
            f"tests/a/test_a.py::test_one[{i}]",
            {"sample": sample.mark, "slow": pytest.mark.slow.mark},
        )
        for i in range(2, 30)
    ]
    assert set(names([*slow, *quick], "test")) < {item.nodeid for item in quick}


def test_a_case_that_the_audit_names_always_runs():
    marks = [pytest.mark.slow, pytest.mark.sample(verify=1)]
    chosen = names(cases("tests/a/test_a.py::test_many", 10, *marks), "verify")
    assert "tests/a/test_a.py::test_many[3]" in chosen
    assert len(chosen) <= 2


def test_of_functions_that_take_turns_the_slow_cases_of_few_run():
    turns = pytest.mark.turns("covers", 2)
    items = [
        item
        for number in range(9)
        for item in (
            *cases(f"tests/a/test_a.py::test_{number}", 1, turns, pytest.mark.slow),
            Item(f"tests/a/test_a.py::test_{number}[quick]", {"turns": turns.mark}),
        )
    ]
    chosen = names(items, "verify")
    assert len([name for name in chosen if "quick" in name]) == 9
    assert len(chosen) == 9 + 2
    assert len(names(items, "verify", cases="all")) == 18


def test_the_seed_decides_which_and_the_order_of_tests_does_not():
    items = cases("tests/a/test_a.py::test_one", 40)
    chosen = lanes.choose(items, "verify", "a")
    assert chosen == lanes.choose(items[::-1], "verify", "a")
    assert chosen != lanes.choose(items, "verify", "b")
    every = set().union(*(lanes.choose(items, "verify", str(seed)) for seed in range(200)))
    assert every == set(items)


def test_a_run_without_a_lane_is_of_all_that_this_one_left():
    left: list[Item] = []
    config = SimpleNamespace(
        hook=SimpleNamespace(pytest_deselected=lambda items: left.extend(items)),
        getoption=lambda _name: 1.0,
        option=SimpleNamespace(lane="verify", seed="seed", cases="", without="test"),
    )
    items = cases("tests/a/test_a.py::test_one", 10)
    quick = lanes.choose(items, "test", "seed")
    before = [*items]
    lanes.arrange(config, items)
    assert {*items} == lanes.choose(before, "verify", "seed") - quick
    assert {*items, *left} == {*before}
