"""Base of the questions about released bins, from their text to their answer.

A kind of question is a class whose `_interval` bounds the answer of one array of bins, by
`dbern.ask.quotients` of the envelopes of its weights. What all kinds share is here: an interval for
each group at its fraction of beta, populations, labels, units and notes. A kind that
`dbern.ask.options` names is an option of ``dbern ask`` too; `Distribution.ask` takes any.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, TypeAlias, cast, get_args

import numpy as np

from dbern.ask.answer import CELLS, Answer, Interval, IntervalKind, Percent, Target
from dbern.ask.bins import BinView, NoisyMeasure
from dbern.ask.labels import labelled_entries
from dbern.ask.options import QuestionOption
from dbern.ask.points import read_beta
from dbern.ask.quotients import Contrast, Everywhere, FunctionBand
from dbern.ask.regions import Boxes, Region, boxes_of, require_one_box
from dbern.ask.splines import Envelope, products
from dbern.ask.weights import Weights
from dbern.bernstein.kernels import Kernel
from dbern.certify.failure import Account
from dbern.data.domain import Axis, Domain, rounded_text
from dbern.errors import SpecError, printable
from dbern.system import toml_key
from dbern.types import BoolArray, FloatArray

_BETA = Fraction(1, 20)
FEW_ROWS = 10
"""Rows of a region, or outside it, from which on the sampling error is taken as normal."""
_MANY = 64  # points, from which on the function's band may be narrower than their intervals
_MAX_FACTOR = 99.0  # largest printed factor of an interval's width over its noise


@dataclass(frozen=True, eq=False)
class ReleasedResponses:
    """Released responses of a regression, which are from `low` to `high`; `name` has their units.

    `measures` have the bins of the rows in two parts, (2, b_1, ..): for the high end of the range,
    each as far as its response is from the low one, and the rest; one for each of the groups.
    """

    measures: tuple[NoisyMeasure, ...]
    low: float
    high: float
    name: str = "the response"


class RowRange(NamedTuple):
    """Least and largest numbers of rows, (m,) each, as far as noise tells."""

    least: FloatArray
    most: FloatArray

    @classmethod
    def of(
        cls, view: BinView, weights: Envelope, measure: NoisyMeasure, beta: Fraction
    ) -> RowRange:
        """Return the sums of weights (m, layers, bins), in shares of the rows."""
        lower, upper = (Contrast.of_weights(view, w) for w in (weights.lower, weights.upper))
        return cls(lower.end_at(0.0, -1, measure, beta), upper.end_at(0.0, 1, measure, beta))

    def times(self, rows: float) -> RowRange:
        """Return them for so many rows in all."""
        return RowRange(self.least * rows, self.most * rows)


@dataclass(eq=False, repr=False)
class ReleasedBins:
    """Bins of a release, an array a group, and what is public about them; see `Distribution`."""

    name: str
    domain: Domain
    measures: tuple[NoisyMeasure, ...]
    groups: tuple[Any, ...]
    rows: float
    kernels: tuple[Kernel, ...] = ()
    unit_rows: int = 1
    account: Account | None = None
    response: ReleasedResponses | None = None
    choices: int = 1
    band: FunctionBand | None = None
    _question_count: int = field(default=0, init=False)

    def __repr__(self) -> str:
        axes = ", ".join(self.domain.names)
        account = "" if self.account is None else f", {self.account}"
        return printable(f"<Distribution {self.name} over {axes}{account}>")

    @property
    def rows_with_values(self) -> float:
        """Number of rows of all groups that count, as far as noise tells, at least 0."""
        return self.rows * max(0.0, sum(float(measure.bins.sum()) for measure in self.measures))

    def take_beta(self, beta: float | str | None) -> Fraction:
        """Return the probability of failure of the next question, and take it off the account."""
        if self.account is not None:
            return self.account.take(None if beta is None else read_beta(beta))
        probability = _BETA if beta is None else read_beta(beta)
        self._question_count += 1
        if self._question_count == 2:
            warnings.warn(
                "each answer holds with its own probability, not all of them together. For "
                "that write: with distribution.confidence(0.05) as c: and ask c",
                stacklevel=5,  # of this, a question, `Distribution.ask`, its method and a caller
            )
        return probability

    @property
    def rounding_text(self) -> str:
        """Text about rounded rows, "" where no axis has a resolution."""
        text = rounded_text(self.domain.axes)
        return text and f", of rows {text}"

    def axis_index(self, axis: str | None) -> int:
        """Return the index of an axis, or of the only one."""
        names = self.domain.names
        if axis is None and len(names) == 1:
            return 0
        if axis is None:
            raise SpecError(f'axis: name one of {", ".join(names)}, such as axis = "{names[0]}"')
        if axis not in names:
            raise SpecError(f"axis: {axis!r} is none. Write one of {', '.join(names)}")
        return names.index(axis)

    def read_condition(self, box: Region | None, *indices: int) -> Boxes:
        """Read a condition on axes other than those that are asked about."""
        boxes = boxes_of({} if box is None else box, self.domain, "given")
        names = [self.domain.names[index] for index in indices]
        if box is not None and (conditioned := [name for name in names if name in box]):
            raise SpecError(
                f"given: {conditioned[0]} is what is asked about. Write a box of other axes, or "
                "ask for the mass of boxes"
            )
        return require_one_box(boxes)

    def weights_for(self, target: Target) -> Weights:
        """Return the weights of rows in a region. Raises SpecError for an unknown target."""
        if target not in get_args(Target):
            raise SpecError(f'target = "{target}": write "records" or "smoothed"')
        return Weights(self.kernels if target == "smoothed" else ())

    def rows_in(
        self, box: Boxes, weights: Weights, measure: NoisyMeasure, beta: Fraction
    ) -> RowRange:
        """Bound the sum of the rows' weights in a box, 0 to 1 each."""
        inside = products(weights.axes(measure, box)).layered()
        return RowRange.of(measure.joint(), inside, measure, beta).times(self.rows)


@dataclass(frozen=True, eq=False, kw_only=True)
class Question(ABC):
    """A question about released bins, its arguments read: a subclass says what its interval is.

    `labels` names the dimensions of its entries and what is along them. `text` is the
    question in words, and `sentence`, where there is one, the same of a value, which takes the
    place of a ``{}`` at its start. `target` is None where the question has none, and `axis` the one
    whose unit the numbers have, if any. `released_at` are points (m, axes) where the released
    function itself is asked about, if it is.
    """

    bins: ReleasedBins
    text: str
    sentence: str = ""
    labels: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    target: Target | None = None
    axis: Axis | None = None
    released_at: FloatArray | None = None

    @abstractmethod
    def _interval(self, measure: NoisyMeasure, beta: Fraction) -> Interval:
        """Return the interval that holds for a measure with probability ``1 - beta``."""

    @abstractmethod
    def _are_of_few_rows(self, measure: NoisyMeasure, beta: Fraction) -> BoolArray:
        """Return which entries (m,) are of so few rows that sampling errors are not about normal.

        Most kinds are means: `are_means_of_few_rows`.
        """

    @property
    def measures(self) -> Sequence[NoisyMeasure]:
        """Bins to ask, one array a group."""
        return self.bins.measures

    @property
    def percent(self) -> Percent | None:
        """Unit that the numbers are printed in, where they are shares."""
        return None

    def _everywhere(
        self, measure: NoisyMeasure, beta: Fraction, low: float, width: float
    ) -> Everywhere | None:
        """Return the released function's band where many of its values are asked about.

        It is of the rows at hand, and of all groups and candidates at once.
        """
        points, band = self.released_at, self.bins.band
        if points is None or band is None or len(points) < _MANY or measure.spread is not None:
            return None
        group = [other is measure for other in self.measures].index(True)
        beta *= len(self.measures) * self.bins.choices
        return Everywhere(band, points, beta, group, low, width)

    def ask(
        self, payer: ReleasedBins, beta: float | str | None = None, *, population: bool = False
    ) -> Answer:
        """Answer with a beta of the `payer`, which are the bins, or the same in a `confidence`.

        Each group has its part of beta, and each kernel that a smoothed one was chosen from.
        """
        if population and payer.unit_rows > 1:
            raise SpecError(
                f"population: a unit of privacy has up to {payer.unit_rows} rows here, and rows of "
                "one unit are not independent. Release with one row a unit"
            )
        probability = payer.take_beta(beta)
        choices = payer.choices if self.target == "smoothed" else 1
        beta_i = probability / (len(self.measures) * choices)
        intervals = self.intervals(beta_i, population=population)
        kind: IntervalKind = "population" if population else "these-data"
        return self.answer(Interval(*np.array(intervals).transpose(1, 2, 0)), probability, kind)

    def intervals(self, beta: Fraction, *, population: bool) -> list[Interval]:
        """Ask all measures, each at `beta`. Raises SpecError for a population of few rows."""
        if not population:
            return [self._interval(measure, beta) for measure in self.measures]
        few = [self._are_of_few_rows(measure, beta) for measure in self.measures]
        self._refuse_few_rows(np.any(few, axis=0))
        rows = self.bins.rows
        return [self._interval(measure.population(rows), beta) for measure in self.measures]

    def _refuse_few_rows(self, few: BoolArray) -> None:
        if not few.any():
            return
        name, entries = next(iter(self.labels.items()), ("", [None]))
        entry = entries[int(np.argmax(few))]
        where = "" if entry is None else f" of {name} {entry}"
        raise SpecError(
            f"population: the answer{where} may be of fewer than {FEW_ROWS} rows, or of all but "
            "so few, whose sampling errors are not about normal. Ask for more rows, or of the rows "
            "themselves: leave population out"
        )

    def answer(self, interval: Interval, beta: Fraction, kind: IntervalKind) -> Answer:
        """Return the answer that an interval (entries, groups) makes."""
        labels = {**self.labels, "group": self.bins.groups}
        attributes, unit = (self.axis.attributes, self.axis.unit) if self.axis else ({}, None)
        domain, rounding = self.bins.domain, self.bins.rounding_text
        text, sentence = self.text + rounding, self.sentence and self.sentence + rounding
        attributes = {"long_name": text} | attributes
        value, low, high = (
            labelled_entries(entries, labels, attributes, domain)
            for entries in (interval.value, interval.low, interval.high)
        )
        target = self.target or "records"
        answer = Answer(value, low, high, target, kind, float(beta), question=text, unit=unit)
        width = interval.high - interval.low
        mostly_cells = (2 * interval.cells > width) & (width > 0)
        note = ""
        if self.target != "smoothed":
            note = _cells_note(domain, interval.cells[mostly_cells], width[mostly_cells])
        return replace(answer, percent=self.percent, note=note, sentence=sentence)


def are_means_of_few_rows(
    interval: Interval, rows: RowRange | float, low: float = 0.0, width: float = 1.0,
    maximum: float = 1.0,
) -> BoolArray:  # fmt: skip
    """Return which means over so many rows have errors that are not about normal.

    Means are from `low` to ``low + width``; those of which each row adds to a sum, such as a
    density, have an infinite `maximum` and are at least `low`. Where rows weigh from 0 to 1 `rows`
    are the sums of their weights: so many rows of equal weights err no less. Where noise or bins
    leave many rows open, what is not normal of the sampling error hardly counts.
    """
    least, most = rows if isinstance(rows, RowRange) else (rows, rows)
    first, last = (
        np.clip((numbers - low) / width, 0.0, maximum) for numbers in (interval.low, interval.high)
    )
    inside = np.minimum(first, maximum - last)
    return np.asarray((inside * least < FEW_ROWS) & ((last - first) * most < 2 * FEW_ROWS))


@dataclass(frozen=True)
class CommonOptions:
    """Condition, target and other release that a command line states for all of its questions."""

    condition: dict[str, tuple[Any, Any]] | None
    target: Target
    with_release: ReleasedBins | None = None

    def unconditioned(self, names: Sequence[str]) -> list[str]:
        """Return the axes without a condition."""
        return [name for name in names if name not in (self.condition or {})]


DeferredQuestion: TypeAlias = Callable[[ReleasedBins, Fraction], Iterator[Answer]]
"""Function from the bins whose account pays, and a part of beta, to answers."""


@dataclass(frozen=True, eq=False, kw_only=True)
class OptionQuestion(Question):
    """A question that `dbern ask` has an option for."""

    option: ClassVar[QuestionOption]

    @classmethod
    @abstractmethod
    def from_text(
        cls, text: str, bins: ReleasedBins, options: CommonOptions
    ) -> Sequence[DeferredQuestion]:
        """Read the text after the option, "" after a flag."""


def load_question(option: QuestionOption) -> type[OptionQuestion]:
    """Import the question that an option names."""
    module, _, name = option.question.partition(":")
    return cast("type[OptionQuestion]", getattr(import_module(module), name))


def deferred(read: Callable[[], Question], where: str = "") -> DeferredQuestion:
    """Return a function that reads and asks one question; `where` follows its text."""

    def answers(payer: ReleasedBins, beta: Fraction) -> Iterator[Answer]:
        answer = read().ask(payer, str(beta))
        yield replace(answer, question=answer.question + where)

    return answers


def _cells_note(domain: Domain, cells: FloatArray, width: FloatArray) -> str:
    """Return why cells make intervals wide, and what makes them narrower; "" of no interval.

    Without an edge to guess noise is all of an interval: the factor is the median of their widths
    over what cells leave of them.
    """
    if not len(width):
        return ""
    hint = ""
    if anywhere := [axis.name for axis in domain.axes if axis.multiples is None]:
        factor = float(np.median(width / np.maximum(width - cells, width / _MAX_FACTOR)))
        times = f"about {factor:.1f}" if factor < _MAX_FACTOR else f"more than {_MAX_FACTOR:g}"
        hint = (
            " and, where rows stand at few values, [data.resolution] "
            f"{toml_key(anywhere[0])} = ..: it is {times} times as wide as with one, and more "
            "where values are few"
        )
    return (
        f"{CELLS}: bins do not tell where in a cell a row is. "
        "It is narrower where a density or regression is released with [mechanism] "
        f'questions = ["mass", "quantile"] alone{hint}'
    )
