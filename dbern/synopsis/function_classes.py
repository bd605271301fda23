"""The classes of functions that a synopsis's certificate may speak of, as its metadata has them."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from dbern.bernstein.bias import approximation_of
from dbern.bernstein.gram_bias import GramBall
from dbern.bernstein.kernels import KERNELS
from dbern.synopsis.facts import (
    ABSENT,
    Count,
    Facts,
    Lattice,
    NotNegative,
    Orders,
    Positive,
    made,
    one_of,
    require,
)

_NARROWEST, _WIDEST = 9e-5, 1.1e4  # bandwidths, with room for roundings
_MOST_DERIVATIVES = 100


class _Bump(Facts):
    name: Annotated[str, AfterValidator(one_of(KERNELS))]
    bandwidth: Annotated[float, Field(ge=_NARROWEST, le=_WIDEST)]


class FunctionClass(Facts):
    """The class of functions of a certificate, whose constants `approximation_of` checks too."""

    @model_validator(mode="after")
    def _is_one(self) -> FunctionClass:
        found = made(approximation_of, self.model_dump(by_alias=True, exclude_unset=True))
        if isinstance(found, GramBall):
            require(math.isfinite(made(lambda: found.cube.largest)), "the kernel overflows")
        return self


class MixtureClass(FunctionClass):
    """Mixtures of kernel bumps."""

    name: Literal["mixture of bumps"] = Field(alias="class")
    kernels: list[_Bump]
    attained: bool = ABSENT


class LinearClass(FunctionClass):
    """Affine functions."""

    name: Literal["linear"] = Field(alias="class")


class HolderClass(FunctionClass):
    """Functions of a stated exponent."""

    name: Literal["holder"] = Field(alias="class")
    constant: Positive
    exponent: Positive


class SmoothClass(FunctionClass):
    """Functions with bounded derivatives."""

    name: Literal["smooth"] = Field(alias="class")
    order: Annotated[int, Field(ge=1, le=_MOST_DERIVATIVES)]
    bound: Positive


class _Polynomial(Facts):
    name: Literal["polynomial"]
    degree: Count
    scale: Positive
    constant: NotNegative


class _ArcCosine(Facts):
    name: Literal["arc-cosine"]
    constant: NotNegative


class BallClass(FunctionClass):
    """A ball of one of our kernels."""

    name: Literal["reproducing ball"] = Field(alias="class")
    kernel: Annotated[_Polynomial | _ArcCosine, Field(discriminator="name")]
    low: list[float]
    width: list[Positive]
    radius: NotNegative


class _Planned(Facts):
    k: Lattice
    h: Orders
    rank: Annotated[int, Field(ge=0)]
    error: NotNegative


class StatedClass(FunctionClass):
    """A ball of a user's kernel."""

    name: Literal["stated ball"] = Field(alias="class")
    size: NotNegative
    planned: _Planned
