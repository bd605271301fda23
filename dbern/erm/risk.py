"""Regularized empirical risk of the records of shards, and how far a record moves its minimizers.

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
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.reproducing import ExplicitKernel, Kernel
from dbern.erm.losses import Loss
from dbern.erm.solver import ProblemBounds
from dbern.erm.summation import summation_error
from dbern.errors import SpecError

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
