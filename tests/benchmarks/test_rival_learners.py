"""Learners beside rivals: what rivals guarantee, what the table says of us, and a small whole."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from rivals import __main__ as command
from rivals import bayes, learners, library, linear, logistic, machines, records, released
from rivals.cells import ASIDE, EXACT, OURS, RIVAL, Cell, far, lost, summary, to_markdown
from rivals.records import Table
from rivals.scoring import scored
from sklearn.naive_bayes import CategoricalNB

SMALL = 2000


def made_up(rows, rng, label=True):
    """Two numbers and a list, which tell of a label or of a response."""
    colour = rng.choice(["blue", "green", "red"], rows)
    x, y = rng.uniform(0, 1, rows), rng.uniform(-5, 5, rows)
    likely = 0.2 + 0.3 * x + 0.3 * (colour == "red")
    columns = {"colour": colour, "x": x, "y": y, "z": likely + rng.normal(0, 0.1, rows)}
    bounds = {"x": (0.0, 1.0), "y": (-5.0, 5.0)}
    lists = {"colour": ["blue", "green", "red"]}
    if label:
        return Table("made up", columns, bounds, rng.random(rows) < likely, lists, (0.3, 3.0))
    return Table("made up", columns, bounds | {"z": (-0.5, 1.5)}, None, lists)


# --- what rivals guarantee --------------------------------------------------------------------


def neighbours(rng, label):
    """Tables of one row that may be anything within the bounds, corners often."""
    one = made_up(1, rng, label)
    for name, ends in one.bounds.items():
        if rng.random() < 0.7:
            one.columns[name] = rng.choice(ends, 1)
    return one


@pytest.mark.parametrize("cells", [2, 5])
def test_a_record_moves_as_many_counts_as_the_posterior_is_perturbed_for(cells):
    rng = np.random.default_rng(5)
    most = 0.0
    for _ in range(150):
        before, after = (bayes.counts(neighbours(rng, True), cells) for _ in range(2))
        moved = sum(np.abs(a - b).sum() for a, b in zip(before, after, strict=True))
        most = max(most, moved)
    assert most == bayes.sensitivity(made_up(1, rng)) == 2 * (1 + 3)


def test_without_noise_the_posterior_is_that_of_the_counts():
    learn, test = made_up(2000, np.random.default_rng(6)).parts
    found = bayes.posterior(4)(learn, test, 1e12, 0)
    codes = [np.column_stack([one for one, _ in bayes.discrete(part, 4)]) for part in (learn, test)]
    peer = CategoricalNB(min_categories=[3, 4, 4]).fit(codes[0], learn.truth)
    logs = peer.predict_joint_log_proba(codes[1])
    np.testing.assert_allclose(found, logs[:, 1] - logs[:, 0], atol=0.01)  # a prior for classes too


@pytest.mark.parametrize(
    ("moved", "share"), [(linear.moved_by_record, 0.7), (linear.published, 0.3)]
)
def test_moments_move_by_no_more_than_their_noise_is_for(moved, share):
    rng, most = np.random.default_rng(7), 0.0
    bound = moved(made_up(1, rng, label=False))
    for _ in range(250):
        pair = (neighbours(rng, False) for _ in range(2))
        rows = [np.append(1.0, np.append(one.features[0], one.truth)) for one in pair]
        before, after = (np.triu(np.outer(row, row)) for row in rows)
        most = max(most, float(np.abs(before - after).sum()))
    assert share * bound < most <= bound


def test_features_are_no_longer_than_the_public_norm():
    rng = np.random.default_rng(8)
    longest = max(float(np.linalg.norm(neighbours(rng, True).features)) for _ in range(100))
    assert longest == pytest.approx(made_up(1, rng).longest) == pytest.approx(math.sqrt(3))


@pytest.mark.parametrize(
    "values",
    [logistic.objective, logistic.of_classes(logistic.output_perturbed(1e-3)), logistic.split,
     bayes.split, bayes.posterior(8),
     bayes.histograms],
)  # fmt: skip
def test_rivals_without_noise_rank_as_scikit_learn_does(values):
    learn, test = made_up(4000, np.random.default_rng(9)).parts
    exact = scored(logistic.without_privacy(learn, test, 1.0, 0), test.truth, 1.0)["AUC"]
    assert scored(values(learn, test, 30.0, 0), test.truth, 1.0)["AUC"] > exact - 0.03


def test_objective_perturbation_of_features_tells_figure_two():
    learn, test = records.two_classes().parts
    found = scored(machines.objective(5)(learn, test, 30.0, 0), test.truth, 1.0)
    assert found["AUC"] > 0.98


@pytest.mark.slow
def test_kernel_likelihoods_without_noise_are_means_of_kernels():
    learn, test = made_up(4000, np.random.default_rng(10)).parts
    found = released.kernel_bayes(replace(learn, widths=()), test, 1e5, 0)
    numbers = (learn.numbers + 1) / 2
    off = ((test.numbers + 1) / 2)[:, None] - numbers
    kernels = np.exp(-0.5 * (off / released.SHARE) ** 2)
    listed = np.searchsorted(learn.lists["colour"], [*learn.columns["colour"]])
    own = np.searchsorted(learn.lists["colour"], [*test.columns["colour"]])
    logs = []
    for part in (~learn.truth, learn.truth):
        likely = np.log(kernels[:, part].mean(axis=1)).sum(axis=1)
        cells = np.bincount(listed[part], minlength=3) / part.sum()
        logs.append(np.log(part.mean()) + likely + np.log(cells[own]))
    assert np.abs(found - (logs[1] - logs[0])).max() < 0.05
    assert np.ptp(logs[1] - logs[0]) > 1


# --- what the table says ----------------------------------------------------------------------


def cell(role, mean, error=0.01, metric="AUC", epsilon=1.0):
    return Cell("bayes", "t", metric, f"{role} {mean}", role, epsilon, 20, mean, error)


@pytest.mark.parametrize(
    ("metric", "ours", "rival", "by"),
    [("AUC", 0.80, 0.81, None), ("AUC", 0.80, 0.82, 2**0.5), ("AUC", 0.80, 0.79, None),
     ("RMSE", 0.80, 0.77, 3 / 2**0.5), ("RMSE", 0.80, 0.82, None),
     ("error", 0.80, 0.77, 3 / 2**0.5), ("AUC", None, 0.5, math.inf), ("AUC", 0.5, None, None)],
)  # fmt: skip
def test_a_cell_is_lost_where_a_rival_is_ahead_by_more_than_an_error(metric, ours, rival, by):
    mine, other = cell(OURS, ours, metric=metric), cell(RIVAL, rival, metric=metric)
    best = replace(other, mean=0.9 if metric == "AUC" else 0.1)  # but not beside it
    others = [replace(best, epsilon=2.0), replace(best, role=ASIDE), replace(best, table="u")]
    found = lost([mine, other, *others])
    assert [(one, rival) for one, rival, _ in found] == ([] if by is None else [(mine, other)])
    assert [much for *_, much in found] == pytest.approx([] if by is None else [by])
    table = to_markdown([mine, other])
    assert (table.count("*") == 0) is (by is None)
    assert f"cells lost: {len(found)} of 1" in summary([mine, other])


def test_the_rival_that_is_furthest_ahead_is_named():
    rivals = [cell(RIVAL, 0.85), cell(RIVAL, 0.9), cell(RIVAL, 0.7)]
    ((_, named, _),) = lost([*rivals, cell(OURS, 0.8)])
    assert named == rivals[1]
    assert lost([cell(OURS, 0.8, 0.0), cell(RIVAL, 0.8, 0.0)]) == []  # a tie


@pytest.mark.parametrize(
    ("metric", "ours", "exact", "off"),
    [("AUC", 0.8, 0.804, False), ("AUC", 0.8, 0.806, True), ("RMSE", 101.1, 100, True),
     ("RMSE", 100.9, 100, False), ("RMSE", 99, 100, False), ("accuracy", 0.5, 0.9, False)],
)  # fmt: skip
def test_far_from_scikit_learn_is_what_the_issue_says(metric, ours, exact, off):
    beside = [cell(OURS, ours, metric=metric), cell(EXACT, exact, metric=metric)]
    assert len(far(beside)) == off
    assert far([replace(one, epsilon=0.1) for one in beside]) == []


def test_what_is_refused_is_a_dash_and_says_why(capsys):
    table = made_up(400, np.random.default_rng(1))
    refused = next(one for one in learners.panels()["machines"][1] if one.role == OURS)
    found = learners.measure("machines", table, refused, (1.0,), 1)
    assert [one.mean for one in found] == [None]
    assert found[0].text == "-"
    command.progress(found)
    assert "categor" in capsys.readouterr().err or "list" in found[0].note


# --- diffprivlib ------------------------------------------------------------------------------


def test_without_its_environment_the_splits_stand_in_and_the_table_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "HOME", tmp_path)  # made, and not filled
    names = {part: [one.name for one in of] for part, (_, of) in learners.panels().items()}
    assert "without diffprivlib" in summary([])
    for part in ("bayes", "logistic"):
        assert "diffprivlib's split, rewritten" in names[part]
        assert "diffprivlib 0.6.6" not in names[part]


@pytest.mark.slow
@pytest.mark.skipif(not library.available(), reason="make rivals makes build/diffprivlib")
def test_the_library_gets_the_same_rows_and_says_what_fails():
    rng = np.random.default_rng(2)
    for kind, label in (("linear", False), ("bayes", True), ("logistic", True)):
        learn, test = made_up(SMALL, rng, label).parts
        found = library.scores(kind)(learn, test, (0.5, 1e5), 2)
        assert [len(one) for one in found] == [2, 2]
        exact = {"linear": linear, "bayes": bayes, "logistic": logistic}[kind].without_privacy
        beside = scored(exact(learn, test, 1.0, 0), test.truth, test.radius)
        for name, value in found[1][0].items():
            assert value == pytest.approx(beside[name], rel=0.05)
    learn.features[0, 0] = math.nan
    with pytest.raises(library.LibraryError, match="NaN"):
        library.scores("logistic")(learn, test, (1.0,), 1)


# --- the whole --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("part", command.PARTS)
def test_a_task_that_is_none_is_refused_with_those_that_are(monkeypatch, capsys, part):
    names = command.task_names(part)
    if not names:
        pytest.skip("its records are not beside the checkout")
    known = names[0]
    with pytest.raises(SystemExit) as ended:
        command.main(["--part", part, "--task", "no such"])
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert f'--task: none begins with "no such". Write the beginning of: {known}' in said.err
    monkeypatch.setattr(command, "_ran", lambda _given: ("a table\n", []))
    command.main(["--part", part, "--task", known[:4]])
    assert capsys.readouterr().out == "a table\n"


@pytest.mark.slow
def test_the_whole_small(monkeypatch, tmp_path, capsys):
    def thinned(makers, names):
        def few():
            for table in makers():
                if table.name in names:
                    order = np.random.default_rng(3).permutation(len(table.truth))
                    yield table.where(order < SMALL)

        return few

    kept = ("made up, collinear", "adult, 6 axes, 7 lists", "adult, education in five groups",
            "adult, age, 7 lists", "Figure 2")  # fmt: skip
    for name in ("regressions", "classifications", "logistics", "planes"):
        monkeypatch.setattr(records, name, thinned(getattr(records, name), kept))
    wanted = {"linear", "machines"}
    wanted |= {"bayes", "logistic"} if records.ADULT.exists() else set()
    path = tmp_path / "cells.json"
    command.main(["--part", *sorted(wanted), "--seeds", "2", "--epsilon", "3", "--json", str(path)])
    found = [Cell(**one) for one in json.loads(path.read_text())]
    out, err = capsys.readouterr()
    assert {one.panel for one in found} == wanted
    assert err.count("\n") >= len({(one.panel, one.table, one.learner) for one in found})
    assert f"cells lost: {len(lost(found))} of {sum(one.role == OURS for one in found)}" in out
    for one in found:
        assert one.mean is not None or one.note
        assert one.seeds == {EXACT: 1, ASIDE: one.seeds}.get(one.role, 2) or one.mean is None
        if one.metric == "AUC" and one.mean is not None:
            assert 0.2 < one.mean < 1
        if one.role == OURS and one.metric == "RMSE":  # far from noise, whatever the seeds
            constant = next(c for c in found if c.learner == "a constant" and c.table == one.table)
            assert one.mean < 1.5 * constant.mean


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "most"), [(0.1, 1.3), (1.0, 1.03)])
def test_least_squares_beats_its_rivals_and_a_constant(epsilon, most):
    table = records.collinear(50_000)
    rivals = {"constant": linear.constant, "moments": linear.noisy_moments,
              "functional": linear.functional, "weights": released.papers_ridge}  # fmt: skip
    values = {"ours": released.ridge, "exact": linear.without_privacy} | rivals
    found = {
        name: learners.measure("linear", table, learners.each(name, one), (epsilon,), 4)[0].mean
        for name, one in values.items()
    }
    ours, exact = found.pop("ours"), found.pop("exact")
    assert 0.97 * exact < ours < min(found.values())  # cut residuals may do better than the mean
    assert ours < most * exact


@pytest.mark.slow
def test_naive_bayes_beats_its_rival_where_noise_matters():
    rng = np.random.default_rng(4)
    label = rng.random(20_000) < 0.3
    columns = {name: np.clip(rng.normal(0.5 + 0.05 * label, 0.1), 0, 1) for name in "abcdef"}
    table = Table("made up", columns, dict.fromkeys("abcdef", (0.0, 1.0)), label)
    ours, split, exact = (
        learners.measure("bayes", table, learners.each("one", one), (0.1,), 4)[0].mean
        for one in (released.bayes, bayes.split, bayes.without_privacy)
    )
    assert split < ours < exact


@pytest.mark.slow
@pytest.mark.parametrize("ours", [released.bayes, released.kernel_bayes])
def test_many_lists_leave_naive_bayes_ahead_of_histograms(ours):
    """The noise of a class's share is not counted once for each list."""
    rng, rows = np.random.default_rng(12), 20_000
    label = rng.random(rows) < 0.25
    x = np.clip(rng.normal(0.5 + 0.05 * label, 0.1), 0, 1)
    lists = {name: [*"pqrstuvw"] for name in ("k1", "k2", "k3", "k4", "k5", "k6")}
    columns = {
        name: np.array(values)[np.minimum(rng.geometric(0.45 - 0.1 * label), 8) - 1]
        for name, values in lists.items()
    }
    table = Table("made up", columns | {"x": x}, {"x": (0.0, 1.0)}, label, lists)
    accuracy = [
        learners.measure("bayes", table, learners.each("one", values), (0.1,), 20)[1].mean
        for values in (ours, bayes.histograms, bayes.without_privacy)
    ]
    assert accuracy[1] < accuracy[0] < accuracy[2]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["support-vector-machine", "kernel-erm, logistic"])
def test_kernels_of_several_classes_do_as_well_as_the_most_frequent(target):
    """None has half of the records anywhere: "the rest" is no answer, and little noise is much.

    Or the plan names what does better.
    """
    rng, rows = np.random.default_rng(13), 32_000
    x, y = rng.uniform(0, 1, (2, rows))
    odds = np.column_stack([0.8 + 0.4 * x, 0.3 + 0.9 * y, 0.2 + 0 * x, 0.8 - 0.8 * x, 0.2 * y])
    label = np.argmax(odds + rng.gumbel(size=odds.shape), axis=1)
    table = Table("made up", {"x": x, "y": y}, dict.fromkeys("xy", (0.0, 1.0)), label,
                  widths=(0.25, 0.25))  # fmt: skip
    ours, constant = (
        learners.measure("several", table, learners.each("one", values), (0.1,), 20)[0].mean
        for values in (released.machine(target), logistic.most_frequent)
    )
    assert ours > constant - 0.025
    _, plan, _ = released.planned(table.parts[0], target, 0.1)
    better = any("support-vector-machine" in note for note in plan.notes)
    assert better or ours > constant - 0.001


@pytest.mark.slow
@pytest.mark.parametrize(("classes", "axes", "least"), [(3, 4, 0.83), (7, 6, 0.33)])
def test_several_classes_are_told_better_than_by_rivals(classes, axes, least):
    """The method and the penalty follow from how many classes are predicted to be wrong."""
    table = records.clusters(8000, classes, axes, 0.12 if classes == 3 else 0.08)
    ours, rival = (
        learners.measure("logistic", table, learners.each("one", values), (0.1,), seeds)[0].mean
        for values, seeds in ((released.logistic, 20), (logistic.objective, 10))
    )
    assert ours > max(rival, least)


@pytest.mark.slow
def test_what_plans_advise_of_rounded_values_beats_a_constant():
    """Gaps of what they are rounded to, where a plan does not warn; else Nadaraya-Watson."""
    table = next(records.rounded())
    found = {
        values: learners.measure("rounded", table, learners.each("one", values), (1.0,), 20)[0].mean
        for values in (linear.constant, released.by_gaps(1.0), released.smoothed)
    }
    constant, gaps, smoothed = found.values()
    assert smoothed < gaps < 0.9 * constant
