"""``ReleaseSpec``: every public choice of a release, to and from TOML, and what it means."""

from __future__ import annotations

import copy
import glob
import tomllib
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import PrivateAttr, ValidationError

from dbern.combination.base import Combination
from dbern.data.domain import Column, Domain, RecordSchema
from dbern.data.objects import check_url
from dbern.errors import SpecError
from dbern.measure.statistic import Statistic
from dbern.nights.horizon import StreamNode
from dbern.nights.section import (
    StreamSection,
    node_of,
    sections_at,
    window_terms,
)
from dbern.planning.rules import NAME, Parsed, Sections, parse
from dbern.privacy.budget import Budget, Protection
from dbern.privacy.families import NoiseFamily, package_of
from dbern.reconstruct import STRATEGY_KINDS, noise_names
from dbern.system import importable, is_url, named_function, read_small, resolve_url
from dbern.targets import ALL_LEARNERS, Learner
from dbern.targets.parameters import explain
from dbern.types import FloatArray

_TOO_DEEP = "is nested too deeply. Write tables and lists as docs/spec.md has them."


class ReleaseSpec(Sections):
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

    _partition: str | None = PrivateAttr(None)
    _base: Path = PrivateAttr(default_factory=Path.cwd)
    _parsed: Parsed = PrivateAttr()

    def __init__(self, **sections: Any) -> None:
        try:
            super().__init__(**sections)
        except ValidationError as error:
            raise SpecError("\n".join(explain(error, ReleaseSpec))) from None
        except RecursionError:
            raise SpecError(f"spec: {_TOO_DEEP}") from None
        self._parsed = parse(self)
        _ = self.output, self.data.source is None or self.source  # refuses URLs of no object store

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
    def components(self) -> tuple[Statistic, ...]:
        """Statistics that the learner releases."""
        return self._parsed.components

    @property
    def charge(self) -> Budget:
        """Charge of the release."""
        return self._parsed.charge

    @property
    def families(self) -> tuple[NoiseFamily, ...]:
        """Families of noise to choose from; vectors and lattice values have the first."""
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
        days = map(node.horizon.day, node.counted_nights)
        return tuple(self.source.replace("{partition}", str(day)) for day in days)

    @property
    def stream_section(self) -> StreamSection:
        """``[stream]``; raises SpecError where there is none."""
        if self.stream is None:
            raise SpecError('stream: is missing. Write [stream], every = "day", horizon = 365')
        return self.stream

    @property
    def stream_node(self) -> StreamNode | None:
        """The node of a stream that this spec releases; None where it releases none."""
        return None if self.stream is None else node_of(self.stream)

    def name_of(self, path: str) -> str:
        """Return a file's path relative to the spec, where it is below it."""
        # By its text, with the separator: there may be a hundred thousand files.
        return path if is_url(path) else path.removeprefix(str(self._base / "_")[:-1])

    def path_of(self, name: str) -> str:
        """Return the path of a file by `name_of`."""
        return name if is_url(name) else str(self._base / name)

    @property
    def ledger_url(self) -> str:
        """URL of the ledger, its path absolute."""
        return resolve_url(self.budget.ledger, self._base)

    @property
    def partition(self) -> str | None:
        """The partition that `load` read the spec for; of a stream the night to release."""
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
        """Rule by which the statistics make the function."""
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

    def for_window(self) -> ReleaseSpec:
        """Return the spec whose bins this one takes: for a stream's node one of many nights."""
        node = self.stream_node
        if node is None:
            return self
        content = self.model_dump(exclude={"stream"}, exclude_none=True)
        rows, epsilon = window_terms(node.horizon, self.normalizer or 1, self.charge)
        content["data"]["normalizer"], content["budget"]["epsilon"] = str(rows), epsilon
        if self.mechanism.noise == "auto":  # not the K-norm law, which is of one release alone
            content["mechanism"]["noise"] = noise_names(self.families[0])["binned"]
        return _from_sections(content, self._base)

    @property
    def repeats(self) -> tuple[int, int]:
        """Levels of nodes, and nights of each, that a unit may be in; 1 and 1 for other specs."""
        if self.stream is None or self.stream.node is None:
            return 1, 1
        return 1 + len(self.stream.node.blocks), self.stream.max_nights

    @property
    def enforces_nights(self) -> bool:
        """Whether its stream counts no unit in more than `max_nights` nights."""
        return self.stream is not None and self.stream.enforce

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the sections alone: unpickling parses them and imports the modules they name."""
        return _from_sections, (self.model_dump(exclude_none=True), self._base)

    def identity(self) -> dict[str, Any]:
        """Return the identity of the release: all but ``h``, the output and where the ledger is."""
        content = self.model_dump(mode="json", exclude_none=True)
        del content["release"]["output"], content["budget"]["ledger"]
        if self.stream is None:  # whose nodes have to add
            content["mechanism"].pop("h")
        content["target"] |= self.learner.identity()
        if packages := self.packages():
            content["packages"] = packages
        return content

    def packages(self) -> dict[str, str]:
        """Return the package and version of what is not ours, by the key that names it."""
        parameters = self.learner.packages()
        packages = {
            "target.kind": ALL_LEARNERS.origin(self.target.kind),
            **{f"target.{key}": package for key, package in parameters.items()},
            "mechanism.noise": package_of(self.mechanism.noise, STRATEGY_KINDS),
        }
        return {key: package for key, package in packages.items() if package}


def _from_sections(content: dict[str, Any], base: Path) -> ReleaseSpec:
    with importable(base):
        spec = ReleaseSpec(**content)
    spec._base = base
    return spec


def _with_partition(content: dict[str, Any], partition: str | None) -> dict[str, Any]:
    if partition is not None and not NAME.fullmatch(partition):
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
