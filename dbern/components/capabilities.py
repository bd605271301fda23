"""What some components can and others need not: protocols, and questions to any component."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, Self, TypeVar, runtime_checkable

from dbern.bernstein.coordinates import Coordinates
from dbern.bernstein.gram import CubeKernel
from dbern.components.base import Component, Vector
from dbern.errors import SpecError
from dbern.privacy.budget import Budget
from dbern.privacy.random_privacy import RandomPrivacy


@runtime_checkable
class Sized(Protocol):
    """A component or vector that is resolved for a public number of rows before it is planned."""

    def for_rows(self, n: int) -> Self:
        """The same for n rows."""


Released = TypeVar("Released", bound=Component | Vector)


def for_rows(component: Released, n: int) -> Released:
    """The component or vector as it is planned for n rows."""
    return component.for_rows(n) if isinstance(component, Sized) else component


@runtime_checkable
class LinearComponent(Protocol):
    """A component whose functions may be linear: one cell and one iteration reproduce them."""

    @property
    def linear(self) -> bool:
        """Whether they are."""


@runtime_checkable
class OneLatticeComponent(Protocol):
    """A component that may know its sensitivity for one lattice only: then k must be stated."""

    @property
    def one_lattice(self) -> bool:
        """Whether it does."""

    def for_lattice(self, coordinates: Coordinates) -> Component:
        """The component for a lattice: what is estimated of it, is now."""

    def random(self, charge: Budget) -> RandomPrivacy | None:
        """What a charge buys where its sensitivity is an estimate; None where it is a bound."""


def is_linear(component: Component) -> bool:
    """Whether its values at the corners of the cube are all there is to release."""
    return isinstance(component, LinearComponent) and component.linear


def for_lattice(component: Component, coordinates: Coordinates) -> Component:
    """The component as it is released on a lattice."""
    if isinstance(component, OneLatticeComponent):
        return component.for_lattice(coordinates)
    return component


def random_privacy(
    components: Sequence[Component | Vector], charge: Budget
) -> RandomPrivacy | None:
    """What a charge buys, if the sensitivity of a component is an estimate.

    Raises
    ------
    SpecError
        Where there is more than one: each estimate fails for a gamma of its own.
    """
    asked = (one for one in components if isinstance(one, OneLatticeComponent))
    found = [one for one in (one.random(charge) for one in asked) if one is not None]
    if len(found) > 1:
        raise SpecError(
            f"target.kind: {len(found)} components have an estimated sensitivity, and random "
            "differential privacy is proved for one; in the learner, state the others' bounds"
        )
    return found[0] if found else None


def needs_lattice(component: Component) -> bool:
    """Whether the spec must state k: what is known of it is known for one lattice."""
    return isinstance(component, OneLatticeComponent) and component.one_lattice


@runtime_checkable
class CostlyComponent(Protocol):
    """A component whose values cost so much that fine lattices are not chosen for it."""

    @property
    def largest_lattice(self) -> int:
        """Most points of a lattice that is chosen."""


def largest_lattice(component: Component) -> float:
    """Most points of a lattice that is chosen for it."""
    return component.largest_lattice if isinstance(component, CostlyComponent) else math.inf


@runtime_checkable
class GramComponent(Protocol):
    """A component that may be released through the Gram matrix of the whole lattice."""

    @property
    def cube(self) -> CubeKernel | None:
        """Its kernel, where it is no product of densities."""


def cube_of(component: Component) -> CubeKernel | None:
    """The kernel, where it is no product of the axes' densities."""
    return component.cube if isinstance(component, GramComponent) else None
