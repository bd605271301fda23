"""Lower bounds on what any mechanism can certify of a sum of kernels, by distant point masses.

For ``F(y) = (1/n) sum_i w_i K(y - d_i)``, weights in [0, 1], K a product of axis kernels on the
unit cube. A unit has up to u rows, ``S = u sup K / n`` is what it can move. Databases here have m,
or N_i, units whose u rows each are at one place, and missing records otherwise: changing one number
by one is one step, under replace-one neighbours and under add-or-remove-one.

*Packing.* Let M points be such that ``K(p_i - p_j) <= K(gap)`` for any two, and let D_i have m
units at p_i, D_0 none. ``sup |F_{D_i} - F_{D_j}| >= m S (1 - K(gap)/sup K)``, and ``sup |F_{D_i} -
F_{D_0}| >= m S``. Of a mechanism that certifies less than half of the former with probability ``1 -
beta`` the events "within that of F_{D_i}" are disjoint for i = 0 .. M. By group privacy each i > 0
has probability at least ``e^(-m epsilon) (1 - beta - delta (e^(m epsilon) - 1)/(e^epsilon - 1))``
under D_0, and that of D_0 itself ``1 - beta``: so M times the former is at most beta, or ``m S (1 -
K(gap)/sup K) / 2`` is a lower bound.

*Tensor*, delta = 0. Let N_i units be at y_i, i = 1 .. d, and ``G_ij = K(y_i - y_j)/sup K``. ``F =
S G N`` there, so who knows F to within t everywhere knows each N_i to within ``gamma t / S``, gamma
at least the largest row sum of ``|G^-1|``: for ``t < (W - 1) S / (2 gamma)`` all N_i are in known
windows of W - 1 neighbouring integers. Draw N_i independently, ``N_0 + x``, ``P(x) ~ q^|x|``, ``q =
e^-eta``, and clip to [0, 2 N_0], ``N_0 = floor(n / (2 d u))``: no more than n rows. Given the
output, weights of N change by a factor of ``a = e^-(epsilon + eta)`` at most with a step of any
coordinate, clipping or not. Of such a sequence on the integers a window of W neighbours holds at
most a share ``win = 1 - 2 a^((W+1)/2) / (1 + a)`` (W odd) or ``1 - a^(W/2)`` (W even): given its
ends the inside is at most ``min(e_1 a^-(x-1), e_W a^-(W-x))`` and the outside at least ``(e_1 +
e_W) a/(1 - a)``, best for ends that are equal. Coordinate by coordinate, as conditional and
marginal weights are such sequences again, all windows are hit with probability at most ``win^d``.
Nothing is clipped but with probability ``out <= 2 d q^(N_0+1) / (1 + q)``. So ``(W - 1) S / (2
gamma)`` is a lower bound for the least W with ``win^d >= (1 - beta)(1 - out)``.

Neither exceeds half of the range of F, which a constant certifies: m units are at most n rows, and
a window of ``2 N_0 + 1`` around N_0 is hit with probability ``1 - out`` without looking.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dbern.bernstein.kernels import OUTWARD, Kernel

_GAPS = np.geomspace(0.5, 8.0, 97)  # in standard deviations of the kernel
_MAX_SITES_PER_AXIS = 128
_RATES = np.geomspace(1.0, 1e-6, 61)  # eta, in units of epsilon
_FLOAT_MARGIN = 1e-9  # against the bound
_DOWNWARD = 2.0**-32  # for rounding


@dataclass(frozen=True)
class LowerBound:
    """Error below which no mechanism certifies, in data units, and its proof.

    `kind` is "two databases" (`lower_bound`), "packing" or "tensor"; empty where nothing is known
    and `value` is 0.
    """

    value: float = 0.0
    kind: str = ""


@dataclass(frozen=True)
class GroupPrivacy:
    """Privacy and confidence of a release: units of rows that it hides from whoever reads it.

    n is the public number of rows or the normalizer, `unit_rows` the most rows of a privacy unit.
    """

    epsilon: float
    beta: float
    n: int
    delta: float = 0.0
    unit_rows: int = 1

    @property
    def num_units(self) -> int:
        """Whole privacy units of the most rows."""
        return self.n // self.unit_rows

    def hidden_units(self, num_points: int = 1) -> int:
        """The most units m that no mechanism locates among so many points; rounded down.

        With ``u = e^(m epsilon)`` the condition is linear: ``u (beta + M d) < M (1 - beta + d)``.
        """
        d = self.delta / math.expm1(self.epsilon) if self.epsilon < 700 else 0.0
        log_odds = math.log(num_points * (1 - self.beta + d) / (self.beta + num_points * d))
        reach = (log_odds - _DOWNWARD * (1 + abs(log_odds))) / self.epsilon
        return min(self.num_units, max(0, math.ceil(reach) - 1))


@lru_cache(maxsize=16)  # a plan and each band of its release ask for the same one
def strongest_bound(
    function_sensitivity: float, privacy: GroupPrivacy, kernels: tuple[Kernel, ...] = ()
) -> LowerBound:
    """The largest known lower bound; `function_sensitivity` as in `lower_bound`.

    `kernels`, one an axis, are given where F is a sum of their product over records on the unit
    cube, with weights in [0, 1].
    """
    bounds = [LowerBound(lower_bound(function_sensitivity, privacy), "two databases")]
    if kernels:
        bounds += [
            LowerBound(lower_bound(function_sensitivity * fall, privacy, num_points), "packing")
            for num_points, fall in _packings(kernels)
        ]
    if kernels and privacy.delta == 0:
        shrunk = (1 - _DOWNWARD) * function_sensitivity / 2
        bounds += [
            LowerBound(shrunk * _tensor_steps(num_sites, privacy) / gamma, "tensor")
            for num_sites, gamma in _sites(kernels, lambda count: _tensor_steps(count, privacy))
        ]
    strongest = max(bounds, key=lambda bound: bound.value)
    return strongest if strongest.value > 0 else LowerBound()


def lower_bound(function_sensitivity: float, privacy: GroupPrivacy, num_points: int = 1) -> float:
    """``m S / 2``, rounded down: m the most units that group privacy keeps from being told apart.

    *Two databases.* At most n rows count, so ``floor(n / unit_rows)`` whole units of `unit_rows`
    rows fit. Let all rows of m of them be at one point in one database, and in the other be null
    (signed weights: of the opposite sign; added units: not there), all else the same. F is a sum
    over records of which each attains its bound, so at that point the two values are m S apart: S,
    `function_sensitivity`, is what all rows of a unit move together.

    *No mechanism tells less.* One that is within less than half of that of both, each with
    probability ``1 - beta``, has two disjoint events, and by group privacy ``1 - beta <= e^{m eps}
    beta + delta (e^{m eps} - 1) / (e^eps - 1)``. So for every m for which that fails, ``m S / 2``
    is a lower bound; with delta 0 these are the m below ``ln((1 - beta) / beta) / epsilon``.

    *Packing.* With M, `num_points`, points in place of one, S what any two databases are apart,
    that inequality has M times ``1 - beta`` and delta's part beside it.

    *Never above a constant.* What a row attains is at most the width of F's range over n, so ``m
    unit_rows <= n`` keeps ``m S / 2`` at most half of that range, which a constant certifies.

    *Rounding.* S comes rounded outward by a few parts in 2^40, and floats add some in 2^52: the
    logarithm and the result are taken smaller by far more.
    """
    return (1 - _DOWNWARD) * privacy.hidden_units(num_points) * function_sensitivity / 2


def _packings(kernels: Sequence[Kernel]) -> Iterator[tuple[int, float]]:
    """Yield numbers of points in the unit cube, and lower bounds on ``1 - K(gap) / sup K``."""
    for gap in _GAPS:
        counts = [_axis_points(gap * kernel.deviation) for kernel in kernels]
        axes = zip(kernels, counts, strict=True)
        overlap = max(_relative(kernel, _spacing(count)) for kernel, count in axes)
        if math.prod(counts) > 1 and overlap < 1:
            yield math.prod(counts), (1 - overlap) * (1 - _FLOAT_MARGIN)


def _sites(
    kernels: Sequence[Kernel], steps: Callable[[int], int] | None = None
) -> Iterator[tuple[int, float]]:
    """Numbers of sites on grids of the unit cube, and a bound on the row sums of ``|G^-1|``.

    With `steps`, only those where ``steps(number)`` over the bound may exceed all before.
    """
    best = 0.0
    for gap in _GAPS[::-1]:
        counts = [min(_axis_points(gap * axis.deviation), _MAX_SITES_PER_AXIS) for axis in kernels]
        axes = [(axis, _spacing(count), count) for axis, count in zip(kernels, counts, strict=True)]
        num_sites = math.prod(counts)
        reach = steps(num_sites) if steps else math.inf
        if reach > best * math.prod(_min_inverse_norm(*axis) for axis in axes):
            gamma = math.prod(_inverse_norm(*axis) for axis in axes)
            if gamma < math.inf:
                best = max(best, reach / gamma) if steps else best
                yield num_sites, gamma


def _tensor_steps(num_sites: int, privacy: GroupPrivacy) -> int:
    """``W - 1`` for so many sites, rounded down: the best eta of a few."""
    rates, beta = privacy.epsilon * _RATES, privacy.beta
    q, a = np.exp(-rates), np.exp(-privacy.epsilon - rates)
    site_units = privacy.num_units // (2 * num_sites)
    out = 2 * num_sites * np.exp(-rates * (site_units + 1)) / (1 + q)
    usable = (out < 1 - beta) & (a > 0) & (a < 1)
    if not usable.any():
        return 0
    out, a = out[usable], a[usable]
    # By window, what one may miss; a shade more than that, so that W is never too large.
    missed = -np.expm1((math.log1p(-beta) + np.log1p(-out)) / num_sites) * (1 + _FLOAT_MARGIN)
    odd = 2 * np.log(missed * (1 + a) / 2) / np.log(a) - 1
    even = 2 * np.log(missed) / np.log(a)
    windows = np.minimum(
        2 * np.ceil((odd - 1) / 2 - _FLOAT_MARGIN) + 1, 2 * np.ceil(even / 2 - _FLOAT_MARGIN)
    )
    return max(0, int(windows.max()) - 1)


def _axis_points(gap: float) -> int:
    return math.floor(1 / gap) + 1


def _spacing(num_points: int) -> float:
    return math.inf if num_points == 1 else 1 / (num_points - 1)


def _relative(kernel: Kernel, gap: float) -> float:
    """``K(gap) / sup K``, rounded up."""
    if gap == math.inf:
        return 0.0
    value = float(kernel(np.array([gap * (1 - _FLOAT_MARGIN)]))[0])
    return min(1.0, OUTWARD * value / kernel.peak + _FLOAT_MARGIN)


def _min_inverse_norm(kernel: Kernel, gap: float, count: int) -> float:
    """Lower bound, but for floats, on the largest row sum of ``|G^-1|``, by alternating signs."""
    if count == 1:
        return 1.0
    turns = kernel(np.multiply(np.arange(count), gap)) / kernel.peak
    turns[1::2] *= -1
    sums = np.cumsum(turns)
    return float((1 - _FLOAT_MARGIN) / np.abs(sums + sums[::-1] - turns[0]).max())


def _inverse_norm(kernel: Kernel, gap: float, count: int) -> float:
    """Bound the largest row sum of ``|G^-1|`` of sites `gap` apart; infinite where none is known.

    With B any matrix and ``R = I - G B``, ``G^-1 = B (I - R)^-1``: at most ``|B| / (1 - |R|)``.
    """
    if count == 1:
        return 1.0
    distances = np.abs(np.subtract.outer(np.arange(count), np.arange(count))) * gap
    gram = kernel(distances) / kernel.peak
    try:
        inverse = np.linalg.inv(gram)
    except np.linalg.LinAlgError:
        return math.inf
    norm = float(np.abs(inverse).sum(axis=1).max())
    rest = float(np.abs(np.eye(count) - gram @ inverse).sum(axis=1).max())
    rest += count * 1e-11 * norm  # what floats make of G, a kernel's own error, and of the product
    return norm * OUTWARD / (1 - rest) if rest < 0.5 else math.inf
