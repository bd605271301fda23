"""Shared by all questions of released bins: the bins, the reading of arguments, the asking."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeAlias, get_args

import numpy as np

from dbern.bernstein.kernels import Kernel
from dbern.data.domain import Axis, Domain
from dbern.errors import SpecError, printable
from dbern.failure import POPULATION, Account
from dbern.synopsis.points import confidence
from dbern.synopsis.questions.answers import Answer, Interval, Law, Target, cells_note, labelled
from dbern.synopsis.questions.measure import Band, Measure
from dbern.synopsis.questions.population import drawn_from, few
from dbern.synopsis.questions.regions import Boxes, Region, boxes_of
from dbern.synopsis.questions.shares import Weights, least_share
from dbern.types import FloatArray


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
    (`dbern.noise_quantile.chosen_noise`). `ends` returns the band's ends at points, at a beta.
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
            count = self.rows if rows is None else rows(measure, share * POPULATION["rows"])
            ends = band(measure, share * POPULATION["answer"])[:3]
            inside = Band.without_error(*(np.clip((end - low) / width, 0.0, 1.0) for end in ends))
            shares = rows is not None
            wider = drawn_from(inside, count, share * POPULATION["sampling"], shares=shares)
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
