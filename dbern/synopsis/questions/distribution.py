"""``Distribution``: released bins, asked anything; every answer is post-processing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from dbern.combination import Combination
from dbern.data.domain import Domain
from dbern.errors import SpecError, printable
from dbern.synopsis.arrays import ReleasedArray, ReleasedVector
from dbern.synopsis.points import confidence
from dbern.synopsis.questions.answer import Answer, labelled
from dbern.synopsis.questions.measure import FIRST, Band, Measure, View, many_boxes, quotients
from dbern.synopsis.questions.regions import Boxes, Region, boxes_of
from dbern.synopsis.questions.splines import OFFSETS, AxisSplines, Sides, products
from dbern.types import FloatArray

_FEW = 1 << 21  # weights of boxes that are laid out one by one; of more nothing is simulated
_AT_ONCE = 1 << 21  # numbers of many boxes that are in memory
_PLACES = 1024  # at which quantiles are told apart, where cells are no more


def distribution_of(
    arrays: Sequence[ReleasedArray | ReleasedVector],
    combination: Combination,
    domain: Domain,
    facts: Mapping[str, Any],
) -> Distribution:
    """Return the distribution that released arrays tell.

    Raises
    ------
    SpecError
        Where they are not bins that count rows on all axes.
    """
    if "random_dp" in facts:
        raise SpecError(
            "distribution: a release under random differential privacy answers for its own points "
            "alone. Release a kernel density"
        )
    functions = [one for one in arrays if type(one) is ReleasedArray]
    counting = [one for one in functions if one.counted_in == one.name and one.bins]
    whole = [one for one in counting if one.axes == domain.names]
    grouped = combination.kind == "stack"
    if not whole or combination.kind not in ("linear", "stack", "ratio"):
        raise SpecError(
            "distribution: what was released does not count rows by bins. Release a kernel "
            'density, or a regression, with noise = "binned-laplace" (what "auto" takes where few '
            "axes are smooth)"
        )
    measures = []
    for stream, one in enumerate(whole):
        if one.oblique is not None:
            raise SpecError(
                "distribution: bins of oblique coordinates do not tell boxes. Release with "
                "bandwidth = [..] in place of covariance"
            )
        splines = tuple(AxisSplines(bins.cells, bins.degree) for bins in one.bins)
        released = one.released / one.value_unit
        measures.append(Measure(released, splines, one.law, one.released_error, stream))
    rows = facts["target"].get("n") or facts["target"]["normalizer"]
    groups = combination.classes if grouped else (None,)
    return Distribution(facts["name"], domain, tuple(measures), tuple(groups), float(rows))


@dataclass(eq=False, repr=False)
class Distribution:
    """The rows of a release, as far as their bins tell them. Make one with `Synopsis.distribution`.

    Ask it for shares, counts, quantiles and means. Each answer has a value and an interval, which
    holds with probability ``1 - beta`` for all entries of that answer at once, whatever the rows:
    of several answers together only within `confidence`. Rows that are missing or outside the
    bounds under "drop" do not count: shares are of the counted rows, for each group of its own.

    Attributes
    ----------
    name : str
    domain : Domain
        Axes and bounds.
    groups : tuple
        Labels of the groups; (None,) without any.
    rows : float
        The public number of rows, or the normalizer, that counts are multiples of.
    """

    name: str
    domain: Domain
    measures: tuple[Measure, ...]
    groups: tuple[Any, ...]
    rows: float
    account: Account | None = None
    _asked: int = field(default=0, init=False)

    def __repr__(self) -> str:
        axes = ", ".join(self.domain.names)
        left = "" if self.account is None else f", {self.account}"
        return printable(f"<Distribution {self.name} over {axes}{left}>")

    # --- Confidence

    def confidence(self, beta: float | str = 0.05, questions: int | None = None) -> Together:
        """Return a context in which all answers hold at once with probability ``1 - beta``.

        Parameters
        ----------
        questions : int, optional
            How many there will be; each gets as much of beta. Without it the i-th gets
            ``beta / (i (i + 1))``. A question may name its own ``beta``, which is taken off.

        Raises
        ------
        SpecError
            For a beta outside (0, 1), or less than one question.

        Examples
        --------
        ``with d.confidence(0.05, questions=2) as c: both = c.mean(), c.quantile(0.5)``
        """
        if questions is not None and questions < 1:
            raise SpecError(f"questions = {questions}: write how many there will be, at least 1")
        return Together(self, Account(confidence(beta), questions))

    def _beta(self, beta: float | str | None) -> Fraction:
        """What this question may fail with, for each group."""
        if self.account is not None:
            whole = self.account.take(None if beta is None else confidence(beta))
        else:
            whole = confidence(0.05 if beta is None else beta)
            self._asked += 1
            if self._asked == 2:
                warnings.warn(
                    "each answer holds with its own probability, not all of them together. For "
                    "that write: with distribution.confidence(0.05) as c: and ask c",
                    stacklevel=4,
                )
        return whole

    # --- Questions

    def mass(
        self, region: Region, *, given: Region | None = None, beta: float | str | None = None
    ) -> Answer:
        """Return the share of the counted rows in a region, or in each of many.

        Parameters
        ----------
        region : mapping or list
            A box ``{"x": (low, high)}`` in data units, None for an end that is open, axes that are
            left out whole; several boxes in a list, or as arrays of ends.
        given : mapping, optional
            A box: then the share of the rows in it.
        beta : float or str, optional
            One minus the confidence; 0.05, or what `confidence` gives.

        Raises
        ------
        SpecError
            For a region or a confidence that cannot be.
        """
        boxes = boxes_of(region, self.domain)
        condition = None if given is None else _one(boxes_of(given, self.domain, "given"))
        asked = "share of the rows" + ("" if given is None else f" with {_told(given)}")
        return self._shares(boxes, condition, f"{asked} in {_told(region)}", beta, of_total=True)

    def count(self, region: Region, *, beta: float | str | None = None) -> Answer:
        """Return how many rows are in a region, or in each of many; as for `mass`.

        Raises
        ------
        SpecError
            For a region or a confidence that cannot be.
        """
        boxes = boxes_of(region, self.domain)
        return self._shares(boxes, None, f"rows in {_told(region)}", beta, of_total=False)

    def _shares(
        self,
        boxes: Boxes,
        given: Boxes | None,
        question: str,
        beta: float | str | None,
        *,
        of_total: bool,
    ) -> Answer:
        level = self._beta(beta)
        size = 1.0 if of_total else self.rows
        found = [_box_band(one, boxes, given, level / len(self.groups), of_total=of_total)
                 for one in self.measures]  # fmt: skip
        labels = {"region": boxes.labels, "group": self.groups}
        return self._answer([_scaled(one, 0.0, size) for one in found], labels, question, level)

    def quantile(
        self,
        levels: float | Sequence[float],
        axis: str | None = None,
        *,
        given: Region | None = None,
        beta: float | str | None = None,
    ) -> Answer:
        """Return quantiles of an axis, in its units: of the rows, or of those in a box of others.

        Parameters
        ----------
        levels : float or sequence of float
            Between 0 and 1.
        axis : str, optional
            By name; the only one where there is one.
        given : mapping, optional
            A box of other axes.
        beta : float or str, optional
            As for `mass`.

        Raises
        ------
        SpecError
            For levels, an axis, a box or a confidence that cannot be.
        """
        index = self._index(axis)
        several, each = np.ndim(levels) > 0, np.atleast_1d(np.asarray(levels, dtype=np.float64))
        if each.ndim != 1 or not len(each) or not np.all((each > 0) & (each < 1)):
            raise SpecError("quantile: levels must be between 0 and 1. Write 0.5, or [0.25, 0.75]")
        condition = self._of_others(given, index)
        level = self._beta(beta)
        own = self.domain.axes[index]
        found = []
        for measure in self.measures:
            view = measure.along(index, _others(measure, condition, index))
            share = level / (len(self.groups) * len(each))
            band = _quantiles(view, measure.splines[index], each, share)
            found.append(_scaled(band, own.low, own.width))
        labels = {"quantile": each.tolist() if several else [None], "group": self.groups}
        asked = f"quantile {levels} of {own.name}" + _told_given(given)
        return self._answer(found, labels, asked, level, own.attributes)

    def mean(
        self,
        axis: str | None = None,
        *,
        given: Region | None = None,
        beta: float | str | None = None,
    ) -> Answer:
        """Return the mean of an axis, in its units: of the rows, or of those in a box of others.

        Parameters
        ----------
        axis, given, beta
            As for `quantile`.

        Raises
        ------
        SpecError
            For an axis, a box or a confidence that cannot be.
        """
        index = self._index(axis)
        condition = self._of_others(given, index)
        level, own = self._beta(beta), self.domain.axes[index]
        found = []
        for measure in self.measures:
            view = measure.along(index, _others(measure, condition, index))
            band = _mean(view, measure.splines[index], level / len(self.groups))
            found.append(_scaled(band, own.low, own.width))
        asked = f"mean of {own.name}" + _told_given(given)
        labels = {"mean": [None], "group": self.groups}
        return self._answer(found, labels, asked, level, own.attributes)

    # --- What questions share

    def _index(self, axis: str | None) -> int:
        names = self.domain.names
        if axis is None and len(names) == 1:
            return 0
        if axis not in names:
            raise SpecError(f"axis: {axis!r} is none. Write one of {', '.join(names)}")
        return names.index(axis)

    def _of_others(self, given: Region | None, index: int) -> Boxes:
        own = self.domain.names[index]
        if given is not None and own in given:
            raise SpecError(
                f"given: {own} is what is asked about. Write a box of other axes, or ask for the "
                "mass of boxes"
            )
        return _one(boxes_of({} if given is None else given, self.domain, "given"))

    def _answer(
        self,
        found: Sequence[Band],
        labels: Mapping[str, Sequence[Any]],
        question: str,
        beta: Fraction,
        attributes: Mapping[str, str] | None = None,
    ) -> Answer:
        ends = (np.stack(each, axis=-1) for each in zip(*found, strict=True))
        value, low, high = (labelled(one, labels, attributes or {}) for one in ends)
        return Answer(value, low, high, "records", "these-data", float(beta), question)


# --- Confidence of several answers


@dataclass
class Account:
    """What is left of a probability of failure that several answers share."""

    beta: Fraction
    questions: int | None = None
    asked: int = 0
    spent: Fraction = Fraction(0)

    @property
    def left(self) -> float:
        """What is not yet taken."""
        return float(self.beta - self.spent)

    def __str__(self) -> str:
        return f"{self.asked} asked, {self.left:.3g} left of beta = {float(self.beta):.3g}"

    def take(self, wanted: Fraction | None) -> Fraction:
        """Return the next question's part, or what it wants.

        Raises
        ------
        SpecError
            Where less is left.
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


@dataclass(frozen=True)
class Together:
    """A context of several questions; see `Distribution.confidence`."""

    distribution: Distribution
    account: Account

    def __enter__(self) -> Distribution:
        own = self.distribution
        return Distribution(own.name, own.domain, own.measures, own.groups, own.rows, self.account)

    def __exit__(self, *_error: object) -> None:
        return None


# --- Bands of each kind


def _told(region: Region) -> str:
    match region:
        case Mapping():
            ends = [f"{name} from {_end(*pair)}" for name, pair in region.items()]
            return " and ".join(ends) or "the domain"
        case _:
            return f"{len(region)} regions"


def _end(low: Any, high: Any) -> str:
    if np.ndim(low) or np.ndim(high):
        return "each low to each high end"
    return f"{'its lower bound' if low is None else low} to {'its upper' if high is None else high}"


def _told_given(given: Region | None) -> str:
    return "" if given is None else f" of the rows with {_told(given)}"


def _one(boxes: Boxes) -> Boxes:
    if len(boxes) != 1:
        raise SpecError("given: write one box")
    return boxes


def _scaled(band: Band, low: float, width: float) -> Band:
    return Band(*(low + width * one for one in band))


def _sides(measure: Measure, low: FloatArray, high: FloatArray) -> list[Sides]:
    axes = zip(measure.splines, low.T, high.T, strict=True)
    return [splines.between(start, stop) for splines, start, stop in axes]


def _others(measure: Measure, given: Boxes, index: int) -> Sides:
    """Weights of the bins of the other axes, (b_1, ..) each."""
    axes = _sides(measure, given.low, given.high)
    del axes[index]
    if not axes:
        return Sides(*[np.ones(1)] * 3)
    whole = products(axes)
    return Sides(whole.low[0], whole.near[0], whole.high[0])


def _layer(weights: FloatArray) -> FloatArray:
    """Weights (m, b_1, ..) of all bins as those of the one layer."""
    return weights.reshape(len(weights), 1, -1)


def _box_band(
    measure: Measure, boxes: Boxes, given: Boxes | None, beta: Fraction, *, of_total: bool
) -> Band:
    if len(boxes) * measure.values.size > _FEW:
        if given is not None:
            raise SpecError(f"given: {len(boxes)} boxes are too many. Ask for parts of them")
        return _many_band(measure, boxes, beta, of_total=of_total)
    view, ones = measure.whole(), np.ones((1, *measure.values.shape))
    base = Sides(ones, ones, ones)
    if given is not None:
        start, stop = np.maximum(boxes.low, given.low), np.minimum(boxes.high, given.high)
        boxes = Boxes(start, np.maximum(start, stop), boxes.labels)
        base = products(_sides(measure, given.low, given.high))
    inside = products(_sides(measure, boxes.low, boxes.high))
    near = view.of(_layer(inside.near))
    if not of_total:
        low, high = (view.line(_layer(one)) for one in (inside.low, inside.high))
        return quotients(near, low, high, measure, beta)
    below, above = (np.broadcast_to(one, inside.low.shape) for one in (base.low, base.high))
    total = float(view.of(_layer(base.near))[0])
    low = view.line(_layer(inside.low), _layer(above))
    high = view.line(_layer(inside.high), _layer(below))
    return quotients(_over(near, total), low, high, measure, beta)


def _many_band(measure: Measure, boxes: Boxes, beta: Fraction, *, of_total: bool) -> Band:
    """A part at a time; the tail holds for all of them."""
    rows = max(1, _AT_ONCE // sum(one.count for one in measure.splines))
    bands = []
    for start in range(0, len(boxes), rows):
        part = slice(start, start + rows)
        near, low, high = many_boxes(measure, _sides(measure, boxes.low[part], boxes.high[part]))
        if of_total:
            near = _over(near, float(measure.values.sum()))
        else:
            low, high = low.of_one(), high.of_one()
        share = beta * len(near) / len(boxes)
        bands.append(quotients(near, low, high, measure, share))
    return Band(*map(np.concatenate, zip(*bands, strict=True)))


def _over(values: FloatArray, total: float) -> FloatArray:
    return values / total if total > 0 else np.full(len(values), 0.5)


def _mean(view: View, splines: AxisSplines, beta: Fraction) -> Band:
    """The line of ``t - mu``: t is a spline itself, and nonnegative times either side."""
    low, near, high = _LAYERS
    t, one = splines.centers, np.ones(splines.count)
    total = float(view.of(_weights({near: one}))[0])
    value = _over(view.of(_weights({near: t})), total)
    below = view.line(_weights({low: t}), _weights({high: one}))
    above = view.line(_weights({high: t}), _weights({low: one}))
    return quotients(value, below, above, view.measure, beta)


_LAYERS = (0, 1, 2)
"""Of `Measure.along`: its condition from below, nearly, and from above."""


def _weights(layers: Mapping[int, FloatArray]) -> FloatArray:
    """Weights (m, layers, bins) of which so many layers are not zero."""
    rows = np.atleast_2d(next(iter(layers.values())))
    found = np.zeros((len(rows), len(_LAYERS), rows.shape[1]))
    for layer, one in layers.items():
        found[:, layer] = one
    return found


def _quantiles(view: View, splines: AxisSplines, levels: FloatArray, beta: Fraction) -> Band:
    """Ends between which a quantile is, each level by itself at beta.

    On a public grid x_0 = 0 < x_1 < .. let the quantile be in [x_k, x_{k+1}]. At most a share tau
    is below x_k and at least tau up to x_{k+1}: two inequalities at places that are not known but
    do not depend on the noise, each of which the released numbers deny with probability at most
    beta / 2. So the quantile is between the neighbours of the first and the last place where they
    are not denied.
    """
    finer = 2 ** int(np.log2(np.clip(_PLACES / splines.cells, 1, OFFSETS)))
    grid = np.linspace(0.0, 1.0, splines.cells * finer + 1)
    steps = splines.steps(grid)
    low, near, high = _LAYERS
    # Of products: minorants are ``L_x U + U_x L - U_x U``.
    below = _weights({high: steps.low - steps.high, low: steps.high})
    above, middle = _weights({high: steps.high}), _weights({near: steps.near})
    ones = np.ones(splines.count)
    shares = _over(view.of(middle), float(view.of(_weights({near: ones}))[0]))
    shares = np.maximum.accumulate(shares)
    found = []
    for level in map(float, levels):
        start, stop = 0, len(grid) - 1
        # By the tail first: draws are for the places that it does not deny.
        for drawn, share in ((view.still(), beta * FIRST), (view, beta * (1 - FIRST))):
            part = slice(start, stop + 1)
            over = drawn.line(above[part], _weights({low: ones}))
            under = drawn.line(below[part], _weights({high: ones}))
            up = np.flatnonzero(over.at(level, 1, view.measure, share / 2) >= 0)
            down = np.flatnonzero(under.at(level, -1, view.measure, share / 2) <= 0)
            stop = start + (int(down[-1]) if len(down) else 0)
            start = min(start + int(up[0]), stop) if len(up) else stop
        first, last = grid[max(start - 1, 0)], grid[min(stop + 1, len(grid) - 1)]
        value = float(np.interp(level, shares, grid))
        found.append((min(max(value, first), last), first, last))
    return Band(*np.array(found).T)
