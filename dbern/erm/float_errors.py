"""Bounds of how far floats take a gradient method from the exact one, from public constants.

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

from dbern.bernstein.kernels import OUTWARD
from dbern.erm.risk import Risk
from dbern.errors import SpecError
from dbern.types import UNIT_ROUNDOFF

_COEFFICIENT_GROWTH = 1.01
MAX_CONDITION = 2.0**40
"""Of problems that floats solve."""


def _prediction_error(risk: Risk, total: float, radius: float) -> float:
    """Bound e, a state's float error of values up to `radius`, for a shard of that weight."""
    bounds, largest = risk.bounds, max(radius, risk.radius)
    relative = bounds.summation * risk.kernel.bound(largest)
    kernel = risk.kernel.error(risk.dimensions, largest)
    return OUTWARD * _COEFFICIENT_GROWTH * total * bounds.slope * (relative + kernel)


def state_error(risk: Risk, total: float) -> float:
    """Bound B, the distance of a float state from the exact one, for a shard of that weight.

    A convex function of the weight, zero at 0: over shards whose weights sum to at most
    `RiskBounds.max_weight` the sum of it is largest with all weight in one.

    Raises SpecError where the problem is too ill-conditioned for 64-bit floats.
    """
    loss, bounds, condition = risk.loss, risk.bounds, 1 + risk.shard_bounds(total).smoothness
    if condition > MAX_CONDITION:
        raise SpecError(
            "target.C: too large for this loss and kernel: the problem's condition exceeds 2^40. "
            "Write a smaller C or a smoother loss."
        )
    predictions = _prediction_error(risk, total, risk.radius) * math.sqrt(
        total * loss.curvature / 2
    )
    weights = loss.derivative_error + bounds.summation * bounds.slope
    if risk.features is not None:
        weights += bounds.slope * risk.features.feature_error / bounds.kappa
    update = 10 * UNIT_ROUNDOFF * condition * bounds.slope
    return OUTWARD * (predictions + _COEFFICIENT_GROWTH * bounds.kappa * total * (weights + update))


def mean_state_error(risk: Risk) -> float:
    """Bound the mean of B over the shards, for every database."""
    return OUTWARD * state_error(risk, risk.bounds.max_weight) / risk.shards


def value_error(risk: Risk, radius: float) -> float:
    """Bound the float error of the mean of the shards' models at points up to `radius`.

    Shard weights sum to at most `RiskBounds.max_weight`, and the error is linear in them. It holds
    for one output; a mean over shards by pairs, or of blocks of `BLOCK`, is within it.
    """
    return OUTWARD * _prediction_error(risk, risk.bounds.max_weight, radius) / risk.shards
