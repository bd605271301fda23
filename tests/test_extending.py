"""Additions to dbern as the page says: its blocks as a package, or files in a copy of dbern."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dbern

PACKAGE = Path(str(dbern.__file__)).parent
PAGE = Path(__file__).parents[1] / "docs/development/extending.md"
SPEC = """
import dbern
from dbern.planning.planner import plan_files

def planned(noise, kind="kernel-density", epsilon="1.0", data=(), **changed):
    spec = dbern.ReleaseSpec(
        release={"name": "demo", "output": "demo.zarr"},
        data={"source": "*.parquet", "bounds": {"x": [0.0, 10.0]}, "n": 100, **dict(data)},
        target=changed.get("target", {"kind": kind, "bandwidth": [2.0]}),
        mechanism=changed.get("mechanism", {"k": 12, "h": 2, "noise": noise}),
        budget={"epsilon": epsilon, "ledger": "sqlite:///l.db", "dataset": "demo"},
    )
    return spec, plan_files(spec, ())
"""

RELEASED = """
import numpy as np
from dbern.data.parquet import write_records
from dbern.ledger import BudgetLedger
from dbern.privacy.budget import Budget
from distributed import Client, LocalCluster

if __name__ == "__main__":
    x = np.linspace(0.0, 10.0, 100)
    write_records("demo.parquet", {"x": x, "y": np.where(x > 5.0, 1.0, -1.0)})
    spec, plan = planned(ARGUMENTS)
    BudgetLedger.create(spec.budget.ledger)
    with BudgetLedger.open(spec.budget.ledger) as ledger:
        ledger.grant("demo", Budget.parse("100000"))
    with LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            dbern.release(spec, client)
    found = dbern.open("demo.zarr")
    facts = found.metadata["components"][0]["noise"]
    print(found.verify() and bool(np.isfinite(found(np.array([[5.0]]))).all()))
"""
REMOVED = """
def sentence(read):
    try:
        read()
    except dbern.DbernError as refusal:
        return str(refusal)
    return "read"

print(sentence(lambda: planned(ARGUMENTS)))
print(sentence(lambda: dbern.open("demo.zarr")))
"""


def released(arguments):
    """A release of what `planned` plans with these arguments."""
    return RELEASED.replace("ARGUMENTS", arguments)


def run(folder, text):
    return printed(folder, text).split()


def printed(folder, text):
    done = subprocess.run(
        [sys.executable, "-c", SPEC + text], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(folder)}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def block(file):
    """The block of the page that is saved as this file."""
    return re.search(rf"```\w+\n# file: {file}\n(.*?)^```$", PAGE.read_text(), re.S | re.M)[1]


def installed(folder, group, text, points=None):
    """A package of one module with the page's entry points of a group; it is removed by calling."""
    project = tomllib.loads(block("pyproject.toml"))["project"]
    points = points or project["entry-points"][group]
    (module,) = (place.partition(":")[0] for place in points.values())
    made = folder / f"{project['name']}-{project['version']}.dist-info"
    made.mkdir()
    (made / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines = [f"[{group}]", *(f"{name} = {place}" for name, place in points.items())]
    (made / "entry_points.txt").write_text("\n".join(lines))
    (folder / f"{module}.py").write_text(text)
    (folder / "dbern").symlink_to(PACKAGE)

    def remove():
        shutil.rmtree(made)
        (folder / f"{module}.py").unlink()

    return remove


UPGRADED = """
try:
    dbern.open("demo.zarr")
except dbern.DbernError as refusal:
    print(refusal)
"""


def after_upgrade(folder, key):
    """Version 2.0 of the package is refused as a reader of what 1.0 released, and 1.0 is not."""
    metadata = folder / "mine-1.0.dist-info" / "METADATA"
    before = metadata.read_text()
    metadata.write_text(before.replace("1.0", "2.0"))
    refusal = printed(folder, UPGRADED)
    metadata.write_text(before)
    sentence = f"packages: {key} was released with mine 1.0 and is of mine 2.0 here. Install what"
    return sentence in refusal and printed(folder, UPGRADED) == ""


def after_removal(folder, remove, arguments):
    """The lines of a plan with these arguments, and of reading the store, without the package."""
    remove()
    return printed(folder, REMOVED.replace("ARGUMENTS", arguments)).splitlines()


TRUSTS = "is of mine 1.0: as stated, not checked, and privacy rests on it"
ABOUT_PACKAGE = """
    print(sum(note.endswith("KEY TRUSTS") for note in plan.notes), spec.identity()["packages"])
"""


def about_package(key):
    """Prints how often a plan says whose something is, and what the identity says of it."""
    return ABOUT_PACKAGE.replace("KEY", key).replace("TRUSTS", TRUSTS)


@pytest.mark.slow
def test_a_kernel_is_a_class_of_a_package(tmp_path):
    remove = installed(tmp_path, "dbern.kernels", block("quadweight.py"))
    arguments = (
        '"laplace", epsilon="1000", mechanism={"noise": "laplace"}, '
        'target={"kind": "kernel-density", "kernel": "quadweight", "bandwidth": [2.0]}'
    )
    lines = printed(
        tmp_path,
        released(arguments)
        + """
    y, x = np.array([[5.0], [1.0], [9.7]]), np.linspace(0.0, 10.0, 100)
    z = (y - x) / 2
    truth = (315 / 512 * np.where(np.abs(z) < 1, 1 - z**2, 0.0) ** 4).mean(axis=1)
    low, high = found.interval(y)
    print(bool((np.abs(found(y) - truth) < 0.002).all()), bool(truth.min() > 0.02))
    print(bool(((low <= truth) & (truth <= high)).all()))
    print(bool((np.abs(found(y) - truth) <= plan.certificate.total).all()))
"""
        + about_package("target.kernel"),
    ).splitlines()
    assert lines == ["True", "True True", "True", "True", "1 {'target.kernel': 'mine 1.0'}"]
    assert after_upgrade(tmp_path, "target.kernel")
    plan, store = after_removal(tmp_path, remove, arguments)
    assert plan.startswith('target.kernel: "quadweight" is unknown. Write kernel = "')
    assert "is none of gaussian, laplace, " in store
    assert "and no installed package has it" in store


@pytest.mark.slow
def test_a_loss_is_a_class_of_a_package(tmp_path):
    remove = installed(tmp_path, "dbern.losses", block("log_cosh.py"))
    arguments = (
        '"laplace", epsilon="10000", mechanism={"noise": "laplace"}, '
        'target={"kind": "kernel-erm", "length_scale": [1.0], "C": 300.0, "loss": "log-cosh"}, '
        'data={"response": {"column": "y", "bounds": [-1.0, 1.0]}}'
    )
    lines = printed(
        tmp_path,
        released(arguments)
        + """
    low, high = found(np.array([[2.0], [8.0]]))
    (statistic,) = spec.learner.components(spec.records)
    print(type(statistic.loss).__name__, -1.1 < low < -0.7 and 0.7 < high < 1.1)
    print(any("are off by" in note for note in plan.notes))  # its risk is not predicted
    for more in ({"threshold": 0.5}, {"tube": 0.5}, {"loss": "none"}):
        try:
            spec.changed({"target": more})
        except dbern.SpecError as refusal:
            print(refusal)
"""
        + about_package("target.loss"),
    ).splitlines()
    assert lines[:3] == ["True", "LogCosh True", "False"]
    assert lines[3].startswith(
        'target.tube: is of loss = "epsilon-insensitive", not of loss = "log'
    )
    assert '"log-cosh"' in lines[4]
    assert lines[5:] == ["1 {'target.loss': 'mine 1.0'}"]
    plan, store = after_removal(tmp_path, remove, arguments)
    assert plan.startswith('target.loss: "log-cosh" is unknown. Write one of "logistic"')
    assert store == "read"


@pytest.mark.slow
def test_a_law_is_a_class_of_a_package_and_never_automatic(tmp_path):
    automatic = """
_, plan = planned("auto", mechanism={"noise": "auto"})
print(plan.to_dict())
"""
    (tmp_path / "without").mkdir()
    without = printed(tmp_path / "without", automatic)
    remove = installed(tmp_path, "dbern.noise", block("cautious.py"))
    assert printed(tmp_path, automatic) == without
    words = run(
        tmp_path,
        """
import numpy as np
from dbern.planning.release_plan import ReleasePlan
from dbern.privacy.mechanism import privatize
_, usual = planned("laplace")
_, plan = planned("cautious")
law = plan.noise.law
print(plan.noise.kind, law.kind, round(plan.noise.scale / usual.noise.scale, 3))
print(ReleasePlan.from_dict(plan.to_dict()) == plan)
print(plan.certificate.noise > usual.certificate.noise)
zeros = np.zeros(8, dtype=np.int64)
other = privatize(zeros, 0, usual.noise.law, bytes(32), "density")
print((privatize(zeros, 0, law, bytes(32), "density") != other).any())
""",
    )
    # A kernel's error is up to a share of the noise, so the sensitivity is a little larger, too.
    assert words == ["cautious", "cautious", "2.005", "True", "True", "True"]
    lines = printed(
        tmp_path,
        released('"cautious"')
        + """
    print(facts["kind"], facts["law"]["kind"], found.arrays[0].law == plan.noise.law)
"""
        + about_package("mechanism.noise"),
    ).splitlines()
    assert lines == ["True", "cautious cautious True", "1 {'mechanism.noise': 'mine 1.0'}"]
    assert after_upgrade(tmp_path, "mechanism.noise")
    plan, store = after_removal(tmp_path, remove, '"cautious"')
    assert plan.startswith('mechanism.noise: is unknown. Write noise = "auto"; with delta = "0" ')
    assert "is none of laplace, " in store
    assert "and no installed package has it" in store


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "names", "noise"),
    [
        ("binned-odd", '{"": "binned-odd"}', "binned-odd"),
        ("odd", '{"": "binned-odd"}', "binned-odd"),
        ("odd", '{"": "laplace"}', "odd"),
    ],
)
def test_a_law_with_the_name_of_other_noise_is_refused(tmp_path, name, names, noise):
    text = block("cautious.py").replace('kind: str = "cautious"', f'kind: str = "{name}"')
    text = text.replace('{"": "cautious"}', names)
    installed(tmp_path, "dbern.noise", text, {name: "cautious:CAUTIOUS"})
    (refusal,) = printed(
        tmp_path,
        f"""
try:
    planned({noise!r})
except dbern.SpecError as refusal:
    print(refusal)
""",
    ).splitlines()
    assert refusal.startswith(f'mechanism.noise: "{name}" of mine 1.0 has names that are those of')


@pytest.mark.slow
def test_a_learner_is_a_class_of_a_package(tmp_path):
    remove = installed(tmp_path, "dbern.targets", block("doubled.py"))
    arguments = '"laplace", "doubled", epsilon="100"'
    lines = printed(
        tmp_path,
        released(arguments)
        + """
    usual = planned("laplace")[1]
    print(round(plan.sensitivity.function / usual.sensitivity.function, 6))
"""
        + about_package("target.kind"),
    ).splitlines()
    assert lines == ["True", "2.0", "1 {'target.kind': 'mine 1.0'}"]
    plan, store = after_removal(tmp_path, remove, arguments)
    assert plan.startswith('target.kind: "doubled" is unknown. Write kind = ')
    assert store == "read"


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "dbern", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "dbern"


def change(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


STRATEGY = '''
"""Release lattice values in reverse."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dbern.reconstruct.axis_maps import LinearMap, StoredArray
from dbern.reconstruct.base import LatticeMapStrategy
from dbern.reconstruct.base import LatticeStrategy


@dataclass(frozen=True)
class Reversal(LinearMap):
    size: int
    used: int = 0
    kind: ClassVar[str] = "reversed"
    stored = {"reversal": StoredArray(("mode", "axis"))}

    @property
    def rank(self):
        return self.size

    @property
    def analysis(self):
        return np.eye(self.size)[::-1]

    synthesis = analysis

    def using(self, rank):
        return self

    def to_dict(self):
        return {"size": self.size}

    @classmethod
    def from_dict(cls, content):
        return cls(content["size"])

    def arrays(self):
        return {"reversal": self.analysis}

    @classmethod
    def of_arrays(cls, read):
        return cls(len(read("reversal")[0]))

    @classmethod
    def admits(cls, rank, nodes, axes, attributes):
        return rank == nodes

    @classmethod
    def candidates(cls, problem):
        for lattice in problem.lattices((8, 12)):
            maps = tuple(cls(size) for size in lattice.shape)
            for h in problem.orders((1, 2)):
                yield problem.candidate(ReversedStrategy(lattice, maps), h)


class ReversedStrategy(LatticeMapStrategy):
    kind = "reversed"

    def __init__(self, lattice, maps):
        self.lattice, self._maps, self._plain = lattice, maps, LatticeStrategy(lattice)

    @property
    def layout(self):
        return self.lattice

    @property
    def maps(self):
        return self._maps

    def matrix(self, axis):
        return self._maps[axis].analysis

    def row_sums(self, axis):
        return np.ones(self.lattice.shape[axis])

    def l1_sensitivity(self, kernels, **how):
        return self._plain.l1_sensitivity(kernels, **how)

    def l2_sensitivity(self, kernels, **how):
        return self._plain.l2_sensitivity(kernels, **how)

    def rkhs_sensitivity(self, kernels, norm):
        return self._plain.rkhs_sensitivity(kernels, norm)

    def lattice_norm(self, h):
        return self._plain.lattice_norm(h)

    def reconstruct(self, values, slab):
        return values[::-1][slab.start : slab.stop]
'''


@pytest.mark.slow
def test_a_strategy_is_a_file_and_its_place_in_the_registry(copy):
    (copy / "reconstruct/reversal.py").write_text(STRATEGY)
    registry = copy / "reconstruct/__init__.py"
    change(registry, "    AxisBins: BinnedStrategy,\n",
           "    AxisBins: BinnedStrategy,\n    Reversal: ReversedStrategy,\n")  # fmt: skip
    change(registry, "from dbern.reconstruct.spectral import ",
           "from dbern.reconstruct.reversal import Reversal, ReversedStrategy\n"
           "from dbern.reconstruct.spectral import ")  # fmt: skip
    words = run(
        copy.parent,
        """
import numpy as np
from dbern.planning.release_plan import ReleasePlan
from dbern.reconstruct.base import Slab
values = []
for noise in ("laplace", "reversed-laplace"):
    spec, plan = planned(noise)
    plan = ReleasePlan.from_dict(plan.to_dict())
    counters, whole = plan.counters(spec), Slab(0, 0, plan.lattice.shape[0])
    state = counters.count([{"x": np.array([1.0, 2.5, 7.0])}], b"")
    released = counters.to_values(state, 0, 0, whole)
    values.append(plan.strategy.reconstruct(released, whole))
    print(plan.noise.kind, released[0] < released[-1])
print(np.abs(values[0] - values[1]).max() < 1e-12)
""",
    )
    assert words == ["laplace", "False", "reversed-laplace", "True", "True"]
    words = run(
        copy.parent,
        released('"reversed-laplace"')
        + """
    print(facts["kind"], found.arrays[0].strategy.maps == plan.strategy.maps)
    array = "components/density/reversed/reversal_x/zarr.json"
    print(found._store.location.read(array, 1 << 20).count(b"float64"))
    print("released as 13 values" in plan.explain(details=True))
""",
    )
    assert words == ["True", "reversed-laplace", "True", "1", "True"]


COMBINATION = '''
"""Half of a function."""

from dataclasses import dataclass
from typing import ClassVar

from dbern.combination.functions import FunctionCombination


@dataclass(frozen=True, kw_only=True)
class Halved(FunctionCombination):
    kind: ClassVar[str] = "halved"

    def values(self, parts, unit_points=None):
        return self.functions(parts, unit_points)[0] / 2

    def errors(self, errors):
        return errors[0] / 2
'''


@pytest.mark.slow
def test_a_combination_is_a_file_and_its_place_in_the_registry(copy):
    (copy / "combination/halved.py").write_text(COMBINATION)
    registry, learner = copy / "combination/__init__.py", copy / "targets/kernel_density.py"
    first = "from dbern.combination.functions import "
    change(registry, first, f"from dbern.combination.halved import Halved\n{first}")
    change(registry, "OneVersusRest),", "OneVersusRest, Halved),")
    change(learner, first, f"from dbern.combination.halved import Halved\n{first}")
    change(learner, "Identity() if schema", "Halved() if schema")
    words = run(
        copy.parent,
        released('"laplace"')
        + """
    (whole,) = found._function.parts(np.array([[5.0]]), found._function.smoothings(None), 1)
    print(found.metadata["combine"], bool(found(np.array([[5.0]])) == whole / 2))
    low, high = found.interval(np.array([[5.0]]))
    print(plan.certificate.total == plan.components[0].certificate.total / 2, bool(high > low))
    print(found.promises().any_database == plan.certificate.total)
""",
    )
    assert words == ["True", "{'kind':", "'halved'}", "True", "True", "True", "True"]
