"""What every learner must keep, whatever it is: cases, and what one record does to the integers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from dbern.data.columns import as_floats
from dbern.data.domain import Column
from dbern.measure.vector_sums import VectorSum
from dbern.planning.planner import plan_files
from dbern.planning.release_plan import ReleasePlan
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.laws import GaussianNoise
from dbern.reconstruct.base import VectorStrategy
from dbern.synopsis.evaluate import evaluate
from dbern.testing import counted as counted
from dbern.testing import integers as integers
from dbern.testing import integers_of_each, moves

NULL = math.nan
AXES = "xyzuvw"
LABEL = {"column": "label", "classes": ["no", "yes"]}
THREE = {"column": "label", "classes": [0, 1, 2]}
GROUP = {"column": "group", "values": ["a", "b", "c"]}
RESPONSE = {"column": "response", "bounds": [-1.0, 3.0]}


def release_spec(
    target: Mapping[str, Any],
    bounds: Mapping[str, Sequence[float]] | Iterable[str],
    *,
    epsilon: str = "1",
    delta: str | None = None,
    mechanism: Mapping[str, Any] | None = None,
    **data: Any,
) -> ReleaseSpec:
    """A release of records within bounds, or of axes of the unit cube.

    Delta is 1e-6 where Gaussian noise is named, and else 0, unless it is stated.
    """
    mechanism = mechanism or {}
    usual = "1e-6" if "gaussian" in mechanism.get("noise", "") else "0"
    named = bounds if isinstance(bounds, Mapping) else {key: [0.0, 1.0] for key in bounds}
    return ReleaseSpec(
        release={"name": "case", "output": "case.zarr"},
        data={"source": "*.parquet", "bounds": named, **data},
        target=target,
        mechanism=mechanism,
        budget={
            "epsilon": epsilon,
            "delta": usual if delta is None else delta,
            "ledger": "sqlite:///l.db",
            "dataset": "case",
        },
    )


@dataclass(frozen=True)
class Case:
    """A target, the roles of its columns, and every value that a record's other columns take.

    `reached` is the part of the planned sensitivity that some pair of two-record databases attains.
    `most_axes` is how many it can have.
    """

    target: Mapping[str, Any]
    roles: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    noises: tuple[str, ...] = ("laplace", "binned-laplace", "discrete-gaussian", "binned-gaussian")
    reached: float = 0.5
    linear: bool = False
    most_axes: int = 3

    def spec(
        self,
        axes: int,
        n: int,
        noise: str,
        *,
        rows: Mapping[str, Any] | None = None,
        **mechanism: Any,
    ) -> ReleaseSpec:
        """A release over the unit cube of n rows, or of `rows`, keys of [data] in their place."""
        target = {
            key: value(axes)
            if callable(value)
            else value * axes
            if isinstance(value, list)
            else value
            for key, value in self.target.items()
        }
        mechanism = {"noise": noise} | ({} if self.linear else {"h": 2, **mechanism})
        data = {**self.roles, **({"n": n} if rows is None else rows)}
        return release_spec(target, AXES[:axes], mechanism=mechanism, **data)


def pinball(labels, predictions):
    """A quantile's loss: a loss of one's own."""
    return np.maximum(0.75 * (labels - predictions), 0.25 * (predictions - labels))


def cosine(x, y):
    """A kernel of one's own, of both signs and of rank two an axis."""
    return np.prod(np.cos(4.0 * (x[:, None, :] - y) / x.shape[1] ** 0.5), axis=-1)


_SOLVED = ("laplace", "spectral-laplace", "discrete-gaussian", "spectral-gaussian")
SALT = bytes(range(32))


def correlated(axes: int) -> list[list[float]]:
    """Standard deviations of 0.2 and 0.3 in turn, neighbours correlated by -0.6."""
    deviations = np.resize([0.2, 0.3], axes)
    apart = np.abs(np.subtract.outer(np.arange(axes), np.arange(axes)))
    return (np.outer(deviations, deviations) * (-0.6) ** apart).round(12).tolist()


_UNSIGNED = (*Case({}).noises, "binned-k-norm")

CASES = {
    "density": Case({"kind": "kernel-density", "bandwidth": [0.2]}, noises=_UNSIGNED),
    "covariance": Case({"kind": "kernel-density", "covariance": correlated}, noises=_UNSIGNED),
    "groups": Case(
        {"kind": "kernel-density", "bandwidth": [0.2]}, {"group": GROUP},
        {"group": (0.0, 1.0, 2.0, NULL)}, _UNSIGNED,
    ),
    "machine": Case(
        {"kind": "support-vector-machine", "length_scale": [0.3]}, {"label": LABEL},
        {"label": (0.0, 1.0, NULL)},
    ),
    "machines": Case(
        {"kind": "support-vector-machine", "length_scale": [0.3]}, {"label": THREE},
        {"label": (0.0, 1.0, 2.0, NULL)}, _UNSIGNED,
    ),
    "regression": Case(
        {"kind": "nadaraya-watson", "bandwidth": [0.25]}, {"response": RESPONSE},
        {"response": (-1.0, 3.0, 1.0, 0.3, -9.0, 1e300, NULL)}, _UNSIGNED,
    ),
    "regressions": Case(
        {"kind": "nadaraya-watson", "bandwidth": [0.25]}, {"response": RESPONSE, "group": GROUP},
        {"response": (-1.0, 3.0, NULL), "group": (0.0, 1.0, NULL)}, _UNSIGNED,
    ),
    "gaps": Case(
        {"kind": "priestley-chao", "bandwidth": [0.25], "max_gap": 0.2}, {"response": RESPONSE},
        {"response": (-1.0, 3.0, 1.0, 1e300, NULL)}, reached=0.3, most_axes=1,
    ),
    "kernel logistic": Case(
        {"kind": "kernel-erm", "loss": "logistic", "length_scale": [0.3], "C": 1.5, "shards": 2},
        {"label": LABEL}, {"label": (0.0, 1.0, NULL)}, _SOLVED, reached=0.3,
    ),
    "solved machine": Case(
        {"kind": "support-vector-machine", "length_scale": [0.3], "C": 2.0}, {"label": LABEL},
        {"label": (0.0, 1.0, NULL)}, _SOLVED, reached=0.3,
    ),
    "solved machines": Case(
        {"kind": "support-vector-machine", "length_scale": [0.3], "C": 1.1}, {"label": THREE},
        {"label": (0.0, 1.0, 2.0, NULL)}, _SOLVED, reached=0.3,
    ),
    "kernel ridge": Case(
        {"kind": "kernel-erm", "loss": "square", "length_scale": [0.3], "C": 1.0},
        {"response": RESPONSE}, {"response": (-1.0, 3.0, 1.0, -9.0, 1e300, NULL)}, _SOLVED,
        reached=0.2,
    ),
    "kernel tube": Case(
        {"kind": "kernel-erm", "loss": "epsilon-insensitive", "length_scale": [0.3], "C": 1.0},
        {"response": RESPONSE}, {"response": (-1.0, 3.0, 1.0, -9.0, 1e300, NULL)}, _SOLVED,
        reached=0.3,
    ),
    "kernel laplace": Case(
        {"kind": "kernel-erm", "kernel": "laplace", "loss": "logistic", "length_scale": [0.3],
         "C": 1.5, "shards": 2},
        {"label": LABEL}, {"label": (0.0, 1.0, NULL)}, _SOLVED, reached=0.3,
    ),
    "kernel matern": Case(
        {"kind": "kernel-erm", "kernel": "matern-5/2", "loss": "hinge", "length_scale": [0.3],
         "C": 1.1},
        {"label": THREE}, {"label": (0.0, 1.0, 2.0, NULL)}, _SOLVED, reached=0.3,
    ),
    "kernel polynomial": Case(
        {"kind": "kernel-erm", "kernel": "polynomial", "degree": 2, "loss": "logistic", "C": 0.1,
         "constant": 0.5},
        {"label": LABEL}, {"label": (0.0, 1.0, NULL)}, _SOLVED, reached=0.3,
    ),
    "kernel arc-cosine": Case(
        {"kind": "kernel-erm", "kernel": "arc-cosine", "loss": "epsilon-insensitive", "C": 0.5,
         "shards": 2},
        {"response": RESPONSE}, {"response": (-1.0, 3.0, 1.0, -9.0, 1e300, NULL)}, _SOLVED,
        reached=0.3,
    ),
    "own kernel": Case(
        {"kind": "kernel-erm", "kernel": "conformance:cosine", "kernel_bound": 1.0,
         "kernel_lipschitz": 4.0, "loss": "hinge", "C": 1.1},
        {"label": THREE}, {"label": (0.0, 1.0, 2.0, NULL)}, _SOLVED, reached=0.5,
    ),
    "own loss": Case(
        {"kind": "kernel-erm", "loss": "conformance:pinball", "length_scale": [0.3], "C": 1.0,
         "lipschitz": 0.75, "at_zero": 1.5},
        {"response": RESPONSE}, {"response": (-1.0, 3.0, 1.0, -9.0, 1e300, NULL)}, _SOLVED,
        reached=0.3,
    ),
    "logistic": Case(
        {"kind": "logistic-regression", "method": "weights", "C": 1.0}, {"label": LABEL},
        {"label": (0.0, 1.0, NULL)},
        ("laplace", "discrete-gaussian"), reached=0.3, linear=True,
    ),
    "logistics": Case(
        {"kind": "logistic-regression", "method": "weights", "C": 0.5}, {"label": THREE},
        {"label": (0.0, 1.0, 2.0, NULL)}, ("laplace", "discrete-gaussian"), reached=0.2,
        linear=True,
    ),
    "least squares": Case(
        {"kind": "ridge-regression", "method": "moments"}, {"response": RESPONSE},
        {"response": (-1.0, 3.0, 1.0, 0.3, 1 / 3, -9.0, 1e300, NULL)},
        ("laplace", "discrete-gaussian"), reached=0.8, linear=True,
    ),
    "ridge": Case(
        {"kind": "ridge-regression", "method": "weights", "C": 0.5}, {"response": RESPONSE},
        {"response": (-1.0, 3.0, 1.0, -9.0, 1e300, NULL)}, ("laplace", "discrete-gaussian"),
        reached=0.2, linear=True,
    ),
    "oracle": Case(
        {
            "kind": "oracle", "function": "black_boxes:nearest", "sensitivity": 2.0,
            "smoothness": {"holder": [9.0, 0.5]}, "bounds": (-1.0, 3.0), "on_failure": "stop",
        },
        {"response": RESPONSE}, {"response": (-1.0, 3.0, 1.0, -9.0, 1e300, NULL)},
        ("laplace", "discrete-gaussian"), reached=0.3,
    ),
    "oracle shards": Case(
        {
            "kind": "oracle", "function": "black_boxes:margins", "sensitivity": 0.5,
            "smoothness": {"derivatives": 2, "bound": 9.0}, "bounds": (-1.0, 1.0),
            "on_failure": 0.0, "separable": True,
        },
        {"label": LABEL}, {"label": (0.0, 1.0, NULL)}, ("laplace", "discrete-gaussian"),
    ),
    "bayes": Case(
        {"kind": "naive-bayes", "bandwidth": [0.2]}, {"label": THREE},
        {"label": (0.0, 1.0, 2.0, NULL)}, _UNSIGNED,
    ),
    "bayes-kinked": Case(
        {"kind": "naive-bayes", "bandwidth": [0.3], "kernel": "triangle"}, {"label": LABEL},
        {"label": (0.0, 1.0, NULL)}, ("laplace", "binned-laplace"),
    ),
    "bayes-joint": Case(
        {"kind": "naive-bayes", "bandwidth": [1.0], "release": "joint"}, {"label": LABEL},
        {"label": (0.0, 1.0, NULL)}, ("laplace", "discrete-gaussian"),
    ),
    "bayes-gaussian": Case(
        {"kind": "gaussian-naive-bayes", "std_floor": [0.1]}, {"label": THREE},
        {"label": (0.0, 1.0, 2.0, NULL)}, ("laplace", "discrete-gaussian"),
    ),
}  # fmt: skip


def everyone(case: Case, axes: int, rng: np.random.Generator) -> list[dict[str, float]]:
    """Records to replace by one another: edges and middles of every axis, each with every value."""
    ends = list(itertools.product((0.0, 0.5, 1.0), repeat=axes))
    places = [*ends, *rng.uniform(size=(4, axes)).tolist(), [NULL] * axes, [1.5] * axes]
    places += [[0.5] * (axes - 1) + [NULL]] if axes > 1 else []
    names = AXES[:axes]
    others = [dict(zip(case.values, some, strict=True))
              for some in itertools.product(*case.values.values())]  # fmt: skip
    return [dict(zip(names, place, strict=True)) | other for place in places for other in others]


def loss(plan: ReleasePlan, staged: list[list[np.ndarray]]) -> float:
    """The privacy that one replacement spends in all components, over the charge's.

    With Laplace noise epsilon, the sum of ``|move|_1 / scale``; with Gaussian noise rho, that of
    ``|move|_2^2 / (2 sigma^2)``, over what the laws are charged. Every pair is tried.
    """
    spent = np.zeros((len(staged), len(staged)))
    for part, planned in enumerate(plan.components):
        rows, law = np.array([one[part] for one in staged]).astype(np.float64), planned.noise.law
        for i, row in enumerate(rows):
            apart = np.abs(rows - row)
            if isinstance(law, GaussianNoise):
                spent[i] += (apart**2).sum(axis=1) / (2 * law.sigma**2)
            else:
                both = apart.sum(axis=1)
                if law.values < np.inf:  # twice the larger side
                    both += np.abs((rows - row).sum(axis=1))
                spent[i] += both / law.scale
    charged = plan.charge.epsilon
    if plan.charge.delta:
        charged = sum(planned.noise.law.rho for planned in plan.components)
    return float(spent.max()) / float(charged)


Group: TypeAlias = list[list[np.ndarray]]


def replaced(case: Case, axes: int, noise: str, **mechanism: Any) -> tuple[ReleasePlan, Group]:
    """A plan for two records, and the integers for one record beside each one of `everyone`."""
    spec = case.spec(axes, 2, noise, **mechanism)
    plan = plan_files(spec, ())
    records = everyone(case, axes, np.random.default_rng(5))
    return plan, integers_of_each(spec, plan, [[records[1], record] for record in records])


UNPROVED = {"oracle", "oracle shards", "gaps"}  # where rows are private, and for units
ADDED = {"neighbors": "add-or-remove-one", "normalizer": "2"}


def added(case: Case, axes: int, noise: str, **mechanism: Any) -> tuple[ReleasePlan, list[Group]]:
    """A plan for private rows, and the integers with and without one record, beside some others."""
    spec = case.spec(axes, 2, noise, rows=ADDED, **mechanism)
    plan = plan_files(spec, ())
    records = everyone(case, axes, np.random.default_rng(5))
    pairs = []
    for others in ([], [records[1]], [records[1]] * 3):
        databases = [others, *([*others, record] for record in records)]
        before, *after = integers_of_each(spec, plan, databases)
        pairs += [[before, one] for one in after]
    return plan, pairs


USER = Column("user", "data.unit", ids=True)
IDS = as_floats(pa.array([2**62 + i for i in range(32)]), USER)
"""Users whose ids are one 64-bit float."""
USERS = {"unit": {"column": "user", "max_contributions": 3}, "normalizer": "4"}


def of(user: int, records: Sequence[Mapping[str, float]]) -> list[dict[str, Any]]:
    return [{**record, "user": IDS[user]} for record in records]


def units(
    neighbors: str, case: Case, axes: int, noise: str, **mechanism: Any
) -> tuple[ReleasePlan, list[Group]]:
    """A plan for users, and the integers with one user more, or with another in its place."""
    spec = case.spec(axes, 4, noise, rows={**USERS, "neighbors": neighbors}, **mechanism)
    plan = plan_files(spec, ())
    records = everyone(case, axes, np.random.default_rng(5))
    # Users with more rows than count: what is kept of them may not depend on others.
    rest = of(7, records[::3]) + of(8, records[1::3])
    for user in range(10, 22):
        rest += of(user, [records[0], records[2 * len(records) // 9]] * 3)
    users = [[record] * 5 for record in records] + [list(records[:4]), list(records[2:9])]
    databases = [rest, *(of(1, rows) + rest for rows in users)]
    none, *alone = integers_of_each(spec, plan, databases)
    pairs = [[none, user] for user in alone]
    if neighbors == "replace-one":
        other = integers_of_each(spec, plan, [of(2, rows) + rest for rows in users[::4]])
        pairs += [alone, *map(list, itertools.product(alone[::3], other))]
    return plan, pairs


def neighbors(
    relation: str, case: Case, axes: int, noise: str, **mechanism: Any
) -> tuple[ReleasePlan, list[Group]]:
    """A plan, and groups of integers of which any two are those of neighboring databases."""
    if relation == "replaced":
        plan, group = replaced(case, axes, noise, **mechanism)
        return plan, [group]
    if relation == "added":
        return added(case, axes, noise, **mechanism)
    return units(relation.partition(" ")[2], case, axes, noise, **mechanism)


def largest_move(relation: str, case: Case, axes: int, noise: str, **mechanism: Any) -> float:
    """The largest distance of neighbors' integers over its planned bound, of any component."""
    plan, groups = neighbors(relation, case, axes, noise, **mechanism)
    return max(max(moves(plan, group)) for group in groups)


def accumulator_of(vector: VectorSum, n: int) -> Any:
    """What adds up the numbers of each of n records."""
    return vector.accumulator(VectorStrategy(vector.size), n, 0.0)


def state_of(accumulator: Any, columns: Mapping[str, Any]) -> np.ndarray:
    """The integers of records, as one batch."""
    state = np.zeros(accumulator.shape, dtype=np.int64)
    accumulator.add(state, {name: np.asarray(values) for name, values in columns.items()})
    return state


def sums_of(accumulator: Any, columns: Mapping[str, Any]) -> np.ndarray:
    """The sums that the integers of records stand for."""
    return np.ldexp(state_of(accumulator, columns).astype(float), -accumulator.bits)


def granules_of_each(
    spec: ReleaseSpec, plan: ReleasePlan, databases: Iterable[np.ndarray]
) -> Group:
    """The integers of a release, of databases of rows of numbers (n, axes)."""
    names = spec.domain.names
    return integers_of_each(spec, plan, (
        [dict(zip(names, row, strict=True)) for row in rows.tolist()] for rows in databases
    ))  # fmt: skip


def granules(spec: ReleaseSpec, plan: ReleasePlan, rows: np.ndarray) -> np.ndarray:
    """The integers of a release of one component, of rows of numbers (n, axes)."""
    (found,) = granules_of_each(spec, plan, [rows])[0]
    return found


def noiseless(
    spec: ReleaseSpec, plan: ReleasePlan, rows: np.ndarray, positions: np.ndarray
) -> np.ndarray:
    """What rows of numbers release, without its noise, at positions in the lattice's cube."""
    exponent = plan.noise.law.granularity_exponent
    values = np.ldexp(granules(spec, plan, rows).astype(float), exponent)
    values = values.reshape(plan.strategy.layout.shape)
    for matrix in plan.strategy.matrices(plan.h):
        values = np.tensordot(values, matrix, axes=(0, 1))
    return evaluate(np.ascontiguousarray(values), positions)
