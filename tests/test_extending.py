"""What each kind of addition takes: files that are added and changed, in a copy of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dbern

PACKAGE = Path(str(dbern.__file__)).parent
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

if __name__ == "__main__":
    x = np.linspace(0.0, 10.0, 100)
    write_records("demo.parquet", {"x": x, "y": np.where(x > 5.0, 1.0, -1.0)})
    spec, plan = planned(ARGUMENTS)
    BudgetLedger.create(spec.budget.ledger)
    with BudgetLedger.open(spec.budget.ledger) as ledger:
        ledger.grant("demo", Budget.parse("100000"))
    dbern.release(spec)
    found = dbern.open("demo.zarr")
    facts = found.metadata["components"][0]["noise"]
    print(found.verify() and bool(np.isfinite(found(np.array([[5.0]]))).all()))
"""


def released(arguments):
    """A release of what `planned` plans with these arguments."""
    return RELEASED.replace("ARGUMENTS", arguments)


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "dbern", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "dbern"


def run(folder, text):
    done = subprocess.run(
        [sys.executable, "-c", SPEC + text], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(folder)}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def change(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


KERNEL = '''
"""``(1 - z^2)^4`` on its support."""

from dataclasses import dataclass

from dbern.bernstein.kernels.compact import CompactKernel


@dataclass(frozen=True)
class Quadweight(CompactKernel):
    """``315 (1 - z^2)^4 / (256 b)``."""

    name = "quadweight"
    inner, power = 2, 4
'''


@pytest.mark.slow
def test_a_kernel_is_a_file_and_its_place_in_the_registry(copy):
    (copy / "bernstein/kernels/quadweight.py").write_text(KERNEL)
    registry = copy / "bernstein/kernels/__init__.py"
    change(registry, "        Triweight,\n    )", "        Triweight,\n        Quadweight,\n    )")
    change(
        registry,
        "\n__all__",
        "from dbern.bernstein.kernels.quadweight import Quadweight\n\n__all__",
    )
    said = run(
        copy.parent,
        released(
            '"laplace", epsilon="1000", mechanism={"noise": "laplace"}, '
            'target={"kind": "kernel-density", "kernel": "quadweight", "bandwidth": [2.0]}'
        )
        + """
    y, x = np.array([[5.0], [1.0], [9.7]]), np.linspace(0.0, 10.0, 100)
    z = (y - x) / 2
    truth = (315 / 512 * np.where(np.abs(z) < 1, 1 - z**2, 0.0) ** 4).mean(axis=1)
    low, high = found.interval(y)
    print(bool((np.abs(found(y) - truth) < 0.002).all()), bool(truth.min() > 0.02))
    print(bool(((low <= truth) & (truth <= high)).all()))
    print(bool((np.abs(found(y) - truth) <= plan.certificate.total).all()))
""",
    )
    assert said == ["True"] * 5


LOSS = '''

@dataclass(frozen=True)
class LogCosh(Responses):
    """``s^2 log cosh((f - l) / s)``: slope at most s, curvature 1."""

    name: ClassVar[str] = "log-cosh"
    perturbable: ClassVar[bool] = False
    threshold: float = 1.0
    bound: float = 1.0
    curvature = 1.0

    @classmethod
    def stated(cls, lengths):
        return cls(lengths.threshold or lengths.bound, lengths.bound)

    @property
    def at_zero(self):
        return self.bound**2 / 2

    @property
    def derivative_error(self):
        return 8 * UNIT_ROUNDOFF * max(self.threshold, 1.0)

    def slope(self, largest):
        return min(self.threshold, self.bound + largest)

    def scaled(self, radius):
        return LogCosh(self.threshold / radius, self.bound / radius)

    def value(self, labels, predictions):
        z = np.abs(predictions - labels) / self.threshold
        return self.threshold**2 * (z + np.log1p(np.exp(-2 * z)) - math.log(2))

    def derivative(self, labels, predictions):
        return self.threshold * np.tanh((predictions - labels) / self.threshold)


LOSSES:'''


@pytest.mark.slow
def test_a_loss_is_a_class_and_its_place_in_the_registry(copy):
    losses = copy / "erm/losses.py"
    change(losses, "\nLOSSES:", LOSS)
    change(losses, "Huber, EpsilonInsensitive)", "Huber, EpsilonInsensitive, LogCosh)")
    said = run(
        copy.parent,
        released(
            '"laplace", epsilon="10000", mechanism={"noise": "laplace"}, '
            'target={"kind": "kernel-erm", "length_scale": [1.0], "C": 300.0, "loss": "log-cosh"}, '
            'data={"response": {"column": "y", "bounds": [-1.0, 1.0]}}'
        )
        + """
    low, high = found(np.array([[2.0], [8.0]]))
    (statistic,) = spec.learner.components(spec.records)
    print(type(statistic.loss).__name__, -1.1 < low < -0.7 and 0.7 < high < 1.1)
    try:
        planned("laplace", target={"kind": "kernel-erm", "length_scale": [1.0], "loss": "none"})
    except dbern.SpecError as refused:
        print("log-cosh" in str(refused))
""",
    )
    assert said == ["True", "LogCosh", "True", "True"]


LAW = '''
"""Laplace noise of twice the scale that is enough, with words of its own."""

import math
from dataclasses import dataclass
from typing import ClassVar

from dbern.privacy.calibration import calibrate_laplace
from dbern.privacy.laplace import discrete_laplace


@dataclass(frozen=True)
class CautiousNoise:
    half_scale: int
    granularity_exponent: int
    moved: int
    kind: str = "cautious"
    stream_label: ClassVar[str] = "cautious-1"

    values = math.inf
    rho = None

    @property
    def scale(self):
        return 2 * self.half_scale

    @property
    def sensitivity_in_granules(self):
        return float(self.moved)

    def draw(self, count, stream):
        return discrete_laplace(self.scale, count, stream)


def calibrated(moved, eta, size, budget, bound):
    enough = calibrate_laplace(moved, eta / size, size, budget.epsilon, bound)
    return CautiousNoise(
        enough.scale, enough.granularity_exponent, enough.l1_sensitivity_granules
    )
'''

FAMILY = """
class _CautiousFamily(NoiseFamily):
    law = cautious.CautiousNoise
    errors = LaplaceErrors
    norm = 1
    eigenvalue_exponent = 0.25

    def scale_per_unit_sensitivity(self, budget):
        return 2 / float(budget.epsilon)

    def calibrate(self, contract, charge):
        return law_of(contract, charge, cautious.calibrated)


CAUTIOUS = _CautiousFamily({"": "cautious"}, in_auto=False)
"""


@pytest.mark.slow
def test_a_law_is_a_file_and_its_place_in_the_registry(copy):
    (copy / "privacy/cautious.py").write_text(LAW)
    families = copy / "privacy/families.py"
    first = "from dbern.privacy.budget import Budget\n"
    change(families, first, f"from dbern.privacy import cautious\n{first}")
    change(families, "PAPER, ADVANCED)", "PAPER, ADVANCED, CAUTIOUS)")
    change(families, "FAMILIES: Final", FAMILY + "FAMILIES: Final")
    said = run(
        copy.parent,
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
    assert said == ["cautious", "cautious", "2.005", "True", "True", "True"]
    said = run(
        copy.parent,
        released('"cautious"')
        + """
    print(facts["kind"], facts["law"]["kind"], found.arrays[0].law == plan.noise.law)
""",
    )
    assert said == ["True", "cautious", "cautious", "True"]


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
    said = run(
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
    assert said == ["laplace", "False", "reversed-laplace", "True", "True"]
    said = run(
        copy.parent,
        released('"reversed-laplace"')
        + """
    print(facts["kind"], found.arrays[0].strategy.maps == plan.strategy.maps)
    array = "components/density/reversed/reversal_x/zarr.json"
    print(found._store.location.read(array, 1 << 20).count(b"float64"))
    print("released as 13 values" in plan.explain(details=True))
""",
    )
    assert said == ["True", "reversed-laplace", "True", "1", "True"]


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
    said = run(
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
    assert said == ["True", "{'kind':", "'halved'}", "True", "True", "True", "True"]


LEARNER = '''
from typing import ClassVar

from dbern.targets import KernelSum, Learner, Lengths, axis_kernels


class Doubled(Learner):
    """Twice the density of the records."""

    kind: ClassVar[str] = "doubled"
    bandwidth: Lengths

    def components(self, schema):
        kernels = axis_kernels(schema.domain, self.bandwidth, "bandwidth")
        return (KernelSum("density", schema.domain, kernels, unit=2 / schema.domain.volume),)
'''


@pytest.mark.slow
def test_a_learner_is_a_file_and_an_entry_point(tmp_path):
    (tmp_path / "doubled.py").write_text(LEARNER)
    facts = tmp_path / "doubled-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Name: doubled\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[dbern.targets]\ndoubled = doubled:Doubled\n")
    (tmp_path / "dbern").symlink_to(PACKAGE)
    said = run(
        tmp_path,
        """
usual, plan = (planned("laplace", kind)[1] for kind in ("kernel-density", "doubled"))
print(round(plan.sensitivity.function / usual.sensitivity.function, 6))
""",
    )
    assert said == ["2.0"]
