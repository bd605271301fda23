"""Regularized empirical risk: losses, stability, and the float error of solving it.

The records are divided into m disjoint shards s (m = 1: all in one). With the feature map phi of a
kernel K, ``f_w(x) = <w, phi(x)>``, each shard has the 1-strongly convex objective

    ``J_s(w) = a sum_{i in s} L(l_i, f_w(d_i)) + |w|^2 / 2``,   ``a = C m / n``,

and the released function is ``F(y) = (1/m) sum_s f_{w_s}(y)``, w_s the minimizer of J_s (or the
iterate of a declared method). n is the public normalizer. A missing record contributes nothing.

Losses
------
``L(l, f)`` of a label l and a prediction f is convex and at least 0, and declares

- ``slope(largest)``: M, the largest ``|dL/df|`` over every admissible label and ``|f| <= largest``;
- ``curvature``: the Lipschitz constant of dL/df, that is ``sup d2L/df2`` where it exists;
- ``at_zero``: the largest ``L(l, 0)``;
- ``derivative_error``: the largest float error of `derivative` at any float prediction.

Two pieces build most of them. The *ramp* ``h(z) = 0, z^2/(2 width), z - width/2`` for z below 0, up
to the width, and above: convex, ``0 <= h' = clip(z/width, 0, 1) <= 1``, h' is (1/width)-Lipschitz,
and ``max(z, 0) - width/2 <= h(z) <= max(z, 0)``. The *quadratic* ``r^2/2``: slope |r|, curvature 1.
A division, product or difference of floats rounds once, by at most ``u = 2^-53`` of its result.

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
from typing import Protocol

import numpy as np

from dbern.bernstein.kernels import EXP_ULPS, OUTWARD
from dbern.bernstein.reproducing import ExplicitKernel, Kernel
from dbern.erm.solver import ProblemBounds
from dbern.errors import SpecError
from dbern.types import UNIT_ROUNDOFF, FloatArray

# --- Losses


class Loss(Protocol):
    """A loss, with the constants that the solver and the proofs use.

    A third party's loss is any frozen object with these members. That it is convex, with the
    slope and curvature it declares, is its author's promise: privacy rests on convexity and slope.
    """

    @property
    def curvature(self) -> float:
        """Lipschitz constant of the derivative in f."""

    @property
    def at_zero(self) -> float:
        """``sup_l L(l, 0)``."""

    @property
    def derivative_error(self) -> float:
        """Float error of `derivative`."""

    def slope(self, largest: float) -> float:
        """Bound the derivative over predictions up to `largest`, which may be infinite."""

    def admissible(self, labels: FloatArray) -> FloatArray:
        """Clip labels to the range the constants hold for."""

    def value(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L elementwise."""

    def derivative(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """dL/df elementwise."""


def _ramp(z: FloatArray, width: float) -> FloatArray:
    inside = np.clip(z, 0.0, width)
    return np.asarray(inside * (z - 0.5 * inside) / width)


class _Signs:
    def admissible(self, labels: FloatArray) -> FloatArray:
        return np.where(labels > 0, 1.0, -1.0)


class _Rounded:
    width: float

    @property
    def curvature(self) -> float:
        return 1 / self.width

    def slope(self, largest: float) -> float:  # noqa: ARG002 - the same everywhere
        return 1.0


class Responses:
    """Labels in ``[-bound, bound]``."""

    bound: float

    def admissible(self, labels: FloatArray) -> FloatArray:
        """Clip responses to the bound."""
        return np.clip(labels, -self.bound, self.bound)


@dataclass(frozen=True)
class Hinge(_Signs, _Rounded):
    """``max(0, 1 - l f)`` for labels +-1, its kink rounded over a public width: ``h(1 - l f)``.

    ``|dL/df| = h' <= 1``; the derivative is (1/width)-Lipschitz in f because ``|l| = 1``;
    ``L(l, 0) = h(1) = 1 - width/2`` as the width is at most 1. It is below the hinge by at most
    width/2, so the minimizer of a risk of total weight C moves by at most ``sqrt(C width/2)``: both
    objectives are 1-strongly convex, and adding ``J(w') - J(w) >= |w - w'|^2/2`` at either
    minimizer w leaves differences between the objectives, which lie in ``[0, C width/2]``. Where
    all margins stay below 1 - width the minimizer is the same (see
    `dbern.targets.kernel_erm`).

    Float error: l f is exact, so 1 - l f and its quotient round by 2 u of a value that is then
    clipped to [0, 1].

    Raises SpecError for a width outside (0, 1].
    """

    width: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.width <= 1:
            raise SpecError(
                "target.loss: the width over which the hinge is rounded must be above 0 and at "
                "most 1. Write 0.1"
            )

    @property
    def at_zero(self) -> float:
        """``h(1)``."""
        return 1 - self.width / 2

    @property
    def derivative_error(self) -> float:
        """Float error of two roundings, doubled."""
        return 4 * UNIT_ROUNDOFF

    def value(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L elementwise."""
        return _ramp(1 - labels * predictions, self.width)

    def derivative(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """dL/df elementwise."""
        margin = (1 - labels * predictions) / self.width
        return np.asarray(-labels * np.clip(margin, 0.0, 1.0))


@dataclass(frozen=True)
class Logistic(_Signs):
    """``log(1 + exp(-l f))`` for labels +-1.

    ``|dL/df| = s(-l f)`` with the sigmoid ``s(t) = 1/(1 + e^-t)``, increasing: over ``|f| <= R``
    at most ``s(R) < 1``. ``s' = s (1 - s) <= 1/4``. ``L(l, 0) = log 2``.

    Float error: with ``e = exp(l f)`` within a few ulps, ``1/(1 + e)`` changes by
    ``e/(1 + e)^2 <= 1/4`` times e's relative error, and two operations round values of at most 1.
    """

    curvature = 0.25
    at_zero = OUTWARD * math.log(2)
    derivative_error = (EXP_ULPS + 4) * UNIT_ROUNDOFF

    def slope(self, largest: float) -> float:
        """``s(R)``."""
        return min(1.0, OUTWARD / (1 + math.exp(-min(largest, 700.0))))

    def value(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L elementwise."""
        return np.logaddexp(0.0, -labels * predictions)

    def derivative(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """dL/df elementwise."""
        exponent = np.minimum(labels * predictions, 700.0)  # beyond it the result is below 1e-304
        return np.asarray(-labels / (1 + np.exp(exponent)))


@dataclass(frozen=True)
class Square(Responses):
    """``(l - f)^2 / 2`` for responses clipped to ``[-bound, bound]``: kernel ridge regression.

    ``|dL/df| = |f - l| <= bound + R`` over ``|f| <= R``: no Lipschitz constant of its own, but one
    on the ball that holds every minimizer (`dbern.erm.risk.Risk.slope`). ``L(l, 0)`` is at
    most ``bound^2/2``. The difference rounds once, and is then clipped at that constant.
    """

    bound: float = 1.0
    curvature = 1.0
    derivative_error = 0.0  # beyond one rounding, relative to M: counted for every loss

    def __post_init__(self) -> None:
        check_bound(self.bound)

    @property
    def at_zero(self) -> float:
        """``bound^2 / 2``."""
        return OUTWARD * self.bound**2 / 2

    def slope(self, largest: float) -> float:
        """``bound + R``."""
        return self.bound + largest

    def value(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L elementwise."""
        return np.asarray(0.5 * np.square(predictions - labels))

    def derivative(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """dL/df elementwise."""
        return np.asarray(predictions - labels)


@dataclass(frozen=True)
class Huber(Responses):
    """``r^2/2`` for residuals ``|r| <= threshold``, ``threshold (|r| - threshold/2)`` beyond.

    ``dL/df = clip(f - l, -threshold, threshold)``: slope ``min(threshold, bound + R)``, curvature
    1. ``L(l, 0)`` is at most its value at r = bound. The difference rounds once, by at most u
    times its size, which the clip bounds by the threshold.
    """

    threshold: float = 1.0
    bound: float = 1.0
    curvature = 1.0

    def __post_init__(self) -> None:
        check_bound(self.bound)
        check_bound(self.threshold, "threshold")

    @property
    def at_zero(self) -> float:
        """L(l, 0) at the bound."""
        inside = min(self.bound, self.threshold)
        return OUTWARD * inside * (self.bound - inside / 2)

    @property
    def derivative_error(self) -> float:
        """Float error of one rounding, doubled."""
        return 2 * UNIT_ROUNDOFF * self.threshold

    def slope(self, largest: float) -> float:
        """``min(threshold, bound + R)``."""
        return min(self.threshold, self.bound + largest)

    def value(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L elementwise."""
        residual = np.abs(predictions - labels)
        inside = np.minimum(residual, self.threshold)
        return np.asarray(inside * (residual - 0.5 * inside))

    def derivative(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """dL/df elementwise."""
        return np.clip(predictions - labels, -self.threshold, self.threshold)


@dataclass(frozen=True)
class EpsilonInsensitive(Responses, _Rounded):
    """``max(0, |f - l| - tube)``, its kinks rounded over a public width: ``h(|f - l| - tube)``.

    Convex, being h, convex and nondecreasing, of a convex function. Where the derivative is not
    zero it is ``+-h'``: slope 1, curvature 1/width. ``L(l, 0) <= max(bound - tube, 0)``.

    Float error: where h' is below 1 the residual is at most tube + width, so residual and
    difference round by ``2 u (tube + width)``, and the quotient by u.
    """

    tube: float = 0.1
    width: float = 0.1
    bound: float = 1.0

    def __post_init__(self) -> None:
        check_bound(self.bound)
        check_bound(self.width, "width")
        if not (math.isfinite(self.tube) and self.tube >= 0):
            raise SpecError("target.loss: the tube must be at least 0. Write tube = 0.1")

    @property
    def at_zero(self) -> float:
        """``max(bound - tube, 0)``."""
        return max(self.bound - self.tube, 0.0)

    @property
    def derivative_error(self) -> float:
        """Float error of residual, difference and quotient, doubled."""
        return 4 * UNIT_ROUNDOFF * (1 + (self.tube + self.width) / self.width)

    def value(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L elementwise."""
        return _ramp(np.abs(predictions - labels) - self.tube, self.width)

    def derivative(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """dL/df elementwise."""
        residual = predictions - labels
        outside = (np.abs(residual) - self.tube) / self.width
        return np.asarray(np.sign(residual) * np.clip(outside, 0.0, 1.0))


def one_vs_rest(classes: FloatArray, count: int) -> FloatArray:
    """Labels (n, count): 1 in the column of the class (0 to count - 1), -1 elsewhere."""
    return np.where(classes[:, None] == np.arange(count), 1.0, -1.0)


def check_bound(value: float, name: str = "bound") -> None:
    """Refuse a constant that is not positive and finite."""
    if not (math.isfinite(value) and value > 0):
        raise SpecError(f"target.loss: the {name} must be positive and finite. Write {name} = 1.0")


_SLOPE_ROUNDS = 64


@dataclass(frozen=True)
class RiskBounds:
    """Bounds of a `Risk`, each from those above it."""

    weight: float
    """a, the weight of one record in its shard; the objective is defined with this float."""
    max_rows: int
    """The most weight of all records, in units of a: with K, ``c g(c)`` in every shard."""
    max_weight: float
    """The most weight of one shard: equal records share a shard, so it can hold every row."""
    kappa: float
    """``sup |phi(d)|`` over records."""
    slope: float
    """M: the derivative's bound on every minimizer, and where methods clip it."""
    sensitivity: float
    """r under replace-one, in the norm of the kernel's Hilbert space; add-or-remove: half."""
    summation: float
    """g, with room for the products of features or axes and for a mean over the shards."""


@dataclass(frozen=True)
class Risk:
    """One learning problem, by public facts only.

    `cost` is the paper's C (scikit-learn's C times n), `n` the public normalizer: all rows under
    replace-one. Points have l `dimensions` and Euclidean norm at most `radius`
    (`dbern.bernstein.reproducing.box_radius`). There are m `shards`. `vanishing` is K where the
    number of rows is private: in a shard of more rows a record weighs nothing; a K that is not a
    power of two raises a ValueError. `lipschitz` is a smaller M to clip the derivative at, where
    the loss's own is larger. Raises SpecError for a cost that is not positive and finite, or fewer
    than one row or shard.
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

    @cached_property
    def bounds(self) -> RiskBounds:
        """Bounds that hold for every database."""
        loss, full = self.loss, self.vanishing
        weight = self.cost * self.shards / self.n
        max_rows = self.n if full is None else self.shards * (full // 4 + 1)
        max_weight = OUTWARD * weight * max_rows
        kappa = OUTWARD * math.sqrt(self.kernel.bound(self.radius))
        first = OUTWARD * math.sqrt(2 * max_weight * loss.at_zero)
        slope = loss.slope(kappa * first)
        slope = slope if self.lipschitz is None else min(slope, self.lipschitz)
        for _ in range(_SLOPE_ROUNDS):
            ball = min(first, OUTWARD * max_weight * slope * kappa)
            slope = min(slope, loss.slope(kappa * ball))
        sensitivity = OUTWARD * 2 * slope * self.cost * kappa / self.n
        summation = OUTWARD * summation_error(self.dimensions, self.shards)
        return RiskBounds(weight, max_rows, max_weight, kappa, slope, sensitivity, summation)

    def shard_bounds(self, total: float) -> ProblemBounds:
        """Bounds on the objective of a shard of that total weight."""
        bounds, loss = self.bounds, self.loss
        return ProblemBounds.of_losses(
            total, bounds.slope, bounds.kappa, loss.at_zero, loss.curvature
        )

    def relative_weight(self, rows: float) -> float:
        """``g / a`` in a shard of so many rows: exact, as K is a power of two far below 2^53."""
        return 1.0 if self.vanishing is None else max(0.0, 1.0 - (rows - 1.0) / self.vanishing)

    @property
    def features(self) -> ExplicitKernel | None:
        """The kernel, where it has explicit features; else None."""
        return self.kernel if isinstance(self.kernel, ExplicitKernel) else None


# --- How far floats take a gradient method from the exact one

BLOCK = 1024
"""Terms summed in an unknown order at a time."""

_DEPTH = 64  # of the tree of blocks: more than any array has
_GROWTH = 1.01
MAX_CONDITION = 2.0**40
"""Of problems that floats solve."""


def sum_by_pairs(term: Callable[[slice], FloatArray], count: int) -> FloatArray:
    """Sum ``term(block)`` over the blocks of `count` > 0 rows, in a balanced tree."""
    return _sum_of_blocks(term, count, 0, math.ceil(count / BLOCK))


def _sum_of_blocks(
    term: Callable[[slice], FloatArray], count: int, first: int, last: int
) -> FloatArray:
    # No closure that names itself: such a cycle holds the term's features, up to 256 MiB a shard,
    # until garbage is collected, which may be many shards later.
    if last - first == 1:
        return term(slice(first * BLOCK, min(last * BLOCK, count)))
    middle = (first + last) // 2
    result = _sum_of_blocks(term, count, first, middle)
    result += _sum_of_blocks(term, count, middle, last)
    return result


def summation_error(features: int, shards: int = 1) -> float:
    """g of sums of products of so many features, and of a mean over the shards."""
    return (BLOCK + _DEPTH + 2 * features + 16 + math.log2(shards)) * UNIT_ROUNDOFF


def _prediction_error(risk: Risk, total: float, radius: float) -> float:
    """Bound e, a state's float error of values up to `radius`, for a shard of that weight."""
    bounds, largest = risk.bounds, max(radius, risk.radius)
    relative = bounds.summation * risk.kernel.bound(largest)
    kernel = risk.kernel.error(risk.dimensions, largest)
    return OUTWARD * _GROWTH * total * bounds.slope * (relative + kernel)


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
    return OUTWARD * (predictions + _GROWTH * bounds.kappa * total * (weights + update))


def mean_state_error(risk: Risk) -> float:
    """Bound the mean of B over the shards, for every database."""
    return OUTWARD * state_error(risk, risk.bounds.max_weight) / risk.shards


def value_error(risk: Risk, radius: float) -> float:
    """Bound the float error of the mean of the shards' models at points up to `radius`.

    Shard weights sum to at most `RiskBounds.max_weight`, and the error is linear in them. It holds
    for one output; a mean over shards by pairs, or of blocks of `BLOCK`, is within it.
    """
    return OUTWARD * _prediction_error(risk, risk.bounds.max_weight, radius) / risk.shards
