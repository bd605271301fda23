"""``StreamPlan``: what a stream will release and cost, and how its totals err, night by night."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

from dbern.ask.labels import change_text
from dbern.nights.horizon import Horizon, StreamNode
from dbern.nights.section import horizon_of, noise_factor
from dbern.nights.windows import running_variances
from dbern.planning.planner import plan_files
from dbern.planning.release_plan import ReleasePlan, memory_text, warnings_of
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.budget import Budget
from dbern.system import counted, format_number
from dbern.types import FloatArray

_TABLE_NIGHTS = (1, 7, 30, 91, 182, 365)


@dataclass(frozen=True)
class StreamPlan:
    """A stream, resolved: its horizon, and the one plan of all its nodes.

    `name` is the stream's; a unit counts in at most `max_nights`, as stated or as `enforced`.
    `first` is the first night of the spec; where it has none, that of `horizon` means nothing.
    """

    name: str
    horizon: Horizon
    node: ReleasePlan
    max_nights: int
    enforced: bool
    first: date | None

    @property
    def charge(self) -> Budget:
        """Charge of the whole horizon, once."""
        return self.node.charge

    @property
    def node_deviation(self) -> float:
        """Deviation of one bin of one node, in rows."""
        noise, unit = self.node.noise, self.node.components[0].unit
        return noise.covariance.deviation / unit * self.node.n

    @property
    def deviations(self) -> FloatArray:
        """Deviations of one bin's totals up to each night, in rows."""
        horizon = self.horizon
        return self.node_deviation * np.sqrt(running_variances(horizon.count, horizon.levels))

    @property
    def nightly_deviations(self) -> FloatArray:
        """Deviations of the same totals, of nights released each by itself at the same charge."""
        return self._single_deviation * np.sqrt(np.arange(1, self.horizon.count + 1))

    @property
    def repeated_deviation(self) -> float:
        """Deviation of the same totals, each released anew for an equal part of the charge."""
        return self._single_deviation * noise_factor(self.charge, self.horizon.count)

    @property
    def _single_deviation(self) -> float:
        """Deviation of a release that has the whole charge."""
        return self.node_deviation / noise_factor(self.charge, len(self.horizon.levels))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; deviations are in rows, one for each night."""
        return {
            "name": self.name,
            "horizon": self.horizon.count,
            "first": self.first and str(self.first),
            "last": self.first and str(self.horizon.day(self.horizon.count - 1)),
            "levels": list(self.horizon.levels),
            "max_nights": self.max_nights,
            "enforced": self.enforced,
            "deviations": self.deviations.tolist(),
            "nightly_deviations": self.nightly_deviations.tolist(),
            "repeated_deviation": self.repeated_deviation,
            "node": self.node.to_dict(),
        }

    def explain(self, *, details: bool = False) -> str:
        """Return the plan in words and numbers: six lines, or with `details` all of it."""
        if not details:
            return "\n".join(f"{label:<10}{text}" for label, text in self._summary_lines())
        horizon, charge = self.horizon, self.charge
        blocks = " and ".join(f"blocks of {size}" for size in horizon.levels[1:])
        levels = f"nights and {blocks}" if blocks else "nights alone"
        lines = [
            f"stream       {self.name}: {horizon.count} nights for {charge}, once, at the first",
            f"             {levels}: a row is in {len(horizon.levels)} of "
            f"{len(horizon.nodes())} releases, whose noise hides it in all of them together",
            f"             {self._day_text()}; a later night is another stream's, of another name",
            *self._protection_lines(),
            "",
            "total up to   noise in rows: stream  each night by itself   all again",
            *self._table_lines(),
            f"             root of the mean square over all nights: {_rms(self.deviations):.4g}, "
            f"{_rms(self.nightly_deviations):.4g}, {self.repeated_deviation:.4g}",
            "",
            "each release",
            self.node.explain(details=True),
        ]
        return "\n".join(lines)

    def _summary_lines(self) -> list[tuple[str, str]]:
        node, nights = self.node, self._nights_among((1, 7, 365))
        start = self.first or "the first one released"
        of_stream = [f"{self.deviations[night - 1]:.2g} after {night}" for night in nights]
        of_nights = [f"{self.nightly_deviations[night - 1]:.2g}" for night in nights]
        return [
            (f"{self.name}: ", f"{node.title}, {self.horizon.count} nights from {start}"),
            *warnings_of(node.notes),
            ("costs", f"{node.guarantee} of dataset {node.dataset}, once for all nights; a later "
             "one needs a new stream"),
            ("protects", f"{change_text(node.protection)}, {self._protected_nights()}"),
            ("error", f"noise of one bin's total, in rows: {', '.join(of_stream)} nights"),
            ("", f"(each night by itself: {', '.join(of_nights)}; all again each night: "
             f"{self.repeated_deviation:.3g})"),
            ("takes", f"sums over {format_number(node.n)} rows a night; {memory_text(node)}"),
        ]  # fmt: skip

    def _protected_nights(self) -> str:
        if self.node.protection.unit.column is None:
            return "in the one night in which it arrives"
        nights = counted(self.max_nights, "night")
        if self.enforced:
            return f"in at most {nights}: rows in more are left out"
        return f"in at most {nights}, which is stated and not enforced"

    def _nights_among(self, nights: Iterable[int]) -> list[int]:
        """Return those of the nights, counted from 1, that are before the last, and the last."""
        count = self.horizon.count
        return sorted({night for night in nights if night < count} | {count})

    def _day_text(self) -> str:
        if self.first is None:
            return "its first night is the one that is released first"
        return f"its nights are {self.first} to {self.horizon.day(self.horizon.count - 1)}"

    def _protection_lines(self) -> list[str]:
        unit = self.node.protection.unit
        if unit.column is None:
            return ["             what is hidden is one row, which arrives in one night"]
        hidden = (
            f"             what is hidden is one {unit.column}, whose rows count up to "
            f"{unit.max_contributions} a night,"
        )
        if self.enforced:
            return [
                hidden,
                f"             enforced: rows of a {unit.column} in more than {self.max_nights} "
                "nights of the horizon are left out, so this holds for everybody",
            ]
        return [
            hidden,
            f"             stated and not enforced: in at most {self.max_nights} nights of the "
            "horizon; of one with rows in q nights q times as much is told",
        ]

    def _table_lines(self) -> list[str]:
        of_stream, of_nights = self.deviations, self.nightly_deviations
        return [
            f"night {night:<5} {of_stream[night - 1]:>21.4g}{of_nights[night - 1]:>21.4g}"
            f"{self.repeated_deviation:>12.4g}"
            for night in self._nights_among(_TABLE_NIGHTS)
        ]


def plan_stream(spec: ReleaseSpec) -> StreamPlan:
    """Plan a stream from its spec alone: no file is looked at, and no record read.

    Blocks do not depend on the first night, so any will do.
    """
    section = spec.stream_section
    first = section.first or datetime.now(UTC).date()
    horizon = horizon_of(section, first, spec.charge)
    first_night = StreamNode(spec.release.name, horizon, horizon.node(0, 0))
    plan = plan_files(spec.at(first_night), ())
    return StreamPlan(
        spec.release.name, horizon, plan, section.max_nights, section.enforce, section.first
    )


def _rms(values: FloatArray) -> float:
    return math.sqrt(float(np.square(values).mean()))
