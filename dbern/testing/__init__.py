"""Search for a counterexample to a learner's sensitivity: neighbours whose integers part too far.

``search(MyLearner, spec)`` makes small databases at the edges of what the spec allows, counts them
as a release does, and compares how far the integers of neighbours are apart with what the plan
calibrates its noise to. A search proves nothing. It finds what a proof forgot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dbern.errors import SpecError
from dbern.planning.planner import plan_files
from dbern.planning.spec import ReleaseSpec
from dbern.targets import Learner, known
from dbern.testing.counts import distance_ratios, integers_of_each
from dbern.testing.databases import Database, neighbor_families, small_spec

__all__ = ["Search", "search"]


@dataclass(frozen=True)
class Search:
    """Result of a search.

    Attributes
    ----------
    pairs : int
        Neighbouring databases that were compared.
    largest : float
        The largest distance of their integers over what the noise is calibrated to; above 1 the
        learner is not private, and far below 1 it may waste budget.
    component : str
        Whose integers these are.
    worst : pair of tuples of records
        The two databases; values are what a counter is given, of categories their position.
    """

    pairs: int
    largest: float
    component: str
    worst: tuple[Database, Database]

    @property
    def found(self) -> bool:
        """Whether the two are a counterexample."""
        return self.largest > 1

    def __str__(self) -> str:
        verdict = "a COUNTEREXAMPLE" if self.found else "no counterexample"
        before, after = (" and ".join(map(str, map(dict, side))) or "none" for side in self.worst)
        return (
            f"{verdict} among {self.pairs} pairs: {self.component} moved by {self.largest:.3f} of "
            f"its sensitivity, from records {before} to {after}"
        )


def search(learner: type[Learner], spec: ReleaseSpec | Mapping[str, Mapping[str, Any]]) -> Search:
    """Look for neighbouring databases whose released integers part farther than the plan says.

    Records lie on edges, corners and middles of the domain, one float inside and outside of them,
    far outside, at infinity and nowhere, with every class and group, none, and every kind of
    response. Neighbours are those of the spec: one record replaced, or added or removed, or all
    records of a unit.

    Parameters
    ----------
    learner : subclass of Learner
        No package of it need be installed.
    spec : ReleaseSpec, or a mapping of its sections
        Its n or normalizer becomes 2. Of a mapping, `data.source`, `release`, `budget` and
        `target.kind` may be left out.

    Raises
    ------
    SpecError
        Where the spec cannot be planned.

    Examples
    --------
    >>> from dbern.targets import KernelDensity
    >>> found = search(KernelDensity, {
    ...     "data": {"bounds": {"x": [0.0, 10.0]}}, "target": {"bandwidth": [2.0]},
    ...     "mechanism": {"k": 12, "h": 2, "noise": "laplace"},
    ... })
    >>> found.found, 0.5 < found.largest <= 1, found.component
    (False, True, 'density')
    """
    with known(learner):
        small = small_spec(spec, learner.kind)
    plan = plan_files(small, ())
    if plan.counters(small).keyed:
        raise SpecError(
            "target.method: what is released is private by noise that enters before it is "
            'computed, which integers of neighbours do not show. Write method = "weights", or of '
            'least squares "moments".'
        )
    worst: Search | None = None
    pairs = 0
    for databases, everyone in neighbor_families(small):
        staged = integers_of_each(small, plan, databases)
        for index, planned in enumerate(plan.components):
            rows = np.array([counts[index] for counts in staged])
            # Of records added or removed, the first database has none of them.
            ratios = distance_ratios(rows if everyone else rows[:1], rows, planned)
            i, j = np.unravel_index(int(ratios.argmax()), ratios.shape)
            pairs += ratios.size if index == 0 else 0
            if worst is None or ratios[i, j] > worst.largest:
                pair = databases[i], databases[j]
                worst = Search(0, float(ratios[i, j]), planned.name, pair)
    if worst is None:
        raise SpecError("target.kind: releases nothing. In the learner, return a component")
    return Search(pairs, worst.largest, worst.component, worst.worst)
