"""Noise that enters before the values are computed: a random linear term of a convex objective.

Of every database D let ``w*`` be the minimizer of ``G_D(w) + |w|^2 / (2 a) + b'w``, G_D convex, a
sum over records whose gradients are Lipschitz, and b drawn from the law below (Chaudhuri,
Monteleoni and Sarwate 2011; Kifer, Smith and Thakurta 2012).

Theorem. Replacing a record moves ``grad G`` by at most `moved` at every w, in the norm
``max_j |g_j| / R_j``; and a record's Hessian, wherever there is one, is the Kronecker product of an
o by o matrix, positive semidefinite of trace t at most, and of ``phi phi'``, ``|phi| <= R``. Then
the law of ``w*`` is ``epsilon_b + epsilon_J``-DP, with ``epsilon_b = moved / scale`` and
``epsilon_J = o ln(1 + a t R^2 / o)``. Proof. ``b_D(w) = -(grad G_D(w) + w/a)`` is Lipschitz, and so
is its inverse, as ``-b_D`` is strongly monotone: null sets go to null sets, both ways, and it has a
derivative almost everywhere (Rademacher), so ``w*`` has the density ``p(b_D(w)) |det grad b_D(w)|``
(the area formula), p that of b. A record's gradient is ``L'(W phi) phi``, L' a Lipschitz map of o
predictions, and ``phi != 0``, so for all but a null set of W it has a derivative at ``W phi``:
there every record has a Hessian, and they add up to that of G. For neighbours the first factors are
at most ``exp(moved / scale)`` apart, by the triangle inequality. For the second let
``A = H + 1/a``, H the Hessian of what both databases have in common: one's is ``A + X``, the
other's ``A + X'``, X and X' the Hessians of one record (of the missing one zero). The ratio is at
most ``det(A + X) / det(A) = det(1 + X^(1/2) A^-1 X^(1/2)) <= det(1 + a X)``, as ``A^-1 <= a``. X
has o eigenvalues, which sum to ``t R^2`` at most, so by the means' inequality ``det(1 + a X) <=
(1 + a t R^2 / o)^o``.

*Tied.* Of the logistic loss of one prediction a slope p, in size, comes with the curvature ``p (1 -
p)``: where a record pulls most, it bends nothing. So the two parts are never worst at once. Let a
unit of u rows be replaced, ``p_i`` the slopes of the rows that one database has, those of the other
1 at most. Every law of b is in a norm in which a row's features are within 1: the first factors are
at most ``exp(beta (sum p_i + u))`` apart, ``beta`` the sum of the laws' 1/scale. And ``X = sum p_i
(1 - p_i) phi_i phi_i'`` has r eigenvalues other than zero at most, which sum to ``R^2 u p (1 - p)``
at most, p the mean of the p_i, as ``p (1 - p)`` is concave. Together the densities' ratio has at
most the logarithm

    ``max over p in [0, 1] of u (1 + p) beta + r ln(1 + (a u R^2 / r) p (1 - p))``,

a missing row having p = 0. Of one row it is attained, by a record at p and another at 1 whose
gradients oppose, beside no others. The function is concave in p, so that its tangent at *any* p
bounds its maximum; it is taken next to the maximum (`_tied`), and nothing is lost. Where ``a u R^2
<= u beta`` the maximum is at p = 1, and the Jacobian costs nothing.

*Added.* Let a unit be added or removed: rows, at most u, beside c others. Let every row weigh g,
which falls with how many there are, ``g'`` with the unit, so that no unit changes all weights
together by more than u: ``c (g - g') + v g' <= v`` for v rows that are added. Then the gradient
moves by ``u M`` at most, M what one row of weight 1 pulls, where replacing a unit moves it by twice
that. Adding bends as replacing does, as no other row weighs more. Removing bends nothing away that
counts, but others weigh more: ``det(g H + 1/a) <= (g/g')^k det(g' H + 1/a)``, k all coordinates of
w, so that it costs ``k ln(g/g')``. *Tied*, with p the mean slope of u rows (0 of those that are
fewer), adding moves the gradient by ``u q`` at most, ``q = g' p + e``, ``e = c (g - g')/u <= 1 -
g'``. What the unit bends has a trace of ``R^2 u g' p (1 - p)`` at most, and that is at most ``R^2 u
q (1 - q)``: which is concave in e, and at its ends, ``g' p (1 - g' p)`` and ``g' (1 - p) (1 - g' (1
- p))`` for ``q (1 - q)``, no less. So the logarithm is at most the maximum above less ``u beta``,
and of the other direction at most ``u beta + k ln(g/g')``.

The law of b has the density ``exp(-max_j |b_j| / (R_j scale))`` up to a factor. All gradients that
one record can have fill the box ``prod [-R_j, R_j]``, so this is the norm that they leave least
noise in; independent Laplace coordinates would be 1.8 to 2.5 times as wide. Its largest coordinate,
over R_j, is the sum of d exponential variables of mean `scale` in any of d places with either sign,
and the others are uniform below it: the density of that, ``r^(d-1) e^(-r)`` over the surface of a
box, is that of b.

*Blocks.* A category has one feature other than zero, so the gradients of a list of q values fill
the cross-polytope ``sum |g_j| / R_j <= 1``. The norm is then the largest of all blocks' ``sum |g_j|
/ R_j``, a box being q = 1, and its unit ball is the product of theirs. Of the cone volume of a
product a block of q coordinates has ``q/d``, as ``P(U < r)`` of its norm is ``r^q``: any of d
places with the same probability says which block's norm is the largest. With d exponential
variables as before, that block is uniform on its surface, and the others are uniform inside of
theirs. So are the steps of q sorted uniform variables on [0, 1], each with a fair sign of its own,
in a cross-polytope, and where one of the q is 1, on its surface.

*Digits.* b is a real vector, a function of independent real variables of which the first digits are
drawn, exactly: of an exponential variable E its cell of width ``scale / S``, ``S = 2^32``, that is
``floor(S E / scale)``, geometric with ratio ``exp(-1/S)``. Given X not 0 for the discrete Laplace
law of scale S, ``|X| - 1`` has it, and the sign of X is fair and independent. Of a uniform variable
the cell of width ``2^-63``. What is computed with the middles of cells is within a bound of what
belongs to b (`Perturbation.error`); whoever solves proves how far that takes a minimizer, and pays
for it with noise on what is released.

The stream's key is derived from the release's key and a digest of the database that is solved for:
another database under the same key would meet an independent b, and the same one the same b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np

from dbern.privacy.keystream import KeyStream
from dbern.privacy.laplace import discrete_laplace
from dbern.types import UNIT_ROUNDOFF, FloatArray

STREAM_LABEL: Final = "perturbed objective 1"
_CELLS: Final = 1 << 32
_OUTWARD: Final = 1 + 2.0**-40
_WORD: Final = 2.0**-63
_MOST_EXPONENT: Final = 64.0
MOST_SCALES: Final = 2.0**31
"""Up to this many scales the norm of b is known as `Perturbation.error` says: the sampler cuts
magnitudes at 2^64, ``2^32`` scales. Whoever solves must know what to release beyond."""


def penalty_weight(epsilon: Fraction, trace: float, rank: int, square: float) -> float:
    """The largest a whose ``epsilon_J`` is at most `epsilon`, rounded down.

    `trace`, `rank` and `square` are t, o and ``R^2`` of the module.
    """
    grown = math.expm1(min(float(epsilon) / rank / _OUTWARD, _MOST_EXPONENT))
    return grown * rank / (trace * square) / _OUTWARD


def tied_charge(
    epsilon: Fraction, weight: float, rows: int, rank: int, square: float, added: bool = False
) -> Fraction:
    """Largest ``2 u beta`` for which a tied loss spends at most epsilon in all.

    It is what `Perturbation.for_budget` shares among the laws of b, rounded down: all of epsilon
    where the penalty is heavy, and never less than ``epsilon - epsilon_J``. `weight`, `rows`,
    `rank` and `square` are a, u, r and ``R^2`` of the module. With `added` units are added or
    removed, not replaced: it is then about twice as large.
    """
    curved, allowed = weight * rows * square / rank, float(epsilon) / _OUTWARD
    low, high = 0.0, allowed if added else allowed / 2
    for _ in range(60):
        middle = (low + high) / 2
        spent = _tied(middle, rank, curved) - (middle if added else 0.0)
        low, high = (middle, high) if spent <= allowed else (low, middle)
    return 2 * Fraction(low)


def _tied(along: float, rank: int, curved: float) -> float:
    """Bound ``max (1 + p) along + r ln(1 + curved p (1 - p))``, ``along = u beta``.

    With ``p = 1/2 + q`` the derivative is 0 where ``along (1 + curved/4 - curved q^2) = 2 r curved
    q``. A tangent's slope rounds by a few units of its two terms.
    """
    bent = rank * curved
    root = math.hypot(bent, along * math.sqrt(curved * (1 + curved / 4)))
    p = 0.5 + min(0.5, along * (1 + curved / 4) / (bent + root))
    inside = curved * p * (1 - p)
    turned = bent * (2 * p - 1) / (1 + inside)
    slope = along - turned
    rest = max(slope * (1 - p), -slope * p) + 2.0**-44 * (along + turned)
    return _OUTWARD * ((1 + p) * along + rank * math.log1p(inside) + rest)


@dataclass(frozen=True)
class Perturbation:
    """The law of b.

    `radii` are the R_j, the same in a block; `scale` is at least `moved` over ``epsilon_b``
    (`for_budget`); `blocks` are the numbers of coordinates of the blocks, one each unless stated.
    """

    radii: tuple[float, ...]
    scale: float
    blocks: tuple[int, ...] = ()

    @classmethod
    def for_budget(cls, radii: tuple[float, ...], moved: float, epsilon: Fraction) -> Perturbation:
        """The law whose ``epsilon_b`` is at most `epsilon`, for gradients moved by `moved`."""
        return cls(radii, _OUTWARD * moved / float(epsilon))

    def draw(self, stream: KeyStream) -> tuple[FloatArray, float]:
        """Draw b, as the middles of its cells, and its norm likewise."""
        size = len(self.radii)
        coordinate = _below(size, stream)
        ratios = (_signed(stream.words(size)) + 0.5) * _WORD
        magnitudes: list[int] = []
        negative = False
        while len(magnitudes) < size:
            drawn = discrete_laplace(_CELLS, size + 16, stream)
            for magnitude, sign in zip(drawn.magnitude.tolist(), drawn.negative, strict=True):
                if magnitude and len(magnitudes) < size:
                    negative = bool(sign) if not magnitudes else negative
                    magnitudes.append(magnitude - 1)
        largest = float(Fraction(2 * sum(magnitudes) + size, 2 * _CELLS)) * self.scale
        ratios[coordinate] = -1.0 if negative else 1.0
        start = 0
        for count in self.blocks:
            block = ratios[start : start + count]
            block[:] = (
                np.sign(block) * np.diff(np.sort(np.abs(block)), prepend=0.0)
                if count > 1
                else block
            )
            start += count
        return np.asarray(ratios * largest * np.array(self.radii)), largest

    def error(self, largest: float) -> float:
        """Bound how far the b that was drawn is from b, in its norm, where that is `largest`.

        Half a cell of each exponential variable, half a cell of a uniform one times the norm, and
        the roundings of five products, sums and conversions. Sorting moves no farther than what is
        sorted, and of q steps each is a difference of two, rounded once more.
        """
        cells, largest_block = (
            len(self.radii) * self.scale / (2 * _CELLS),
            max(self.blocks, default=1),
        )
        rounding = (2 * largest_block if largest_block > 1 else 1) * (_WORD / 2 + 6 * UNIT_ROUNDOFF)
        return _OUTWARD * (cells + (largest + cells) * rounding)


def _below(size: int, stream: KeyStream) -> int:
    """A uniform number below `size`, by rejection."""
    limit = (1 << 64) // size * size
    while True:
        word = int(stream.words(1)[0])
        if word < limit:
            return word % size


def _signed(words: np.ndarray) -> FloatArray:
    """Words as integers from ``-2^63`` on, to 53 bits."""
    return (words ^ np.uint64(1 << 63)).view(np.int64).astype(np.float64)
