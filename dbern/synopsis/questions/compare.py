"""Difference of the shares of rows in regions between two releases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dbern.failure import Account
from dbern.synopsis.questions.answers import Answer
from dbern.synopsis.questions.asking import ReleasedBins, cells_note
from dbern.synopsis.questions.mass import Mass
from dbern.synopsis.questions.regions import Region, region_text


def compare_shares(
    bins: ReleasedBins, other: ReleasedBins, region: Region, beta: float | str | None
) -> Answer:
    """Return the share in a region here less that there, each at half of beta."""
    level = bins.take(beta)
    here, there = (
        replace(side, account=Account(level)).ask(Mass.read(side, region), str(level / 2))
        for side in (bins, other)
    )
    return Answer(
        here.value - there.value,
        here.low - there.high,
        here.high - there.low,
        *("records", "these-data", float(level)),
        f"share of the rows in {region_text(region)}, less that of {other.name}"
        f"{bins.of_rounded_rows}",
        likely_error=np.hypot(here.likely_error, there.likely_error),
        note=cells_note(None) if here.note or there.note else "",
        percent="percentage points",
    )
