"""A dataset's charges in the words of other accountants: events of dp_accounting, as JSON."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dbern.ledger import DatasetStatus, ReleaseRow

_SLACK = 1 - 2.0**-50
_LARGEST = 700  # e^709 is the largest that a float can hold


def composed_event(status: DatasetStatus) -> dict[str, Any]:
    """Return every charge that stands, as one event; each number promises at most what is so.

    A refunded release charges nothing and is left out.
    """
    charged = [one for one in status.releases if one.state.value != "refunded"]
    return {
        "event": "ComposedDpEvent",
        "events": [
            {**_event(one, status), "name": one.name, "charge": str(one.charge), "at": one.created}
            for one in charged
        ],
    }


def _event(one: ReleaseRow, status: DatasetStatus) -> dict[str, Any]:
    """Return the narrowest event of dp_accounting that a charge is known to satisfy.

    Any epsilon-DP mechanism is a post-processing of randomized response on two buckets at epsilon
    (Kairouz, Oh & Viswanath 2015), whose event the library admits for replaced records only.
    Otherwise pure epsilon is zCDP of ``epsilon^2/2``. An epsilon with a delta and no rho has no
    event: what is unsupported makes an accountant refuse, where leaving it out would not.
    """
    pure = not one.charge.delta and status.neighbors.value == "replace-one"
    if pure and status.accountant == "basic":
        noise = _noise(one.charge.epsilon)
        return {"event": "RandomizedResponseDpEvent", "noise_parameter": noise, "num_buckets": 2}
    if one.rho is not None:
        return {"event": "ZCDpEvent", "rho": _rounded_up(one.rho)}
    return {"event": "UnsupportedDpEvent"}


def _noise(epsilon: Fraction) -> float:
    """Return ``2 / (1 + e^epsilon)``, rounded down: with less noise it promises less."""
    above = _rounded_up(epsilon)
    return 2 / (1 + math.exp(above)) * _SLACK if above < _LARGEST else 0.0


def _rounded_up(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)
