"""Choose the tests of a lane: ``make test`` runs two cases of a function, ``make verify`` six.

Of a slow benchmark, which runs small, ``make verify`` has one: enough to see that it still runs.

A hash of the seed and of a case's name decides which. The seed is the commit, unless ``--seed``
names another one: the same seed chooses the same cases again.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest
from audit.claims import claims

ROOT = Path(__file__).parents[1]
CASES = {"test": 2, "verify": 6}  # of a function, where no mark says another number
WHOLE = {"faults", "goldens", "statistical"}  # folders whose cases are a choice already
SECONDS = {False: 120, True: 400}  # a test that is not slow, and one that is: 40 times the slowest
LONG = {  # files whose tests take ten seconds or more, or wait: what ends last is short
    *("test_notebooks.py", "test_wheel.py", "test_workers.py", "test_sklearn.py"),
    *("test_two_commands.py", "test_own_modules.py", "test_pipelines.py", "test_dagster.py"),
    *("test_goldens.py", "test_memory.py", "test_faults.py", "test_kills.py"),
}


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("lanes")
    group.addoption("--lane", choices=[*CASES], help="run the cases of this lane; else all")
    group.addoption("--cases", default="", help="cases of a function, a number or `all`")
    group.addoption("--without", choices=[*CASES], help="leave out what this lane runs")
    group.addoption("--seed", default="", help="choose the cases of another run again")


def settle_seed(config: pytest.Config) -> None:
    """Name the seed once, for this process and for the workers, which inherit the options."""
    config.option.seed = config.option.seed or _commit()


def said(config: pytest.Config) -> str:
    """What repeats the choice of cases; empty where all tests run."""
    if not config.option.lane:
        return ""
    return f"--lane {config.option.lane} --seed {config.option.seed}"


def arrange(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the lane's tests in `items`, long files first, each test with its time limit."""
    option = config.option
    if option.lane:
        chosen = choose(items, option.lane, option.seed, option.cases)
        if option.without:
            chosen -= choose(items, option.without, option.seed)
        config.hook.pytest_deselected(items=[one for one in items if one not in chosen])
        items[:] = [one for one in items if one in chosen]
    items.sort(key=lambda item: item.path.name not in LONG)
    for item in items if config.getoption("timeout") is None else ():
        if not item.get_closest_marker("timeout"):
            slow = item.get_closest_marker("slow") is not None
            item.add_marker(pytest.mark.timeout(SECONDS[slow]))


def choose(items: Sequence[pytest.Item], lane: str, seed: str, cases: str = "") -> set[pytest.Item]:
    """The items of a lane. `cases` replaces its number of cases of a function: `all` keeps all."""
    quick = {_function(item) for item in items if not item.get_closest_marker("slow")}
    every = [item for item in items if _belongs(item, lane, quick)]
    if cases == "all":
        return set(every)

    def drawn(names: Iterable[str], most: int) -> set[str]:
        return {*sorted(names, key=lambda name: sha256(f"{seed} {name}".encode()).digest())[:most]}

    turns: dict[tuple[str, int], set[str]] = defaultdict(set)
    for item in every:
        if mark := _turn(item):
            turns[mark.args].add(_function(item))
    waiting = {name for (_, most), names in turns.items() for name in names - drawn(names, most)}
    kept, limited = set(), defaultdict(dict)
    for item in every:
        if _turn(item) and _function(item) in waiting:
            continue
        most = _limit(item, lane, int(cases or CASES[lane]))
        if most is None:
            kept.add(item)
        else:
            limited[_function(item), most][item.nodeid] = item
    for (_, most), named in limited.items():
        kept |= {named[name] for name in drawn(named, most)}
    return kept


def _belongs(item: pytest.Item, lane: str, quick: Container[str]) -> bool:
    """Whether the item may run in a lane; `quick` has the functions of which some case is."""
    slow = item.get_closest_marker("slow") is not None
    if lane == "verify":
        return not (slow and (item.get_closest_marker("dist") or _timed(item)))
    sample = item.get_closest_marker("sample")
    sampled = sample is not None and "test" in sample.kwargs and _function(item) not in quick
    return not slow or sampled or item.get_closest_marker("planted") is not None


def _limit(item: pytest.Item, lane: str, cases: int) -> int | None:
    """How many cases of the item's function run; None, where this one does in any case."""
    if item.nodeid in _named() or item.get_closest_marker("planted"):
        return None
    sample = item.get_closest_marker("sample")
    if sample is not None and lane in sample.kwargs:
        return int(sample.kwargs[lane])
    if item.path.parent.name in WHOLE or _function(item) in _named():
        return None
    benchmark = item.path.parent.name == "benchmarks" and item.get_closest_marker("slow")
    return min(cases, 1) if benchmark else cases


def _timed(item: pytest.Item) -> bool:
    """Whether it compares seconds, which other tests beside it would spoil: `make bench` has it."""
    return item.path.parent.name == "benchmarks" and item.path.stem.endswith("_speed")


def _turn(item: pytest.Item) -> pytest.Mark | None:
    """The mark of functions that take turns; their quick cases and claims of the audit do not."""
    if {item.nodeid, _function(item)} & _named() or not item.get_closest_marker("slow"):
        return None
    return item.get_closest_marker("turns")


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


@cache
def _named() -> frozenset[str]:
    """Tests that kill a mutation of the audit."""
    return frozenset(claim.test for claim in claims())


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "none"
