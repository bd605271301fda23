"""The attributes of a synopsis's root as one checked whole; FORMAT.md says what each key means."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dbern.bernstein.gram import MOST_POINTS
from dbern.synopsis import facts as of
from dbern.synopsis import function_classes as classes
from dbern.synopsis.facts import Facts, Text, checked, require

MOST_COEFFICIENTS = 1_000_000_000
"""Most values of one lattice, and of one vector."""

_MOST_LATTICE_AXES = 6
_LEAST_EPSILON, _MOST_EPSILON = 1e-9, 1e12
_LEARNED = ("linear", "sigmoid", "response", "stack", "one-vs-rest")  # of linear functions

_Class = Annotated[
    classes.MixtureClass
    | classes.LinearClass
    | classes.HolderClass
    | classes.SmoothClass
    | classes.BallClass
    | classes.StatedClass,
    Field(discriminator="name"),
]


class Component(Facts):
    """One lattice, or one vector, and its noise law, for one or more arrays."""

    arrays: Annotated[list[of.Name], Field(min_length=1)]
    axes: list[Text]
    share: of.Share
    value_unit: of.Positive
    spectral: Literal["lattice"] = of.ABSENT
    k: of.Lattice = of.ABSENT
    h: of.Orders = of.ABSENT
    oblique: of.ObliqueFacts = of.ABSENT
    entries: Annotated[list[Text], Field(min_length=1)] = of.ABSENT
    features: of.FeaturesFacts = of.ABSENT
    additive: bool = of.ABSENT
    sensitivity: of.SensitivityFacts
    noise: of.NoiseFacts
    certificate: of.CertificateFacts
    approximation: _Class = of.ABSENT
    errors: of.ErrorsFacts

    @model_validator(mode="after")
    def _is_one(self) -> Component:
        if self.vector:
            of_lattices = ("k", "h", "approximation", "oblique", "spectral")
            apart = not self.axes and not any(map(self.states, of_lattices))
            require(apart, "a vector has no lattice")
            require(not self.family, "a vector has no coordinates")
        else:
            needed = all(map(self.states, ("k", "h", "approximation")))
            require(needed, "needs k, h and approximation, or entries")
            self._require_lattice()
        return self

    def _require_lattice(self) -> None:
        axes = len(self.axes)
        require(len(self.k) == len(self.h) == axes, "k and h need one entry for each of axes")
        require(axes <= _MOST_LATTICE_AXES, f"axes: a lattice has at most {_MOST_LATTICE_AXES}")
        require(self.size <= MOST_COEFFICIENTS, f"k: more than {MOST_COEFFICIENTS} coefficients")
        require(
            not self.states("oblique") or len(self.oblique.rows) == axes, "oblique: one row an axis"
        )
        whole = self.states("spectral")
        require(not whole or self.family == "spectral", "spectral: the noise is of another kind")
        require(not whole or self.size <= MOST_POINTS, f"k: more than {MOST_POINTS} points")
        kind = self.approximation
        if isinstance(kind, classes.MixtureClass):
            require(len(kind.kernels) == axes, "approximation: one kernel an axis")
        elif isinstance(kind, classes.BallClass):
            both = len(kind.low) == len(kind.width) == axes
            require(both, "approximation: low and width need one entry an axis")
        ball = isinstance(kind, classes.BallClass | classes.StatedClass)
        fits = ball if whole else isinstance(kind, classes.MixtureClass) or not self.family
        require(fits, "approximation: does not fit the noise")

    @property
    def vector(self) -> bool:
        """Whether it is so many numbers, and no function."""
        return self.states("entries")

    @property
    def family(self) -> str:
        """What carries the noise: "spectral", "binned", or "" where that is what is stored."""
        family = self.noise.kind.partition("-")[0]
        return family if family in ("spectral", "binned") else ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the coefficients."""
        return (len(self.entries),) if self.vector else tuple(k + 1 for k in self.k)

    @property
    def size(self) -> int:
        """How many coefficients there are."""
        return math.prod(self.shape)


class Released(Facts):
    """The attributes of the root."""

    format: Literal["dbern-synopsis"]
    format_version: Literal[1]
    dbern_version: Text
    release_id: Text
    name: Text
    created: Text
    dataset: Text = of.ABSENT
    ledger_id: Text = of.ABSENT
    combine: of.CombineFacts
    domain: of.DomainFacts
    target: of.TargetFacts
    components: Annotated[list[Component], Field(min_length=1)]
    epsilon: of.Share
    delta: of.Exact
    rho: of.Share | None = of.ABSENT
    neighbors: Literal["replace-one", "add-or-remove-one"]
    unit: Text
    random_dp: of.RandomFacts = of.ABSENT
    certificate: of.CertificateFacts
    post_processing: Literal["never stored"] = of.ABSENT  # readers say what they did, no store

    @model_validator(mode="after")
    def _is_one(self) -> Released:
        epsilon, delta = of.number(self.epsilon), of.number(self.delta)
        within = _LEAST_EPSILON <= epsilon <= _MOST_EPSILON
        require(within, f"epsilon: not from {_LEAST_EPSILON:g} to {_MOST_EPSILON:g}")
        require(0 <= delta < 1, "delta: not from 0 to below 1")
        names = [name for one in self.components for name in one.arrays]
        require(len(set(names)) == len(names), "components: an array is there twice")
        domain = [axis.name for axis in self.domain.axes]
        for one in self.components:
            known = len(set(one.axes)) == len(one.axes) and set(one.axes) <= set(domain)
            require(known, "components: axes that are none of the domain's, or twice")
        self._require_parts(domain)
        return self

    def _require_parts(self, domain: list[str]) -> None:
        """What `combine` makes the function of has to be there: so many functions and vectors."""
        combine, parts = self.combine, [one for one in self.components for _ in one.arrays]
        functions = sum(not one.vector for one in parts)
        vector = parts[-1].size if parts[-1].vector and functions == len(parts) - 1 else 0
        axes, labels = len(domain), len(combine.classes or ())
        if combine.bayes:
            fits = len(combine.peaks or ()) == len(combine.floors or ()) == axes
            if combine.kind == "naive-bayes":
                fits &= (functions, vector) == (axes * labels, labels)
                own = [[name] for name in domain for _ in range(labels)]
                fits &= [one.axes for one in parts[:-1]] == own
            else:
                fits &= (functions, vector) == (0, labels * (1 + 2 * axes))
        elif combine.states("constant"):
            columns = labels if combine.kind in ("stack", "one-vs-rest") else 1
            weights = columns * (axes + (combine.constant > 0))
            fits = combine.kind in _LEARNED and (functions, vector) == (0, weights)
        elif combine.kind in ("stack", "one-vs-rest", "ratio"):
            columns = 2 if combine.kind == "ratio" else labels
            fits = functions == len(parts) == columns
        else:
            fits = not parts[0].vector
        require(fits, f"combine: {combine.kind} is not made of such components")
        for one in parts:
            if one.states("features"):
                constant = (one.features.axes, one.features.constant)
                require(constant == (axes, combine.constant), "features: are not those of combine")


class _Root(Facts):
    """``zarr.json`` of the root group."""

    zarr_format: Literal[3]
    node_type: Literal["group"]
    attributes: Released


def released_of(text: bytes, where: str, name: str) -> Released:
    """The attributes of the root group.

    Parameters
    ----------
    text : bytes
        Of its ``zarr.json``.
    where, name : str
        The store and the object, for errors.

    Raises
    ------
    IntegrityError
        For anything but what FORMAT.md describes.
    """
    return checked(_Root, text, where, name).attributes


def as_dict(released: Released) -> dict[str, Any]:
    """The attributes as plain values, those that the store states and no others."""
    return released.model_dump(by_alias=True, exclude_unset=True)


def lattices(released: Released) -> Iterator[tuple[str, Component]]:
    """Each released array's group below the root, and its component."""
    for one in released.components:
        for name in one.arrays:
            yield f"components/{name}", one
