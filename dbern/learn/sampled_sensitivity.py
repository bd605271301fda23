"""Sensitivity of a user's function, estimated by distances of made-up neighbours.

It is for random differential privacy: the theorem and what it is worth are in
`dbern.privacy.random_privacy`. Distances are those of the function as it is computed, cut to its
bounds, on the lattice that is released.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.errors import SpecError
from dbern.learn.lattice_values import BlackBoxAccumulator
from dbern.learn.user_functions import FUNCTION, load, uniform_records
from dbern.measure.accumulator import StoppedError
from dbern.privacy.budget import Budget
from dbern.privacy.public_numbers import public_stream, uniform
from dbern.privacy.random_privacy import RandomPrivacy, order_statistic
from dbern.system import named_function
from dbern.types import FloatArray

UNIFORM = "uniform"
_KEY = "target.sensitivity.distribution"


@dataclass(frozen=True)
class Sampling:
    """Parameters of an estimated sensitivity.

    `distribution` P is "uniform", or ``module:name`` of a function ``(rows, uniform) -> (rows,
    columns)``, where ``uniform(count)`` gives independent numbers in [0, 1), its only source of
    randomness. `gamma` is the fraction of neighbours that may be left out; `samples` pairs follow
    from the public `seed`.
    """

    distribution: str
    gamma: Fraction
    samples: int
    seed: int

    @property
    def order(self) -> int:
        """Rank of the distance, among the sorted ones, that is used."""
        return order_statistic(self.samples, self.gamma)

    def guarantee(self, budget: Budget) -> RandomPrivacy:
        """Guarantee of noise for the sampled distance."""
        return RandomPrivacy(
            budget, self.gamma, self.distribution, self.samples, self.order, self.seed
        )


def load_distribution(name: str) -> Callable[..., Any]:
    """The public distribution that a spec names; a SpecError where it cannot be imported."""
    return named_function(name, _KEY, "of (rows, uniform)")


@lru_cache(maxsize=16)
def sampled_distances(
    accumulator: BlackBoxAccumulator, sampling: Sampling
) -> tuple[float, float, float]:
    """Order statistics of the sup, l1 and l2 distances of neighbours' lattice values, each alone.

    Raises SpecError where the distribution or the function fails.
    """
    user = accumulator.user
    function = load(user.function)
    distances = np.empty((sampling.samples, 3))
    for pair in range(sampling.samples):
        records = _draw_records(accumulator, sampling, user.n + 1, pair)
        try:
            values = accumulator.values(function, np.delete(records, -1, axis=0))
            neighbour_values = accumulator.values(function, np.delete(records, -2, axis=0))
        except StoppedError:
            raise SpecError(
                f"{FUNCTION}: fails on records drawn from {sampling.distribution}. Mend it, or "
                f"write on_failure = {user.low}"
            ) from None
        differences = np.abs(values - neighbour_values)
        distances[pair] = differences.max(), differences.sum(), np.sqrt((differences**2).sum())
    sup, l1, l2 = (OUTWARD * np.sort(distances, axis=0)[sampling.order - 1]).tolist()
    return sup, l1, l2


def _draw_records(
    accumulator: BlackBoxAccumulator, sampling: Sampling, rows: int, pair: int
) -> FloatArray:
    """Records (rows, columns) of one pair: the last two are its difference."""
    stream = public_stream(f"sensitivity sampler, seed {sampling.seed}", pair)
    ranges = accumulator.user.ranges
    if sampling.distribution == UNIFORM:
        return uniform_records(ranges, rows, stream)
    draw = load_distribution(sampling.distribution)
    try:
        records = np.asarray(draw(rows, partial(uniform, stream)), dtype=np.float64)
    except Exception as error:  # noqa: BLE001 -- another's function may fail in any way
        raise SpecError(
            f'{_KEY}: "{sampling.distribution}" fails ({type(error).__name__}). Mend it: it takes '
            "(rows, uniform) and returns (rows, columns)"
        ) from None
    if records.shape != (rows, len(ranges)):
        raise SpecError(
            f'{_KEY}: "{sampling.distribution}" gives shape {records.shape}; return '
            f"({rows}, {len(ranges)})"
        )
    return records
