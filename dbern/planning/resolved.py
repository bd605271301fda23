"""The public number of rows, and what a spec says once it is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from dbern.data.footers import Footer
from dbern.errors import SpecError
from dbern.measure.accumulator import most_rows
from dbern.measure.statistic import Statistic
from dbern.planning.predicted import Questions, Reference
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.budget import Budget


def public_rows(spec: ReleaseSpec, files: Sequence[Footer]) -> int:
    """Return the divisor of sums: the spec's normalizer, or the public number of rows.

    Raises SpecError where spec and footers disagree on that, or there are no rows, or too many.
    """
    counted = sum(file.rows for file in files)
    if spec.normalizer is not None:
        if counted > most_rows(spec.normalizer):
            raise SpecError(
                f"data.source: more than {most_rows(spec.normalizer)} rows are not available with "
                f'normalizer = "{spec.normalizer}". Write a larger one, or split the source.'
            )
        return spec.normalizer
    stated = spec.data.n
    if files and stated is not None and stated != counted:
        raise SpecError(
            f"data.n: the spec says {stated} rows and there are {counted}. "
            f"Write n = {counted}, or leave it out."
        )
    if not files and stated is None:
        raise SpecError(
            "data.n: is missing. Write n = 2000000, the public number of rows, which nothing else "
            "tells before they are read."
        )
    n = stated if stated is not None else counted
    if n == 0:
        raise SpecError("data.source: there are no rows. Write a source with at least one row.")
    if n.bit_length() > 45:
        raise SpecError(
            "data.source: more than 2^45 rows are not available in this version. Split the source."
        )
    return n


def spec_for_rows(spec: ReleaseSpec, n: int) -> ReleaseSpec:
    """Return the spec with what its learner chooses for a public number of rows."""
    if not spec.learner.chooses:
        return spec
    rows = spec.protection.unit.max_contributions
    a_row = replace(spec.charge, epsilon=spec.charge.epsilon / rows)
    params = spec.learner.for_rows(spec.records, n, a_row).get_params()
    stated = spec.learner.get_params()
    chosen = {name: value for name, value in params.items() if value != stated[name]}
    return spec.changed({"target": chosen}) if chosen else spec


@dataclass(frozen=True)
class ResolvedSpec:
    """A spec bound to a public number of rows: all that a plan depends on.

    `statistics` are those that the learner releases of so many rows. `reference` is the spec's
    public density, which is imported once.
    """

    spec: ReleaseSpec
    n: int
    charge: Budget
    statistics: tuple[Statistic, ...]
    reference: Reference | None

    @classmethod
    def of(cls, spec: ReleaseSpec, n: int) -> Self:
        """Let the learner choose for n rows, and bind its statistics to them."""
        spec = spec_for_rows(spec, n)
        statistics = tuple(statistic.bind(n, spec.charge) for statistic in spec.components)
        return cls(spec, n, spec.charge, statistics, spec.reference)

    @property
    def for_window(self) -> Self:
        """Return what designs are chosen for: itself, or of a stream the total of many nights."""
        spec = self.spec.for_window()
        return self if spec is self.spec else type(self).of(spec, spec.normalizer or self.n)

    @property
    def num_outputs(self) -> int:
        """Number of released functions, whose certificates hold at once."""
        return sum(statistic.outputs for statistic in self.statistics)

    @property
    def certified(self) -> bool:
        """Whether the error of the worst database is to be small, and not that of a typical one."""
        return self.spec.mechanism.objective == "certified"

    @property
    def questions(self) -> Questions | None:
        """Questions that bins answer beside the function."""
        names = self.spec.mechanism.questions
        return Questions.of(names) if names else None
