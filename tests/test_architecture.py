"""Imports go only downward, and a few more rules that no reviewer should have to remember."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import dbern

PACKAGE = Path(dbern.__file__).parent

# cli > releasing, reporting > engine > planning > spec, .. : a group imports lower groups only.
LAYERS = [
    {"__main__"},
    {"cli"},
    {"releasing", "reconciling", "reporting", "diagnosis"},
    {"engine", "clusters", "advice", "publishing", "inspection", "journal", "xarray"},
    {"planning"},
    {"workers", "connecting", "calibrating", "reading", "schemas"},
    {"plans"},
    {"spec", "records", "ledger", "synopsis", "choice"},
    {"targets", "certificate", "terms", "costs", "streams"},
    {"components", "noise_bounds"},
    {"learning"},
    {"bernstein", "privacy", "combination", "columns"},
    {"discovery", "domain", "complaints", "sections", "likelihoods", "functions", "oblique"},
    {"times", "objects", "limits", "wire", "tls"},
    {"endpoints", "plain"},
    {"errors"},
]
RANK = {unit: len(LAYERS) - depth for depth, layer in enumerate(LAYERS) for unit in layer}
LEAVES = {"progress", "arrays", "compiling"}  # import nothing of ours; anyone may import them
NEVER = {  # not even through others
    "synopsis": {"targets", "components", "records", "engine"},
    "reporting": {"targets", "components", "records", "engine"},
    "engine": {"ledger"},
}
BACK = {  # of the modules of one folder: what one may import although it is imported by it
    "dbern.synopsis.reader": {"dbern.synopsis.shaping"},  # `Synopsis.shaped` makes one of its kind
}
OWNERS = {  # prefixes of module names
    "dask": ("dbern.clusters", "dbern.synopsis"),
    "distributed": (
        *("dbern.engine", "dbern.clusters", "dbern.connecting", "dbern.wire"),
        *("dbern.diagnosis.clusters", "dbern.journal"),
    ),
    "pyarrow": (
        *("dbern.records", "dbern.streams", "dbern.schemas", "dbern.columns", "dbern.objects"),
        *("dbern.synopsis.queries", "dbern.synopsis.points"),
    ),
    "obstore": ("dbern.objects",),
    "zarr": ("dbern.synopsis",),
    "numba": ("dbern.compiling", "dbern.bernstein.compiled", "dbern.synopsis.compiled"),
    "sqlalchemy": ("dbern.ledger",),
    "jinja2": ("dbern.reporting",),
    "matplotlib": ("dbern.reporting",),
    "yaml": ("dbern.reporting.deployment",),
    "click": ("dbern.cli",),
    "rich": ("dbern.cli",),
    "cryptography": (*("dbern.privacy", "dbern.ledger", "dbern.synopsis.signatures", "dbern.tls"),),
}
PUBLIC_FUNCTIONS = {"open", "plan", "published", "release"}
MOST_FUNCTION_LINES = 60
MOST_FILE_LINES = 700


@dataclass(frozen=True)
class Module:
    """One file of the package, parsed."""

    name: str
    path: Path
    tree: ast.Module
    lines: int

    @property
    def unit(self) -> str:
        """The layer's member it belongs to: the file or folder right below ``dbern``."""
        return [*self.name.split("."), ""][1]


def modules(package: Path) -> list[Module]:
    found = []
    for path in sorted(package.rglob("*.py")):
        parts = ["dbern", *path.relative_to(package).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        found.append(Module(name, path, ast.parse(text), len(text.splitlines())))
    return found


def imported(module: Module, known: set[str]) -> Iterator[str]:
    """Full names of what a module imports anywhere in it, for type checking included."""
    is_package = module.path.name == "__init__.py"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:  # relative: not used here, but a rule must not be dodged by it
                parents = module.name.split(".")
                parents = parents[: len(parents) - node.level + (1 if is_package else 0)]
                base = ".".join([*parents, *([base] if base else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield full if full in known or base == "dbern" else base
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name | ast.Attribute)
            and getattr(node.func, "id", getattr(node.func, "attr", "")) in LOADERS
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield str(node.args[0].value)


LOADERS = {"import_module", "__import__"}


def violations(package: Path) -> list[str]:
    every = modules(package)
    found = []
    for module in every:
        found += _import_violations(module, {m.name for m in every})
        found += _randomness(module)
        found += _sizes(module)
        if module.name.rpartition(".")[2] in PUBLIC_FUNCTIONS:
            found.append(f"{module.name} has the name of a public function")
    found += _transitive_violations(every)
    found += _circles(every)
    return found


def _import_violations(module: Module, known: set[str]) -> list[str]:
    found = []
    for target in imported(module, known):
        top, _, rest = target.partition(".")
        if top == "dbern":
            found += _layer_violation(module, target, rest.split(".")[0])
        elif top in OWNERS and not any(
            module.name == owner or module.name.startswith(owner + ".") for owner in OWNERS[top]
        ):
            found.append(f"{module.name} imports {target}: {top} has another owner")
    return found


def _layer_violation(module: Module, target: str, unit: str) -> list[str]:
    if module.unit == "":  # the facade re-exports public names lazily
        return []
    if module.unit in LEAVES:
        return [f"{module.name} imports {target}: it may import nothing of ours"]
    if unit == module.unit or unit in LEAVES:
        return []
    if module.unit not in RANK:
        return [f"{module.name} belongs to no layer"]
    if unit not in RANK:
        return [f"{module.name} imports {target}: in no layer"]
    if RANK[unit] < RANK[module.unit]:
        return []
    kind = "a sibling" if RANK[unit] == RANK[module.unit] else "upward"
    return [f"{module.name} imports {target}: {kind}"]


def _transitive_violations(every: list[Module]) -> list[str]:
    known = {module.name for module in every}
    units: dict[str, set[str]] = {}
    for module in every:
        ours = {t.split(".")[1] for t in imported(module, known) if t.startswith("dbern.")}
        units.setdefault(module.unit, set()).update(ours - {module.unit})
    found = []
    for unit, forbidden in NEVER.items():
        seen, waiting = set(), [unit]
        while waiting:
            for following in units.get(waiting.pop(), set()) - seen:
                seen.add(following)
                waiting.append(following)
        # The engine plans with planning, which knows no ledger; a path is as bad as an import.
        found += [f"{unit} reaches {name}" for name in sorted(seen & forbidden)]
    return found


def _circles(every: list[Module]) -> list[str]:
    """The first circle of imports inside a folder, if any: what two modules share goes below."""
    known = {module.name for module in every} - {"dbern"}
    above = {
        module.name: (set(imported(module, known)) & known) - BACK.get(module.name, set())
        for module in every
    }
    try:
        TopologicalSorter(above).prepare()
    except CycleError as error:
        return [f"{' imports '.join(reversed(error.args[1]))}: a circle"]
    return []


def _randomness(module: Module) -> list[str]:
    found = []
    for node in ast.walk(module.tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = [f"{node.value.id}.{node.attr}".replace("np.", "numpy.", 1)]
        found += [
            f"{module.name}:{node.lineno} uses {name}"
            for name in names
            if name.split(".")[0] == "random" or name.startswith(("numpy.random", "scipy.stats"))
        ]
    return found


def _sizes(module: Module) -> list[str]:
    found = []
    if module.lines > MOST_FILE_LINES:
        found.append(f"{module.name} has {module.lines} lines")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MOST_FUNCTION_LINES:
                found.append(f"{module.name}.{node.name} has {length} lines")
    return found


def test_the_package_keeps_the_rules():
    assert violations(PACKAGE) == []


def test_every_part_of_the_package_has_a_layer():
    units = {module.unit for module in modules(PACKAGE)} - {"", "__main__"}
    assert units <= set(RANK) | LEAVES


def test_public_functions_are_those_of_the_facade():
    functions = {name for name in dbern.__all__ if name.islower() and name != "targets"}
    assert functions == PUBLIC_FUNCTIONS


PLANTED = [
    ("domain.py", "from dbern.spec import ReleaseSpec", "dbern.domain imports dbern.spec: upward"),
    ("spec.py", "from dbern.records import discover", "a sibling"),
    ("certificate.py", "from dbern import targets", "dbern.certificate imports dbern.targets"),
    ("certificate.py", "from dbern.targets.density import KernelDensity", "a sibling"),
    ("bernstein/basis.py", "import dbern.privacy.budget", "a sibling"),
    ("bernstein/basis.py", "def f():\n    from dbern.domain import Axis\n    import dbern.planning",
     "upward"),
    ("errors.py", "if TYPE_CHECKING:\n    from dbern.domain import Domain", "upward"),
    ("errors.py", "from .domain import Domain", "upward"),
    ("bernstein/lattice.py", "from ..targets import base", "upward"),
    ("learning/solver.py", "from dbern.targets import base", "upward"),
    ("components/sums.py", "from dbern.targets import Learner", "upward"),
    ("privacy/budget.py", 'import_module("dbern.ledger")', "upward"),
    ("arrays.py", "from dbern.errors import DbernError", "nothing of ours"),
    ("progress.py", "import dbern.arrays", "nothing of ours"),
    ("targets/base.py", "def f():\n    from dbern.targets.erm import e", "a circle"),
    ("targets/base.py", "if TYPE_CHECKING:\n    from dbern.targets.erm import E", "a circle"),
    ("helpers.py", "from dbern.errors import DbernError", "belongs to no layer"),
    ("engine.py", "from dbern.ledger.keys import KeyFiles", "engine reaches ledger"),
    ("planning.py", "import dbern.ledger", "engine reaches ledger"),
    ("synopsis/reader.py", "from dbern.targets import base", "synopsis reaches targets"),
    ("synopsis/reader.py", "import dbern.components.sums", "synopsis reaches components"),
    ("reporting.py", "from dbern.planning import plan", "reporting reaches records"),
    ("planning.py", "import dask", "dask has another owner"),
    ("releasing.py", "from distributed import Client", "distributed has another owner"),
    ("synopsis/reader.py", "import pyarrow.parquet", "pyarrow has another owner"),
    ("releasing.py", "import zarr", "zarr has another owner"),
    ("synopsis/reader.py", "import numba", "numba has another owner"),
    ("engine.py", "def f():\n    import sqlalchemy.exc", "sqlalchemy has another owner"),
    ("reporting.py", "import rich", "rich has another owner"),
    ("synopsis/reader.py", "import matplotlib.figure", "matplotlib has another owner"),
    ("cli/main.py", "from jinja2 import Environment", "jinja2 has another owner"),
    ("records.py", "from cryptography import x509", "cryptography has another owner"),
    ("recordset.py", "import pyarrow", "pyarrow has another owner"),  # no prefix of a name
    ("cli/plan.py", "x = 1", "dbern.cli.plan has the name of a public function"),
    ("release/__init__.py", "x = 1", "dbern.release has the name of a public function"),
    ("domain.py", "import random", "uses random"),
    ("domain.py", "from numpy import random", "uses numpy.random"),
    ("domain.py", "from numpy.random import default_rng", "uses numpy.random"),
    ("domain.py", "import numpy as np\nx = np.random.default_rng()", "uses numpy.random"),
    ("domain.py", "import numpy\nx = numpy.random", "uses numpy.random"),
    ("domain.py", "from scipy.stats import laplace", "uses scipy.stats"),
    ("domain.py", "def f():\n" + "    x = 1\n" * 60, "dbern.domain.f has 61 lines"),
    ("domain.py", "x = 1\n" * 700, "dbern.domain has 701 lines"),
]  # fmt: skip


@pytest.fixture
def tree(tmp_path):
    package = tmp_path / "dbern"
    for name in ("", "bernstein", "privacy", "targets", "ledger", "synopsis", "cli"):
        (package / name).mkdir(exist_ok=True)
        (package / name / "__init__.py").write_text('"""Fine."""\n')
    for name, text in {
        "errors.py": "import math",
        "arrays.py": "import numpy as np",
        "progress.py": "",
        "domain.py": "from dbern.arrays import FloatArray\nfrom dbern.errors import SpecError",
        "bernstein/basis.py": "import dbern.errors",
        "privacy/entropy.py": "import secrets\nfrom cryptography import x509",
        "targets/base.py": "from dbern.bernstein.basis import b",
        "targets/erm.py": "from dbern.targets.base import b",
        "certificate.py": "from dbern.bernstein import basis",
        "records.py": "import pyarrow as pa",
        "spec.py": "from dbern.targets import base",
        "ledger/keys.py": "import sqlalchemy",
        "synopsis/reader.py": "import zarr\nfrom dbern.progress import silent",
        "planning.py": "from dbern.records import r\nfrom dbern import spec",
        "engine.py": "import distributed\nfrom dbern.planning import p",
        "releasing.py": "from dbern.engine import e\nfrom dbern.ledger import l",
        "reporting.py": "from dbern.synopsis.reader import r",
        "cli/main.py": "import click, rich\nfrom dbern.releasing import r",
    }.items():
        (package / name).write_text(text + "\n")
    return package


def test_a_tree_that_keeps_the_rules_passes(tree):
    assert violations(tree) == []


@pytest.mark.parametrize(("name", "text", "complaint"), PLANTED)
def test_a_planted_violation_is_found(tree, name, text, complaint):
    path = tree / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + "\n")
    found = violations(tree)
    assert any(complaint in line for line in found), found
