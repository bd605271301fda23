"""An oracle for the solver: the support vector machine in closed form, where the cost is small.

Theorem. Labels +-1, hinge ``max(0, 1 - l f)``, or rounded over a width (0 for the hinge itself),
a set of records of total weight c. If ``c kappa^2 <= 1 - width`` the minimizer is
``w = sum_i a_i l_i phi(d_i)``: every dual variable is at its bound. Proof. ``|f_w(d)| =
|sum_i a_i l_i K(d_i, d)| <= c kappa^2 <= 1 - width`` at every record, so ``1 - l f >= width``,
where -l is a (sub)gradient of the loss. So ``w - sum_i a_i l_i phi(d_i) = 0`` is a subgradient of
the objective, whose minimizer is unique by strong convexity.

With ``a = C/n`` for at most n records: ``F = (C/n) sum_i l_i K(d_i, .)``, a sum over records with
no solver, no shards, and exact integer sums. One replaced record moves it by
``(C/n) |l phi(d) - l' phi(d')| <= 2 C kappa / n = r``, attained by a flipped label; and on a
lattice by at most ``(2 C/n) max_t sum_v |K(v, t)|`` in the l1 norm.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from dbern.erm.losses import Hinge
from dbern.erm.risk import Risk
from dbern.erm.shards import Expansion
from dbern.errors import SpecError
from dbern.types import FloatArray


def is_closed(risk: Risk, width: float = 0.0) -> bool:
    """Whether the theorem covers every database of the problem, at that width of the hinge.

    Examples
    --------
    >>> from dbern.bernstein.reproducing import Gaussian
    >>> [is_closed(Risk(Hinge(), Gaussian((1.0,)), cost, 50, radius=1.0, dimensions=1))
    ...  for cost in (0.5, 1.0, 1.001)]
    [True, True, False]
    """
    weight = Fraction(risk.cost) * Fraction(risk.bounds.max_rows, risk.n)
    return weight * Fraction(risk.kernel.bound(risk.radius)) <= 1 - Fraction(width)


def closed_form(risk: Risk, points: FloatArray, labels: FloatArray) -> Expansion:
    """The support vector machine of all records (n', l) with labels (n',) or (n', q).

    Raises
    ------
    SpecError
        Where the cost is too large for it, or the loss is not the hinge.
    """
    if not (isinstance(risk.loss, Hinge) and is_closed(risk)):
        raise SpecError(
            "target.C: the closed form needs the hinge and C sup K(x, x) of at most 1; write a "
            "smaller C, or use the solver"
        )
    signs = risk.loss.admissible(labels[:, None] if labels.ndim == 1 else labels)
    return Expansion(risk.kernel, points, np.asarray(risk.cost / risk.n * signs))
