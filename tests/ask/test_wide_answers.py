"""What an answer says where cells make it wide, and what makes it narrower."""

from __future__ import annotations

import re

import numpy as np
import pytest
from banding import planned
from questioned import asked, databases, grouped, responding

from dbern.errors import SpecError

pytestmark = pytest.mark.filterwarnings("ignore:each answer holds")

QUESTIONS = 'questions = ["mass", "quantile"]'
CELLS = "most of the interval is the cells' width: "


def rides():
    """6433 rows through a day."""
    draw, n = np.random.default_rng(7), 6433
    return np.concatenate([draw.beta(9, 16, n // 2), draw.beta(17, 8, n - n // 2)])[:, None]


def test_an_answer_of_sharp_edges_says_why_it_is_wide_and_what_helps():
    d = asked(rides(), 1)
    for answer in (d.mass({"x": (0.3, 0.4)}), d.count({"x": (0.3, 0.4)}), d.cdf(0.4),
                   d.quantile(0.5), d.compare(d, {"x": (0.3, 0.4)})):  # fmt: skip
        first, note = str(answer).split("\n")
        assert "cells" not in first
        assert note.startswith(CELLS)
        assert QUESTIONS in note
        assert re.search(r"\[data.resolution\] x = ..: it is (about|more than) [0-9.]+ times", note)
        assert "smoothed" not in note  # which is another number: 21 % where 27 % of the rows were
        assert CELLS.replace("'", "&#x27;") in answer._repr_html_()
    loud, quiet = (
        asked(rides(), 1, epsilon=epsilon).mass({"x": (0.3, 0.4)}) for epsilon in (0.05, 1e5)
    )
    factor = float(re.search(r"about ([0-9.]+) times as wide as with", loud.note)[1])
    width, edges = loud.high - loud.low, quiet.high - quiet.low
    assert factor == pytest.approx(width / (width - edges), rel=0.25)
    table = d.mass([{"x": (0.3, 0.4)}, {"x": (0.4, 0.6)}])
    assert str(table).splitlines()[-1].startswith(CELLS)
    assert set(table.to_dataset()) == {"value", "low", "high"}


def test_an_answer_whose_width_is_noise_says_nothing_of_cells():
    d = asked(rides(), 1)
    for answer in (d.mass({"x": (0.3, 0.4)}, target="smoothed"), d.mass({}), d.mean(), d.var(),
                   d.density([[0.5]]), asked(rides(), 1, cells=90, epsilon=0.05).cdf(0.5),
                   ):  # fmt: skip
        assert answer.note == ""
        assert "cells" not in str(answer)


def test_the_remedy_of_a_question_that_takes_no_target_is_the_release():
    d = asked(databases(2, 5000)["smooth"], 1)
    assert QUESTIONS in d.mean("x", given={"y": (0.2, 0.4)}).note


@pytest.mark.slow
def test_both_remedies_make_the_interval_narrower():
    box, d = {"x": (0.3, 0.4)}, asked(rides(), 1)
    answer, smoothed = d.mass(box), d.mass(box, target="smoothed")
    assert smoothed.high - smoothed.low < (answer.high - answer.low) / 4
    _, plan = planned(1, 6433, noise="auto", questions=("mass", "quantile"))
    (maps,) = plan.components[0].maps
    narrower = asked(rides(), 1, cells=maps.cells, degree=maps.degree).mass(box)
    assert narrower.high - narrower.low < (answer.high - answer.low) / 2


def test_smoothed_answers_do_not_speak_of_shares_of_rows():
    rows, box = databases(2, 5000)["smooth"], {"x": (0.3, 0.4)}
    d = asked(rows, 1)
    for answer, start in (
        (d.mass(box, target="smoothed"), "share of the smoothed density in x 0.3 to 0.4: "),
        (d.mass({"y": (0.1, 0.5)}, given=box, target="smoothed"),
         "share of the smoothed density with x 0.3 to 0.4 in y 0.1 to 0.5: "),
        (d.count(box, target="smoothed"), "rows by the smoothed density in x 0.3 to 0.4: "),
        (d.quantile(0.5, "x", target="smoothed"), "quantile 0.5 of x by the smoothed density: "),
    ):  # fmt: skip
        assert f"{answer.question}: ".startswith(start)
        assert "the rows" not in str(answer)
    assert " % of the rows lie in x 0.3 to 0.4 (" in str(d.mass(box))
    half = grouped(rows, np.arange(len(rows)) % 2).average(box, target="smoothed")
    assert half.question == "share of the group, each row weighed by its kernel's part, in " + (
        "x 0.3 to 0.4"
    )


def test_means_of_responses_say_it_too():
    rows = databases(1, 5000)["uniform"]
    d = responding(rows, (rows[:, 0] > 0.5) * 1.0)
    assert d.average({"x": (0.45, 0.53)}).note.startswith(CELLS)
    assert d.difference({"x": (0.45, 0.53)}, {"x": (0.1, 0.2)}).note.startswith(CELLS)
    assert d.difference([[0.45]], [[0.1]]).note == ""


def test_smoothed_polygons_of_responses_are_refused_and_not_proposed():
    rows = databases(2, 5000)["uniform"]
    d = responding(rows, rows[:, 0], exact=None)
    corners = [[0.1, 0.1], [0.2, 0.1], [0.15, 0.3], [0.1, 0.1]]
    shape = {"type": "Polygon", "coordinates": [corners]}
    for answer in (d.average(shape), d.difference(shape, {**shape})):
        assert QUESTIONS in answer.note
    with pytest.raises(SpecError, match="of polygons ask for the records"):
        d.average(shape, target="smoothed")


def test_regions_of_geojson_keep_their_names():
    d = asked(databases(2, 5000)["smooth"], 1)
    corners = [[[0.1, 0.1], [0.5, 0.1], [0.5, 0.5], [0.1, 0.1]]]
    shape = {"type": "Polygon", "coordinates": corners}
    features = [{"type": "Feature", "properties": {"name": name}, "geometry": shape}
                for name in ("Nord\x1b[2J", None)]  # fmt: skip
    answer = d.mass({"type": "FeatureCollection", "features": features})
    assert answer.value.region.values.tolist() == ["Nord\\x1b[2J", "1"]
    assert "Nord\\x1b[2J" in str(answer)
    for properties in ([], "name", {"name": {}}, 5):
        features[0]["properties"] = properties
        d.mass({"type": "FeatureCollection", "features": features})
    with pytest.raises(SpecError, match="polygons are not available here"):
        d.mass({"x": (0, 1)}, given=shape)
