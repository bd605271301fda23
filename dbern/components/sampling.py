"""The sensitivity sampler: how far made-up neighbours are apart, for random differential privacy.

The theorem and what it is worth are in `dbern.privacy.random_privacy`. Distances are those of the
function as it is computed, cut to its bounds, on the lattice that is released.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np

from dbern.arrays import FloatArray
from dbern.bernstein.kernels import OUTWARD
from dbern.components.black_box_statistics import BlackBoxStatistic
from dbern.components.counting import StoppedError
from dbern.components.made_up import uniform_records
from dbern.components.user_functions import FUNCTION, load
from dbern.errors import SpecError
from dbern.functions import named_function
from dbern.privacy.budget import Budget
from dbern.privacy.mechanism import public_stream, uniform
from dbern.privacy.random_privacy import RandomPrivacy, order_statistic

UNIFORM = "uniform"
_KEY = "target.sensitivity.distribution"


@dataclass(frozen=True)
class Sampling:
    """How a sensitivity is estimated.

    Parameters
    ----------
    distribution : str
        P: "uniform", or ``module:name`` of a function ``(rows, uniform) -> (rows, columns)``, where
        ``uniform(count)`` gives independent numbers in [0, 1), its only source of randomness.
    gamma : Fraction
        Share of neighbours that may be left out.
    samples : int
        How many pairs.
    seed : int
        Public: the pairs follow from it.
    """

    distribution: str
    gamma: Fraction
    samples: int
    seed: int

    @property
    def order(self) -> int:
        """Which of the sorted distances is taken."""
        return order_statistic(self.samples, self.gamma)

    def guarantee(self, budget: Budget) -> RandomPrivacy:
        """What noise for the sampled distance gives."""
        return RandomPrivacy(
            budget, self.gamma, self.distribution, self.samples, self.order, self.seed
        )


def load_distribution(name: str) -> Callable[..., Any]:
    """The public distribution that a spec names.

    Raises
    ------
    SpecError
        Where it cannot be imported.
    """
    return named_function(name, _KEY, "of (rows, uniform)")


@lru_cache(maxsize=16)
def sampled_distances(
    statistic: BlackBoxStatistic, sampling: Sampling
) -> tuple[float, float, float]:
    """Order statistics of the sup, l1 and l2 distances of neighbours' lattice values, each alone.

    Raises
    ------
    SpecError
        Where the distribution or the function fails.
    """
    component = statistic.component
    called = load(component.function)
    found = np.empty((sampling.samples, 3))
    for pair in range(sampling.samples):
        records = _drawn(statistic, sampling, component.n + 1, pair)
        try:
            one = statistic.values(called, np.delete(records, -1, axis=0))
            other = statistic.values(called, np.delete(records, -2, axis=0))
        except StoppedError:
            raise SpecError(
                f"{FUNCTION}: fails on records drawn from {sampling.distribution}; mend it, or "
                f"write on_failure = {component.low}"
            ) from None
        apart = np.abs(one - other)
        found[pair] = apart.max(), apart.sum(), np.sqrt((apart**2).sum())
    sup, l1, l2 = (OUTWARD * np.sort(found, axis=0)[sampling.order - 1]).tolist()
    return sup, l1, l2


def _drawn(statistic: BlackBoxStatistic, sampling: Sampling, rows: int, pair: int) -> FloatArray:
    """Records (rows, columns) of one pair: the last two are its difference."""
    stream = public_stream(f"sensitivity sampler, seed {sampling.seed}", pair)
    ranges = statistic.component.ranges
    if sampling.distribution == UNIFORM:
        return uniform_records(ranges, rows, stream)
    draw = load_distribution(sampling.distribution)
    try:
        records = np.asarray(draw(rows, partial(uniform, stream)), dtype=np.float64)
    except Exception as error:  # noqa: BLE001 -- another's function may fail in any way
        raise SpecError(
            f'{_KEY}: "{sampling.distribution}" fails ({type(error).__name__}); mend it: it takes '
            "(rows, uniform) and returns (rows, columns)"
        ) from None
    if records.shape != (rows, len(ranges)):
        raise SpecError(
            f'{_KEY}: "{sampling.distribution}" gives shape {records.shape}; return '
            f"({rows}, {len(ranges)})"
        )
    return records
