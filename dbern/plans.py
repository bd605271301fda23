"""``ReleasePlan``: what a release will do, as a value that prints, travels and comes back."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from dbern.bernstein.coordinates import Coordinates, PlainCoordinates, SpectralCoordinates
from dbern.bernstein.lattice import Lattice
from dbern.bernstein.moments import MomentSketch
from dbern.bernstein.spectrum import AxisSpectrum
from dbern.certificate import Certificate
from dbern.privacy.budget import Budget, decimal_text
from dbern.privacy.mechanism import Noise, noise_law
from dbern.spec import ReleaseSpec
from dbern.targets.density import DensityStatistic


@dataclass(frozen=True)
class PlannedSensitivity:
    """Sensitivities in data units; `l1` or `l2`, whichever the noise is calibrated to.

    Both include every rounding between record and noise.
    """

    function: float
    l1: float | None
    l2: float | None
    derivation: tuple[str, ...]


@dataclass(frozen=True)
class PlannedNoise:
    """The noise in data units, and its exact integer law in granules of `granularity`."""

    kind: str
    scale: float
    granularity: float
    law: Noise


@dataclass(frozen=True)
class Cost:
    """What the release will take; `worker_bytes` and `client_bytes` are peak memory."""

    rows: int
    tasks: int
    slabs: int
    worker_bytes: int
    client_bytes: int


@dataclass(frozen=True)
class ReleasePlan:
    """A release, resolved.

    Examples
    --------
    >>> import dbern
    >>> from dbern.planning import plan_files
    >>> spec = dbern.ReleaseSpec(
    ...     release={"name": "demo", "output": "demo.zarr"},
    ...     data={"source": "*.parquet", "bounds": {"x": [0.0, 10.0]}, "n": 100_000},
    ...     target={"kind": "kernel-density", "bandwidth": [0.5]},
    ...     mechanism={"k": 20, "h": 4, "noise": "laplace"},
    ...     budget={"epsilon": "1.0", "ledger": "sqlite:///ledger.db", "dataset": "demo"},
    ... )
    >>> plan = plan_files(spec, files=())
    >>> plan.k, plan.h, plan.noise.kind
    ((20,), (4,), 'laplace')
    """

    name: str
    dataset: str
    charge: Budget
    n: int
    k: tuple[int, ...]
    h: tuple[int, ...]
    calibration: str
    spectra: tuple[AxisSpectrum, ...]
    sketch: MomentSketch
    sensitivity: PlannedSensitivity
    noise: PlannedNoise
    certificate: Certificate
    lattice_error: float
    released_error: float
    cost: Cost

    @property
    def lattice(self) -> Lattice:
        """The lattice of coefficients."""
        return Lattice(self.k)

    @property
    def coordinates(self) -> Coordinates:
        """What is released of the lattice values."""
        if self.spectra:
            return SpectralCoordinates(self.lattice, self.spectra)
        return PlainCoordinates(self.lattice)

    def statistic(self, spec: ReleaseSpec) -> DensityStatistic:
        """The planned sums over records."""
        domain = spec.domain
        return DensityStatistic(
            domain, spec.learner.kernels(domain), self.coordinates, self.sketch, self.n
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, exact where the plan is exact; `from_dict` reads them back."""
        content = asdict(replace(self, spectra=()))
        content["spectra"] = [spectrum.to_dict() for spectrum in self.spectra]
        content["charge"] = {
            "epsilon": decimal_text(self.charge.epsilon),
            "delta": decimal_text(self.charge.delta),
        }
        content["certificate"]["total"] = self.certificate.total
        return content

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> ReleasePlan:
        """The plan that `to_dict` wrote."""
        given = dict(content)
        certificate = {key: given["certificate"][key] for key in Certificate.__dataclass_fields__}
        noise = given["noise"]
        return cls(
            **{
                **given,
                "charge": Budget.parse(**given["charge"]),
                "k": tuple(given["k"]),
                "h": tuple(given["h"]),
                "spectra": tuple(AxisSpectrum.from_dict(one) for one in given["spectra"]),
                "sketch": MomentSketch.from_dict(given["sketch"]),
                "sensitivity": PlannedSensitivity(
                    **{
                        **given["sensitivity"],
                        "derivation": tuple(given["sensitivity"]["derivation"]),
                    }
                ),
                "noise": PlannedNoise(**{**noise, "law": noise_law(noise["law"])}),
                "certificate": Certificate(**certificate),
                "cost": Cost(**given["cost"]),
            }
        )

    def explain(self) -> str:
        """The plan in words and numbers, all in data units."""
        return "\n".join(f"{label:<13}{text}" for label, text in _lines(self))


def _lines(plan: ReleasePlan) -> list[tuple[str, str]]:
    sense, noise, sure, cost = plan.sensitivity, plan.noise, plan.certificate, plan.cost
    cells, moments = " x ".join(map(str, plan.sketch.cells)), len(plan.sketch.indices)
    k, h, size = _per_axis(plan.k), _per_axis(plan.h), plan.lattice.size
    function, scale = f"{sense.function:.6g}", f"{noise.scale:.6g}"
    bound = f"Delta1 = {sense.l1:.6g}" if sense.l1 is not None else f"Delta2 = {sense.l2:.6g}"
    parts = f"approximation {sure.approximation:.6g} + rounding {sure.rounding:.3g}"
    return [
        ("release", f"{plan.name}, paid by {plan.dataset}: {plan.charge}"),
        ("lattice", f"k {k}, h {h}: N = {size} coefficients"),
        *([("", f"released as {_ranks(plan)} spectral coordinates")] if plan.spectra else []),
        ("records", f"n = {plan.n}, one row replaced; {cells} cells x {moments} integer moments"),
        ("sensitivity", f"S(F) = {function}, {bound} ({plan.calibration})"),
        *(("", line) for line in sense.derivation),
        ("noise", f"exact {noise.kind.removeprefix('discrete-')}, scale {scale}"),
        ("", f"on multiples of {noise.granularity:.4g}"),
        ("certificate", f"sup error <= {sure.total:.6g} with probability {1 - sure.beta:g}"),
        ("", f"{parts} + noise {sure.noise:.6g}"),
        ("", "the first part is that of the worst database, all records at one point"),
        ("", _compared(plan)),
        ("work", f"{cost.rows} rows in about {cost.tasks} tasks, {cost.slabs} lattice slabs"),
        (
            "memory",
            f"at most {cost.worker_bytes >> 20} MiB a worker thread, "
            f"{cost.client_bytes >> 20} MiB in the releasing process",
        ),
    ]


def _compared(plan: ReleasePlan) -> str:
    least, total = plan.certificate.lower_bound, plan.certificate.total
    one = f"S/epsilon = {plan.sensitivity.function / float(plan.charge.epsilon):.3g}"
    if not least:
        return f"for comparison, {one}"
    return f"{total / least:.0f} times the {least:.3g} that no mechanism can beat; {one}"


def _ranks(plan: ReleasePlan) -> str:
    return " x ".join(str(spectrum.rank) for spectrum in plan.spectra)


def _per_axis(values: tuple[int, ...]) -> str:
    return str(values[0]) if len(set(values)) == 1 else str(list(values))
