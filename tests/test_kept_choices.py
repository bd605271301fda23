"""What a plan chose is found again by the next process, and nothing rests on it but time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from strategies import sections

from dbern.data.parquet import FileFacts
from dbern.planning import planner
from dbern.planning.planner import plan_files
from dbern.planning.spec import ReleaseSpec
from dbern.system import CACHE, keep, kept

OPEN = {"k": None, "h": None, "noise": None}
FAST = OPEN | {"noise": "laplace"}  # a search of lattice values alone
AXIS = {"bounds": {"x": [0.0, 10.0]}, "n": 1000}
PLANE = {"bounds": {"x": [0.0, 10.0], "y": [0.0, 10.0]}, "n": 1000}
WIDE = {"kind": "kernel-density", "bandwidth": [3.0]}
OBLIQUE = {"kind": "kernel-density", "bandwidth": None, "covariance": [[9.0, 2.0], [2.0, 9.0]]}
RESPONSE = {"response": {"column": "v", "bounds": [-1.0, 3.0]}}
GRAM = {"kind": "kernel-erm", "loss": "logistic", "length_scale": [9.0], "bandwidth": None}
LABEL = {"label": {"column": "c", "classes": ["a", "b"]}}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "plans"


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The measurements that were searched for."""
    found: list[str] = []
    search = planner.choose

    def choose(one: Any, settings: Any) -> Any:
        if not one.entries:  # a vector leaves nothing to choose
            found.append(one.name)
        return search(one, settings)

    monkeypatch.setattr(planner, "choose", choose)
    return found


def spec(**changes: dict[str, object]) -> ReleaseSpec:
    return ReleaseSpec(**sections(**{"data": AXIS, "target": WIDE, "mechanism": OPEN, **changes}))


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.thorough
@pytest.mark.parametrize("changes", [
    {},
    {"mechanism": OPEN | {"noise": "laplace"}},
    {"budget": {"delta": "1e-6"}},
    {"data": PLANE, "target": {"bandwidth": [3.0, 3.0]}},
    {"data": PLANE, "target": OBLIQUE},
    {"data": AXIS | RESPONSE, "target": {"kind": "nadaraya-watson", "bandwidth": [3.0]}},
    {"data": AXIS | LABEL, "target": GRAM},
    {"data": AXIS | LABEL, "target": {"kind": "naive-bayes", "bandwidth": [3.0]}},
], ids=str)  # fmt: skip
def test_a_plan_is_the_same_without_a_cache_with_an_empty_one_and_with_its_own(
    changes: dict[str, dict[str, object]],
    cache: Path,
    searches: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = spec(**changes)
    first = plan_files(given, ())
    measurements, [entry] = len(searches), cache.iterdir()
    assert plan_files(given, ()).to_dict() == first.to_dict()
    assert measurements == len(searches) == len(json.loads(entry.read_text()))
    monkeypatch.setenv(CACHE, "")
    assert plan_files(given, ()).to_dict() == first.to_dict()
    assert len(searches) == 2 * measurements


def test_whose_the_records_are_is_not_asked_and_what_they_are_of_is(
    cache: Path, searches: list[str]
) -> None:
    plan_files(spec(mechanism=FAST), ())
    for same in (
        {"release": {"name": "tomorrow", "output": "b.zarr"}},
        {"data": AXIS | {"source": "day=2/*.parquet"}},
        {"budget": {"dataset": "other", "ledger": "sqlite:///b.db"}},
    ):
        plan_files(spec(**{"mechanism": FAST} | same), [FileFacts("a", 9, (400, 600))])
    assert len(searches) == 1
    for other in (
        {"data": AXIS | {"n": 1001}},
        {"target": WIDE | {"bandwidth": [2.9]}},
        {"mechanism": FAST | {"beta": "0.1"}},
        {"budget": {"epsilon": "2"}},
    ):
        plan_files(spec(**{"mechanism": FAST} | other), ())
    assert len(searches) == 5 == len(list(cache.iterdir()))


def test_what_is_private_of_the_files_has_no_part_in_it(cache: Path, searches: list[str]) -> None:
    private = spec(data={**AXIS, "n": None, "normalizer": "1000", "neighbors": "add-or-remove-one"})
    for rows in (1, 997):
        plan_files(private, [FileFacts("a", rows, (rows,))])
    assert len(searches) == len(list(cache.iterdir())) == 1


def test_code_that_is_not_ours_is_asked_each_time(
    cache: Path, searches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_files(spec(mechanism=OPEN | {"reference": "numpy:ravel"}), ())
    monkeypatch.setattr(type(spec().learner), "__module__", "stranger.density")
    plan_files(spec(), ())
    assert len(searches) == 2
    assert not cache.exists()


@pytest.mark.parametrize("mask", [0, 0o077])
def test_files_are_private_whatever_the_umask(mask: int, cache: Path) -> None:
    with umask(mask):
        plan_files(spec(), ())
    [entry] = cache.iterdir()
    assert [path.stat().st_mode & 0o777 for path in (cache, entry)] == [0o700, 0o600]


def _damaged(entry: Path) -> None:
    entry.write_text(entry.read_text()[:-3])


def _of_another_version(entry: Path) -> None:
    entry.write_text(entry.read_text().replace('"k"', '"lattice"'))


def _huge(entry: Path) -> None:
    entry.write_text(" " * (1 << 20) + entry.read_text())


def _a_link(entry: Path) -> None:
    entry.rename(entry.parent / "elsewhere")
    entry.symlink_to(entry.parent / "elsewhere")


def _a_folder(entry: Path) -> None:
    entry.unlink()
    entry.mkdir()


def _a_pipe(entry: Path) -> None:
    entry.unlink()
    os.mkfifo(entry)


def _written_by_others(entry: Path) -> None:
    entry.chmod(0o666)


def _in_a_shared_folder(entry: Path) -> None:
    entry.parent.chmod(0o777)


def _no_folder(entry: Path) -> None:
    entry.unlink()
    entry.parent.rmdir()
    entry.parent.write_text("")


@pytest.mark.parametrize("spoil", [
    _damaged, _of_another_version, _huge, _a_link, _a_folder, _a_pipe, _written_by_others,
    _in_a_shared_folder, _no_folder,
])  # fmt: skip
def test_what_is_spoiled_is_not_used_and_nothing_is_said(
    spoil: Callable[[Path], None],
    cache: Path,
    searches: list[str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    first = plan_files(spec(mechanism=FAST), ())
    [entry] = cache.iterdir()
    spoil(entry)
    assert plan_files(spec(mechanism=FAST), ()).to_dict() == first.to_dict()
    assert len(searches) == 2
    assert capfd.readouterr() == ("", "")


def test_what_another_user_left_is_not_used(
    cache: Path, searches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_files(spec(mechanism=FAST), ())
    another = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: another)
    plan_files(spec(mechanism=FAST), ())
    assert len(searches) == 2


def poisoned(cache: Path, given: ReleaseSpec, **changes: object) -> None:
    plan_files(given, ())
    [entry] = cache.iterdir()
    [[name, choice]] = json.loads(entry.read_text()).items()
    entry.write_text(json.dumps({name: choice | changes}))


BINS = {"kind": "binned", "k": [20], "h": [8], "ranks": [12], "degree": 3}


@pytest.mark.parametrize("changes", [
    {"family": 9},
    {"family": 1, "kind": "", "ranks": [], "degree": 0},  # of the K-norm law there are bins alone
    {"kind": "binned", "k": [20, 20], "h": [8, 8], "ranks": [12, 12]},
    BINS | {"degree": 4},
    BINS | {"ranks": [3]},
    BINS | {"ranks": [5000]},
    BINS | {"k": [0]},
    BINS | {"k": [10**6]},
    BINS | {"h": [10**9]},
    BINS | {"h": ["8"]},
], ids=str)  # fmt: skip
def test_what_no_search_could_find_is_not_used(
    changes: dict[str, object], cache: Path, searches: list[str]
) -> None:
    fresh = plan_files(spec(), ())
    poisoned(cache, spec(), **changes)
    assert plan_files(spec(), ()).to_dict() == fresh.to_dict()
    assert len(searches) == 2


def test_a_sum_over_records_has_no_spectral_noise_from_a_cache_either(
    cache: Path, searches: list[str]
) -> None:
    poisoned(cache, spec(), kind="spectral", k=[20], h=[8], ranks=[5], degree=0, family=0)
    assert plan_files(spec(), ()).noise.kind != "spectral-laplace"
    assert len(searches) == 2


def test_another_choice_has_the_law_and_the_certificate_of_one_that_a_spec_states(
    cache: Path, searches: list[str]
) -> None:
    plain = {"family": 0, "kind": "", "ranks": [], "degree": 0, "k": [7], "h": [2]}
    poisoned(cache, spec(), **plain)
    found = plan_files(spec(), ())
    assert len(searches) == 1
    stated = plan_files(spec(mechanism=OPEN | {"k": 7, "h": 2, "noise": "laplace"}), ())
    assert found.components == stated.components
    assert found.certificate == stated.certificate


def test_the_oldest_of_too_many_go_and_nothing_else(cache: Path) -> None:
    names = [f"{number:064x}" for number in range(300)]
    keep(names[0], b"0")
    (cache / "mine.txt").write_text("kept")
    for age, name in enumerate(names[1:], start=1):
        keep(name, b"1")
        os.utime(cache / name, ns=(age, age))
    assert kept(names[-1]) == b"1"
    assert kept(names[1]) == b""
    assert len(list(cache.iterdir())) <= 258
    assert (cache / "mine.txt").exists()


def test_without_a_variable_it_is_where_caches_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CACHE)
    for name, place in (("XDG_CACHE_HOME", "x"), ("HOME", "h/.cache")):
        monkeypatch.setenv("HOME", str(tmp_path / "h"))
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # is to be ignored, says the standard
        monkeypatch.setenv(name, str(tmp_path / place.partition("/")[0]))
        keep("a" * 64, b"here")
        assert (tmp_path / place / "dbern" / "plans" / ("a" * 64)).read_bytes() == b"here"


def test_no_cache_is_written_where_the_variable_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE, "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    keep("a" * 64, b"here")
    assert not list(tmp_path.iterdir())
