"""Predict the errors of given plans with the `dbern` of a checkout: ``goldens plans --predictor``.

It is run with the code of an older checkout, which does not change any more, and names functions of
that code: `dbern.planning` as it is at commit 71574cf and for as long as they are called so.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from goldens.plans import spec_of
from goldens.recording import require_tree


def predicted(entry: dict[str, Any], content: dict[str, Any] | None) -> dict[str, Any]:
    """Expected error and band of evenly spread records, of the design that a plan has."""
    from dbern.planning.planner import Settings, problem_of, resolved
    from dbern.planning.plans import ReleasePlan, outlook_of, spec_for_rows
    from dbern.privacy.families import family_of

    if content is None:
        return {}
    plan = ReleasePlan.from_dict(content)
    spec = spec_for_rows(spec_of(entry), plan.n)
    measurements = [resolved(measurement, plan.n, spec) for measurement in spec.components]
    settings = Settings.of(spec, plan.n, sum(each.outputs for each in measurements))
    components = plan.components[: len(measurements)]
    families = {planned.name: family_of(planned.noise.law) for planned in components}
    outlook = outlook_of(
        list(zip(measurements, components, strict=True)),
        spec.combination,
        spec.domain,
        lambda measurement: problem_of(measurement, settings, families[measurement.name]),
        plan.components[len(measurements) : len(measurements) + 1],
    )
    return {"expected": outlook.expected, "these_data": outlook.these_data}


if __name__ == "__main__":
    require_tree(sys.argv[1])
    print(json.dumps([predicted(*pair) for pair in zip(*json.load(sys.stdin), strict=True)]))
