"""Shape a released function after release: quiet, nonnegative, normalized, monotone.

Write f for the released polynomial, F for the non-private function, w for the half-width of f's
band: with probability ``1 - beta``, ``|f - F| <= w`` everywhere. Post-processing costs no budget.
It must not make the band wrong, and what F looks like is private: nobody can promise without the
records that F, an estimator, is monotone or integrates to one. So no band here assumes that F has
the shape that was asked for. It is ``w + sum_i sup |g_i - g_{i-1}|`` over the steps
``f = g_0, g_1, ..`` (triangle inequality), each supremum enclosed from the released values alone,
with one exception that is a theorem: clipping a density costs nothing. All this holds on the event
that f's band covers, so shapes may be chosen after looking at the release. The steps happen in one
order, whatever order they were asked for in: each keeps the shapes that came before.

A shape is one word, the same in Python, on the command line and in the label of an answer, so a
label says how to ask for the same again: ``synopsis.shaped(*other.metadata["post_processing"])``.

Quiet
-----
What bins hold of a window of 3 or 5 an axis is a sum T of counts, with noise of the public variance
V. ``w^2 V + (1 - w)^2 (T^2 - V)`` estimates the risk of ``w T`` without bias, and is least at
``w = 1 - V / T^2`` (James and Stein 1961). Each bin is multiplied by the larger
``max(0, 1 - 4 V / T^2)`` of the two windows around it, T above zero: V counts four times, as there
are many windows. Bins where nothing stands out of the noise vanish, and those with many records
stay. Small bumps may hide below the noise, so no band that holds for every database is narrower for
this (Low 1997): the band is wider by how far the function was moved.

Densities by bins on two and three axes are shrunk at the release, by at most a share of the
certificate's noise, which counts it (`dbern.synopsis.shrinkage.shrunk_within`). *Raw* is the
function before that, of which *quiet* is made; its band is narrower by how far it was moved.

Monotone along an axis
----------------------
The nearest monotone coefficients, at a higher degree: exactly monotone at every point. Proofs are
in ``dbern/bernstein/shapes.py``. Where F is monotone in fact, the step moves f by little more than
w at most; a step that moves f by much more shows that F is not.

Nonnegative
-----------
``max(f, 0)``, exact at every point. ``|max(f, 0) - max(F, 0)| <= |f - F|`` pointwise, so where
``F >= 0`` (a density is a mean of nonnegative kernels) the band needs no widening. Elsewhere the
step moves f by ``sup max(-f, 0)``. A maximum of monotone functions is monotone.

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
with F. ``c > 0`` keeps the other two shapes.
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
from dbern.bernstein.shapes import mean, monotone, positive_mean, value_range
from dbern.certify.certificate import Certificate
from dbern.data.domain import Domain
from dbern.errors import SpecError
from dbern.synopsis.arrays import MOST_LOADED, ReleasedArray
from dbern.synopsis.component import LatticeComponent
from dbern.synopsis.confidence_bands import BandRequest, ConfidenceBands
from dbern.synopsis.lazy_polynomial import AnyFunction
from dbern.synopsis.readable_store import ReadableStore
from dbern.synopsis.reader import Synopsis
from dbern.synopsis.released import Released
from dbern.synopsis.released_function import Evaluation, ReleasedFunction
from dbern.synopsis.shrinkage import shrunk
from dbern.synopsis.smoothing import Smoothing
from dbern.types import FloatArray

_INCREASING, _DECREASING = "increasing", "decreasing"
_RAW, _QUIET, _NONNEGATIVE, _NORMALIZED = "raw", "quiet", "nonnegative", "normalized"
_LARGEST_GAP = 0.01


def shape(synopsis: Synopsis, shapes: Sequence[str]) -> ShapedSynopsis:
    """Return the same function after free post-processing, which is off unless asked for here.

    Parameters
    ----------
    shapes : sequence of str
        Any of ``"raw"`` (of a density whose bins are shrunk, as they were released), ``"quiet"``
        (shrunk wherever nothing stands out of it, however far that moves it), ``"nonnegative"``
        (clipped at zero), ``"normalized"`` (a density that integrates to one over the domain),
        ``"increasing:x"`` and ``"decreasing:x"`` (monotone along the axis ``x``). The order does
        not matter: all of them are done, and those that the synopsis has already. Densities of
        groups can only be raw, quiet and nonnegative.

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
    wanted = _in_order([*metadata.get("post_processing", ()), *shapes], synopsis.domain)
    if combination.of_points:
        raise SpecError("shapes: a function made of weights cannot be shaped. Ask the synopsis")
    simple = set(wanted) <= {_RAW, _QUIET, _NONNEGATIVE}
    either = f'"{_RAW}", "{_QUIET}" and "{_NONNEGATIVE}"'
    if not combination.is_array and not (combination.keeps_values and simple):
        able = f"can only be {either}" if combination.keeps_values else "cannot be shaped"
        raise SpecError(
            f'shapes: a function that is a "{combination.kind}" of arrays {able}. Ask the synopsis '
            "itself"
        )
    if synopsis.arrays[0].component.oblique is not None and not simple:
        raise SpecError(
            f"shapes: a density of a full covariance can only be {either}, as its lattice is "
            "oblique to the axes. Leave out the others"
        )
    if _QUIET in wanted and not all(_counts(array) for array in synopsis.arrays):
        raise SpecError(
            f'shape "{_QUIET}": only bins that count records can be, of a lattice of at most '
            f"{MOST_LOADED} points. Leave it out"
        )
    if not _clips_alone(synopsis, wanted) and any(array.large for array in synopsis.arrays):
        raise SpecError(
            f"shapes: are made in memory, of lattices of at most {MOST_LOADED} points; of a larger "
            f'density "{_NONNEGATIVE}" alone. Ask the synopsis itself'
        )
    if _NORMALIZED in wanted and synopsis.meaning != "density":
        raise SpecError(
            f'shape "{_NORMALIZED}": only a density integrates to one, and this is a '
            f"{metadata['target']['kind']}. Leave it out"
        )
    return ShapedSynopsis(synopsis, wanted)


def _clips_alone(synopsis: Synopsis, shapes: Sequence[str]) -> bool:
    return synopsis.meaning == "density" and set(shapes) <= {_RAW, _NONNEGATIVE}


def _counts(array: Released) -> bool:
    if not isinstance(array, ReleasedArray) or array.large:
        return False
    return array.counted_in == array.name and bool(array.bins)


def _in_order(shapes: Sequence[str], domain: Domain) -> tuple[str, ...]:
    """Sort shapes into the order in which they are made, each once."""
    ways = [f"{way}:{name}" for name in domain.names for way in (_INCREASING, _DECREASING)]
    known = [_RAW, _QUIET, *ways, _NONNEGATIVE, _NORMALIZED]
    unknown = [shape for shape in shapes if shape not in known]
    if unknown or not shapes:
        wrong = f'shape "{unknown[0]}": not known' if unknown else "shapes: none is named"
        raise SpecError(f"{wrong}. Write one or more of {', '.join(known)}")
    for name in domain.names:
        if {f"{_INCREASING}:{name}", f"{_DECREASING}:{name}"} <= set(shapes):
            raise SpecError(
                f'shapes: "{name}" cannot be both {_INCREASING} and {_DECREASING}. Keep one'
            )
    return tuple(shape for shape in known if shape in shapes)


@dataclass(frozen=True)
class _ShapedCertificate(Certificate):
    """A certificate with one more part: how far shaping moved the released function at most.

    Clipping moves a density nearer to the non-private one and costs nothing. The other shapes
    widen the band, as the non-private function need not have them.
    """

    shaping: float = 0.0

    @property
    def total(self) -> float:
        return super().total + self.shaping


@dataclass(frozen=True)
class _Shaped:
    """Evaluator of one smoothing of a shaped array, and its distance from the raw one."""

    bernstein: FloatArray | None  # None: as without shapes
    factor: float
    moved: float


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
        self._shaped: dict[Smoothing, _Shaped] = {}
        self._lock = Lock()

    def smoothing(self, h: Sequence[int] = ()) -> Smoothing:
        """Return the whole release at an order, as it was released where a shape starts there."""
        smoothing = super().smoothing(h)
        return self.unshrunk(smoothing) if {_RAW, _QUIET} & set(self._shapes) else smoothing

    def values(
        self, points: FloatArray, smoothing: Smoothing | None, total: int, threads: int = 1
    ) -> FloatArray:
        """Return values at points (m, l); NaN outside."""
        assert smoothing is not None  # noqa: S101 -- the synopsis refuses the other method
        return self._finished(super().values(points, smoothing, total, threads), smoothing)

    def on_grid(self, positions: Sequence[FloatArray], smoothing: Smoothing) -> FloatArray:
        """Return values on a product grid of positions in the unit cube."""
        return self._finished(super().on_grid(positions, smoothing), smoothing)

    def bound(
        self, smoothing: Smoothing, beta: Fraction, num_simultaneous: int, *, selected: bool
    ) -> _ShapedCertificate:
        """Return the raw array's bound, with ``shaping``: the most that any point was moved."""
        raw = super().bound(smoothing, beta, num_simultaneous, selected=selected)
        return _ShapedCertificate(**vars(raw), shaping=self._shape(smoothing).moved)

    @property
    def moved(self) -> float:
        """Largest distance from the raw array, at the order of the release."""
        return self._shape(self.smoothing()).moved

    def _finished(self, values: FloatArray, smoothing: Smoothing) -> FloatArray:
        if _NONNEGATIVE in self._shapes:
            np.maximum(values, 0.0, out=values)
        values *= self._shape(smoothing).factor
        return values

    def _function(self, smoothing: Smoothing) -> AnyFunction:
        bernstein = self._shape(smoothing).bernstein
        return super()._function(smoothing) if bernstein is None else self._function_of(bernstein)

    def _shape(self, smoothing: Smoothing) -> _Shaped:
        with self._lock:  # once, however many threads ask
            if smoothing not in self._shaped:
                clipped = self._density and set(self._shapes) <= {_RAW, _NONNEGATIVE}
                unchanged = _Shaped(None, 1.0, 0.0)
                self._shaped[smoothing] = unchanged if clipped else self._make_shaped(smoothing)
        return self._shaped[smoothing]

    def _make_shaped(self, smoothing: Smoothing) -> _Shaped:
        bernstein, moved = self._coefficients(smoothing), 0.0
        linear = self.component.interpolated
        if _QUIET in self._shapes:
            bins = shrunk(self.released, self.noise, self.bins[0].levels)
            target = self._coefficients_of(bins, smoothing)
            moved = OUTWARD * float(np.abs(value_range(target - bernstein, linear=linear)).max())
            bernstein = target
        for axis, sign in self._monotone:
            bernstein, step = monotone(bernstein, axis, sign, linear=linear)
            moved += step
        enclosed = value_range(bernstein, linear=linear)
        return _Shaped(bernstein, *self._finish(bernstein, enclosed, moved))

    @property
    def _monotone(self) -> list[tuple[int, int]]:
        ways = ((_INCREASING, 1), (_DECREASING, -1))
        candidates = [
            (a, f"{way}:{name}", s) for a, name in enumerate(self.axes) for way, s in ways
        ]
        return [(axis, sign) for axis, word, sign in candidates if word in self._shapes]

    def _finish(
        self, bernstein: FloatArray, enclosed: tuple[float, float], moved: float
    ) -> tuple[float, float]:
        (low, high), factor = enclosed, 1.0
        clipped = _NONNEGATIVE in self._shapes
        if clipped and not self._density:
            moved += max(0.0, -low)
        if _NORMALIZED in self._shapes:
            linear = self.component.interpolated
            factor = 1 / (_mean(bernstein, clipped=clipped, linear=linear) * self._volume)
            moved += OUTWARD * abs(factor - 1) * (max(0.0, high) if clipped else max(-low, high))
        return factor, moved


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
