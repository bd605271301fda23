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
    l1 : Fraction
        ``Delta1 = sup_{D~D'} sum_p |F_D(p) - F_D'(p)|`` over the lattice, of the function that the
        integers represent, before any rounding.
    derivation : str
        How `l1` was obtained, for the plan, the manifest and an auditor.

    Examples
    --------
    >>> Sensitivity(Fraction(1, 10), Fraction(1), "ten points").l1
    Fraction(1, 1)
    """

    function: Fraction
    l1: Fraction
    derivation: str
