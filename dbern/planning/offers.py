"""Which bins are released, where a number tells how much each of them misses of the data at hand.

The mathematics is `dbern.planning.tuning`'s: numbers are shared among the plan's own bins and those
that it would choose for other crowds, and a release takes one of them by `best_of`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, Self, cast

from dbern.bernstein.kernels import OUTWARD
from dbern.components.component import ScaledNoise
from dbern.counting.measurement import Measurement
from dbern.errors import SpecError
from dbern.noise_quantile import chosen_noise, noise_bound
from dbern.planning.contracts import Design, PlannedPart, plan_measurement
from dbern.planning.designs import best_design, problem_of
from dbern.planning.rows import BoundSpec
from dbern.planning.tuning import NAME, BiasStatistic, Finer
from dbern.privacy.budget import decimal_text
from dbern.privacy.families import LAPLACE
from dbern.strategies.base import Entries, Strategy
from dbern.strategies.bins import AxisBins, BinnedStrategy

_WORTH = 1.05  # times the error of other bins: they are to err less by that
_CROWDS = {"spread": 0.01, "crowded": 1.0}  # of the records, that are taken to be in one place
_MOST_BINS = 1 << 22  # of the finer ones
_FINE_ENOUGH = 0.02  # of the certificate's noise part: what finer bins may miss
_FINER = ((2, 1), (2, 2), (4, 2))  # bins, and lattice


@dataclass(frozen=True)
class Offer:
    """Bins that may be released, and the number that tells how much they miss of the data at hand.

    `part` is the number's part of what all numbers of the release spend: half is the plan's own
    bins'. The other half is shared as ``sqrt(most)``, by which the sum of their scales in data
    units is least. `bias` has the factors from the number to an error, and `noise` is the predicted
    mean sup of the bins' noise, in data units.
    """

    bins: PlannedPart
    finer: Finer
    bias: dict[str, Any]
    noise: float
    part: Fraction = Fraction(1)

    @classmethod
    def of(cls, bins: PlannedPart, bound: BoundSpec) -> Self:
        """Find finer bins that tell of bins that are planned.

        Raises SpecError where there are too many of them.
        """
        measurement, planned = bound.measurements[0], bins.planned
        strategy = cast("BinnedStrategy", bins.design.strategy)
        noise = problem_of(measurement, bound, bins.design.family).noise(strategy, planned.h)
        finer, bias = _finer_bins(
            measurement, strategy, planned.h, planned.certificate.noise, planned.arrays
        )
        return cls(bins, finer, bias, measurement.unit * noise)

    @property
    def most(self) -> float:
        """W in data units: no database misses more."""
        return float(self.bias["factor"])

    def number(self, measurement: Measurement, share: Fraction) -> Measurement:
        """Return the measurement of the number that tells of them."""
        name = NAME + self.bins.planned.name.removeprefix(measurement.name)
        return BiasStatistic(
            measurement,
            self.finer,
            name=name,
            domain=measurement.domain,
            output_fraction=share * self.part,
        )

    def promise(self, noise: ScaledNoise, share: Fraction, among: int) -> dict[str, Any]:
        """Return facts of the number with its noise, one of `among`."""
        bins, strategy = self.bins.planned, cast("Strategy", self.bins.design.strategy)
        certificate, beside = bins.certificate, (noise.law, self.most / bins.unit)
        bound = partial(noise_bound, strategy, bins.h, bins.noise.law)
        _, least = chosen_noise(bound, Fraction(certificate.beta) / bins.outputs, beside, among)
        maps = cast("tuple[AxisBins, ...]", bins.maps)
        return {
            **self.bias,
            "noise": self.noise,
            "among": among,
            "least": self.bias["rest"] + bins.unit * least,
            "share": decimal_text(share * self.part),
            "bins": bins.name,
            "cells": [axis.cells for axis in maps],
            "degree": maps[0].degree,
        }


def offers(function: PlannedPart, bound: BoundSpec) -> list[PlannedPart]:
    """Plan what tells how much bins miss of these data, and bins that it may choose in their place.

    `function` is the plan's own; the number that tells of its bins comes first.
    """
    measurement, tune = function.measurement, bound.spec.tune
    bins = [function]
    if not (bound.certified or bound.questions):  # for which the plan has chosen them
        for name, crowd in _CROWDS.items():
            renamed = replace(measurement, name=f"{measurement.name}_{name}")
            design = best_design(renamed, replace(bound, crowd=crowd))
            bins.append(plan_measurement(renamed, design, bound))
    moved = measurement.sensitivity(function.design.strategy, 1).value / bound.n
    scale = moved / float(bound.charge.epsilon * tune)
    made: list[Offer] = []
    for part in bins:
        if not any(part.planned.maps == offer.bins.planned.maps for offer in made):
            with suppress(SpecError) if made else nullcontext():  # finer ones may be too many
                made.append(Offer.of(part, bound))
    offered, parts = _shared(made, scale), []
    for offer in offered:
        number = plan_measurement(
            offer.number(measurement, tune), Design(Entries(1), (), LAPLACE), bound
        )
        promise = offer.promise(number.planned.noise, tune, len(offered))
        planned = number.planned.model_copy(update={"promise": promise})
        parts += [offer.bins] if offer.bins is not function else []
        parts.append(replace(number, planned=planned))
    names = [part.planned.name for part in parts]
    if len({function.planned.name, *names}) <= len(names):
        raise SpecError(
            f"mechanism.tune: it releases {', '.join(names)}, and the learner has one of "
            "these names. Rename the learner's measurement, or leave tune out"
        )
    return parts


def _shared(made: Sequence[Offer], scale: float) -> list[Offer]:
    """Share among those that may be chosen what tells of them; `scale` is that of one alone."""
    roots = [math.sqrt(offer.most) for offer in made[1:]]
    parts = [max(1, int(50 * root / sum(roots))) for root in roots]
    fractions = [Fraction(part, 100) for part in (100 - sum(parts), *parts)]
    first, *rivals = (
        replace(offer, part=part) for offer, part in zip(made, fractions, strict=True)
    )

    def outcome(offer: Offer, missed: float) -> Outcome:
        noise, unsure = offer.bins.planned.certificate.noise, offer.most * scale
        unsure /= float(offer.part)
        least = noise + unsure + offer.bias["rest"]  # about what both exceed seldom
        return Outcome(offer.noise, missed, unsure, least)

    def may_win(rival: Offer) -> bool:  # finer bins may be best where the plan's own miss
        missed = first.most if rival.most < first.most else 0.0
        return bool(best_of(len(first.finer.h), [outcome(first, missed), outcome(rival, 0.0)]))

    offered = [rival for rival in rivals if may_win(rival)]
    return [first, *rivals] if len(offered) == len(rivals) else _shared([first, *offered], scale)


@dataclass(frozen=True)
class Outcome:
    """Facts of bins once their number is released, in data units.

    `noise` is the predicted mean sup of their noise, `missed` what the number tells, `unsure` the
    scale of its noise, and `least` what would be promised where it told nothing: the noise's part
    and the number's noise.
    """

    noise: float
    missed: float
    unsure: float
    least: float

    def error(self, axes: int, unsure: float, times: float = 1.0) -> float:
        """Return a power of the predicted sup error.

        The sup of noise and of what is missed has about the sum of their squares on one axis, of
        cubes on two, of fourth powers on three: where there are more places the two are seldom
        large at one of them. Only sums and products of floats: it is the same on every machine that
        a release goes on.
        """
        missed = max(0.0, max(0.0, self.missed) + unsure)
        return sum(math.prod([times * error] * (axes + 1)) for error in (self.noise, missed))

    @property
    def promised(self) -> float:
        """Promise about these data."""
        return self.least + max(0.0, self.missed)


def best_of(axes: int, outcomes: Sequence[Outcome]) -> int:
    """Return which bins err least: the first, unless others' gain is worth it, and likely.

    For the first less is taken to be missed than is told, by the scale of the noise; for the
    others, more, and no more may be promised.
    """
    first, *rivals = outcomes
    errors = [
        rival.error(axes, rival.unsure, _WORTH) if rival.promised <= first.promised else math.inf
        for rival in rivals
    ]
    best = min(range(len(errors)), key=errors.__getitem__, default=0)
    return best + 1 if errors and errors[best] <= first.error(axes, -first.unsure) else 0


def _finer_bins(
    measurement: Measurement,
    bins: BinnedStrategy,
    h: tuple[int, ...],
    noise: float,
    arrays: Sequence[str],
) -> tuple[Finer, dict[str, Any]]:
    """Return finer bins, and the factors from what they tell to an error of `arrays` in data units.

    `noise` is the certificate's part for the noise, in data units: they need not miss much less.
    Raises SpecError where there are too many of them.
    """
    tried: list[tuple[float, Finer, tuple[int, int]]] = []
    unit = measurement.unit
    for how in _FINER:
        if math.prod(how[0] * axis.cells + axis.degree for axis in bins.bins) > _MOST_BINS:
            continue
        finer = Finer.of(measurement.kernels, bins, h, how)
        missed = measurement.approximation.error(finer.finer.lattice.k, h, finer.finer.bins)
        tried.append((missed, finer, how))
        if missed * unit <= _FINE_ENOUGH * noise:
            break
    if not tried:
        raise SpecError(
            f"mechanism.tune: more than {_MOST_BINS} bins would tell what these data make the bins "
            'miss. Write tune = "0", or a larger bandwidth'
        )
    missed, finer, how = min(tried, key=lambda attempt: attempt[0])
    return finer, {
        "of": list(arrays),
        "how": list(how),
        "factor": OUTWARD * finer.factor * finer.bound * unit,
        "rest": OUTWARD * (finer.loose + missed) * unit,
        "even": finer.evenly_spread() / finer.bound,
    }
