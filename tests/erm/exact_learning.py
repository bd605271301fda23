"""Slow obvious twins: eighty-bit iterations, and distances in the kernel's Hilbert space."""

from __future__ import annotations

import math
from dataclasses import dataclass

import mpmath
import numpy as np
import pytest

from dbern.bernstein.reproducing import ArcCosine, Gaussian, Linear, Polynomial, Stationary
from dbern.erm.losses import EpsilonInsensitive, Hinge, Huber, Logistic, Square, UserLoss
from dbern.erm.risk import Risk
from dbern.erm.solver import Objective, _by_plain_steps


def pseudo_huber(labels, predictions):
    return np.hypot(1, predictions - labels) - 1


def pseudo_huber_slope(labels, predictions):
    return (predictions - labels) / np.hypot(1, predictions - labels)


EIGHTY_BITS = pytest.mark.skipif(
    np.finfo(np.longdouble).eps > 1e-18, reason="this machine's long double is a double"
)
LOSSES = {
    "hinge": Hinge(0.25),
    "logistic": Logistic(),
    "square": Square(1.0),
    "huber": Huber(threshold=0.5, bound=1.0),
    "tube": EpsilonInsensitive(tube=0.1, width=0.2, bound=1.0),
    "user": UserLoss(pseudo_huber, pseudo_huber_slope, 1.0, 1.0, math.sqrt(2) - 1, 1.0),
}
KERNELS = {
    "gaussian": Gaussian((0.3, 0.5)),
    "laplace": Stationary("laplace", (0.3, 0.5)),
    "matern-3/2": Stationary("matern-3/2", (0.4, 0.4)),
    "matern-5/2": Stationary("matern-5/2", (0.4, 0.4), product=False),
    "linear": Linear(constant=0.5),
    "polynomial": Polynomial(degree=3, scale=1.2, constant=0.5),
    "arc-cosine": ArcCosine(),
}
RADIUS = math.sqrt(2) * (1 + 2.0**-40)


def risk_of(loss="hinge", kernel="gaussian", cost=1.0, n=10, **more) -> Risk:
    return Risk(LOSSES[loss], KERNELS[kernel], cost, n, RADIUS, 2, **more)


def true_kernel(kernel, x, y):
    """One value with fifty digits."""
    with mpmath.workdps(50):
        x, y = [mpmath.mpf(float(v)) for v in x], [mpmath.mpf(float(v)) for v in y]
        dot = mpmath.fdot(x, y)
        if isinstance(kernel, Linear):
            return dot + mpmath.mpf(kernel.constant) ** 2
        if isinstance(kernel, Polynomial):
            return (dot / mpmath.mpf(kernel.scale) ** 2 + kernel.constant) ** kernel.degree
        if isinstance(kernel, ArcCosine):
            lengths = mpmath.sqrt(mpmath.fdot(x, x) * mpmath.fdot(y, y))
            if lengths == 0:
                return mpmath.mpf(0)
            cosine = max(min(dot / lengths, 1), -1)
            sine = mpmath.sqrt(1 - cosine**2)
            return lengths * (sine + (mpmath.pi - mpmath.acos(cosine)) * cosine) / mpmath.pi
        z = [abs(a - b) / mpmath.mpf(s) for a, b, s in zip(x, y, kernel.scales, strict=True)]
        profiles = {
            "laplace": lambda t: mpmath.exp(-t),
            "matern-3/2": lambda t: (1 + mpmath.sqrt(3) * t) * mpmath.exp(-mpmath.sqrt(3) * t),
            "matern-5/2": lambda t: (
                (1 + mpmath.sqrt(5) * t + 5 * t * t / 3) * mpmath.exp(-mpmath.sqrt(5) * t)
            ),
        }
        if isinstance(kernel, Gaussian):
            return mpmath.exp(-mpmath.fsum(t * t for t in z) / 2)
        profile = profiles[kernel.profile]
        if kernel.product:
            return mpmath.fprod(profile(t) for t in z)
        return profile(mpmath.sqrt(mpmath.fsum(t * t for t in z)))


def exact_gram(kernel, points):
    """Nineteen digits of every value."""
    return np.array(
        [
            [np.longdouble(mpmath.nstr(true_kernel(kernel, x, y), 25)) for y in points]
            for x in points
        ]
    )


def iterate(risk, gram, labels, weights, step, steps):
    """Plain steps in eighty-bit floats; the derivative's formula is the loss's own."""
    state = np.zeros(len(gram), dtype=np.longdouble)
    labels = np.asarray(labels, dtype=np.longdouble)
    for _ in range(steps):
        slopes = np.clip(
            risk.loss.derivative(labels, gram @ state), -risk.bounds.slope, risk.bounds.slope
        )
        state = (1 - np.longdouble(step)) * state - np.longdouble(step) * weights * slopes
    return state


def distance(kernel, first, second):
    """``|f - g|`` in the kernel's Hilbert space; terms are (share, model) pairs.

    Coefficients of equal records are subtracted before the form is squared: the squares of two
    functions that are nearly one cancel, and the root of what is left is no smaller than 1e-8.
    """
    points = np.concatenate([model.records for _, model in (*first, *second)])
    signed = [s * m.coefficients for s, m in first] + [-s * m.coefficients for s, m in second]
    points, places = np.unique(points, axis=0, return_inverse=True)
    v = np.zeros((len(points), signed[0].shape[1]))
    np.add.at(v, places.ravel(), np.concatenate(signed))
    return float(
        np.sqrt(np.maximum(np.einsum("iq,ij,jq->q", v, kernel(points, points), v), 0)).max()
    )


GRID = np.stack(np.meshgrid(np.linspace(0, 1, 7), np.linspace(0, 1, 7)), -1).reshape(-1, 2)


def sample(n, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.uniform(size=(n, 2))
    chance = 1 / (1 + np.exp(-6 * (points[:, 0] - points[:, 1])))
    return points, np.where(rng.uniform(size=n) < chance, 1.0, -1.0)


@dataclass(frozen=True)
class Plain:
    """So many plain steps, whatever the certificate says."""

    steps: int

    def run(self, problem: Objective) -> np.ndarray:
        return _by_plain_steps(problem, -1.0, self.steps).state


def smoothing_distance(loss: Hinge, total: float) -> float:
    """Bound on the distance of the rounded hinge's minimizer from the hinge's, at total weight C.

    Both objectives are 1-strongly convex, and the losses differ by at most half the width.
    """
    return math.sqrt(total * loss.width / 2) * (1 + 2.0**-40)
