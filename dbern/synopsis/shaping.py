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

Densities by bins on two and three axes are silenced at the release, by at most a share of the
certificate's noise, which counts it (`dbern.synopsis.arrays.silenced`). *Raw* is the function
before that, of which *quiet* is made; its band is narrower by how far it was moved.

Monotone along an axis
----------------------
The nearest monotone coefficients, at a higher degree: exactly monotone at every point; of lattices
too large to be whole in memory, at their own degree and but for what `LEFT_OUT` leaves out. Proofs
are in ``dbern/bernstein/shapes.py``. Where F is monotone in fact, the step moves f by little more
than w at most; a step that moves f by much more shows that F is not.

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

import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from threading import Lock
from typing import Any

import numpy as np

from dbern.bernstein.basis import Blocks, blocks_of, on_others
from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.shapes import isotonic, monotone, most_moved, polynomial_range, positive_mean
from dbern.certificate import Beside, Certificate, Promises
from dbern.data.domain import Domain
from dbern.errors import EnvironmentRefusedError, ReleaseError, SpecError
from dbern.synopsis.arrays import (
    MOST_LOADED,
    LazyPolynomial,
    ReleasedArray,
    ReleasedVector,
    Smoothing,
    as_released,
    quieted,
)
from dbern.synopsis.bands import About
from dbern.synopsis.evaluate import Polynomial
from dbern.synopsis.points import Order, Points, plain
from dbern.synopsis.reader import Synopsis, arrived
from dbern.synopsis.store import ReleasedStore, functions_of
from dbern.types import FloatArray

# --- Coefficients of a large lattice in a temporary file, where an operation needs all of an axis


_BLOCK_VALUES = 1 << 20  # numbers of a block in memory: 8 MiB


class OnDiskArray:
    """An array in a temporary file, gone through by layers of the first axis or by lines along it.

    The file has no name, and goes with this object or its process. It holds what follows from
    released values: nothing that is not public.

    Parameters
    ----------
    shape : tuple of int
        Of the array; its numbers take 8 bytes each.

    Raises
    ------
    ReleaseError
        From `write` and `along`, where the file cannot be written.

    Examples
    --------
    >>> array = OnDiskArray((2, 3))
    >>> array.write(0, np.arange(6.0).reshape(2, 3))
    >>> array.along(0, lambda lines: lines - lines.mean(axis=0))
    >>> [part.tolist() for _, part in array.blocks]
    [[[-1.5, -1.5, -1.5], [1.5, 1.5, 1.5]]]
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self._layer = math.prod(self.shape[1:])
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 -- closed by the finalizer
        self._file = file.fileno()
        weakref.finalize(self, file.close)

    @property
    def blocks(self) -> Blocks:
        """The array by layers."""
        layers = max(1, _BLOCK_VALUES // self._layer)

        def read(index: int) -> FloatArray:
            start, stop = index * layers, min((index + 1) * layers, self.shape[0])
            found = self._get(start * self._layer, (stop - start) * self._layer)
            return found.reshape(-1, *self.shape[1:])

        return Blocks(self.shape, layers, read)

    def write(self, start: int, values: FloatArray) -> None:
        """Write layers from `start` on."""
        self._put(start * self._layer, values)

    def along(self, axis: int, change: Callable[[FloatArray], FloatArray]) -> None:
        """Change all lines along an axis; `change` gets and gives arrays with that axis whole."""
        if axis > 0:
            for place, part in self.blocks:
                self.write(place.start, change(part))
            return
        width = max(1, _BLOCK_VALUES // self.shape[0])
        for first in range(0, self._layer, width):
            starts = range(first, math.prod(self.shape), self._layer)
            count = min(width, self._layer - first)
            lines = change(np.stack([self._get(start, count) for start in starts]))
            for start, row in zip(starts, lines, strict=True):
                self._put(start, row)

    def extremes(self) -> tuple[float, float]:
        """Return the least and the largest number."""
        found = [(float(part.min()), float(part.max())) for _, part in self.blocks]
        least, largest = zip(*found, strict=True)
        return min(least), max(largest)

    def _get(self, first: int, count: int) -> FloatArray:
        return np.frombuffer(os.pread(self._file, 8 * count, 8 * first))

    def _put(self, first: int, values: FloatArray) -> None:
        data, done = np.ascontiguousarray(values).data.cast("B"), 0
        try:
            while done < len(data):
                done += os.pwrite(self._file, data[done:], 8 * first + done)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise ReleaseError(
                f"{tempfile.gettempdir()}: a temporary file cannot be written ({why}). Free some "
                "space, or set TMPDIR to another folder"
            ) from None


def coefficients(stored: Blocks, matrices: Sequence[FloatArray]) -> OnDiskArray:
    """Return each axis's matrix (k_i + 1, d_i) applied to stored values (d_1, .., d_l).

    A lattice's shards are gone through once for all axes but the first, and the file by lines for
    that; of stored values in one block, which are in memory, the file is made layer by layer.

    Raises
    ------
    EnvironmentRefusedError
        Before anything is read, where there is no room for the temporary file.
    ReleaseError
        Where it cannot be written.
    """
    first, *others = matrices
    shape = [len(matrix) for matrix in matrices]
    _check_room(8 * math.prod(shape))
    found = OnDiskArray(shape)
    if len(stored.places) == 1:
        values = stored.read(0)
        for place in found.blocks.places:
            part = np.tensordot(first[place], values, axes=(1, 0))
            found.write(place.start, on_others(part, others))
        return found
    for place, part in stored:
        found.write(place.start, on_others(part, others))
    found.along(0, lambda lines: np.asarray(first @ lines))
    return found


def _make_monotone(bernstein: OnDiskArray, axis: int, sign: int) -> float:
    """Make coefficients monotone along an axis where they are; returns the most they moved.

    As `monotone` does with as many, without a higher degree: the range of the change is that of
    its coefficients.
    """
    low, high, largest = 0.0, 0.0, 0.0

    def change(lines: FloatArray) -> FloatArray:
        nonlocal low, high, largest
        found = sign * isotonic(sign * lines, axis)
        moved = found - lines
        low, high = min(low, float(moved.min())), max(high, float(moved.max()))
        largest = max(largest, float(np.abs(lines).max()))
        return np.asarray(found)

    bernstein.along(axis, change)
    return most_moved((low, high), largest)


def _check_room(wanted: int) -> None:
    try:
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise EnvironmentRefusedError(
            f"the shapes of so large a lattice need a temporary file of {wanted >> 20} MiB, and "
            f"there is no folder for it ({why}). Set TMPDIR to one that can be written"
        ) from None
    if free < wanted:
        raise EnvironmentRefusedError(
            f"the shapes of so large a lattice are made in a temporary file of {wanted >> 20} MiB, "
            f"and {folder} has {free >> 20} MiB free. Free some space, set TMPDIR to another "
            "folder, or ask the synopsis itself"
        )


# --- Free post-processing of a released function

_INCREASING, _DECREASING = "increasing", "decreasing"
_RAW, _QUIET, _NONNEGATIVE, _NORMALIZED = "raw", "quiet", "nonnegative", "normalized"
_LARGEST_GAP = 0.01


def shape(synopsis: Synopsis, shapes: Sequence[str]) -> ShapedSynopsis:
    """Return the same function after free post-processing, which is off unless asked for here.

    Parameters
    ----------
    shapes : sequence of str
        Any of ``"raw"`` (of a density whose noise is silenced, as it was released), ``"quiet"``
        (silenced wherever nothing stands out of it, however far that moves it), ``"nonnegative"``
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
    facts, combine = synopsis.metadata, synopsis.combination.kind
    wanted = _in_order([*facts.get("post_processing", ()), *shapes], synopsis.domain)
    if synopsis.combination.of_points:
        raise SpecError("shapes: a function made of weights cannot be shaped. Ask the synopsis")
    simple = set(wanted) <= {_RAW, _QUIET, _NONNEGATIVE}
    either = f'"{_RAW}", "{_QUIET}" and "{_NONNEGATIVE}"'
    if combine != "linear" and not (combine == "stack" and simple):
        able = f"can only be {either}" if combine == "stack" else "cannot be shaped"
        raise SpecError(
            f'shapes: a function that is a "{combine}" of arrays {able}. Ask the synopsis itself'
        )
    if "oblique" in facts["components"][0] and not simple:
        raise SpecError(
            f"shapes: a density of a full covariance can only be {either}, as its lattice is "
            "oblique to the axes. Leave out the others"
        )
    if _QUIET in wanted and not all(_counts(array) for array in synopsis.arrays):
        raise SpecError(
            f'shape "{_QUIET}": only bins that count records can be, of a lattice of at most '
            f"{MOST_LOADED} points. Leave it out"
        )
    if _NORMALIZED in wanted and synopsis.meaning != "density":
        raise SpecError(
            f'shape "{_NORMALIZED}": only a density integrates to one, and this is a '
            f"{facts['target']['kind']}. Leave it out"
        )
    return ShapedSynopsis(synopsis, wanted)


def _counts(array: ReleasedArray | ReleasedVector) -> bool:
    return array.counted_in == array.name and bool(array.bins) and not array.large


def _in_order(shapes: Sequence[str], domain: Domain) -> tuple[str, ...]:
    """Return the shapes in the order in which they are made, each once.

    Raises
    ------
    SpecError
        For none, one that is not known, an axis that is not there, or both directions of one.

    Examples
    --------
    >>> from dbern.data.domain import Axis
    >>> _in_order(["normalized", "increasing:x"], Domain((Axis("x", 0.0, 1.0),)))
    ('increasing:x', 'normalized')
    """
    ways = [f"{way}:{name}" for name in domain.names for way in (_INCREASING, _DECREASING)]
    known = [_RAW, _QUIET, *ways, _NONNEGATIVE, _NORMALIZED]
    unknown = [each for each in shapes if each not in known]
    if unknown or not shapes:
        wrong = f'shape "{unknown[0]}": not known' if unknown else "shapes: none is named"
        raise SpecError(f"{wrong}. Write one or more of {', '.join(known)}")
    for name in domain.names:
        if {f"{_INCREASING}:{name}", f"{_DECREASING}:{name}"} <= set(shapes):
            raise SpecError(
                f'shapes: "{name}" cannot be both {_INCREASING} and {_DECREASING}. Keep one'
            )
    return tuple(each for each in known if each in shapes)


@dataclass(frozen=True)
class _ShapedCertificate(Certificate):
    """A certificate with one more part: how far shaping moved the released function at most.

    Clipping moves a density nearer to the non-private one and costs nothing. The other shapes
    widen the band, as the non-private function need not have them: see the top of this module.
    """

    shaping: float = 0.0

    @property
    def total(self) -> float:
        return super().total + self.shaping


@dataclass(frozen=True)
class _Shaped:
    """What evaluates one smoothing of a shaped array, and how far it is from the raw one."""

    bernstein: FloatArray | Blocks | None  # None: as without shapes
    factor: float
    moved: float


class ShapedArray(ReleasedArray):
    """A released array after free post-processing.

    Parameters
    ----------
    store, name, facts, domain
        As for a `ReleasedArray`.
    shapes : tuple of str
        From `_in_order`.
    density : bool
        Whether the non-private values cannot be negative.
    """

    def __init__(
        self,
        store: ReleasedStore,
        name: str,
        facts: Mapping[str, Any],
        domain: Domain,
        shapes: tuple[str, ...],
        *,
        density: bool,
    ) -> None:
        super().__init__(store, name, facts, domain)
        self._shapes = shapes
        self._volume = domain.volume
        self._density = density
        self._shaped: dict[Smoothing, _Shaped] = {}
        self._lock = Lock()

    def smoothing(self, h: Sequence[int] = ()) -> Smoothing:
        """Return the whole release at an order, as it was released where a shape starts there."""
        found = super().smoothing(h)
        return as_released(self, found) if {_RAW, _QUIET} & set(self._shapes) else found

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
        self,
        smoothing: Smoothing,
        beta: Fraction,
        at_once: int,
        *,
        selected: bool,
        beside: Beside = None,
    ) -> _ShapedCertificate:
        """Return the raw array's bound, with ``shaping``: the most that any point was moved."""
        raw = super().bound(smoothing, beta, at_once, selected=selected, beside=beside)
        return _ShapedCertificate(**vars(raw), shaping=self._shape(smoothing).moved)

    @property
    def moved(self) -> float:
        """How far it is from the raw array anywhere, at the order of the release."""
        return self._shape(self.smoothing()).moved

    def _finished(self, values: FloatArray, smoothing: Smoothing) -> FloatArray:
        if _NONNEGATIVE in self._shapes:
            np.maximum(values, 0.0, out=values)
        values *= self._shape(smoothing).factor
        return values

    def _function(self, smoothing: Smoothing) -> Polynomial | LazyPolynomial:
        bernstein = self._shape(smoothing).bernstein
        if bernstein is None:
            return super()._function(smoothing)
        if isinstance(bernstein, Blocks):
            plain = [np.eye(nodes) for nodes in bernstein.shape]
            return LazyPolynomial(bernstein, plain, self.box)
        return Polynomial(bernstein, self.box)

    def _shape(self, smoothing: Smoothing) -> _Shaped:
        with self._lock:  # once, however many threads ask
            if smoothing not in self._shaped:
                made = self._made_of_blocks if self.large else self._made
                clipped = self._density and set(self._shapes) <= {_RAW, _NONNEGATIVE}
                self._shaped[smoothing] = _Shaped(None, 1.0, 0.0) if clipped else made(smoothing)
        return self._shaped[smoothing]

    def _made(self, smoothing: Smoothing) -> _Shaped:
        bernstein, moved = self._coefficients(smoothing), 0.0
        if _QUIET in self._shapes:
            quiet = self._made_of(quieted(self.released, self.noise), smoothing)
            moved = OUTWARD * float(np.abs(polynomial_range(quiet - bernstein)).max())
            bernstein = quiet
        for axis, sign in self._monotone:
            bernstein, step = monotone(bernstein, axis, sign)
            moved += step
        return _Shaped(bernstein, *self._finish(bernstein, polynomial_range(bernstein), moved))

    def _made_of_blocks(self, smoothing: Smoothing) -> _Shaped:
        """Of a large lattice, whose coefficients are in a temporary file where they matter at all.

        They are as many as for a small one that has too many to raise its degree or to look at
        nodes, so the same is done to them.
        """
        on_disk, moved = coefficients(*self._factors(smoothing)), 0.0
        for axis, sign in self._monotone:
            moved += _make_monotone(on_disk, axis, sign)
        bernstein = on_disk.blocks
        found = self._finish(bernstein, on_disk.extremes(), moved)
        return _Shaped(bernstein if self._monotone else None, *found)

    @property
    def _monotone(self) -> list[tuple[int, int]]:
        """Axes that the function is to be monotone along, and 1 or -1."""
        ways = ((_INCREASING, 1), (_DECREASING, -1))
        each = [(a, f"{way}:{name}", s) for a, name in enumerate(self.axes) for way, s in ways]
        return [(axis, sign) for axis, word, sign in each if word in self._shapes]

    def _finish(
        self, bernstein: FloatArray | Blocks, enclosed: tuple[float, float], moved: float
    ) -> tuple[float, float]:
        (low, high), factor = enclosed, 1.0
        clipped = _NONNEGATIVE in self._shapes
        if clipped and not self._density:
            moved += max(0.0, -low)
        if _NORMALIZED in self._shapes:
            factor = 1 / (_mean(bernstein, clipped) * self._volume)
            moved += OUTWARD * abs(factor - 1) * (max(0.0, high) if clipped else max(-low, high))
        return factor, moved


def _mean(bernstein: FloatArray | Blocks, clipped: bool) -> float:
    if clipped:
        mean, gap = positive_mean(bernstein)
    else:
        averages = [np.full((1, nodes), 1 / nodes) for nodes in bernstein.shape]
        mean, gap = float(blocks_of(bernstein).contracted(averages).item()), 0.0
    if mean <= 0:
        advice = "Leave it out" if clipped else f'Add "{_NONNEGATIVE}", or leave it out'
        raise SpecError(
            f'shape "{_NORMALIZED}": the released values have no positive integral. {advice}'
        )
    if gap > _LARGEST_GAP * mean:
        raise SpecError(
            f'shape "{_NORMALIZED}": the integral of the clipped values is not known to within '
            f'{_LARGEST_GAP:.0%}. Leave out "{_NONNEGATIVE}", or write a smaller h'
        )
    return mean


class ShapedSynopsis(Synopsis):
    """A released function after free post-processing; made by `Synopsis.shaped`.

    Everything works as for a `Synopsis`. ``metadata["post_processing"]`` lists what was done, in
    order, and so does the attribute of that name of a grid, in one text.

    Parameters
    ----------
    synopsis : Synopsis
        What to shape; of a shaped one its unshaped function.
    shapes : tuple of str
        From `_in_order`.
    """

    def __init__(self, synopsis: Synopsis, shapes: tuple[str, ...]) -> None:
        self._unshaped: Synopsis = getattr(synopsis, "_unshaped", synopsis)
        self._store = self._unshaped._store
        self._shapes = shapes

    def __reduce__(self) -> tuple[Any, ...]:
        return (_received, (self.url, self._shapes, self.metadata["release_id"]))

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {', '.join(self._shapes)}>"

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """What was released and under which guarantee, and what was done to it since."""
        return {**self._store.attributes, "post_processing": list(self._shapes)}

    @cached_property
    def arrays(self) -> tuple[ShapedArray, ...]:
        """What was released, shaped, in the order of the combination."""
        domain, density = self.domain, self.meaning == "density"
        return tuple(
            ShapedArray(self._store, name, facts, domain, self._shapes, density=density)
            for facts in functions_of(self.metadata)
            for name in facts["arrays"]
        )

    def promises(self, largest: float | None = None) -> Promises:
        """Return those of `Synopsis`; any database's is wider by how far the function was moved."""
        found = super().promises(largest)
        moved = self.combination.error([one.moved for one in self.arrays])
        return replace(found, any_database=found.any_database + moved)

    def __call__(self, points: Points, h: Order = None, *, method: str = "bernstein") -> Any:
        """Evaluate the shaped function; see `Synopsis`.

        Raises
        ------
        SpecError
            As for a `Synopsis`; for ``method="nearest"``, which has no polynomial to shape; and
            where "normalized" is asked of released values that have no positive integral.
        """
        if method != "bernstein":
            raise SpecError(
                f'method = "{method}": only the polynomial is shaped. Leave it out, or ask the '
                "synopsis itself"
            )
        return super().__call__(points, h)

    def interval(
        self,
        points: Points,
        beta: float | str = 0.05,
        h: Order = None,
        *,
        about: About = "these-data",
    ) -> tuple[Any, Any]:
        """Return the lower and upper ends of a simultaneous band at the points.

        The band of the unshaped function, less what is below zero where a density is clipped,
        reaching to the shaped value where that lies outside: so it covers as before, contains the
        curve, and nowhere exceeds the curve plus or minus `band`.
        """
        array = plain(points, self.domain)
        low, high = self._unshaped.interval(array, beta, h, about=about)
        values = self(array, h)
        if _NONNEGATIVE in self._shapes and self.meaning == "density":
            low = np.maximum(low, 0.0)
        ends = np.minimum(low, values), np.maximum(high, values)
        return self._like(points, ends[0]), self._like(points, ends[1])


@lru_cache(maxsize=4)
def _received(url: str, shapes: tuple[str, ...], release_id: str) -> ShapedSynopsis:
    """One for all blocks that a worker evaluates: the integral takes longer than a block may."""
    return ShapedSynopsis(arrived(url, release_id), shapes)
