"""Choice of a bandwidth from released bins, after the noise.

Nothing here reads anything but noised integers and public facts: it is post-processing. What is
published is the function of the bandwidth that cross-validation of the bins finds best. Bounds on
its error hold for all that it was chosen from at once (`Approximation.choices`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from dbern.planning.component_plan import PlannedMeasurement, with_kernels
from dbern.planning.planner import whole_certificate
from dbern.planning.release_plan import ReleasePlan
from dbern.planning.resolved import BoundSpec
from dbern.planning.spec import ReleaseSpec
from dbern.reconstruct.bins import AxisBins
from dbern.targets.bandwidths import lengths_of
from dbern.types import Int64Array


def choose_bandwidth(
    spec: ReleaseSpec, plan: ReleasePlan, released: Callable[[PlannedMeasurement, str], Int64Array]
) -> tuple[ReleasePlan, dict[str, Any]]:
    """Return the plan of a density with the bandwidth that its bins choose, and what it says of it.

    `released` returns the noised integers of a planned measurement and the name of its array.
    """
    from dbern.synopsis.questions.bandwidths import best_kernels  # a release seldom asks
    from dbern.synopsis.questions.envelopes.splines import AxisSplines
    from dbern.synopsis.questions.noisy_measure import NoisyMeasure

    bound = BoundSpec.of(spec, plan.n)
    (measurement,), (planned,) = bound.measurements, plan.components
    candidates, law = measurement.candidates, planned.noise.law
    maps = cast("tuple[AxisBins, ...]", planned.maps)
    splines = tuple(AxisSplines(bins.cells, bins.degree) for bins in maps)
    measures = [
        NoisyMeasure(np.ldexp(released(planned, name).astype(np.float64), law.granularity_exponent),
                splines, law, planned.released_error)
        for name in planned.arrays
    ]  # fmt: skip
    kernels = [candidate.kernels for candidate in candidates]
    best = candidates[best_kernels(measures, kernels, float(plan.n))]
    best_planned = with_kernels(planned, best, bound)
    if best_planned.certificate.total > planned.certificate.total:  # more than the plan promised
        best, best_planned = candidates[0], planned
    certificate = whole_certificate(spec.combination, (best_planned,))
    lengths = [lengths_of(candidate.kernels, spec.domain) for candidate in candidates]
    choice = {"bandwidth": lengths_of(best.kernels, spec.domain), "chosen_of": lengths}
    return replace(plan, components=(best_planned,), certificate=certificate), choice
