"""Random differential privacy: the weaker guarantee of an estimated sensitivity.

*Definition* (Hall, Rinaldo and Wasserman 2012; Rubinstein and Alda 2017). Draw n + 1 records
independently from a public distribution P; D is the first n, D' the first n - 1 and the last. A
mechanism M is (epsilon, delta, gamma)-random DP if with probability at least ``1 - gamma`` over
these records (and over the sampler's own draws) ``Pr(M(D) in T) <= e^epsilon Pr(M(D') in T) +
delta`` for every T. Of the databases that exist it says nothing, unless they were drawn from P.

*The sensitivity sampler* (Rubinstein and Alda 2017, Algorithm 2). Draw m such pairs, let ``G_1 <=
.. <= G_m`` be how far the released values of the two are apart, and calibrate the noise to ``G_k``.

*Theorem*. This is (epsilon, delta, gamma)-random DP if for some rho in (0, 1/2] ::

    k >= m (1 - gamma + rho + sqrt(ln(1/rho) / (2 m))).

*Proof*. Let W be the distribution function of the distance G of a fresh pair and W_m the empirical
one. By the one-sided inequality of Dvoretzky, Kiefer and Wolfowitz with Massart's constant,
``Pr(sup (W_m - W) > t) <= exp(-2 m t^2)`` where that is at most 1/2. With ``t = sqrt(ln(1/rho) /
(2 m))`` it is rho: so with probability at least ``1 - rho`` over the m pairs ``W(G_k) >= W_m(G_k)
- t >= k/m - t >= 1 - gamma + rho``. Then a fresh pair has ``G <= G_k`` with at least that
probability, and where it has, noise calibrated to G_k is (epsilon, delta)-DP for it. Both together
have probability at least ``(1 - rho)(1 - gamma + rho) = 1 - gamma + rho (gamma - rho)``, and as k
is at most m, gamma exceeds rho. (The seed is public: for all but a share rho of seeds the release
is, given its seed, (epsilon, delta, gamma - rho)-random DP.)

*Choices*. Any rho is proved, so it is chosen for the smallest k: ``rho + sqrt(ln(1/rho)/(2 m))`` is
least where ``8 m rho^2 ln(1/rho) = 1``: ``rho = exp(W_{-1}(-1/(4 m)) / 2)`` in the paper. The
fewest samples are the least m with k at most m, which is the paper's ``ln(1/rho) / (2 (gamma -
rho)^2)``, rounded up, at its smallest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from dbern.errors import SpecError
from dbern.privacy.budget import Budget, decimal_text

MOST_SAMPLES: Final = 10_000_000

_MARGIN = 1 + 1e-12  # far above the floats' error of an order
_HALVINGS = 80


@dataclass(frozen=True)
class RandomPrivacy:
    """An (epsilon, delta, gamma) guarantee: not differential privacy, see the module.

    Parameters
    ----------
    budget : Budget
        What holds for all but gamma of the neighbours that the distribution draws.
    gamma : Fraction
    distribution : str
        P: "uniform" over the public ranges, or ``module:name``.
    samples, order, seed : int
        m and k, and what the pairs follow from.

    Examples
    --------
    >>> str(RandomPrivacy(Budget.parse("1"), Fraction(1, 10), "uniform", 285, 284, 1))
    'RANDOM DP only: epsilon 1 for all but gamma 0.1 of neighbours drawn from uniform'
    """

    budget: Budget
    gamma: Fraction
    distribution: str
    samples: int
    order: int
    seed: int

    def __str__(self) -> str:
        return (
            f"RANDOM DP only: {self.budget} for all but gamma {decimal_text(self.gamma)} of "
            f"neighbours drawn from {self.distribution}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values, but for the budget."""
        return {
            "guarantee": "random differential privacy",
            "gamma": decimal_text(self.gamma),
            "distribution": self.distribution,
            "samples": self.samples,
            "order": self.order,
            "seed": self.seed,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], budget: Budget) -> RandomPrivacy:
        """Read what `to_dict` wrote."""
        return cls(
            budget,
            Fraction(content["gamma"]),
            content["distribution"],
            content["samples"],
            content["order"],
            content["seed"],
        )


def order_statistic(samples: int, gamma: Fraction) -> int:
    """k of the theorem for m samples; above m where they are too few."""
    rho = _best_rho(samples)
    share = 1 - float(gamma) + rho + math.sqrt(math.log(1 / rho) / (2 * samples))
    return math.ceil(samples * share * _MARGIN)


def fewest_samples(gamma: Fraction) -> int:
    """The least m whose order statistic exists.

    Raises SpecError for a gamma that is not between 0 and 1, or needs more than 10^7 samples.
    """
    if not 0 < gamma < 1 or order_statistic(MOST_SAMPLES, gamma) > MOST_SAMPLES:
        raise SpecError(
            'target.sensitivity.gamma: must be above 0.001 and below 1. Write gamma = "0.1"'
        )
    low, high = 0, MOST_SAMPLES
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if order_statistic(middle, gamma) <= middle else (middle, high)
    return high


def _best_rho(samples: int) -> float:
    """The rho below 1/2 with ``8 m rho^2 ln(1/rho) = 1``, which rises up to ``rho = e^{-1/2}``.

    At 1/2 it is ``1.38 m``, above one.
    """
    low, high = 0.0, 0.5
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        falls = 8 * samples * middle**2 * math.log(1 / middle) < 1
        low, high = (middle, high) if falls else (low, middle)
    return high
