"""Classes of functions that certificates are about, as plans and synopses store them.

A class is stored by its name and its public constants: `stored_class` makes these from the class
that a plan computes with, and `restore` makes that class again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from dbern.bernstein.kernels import ALL_KERNELS, KERNELS, Edges, Kernel, kernel_of
from dbern.bernstein.reproducing import ArcCosine, Polynomial
from dbern.certify.approximation import FunctionClass, Holder, KernelMixture, Linear, Smooth
from dbern.certify.balls import GramBall, StatedBall
from dbern.model.strict import (
    ABSENT,
    Count,
    NotNegative,
    Orders,
    Positive,
    Resolution,
    StrictModel,
    checked,
    or_value_error,
    require,
)
from dbern.reconstruct.gram import CubeKernel

_MIN_BANDWIDTH, _MAX_BANDWIDTH = 9e-5, 1.1e4  # with room for roundings
_MAX_ORDER = 100
_MAX_CHOICES = 10_000


class _FunctionClass(StrictModel):
    """A stored class of functions; its constants are fields of the `restored` class."""

    restored: ClassVar[type[Any]]
    reproducing: ClassVar[bool] = False
    """Whether the lattice may be released whole, through its kernel matrix."""
    separable: ClassVar[bool] = False
    """Whether each axis may be released in coordinates of its own."""

    @model_validator(mode="after")
    def _require_constants(self) -> Self:
        ball = or_value_error(self.restore)
        if isinstance(ball, GramBall):
            largest = or_value_error(lambda: ball.cube.largest)
            require(math.isfinite(largest), "the kernel overflows")
        return self

    @classmethod
    def constants(cls, functions: Any) -> dict[str, Any]:
        """Return the stored constants of a class of functions."""
        return {field.name: getattr(functions, field.name) for field in fields(functions)}

    def restore(self) -> FunctionClass:
        """Return the class of functions, which gives bounds."""
        constants = {key: getattr(self, key) for key in type(self).model_fields if key != "name"}
        function_class: FunctionClass = self.restored(**constants)
        return function_class

    def require_axes(self, axes: int) -> None:
        """Refuse constants of another number of axes."""


def _require_kernel(name: str) -> None:
    why = f"is none of {', '.join(KERNELS)}, and no installed package has it"
    require(name in ALL_KERNELS, why)


class _Kernel(StrictModel):
    name: Annotated[str, checked(_require_kernel)]
    bandwidth: Annotated[float, Field(ge=_MIN_BANDWIDTH, le=_MAX_BANDWIDTH)]
    edges: Literal["normalized", "periodic"] = ABSENT

    @classmethod
    def constants(cls, kernel: Kernel) -> dict[str, Any]:
        edges = {} if kernel.edges == "natural" else {"edges": kernel.edges}
        return {"name": kernel.name, "bandwidth": kernel.bandwidth, **edges}

    def restore(self) -> Kernel:
        edges: Edges | None = self.edges
        return kernel_of(self.name, self.bandwidth, edges or "natural")


def _mixture_name(*, chosen: bool, edges: bool) -> str:
    """Name a mixture so that older readers refuse one whose bands or values they would not have."""
    return "chosen " * chosen + "mixture of bumps" + " with edges" * edges


class _Mixture(_FunctionClass):
    """Mixtures of kernels, the narrowest candidates where the released values chose them."""

    restored: ClassVar[type[FunctionClass]] = KernelMixture
    separable: ClassVar[bool] = True
    name: Literal[
        "mixture of bumps",
        "chosen mixture of bumps",
        "mixture of bumps with edges",
        "chosen mixture of bumps with edges",
    ] = Field("mixture of bumps", alias="class")
    kernels: tuple[_Kernel, ...]
    choices: Annotated[int, Field(ge=2, le=_MAX_CHOICES)] = ABSENT
    attained: bool = ABSENT
    gap: Annotated[float, Field(gt=0, le=1)] = ABSENT

    @classmethod
    def constants(cls, functions: KernelMixture) -> dict[str, Any]:
        kernels = tuple(map(_Kernel.constants, functions.kernels))
        edges, chosen = any("edges" in kernel for kernel in kernels), functions.choices > 1
        name = _mixture_name(chosen=chosen, edges=edges)
        constants: dict[str, Any] = {"class": name, "kernels": kernels}
        if chosen:
            constants["choices"] = functions.choices
        gap = functions.gap
        return {**constants, "attained": False, "gap": gap} if gap else constants

    def restore(self) -> KernelMixture:
        kernels = tuple(kernel.restore() for kernel in self.kernels)
        return KernelMixture(kernels, self.gap or 0.0, self.choices or 1)

    def require_axes(self, axes: int) -> None:
        require(len(self.kernels) == axes, "approximation: one kernel an axis")
        edges, chosen = any(kernel.edges for kernel in self.kernels), self.choices is not None
        fits = self.name == _mixture_name(chosen=chosen, edges=edges)
        require(fits, "approximation: choices are of a chosen one, and edges of one with edges")


class _Linear(_FunctionClass):
    restored: ClassVar[type[FunctionClass]] = Linear
    name: Literal["linear"] = Field("linear", alias="class")


class _Holder(_FunctionClass):
    restored: ClassVar[type[FunctionClass]] = Holder
    name: Literal["holder"] = Field("holder", alias="class")
    constant: Positive
    exponent: Positive


class _Smooth(_FunctionClass):
    restored: ClassVar[type[FunctionClass]] = Smooth
    name: Literal["smooth"] = Field("smooth", alias="class")
    order: Annotated[int, Field(ge=1, le=_MAX_ORDER)]
    bound: Positive


class _PolynomialKernel(StrictModel):
    name: Literal["polynomial"]
    degree: Count
    scale: Positive
    constant: NotNegative

    def restore(self) -> Polynomial:
        return Polynomial(self.degree, self.scale, self.constant)


class _ArcCosineKernel(StrictModel):
    name: Literal["arc-cosine"]
    constant: NotNegative

    def restore(self) -> ArcCosine:
        return ArcCosine(self.constant)


class _Ball(_FunctionClass):
    """A ball of the Hilbert space of one of our kernels."""

    restored: ClassVar[type[FunctionClass]] = GramBall
    reproducing: ClassVar[bool] = True
    name: Literal["reproducing ball"] = Field("reproducing ball", alias="class")
    kernel: Annotated[_PolynomialKernel | _ArcCosineKernel, Field(discriminator="name")]
    low: tuple[float, ...]
    width: tuple[Positive, ...]
    radius: NotNegative

    @classmethod
    def constants(cls, functions: GramBall) -> dict[str, Any]:
        cube = functions.cube
        if not isinstance(cube.kernel, Polynomial | ArcCosine):
            raise NotImplementedError("a user's kernel is stored as a `StatedBall`")
        name = "polynomial" if isinstance(cube.kernel, Polynomial) else "arc-cosine"
        kernel = {"name": name, **asdict(cube.kernel)}
        sides = {"low": cube.low, "width": cube.width}
        return {"kernel": kernel, **sides, "radius": functions.radius}

    def restore(self) -> GramBall:
        return GramBall(CubeKernel(self.kernel.restore(), self.low, self.width), self.radius)

    def require_axes(self, axes: int) -> None:
        same = len(self.low) == len(self.width) == axes
        require(same, "approximation: low and width need one entry an axis")


class _Planned(StrictModel):
    k: Resolution
    h: Orders
    rank: Annotated[int, Field(ge=0)]
    error: NotNegative


class _StatedBall(_FunctionClass):
    """A ball of a user's kernel, which readers do not have: the constants that a plan computed."""

    restored: ClassVar[type[FunctionClass]] = StatedBall
    reproducing: ClassVar[bool] = True
    name: Literal["stated ball"] = Field("stated ball", alias="class")
    size: NotNegative
    planned: _Planned

    @classmethod
    def constants(cls, functions: StatedBall) -> dict[str, Any]:
        k, h, rank = functions.k, functions.h, functions.rank
        planned = {"k": k, "h": h, "rank": rank, "error": functions.planned}
        return {"size": functions.size, "planned": planned}

    def restore(self) -> StatedBall:
        planned = self.planned
        return StatedBall(self.size, planned.k, planned.h, planned.rank, planned.error)


StoredClass: TypeAlias = Annotated[
    _Mixture | _Linear | _Holder | _Smooth | _Ball | _StatedBall,
    Field(discriminator="name"),
]


def stored_class(function_class: FunctionClass) -> StoredClass:
    """Return a class of functions as plans and synopses store it."""
    models = _FunctionClass.__subclasses__()
    model = next(model for model in models if model.restored is type(function_class))
    stored = {"class": model.model_fields["name"].default, **model.constants(function_class)}
    return _Reader.ready().model_validate({"stored": stored}).stored


class _Reader(StrictModel):
    stored: StoredClass


def read_class(content: Mapping[str, Any]) -> StoredClass:
    """Read a class of functions that `to_json` wrote."""
    return _Reader.from_json({"stored": content}).stored
