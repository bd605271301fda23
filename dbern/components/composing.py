"""Basic composition: what all components of a release spend together is its charge, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from dbern.components.base import Component, Vector
from dbern.errors import SpecError


def array_names(name: str, outputs: int) -> tuple[str, ...]:
    """Name the released arrays of a component, in the order of its outputs.

    Examples
    --------
    >>> array_names("density", 1), array_names("density", 2)
    (('density',), ('density_0', 'density_1'))
    """
    if outputs == 1:
        return (name,)
    return tuple(f"{name}_{output}" for output in range(outputs))


def require_one_charge(kind: str, components: Sequence[Component | Vector]) -> None:
    """Refuse components that together spend more than the charge, or whose arrays meet.

    A component whose share of the budget is s is epsilon s, delta s private, so all of them are
    (epsilon, delta)-DP exactly where the shares add up to at most one. Shares are exact, so that
    this sum is. Center and noise of an array are found by its name: two of one name would get one
    center, and the noise of two laws.

    Raises
    ------
    SpecError
        Naming the learner's `kind`, and what its components must be instead.
    """
    for one in components:
        if not isinstance(one.share, Fraction | int) or not 0 < one.share <= 1:
            raise SpecError(
                f'target.kind: "{kind}" gives its component "{one.name}" the share '
                f"{one.share!r} of the budget, and a share is a Fraction above 0 and at most 1; "
                'in the learner, write share=Fraction("0.5")'
            )
    total = sum((Fraction(one.share) for one in components), Fraction(0))
    if total > 1:
        raise SpecError(
            f'target.kind: the shares of the components of "{kind}" add up to {total} of the '
            f"budget, more than 1; in the learner, write share=Fraction(1, {len(components)}) for "
            "each, or others that add up to at most 1"
        )
    counted = Counter(name for one in components for name in array_names(one.name, one.outputs))
    repeated = [name for name, times in counted.items() if times > 1]
    if repeated:
        raise SpecError(
            f'target.kind: "{kind}" releases more than one array named "{repeated[0]}"; in the '
            "learner, give each component a name of its own (outputs add _0, _1, .. to it)"
        )
