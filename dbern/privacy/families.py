"""The families of noise: each law's names in a spec, what it is calibrated to and how it errs.

A new law is a file beside this one, and a `NoiseFamily` of it here or in an installed package.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, cast

from dbern.errors import SpecError
from dbern.privacy.budget import Budget
from dbern.privacy.contract import Contract, law_of
from dbern.privacy.covariance import NoiseCovariance
from dbern.privacy.curves import squared_for
from dbern.privacy.error_law import (
    ErrorLaw,
    GaussianErrors,
    KNormErrors,
    LaplaceErrors,
    NoiseErrors,
)
from dbern.privacy.laws import MOST_VALUES, GaussianNoise, KNormNoise, LaplaceNoise
from dbern.privacy.noise_law import NoiseLaw, ValueNoise
from dbern.privacy.sums import OutputSum, OutputSumErrors, SumErrors, SumNoise
from dbern.system import Registry


@dataclass(frozen=True)
class NoiseFamily(ABC):
    """One kind of noise: what differs between kinds are its methods, and what a spec may say.

    `law` is the type of its calibrated noise, whose `kind` is written into plans and synopses;
    `errors` is how large that noise is. `norm` is that of the sensitivity it is calibrated to: 1,
    2, or infinity for any one value. `max_values` is the most a component may have. `balanced`: it
    is for what `Sensitivity.balanced` says. Spectral coordinates are weighted by the eigenvalues to
    the power of `eigenvalue_exponent`.

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

    law: ClassVar[type[NoiseLaw]]
    errors: ClassVar[type[NoiseErrors]]
    norm: ClassVar[float]
    eigenvalue_exponent: ClassVar[float]
    max_values: ClassVar[float] = math.inf
    balanced: ClassVar[bool] = False

    @abstractmethod
    def predicted_scale(self, budget: Budget) -> float:
        """Scale of the noise for sensitivity one, for choices of plans: no noise has it."""

    def covariance(self, values: float) -> NoiseCovariance:
        """Covariance of a component's noise at scale one, of one joint draw of so many values."""
        return self.errors.unit_covariance(values)

    def calibrate(self, contract: Contract, charge: Budget) -> NoiseLaw:
        """Return the law that makes the contract's integers private for its fraction.

        A law that is not of `dbern.privacy.laws` overrides this: ``law_of(contract, charge,
        calibrated)`` with a `Calibrated` of its own.
        """
        return law_of(contract, charge)

    @property
    def law_kind(self) -> str:
        """Name of the law in plans and stores."""
        return str(self.law.__dataclass_fields__["kind"].default)

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
    errors = LaplaceErrors
    norm: ClassVar[float] = 1
    eigenvalue_exponent = 0.25

    def predicted_scale(self, budget: Budget) -> float:
        return 1 / float(budget.epsilon)


class _AdvancedFamily(_LaplaceFamily):
    """The paper's Laplace noise for a delta; its scale is over the root of the number of values."""

    norm = math.inf

    def predicted_scale(self, budget: Budget) -> float:
        return 2 * math.sqrt(-2 * math.log(budget.delta)) / float(budget.epsilon)


class _KNormFamily(_LaplaceFamily):
    """Noise of the K-norm law."""

    law = KNormNoise
    errors = KNormErrors
    max_values = MOST_VALUES
    balanced = True


class _GaussianFamily(NoiseFamily):
    """Independent Gaussian noise."""

    law = GaussianNoise
    errors = GaussianErrors
    norm = 2
    eigenvalue_exponent = 0.5

    def predicted_scale(self, budget: Budget) -> float:
        return 1 / math.sqrt(squared_for(budget.epsilon, budget.delta))


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

FAMILIES: Final[tuple[NoiseFamily, ...]] = (LAPLACE, GAUSSIAN, K_NORM, PAPER, ADVANCED)
"""Ours, in the order of preference: "auto" means no other."""

ALL_NOISE: Final[Registry[NoiseFamily]] = Registry(
    "dbern.noise", {family.law_kind: family for family in reversed(FAMILIES)}, "law_kind"
)
"""The first family with each law, by the law's `kind`: ours, and those of installed packages."""


def family_of(law: NoiseLaw) -> NoiseFamily:
    """Return the first family with this law."""
    ours = next((family for family in FAMILIES if family.law is type(law)), None)
    return ours or ALL_NOISE.get(law.kind, "noise.law")


def families_with(noise: str, kinds: Collection[str]) -> tuple[NoiseFamily, ...]:
    """Return the families whose noise has a name, ours or else an installed one; none for "auto".

    `kinds` as in `NoiseFamily.names`. An installed one is called as its law, or that after the
    strategy: what is released is read from before the first hyphen of a name.

    Raises SpecError for an installed one that is called otherwise.
    """
    ours = tuple(family for family in FAMILIES if noise in family.names(kinds).values())
    if ours or noise == "auto":
        return ours
    before, _, after = noise.partition("-")
    law = after if before in kinds and noise not in ALL_NOISE else noise
    package = ALL_NOISE.origin(law)
    if not package:
        return ()
    family = ALL_NOISE.get(law, "mechanism.noise")
    names = family.names(kinds)
    expected = {"": law, **{kind: f"{kind}-{law}" for kind in kinds}}
    if law.partition("-")[0] in kinds or not {("", law)} <= names.items() <= expected.items():
        raise SpecError(
            f'mechanism.noise: "{law}" of {package} has names that are those of other noise. '
            "Name a law by its kind, which begins with no strategy's, and with that after a hyphen"
        )
    return (family,) if noise in names.values() else ()


def package_of(noise: str, kinds: Collection[str]) -> str:
    """Return the package of a noise that is not ours, or ""."""
    families = families_with(noise, kinds)
    return ALL_NOISE.origin(families[0].law_kind) if families else ""


def errors_of(law: ValueNoise) -> ErrorLaw:
    """Return how far noise of this law moves released values, or sums of them."""
    if isinstance(law, SumNoise):
        errors = OutputSumErrors if isinstance(law, OutputSum) else SumErrors
        return errors(law, errors_of(law.law))
    return family_of(cast("NoiseLaw", law)).errors(cast("NoiseLaw", law))


def named(
    noise: str, kinds: Collection[str], *, with_delta: bool, paper: bool = False
) -> tuple[NoiseFamily, ...]:
    """Return the families that a spec's noise, "auto" or a name, stands for; first that of vectors.

    `kinds` as in `NoiseFamily.names`; an unknown name raises a SpecError.
    """
    automatic = noise == "auto"
    families = [
        family
        for family in (FAMILIES if automatic else families_with(noise, kinds))
        if family.with_delta == with_delta
        and paper == (family is PAPER)
        and (family.in_auto or paper or not automatic)
    ]
    if not families:
        raise SpecError(f'mechanism.noise: "{noise}" is not known. Write noise = "auto"')
    return tuple(families if "" in families[0].spec_names else [LAPLACE, *families])
