"""Losses of a label and a prediction, with the constants that solver and proofs use.

``L(l, f)`` of a label l and a prediction f is convex and at least 0, and declares

- ``slope(largest)``: M, the largest ``|dL/df|`` over every admissible label and ``|f| <= largest``;
- ``curvature``: the Lipschitz constant of dL/df, that is ``sup d2L/df2`` where it exists;
- ``at_zero``: the largest ``L(l, 0)``;
- ``derivative_error``: the largest float error of `derivative` at any float prediction.

Two pieces build most of them. The *ramp* ``h(z) = 0, z^2/(2 width), z - width/2`` for z below 0, up
to the width, and above: convex, ``0 <= h' = clip(z/width, 0, 1) <= 1``, h' is (1/width)-Lipschitz,
and ``max(z, 0) - width/2 <= h(z) <= max(z, 0)``. The *quadratic* ``r^2/2``: slope |r|, curvature 1.
A division, product or difference of floats rounds once, by at most ``u = 2^-53`` of its result.

A user's own loss declares these constants, and nothing here proves them. Privacy rests on its
convexity and on `derivative_error`: solvers clip the derivative at M, which keeps a convex loss
convex, so an M that is too small changes the model alone. By objective, where it would rest on all
of them, only losses of `dbern` are released.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields
from typing import Any, ClassVar, Final, Literal, Protocol, Self, TypeAlias

import numpy as np

from dbern.bernstein.kernels import EXP_ULPS, OUTWARD
from dbern.errors import SpecError
from dbern.system import Registry, named_function
from dbern.types import UNIT_ROUNDOFF, FloatArray

_DEFAULT_FRACTION = 0.1  # of the range: the default of a tube and of a rounding
Pairs = Callable[[FloatArray, FloatArray], FloatArray]
"""``K(x_i, y_j)`` of points (m, l) and (n, l), or ``L(l, f)`` elementwise; workers import it."""
TypicalRisk: TypeAlias = Literal["log loss", "wrong classes", "squared error"]
"""Risk of a loss's minimizer on typical records, which plans predict."""
_LOSS_ERROR = 2.0**-40  # of what a loss is at 0, and of M: its own float error, assumed


class Loss(Protocol):
    """A loss, with the constants that the solver and the proofs use.

    A third party's loss is any frozen object with these members. That it is convex, and what it
    declares, is its author's promise.
    """

    @property
    def typical_risk(self) -> TypicalRisk | None:
        """Risk that plans predict of its minimizer; None where they predict nothing."""

    @property
    def curvature(self) -> float:
        """Lipschitz constant of the derivative in f."""

    @property
    def at_zero(self) -> float:
        """``sup_l L(l, 0)``."""

    @property
    def derivative_error(self) -> float:
        """Float error of `derivative`."""

    def slope(self, largest: float) -> float:
        """Bound the derivative over predictions up to `largest`, which may be infinite."""

    def scaled(self, radius: float) -> Loss:
        """Return the loss of labels and predictions that were divided by a radius."""

    def admissible(self, labels: FloatArray) -> FloatArray:
        """Clip labels to the range the constants hold for."""

    def value(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L elementwise."""

    def derivative(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """dL/df elementwise."""


@dataclass(frozen=True)
class StatedLengths:
    """Lengths of a loss as a spec states them, in units of predictions; None for the default.

    `bound` is that of responses, 1 of classes; `smooth` says whether curvature costs noise.
    """

    bound: float = 1.0
    width: float | None = None
    tube: float | None = None
    threshold: float | None = None
    smooth: bool = False

    @property
    def rounding(self) -> float:
        """Width over which kinks are rounded."""
        return self.width or _DEFAULT_FRACTION * self.bound


class NamedLoss(Loss, Protocol):
    """A loss that a spec names: a frozen dataclass of `ALL_LOSSES`.

    Its fields but for the `bound` of responses are its parameters in a spec.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    name: ClassVar[str]
    of_classes: ClassVar[bool]  # its labels are classes, not a response
    perturbable: ClassVar[bool]  # `dbern.erm.perturbed` was proved and tested with it

    @classmethod
    def stated(cls, lengths: StatedLengths) -> NamedLoss:
        """Make it with what a spec states."""


def _ramp(z: FloatArray, width: float) -> FloatArray:
    inside = np.clip(z, 0.0, width)
    return np.asarray(inside * (z - 0.5 * inside) / width)


class Classes:
    """Labels that are classes, -1 and 1."""

    of_classes: ClassVar[bool] = True
    perturbable: ClassVar[bool] = False
    typical_risk: ClassVar[TypicalRisk | None] = None

    def scaled(self, radius: float) -> Self:  # noqa: ARG002 - classes have no unit
        """Return the loss as it is."""
        return self

    def admissible(self, labels: FloatArray) -> FloatArray:
        """Return the sign of labels."""
        return np.where(labels > 0, 1.0, -1.0)


class _RoundedKinks:
    width: float

    @property
    def curvature(self) -> float:
        return 1 / self.width

    def slope(self, largest: float) -> float:  # noqa: ARG002 - the same everywhere
        return 1.0


class Responses:
    """Labels in ``[-bound, bound]``."""

    of_classes: ClassVar[bool] = False
    perturbable: ClassVar[bool] = False
    typical_risk: ClassVar[TypicalRisk | None] = None
    bound: float

    def admissible(self, labels: FloatArray) -> FloatArray:
        """Clip responses to the bound."""
        return np.clip(labels, -self.bound, self.bound)


@dataclass(frozen=True)
class Hinge(Classes, _RoundedKinks):
    """``max(0, 1 - l f)`` for labels +-1, its kink rounded over a public width: ``h(1 - l f)``.

    ``|dL/df| = h' <= 1``; the derivative is (1/width)-Lipschitz in f because ``|l| = 1``;
    ``L(l, 0) = h(1) = 1 - width/2`` as the width is at most 1. It is below the hinge by at most
    width/2, so the minimizer of a risk of total weight C moves by at most ``sqrt(C width/2)``: both
    objectives are 1-strongly convex, and adding ``J(w') - J(w) >= |w - w'|^2/2`` at either
    minimizer w leaves differences between the objectives, which lie in ``[0, C width/2]``. Where
    all margins stay below 1 - width the minimizer is the same (see
    `dbern.learn.support_vector_machine`).

    Float error: l f is exact, so 1 - l f and its quotient round by 2 u of a value that is then
    clipped to [0, 1].

    Raises SpecError for a width outside (0, 1].
    """

    name: ClassVar[str] = "hinge"
    typical_risk: ClassVar[TypicalRisk | None] = "wrong classes"
    perturbable: ClassVar[bool] = True
    width: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.width <= 1:
            raise SpecError(
                "target.loss: the width over which the hinge is rounded must be above 0 and at "
                "most 1. Write 0.1"
            )

    @classmethod
    def stated(cls, lengths: StatedLengths) -> Hinge:
        """Make it with what a spec states."""
        return cls(1.0 if lengths.smooth and not lengths.width else lengths.rounding)

    @property
    def at_zero(self) -> float:
        """``h(1)``."""
        return 1 - self.width / 2

    @property
    def derivative_error(self) -> float:
        """Float error of two roundings, doubled."""
        return 4 * UNIT_ROUNDOFF

    def value(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L elementwise."""
        return _ramp(1 - labels * predictions, self.width)

    def derivative(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """dL/df elementwise."""
        margin = (1 - labels * predictions) / self.width
        return np.asarray(-labels * np.clip(margin, 0.0, 1.0))


@dataclass(frozen=True)
class Logistic(Classes):
    """``log(1 + exp(-l f))`` for labels +-1.

    ``|dL/df| = s(-l f)`` with the sigmoid ``s(t) = 1/(1 + e^-t)``, increasing: over ``|f| <= R``
    at most ``s(R) < 1``. ``s' = s (1 - s) <= 1/4``. ``L(l, 0) = log 2``.

    Float error: with ``e = exp(l f)`` within a few ulps, ``1/(1 + e)`` changes by
    ``e/(1 + e)^2 <= 1/4`` times e's relative error, and two operations round values of at most 1.
    """

    name: ClassVar[str] = "logistic"
    typical_risk: ClassVar[TypicalRisk | None] = "log loss"
    perturbable: ClassVar[bool] = True
    curvature = 0.25
    at_zero = OUTWARD * math.log(2)
    derivative_error = (EXP_ULPS + 4) * UNIT_ROUNDOFF

    @classmethod
    def stated(cls, lengths: StatedLengths) -> Logistic:  # noqa: ARG003 - it has none
        """Make it with what a spec states."""
        return cls()

    def slope(self, largest: float) -> float:
        """``s(R)``."""
        return min(1.0, OUTWARD / (1 + math.exp(-min(largest, 700.0))))

    def value(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L elementwise."""
        return np.logaddexp(0.0, -labels * predictions)

    def derivative(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """dL/df elementwise."""
        exponent = np.minimum(labels * predictions, 700.0)  # beyond it the result is below 1e-304
        return np.asarray(-labels / (1 + np.exp(exponent)))


@dataclass(frozen=True)
class Square(Responses):
    """``(l - f)^2 / 2`` for responses clipped to ``[-bound, bound]``: kernel ridge regression.

    ``|dL/df| = |f - l| <= bound + R`` over ``|f| <= R``: no Lipschitz constant of its own, but one
    on the ball that holds every minimizer (`dbern.erm.risk.RiskBounds.slope`). ``L(l, 0)`` is at
    most ``bound^2/2``. The difference rounds once, and is then clipped at that constant.
    """

    name: ClassVar[str] = "square"
    typical_risk: ClassVar[TypicalRisk | None] = "squared error"
    bound: float = 1.0
    curvature = 1.0
    derivative_error = 0.0  # beyond one rounding, relative to M: counted for every loss

    def __post_init__(self) -> None:
        check_bound(self.bound)

    @classmethod
    def stated(cls, lengths: StatedLengths) -> Square:
        """Make it with what a spec states."""
        return cls(lengths.bound)

    @property
    def at_zero(self) -> float:
        """``bound^2 / 2``."""
        return OUTWARD * self.bound**2 / 2

    def scaled(self, radius: float) -> Square:
        """Square loss over ``radius^2``."""
        return Square(self.bound / radius)

    def slope(self, largest: float) -> float:
        """``bound + R``."""
        return self.bound + largest

    def value(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L elementwise."""
        return np.asarray(0.5 * np.square(predictions - labels))

    def derivative(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """dL/df elementwise."""
        return np.asarray(predictions - labels)


@dataclass(frozen=True)
class Huber(Responses):
    """``r^2/2`` for residuals ``|r| <= threshold``, ``threshold (|r| - threshold/2)`` beyond.

    ``dL/df = clip(f - l, -threshold, threshold)``: slope ``min(threshold, bound + R)``, curvature
    1. ``L(l, 0)`` is at most its value at r = bound. The difference rounds once, by at most u
    times its size, which the clip bounds by the threshold.
    """

    name: ClassVar[str] = "huber"
    typical_risk: ClassVar[TypicalRisk | None] = "squared error"
    perturbable: ClassVar[bool] = True
    threshold: float = 1.0
    bound: float = 1.0
    curvature = 1.0

    def __post_init__(self) -> None:
        check_bound(self.bound)
        check_bound(self.threshold, "threshold")

    @classmethod
    def stated(cls, lengths: StatedLengths) -> Huber:
        """Make it with what a spec states."""
        return cls(lengths.threshold or lengths.bound, lengths.bound)

    @property
    def at_zero(self) -> float:
        """L(l, 0) at the bound."""
        inside = min(self.bound, self.threshold)
        return OUTWARD * inside * (self.bound - inside / 2)

    @property
    def derivative_error(self) -> float:
        """Float error of one rounding, doubled."""
        return 2 * UNIT_ROUNDOFF * self.threshold

    def scaled(self, radius: float) -> Huber:
        """Huber's loss over ``radius^2``."""
        return Huber(self.threshold / radius, self.bound / radius)

    def slope(self, largest: float) -> float:
        """``min(threshold, bound + R)``."""
        return min(self.threshold, self.bound + largest)

    def value(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L elementwise."""
        residual = np.abs(predictions - labels)
        inside = np.minimum(residual, self.threshold)
        return np.asarray(inside * (residual - 0.5 * inside))

    def derivative(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """dL/df elementwise."""
        return np.clip(predictions - labels, -self.threshold, self.threshold)


@dataclass(frozen=True)
class EpsilonInsensitive(Responses, _RoundedKinks):
    """``max(0, |f - l| - tube)``, its kinks rounded over a public width: ``h(|f - l| - tube)``.

    Convex, being h, convex and nondecreasing, of a convex function. Where the derivative is not
    zero it is ``+-h'``: slope 1, curvature 1/width. ``L(l, 0) <= max(bound - tube, 0)``.

    Float error: where h' is below 1 the residual is at most tube + width, so residual and
    difference round by ``2 u (tube + width)``, and the quotient by u.
    """

    name: ClassVar[str] = "epsilon-insensitive"
    tube: float = 0.1
    width: float = 0.1
    bound: float = 1.0

    def __post_init__(self) -> None:
        check_bound(self.bound)
        check_bound(self.width, "width")
        if not (math.isfinite(self.tube) and self.tube >= 0):
            raise SpecError("target.loss: the tube must be at least 0. Write tube = 0.1")

    @classmethod
    def stated(cls, lengths: StatedLengths) -> EpsilonInsensitive:
        """Make it with what a spec states."""
        tube = _DEFAULT_FRACTION * lengths.bound if lengths.tube is None else lengths.tube
        return cls(tube, lengths.rounding, lengths.bound)

    @property
    def at_zero(self) -> float:
        """``max(bound - tube, 0)``."""
        return max(self.bound - self.tube, 0.0)

    def scaled(self, radius: float) -> EpsilonInsensitive:
        """Loss over the radius."""
        return EpsilonInsensitive(self.tube / radius, self.width / radius, self.bound / radius)

    @property
    def derivative_error(self) -> float:
        """Float error of residual, difference and quotient, doubled."""
        return 4 * UNIT_ROUNDOFF * (1 + (self.tube + self.width) / self.width)

    def value(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """L elementwise."""
        return _ramp(np.abs(predictions - labels) - self.tube, self.width)

    def derivative(self, labels: FloatArray, predictions: FloatArray) -> FloatArray:
        """dL/df elementwise."""
        residual = predictions - labels
        outside = (np.abs(residual) - self.tube) / self.width
        return np.asarray(np.sign(residual) * np.clip(outside, 0.0, 1.0))


LOSSES: Final[Mapping[str, type[NamedLoss]]] = {
    loss.name: loss for loss in (Logistic, Hinge, Square, Huber, EpsilonInsensitive)
}
"""Ours by the name that a spec gives each."""

ALL_LOSSES: Final[Registry[type[NamedLoss]]] = Registry("dbern.losses", LOSSES)
"""Ours, and those of installed packages."""


def parameters_of(loss: type[NamedLoss]) -> tuple[str, ...]:
    """Return the keys of a spec that a loss uses: its fields but for the bound of responses."""
    return tuple(field.name for field in fields(loss) if field.name != "bound")


def one_vs_rest(classes: FloatArray, count: int) -> FloatArray:
    """Labels (n, count): 1 in the column of the class (0 to count - 1), -1 elsewhere."""
    return np.where(classes[:, None] == np.arange(count), 1.0, -1.0)


def check_bound(value: float, name: str = "bound") -> None:
    """Refuse a constant that is not positive and finite."""
    if not (math.isfinite(value) and value > 0):
        raise SpecError(f"target.loss: the {name} must be positive and finite. Write {name} = 1.0")


def imported(name: str, key: str) -> Pairs:
    """Import the function that a spec names as "module:name".

    Raises SpecError for a name that cannot be imported.
    """
    return named_function(name, key, "of two arrays")


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
