"""An abstract combination: what it says of the function that it makes of released arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

from dbern.data.domain import FeatureShape
from dbern.types import FloatArray

Meaning: TypeAlias = Literal["density", "response", "log-odds", "score", "value"]
"""Meaning of values: a density, a response, log odds or scores of classes, or anything else."""

Answer: TypeAlias = Literal["value", "decision", "probability"]
"""Question about a point: the function, what decides between classes, or their probabilities."""


@dataclass(frozen=True)
class ReleasedShapes:
    """Shapes of what was released, from which a store's combination has to be made.

    `arrays` has the names of the axes of each function, and of each vector the number of its
    entries; `features` what vectors say of the functions whose weights they are. The domain has the
    `axes`, of which `numeric_axes` are no lists of values; `lists` are the lengths of these. All
    are of so many `components`.
    """

    arrays: tuple[tuple[str, ...] | int, ...]
    features: tuple[FeatureShape, ...]
    axes: tuple[str, ...]
    numeric_axes: tuple[str, ...]
    lists: tuple[int, ...]
    components: int

    @property
    def columns(self) -> int:
        """Number of listed values and of numeric axes."""
        return sum(self.lists) + len(self.numeric_axes)

    @property
    def functions(self) -> tuple[tuple[str, ...], ...]:
        """Names of the axes of each function."""
        return tuple(array for array in self.arrays if isinstance(array, tuple))


class ArraySummary(NamedTuple):
    """Summary of an array's released numbers, in data units.

    The `total` of bins, which is what all records weigh, and `values` at nodes over the domain,
    (nodes,), times the roots of the nodes' weights: 0 and None of anything else. `noise` is the
    deviation of values, or of sums of `arrays_of_rows`, of whose square each node has its share.
    """

    total: float
    noise: float
    values: FloatArray | None = None
    shares: FloatArray | None = None


@dataclass(frozen=True)
class Combination(ABC):
    """The function that the values of the released arrays make, in their order.

    `classes` are the columns' public labels, empty for one value a point.
    """

    kind: ClassVar[str]
    class_counts: ClassVar[Container[int]] = (0, 2)
    """How many classes it may have."""
    keeps_values: ClassVar[bool] = False
    """Whether its values are those of its arrays: a lower bound on their error is one on its."""
    keeps_errors: ClassVar[bool] = False
    """Whether its error is that of its one array."""
    counts_rows: ClassVar[bool] = False
    """Whether an array on all axes may count rows, so that questions can be asked."""
    by_class: ClassVar[bool] = False
    """Whether each class or group has arrays of its own that may count its rows."""
    pointwise: ClassVar[bool] = False
    """Whether no one width tells how far values are off."""
    uniform: ClassVar[bool] = False
    """Whether the bound of its error is the same for all points."""
    log_odds: ClassVar[bool] = False
    """Whether `decisions` are log odds, or logarithms of probabilities, by its kind alone."""
    arrays_of_rows: ClassVar[int] = 1
    """Number of arrays whose sum counts rows: an `ArraySummary` has the noise of such sums."""
    looks_at_totals: ClassVar[bool] = False
    """Whether a release settles it by what its arrays' numbers sum to."""
    threshold: ClassVar[float] = 0.0
    """The value above which the second of two classes is decided for."""

    classes: tuple[str | int | bool, ...] = ()

    @abstractmethod
    def values(
        self, parts: Sequence[FloatArray], unit_points: FloatArray | None = None
    ) -> FloatArray:
        """Return the function's values (m,) or (m, classes), from those of the arrays, (m,) each.

        A released vector is one part, as it is. `unit_points` are the points'
        `dbern.data.domain.Domain.features`, for a function that needs them (`of_points`).
        """

    def decisions(
        self, parts: Sequence[FloatArray], unit_points: FloatArray | None, noise: Sequence[float]
    ) -> FloatArray:
        """Return values that decide: above zero for the second class, or the largest column.

        Where `log_odds` log odds of the second of two classes, or the logarithms of probabilities;
        for anything else the values. `noise` has the standard deviation of each part's noise.
        """
        del noise
        return self.values(parts, unit_points)

    def probabilities(self, decisions: FloatArray) -> FloatArray:
        """Return probabilities (m, classes), from log odds or log probabilities."""
        if self.multi_output:
            return np.asarray(np.exp(decisions))
        return np.stack([0.5 - 0.5 * np.tanh(0.5 * decisions),
                         0.5 + 0.5 * np.tanh(0.5 * decisions)], axis=-1)  # fmt: skip

    def settled(self, arrays: Sequence[ArraySummary]) -> Combination:
        """Return what a release publishes, for what its arrays tell; see `looks_at_totals`."""
        del arrays
        return self

    @property
    def of_points(self) -> bool:
        """Whether its values depend on a point besides through the arrays."""
        return False

    @property
    def is_array(self) -> bool:
        """Whether it is the one array, as it is."""
        return False

    @property
    def linear_response(self) -> bool:
        """Whether it is a response's linear function of the axes."""
        return False

    @property
    def multi_output(self) -> bool:
        """Whether a point has one value for each class."""
        return False

    def meaning(self, target: Mapping[str, Any]) -> Meaning:
        """Return what the values mean, by how they are made and what the store says of `target`."""
        if target["kind"] == "kernel-density":
            return "density"
        if not self.classes:
            return "value"
        logistic = target["kind"] == "logistic-regression" or target.get("loss") == "logistic"
        return "log-odds" if logistic and not self.multi_output else "score"

    def columns_of(self, answer: Answer) -> list[str]:
        """Return the names of an answer's columns: "value", "value_no", "probability_no"."""
        if answer == "probability":
            return [f"probability_{label}" for label in self.classes]
        return [f"value_{label}" for label in self.classes] if self.multi_output else ["value"]

    def error(self, errors: Sequence[float]) -> float:
        """Bound the error of any value, from bounds on those of the arrays."""
        return float(np.max(self.errors([np.asarray(error) for error in errors])))

    def errors(self, errors: Sequence[FloatArray]) -> FloatArray:
        """Bound errors point by point, (m,) or (m, classes), by those (m,) of the arrays.

        Where `uniform` these hold everywhere, of shape (), and so does the result.
        """
        return errors[0]

    def extent(self, arrays: tuple[float, float] | None) -> tuple[float, float] | None:
        """Return the range of values that records can give, from that of every array, if known."""
        return arrays

    def to_range(self, values: FloatArray) -> FloatArray:
        """Cut values to the public range of responses, where it states one."""
        return values

    def unit_text(self, volume: str, *, density: bool, response: str = "the response") -> str:
        """Return the unit of a value, in words that follow a number; empty where it has none.

        `volume` is the unit of the axes' volume, and `response` the name of the response.
        """
        del response
        per_volume = density and self.keeps_values
        return f" per {volume}" if per_volume else ""

    def inconsistency(self) -> str:
        """Return which parameters no release states together; empty where all is well."""
        count = len(set(self.classes))
        fits = count in self.class_counts and count == len(self.classes)
        return "" if fits else "classes do not fit the kind"

    @abstractmethod
    def is_made_of(self, shapes: ReleasedShapes) -> bool:
        """Return whether a store that has these parts has what it is made of."""

    def features(self, shapes: ReleasedShapes) -> FeatureShape:
        """Return the features that vectors have to state, where they state any."""
        return FeatureShape(shapes.columns, 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return kind and parameters as JSON values."""
        content = {"kind": self.kind, **asdict(self)}
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in content.items()
            if value not in ((), None)
        }
