"""The rows in two parts, and the shares of one of them: means of responses, shares of groups.

Of a regression ``a_j = int w beta_j dD`` and ``c_j = int beta_j dD`` are released, w the response
in [-1, 1] as the bounds say. ``v = (1 + w) / 2`` is in [0, 1], so that P = v D and Q = (1 - v) D,
whose bins are ``(c_j + a_j) / 2`` and ``(c_j - a_j) / 2``, are measures: the rows in two parts, one
for the response and one against it. Of groups P has the rows of one, Q those of all the others. The
mean of v is the m that the noisy bins of both do not deny; docs/intervals.md, "A mean response lies
between the bins of two measures", has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from dbern.privacy.families import errors_of
from dbern.synopsis.questions.band import Band, band_in_batches
from dbern.synopsis.questions.envelopes.splines import Envelope
from dbern.synopsis.questions.interval import Denominator, quotient_interval
from dbern.synopsis.questions.noisy_measure import BinView, NoisyMeasure, normal_draws
from dbern.synopsis.questions.released_bins import ReleasedBins
from dbern.synopsis.questions.weight_batches import WeightBatches
from dbern.types import FloatArray

_MAX_LAID_OUT = 1 << 21  # weights at a time; of more nothing is simulated
_HALVES = np.array([[0.5, 0.5], [-0.5, 0.5]])  # P and Q of a and c


@dataclass(frozen=True, eq=False)
class SplitMeasure(NoisyMeasure):
    """The rows in two parts: `values` are the bins of P and of Q, (2, b_1, .., b_l).

    `mixing` (2, outputs) makes P and Q of the outputs of the released `arrays`, (outputs, b_1, ..,
    b_l) each.
    """

    arrays: tuple[NoisyMeasure, ...] = ()
    mixing: FloatArray = field(default_factory=lambda: np.eye(2))

    @classmethod
    def of(cls, arrays: Sequence[NoisyMeasure], mixing: FloatArray) -> SplitMeasure:
        """Return the parts of released arrays."""
        values = np.concatenate([array.values for array in arrays])
        errors = np.concatenate([np.full(len(array.values), array.error) for array in arrays])
        return cls(
            np.tensordot(mixing, values, axes=1),
            arrays[0].splines,
            max((array.law for array in arrays),
                key=lambda law: math.ldexp(errors_of(law).scale, law.granularity_exponent)),
            float((np.abs(mixing) @ errors).max()),
            levels=arrays[0].levels,
            arrays=tuple(arrays),
            mixing=mixing,
        )  # fmt: skip

    def joint(self) -> BinView:
        """Return the view of all bins: P in one layer, Q in another."""
        values = self.values.reshape(2, -1)
        count = values.shape[1]
        outputs = [array.noise.reshape(len(array.values), count, -1) for array in self.arrays]
        noise = np.tensordot(self.mixing, np.concatenate(outputs), axes=1)
        gram = (self.mixing @ self.mixing.T)[..., None] * np.ones(count)
        variances = self.variances
        if self.spread is not None and variances is not None:
            spread = self.spread.reshape(2, -1)
            draws = normal_draws(spread.size, noise.shape[-1], self.stream)
            shifts = np.sqrt(spread)[..., None] * draws.reshape(*spread.shape, -1)
            noise += np.stack([self.released_shifts(layer) for layer in shifts])
            variances = np.eye(2)[..., None] * variances.reshape(2, -1)
        return BinView(values, noise, gram, variances, np.abs(self.mixing).max(axis=1), self)


def split_measures(bins: ReleasedBins) -> tuple[SplitMeasure, ...]:
    """Return rows for and against each group's response, or of it and all others; or nothing."""
    if bins.response is not None:
        pairs = zip(bins.response.measures, bins.measures, strict=True)
        arrays = (
            [replace(measure, values=measure.values[None]) for measure in pair] for pair in pairs
        )
        return tuple(SplitMeasure.of(pair, _HALVES) for pair in arrays)
    if len(bins.groups) < 2:
        return ()
    measure, groups = all_groups(bins), np.eye(len(bins.groups))
    return tuple(SplitMeasure.of((measure,), np.stack([group, 1 - group])) for group in groups)


def all_groups(bins: ReleasedBins) -> NoisyMeasure:
    """Return the bins of all groups as one measure, (groups, b_1, ..)."""
    values = np.stack([measure.values for measure in bins.measures])
    return replace(bins.measures[0], values=values)


def mean_of_split(split: NoisyMeasure, weights: WeightBatches, beta: Fraction) -> Band:
    """Return the shares of P in P and Q by weights g (m, b_1, ..), from 0 to 1.

    They are the intervals of ``int g dP / int g d(P + Q)``. Below, the denominator has u for P, as
    the numerator's majorant has, and l for Q: together ``(1 - m) sum u p - m sum l q``.
    """
    view = split.joint()
    batch_size = max(1, _MAX_LAID_OUT // view.values.size)
    if batch_size < len(weights):
        view = view.without_noise_draws()

    def band(batch: slice, beta_i: Fraction) -> Band:
        g = weights.select(batch).layered()
        of_p = (np.concatenate([rows, 0.0 * rows], 1) for rows in (g.lower, g.estimate, g.upper))
        pairs = (g.upper, g.lower), (g.estimate, g.estimate), (g.lower, g.upper)
        of_both = Envelope(*(np.concatenate(pair, 1) for pair in pairs))
        return quotient_interval(view, Envelope(*of_p), Denominator.of(view, of_both), beta_i)

    return band_in_batches(len(weights), batch_size, beta, band)
