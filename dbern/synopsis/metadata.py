"""Metadata of a synopsis's root, checked by one strict model before it is used.

What is said of each of its components, `dbern.model.component` says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import MISSING, fields
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from dbern.bernstein.kernels import ALL_KERNELS
from dbern.combination import KINDS, combination_of
from dbern.combination.base import Combination, ReleasedShapes
from dbern.data.domain import (
    LONGEST_DESCRIPTION,
    LONGEST_NAME,
    LONGEST_TITLE,
    LONGEST_UNITS,
    MAX_NUMBER,
    MIN_NUMBER,
    MOST_VALUES,
    Axis,
)
from dbern.model.component import Component, LatticeComponent, StoredCertificate
from dbern.model.strict import (
    ABSENT,
    Count,
    Exact,
    Name,
    NotNegative,
    Positive,
    PositiveDecimal,
    StrictModel,
    Text,
    as_float,
    checked,
    listed_in,
    or_value_error,
    require,
)
from dbern.nights.horizon import MOST_NIGHTS, Horizon, StreamNode, day_of
from dbern.privacy.budget import PrivacyUnit
from dbern.privacy.families import package_of
from dbern.reconstruct import STRATEGY_KINDS
from dbern.reconstruct.moments import MOST_NUMBERS

FORMAT, FORMAT_VERSION = "dbern-synopsis", 1

_LEAST_EPSILON, _MOST_EPSILON = 1e-9, 1e12


_Category = bool | Annotated[int, Field(ge=-(2**63), lt=2**63)] | Text
_Value = Annotated[float, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]
_Lengths = Annotated[list[Positive], Field(min_length=1)]
_Extent = Annotated[list[_Value], Field(min_length=2, max_length=2)]


class StoredAxis(StrictModel):
    """An axis of the domain."""

    name: Name
    low: float
    high: float
    unit: Literal["days since 1970-01-01", "seconds since 1970-01-01"] = ABSENT
    values: list[_Category] = ABSENT
    resolution: Positive = ABSENT

    @model_validator(mode="after")
    def _require_consistent(self) -> Self:
        require(self.values is None or self.resolution is None, "values have no resolution")
        axis = or_value_error(Axis.from_dict, self.model_dump(exclude_unset=True))
        require((axis.low, axis.high) == (self.low, self.high), "low and high are not of values")
        require(axis.unit is None or not axis.categories, "values have no unit")
        if axis.unit is not None:
            for end in (axis.low, axis.high):
                or_value_error(axis.unit.text, end)
        return self


class StoredFilter(StrictModel):
    """The values of a column that a row needs to count."""

    column: Text
    values: list[_Category]


class StoredDomain(StrictModel):
    """The public bounds."""

    axes: Annotated[list[StoredAxis], Field(min_length=1)]
    outside: Literal["drop", "clamp"]
    volume: Annotated[float, Field(ge=0)] | None  # for other readers: it is the axes' product
    filter: StoredFilter = ABSENT

    @model_validator(mode="after")
    def _require_consistent(self) -> Self:
        require(len({axis.name for axis in self.axes}) == len(self.axes), "an axis is there twice")
        return self


class StoredTarget(StrictModel):
    """The learner's parameters, which are shown and never computed with, and the rows."""

    model_config = ConfigDict(extra="allow")
    kind: Text
    n: Count = ABSENT
    normalizer: Count = ABSENT
    chosen_of: Annotated[list[_Lengths], Field(min_length=1)] = ABSENT
    bandwidth: Any = ABSENT

    @model_validator(mode="after")
    def _require_consistent(self) -> Self:
        require((self.n is None) != (self.normalizer is None), "needs n or normalizer")
        chosen = self.chosen_of is None or self.bandwidth is not None
        require(chosen, "chosen_of: needs the bandwidth that was chosen")
        return self


_Center = Annotated[float, Field(ge=-1, le=1)]


class StoredCombination(StrictModel):
    """The parameters of a `Combination` of any kind; keys in its order."""

    kind: Annotated[str, listed_in(KINDS)]
    classes: list[_Category] = ABSENT
    low: _Value = ABSENT
    high: _Value = ABSENT
    center: _Center = ABSENT
    noise: NotNegative = ABSENT
    centers: list[_Center] = ABSENT
    noises: list[NotNegative] = ABSENT
    peaks: list[Positive] = ABSENT
    floors: list[NotNegative] = ABSENT
    lists: list[Annotated[int, Field(ge=2, le=MOST_VALUES)]] = ABSENT
    degree: Annotated[int, Field(ge=0, le=63)] = ABSENT
    squares: Literal["centred"] = ABSENT
    constant: NotNegative = ABSENT
    response: Text = ABSENT
    weight: Annotated[int, Field(ge=1, le=MOST_NUMBERS**2)] = ABSENT
    products: Literal["weighted"] = ABSENT
    ridge: Positive = ABSENT

    @model_validator(mode="after")
    def _require_consistent(self) -> Self:
        parameters = fields(KINDS[self.kind])
        stated = self.model_fields_set - {"kind"}
        unknown = stated - {field.name for field in parameters}
        missing = {field.name for field in parameters if field.default is MISSING} - stated
        require(not unknown, f"{', '.join(sorted(unknown))}: not of this kind")
        require(not missing, f"{', '.join(sorted(missing))}: missing")
        problem = self.restore().inconsistency()
        require(not problem, problem)
        return self

    def restore(self) -> Combination:
        """Return the combination."""
        return combination_of(self.to_json())


_Column = Annotated[str, StringConstraints(max_length=LONGEST_NAME)]


class StoredColumns(StrictModel):
    """Columns that have a role; the others are axes."""

    response: _Column = ABSENT
    label: _Column = ABSENT
    group: _Column = ABSENT


_Night = Annotated[int, Field(ge=0, lt=MOST_NIGHTS)]


class StoredNode(StrictModel):
    """Which node of a stream a release is, and the charge that paid for all of them."""

    name: Text
    release_id: Text
    first: Text
    horizon: Annotated[int, Field(ge=1, le=MOST_NIGHTS)]
    levels: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]
    level: Annotated[int, Field(ge=0)]
    start: _Night
    without: list[_Night]

    @model_validator(mode="after")
    def _require_node(self) -> Self:
        or_value_error(self.restore)
        return self

    def restore(self) -> StreamNode:
        """Return the node."""
        horizon = Horizon(day_of(self.first), self.horizon, tuple(self.levels))
        node = horizon.node(self.level, self.start)
        return StreamNode(self.name, horizon, node, frozenset(self.without))


class _ReleaseIdentity(StrictModel):
    format: Literal["dbern-synopsis"]
    format_version: Literal[1]
    dbern_version: Text
    release_id: Text
    name: Text
    title: Annotated[str, StringConstraints(max_length=LONGEST_TITLE)] = ABSENT
    description: Annotated[str, StringConstraints(max_length=LONGEST_DESCRIPTION)] = ABSENT
    columns: StoredColumns = ABSENT
    units: dict[_Column, Annotated[str, StringConstraints(max_length=LONGEST_UNITS)]] = ABSENT
    created: Text
    dataset: Text
    ledger_id: Text


class _ReleasedFunction(StrictModel):
    packages: dict[Text, Text] = ABSENT
    stream: StoredNode = ABSENT
    combine: StoredCombination
    domain: StoredDomain
    target: StoredTarget
    components: Annotated[list[Component], Field(min_length=1)]


def _refuse_weaker(_content: object) -> None:
    """Refuse random differential privacy, whose epsilon is not of every database."""
    require(False, "is a weaker guarantee, which this version does not read")


class _ReleaseGuarantee(StrictModel):
    epsilon: PositiveDecimal
    delta: Exact
    rho: PositiveDecimal | None = ABSENT
    neighbors: Literal["replace-one", "add-or-remove-one"]
    unit: Annotated[Text, checked(partial(or_value_error, PrivacyUnit.shown))]
    random_dp: Annotated[Any, checked(_refuse_weaker)] = ABSENT


class _ReleaseErrors(StrictModel):
    certificate: StoredCertificate
    expected_error: NotNegative = ABSENT
    extent: _Extent = ABSENT


class ReleaseMetadata(_ReleaseErrors, _ReleaseGuarantee, _ReleasedFunction, _ReleaseIdentity):
    """Attributes of the root; keys in the order of FORMAT.md."""

    post_processing: Literal["never stored"] = ABSENT  # readers say what they did, no store

    @model_validator(mode="after")
    def _require_consistent(self) -> Self:
        epsilon, delta = as_float(self.epsilon), as_float(self.delta)
        within = _LEAST_EPSILON <= epsilon <= _MOST_EPSILON
        require(within, f"epsilon: not from {_LEAST_EPSILON:g} to {_MOST_EPSILON:g}")
        require(0 <= delta < 1, "delta: not from 0 to below 1")
        ordered = self.extent is None or self.extent[0] < self.extent[1]
        require(ordered, "extent: the least value is not below the largest")
        names = [name for component in self.components for name in component.arrays]
        require(len(set(names)) == len(names), "components: an array is there twice")
        domain = [axis.name for axis in self.domain.axes]
        volume = math.prod(axis.high - axis.low for axis in self.domain.axes)
        divides = any(len(component.axes) == len(domain) for component in self.components)
        computed = MIN_NUMBER <= volume <= MAX_NUMBER or not divides
        require(computed, "domain: its volume is too small or too large")
        for component in self.components:
            axes, dominated_by = component.axes, component.counted_in
            dominated_by = component.arrays if dominated_by is None else dominated_by
            known = len(set(axes)) == len(axes) and set(axes) <= set(domain)
            require(known, "components: axes that are none of the domain's, or twice")
            fits = len(dominated_by) == len(component.arrays) and set(dominated_by) <= set(names)
            require(fits, "components: counted_in names an array that is not there")
        self._require_shapes(domain)
        self._require_packages()
        return self

    def _require_packages(self) -> None:
        """Refuse a kernel or law that is of another package, or version of it, than here.

        Its bounds would be those of another kernel or law than what was released.
        """
        released = self.packages or {}
        for component in self.components:
            mixture = component.approximation if isinstance(component, LatticeComponent) else None
            kernels = getattr(mixture, "kernels", ())  # of a mixture alone
            law = package_of(component.noise.kind, STRATEGY_KINDS)
            origins = [("target.kernel", ALL_KERNELS.origin(kernel.name)) for kernel in kernels]
            for key, here in [*origins, ("mechanism.noise", law)]:
                then = released.get(key, "")
                require(
                    here == then,
                    f"packages: {key} was released with {then or 'dbern'} and is of "
                    f"{here or 'dbern'} here. Install what it was released with",
                )

    def _require_shapes(self, domain: list[str]) -> None:
        """Refuse a count of functions or vectors that `combine` does not make the function of."""
        released = [component for component in self.components for _ in component.arrays]
        features = (component.features for component in released if component.features)
        shapes = ReleasedShapes(
            arrays=tuple(
                component.axes
                if isinstance(component, LatticeComponent)
                else component.lattice.size
                for component in released
            ),
            features=tuple(feature.restore() for feature in features),
            axes=tuple(domain),
            numeric_axes=tuple(axis.name for axis in self.domain.axes if axis.values is None),
            lists=tuple(len(axis.values) for axis in self.domain.axes if axis.values is not None),
            components=len(self.components),
        )
        combination = self.combine.restore()
        fits = or_value_error(combination.is_made_of, shapes)
        require(fits, f"combine: {combination.kind} is not made of such components")
        same = set(shapes.features) <= {combination.features(shapes)}
        require(same, "features: are not those of combine")


class Root(StrictModel):
    """Model of the root group's ``zarr.json``."""

    zarr_format: Literal[3]
    node_type: Literal["group"]
    attributes: ReleaseMetadata


def array_groups(released: ReleaseMetadata) -> Iterator[tuple[str, Component]]:
    """Return each released array's group below the root, and its component."""
    for component in released.components:
        for name in component.arrays:
            yield f"components/{name}", component
