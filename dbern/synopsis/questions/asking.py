"""Shared by all questions of released bins: the answer, the bins, arguments, confidence."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from dbern.bernstein.kernels import Kernel
from dbern.data.domain import Axis, Domain, TimeUnit
from dbern.errors import SpecError, printable
from dbern.synopsis.points import as_datetimes, confidence, conventional, describe_axis
from dbern.synopsis.questions.functionals import Weights, least_share
from dbern.synopsis.questions.measure import Band, Measure, drawn_from, few
from dbern.synopsis.questions.regions import Boxes, Region, boxes_of
from dbern.system import format_number, html_table
from dbern.types import FloatArray

if TYPE_CHECKING:
    import xarray

Target: TypeAlias = Literal["records", "smoothed"]
"""What is asked about: shares of the rows themselves, or the released function integrated."""

Interval: TypeAlias = Literal["these-data", "population"]
"""What the interval covers: the answer of the rows at hand, or of those that they were drawn of."""

Law: TypeAlias = Literal["normal", "any"]
"""Of sampling errors: normal, about, or any."""


_SHOWN = 60  # of the rows of a table; the others are in `to_dataset`


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """Answer to a question: print it, or take its numbers.

    With probability at least ``1 - beta`` what was asked for lies from `low` to `high`: all
    entries of an array at once.

    Attributes
    ----------
    value, low, high : float or xarray.DataArray
        The best guess and the ends of its interval.
    target : "records" or "smoothed"
    interval : "these-data" or "population"
    beta : float
    question : str
        In words.
    unit : TimeUnit, optional
        What the numbers count, where they are dates or times: they are printed as such.
    law : "normal" or "any", optional
        What sampling errors of a population are taken to have.
    likely_error : float or xarray.DataArray, optional
        Of the value, not guaranteed: the standard deviation of its noise, and what rows at ten
        values a cell err by (docs/questions.md).
    note : str
        Why an interval is wide, and what makes it narrower; empty where noise makes most of it.

    Examples
    --------
    >>> Answer(0.25, 0.2, 0.3, "records", "these-data", 0.05, "share of x up to 3")
    share of x up to 3: 0.25, from 0.2 to 0.3 with probability 0.95 (records, these data)
    """

    value: Any
    low: Any
    high: Any
    target: Target
    interval: Interval
    beta: float
    question: str
    unit: TimeUnit | None = None
    law: Law | None = None
    likely_error: Any = None
    note: str = ""

    def _written(self, number: float) -> str:
        if self.unit:
            return self.unit.text(number)
        text = f"{number:.6g}"
        return format_number(number, 6) if "e" in text else text

    def __repr__(self) -> str:
        return str(self)

    @property
    def _about(self) -> str:
        law = {"normal": ", errors about normal", "any": ", of any law", None: ""}[self.law]
        return f"({self.target}, {self.interval.replace('-', ' ')}{law})"

    def __str__(self) -> str:
        sure = f"with probability {1 - self.beta:.6g} {self._about}"
        if not hasattr(self.value, "dims"):
            value, low, high = map(self._written, (self.value, self.low, self.high))
            text = f"{self.question}: {value}, from {low} to {high} {sure}"
        else:
            table = self.to_dataset().to_dataframe().to_string(**self._how)
            text = f"{self.question}, all at once {sure}\n{table}"
        return printable(text + ("\n" + self._note if self.note else ""), keep="\n")

    @property
    def _note(self) -> str:
        error = "" if hasattr(self.value, "dims") else f" {self._length(self.likely_error)}"
        return f"likely error{error}, not guaranteed; {self.note}"

    def _length(self, number: float) -> str:
        """Write a difference of two values: of dates in days, of times in seconds."""
        return f"{number:.3g}" + (f" {self.unit.name.lower()}" if self.unit else "")

    def _repr_html_(self) -> str:
        sure = f"{1 - self.beta:.6g} {self._about}"
        rows = {"question": self.question, "with probability": sure}
        rows |= {"note": self._note} if self.note else {}
        if not hasattr(self.value, "dims"):
            ends = {"value": self.value, "from": self.low, "to": self.high}
            return html_table(rows | {name: self._written(end) for name, end in ends.items()})
        table = self.to_dataset().to_dataframe().to_html(**self._how)
        return html_table(rows) + str(table)

    def to_dataset(self) -> xarray.Dataset:
        """Return value, low and high, and the likely error where it is known, as one dataset."""
        import xarray

        numbers = {"value": self.value, "low": self.low, "high": self.high}
        if self.likely_error is not None:
            numbers["likely_error"] = self.likely_error
        facts = {"question": self.question, "target": self.target, "interval": self.interval}
        law = {"law": self.law} if self.law else {}
        return xarray.Dataset(numbers, attrs={**facts, **law, "beta": self.beta})

    @property
    def _how(self) -> dict[str, Any]:
        lengths = {"likely_error": self._length}
        return {"max_rows": _SHOWN, "float_format": self._written, "formatters": lengths}


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


# --- What all questions of released bins share: the bins, the reading of arguments, the asking


@dataclass(frozen=True, eq=False)
class Response:
    """Released responses of a regression, which are from `low` to `high`.

    `measure` has the bins of the rows, each weighted by its response as a number in [-1, 1].
    """

    measure: Measure
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Promised:
    """Bound that a number promises for the released density of these data.

    `least` holds where the number tells nothing. `part` is the part of beta that bins without it
    have: where it has chosen them it may be low when it is not looked at
    (`dbern.certificate.chosen_noise`). `ends` returns the band's ends at points, at a beta.
    """

    least: float
    part: Fraction
    ends: Callable[[FloatArray, str], tuple[Any, Any]]


Drawn: TypeAlias = Callable[[Measure, Fraction], tuple[Band, bool]]
"""What a population has whatever its law, and whether rows are too few for the normal law."""


@dataclass(eq=False, repr=False)
class Asking:
    """Released bins, and the settings that every question of `Distribution` needs."""

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
    _asked: int = field(default=0, init=False)

    def __repr__(self) -> str:
        axes = ", ".join(self.domain.names)
        left = "" if self.account is None else f", {self.account}"
        return printable(f"<Distribution {self.name} over {axes}{left}>")

    def _beta(self, beta: float | str | None) -> Fraction:
        """Probability of failure of this question, for each group."""
        if self.account is not None:
            whole = self.account.take(None if beta is None else confidence(beta))
        else:
            whole = confidence(0.05 if beta is None else beta)
            self._asked += 1
            if self._asked == 2:
                warnings.warn(
                    "each answer holds with its own probability, not all of them together. For "
                    "that write: with distribution.confidence(0.05) as c: and ask c",
                    stacklevel=5,
                )
        return whole

    def _index(self, axis: str | None) -> int:
        names = self.domain.names
        if axis is None and len(names) == 1:
            return 0
        if axis is None:
            raise SpecError(f'axis: name one of {", ".join(names)}, such as axis = "{names[0]}"')
        if axis not in names:
            raise SpecError(f"axis: {axis!r} is none. Write one of {', '.join(names)}")
        return names.index(axis)

    def _of_others(self, given: Region | None, *indices: int) -> Boxes:
        boxes = boxes_of({} if given is None else given, self.domain, "given")
        own = [self.domain.names[index] for index in indices]
        if given is not None and (met := [name for name in own if name in given]):
            raise SpecError(
                f"given: {met[0]} is what is asked about. Write a box of other axes, or ask for "
                "the mass of boxes"
            )
        return one_box(boxes)

    def _within(self, given: Region | None, *indices: int) -> Callable[[Measure, Fraction], float]:
        """Return a lower bound on the rows that a condition holds, by measure and beta."""

        def rows(measure: Measure, share: Fraction) -> float:
            return self.rows * least_share(measure, self._of_others(given, *indices), share)

        return rows

    def _weights(self, target: Target) -> Weights:
        if target not in get_args(Target):
            raise SpecError(f'target = "{target}": write "records" or "smoothed"')
        return Weights(self.kernels if target == "smoothed" else ())

    def _drawn(
        self,
        band: Callable[[Measure, Fraction], Band],
        rows: Callable[[Measure, Fraction], float] | None,
        low: float = 0.0,
        width: float = 1.0,
    ) -> Drawn:
        """Extend a band of the rows to their population: of means over `rows`, or of sums."""

        def drawn(measure: Measure, share: Fraction) -> tuple[Band, bool]:
            count = self.rows if rows is None else rows(measure, share / 10)
            ends = band(measure, share * 2 / 5)[:3]
            inside = Band.without_error(*(np.clip((end - low) / width, 0.0, 1.0) for end in ends))
            shares = rows is not None
            wider = drawn_from(inside, count, share / 2, shares=shares)
            return wider.scaled(low, width), few(inside, count, shares=shares)

        return drawn

    def _asked_of(
        self,
        band: Callable[[Any, Fraction], Band],
        labels: Mapping[str, Sequence[Any]],
        question: str,
        beta: float | str | None,
        axis: Axis | None = None,
        *,
        measures: Sequence[Measure] | None = None,
        target: Target | None = None,
        population: bool = False,
        drawn: Drawn | None = None,
    ) -> Answer:
        """Ask each group, or of `measures`, at its part of beta; and each kernel there may be.

        A population is asked by `drawn` where rows are few. No `target`: the question takes none.
        """
        if population and self.unit_rows > 1:
            raise SpecError(
                f"population: a unit of privacy has up to {self.unit_rows} rows here, and rows of "
                "one unit are not independent. Release with one row a unit"
            )
        level = self._beta(beta)
        each, found = measures or self.measures, list[Band]()
        share = level / (len(each) * (self.choices if target == "smoothed" else 1))
        law: Law | None = "normal" if population else None
        if population and drawn is not None:
            wider = [drawn(one, share) for one in each]
            found = [one for one, _ in wider]
            law = "any" if any(rare for _, rare in wider) else "normal"
        if law != "any":
            found = [band(one.population(self.rows) if population else one, share) for one in each]
        bands = Band(*np.array(found).transpose(1, 2, 0))
        named = {**labels, "group": self.groups}
        attributes, unit = (axis.attributes, axis.unit) if axis else ({}, None)
        attributes = {"long_name": question} | attributes
        value, low, high = (labelled(end, named, attributes, self.domain) for end in bands[:3])
        interval: Interval = "population" if population else "these-data"
        answer = Answer(
            *(value, low, high, target or "records", interval, float(level), question, unit, law)
        )
        if target == "smoothed" or np.isnan(bands.error).all():
            return answer
        error = labelled(bands.error, named, {"long_name": "likely error"}, self.domain)
        mostly_cells = (2 * bands.cells > bands.high - bands.low).any()
        return replace(answer, likely_error=error, note=cells_note(target) if mostly_cells else "")


def cells_note(target: Target | None) -> str:
    """Return why cells make an interval wide, and what makes it narrower."""
    smoothed = 'target = "smoothed" (dbern ask: --target smoothed), or ' if target else ""
    return (
        "most of the interval is the cells' width: bins do not tell where in a cell a row is. "
        f"Narrower: {smoothed}a density or regression released with [mechanism] "
        'questions = ["mass", "quantile"]'
    )


def told(region: Region) -> str:
    """Write a region in words."""
    region = getattr(region, "__geo_interface__", region)
    match region:
        case {"type": str() as kind}:
            return f"a {kind}"
        case Mapping():
            ends = [f"{name} from {_end(*pair)}" for name, pair in region.items()]
            return " and ".join(ends) or "the domain"
        case _:
            return f"{len(region)} regions"


def _end(low: Any, high: Any) -> str:
    if np.ndim(low) or np.ndim(high):
        return "each low to each high end"
    first = "its lower bound" if low is None else low
    return f"{first} to {'its upper bound' if high is None else high}"


def told_given(given: Region | None, target: Target = "records") -> str:
    """Write a condition in words."""
    rows = "" if target == "smoothed" else "of the rows "
    return "" if given is None else f" {rows}with {told(given)}"


def one_box(boxes: Boxes) -> Boxes:
    """Return the boxes of a condition, which must be one. Raises SpecError for several."""
    if len(boxes) != 1:
        raise SpecError("given: write one box")
    return boxes


# --- One account of confidence for several answers


@dataclass
class Account:
    """Probability of failure that several answers share, and what is left of it."""

    beta: Fraction
    questions: int | None = None
    asked: int = 0
    spent: Fraction = Fraction(0)

    @property
    def left(self) -> float:
        """Probability that is not yet taken."""
        return float(self.beta - self.spent)

    def __str__(self) -> str:
        return f"{self.asked} asked, {self.left:.3g} left of beta = {float(self.beta):.3g}"

    def take(self, wanted: Fraction | None) -> Fraction:
        """Return the next question's part, or what it wants.

        Raises SpecError where less is left.
        """
        self.asked += 1
        share = self.questions or self.asked * (self.asked + 1)
        part = self.beta / share if wanted is None else wanted
        if part > self.beta - self.spent:
            raise SpecError(
                f"confidence: {self}. Ask fewer questions, or write more of them in "
                "confidence(.., questions=..)"
            )
        self.spent += part
        return part
