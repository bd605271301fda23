"""The benchmark of learners: it runs without the data beside this repository, and orders them."""

from __future__ import annotations

import numpy as np
import pytest
from rivals import learners

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_least_squares_beats_its_rivals_and_a_constant(epsilon):
    table = learners.collinear(50_000)
    found = {name: learners.measure(table, one, epsilon, 4)[0] for name, one in
             learners.LINEAR.items()}  # fmt: skip
    ours, best = found.pop("dbern"), found.pop("least squares, not private")
    assert best < ours < min(found.values())


def test_naive_bayes_beats_its_rival_where_noise_matters():
    rng = np.random.default_rng(4)
    label = rng.random(20_000) < 0.3
    columns = {name: np.clip(rng.normal(0.5 + 0.05 * label, 0.1), 0, 1) for name in "abcdef"}
    table = learners.Table("made up", columns, dict.fromkeys("abcdef", (0.0, 1.0)), label)
    found = {name: learners.measure(table, one, 0.1, 4)[0] for name, one in learners.BAYES.items()}
    assert found["diffprivlib's split"] < found["dbern"] < found["GaussianNB, not private"]


def test_the_table_has_a_line_for_each_learner(capsys, monkeypatch):
    monkeypatch.setattr(learners, "regressions", lambda: iter([learners.collinear(500)]))
    monkeypatch.setattr(learners, "classifications", lambda: iter([]))
    learners.main(["--epsilon", "1", "--seeds", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("| made up")]) == len(learners.LINEAR)
