"""The families of noise: a law, what a spec calls it, and what of it only accuracy rests on.

A new law is a file beside this one, and a `NoiseFamily` of it here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
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

    Attributes
    ----------
    law : type
        Of its calibrated noise; its `kind` is written into plans and synopses.
    norm : float
        Of the sensitivity it is calibrated to: 1, 2, or infinity for any one value.
    kinds : mapping
        By what a strategy releases (`Strategy.kind`), the name in ``mechanism.noise`` and plans.
    others : str
        What the names of all other strategies' noise end with; "" where it is for none of them.
    with_delta : bool
        Whether it is for a budget with a delta.
    weighting : float
        Of spectral coordinates.
    ratio : callable
        Of a budget: the scale of the noise for sensitivity one.
    covariance : callable
        Of how many values one draw is of, jointly: that of a component's noise, at scale one.
    scale : callable
        Of a law: in granules.
    moved : callable
        Of a law: the sensitivity it is calibrated to, in granules.
    tail : callable
        Of (law, count, beta): what none of so many draws reaches with probability ``1 - beta``.
    node_tail : callable
        Of (law, a, m, level): granules that ``sum_j c_j X_j`` reaches with probability at most
        ``exp(-level)``, for ``|c|_2 <= a`` and ``|c|_inf <= m``: it bounds noise at nodes.
    weighted_tail : callable
        The same for many a and m, at once and without a search.
    rho : callable, optional
        Of a law: its zCDP, where that is what it is calibrated to.
    drawn : callable
        Of (law, size, draws, stream): independent draws of so many values of one output, in
        granules, (size, draws).
    most_values : float
        Of a component that it is for.
    sides : bool
        Whether it is for what `Sensitivity.sides` says.
    automatic : bool
        Whether "auto" means it.
    by_function : bool
        Whether the sensitivity is that of the function for each value, as in the paper.
    calibrated : callable, optional
        Of a law of its own: as of `law_of`.
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
        """Name the noise of lattice values and of vectors."""
        return self.kinds[""]

    def names(self, kinds: Iterable[str]) -> dict[str, str]:
        """Return its names, by what is released, where these are the kinds of other strategies."""
        others = {kind: f"{kind}-{self.others}" for kind in kinds} if self.others else {}
        return {**self.kinds, **others}

    @property
    def values_norm(self) -> int:
        """Return the norm in which the move of all values is bounded."""
        return 2 if self.norm == 2 else 1

    def predicted(self, scale: int, values: float, independent: Drawn = independent_draws) -> Draw:
        """Return draws of about this noise, of so many values jointly, for predictions: at once."""
        noise = self.covariance(values)
        if noise.correlation == 0:
            return partial(independent, self.law(scale, 0, 1))

        def given(size: int, draws: int, stream: KeyStream) -> FloatArray:
            laplace = independent(LaplaceNoise(scale, 0, 1), size, draws, stream)
            return noise.given(laplace / math.sqrt(2))

        return given

    def calibrate(self, contract: Contract, charge: Budget) -> Noise:
        """Return the law that makes what the contract is about private for its fraction."""
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
    """Return the first family with this law."""
    return next(one for one in FAMILIES if one.law is type(law))


def covariance_of(law: Noise) -> Covariance:
    """Return the covariance of a component's noise, in granules."""
    family = family_of(law)
    return family.covariance(law.values).scaled(family.scale(law))


def named(
    noise: str, kinds: Sequence[str], *, with_delta: bool, paper: bool = False
) -> tuple[NoiseFamily, ...]:
    """Return the families that a spec's noise means, "auto" or a name; first that of vectors.

    `kinds` as of `NoiseFamily.names`.

    Raises
    ------
    SpecError
        Where none has the name.
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
