"""The laws of noise that come with `dbern`, each a `NoiseLaw`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, Literal

from dbern.errors import SpecError
from dbern.privacy import gaussian, laplace
from dbern.privacy.gaussian import discrete_gaussian
from dbern.privacy.keystream import KeyStream
from dbern.privacy.laplace import MAX_SCALE, SignedNoise, discrete_k_norm, discrete_laplace
from dbern.privacy.zcdp import rho_of

MOST_VALUES: Final = 4096  # of one vector of the K-norm law
EXPONENTS: Final = range(-1000, 901)  # 2**e, 2**-e and what they multiply stay normal floats


class _OnGrid:
    granularity_exponent: int

    @property
    def granularity(self) -> Fraction:
        """One granule in the target's unit."""
        return Fraction(2) ** self.granularity_exponent

    @property
    def values(self) -> float:
        """Number of values of one joint draw; infinity where values are independent."""
        return math.inf

    @property
    def rho(self) -> Fraction | None:
        """The exact zCDP guarantee; None where the law is calibrated to another one."""
        return None

    def _check(self, scale: int, moved: int) -> None:
        if not 1 <= scale <= MAX_SCALE or moved < 0:
            raise SpecError(
                "noise: the scale must be from 1 to 2**61 granules. Raise budget.epsilon."
            )
        if self.granularity_exponent not in EXPONENTS:
            raise SpecError("noise: the granularity leaves the range of floats; rescale the target")


@dataclass(frozen=True)
class LaplaceNoise(_OnGrid):
    """Independent discrete Laplace noise on integer centers.

    `scale` is in granules, from 1 to ``2**61``; one granule is ``g = 2**granularity_exponent`` of
    the target's unit. `l1_sensitivity_granules` bounds the l1 distance of the integer centers of
    neighbouring databases. Raises SpecError for a number out of range.
    """

    scale: int
    granularity_exponent: int
    l1_sensitivity_granules: int
    kind: str = "laplace"
    # Separates the law's key streams from those of the others.
    stream_label: ClassVar[str] = f"stream-{laplace.STREAM_VERSION}"

    def __post_init__(self) -> None:
        self._check(self.scale, self.l1_sensitivity_granules)

    @property
    def epsilon(self) -> Fraction:
        """The exact guarantee: integer sensitivity over scale, at most what was asked for."""
        return Fraction(self.l1_sensitivity_granules, self.scale)

    @property
    def sensitivity_in_granules(self) -> float:
        """The l1 sensitivity."""
        return float(self.l1_sensitivity_granules)

    def draw(self, count: int, stream: KeyStream) -> SignedNoise:
        """The first `count` samples of a fresh stream."""
        return discrete_laplace(self.scale, count, stream)


@dataclass(frozen=True)
class KNormNoise(LaplaceNoise):
    """One vector of the K-norm law on the integer centers of all outputs of a component.

    `scale` and `granularity_exponent` as in `LaplaceNoise`. `l1_sensitivity_granules` is twice the
    bound on N of the distance of centers, which bounds their l1 distance too; its ratio to the
    scale is the guarantee. `values` is M, from 1 to `MOST_VALUES`.
    """

    values: int = 0
    kind: str = "k-norm"
    stream_label: ClassVar[str] = f"k-norm-stream-{laplace.K_NORM_STREAM_VERSION}"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.values <= MOST_VALUES:
            raise SpecError(
                f"mechanism.noise: noise of the K-norm law is for at most {MOST_VALUES} values, "
                f'not {self.values}. Write noise = "auto"'
            )

    def draw(self, count: int, stream: KeyStream) -> SignedNoise:
        """The first `count` of the one vector's values, all of which are drawn."""
        if count > self.values:
            raise ValueError(f"a vector of {self.values} values has no {count}")
        vectors = discrete_k_norm(self.scale, self.values, stream, stream.second())
        return next(vectors)[:count]


@dataclass(frozen=True)
class GaussianNoise(_OnGrid):
    """Independent discrete Gaussian noise on integer centers.

    `sigma` is in granules, from 1 to ``2**61``; one granule is ``g = 2**granularity_exponent`` of
    the target's unit. `l2_sensitivity_granules_squared` bounds the squared l2 distance of the
    integer centers of neighbouring databases: an integer, as that distance is. Raises SpecError for
    a number out of range.
    """

    sigma: int
    granularity_exponent: int
    l2_sensitivity_granules_squared: int
    kind: Literal["discrete-gaussian"] = "discrete-gaussian"
    stream_label: ClassVar[str] = f"gaussian-stream-{gaussian.STREAM_VERSION}"

    def __post_init__(self) -> None:
        self._check(self.sigma, self.l2_sensitivity_granules_squared)

    @property
    def rho(self) -> Fraction:
        """The exact zCDP guarantee; `dbern.privacy.zcdp._delta_of` converts it to deltas."""
        return rho_of(self.l2_sensitivity_granules_squared, self.sigma)

    @property
    def scale(self) -> int:
        """Sigma, by the name that every law's scale has."""
        return self.sigma

    @property
    def sensitivity_in_granules(self) -> float:
        """The l2 sensitivity."""
        return math.sqrt(self.l2_sensitivity_granules_squared)

    def draw(self, count: int, stream: KeyStream) -> SignedNoise:
        """The first `count` samples of a fresh stream."""
        return discrete_gaussian(self.sigma, count, stream)
