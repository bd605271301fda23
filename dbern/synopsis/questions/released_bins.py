"""Bins of a release, with all that every question about them needs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, get_args

from dbern.bernstein.kernels import Kernel
from dbern.certify.failure import Account
from dbern.data.domain import Domain, rounded_text
from dbern.errors import SpecError, printable
from dbern.synopsis.points import confidence
from dbern.synopsis.questions.answers import Target
from dbern.synopsis.questions.envelopes.splines import products
from dbern.synopsis.questions.linear_family import LinearFamily
from dbern.synopsis.questions.noisy_measure import NoisyMeasure
from dbern.synopsis.questions.regions import Boxes, Region, Weights, boxes_of, require_one_box

_BETA = Fraction(1, 20)


@dataclass(frozen=True, eq=False)
class ReleasedResponses:
    """Released responses of a regression, which are from `low` to `high`; `name` has their units.

    `measures` have the bins of the rows, each weighted by its response as a number in [-1, 1]: one
    array for each of the groups.
    """

    measures: tuple[NoisyMeasure, ...]
    low: float
    high: float
    name: str = "the response"


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
    _count: int = field(default=0, init=False)

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
            return self.account.take(None if beta is None else confidence(beta))
        level = _BETA if beta is None else confidence(beta)
        self._count += 1
        if self._count == 2:
            warnings.warn(
                "each answer holds with its own probability, not all of them together. For "
                "that write: with distribution.confidence(0.05) as c: and ask c",
                stacklevel=5,  # of this, a question, `Distribution.ask`, its method and a caller
            )
        return level

    @property
    def rounding_text(self) -> str:
        """Whose answers they are, in words, where rows are rounded."""
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

    def min_rows_in(self, box: Boxes, measure: NoisyMeasure, beta: Fraction) -> float:
        """Bound the number of rows in a box from below."""
        inside = products(Weights().axes(measure, box)).layered()
        minorant = LinearFamily.of_weights(measure.joint(), inside.lower)
        return self.rows * float(minorant.bound(0.0, -1, measure, beta)[0])
