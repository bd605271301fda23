"""How far one privacy unit can move what is released."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Sensitivity:
    """Proved upper bounds in unit-cube units, as exact fractions of outward-rounded floats.

    Attributes
    ----------
    function : Fraction
        ``S(F) = sup_y sup_{D~D'} |F_D(y) - F_D'(y)|`` (Definition 2 of the paper).
    bound : Fraction
        ``Delta1`` or ``Delta2``: the largest distance of the released values of two neighbouring
        databases in the l1 or l2 norm, for exact kernels, before any rounding.
    derivation : str
        How `bound` was obtained, for the plan, the manifest and an auditor.
    norm : int
        1 for Laplace noise, 2 for Gaussian noise.

    Examples
    --------
    >>> Sensitivity(Fraction(1, 10), Fraction(1), "ten points").norm
    1
    """

    function: Fraction
    bound: Fraction
    derivation: str
    norm: int = 1
