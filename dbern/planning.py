"""Plan a release: everything it will do, decided before a record is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from dbern.bernstein.coordinates import Coordinates, PlainCoordinates, SpectralCoordinates
from dbern.bernstein.lattice import Lattice
from dbern.certificate import ErrorModel, lower_bound
from dbern.choice import Candidate, Problem, plain_candidates, spectral_candidates
from dbern.domain import Domain
from dbern.errors import SpecError
from dbern.plans import Cost, PlannedNoise, PlannedSensitivity, ReleasePlan
from dbern.privacy.calibration import LaplaceNoise, calibrate_laplace
from dbern.privacy.sensitivity import Sensitivity
from dbern.records import BATCH_ROWS, FileFacts, discover, read_footers
from dbern.spec import ReleaseSpec
from dbern.targets.density import DensityStatistic

_PAPER_H = 2
_LARGEST_PAPER_K = 64
_LARGEST_AUTO_K = 1000
_LARGEST_AUTO_LATTICE = 1_000_000
_TASK_ROWS = 4_000_000
_TASKS_AT_LEAST = 16
_SHARE = Fraction(1, 100)  # of the noise that the effective kernel may cost
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
    domain, learner, epsilon = spec.domain, spec.learner, spec.charge.epsilon
    coordinates, h = _choose(spec, n)
    exact = learner.sensitivity(domain, coordinates, n, spec.mechanism.calibration)
    statistic = learner.statistic(
        domain, coordinates, n, _tolerance(exact, coordinates, n, epsilon)
    )
    law = calibrate_laplace(
        exact.l1 + Fraction(statistic.kernel_error_l1) / n,
        eta=Fraction(statistic.mean_float_error),
        coefficients=coordinates.layout.size,
        epsilon=epsilon,
        bound=Fraction(statistic.value_bound),
    )
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
        certificate=model.bound(h, spec.beta, _lower_bound(spec, exact, n)),
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
    k, h = spec.per_axis("k"), spec.per_axis("h")
    if mechanism.calibration == "paper":
        h = h or (_PAPER_H,) * spec.domain.dimensions
        k = k or _paper_k(spec, n, max(h))
    if k is not None and Lattice(k).size > _LARGEST_LATTICE:
        raise SpecError(
            f"mechanism.k: {Lattice(k).size} coefficients, more than the {_LARGEST_LATTICE} of "
            "this version; write a smaller k"
        )
    plain_only = mechanism.calibration == "paper" or mechanism.noise == "laplace"
    if k is not None and h is not None and plain_only:
        return PlainCoordinates(Lattice(k)), h
    problem = replace(problem_of(spec, n), k=k, h=h)
    found: list[Candidate] = []
    if mechanism.noise != "spectral-laplace":
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
        epsilon=float(spec.charge.epsilon),
        k=spec.per_axis("k"),
        h=spec.per_axis("h"),
        certified=spec.mechanism.objective == "certified",
        reference=spec.reference,
        largest_k=_LARGEST_AUTO_K,
        largest_lattice=_LARGEST_AUTO_LATTICE,
    )


def _paper_k(spec: ReleaseSpec, n: int, h: int) -> tuple[int, ...]:
    """The choice that proves Theorem 1, its constants set to one."""
    dimensions = spec.domain.dimensions
    peak = math.prod(kernel.peak for kernel in spec.learner.kernels(spec.domain))
    ratio = float(spec.charge.epsilon) * n / (peak * math.log(1 / spec.beta))
    return (min(_LARGEST_PAPER_K, max(1, int(ratio ** (1 / (h + dimensions))))),) * dimensions


def _tolerance(exact: Sensitivity, coordinates: Coordinates, n: int, epsilon: Fraction) -> float:
    """Kernel error allowed: 1 % of Delta1, and 1 % of the scale of a lattice value's noise."""
    axes = range(len(coordinates.lattice.k))
    total = math.prod(float(coordinates.row_sums(axis).sum()) for axis in axes)
    noise = exact.l1 / epsilon * Fraction(coordinates.lattice_gain)
    return float(_SHARE * min(exact.l1 * n / Fraction(2 * total), noise))


def _sensitivity(exact: Sensitivity, law: LaplaceNoise, domain: Domain) -> PlannedSensitivity:
    granularity = Fraction(2) ** law.granularity_exponent
    total = law.l1_sensitivity_granules * granularity
    share = float((total - exact.l1) / exact.l1)
    return PlannedSensitivity(
        function=float(exact.function) / domain.volume,
        l1=float(total) / domain.volume,
        derivation=(
            f"Delta1 <= {exact.derivation} = {float(exact.l1) / domain.volume:.6g}",
            f"+ {share:.2%} for the effective kernel, float error and rounding to the grid",
        ),
    )


def _noise(coordinates: Coordinates, law: LaplaceNoise, domain: Domain) -> PlannedNoise:
    granularity = math.ldexp(1.0, law.granularity_exponent) / domain.volume
    spectral = isinstance(coordinates, SpectralCoordinates)
    kind = "spectral-laplace" if spectral else "laplace"
    return PlannedNoise(kind, law.scale * granularity, granularity, law)


def _error_model(statistic: DensityStatistic, law: LaplaceNoise) -> ErrorModel:
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
    return lower_bound(function, float(spec.charge.epsilon), float(spec.beta), n)


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
