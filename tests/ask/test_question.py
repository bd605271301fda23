"""What a new question takes: a class in a file of its own, and its option."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from questioned import asked, databases

from dbern.ask import options as question_options
from dbern.ask.answer import Interval
from dbern.ask.bins import NoisyMeasure
from dbern.ask.options import QuestionOption
from dbern.ask.question import (
    CommonOptions,
    DeferredQuestion,
    OptionQuestion,
    ReleasedBins,
    are_means_of_few_rows,
    deferred,
    load_question,
)
from dbern.ask.quotients import Denominator, quotient_interval
from dbern.ask.weights import Weights
from dbern.errors import SpecError
from dbern.types import BoolArray

CUTS = np.linspace(0.0, 1.0, 6)
ENTROPY = QuestionOption(
    "entropy", "AXIS", "Entropy of an axis, by five equal parts.", f"{__name__}:Entropy"
)


def minus_p_log_p(shares):
    return -shares * np.log(np.where(shares > 0, shares, 1.0))


@dataclass(frozen=True, eq=False, kw_only=True)
class Entropy(OptionQuestion):
    """Entropy of an axis, in nats, by the shares of five equal parts."""

    option = ENTROPY
    index: int

    @classmethod
    def read(cls, bins: ReleasedBins, name: str | None) -> Entropy:
        index = bins.axis_index(name)
        return cls(bins=bins, text=f"entropy of {bins.domain.names[index]}", index=index)

    def _shares(self, measure: NoisyMeasure, beta: Fraction) -> Interval:
        view = measure.marginal((self.index,))
        parts = Weights().between(measure, self.index, CUTS[:-1], CUTS[1:]).layered()
        return quotient_interval(view, parts, Denominator.total(view), beta)

    def _interval(self, measure: NoisyMeasure, beta: Fraction) -> Interval:
        """All shares hold at once; the largest of ``-p ln p`` is at 1 / e, the least at an end."""
        shares = self._shares(measure, beta)
        largest = minus_p_log_p(np.clip(1 / np.e, shares.low, shares.high)).sum()
        least = np.minimum(*map(minus_p_log_p, (shares.low, shares.high))).sum()
        value = np.clip(minus_p_log_p(shares.value).sum(), least, largest)
        return Interval.without_cells(*map(np.atleast_1d, (value, least, largest)))

    def _are_of_few_rows(self, measure: NoisyMeasure, beta: Fraction) -> BoolArray:
        shares = self._shares(measure, beta)
        return are_means_of_few_rows(shares, self.bins.rows).any(keepdims=True)

    @classmethod
    def from_text(
        cls, text: str, bins: ReleasedBins, options: CommonOptions
    ) -> Sequence[DeferredQuestion]:
        if options.condition is not None or options.target != "records":
            raise SpecError("--entropy: is of all rows as they are. Leave --given and --target out")
        return [deferred(lambda: cls.read(bins, text))]


@pytest.mark.parametrize("kind", ["smooth", "clustered", "one point"])
def test_a_question_in_one_file_is_answered_for_every_database(kind):
    rows = databases(2, 5000)[kind]
    shares = np.histogram(rows[:, 1], CUTS)[0] / len(rows)
    truth = minus_p_log_p(shares).sum()
    for key in range(5):
        d = asked(rows, key)
        answer = d.ask(Entropy.read(d, "y"))
        assert answer.low <= truth <= answer.high
        assert answer.question == "entropy of y"


def test_an_option_is_its_question_s():
    assert question_options.OPTIONS
    for option in question_options.OPTIONS:
        assert load_question(option).option is option


@pytest.mark.slow
def test_a_registered_question_is_an_option(project, run, monkeypatch):
    project.spec(mechanism={"k": None, "h": None, "noise": "binned-laplace"})
    assert run("release", "release.toml").code == 0
    assert "No such option" in run("ask", "out.zarr", "--entropy", "x").err
    monkeypatch.setattr(question_options, "OPTIONS", (*question_options.OPTIONS, ENTROPY))
    ran = run("ask", "out.zarr", "--entropy", "x", "--mean")
    assert ran.code == 0, ran.err
    answers = [line for line in ran.out.splitlines() if line.startswith("entropy of x: ")]
    assert len(answers) == 1
