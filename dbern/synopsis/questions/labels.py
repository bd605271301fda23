"""Arrays of answers with a dimension for each thing that was asked about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dbern.data.domain import Domain
from dbern.synopsis.labels import as_datetimes, conventional, describe_axis
from dbern.types import FloatArray


def labelled(
    numbers: FloatArray,
    labels: Mapping[str, Sequence[Any]],
    attributes: Mapping[str, str],
    domain: Domain,
) -> Any:
    """Return numbers with a dimension for each of the labels that has several, or one float.

    A dimension whose labels are empty is left out; so is one label that is None. Those of an axis
    of the domain have its attributes.
    """
    dimensions: dict[str, Any] = {
        name: list(values) for name, values in labels.items() if list(values) != [None]
    }
    shape = [len(values) for values in dimensions.values()]
    if not dimensions:
        return float(np.reshape(numbers, ()))
    import xarray

    axes = [axis for axis in domain.axes if axis.name in dimensions]
    for axis in axes:
        dimensions[axis.name] = as_datetimes(np.asarray(dimensions[axis.name]), axis)
    array = xarray.DataArray(
        np.reshape(numbers, shape), dimensions, list(dimensions), attrs=dict(attributes)
    )
    for axis in axes:
        describe_axis(array[axis.name], axis)
    return conventional(array)
