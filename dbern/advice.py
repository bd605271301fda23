"""What a steward asks before choosing: the trade-off, and the epsilon that a wanted error costs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dbern.calibrating import KINDS
from dbern.choice import Candidate, candidates
from dbern.components.base import Vector
from dbern.components.capabilities import for_rows, is_linear
from dbern.errors import SpecError
from dbern.planning import footers, plan_files, problem_of, public_rows, resolved
from dbern.plans import ReleasePlan
from dbern.progress import Progress, silent
from dbern.spec import ReleaseSpec

_STEPS = 14
_MOST_OPTIONS = 20  # certified, each as a plan is: a fraction of a second
_LEAST, _MOST = Fraction(1, 10**4), Fraction(10**4)
_DIGITS = 3


@dataclass(frozen=True)
class Option:
    """One row of the trade-off: what a plan with these k, h, noise and rank certifies.

    Attributes
    ----------
    predicted : float
        The error in data units that the plan's choice makes small (see `dbern.choice`).
    noise, approximation, rounding : float
        Parts of the certificate of this component, in data units.
    error : float
        Their sum.
    """

    noise_kind: str
    k: tuple[int, ...]
    h: tuple[int, ...]
    values: int
    predicted: float
    noise: float
    approximation: float
    rounding: float
    error: float


def tradeoff(spec: ReleaseSpec) -> list[Option]:
    """The best order for each lattice and rank of the first component, least predicted error first.

    The first is what the plan chooses, and each is certified as the plan certifies it. At most
    `_MOST_OPTIONS`; no record is read.

    Raises
    ------
    SpecError
        For files, columns or settings that cannot work.
    """
    _refuse_advanced(spec)
    files = footers(spec)
    if spec.mechanism.calibration == "paper":
        raise SpecError('mechanism.calibration: the trade-off is that of "tight"; write "tight"')
    component, n = spec.components[0], public_rows(spec, files)
    if isinstance(component, Vector) or is_linear(component):
        raise SpecError(
            f'target.kind: "{spec.learner.kind}" leaves no k, h or rank to choose; '
            "leave out --table"
        )
    problem = problem_of(spec, component, n)
    best: dict[tuple[str, tuple[int, ...], int], Candidate] = {}
    for family, kind in KINDS[spec.gaussian].items():
        if spec.mechanism.noise not in ("auto", kind):
            continue
        for candidate in candidates(family, problem):
            coordinates = candidate.coordinates
            key = (kind, coordinates.lattice.k, coordinates.layout.size)
            if key not in best or candidate.error < best[key].error:
                best[key] = candidate
    at_once, sized = sum(one.outputs for one in spec.components), for_rows(component, n)
    options = []
    for (kind, k, values), one in sorted(best.items(), key=_predicted)[:_MOST_OPTIONS]:
        planned, _ = resolved(spec, sized, n, at_once, one.coordinates, one.h)
        sure, predicted = planned.certificate, one.error * problem.component.unit
        parts = (sure.noise, sure.approximation, sure.rounding, sure.total)
        options.append(Option(kind, k, one.h, values, predicted, *parts))
    return options


def _predicted(item: tuple[object, Candidate]) -> float:
    return item[1].error


def smallest_epsilon(
    spec: ReleaseSpec, error: float, progress: Progress = silent
) -> tuple[Fraction, ReleasePlan]:
    """The smallest epsilon, to three digits, whose certificate is at most `error` in data units.

    Bisection on a logarithmic scale over plans with ``objective = "certified"``; the certificate
    falls as epsilon grows but for the choice's own steps, so the answer certifies what it says
    though a slightly smaller one might too.

    Raises
    ------
    SpecError
        Where no epsilon reaches the error.
    """
    _refuse_advanced(spec)
    files = footers(spec)

    def planned(epsilon: Fraction) -> ReleasePlan:
        return plan_files(spec.certified_at(epsilon), files)

    low, high = _LEAST, _MOST
    best = planned(high)
    if not error >= best.certificate.total:
        raise SpecError(
            f"--target-error: {error:g} is below {best.certificate.total:.3g}, which even epsilon "
            f"{high} certifies; write a larger error, a larger bandwidth, or a larger mechanism.k"
        )
    for step in range(_STEPS):
        middle = _rounded(float(low * high) ** 0.5)
        candidate = planned(middle)
        if candidate.certificate.total <= error:
            high, best = middle, candidate
        else:
            low = middle
        progress("searching epsilon", step + 1, _STEPS)
    return high, best


def _refuse_advanced(spec: ReleaseSpec) -> None:
    if spec.advanced:
        raise SpecError(
            'mechanism.noise: "laplace-advanced" is kept for comparison with a plan; to choose, '
            'write noise = "auto"'
        )


def _rounded(value: float) -> Fraction:
    return Fraction(f"{value:.{_DIGITS - 1}e}")
