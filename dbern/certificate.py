"""Proved bounds on ``sup_y |released(y) - F_D(y)|``, from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dbern.bernstein.approximation import bump_error
from dbern.bernstein.basis import lebesgue_constant
from dbern.bernstein.kernels import OUTWARD, Gaussian


@dataclass(frozen=True)
class Certificate:
    """With probability at least ``1 - beta`` no point of the domain errs by more than `total`.

    Each part is a worst case over all databases, in data units.

    Examples
    --------
    >>> Certificate(approximation=0.5, rounding=0.25, noise=1.0, beta=0.05).total
    1.75
    """

    approximation: float
    rounding: float
    noise: float
    beta: float

    @property
    def total(self) -> float:
        """The sum of the three parts."""
        return self.approximation + self.rounding + self.noise


def product_error(kernels: Sequence[Gaussian], k: Sequence[int], h: Sequence[int]) -> float:
    """Bound ``sup_{t,y} |K(y - t) - B^(h) K(. - t)(y)|`` for a product kernel.

    With per-axis suprema ``s_i`` and per-axis errors ``a_i``, telescoping the product one axis at
    a time gives ``prod (s_i + a_i) - prod s_i``. A density is a mean of such bumps (or of fewer),
    so the bound holds for every database and point masses attain it.

    Examples
    --------
    >>> product_error([Gaussian(0.2)], [20], [4]) < product_error([Gaussian(0.2)], [20], [1])
    True
    """
    errors = [bump_error(kernel, *axis) for kernel, *axis in zip(kernels, k, h, strict=True)]
    peaks = [kernel.peak for kernel in kernels]
    grown = math.prod(peak + error for peak, error in zip(peaks, errors, strict=True))
    return OUTWARD * (grown - math.prod(peaks)) + 2.0**-45 * grown


def operator_norm(k: Sequence[int], h: Sequence[int]) -> float:
    """Bound ``sup |polynomial| / max |coefficient|``: the product of the Lebesgue constants."""
    return OUTWARD * math.prod(lebesgue_constant(*axis) for axis in zip(k, h, strict=True))


def certify(
    *,
    approximation: float,
    coefficient_error: float,
    noise_tail: float,
    norm: float,
    unit_factor: float,
    beta: float,
) -> Certificate:
    """Assemble the certificate: whatever moves coefficients passes through the operator's norm."""
    return Certificate(
        approximation=unit_factor * approximation,
        rounding=unit_factor * norm * coefficient_error,
        noise=unit_factor * norm * noise_tail,
        beta=beta,
    )
