"""The page of curves says what was measured, and the command that makes it runs, small."""

from __future__ import annotations

import shutil
from contextlib import nullcontext

import numpy as np
import pytest
from scale import __main__ as command
from scale import curves, many, runs, weak


def test_the_page_shows_what_was_measured():
    text = weak.PAGE.read_text(encoding="utf-8")
    assert curves.page(text, curves.stored(), weak.stored()) == text


def test_what_breaks_first_is_the_longest_stage_that_workers_do_not_shorten():
    costs = weak.Costs(1e-7, 1e-3, 1e-4, 1e-9, 1e-7, 1e-8, 10**7, 10**6)
    found = weak.stages(costs, 10**12, 10**9, 1000)
    by_name = {stage.name: stage.seconds for stage in found}
    assert by_name["reading and counting"] == pytest.approx(100)
    assert by_name["submitting and scheduling"] == pytest.approx(100)
    assert by_name["staging the center"] == pytest.approx(100)
    assert by_name["noise and writing"] == pytest.approx(10)
    more = {stage.name: stage for stage in weak.stages(costs, 10**12, 10**9, 2000)}
    shorter = {name for name, stage in more.items() if stage.seconds < by_name[name]}
    assert shorter == {stage.name for stage in found if stage.parallel}


@pytest.mark.slow
def test_the_command_runs_small(client, tmp_path, monkeypatch, capsys):
    for module in (curves, command):
        monkeypatch.setattr(module, "cluster", lambda _workers: nullcontext(client))
    for name, path in (("PAGE", weak.PAGE), ("MEASURED", weak.MEASURED)):
        monkeypatch.setattr(curves, name, tmp_path / path.name)
    monkeypatch.setattr(curves, "TASKS", 10)
    monkeypatch.setattr(curves, "REPEATS", 1)
    monkeypatch.setattr(runs, "FILE_ROWS", 2500)
    shutil.copy(weak.PAGE, tmp_path)
    curves.draw(tmp_path, (2000, 4000), (3, 6))
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "benchmarks.md").read_text()
    assert "4000" in text
    assert text != weak.PAGE.read_text(encoding="utf-8")
    run = command.large(3000, tmp_path, 2, "laplace")
    assert run.rows == 3000
    assert np.all(np.array([run.elapsed, run.releasing, run.workers]) >= 0)
    assert "times one scan" in capsys.readouterr().out


@pytest.mark.slow
def test_many_files_and_row_groups_are_measured(tmp_path):
    told = many.many(3, 2, tmp_path)
    assert told.startswith("3 files of 2 row groups: planned in ")
    assert [path.name for path in tmp_path.iterdir()] == ["files-3-2"]
