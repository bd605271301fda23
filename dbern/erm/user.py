"""A user's kernels and losses: functions with the constants that the user declares.

Nothing here is proved by us. Privacy rests on the declaration: of a kernel that it is positive
definite and its supremum, of a loss that it is convex.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.erm.losses import Responses, check_bound
from dbern.errors import SpecError
from dbern.system import named_function
from dbern.types import FloatArray

Pairs = Callable[[FloatArray, FloatArray], FloatArray]
"""``K(x_i, y_j)`` of points (m, l) and (n, l), or ``L(l, f)`` elementwise; workers import it."""

_LINE_POINTS = 64  # on a line, where the constants of a kernel are tried
_LOSS_ERROR = 2.0**-40  # of what a loss is at 0, and of M: its own float error, assumed


def imported(name: str, key: str) -> Pairs:
    """Import the function that a spec names as "module:name".

    Raises SpecError for a name that cannot be imported.
    """
    return named_function(name, key, "of two arrays")


@dataclass(frozen=True)
class UserKernel:
    """A kernel given as a function of points (m, l) and (n, l), with the constants it satisfies.

    Positive definiteness, `largest` (``sup K(x, x)`` over the public domain) and `float_error` (of
    a value of one, or of `largest` where that is more) are the author's promise: privacy rests on
    all three. `lipschitz`, infinite where it is not known, bounds ``|K_x - K_y| / |x - y|`` in the
    norm of the kernel's Hilbert space, and `curvature` the second derivative of K_y there, along
    every line: accuracy alone.
    """

    function: Pairs
    largest: float
    float_error: float = 2.0**-44
    lipschitz: float = math.inf
    curvature: float = math.inf
    fold = 0.0

    def __post_init__(self) -> None:
        if not (0 < self.largest < math.inf and 0 <= self.float_error < math.inf):
            raise SpecError(
                "target.kernel_bound: sup K(x, x) must be positive and finite, its float error at "
                "least 0. Write them with the function."
            )

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Values (m, n); no float warning may depend on records."""
        with np.errstate(all="ignore"):
            return np.asarray(self.function(x, y), dtype=np.float64)

    def refuse_steeper(self, low: Sequence[float], width: Sequence[float]) -> None:
        """Compare the stated constants with differences on lines through the middle of a box.

        Steps and bends of features are averages of their first and second derivatives.

        Raises SpecError for a constant that they exceed, by more than what floats make of them.
        """
        loose = 32 * self.error(len(low), math.inf)
        middle = np.asarray(low) + np.asarray(width) / 2
        for line in (*np.diag(width), np.asarray(width)):
            points = middle + np.linspace(-0.5, 0.5, _LINE_POINTS + 1)[:, None] * line
            distance = float(np.linalg.norm(line)) / _LINE_POINTS
            gram = self(points, points)
            for order, name in ((1, "lipschitz"), (2, "curvature")):
                gram = np.diff(np.diff(gram, axis=0), axis=1)
                size = math.sqrt(max(0.0, float(np.diag(gram).max()) - loose)) / distance**order
                if size > getattr(self, name) * (1 + 1e-9):
                    raise SpecError(
                        f"target.kernel_{name}: is {getattr(self, name):g}, and the kernel has at "
                        f"least {size:.4g}. Write the largest, or leave it out."
                    )

    def bound(self, radius: float) -> float:  # noqa: ARG002 - as declared
        """`largest`, as declared."""
        return self.largest

    def error(self, dimensions: int, radius: float) -> float:  # noqa: ARG002 - as declared
        """Float error of the largest value, or of one."""
        return self.float_error * max(1.0, self.largest)


@dataclass(frozen=True)
class Secant:
    """``(L(l, f + width/2) - L(l, f - width/2)) / width``: a loss's derivative, its kinks rounded.

    It is the derivative of ``L_w(l, f)``, the mean of L over ``[f - width/2, f + width/2]``. Where
    L is convex and M-Lipschitz so is the mean, the secant grows with f, lies within +-M, and is
    ``(2M/width)``-Lipschitz: its own derivative is ``(L'(f + width/2) - L'(f - width/2)) / width``.
    It is also as Lipschitz as L' is, being a mean of it. ``L <= L_w <= L + M width/4`` (Jensen, and
    the mean of |u|).
    """

    function: Pairs
    width: float

    def __call__(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """The secant elementwise."""
        half = self.width / 2
        right = self.function(labels, predictions + half)
        left = self.function(labels, predictions - half)
        return np.asarray((right - left) / self.width, dtype=np.float64)


@dataclass(frozen=True)
class UserLoss(Responses):
    """A loss given as two functions of (labels, predictions) and the constants they satisfy.

    `function` and `gradient` are elementwise ``L >= 0`` and ``dL/df``, for arrays of one shape,
    importable on workers. `lipschitz` is M: the solver clips the derivative there, which keeps a
    convex loss convex, so a declared M that is too small changes the model, never the privacy.
    `curvature`, `at_zero` and `derivative_error` are those of `dbern.erm.losses`; labels are
    clipped to ``[-bound, bound]``.
    """

    function: Pairs
    gradient: Pairs
    lipschitz: float
    curvature: float
    at_zero: float
    bound: float = 1.0
    derivative_error: float = 2.0**-44

    def __post_init__(self) -> None:
        for name in ("lipschitz", "curvature", "at_zero", "bound"):
            check_bound(getattr(self, name), name)

    @classmethod
    def rounded(
        cls,
        function: Pairs,
        width: float,
        *,
        lipschitz: float,
        at_zero: float,
        curvature: float = math.inf,
        bound: float = 1.0,
    ) -> UserLoss:
        """The loss by its values alone, its kinks rounded over a width by `Secant`.

        A value is taken to be computed within 2^-40 of ``at_zero + lipschitz``.
        """
        return cls(
            function,
            Secant(function, width),
            lipschitz,
            OUTWARD * min(curvature, 2 * lipschitz / width),
            OUTWARD * (at_zero + lipschitz * width / 4),
            bound,
            2 * _LOSS_ERROR * (at_zero + lipschitz) / width,
        )

    def slope(self, largest: float) -> float:  # noqa: ARG002 - one constant is declared
        """M, as declared."""
        return self.lipschitz

    def scaled(self, radius: float) -> UserLoss:  # noqa: ARG002 - none is right
        """Refuse it: a function that is given has the units that it was written for."""
        raise SpecError(
            'target.method: a loss of your own is released by weights. Write method = "weights"'
        )

    def value(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L elementwise; no float warning may depend on records."""
        with np.errstate(all="ignore"):
            return self.function(labels, predictions)

    def derivative(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """dL/df elementwise."""
        with np.errstate(all="ignore"):
            return self.gradient(labels, predictions)
