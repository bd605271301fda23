"""The table of a plan's options: every row adds up, and the first row is the plan."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

import pytest
from projects import records
from strategies import sections

from dbern.certify.error_summary import printed_sum
from dbern.planning.planner import plan_files
from dbern.planning.spec import ReleaseSpec
from dbern.planning.tradeoffs import tradeoff


@pytest.fixture
def planned(project):
    project.write(records())
    project.spec(
        data__bounds={"y": None}, target={"bandwidth": [2.0]},
        mechanism={"k": 6, "h": None, "noise": None},
    )  # fmt: skip
    return project


@pytest.mark.slow
def test_every_row_of_the_table_adds_up(planned, run):
    title, head, *rows = run("plan", "release.toml", "--table").out.splitlines()
    assert "the plan's choice" in title
    assert head.split()[-7:] == ["approx.", "+", "rounding", "+", "noise", "=", "bound"]
    options = run("plan", "release.toml", "--table", "--json").json["options"]
    assert len(rows) == len(options) > 3
    for row, option in zip(rows, options, strict=True):
        *parts, total = map(Decimal, row.split()[-4:])
        assert sum(parts) == total
        exact = [option[name] for name in ("approximation", "rounding", "noise", "error")]
        assert all(shown >= Decimal(one) for shown, one in zip([*parts, total], exact, strict=True))
        assert sum(exact[:3]) == pytest.approx(exact[3], rel=1e-12)
    first, *others = (option["predicted"] for option in options)
    assert others == sorted(others)
    assert first < 1.02 * others[0]  # of bins that err alike the surest are taken


@pytest.mark.slow
def test_the_first_row_of_the_table_is_the_plan(planned, run):
    first = run("plan", "release.toml", "--table", "--json").json["options"][0]
    (component,) = run("plan", "release.toml", "--json").json["components"]
    assert (first["k"], first["h"]) == (component["k"], component["h"])
    assert first["noise_kind"] == component["noise"]["kind"]
    for name in ("approximation", "rounding", "noise"):
        assert first[name] == component["certificate"][name]
    text = run("plan", "release.toml").out
    row = run("plan", "release.toml", "--table").out.splitlines()[2].split()
    assert "approximation {} + rounding {} + noise {}\n".format(*row[-4:-1]) in text
    assert f"sup error <= {row[-1]} with" in text
    values = 1
    for rank in component["ranks"] or [k + 1 for k in component["k"]]:
        values *= rank
    assert first["values"] == values


@pytest.mark.slow
def test_bins_that_err_alike_are_told_apart_by_what_they_promise(monkeypatch):
    """The least error is that of other bins; where a number is released too it decides alone.

    Of one level: of two, shares and quantiles count too.
    """
    monkeypatch.setattr("dbern.planning.tradeoffs.footers", lambda _spec: ())
    monkeypatch.setattr("dbern.planning.best_design._takes_levels", lambda *_: False)

    def density(**mechanism):
        data = {"n": 20_000, "bounds": {"x": [0.0, 1.0]}}
        mechanism = {"noise": "binned-laplace", "k": None, "h": None, **mechanism}
        target = {"bandwidth": [0.2]}
        return ReleaseSpec(**sections(data=data, target=target, mechanism=mechanism))

    first, *others = tradeoff(density())
    (component,) = plan_files(density(), ()).components
    assert [axis.cells for axis in component.maps] == [10]
    assert (first.values, first.error) == (13, component.certificate.total)
    assert others == sorted(others, key=lambda option: option.predicted)
    assert others[0].predicted < first.predicted < 1.02 * others[0].predicted
    assert 1.1 * first.error < others[0].error
    for mechanism in ({"tune": "0.02"}, {"objective": "certified"}):
        options = tradeoff(density(**mechanism))
        assert options == sorted(options, key=lambda option: option.predicted)
        (axis,) = plan_files(density(**mechanism), ()).components[0].maps
        assert options[0].values == axis.cells + axis.degree
        assert axis.cells == 9


def test_a_plan_adds_up_as_it_is_printed(planned, run):
    lines = run("plan", "release.toml", "--details").out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("certificate"))
    words = lines[at + 1].split()
    assert words[::3] == ["approximation", "rounding", "noise"]
    total = re.fullmatch(r"certificate +sup error <= (\S+) with probability .*", lines[at])[1]
    assert sum(map(Decimal, words[1::3])) == Decimal(total)


@pytest.mark.parametrize(
    "parts",
    [(1e-9, 3.0, 0.1), (0.0, 0.0, 0.0), (1e300, 1.0, 1e299), (5e-320, 0.0, 1e-7), (99.9999999,)],
)
def test_a_printed_sum_is_outward_and_exact(parts):
    texts, total = printed_sum(parts, 4)
    assert sum(map(Fraction, texts)) == Fraction(total)
    shown = list(map(Fraction, texts))
    assert all(one >= Fraction(part) for one, part in zip(shown, parts, strict=True))
    assert Fraction(total) <= Fraction(sum(parts)) * (1 + Fraction(len(parts), 1000))
    assert printed_sum([float("inf"), 1.0])[1] == "inf"
