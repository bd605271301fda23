"""Proved bounds on ``sup_y |released(y) - F_D(y)|``, from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from scipy.fft import dct
from scipy.special import bdtr

from dbern.arrays import FloatArray
from dbern.bernstein.approximation import lebesgue_constant, sup_norm
from dbern.bernstein.basis import bernstein_basis, enclosing_nodes, iterated_matrix
from dbern.bernstein.bias import Approximation
from dbern.bernstein.coordinates import Coordinates, PlainCoordinates, SpectralCoordinates
from dbern.bernstein.gram import GramCoordinates, lattice_sup_norm
from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.maps import BinnedCoordinates, axis_maps, maps_of, synthesis_matrix
from dbern.combination import Combination
from dbern.privacy.calibration import GaussianNoise, gaussian_tail, tail
from dbern.privacy.mechanism import Noise, public_stream

_MOST_DRAWS = 1000
_FEWEST_DRAWS = 128
# Oversampling of the nodes, and the draws that must be affordable with it.
_ENCLOSURES = (
    (8, _MOST_DRAWS), (4, _FEWEST_DRAWS), (3, _FEWEST_DRAWS), (2, _FEWEST_DRAWS),
)  # fmt: skip
_FIELD_VALUES = 1 << 22  # numbers in memory at a time
_CUT = 1e-5  # of the norm, left out of a polynomial to enclose the rest at fewer nodes
_ROUNDING = 1e-11  # of the norm: far above the floats' error of the coefficients
_WORK = 4e9  # multiplications that a simulated quantile may take: under a second
_SIMULATED_AXES = 3  # with more, only nodes that enclose badly are few enough to draw at
_LARGEST_SHARE = Fraction(1, 10)  # of beta, for the largest draw beside the values at nodes
_SIMULATION_SHARE = 0.1  # of beta, spent on the simulation's own uncertainty


@dataclass(frozen=True)
class Certificate:
    """With probability at least ``1 - beta`` no point of the domain errs by more than `total`.

    Each part is a worst case over all databases, in data units.

    Attributes
    ----------
    lower_bound : float
        What no mechanism with the same epsilon and delta can certify at the same confidence.

    Examples
    --------
    >>> Certificate(0.5, 0.25, 1.0, beta=0.05, lower_bound=0.01).total
    1.75
    """

    approximation: float
    rounding: float
    noise: float
    beta: float
    lower_bound: float

    @property
    def total(self) -> float:
        """The sum of the three parts."""
        return self.approximation + self.rounding + self.noise


@dataclass(frozen=True)
class ErrorModel:
    """The public facts from which a bound follows for any order and any confidence.

    Attributes
    ----------
    lattice_error : float
        Bound on the error of a lattice value before release (effective kernel, positions).
    released_error : float
        Bound on the error of a released value but for the noise (floats, rounding to the grid).
    unit : float
        Multiplies unit-cube values to give data units.
    """

    approximation: Approximation
    coordinates: Coordinates
    law: Noise
    lattice_error: float
    released_error: float
    unit: float

    def bound(
        self, h: Sequence[int], beta: Fraction, at_once: int = 1, least: float = 0.0
    ) -> Certificate:
        """The bound on the sup error at order `h`; `least` is the known lower bound.

        `at_once` is how many such bounds are to hold together: arrays of one function, or
        candidates that `h` was chosen from after the noise was drawn.
        """
        coordinates, lattice = self.coordinates, self.coordinates.lattice
        maps = axis_maps(coordinates)
        rounding = lattice_norm(coordinates, h) * self.lattice_error
        rounding += released_norm(coordinates, h) * self.released_error
        if maps_of(coordinates):  # the derived lattice is rounded again
            half_granule = math.ldexp(0.5, self.law.granularity_exponent)
            rounding += lattice_norm(PlainCoordinates(lattice), h) * half_granule
        return Certificate(
            approximation=self.approximation.error(lattice.k, h, maps) * self.unit,
            rounding=rounding * self.unit,
            noise=noise_bound(coordinates, h, self.law, beta / at_once) * self.unit,
            beta=float(beta),
            lower_bound=least,
        )


def entries_bound(
    law: Noise, count: int, error: float, beta: Fraction, at_once: int = 1
) -> Certificate:
    """The bound on every entry of a vector of so many: `error` but for the noise, and that.

    `at_once` as in `ErrorModel.bound`.
    """
    return Certificate(0.0, error, largest_draw(law, count, beta / at_once), float(beta), 0.0)


def combined(
    combination: Combination, parts: Sequence[Certificate], lower_bound: float
) -> Certificate:
    """The certificate of a function made of arrays whose certificates hold at once."""
    total = combination.error([part.total for part in parts])
    noise = min(total, combination.error([part.noise for part in parts]))
    rounding = min(total - noise, combination.error([part.rounding for part in parts]))
    if combination.kind in ("linear", "response"):
        return replace(parts[0], lower_bound=lower_bound)
    return Certificate(
        approximation=total - noise - rounding,
        rounding=rounding,
        noise=noise,
        beta=parts[0].beta,
        lower_bound=lower_bound,
    )


def lattice_norm(coordinates: Coordinates, h: Sequence[int]) -> float:
    """Bound the sup of the polynomial by the largest error of a lattice value before release.

    Of bins there is none: nothing is released of lattice values.
    """
    if isinstance(coordinates, BinnedCoordinates):
        return 0.0
    if isinstance(coordinates, GramCoordinates):
        whole = coordinates.spectrum.synthesis @ coordinates.spectrum.analysis
        return OUTWARD * lattice_sup_norm(coordinates.lattice.k, h, whole)
    spectra = coordinates.spectra if isinstance(coordinates, SpectralCoordinates) else None
    axes = zip(coordinates.lattice.k, h, spectra or [None] * len(h), strict=True)
    return OUTWARD * math.prod(lebesgue_constant(*axis) for axis in axes)


def synthesis_matrices(coordinates: Coordinates, h: Sequence[int]) -> list[FloatArray]:
    """Per axis, what takes released values to coefficients of the Bernstein basis.

    Of coordinates of the whole lattice, what takes its values there: `whole_synthesis` comes first.
    """
    if isinstance(coordinates, GramCoordinates):
        return [iterated_matrix(*axis) for axis in zip(coordinates.lattice.k, h, strict=True)]
    axes = zip(coordinates.lattice.k, h, axis_maps(coordinates), strict=True)
    return [synthesis_matrix(*axis) for axis in axes]


def whole_synthesis(coordinates: Coordinates) -> FloatArray | None:
    """From released to lattice values, (k_1 + 1, .., k_l + 1, d); None where axes factor."""
    if not isinstance(coordinates, GramCoordinates):
        return None
    return coordinates.spectrum.synthesis.reshape(*coordinates.lattice.shape, -1)


def released_norm(coordinates: Coordinates, h: Sequence[int]) -> float:
    """Bound the sup of the polynomial by the largest error of a released value."""
    if isinstance(coordinates, GramCoordinates):
        return OUTWARD * lattice_sup_norm(coordinates.lattice.k, h, coordinates.spectrum.synthesis)
    matrices = synthesis_matrices(coordinates, h)
    norms = [sup_norm(k, m) for k, m in zip(coordinates.lattice.k, matrices, strict=True)]
    return OUTWARD * math.prod(norms)


def noise_bound(coordinates: Coordinates, h: Sequence[int], law: Noise, beta: Fraction) -> float:
    """Bound the noise's sup norm with probability ``1 - beta``, in unit-cube units.

    The smaller of two proved bounds: the union bound over coefficients times the operator's norm,
    and a simulated quantile of the very law, evaluated at enclosing nodes; where that takes too
    long, the tail of its values at the nodes.
    """
    union = released_norm(coordinates, h) * largest_draw(law, coordinates.layout.size, beta)
    few = len(h) <= _SIMULATED_AXES
    simulated = _simulated_quantile(coordinates, h, law, float(beta)) if few else None
    return min(union, tail_at_nodes(coordinates, h, law, beta) if simulated is None else simulated)


def tail_at_nodes(coordinates: Coordinates, h: Sequence[int], law: Noise, beta: Fraction) -> float:
    """Chernoff's bound for the value at a node, and the union bound over nodes.

    A value is ``sum_j c_j X_j``, X of the law. With a, m at least ``|c|_2``, ``|c|_inf`` of every
    node (both factor over axes): *Laplace* of scale s has ``E e^(u X) = 1 / (1 - (cosh u - 1) /
    (cosh(1/s) - 1)) <= 1 / (1 - u^2 s^2)`` for ``u s < 1``, because ``(cosh x - 1) / x^2``
    increases, and ``-ln(1 - x) <= x / (1 - x)``: so ``P(value >= t)`` is at most
    ``exp(u^2 s^2 a^2 / (1 - u^2 s^2 m^2) - u t)``. *Gaussian*: the discrete law too is
    sub-Gaussian (Canonne, Kamath and Steinke 2020), ``exp(u^2 sigma^2 a^2 / 2 - u t)``.
    """
    enclosure = enclose(coordinates, h, oversampling=8)
    a = math.prod(float(np.linalg.norm(basis, axis=1).max()) for basis in enclosure.bases)
    m = math.prod(float(np.abs(basis).max()) for basis in enclosure.bases)
    nodes = math.prod(len(basis) for basis in enclosure.bases)
    level = math.log(2 * nodes / float(beta * (1 - _LARGEST_SHARE)))
    if isinstance(law, GaussianNoise):
        reached = law.sigma * a * math.sqrt(2 * level)
    else:
        shares = np.linspace(0.001, 0.999, 999)  # of 1 / (s m); any u < 1 / (s m) is valid
        exponents = (shares * a / m) ** 2 / (1 - shares**2)
        reached = law.scale * m * float(((level + exponents) / shares).min())
    granule = math.ldexp(1.0, law.granularity_exponent)
    largest = largest_draw(law, coordinates.layout.size, beta * _LARGEST_SHARE)
    return OUTWARD * (enclosure.factor * granule * reached + enclosure.loose * largest)


def largest_draw(law: Noise, count: int, beta: Fraction) -> float:
    """What none of so many draws reaches with probability ``1 - beta``: the union bound."""
    if isinstance(law, GaussianNoise):
        return gaussian_tail(law, count, beta)
    return tail(law, count, beta)


def _simulated_quantile(
    coordinates: Coordinates, h: Sequence[int], law: Noise, beta: float
) -> float | None:
    """An upper confidence bound on the quantile from independent draws under a public key.

    The r-th smallest of R draws exceeds the ``1 - 0.9 beta`` quantile with probability at least
    ``1 - 0.1 beta`` when ``P(Bin(R, 1 - 0.9 beta) >= r) <= 0.1 beta``; together at most beta.
    None where that takes too many draws. The enclosing nodes bound the sup from the grid.
    """
    for oversampling, wanted in _ENCLOSURES:
        enclosure = enclose(coordinates, h, oversampling)
        work = _field_work(enclosure.bases) + coordinates.lattice.size * coordinates.layout.size
        draws = int(min(_MOST_DRAWS, _WORK / work))
        if draws >= wanted:
            break
    else:
        return None
    level = 1 - (1 - _SIMULATION_SHARE) * beta
    ranks = np.arange(1, draws + 1)
    enough = 1 - bdtr(ranks - 1, draws, level) <= _SIMULATION_SHARE * beta
    if not enough.any():
        return None
    fields, largest = noise_sups(enclosure.bases, law, draws, first=whole_synthesis(coordinates))
    sups = np.sort(enclosure.factor * fields + enclosure.loose * largest)
    granule = math.ldexp(1.0, law.granularity_exponent)
    return OUTWARD * granule * float(sups[int(np.argmax(enough))])


@dataclass(frozen=True)
class Enclosure:
    """Per axis, released values to values at nodes, and what these say of the sup in between.

    The sup is at most `factor` times the largest value at the nodes plus `loose` times the largest
    released value.
    """

    bases: list[FloatArray]
    factor: float
    loose: float


def enclose(coordinates: Coordinates, h: Sequence[int], oversampling: int) -> Enclosure:
    """Nodes for the degree that an axis really has: smooth synthesis has much less than k.

    With M an axis's map to polynomials, cut after the Chebyshev degree D where the coefficients
    beyond sum to t, ``P = P_D + R``: nodes of degree D enclose P_D, whose values there are those of
    P but for R. Over axes with norms n_i, ``|R| <= (prod (n_i + t_i) - prod n_i) max |x|``, with
    n_i + t_i for the norm of the cut one.
    """
    bases, factor, whole, grown = [], 1.0, 1.0, 1.0
    if isinstance(coordinates, GramCoordinates):
        for k, matrix in zip(
            coordinates.lattice.k, synthesis_matrices(coordinates, h), strict=True
        ):
            nodes, axis_factor = enclosing_nodes(k, oversampling)
            bases.append(bernstein_basis(nodes, k) @ matrix)
            factor *= axis_factor
        return Enclosure(bases, factor, 0.0)
    for k, matrix in zip(coordinates.lattice.k, synthesis_matrices(coordinates, h), strict=True):
        degree, norm, tail = _effective_degree(k, matrix)
        nodes, axis_factor = enclosing_nodes(degree, oversampling)
        bases.append(bernstein_basis(nodes, k) @ matrix)
        factor, whole, grown = factor * axis_factor, whole * norm, grown * (norm + 2 * tail)
    return Enclosure(bases, factor, OUTWARD * (1 + factor) * (grown - whole))


def _effective_degree(k: int, matrix: FloatArray) -> tuple[int, float, float]:
    """The degree D, a bound on the norm, and what the Chebyshev coefficients beyond D sum to."""
    nodes = (1 - np.cos((np.arange(k + 1) + 0.5) * np.pi / (k + 1))) / 2
    values = bernstein_basis(nodes, k) @ matrix
    coefficients = np.abs(dct(values, type=2, axis=0)).sum(axis=1) / (k + 1)
    tails = np.append(np.cumsum(coefficients[::-1])[::-1], 0.0)  # of degree a and beyond
    norm = float(tails[0])
    degree = max(1, int(np.argmax(tails <= _CUT * np.abs(values).sum(axis=1).max())) - 1)
    return degree, norm, float(tails[degree + 1]) + _ROUNDING * norm


def _field_work(bases: Sequence[FloatArray]) -> float:
    shape, work = [basis.shape[1] for basis in bases], 0.0
    for axis, basis in enumerate(bases):
        work += math.prod(shape) * basis.shape[0]
        shape[axis] = basis.shape[0]
    return work


def noise_sups(
    bases: Sequence[FloatArray],
    law: Noise,
    draws: int,
    label: str = "certificate",
    first: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Sup norms of `draws` noise fields and of the noise itself, in granules; from a public key.

    `first` takes all values to those of the lattice at once. Another `label` gives independent
    draws: what a choice was made on must not certify it.
    """
    shape = tuple(basis.shape[1] for basis in bases) if first is None else first.shape[-1:]
    largest = max(math.prod(shape), math.prod(basis.shape[0] for basis in bases))
    together = max(1, min(draws, _FIELD_VALUES // largest))
    sups, sizes = np.empty(draws), np.empty(draws)
    for start in range(0, draws, together):
        count = min(together, draws - start)
        size = count * math.prod(shape)
        noise = law.draw(size, public_stream(label, start))
        fields = noise.added_to(np.zeros(size, dtype=np.int64)).astype(np.float64)
        sizes[start : start + count] = np.abs(fields.reshape(-1, count)).max(axis=0)
        fields = fields.reshape(*shape, count)  # the draw goes to the front as the axes rotate
        fields = fields if first is None else np.tensordot(first, fields, axes=(-1, 0))
        for basis in bases:
            fields = np.tensordot(fields, basis, axes=(0, 1))
        sups[start : start + count] = np.abs(fields.reshape(count, -1)).max(axis=1)
    return sups, sizes


def lower_bound(
    function_sensitivity: float, epsilon: float, beta: float, n: int, delta: float = 0.0
) -> float:
    """``m S / 2``, m the most records that group privacy keeps from being told apart.

    Two databases that differ in m records have values m S apart at some point (F is additive in
    records and S is attained). A mechanism within less than half of that of both, each with
    probability ``1 - beta``, would need ``1 - beta <= e^{m eps} beta + delta (e^{m eps} - 1) /
    (e^eps - 1)``; m is the largest number for which that fails. With delta 0 it is the largest
    below ``ln((1 - beta) / beta) / epsilon``.

    Examples
    --------
    >>> lower_bound(0.5, 1.0, 0.05, 100)
    0.5
    """
    # With u = e^{m eps} the condition is linear: u (beta + d) < 1 - beta + d.
    d = delta / math.expm1(epsilon) if epsilon < 700 else 0.0
    reach = math.log((1 - beta + d) / (beta + d)) / epsilon
    return min(n, max(0, math.ceil(reach) - 1)) * function_sensitivity / 2
