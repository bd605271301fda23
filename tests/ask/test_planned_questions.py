"""Plans for questions: `[mechanism] questions`, and what is predicted of each."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from banding import AXES, columns, planned, released
from strategies import sections

import dbern
from dbern.ask.splines import AxisSplines, steps
from dbern.errors import SpecError
from dbern.planning import predicted as question_widths
from dbern.planning.bin_grids import BIN_RESOLUTIONS, bin_grids
from dbern.planning.choice import make_search
from dbern.planning.planner import plan_files
from dbern.planning.release_plan import ReleasePlan
from dbern.planning.resolved import ResolvedSpec
from dbern.privacy.covariance import NoiseCovariance
from dbern.reconstruct.bins import AxisBins

pytestmark = pytest.mark.filterwarnings("ignore:each answer holds")


def asking(*questions, axes=1, noise="auto"):
    """A spec of these questions and its plan, which is made anew."""
    return planned.__wrapped__(axes, noise=noise, questions=questions)


def cells(plan):
    return [one.cells for one in plan.components[0].maps]


def edge_notes(questions, resolution):
    data = {"n": 20_000, "bounds": {"x": [0.0, 100.0]}, "resolution": resolution}
    content = sections(
        data=data, target={"bandwidth": [4.0]},
        mechanism={"questions": questions, "k": None, "h": None, "noise": "auto"},
    )  # fmt: skip
    plan = plan_files(dbern.ReleaseSpec(**content), ())
    return [note for note in plan.notes if note.startswith("shares without a resolution ")], plan


def halved(high=(100.0,), resolution=None, questions=("mass",)):
    """Narrow cells, and how many a wide one has, of bins whose scales count half of each row."""
    bounds = {name: [0.0, end] for name, end in zip("xyz", high, strict=False)}
    data = {"n": 20_000, "bounds": bounds, "resolution": resolution}
    mechanism = {"questions": list(questions) or None, "k": None, "h": None, "noise": "auto"}
    target = {"bandwidth": [4.0] * len(high)}
    spec = dbern.ReleaseSpec(**sections(data=data, target=target, mechanism=mechanism))
    search = make_search(spec.components[0], ResolvedSpec.of(spec, 20_000))
    grids = [grid for grid in bin_grids(search) if grid.parts == 2]
    assert {grid.degree for grid in grids} <= {1}
    return [(*grid.cells, *grid.times) for grid in grids]


def test_two_scales_count_half_of_each_row_where_questions_are_asked():
    assert halved() == [(512, 22), (768, 27), (1024, 32)]
    assert halved(questions=()) == []
    assert halved(questions=("density", "mass")) == []  # a density would err twice as much
    assert halved([500.0], {"x": 1.0}) == [(500, 22)]
    assert halved([500.0], {"x": 1.0}, ("density", "mass")) == [(500, 22)]
    assert halved([399.0], {"x": 1.0}) == []  # few numbers as it is
    assert halved([499.0], {"x": 1.0}) == [(499, 22)]  # a prime: the last wide cell is cut off
    assert halved([2049.0], {"x": 1.0}) == []  # too many


def test_two_scales_of_several_axes_count_half_of_each_row_on_each():
    both = {"x": 1.0, "y": 1.0}
    assert halved([100.0, 60.0], both) == [(100, 60, 10, 7)]
    assert halved([100.0, 47.0], both) == [(100, 47, 10, 1)]  # few numbers on one of them
    assert halved([47.0, 40.0], both) == []
    assert halved([2049.0, 60.0], both) == []
    assert halved([100.0, 60.0], both, ("density", "mass")) == []
    assert halved([100.0, 60.0], both, ()) == []
    assert halved([100.0, 60.0], {"y": 1.0})[0] == (64, 60, 8, 7)
    pairs = (64, 8), (128, 11), (256, 16), (512, 22), (768, 27), (1024, 32)
    assert halved([1.0] * 3) == [(*[cells] * 3, *[times] * 3) for cells, times in pairs]


def test_widths_of_two_scales_on_two_axes_are_those_of_their_products():
    """Predicted: a box's, by the noise of least squares of each axis, and a share's of one axis."""
    axes = [AxisBins(60, 1, b"", times=8, parts=2), AxisBins(48, 1, b"", times=7, parts=2)]
    of, noise = question_widths.Questions.of(["mass", "cdf"]), NoiseCovariance(0.01)
    found = of.widths(axes, noise, 0.5, (True, True))
    squares = []
    for axis in axes:
        inverse = np.linalg.pinv(axis.scales.on_bins(np.eye(axis.scales.count)))
        half = np.arange(axis.count) < axis.cells // 2 + np.arange(axis.times)[:, None]
        sizes = np.square(half @ inverse).sum(axis=1).mean()
        squares.append((sizes, np.square(inverse.sum(axis=0)).sum()))
    (half_x, all_x), (half_y, all_y) = squares
    assert found["mass"] == pytest.approx(2 * 1.96 * 0.01 * np.sqrt(half_x * half_y))
    of_axis = max(half_x * all_y, all_x * half_y)
    assert found["cdf"] == pytest.approx(2 * 1.96 * 0.01 * np.sqrt(of_axis))


def test_a_plan_says_by_what_factor_edges_widen_shares():
    (note,), plan = edge_notes(["mass", "quantile"], None)
    factor = float(re.search(r"are up to ([0-9.]+) times as wide as with one", note)[1])
    (bins,), wide = plan.components[0].maps, plan.outlook.questions
    gaps = [count * question_widths.GAPS[bins.degree] / bins.cells for count in (1, 2)]
    noise_alone = [wide[name] - gap for name, gap in zip(("quantile", "mass"), gaps, strict=True)]
    factors = [
        wide[name] / alone for name, alone in zip(("quantile", "mass"), noise_alone, strict=True)
    ]
    assert factor == pytest.approx(max(factors), abs=0.06)
    assert factor > 1.2
    assert ": [data.resolution] x = " in note
    assert edge_notes(["mass", "quantile"], {"x": 1.0})[0] == []
    assert edge_notes(["density"], None)[0] == []


@pytest.mark.slow
@pytest.mark.parametrize("degree", BIN_RESOLUTIONS)
def test_the_gap_of_an_edge_is_what_its_splines_leave(degree):
    splines = AxisSplines(40, degree)
    sides = steps(splines, (20 + np.arange(32) / 32) / 40)
    gap = 40 * (sides.upper - sides.lower) @ splines.integrals(np.ones(1))[0]
    assert question_widths.GAPS[degree] == pytest.approx(gap.mean(), abs=0.01)


def bins(*cells):
    return [AxisBins(count, 2, b"") for count in cells]


def test_widths_are_those_of_edges_and_of_noise():
    """Two cells of a step's gap, two boxes' ends, and the noise of the bins that count."""
    of = question_widths.Questions.of(["mass", "cdf", "quantile", "density"])
    still = of.widths(bins(10), NoiseCovariance(0.0), 0.5)
    assert still == pytest.approx({"mass": 0.332, "cdf": 0.166, "quantile": 0.166, "density": 0.5})
    loud = of.widths(bins(10), NoiseCovariance(0.01), 0.5)
    assert loud["cdf"] - still["cdf"] == pytest.approx(2 * 1.96 * 0.01 * np.sqrt(6))
    kept = of.widths(bins(10), NoiseCovariance(0.01, -1 / 12), 0.5)  # noise that keeps the total
    assert still["cdf"] < kept["cdf"] < loud["cdf"]
    plane = of.widths(bins(10, 40), NoiseCovariance(0.0), 0.5)
    assert plane["cdf"] == still["cdf"]
    assert plane["mass"] == pytest.approx(1.66 * (0.1 + 0.025))
    assert question_widths.mean_width(still) == pytest.approx((0.332 * 0.166 * 0.5) ** (1 / 3))


@pytest.mark.slow
def test_cells_are_as_narrow_as_what_is_asked_for_wants(monkeypatch):
    """Of one scale: of two they are as narrow whatever is asked."""
    monkeypatch.setattr("dbern.planning.choice._takes_two_scales", lambda *_: False)
    usual, both, rows = (
        asking(*one, noise="binned-laplace")[1] for one in ((), ("density", "cdf"), ("quantile",))
    )
    assert cells(usual) < cells(both) < cells(rows)
    assert usual.outlook.expected < both.outlook.expected < rows.outlook.expected
    assert set(rows.outlook.questions) == {"quantile"}
    assert both.outlook.questions["cdf"] > rows.outlook.questions["quantile"]
    assert both.outlook.questions["density"] == both.outlook.expected
    assert "questions" not in usual.to_dict()["outlook"]
    assert ReleasePlan.from_dict(json.loads(json.dumps(both.to_dict()))) == both
    text = both.explain(details=True)
    assert "\nquestions    density: off by about 0.01" in text
    assert "a share up to a value: an interval of about " in text
    assert "of evenly spread rows, with probability 0.95" in text


def test_of_the_density_alone_a_plan_is_what_it_was():
    spec, plan = asking("density")
    usual, other = asking()
    assert plan.to_dict() == other.to_dict()
    assert "questions" not in usual.identity()["mechanism"]
    assert spec.identity()["mechanism"]["questions"] == ["density"]


@pytest.mark.slow
@pytest.mark.parametrize("axes", [1, 2])
def test_answers_are_about_as_wide_as_was_predicted(axes):
    spec, plan = asking("cdf", "mass", "quantile", axes=axes)
    rows = (np.arange(5000 * axes).reshape(axes, -1) * 0.6180339887 + 0.123) % 1.0
    told = released((spec, plan), columns(rows.T), 0)
    answers = {
        "cdf": told.cdf(0.503, "x"),
        "mass": told.mass(dict.fromkeys(AXES[:axes], (0.247, 0.751))),
        "quantile": told.quantile(0.5, "x"),
    }
    for name, answer in answers.items():
        predicted = plan.outlook.questions[name]
        assert 0.7 < float(answer.high - answer.low) / predicted < 1.4, name


@pytest.mark.parametrize(
    ("questions", "changes", "says"),
    [
        (["densty"], {}, r"mechanism.questions: .*Write questions = \[\"density\", \"mass\""),
        ([], {}, "mechanism.questions: has too few entries"),
        (["cdf"], {"noise": "laplace"}, 'told by bins, and "laplace" has none here. Write noise'),
        (["cdf"], {"noise": "spectral-laplace"}, '"spectral-laplace" has none here'),
        (["mass"], {"covariance": [[0.01]], "bandwidth": ()}, '"kernel-density" counts no rows'),
        (["mass"], {"kind": "priestley-chao", "max_gap": 0.01}, '"priestley-chao" counts no rows'),
    ],
)
def test_questions_that_cannot_be_answered_are_refused(questions, changes, says):
    roles = {"response": {"column": "r", "bounds": [0.0, 1.0]}}
    mechanism = {"questions": questions, "noise": changes.pop("noise", "auto"), "k": "auto",
                 "h": "auto"}  # fmt: skip
    given = sections(
        data={"n": 500, **(roles if "kind" in changes else {})}, mechanism=mechanism,
        target={"bandwidth": [0.1], **changes},
    )  # fmt: skip
    with pytest.raises(SpecError, match=says):
        plan_files(dbern.ReleaseSpec(**given), ())
