"""Plan the number that `tune` pays for: how much the released bins miss of the data at hand.

The mathematics is `dbern.planning.bias_statistic`'s.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

from dbern.bernstein.kernels import OUTWARD
from dbern.certify.noise_quantile import noise_bound
from dbern.errors import SpecError
from dbern.measure.measurement import Measurement
from dbern.planning.bias_statistic import NAME, BiasStatistic
from dbern.planning.finer_bins import FinerBins
from dbern.planning.measurement_plan import Design, PlannedPart, plan_measurement
from dbern.planning.rows import BoundSpec
from dbern.privacy.budget import decimal_text
from dbern.privacy.families import LAPLACE
from dbern.reconstruct.base import VectorStrategy
from dbern.reconstruct.bins import BinnedStrategy

_MAX_BINS = 1 << 22  # of the finer ones
_FINE_ENOUGH = 0.02  # of the certificate's noise part: what finer bins may miss
_REFINEMENTS = ((2, 1), (2, 2), (4, 2))  # of the bins, and of the lattice


def plan_bias_statistic(function: PlannedPart, bound: BoundSpec) -> PlannedPart:
    """Plan the number that bounds what the bins of a planned function miss of the data at hand.

    Raises SpecError where finer bins would be too many.
    """
    measurement, planned, tune = function.measurement, function.planned, bound.spec.tune
    strategy, certificate = cast("BinnedStrategy", function.design.strategy), planned.certificate
    finer, bias = _finer_bins(measurement, strategy, planned.h, certificate.noise)
    statistic = BiasStatistic(
        measurement, finer, name=NAME, domain=measurement.domain, output_fraction=tune
    )
    number = plan_measurement(statistic, Design(VectorStrategy(1), (), LAPLACE), bound)
    beta_i = Fraction(certificate.beta) / planned.outputs
    extra_noise = number.planned.noise.law, bias["factor"] / planned.unit
    noise_part = noise_bound(strategy, planned.h, planned.noise.law, beta_i, extra_noise)
    promise = {
        "of": list(planned.arrays),
        **bias,
        "least": bias["rest"] + planned.unit * noise_part,
        "share": decimal_text(tune),
    }
    return replace(number, planned=number.planned.model_copy(update={"promise": promise}))


def _finer_bins(
    measurement: Measurement, bins: BinnedStrategy, h: tuple[int, ...], noise: float
) -> tuple[FinerBins, dict[str, Any]]:
    """Return finer bins, and the factors from what they tell to an error in data units.

    `noise` is the certificate's part for the noise, in data units: they need not miss much less.
    Raises SpecError where there are too many of them.
    """
    tried: list[tuple[float, FinerBins, tuple[int, int]]] = []
    unit = measurement.unit
    for refinement in _REFINEMENTS:
        if math.prod(refinement[0] * axis.cells + axis.degree for axis in bins.bins) > _MAX_BINS:
            continue
        finer = FinerBins.of(measurement.kernels, bins, h, refinement)
        error = measurement.approximation.error(finer.finer.lattice.k, h, finer.finer.bins)
        tried.append((error, finer, refinement))
        if error * unit <= _FINE_ENOUGH * noise:
            break
    if not tried:
        raise SpecError(
            f"mechanism.tune: more than {_MAX_BINS} bins would tell what these data make the bins "
            'miss. Write tune = "0", or a larger bandwidth'
        )
    error, finer, refinement = min(tried, key=lambda attempt: attempt[0])
    return finer, {
        "how": list(refinement),
        "factor": OUTWARD * finer.factor * finer.bound * unit,
        "rest": OUTWARD * (finer.loose + error) * unit,
        "even": finer.evenly_spread() / finer.bound,
    }
