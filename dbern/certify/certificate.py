"""Proved bounds on ``sup_y |released(y) - F_D(y)|``, from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dbern.certify.approximation import FunctionClass
from dbern.certify.lower_bounds import LowerBound
from dbern.certify.noise import linear_noise_bound, noise_bound
from dbern.combination.base import Combination
from dbern.data.domain import FeatureShape
from dbern.privacy.families import errors_of
from dbern.privacy.noise_law import ValueNoise
from dbern.reconstruct.base import LatticeStrategy, Strategy
from dbern.reconstruct.bins import AxisBins


@dataclass(frozen=True)
class Certificate:
    """Proof that with probability ``1 - beta`` no point of the domain errs by more than `total`.

    Each part is in data units, and a worst case over all databases; of a band about these data the
    approximation is that of the data at hand.

    No mechanism with the same epsilon and delta certifies less than `lower_bound` (0 where no bound
    is known) at the same confidence; `lower_bound_kind` names the proof (`LowerBound`). Whether any
    certifies as little is not known.
    """

    approximation: float
    rounding: float
    noise: float
    beta: float
    lower_bound: float
    lower_bound_kind: str = ""

    @property
    def total(self) -> float:
        """The sum of the three parts."""
        return self.approximation + self.rounding + self.noise


SHRUNK_FRACTION = 0.2
"""Share of the bound on a density's noise by which shrinking may move the function."""
_SHRUNK_AXES, _SHRUNK_BINS = (2, 3), 1 << 20


def with_shrinkage(certificate: Certificate, strategy: Strategy) -> tuple[Certificate, float]:
    """Return the certificate of a density of shrunk bins, and the largest change by that.

    A triangle inequality: `dbern.synopsis.smoothing.shrink_within` moves bins' function by no more.
    On one axis hardly anything is gained by it, on more than three and of more bins it would
    take long.
    """
    able = bool(getattr(strategy, "bins", ())) and len(strategy.lattice.k) in _SHRUNK_AXES
    able = able and strategy.layout.size <= _SHRUNK_BINS
    max_distance = SHRUNK_FRACTION * certificate.noise if able else 0.0
    return replace(certificate, noise=certificate.noise + max_distance), max_distance


def shrunk_distance_if_even(
    max_distance: float, bins: Sequence[AxisBins], law: ValueNoise
) -> float:
    """Return the part of `max_distance` that is shrunk for evenly spread records.

    It is 0 where they stand out: by six deviations of the noise in a window of five bins an axis;
    four are enough.
    """
    if max_distance == 0:
        return 0.0
    cells = [axis.cells for axis in bins]
    counts = np.array(5.0 ** len(cells))
    noise = errors_of(law).covariance.scaled(math.ldexp(1.0, law.granularity_exponent))
    variance = noise.variance(counts, counts)
    return 0.0 if (counts / math.prod(cells)) ** 2 > 36 * variance else max_distance


@dataclass(frozen=True)
class ErrorModel:
    """The public facts from which a bound follows for any order and any confidence.

    `lattice_error` bounds the error of a lattice value before release (effective kernel,
    positions), `released_error` that of a released value but for the noise (floats, rounding to the
    grid); `value_unit` multiplies unit-cube values to give data units. Where edges are not natural
    bounds are those at the ends.
    """

    function_class: FunctionClass
    strategy: Strategy
    law: ValueNoise
    lattice_error: float
    released_error: float
    value_unit: float

    def certificate(
        self,
        h: tuple[int, ...],
        beta: Fraction,
        num_simultaneous: int = 1,
        lower_bound: LowerBound | None = None,
    ) -> Certificate:
        """Bound the sup error at order `h`; `lower_bound` is the known lower bound.

        `num_simultaneous` counts the bounds that hold together: arrays of one function, or
        candidates that `h` was chosen from after the noise was drawn.
        """
        num_simultaneous *= self.function_class.choices
        noise = noise_bound(self.strategy, h, self.law, beta / num_simultaneous)
        approximation, rounding = self.parts(h)
        return Certificate(
            approximation,
            rounding,
            noise=noise * self._error_unit,
            beta=float(beta),
            lower_bound=lower_bound.value if lower_bound else 0.0,
            lower_bound_kind=lower_bound.kind if lower_bound else "",
        )

    def parts(self, h: Sequence[int]) -> tuple[float, float]:
        """The bound's first two parts, approximation and rounding, which hold with certainty."""
        strategy, lattice = self.strategy, self.strategy.lattice
        rounding = strategy.lattice_norm(h) * self.lattice_error
        rounding += strategy.released_norm(h) * self.released_error
        if strategy.maps:  # the derived lattice is rounded again
            half_granule = math.ldexp(0.5, self.law.granularity_exponent)
            rounding += LatticeStrategy(lattice).lattice_norm(h) * half_granule
        bias = self.function_class.error(lattice.k, h, strategy.axis_maps)
        return bias * self._error_unit, rounding * self._error_unit

    @property
    def _error_unit(self) -> float:
        return self.value_unit * self.function_class.edge_factor


def vector_bound(
    law: ValueNoise,
    count: int,
    features: FeatureShape | None,
    error: float,
    beta: Fraction,
    num_simultaneous: int = 1,
) -> Certificate:
    """Bound the error of every entry of a vector: `error`, and the noise.

    With `features`, axes l and constant c, entries are weights of linear functions: function by
    function those of coordinates in [0, 1] and, unless c is zero, of c. Then the bound is on every
    function, at every point.
    `num_simultaneous` as in `ErrorModel.certificate`.
    """
    if features is None:
        noise = errors_of(law).tail(count, beta / num_simultaneous)
        return Certificate(0.0, error, noise, float(beta), 0.0)
    axes, constant = features
    noise = linear_noise_bound(law, count, axes, constant, beta / num_simultaneous)
    return Certificate(0.0, error * sum(features), noise, float(beta), 0.0)


def combine_certificates(
    combination: Combination, certificates: Sequence[Certificate], lower_bound: LowerBound
) -> Certificate:
    """Return the certificate of a function made of arrays whose certificates hold at once.

    `lower_bound` is that of its arrays, and of the function's error where values are theirs.
    """
    if not combination.keeps_values:
        lower_bound = LowerBound()
    first = replace(
        certificates[0], lower_bound=lower_bound.value, lower_bound_kind=lower_bound.kind
    )
    if combination.keeps_errors:
        return first
    total = combination.error([certificate.total for certificate in certificates])
    noise = min(total, combination.error([certificate.noise for certificate in certificates]))
    rounding = combination.error([certificate.rounding for certificate in certificates])
    rounding = min(total - noise, rounding)
    alike = (first.total, first.noise, first.rounding) == (total, noise, rounding)
    approximation = first.approximation if alike else total - noise - rounding
    # A new one: what shaping added to the first is of that array alone.
    bound = first.lower_bound, first.lower_bound_kind
    return Certificate(approximation, rounding, noise, first.beta, *bound)
