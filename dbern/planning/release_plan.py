"""``ReleasePlan``: the work of a release and its cost, as a value that prints and travels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any, Self

from dbern.ask.labels import change_text, function_title
from dbern.bernstein.basis import INTERPOLATED
from dbern.certify.approximation import KernelMixture, remedies_of
from dbern.certify.certificate import Certificate
from dbern.certify.error_summary import ErrorSummary, printed_sum
from dbern.measure.counters import Counters
from dbern.measure.statistic import Statistic
from dbern.model.component import ScaledNoise, ScaledSensitivity, StoredCertificate
from dbern.model.function_classes import StoredClass
from dbern.planning.component_plan import PlannedComponent
from dbern.planning.cost import Cost
from dbern.planning.predicted import width_text
from dbern.planning.resolved import spec_for_rows
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.budget import Budget, Protection, decimal_text
from dbern.privacy.zcdp import pure_rho, rho_above
from dbern.reconstruct.base import ArrayLayout, Lattice, Strategy, VectorStrategy
from dbern.system import counted, format_number, html_table
from dbern.targets.typical import TYPICAL

_ALARM = "WARNING: "
EDGES = "shares without a resolution "
"""Beginning of the note that says by what factor a resolution narrows them."""
_FIRST_PART = {
    "mixture of bumps": "the first part is that of the worst database, all records at one point",
    "chosen mixture of bumps": "of the narrowest kernel that may be chosen; others have no more",
    "linear": "a linear function is reproduced exactly",
    "holder": "the first part is that of the worst function of the stated smoothness",
    "smooth": "the first part is that of the worst function of the stated smoothness",
    "reproducing ball": "the first part is that of the worst function of its norm",
    "stated ball": "the first part is that of the worst function of its norm",
}


def release_texts(spec: ReleaseSpec) -> dict[str, Any]:
    """Texts of a release for people: the spec's, and its columns by their role."""
    release, records = spec.release, spec.records
    roles = {"response": records.response, "label": records.label, "group": records.group}
    texts = {
        "title": release.title,
        "description": release.description,
        "columns": {role: column.name for role, column in roles.items() if column},
        "units": spec.data.units,
    }
    return {key: text for key, text in texts.items() if text}


def plan_title(spec: ReleaseSpec) -> str:
    """Name the function that a spec releases."""
    target = {"kind": spec.learner.kind, **spec.learner.get_params()}
    return function_title(spec.combination, spec.domain, {"target": target, **release_texts(spec)})


@dataclass(frozen=True)
class ErrorForecast:
    """Errors that a plan expects beside what it certifies, in data units; see `ErrorSummary`.

    `questions` are those that the spec names, and what is predicted of each
    (`dbern.planning.predicted`): of a density in data units, else in shares.
    """

    expected: float | None = None
    these_data: float | None = None
    extent: tuple[float, float] | None = None
    unit: str = ""
    pointwise: bool = False
    questions: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; `pointwise` is stored as by_place."""
        content = {
            "expected": self.expected,
            "these_data": self.these_data,
            "extent": self.extent,
            "unit": self.unit,
            "by_place": self.pointwise,
        }
        return content | ({"questions": dict(self.questions)} if self.questions else {})

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote; plans of before had no forecast."""
        extent = tuple(content["extent"]) if content.get("extent") else None
        fields = {"pointwise" if key == "by_place" else key: content[key] for key in content}
        return cls(**{**fields, "extent": extent})


@dataclass(frozen=True)
class ReleasePlan:
    """A release, resolved.

    `k`, `h`, `noise` and `sensitivity` are those of the first component; most releases have one.
    The certificate is that of the whole function; `n` is the normalizer where rows are private.

    Examples
    --------
    >>> import dbern
    >>> from dbern.planning.planner import plan_files
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
    protection: Protection
    calibration: str
    components: tuple[PlannedComponent, ...]
    certificate: Certificate
    cost: Cost
    notes: tuple[str, ...] = ()
    outlook: ErrorForecast = ErrorForecast()
    title: str = ""

    @property
    def promises(self) -> ErrorSummary:
        """Expected error, promise for the data at hand as far as it is known, and for any data."""
        forecast, certificate, first = self.outlook, self.certificate, self.components[0]
        stated = first.approximation.restore() if first.approximation else None
        largest = None if forecast.extent is None else max(map(abs, forecast.extent))
        counting = first.counting
        return ErrorSummary(
            forecast.expected, forecast.these_data, certificate.total, certificate.beta,
            forecast.unit, largest, forecast.extent, released=False, pointwise=forecast.pointwise,
            on_lattice=self.on_lattice,
            remedies=remedies_of(stated, "scale" in counting, "list_scale" in counting)
        )  # fmt: skip

    @property
    def on_lattice(self) -> bool:
        """Whether a function is released on a lattice, and not numbers alone."""
        return not all(component.entries for component in self.components)

    @property
    def guarantee(self) -> Budget:
        """Guarantee that the charge buys."""
        return self.charge

    @property
    def k(self) -> tuple[int, ...]:
        """Resolution of the lattice, per axis."""
        return self.components[0].k

    @property
    def h(self) -> tuple[int, ...]:
        """Order of the operator, per axis."""
        return self.components[0].h

    @property
    def noise(self) -> ScaledNoise:
        """Kind and scale of the noise."""
        return self.components[0].noise

    @property
    def sensitivity(self) -> ScaledSensitivity:
        """Sensitivities in data units."""
        return self.components[0].sensitivity

    @property
    def rho(self) -> Fraction | None:
        """Cost of the release in zCDP: its planned laws' rhos together; half epsilon squared.

        The latter where there is no delta. None where the guarantee is an (epsilon, delta) only.
        """
        if not self.charge.delta:
            return pure_rho(self.charge.epsilon)
        rhos = [planned.noise.law.rho for planned in self.components]
        known = [rho for rho in rhos if rho is not None]
        if len(known) < len(rhos):
            return None
        return rho_above(sum(known, Fraction(0)))

    @property
    def lattice(self) -> Lattice | ArrayLayout:
        """The lattice of coefficients."""
        return self.components[0].lattice

    @property
    def strategy(self) -> Strategy | VectorStrategy:
        """Released form of the lattice values."""
        return self.components[0].strategy

    def statistics(self, spec: ReleaseSpec) -> tuple[Statistic, ...]:
        """Return the components' statistics."""
        return spec_for_rows(spec, self.n).components

    def counters(self, spec: ReleaseSpec) -> Counters:
        """Return the planned sums over records."""
        parts = [
            statistic.from_params(planned.strategy, self.n, planned.counting)
            for statistic, planned in zip(self.statistics(spec), self.components, strict=True)
        ]
        unit, admits = self.protection.unit, spec.enforces_nights
        return Counters.of(parts, spec.records, unit, self.n, admits=admits)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, exact where the plan is exact; `from_dict` reads them back."""
        return {
            "name": self.name,
            "title": self.title,
            "dataset": self.dataset,
            "charge": {
                "epsilon": decimal_text(self.charge.epsilon),
                "delta": decimal_text(self.charge.delta),
            },
            "rho": None if self.rho is None else decimal_text(self.rho),
            "normalizer" if self.protection.private_rows else "n": self.n,
            **self.protection.to_dict(),
            "calibration": self.calibration,
            "components": [component.to_json() for component in self.components],
            "certificate": StoredCertificate.of(self.certificate).to_json(),
            "cost": asdict(self.cost),
            "notes": list(self.notes),
            "outlook": self.outlook.to_dict(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ReleasePlan:
        """Read the plan that `to_dict` wrote."""
        fields = dict(content)
        del fields["rho"]  # of the laws
        protection = Protection.from_dict(fields.pop("neighbors"), fields.pop("unit"))
        n = fields.pop("normalizer") if "normalizer" in fields else fields.pop("n")
        return cls(
            **{
                **fields,
                "n": n,
                "protection": protection,
                "charge": Budget.parse(**content["charge"]),
                "components": tuple(map(PlannedComponent.from_json, content["components"])),
                "certificate": StoredCertificate.from_json(content["certificate"]).restore(),
                "cost": Cost(**content["cost"]),
                "notes": tuple(content["notes"]),
                "outlook": ErrorForecast.from_dict(content.get("outlook", {})),
            }
        )

    def explain(self, *, details: bool = False) -> str:
        """Return the plan in words and numbers, all in data units.

        Six lines, or with `details` all that it has decided.
        """
        if details:
            return "\n".join(f"{label:<13}{text}" for label, text in _lines(self))
        return "\n".join(f"{label:<10}{text}" for label, text in _summary_lines(self))

    def __str__(self) -> str:
        return self.explain()

    def _repr_html_(self) -> str:
        rows: dict[str, str] = {}
        for label, text in _summary_lines(self):
            label = label or [*rows][-1]  # it goes on
            rows[label] = f"{rows[label]}; {text}" if label in rows else text
        return html_table(rows)


def measured_pairs(
    statistics: Sequence[Statistic], components: Sequence[PlannedComponent]
) -> list[tuple[Statistic, PlannedComponent]]:
    """Return each component and its statistic."""
    by_name = {statistic.name: statistic for statistic in statistics}
    return [(by_name[planned.name], planned) for planned in components]


def _summary_lines(plan: ReleasePlan) -> list[tuple[str, str]]:
    """Return labels and texts of the summary; the first label is the release's name."""
    rows = f"from {format_number(plan.n)} rows"
    if plan.protection.private_rows:
        rows = f"sums over {format_number(plan.n)} rows, whose number is private"
    lines = [(f"{plan.name}: ", f"{plan.title}, {rows}"), *warnings_of(plan.notes)]
    lines.append(("costs", f"{plan.guarantee} of dataset {plan.dataset}, once"))
    lines.append(("protects", change_text(plan.protection)))
    lines += _error_lines(plan)
    return [*lines, ("takes", memory_text(plan))]


def warnings_of(notes: Sequence[str]) -> list[tuple[str, str]]:
    """Return the warnings among notes, for the head of a plan."""
    return [("WARNING", note.removeprefix(_ALARM)) for note in notes if note.startswith(_ALARM)]


def _error_lines(plan: ReleasePlan) -> list[tuple[str, str]]:
    """Say what the answers are good for."""
    first = plan.components[0]
    even = first.unit / first.outputs if plan.outlook.unit.startswith(" per ") else None
    predictions = [note for note in plan.notes if note.startswith(TYPICAL)]
    rows = f"up to {format_number(plan.n)} rows" if plan.protection.private_rows else "the rows"
    texts = plan.promises.brief(rows, even, "".join(predictions[:1]))
    widths = [(name, of) for name, of in plan.outlook.questions.items() if name != "density"]
    texts += [width_text(name, width, plan.outlook.unit) for name, width in widths]
    texts += [note for note in plan.notes if note.startswith(EDGES)]
    return [("" if i else "error", text) for i, text in enumerate(texts)]


def memory_text(plan: ReleasePlan) -> str:
    """Say how much memory workers and this process take."""
    worker, client = plan.cost.worker_bytes >> 20, plan.cost.client_bytes >> 20
    return f"{worker} MiB of memory a worker, {client} MiB here"


def _lines(plan: ReleasePlan) -> list[tuple[str, str]]:
    several, certificate = len(plan.components) > 1, plan.certificate
    lines = warnings_of(plan.notes)
    lines.append(("release", f"{plan.name}, paid by {plan.dataset}: {plan.charge}"))
    lines.append(("", _guarantee(plan)))
    lines += [
        ("" if i else "records", text)
        for i, text in enumerate(_protection_lines(plan.protection, plan.n))
    ]
    lines += [("", note) for note in plan.notes if not note.startswith(_ALARM)]
    for component in plan.components:
        lines += [("component", component.name)] if several else []
        lines += _component_lines(plan, component)
    _, total = printed_sum((certificate.approximation, certificate.rounding, certificate.noise))
    function = ("the function", f"sup error <= {total} {_confidence(plan, certificate)}")
    lines += [function] if several or certificate != plan.components[0].certificate else []
    lines += plan.promises.lines()
    questions = plan.outlook.questions.items()
    lines += [("" if i else "questions", width_text(name, width, plan.outlook.unit))
              for i, (name, width) in enumerate(questions)]  # fmt: skip
    lines += [("", "of evenly spread rows, with probability 0.95")] if questions else []
    cost = plan.cost
    tasks, slabs = counted(cost.tasks, "task"), counted(cost.slabs, "lattice slab")
    memory = (
        f"at most {cost.worker_bytes >> 20} MiB a worker, {cost.thread_bytes >> 20} MiB more for "
        f"each further thread, {cost.client_bytes >> 20} MiB in the releasing process"
    )
    return [*lines, ("work", f"{cost.rows} rows in about {tasks}, {slabs}"), ("memory", memory)]


def _protection_lines(protection: Protection, n: int) -> tuple[str, ...]:
    """Write neighbours, unit and n in words, for a plan."""
    if not protection.private_rows:
        return (f"n = {n}, one row replaced",)
    unit, change = protection.unit, "added or removed" if protection.added else "replaced"
    rows = unit.max_contributions
    lines = [f"sums are over {n}: their number is private; one row {change}"]
    if unit.column is not None:
        lines = [
            f"sums are over {n}: their number is private",
            f"one {unit.column} {change}, whose rows count up to {rows}, chosen by a keyed hash",
            *([f"{rows} cost {rows} times the noise of 1"] if rows > 1 else []),
        ]
    return (*lines, f"the certificate is for up to {n} rows that count")


def _component_lines(plan: ReleasePlan, planned: PlannedComponent) -> list[tuple[str, str]]:
    sensitivity, noise, certificate = planned.sensitivity, planned.noise, planned.certificate
    outputs = f" for each of {planned.outputs} outputs" if planned.outputs > 1 else ""
    bound = (
        f"Delta1 = {sensitivity.l1:.6g}"
        if sensitivity.l1 is not None
        else f"Delta2 = {sensitivity.l2:.6g}"
    )
    cube = "" if planned.unit == 1 else f"; {planned.unit:.4g} times those over the unit cube"
    parts, total = printed_sum((certificate.approximation, certificate.rounding, certificate.noise))
    size = planned.lattice.size
    lattice = (
        f"k {_per_axis(planned.k)}, h {_per_axis(planned.h)}: N = {size} coefficients{outputs}"
    )
    if set(planned.h) == {INTERPOLATED}:
        lattice = f"k {_per_axis(planned.k)}: N = {size} values{outputs}, lines between them"
    shape = ("vector", f"{size} numbers") if planned.entries else ("lattice", lattice)
    return [
        shape,
        *([("", _released_as(planned))] if planned.maps else []),
        ("counted as", planned.description),
        ("sensitivity", f"S(F) = {sensitivity.function:.6g}, {bound} ({plan.calibration}{cube})"),
        *(("", line) for line in sensitivity.derivation),
        ("noise", f"exact {noise.kind.removeprefix('discrete-')}, scale {noise.scale:.6g}"),
        ("", f"on multiples of {noise.granularity:.4g}"),
        ("certificate", f"sup error <= {total} {_confidence(plan, certificate)}"),
        ("", "approximation {} + rounding {} + noise {}".format(*parts)),
        *([("", _first_part(planned.approximation))] if planned.approximation else []),
        ("", _compared(plan, planned)),
    ]


def _first_part(function_class: StoredClass) -> str:
    functions = function_class.restore()
    if isinstance(functions, KernelMixture) and functions.gap:
        return "the first part holds for any mixture of kernels, and no database attains it"
    return _FIRST_PART.get(function_class.name, "")


def _confidence(plan: ReleasePlan, certificate: Certificate) -> str:
    """Write how sure a bound is; and where it is the function's, whether it is worth anything."""
    empty = plan.promises.empty and certificate == plan.certificate
    return f"with probability {1 - certificate.beta:g}" + (
        ": empty, a constant does better" if empty else ""
    )


def _guarantee(plan: ReleasePlan) -> str:
    if plan.rho is None:
        return "by advanced composition: no rho is known, a zcdp account cannot pay"
    pure = "" if plan.charge.delta else ", half epsilon squared"
    return f"rho = {float(plan.rho):.6g} in zCDP{pure}"


def _compared(plan: ReleasePlan, planned: PlannedComponent) -> str:
    lower_bound, total = planned.certificate.lower_bound, planned.certificate.total
    text = f"S/epsilon = {planned.sensitivity.function / float(plan.charge.epsilon):.3g}"
    if not lower_bound:
        return f"for comparison, {text}"
    kind = planned.certificate.lower_bound_kind
    times = (
        f"{total / lower_bound:.0f}" if total >= 10 * lower_bound else f"{total / lower_bound:.1f}"
    )
    return f"{times} times a lower bound for any mechanism, {lower_bound:.3g} (by {kind}); {text}"


def _released_as(planned: PlannedComponent) -> str:
    what = planned.maps[0].called
    of = " of the whole lattice" if planned.maps[0].of else ""
    of += (
        f"; shrunk where noise is all there is, by at most {planned.most_silenced:.3g}"
        if planned.most_silenced
        else ""
    )
    return f"released as {' x '.join(axis.size_text for axis in planned.maps)} {what}{of}"


def _per_axis(values: tuple[int, ...]) -> str:
    return str(values[0]) if len(set(values)) == 1 else str(list(values))
