"""What a space of functions is to a risk minimizer, however its functions are represented."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

from dbern.arrays import FloatArray
from dbern.bernstein.bias import Approximation
from dbern.bernstein.coordinates import BumpBound, Coordinates
from dbern.bernstein.kernels import Kernel as Density
from dbern.bernstein.reproducing import Kernel
from dbern.learning.risk import Risk

MOST_POINTS = 1_000_000
"""Lattice points that a choice may take, where values are cheap."""


class Hypotheses(Protocol):
    """The functions ``<w, phi(y)>`` of a kernel's Hilbert space, as they are learned.

    Attributes
    ----------
    dimensions : int
        Coordinates of a point.
    radius : float
        Largest Euclidean norm of a record's point.
    reach : float
        ``sup |phi(y)|`` over the unit cube: what a value is of a norm.
    shard_rows : int
        Rows of an automatic shard.
    """

    @property
    def dimensions(self) -> int:
        """See the class."""

    @property
    def kernel(self) -> Kernel:
        """What is learned with."""

    @property
    def radius(self) -> float:
        """See the class."""

    @property
    def reach(self) -> float:
        """See the class."""

    @property
    def shard_rows(self) -> int:
        """See the class."""

    @property
    def counting(self) -> dict[str, Any]:
        """JSON values that `restored` reads."""

    def resolved(self, risk_factor: float, n: int) -> Self:
        """As it is for n records; `risk_factor` is what a cut of the kernel is amplified by."""

    def restored(self, counting: Mapping[str, Any]) -> Self:
        """The space whose `counting` this is."""

    def points(self, positions: FloatArray) -> FloatArray:
        """Where records at unit-cube positions (m, l) are put, by single records alone."""

    def drift(self, distance: float) -> float:
        """How far a feature moves with its point, so much on each axis: accuracy alone."""


class Space(Hypotheses, Protocol):
    """Functions that are released on a lattice.

    Attributes
    ----------
    volume : float
        A kernel bump ``K(x, .)`` is this times a mixture's unit bump.
    kernels : tuple of Density
        What the choice of k, h and noise looks at; none where it looks at the Gram matrix.
    largest_lattice : int
        Most points of a lattice that is chosen.
    """

    @property
    def volume(self) -> float:
        """See the class."""

    @property
    def kernels(self) -> tuple[Density, ...]:
        """See the class."""

    @property
    def largest_lattice(self) -> int:
        """See the class."""

    def approximation(self, norm: float) -> Approximation:
        """Of a minimizer in units of ``C M volume``, in which its norm is at most `norm`.

        What its expansion's weights sum to is at most one in these.
        """

    def nodes(self, axes: Sequence[FloatArray]) -> list[FloatArray]:
        """Where the product grid of these unit-cube positions is put: again a product grid."""

    def cut_error(self, risk: Risk) -> float:
        """What cutting the kernel changes of a minimizer, at any point."""

    def gain(self, coordinates: Coordinates, norm: int) -> BumpBound:
        """Bound the l1 or l2 norm of the coordinates of a function with weights of norm one."""
