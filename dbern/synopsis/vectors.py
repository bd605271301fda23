"""``ReleasedVector``: released numbers that are the same at every point."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

from dbern.certify.certificate import Certificate, vector_bound
from dbern.synopsis.component import VectorComponent
from dbern.synopsis.released import Released
from dbern.synopsis.smoothing import Smoothing
from dbern.types import FloatArray


class ReleasedVector(Released):
    """A vector of the group `name` of ``components/``: it has no axes, and nothing is smoothed."""

    component: VectorComponent

    @cached_property
    def numbers(self) -> FloatArray:
        """The numbers, (m,)."""
        return self._store.values(f"components/{self.name}/coefficients")

    @property
    def weights(self) -> FloatArray:
        """Numbers that a combination computes with."""
        return self.numbers

    @property
    def large(self) -> bool:
        """Never: a vector is read whole."""
        return False

    def smoothing(self, h: Sequence[int] = ()) -> Smoothing:
        """Return the smoothing on no axes."""
        del h
        return Smoothing((), ())

    @property
    def best_smoothing(self) -> Smoothing:
        """Smoothing on no axes."""
        return self.smoothing()

    def unshrunk(self, smoothing: Smoothing) -> Smoothing:
        """Return the same: a vector is not shrunk."""
        return smoothing

    def values(
        self, points: FloatArray, smoothing: Smoothing | None, total: int, threads: int = 1
    ) -> FloatArray:
        """Return the weights, whatever the points."""
        del points, smoothing, total, threads
        return self.weights

    def on_grid(self, positions: Sequence[FloatArray], smoothing: Smoothing) -> FloatArray:
        """Return the weights, whatever the grid."""
        del positions, smoothing
        return self.weights

    def grid_bytes(self, counts: Sequence[int]) -> int:
        """Return 0: no memory grows with a grid."""
        del counts
        return 0

    def deviation(self, smoothing: Smoothing) -> float:
        """Return the standard deviation of every entry's noise, from public facts alone."""
        del smoothing
        return self.component.noise.covariance.deviation

    def bound(
        self, smoothing: Smoothing, beta: Fraction, num_simultaneous: int, *, selected: bool
    ) -> Certificate:
        """Bound the error of every entry, or of the linear functions that they make."""
        del smoothing, selected
        component = self.component
        error = component.errors.lattice + component.errors.released
        stated = component.features
        features = None if stated is None else (stated.axes, stated.constant)
        law, size = component.noise.law, component.lattice.size
        return vector_bound(law, size, features, error, beta, num_simultaneous)
