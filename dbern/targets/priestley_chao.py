"""Priestley-Chao regression: responses weighted by the gaps between the records' positions.

``F(y) = sum_{j >= 2} c(x_j - x_{j-1}) m_j K(y - x_j)`` over the distinct positions ``x_1 < x_2 <
..`` of the records on one axis: K is a density (the paper's ``K(u/b)/b``), m_j the mean response of
the records at x_j, in [-1, 1] of half its public range from the middle, and ``c(u) = min(u, G)``
cuts gaps at a public G. Positions are integers in steps of 2^-32 of the axis, gaps and G too.

Sensitivity under replace-one, for all databases
------------------------------------------------
``F = sum_j v_j K(. - x_j)`` is K smoothed over a signed measure v on the axis.

*One more record*, at p with response r, changes v by at most 2G in total variation. Between
neighbours, with ``a = p - x_{j-1}`` and ``b = x_j - p``, p gets ``c(a) |r|``, and x_j changes by
``(c(a + b) - c(b)) |m_j| <= c(a)``, as c is subadditive: together at most ``2 c(a) <= 2G``. Below
all others, p weighs nothing, being first, and x_1 gets ``c(x_1 - p) <= G``. Above all others, p
gets at most G. At a position that q records have, their mean moves by ``|r - m|/(q + 1) <= 1``: at
most G. A replacement takes a record away and adds one, and no v is larger than the sum of its
gaps, which is at most one:

    ``|v - v'| <= tau = min(4G, 2)``,  half of 4G with the null record.

*Released values* are a public linear map of v, ``sum_j v_j T K_{x_j}``. They move by at most ``tau
max_t |T K_t|`` in any norm: ``S(F) <= tau sup K``, ``Delta1 <= tau max_t sum_v K(v/k - t)`` for
lattice values, and tau for B-spline bins, whose weights sum to one at every t. With the response's
half-range B this is the corrected bound ``4 B G sup K / b``. It is attained: let p be one step
below an x_j with the other sign and a >= G, then taking p away moves v by -G at p and by -G (less a
step) at x_j; let the record come back in the same way, with signs turned, elsewhere. The paper asks
instead that every record have some neighbour within c/n, which does not bound its gaps, so its
``4 B c sup K / (n b)`` is false; and where equal positions count in order of arrival, another order
of the same records moves F beyond any such bound. Both are in the tests.

Rounding adds nothing
---------------------
Responses are integers in units of ``2^-R``, at most ``2^R`` in absolute value. The mean is rounded
by ``floor(u + 1/2)``, which keeps order and commutes with integers: numbers in ``[-2^R, 2^R]`` stay
there, and two that differ by at most the integer ``2^R`` still do. Nothing else was used of means,
so tau holds for the integers ``c(x_j - x_{j-1}) m_j`` exactly.

Effective kernel
----------------
The atoms (x_j, v_j) are summed like records of a kernel sum (`dbern.targets.sums`) with weights
``2^g v_j`` in [-1, 1] and normalizer ``2^g <= 1/G``. Each is represented within rho. Taking a
record away replaces at most two atoms by one, and adding one replaces one by two: six atoms enter
where a kernel sum has two, so what it adds to the movement is taken three times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

from pydantic import Field

from dbern.bernstein.bias import Bumps
from dbern.bernstein.coordinates import BumpBound, Coordinates
from dbern.bernstein.kernels import OUTWARD, Kernel
from dbern.combination import Combination
from dbern.domain import Domain, RecordSchema, Response
from dbern.errors import SpecError
from dbern.targets.bandwidths import axis_kernels
from dbern.targets.base import KernelName, Learner, Lengths, Statistic
from dbern.targets.erm import of_responses, response_of
from dbern.targets.gaps import POSITION_BITS, GapStatistic, atom_sum
from dbern.targets.sums import WHOLE

_NARROWEST = 1e-7  # of the axis: hundreds of steps of a position
_MOST_BITS = 30


@dataclass(frozen=True)
class GapSum:
    """A Priestley-Chao estimate as a component: see the top of the module.

    Parameters
    ----------
    domain : Domain
        The one axis.
    max_gap : int
        G in steps of a position.
    n : int
        Public number of rows; 0 before a plan: only a plan's component has sensitivities.
    """

    name: str
    domain: Domain
    kernels: tuple[Kernel, ...]
    response: Response
    max_gap: int
    n: int = 0
    share: Fraction = WHOLE

    outputs: ClassVar[int] = 1
    binned: ClassVar[bool] = True
    spectral: ClassVar[bool] = True
    additive: ClassVar[bool] = False

    def for_rows(self, n: int) -> GapSum:
        """The same for n records."""
        return replace(self, n=n)

    @property
    def unit(self) -> float:
        """Half the response's range; gaps and densities have inverse units."""
        return self.response.radius

    @property
    def approximation(self) -> Bumps:
        """A mixture of bumps with signed weights, which sum to one at most; none above G."""
        return Bumps(self.kernels, attained=False)

    @property
    def variation(self) -> float:
        """tau, exact."""
        return math.ldexp(min(4 * self.max_gap, 2 << POSITION_BITS), -POSITION_BITS)

    @property
    def function_movement(self) -> float:
        """``n tau sup K``."""
        return OUTWARD * self.n * self.variation * math.prod(one.peak for one in self.kernels)

    def movement(self, coordinates: Coordinates, norm: int, *, quick: bool = False) -> BumpBound:
        """n tau/2 times the move of a signed bump, whose variation is two."""
        bound = (
            coordinates.bump_bound_l2(self.kernels, signed=True)
            if norm == 2
            else coordinates.bump_bound(self.kernels, apart=True, quick=quick)
        )
        times = self.n * self.variation / 2
        return BumpBound(
            OUTWARD * times * bound.value,
            f"2 G n = {times:.6g} (G = max_gap's share of the axis) times {bound.derivation}",
        )

    @property
    def scale(self) -> int:
        """g: weights of ``2^g`` times a gap are at most one."""
        return POSITION_BITS - (self.max_gap - 1).bit_length()

    @property
    def response_bits(self) -> int:
        """R: no sum of responses overflows, and no number made of one."""
        return min(_MOST_BITS, 60 - self.n.bit_length())

    def statistic(self, coordinates: Coordinates, n: int, tolerance: float) -> Statistic:
        """Sums of atoms, each so accurate that all that a record moves meet the tolerance."""
        each = tolerance * 2.0**self.scale / (3 * n)
        atoms = atom_sum(self.kernels).statistic(coordinates, 1 << self.scale, each)
        return GapStatistic(self.for_rows(n), atoms)

    def restore(self, coordinates: Coordinates, n: int, counting: Mapping[str, Any]) -> Statistic:
        """The statistic that a plan has chosen."""
        atoms = atom_sum(self.kernels).restore(coordinates, 1 << self.scale, counting)
        return GapStatistic(self.for_rows(n), atoms)


class PriestleyChao(Learner):
    """Regression of a bounded response on one axis, by the gaps between its records.

    The integral of the response over the axis, smoothed: no density is estimated or divided by.
    Where gaps exceed `max_gap` it falls towards the middle of the response's range.

    Parameters
    ----------
    bandwidth : sequence of one float
        In data units, as of `dbern.targets.KernelDensity`.
    max_gap : float
        Where gaps are cut, in data units, from 1e-7 of the axis's width to all of it. Noise is in
        proportion to it. Ten times width over n cuts few gaps of records that are spread evenly.
    kernel : str
        One of `dbern.bernstein.kernels.KERNELS`.

    Raises
    ------
    SpecError
        For parameters out of range, more than one axis, or records without a response.

    Examples
    --------
    >>> PriestleyChao(bandwidth=[0.5], max_gap=0.001).kernel
    'gaussian'
    """

    kind: ClassVar[str] = "priestley-chao"
    uses: ClassVar[tuple[str, ...]] = ("response",)

    bandwidth: Lengths = Field(description="bandwidth = [0.5], a standard deviation in data units")
    max_gap: float = Field(
        gt=0, allow_inf_nan=False, description="max_gap = 0.001, where gaps are cut, in data units"
    )
    kernel: KernelName = Field("gaussian", description='kernel = "gaussian"')

    def components(self, schema: RecordSchema) -> tuple[GapSum, ...]:
        """The one sum."""
        domain, response = schema.domain, response_of(schema)
        if domain.dimensions != 1:
            raise SpecError(
                "data.bounds: gaps have one axis; write one column, or "
                'kind = "nadaraya-watson" in [target]'
            )
        kernels = axis_kernels(domain, self.bandwidth, "bandwidth", self.kernel)
        share = self.max_gap / domain.axes[0].width
        if not _NARROWEST <= share <= 1:
            raise SpecError(
                f"target.max_gap: must be from {_NARROWEST:g} to 1 times the width of "
                f"{domain.names[0]}; write max_gap = {domain.axes[0].width / 1000:g}"
            )
        steps = math.floor(math.ldexp(share, POSITION_BITS))
        return (GapSum("prediction", domain, kernels, response, steps),)

    def combination(self, schema: RecordSchema) -> Combination:
        """The response."""
        return of_responses(schema)
