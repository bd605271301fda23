"""Plan a release: everything it will do, decided before a record is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from dbern.bernstein.coordinates import Coordinates, PlainCoordinates, SpectralCoordinates
from dbern.bernstein.lattice import Lattice
from dbern.certificate import ErrorModel, lower_bound
from dbern.choice import (
    Candidate,
    Problem,
    plain_candidates,
    require_positive_definite,
    spectral_candidates,
)
from dbern.domain import Domain
from dbern.errors import SpecError
from dbern.plans import Cost, PlannedNoise, PlannedSensitivity, ReleasePlan
from dbern.privacy.budget import Budget
from dbern.privacy.calibration import GaussianNoise, calibrate_gaussian, calibrate_laplace
from dbern.privacy.mechanism import Noise
from dbern.privacy.sensitivity import Sensitivity
from dbern.privacy.zcdp import rho_for
from dbern.records import BATCH_ROWS, FileFacts, discover, read_footers
from dbern.spec import ReleaseSpec
from dbern.targets.density import DensityStatistic

KINDS = (("laplace", "spectral-laplace"), ("discrete-gaussian", "spectral-gaussian"))
"""Noise on lattice values and on spectral coordinates: Laplace, Gaussian."""

_PAPER_H = 2
_LARGEST_PAPER_K = 64
_LARGEST_AUTO_K = 1000
_LARGEST_AUTO_LATTICE = 1_000_000
_TASK_ROWS = 4_000_000
_TASKS_AT_LEAST = 16
_SHARE = 0.01  # of the noise that the effective kernel may cost
_LARGEST_LATTICE = 50_000_000
_PROCESS_BYTES = 300 << 20


def plan(spec: ReleaseSpec) -> ReleasePlan:
    """Plan a release from the spec, the schema and the row counts; no record is read.

    Raises
    ------
    SpecError
        For files, columns or settings that cannot work; the message says what to write.
    """
    return plan_files(spec, read_footers(discover(spec.source), spec.domain.names))


def plan_files(spec: ReleaseSpec, files: Sequence[FileFacts]) -> ReleasePlan:
    """Plan a release of files whose footers are known (none: ``data.n`` alone)."""
    n = public_rows(spec, files)
    domain, learner = spec.domain, spec.learner
    coordinates, h = _choose(spec, n)
    exact = learner.sensitivity(
        domain, coordinates, n, spec.mechanism.calibration, norm=2 if spec.gaussian else 1
    )
    tolerance = _tolerance(exact, coordinates, n, _noise_ratio(spec.charge))
    statistic = learner.statistic(domain, coordinates, n, tolerance)
    law = _calibrate(exact, statistic, spec.charge)
    model = _error_model(statistic, law)
    return ReleasePlan(
        name=spec.release.name,
        dataset=spec.budget.dataset,
        charge=spec.charge,
        n=n,
        k=coordinates.lattice.k,
        h=h,
        calibration=spec.mechanism.calibration,
        spectra=coordinates.spectra if isinstance(coordinates, SpectralCoordinates) else (),
        sketch=statistic.sketch,
        sensitivity=_sensitivity(exact, law, domain),
        noise=_noise(coordinates, law, domain),
        certificate=model.bound(h, spec.beta, least=_lower_bound(spec, exact, n)),
        lattice_error=model.lattice_error,
        released_error=model.released_error,
        cost=_cost(statistic, files, n),
    )


def public_rows(spec: ReleaseSpec, files: Sequence[FileFacts]) -> int:
    """The public number of rows: the spec's, or what the footers count.

    Raises
    ------
    SpecError
        Where they disagree, or there are none.
    """
    counted = sum(file.rows for file in files)
    stated = spec.data.n
    if files and stated is not None and stated != counted:
        raise SpecError(
            f"data.n: the spec says {stated} rows and the files hold {counted}; "
            f"write n = {counted}, or leave it out"
        )
    if not files and stated is None:
        raise SpecError("data.n: is missing; write n = 2000000, the public number of rows")
    n = stated if stated is not None else counted
    if n == 0:
        raise SpecError("data.source: the files hold no rows; write a source with at least one row")
    if n.bit_length() > 45:
        raise SpecError(
            "data.source: more than 2^45 rows are not available in this version; split the source"
        )
    return n


def _choose(spec: ReleaseSpec, n: int) -> tuple[Coordinates, tuple[int, ...]]:
    """What the spec says, and the smallest predicted error over what it leaves open."""
    mechanism = spec.mechanism
    k, h = _given_k(spec), spec.per_axis("h")
    if mechanism.calibration == "paper":
        h = h or (_PAPER_H,) * spec.domain.dimensions
        k = k or _paper_k(spec, n, max(h))
    plain, spectral = KINDS[spec.gaussian]
    plain_only = mechanism.calibration == "paper" or mechanism.noise == plain
    if k is not None and h is not None and plain_only:
        return PlainCoordinates(Lattice(k)), h
    problem = replace(problem_of(spec, n), k=k, h=h)
    found: list[Candidate] = []
    if mechanism.noise == spectral:
        require_positive_definite(problem.kernels)
    else:
        found += plain_candidates(problem)
    if not plain_only:
        found += spectral_candidates(problem)
    best = min(found, key=lambda candidate: candidate.error)
    return best.coordinates, best.h


def problem_of(spec: ReleaseSpec, n: int) -> Problem:
    """What the choice of k, h, noise and rank starts from."""
    return Problem(
        kernels=spec.learner.kernels(spec.domain),
        n=n,
        gaussian=spec.gaussian,
        noise_ratio=_noise_ratio(spec.charge),
        k=_given_k(spec),
        h=spec.per_axis("h"),
        certified=spec.mechanism.objective == "certified",
        reference=spec.reference,
        largest_k=_LARGEST_AUTO_K,
        largest_lattice=_LARGEST_AUTO_LATTICE,
    )


def _given_k(spec: ReleaseSpec) -> tuple[int, ...] | None:
    k = spec.per_axis("k")
    if k is not None and Lattice(k).size > _LARGEST_LATTICE:
        raise SpecError(
            f"mechanism.k: {Lattice(k).size} coefficients, more than the {_LARGEST_LATTICE} of "
            "this version; write a smaller k"
        )
    return k


def _noise_ratio(charge: Budget) -> float:
    """Scale of the noise for sensitivity one."""
    if charge.delta:
        return 1 / math.sqrt(2 * float(rho_for(charge.epsilon, charge.delta)))
    return 1 / float(charge.epsilon)


def _paper_k(spec: ReleaseSpec, n: int, h: int) -> tuple[int, ...]:
    """The choice that proves Theorem 1, its constants set to one."""
    dimensions = spec.domain.dimensions
    peak = math.prod(kernel.peak for kernel in spec.learner.kernels(spec.domain))
    ratio = float(spec.charge.epsilon) * n / (peak * math.log(1 / spec.beta))
    return (min(_LARGEST_PAPER_K, max(1, int(ratio ** (1 / (h + dimensions))))),) * dimensions


def _tolerance(exact: Sensitivity, coordinates: Coordinates, n: int, noise_ratio: float) -> float:
    """Kernel error allowed: 1 % of the sensitivity, and 1 % of a lattice value's noise."""
    axes = (coordinates.row_sums(axis) for axis in range(len(coordinates.lattice.k)))
    rows = math.prod(float((sums**exact.norm).sum() ** (1 / exact.norm)) for sums in axes)
    bound = float(exact.bound)
    return _SHARE * min(bound * n / (2 * rows), bound * noise_ratio * coordinates.lattice_gain)


def _calibrate(exact: Sensitivity, statistic: DensityStatistic, charge: Budget) -> Noise:
    """The noise for the effective kernel, computed in floats and rounded to the grid."""
    norm, size = exact.norm, statistic.coordinates.layout.size
    moved = exact.bound + Fraction(statistic.kernel_error_norm(norm)) / statistic.n
    floats, bound = Fraction(statistic.float_error_norm(norm)), Fraction(statistic.value_bound)
    if norm == 2:
        return calibrate_gaussian(moved, floats, size, charge.epsilon, charge.delta, bound)
    return calibrate_laplace(moved, floats / size, size, charge.epsilon, bound)


def _sensitivity(exact: Sensitivity, law: Noise, domain: Domain) -> PlannedSensitivity:
    if isinstance(law, GaussianNoise):
        granules = math.sqrt(law.l2_sensitivity_granules_squared)
    else:
        granules = float(law.l1_sensitivity_granules)
    total = math.ldexp(granules, law.granularity_exponent)
    share = total / float(exact.bound) - 1
    return PlannedSensitivity(
        function=float(exact.function) / domain.volume,
        l1=total / domain.volume if exact.norm == 1 else None,
        l2=total / domain.volume if exact.norm == 2 else None,
        derivation=(
            f"Delta{exact.norm} <= {exact.derivation} = {float(exact.bound) / domain.volume:.6g}",
            f"+ {share:.2%} for the effective kernel, float error and rounding to the grid",
        ),
    )


def _noise(coordinates: Coordinates, law: Noise, domain: Domain) -> PlannedNoise:
    granularity = math.ldexp(1.0, law.granularity_exponent) / domain.volume
    plain, spectral = KINDS[isinstance(law, GaussianNoise)]
    kind = spectral if isinstance(coordinates, SpectralCoordinates) else plain
    scale = law.sigma if isinstance(law, GaussianNoise) else law.scale
    return PlannedNoise(kind, scale * granularity, granularity, law)


def _error_model(statistic: DensityStatistic, law: Noise) -> ErrorModel:
    return ErrorModel(
        kernels=statistic.kernels,
        coordinates=statistic.coordinates,
        law=law,
        lattice_error=statistic.kernel_error + statistic.position_error,
        released_error=statistic.float_error + math.ldexp(0.5, law.granularity_exponent),
        volume=statistic.domain.volume,
    )


def _lower_bound(spec: ReleaseSpec, exact: Sensitivity, n: int) -> float:
    function = float(exact.function) / spec.domain.volume
    charge = spec.charge
    return lower_bound(function, float(charge.epsilon), float(spec.beta), n, float(charge.delta))


def task_rows(rows: int) -> int:
    """Rows of one counting task: a second or so of work, and enough tasks to share it out."""
    return max(1, min(_TASK_ROWS, -(-rows // _TASKS_AT_LEAST)))


def _cost(statistic: DensityStatistic, files: Sequence[FileFacts], n: int) -> Cost:
    lattice, sketch = statistic.coordinates.lattice, statistic.sketch
    slabs = sum(1 for _ in lattice.slabs())
    slab = 8 * lattice.slab_layers * lattice.layer
    batch = 8 * BATCH_ROWS * (12 + sketch.order) * len(lattice.k)
    largest_group = max((max(file.row_groups, default=0) for file in files), default=0)
    tables = (
        8
        * (sketch.order + 2)
        * sum((k + 1) * cells for k, cells in zip(lattice.k, sketch.cells, strict=True))
    )
    reading = batch + 2 * 8 * largest_group * len(lattice.k)
    working = 4 * statistic.state_bytes + max(reading, tables + 6 * slab)
    return Cost(
        rows=n,
        tasks=max(1, -(-n // task_rows(n))),
        slabs=slabs,
        worker_bytes=_PROCESS_BYTES + working,
        client_bytes=_PROCESS_BYTES + 8 * slab,
    )
