"""Quantiles of the sup of released noise: proved bounds, and simulated ones of the very law."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dbern.bernstein.basis import bernstein_basis
from dbern.bernstein.chebyshev import enclosing_nodes
from dbern.bernstein.kernels import OUTWARD
from dbern.certify.failure import FIELD, NODES, SIMULATION
from dbern.certify.noise_sups import COARSE, FINER, noise_sups, sup_order_statistic
from dbern.privacy.families import errors_of
from dbern.privacy.noise_law import ValueNoise
from dbern.privacy.public_numbers import public_stream
from dbern.reconstruct.base import Strategy
from dbern.reconstruct.series import CUT, Hats, Series, excess_between_nodes, released_series
from dbern.types import FloatArray

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
    if strategy.whole is None:
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


def _simulated_quantile(
    strategy: Strategy, h: Sequence[int], law: ValueNoise, beta: float
) -> float | None:
    """An upper confidence bound on the quantile from independent draws under a public key.

    The r-th smallest of R draws exceeds the quantile of `SIMULATION` with probability at least one
    less the share of its draws, b of beta, when ``P(Bin(R, level) >= r) <= b``; both are of the
    share of beta at the nodes of `FIELD`. The sup of a draw is that of `sup_order_statistic`: what
    lies between nodes is less than `excess` above them but for the other share. None where that
    takes too many draws.
    """
    has_joint_map = strategy.whole is not None
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
        sups = noise_sups(bases, draw, draws, first=strategy.whole)
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

    if strategy.whole is None:
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
    level = 1 - (1 - draws_fraction) * beta
    ranks = np.arange(1, draws + 1)
    steps = np.log((draws + 1 - ranks) / ranks * level / (1 - level))
    sizes = np.exp(draws * math.log1p(-level) + np.cumsum(steps))  # of P(Bin = r)
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
    if strategy.whole is not None:
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
    work = 0.0 if strategy.whole is None else float(strategy.whole.size)
    for axis, basis in enumerate(bases):
        work += math.prod(shape) * basis.shape[0]
        shape[axis] = basis.shape[0]
    numbers = _JOINTLY * law.values if law.values < math.inf else strategy.layout.size
    return work + _DRAWING * numbers
