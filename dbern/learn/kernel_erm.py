"""Regularized risk minimization with kernels and convex losses, built in or the user's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field

from dbern.bernstein.reproducing import ArcCosine, Linear, Polynomial
from dbern.combination.base import Combination
from dbern.data.domain import Domain, RecordSchema
from dbern.erm.gaussian_features import GaussianFeatures
from dbern.erm.losses import (
    ALL_LOSSES,
    LOSSES,
    Loss,
    NamedLoss,
    StatedLengths,
    UserLoss,
    imported,
    parameters_of,
)
from dbern.erm.spaces import STATIONARY, GramKernel, LinearFeatures, UserKernel
from dbern.errors import SpecError
from dbern.learn.linear_functions import (
    build_linear_functions,
    released_method,
)
from dbern.learn.minimizers import (
    AUTO,
    CONSTANT,
    METHOD,
    METHODS,
    SHARDS,
    Cost,
    Method,
    Shards,
    build_minimizer,
    choose_cost,
    combine_classes,
    combine_responses,
    cost_text,
    gaussian_space,
    stated_cost,
)
from dbern.learn.predictions import minimizer_notes, predicted_weights, typical_records
from dbern.measure.statistic import Statistic
from dbern.privacy.budget import Budget
from dbern.system import source_digest
from dbern.targets.bandwidths import axis_kernels
from dbern.targets.learner import DesignedStatistic, Learner, Lengths, Positive, response_of
from dbern.targets.parameters import USERS_OWN, quote_choices, refuse_unused
from dbern.targets.predicted_functions import deviation_of
from dbern.targets.typical import LARGE_CLASS

_SCALED = ("gaussian", *STATIONARY)
_KERNELS = {
    **dict.fromkeys(_SCALED, ("length_scale",)),
    "polynomial": ("degree", "constant"),
    "arc-cosine": ("constant",),
    "linear": ("constant",),
    USERS_OWN: ("kernel_bound", "kernel_lipschitz", "kernel_curvature"),
}
"""The parameters that each kernel uses."""
_USERS_LOSS_PARAMETERS = ("lipschitz", "at_zero", "curvature", "width")
_DEGREE = 3
_LESS_NOISE = 'of several classes kind = "support-vector-machine" has less noise: plan it'
_MIN_LENGTH, _MAX_LENGTH = 1e-3, 1e3  # of what is predicted


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

    loss: str = Field(description=f"loss = {quote_choices([*LOSSES, USERS_OWN])}")
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

    def components(self, schema: RecordSchema) -> tuple[Statistic, ...]:
        """One, of as many outputs as there are models."""
        losses = {name: parameters_of(loss) for name, loss in LOSSES.items()}
        losses[USERS_OWN] = _USERS_LOSS_PARAMETERS
        if self._named_loss:
            losses[self.loss] = parameters_of(self._named_loss)
        refuse_unused(self, loss=losses, kernel=_KERNELS, method=METHODS)
        loss = self._loss(schema)
        space = self._space(schema)
        if self._has_both_methods:
            parameters = self.method, self.C, self.constant, self.shards
            return (build_linear_functions(schema, loss, *parameters),)
        if self.method == "objective" or schema.domain.categorical:
            key = "target.method" if self.method == "objective" else "data.bounds"
            perturbable = [name for name, loss in LOSSES.items() if loss.perturbable]
            raise SpecError(
                f'{key}: an objective, and lists of values, are for kernel = "linear" with loss = '
                f'{quote_choices(perturbable)}. Write these, or method = "auto" and numbers.'
            )
        minimizer = build_minimizer(schema, loss, space, stated_cost(self.C), self.shards)
        return (replace(minimizer, sources=self._sources()),)

    @property
    def _has_both_methods(self) -> bool:
        """Whether both methods can release it: the proof of an objective is of our losses alone."""
        ours = LOSSES.get(self.loss)
        return ours is not None and ours.perturbable and self.kernel == "linear"

    @property
    def _named_loss(self) -> type[NamedLoss] | None:
        """The loss, ours or of an installed package; None for a user's own or an unknown one."""
        known = ":" not in self.loss and self.loss in ALL_LOSSES
        return ALL_LOSSES.get(self.loss, "target.loss") if known else None

    def for_rows(self, schema: RecordSchema, n: int, charge: Budget) -> KernelERM:
        """Return it with its C."""
        if self.C != "auto" or self._has_both_methods:
            return self
        loss, space = self._loss(schema), self._space(schema)
        cost = choose_cost(schema, loss, space, n, charge.epsilon)
        return KernelERM(**self.get_params() | {"C": cost})

    def taken(self, counting: Mapping[str, Any]) -> dict[str, Any]:
        """Return the method, where there is a choice."""
        return released_method(counting) if self._has_both_methods else {}

    def identity(self) -> dict[str, Any]:
        """Digests of the modules of a user's kernel and loss."""
        digests = ((key.rpartition(".")[2], digest) for key, _, digest in self._sources())
        return {f"{role}_sha256": digest for role, digest in digests}

    def packages(self) -> dict[str, str]:
        """Return the package of a loss that is not ours."""
        package = "" if ":" in self.loss else ALL_LOSSES.origin(self.loss)
        return {"loss": package} if package else {}

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
        combine = combine_responses if schema.response else combine_classes
        return combine(schema, constant)

    def predictions(
        self, schema: RecordSchema, n: int, designs: Sequence[DesignedStatistic]
    ) -> tuple[str, ...]:
        """Predict the risk on typical records, beside a constant's, where the loss has one."""
        del n
        loss = self._loss(schema)
        if self._has_both_methods or not loss.typical_risk:
            return ()
        space, typical = self._space(schema), typical_records(schema, loss)
        if isinstance(space, LinearFeatures):
            noise = deviation_of(designs[0].law)
            return typical.note(
                *predicted_weights(typical, space, loss, stated_cost(self.C), noise)
            )
        notes = minimizer_notes(typical, designs[0], space, loss, stated_cost(self.C))
        several = self.kernel == "gaussian" and not schema.response and typical.models > 1
        poor = any(note.startswith(LARGE_CLASS) for note in notes)
        return (*notes, *[_LESS_NOISE] * (several and poor))

    def notes(self, n: int) -> tuple[str, ...]:
        """C in both forms, and the functions whose properties the user declares."""
        both = (("kernel", self.kernel), ("loss", self.loss))
        declared = [f'{key} = "{name}"' for key, name in both if ":" in name]
        promise = f"as stated, not checked, and privacy rests on it: {', '.join(declared)}"
        unresolved = self._has_both_methods and self.C == "auto"
        return (
            *(() if unresolved else (cost_text(stated_cost(self.C), n),)),
            *([promise] if declared else []),
        )

    def _space(self, schema: RecordSchema) -> GaussianFeatures | GramKernel | LinearFeatures:
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
            return self._users_kernel(domain)
        if self.kernel == "linear":
            return LinearFeatures(domain.dimensions, Linear(self.constant))
        if self.kernel not in _KERNELS:
            raise SpecError(f'target.kernel: "{self.kernel}" is unknown. Write {_listed(_KERNELS)}')
        axes = domain.dimensions
        kernel = (
            ArcCosine(self.constant)
            if self.kernel == "arc-cosine"
            else Polynomial(self.degree or _DEGREE, math.sqrt(axes), self.constant)
        )
        return GramKernel(kernel, low=(-1.0,) * axes, width=(2.0,) * axes)

    def _users_kernel(self, domain: Domain) -> GramKernel:
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
            return self._users_loss(schema)
        named = self._named_loss
        if named is None:
            known = (*ALL_LOSSES.names(), USERS_OWN)
            raise SpecError(f'target.loss: "{self.loss}" is unknown. Write {_listed(known)}')
        if named.of_classes and schema.response is not None:
            raise SpecError(f'data.response: loss = "{self.loss}" is for classes. Leave it out.')
        if not named.of_classes and schema.label is not None:
            raise SpecError(f'data.label: loss = "{self.loss}" is for a response. Leave it out.')
        bound = 1.0 if named.of_classes else response_of(schema).radius
        by_weights = self.method == "weights" or (self.method == "auto" and self.C != "auto")
        smooth = self._has_both_methods and not by_weights
        return named.stated(StatedLengths(bound, self.width, self.tube, self.threshold, smooth))

    def _refuse_lengths(self, scale: float) -> None:
        """Refuse what is far from the scale of predictions: the solver's steps grow with it."""
        for name in ("width", "tube", "threshold"):
            if not _MIN_LENGTH * scale <= (getattr(self, name) or scale) <= _MAX_LENGTH * scale:
                raise SpecError(
                    f"target.{name}: must be from {_MIN_LENGTH:g} to {_MAX_LENGTH:g} times what is "
                    f"predicted, {scale:g}. Write {name} = {StatedLengths(scale).rounding:g}"
                )

    def _users_loss(self, schema: RecordSchema) -> UserLoss:
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
            StatedLengths(bound, self.width).rounding,
            lipschitz=self.lipschitz,
            at_zero=self.at_zero,
            curvature=self.curvature or math.inf,
            bound=bound,
        )


def _listed(names: Iterable[str]) -> str:
    return "one of " + ", ".join(f'"{name}"' for name in names)
