"""Proved bounds on ``sup_y |released(y) - F_D(y)|``, from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from scipy.special import bdtr

from dbern.arrays import FloatArray
from dbern.bernstein.approximation import lebesgue_constant, sup_norm
from dbern.bernstein.basis import bernstein_basis, enclosing_nodes
from dbern.bernstein.bias import Approximation
from dbern.bernstein.coordinates import Coordinates, PlainCoordinates, SpectralCoordinates
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
_WORK = 4e9  # multiplications that a simulated quantile may take: under a second
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


def combined(
    combination: Combination, parts: Sequence[Certificate], lower_bound: float
) -> Certificate:
    """The certificate of a function made of arrays whose certificates hold at once."""
    total = combination.error([part.total for part in parts])
    noise = min(total, combination.error([part.noise for part in parts]))
    rounding = min(total - noise, combination.error([part.rounding for part in parts]))
    if combination.kind == "linear":
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
    spectra = coordinates.spectra if isinstance(coordinates, SpectralCoordinates) else None
    axes = zip(coordinates.lattice.k, h, spectra or [None] * len(h), strict=True)
    return OUTWARD * math.prod(lebesgue_constant(*axis) for axis in axes)


def synthesis_matrices(coordinates: Coordinates, h: Sequence[int]) -> list[FloatArray]:
    """Per axis, what takes released values to coefficients of the Bernstein basis."""
    axes = zip(coordinates.lattice.k, h, axis_maps(coordinates), strict=True)
    return [synthesis_matrix(*axis) for axis in axes]


def released_norm(coordinates: Coordinates, h: Sequence[int]) -> float:
    """Bound the sup of the polynomial by the largest error of a released value."""
    matrices = synthesis_matrices(coordinates, h)
    norms = [sup_norm(k, m) for k, m in zip(coordinates.lattice.k, matrices, strict=True)]
    return OUTWARD * math.prod(norms)


def noise_bound(coordinates: Coordinates, h: Sequence[int], law: Noise, beta: Fraction) -> float:
    """Bound the noise's sup norm with probability ``1 - beta``, in unit-cube units.

    The smaller of two proved bounds: the union bound over coefficients times the operator's norm,
    and a simulated quantile of the very law, evaluated at enclosing nodes.
    """
    size = coordinates.layout.size
    if isinstance(law, GaussianNoise):
        largest = gaussian_tail(law, size, beta)
    else:
        largest = tail(law, size, beta)
    union = released_norm(coordinates, h) * largest
    simulated = _simulated_quantile(coordinates, h, law, float(beta))
    return union if simulated is None else min(union, simulated)


def _simulated_quantile(
    coordinates: Coordinates, h: Sequence[int], law: Noise, beta: float
) -> float | None:
    """An upper confidence bound on the quantile from independent draws under a public key.

    The r-th smallest of R draws exceeds the ``1 - 0.9 beta`` quantile with probability at least
    ``1 - 0.1 beta`` when ``P(Bin(R, 1 - 0.9 beta) >= r) <= 0.1 beta``; together at most beta.
    None where that takes too many draws. The enclosing nodes bound the sup from the grid.
    """
    for oversampling, enough in _ENCLOSURES:
        bases, factor = enclosing_bases(coordinates, h, oversampling)
        draws = int(min(_MOST_DRAWS, _WORK / _field_work(bases)))
        if draws >= enough:
            break
    else:
        return None
    level = 1 - (1 - _SIMULATION_SHARE) * beta
    ranks = np.arange(1, draws + 1)
    enough = 1 - bdtr(ranks - 1, draws, level) <= _SIMULATION_SHARE * beta
    if not enough.any():
        return None
    sups = np.sort(noise_sups(bases, law, draws))
    granule = math.ldexp(1.0, law.granularity_exponent)
    return OUTWARD * factor * granule * float(sups[int(np.argmax(enough))])


def enclosing_bases(
    coordinates: Coordinates, h: Sequence[int], oversampling: int
) -> tuple[list[FloatArray], float]:
    """Per axis, released values to values at enclosing nodes; and the factor of the enclosure."""
    bases, factor = [], 1.0
    for k, matrix in zip(coordinates.lattice.k, synthesis_matrices(coordinates, h), strict=True):
        nodes, axis_factor = enclosing_nodes(k, oversampling)
        bases.append(bernstein_basis(nodes, k) @ matrix)
        factor *= axis_factor
    return bases, factor


def _field_work(bases: Sequence[FloatArray]) -> float:
    shape, work = [basis.shape[1] for basis in bases], 0.0
    for axis, basis in enumerate(bases):
        work += math.prod(shape) * basis.shape[0]
        shape[axis] = basis.shape[0]
    return work


def noise_sups(
    bases: Sequence[FloatArray], law: Noise, draws: int, label: str = "certificate"
) -> FloatArray:
    """Sup norms, in granules, of `draws` noise fields; drawn under a public key.

    Another `label` gives independent draws: what a choice was made on must not certify it.
    """
    shape = tuple(basis.shape[1] for basis in bases)
    largest = max(math.prod(shape), math.prod(basis.shape[0] for basis in bases))
    together = max(1, min(draws, _FIELD_VALUES // largest))
    sups = np.empty(draws)
    for first in range(0, draws, together):
        count = min(together, draws - first)
        size = count * math.prod(shape)
        noise = law.draw(size, public_stream(label, first))
        fields = noise.added_to(np.zeros(size, dtype=np.int64)).astype(np.float64)
        fields = fields.reshape(*shape, count)  # the draw goes to the front as the axes rotate
        for basis in bases:
            fields = np.tensordot(fields, basis, axes=(0, 1))
        sups[first : first + count] = np.abs(fields.reshape(count, -1)).max(axis=1)
    return sups


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
