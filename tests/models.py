"""Releases of one axis without noise: their records, and what another solver finds of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np
from conformance import CASES, LABEL, RESPONSE, THREE, Case
from sklearn.gaussian_process.kernels import Matern
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics.pairwise import laplacian_kernel, polynomial_kernel, rbf_kernel

import dbern

ROWS = 300
POINTS = np.linspace(0, 1, 41)
KNOWN = {"label": ("no", "yes", 0, 1, 2), "group": ("a", "b", "c")}


def table(rows: int = ROWS, seed: int = 0) -> dict[str, list[Any]]:
    """Records with missing values, and labels and groups that are none of the spec's."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 1, rows)
    labels = np.where(rng.uniform(size=rows) < 1 / (1 + np.exp(-8 * (x - 0.4))), "yes", "no")
    labels = labels.astype("<U5")
    labels[:3] = ["maybe", "maybe", "no"]
    response = np.clip(np.sin(5 * x) + rng.normal(0, 0.5, rows), -3, 9)
    return {
        "x": [None, *x[1:].tolist()],
        "label": [*labels[:-1].tolist(), None],
        "response": [*response[:-1].tolist(), None],
        "class": rng.integers(0, 4, rows).tolist(),
        "group": rng.choice(["a", "b", "c", "other"], rows).tolist(),
    }


def released(
    release: Any, case: Case, columns: Mapping[str, Any], noise: str = "laplace", **mechanism: Any
) -> tuple[dbern.ReleasePlan, dbern.Synopsis, list[np.ndarray]]:
    """Plan and synopsis of a release, and the columns of the records that count."""
    names = ["x", *case.roles]
    chosen = {name: columns["class" if case.roles.get(name) is THREE else name] for name in names}
    mechanism = {} if case.linear else {"k": 40, "h": 8, **mechanism}
    plan, synopsis = release(case.spec(1, len(columns["x"]), noise, **mechanism), chosen)
    rows = [
        row for row in zip(*chosen.values(), strict=True)
        if all(value is not None and value in KNOWN.get(name, (value,))
               for name, value in zip(names, row, strict=True))
    ]  # fmt: skip
    return plan, synopsis, [np.array(column) for column in zip(*rows, strict=True)]


def allowed(plan: dbern.ReleasePlan) -> float:
    """What a release without noise may be off by."""
    return plan.certificate.approximation + plan.certificate.rounding


def gaussian(x: np.ndarray, y: np.ndarray, scale: float = 0.3) -> np.ndarray:
    return np.exp(-(((x[:, None] - y) / scale) ** 2) / 2)


def with_one(x: np.ndarray) -> np.ndarray:
    return np.column_stack([x, np.ones(len(x))])


Exact = Callable[..., np.ndarray]


def kernel_logistic(points: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(gaussian(x, x))
    root = vectors[:, values > 1e-13] * np.sqrt(values[values > 1e-13])
    peer = LogisticRegression(C=20 / ROWS, fit_intercept=False, tol=1e-12, max_iter=500)
    peer.fit(root, y == "yes")
    return gaussian(points, x) @ np.linalg.lstsq(root.T, peer.coef_[0], rcond=None)[0]


def machine(cost: float) -> Exact:
    """A conic solver's, of the hinge rounded over a width of 0.2."""

    def exact(points: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        values, vectors = np.linalg.eigh(gaussian(x, x))
        root = vectors * np.sqrt(np.maximum(values, 0))
        w, beyond = cp.Variable(len(x)), cp.Variable(len(x), nonneg=True)
        # The ramp is the least of t + (z - t)^2 / (2 width) over t >= 0, z the positive part.
        z = 1 - cp.multiply(np.where(y == "yes", 1.0, -1.0), root @ w)
        loss = cp.sum(beyond) + cp.sum_squares(cp.pos(z - beyond)) / (2 * 0.2)
        cp.Problem(cp.Minimize(cost / 80 * loss + cp.sum_squares(w) / 2)).solve(
            solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
        )
        return gaussian(points, x) @ np.linalg.lstsq(root.T, w.value, rcond=1e-9)[0]

    return exact


def one_against_the_rest(points: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    peers = [LogisticRegression(C=5 / ROWS, fit_intercept=False, tol=1e-12).fit(with_one(x), y == c)
             for c in range(3)]  # fmt: skip
    return np.column_stack([with_one(points) @ peer.coef_[0] for peer in peers])


def linear_ridge(points: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    peer = Ridge(alpha=ROWS / 30.0, fit_intercept=False)
    return 1.0 + with_one(points) @ peer.fit(with_one(x), np.clip(y, -1, 3) - 1.0).coef_


def kernel_ridge(kernel: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Exact:
    def exact(points: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        peer = KernelRidge(alpha=ROWS / 30.0, kernel="precomputed")
        peer.fit(kernel(x[:, None], x[:, None]), np.clip(y, -1, 3) - 1.0)
        return 1.0 + peer.predict(kernel(points[:, None], x[:, None]))

    return exact


def density_of_groups(points: np.ndarray, x: np.ndarray, group: np.ndarray) -> np.ndarray:
    sums = gaussian(points, x, 0.2) @ (group[:, None] == list(KNOWN["group"]))
    return sums / (ROWS * 0.2 * math.sqrt(2 * math.pi))


def closed_machine(points: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return gaussian(points, x) @ np.where(y == "yes", 1.0, -1.0) / ROWS


def closed_machines(points: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return gaussian(points, x) @ (2.0 * (y[:, None] == range(3)) - 1) / ROWS


def rectified(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The arc-cosine kernel of points with a constant coordinate, by its definition's integral."""
    a, b = (np.column_stack([z, np.ones(len(z))]) for z in (2 * x - 1, 2 * y - 1))
    angles = np.linspace(0, 2 * np.pi, 4_000, endpoint=False)
    w = np.stack([np.cos(angles), np.sin(angles)])
    # |w|^2 of two standard normals has mean 2, and is independent of the direction.
    return 4 * np.maximum(a @ w, 0) @ np.maximum(b @ w, 0).T / len(angles)


STATIONARY = {
    "gaussian": lambda x, y: rbf_kernel(x, y, gamma=1 / (2 * 0.4**2)),
    "laplace": lambda x, y: laplacian_kernel(x, y, gamma=1 / 0.4),
    "matern-3/2": Matern(0.4, nu=1.5),
    "matern-5/2": Matern(0.4, nu=2.5),
}
WHOLE = {
    "polynomial": lambda x, y: polynomial_kernel(2 * x - 1, 2 * y - 1, 3, gamma=1.0, coef0=1.0),
    "arc-cosine": rectified,
    "conformance:cosine": lambda x, y: np.cos(4.0 * (x - y.T)),
}
STATED = {"conformance:cosine": {"kernel_bound": 1.0, "kernel_lipschitz": 4.0}}


@dataclass(frozen=True)
class Model:
    """A learner, and its values at points without noise, of the columns of records that count.

    The plan says each of `said`. Another solver's values are off by `slack`; the certificate, that
    included, is at most `certified`, and the error at most `error`.
    """

    case: Case
    exact: Exact
    rows: int = ROWS
    seed: int = 0
    noise: str = "laplace"
    mechanism: Mapping[str, Any] = field(default_factory=dict)
    said: tuple[str, ...] = ()
    slack: float = 0.0
    certified: float = math.inf
    error: float = math.inf


def _of(role: str, target: Mapping[str, Any], exact: Exact, **more: Any) -> Model:
    roles = {"label": LABEL, "three": THREE, "response": RESPONSE}[role]
    linear = more.pop("linear", False)
    case = Case(target, {"label" if role == "three" else role: roles}, linear=linear)
    return Model(case, exact, **more)


_ERM = {"kind": "kernel-erm", "length_scale": [0.3]}
_LOSS = {"lipschitz": 1.0, "at_zero": 0.7, "curvature": 0.25, "width": 0.01}
_SQUARE = {"kind": "kernel-erm", "loss": "square", "C": 30.0}
VALUES = "values at 81 lattice points"  # of kernels that are not learned with in features
MODELS = {
    "densities of groups": Model(CASES["groups"], density_of_groups),
    "closed machine": Model(CASES["machine"], closed_machine),
    "closed machines": Model(CASES["machines"], closed_machines),
    "kernel logistic": _of("label", {**_ERM, "loss": "logistic", "C": 20.0}, kernel_logistic,
                           certified=0.1),
    # The rounded loss is within curvature width^2/24, so |w - w*| <= sqrt(C curvature/24) width.
    "own logistic": _of(
        "label", {**_ERM, "loss": "test_exact_kernels:logistic", "C": 20.0, **_LOSS},
        kernel_logistic, slack=0.01 * math.sqrt(20 / 96), certified=0.1,
        said=("that a solve of your loss failed can be observed", "as stated, not checked")),
    **{f"machine, C = {cost}": _of(
        "label", {"kind": "support-vector-machine", "length_scale": [0.3], "C": cost, "width": 0.2},
        machine(cost), rows=80, slack=1e-5) for cost in (2.0, 50.0)},
    "linear ridge": _of("response", {"kind": "ridge-regression", "method": "weights", "C": 30.0},
                        linear_ridge, certified=0.03, linear=True),
    "linear logistics": _of(
        "three", {"kind": "kernel-erm", "loss": "logistic", "kernel": "linear",
                  "method": "weights", "C": 5.0},
        one_against_the_rest, certified=2e-3, linear=True),
    **{f"ridge, {name}": _of(
        "response", {**_SQUARE, "kernel": name, "length_scale": [0.4]}, kernel_ridge(kernel),
        mechanism={"k": 80}, seed=2, said=() if name == "gaussian" else (VALUES,),
        certified=math.inf if name == "laplace" else 0.5, error=0.1)
       for name, kernel in STATIONARY.items()},
    # Of values from -1 to 3; the certificate is of the worst database. So few records pay for few
    # coordinates.
    **{f"ridge, {name}, {noise}": _of(
        "response", {**_SQUARE, "kernel": name, **STATED.get(name, {})}, kernel_ridge(kernel),
        noise=noise, mechanism={"k": 30, "h": 20}, seed=2, slack=1e-5, error=error,
        said=() if noise == "laplace" else ("spectral coordinates of the whole lattice",))
       for name, kernel in WHOLE.items()
       for noise, error in (("laplace", 0.05), ("spectral-laplace", 0.25))},
}  # fmt: skip
FAST = {
    *(
        "densities of groups",
        "closed machine",
        "closed machines",
        "kernel logistic",
        "own logistic",
    ),
    *("machine, C = 2.0", "machine, C = 50.0", "linear ridge", "linear logistics"),
    *("ridge, gaussian", "ridge, matern-5/2", "ridge, polynomial, spectral-laplace"),
}
