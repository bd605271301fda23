"""Regularized empirical risk: the public description of a learning problem, and its stability.

The records are divided into m disjoint shards s (m = 1: all in one). With the feature map phi of a
kernel K, ``f_w(x) = <w, phi(x)>``, each shard has the 1-strongly convex objective

    ``J_s(w) = a sum_{i in s} L(l_i, f_w(d_i)) + |w|^2 / 2``,   ``a = C m / n``,

and the released function is ``F(y) = (1/m) sum_s f_{w_s}(y)``, w_s the minimizer of J_s (or the
iterate of a stated method). n is the public normalizer. The null record contributes nothing.

Theorem (one record added to or removed from a shard). ``|w_s - w_s'| <= a M kappa``.
Proof. J' = J + a L(l, f_w(d)). By strong convexity ``|w - w'| <= |grad J(w')|`` as
``grad J(w) = 0``, and ``grad J(w') = -a L'(l, f_{w'}(d)) phi(d)``, whose norm is at most that.

Corollary (replace-one). The mean of the w_s moves by at most ``r = 2 M C kappa / n``, whatever m:
if the record stays in its shard, w_s moves by ``2 a M kappa`` (remove, then add); if it moves to
another, two shards move by ``a M kappa`` each; the mean has weight 1/m and ``a/m = C/n``. Adding
or removing one record moves it by r/2. Hence ``S(F) <= r kappa_lat``. The shard of a record must
be a function of its own content alone; shards by position are stable only where they do not move.
The paper prints r/2 for replaced records: a flipped label under the hinge attains r.

Slope. M need only bound ``|L'|`` where minimizers live. ``J_s(w_s) <= J_s(0)`` gives
``|w_s|^2 <= 2 c L(0)`` for a shard of total weight c, and stationarity gives ``|w_s| <= c M kappa``
for any M that holds on that ball: starting from the first, the two are iterated to a smaller M.
Clipping dL/df at M replaces L by a convex M-Lipschitz loss of the same curvature with the same
minimizers (the gradients agree there), and is what every method here minimizes: so the theorems
hold for all its iterates too, and for a loss whose author stated too small an M.

One-vs-rest with q models: every record is in all of them, so r holds for each model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from dbern.bernstein.kernels import OUTWARD
from dbern.bernstein.reproducing import Kernel
from dbern.errors import SpecError
from dbern.learning.losses import Loss

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
    rows : int, optional
        The most records there can be, n unless stated: more than n where n is not their number.
    lipschitz : float, optional
        A smaller M to clip the derivative at, where the loss's own is larger.

    Raises
    ------
    SpecError
        For a cost that is not positive and finite, or fewer than one row or shard.

    Examples
    --------
    >>> from dbern.bernstein.reproducing import Gaussian
    >>> from dbern.learning.losses import Hinge
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
    rows: int | None = None
    lipschitz: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.cost) and self.cost > 0):
            raise SpecError("target.C: must be positive and finite; write C = 1.0")
        if self.n < 1 or self.shards < 1 or self.most_rows < 1:
            raise SpecError(
                "target.shards: rows and shards must be at least 1; write shards = 1 for one model"
            )

    @property
    def most_rows(self) -> int:
        """The most records there can be."""
        return self.n if self.rows is None else self.rows

    @property
    def weight(self) -> float:
        """a, the weight of one record in its shard; the objective is defined with this float."""
        return self.cost * self.shards / self.n

    @property
    def most_weight(self) -> float:
        """The most weight of one shard: equal records share a shard, so it can hold every row."""
        return OUTWARD * self.weight * self.most_rows

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
        """Bound on ``|w_s|`` for a shard of that total weight."""
        return OUTWARD * min(
            total * self.slope * self.kappa, math.sqrt(2 * total * self.loss.at_zero)
        )

    def smoothness(self, total: float) -> float:
        """Lipschitz constant beta of the loss part's gradient: total weight, kappa^2, curvature."""
        return OUTWARD * total * self.kappa**2 * self.loss.curvature
