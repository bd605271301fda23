"""``ReleaseSpec``: every public choice of a release, strictly validated, to and from TOML."""

from __future__ import annotations

import copy
import glob
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, PrivateAttr, ValidationError

from dbern.bernstein.basis import MOST_AXES, MOST_H, MOST_K
from dbern.combination.base import Combination
from dbern.data.domain import Axis, Column, Domain, Outside, RecordSchema, Response
from dbern.data.objects import check_url
from dbern.data.times import Bound, bounds_of
from dbern.errors import SpecError
from dbern.measure.statistic import Measurement, require_counted
from dbern.nights.horizon import StreamNode
from dbern.nights.section import (
    StreamSection,
    answered,
    check_partition,
    check_summed,
    node_of,
    sections_at,
)
from dbern.planning.protection import protection_of
from dbern.planning.sections import (
    WITH_DELTA,
    BudgetSection,
    DataSection,
    MechanismSection,
    ReleaseSection,
    TargetSection,
    ValuesTable,
)
from dbern.privacy.budget import Budget, Protection, exact
from dbern.privacy.contract import require_one_charge
from dbern.privacy.families import ADVANCED, PAPER, NoiseFamily, named
from dbern.reconstruct import STRATEGY_KINDS, noise_names
from dbern.system import importable, is_url, named_function, read_small, resolve_url
from dbern.targets import Learner, learner_of
from dbern.targets.parameters import Section, explain
from dbern.types import FloatArray

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TOO_DEEP = "is nested too deeply. Write tables and lists as docs/spec.md has them."
_LEAST_DELTA = Fraction(1, 10**15)
_LEAST_BETA = Fraction(1, 10**9)
_LEAST_EPSILON = Fraction(1, 10**6)


class ReleaseSpec(Section):
    """All public choices of one release.

    Construct it with one keyword per section (mappings as in the TOML file), or with `load`.

    Raises
    ------
    SpecError
        Names each wrong key and says what to write; every problem of the schema at once.

    Examples
    --------
    >>> spec = ReleaseSpec(
    ...     release={"name": "demo", "output": "demo.zarr"},
    ...     data={"source": "*.parquet", "bounds": {"x": [0.0, 10.0]}},
    ...     target={"kind": "kernel-density", "bandwidth": [0.5]},
    ...     budget={"epsilon": "1.0", "ledger": "sqlite:///ledger.db", "dataset": "demo"},
    ... )
    >>> spec.domain.names, str(spec.charge)
    (('x',), 'epsilon 1')
    """

    release: ReleaseSection = Field(description="[release] with name and output")
    data: DataSection = Field(description="[data] with source and [data.bounds]")
    target: TargetSection = Field(description='[target] with kind = "kernel-density"')
    mechanism: MechanismSection = Field(default_factory=lambda: MechanismSection.model_validate({}))
    budget: BudgetSection = Field(description="[budget] with epsilon, ledger and dataset")
    stream: StreamSection | None = Field(None, description="[stream] with every and horizon")

    _partition: str | None = PrivateAttr(None)
    _base: Path = PrivateAttr(default_factory=Path.cwd)
    _parsed: _Parsed = PrivateAttr()

    def __init__(self, **sections: Any) -> None:
        try:
            super().__init__(**sections)
        except ValidationError as error:
            raise SpecError("\n".join(explain(error, ReleaseSpec))) from None
        except RecursionError:
            raise SpecError(f"spec: {_TOO_DEEP}") from None
        self._parsed = _parse(self)

    @classmethod
    def load(cls, path: str | Path, *, partition: str | None = None) -> ReleaseSpec:
        """Read a TOML file; relative paths in it, and modules it names, start from its folder.

        Parameters
        ----------
        partition : str, optional
            Replaces ``{partition}`` in ``release.name``, ``release.output`` and ``data.source``.
            Of a stream the night to release, which its nodes replace it by.

        Raises
        ------
        SpecError
            Where the file is missing or no TOML, for wrong keys, or a partition without a place.
        """
        path = Path(path)
        try:
            content = tomllib.loads(read_small(path).decode())
        except FileNotFoundError:
            raise SpecError(
                f"{path}: no such spec. Write its path, or make one: dbern init {path}"
            ) from None
        except RecursionError:
            raise SpecError(f"{path}: {_TOO_DEEP}") from None
        except OSError as error:
            raise SpecError(
                f"{path}: cannot be read as TOML ({error.strerror}). Write the path of a "
                "file of at most two MiB."
            ) from None
        except ValueError as error:  # such as of an integer of too many digits
            raise SpecError(f"{path}: cannot be read as TOML ({error}). Mend that line.") from None
        try:
            filled = _with_partition(content, partition)
        except RecursionError:
            raise SpecError(f"{path}: {_TOO_DEEP}") from None
        base = path.resolve().parent
        with importable(base):
            spec = cls(**filled)
        spec._base, spec._partition = base, partition
        return spec

    @classmethod
    def of(cls, source: ReleaseSpec | str | Path) -> ReleaseSpec:
        """Return a spec as it is, or the one in the file at a path.

        Raises
        ------
        SpecError
            For anything else, and as `load`.
        """
        if isinstance(source, ReleaseSpec):
            return source
        if isinstance(source, str | Path):
            return cls.load(source)
        raise SpecError(
            f"A spec of type {type(source).__name__} cannot be used. Write the path of a spec, or "
            "dbern.ReleaseSpec(release={..}, data={..}, target={..}, budget={..})"
        )

    @property
    def domain(self) -> Domain:
        """Axes and bounds of the function: those of ``[data.bounds]``, or its points."""
        return self.learner.function_domain(self.records)

    @property
    def records(self) -> RecordSchema:
        """Schema of a record."""
        return self._parsed.records

    @property
    def learner(self) -> Learner:
        """The target with its parameters."""
        return self._parsed.learner

    @property
    def components(self) -> tuple[Measurement, ...]:
        """Measurements that the learner releases."""
        return self._parsed.components

    @property
    def charge(self) -> Budget:
        """Charge of the release."""
        return self._parsed.charge

    @property
    def families(self) -> tuple[NoiseFamily, ...]:
        """The noise that is chosen from; vectors and lattice values have the first."""
        return self._parsed.families

    @property
    def beta(self) -> Fraction:
        """One minus the confidence of the certificate."""
        return self._parsed.beta

    @property
    def protection(self) -> Protection:
        """Neighbors and unit of the guarantee."""
        return self._parsed.protection

    @property
    def normalizer(self) -> int | None:
        """Divisor of sums, where that is not the public number of rows."""
        return int(self.data.normalizer) if self.data.normalizer else None

    @property
    def base(self) -> Path:
        """The folder that relative paths start from."""
        return self._base

    @property
    def source(self) -> str:
        """Location of the records: an absolute path, glob or folder, or a URL.

        Raises
        ------
        SpecError
            Where the spec names none.
        """
        source = self.data.source
        if source is None:
            raise SpecError(
                'data.source: is missing. Write source = "data/trips/*.parquet", or give a data '
                "frame: dbern.release(spec, data=frame)."
            )
        if not source.strip():
            raise SpecError(
                "data.source: is empty, which would be every file in the spec's folder and below "
                'it. Write source = "data/trips/*.parquet"'
            )
        if is_url(source):
            return check_url(source, "data.source")
        base = str(self._base)
        return str(Path(glob.escape(base) if glob.has_magic(source) else base) / source)

    @property
    def sources(self) -> tuple[str, ...]:
        """`source`, or of a node of a stream that of each night that it counts."""
        node = self.stream_node
        if node is None:
            return (self.source,)
        days = map(node.horizon.day, node.counted)
        return tuple(self.source.replace("{partition}", str(day)) for day in days)

    @property
    def stream_section(self) -> StreamSection:
        """``[stream]``; raises SpecError where there is none."""
        if self.stream is None:
            raise SpecError('stream: is missing. Write [stream], every = "day", horizon = 365')
        return self.stream

    @property
    def stream_node(self) -> StreamNode | None:
        """The node of a stream that this spec is of; None of any other."""
        return None if self.stream is None else node_of(self.stream)

    def name_of(self, path: str) -> str:
        """Return a file's path relative to the spec, where it is below it."""
        below = not is_url(path) and Path(path).is_relative_to(self._base)
        return str(Path(path).relative_to(self._base)) if below else path

    def path_of(self, name: str) -> str:
        """Return the path of a file by `name_of`."""
        return name if is_url(name) else str(self._base / name)

    @property
    def ledger_url(self) -> str:
        """URL of the ledger, its path absolute."""
        return resolve_url(self.budget.ledger, self._base)

    @property
    def partition(self) -> str | None:
        """Night to release of a stream, as `load` was given it."""
        return self._partition

    @property
    def partition_name(self) -> str:
        """Name of the release of its partition: of a stream that of the night."""
        name = self.release.name
        return f"{name}.{self._partition}" if self.stream and self._partition else name

    @property
    def output(self) -> str:
        """Location of the synopsis: an absolute path, or a URL."""
        output = self.release.output
        return check_url(output, "release.output") if is_url(output) else str(self._base / output)

    @property
    def reference(self) -> Callable[[FloatArray], FloatArray] | None:
        """The public reference density on the unit cube; None for the default.

        Raises
        ------
        SpecError
            Where the named function cannot be imported.
        """
        name = self.mechanism.reference
        if name == "uniform":
            return None
        with importable(self._base):
            density = named_function(name, "mechanism.reference", "of points (m, l)")
        low = np.array([axis.low for axis in self.domain.axes])
        width = np.array([axis.width for axis in self.domain.axes])

        def reference(points: FloatArray) -> FloatArray:
            try:
                values = np.asarray(density(low + points * width), dtype=np.float64)
            except Exception as error:  # noqa: BLE001 -- it is somebody's own, of public points
                raise SpecError(
                    f'mechanism.reference: "{name}" fails ({type(error).__name__}). Write a '
                    "function that returns a number for each of the points (m, l)"
                ) from None
            if values.size != len(points) or not np.isfinite(values).all():
                raise SpecError(
                    f'mechanism.reference: "{name}" returns no finite number for each point. '
                    "Write a function of points (m, l) that returns m numbers"
                )
            return values.reshape(-1)

        return reference

    @property
    def combination(self) -> Combination:
        """Rule by which the measurements make the function."""
        return self.learner.combination(self.records)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Every column that is read."""
        return self.records.columns

    def per_axis(
        self, key: Literal["k", "h"], domain: Domain | None = None
    ) -> tuple[int, ...] | None:
        """Return ``k`` or ``h`` for each axis (of `domain`); None where the plan is to choose."""
        domain = domain or self.domain
        value = getattr(self.mechanism, key)
        if value == "auto":
            return None
        if isinstance(value, int):
            return (value,) * domain.dimensions
        return tuple(value[self.domain.names.index(name)] for name in domain.names)

    def certified_at(self, epsilon: Fraction) -> ReleaseSpec:
        """Return this spec at another epsilon, planned for the worst database."""
        return self.changed(
            {"budget": {"epsilon": str(epsilon)}, "mechanism": {"objective": "certified"}}
        )

    def changed(self, sections: Mapping[str, Mapping[str, Any]]) -> ReleaseSpec:
        """Return this spec with other values of some keys."""
        content = self.model_dump(exclude_none=True)
        for section, keys in sections.items():
            content[section].update(keys)
        return _from_sections(content, self._base)

    def at(self, node: StreamNode) -> ReleaseSpec:
        """Return the spec of a node of this stream."""
        content = self.model_dump(exclude_none=True)
        return _from_sections(sections_at(node, content), self._base)

    def answered(self) -> ReleaseSpec:
        """Return the release whose bins this one takes: of a stream's node one of many nights."""
        node = self.stream_node
        if node is None:
            return self
        content = self.model_dump(exclude={"stream"}, exclude_none=True)
        rows, epsilon = answered(node.horizon, self.normalizer or 1, self.charge)
        content["data"]["normalizer"], content["budget"]["epsilon"] = str(rows), epsilon
        if self.mechanism.noise == "auto":  # not the K-norm law, which is of one release alone
            content["mechanism"]["noise"] = noise_names(self.families[0])["binned"]
        return _from_sections(content, self._base)

    @property
    def repeats(self) -> tuple[int, int]:
        """Levels of nodes and nights of each that hold a unit together; of others 1 and 1."""
        if self.stream is None or self.stream.node is None:
            return 1, 1
        return 1 + len(self.stream.node.blocks), self.stream.max_nights

    @property
    def enforces_nights(self) -> bool:
        """Whether it is of a stream that counts no unit in more than `max_nights` nights."""
        return self.stream is not None and self.stream.enforce

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the sections: what they mean is found anew, with the modules that they name."""
        return _from_sections, (self.model_dump(exclude_none=True), self._base)

    def identity(self) -> dict[str, Any]:
        """Return the identity of the release: all but ``h``, the output and where the ledger is."""
        content = self.model_dump(mode="json", exclude_none=True)
        del content["release"]["output"], content["budget"]["ledger"]
        if self.stream is None:  # whose nodes have to add
            content["mechanism"].pop("h")
        content["target"] |= self.learner.identity()
        return content


def _from_sections(content: dict[str, Any], base: Path) -> ReleaseSpec:
    with importable(base):
        spec = ReleaseSpec(**content)
    spec._base = base
    return spec


@dataclass(frozen=True)
class _Parsed:
    records: RecordSchema
    learner: Learner
    components: tuple[Measurement, ...]
    charge: Budget
    families: tuple[NoiseFamily, ...]
    beta: Fraction
    protection: Protection


def _parse(spec: ReleaseSpec) -> _Parsed:
    """Check what the schema cannot: values against each other, and what this version offers."""
    paths = {
        "release.output": spec.release.output,
        "data.source": spec.data.source or "",
        "budget.ledger": spec.budget.ledger,
        "budget.dataset": spec.budget.dataset,
    }
    for where, path in paths.items():
        if "\x00" in path:
            raise SpecError(f"{where}: no path and no name holds a NUL. Leave it out")
    _ = spec.output, spec.data.source is None or spec.source  # refuses URLs of no object store
    if not _NAME.fullmatch(spec.release.name):
        raise SpecError(
            'release.name: letters, digits, ".", "_" and "-" only. Write name = "trip-density"'
        )
    beta = exact(spec.mechanism.beta, "mechanism.beta")
    if not _LEAST_BETA <= beta <= 1 - _LEAST_BETA:
        raise SpecError('mechanism.beta: must be from 1e-9 to 1 - 1e-9. Write beta = "0.05"')
    protection = _protection(spec)
    schema = _schema(spec, _domain(spec.data))
    parameters = spec.target.model_dump()
    learner = learner_of(parameters.pop("kind"))(**parameters)
    _check_per_axis(spec, learner.function_domain(schema))
    charge = Budget.parse(spec.budget.epsilon, spec.budget.delta)
    if not _LEAST_EPSILON <= charge.epsilon <= 1 / _LEAST_EPSILON:
        raise SpecError('budget.epsilon: must be from 1e-6 to 1e6. Write epsilon = "1.0"')
    families = _families(spec, charge)
    if charge.delta and charge.delta < _LEAST_DELTA:
        raise SpecError('budget.delta: must be 0 or at least 1e-15. Write delta = "1e-6"')
    for role in ("label", "response", "group"):
        if getattr(schema, role) is not None and role not in learner.uses:
            raise SpecError(f'data.{role}: "{learner.kind}" has no use for it. Leave it out.')
    _check_lists(learner, schema)
    _check_units(spec.data.units or {}, schema)
    components = learner.components(schema)
    parts = [
        (measurement.name, measurement.outputs, measurement.output_fraction)
        for measurement in components
    ]
    require_one_charge(learner.kind, parts)
    require_counted(components)
    num_axes = max((c.domain.dimensions for c in components if not c.entries), default=0)
    if num_axes > MOST_AXES:
        raise SpecError(
            f"data.bounds: {num_axes} axes, and a lattice has at most {MOST_AXES}. Keep at "
            f"most {MOST_AXES} (factored naive Bayes and linear functions take more)"
        )
    components = tuple(measurement.protected(protection, schema.unit) for measurement in components)
    _check_stream(spec, protection, components, learner.combination(schema))
    return _Parsed(schema, learner, components, charge, families, beta, protection)


def _check_units(units: Mapping[str, str], schema: RecordSchema) -> None:
    numbers = [axis.name for axis in schema.domain.numeric if axis.unit is None]
    if schema.response and schema.response.unit is None:
        numbers.append(schema.response.name)
    for name in units:
        if name not in numbers:
            columns = ", ".join(numbers) or "no column: all have lists, dates or times"
            raise SpecError(
                f"data.units.{name}: units are of columns of numbers that the spec reads. Write "
                f"those of {columns}"
            )


def _check_lists(learner: Learner, schema: RecordSchema) -> None:
    domain = schema.domain
    if domain.categorical and "categories" not in learner.uses:
        free = {"group": "group" in learner.uses and not schema.group, "filter": not schema.filter}
        sections = " or ".join(f"[data.{role}]" for role, usable in free.items() if usable)
        instead = f", or write its column and values in {sections}" if sections else ""
        raise SpecError(
            f'data.bounds.{domain.categorical[0].name}: "{learner.kind}" has no use for a list of '
            f"values. Leave it out{instead}."
        )


def _domain(data: DataSection) -> Domain:
    counted_in = data.resolution or {}
    for name in counted_in:
        if not isinstance(data.bounds.get(name), list):
            numbers = [axis for axis, bounds in data.bounds.items() if isinstance(bounds, list)]
            raise SpecError(
                f"data.resolution.{name}: is what an axis of numbers or dates counts in. Write it "
                f"of {', '.join(numbers) or 'such an axis'}"
            )
    axes = (_axis(name, bounds, counted_in.get(name)) for name, bounds in data.bounds.items())
    return Domain(tuple(axes), Outside(data.outside))


def _axis(name: str, bounds: list[Bound] | ValuesTable, resolution: float | None) -> Axis:
    match bounds:
        case ValuesTable():
            return Axis.of_values(name, bounds.values)
        case _:
            return Axis(name, *bounds_of(bounds, f"data.bounds.{name}"), resolution=resolution)


def _protection(spec: ReleaseSpec) -> Protection:
    protection = protection_of(spec.data)
    if protection.private_rows and spec.mechanism.noise == ADVANCED.lattice_name:
        raise SpecError(
            f'mechanism.noise: "{ADVANCED.lattice_name}" is for replaced rows, as in the paper. '
            'Write noise = "auto"'
        )
    return protection


def _check_stream(
    spec: ReleaseSpec,
    protection: Protection,
    components: Sequence[Measurement],
    combination: Combination,
) -> None:
    if spec.stream is None:
        return
    check_partition(spec.release, spec.data)
    check_summed(spec.stream, protection, components)
    node = spec.stream_node
    if node is not None and spec.release.name != node.release_name:
        raise SpecError(
            f"stream.node: is called {node.release_name} and nothing else: it comes once. "
            "Leave the table out, and release the stream night by night"
        )
    if combination.looks_at_totals:
        raise SpecError(
            "stream: what is told of one night's data adds up to nothing. Write a kind that is a "
            "sum over rows, such as kernel-density"
        )


def _families(spec: ReleaseSpec, charge: Budget) -> tuple[NoiseFamily, ...]:
    noise, paper = spec.mechanism.noise, spec.mechanism.calibration == "paper"
    with_delta = WITH_DELTA.get(noise)
    if paper and with_delta is False and noise != PAPER.lattice_name:
        raise SpecError(
            'mechanism.calibration: "paper" is proved for noise = "laplace" only. '
            'Write calibration = "tight"'
        )
    if charge.delta and with_delta is False:
        raise SpecError(
            'budget.delta: Laplace noise needs none. Write delta = "0", or noise = "auto"'
        )
    if not charge.delta and with_delta:
        raise SpecError(
            f'mechanism.noise: "{noise}" needs a delta. Write delta = "1e-6" in '
            '[budget], or noise = "auto"'
        )
    if charge.delta and paper:
        raise SpecError(
            'mechanism.calibration: "paper" is for delta = "0". Write calibration = "tight"'
        )
    families = named(noise, STRATEGY_KINDS, with_delta=charge.delta > 0, paper=paper)
    if spec.stream is not None:  # noise of the K-norm law is drawn for one release alone
        families = tuple(family for family in families if not family.balanced)
    return families


def _check_per_axis(spec: ReleaseSpec, domain: Domain) -> None:
    for key, maximum in (("k", MOST_K), ("h", MOST_H)):
        value = getattr(spec.mechanism, key)
        if isinstance(value, list) and len(value) != domain.dimensions:
            raise SpecError(
                f"mechanism.{key}: has {len(value)} entries for {domain.dimensions} axes. "
                f"Write one for each of {', '.join(domain.names)}"
            )
        if value != "auto" and max(value if isinstance(value, list) else [value]) > maximum:
            raise SpecError(
                f"mechanism.{key}: above {maximum} is not available in this version. "
                f"Write {key} = {maximum} or less."
            )


def _schema(spec: ReleaseSpec, domain: Domain) -> RecordSchema:
    data = spec.data
    label, response, group, rows = data.label, data.response, data.group, data.filter
    return RecordSchema(
        domain,
        Column(label.column, "data.label.classes", tuple(label.classes)) if label else None,
        Response(response.column, *bounds_of(response.bounds, "data.response.bounds"))
        if response
        else None,
        Column(group.column, "data.group.values", tuple(group.values)) if group else None,
        Column(rows.column, "data.filter.values", tuple(rows.values)) if rows else None,
        None if isinstance(data.unit, str) else Column(data.unit.column, "data.unit", ids=True),
    )


def _with_partition(content: dict[str, Any], partition: str | None) -> dict[str, Any]:
    if partition is not None and not _NAME.fullmatch(partition):
        raise SpecError(
            '--partition: letters, digits, ".", "_" and "-" only. Write --partition 2026-11-20'
        )
    filled: dict[str, Any] = copy.deepcopy(content)
    if "stream" in content:  # whose nodes fill it in, night by night
        return filled
    used = False
    for section, key in (("release", "name"), ("release", "output"), ("data", "source")):
        table = filled.get(section)
        text = table.get(key) if isinstance(table, dict) else None
        if table is None or not isinstance(text, str) or "{partition}" not in text:
            continue
        if partition is None:
            raise SpecError(
                f"{section}.{key}: contains {{partition}}. Write --partition P on the command line."
            )
        used, table[key] = True, text.replace("{partition}", partition)
    if partition is not None and not used:
        raise SpecError(
            "--partition: the spec has no {partition}. Write it into release.name and data.source."
        )
    return filled
