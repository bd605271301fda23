"""The families of noise: a law, its names in a spec, and functions that only accuracy rests on.

A new law is a file beside this one, and a `NoiseFamily` of it here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from dbern.errors import SpecError
from dbern.privacy.budget import Budget
from dbern.privacy.calibration import MOST_VALUES, GaussianNoise, KNormNoise, LaplaceNoise
from dbern.privacy.contract import Contract, law_of
from dbern.privacy.covariance import NoiseCovariance, k_norm_covariance
from dbern.privacy.curves import squared_for
from dbern.privacy.draws import independent_draws, k_norm_draws
from dbern.privacy.keystream import KeyStream
from dbern.privacy.mechanism import Noise
from dbern.privacy.sums import SumNoise, sum_draws
from dbern.privacy.tails import gaussian_tail, gaussian_weighted_tail, tail, weighted_tail
from dbern.types import FloatArray

Draw: TypeAlias = Callable[[int, int, KeyStream], FloatArray]
"""Granules (values, vectors), by the number of values and of vectors, and a stream."""


@dataclass(frozen=True)
class NoiseFamily(ABC):
    """One kind of noise: what differs between kinds are its methods, and what a spec may say.

    `law` is the type of its calibrated noise, whose `kind` is written into plans and synopses.
    `norm` is that of the sensitivity it is calibrated to: 1, 2, or infinity for any one value.
    `max_values` is the most a component may have. `balanced`: it is for what
    `Sensitivity.balanced` says. Spectral coordinates are weighted by the eigenvalues to the power
    of `eigenvalue_exponent`.

    `spec_names` maps what a strategy releases (`Strategy.kind`) to the name in ``mechanism.noise``
    and plans; the names of all other strategies' noise end with `strategy_suffix`, "" where it is
    for none of them. `with_delta`: for a budget with a delta. `in_auto`: "auto" means it.
    `by_function`: the sensitivity is that of the function for each value, as in the paper.
    """

    spec_names: Mapping[str, str]
    strategy_suffix: str = ""
    with_delta: bool = False
    in_auto: bool = True
    by_function: bool = False

    law: ClassVar[type[Any]]
    norm: ClassVar[float]
    eigenvalue_exponent: ClassVar[float]
    max_values: ClassVar[float] = math.inf
    balanced: ClassVar[bool] = False

    @abstractmethod
    def scale_per_unit_sensitivity(self, budget: Budget) -> float:
        """Scale of the noise for sensitivity one."""

    @abstractmethod
    def scale(self, law: Any) -> int:
        """Scale of a law, in granules."""

    @abstractmethod
    def sensitivity_in_steps(self, law: Any) -> float:
        """Sensitivity that a law is calibrated to, in granules."""

    @abstractmethod
    def tail(self, law: Any, count: int, beta: Fraction) -> float:
        """Size that none of so many draws reaches with probability ``1 - beta``."""

    @abstractmethod
    def node_tail(self, law: Any, a: float, m: float, level: float) -> float:
        """Granules that ``sum_j c_j X_j`` reaches with probability at most ``exp(-level)``.

        For ``|c|_2 <= a`` and ``|c|_inf <= m``: this bounds noise at nodes.
        """

    @abstractmethod
    def weighted_tail(
        self, law: Any, root: FloatArray, largest: FloatArray, level: float
    ) -> FloatArray:
        """`node_tail` for many weights, at once and without a search."""

    def covariance(self, values: float) -> NoiseCovariance:
        """Covariance of a component's noise at scale one, of one joint draw of so many values."""
        del values
        return NoiseCovariance(1.0)

    def draw(self, law: Any, size: int, draws: int, stream: KeyStream) -> FloatArray:
        """Independent draws of so many values of one output, in granules (size, draws)."""
        return independent_draws(law, size, draws, stream)

    def rho(self, law: Any) -> Fraction | None:
        """Return the zCDP of a law, where that is what it is calibrated to."""
        del law
        return None

    def calibrate(self, contract: Contract, charge: Budget) -> Noise:
        """Return the law that makes the contract's integers private for its fraction.

        A family with a law of its own overrides this: ``law_of(contract, charge, calibrated)``.
        """
        return law_of(contract, charge)

    @property
    def lattice_name(self) -> str:
        """Name of the noise of lattice values and of vectors."""
        return self.spec_names[""]

    def names(self, kinds: Iterable[str]) -> dict[str, str]:
        """Names of its noise by what is released, where `kinds` are those of other strategies."""
        if not self.strategy_suffix:
            return dict(self.spec_names)
        return {**self.spec_names, **{kind: f"{kind}-{self.strategy_suffix}" for kind in kinds}}

    @property
    def values_norm(self) -> int:
        """Norm in which the move of all values is bounded."""
        return 2 if self.norm == 2 else 1


class _LaplaceFamily(NoiseFamily):
    """Independent Laplace noise."""

    law = LaplaceNoise
    norm: ClassVar[float] = 1
    eigenvalue_exponent = 0.25

    def scale_per_unit_sensitivity(self, budget: Budget) -> float:
        return 1 / float(budget.epsilon)

    def covariance(self, values: float) -> NoiseCovariance:
        del values
        return NoiseCovariance(math.sqrt(2))

    def scale(self, law: LaplaceNoise) -> int:
        return law.scale

    def sensitivity_in_steps(self, law: LaplaceNoise) -> float:
        return float(law.l1_sensitivity_granules)

    def tail(self, law: LaplaceNoise, count: int, beta: Fraction) -> float:
        return tail(law, count, beta)

    def node_tail(self, law: LaplaceNoise, a: float, m: float, level: float) -> float:
        fractions = np.linspace(0.001, 0.999, 999)  # of 1 / (s m); any u < 1 / (s m) is valid
        exponents = (fractions * a / m) ** 2 / (1 - fractions**2)
        return law.scale * m * float(((level + exponents) / fractions).min())

    def weighted_tail(
        self, law: LaplaceNoise, root: FloatArray, largest: FloatArray, level: float
    ) -> FloatArray:
        return weighted_tail(law, root, largest, level)


class _AdvancedFamily(_LaplaceFamily):
    """The paper's Laplace noise for a delta; its scale is over the root of the number of values."""

    norm = math.inf

    def scale_per_unit_sensitivity(self, budget: Budget) -> float:
        return 2 * math.sqrt(-2 * math.log(budget.delta)) / float(budget.epsilon)


class _KNormFamily(_LaplaceFamily):
    """Noise of the K-norm law; its tails are those of Laplace noise (`dbern.privacy.tails`)."""

    law = KNormNoise
    max_values = MOST_VALUES
    balanced = True

    def covariance(self, values: float) -> NoiseCovariance:
        return k_norm_covariance(values)

    def draw(self, law: KNormNoise, size: int, draws: int, stream: KeyStream) -> FloatArray:
        return k_norm_draws(law, size, draws, stream)


class _GaussianFamily(NoiseFamily):
    """Independent Gaussian noise."""

    law = GaussianNoise
    norm = 2
    eigenvalue_exponent = 0.5

    def scale_per_unit_sensitivity(self, budget: Budget) -> float:
        return 1 / math.sqrt(squared_for(budget.epsilon, budget.delta))

    def scale(self, law: GaussianNoise) -> int:
        return law.sigma

    def sensitivity_in_steps(self, law: GaussianNoise) -> float:
        return math.sqrt(law.l2_sensitivity_granules_squared)

    def tail(self, law: GaussianNoise, count: int, beta: Fraction) -> float:
        return gaussian_tail(law, count, beta)

    def node_tail(self, law: GaussianNoise, a: float, m: float, level: float) -> float:
        del m
        return law.sigma * a * math.sqrt(2 * level)

    def weighted_tail(
        self, law: GaussianNoise, root: FloatArray, largest: FloatArray, level: float
    ) -> FloatArray:
        return gaussian_weighted_tail(law, root, largest, level)

    def rho(self, law: GaussianNoise) -> Fraction:
        return law.rho


class _SumFamily(NoiseFamily):
    """Sums of independent releases, by `dbern.privacy.sums`: no spec names it, none is released."""

    law = SumNoise
    norm = 1
    eigenvalue_exponent = 0.25

    def scale_per_unit_sensitivity(self, budget: Budget) -> float:
        raise NotImplementedError(f"a sum is of releases that were charged, and {budget} is not")

    def covariance(self, values: float) -> NoiseCovariance:
        """Covariance over the squared scale, which counts a deviation of one."""
        del values
        return NoiseCovariance(1.0)

    def scale(self, law: SumNoise) -> int:
        """Deviation of a value, in granules, rounded up."""
        return math.ceil(law.root * covariance_of(law.law).deviation)

    def sensitivity_in_steps(self, law: SumNoise) -> float:
        return law.largest * family_of(law.law).sensitivity_in_steps(law.law)

    def tail(self, law: SumNoise, count: int, beta: Fraction) -> float:
        level = math.log(2 * count / float(beta))
        reached = self.node_tail(law, 1.0, 1.0, level)
        return math.ldexp((1 + 2.0**-40) * reached, law.granularity_exponent)  # floats

    def node_tail(self, law: SumNoise, a: float, m: float, level: float) -> float:
        return family_of(law.law).node_tail(law.law, a * law.root, m * law.largest, level)

    def weighted_tail(
        self, law: SumNoise, root: FloatArray, largest: FloatArray, level: float
    ) -> FloatArray:
        family = family_of(law.law)
        return family.weighted_tail(law.law, root * law.root, largest * law.largest, level)

    def draw(self, law: SumNoise, size: int, draws: int, stream: KeyStream) -> FloatArray:
        return sum_draws(law, size, draws, stream)


LAPLACE: Final = _LaplaceFamily({"": "laplace"}, strategy_suffix="laplace")
GAUSSIAN: Final = _GaussianFamily(
    {"": "discrete-gaussian"}, strategy_suffix="gaussian", with_delta=True
)
PAPER: Final = _LaplaceFamily({"": "laplace"}, in_auto=False, by_function=True)
"""The paper's calibration of Laplace noise, N S(F)."""

ADVANCED: Final = _AdvancedFamily(
    {"": "laplace-advanced"}, with_delta=True, in_auto=False, by_function=True
)
K_NORM: Final = _KNormFamily({"binned": "binned-k-norm"})
_SUMS: Final = _SumFamily({}, in_auto=False)

FAMILIES: Final[tuple[NoiseFamily, ...]] = (LAPLACE, GAUSSIAN, K_NORM, PAPER, ADVANCED)


def family_of(law: Noise) -> NoiseFamily:
    """Return the first family with this law."""
    return next(family for family in (*FAMILIES, _SUMS) if family.law is type(law))


def covariance_of(law: Noise) -> NoiseCovariance:
    """Return the covariance of a component's noise, in granules."""
    family = family_of(law)
    return family.covariance(law.values).scaled(family.scale(law))


def named(
    noise: str, kinds: Sequence[str], *, with_delta: bool, paper: bool = False
) -> tuple[NoiseFamily, ...]:
    """Return the families that a spec's noise, "auto" or a name, stands for; first that of vectors.

    `kinds` as in `NoiseFamily.names`; an unknown name raises a SpecError.
    """
    families: list[NoiseFamily] = []
    for family in FAMILIES:
        automatic = noise == "auto" and (family.in_auto or paper)
        fits = family.with_delta == with_delta and paper == (family is PAPER)
        if fits and (automatic or noise in family.names(kinds).values()):
            families.append(family)
    if not families:
        raise SpecError(f'mechanism.noise: "{noise}" is not known. Write noise = "auto"')
    return tuple(families if "" in families[0].spec_names else [LAPLACE, *families])
