"""Regularized empirical risk: its stability, and the float error of solving it.

The records are divided into m disjoint shards s (m = 1: all in one). With the feature map phi of a
kernel K, ``f_w(x) = <w, phi(x)>``, each shard has the 1-strongly convex objective

    ``J_s(w) = a sum_{i in s} L(l_i, f_w(d_i)) + |w|^2 / 2``,   ``a = C m / n``,

and the released function is ``F(y) = (1/m) sum_s f_{w_s}(y)``, w_s the minimizer of J_s (or the
iterate of a declared method). n is the public normalizer. A missing record contributes nothing.

Sensitivity
-----------

Theorem (one record added to or removed from a shard). ``|w_s - w_s'| <= a M kappa``.
Proof. J' = J + a L(l, f_w(d)). By strong convexity ``|w - w'| <= |grad J(w')|`` as
``grad J(w) = 0``, and ``grad J(w') = -a L'(l, f_{w'}(d)) phi(d)``, whose norm is at most that.

Corollary (replace-one). The mean of the w_s moves by at most ``r = 2 M C kappa / n``, whatever m:
if the record stays in its shard, w_s moves by ``2 a M kappa`` (remove, then add); if it moves to
another, two shards move by ``a M kappa`` each; the mean has weight 1/m and ``a/m = C/n``. Adding
or removing one record moves it by r/2. Hence ``S(F) <= r sup |phi|``. The shard of a record must
be a function of its own content alone; shards by position are stable only where they do not move.
The paper prints r/2 for replaced records: a flipped label under the hinge attains r.

Slope. M need only bound ``|L'|`` where minimizers live. ``J_s(w_s) <= J_s(0)`` gives
``|w_s|^2 <= 2 c L(0)`` for a shard of total weight c, and stationarity gives ``|w_s| <= c M kappa``
for any M that holds on that ball: starting from the first, the two are iterated to a smaller M.
Clipping dL/df at M replaces L by a convex M-Lipschitz loss of the same curvature with the same
minimizers (the gradients agree there), and is what every method here minimizes: so the theorems
hold for all its iterates too, and for a loss whose author declared too small an M.

One-vs-rest with q models: every record is in all of them, so r holds for each model.

Weights where the number of rows is private
-------------------------------------------
n is then the public normalizer, and a shard may hold any number c of rows. So that its weight stays
bounded (and with it the error of floats), a record of a shard of c rows has the weight ``g(c) = a
max(0, 1 - (c - 1)/K)``, K a public power of two (`Risk.vanishing`), so that ``c g(c) <=
a (K + 1)^2 / (4 K)``.

*A record added or removed* still moves w_s by at most ``a M kappa``. Proof: as of the theorem, but
the gradient now differs by ``g(c+1) L' phi`` of the new record and by ``(g(c) - g(c+1)) L' phi`` of
each of the c others, ``M kappa (g(c+1) + c (g(c) - g(c+1)))`` at most. Up to c = K that is
``M kappa a (1 - c/K + c/K)``, and 0 beyond. So the mean moves by r/2, and by r where a record is
replaced. Weights as floats are off by ``2^-53`` of themselves, which all records make at most
``2^-52`` of all weight times ``M kappa``, for each of two databases.

Floats
------
How far they take a gradient method from the exact one: bounds from public constants.

A state is an element of the Hilbert space, exactly, whatever floats say: the expansion
``sum_i alpha_i phi(d_i)`` in its stored coefficients, or stored weights of explicit features. Every
state is an average of negative loss gradients, whose coefficients sum to at most ``c M`` in
absolute value, c the shard's total weight (floats add less than 1 % of that while the condition is
below 2^40, which is checked). Λ is the loss's curvature, ``beta = c kappa^2 Λ``, u = 2^-53.

*Three errors.* A sum over records is made of blocks of `BLOCK` terms in any order, and the blocks
by pairs (`sum_by_pairs`): it is within ``g`` of the sum of absolute terms, ``g = t u / (1 - t u)``,
``t = BLOCK + ..``, free of n. (e) Predictions are within ``e = c M (g kappa^2 + e_K)``, e_K the
kernel's own error. (G) Given its prediction, a record's derivative errs by e_L', and weighting and
summing err by ``g M``: together at most ``G = kappa c (e_L' + g M)`` in norm, and ``c M`` times
the float error of explicit features more. (U) An average
``(1 - s) x + s y`` of two states rounds four times: ``U = 10 u kappa c M``.

*Lemma.* For ``eta <= 1/(1 + beta)`` let ``w+ = (1 - eta) w - eta sum_i a_i L'(f_w(d_i) + e_i)
phi_i`` with ``|e_i| <= e``, and v+ likewise without the e_i. Then ``|w+ - v+|^2 <=
(1 - eta)^2 |w - v|^2 + eta (1 - eta) c Λ e^2``. Proof. Put ``d = w - v``, ``delta_i = <d, phi_i>``,
``D_i`` the difference of the derivatives, ``p = sum a_i D_i phi_i``, ``S = sum a_i D_i^2``. L' is
nondecreasing and Λ-Lipschitz, so ``D_i (delta_i + e_i) >= D_i^2/Λ`` and ``<d, p> >= S/Λ -
e sqrt(c S)``; ``|p|^2 <= kappa^2 c S`` (Cauchy-Schwarz). Hence ``|(1-eta) d - eta p|^2 <=
(1-eta)^2 |d|^2 + (eta^2 beta - 2 eta (1-eta)) S/Λ + 2 eta (1-eta) e sqrt(c S)``; as
``eta beta <= 1 - eta`` the bracket is at most ``-eta (1-eta)``, and ``2 e sqrt(c S) - S/Λ <=
c Λ e^2``.

*Iterates.* Float steps from zero stay within ``B = e sqrt(c Λ/2) + G + U/eta`` of the exact ones,
for any number of steps: if ``|d| <= D + X`` with ``D = e sqrt(c Λ/2)`` and ``X = G + U/eta``, then
``|d+| <= sqrt((1-eta)^2 (D+X)^2 + 2 eta (1-eta) D^2) + eta G + U <= D sqrt(1 - eta^2) +
(1-eta) X + eta X``. With v+ = v = w*, they stay as near to where they converge.

*Certificates.* If ``rho = w + sum_i a_i L'(f_w(d_i) + e_i) phi_i`` then ``|w - w*| <= |rho| +
e sqrt(c Λ)/2``: ``|d|^2 = <rho, d> - sum a_i D_i delta_i <= |rho| |d| + sum a_i (e |D_i| -
D_i^2/Λ)``, each term at most ``a_i Λ e^2/4``, and ``x^2 <= r x + s^2`` implies ``x <= r + s``.
Computing rho from its parts errs by G and, in the subtraction, U: again at most B in all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.reproducing import ExplicitKernel, Kernel
from dbern.erm.losses import Loss
from dbern.errors import SpecError
from dbern.types import UNIT_ROUNDOFF, FloatArray

# --- The public description of a learning problem, and its stability


_SLOPE_ROUNDS = 64


@dataclass(frozen=True)
class Risk:
    """One learning problem, public facts only; see the module for the mathematics.

    Parameters
    ----------
    loss : Loss
    kernel : Kernel
    cost : float
        The paper's C (scikit-learn's C times n).
    n : int
        Public normalizer: all rows under replace-one.
    radius : float
        Largest Euclidean norm of a record's point (`dbern.bernstein.reproducing.box_radius`).
    dimensions : int
        Coordinates of a point, l.
    shards : int
        m.
    vanishing : int, optional
        K, a power of two, where the number of rows is private: in a shard of more rows a record
        weighs nothing.
    lipschitz : float, optional
        A smaller M to clip the derivative at, where the loss's own is larger.

    Raises
    ------
    SpecError
        For a cost that is not positive and finite, or fewer than one row or shard.
    ValueError
        For a K that is not a power of two.

    Examples
    --------
    >>> from dbern.bernstein.reproducing import Gaussian
    >>> from dbern.erm.losses import Hinge
    >>> risk = Risk(Hinge(0.1), Gaussian((1.0,)), cost=1.0, n=50, radius=1.0, dimensions=1)
    >>> round(risk.sensitivity, 9)
    0.04
    """

    loss: Loss
    kernel: Kernel
    cost: float
    n: int
    radius: float
    dimensions: int
    shards: int = 1
    vanishing: int | None = None
    lipschitz: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.cost) and self.cost > 0):
            raise SpecError("target.C: must be positive and finite. Write C = 1.0")
        if self.n < 1 or self.shards < 1:
            raise SpecError(
                "target.shards: rows and shards must be at least 1. Write shards = 1 for one model."
            )
        full = self.vanishing
        if full is not None and (full < 1 or full.bit_count() != 1):
            raise ValueError("weights are exact where they vanish at a power of two of rows")

    @property
    def weight(self) -> float:
        """a, the weight of one record in its shard; the objective is defined with this float."""
        return self.cost * self.shards / self.n

    def relative_weight(self, rows: float) -> float:
        """``g / a`` in a shard of so many rows: exact, as K is a power of two far below 2^53."""
        return 1.0 if self.vanishing is None else max(0.0, 1.0 - (rows - 1.0) / self.vanishing)

    @property
    def most_rows(self) -> int:
        """The most weight of all records, in units of a: with K, ``c g(c)`` in every shard."""
        return self.n if self.vanishing is None else self.shards * (self.vanishing // 4 + 1)

    @property
    def most_weight(self) -> float:
        """The most weight of one shard: equal records share a shard, so it can hold every row."""
        return OUTWARD * self.weight * self.most_rows

    @property
    def features(self) -> ExplicitKernel | None:
        """The kernel, where it has explicit features."""
        return self.kernel if isinstance(self.kernel, ExplicitKernel) else None

    @cached_property
    def kappa(self) -> float:
        """``sup |phi(d)|`` over records."""
        return OUTWARD * math.sqrt(self.kernel.bound(self.radius))

    @cached_property
    def slope(self) -> float:
        """M: the derivative's bound on every minimizer, and where methods clip it."""
        first = OUTWARD * math.sqrt(2 * self.most_weight * self.loss.at_zero)
        slope = self.loss.slope(self.kappa * first)
        slope = slope if self.lipschitz is None else min(slope, self.lipschitz)
        for _ in range(_SLOPE_ROUNDS):
            ball = min(first, OUTWARD * self.most_weight * slope * self.kappa)
            slope = min(slope, self.loss.slope(self.kappa * ball))
        return slope

    @property
    def sensitivity(self) -> float:
        """r under replace-one, in the norm of the kernel's Hilbert space; add-or-remove: half."""
        return OUTWARD * 2 * self.slope * self.cost * self.kappa / self.n

    def norm(self, total: float) -> float:
        """Bound ``|w_s|`` for a shard of that total weight."""
        return OUTWARD * min(
            total * self.slope * self.kappa, math.sqrt(2 * total * self.loss.at_zero)
        )

    def smoothness(self, total: float) -> float:
        """Return beta, the Lipschitz constant of the loss part's gradient."""
        return OUTWARD * total * self.kappa**2 * self.loss.curvature


# --- How far floats take a gradient method from the exact one

BLOCK = 1024
"""Terms summed in an unknown order at a time."""

_DEPTH = 64  # of the tree of blocks: more than any array has
_GROWTH = 1.01
_MOST_CONDITION = 2.0**40


def sum_by_pairs(term: Callable[[slice], FloatArray], count: int) -> FloatArray:
    """Return ``term(block)`` summed over the blocks of `count` > 0 rows, in a balanced tree.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(5000.0)
    >>> float(sum_by_pairs(lambda block: x[block].sum(keepdims=True), 5000)[0])
    12497500.0
    """
    blocks = math.ceil(count / BLOCK)

    def total(first: int, last: int) -> FloatArray:
        if last - first == 1:
            return term(slice(first * BLOCK, min(last * BLOCK, count)))
        middle = (first + last) // 2
        result = total(first, middle)
        result += total(middle, last)
        return result

    return total(0, blocks)


def summation_error(risk: Risk) -> float:
    """Return g, with room for the products of features or axes and for a mean over the shards."""
    terms = BLOCK + _DEPTH + 2 * risk.dimensions + 16 + math.log2(risk.shards)
    return OUTWARD * terms * UNIT_ROUNDOFF


def _prediction_error(risk: Risk, total: float, radius: float) -> float:
    """Bound e, a state's float error of values up to `radius`, for a shard of that weight."""
    largest = max(radius, risk.radius)
    relative = summation_error(risk) * risk.kernel.bound(largest)
    kernel = risk.kernel.error(risk.dimensions, largest)
    return OUTWARD * _GROWTH * total * risk.slope * (relative + kernel)


def state_error(risk: Risk, total: float) -> float:
    """Bound B, the distance of a float state from the exact one, for a shard of that weight.

    A convex function of the weight, zero at 0: over shards whose weights sum to at most
    `Risk.most_weight` the sum of it is largest with all weight in one.

    Raises
    ------
    SpecError
        Where the problem is too ill-conditioned for 64-bit floats.
    """
    loss, condition = risk.loss, 1 + risk.smoothness(total)
    if condition > _MOST_CONDITION:
        raise SpecError(
            "target.C: too large for this loss and kernel: the problem's condition exceeds 2^40. "
            "Write a smaller C or a smoother loss."
        )
    predictions = _prediction_error(risk, total, risk.radius) * math.sqrt(
        total * loss.curvature / 2
    )
    weights = loss.derivative_error + summation_error(risk) * risk.slope
    if risk.features is not None:
        weights += risk.slope * risk.features.feature_error / risk.kappa
    update = 10 * UNIT_ROUNDOFF * condition * risk.slope
    return OUTWARD * (predictions + _GROWTH * risk.kappa * total * (weights + update))


def mean_state_error(risk: Risk) -> float:
    """Bound the mean of B over the shards, for every database."""
    return OUTWARD * state_error(risk, risk.most_weight) / risk.shards


def value_error(risk: Risk, radius: float) -> float:
    """Bound the float error of the mean of the shards' models at points up to `radius`.

    Shard weights sum to at most `Risk.most_weight`, and the error is linear in them. It holds
    for one output; a mean over shards by pairs, or of blocks of `BLOCK`, is within it.
    """
    return OUTWARD * _prediction_error(risk, risk.most_weight, radius) / risk.shards
