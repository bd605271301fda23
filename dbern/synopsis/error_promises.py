"""Errors that a synopsis promises, in the form that `show` and reports print."""

from __future__ import annotations

import math

from dbern.certify.bias import remedies_of
from dbern.certify.error_summary import ErrorSummary
from dbern.data.domain import volume_unit
from dbern.synopsis.arrays import ReleasedArray
from dbern.synopsis.labels import response_name
from dbern.synopsis.released_function import ReleasedFunction


def summarize_errors(
    function: ReleasedFunction, these_data: float | None, largest: float | None
) -> ErrorSummary:
    """Return the errors of a function.

    `these_data` is the half-width of a band about the data at hand, where there is one; `largest`
    is the largest released value.
    """
    metadata, first = function.store.attributes, function.arrays[0]
    certificate = metadata["certificate"]
    approximation = first.approximation if isinstance(first, ReleasedArray) else None
    perturbed = metadata["target"].get("method") == "objective"
    extent = function.combination.extent(_value_range(function))
    return ErrorSummary(
        expected=metadata.get("expected_error"),
        these_data=these_data,
        any_database=certificate["total"] + function.shaping_error,
        beta=certificate["beta"],
        unit=_value_unit(function),
        largest=largest,
        extent=tuple(metadata["extent"]) if "extent" in metadata else extent,
        released=True,
        pointwise=function.combination.pointwise,
        on_lattice=approximation is not None,
        remedies=remedies_of(approximation, perturbed, bool(function.domain.categorical)),
    )


def _lattices(function: ReleasedFunction) -> list[ReleasedArray]:
    """Return the arrays of a function, where each has a lattice; else none."""
    lattices = [array for array in function.arrays if isinstance(array, ReleasedArray)]
    return lattices if len(lattices) == len(function.arrays) else []


def _value_range(function: ReleasedFunction) -> tuple[float, float] | None:
    """Return the range of the values that records can give to arrays, where it is known."""
    lattices = _lattices(function)
    top = max((array.value_unit * array.highest for array in lattices), default=math.inf)
    signed = any(array.counted_in != array.name for array in lattices)
    return None if top == math.inf else (-signed * top, top)


def _value_unit(function: ReleasedFunction) -> str:
    domain, lattices, metadata = function.domain, _lattices(function), function.store.attributes
    density = (
        bool(lattices)
        and domain.volume > 0
        and all(array.kernels and array.value_unit == 1 / domain.volume for array in lattices)
    )
    volume, response = volume_unit(domain.axes, labels=True), response_name(metadata)
    return function.combination.unit_text(volume, density=density, response=response)
