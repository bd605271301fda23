"""Choose a bandwidth from released bins: after the noise, before they are written.

Nothing here reads anything but noised integers and public facts: it is post-processing. What is
published is the function of the bandwidth that cross-validation of the bins finds best; bounds on
its error hold for all that it was chosen from at once (`Approximation.choices`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from dbern.planning.planner import Settings, resolved, whole_certificate, with_kernels
from dbern.planning.plans import PlannedMeasurement, ReleasePlan
from dbern.planning.spec import ReleaseSpec
from dbern.strategies.bins import AxisBins
from dbern.synopsis.questions.functionals import cross_validation
from dbern.synopsis.questions.measure import Measure
from dbern.synopsis.questions.splines import AxisSplines
from dbern.targets.bandwidths import lengths_of
from dbern.types import Int64Array


def chosen(
    spec: ReleaseSpec,
    plan: ReleasePlan,
    released: Callable[[PlannedMeasurement, str], Int64Array],
) -> tuple[ReleasePlan, dict[str, Any]]:
    """Return the plan of a density with the bandwidth that its bins choose, and what to tell of it.

    Parameters
    ----------
    released : callable
        Of a planned measurement and the name of its array: the noised integers.
    """
    (component,), (planned,) = spec.components, plan.components
    candidates, law = resolved(component, plan.n, spec).candidates, planned.noise.law
    maps = cast("tuple[AxisBins, ...]", planned.maps)
    splines = tuple(AxisSplines(one.cells, one.degree) for one in maps)
    measures = [
        Measure(np.ldexp(released(planned, name).astype(np.float64), law.granularity_exponent),
                splines, law, planned.released_error)
        for name in planned.arrays
    ]  # fmt: skip
    estimates = [
        sum(cross_validation(one, candidate.kernels, float(plan.n)) for one in measures)
        for candidate in candidates
    ]
    best = candidates[int(np.argmin(estimates))]
    found = with_kernels(planned, best, Settings.of(spec, plan.n, planned.outputs))
    if found.certificate.total > planned.certificate.total:  # more than the plan has promised
        best, found = candidates[0], planned
    whole = whole_certificate(spec.combination, (found,))
    lengths = [lengths_of(one.kernels, spec.domain) for one in candidates]
    facts = {"bandwidth": lengths_of(best.kernels, spec.domain), "chosen_of": lengths}
    return replace(plan, components=(found,), certificate=whole), facts
