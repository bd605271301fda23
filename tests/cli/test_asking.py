"""``dbern ask`` answers as Python does, and files of regions in parts."""

from __future__ import annotations

import csv
import io
import json
import shutil
import tracemalloc
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from projects import fix_reservations, records, released_in

import dbern
from dbern.ask.region_files import _region_file
from dbern.errors import SpecError

pytestmark = pytest.mark.slow
BOX = {"x": (2.0, 7.5), "y": (None, 0.25)}
ENDS = ("value", "low", "high")
GROUPS = ["private-1", "private-2"]
FARES = {"fare": [10.0 + i % 3 for i in range(2000)]}
KINDS = {
    "density": (records(), {}),
    "other": (records(), {"release": {"name": "other"}}),
    "groups": (records(), {"data__group": {"column": "note", "values": GROUPS}}),
    "regression": (
        records(2000) | FARES,
        {
            "target": {"kind": "nadaraya-watson"},
            "data__response": {"column": "fare", "bounds": [0.0, 20.0]},
        },
    ),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory, client):
    """Releases a kind once, whichever test wants it first."""

    @cache
    def released(kind):
        columns, changes = KINDS[kind]
        bins = {"k": None, "h": None, "noise": "binned-laplace"}
        with pytest.MonkeyPatch.context() as patch:
            fix_reservations(patch.setattr)
            folder = tmp_path_factory.mktemp(kind)
            return released_in(folder, client, columns, mechanism=bins, **changes).url

    return released


@pytest.fixture
def copied(store, project):
    """Copies the store of a kind to where the commands look for it."""

    def copy(kind, name="out.zarr"):
        return dbern.open(shutil.copytree(store(kind), project.folder / name)).distribution()

    return copy


@pytest.fixture
def released(copied):
    return copied("density")


@pytest.fixture
def regression(copied):
    return copied("regression")


@pytest.fixture
def rows(run):
    """Ask, and return the rows of the table."""

    def asked(*words):
        ran = run("ask", "out.zarr", *words, "--csv")
        assert ran.code == 0, ran.err
        return list(csv.DictReader(io.StringIO(ran.out)))

    return asked


@pytest.fixture
def questions(run):
    """Ask, and return the questions of the JSON."""

    def asked(*words):
        ran = run("ask", "out.zarr", *words, "--json")
        assert ran.code == 0, ran.err
        return ran.json["questions"]

    return asked


@pytest.fixture
def refusal(run):
    """Ask what cannot be answered, and see that so much is said of it."""

    def asked(*words, said=""):
        run("ask", "out.zarr", *words).refused(2, said)

    return asked


def numbers(answer):
    """The three numbers of one answer, or of each."""
    return np.stack([getattr(answer, end) for end in ENDS], axis=-1).tolist()


def numbers_of(row):
    """Those of a row of a table, or of JSON."""
    return [float(row[end]) for end in ENDS]


def test_every_question_is_answered_as_in_python(released, run, questions, refusal):
    words = ("--mass", "x=2..7.5,y=..0.25", "--count", "x=3..", "--quantile", "x=.25,.75", "--mean")
    refusal(*words, "--given", "y=0..")  # counts have no condition
    told = questions(*words)
    assert run("ask", "out.zarr", *words, "--json").json["beta"] == "0.05"
    with released.confidence(0.05, questions=5) as asked:
        found = [asked.mass(BOX), asked.count({"x": (3.0, None)})]
        found += [asked.quantile([0.25, 0.75], "x"), asked.mean("x"), asked.mean("y")]
    assert [one["target"] for one in told] == ["records"] * 5
    for one, answer in zip(told, found, strict=True):
        rows = [numbers_of(row) for row in one["answers"]]
        assert rows == np.reshape(numbers(answer), (-1, 3)).tolist()
    assert [row["quantile"] for row in told[2]["answers"]] == [0.25, 0.75]
    spread = run("ask", "out.zarr", "--cov", "--correlation", "--quiet").out
    with released.confidence(0.05, questions=2) as asked:
        both = [asked.cov("x", "y"), asked.correlation("x", "y")]
    texts = [answer.text(confidence=False) for answer in both]
    assert spread == "\n".join([*texts, "All 2 hold at once, 95 % sure.\n"])
    plain = run("ask", "out.zarr", "--mean", "--given", "y=0..", "--beta", "0.1").out
    with released.confidence("0.1", questions=1) as asked:
        assert plain == f"{asked.mean('x', given={'y': (0.0, None)})}\n"


def test_the_target_of_shares_counts_and_quantiles_is_asked_for(released, run, questions, refusal):
    words = ("--mass", "x=2..7.5", "--count", "x=3..", "--quantile", "x=.5", "--cdf", "x=4",
             "--mean", "--target", "smoothed")  # fmt: skip
    told = questions(*words)
    assert [one["target"] for one in told] == ["smoothed"] * 4 + ["records"] * 2
    (row,) = told[0]["answers"]
    with released.confidence(0.05, questions=6) as asked:
        assert numbers_of(row) == numbers(asked.mass({"x": (2.0, 7.5)}, target="smoothed"))
    assert "of the rows" not in run("ask", "out.zarr", *words).out
    refusal(*words[:-1], "rows")


def test_a_wide_answer_says_what_makes_it_narrower(released, run, questions):
    words = ("--mass", "x=2..2.5")
    ran, answer = run("ask", "out.zarr", *words), released.mass({"x": (2.0, 2.5)})
    assert ran.out == f"{answer.text()}\nWhy wide, and what helps: --details\n"
    ran = run("ask", "out.zarr", *words, "--details")
    assert ran.out == f"{answer.text()}\n  {answer.note}\n"
    assert "most of the interval is the cells' width" in ran.out
    assert "smoothed" not in ran.out  # which is another number
    (told,) = questions(*words)
    assert told["note"] == answer.note


def test_several_answers_are_followed_by_the_confidence_of_all(released, run):
    words = ("ask", "out.zarr", "--mass", "x=2..4", "--mean", "--beta", "0.2")
    *answers, last = run(*words).out.splitlines()
    assert not any(" sure" in answer for answer in answers)
    assert last == "All 3 hold at once, 80 % sure. Why wide, and what helps: --details"
    assert json.loads(run(*words, "--json").out)["beta"] == "0.2"
    assert "hold at once" not in run("ask", "out.zarr", "--mass", "x=2..4").out


def test_places_and_points_are_answered_as_in_python(released, rows):
    answers = rows("--cdf", "x=2,5", "--marginal", "y=-.5,.25", "--density", "x=3,y=.5")
    with released.confidence(0.05, questions=3) as asked:
        share = str(Fraction(1, 120))
        found = [numbers(asked.mass({"x": (None, place)}, beta=share)) for place in (2.0, 5.0)]
        found += numbers(asked.marginal([-0.5, 0.25], "y"))
        found += numbers(asked.density([[3.0, 0.5]]))
    assert [numbers_of(row) for row in answers] == found
    assert [row["place"] for row in answers] == ["", "", "-0.5", "0.25", ""]
    assert "share of the rows in x up to 5" in answers[1]["question"]
    assert answers[-1]["question"].endswith(", at x=3,y=.5")


def test_rows_of_a_condition_are_named_once(released, rows):
    (answer,) = rows("--mass", "y=0..1", "--given", "x=3..5")
    assert answer["question"].startswith("share of the rows with x 3 to 5 in y 0 to 1")


def test_a_file_of_regions_is_read_in_parts_that_share_the_confidence(
    released, rows, project, monkeypatch
):
    lines = ["name,x_low,x_high,y_low,y_high", *(f"r{i},{i},{i + 2},,0.{i}" for i in range(1, 6))]
    (project.folder / "regions.csv").write_text("\n".join(lines))
    monkeypatch.setattr("dbern.ask.region_files._BATCH_BOXES", 2)
    answers = rows("--mass", "regions.csv")
    assert [row["region"] for row in answers] == ["r1", "r2", "r3", "r4", "r5"]
    found = []
    for part in ((1, 2), (3, 4), (5,)):
        boxes = [{"x": (i, i + 2), "y": (None, i / 10)} for i in part]
        with released.confidence(0.05) as asked:
            found += numbers(asked.mass(boxes, beta=str(Fraction(1, 20) * len(part) / 5)))
    assert [numbers_of(row) for row in answers] == found


def feature(i, **properties):
    corners = [[i, -0.5], [i + 2.0, -0.5], [i + 2.0, 0.5], [i, -0.5]]
    shape = {"type": "Polygon", "coordinates": [corners]}
    return {"type": "Feature", "id": i, "geometry": shape, **properties}


def collection(features):
    return {"type": "FeatureCollection", "features": features}


def test_regions_keep_their_names(released, run, rows, questions, project):
    named = [feature(1, properties={"name": "north"}), feature(1, properties=None)]
    files = {
        "some.geojson": (json.dumps(collection(named)), ["north", "1"]),
        "some.csv": ("name,x_low,x_high,y_low,y_high\nsouth,1,2,,\n,2,3,,\n", ["south", "1"]),
        "one.csv": ("\ufeffname,x_low,x_high,y_low,y_high\neast,1,2,,\n", ["east"]),
        "two.geojson": ("\ufeff" + json.dumps(collection(named)), ["north", "1"]),
    }
    for file, (text, names) in files.items():
        (project.folder / file).write_text(text)
        assert [row["region"] for row in rows("--mass", file)] == names
        (told,) = questions("--mass", file)
        assert [row["region"] for row in told["answers"]] == names
        words = [
            line.split()[0] for line in run("ask", "out.zarr", "--mass", file).out.splitlines()
        ]
        assert ",".join(names) in ",".join(words[3:5] if len(names) > 1 else words)


def test_polygons_are_read_from_geojson(released, questions, project):
    shape = feature(2)["geometry"]
    (project.folder / "district.geojson").write_text(json.dumps(shape))
    (told,) = questions("--mass", "district.geojson")
    with released.confidence(0.05, questions=1) as asked:
        assert numbers_of(told["answers"][0]) == numbers(asked.mass(shape))


@pytest.mark.parametrize("name", ["some.geojson", "some.geojsonl", "some.ndjson"])
def test_a_file_of_polygons_is_read_in_parts(released, rows, project, monkeypatch, name):
    weights = 2 * max(1024, released.measures[0].values.size)
    monkeypatch.setattr("dbern.ask.region_files._BATCH_NUMBERS", weights)
    features = [feature(i) for i in range(1, 6)]
    whole = {"name": 'a "features": [', "v": 12, "features": features, "type": "FeatureCollection"}
    text = json.dumps(whole, indent=1)
    if name != "some.geojson":
        text = "\n".join(map(json.dumps, features)) + "\n\n"
    (project.folder / name).write_text(text)
    answers = rows("--mass", name)
    assert [int(row["region"]) for row in answers] == [0, 1, 2, 3, 4]
    with released.confidence(0.05) as asked:
        answer = asked.mass(collection(features[2:4]), beta=str(Fraction(1, 20) * 2 / 5))
    assert [numbers_of(row) for row in answers[2:4]] == numbers(answer)


def test_a_large_file_of_polygons_takes_little_memory(tmp_path):
    """So many features that the file is ten times as large as what is held of it."""
    line = json.dumps(feature(3))
    path = tmp_path / "some.ndjson"
    with path.open("w") as file:
        file.writelines(line + "\n" for _ in range(100_001))
    tracemalloc.start()
    try:
        assert sum(1 for _ in _region_file(str(path)).rows()) == 100_001
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size / 10
    finally:
        tracemalloc.stop()


def test_a_collection_beyond_what_is_read_at_once_is_told_how_to_be(tmp_path, monkeypatch):
    monkeypatch.setattr("dbern.ask.region_files._MAX_CHARACTERS", 100)
    path = tmp_path / "some.json"
    path.write_text(json.dumps({"features": [feature(1)]}))
    with pytest.raises(SpecError, match=r"more than 100 characters\. Write one feature a line"):
        list(_region_file(str(path)).rows())


FORMULAS = ["=cmd|' /C calc'!A0", "+1", "-2+3", "@sum", "\tx", "\rx", "\x1b]0;title\x07", "\ud800"]


def test_csv_holds_no_formula_and_nothing_that_a_terminal_obeys(released, run, project):
    named = [feature(3, properties={"name": one}) for one in FORMULAS]
    (project.folder / "some.geojson").write_text(json.dumps(collection(named)))
    ran = run("ask", "out.zarr", "--mass", "some.geojson", "--csv")
    assert ran.code == 0, ran.err
    assert ran.out.replace("\n", "").replace("\r", "").isprintable()
    regions = [row["region"] for row in csv.DictReader(io.StringIO(ran.out))]
    assert regions[:4] == [f"'{one}" for one in FORMULAS[:4]]
    assert regions[4:] == ["\\tx", "\\rx", "\\x1b]0;title\\x07", "\\ud800"]


@pytest.mark.parametrize("beta", ["1e-400000000", "1e400000000", "1/0", "1e-300", "0", "1", "x"])
def test_a_confidence_that_cannot_be_is_refused_at_once(released, refusal, project, beta):
    refusal("--mean", "--beta", beta, said="dbern: beta: ")
    for ask in (
        lambda: released.mean("x", beta=beta),
        lambda: dbern.open(project.output).band(beta),
    ):
        with pytest.raises(SpecError, match=r"^beta: "):
            ask()


DAMAGES = [  # of the third feature, and what is said of it
    ('"type": "Feature", "geometry": null', "region: write GeoJSON of type"),
    ('"geometry": {"type": "Polygon", "coordinates": [[[0, 99]]]}', "region: a ring"),
    ('"geometry": {"type": "Polygon", "coordinates": 7}', "region: coordinates must"),
]
GARBLED = ["", "7", "[]", '{"features": 7}', '{"features": [7]}', '{"features": [{}', "{" * 99_999,
           json.dumps(collection(5)), json.dumps(collection([5]))]  # fmt: skip
NO_POINT = feature(1)
NO_POINT["geometry"]["coordinates"][0][0][0] = int("9" * 400)
FILES = {  # what no region is read from, and what is said
    "bad.csv": ("a,b\n1,2\n", 'bad.csv: has no column "x_low"'),
    "wide.csv": ("x_low,x_high,y_low,y_high\n3,4,,\n3,4000,,\n",
                 "wide.csv: row 2: region: x leaves its bounds"),
    "none.csv": ("x_low,x_high,y_low,y_high\n", "there is no row in it"),
    "short.csv": ("x_low,x_high,y_low,y_high\n3,4,,\n3\n", "short.csv: row 2: has fewer or more"),
    "long.csv": ("x_low,x_high,y_low,y_high\n3,4,,,5\n", "long.csv: row 1: has fewer or more"),
    "twice.csv": ("x_low,x_low,x_high,y_low,y_high\n1,3,4,,\n", "two columns have the same name"),
    "underscore.csv": ("x_low,x_high,y_low,y_high\n0_1,4,,\n", "x: ends must be numbers"),
    "none.geojson": ('{"features": []}', "there is no feature in it"),
    "point.geojson": (json.dumps(NO_POINT), "feature 1: region: coordinates must be rings of po"),
    "line.geojsonl": (json.dumps(feature(1)) + '\n{"type"\n',
                      "line.geojsonl: feature 2: cannot be read as GeoJSON"),
    **{f"{i}.json": (text, "cannot be read as GeoJSON") for i, text in enumerate(GARBLED)},
}  # fmt: skip


def damaged():
    """Collections of three features, as one object and one a line, whose third is damaged."""
    for i, (damage, told) in enumerate(DAMAGES):
        features = [json.dumps(feature(1)), json.dumps(feature(2)), f'{{{damage}, "x": 0}}']
        whole = f'{{"type": "FeatureCollection", "features": [{",".join(features)}]}}'
        for name, text in ((f"{i}.geojson", whole), (f"{i}.geojsonl", "\n".join(features) + "\n")):
            yield name, (text, f"{name}: feature 3: {told}")


FILES |= damaged()


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_holds_no_regions_is_refused(released, refusal, project, name):
    text, said = FILES[name]
    (project.folder / name).write_text(text)
    refusal("--mass", name, said=said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "write at least one of --mass"),
        (["--mass", "somewhere"], "neither a box nor a file"),
        *((["--mass", f"gone.{kind}"], f"gone.{kind}: there is no such file")
          for kind in ("csv", "json", "geojson")),
        (["--mass", "x=1..2,x=3..4"], "has two intervals of x"),
        (["--count", "x=1..2, x=3..4"], "has two intervals of x"),
        (["--mass", "y=0..1", "--given", "x=1..2,x=3..4"], "has two intervals of x"),
        (["--mass", "x=0...5"], "neither a box nor a file"),
        (["--mass", "x=0_1..5"], "x: ends must be numbers"),
        (["--cov", "--given", "x=3..5"], "--cov: is of two axes, and only y is asked about here"),
        (["--correlation", "--given", "y=0..1"], "--correlation: is of two axes, and only x is"),
        (["--density", "x=3,y=0,x=4"], "Write one such as x=3,y=5"),
        (["--quantile", "x=0_1"], "Write AXIS=LEVELS"),
        (["--quantile", "x"], "Write AXIS=LEVELS"),
        (["--quantile", "q=.5"], "Write one of x, y"),
        (["--cdf", "x=2,"], "Write AXIS=PLACES"),
        (["--marginal", "x=40"], "all within the bounds of x"),
        (["--density", "x=3,y"], "Write one such as x=3,y=5"),
        (["--density", "x=3"], 'no column "y"'),
        (["--density", "x=3,y=0", "--given", "x=..2"], "Ask for --marginal"),
        (["--mean", "--beta", "2"], "between 0 and 1"),
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
)  # fmt: skip
def test_what_cannot_be_asked_is_refused(regression, refusal, words, said):
    refusal(*words, said=said)


def test_a_regression_is_asked_as_in_python(regression, rows, refusal):
    words = ("--average", "x=2..5", "--curve", "x=2,5", "--curve", "y", "--difference",
             "x=5.. less x=..5", "--difference", "x=2,y=0 less x=5,y=0")  # fmt: skip
    refusal(*words, "--given", "y=0..")  # but for curves there is no condition
    answers = rows(*words)
    with regression.confidence(0.05, questions=5) as asked:
        found = [numbers(asked.average({"x": (2.0, 5.0)}))]
        found += numbers(asked.curve_along([2.0, 5.0], "x"))
        found += numbers(asked.curve_along(np.linspace(-1, 1, 21), "y"))
        found.append(numbers(asked.difference({"x": (5.0, None)}, {"x": (None, 5.0)})))
        found.append(numbers(asked.difference([[2.0, 0.0]], [[5.0, 0.0]])))
    assert [numbers_of(row) for row in answers] == found
    assert answers[-1]["question"].endswith(", at x=2,y=0 less x=5,y=0")
    for target in ("records", "smoothed"):
        given = rows("--curve", "x=2,5", "--given", "y=0..", "--target", target)
        with regression.confidence(0.05, questions=1) as asked:
            curve = asked.curve_along([2.0, 5.0], "x", given={"y": (0.0, None)}, target=target)
        assert [numbers_of(row) for row in given] == numbers(curve)


def test_averages_of_the_regions_of_a_file_have_their_names(regression, rows, project):
    (project.folder / "regions.csv").write_text("name,x_low,x_high,y_low,y_high\na,,5,,\nb,5,,,\n")
    answers = rows("--average", "regions.csv")
    assert [row["region"] for row in answers] == ["a", "b"]
    with regression.confidence(0.05, questions=1) as asked:
        known = asked.average([{"x": (None, 5.0)}, {"x": (5.0, None)}])
    assert [numbers_of(row) for row in answers] == numbers(known)


def test_groups_are_asked_what_they_differ_by(copied, rows):
    d, (first, second) = copied("groups"), GROUPS
    words = [f"x=2..5 between {second} and {first}", f"x=2,y=0 between {second} and {first}"]
    answers = rows("--difference", words[0], "--difference", words[1])
    with d.confidence(0.05, questions=2) as asked:
        for row, where in zip(answers, ({"x": (2.0, 5.0)}, [[2.0, 0.0]]), strict=True):
            assert numbers_of(row) == numbers(asked.difference(where, groups=(second, first)))


def test_two_releases_are_compared_as_in_python(released, copied, rows):
    other = copied("other", "other.zarr")
    for target in ("records", "smoothed"):
        (row,) = rows("--compare", "x=2..5", "--with", "other.zarr", "--target", target)
        with released.confidence(0.05, questions=1) as asked:
            answer = asked.compare(other, {"x": (2.0, 5.0)}, target=target)
        assert numbers_of(row) == numbers(answer)
        assert row["question"].endswith("less that of other")
