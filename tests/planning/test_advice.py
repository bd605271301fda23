"""What a plan takes of bins that err alike, and bounds that add up as they are printed."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

import pytest
from projects import records
from strategies import sections

from dbern.certify.error_summary import printed_sum
from dbern.planning.choice import _candidates_of, best_candidate, make_search
from dbern.planning.resolved import ResolvedSpec
from dbern.planning.spec import ReleaseSpec


@pytest.mark.slow
def test_bins_that_err_alike_are_told_apart_by_what_they_promise(monkeypatch):
    """The least error is that of other bins; where a number is released too it decides alone.

    Of one scale: of two, shares and quantiles count too.
    """
    monkeypatch.setattr("dbern.planning.choice._takes_two_scales", lambda *_: False)

    def candidates(**mechanism):
        data = {"n": 20_000, "bounds": {"x": [0.0, 1.0]}}
        mechanism = {"noise": "binned-laplace", "k": None, "h": None, **mechanism}
        spec = ReleaseSpec(**sections(data=data, target={"bandwidth": [0.2]}, mechanism=mechanism))
        (statistic,) = (resolved := ResolvedSpec.of(spec, 20_000)).statistics
        search = make_search(statistic, resolved)
        chosen = best_candidate(["binned"], search)
        return chosen, min(_candidates_of("binned", search), key=lambda one: one.error)

    chosen, least = candidates()
    assert [axis.cells for axis in chosen.strategy.bins] == [10]
    assert least.error < chosen.error < 1.02 * least.error
    assert 1.1 * chosen.promise < least.promise
    chosen, least = candidates(objective="certified")
    assert chosen.error == least.error
    assert [axis.cells for axis in chosen.strategy.bins] == [9]


def test_a_plan_adds_up_as_it_is_printed(project, run):
    project.write(records())
    project.spec(
        data__bounds={"y": None}, target={"bandwidth": [2.0]},
        mechanism={"k": 6, "h": None, "noise": None},
    )  # fmt: skip
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
    texts, total = printed_sum(parts)
    assert sum(map(Fraction, texts)) == Fraction(total)
    shown = list(map(Fraction, texts))
    assert all(one >= Fraction(part) for one, part in zip(shown, parts, strict=True))
    assert Fraction(total) <= Fraction(sum(parts)) * (1 + Fraction(len(parts), 1000))
    assert printed_sum([float("inf"), 1.0])[1] == "inf"
