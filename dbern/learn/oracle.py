"""Any function of records and points, named in the spec; see `dbern.learn.black_box`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import Field

from dbern.bernstein.basis import MOST_AXES
from dbern.certify.approximation import FunctionClass, Holder, Linear, Smooth
from dbern.data.domain import Axis, Domain, RecordSchema
from dbern.errors import SpecError
from dbern.learn.black_box import BlackBox, BlackBoxAccumulator
from dbern.learn.user_functions import UserFunction, load_function
from dbern.measure.statistic import Statistic
from dbern.reconstruct.base import LatticeStrategy
from dbern.system import counted, format_number, source_digest
from dbern.targets.learner import DesignedStatistic, Learner, Positive
from dbern.targets.parameters import Section
from dbern.targets.predicted_functions import deviation_of

_Pair = Annotated[tuple[float, float], Field(strict=False)]


class HolderClass(Section):
    """``{ holder = [L, gamma] }``: ``|F(x) - F(y)| <= L |x - y|^gamma``."""

    holder: _Pair

    def function_class(self) -> FunctionClass:
        """The class as the bias bounds take it."""
        return Holder(*self.holder)


class SmoothClass(Section):
    """``{ derivatives = r, bound = T }``: along each axis, of orders one to r, at most T."""

    derivatives: int
    bound: float

    def function_class(self) -> FunctionClass:
        """The class as the bias bounds take it."""
        return Smooth(self.derivatives, self.bound)


class Oracle(Learner):
    """Any function of records and points, with a sensitivity and a smoothness that you state.

    ``f(records, points)`` gets the records that count, (n', columns) in data units and sorted, and
    points (m, l), and returns m numbers. n' is at most the public n; it may be zero.

    Parameters
    ----------
    function : str
        ``module:name``, importable on workers too.
    sensitivity : float
        The largest change of any value when one record is added, removed or replaced, of f as it
        is computed; nothing can check it.
    l1_sensitivity : float, optional
        The same of the sum over all points of the lattice, for the k that the spec states.
    smoothness : "linear", { holder = [L, gamma] } or { derivatives = r, bound = T }
        The paper's three classes, with positions as shares of their axes: for the certificate.
    bounds : (float, float)
        Public bounds that values are cut to; of shards if `separable`.
    on_failure : float or "stop"
        What stands for the values where f raises, gives another shape or is not finite; "stop"
        ends the release and keeps its charge. Either way a failure may tell of a record.
    separable : bool
        f adds up over records: it is asked of shards and summed, with twice the sensitivity.
    points : mapping of str to (float, float), optional
        The function's own parameters and their bounds, in the order in which it takes them: the
        lattice covers this box. Without it points are where records are.

    Raises
    ------
    SpecError
        For parameters out of range, or a function that cannot be imported.

    Examples
    --------
    >>> Oracle(
    ...     function="math:hypot", sensitivity=0.1, smoothness={"holder": [1.0, 0.5]},
    ...     bounds=[0.0, 1.0], on_failure="stop",
    ... ).separable
    False
    """

    kind: ClassVar[str] = "oracle"
    uses: ClassVar[tuple[str, ...]] = ("label", "response", "group")

    function: str = Field(description='function = "module:name" of records and points')
    sensitivity: Positive = Field(
        description="sensitivity = 0.01, the largest change of a value that one record can make"
    )
    l1_sensitivity: Positive | None = Field(
        None, description="l1_sensitivity = 0.2, for the lattice that k states"
    )
    smoothness: Literal["linear"] | HolderClass | SmoothClass = Field(
        description='smoothness = "linear", { holder = [1.0, 0.5] } or '
        "{ derivatives = 4, bound = 10.0 }"
    )
    bounds: _Pair = Field(description="bounds = [0.0, 1.0], public bounds of the values")
    on_failure: Literal["stop"] | Annotated[float, Field(allow_inf_nan=False)] = Field(
        description='on_failure = 0.0, a public value, or "stop"'
    )
    separable: bool = Field(False, description="separable = true, where f adds up over records")
    points: dict[str, _Pair] | None = Field(
        None, min_length=1, description="points = { t = [0.0, 2.0] }, the box of its parameters"
    )

    def get_params(self) -> dict[str, Any]:
        """Constructor parameters by name, as JSON values; points only where they are stated."""
        return self.model_dump(exclude=None if self.points else {"points"})

    def function_domain(self, schema: RecordSchema) -> Domain:
        """Return the box of the points."""
        if not self.points:
            return schema.domain
        if len(self.points) > MOST_AXES:
            raise SpecError(
                f"target.points: {len(self.points)} parameters, and a lattice has at most "
                f"{MOST_AXES} axes. Keep at most {MOST_AXES}, and fix the others in the function"
            )
        axes = tuple(_parameter(name, *bounds) for name, bounds in self.points.items())
        return Domain(axes, schema.domain.outside)

    def identity(self) -> dict[str, Any]:
        """The digest of the function's module."""
        return {"function_sha256": self._digest()}

    def components(self, schema: RecordSchema) -> tuple[Statistic, ...]:
        """One."""
        low, high = self.bounds
        if not -math.inf < low < high < math.inf:
            raise SpecError(
                "target.bounds: must be two finite numbers, the lower one first. Write "
                "bounds = [0.0, 1.0]"
            )
        failure = None if self.on_failure == "stop" else self.on_failure
        if failure is not None and not low <= failure <= high:
            raise SpecError(f"target.on_failure: lies outside bounds. Write on_failure = {low}")
        domain = self.function_domain(schema)
        black_box = BlackBox(
            domain=domain,
            user=UserFunction(
                self.function,
                self._digest(),
                schema,
                low,
                high,
                failure,
                points=domain if self.points else None,
            ),
            smoothness=Linear()
            if self.smoothness == "linear"
            else self.smoothness.function_class(),
            stated=self.sensitivity,
            l1_sensitivity=self.l1_sensitivity,
            separable=self.separable,
        )
        return (black_box,)

    def notes(self, n: int) -> tuple[str, ...]:
        """Whose word this is."""
        del n
        text = f"its module's SHA-256 is {self._digest()[:12] or 'not known'}"
        return (f"the sensitivity of {self.function} is the spec's word, not proved; {text}",)

    def predictions(
        self, schema: RecordSchema, n: int, designs: Sequence[DesignedStatistic]
    ) -> tuple[str, ...]:
        """Say which box is asked, at how many points and in how many calls, and with what noise."""
        del schema
        (design,) = designs
        black_box, strategy = (
            cast("BlackBox", design.statistic),
            cast("LatticeStrategy", design.strategy),
        )
        accumulator = cast("BlackBoxAccumulator", black_box.accumulator(strategy, n, 0.0))
        size = strategy.lattice.size
        shape = " x ".join(map(str, strategy.lattice.shape))
        where = ", ".join(
            f"{axis.name} in [{axis.text(axis.low)}, {axis.text(axis.high)}]"
            for axis in black_box.domain.axes
        )
        rows = f"a shard of the {n} rows" if accumulator.shards > 1 else f"at most {n} rows"
        calls = counted(accumulator.passes, "call")
        points = counted(min(accumulator.points, size), "point")
        noise = format_number(deviation_of(design.law), 3)
        return (
            f"a lattice of {shape} points over {where}: {calls} of the function, of {rows} and at "
            f"most {points}; the noise of each value there has a standard deviation of {noise}",
        )

    def _digest(self) -> str:
        load_function(self.function)
        return source_digest(self.function)


def _parameter(name: str, low: float, high: float) -> Axis:
    try:
        return Axis(name, low, high)
    except SpecError as error:  # which speaks of a column
        text = str(error).replace("data.bounds.", "target.points.", 1)
        raise SpecError(text.replace("the column", "the parameter")) from None
