"""Shape a released function after release: nonnegative, normalized.

Write f for the released polynomial, F for the non-private function, w for the half-width of f's
band: with probability ``1 - beta``, ``|f - F| <= w`` everywhere. Post-processing costs no budget.
It must not make the band wrong, and what F looks like is private: nobody can promise without the
records that F, an estimator, integrates to one. So no band here assumes that F has the shape that
was asked for. It is ``w + sum_i sup |g_i - g_{i-1}|`` over the steps ``f = g_0, g_1, ..``
(triangle inequality), each supremum enclosed from the released values alone, with one exception
that is a theorem: clipping a density costs nothing. All this holds on the event that f's band
covers, so shapes may be chosen after looking at the release. Values are clipped before they are
normalized, whatever order was asked for.

A shape is one word, the same in Python, on the command line and in the label of an answer, so a
label says how to ask for the same again: ``synopsis.shaped(*other.metadata["post_processing"])``.

Nonnegative
-----------
``max(f, 0)``, exact at every point. ``|max(f, 0) - max(F, 0)| <= |f - F|`` pointwise, so where
``F >= 0`` (a density is a mean of nonnegative kernels) the band needs no widening. Elsewhere the
step moves f by ``sup max(-f, 0)``.

Normalized
----------
``c f`` or ``c max(f, 0)`` with c the inverse of the integral over the domain. The integral of f is
the mean of its coefficients times the volume, as each basis polynomial integrates to
``1 / (k + 1)``. That of ``max(f, 0)`` is enclosed (`positive_mean`) and the lower end is used: the
result integrates to between 1 and 1 + the relative gap, about 1e-6 to 1e-4; where the gap is above
1 % the shape is refused.

The step moves f by ``|c - 1| sup |f|``, and the band says so. It is a band for F itself: F does not
integrate to one, because kernels reach over the bounds and rows that were dropped or null count in
n, so its mass is some unknown number of at most one and a wide correction is a real disagreement
with F. ``c > 0`` keeps what was clipped nonnegative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from threading import Lock
from typing import Any

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.shapes import mean, positive_mean, value_range
from dbern.certify.certificate import Certificate
from dbern.data.domain import Domain
from dbern.errors import SpecError
from dbern.model.component import LatticeComponent
from dbern.synopsis.bands import BandRequest, ConfidenceBands
from dbern.synopsis.function import Evaluation, ReleasedFunction
from dbern.synopsis.reader import Synopsis
from dbern.synopsis.released import MOST_LOADED, ReleasedArray
from dbern.synopsis.smoothing import Smoothing
from dbern.synopsis.store import ReadableStore
from dbern.types import FloatArray

_NONNEGATIVE, _NORMALIZED = "nonnegative", "normalized"
_SHAPES = (_NONNEGATIVE, _NORMALIZED)  # in the order in which they are made
_LARGEST_GAP = 0.01


def shape(synopsis: Synopsis, shapes: Sequence[str]) -> ShapedSynopsis:
    """Return the same function after free post-processing, which is off unless asked for here.

    Parameters
    ----------
    shapes : sequence of str
        ``"nonnegative"`` (clipped at zero), ``"normalized"`` (a density that integrates to one over
        the domain), or both. All of them are done, and those that the synopsis has already.
        Densities of groups can only be nonnegative.

    Returns
    -------
    ShapedSynopsis
        It answers as `synopsis` does, and says so in ``metadata["post_processing"]``. Its band
        covers the non-private function at the same confidence, whatever the shape of that.

    Raises
    ------
    SpecError
        For a shape that is not known or that this function cannot have.
    """
    metadata, combination = synopsis.metadata, synopsis.combination
    wanted = _in_order([*metadata.get("post_processing", ()), *shapes])
    if combination.of_points:
        raise SpecError("shapes: a function made of weights cannot be shaped. Ask the synopsis")
    clipped = wanted == (_NONNEGATIVE,)
    if not combination.is_array and not (combination.keeps_values and clipped):
        able = f'can only be "{_NONNEGATIVE}"' if combination.keeps_values else "cannot be shaped"
        raise SpecError(
            f'shapes: a function that is a "{combination.kind}" of arrays {able}. Ask the synopsis '
            "itself"
        )
    kernels = getattr(synopsis.arrays[0], "kernels", ())
    if not clipped and any(kernel.edges == "normalized" for kernel in kernels):
        raise SpecError(
            f'shapes: a density whose edges are normalized can only be "{_NONNEGATIVE}". Leave out '
            f'"{_NORMALIZED}"'
        )
    if synopsis.arrays[0].component.oblique is not None and not clipped:
        raise SpecError(
            f'shapes: a density of a full covariance can only be "{_NONNEGATIVE}", as its lattice '
            f'is oblique to the axes. Leave out "{_NORMALIZED}"'
        )
    is_density = synopsis.meaning == "density"
    if not (is_density and clipped) and any(array.large for array in synopsis.arrays):
        raise SpecError(
            f"shapes: are made in memory, of lattices of at most {MOST_LOADED} points; of a larger "
            f'density "{_NONNEGATIVE}" alone. Ask the synopsis itself'
        )
    if _NORMALIZED in wanted and not is_density:
        raise SpecError(
            f'shape "{_NORMALIZED}": only a density integrates to one, and this is a '
            f"{metadata['target']['kind']}. Leave it out"
        )
    return ShapedSynopsis(synopsis, wanted)


def _in_order(shapes: Sequence[str]) -> tuple[str, ...]:
    """Sort shapes into the order in which they are made, each once."""
    unknown = [shape for shape in shapes if shape not in _SHAPES]
    if unknown or not shapes:
        wrong = f'shape "{unknown[0]}": not known' if unknown else "shapes: none is named"
        raise SpecError(f"{wrong}. Write {' or '.join(_SHAPES)}, or both")
    return tuple(shape for shape in _SHAPES if shape in shapes)


@dataclass(frozen=True)
class _ShapedCertificate(Certificate):
    """A certificate with one more part: how far shaping moved the released function at most.

    Clipping moves a density nearer to the non-private one and costs nothing. Other steps widen the
    band, as the non-private function need not have the shape.
    """

    shaping: float = 0.0

    @property
    def total(self) -> float:
        return super().total + self.shaping


class ShapedArray(ReleasedArray):
    """A released array after free post-processing, by the names that `_in_order` returns.

    `density`: the non-private values cannot be negative.
    """

    def __init__(
        self,
        store: ReadableStore,
        name: str,
        component: LatticeComponent,
        domain: Domain,
        shapes: tuple[str, ...],
        *,
        density: bool,
    ) -> None:
        super().__init__(store, name, component, domain)
        self._shapes = shapes
        self._volume = domain.volume
        self._density = density
        self._scales: dict[Smoothing, tuple[float, float]] = {}
        self._lock = Lock()

    def values(
        self, points: FloatArray, smoothing: Smoothing | None, total: int, threads: int = 1
    ) -> FloatArray:
        """Return values at points (m, l); NaN outside."""
        assert smoothing is not None  # noqa: S101 -- the synopsis refuses the other method
        return self._finished(super().values(points, smoothing, total, threads), smoothing)

    def on_grid(self, positions: Sequence[FloatArray], smoothing: Smoothing) -> FloatArray:
        """Return values on a product grid of positions in the unit cube."""
        return self._finished(super().on_grid(positions, smoothing), smoothing)

    def certificate(
        self, smoothing: Smoothing, beta: Fraction, num_simultaneous: int, *, selected: bool
    ) -> _ShapedCertificate:
        """Return the raw array's bound, with ``shaping``: the most that any point was moved."""
        raw = super().certificate(smoothing, beta, num_simultaneous, selected=selected)
        _, moved = self._scale(smoothing)
        return _ShapedCertificate(**vars(raw), shaping=moved)

    @property
    def moved(self) -> float:
        """Largest distance from the raw array, at the order of the release."""
        _, moved = self._scale(self.smoothing())
        return moved

    def _finished(self, values: FloatArray, smoothing: Smoothing) -> FloatArray:
        factor, _ = self._scale(smoothing)
        if _NONNEGATIVE in self._shapes:
            np.maximum(values, 0.0, out=values)
        values *= factor
        return values

    def _scale(self, smoothing: Smoothing) -> tuple[float, float]:
        """Factor of the clipped or raw values, and the largest distance from the raw ones."""
        if self._density and self._shapes == (_NONNEGATIVE,):
            return 1.0, 0.0
        with self._lock:  # once, however many threads ask
            if smoothing not in self._scales:
                self._scales[smoothing] = self._computed_scale(self._coefficients(smoothing))
            return self._scales[smoothing]

    def _computed_scale(self, bernstein: FloatArray) -> tuple[float, float]:
        clipped, linear = _NONNEGATIVE in self._shapes, self.component.interpolated
        low, high = value_range(bernstein, linear=linear)
        moved = max(0.0, -low) if clipped and not self._density else 0.0
        if _NORMALIZED not in self._shapes:
            return 1.0, moved
        factor = 1 / (_mean(bernstein, clipped=clipped, linear=linear) * self._volume)
        largest = max(0.0, high) if clipped else max(-low, high)
        return factor, moved + OUTWARD * abs(factor - 1) * largest


def _mean(bernstein: FloatArray, *, clipped: bool, linear: bool) -> float:
    if clipped:
        average, gap = positive_mean(bernstein, linear=linear)
    else:
        average, gap = mean(bernstein, linear=linear), 0.0
    if average <= 0:
        advice = "Leave it out" if clipped else f'Add "{_NONNEGATIVE}", or leave it out'
        raise SpecError(
            f'shape "{_NORMALIZED}": the released values have no positive integral. {advice}'
        )
    if gap > _LARGEST_GAP * average:
        raise SpecError(
            f'shape "{_NORMALIZED}": the integral of the clipped values is not known to within '
            f'{_LARGEST_GAP:.0%}. Leave out "{_NONNEGATIVE}", or write a smaller h'
        )
    return average


class ShapedFunction(ReleasedFunction):
    """A released function whose arrays are shaped."""

    def __init__(self, store: ReadableStore, shapes: tuple[str, ...]) -> None:
        super().__init__(store)
        self.shapes = shapes

    @property
    def clips_density(self) -> bool:
        """Whether what is below zero is cut off a density, which moves it nearer to the truth."""
        return _NONNEGATIVE in self.shapes and self.meaning == "density"

    @cached_property
    def arrays(self) -> tuple[ShapedArray, ...]:
        """Released arrays, shaped, in the order of the combination."""
        domain, density = self.domain, self.meaning == "density"
        return tuple(
            ShapedArray(self.store, name, component, domain, self.shapes, density=density)
            for component in self.store.released.components
            if isinstance(component, LatticeComponent)  # as all are of what can be shaped
            for name in component.arrays
        )

    @property
    def shaping_error(self) -> float:
        """Largest distance of its values from those that were released."""
        return self.combination.error([array.moved for array in self.arrays])

    def baseline(self, method: str) -> Evaluation:
        """Refuse the baseline, which has no polynomial to shape."""
        raise SpecError(
            f'method = "{method}": only the polynomial is shaped. Leave it out, or ask the '
            "synopsis itself"
        )


class ShapedBands(ConfidenceBands):
    """Bands of a shaped function, whose intervals are made from those of the unshaped one."""

    _function: ShapedFunction

    def __init__(self, function: ShapedFunction, unshaped: ConfidenceBands) -> None:
        super().__init__(function)
        self._unshaped = unshaped

    def prepare(self, request: BandRequest) -> None:
        """Compute the bands that intervals are made from, or refuse the request."""
        self._unshaped.prepare(request)

    def interval(
        self, points: FloatArray, request: BandRequest, total: int, threads: int = 1
    ) -> FloatArray:
        """Return the ends at points (m, l), low and high last.

        The band of the unshaped function, less what is below zero where a density is clipped,
        reaching to the shaped value where that lies outside: so it covers as before, contains the
        curve, and nowhere exceeds the curve plus or minus `band`.
        """
        ends = self._unshaped.interval(points, request, total, threads)
        low, high = ends[..., 0], ends[..., 1]
        evaluation = self._function.evaluation(request.h)
        values = self._function.values(points, evaluation, total, threads)
        if self._function.clips_density:
            low = np.maximum(low, 0.0)
        return np.stack([np.minimum(low, values), np.maximum(high, values)], axis=-1)


class ShapedSynopsis(Synopsis):
    """A released function after free post-processing; made by `Synopsis.shaped`.

    Everything works as for a `Synopsis`. ``metadata["post_processing"]`` lists what was done, in
    order, and so does the attribute of that name of a grid, in one text.
    """

    def __init__(self, synopsis: Synopsis, shapes: tuple[str, ...]) -> None:
        self._unshaped: Synopsis = getattr(synopsis, "_unshaped", synopsis)
        self._store = self._unshaped._store
        self._shapes = shapes

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reshape, (self._unshaped, self._shapes))

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {', '.join(self._shapes)}>"

    @property
    def metadata(self) -> dict[str, Any]:
        """Contents and guarantee of the release, and its post-processing since."""
        return {**self._store.attributes, "post_processing": list(self._shapes)}

    @cached_property
    def _function(self) -> ShapedFunction:
        return ShapedFunction(self._store, self._shapes)

    @cached_property
    def _bands(self) -> ShapedBands:
        return ShapedBands(self._function, self._unshaped._bands)


@lru_cache(maxsize=4)
def _reshape(unshaped: Synopsis, shapes: tuple[str, ...]) -> ShapedSynopsis:
    """Share one synopsis among the blocks of a worker: the integral takes longer than a block."""
    return ShapedSynopsis(unshaped, shapes)
