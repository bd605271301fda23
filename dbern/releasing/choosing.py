"""Choose a bandwidth from released bins, or bins from released numbers: after their noise.

Nothing here reads anything but noised integers and public facts: it is post-processing. What is
published is the function of the bandwidth that cross-validation of the bins finds best; bounds on
its error hold for all that it was chosen from at once (`Approximation.choices`). Bins are chosen
by numbers that tell how much each candidate misses of the data at hand, before these bins have any
noise: `dbern.planning.tuning`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from dbern.planning.planner import Settings, resolved, whole_certificate, with_kernels
from dbern.planning.plans import PlannedMeasurement, ReleasePlan
from dbern.planning.spec import ReleaseSpec
from dbern.planning.tuning import Told, best_of
from dbern.strategies.bins import AxisBins
from dbern.synopsis.questions.functionals import best_kernels
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
    tried = [candidate.kernels for candidate in candidates]
    best = candidates[best_kernels(measures, tried, float(plan.n))]
    found = with_kernels(planned, best, Settings.of(spec, plan.n, planned.outputs))
    if found.certificate.total > planned.certificate.total:  # more than the plan has promised
        best, found = candidates[0], planned
    whole = whole_certificate(spec.combination, (found,))
    lengths = [lengths_of(one.kernels, spec.domain) for one in candidates]
    facts = {"bandwidth": lengths_of(best.kernels, spec.domain), "chosen_of": lengths}
    return replace(plan, components=(found,), certificate=whole), facts


def prefer(
    spec: ReleaseSpec,
    plan: ReleasePlan,
    released: Callable[[PlannedMeasurement, str], Int64Array],
    decide: Callable[[str, int], int],
) -> tuple[ReleasePlan, PlannedMeasurement]:
    """Return the plan with the bins that its released numbers prefer, and these as they are staged.

    What is preferred is decided once: the bins were charged for once, and a run that preferred
    others would publish what the run before it did not.

    They are published under the name of the first. Of all bins the numbers are published: that of
    the chosen comes last and tells of them, and of the others' readers learn nothing about these.
    """
    numbers = [one for one in plan.components if one.promise]
    staged = {one.name: one for one in plan.components}
    bins = [staged[number.promise["bins"]] for number in numbers]
    told = []
    for one in numbers:
        facts, (granules,) = one.promise, released(one, one.name)
        sizes = int(granules) * one.noise.granularity, one.noise.scale
        missed, unsure = (facts["factor"] * size for size in sizes)
        told.append(Told(facts["noise"], missed, unsure, facts["least"]))
    best = decide("bins", best_of(len(bins[0].maps), told))
    chosen, shown = replace(bins[best], name=bins[0].name), []
    told_of = {"of": list(chosen.arrays)}
    nothing = {**told_of, "factor": 0.0, "rest": chosen.certificate.approximation}
    for number, one in zip(numbers, bins, strict=True):
        facts = told_of if one is bins[best] else nothing
        shown.append(replace(number, promise={**number.promise, **facts}))
    shown.append(shown.pop(best))
    whole = whole_certificate(spec.combination, (chosen,))
    return replace(plan, components=(chosen, *shown), certificate=whole), bins[best]
