"""``dbern ask`` answers as Python does, and files of regions in parts."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from projects import records

import dbern
from dbern.errors import SpecError
from dbern.synopsis.questions.region_files import _region_file

pytestmark = pytest.mark.slow
BOX = {"x": (2.0, 7.5), "y": (None, 0.25)}


@pytest.fixture
def released(project, run):
    project.spec(mechanism={"k": None, "h": None, "noise": "binned-laplace"})
    assert run("release", "release.toml").code == 0
    return dbern.open(project.output).distribution()


@pytest.fixture
def rows(run):
    """Ask, and return the rows of the table."""

    def asked(*words):
        ran = run("ask", "out.zarr", *words, "--csv")
        assert ran.code == 0, ran.err
        return list(csv.DictReader(io.StringIO(ran.out)))

    return asked


@pytest.fixture
def refusal(run):
    """Ask what cannot be answered, and return what is said of it."""

    def asked(*words):
        ran = run("ask", "out.zarr", *words)
        assert (ran.code, ran.out) == (2, "")
        return ran.err

    return asked


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
    spread = run("ask", "out.zarr", "--cov", "--correlation", "--quiet").out
    with released.confidence(0.05, questions=2) as asked:
        both = f"{asked.cov('x', 'y')}\n{asked.correlation('x', 'y')}\n"
    assert spread == f"{both}all 2 answers hold at once with probability 0.95\n"
    plain = run("ask", "out.zarr", "--mean", "--given", "y=0..", "--beta", "0.1").out
    with released.confidence("0.1", questions=1) as asked:
        assert plain == f"{asked.mean('x', given={'y': (0.0, None)})}\n"


def test_the_target_of_shares_counts_and_quantiles_is_asked_for(released, run):
    words = ("ask", "out.zarr", "--mass", "x=2..7.5", "--count", "x=3..", "--quantile", "x=.5",
             "--cdf", "x=4", "--mean", "--target", "smoothed")  # fmt: skip
    told = json.loads(run(*words, "--json").out)
    assert [one["target"] for one in told["questions"]] == ["smoothed"] * 4 + ["records"] * 2
    (row,) = told["questions"][0]["answers"]
    with released.confidence(0.05, questions=6) as asked:
        answer = asked.mass({"x": (2.0, 7.5)}, target="smoothed")
    assert [row["value"], row["low"], row["high"]] == numbers(answer)
    assert "share of the rows" not in run(*words).out
    assert run(*words[:-1], "rows").code == 2


def test_a_wide_answer_has_its_likely_error_and_what_makes_it_narrower(released, run, rows):
    ran = run("ask", "out.zarr", "--mass", "x=2..2.5")
    answer = released.mass({"x": (2.0, 2.5)})
    assert ran.out == f"{answer}\n"
    assert "not guaranteed" in ran.out
    assert "--target smoothed" in ran.out
    (told,) = json.loads(run("ask", "out.zarr", "--mass", "x=2..2.5", "--json").out)["questions"]
    assert told["note"] == answer.note
    assert told["answers"][0]["likely_error"] == answer.likely_error
    share, covariance = rows("--mass", "x=2..2.5", "--cov")
    assert float(share["likely_error"]) == answer.likely_error
    assert covariance["likely_error"] == ""


def test_several_answers_are_followed_by_the_confidence_of_all(released, run):
    words = ("ask", "out.zarr", "--mass", "x=2..4", "--mean", "--beta", "0.2")
    *answers, last = run(*words).out.splitlines()
    assert answers[0].endswith("with probability 0.933333 (records, these data)")
    assert last == "all 3 answers hold at once with probability 0.8"
    assert json.loads(run(*words, "--json").out)["beta"] == "0.2"
    assert "hold at once" not in run("ask", "out.zarr", "--mass", "x=2..4").out


def test_places_and_points_are_answered_as_in_python(released, rows):
    answers = rows("--cdf", "x=2,5", "--marginal", "y=-.5,.25", "--density", "x=3,y=.5")
    with released.confidence(0.05, questions=3) as asked:
        share = str(Fraction(1, 120))
        found = [numbers(asked.mass({"x": (None, place)}, beta=share)) for place in (2.0, 5.0)]
        marginal = asked.marginal([-0.5, 0.25], "y")
        found += np.stack([marginal.value, marginal.low, marginal.high], axis=-1).tolist()
        density = asked.density([[3.0, 0.5]])
        found.append([one.item() for one in (density.value, density.low, density.high)])
    assert [[float(row[end]) for end in ("value", "low", "high")] for row in answers] == found
    assert [row["place"] for row in answers] == ["", "", "-0.5", "0.25", ""]
    assert "share of the rows in x from its lower bound to 5.0" in answers[1]["question"]
    assert answers[-1]["question"].endswith(", at x=3,y=.5")


def test_a_file_of_regions_is_read_in_parts_that_share_the_confidence(
    released, rows, project, monkeypatch
):
    lines = ["name,x_low,x_high,y_low,y_high", *(f"r{i},{i},{i + 2},,0.{i}" for i in range(1, 6))]
    (project.folder / "regions.csv").write_text("\n".join(lines))
    monkeypatch.setattr("dbern.synopsis.questions.region_files._BATCH_BOXES", 2)
    answers = rows("--mass", "regions.csv")
    assert [row["region"] for row in answers] == ["r1", "r2", "r3", "r4", "r5"]
    for i, row in enumerate(answers, start=1):
        with released.confidence(0.05) as asked:
            first = i - (i - 1) % 2
            part = [{"x": (j, j + 2), "y": (None, j / 10)} for j in (first, first + 1) if j < 6]
            answer = asked.mass(part, beta=str(Fraction(1, 20) * len(part) / 5))
        ends = [float(getattr(answer, end)[i - first]) for end in ("value", "low", "high")]
        assert [float(row[end]) for end in ("value", "low", "high")] == ends


def test_regions_keep_their_names_and_a_file_without_any_is_refused(
    released, run, rows, refusal, project
):
    shape = {"type": "Polygon", "coordinates": [[[1, -1], [4, -1], [4, 0], [1, -1]]]}
    named = [{"type": "Feature", "properties": {"name": "north"}, "geometry": shape},
             {"type": "Feature", "properties": None, "geometry": shape}]  # fmt: skip
    text = json.dumps({"type": "FeatureCollection", "features": named})
    (project.folder / "some.geojson").write_text(text, encoding="utf-8")
    table = "name,x_low,x_high,y_low,y_high\nsouth,1,2,,\n,2,3,,\n"
    (project.folder / "some.csv").write_text(table, encoding="utf-8")
    for file, names in (("some.geojson", ["north", "1"]), ("some.csv", ["south", "1"])):
        assert [row["region"] for row in rows("--mass", file)] == names
        lines = run("ask", "out.zarr", "--mass", file).out.splitlines()
        assert [line.split()[0] for line in lines[3:5]] == names
        told = json.loads(run("ask", "out.zarr", "--mass", file, "--json").out)["questions"]
        assert [row["region"] for row in told[0]["answers"]] == names
    (project.folder / "one.csv").write_text("name,x_low,x_high,y_low,y_high\neast,1,2,,\n")
    assert "\neast " in run("ask", "out.zarr", "--mass", "one.csv").out
    (project.folder / "none.csv").write_text("x_low,x_high,y_low,y_high\n", encoding="utf-8")
    assert "there is no row in it" in refusal("--mass", "none.csv", "--csv")


def test_polygons_are_read_from_geojson(released, run, project):
    corners = [[2.0, -0.5], [8.0, -0.5], [8.0, 0.5], [2.0, -0.5]]
    shape = {"type": "Polygon", "coordinates": [corners]}
    (project.folder / "district.geojson").write_text(json.dumps(shape))
    ran = run("ask", "out.zarr", "--mass", "district.geojson", "--json")
    assert ran.code == 0, ran.err
    (row,) = json.loads(ran.out)["questions"][0]["answers"]
    with released.confidence(0.05, questions=1) as asked:
        assert [row["value"], row["low"], row["high"]] == numbers(asked.mass(shape))


def feature(i):
    corners = [[i, -0.5], [i + 2.0, -0.5], [i + 2.0, 0.5], [i, -0.5]]
    return {"type": "Feature", "id": i, "geometry": {"type": "Polygon", "coordinates": [corners]}}


@pytest.mark.parametrize("name", ["some.geojson", "some.geojsonl", "some.ndjson"])
def test_a_file_of_polygons_is_read_in_parts(released, rows, project, monkeypatch, name):
    numbers = 2 * max(1024, released.measures[0].values.size)
    monkeypatch.setattr("dbern.synopsis.questions.region_files._BATCH_NUMBERS", numbers)
    features = [feature(i) for i in range(1, 6)]
    whole = {"name": 'a "features": [', "v": 12, "features": features, "type": "FeatureCollection"}
    text = json.dumps(whole, indent=1)
    if name != "some.geojson":
        text = "\n".join(map(json.dumps, features)) + "\n\n"
    (project.folder / name).write_text(text)
    answers = rows("--mass", name)
    assert [int(row["region"]) for row in answers] == [0, 1, 2, 3, 4]
    part = {"type": "FeatureCollection", "features": features[2:4]}
    with released.confidence(0.05) as asked:
        answer = asked.mass(part, beta=str(Fraction(1, 20) * 2 / 5))
    ends = [[float(row[end]) for row in answers[2:4]] for end in ("value", "low", "high")]
    assert ends == [getattr(answer, end).values.tolist() for end in ("value", "low", "high")]


@pytest.mark.parametrize("name", ["some.geojson", "some.geojsonl"])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ('"type": "Feature", "geometry": null, "x"', ": feature 3: region: write GeoJSON of type"),
        ('"geometry": {"type": "Polygon", "coordinates": [[[0, 99]]]}, "x"', "3: region: a ring"),
        ('"geometry": {"type": "Polygon", "coordinates": 7}, "x"', "3: region: coordinates must"),
    ],
)
def test_a_damaged_feature_is_named(released, refusal, project, name, damage, said):
    texts = [json.dumps(feature(i)) for i in (1, 2)]
    texts.append("{" + damage + ": 0}")
    between = ",\n" if name == "some.geojson" else "\n"
    text = between.join(texts)
    text = '{"type": "FeatureCollection", "features": [' + text if "," in between else text
    (project.folder / name).write_text(text + ("]}" if "," in between else "\n"))
    message = refusal("--mass", name)
    assert f"{name}: feature 3: " in message
    assert said in message


def test_a_damaged_line_is_named(released, refusal, project):
    (project.folder / "some.geojsonl").write_text(json.dumps(feature(1)) + '\n{"type"\n')
    message = refusal("--mass", "some.geojsonl")
    assert "some.geojsonl: feature 2: cannot be read as GeoJSON" in message


def test_a_large_file_of_polygons_takes_little_memory(project):
    """So many features that the file is ten times as large as what is held of it."""
    line = json.dumps(feature(3))
    path = project.folder / "some.ndjson"
    with path.open("w") as file:
        file.writelines(line + "\n" for _ in range(100_001))
    tracemalloc.start()
    try:
        assert sum(1 for _ in _region_file(str(path)).rows()) == 100_001
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size / 10
    finally:
        tracemalloc.stop()


def test_a_collection_beyond_what_is_read_at_once_is_told_how_to_be(tmp_path, monkeypatch):
    monkeypatch.setattr("dbern.synopsis.questions.region_files._MAX_CHARACTERS", 100)
    path = tmp_path / "some.json"
    path.write_text(json.dumps({"features": [feature(1)]}))
    with pytest.raises(SpecError, match=r"more than 100 characters\. Write one feature a line"):
        list(_region_file(str(path)).rows())


FORMULAS = ["=cmd|' /C calc'!A0", "+1", "-2+3", "@sum", "\tx", "\rx", "\x1b]0;title\x07", "\ud800"]


def test_csv_holds_no_formula_and_nothing_that_a_terminal_obeys(released, run, project):
    shape = feature(3)["geometry"]
    named = [{"type": "Feature", "properties": {"name": one}, "geometry": shape}
             for one in FORMULAS]  # fmt: skip
    text = json.dumps({"type": "FeatureCollection", "features": named})
    (project.folder / "some.geojson").write_text(text, encoding="utf-8")
    ran = run("ask", "out.zarr", "--mass", "some.geojson", "--csv")
    assert ran.code == 0, ran.err
    assert ran.out.replace("\n", "").replace("\r", "").isprintable()
    regions = [row["region"] for row in csv.DictReader(io.StringIO(ran.out))]
    assert regions[:4] == [f"'{one}" for one in FORMULAS[:4]]
    assert regions[4:] == ["\\tx", "\\rx", "\\x1b]0;title\\x07", "\\ud800"]


def test_coordinates_that_no_float_holds_and_features_that_are_none_are_refused(
    released, refusal, project
):
    many = feature(1)
    many["geometry"]["coordinates"][0][0][0] = int("9" * 400)
    for content, said in (
        (many, "feature 1: region: coordinates must be rings of points"),
        ({"type": "FeatureCollection", "features": 5}, "cannot be read as GeoJSON"),
        ({"type": "FeatureCollection", "features": [5]}, "cannot be read as GeoJSON"),
        ({"features": []}, "there is no feature in it"),
    ):
        (project.folder / "some.geojson").write_text(json.dumps(content))
        assert said in refusal("--mass", "some.geojson")
    shape = {"type": "FeatureCollection", "features": 5}
    with pytest.raises(SpecError, match="has no feature"):
        released.mass(shape)
    with pytest.raises(SpecError, match="a feature is no object"):
        released.mass({**shape, "features": [5]})


@pytest.mark.parametrize("beta", ["1e-400000000", "1e400000000", "1/0", "1e-300", "0", "1", "x"])
def test_a_confidence_that_cannot_be_is_refused_at_once(released, refusal, project, beta):
    assert refusal("--mean", "--beta", beta).startswith("dbern: beta: ")
    with pytest.raises(SpecError, match=r"^beta: "):
        released.mean("x", beta=beta)
    with pytest.raises(SpecError, match=r"^beta: "):
        dbern.open(project.output).band(beta)


@pytest.mark.parametrize(
    "text",
    ["", "7", "[]", '{"features": 7}', '{"features": [7]}', '{"features": [{}', "{" * 99_999],
)
def test_what_is_no_geojson_is_refused(tmp_path, text):
    path = tmp_path / "some.json"
    path.write_text(text)
    with pytest.raises(SpecError, match="cannot be read as GeoJSON"):
        list(_region_file(str(path)).rows())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "write at least one of --mass"),
        (["--mass", "somewhere"], "neither a box nor a file"),
        (["--mass", "gone.csv"], "gone.csv: there is no such file"),
        (["--mass", "gone.json"], "gone.json: there is no such file"),
        (["--mass", "bad.csv"], 'bad.csv: has no column "x_low"'),
        (["--mass", "wide.csv"], "wide.csv: row 2: region: x leaves its bounds"),
        (["--mass", "gone.geojson"], "gone.geojson: there is no such file"),
        (["--quantile", "x"], "Write AXIS=LEVELS"),
        (["--quantile", "q=.5"], "Write one of x, y"),
        (["--cdf", "x=2,"], "Write AXIS=PLACES"),
        (["--marginal", "x=40"], "all within the bounds of x"),
        (["--density", "x=3,y"], "Write one such as x=3,y=5"),
        (["--density", "x=3"], 'no column "y"'),
        (["--density", "x=3,y=0", "--given", "x=..2"], "Ask for --marginal"),
        (["--mean", "--beta", "2"], "between 0 and 1"),
    ],
)
def test_what_cannot_be_asked_is_refused(released, refusal, project, arguments, said):
    (project.folder / "bad.csv").write_text("a,b\n1,2\n")
    lines = "x_low,x_high,y_low,y_high\n3,4,,\n3,4000,,\n"
    (project.folder / "wide.csv").write_text(lines)
    assert said in refusal(*arguments)


@pytest.fixture
def regression(project, run):
    rows = records(2000)
    rows["fare"] = [10.0 + i % 3 for i in range(2000)]
    project.write(rows)
    project.spec(
        target={"kind": "nadaraya-watson"},
        data__response={"column": "fare", "bounds": [0.0, 20.0]},
        mechanism={"k": None, "h": None, "noise": "binned-laplace"},
    )
    assert run("release", "release.toml").code == 0
    return dbern.open(project.output).distribution()


def test_a_regression_is_asked_as_in_python(regression, run, rows):
    words = ("--average", "x=2..5", "--curve", "x=2,5", "--curve", "y", "--difference",
             "x=5.. less x=..5", "--difference", "x=2,y=0 less x=5,y=0",
             "--given", "y=0..")  # fmt: skip
    assert run("ask", "out.zarr", *words).code == 2  # but for curves there is no condition
    answers = rows(*words[:-2])
    with regression.confidence(0.05, questions=5) as asked:
        found = [numbers(asked.average({"x": (2.0, 5.0)}))]
        for curve in (
            asked.curve_along([2.0, 5.0], "x"),
            asked.curve_along(np.linspace(-1, 1, 21), "y"),
        ):
            found += np.stack([curve.value, curve.low, curve.high], axis=-1).tolist()
        found.append(numbers(asked.difference({"x": (5.0, None)}, {"x": (None, 5.0)})))
        found.append(numbers(asked.difference([[2.0, 0.0]], [[5.0, 0.0]])))
    assert [[float(row[end]) for end in ("value", "low", "high")] for row in answers] == found
    assert answers[-1]["question"].endswith(", at x=2,y=0 less x=5,y=0")
    for target in ("records", "smoothed"):
        given = rows("--curve", "x=2,5", "--given", "y=0..", "--target", target)
        with regression.confidence(0.05, questions=1) as asked:
            curve = asked.curve_along([2.0, 5.0], "x", given={"y": (0.0, None)}, target=target)
        assert [float(row["low"]) for row in given] == curve.low.values.tolist()


def test_averages_of_the_regions_of_a_file_have_their_names(regression, rows, project):
    (project.folder / "regions.csv").write_text("name,x_low,x_high,y_low,y_high\na,,5,,\nb,5,,,\n")
    answers = rows("--average", "regions.csv")
    assert [row["region"] for row in answers] == ["a", "b"]
    with regression.confidence(0.05, questions=1) as asked:
        known = asked.average([{"x": (None, 5.0)}, {"x": (5.0, None)}])
    assert [float(row["low"]) for row in answers] == known.low.values.tolist()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--difference", "x=1..2"], '"x=1..2" is no difference. Write two boxes, as'),
        (["--difference", "here less there"], "is no difference. Write two boxes, as"),
        (["--difference", "x=1..2 less x=3..4 less x=5..6"], "is no difference"),
        (["--difference", "x=1..2 less x=3,y=0"], "write two points, or two regions"),
        (["--difference", "x=1..2 between a and b"], "groups: this release has none"),
        (["--curve", "z"], "axis: 'z' is none. Write one of x, y"),
        (["--curve", "x=2,"], '"x=2," is none. Write AXIS[=PLACES], such as x=.5'),
        (["--curve", "x=20"], "all within the bounds of x"),
        (["--curve", "x=2", "--given", "x=3.."], "x is what is asked about"),
        (["--average", "x=1..2", "--given", "y=0.."], "Write it into the box of --average"),
        (["--compare", "x=1..2"], "Write --with OTHER.zarr too"),
        (["--mean", "--with", "out.zarr"], "is the other release of --compare"),
        (["--compare", "x=1..2", "--with", "out.zarr", "--given", "y=0.."], "has no condition"),
    ],
)
def test_what_a_regression_cannot_be_asked_is_refused(regression, refusal, words, said):
    assert regression.response is not None
    assert said in " ".join(refusal(*words).split())


def test_groups_are_asked_what_they_differ_by(project, run, rows):
    group = {"column": "note", "values": ["private-1", "private-2"]}
    project.spec(data__group=group, mechanism={"k": None, "h": None, "noise": "binned-laplace"})
    assert run("release", "release.toml").code == 0
    d = dbern.open(project.output).distribution()
    first, second = group["values"]
    words = [f"x=2..5 between {second} and {first}", f"x=2,y=0 between {second} and {first}"]
    region, point = rows("--difference", words[0], "--difference", words[1])
    with d.confidence(0.05, questions=2) as asked:
        for row, where in ((region, {"x": (2.0, 5.0)}), (point, [[2.0, 0.0]])):
            answer = asked.difference(where, groups=(second, first))
            assert [float(row[end]) for end in ("value", "low", "high")] == numbers(answer)


def test_two_releases_are_compared_as_in_python(released, project, run, rows):
    project.spec(
        release={"name": "other", "output": "other.zarr"},
        mechanism={"k": None, "h": None, "noise": "binned-laplace"},
    )
    assert run("release", "release.toml").code == 0
    other = dbern.open(project.folder / "other.zarr").distribution()
    for target in ("records", "smoothed"):
        (row,) = rows("--compare", "x=2..5", "--with", "other.zarr", "--target", target)
        with released.confidence(0.05, questions=1) as asked:
            answer = asked.compare(other, {"x": (2.0, 5.0)}, target=target)
        assert [float(row[end]) for end in ("value", "low", "high")] == numbers(answer)
        assert row["question"].endswith("less that of other")
