"""Refuse releases whose metadata no reader takes: names, numbers, or too many of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pydantic import ValidationError

from dbern.data.domain import OTHER_UNITS
from dbern.data.storage import MOST_METADATA
from dbern.errors import SpecError
from dbern.planning.plans import PlannedMeasurement
from dbern.planning.spec import ReleaseSpec

_OBJECTS_OF_ARRAY, _OBJECTS_OF_AXIS = 6, 6  # groups, metadata and matrices, at most
_BYTES_OF_OBJECT, _BYTES_OF_TEXT = 200, 16  # in a manifest; beside a text in a list
_NAMES = ("arrays", "axes", "entries", "counted_in")  # keys of a component that hold texts


@contextmanager
def refuse_unreadable() -> Iterator[None]:
    """Refuse what no reader takes of a component or a certificate: numbers, or names."""
    try:
        yield
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, problem["loc"]))
        if where.partition(".")[0] not in _NAMES:
            raise SpecError(OTHER_UNITS) from None
        raise SpecError(
            f"target.kind: a name that is released cannot be stored ({where}: {problem['msg']}). "
            "Write a plain name, or a shorter one"
        ) from None


def refuse_long_metadata(spec: ReleaseSpec, components: Sequence[PlannedMeasurement]) -> None:
    """Refuse metadata that are longer than readers take."""
    objects = size = 0
    for planned in components:
        axes = len(planned.k)
        slabs = -(-planned.lattice.shape[0] // planned.lattice.slab_layers)
        objects += len(planned.arrays) * (_OBJECTS_OF_ARRAY + _OBJECTS_OF_AXIS * axes + slabs)
        size += sum(len(text.encode()) for text in (*planned.arrays, *planned.entries))
        size += _BYTES_OF_TEXT * (len(planned.arrays) + len(planned.entries))
    size += sum(
        len(str(value).encode()) + _BYTES_OF_TEXT
        for values in (
            spec.combination.classes,
            *(axis.categories for axis in spec.domain.categorical),
        )
        for value in values
    )
    if max(objects * _BYTES_OF_OBJECT, size) > MOST_METADATA:
        raise SpecError(
            f"target: a release of so many classes, groups or values would have {objects} objects "
            f"and names of {size >> 10} KiB, more than a reader takes. List fewer of them, or "
            "release them by several specs"
        )
