"""No neighbor moves the integers beyond a plan: one table of relations, statistics and noises.

A bound that was printed, halved, or is of something else, planted in its place, is exceeded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from conformance import CASES, SALT, UNPROVED, Case, loss, moves, neighbors

from dbern.erm.statistics import LinearFunctions, RiskMinimizer
from dbern.measure import unit_bounding
from dbern.privacy.contract import law_of
from dbern.privacy.keystream import content_words
from dbern.reconstruct.base import LatticeStrategy, SensitivityBound

MINIMIZERS = ("kernel-erm", "support-vector-machine", "logistic-regression", "ridge-regression")
SOLVED = {
    name for name, case in CASES.items()
    if case.target["kind"] in MINIMIZERS and "binned-laplace" not in case.noises
}  # fmt: skip


def widened(case: Case, width: float) -> Case:
    wide = {key: [width] if isinstance(v, list) else v for key, v in case.target.items()}
    return replace(case, target=wide)


# Where bumps are nearly flat, N S(F) is near the truth for one output and wrong for two.
SUMS = ("density", "groups", "machine", "machines", "regression", "gaps")
WIDE = {f"{name} {width}": widened(CASES[name], width) for name in SUMS for width in (0.5, 4.0)}
MANY_AXES = [
    ("density", "binned-laplace"), ("density", "laplace"), ("groups", "binned-laplace"),
    ("regression", "binned-laplace"), ("density", "binned-gaussian"), ("bayes-joint", "laplace"),
]  # fmt: skip
FAST = {
    ("replaced", "density", "laplace", 1), ("replaced", "density", "binned-laplace", 1),
    ("replaced", "density", "binned-gaussian", 1), ("replaced", "density 0.5", "laplace", 1),
    ("added", "density", "laplace", 1),
    *(("user " + relation, name, "laplace", 1)
      for name in ("density", "machine") for relation in ("replace-one", "add-or-remove-one")),
}  # fmt: skip

CLOSE = {  # of densities, whose bounds are nearly attained
    "binned-laplace": 0.98, "binned-gaussian": 0.9, "discrete-gaussian": 0.8,
}  # fmt: skip
Row = tuple[str, str, str, int, int, float]


def rows() -> Iterator[Row]:
    """Relation, case, noise, axes, k, and the part of the planned bound that is reached."""
    for name, case in CASES.items():
        for noise in case.noises:
            close = CLOSE.get(noise, 0.0) if name == "density" else 0.0
            yield "replaced", name, noise, 1, 9, max(close, case.reached)
            if case.most_axes > 1:
                yield "replaced", name, noise, 2, 6, max(close, 0.6 * case.reached)
            if name in UNPROVED or noise == "binned-k-norm":
                continue
            if noise != "spectral-gaussian":
                yield "added", name, noise, 1, 9, 0.2 if name in SOLVED else 0.5
        if name not in UNPROVED:
            for relation in ("replace-one", "add-or-remove-one"):
                # What is solved for is diluted by the other users' rows.
                yield f"user {relation}", name, "laplace", 1, 7, case.reached / 8
        if name not in SOLVED | UNPROVED:
            yield "added", name, "discrete-gaussian" if name == "groups" else "laplace", 2, 5, 0.3
    for name, case in WIDE.items():
        for noise in case.noises:
            yield from (("replaced", name, noise, 1, k, 0.0) for k in (1, 5))
    for relation in ("replace-one", "add-or-remove-one"):
        for noise in ("binned-laplace", "discrete-gaussian", "binned-gaussian"):
            yield f"user {relation}", "groups", noise, 1, 7, 0.5
    yield "replaced", "density", "binned-laplace", 3, 4, 0.98
    yield "replaced", "density", "binned-gaussian", 3, 4, 0.55
    for name, noise in MANY_AXES:
        # A product of four axes keeps a fourth power of what a bound of one axis loses.
        least = 0.9 if noise == "binned-laplace" and name != "regression" else 0.02
        yield "replaced", name, noise, 4, 3, least


ROWS = [
    pytest.param(
        *row, marks=[] if row[:4] in FAST else pytest.mark.slow, id="-".join(map(str, row[:5]))
    )
    for row in rows()
]


@pytest.mark.sample(verify=40)
@pytest.mark.parametrize(("relation", "name", "noise", "axes", "k", "least"), ROWS)
def test_no_neighbor_moves_the_integers_beyond_the_plan(relation, name, noise, axes, k, least):
    plan, groups = neighbors(relation, (CASES | WIDE)[name], axes, noise, k=k)
    assert least < max(max(moves(plan, group)) for group in groups) <= 1
    spent = max(loss(plan, group) for group in groups)  # of all components together
    reached = CASES[name].reached if relation == "replaced" and name in CASES else 0.0
    assert {1: 1.2, 2: 0.6}.get(axes, 0.0) * reached**2 < spent <= 1


# --- planted bugs


def bound(value: float) -> SensitivityBound:
    return SensitivityBound(value, "planted")


def printed(self, strategy, norm, *, added):
    """What the paper prints, and does not hold for replacing a record.

    Of machines ``MC kappa^2 / n``, which is that of removing a record; of several outputs
    ``N S(F)``, for records that change theirs.
    """
    del norm, added
    if self.outputs == 1:
        twice = LatticeStrategy(strategy.lattice).l1_sensitivity(self.kernels, signed=True)
        return bound(twice.value / 2)
    return bound(float(strategy.lattice.size * np.prod([kernel.peak for kernel in self.kernels])))


def of_one_output(sensitivity):
    """All models of one-against-the-rest have the record that is replaced."""

    def planted(self, strategy, norm):
        return bound(sensitivity(self, strategy, norm).value / self.num_models ** (1 / norm))

    return planted


def of_one_row(self, strategy, norm):
    return self.move(strategy, norm, added=self.protection.added)


def by_position(ids, hashes, rows, most, kept=unit_bounding._smallest):
    """A row's hash is that of where it stands, which others' rows shift."""
    hashes = content_words(np.arange(len(ids), dtype=float)[:, None], SALT)
    return kept(ids, hashes, rows, most)


def whole_charge(contract, *how):
    return law_of(replace(contract, fraction=Fraction(1)), *how)


@dataclass(frozen=True)
class Bug:
    """A wrong value in the place of a name, and the neighbors that show it."""

    name: str
    value: Any
    case: Case
    relation: str = "replaced"
    noise: str = "laplace"
    axes: int = 1
    k: int = 9


HALF = Bug(
    "dbern.reconstruct.bins.BinnedStrategy.l1_sensitivity", lambda *_a, **_k: bound(1.0),
    CASES["density"], noise="binned-laplace", k=8,
)  # fmt: skip
PRINTED = Bug("dbern.measure.kernel_sums.KernelSum.move", printed, CASES["machine"], k=3)
SHARES = Bug("dbern.privacy.families.law_of", whole_charge, CASES["bayes-kinked"])
MODELS = Bug(
    "dbern.erm.statistics.RiskMinimizer.sensitivity", of_one_output(RiskMinimizer.sensitivity),
    CASES["solved machines"],
)  # fmt: skip
LINEAR = Bug(
    "dbern.erm.statistics.LinearFunctions.sensitivity", of_one_output(LinearFunctions.sensitivity),
    replace(CASES["logistics"], target={**CASES["logistics"].target, "C": 0.1}),
)  # fmt: skip
BUGS = {
    "the whole charge for each component": SHARES,
    "the whole charge for each class": replace(SHARES, case=CASES["bayes"]),
    **{f"the printed constant of {name}": replace(PRINTED, case=widened(CASES[name], 1.0))
       for name in ("machine", "machines", "groups")},
    "half of what bins move": HALF,
    "half of what bins of four axes move": replace(HALF, axes=4, k=3),
    "one of several models": MODELS,
    "one of several models in coordinates": replace(MODELS, noise="spectral-gaussian"),
    "one of several linear functions": LINEAR,
    "one of several linear functions, Gaussian": replace(LINEAR, noise="discrete-gaussian"),
    "half of what an added record moves": Bug(
        "dbern.reconstruct.base.SensitivityBound.half",
        property(lambda self: bound(self.value / 4)), CASES["density"], "added",
    ),
    "one row of a unit": Bug(
        "dbern.measure.statistic.RecordSum.sensitivity", of_one_row,
        CASES["density"], "user add-or-remove-one", k=7,
    ),
    "rows of a unit by their position": Bug(
        "dbern.measure.unit_bounding._smallest", by_position,
        CASES["density"], "user add-or-remove-one", k=7,
    ),
}  # fmt: skip


@pytest.mark.planted
@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_a_planted_bug_is_found(bug, monkeypatch):
    if bug.axes > 3:  # one way of binning instead of many: the choice is not what is tested here
        monkeypatch.setattr("dbern.planning.bin_grids.BIN_RESOLUTIONS", {2: (1.3,)})

    def worst():
        plan, groups = neighbors(bug.relation, bug.case, bug.axes, bug.noise, k=bug.k)
        return max(max(*moves(plan, group), loss(plan, group)) for group in groups)

    assert worst() <= 1
    monkeypatch.setattr(bug.name, bug.value)
    assert worst() > 1
