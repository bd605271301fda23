"""``dbern ask`` answers as Python does, and files of regions in parts."""

from __future__ import annotations

import csv
import io
import json
from fractions import Fraction

import numpy as np
import pytest

import dbern

pytestmark = pytest.mark.slow
BOX = {"x": (2.0, 7.5), "y": (None, 0.25)}


@pytest.fixture
def released(project, run):
    project.spec(mechanism={"k": None, "h": None, "noise": "binned-laplace"})
    assert run("release", "release.toml").code == 0
    return dbern.open(project.output).distribution()


def numbers(answer):
    return [float(getattr(answer, end)) for end in ("value", "low", "high")]


def test_every_question_is_answered_as_in_python(released, run):
    ran = run("ask", "out.zarr", "--mass", "x=2..7.5,y=..0.25", "--count", "x=3..", "--quantile",
              "x=.25,.75", "--mean", "--given", "y=0..", "--json")  # fmt: skip
    assert ran.code == 2  # counts have no condition
    ran = run("ask", "out.zarr", "--mass", "x=2..7.5,y=..0.25", "--count", "x=3..", "--quantile",
              "x=.25,.75", "--mean", "--json")  # fmt: skip
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    with released.confidence(0.05, questions=5) as asked:
        found = [asked.mass(BOX), asked.count({"x": (3.0, None)})]
        found += [asked.quantile([0.25, 0.75], "x"), asked.mean("x"), asked.mean("y")]
    assert told["beta"] == "0.05"
    assert [one["target"] for one in told["questions"]] == ["records"] * 5
    for one, answer in zip(told["questions"], found, strict=True):
        if answer is found[2]:
            assert [row["quantile"] for row in one["answers"]] == [0.25, 0.75]
            assert [row["low"] for row in one["answers"]] == answer.low.values.tolist()
            continue
        (row,) = one["answers"]
        assert [row["value"], row["low"], row["high"]] == numbers(answer)
    plain = run("ask", "out.zarr", "--mean", "--given", "y=0..", "--beta", "0.1").out
    with released.confidence("0.1", questions=1) as asked:
        assert plain == f"{asked.mean('x', given={'y': (0.0, None)})}\n"


def test_places_and_points_are_answered_as_in_python(released, run):
    ran = run("ask", "out.zarr", "--cdf", "x=2,5", "--marginal", "y=-.5,.25", "--density",
              "x=3,y=.5", "--csv")  # fmt: skip
    assert ran.code == 0, ran.err
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    with released.confidence(0.05, questions=3) as asked:
        share = str(Fraction(1, 120))
        found = [numbers(asked.mass({"x": (None, place)}, beta=share)) for place in (2.0, 5.0)]
        marginal = asked.marginal([-0.5, 0.25], "y")
        found += np.stack([marginal.value, marginal.low, marginal.high], axis=-1).tolist()
        density = asked.density([[3.0, 0.5]])
        found.append([one.item() for one in (density.value, density.low, density.high)])
    assert [[float(row[end]) for end in ("value", "low", "high")] for row in rows] == found
    assert [row["place"] for row in rows] == ["", "", "-0.5", "0.25", ""]
    assert "share of the rows in x from its lower bound to 5.0" in rows[1]["question"]
    assert rows[-1]["question"].endswith(", at x=3,y=.5")


def test_a_file_of_regions_is_read_in_parts_that_share_the_confidence(
    released, run, project, monkeypatch
):
    lines = ["name,x_low,x_high,y_low,y_high", *(f"r{i},{i},{i + 2},,0.{i}" for i in range(1, 6))]
    (project.folder / "regions.csv").write_text("\n".join(lines))
    monkeypatch.setattr("dbern.cli.ask._AT_ONCE", 2)
    ran = run("ask", "out.zarr", "--mass", "regions.csv", "--csv")
    assert ran.code == 0, ran.err
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [int(row["region"]) for row in rows] == [0, 1, 2, 3, 4]
    for i, row in enumerate(rows, start=1):
        with released.confidence(0.05) as asked:
            first = i - (i - 1) % 2
            part = [{"x": (j, j + 2), "y": (None, j / 10)} for j in (first, first + 1) if j < 6]
            answer = asked.mass(part, beta=str(Fraction(1, 20) * len(part) / 5))
        ends = [float(getattr(answer, end)[i - first]) for end in ("value", "low", "high")]
        assert [float(row[end]) for end in ("value", "low", "high")] == ends


def test_polygons_are_read_from_geojson(released, run, project):
    corners = [[2.0, -0.5], [8.0, -0.5], [8.0, 0.5], [2.0, -0.5]]
    shape = {"type": "Polygon", "coordinates": [corners]}
    (project.folder / "district.geojson").write_text(json.dumps(shape))
    ran = run("ask", "out.zarr", "--mass", "district.geojson", "--json")
    assert ran.code == 0, ran.err
    (row,) = json.loads(ran.out)["questions"][0]["answers"]
    with released.confidence(0.05, questions=1) as asked:
        assert [row["value"], row["low"], row["high"]] == numbers(asked.mass(shape))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "write at least one of --mass"),
        (["--mass", "somewhere"], "neither a box nor a file"),
        (["--mass", "gone.csv"], "gone.csv: cannot be read as CSV"),
        (["--mass", "gone.json"], "cannot be read as GeoJSON"),
        (["--mass", "bad.csv"], 'bad.csv: has no column "x_low"'),
        (["--mass", "wide.csv"], "wide.csv: row 2: region: x leaves its bounds"),
        (["--mass", "gone.geojson"], "cannot be read as GeoJSON"),
        (["--quantile", "x"], "Write AXIS=LEVELS"),
        (["--quantile", "q=.5"], "Write one of x, y"),
        (["--cdf", "x=2,"], "Write AXIS=PLACES"),
        (["--marginal", "x=40"], "outside the bounds"),
        (["--density", "x=3,y"], "Write one such as x=3,y=5"),
        (["--density", "x=3"], 'no column "y"'),
        (["--density", "x=3,y=0", "--given", "x=..2"], "Ask for --marginal"),
        (["--mean", "--beta", "2"], "between 0 and 1"),
    ],
)
def test_what_cannot_be_asked_is_refused(released, run, project, arguments, said):
    (project.folder / "bad.csv").write_text("a,b\n1,2\n")
    lines = "x_low,x_high,y_low,y_high\n3,4,,\n3,4000,,\n"
    (project.folder / "wide.csv").write_text(lines)
    ran = run("ask", "out.zarr", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
