"""The families of noise: a law, its names in a spec, and functions that only accuracy rests on.

A new law is a file beside this one, and a `NoiseFamily` of it here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np

from dbern.errors import SpecError
from dbern.privacy.accuracy import (
    Covariance,
    gaussian_tail,
    gaussian_weighted_tail,
    independent_draws,
    k_norm_covariance,
    k_norm_draws,
    tail,
    weighted_tail,
)
from dbern.privacy.budget import Budget
from dbern.privacy.calibration import MOST_VALUES, GaussianNoise, KNormNoise, LaplaceNoise
from dbern.privacy.contract import Calibrated, Contract, law_of
from dbern.privacy.curves import squared_for
from dbern.privacy.keystream import KeyStream
from dbern.privacy.mechanism import Noise
from dbern.types import FloatArray

Draw: TypeAlias = Callable[[int, int, KeyStream], FloatArray]
"""Of how many values, how many vectors, and a stream: granules, (values, vectors)."""

Drawn: TypeAlias = Callable[[Any, int, int, KeyStream], FloatArray]
"""The same of a law."""


@dataclass(frozen=True)
class NoiseFamily:
    """One kind of noise, and everything that differs between kinds.

    `law` is the type of its calibrated noise, whose `kind` is written into plans and synopses.
    `norm` is that of the sensitivity it is calibrated to: 1, 2, or infinity for any one value.
    `kinds` maps what a strategy releases (`Strategy.kind`) to the name in ``mechanism.noise`` and
    plans; the names of all other strategies' noise end with `others`, "" where it is for none of
    them. `with_delta`: for a budget with a delta. `weighting` is that of spectral coordinates.

    ``ratio(budget)`` is the scale of the noise for sensitivity one; ``covariance(values)`` that of
    a component's noise at scale one, where one joint draw has so many values; ``scale(law)`` and
    ``moved(law)`` are the law's scale and the sensitivity it is calibrated to, in granules.
    ``tail(law, count, beta)`` is reached by none of so many draws with probability ``1 - beta``.
    ``node_tail(law, a, m, level)`` are granules that ``sum_j c_j X_j`` reaches with probability at
    most ``exp(-level)``, for ``|c|_2 <= a`` and ``|c|_inf <= m``, which bounds noise at nodes;
    `weighted_tail` is the same for many a and m, at once and without a search. ``rho(law)`` is its
    zCDP, where that is what it is calibrated to. ``drawn(law, size, draws, stream)`` are
    independent draws of so many values of one output, in granules, (size, draws).

    `most_values` is the most a component may have. `sides`: it is for what `Sensitivity.sides`
    says. `automatic`: "auto" means it. `by_function`: the sensitivity is that of the function for
    each value, as in the paper. `calibrated`, of a law of its own, is as in `law_of`.
    """

    law: type[Any]
    norm: float
    kinds: Mapping[str, str]
    with_delta: bool
    weighting: float
    ratio: Callable[[Budget], float]
    covariance: Callable[[float], Covariance]
    scale: Callable[[Any], int]
    moved: Callable[[Any], float]
    tail: Callable[[Any, int, Fraction], float]
    node_tail: Callable[[Any, float, float, float], float]
    weighted_tail: Callable[[Any, FloatArray, FloatArray, float], FloatArray]
    rho: Callable[[Any], Fraction] | None = None
    drawn: Drawn = independent_draws
    most_values: float = math.inf
    sides: bool = False
    automatic: bool = True
    by_function: bool = False
    calibrated: Calibrated | None = None
    others: str = ""

    @property
    def plain(self) -> str:
        """Name of the noise of lattice values and of vectors."""
        return self.kinds[""]

    def names(self, kinds: Iterable[str]) -> dict[str, str]:
        """Names of its noise by what is released, where `kinds` are those of other strategies."""
        others = {kind: f"{kind}-{self.others}" for kind in kinds} if self.others else {}
        return {**self.kinds, **others}

    @property
    def values_norm(self) -> int:
        """The norm in which the move of all values is bounded."""
        return 2 if self.norm == 2 else 1

    def calibrate(self, contract: Contract, charge: Budget) -> Noise:
        """The law that makes the contract's integers private for its fraction."""
        return law_of(contract, charge, self.calibrated)


def _laplace_node_tail(law: LaplaceNoise, a: float, m: float, level: float) -> float:
    shares = np.linspace(0.001, 0.999, 999)  # of 1 / (s m); any u < 1 / (s m) is valid
    exponents = (shares * a / m) ** 2 / (1 - shares**2)
    return law.scale * m * float(((level + exponents) / shares).min())


LAPLACE: Final = NoiseFamily(
    law=LaplaceNoise,
    norm=1,
    kinds={"": "laplace"},
    others="laplace",
    with_delta=False,
    weighting=0.25,
    ratio=lambda budget: 1 / float(budget.epsilon),
    covariance=lambda values: Covariance(math.sqrt(2)),  # noqa: ARG005
    scale=lambda law: law.scale,
    moved=lambda law: float(law.l1_sensitivity_granules),
    tail=tail,
    node_tail=_laplace_node_tail,
    weighted_tail=weighted_tail,
)
GAUSSIAN: Final = NoiseFamily(
    law=GaussianNoise,
    norm=2,
    kinds={"": "discrete-gaussian"},
    others="gaussian",
    with_delta=True,
    weighting=0.5,
    ratio=lambda budget: 1 / math.sqrt(squared_for(budget.epsilon, budget.delta)),
    covariance=lambda values: Covariance(1.0),  # noqa: ARG005
    scale=lambda law: law.sigma,
    moved=lambda law: math.sqrt(law.l2_sensitivity_granules_squared),
    tail=gaussian_tail,
    node_tail=lambda law, a, m, level: law.sigma * a * math.sqrt(2 * level),  # noqa: ARG005
    weighted_tail=gaussian_weighted_tail,
    rho=lambda law: law.rho,
)
PAPER: Final = replace(LAPLACE, others="", automatic=False, by_function=True)
"""The paper's calibration of Laplace noise, N S(F)."""

ADVANCED: Final = replace(
    PAPER,
    norm=math.inf,
    kinds={"": "laplace-advanced"},
    with_delta=True,
    ratio=lambda budget: 2 * math.sqrt(-2 * math.log(budget.delta)) / float(budget.epsilon),
)
"""The paper's noise for a delta; the ratio is over the root of the number of values."""

K_NORM: Final = replace(
    LAPLACE,
    law=KNormNoise,
    kinds={"binned": "binned-k-norm"},
    others="",
    covariance=k_norm_covariance,
    drawn=k_norm_draws,
    most_values=MOST_VALUES,
    sides=True,
)
"""Its tails are those of Laplace noise: see `dbern.privacy.accuracy`."""

FAMILIES: Final = (LAPLACE, GAUSSIAN, K_NORM, PAPER, ADVANCED)


def family_of(law: Noise) -> NoiseFamily:
    """The first family with this law."""
    return next(one for one in FAMILIES if one.law is type(law))


def covariance_of(law: Noise) -> Covariance:
    """The covariance of a component's noise, in granules."""
    family = family_of(law)
    return family.covariance(law.values).scaled(family.scale(law))


def named(
    noise: str, kinds: Sequence[str], *, with_delta: bool, paper: bool = False
) -> tuple[NoiseFamily, ...]:
    """Families that a spec's noise, "auto" or a name, stands for; first that of vectors.

    `kinds` as in `NoiseFamily.names`; an unknown name raises a SpecError.
    """
    found = []
    for one in FAMILIES:
        automatic = noise == "auto" and (one.automatic or paper)
        fits = one.with_delta == with_delta and paper == (one is PAPER)
        if fits and (automatic or noise in one.names(kinds).values()):
            found.append(one)
    if not found:
        raise SpecError(f'mechanism.noise: "{noise}" is not known. Write noise = "auto"')
    return tuple(found if "" in found[0].kinds else [LAPLACE, *found])
