"""Maps of an axis: released values in place of lattice values, and their stored form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, cast

import numpy as np

from dbern.bernstein.basis import INTERPOLATED, iterated_matrix
from dbern.bernstein.kernels import Kernel
from dbern.types import FloatArray, Int64Array


class Limits(NamedTuple):
    """Type, least and most that a value of JSON may be; unless it is `needed`, it may be absent."""

    kind: type
    least: Any
    most: Any
    needed: bool = True


@dataclass(frozen=True)
class StoredArray:
    """One array of a map, as synopses hold it and readers, who may have a stranger's, demand it.

    Dimensions are "mode" and "axis", the `dtype` "int64" or "float64". Its attributes are fields
    of the map, within limits.
    """

    dimensions: tuple[str, ...]
    dtype: str = "float64"
    limits: Mapping[str, Limits] = field(default_factory=dict)


class AxisMap(ABC):
    """Released values of one axis, or of the whole lattice, where these are not lattice values."""

    kind: ClassVar[str]
    mode: ClassVar[str] = "mode"
    """What a released value of it is called."""
    of: ClassVar[str] = ""
    """ "lattice" for the map of a whole lattice."""
    called: ClassVar[str] = "values"
    """What plans call the values that are released."""
    stored: ClassVar[Mapping[str, StoredArray]]
    """The arrays that synopses hold, by name."""
    used: int

    def __getstate__(self) -> dict[str, Any]:
        """Leave out tables that follow from the fields: they are made again where they are used."""
        return {
            axis_field.name: getattr(self, axis_field.name)
            for axis_field in fields(cast(Any, self))
        }

    @property
    @abstractmethod
    def rank(self) -> int:
        """Number of released values."""

    @property
    def size_text(self) -> str:
        """Number of released values in words."""
        return str(self.rank)

    @property
    @abstractmethod
    def synthesis(self) -> FloatArray:
        """Matrix from released to lattice values, shape (k + 1, rank)."""

    @abstractmethod
    def translates(self, matrix: FloatArray, kernel: Kernel, t: FloatArray) -> FloatArray:
        """`matrix` times the reconstruction of kernel translates at t (m,), without noise."""

    @abstractmethod
    def using(self, rank: int) -> Self:
        """The same released values, evaluated with the leading `rank` vectors alone."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values."""

    @classmethod
    @abstractmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""

    @abstractmethod
    def arrays(self) -> dict[str, FloatArray | Int64Array]:
        """The values of its `stored` arrays."""

    def attributes(self, name: str) -> dict[str, Any]:
        """Return the attributes of one of its arrays."""
        return {key: getattr(self, key) for key in self.stored[name].limits}

    @classmethod
    @abstractmethod
    def of_arrays(cls, read: Callable[[str], tuple[Any, dict[str, Any]]]) -> Self:
        """Restore what `arrays` wrote; `read` gives values and attributes of a name."""

    @classmethod
    @abstractmethod
    def admits(cls, rank: int, nodes: int, axes: int, attributes: Mapping[str, Any]) -> bool:
        """Whether so many values are released of one of `axes`, of so many nodes."""

    @classmethod
    def candidates(cls, search: Any) -> Iterator[Any]:
        """Designs that release it, for a plan to weigh; `search` is a `Search` of planning.

        Strategies that have none here have them there.
        """
        del search
        return iter(())


Maps: TypeAlias = Sequence[AxisMap | None]
"""One for each axis, or one for all; None for lattice values."""


class LinearMap(AxisMap):
    """A map of the axis's lattice values."""

    @property
    @abstractmethod
    def analysis(self) -> FloatArray:
        """Matrix from lattice values to released ones, shape (rank, k + 1)."""

    def translates(self, matrix: FloatArray, kernel: Kernel, t: FloatArray) -> FloatArray:
        """`matrix` times the reconstruction of kernel translates at t (m,), without noise."""
        lattice = lattice_values(kernel, matrix.shape[1] - 1, t)
        return matrix @ self.synthesis @ self.analysis @ lattice


TRANSLATES_TOGETHER = 1 << 12
"""64 MiB of lattice values or bins where there are two thousand."""


def lattice_values(kernel: Kernel, k: int, t: FloatArray) -> FloatArray:
    """Values on an axis's lattice of kernel translates at t (m,), shape (k + 1, m)."""
    return kernel(np.arange(k + 1)[:, None] / k - t)


def released_translates(
    kernel: Kernel, rows: FloatArray, axis: AxisMap | None, t: FloatArray
) -> FloatArray:
    """Noiseless release (n, m) of translates at t (m,), by rows of the iterated basis."""
    translates = []
    for first in range(0, len(t), TRANSLATES_TOGETHER):
        block = t[first : first + TRANSLATES_TOGETHER]
        if axis is None:
            translates.append(rows @ lattice_values(kernel, rows.shape[1] - 1, block))
        else:
            translates.append(axis.translates(rows, kernel, block))
    return np.concatenate(translates, axis=1)


@lru_cache(maxsize=4)
def synthesis_matrix(k: int, h: int, axis: AxisMap | None) -> FloatArray:
    """Matrix from an axis's released values to coefficients of the Bernstein basis."""
    if axis is None:
        matrix = iterated_matrix(k, h)
    elif h == INTERPOLATED:
        matrix = axis.synthesis.copy()
    else:
        matrix = iterated_matrix(k, h) @ axis.synthesis
    matrix.setflags(write=False)
    return np.asarray(matrix)


def evaluation_matrix(k: int, h: int, spectrum: LinearMap | None = None) -> FloatArray:
    """Matrix from one axis's lattice values to the coefficients of the Bernstein basis.

    ``W_h`` for the lattice values themselves, ``W_h A T`` where only a spectrum is released.
    """
    matrix = iterated_matrix(k, h)
    return matrix if spectrum is None else matrix @ spectrum.synthesis @ spectrum.analysis
