"""From `dbern init` to answers, with no other key than bounds, epsilon, a ledger and a dataset."""

from __future__ import annotations

import math
import re
import shlex

import numpy as np
import pyarrow as pa
import pytest

import dbern

ROWS, EPSILON = 20_000, 1.0
COUNT = 60 / EPSILON / ROWS  # half-width at 95 % of a count with Laplace noise at epsilon / 20
AXES = {"hour": (0.0, 24.0), "age": (17, 90), "km": (0.0, 10.0)}


def rides():
    """A float that is not rounded, whole numbers, and another float, of as many rides."""
    rng = np.random.default_rng(11)
    age = np.clip(np.rint(17 + rng.gamma(2.5, 9, ROWS)), 17, 90).astype(np.int16)
    return {
        "hour": rng.normal(np.where(rng.random(ROWS) < 0.6, 8.5, 17.5), 1.5) % 24,
        "age": pa.array(age),
        "km": np.clip(rng.gamma(3, 1.0, ROWS), 0, 10),
    }


def released_by_a_newcomer(project, run, names):
    """Do what `init` says, word by word; returns what it says to ask, and the synopsis."""
    project.write(rides(), files=2)
    axes = [
        word for name in names for word in ("--axis", f"{name}={AXES[name][0]},{AXES[name][1]}")
    ]
    ran = run("init", "new.toml", "--source", "data/*.parquet", *axes,
              "--epsilon", str(EPSILON), "--dataset", "rides",
              "--ledger", "sqlite:///new.db", "--json")  # fmt: skip
    assert ran.code == 0, ran.err
    *commands, ask = (shlex.split(command) for command in ran.json["next"])
    assert [command[1] for command in (*commands, ask)] == [
        "plan", "ledger", "ledger", "release", "ask",
    ]  # fmt: skip
    printed = [run(*words) for _, *words in commands]
    assert [ran.code for ran in printed] == [0] * 4, [ran.err for ran in printed]
    return printed[0].out, ask[1:], dbern.open(project.folder / "new.zarr")


@pytest.mark.slow
@pytest.mark.parametrize("names", [("hour",), ("age",), ("hour", "km")])
def test_a_newcomer_gets_shares_means_and_quantiles_as_narrow_as_an_expert(project, run, names):
    plan, ask, synopsis = released_by_a_newcomer(project, run, names)
    columns = {name: np.asarray(values) for name, values in rides().items()}
    low, high = (math.floor(np.quantile(columns[names[0]], q)) for q in (0.3, 0.7))
    ran = run(*ask, "--mass", f"{names[0]}={low}..{high}", "--json")
    assert ran.code == 0, ran.err
    answers = {question["question"]: question["answers"][0] for question in ran.json["questions"]}
    share, median, mean = (
        next(answer for text, answer in answers.items() if text.startswith(start))
        for start in ("share of the rows", "quantile", f"mean of {names[0]}")
    )
    rows = columns[names[0]]
    for answer, truth in (
        (share, np.mean((rows >= low) & (rows <= high))),
        (median, np.median(rows)), (mean, rows.mean()),
    ):  # fmt: skip
        assert answer["low"] <= truth <= answer["high"]
    half_width = (share["high"] - share["low"]) / 2
    if names == ("age",):  # its type says what it counts in
        assert half_width < 0.8 * COUNT
        assert median["low"] >= median["value"] - 1
        assert "[data.resolution]" not in plan
    else:
        assert half_width < (6 if len(names) == 1 else 40) * COUNT
        assert re.search(r"shares without a resolution are up to [0-9.]+ times as wide", plan)
    assert synopsis.metadata["target"]["chosen_of"]  # a bandwidth by the released bins


@pytest.mark.slow
def test_without_what_init_writes_shares_are_several_times_as_wide(project, run):
    """What a newcomer is spared: the same spec without questions and resolution."""
    _, _, synopsis = released_by_a_newcomer(project, run, ("age",))
    text = (project.folder / "new.toml").read_text()
    plain = re.sub(r"(?m)^(questions = |\[data.resolution\]|age = 1).*$", "", text)
    plain = plain.replace('"new"', '"plain"').replace("new.zarr", "plain.zarr")
    (project.folder / "plain.toml").write_text(plain)
    spec = dbern.ReleaseSpec.load(project.folder / "plain.toml")
    assert (spec.mechanism.questions, spec.data.resolution) == (None, None)
    run("ledger", "grant", "--ledger", "sqlite:///new.db", "--dataset", "rides", "--epsilon", "1")
    box = {"age": (30, 44)}
    wide = dbern.release(spec).synopsis.distribution().mass(box)
    narrow = synopsis.distribution().mass(box)
    assert wide.high - wide.low > 4 * (narrow.high - narrow.low)
    assert "[data.resolution] age = ..: it is about" in wide.note
