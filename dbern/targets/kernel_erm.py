"""Regularized risk minimization with kernels, and support vector machines.

Kernels and losses, any convex ones, are built in or the user's.

*Support vector machines* without bias, in closed form, or by a solver.

``w = argmin (C/n) sum_i max(0, 1 - l_i <w, phi(d_i)>) + |w|^2 / 2`` with labels +-1. In the dual,
``w = (C/n) sum_i a_i l_i phi(d_i)`` with a_i in [0, 1], and a_i = 1 wherever the margin
``l_i <w, phi(d_i)>`` is below one. With ``kappa^2 = sup K(x, x)`` every such w has norm at most
``C kappa``, so no margin exceeds ``C kappa^2``. Where that is at most one, all dual variables at
their bound, a = 1, satisfy the optimality conditions: the hinge's subgradient contains -1 up to
and including margin one. By strong convexity this is the minimiser:

    ``F(y) = (C/n) sum_i l_i K(d_i, y)``,

a signed kernel sum, exact, with no solver; its sensitivities are proved in
`dbern.counting.kernel_sums`. For larger C the hinge is rounded over a public width and the machine
is solved for (`dbern.erm.measurement`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from dbern.bernstein.reproducing import ArcCosine, Linear, Polynomial
from dbern.combination.base import Combination
from dbern.combination.functions import OneVersusRest
from dbern.counting.kernel_sums import KernelSum
from dbern.counting.measurement import Measurement
from dbern.counting.record_weights import ByCategory, SignWeight
from dbern.data.domain import Domain, RecordSchema
from dbern.erm.risk import EpsilonInsensitive, Hinge, Huber, Logistic, Loss, Square
from dbern.erm.spaces import STATIONARY, GaussianFeatures, GramKernel, LinearFeatures
from dbern.erm.user import UserKernel, UserLoss, imported
from dbern.errors import SpecError
from dbern.privacy.budget import Budget
from dbern.system import source_digest
from dbern.targets.base import Learner, Lengths, Positive, Way, response_of
from dbern.targets.density import axis_kernels
from dbern.targets.linear import (
    AUTO,
    CONSTANT,
    METHOD,
    SHARDS,
    Cost,
    Method,
    Shards,
    chosen_cost,
    cost_of,
    gaussian_space,
    linear_functions,
    method_taken,
    minimizer,
    of_classes,
    of_responses,
    told,
)
from dbern.targets.predicted_functions import minimizer_notes, predicted_sums
from dbern.targets.predictions import deviation_of, predicted_weights
from dbern.targets.typical import LARGE_CLASS, Typical, TypicalClasses, TypicalResponses

_OF_CLASSES = ("logistic", "hinge")
_OURS = (*_OF_CLASSES, "square", "huber", "epsilon-insensitive")
_PERTURBED = (*_OF_CLASSES, "huber")
_SCALED = ("gaussian", *STATIONARY)
_KERNELS = (*_SCALED, "polynomial", "arc-cosine", "linear", "module:name")
_DEGREE = 3
_SHARE = 0.1  # of the range: the default of a tube and of a rounding
_LESS_NOISE = 'of several classes kind = "support-vector-machine" has less noise: plan it'
_NARROWEST, _WIDEST = 1e-3, 1e3  # of what is predicted


class KernelERM(Learner):
    """Regularized risk minimizer with a loss and a kernel.

    With two classes the second is the positive one; with more, one model a class against the rest.
    What you declare of a kernel or a loss of your own is not checked: privacy rests on the kernel's
    positive definiteness and bound, and on the loss's convexity. A solve that fails because a loss
    is not as declared stops the release, which can be observed.

    Parameters
    ----------
    loss : str
        "logistic" or "hinge" for classes; "square", "huber" or "epsilon-insensitive" for a
        response; or "module:name" of your own, a function of (labels, predictions), arrays of one
        shape: convex in the prediction, at least 0. Labels are -1 and 1, or responses counted
        from the middle of their bounds.
    kernel : str
        "gaussian", ``exp(-|x - y|^2 / (2 s^2))``; products over axes of "laplace",
        ``exp(-|x - y| / s)``, "matern-3/2" or "matern-5/2"; "polynomial",
        ``(x.y / l + constant)^degree``, and "arc-cosine" of order 1, of l coordinates from -1 to 1
        over their bounds (for the latter and the constant); "linear", in unit-cube coordinates, of
        records projected to the unit ball; or "module:name" of your own, a function of points
        (m, l) and (n, l) in data units to values (m, n): positive definite.
    length_scale : sequence of float
        s per axis, in data units; of the kernels with one.
    method : "auto", "objective" or "weights"
        Of kernel "linear" with loss "logistic", "hinge" or "huber": as of `LogisticRegression`;
        everything else is released as the paper does, by weights.
    C : "auto" or float
        The paper's, scikit-learn's times n. "auto" follows from the rows, epsilon, classes, kernel
        and loss: of what is released by weights the largest whose noise is small beside what is
        predicted.
    shards : "auto" or int
        The function is the mean of models of as many disjoint shards. "auto": of up to a million
        records, fewer where the kernel needs many features, 2048 where it has none.
    width : float, optional
        Over which the kinks of hinge, tube and a loss of your own are rounded: of a margin, or of a
        response. A tenth; of a hinge by objective 1, as curved losses take more of a penalty.
    tube : float, optional
        Of the epsilon-insensitive loss, in units of the response; a tenth of half its range.
    threshold : float, optional
        Beyond which the Huber loss is linear, in units of the response; half its range.
    constant : float
        Of the kernels that say so; of the linear kernel, its constant feature.
    degree : int, optional
        Of the polynomial kernel; by default 3.
    kernel_bound : float, optional
        Of a kernel of your own: the largest ``K(x, x)`` within the bounds.
    kernel_lipschitz : float, optional
        Of a kernel of your own, for a certificate that is worth something: the largest
        ``|K_x - K_y| / |x - y|`` in its Hilbert space, in data units.
    kernel_curvature : float, optional
        Likewise, for a narrower one: the largest second derivative of ``K_x`` there, along any
        line.
    lipschitz, at_zero : float, optional
        Of a loss of your own: the largest slope in the prediction, and its largest value at
        prediction 0.
    curvature : float, optional
        Of a loss of your own, where it is smooth: the largest second derivative.

    Raises
    ------
    SpecError
        For parameters out of range, or records without what the loss needs.

    Examples
    --------
    >>> KernelERM(loss="logistic", length_scale=[1.0, 1.0], C=10.0).C
    10.0
    """

    kind: ClassVar[str] = "kernel-erm"
    chooses: ClassVar[bool] = True
    uses: ClassVar[tuple[str, ...]] = ("label", "response", "categories")

    loss: str = Field(
        description='loss = "logistic", "hinge", "square", "huber", "epsilon-insensitive" or '
        '"module:name"'
    )
    kernel: str = Field("gaussian", description='kernel = "gaussian"')
    length_scale: Lengths | None = Field(
        None, description="length_scale = [1.0, 1.0], one per axis in data units"
    )
    method: Method = METHOD
    C: Cost = AUTO
    shards: Shards = SHARDS
    width: Positive | None = Field(None, description="width = 0.1, over which a kink is rounded")
    tube: float | None = Field(
        None, ge=0, allow_inf_nan=False, description='tube = 0.1, of loss "epsilon-insensitive"'
    )
    threshold: Positive | None = Field(None, description='threshold = 1.0, of loss "huber"')
    constant: float = CONSTANT
    degree: int | None = Field(
        None, ge=1, le=12, description='degree = 3, from 1 to 12, of kernel "polynomial"'
    )
    kernel_bound: Positive | None = Field(
        None,
        description="kernel_bound = 1.0, declared for a kernel of your own",
    )
    kernel_lipschitz: Positive | None = Field(None, description="kernel_lipschitz = 1.0, likewise")
    kernel_curvature: Positive | None = Field(None, description="kernel_curvature = 1.0, likewise")
    lipschitz: Positive | None = Field(
        None, description="lipschitz = 1.0, declared for your own loss"
    )
    at_zero: Positive | None = Field(None, description="at_zero = 1.0, likewise")
    curvature: Positive | None = Field(None, description="curvature = 1.0, likewise")

    def components(self, schema: RecordSchema) -> tuple[Measurement, ...]:
        """One, of as many outputs as there are models."""
        loss = self._loss(schema)
        name = "prediction" if schema.response else "decision"
        space = self._space(schema)
        if self._either:
            facts = self.method, self.C, self.constant, self.shards
            return (linear_functions(schema, loss, *facts),)
        if self.method == "objective" or schema.domain.lists:
            key = "target.method" if self.method == "objective" else "data.bounds"
            raise SpecError(
                f'{key}: an objective, and lists of values, are for kernel = "linear" with loss = '
                '"logistic", "hinge" or "huber". Write these, or method = "auto" and numbers.'
            )
        cost, sources = cost_of(self.C), self._sources()
        return (minimizer(name, schema, loss, space, cost, self.shards, sources),)

    @property
    def _either(self) -> bool:
        """Whether both methods can release it."""
        return self.kernel == "linear" and self.loss in _PERTURBED

    def for_rows(self, schema: RecordSchema, n: int, charge: Budget) -> KernelERM:
        """Return it with its C."""
        if self.C != "auto" or self._either:
            return self
        loss, space = self._loss(schema), self._space(schema)
        cost = chosen_cost(schema, loss, space, n, charge.epsilon)
        return KernelERM(**self.get_params() | {"C": cost})

    def taken(self, counting: Mapping[str, Any]) -> dict[str, Any]:
        """Return the method, where there is a choice."""
        return method_taken(counting) if self._either else {}

    def identity(self) -> dict[str, Any]:
        """Digests of the modules of a user's kernel and loss."""
        digests = ((key.rpartition(".")[2], digest) for key, _, digest in self._sources())
        return {f"{role}_sha256": digest for role, digest in digests}

    def _sources(self) -> tuple[tuple[str, str, str], ...]:
        """Key, name and module's digest of a kernel and a loss of the user's."""
        both = (("target.kernel", self.kernel), ("target.loss", self.loss))
        named = [(key, name) for key, name in both if ":" in name]
        for key, name in named:
            imported(name, key)
        return tuple((key, name, source_digest(name)) for key, name in named)

    def combination(self, schema: RecordSchema) -> Combination:
        """The decision function, or the response."""
        constant = self.constant if self.kernel == "linear" else None
        made = of_responses if schema.response else of_classes
        return made(schema, constant)

    def predictions(self, schema: RecordSchema, n: int, ways: Sequence[Way]) -> tuple[str, ...]:
        """Predict the risk on typical records, beside a constant's; not of a loss of your own."""
        del n
        if self._either or ":" in self.loss:
            return ()
        axes, response = schema.domain.dimensions, schema.response
        if response:
            typical: Typical = TypicalResponses(axes, (), response.radius)
        else:
            classes = len(schema.classes.categories)
            typical = TypicalClasses(axes, (), classes, self.loss == "logistic" and classes == 2)
        space, loss = self._space(schema), self._loss(schema)
        if isinstance(space, LinearFeatures):
            noise = deviation_of(ways[0].law)
            return typical.note(*predicted_weights(typical, space, loss, cost_of(self.C), noise))
        notes = minimizer_notes(typical, ways[0], space, loss, cost_of(self.C))
        several = self.kernel == "gaussian" and not response and typical.models > 1
        poor = any(note.startswith(LARGE_CLASS) for note in notes)
        return (*notes, *[_LESS_NOISE] * (several and poor))

    def notes(self, n: int) -> tuple[str, ...]:
        """C in both forms, and what rests on the user's word."""
        both = (("kernel", self.kernel), ("loss", self.loss))
        own = [f'{key} = "{name}"' for key, name in both if ":" in name]
        words = f"as stated, not checked, and privacy rests on it: {', '.join(own)}"
        chosen = self._either and self.C == "auto"
        return (*(() if chosen else (told(cost_of(self.C), n),)), *([words] if own else []))

    def _space(self, schema: RecordSchema) -> GaussianFeatures | GramKernel | LinearFeatures:
        self._refuse_idle()
        domain = schema.domain
        if self.kernel in _SCALED:
            if self.length_scale is None:
                raise SpecError(
                    "target.length_scale: is missing. Write length_scale = [1.0, 1.0], one an axis."
                )
            if self.kernel == "gaussian":
                return gaussian_space(schema, self.length_scale)
            kernels = axis_kernels(domain, self.length_scale, "length_scale", self.kernel)
            return GramKernel.product(kernels)
        if ":" in self.kernel:
            return self._own_kernel(domain)
        if self.kernel == "linear":
            return LinearFeatures(domain.dimensions, Linear(self.constant))
        axes = domain.dimensions
        kernel = (
            ArcCosine(self.constant)
            if self.kernel == "arc-cosine"
            else Polynomial(self.degree or _DEGREE, math.sqrt(axes), self.constant)
        )
        return GramKernel(kernel, low=(-1.0,) * axes, width=(2.0,) * axes)

    def _refuse_idle(self) -> None:
        """Refuse an unknown kernel, and parameters that the kernel has no use for."""
        own = ":" in self.kernel
        if self.kernel not in _KERNELS and not own:
            raise SpecError(f'target.kernel: "{self.kernel}" is unknown. Write {_listed(_KERNELS)}')
        idle = {
            "length_scale": self.kernel not in _SCALED,
            "degree": self.kernel != "polynomial",
            "kernel_bound": not own,
            "kernel_lipschitz": not own,
            "kernel_curvature": not own,
        }
        for name, unused in idle.items():
            if unused and getattr(self, name) is not None:
                raise SpecError(f'target.{name}: kernel = "{self.kernel}" has none. Leave it out.')

    def _own_kernel(self, domain: Domain) -> GramKernel:
        function = imported(self.kernel, "target.kernel")
        if self.kernel_bound is None:
            raise SpecError(
                f'target.kernel_bound: is missing for kernel = "{self.kernel}". Write '
                "kernel_bound = 1.0, the largest K(x, x) within the bounds."
            )
        stated = self.kernel_lipschitz or math.inf, self.kernel_curvature or math.inf
        kernel = UserKernel(function, self.kernel_bound, 2.0**-44, *stated)
        low, width = zip(*((axis.low, axis.width) for axis in domain.axes), strict=True)
        kernel.refuse_steeper(low, width)
        return GramKernel(kernel, low, width)

    def _loss(self, schema: RecordSchema) -> Loss:
        self._refuse_lengths(schema.response.radius if schema.response else 1.0)
        if ":" in self.loss:
            return self._own_loss(schema)
        if self.loss not in _OURS:
            known = (*_OURS, "module:name")
            raise SpecError(f'target.loss: "{self.loss}" is unknown. Write {_listed(known)}')
        for name in ("lipschitz", "at_zero", "curvature"):
            if getattr(self, name) is not None:
                raise SpecError(f'target.{name}: is for loss = "module:name". Leave it out.')
        if self.loss in _OF_CLASSES:
            if schema.response is not None:
                raise SpecError(
                    f'data.response: loss = "{self.loss}" is for classes. Leave it out.'
                )
            stated = self.method == "weights" or (self.method, self.C) == ("auto", cost_of(self.C))
            smooth = self._either and not stated
            width = self.width or (1.0 if smooth else _SHARE)
            return Logistic() if self.loss == "logistic" else Hinge(width)
        if schema.label is not None:
            raise SpecError(f'data.label: loss = "{self.loss}" is for a response. Leave it out.')
        bound = response_of(schema).radius
        if self.loss == "square":
            return Square(bound)
        if self.loss == "huber":
            return Huber(self.threshold or bound, bound)
        tube = _SHARE * bound if self.tube is None else self.tube
        return EpsilonInsensitive(tube, self.width or _SHARE * bound, bound)

    def _refuse_lengths(self, scale: float) -> None:
        """Refuse what is far from the scale of predictions: the solver's steps grow with it."""
        for name in ("width", "tube", "threshold"):
            if not _NARROWEST * scale <= (getattr(self, name) or scale) <= _WIDEST * scale:
                raise SpecError(
                    f"target.{name}: must be from {_NARROWEST:g} to {_WIDEST:g} times what is "
                    f"predicted, {scale:g}. Write {name} = {_SHARE * scale:g}"
                )

    def _own_loss(self, schema: RecordSchema) -> UserLoss:
        if (schema.label is None) == (schema.response is None):
            raise SpecError(
                "data.label: a loss of your own is of classes or of a response. Write one of "
                "[data.label] and [data.response]"
            )
        if self.lipschitz is None or self.at_zero is None:
            missing = "lipschitz" if self.lipschitz is None else "at_zero"
            raise SpecError(
                f'target.{missing}: is missing for loss = "{self.loss}". Write {missing} = 1.0, '
                "what you can prove of it."
            )
        bound = schema.response.radius if schema.response else 1.0
        return UserLoss.rounded(
            imported(self.loss, "target.loss"),
            self.width or _SHARE * bound,
            lipschitz=self.lipschitz,
            at_zero=self.at_zero,
            curvature=self.curvature or math.inf,
            bound=bound,
        )


def _listed(names: Sequence[Any]) -> str:
    return "one of " + ", ".join(f'"{name}"' for name in names)


# --- Support vector machines


_SOLVED = 10  # below it few margins reach one: the closed form is as good, with half the noise


class SupportVectorMachine(Learner):
    """Decision function of a support vector machine with the kernel exp(-|x-y|^2 / (2 s^2)).

    With two classes the second is the positive one; with more, one machine a class against the
    rest. The regularisation is the paper's ``C/n``: scikit-learn's C is this C over n.

    Parameters
    ----------
    length_scale : sequence of float
        s per axis, in data units.
    C : "auto" or float
        Up to 1 the machine has a closed form; beyond, it is solved for. "auto" is
        chosen as that of `KernelERM`, for a width of .1 at most 100; below 10 it is 1. Of more than
        two classes it is 1: a class's sum of kernels is as large as the class is likely, whereas a
        machine that is solved for says "the rest" wherever no class has more than half, and noise
        decides between them.
    width : float
        Over which the kink of the hinge is rounded for the solver, of a margin.
    shards : "auto" or int
        For the solver: as of `KernelERM`.

    Raises
    ------
    SpecError
        For a length scale or C out of range, or records without classes.

    Examples
    --------
    >>> SupportVectorMachine(length_scale=[1.0, 1.0]).C
    'auto'
    """

    kind: ClassVar[str] = "support-vector-machine"
    chooses: ClassVar[bool] = True
    uses: ClassVar[tuple[str, ...]] = ("label",)

    length_scale: Lengths = Field(
        description="length_scale = [1.0, 1.0], one per axis in data units"
    )
    C: Cost = AUTO
    width: float = Field(0.1, ge=1e-3, le=1, description="width = 0.1, from 0.001 to 1")
    shards: Shards = SHARDS

    def components(self, schema: RecordSchema) -> tuple[Measurement, ...]:
        """The signed sum, or one sum for each of more than two classes; or what is solved for."""
        label, domain = schema.classes, schema.domain
        if cost_of(self.C) > 1:
            space, loss = gaussian_space(schema, self.length_scale), Hinge(self.width)
            return (minimizer("decision", schema, loss, space, cost_of(self.C), self.shards),)
        kernels = axis_kernels(domain, self.length_scale, "length_scale")
        # The measurement's kernels are densities: the machine's is this times their product.
        unit = cost_of(self.C) * math.prod(g.bandwidth * math.sqrt(2 * math.pi) for g in kernels)
        record_weights = SignWeight(label) if len(label.categories) == 2 else ByCategory(label)
        return (KernelSum("decision", domain, kernels, record_weights, unit),)

    def combination(self, schema: RecordSchema) -> Combination:
        """The function itself; of more sums each one minus all others, of more models each one."""
        classes = schema.classes.categories
        if cost_of(self.C) > 1 or len(classes) == 2:
            return of_classes(schema)
        return OneVersusRest(classes)

    def for_rows(self, schema: RecordSchema, n: int, charge: Budget) -> SupportVectorMachine:
        """Return it with its C."""
        if self.C != "auto":
            return self
        cost = 1.0
        if len(schema.classes.categories) == 2:
            space = gaussian_space(schema, self.length_scale)
            cost = chosen_cost(schema, Hinge(self.width), space, n, charge.epsilon)
        return SupportVectorMachine(**self.get_params() | {"C": cost if cost >= _SOLVED else 1.0})

    def notes(self, n: int) -> tuple[str, ...]:
        """C in both forms."""
        return (told(cost_of(self.C), n),)

    def predictions(self, schema: RecordSchema, n: int, ways: Sequence[Way]) -> tuple[str, ...]:
        """Predict the share of wrong classes of typical records, beside a constant's."""
        del n
        axes, classes = schema.domain.dimensions, len(schema.classes.categories)
        typical = TypicalClasses(axes, (), classes, logistic=False)
        if cost_of(self.C) > 1:
            space = gaussian_space(schema, self.length_scale)
            return minimizer_notes(typical, ways[0], space, Hinge(self.width), cost_of(self.C))
        shares = typical.shares
        weights = shares[:, 1:] - shares[:, :1] if classes == 2 else shares
        released, variance, plain = predicted_sums(typical, ways, weights)
        return typical.noted(released, variance[:, 0], plain)
