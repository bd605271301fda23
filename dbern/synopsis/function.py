"""The function that released arrays make: values, and decisions between classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dbern.ask.bins import NoisyMeasure
from dbern.ask.distribution import Distribution
from dbern.ask.labels import response_name
from dbern.ask.points import Order, orders
from dbern.ask.question import ReleasedResponses
from dbern.ask.quotients import FunctionBand
from dbern.ask.splines import AxisSplines
from dbern.combination.base import Answer, Combination, Meaning
from dbern.combination.responses import LeastSquares, Ratio
from dbern.data.domain import Axis, Domain
from dbern.errors import SpecError
from dbern.model.component import Component, LatticeComponent
from dbern.privacy.budget import PrivacyUnit
from dbern.synopsis.regression import ReleasedMoments
from dbern.synopsis.released import Released, ReleasedArray, ReleasedVector
from dbern.synopsis.smoothing import Smoothing
from dbern.synopsis.store import ReadableStore
from dbern.types import FloatArray


@dataclass(frozen=True)
class Evaluation:
    """Evaluation of every point of a request.

    There is a smoothing for each released array, or None for the nearest node's value; `noise` is
    the deviation of each array's noise, where `answer` needs it.
    """

    smoothings: tuple[Smoothing, ...] | None
    answer: Answer = "value"
    noise: tuple[float, ...] = ()


class ReleasedFunction:
    """A function over a domain: what a combination makes of the arrays of a store."""

    def __init__(self, store: ReadableStore) -> None:
        self.store = store

    @cached_property
    def domain(self) -> Domain:
        """Axes and bounds, in the order of a point's coordinates."""
        released = self.store.released
        units = released.units or {}
        axes = (Axis.from_dict(axis.to_json()) for axis in released.domain.axes)
        return Domain(tuple(replace(axis, units=units.get(axis.name, "")) for axis in axes))

    @cached_property
    def combination(self) -> Combination:
        """Rule by which the arrays make the function."""
        return self.store.released.combine.restore()

    @property
    def meaning(self) -> Meaning:
        """Meaning of its values."""
        return self.combination.meaning(self.store.released.target.to_json())

    @property
    def decides(self) -> bool:
        """Whether classes are told apart; responses of groups tell none."""
        return bool(self.combination.classes) and self.meaning != "response"

    @cached_property
    def arrays(self) -> tuple[Released, ...]:
        """Released arrays, in the order of the combination."""
        return tuple(
            self._array(name, component)
            for component in self.store.released.components
            for name in component.arrays
        )

    def _array(self, name: str, component: Component) -> Released:
        if isinstance(component, LatticeComponent):
            return ReleasedArray(self.store, name, component, self.domain)
        if isinstance(self.combination, LeastSquares):
            return ReleasedMoments(self.store, name, component, self.domain, self.combination)
        return ReleasedVector(self.store, name, component)

    @property
    def shaping_error(self) -> float:
        """Largest distance of its values from those that were released."""
        return 0.0

    def smoothings(self, h: Order, *, raw: bool = False) -> tuple[Smoothing, ...]:
        """Return a smoothing for each array; `raw`: of what carries the noise."""
        if is_auto(h):
            smoothings = [array.best_smoothing for array in self.arrays]
        else:
            stated = {} if h is None else orders(h, self.domain)
            smoothings = [
                array.smoothing([stated[axis] for axis in array.axes if stated])
                for array in self.arrays
            ]
        if raw:
            pairs = zip(self.arrays, smoothings, strict=True)
            smoothings = [array.unshrunk(smoothing) for array, smoothing in pairs]
        return tuple(smoothings)

    def evaluation(self, h: Order, answer: Answer = "value") -> Evaluation:
        """Return how to evaluate it at an order."""
        if answer == "value":
            return self._values_as_released if h is None else Evaluation(self.smoothings(h))
        if answer == "probability":
            require_probabilities(self.combination, self.store.released.target.to_json())
        smoothings = self.smoothings(h)
        pairs = zip(self.arrays, smoothings, strict=True)
        return Evaluation(
            smoothings, answer, tuple(array.deviation(smoothing) for array, smoothing in pairs)
        )

    @cached_property
    def _values_as_released(self) -> Evaluation:
        """Evaluation at the released orders: nothing of it changes from call to call."""
        return Evaluation(self.smoothings(None))

    def baseline(self, method: str) -> Evaluation:
        """Return how to evaluate the paper's piecewise-constant baseline, "nearest"."""
        if method != "nearest":
            raise SpecError(f'method = "{method}": write method = "bernstein" or "nearest"')
        return Evaluation(None)

    def answer_shape(self, answer: Answer) -> tuple[int, ...]:
        """Return the shape of an answer at one point: () or (classes,)."""
        several = self.combination.multi_output or answer == "probability"
        return (len(self.combination.classes),) if several else ()

    def values(
        self, points: FloatArray, evaluation: Evaluation, total: int, threads: int = 1
    ) -> FloatArray:
        """Return the answer at points (m, l), a part of a request of `total`; NaN outside."""
        combination, answer = self.combination, evaluation.answer
        parts = self.parts(points, evaluation.smoothings, total, threads)
        unit_points = self.domain.features(points) if combination.of_points else None
        if answer == "value":
            values = combination.values(parts, unit_points)
        else:
            values = combination.decisions(parts, unit_points, evaluation.noise)
        if answer == "probability":
            values = combination.probabilities(values)
        if not combination.is_array:  # else it is NaN there already
            values[~self.domain.inside(points)] = np.nan
        return values

    def parts(
        self,
        points: FloatArray,
        smoothings: Sequence[Smoothing] | None,
        total: int,
        threads: int = 1,
    ) -> list[FloatArray]:
        """Return the values of every array, NaN outside the bounds of its axes; a vector's weights.

        Without smoothings those of the nearest nodes.
        """
        used: Sequence[Smoothing | None] = smoothings or [None] * len(self.arrays)
        return [
            array.values(self.coordinates(array, points), smoothing, total, threads)
            for array, smoothing in zip(self.arrays, used, strict=True)
        ]

    def coordinates(self, array: Released, points: FloatArray) -> FloatArray:
        """Return the coordinates (m, l') of points (m, l) on an array's own axes."""
        names = self.domain.names
        if array.axes == names:
            return points
        return points[:, [names.index(axis) for axis in array.axes]]


def is_auto(h: Order) -> bool:
    """Return whether the released values choose the order."""
    return isinstance(h, str) and h == "auto"


def labels_of(decisions: FloatArray, classes: Sequence[Any]) -> Any:
    """Return the classes that are decided for, (m,); where a decision is NaN, None.

    `decisions` are above zero for the second of two classes, or largest in the column of a class.
    """
    codes = decisions.argmax(axis=1) if decisions.ndim == 2 else (decisions > 0).astype(np.int64)
    labels = np.array(classes)[codes]
    unknown = np.isnan(decisions.reshape(len(decisions), -1)).any(axis=1)
    if unknown.any():
        labels = labels.astype(object)
        labels[unknown] = None
    return labels


def require_probabilities(combination: Combination, target: Mapping[str, Any]) -> None:
    """Refuse a function that leaves no probabilities of its classes, and say what does."""
    if not combination.classes:
        raise SpecError("probabilities: this function has no classes. Ask for its values")
    if combination.log_odds or combination.meaning(target) == "log-odds":
        return
    if target.get("release") == "joint":
        raise SpecError(
            "probabilities: a joint release is the difference of two scores, which do not follow "
            'from it. Release naive Bayes with release = "factored", or ask for decisions'
        )
    raise SpecError(
        f"probabilities: a {target['kind']} of {len(combination.classes)} classes has none. Use "
        "decision_function or predict, or release naive-bayes or, of two classes, "
        "logistic-regression"
    )


def distribution_of(
    arrays: Sequence[Released],
    combination: Combination,
    domain: Domain,
    metadata: Mapping[str, Any],
    axis: str | None = None,
    band: FunctionBand | None = None,
) -> Distribution:
    """Return the distribution that released arrays tell, of all axes or of one.

    `band` is the function's, for questions about the function itself.
    Raises SpecError where they are not bins that count rows on all axes.
    """
    if axis is not None:
        if axis not in domain.names:
            raise SpecError(f"axis: {axis!r} is none. Write one of {', '.join(domain.names)}")
        domain = domain.axis(domain.names.index(axis))
    functions = [array for array in arrays if type(array) is ReleasedArray]
    counting = [array for array in functions if array.counted_in == array.name and array.bins]
    row_counts = [array for array in counting if array.axes == domain.names]
    by_group = _by_group(row_counts, combination)
    if not by_group or not (combination.counts_rows or combination.by_class):
        raise SpecError(
            "distribution: what was released does not count rows by bins. Release a kernel "
            'density, or a regression, with noise = "binned-laplace" (what "auto" takes where few '
            "axes are smooth); of naive Bayes ask one axis, distribution(axis); of a shape ask the "
            "synopsis itself"
        )
    if any(array.oblique is not None for array in row_counts):
        raise SpecError(
            "distribution: bins of oblique coordinates do not tell boxes. Release with "
            "bandwidth = [..] in place of covariance"
        )
    public_rows = metadata["target"].get("n")
    max_total = 1.0 if public_rows else math.inf
    parts = tuple(_measure(arrays, domain, stream) for stream, arrays in enumerate(by_group))
    measures = tuple(replace(part.of_sum(), max_total=max_total) for part in parts)
    response = None
    if isinstance(combination, Ratio) and not combination.of_sums:
        name = response_name(metadata)
        response = ReleasedResponses(parts, combination.low, combination.high, name)
    is_density = combination.keeps_values and row_counts == [*arrays]
    is_density &= all(array.value_unit == 1 / domain.volume for array in row_counts)
    row_count = public_rows or metadata["target"]["normalizer"]
    groups = combination.classes if combination.by_class else (None,)
    unit_rows = PrivacyUnit.shown(metadata["unit"]).max_contributions
    return Distribution(
        name=metadata["name"],
        domain=domain,
        measures=measures,
        groups=tuple(groups),
        rows=float(row_count),
        kernels=row_counts[0].kernels,
        unit_rows=unit_rows,
        response=response,
        choices=row_counts[0].function_class.choices,
        band=band if axis is None and (is_density or response) else None,
    )


def _by_group(
    arrays: Sequence[ReleasedArray], combination: Combination
) -> Sequence[tuple[ReleasedArray, ...]]:
    """Return the arrays that count the rows of each group together."""
    if not isinstance(combination, Ratio) or combination.of_sums:
        return [(array,) for array in arrays]
    return combination.pairs(arrays) if len(arrays) == 2 * len(combination.quotients) else []


def _measure(arrays: Sequence[ReleasedArray], domain: Domain, stream: int) -> NoisyMeasure:
    """Return the bins of arrays of one component, (arrays, b_1, ..)."""
    array = arrays[0]
    axes = zip(array.bins, domain.axes, strict=True)
    splines = tuple(AxisSplines(bins.cells, bins.degree, axis.multiples) for bins, axis in axes)
    released = np.stack([array.released / array.value_unit for array in arrays])
    law, error = array.law, array.released_error
    scales = tuple(bins.scales for bins in array.bins)
    return NoisyMeasure(released, splines, law, error, stream, scales=scales)
