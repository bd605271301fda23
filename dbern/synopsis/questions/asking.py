"""A question about released bins, and how it is asked: from its band to its answer."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias, get_args

import numpy as np

from dbern.bernstein.kernels import Kernel
from dbern.data.domain import Axis, Domain, rounded_text
from dbern.errors import SpecError, printable
from dbern.failure import POPULATION, Account
from dbern.synopsis.points import as_datetimes, confidence, conventional, describe_axis
from dbern.synopsis.questions.answers import Answer, Interval, Law, Percent, Target
from dbern.synopsis.questions.envelopes.splines import products
from dbern.synopsis.questions.interval import Band, Line
from dbern.synopsis.questions.measure import Measure
from dbern.synopsis.questions.options import Option
from dbern.synopsis.questions.population import drawn_from, few
from dbern.synopsis.questions.regions import Boxes, Region, Weights, boxes_of
from dbern.types import FloatArray

_BETA = Fraction(1, 20)


@dataclass(frozen=True, eq=False)
class Response:
    """Released responses of a regression, which are from `low` to `high`.

    `measures` have the bins of the rows, each weighted by its response as a number in [-1, 1]: one
    array for each of the groups.
    """

    measures: tuple[Measure, ...]
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Promised:
    """Bound that a number promises for the released density of these data.

    `least` holds where the number tells nothing. `ends` returns the band's ends at points, at a
    beta.
    """

    least: float
    ends: Callable[[FloatArray, str], tuple[Any, Any]]


@dataclass(eq=False, repr=False)
class ReleasedBins:
    """Bins of a release, with all that every question about them needs; see `Distribution`."""

    name: str
    domain: Domain
    measures: tuple[Measure, ...]
    groups: tuple[Any, ...]
    rows: float
    kernels: tuple[Kernel, ...] = ()
    unit_rows: int = 1
    account: Account | None = None
    response: Response | None = None
    choices: int = 1
    promised: Promised | None = None
    _count: int = field(default=0, init=False)

    def __repr__(self) -> str:
        axes = ", ".join(self.domain.names)
        left = "" if self.account is None else f", {self.account}"
        return printable(f"<Distribution {self.name} over {axes}{left}>")

    def ask(
        self, question: Question, beta: float | str | None = None, *, population: bool = False
    ) -> Answer:
        """Answer a question of `dbern.synopsis.questions`; parameters as of `mass`.

        Each group has its part of beta, and each kernel that a smoothed one was chosen from.
        """
        if population and self.unit_rows > 1:
            raise SpecError(
                f"population: a unit of privacy has up to {self.unit_rows} rows here, and rows of "
                "one unit are not independent. Release with one row a unit"
            )
        level, measures = self.take(beta), question.measures
        choices = self.choices if question.target == "smoothed" else 1
        bands, law = question.bands(level / (len(measures) * choices), population=population)
        return question.answer(Band(*np.array(bands).transpose(1, 2, 0)), level, law)

    def take(self, beta: float | str | None) -> Fraction:
        """Return the probability of failure of the next question, and take it off the account."""
        if self.account is not None:
            return self.account.take(None if beta is None else confidence(beta))
        level = _BETA if beta is None else confidence(beta)
        self._count += 1
        if self._count == 2:
            warnings.warn(
                "each answer holds with its own probability, not all of them together. For "
                "that write: with distribution.confidence(0.05) as c: and ask c",
                stacklevel=4,
            )
        return level

    @property
    def of_rounded_rows(self) -> str:
        """Whose answers they are, in words, where rows are rounded."""
        text = rounded_text(self.domain.axes)
        return text and f", of rows {text}"

    def index(self, axis: str | None) -> int:
        """Return the index of an axis, or of the only one."""
        names = self.domain.names
        if axis is None and len(names) == 1:
            return 0
        if axis is None:
            raise SpecError(f'axis: name one of {", ".join(names)}, such as axis = "{names[0]}"')
        if axis not in names:
            raise SpecError(f"axis: {axis!r} is none. Write one of {', '.join(names)}")
        return names.index(axis)

    def condition(self, box: Region | None, *indices: int) -> Boxes:
        """Read a condition on axes other than those that are asked about."""
        boxes = boxes_of({} if box is None else box, self.domain, "given")
        names = [self.domain.names[index] for index in indices]
        if box is not None and (met := [name for name in names if name in box]):
            raise SpecError(
                f"given: {met[0]} is what is asked about. Write a box of other axes, or ask for "
                "the mass of boxes"
            )
        return one_box(boxes)

    def weights(self, target: Target) -> Weights:
        """Return the weights of rows in a region."""
        if target not in get_args(Target):
            raise SpecError(f'target = "{target}": write "records" or "smoothed"')
        return Weights(self.kernels if target == "smoothed" else ())

    def rows_in(self, box: Boxes, measure: Measure, beta: Fraction) -> float:
        """Bound the number of rows in a box from below."""
        inside = products(Weights().axes(measure, box)).layered()
        line = Line.through(measure.whole(), inside.lower)
        return self.rows * float(line.at(0.0, -1, measure, beta)[0])


@dataclass(frozen=True)
class Settings:
    """Condition, target and other release that a command line states for all of its questions."""

    condition: dict[str, tuple[Any, Any]] | None
    target: Target
    other: ReleasedBins | None = None

    def free(self, names: Sequence[str]) -> list[str]:
        """Return the axes without a condition."""
        return [name for name in names if name not in (self.condition or {})]


Asked: TypeAlias = Callable[[ReleasedBins, Fraction], Iterator[Answer]]
"""From what is asked and its part of beta to answers."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Question(ABC):
    """A question about released bins, its arguments read: a subclass says what its band is.

    `labels` names the dimensions of the band's entries and what is along them. `text` is the
    question in words. `target` is None where the question has none, and `axis` the one whose unit
    the numbers have, if any.
    """

    bins: ReleasedBins
    text: str
    labels: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    target: Target | None = None
    axis: Axis | None = None

    @abstractmethod
    def _band(self, measure: Measure, beta: Fraction) -> Band:
        """Return the band that holds for a measure with probability ``1 - beta``."""

    def _drawn_band(self, measure: Measure, beta: Fraction) -> tuple[Band, bool] | None:  # noqa: ARG002
        """Return a band of the population whatever its law, and whether the rows are few.

        None where the normal law is all that there is.
        """
        return None

    @property
    def measures(self) -> Sequence[Measure]:
        """Bins that are asked, one array a group."""
        return self.bins.measures

    @property
    def percent(self) -> Percent | None:
        """Unit that the numbers are printed in, where they are shares."""
        return None

    def bands(self, beta: Fraction, *, population: bool) -> tuple[list[Band], Law | None]:
        """Ask all measures, each at `beta`; a population by `_drawn_band` where rows are few."""
        if not population:
            return [self._band(measure, beta) for measure in self.measures], None
        drawn = [self._drawn_band(measure, beta) for measure in self.measures]
        bands = [pair[0] for pair in drawn if pair]
        if any(pair and pair[1] for pair in drawn):
            return bands, "any"
        rows = self.bins.rows
        measures = [measure.population(rows) for measure in self.measures]
        return [self._band(measure, beta) for measure in measures], "normal"

    def _drawn_of(
        self,
        measure: Measure,
        beta: Fraction,
        box: Boxes | None,
        low: float = 0.0,
        width: float = 1.0,
    ) -> tuple[Band, bool]:
        """Return `_drawn_band` of means over the rows in a box, or without one of sums over rows.

        All of them are from `low` to ``low + width``.
        """
        rows, shares = self.bins.rows, box is not None
        if box is not None:
            rows = self.bins.rows_in(box, measure, beta * POPULATION["rows"])
        ends = self._band(measure, beta * POPULATION["answer"])[:3]
        inside = Band.without_error(*(np.clip((end - low) / width, 0.0, 1.0) for end in ends))
        wider = drawn_from(inside, rows, beta * POPULATION["sampling"], shares=shares)
        return wider.scaled(low, width), few(inside, rows, shares=shares)

    def answer(self, band: Band, level: Fraction, law: Law | None) -> Answer:
        """Return the answer that a band (entries, groups) makes."""
        labels = {**self.labels, "group": self.bins.groups}
        attributes, unit = (self.axis.attributes, self.axis.unit) if self.axis else ({}, None)
        domain, text = self.bins.domain, self.text + self.bins.of_rounded_rows
        attributes = {"long_name": text} | attributes
        value, low, high = (labelled(end, labels, attributes, domain) for end in band[:3])
        interval: Interval = "these-data" if law is None else "population"
        target = self.target or "records"
        answer = Answer(*(value, low, high, target, interval, float(level), text, unit, law))
        answer = replace(answer, percent=self.percent)
        if self.target == "smoothed" or np.isnan(band.error).all():
            return answer
        error = labelled(band.error, labels, {"long_name": "likely error"}, domain)
        mostly_cells = (2 * band.cells > band.high - band.low).any()
        note = _cells_note(self.target, domain) if mostly_cells else ""
        return replace(answer, likely_error=error, note=note)


@dataclass(frozen=True, eq=False, kw_only=True)
class OptionQuestion(Question):
    """A question that `dbern ask` has an option for."""

    option: ClassVar[Option]

    @classmethod
    @abstractmethod
    def from_text(cls, text: str, bins: ReleasedBins, settings: Settings) -> Sequence[Asked]:
        """Read what is written after the option, "" after a flag."""


def ask_one(read: Callable[[], Question]) -> Asked:
    """Return what reads and asks one question, when it is asked."""

    def answers(bins: ReleasedBins, beta: Fraction) -> Iterator[Answer]:
        yield bins.ask(read(), str(beta))

    return answers


def one_box(boxes: Boxes) -> Boxes:
    """Return the boxes of a condition, which must be one. Raises SpecError for several."""
    if len(boxes) != 1:
        raise SpecError("given: write one box")
    return boxes


def labelled(
    numbers: FloatArray,
    labels: Mapping[str, Sequence[Any]],
    attributes: Mapping[str, str],
    domain: Domain,
) -> Any:
    """Return numbers with a dimension for each of the labels that has several, or one float.

    A dimension whose labels are empty is left out; so is one label that is None. Those of an axis
    of the domain have its attributes.
    """
    dimensions: dict[str, Any] = {
        name: list(values) for name, values in labels.items() if list(values) != [None]
    }
    shape = [len(values) for values in dimensions.values()]
    if not dimensions:
        return float(np.reshape(numbers, ()))
    import xarray

    axes = [axis for axis in domain.axes if axis.name in dimensions]
    for axis in axes:
        dimensions[axis.name] = as_datetimes(np.asarray(dimensions[axis.name]), axis)
    array = xarray.DataArray(
        np.reshape(numbers, shape), dimensions, list(dimensions), attrs=dict(attributes)
    )
    for axis in axes:
        describe_axis(array[axis.name], axis)
    return conventional(array)


def _cells_note(target: Target | None, domain: Domain) -> str:
    """Return why cells make an interval wide, and what makes it narrower."""
    smoothed = 'target = "smoothed" (dbern ask: --target smoothed), or ' if target else ""
    anywhere = [axis.name for axis in domain.axes if axis.multiples is None]
    rounded = " and, where rows stand at few values, [data.resolution] {} = .."
    return (
        "most of the interval is the cells' width: bins do not tell where in a cell a row is. "
        f"Narrower: {smoothed}a density or regression released with [mechanism] "
        f'questions = ["mass", "quantile"]{rounded.format(anywhere[0]) if anywhere else ""}'
    )
