"""Summaries of `plan`, `release`, `show` and `ask`; --details prints the rest."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pytest

import dbern
from dbern.planning.planner import plan_files
from dbern.planning.spec import ReleaseSpec

REGRESSION = {
    "target": {"kind": "nadaraya-watson", "bandwidth": [1.0]},
    "data": {
        "bounds": {"hour": [0.0, 24.0]},
        "response": {"column": "minutes", "bounds": [0.0, 60.0]},
        "units": {"hour": "hours", "minutes": "min"},
    },
}
CLASSES = {
    "target": {"kind": "naive-bayes", "bandwidth": [2.0, 4.0]},
    "data": {
        "bounds": {"hour": [0.0, 24.0], "km": [0.0, 40.0]},
        "label": {"column": "member", "classes": ["no", "yes"]},
    },
}
DENSITY = {
    "target": {"kind": "kernel-density", "bandwidth": [0.6, 0.6]},
    "data": {"bounds": {"x": [0.0, 10.0], "y": [0.0, 10.0]}},
}
NO_DETAILS = re.compile(r"S\(F\)|Delta|rho|\bk \d|\bh \d|bins|grid|certificate|sup error|lattice")


def text_of(plan):
    return plan.explain().replace("\u202f", " ")


def planned(case, n=50_000, **data):
    return plan_files(
        ReleaseSpec(
            release={"name": "rides", "output": "rides.zarr"},
            data={"source": "*.parquet", "n": n, **case["data"], **data},
            target=case["target"],
            budget={"epsilon": "1", "ledger": "sqlite:///ledger.db", "dataset": "city"},
        ),
        (),
    )


def test_a_density_is_told_in_shares_of_an_even_spread():
    plan = planned(DENSITY, 200_000)
    first, costs, protects, typical, worst, takes = text_of(plan).splitlines()
    assert first == "rides:    density of x and y, smoothed over 0.6 and 0.6, from 200 000 rows"
    assert costs == "costs     epsilon 1 of dataset city, once"
    assert protects == "protects  one row, replaced by any other"
    share = re.fullmatch(
        r"error     about (\S+) % of an even spread \(0\.01\) for typical rows", typical
    )
    assert float(share[1]) / 1e4 == pytest.approx(plan.promises.expected, rel=0.05)
    share = re.fullmatch(r"          whatever the rows are, at most (\S+) %, 95 % sure", worst)
    assert 1 <= float(share[1]) / 1e4 / plan.certificate.total < 1.1  # rounded up
    assert re.fullmatch(r"takes     \d+ MiB of memory a worker, \d+ MiB here", takes)


def test_a_regression_is_told_in_the_units_of_its_response():
    first, *_, typical, open_end, _ = text_of(planned(REGRESSION)).splitlines()
    assert first == (
        "rides:    mean of minutes (0 to 60 min) by hour (hours), smoothed over 1, from 50 000 rows"
    )
    numbers = r"(\S+) \(without privacy (\S+); a constant (\S+)\)"
    found = re.fullmatch(rf"error     for typical rows predictions are off by {numbers}", typical)
    ours, plain, constant = map(float, found.groups())
    assert plain <= ours < constant == 7.5
    assert open_end.strip() == (
        "no promise that holds for all kinds of data: each answer has its interval"
    )


def test_a_classifier_is_told_in_wrong_classes():
    first, *_, typical, worst, _ = text_of(planned(CLASSES)).splitlines()
    assert first.startswith("rides:    class of member (no, yes) by hour and km, smoothed over 2 ")
    assert re.fullmatch(
        r"error     for typical rows of equally large classes \S+ % are wrong \(without privacy "
        r"\S+ %; "
        r"one class for all 50 %\)",
        typical,
    )
    assert re.fullmatch(
        r" +whatever the rows are, no value is off by more than \S+, 95 % sure", worst
    )


@pytest.mark.parametrize("case", [DENSITY, REGRESSION, CLASSES])
def test_a_summary_leaves_figures_to_the_details(case):
    plan = planned(case)
    assert not NO_DETAILS.search(plan.explain())
    assert len(plan.explain().splitlines()) <= 7
    assert NO_DETAILS.search(plan.explain(details=True))
    assert str(plan) == plan.explain()


def test_a_private_number_of_rows_and_people_are_told():
    people = {"column": "user", "max_contributions": 8}
    private = {"neighbors": "add-or-remove-one", "normalizer": "5000", "unit": people}
    text = text_of(planned(DENSITY, None, **private))
    assert "sums over 5 000 rows, whose number is private" in text
    assert "protects  one user with all its rows (up to 8 count), added or removed" in text
    assert "whatever up to 5 000 rows are" in text


def test_warnings_and_empty_promises_are_always_printed():
    poor = planned({**CLASSES, "target": {"kind": "logistic-regression"}}, 30)
    assert re.search("^WARNING +no better than a constant", poor.explain(), re.MULTILINE)
    assert "no promise that holds for all kinds of data" in poor.explain()


def test_a_map_of_noise_is_warned_of_before_it_is_paid():
    """On the finest map that so few rows leave, and not where the noise is a part of it."""
    narrow = {**DENSITY, "target": {"kind": "kernel-density", "bandwidth": [0.1, 0.1]}}
    noise = re.search(r"the noise is predicted to be (\S+) times", planned(narrow, 3000).explain())
    assert 5 < float(noise[1]) < 50
    assert "WARNING" not in planned(narrow, 10**6).explain()


def test_a_stream_is_told_in_rows(project, run):
    project.spec(
        data={"neighbors": "add-or-remove-one", "normalizer": "5000",
              "source": "nights/{partition}.parquet"},
        stream={"every": "day", "horizon": 365},
    )  # fmt: skip
    text = run("plan", "release.toml").out
    assert ", 365 nights from the first one released\n" in text
    assert "once for all nights; a later one needs a new stream\n" in text
    assert "added or removed, in the one night in which it arrives\n" in text
    noise = re.search(
        r"one bin's total, in rows: (\S+) after 1, (\S+) after 7, (\S+) after 365 nights", text
    )
    rows = [float(number) for number in noise.groups()]
    assert rows == sorted(rows)
    assert len(text.splitlines()) <= 8
    assert "night 182" in run("plan", "release.toml", "--details").out


@pytest.fixture
def released(project, run):
    rng = np.random.default_rng(5)
    x, y = rng.normal(5, 1.5, 20_000).clip(0, 10), rng.normal(0, 0.3, 20_000).clip(-1, 1)
    project.write({"x": x, "y": y})
    project.spec(mechanism={"k": None, "h": None, "noise": None})
    assert run("release", "release.toml").code == 0
    return dbern.open(project.output)


def test_what_show_says_can_be_typed_as_it_stands(project, run, released):
    first, protects, error, ask, check, *drawn = run("show", "out.zarr").out.splitlines()
    assert re.match(
        r"density: +density of x and y, smoothed over \S+ and \S+, from .+ rows, 20", first
    )
    assert protects == "protects  one row, replaced by any other: epsilon 1"
    width = re.match(
        r"error +nowhere more than (\S+) per unit of x and y, 95 % sure; largest value drawn ",
        error,
    )
    assert 1 <= float(width[1]) / released.promises().headline < 1.1
    command = ask.partition("free: ")[2].split()
    assert command[:3] == ["dbern", "ask", "out.zarr"]
    assert " % of the rows lie in x 4 to 6 and y " in run(*command[1:]).out
    assert check == "check     dbern verify out.zarr    (more: --details)"
    assert run("verify", "out.zarr").code == 0
    assert drawn
    assert not NO_DETAILS.search(run("show", "out.zarr", "--quiet").out)
    assert NO_DETAILS.search(run("show", "out.zarr", "--details").out)


def test_show_has_the_coefficients_of_a_linear_regression(project, run):
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 10, 20_000)
    project.write({"x": x, "y": rng.uniform(-1, 1, 20_000), "z": 2 * x + 1})
    project.spec(
        target={"kind": "ridge-regression", "bandwidth": None},
        mechanism={"k": None, "h": None, "noise": None},
        data__response={"column": "z", "bounds": [0.0, 30.0]},
    )  # fmt: skip
    assert run("release", "release.toml").code == 0
    text = run("show", "out.zarr").out
    slope = re.search(r"^x +(\S+) +\((\S+) to (\S+)\)$", text, re.MULTILINE)
    value, low, high = map(float, slope.groups())
    assert low <= value <= high
    assert value == pytest.approx(2, abs=0.2)


def test_numbers_have_the_digits_that_their_interval_leaves(run, released):
    for words in (("--count", "x=3..7"), ("--mean",), ("--quantile", "x=.5")):
        for line in run("ask", "out.zarr", *words).out.splitlines():
            if found := re.search(r": (\S+) \((\S+) to (\S+?)[,)]", line.replace("\u202f", "")):
                value, low, high = map(float, found.groups())
                assert low <= value <= high
                digits = len(re.sub(r"\D", "", found[1]).strip("0"))
                assert digits <= 2 + max(0, np.ceil(np.log10(abs(value) / (high - low))))


def test_commands_that_are_printed_can_be_copied(project, run):
    """Paths with spaces, large numbers, and of a partition the partition."""
    x = np.random.default_rng(2).uniform(12_345_000, 12_345_100, 20_000)
    project.write({"x": x, "y": np.zeros(20_000)})
    project.spec(
        release={"output": "my out.zarr"}, target={"bandwidth": [10.0]},
        data__bounds={"x": [12_345_000.0, 12_345_100.0], "y": None},
        mechanism={"k": None, "h": None, "noise": None},
    )  # fmt: skip
    assert run("release", "release.toml").code == 0
    ask = run("show", "my out.zarr").out.splitlines()[3]
    words = shlex.split(ask.partition("free: ")[2])
    assert words[1:] == ["ask", "my out.zarr", "--mass", "x=12345040..12345060"]
    assert re.match(r"[12]\d\.\d+ % of the rows lie in x ", run(*words[1:]).out)
    project.spec(release={"name": "d-{partition}"})
    plan = run("plan", "release.toml", "--partition", "2026-11")
    assert plan.out.splitlines()[-1].startswith(
        "next      dbern release release.toml --partition 2026-11 "
    )


def test_two_releases_say_how_many_rows_they_compare(project, run, released):
    project.spec(
        release={"name": "b", "output": "b.zarr"}, mechanism={"k": None, "h": None, "noise": None}
    )
    assert run("release", "release.toml").code == 0
    out = run(
        "ask", "out.zarr", "--compare", "x=4..6", "--with", "b.zarr", "--target", "smoothed"
    ).out
    assert re.search(r"\n  about \d+.\d+ rows here and \d+.\d+ there had a value\n", out)
    assert "--details" not in out
