"""Imports go only downward, and the gates of `gates` hold but for what `allowed.json` lists."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from gates import (
    ALLOWED,
    ROOM_OF,
    Module,
    count_violations,
    excess,
    read_allowed,
    read_modules,
    room_of,
    shrunk,
)

import dbern

PACKAGE = Path(dbern.__file__).parent

# The rooms, from the top down: a line imports only what is below it.
LAYERS = [
    {"__main__"},
    {"cli", "sklearn"},
    {"run"},
    {"cluster", "report", "testing"},
    {"planning"},
    {"learn", "synopsis"},
    {"ask"},
    {"targets"},
    {"erm"},
    {"measure", "model"},
    {"certify"},
    {"combination"},
    {"reconstruct", "ledger"},
    {"bernstein", "privacy", "data"},
    {"horizon"},
    {"system"},
    {"errors"},
]
RANK = {unit: len(LAYERS) - depth for depth, layer in enumerate(LAYERS) for unit in layer}
LEAVES = {"types", "compiling"}  # import nothing of ours; anyone may import them
OUTER = {"__main__", "cli", "erm", "learn", "report", "sklearn", "testing"}
"""What the core does without: select, measure, reconstruct, certify, publish, ask."""
COMPOSED = {"dbern.targets"}  # the registry of learners has their types, and imports by name
NEVER = {  # not even through others
    "synopsis": {"targets", "measure", "erm", "learn", "cluster"},
    "report": {"targets", "measure", "erm", "learn", "cluster"},
    "cluster": {"ledger"},
}
BACK = {  # of the modules of one folder: what one may import although it is imported by it
    "dbern.synopsis.reader": {"dbern.synopsis.shaping"},  # `Synopsis.shaped` makes one of its kind
}
CLUSTER = tuple(name for name, room in ROOM_OF.items() if room == "cluster")
OWNERS = {  # prefixes of module names
    "dask": (*CLUSTER, "dbern.synopsis"),
    "distributed": (*CLUSTER, "dbern.cli.diagnosis", "dbern.run.journal"),
    "pyarrow": (  # of which a synopsis's arrays use the zstd decoder alone
        *("dbern.data", "dbern.synopsis.tables", "dbern.ask.points"),
        *("dbern.synopsis.stored_arrays", "dbern.sklearn"),
    ),
    "obstore": ("dbern.data.objects",),
    "zarr": ("dbern.synopsis",),
    "numba": ("dbern.compiling", "dbern.measure.loops", "dbern.synopsis.evaluate"),
    "sqlalchemy": ("dbern.ledger",),
    "bokeh": ("dbern.report",),
    "jinja2": ("dbern.report",),
    "matplotlib": ("dbern.report", "dbern.synopsis.drawing"),
    "sklearn": ("dbern.sklearn",),
    "click": ("dbern.cli",),
    "rich": ("dbern.cli",),
    "cryptography": (
        *("dbern.privacy", "dbern.ledger"),
        "dbern.run.connection",
    ),
}
PUBLIC_FUNCTIONS = {"open", "open_stream", "plan", "published", "release"}


def imported(module: Module, known: set[str]) -> Iterator[str]:
    """Full names of what a module imports anywhere in it, for type checking included."""
    is_package = module.path.name == "__init__.py"
    for node in module.nodes:
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
            and getattr(node.func, "id", getattr(node.func, "attr", ""))
            in {"import_module", "__import__"}
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield str(node.args[0].value)


def violations(package: Path) -> list[str]:
    every = read_modules(package)
    found = []
    for module in every:
        found += _import_violations(module, {m.name for m in every})
        found += _randomness(module)
        if module.name.rpartition(".")[2] in PUBLIC_FUNCTIONS:
            found.append(f"{module.name} has the name of a public function")
    found += _transitive_violations(every)
    found += _circles(every)
    return found


def _import_violations(module: Module, known: set[str]) -> list[str]:
    found = []
    for target in imported(module, known):
        top = target.partition(".")[0]
        if top == "dbern":
            found += _layer_violation(module, target, room_of(target))
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
    if module.name in COMPOSED and unit == "learn":
        return []
    if unit in OUTER and module.unit not in OUTER:
        return [f"{module.name} imports {target}: the core does without"]
    if RANK[unit] < RANK[module.unit]:
        return []
    kind = "a sibling" if RANK[unit] == RANK[module.unit] else "upward"
    return [f"{module.name} imports {target}: {kind}"]


def _transitive_violations(every: list[Module]) -> list[str]:
    known = {module.name for module in every}
    units: dict[str, set[str]] = {}
    for module in every:
        ours = {room_of(t) for t in imported(module, known) if t.startswith("dbern.")}
        units.setdefault(module.unit, set()).update(ours - {module.unit})
    found = []
    for unit, forbidden in NEVER.items():
        seen, waiting = set(), [unit]
        while waiting:
            for following in units.get(waiting.pop(), set()) - seen:
                seen.add(following)
                waiting.append(following)
        # The cluster plans with planning, which knows no ledger; a path is as bad as an import.
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
    for node in module.nodes:
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


def test_the_package_keeps_the_rules():
    assert violations(PACKAGE) == []


NAMED = {  # kinds of learners elsewhere than theirs, which version 1 of the format needs
    # The store says by them what values mean.
    "dbern.combination.base": {"kernel-density", "logistic-regression"},
    # They are names of combinations, too.
    "dbern.combination.class_scores": {"naive-bayes"},
    "dbern.combination.gaussian_scores": {"gaussian-naive-bayes"},
}


def learners_named(package: Path, kinds: set[str]) -> list[str]:
    """Kinds of learners that code elsewhere than theirs tells apart: texts that are one."""
    return sorted(
        f"{module.name}:{node.lineno} names {node.value}"
        for module in read_modules(package)
        if module.unit not in ("targets", "learn")
        for node in module.nodes
        if isinstance(node, ast.Constant) and node.value in kinds - NAMED.get(module.name, set())
    )


def test_no_learner_is_named_elsewhere():
    assert learners_named(PACKAGE, set(dbern.targets.kinds())) == []


def test_a_learner_that_is_named_is_found(tree):
    (tree / "synopsis" / "reader.py").write_text('x = "oracle"\ny = "or an oracle"')
    (tree / "learn" / "linear_functions.py").write_text('kind = "oracle"')
    assert learners_named(tree, {"oracle"}) == ["dbern.synopsis.reader:1 names oracle"]


def test_every_part_of_the_package_has_a_layer():
    rooms = {module.unit for module in read_modules(PACKAGE)}
    assert rooms - {"", "__main__", "nights"} <= set(RANK) | LEAVES  # `nights` has its files' rooms


def test_public_functions_are_those_of_the_facade():
    functions = {name for name in dbern.__all__ if name.islower() and name != "targets"}
    assert functions == PUBLIC_FUNCTIONS


PLANTED = [
    ("data/domain.py", "from dbern.planning.spec import R",
     "dbern.data.domain imports dbern.planning.spec: upward"),
    ("synopsis/store.py", "from dbern.learn.linear_functions import r", "the core does without"),
    ("planning/spec.py", "from dbern.report.page import r", "the core does without"),
    ("planning/spec.py", "from dbern.run.stages import r", "upward"),
    ("certify/certificate.py", "from dbern import targets", "imports dbern.targets: upward"),
    ("bernstein/basis.py", "import dbern.privacy.budget", "a sibling"),
    ("bernstein/basis.py", "def f():\n    from dbern.errors import E\n    import dbern.planning",
     "upward"),
    ("errors.py", "if TYPE_CHECKING:\n    from dbern.data.domain import Domain", "upward"),
    ("errors.py", "from .data.domain import Domain", "upward"),
    ("reconstruct/base.py", "from ..targets import base", "upward"),
    ("erm/solver.py", "from dbern.targets import base", "upward"),
    ("measure/kernel_sums.py", "from dbern.targets import Learner", "upward"),
    ("privacy/budget.py", 'import_module("dbern.ledger")', "upward"),
    ("types.py", "from dbern.errors import DbernError", "nothing of ours"),
    ("compiling.py", "import dbern.types", "nothing of ours"),
    ("learn/erm.py", "def f():\n    from dbern.learn.linear_functions import e", "a circle"),
    ("learn/erm.py", "if TYPE_CHECKING:\n    from dbern.learn.linear_functions import E",
     "a circle"),
    ("helpers.py", "from dbern.errors import DbernError", "belongs to no layer"),
    ("run/graph.py", "from dbern.ledger.keys import KeyFiles", "cluster reaches ledger"),
    ("planning/planner.py", "import dbern.ledger", "cluster reaches ledger"),
    ("synopsis/reader.py", "from dbern.targets import base", "synopsis reaches targets"),
    ("synopsis/reader.py", "import dbern.measure.kernel_sums", "synopsis reaches measure"),
    ("report.py", "from dbern.planning.planner import plan", "report reaches measure"),
    ("planning/planner.py", "import dask", "dask has another owner"),
    ("run/publish.py", "from distributed import Client", "distributed has another owner"),
    ("synopsis/reader.py", "import pyarrow.parquet", "pyarrow has another owner"),
    ("run/stages.py", "import zarr", "zarr has another owner"),
    ("synopsis/reader.py", "import numba", "numba has another owner"),
    ("run/graph.py", "def f():\n    import sqlalchemy.exc", "sqlalchemy has another owner"),
    ("report.py", "import rich", "rich has another owner"),
    ("synopsis/reader.py", "import matplotlib.figure", "matplotlib has another owner"),
    ("cli/main.py", "from jinja2 import Environment", "jinja2 has another owner"),
    ("targets/learner.py", "import sklearn.base", "sklearn has another owner"),
    ("data/parquet.py", "from cryptography import x509", "cryptography has another owner"),
    ("database.py", "import pyarrow", "pyarrow has another owner"),  # no prefix of a name
    ("cli/plan.py", "x = 1", "dbern.cli.plan has the name of a public function"),
    ("release/__init__.py", "x = 1", "dbern.release has the name of a public function"),
    ("errors.py", "import random", "uses random"),
    ("errors.py", "from numpy import random", "uses numpy.random"),
    ("errors.py", "from numpy.random import default_rng", "uses numpy.random"),
    ("errors.py", "import numpy as np\nx = np.random.default_rng()", "uses numpy.random"),
    ("errors.py", "import numpy\nx = numpy.random", "uses numpy.random"),
    ("errors.py", "from scipy.stats import laplace", "uses scipy.stats"),
]  # fmt: skip


ROOMS = (
    *("bernstein", "certify", "cli", "combination", "data", "erm", "learn", "ledger", "measure"),
    *("planning", "privacy", "reconstruct", "run", "synopsis", "targets"),
)


@pytest.fixture
def tree(tmp_path):
    package = tmp_path / "dbern"
    for name in ("", *ROOMS):
        (package / name).mkdir(exist_ok=True)
        (package / name / "__init__.py").write_text('"""Fine."""\n')
    for name, text in {
        "__main__.py": "from dbern.cli.main import r",
        "errors.py": "import math",
        "types.py": "import numpy as np",
        "compiling.py": "import numba",
        "data/domain.py": "from dbern.errors import SpecError\nfrom dbern.types import FloatArray",
        "bernstein/basis.py": "import dbern.errors",
        "privacy/keystream.py": "import secrets\nfrom cryptography import x509",
        "targets/learner.py": "from dbern.bernstein.basis import b",
        "learn/erm.py": "",
        "learn/linear_functions.py": "from dbern.learn import erm\nfrom dbern.targets import base",
        "certify/certificate.py": "from dbern.bernstein import basis",
        "data/parquet.py": "import pyarrow as pa",
        "planning/spec.py": "from dbern.measure import moments\nfrom dbern.targets import base",
        "ledger/keys.py": "import sqlalchemy",
        "synopsis/reader.py": "import zarr\nfrom dbern.system import silent",
        "planning/planner.py": "from dbern.data.parquet import r\nfrom dbern.planning import spec",
        "run/graph.py": "import dask\nfrom dbern.planning.planner import p",
        "run/stages.py": "from dbern.run.graph import e\nfrom dbern.ledger import l",
        "report.py": "from dbern.synopsis.reader import r",
        "combination/base.py": "from dbern.reconstruct import base",
        "system.py": "",
        "cli/main.py": "import click, rich\nfrom dbern.run.stages import r",
    }.items():
        (package / name).write_text(text + "\n")
    return package


def test_a_tree_that_keeps_the_rules_passes(tree):
    assert violations(tree) == []


@pytest.mark.planted
@pytest.mark.parametrize(("name", "text", "complaint"), PLANTED)
def test_a_planted_violation_is_found(tree, name, text, complaint):
    path = tree / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + "\n")
    found = violations(tree)
    assert any(complaint in line for line in found), found


@pytest.fixture(scope="module")
def counts():
    return count_violations(PACKAGE)


def test_the_code_keeps_its_gates(counts):
    assert excess(counts, read_allowed()) == {}, "see tests/gates.py"


def test_what_is_allowed_only_shrinks(counts):
    allowed = read_allowed()
    assert shrunk(counts, allowed) == allowed, (
        f"less is left than {ALLOWED.name} allows: run `python -m gates --shrink` in tests"
    )


def test_a_list_shrinks_and_never_grows():
    allowed = {"words": {"a": 3, "b": 1}, "gone": {"a": 1}}
    counts = {"words": {"a": 2, "c": 5}}
    assert shrunk(counts, allowed) == {"words": {"a": 2}}
    assert excess(counts, allowed) == {"words": {"c": 5}}


GATED = [
    ("long functions", "def f():\n" + "    x = 1\n" * 60, "dbern.errors.f: 61 lines"),
    ("many parameters", "def f(a, b, c, *, d, e, f, g): ...", "dbern.errors.f"),
    ("wide classes", "class A:\n" + "".join(f"    x{i}: int\n" for i in range(13)),
     "dbern.errors.A"),
    ("callable fields", "class A:\n    f: Callable[[], int] | None = None",
     "dbern.errors.A.f"),
    ("untyped objects", "class BudgetLedger: ...\ndef f(budget_ledger: Any): ...",
     "dbern.errors.f(budget_ledger)"),
    ("untyped objects", "def f(strategy: Any): ...", "dbern.errors.f(strategy)"),
    ("forbidden words", "for _one in (): ...", "dbern.errors"),
    ("forbidden words", "def f(found): ...", "dbern.errors"),
    ("forbidden words", "def apart(): ...", "dbern.errors"),
    ("forbidden words", "import math as kept", "dbern.errors"),
    ("forbidden words", "class A:\n    facts: int", "dbern.errors"),
    ("first sentences", 'def f():\n    """What is bounded."""', "dbern.errors"),
    ("first sentences", '"""Bound as the top of the module says."""', "dbern.errors"),
    ("internal sections", 'def f():\n    """Bound it.\n\n    Raises\n    ------\n    """',
     "dbern.errors.f"),
]  # fmt: skip


def test_public_words_are_of_public_parameters_and_methods_alone(tree):
    file, key = tree / "testing.py", "dbern.testing"
    file.write_text("class Search:\n    def found(self): ...\n")
    before = count_violations(tree)["forbidden words"]
    assert key not in before
    file.write_text("class Search:\n    def found(self, given): ...\nfound = 1\n")
    assert count_violations(tree)["forbidden words"] == before | {key: 2}


@pytest.mark.planted
@pytest.mark.parametrize(("rule", "text", "key"), GATED)
def test_a_gate_finds_what_is_planted(tree, rule, text, key):
    before = count_violations(tree)[rule]
    (tree / "errors.py").write_text(text + "\n")
    after = count_violations(tree)[rule]
    assert after.get(key, 0) == before.get(key, 0) + 1, after


def test_gates_pass_over_what_they_are_not_about(tree):
    before = count_violations(tree)
    text = (
        "@cli.command()\ndef f(a, b, c, d, e, f, g): ...\n"
        'class A:\n    """Bound it."""\n    x: ClassVar[Callable[[], int]]\n'
        "    def read(self, a, b, c, d, e, f): ...\nstone, onefold = 1, A.found\n"
    )
    (tree / "errors.py").write_text(text)
    assert count_violations(tree) == before
