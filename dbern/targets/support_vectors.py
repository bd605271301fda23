"""Support vector machines without bias: in closed form, or by a solver.

``w = argmin (C/n) sum_i max(0, 1 - l_i <w, phi(d_i)>) + |w|^2 / 2`` with labels +-1. In the dual,
``w = (C/n) sum_i a_i l_i phi(d_i)`` with a_i in [0, 1], and a_i = 1 wherever the margin
``l_i <w, phi(d_i)>`` is below one. With ``kappa^2 = sup K(x, x)`` every such w has norm at most
``C kappa``, so no margin exceeds ``C kappa^2``. Where that is at most one, all dual variables at
their bound, a = 1, satisfy the optimality conditions: the hinge's subgradient contains -1 up to
and including margin one. By strong convexity this is the minimiser:

    ``F(y) = (C/n) sum_i l_i K(d_i, y)``,

a signed kernel sum, exact, with no solver; its sensitivities are proved in
`dbern.counting.kernel_sums`. For larger C the hinge is rounded over a public width and the machine
is solved for (`dbern.erm.measurement`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from dbern.combination import Combination
from dbern.counting.kernel_sums import ByCategory, BySign, KernelSum
from dbern.counting.measurement import Measurement
from dbern.data.domain import RecordSchema
from dbern.erm.losses import Hinge
from dbern.privacy.budget import Budget
from dbern.targets.bandwidths import axis_kernels
from dbern.targets.base import Learner, Lengths, Way
from dbern.targets.linear import (
    AUTO,
    SHARDS,
    Cost,
    Shards,
    chosen_cost,
    gaussian_space,
    minimizer,
    of_classes,
    told,
)
from dbern.targets.predicted_functions import minimizer_notes, sum_notes
from dbern.targets.predictions import TypicalClasses

_SOLVED = 10  # below it few margins reach one: the closed form is as good, with half the noise


class SupportVectorMachine(Learner):
    """Decision function of a support vector machine with the kernel exp(-|x-y|^2 / (2 s^2)).

    With two classes the second is the positive one; with more, one machine a class against the
    rest. The regularisation is the paper's ``C/n``: scikit-learn's C is this C over n.

    Parameters
    ----------
    length_scale : sequence of float
        s per axis, in data units.
    C : "auto" or float
        Up to 1 the machine has a closed form; beyond, it is solved for. "auto" is
        chosen as that of `KernelERM`, for a width of .1 at most 100; below 10 it is 1.
    width : float
        Over which the kink of the hinge is rounded for the solver, of a margin.
    shards : "auto" or int
        For the solver: as of `KernelERM`.

    Raises
    ------
    SpecError
        For a length scale or C out of range, or records without classes.

    Examples
    --------
    >>> SupportVectorMachine(length_scale=[1.0, 1.0]).C
    'auto'
    """

    kind: ClassVar[str] = "support-vector-machine"
    chooses: ClassVar[bool] = True
    uses: ClassVar[tuple[str, ...]] = ("label",)

    length_scale: Lengths = Field(
        description="length_scale = [1.0, 1.0], one per axis in data units"
    )
    C: Cost = AUTO
    width: float = Field(0.1, ge=1e-3, le=1, description="width = 0.1, from 0.001 to 1")
    shards: Shards = SHARDS

    def components(self, schema: RecordSchema) -> tuple[Measurement, ...]:
        """The signed sum, or one sum for each of more than two classes; or what is solved for."""
        label, domain = schema.classes, schema.domain
        if self._cost > 1:
            space, loss = gaussian_space(schema, self.length_scale), Hinge(self.width)
            return (minimizer("decision", schema, loss, space, self._cost, self.shards),)
        kernels = axis_kernels(domain, self.length_scale, "length_scale")
        # The measurement's kernels are densities: the machine's is this times their product.
        unit = self._cost * math.prod(g.bandwidth * math.sqrt(2 * math.pi) for g in kernels)
        record_weights = BySign(label) if len(label.categories) == 2 else ByCategory(label)
        return (KernelSum("decision", domain, kernels, record_weights, unit),)

    def combination(self, schema: RecordSchema) -> Combination:
        """The function itself; of more sums each one minus all others, of more models each one."""
        classes = schema.classes.categories
        if self._cost > 1 or len(classes) == 2:
            return of_classes(schema)
        return Combination("one-vs-rest", classes)

    def for_rows(self, schema: RecordSchema, n: int, charge: Budget) -> SupportVectorMachine:
        """Return it with its C."""
        if self.C != "auto":
            return self
        space = gaussian_space(schema, self.length_scale)
        cost = chosen_cost(schema, Hinge(self.width), space, n, charge.epsilon)
        return SupportVectorMachine(**self.get_params() | {"C": cost if cost >= _SOLVED else 1.0})

    def notes(self, n: int) -> tuple[str, ...]:
        """C in both forms."""
        return (told(self._cost, n),)

    def predictions(self, schema: RecordSchema, n: int, ways: Sequence[Way]) -> tuple[str, ...]:
        """Predict the share of wrong classes of typical records, beside a constant's."""
        del n
        axes, classes = schema.domain.dimensions, len(schema.classes.categories)
        typical = TypicalClasses(axes, (), classes, logistic=False)
        if self._cost > 1:
            space = gaussian_space(schema, self.length_scale)
            return minimizer_notes(typical, ways[0], space, Hinge(self.width), self._cost)
        shares = typical.shares
        weights = shares[:, 1:] - shares[:, :1] if classes == 2 else shares
        return sum_notes(typical, self.combination(schema), ways, weights)

    @property
    def _cost(self) -> float:
        return 1.0 if self.C == "auto" else self.C
