"""Support vector machines without bias, in closed form, or by a solver.

``w = argmin (C/n) sum_i max(0, 1 - l_i <w, phi(d_i)>) + |w|^2 / 2`` with labels +-1. In the dual,
``w = (C/n) sum_i a_i l_i phi(d_i)`` with a_i in [0, 1], and a_i = 1 wherever the margin
``l_i <w, phi(d_i)>`` is below one. With ``kappa^2 = sup K(x, x)`` every such w has norm at most
``C kappa``, so no margin exceeds ``C kappa^2``. Where that is at most one, all dual variables at
their bound, a = 1, satisfy the optimality conditions: the hinge's subgradient contains -1 up to
and including margin one. By strong convexity this is the minimiser:

    ``F(y) = (C/n) sum_i l_i K(d_i, y)``,

a signed kernel sum, exact, with no solver; its sensitivities are proved in
`dbern.measure.kernel_sums`. For larger C the hinge is rounded over a public width and the machine
is solved for (`dbern.erm.statistics`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from dbern.combination.base import Combination
from dbern.combination.functions import OneVersusRest
from dbern.data.domain import RecordSchema
from dbern.erm.losses import Hinge
from dbern.learn.minimizers import (
    AUTO,
    SHARDS,
    Cost,
    Shards,
    build_minimizer,
    choose_cost,
    combine_classes,
    cost_text,
    gaussian_space,
    stated_cost,
)
from dbern.learn.predictions import minimizer_notes
from dbern.measure.kernel_sums import KernelSum
from dbern.measure.record_weights import ByCategory, SignWeight
from dbern.measure.statistic import Statistic
from dbern.privacy.budget import Budget
from dbern.targets.bandwidths import axis_kernels
from dbern.targets.learner import DesignedStatistic, Learner, Lengths
from dbern.targets.predicted_functions import predicted_sums
from dbern.targets.typical import TypicalClasses

_MIN_SOLVED_COST = 10
"""Below it few margins reach one: the closed form is as good, with half the noise."""


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
        chosen as that of `KernelERM`, for a width of .1 at most 100; below 10 it is 1. Of more than
        two classes it is 1: a class's sum of kernels is as large as the class is likely, whereas a
        machine that is solved for says "the rest" wherever no class has more than half, and noise
        decides between them.
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

    def components(self, schema: RecordSchema) -> tuple[Statistic, ...]:
        """The signed sum, or one sum for each of more than two classes; or what is solved for."""
        label, domain = schema.classes, schema.domain
        if stated_cost(self.C) > 1:
            space, loss = gaussian_space(schema, self.length_scale), Hinge(self.width)
            return (build_minimizer(schema, loss, space, stated_cost(self.C), self.shards),)
        kernels = axis_kernels(domain, self.length_scale, "length_scale")
        # The statistic's kernels are densities: the machine's is this times their product.
        scale = stated_cost(self.C) * math.prod(
            g.bandwidth * math.sqrt(2 * math.pi) for g in kernels
        )
        record_weights = SignWeight(label) if len(label.categories) == 2 else ByCategory(label)
        return (KernelSum("decision", domain, kernels, record_weights, scale),)

    def combination(self, schema: RecordSchema) -> Combination:
        """The function itself; of more sums each one minus all others, of more models each one."""
        classes = schema.classes.categories
        if stated_cost(self.C) > 1 or len(classes) == 2:
            return combine_classes(schema)
        return OneVersusRest(classes)

    def for_rows(self, schema: RecordSchema, n: int, charge: Budget) -> SupportVectorMachine:
        """Return it with its C."""
        if self.C != "auto":
            return self
        cost = 1.0
        if len(schema.classes.categories) == 2:
            space = gaussian_space(schema, self.length_scale)
            cost = choose_cost(schema, Hinge(self.width), space, n, charge.epsilon)
        cost = cost if cost >= _MIN_SOLVED_COST else 1.0
        return SupportVectorMachine(**self.get_params() | {"C": cost})

    def notes(self, n: int) -> tuple[str, ...]:
        """C in both forms."""
        return (cost_text(stated_cost(self.C), n),)

    def predictions(
        self, schema: RecordSchema, n: int, designs: Sequence[DesignedStatistic]
    ) -> tuple[str, ...]:
        """Predict the share of wrong classes of typical records, beside a constant's."""
        del n
        axes, classes = schema.domain.dimensions, len(schema.classes.categories)
        typical = TypicalClasses(axes, (), classes, logistic=False)
        if stated_cost(self.C) > 1:
            space = gaussian_space(schema, self.length_scale)
            return minimizer_notes(
                typical, designs[0], space, Hinge(self.width), stated_cost(self.C)
            )
        shares = typical.shares
        weights = shares[:, 1:] - shares[:, :1] if classes == 2 else shares
        released, variance, plain = predicted_sums(typical, designs, weights)
        return typical.note_of_scores(released, variance[:, 0], plain)
