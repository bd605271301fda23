"""Quantiles of the largest value of a released function's noise over the whole domain.

They are proved bounds, or simulated ones of the very law: draws at nodes, and at finer ones where
these may be larger.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dbern.bernstein.basis import bernstein_basis
from dbern.bernstein.chebyshev import enclosing_nodes
from dbern.bernstein.kernels import OUTWARD
from dbern.certify.failure import FIELD, NODES, SIMULATION
from dbern.privacy.error_law import Draw
from dbern.privacy.families import errors_of
from dbern.privacy.keystream import KeyStream
from dbern.privacy.noise_law import NoiseLaw, ValueNoise
from dbern.privacy.public_numbers import public_stream
from dbern.reconstruct.base import Strategy
from dbern.reconstruct.series import CUT, Hats, Series, excess_between_nodes, released_series
from dbern.types import FloatArray, Int64Array

_OVERSAMPLING = 8  # of nodes that enclose
_FEWEST_DRAWS, _SOME_DRAWS = 128, 500
_MOST_DRAWS = (8000, 8000, 700)  # on one axis and more: those on three may rise between more nodes
_GRIDS = ((8, 500), (4, 500), (3, 200), (2, _FEWEST_DRAWS))
"""Oversampling of the nodes of draws of whole lattices, and how many must be affordable."""
_VECTORS, _VECTOR_VALUES = 4000, 1 << 22  # drawn at most, and numbers of all of them
_LITTLE_WORK, _WORK = 5e8, 2e9  # multiplications that most draws, and some, may take
_DRAWING = 300.0  # multiplications in the time that one number of noise takes
_JOINTLY = 1 / 3  # of that, where all values are drawn together
_SIMULATED_AXES = 3  # with more, only nodes that enclose badly are few enough to draw at
COARSE, FINER = 2, 4
"""Oversampling of the nodes where all draws are evaluated, and how many finer steps one is."""
_FIELD_VALUES, _CACHED = 1 << 22, 1 << 18  # numbers in memory, and in a processor's, at a time
_RATIO_DRAWS, _MOST_DRAWN = 400, 1 << 27  # of both fields, and numbers at nodes: a second or so
_RATIO_NUMBERS = 5  # at a node at a time: of both fields, their sizes and quotients


class Radius(NamedTuple):
    """Bound on noise, of every weight w that is asked about: ``|w x| <= q |w|_2 + loose |w|_inf``.

    Of a tail, of draws, of a ball that holds a span, or of a field everywhere (`ratio_radius`).
    """

    q: float
    loose: float = 0.0


@lru_cache(maxsize=16)  # a plan, its release and each answer of it ask for the same ones
def noise_bound(strategy: Strategy, h: tuple[int, ...], law: ValueNoise, beta: Fraction) -> float:
    """Bound the noise's sup norm with probability ``1 - beta``, in unit-cube units.

    The smallest of three proved bounds: the union bound over coefficients times the operator's
    norm, the tail of its values at nodes, and a simulated quantile of the very law. The last is
    above the quantile that `SIMULATION` says but for the rest of beta: so are the others, with the
    same share of it.
    """
    simulated = None
    if len(h) <= _SIMULATED_AXES:
        simulated = _simulated_quantile(strategy, h, law, float(beta))
    beta_left = beta if simulated is None else beta * SIMULATION["quantile"]
    bound = strategy.released_norm(h) * errors_of(law).tail(strategy.layout.size, beta_left)
    if strategy.joint_synthesis is None:
        bound = min(bound, _tail_at_nodes(strategy, h, law, beta_left))
    return bound if simulated is None else min(bound, simulated)


def _tail_at_nodes(strategy: Strategy, h: Sequence[int], law: ValueNoise, beta: Fraction) -> float:
    """Chernoff's bound for the value at a node, and the union bound over nodes.

    A value is ``sum_j c_j X_j``, X of the law. With a, m at least ``|c|_2``, ``|c|_inf`` of every
    node (both factor over axes): *Laplace* of scale s has ``E e^(u X) = 1 / (1 - (cosh u - 1) /
    (cosh(1/s) - 1)) <= 1 / (1 - u^2 s^2)`` for ``u s < 1``, because ``(cosh x - 1) / x^2``
    increases, and ``-ln(1 - x) <= x / (1 - x)``: so ``P(value >= t)`` is at most
    ``exp(u^2 s^2 a^2 / (1 - u^2 s^2 m^2) - u t)``. *Gaussian*: the discrete law too is
    sub-Gaussian (Canonne, Kamath and Steinke 2020), ``exp(u^2 sigma^2 a^2 / 2 - u t)``.
    """
    enclosure = enclose(strategy, h, _OVERSAMPLING)
    reached = _reached_at(enclosure.bases, law, float(beta * NODES["values at nodes"]))
    granule = math.ldexp(1.0, law.granularity_exponent)
    largest = errors_of(law).tail(strategy.layout.size, beta * NODES["largest draw"])
    return OUTWARD * (enclosure.factor * granule * reached + enclosure.loose * largest)


def linear_noise_bound(
    law: ValueNoise, count: int, axes: int, constant: float, beta: Fraction
) -> float:
    """Bound ``sup_y |c n_0 + sum_j n_j y_j|`` of every linear function at once.

    The `count` weights are, function by function, those of coordinates in [0, 1] and, unless c is
    zero, that of c. The sup is where all y_j with positive, or all with negative n_j are one. The
    smaller of a simulated quantile and ``l + c`` entries.
    """
    tails, draws = errors_of(law), min(_VECTORS, _VECTOR_VALUES // count)
    rank = quantile_rank(draws, float(beta))
    if rank is None:
        return OUTWARD * (axes + constant) * tails.tail(count, beta)
    drawn = tails.simulate(draws * count, 1, public_stream("certificate", 0))
    weights = drawn.reshape(draws, -1, axes + (constant > 0))
    slopes, middle = weights[..., :axes], 0.0 if constant == 0 else constant * weights[..., -1]
    high = middle + np.maximum(slopes, 0.0).sum(axis=-1)
    low = middle + np.minimum(slopes, 0.0).sum(axis=-1)
    sups = np.maximum(np.abs(high), np.abs(low)).max(axis=-1)
    simulated = math.ldexp(np.sort(sups)[rank], law.granularity_exponent)
    tail = tails.tail(count, beta * SIMULATION["quantile"])
    return min(OUTWARD * (axes + constant) * tail, OUTWARD * simulated)


def ratio_radius(
    strategy: Strategy, h: Sequence[int], law: NoiseLaw, beta: Fraction
) -> Radius | None:
    """Bound ``|X_N - m X_D| / hypot(s, m s)`` at all points and all m up to 1 in size, at once.

    ``X_N = X_P - X_Q`` and ``X_D = X_P + X_Q`` are noise fields by the same map of two outputs of
    one release, of a `law` of scale ``s / sqrt 2``; it fails with probability beta. For each m the
    difference is one such field, so that nodes enclose it as they do a field of one array, and
    ``|x_N - m x_D|`` is at most the sum of the largest numbers, the latter times ``|m|``: the
    largest of all m is taken at each node (`largest_contrast`). None where that takes too long.
    """
    rank = quantile_rank(_RATIO_DRAWS, float(beta))
    if rank is None:
        return None
    for oversampling in (8, 4, 3, 2):
        enclosure = enclose(strategy, h, oversampling)
        nodes = math.prod(len(basis) for basis in enclosure.bases)
        if _RATIO_DRAWS * _RATIO_NUMBERS * nodes <= _MOST_DRAWN:
            break
    else:
        return None
    shape = tuple(basis.shape[1] for basis in enclosure.bases)

    def standardized(size: int, draws: int, stream: KeyStream) -> FloatArray:
        drawn = errors_of(law).simulate(size, draws, stream) / (math.sqrt(2) * law.scale)
        of_p, of_q = np.split(drawn, 2)
        return np.concatenate([of_p - of_q, of_p + of_q])

    sups, largest = [], max(2 * math.prod(shape), _RATIO_NUMBERS * nodes)
    for fields in _drawn((2, *shape), largest, standardized, _RATIO_DRAWS, "certificate"):
        beyond = np.abs(fields).reshape(2, -1, fields.shape[-1]).max(axis=1)
        loose = enclosure.loose * largest_contrast(beyond[0], beyond[1])
        for index in _blocks(np.arange(fields.shape[-1]), largest):
            top, below = (_at_nodes(field[..., index], enclosure.bases) for field in fields)
            reached = enclosure.factor * largest_contrast(top, below).max(axis=1)
            sups.append(reached + loose[index])
    return Radius(OUTWARD * float(np.sort(np.concatenate(sups))[rank]))


def largest_contrast(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the largest ``|x - m y| / hypot(1, m)`` of all m up to 1 in size.

    Of ``m = tan a`` it is ``hypot(x, y) |cos(a - b)|``: largest at b, or at the end next to it.
    """
    x, y = np.abs(x), np.abs(y)
    return np.where(y <= x, np.hypot(x, y), (x + y) / math.sqrt(2))


def _simulated_quantile(
    strategy: Strategy, h: Sequence[int], law: ValueNoise, beta: float
) -> float | None:
    """An upper confidence bound on the quantile from independent draws under a public key.

    The r-th smallest of R draws exceeds the quantile of `SIMULATION` with probability at least one
    less the share of its draws, b of beta, when ``P(Bin(R, p) >= r) <= b``; both are of the
    share of beta at the nodes of `FIELD`. The sup of a draw is that of `sup_order_statistic`: what
    lies between nodes is less than `excess` above them but for the other share. None where that
    takes too many draws.
    """
    has_joint_map = strategy.joint_synthesis is not None
    axis_maps = () if has_joint_map else strategy.axis_maps
    axes = zip(strategy.lattice.k, h, axis_maps, strict=not has_joint_map)
    functions = [released_series(*axis) for axis in axes]
    bases, max_draws = _affordable(strategy, h, law, functions)
    series = [axis for axis in functions if isinstance(axis, Series)]  # others are largest at nodes
    at_nodes = beta * float(FIELD["at nodes"])
    draws = _fewest_draws(max_draws, at_nodes)
    rank = quantile_rank(draws, at_nodes)
    if max_draws < _FEWEST_DRAWS or rank is None:
        return None
    draw = errors_of(law).simulate
    if has_joint_map or not series:
        sups = noise_sups(bases, draw, draws, first=strategy.joint_synthesis)
        return OUTWARD * math.ldexp(float(np.sort(sups)[rank]), law.granularity_exponent)
    between = Fraction(beta) * FIELD["between nodes"]
    beta_i = float(between * NODES["values at nodes"]) / len(h)
    excess = sum(
        size * _reached_at(rows, law, beta_i) for size, rows in excess_between_nodes(series, COARSE)
    )
    largest = errors_of(law).tail(strategy.layout.size, between * NODES["largest draw"])
    largest = math.ldexp(largest, -law.granularity_exponent)
    reached = sup_order_statistic(series, excess, draw, draws, rank)
    reached += excess / FINER**2 + _left_out(series) * largest
    return OUTWARD * math.ldexp(reached, law.granularity_exponent)


def _left_out(series: Sequence[Series]) -> float:
    """Bound what series, cut on each axis, leave out of a polynomial, for released values of 1.

    With norms n_i, of which t_i are cut off, that is ``prod n_i - prod (n_i - t_i)``.
    """
    product = math.prod(axis.norm for axis in series)
    left = math.prod(max(axis.norm - axis.tail, 0.0) for axis in series)
    return OUTWARD * (product - left) + 2.0**-45 * product


def _affordable(
    strategy: Strategy, h: Sequence[int], law: ValueNoise, series: Sequence[Series | Hats]
) -> tuple[list[FloatArray], int]:
    """Return bases of the nodes of draws, and how many draws are within the work."""

    max_draws = _MOST_DRAWS[len(h) - 1]

    def count_draws(bases: Sequence[FloatArray]) -> int:
        work = _work(strategy, bases, law)
        return int(min(max_draws, max(_LITTLE_WORK / work, min(_SOME_DRAWS, _WORK / work))))

    if strategy.joint_synthesis is None:
        bases = [axis.at_nodes(COARSE)[0] for axis in series]
        return bases, count_draws(bases)
    for oversampling, wanted in _GRIDS:
        enclosure = enclose(strategy, h, 2 * oversampling)
        bases = [enclosure.factor * enclosure.bases[0], *enclosure.bases[1:]]
        affordable = count_draws(bases)
        if affordable >= wanted:
            break
    return bases, affordable


def _reached_at(bases: Sequence[FloatArray], law: ValueNoise, beta: float) -> float:
    """Chernoff's bound for values at nodes, and the union bound over them, in units of the grid."""
    a = math.prod(float(np.linalg.norm(basis, axis=1).max()) for basis in bases)
    m = math.prod(float(np.abs(basis).max()) for basis in bases)
    nodes = math.prod(len(basis) for basis in bases)
    return errors_of(law).node_tail(a, m, math.log(2 * nodes / beta)) if m > 0 else 0.0


def _fewest_draws(max_draws: int, beta: float) -> int:
    """Fewest draws with as many of them beyond the rank as with `max_draws`."""
    beyond = max_draws - (quantile_rank(max_draws, beta) or 0)

    def enough(draws: int) -> bool:
        rank = quantile_rank(draws, beta)
        return rank is not None and draws - rank >= beyond

    return bisect_left(range(max_draws), True, lo=1, key=enough)


def quantile_rank(draws: int, beta: float) -> int | None:
    """Rank, from 0, whose order statistic bounds the quantile; None where that takes more draws."""
    draws_fraction = float(SIMULATION["draws"])
    p = 1 - (1 - draws_fraction) * beta
    ranks = np.arange(1, draws + 1)
    steps = np.log((draws + 1 - ranks) / ranks * p / (1 - p))
    sizes = np.exp(draws * math.log1p(-p) + np.cumsum(steps))  # of P(Bin = r)
    reached = (1 + 1e-6) * np.cumsum(sizes[::-1])[::-1]  # a thousand logarithms round by less
    enough = reached <= draws_fraction * beta
    return int(np.argmax(enough)) if enough.any() else None


@dataclass(frozen=True)
class Enclosure:
    """Per axis, maps from released values to values at nodes, which bound the sup in between.

    The sup is at most `factor` times the largest value at the nodes plus `loose` times the largest
    released value.
    """

    bases: list[FloatArray]
    factor: float
    loose: float


def enclose(strategy: Strategy, h: Sequence[int], oversampling: int, cut: float = CUT) -> Enclosure:
    """Nodes for the degree that an axis really has: smooth synthesis has much less than k.

    With M an axis's map to polynomials, cut after the Chebyshev degree D where the coefficients
    beyond sum to t, about `cut` times the norm, ``P = P_D + R``: nodes of degree D enclose P_D,
    whose values there are those of P but for R. Over axes with norms n_i,
    ``|R| <= (prod (n_i + t_i) - prod n_i) max |x|``, with n_i + t_i for the norm of the cut one.
    """
    bases, factor, norm, cut_norm = [], 1.0, 1.0, 1.0
    if strategy.joint_synthesis is not None:
        for k, matrix in zip(strategy.lattice.k, strategy.matrices(h), strict=True):
            nodes, axis_factor = enclosing_nodes(k, oversampling)
            bases.append(bernstein_basis(nodes, k) @ matrix)
            factor *= axis_factor
        return Enclosure(bases, factor, 0.0)
    for axis in zip(strategy.lattice.k, h, strategy.axis_maps, strict=True):
        series = released_series(*axis, cut)
        basis, axis_factor = series.at_nodes(oversampling)
        bases.append(basis)
        factor, norm = factor * axis_factor, norm * series.norm
        cut_norm *= series.norm + 2 * series.tail
    return Enclosure(bases, factor, OUTWARD * (1 + factor) * (cut_norm - norm))


def _work(strategy: Strategy, bases: Sequence[FloatArray], law: ValueNoise) -> float:
    """Multiplications for one draw: noise, the map of the whole lattice, if any, and the axes."""
    shape = [basis.shape[1] for basis in bases]
    work = 0.0 if strategy.joint_synthesis is None else float(strategy.joint_synthesis.size)
    for axis, basis in enumerate(bases):
        work += math.prod(shape) * basis.shape[0]
        shape[axis] = basis.shape[0]
    numbers = _JOINTLY * law.values if law.values < math.inf else strategy.layout.size
    return work + _DRAWING * numbers


def noise_sups(
    bases: Sequence[FloatArray],
    draw: Draw,
    draws: int,
    label: str = "certificate",
    first: FloatArray | None = None,
) -> FloatArray:
    """Sup norms of `draws` noise fields, in units of the grid; from a public key.

    `first` takes all values to those of the lattice at once. Another `label` gives independent
    draws: what a choice was made on must not certify it.
    """
    shape = tuple(basis.shape[1] for basis in bases) if first is None else first.shape[-1:]
    largest = max(math.prod(shape), math.prod(basis.shape[0] for basis in bases))
    drawn = _drawn(shape, largest, draw, draws, label)
    return np.concatenate([_sups_at_nodes(fields, bases, first) for fields in drawn])


def sup_order_statistic(
    series: Sequence[Series], excess: float, draw: Draw, draws: int, rank: int
) -> float:
    """Return the value of a rank, from 0, among sups of draws.

    The sup of a field is T, the largest over nodes i of the smaller of ``|v_i| + excess`` and of
    the largest value at finer nodes up to the next nodes around i. If nowhere between nodes a field
    exceeds the largest value of those around by more than `excess`, T is at least its largest value
    at finer nodes: that one lies between nodes, the largest of which is an i of which both are at
    least as large.

    T is at least the largest ``|v_i|`` and at most `excess` more, so that only draws which may be
    next to the rank are looked at again, and of these only nodes that may be next to the sup. That
    changes no order statistic.
    """
    bases = [axis.at_nodes(COARSE)[0] for axis in series]
    tables = [axis.at_finer_nodes(COARSE, FINER) for axis in series]
    shape = tuple(basis.shape[1] for basis in bases)
    largest = max(math.prod(shape), math.prod(basis.shape[0] for basis in bases))
    drawn = [*_drawn(shape, largest, draw, draws, "certificate")]
    sups = np.concatenate([_sups_at_nodes(fields, bases) for fields in drawn])
    statistic = float(np.sort(sups)[rank])
    near = (sups + excess > statistic) & (sups < statistic + excess)
    cuts = np.cumsum([fields.shape[-1] for fields in drawn])[:-1]
    by_block = (np.split(values, cuts) for values in (sups, near))
    for fields, view, again in zip(drawn, *by_block, strict=True):  # a view of the sups
        for index in _blocks(np.flatnonzero(again), largest):
            floor = np.maximum(view[index], statistic) - excess
            raised = _between_nodes(fields[..., index], bases, tables, floor, excess)
            view[index] = np.maximum(view[index], raised)
    return float(np.sort(sups)[rank])


def _between_nodes(
    fields: FloatArray,
    bases: Sequence[FloatArray],
    tables: Sequence[FloatArray],
    floor: FloatArray,
    excess: float,
) -> FloatArray:
    """Return T of fields (.., draws) over nodes whose values are at least the draw's `floor`."""
    sizes, reached = np.abs(_at_nodes(fields, bases)), np.zeros(len(floor))
    draws, nodes = np.nonzero(sizes >= floor[:, None])
    positions = np.unravel_index(nodes, [len(basis) for basis in bases])
    steps = np.arange(2 * FINER + 1)
    for index in _blocks(np.arange(len(draws)), max(fields[..., 0].size, len(steps) ** len(bases))):
        values = np.moveaxis(fields[..., draws[index]], -1, 0)
        for table, position in zip(tables, positions, strict=True):  # each rotates the axes by one
            around = table[FINER * position[index, None] + steps]
            later_axes = values.shape[2:]
            values = around @ values.reshape(len(index), values.shape[1], -1)
            values = np.moveaxis(values.reshape(len(index), len(steps), *later_axes), 1, -1)
        largest = np.abs(values).reshape(len(index), -1).max(axis=1)
        ceiling = sizes[draws[index], nodes[index]] + excess
        np.maximum.at(reached, draws[index], np.minimum(largest, ceiling))
    return reached


def _blocks(indices: Int64Array, values_per_index: int) -> list[Int64Array]:
    """Split indices so that the values of a block, `values_per_index` each, stay in the cache."""
    count = min(len(indices), 1 + len(indices) * values_per_index // _CACHED)
    return np.array_split(indices, count) if count else []


def _drawn(
    shape: tuple[int, ...], largest: int, draw: Draw, draws: int, label: str
) -> Iterator[FloatArray]:
    """Yield released values (.., draws) of as many draws as memory holds fields of."""
    together = max(1, min(draws, _FIELD_VALUES // largest))
    for start in range(0, draws, together):
        count = min(together, draws - start)
        fields = draw(math.prod(shape), count, public_stream(label, start))
        yield fields.reshape(*shape, count)


def _sups_at_nodes(
    fields: FloatArray, bases: Sequence[FloatArray], first: FloatArray | None = None
) -> FloatArray:
    count = fields.shape[-1]
    sups = np.empty(count)
    largest = max(fields[..., 0].size, math.prod(basis.shape[0] for basis in bases))
    for index in _blocks(np.arange(count), largest):
        values = _at_nodes(fields[..., index], bases, first)
        sups[index] = np.maximum(values.max(axis=1), -values.min(axis=1))
    return sups


def _at_nodes(
    fields: FloatArray, bases: Sequence[FloatArray], first: FloatArray | None = None
) -> FloatArray:
    """Return values (draws, nodes); the draw goes to the front as axes rotate."""
    values = fields if first is None else np.tensordot(first, fields, axes=(-1, 0))
    for basis in bases:
        values = np.tensordot(values, basis, axes=(0, 1))
    return np.asarray(values.reshape(fields.shape[-1], -1))
