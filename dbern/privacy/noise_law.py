"""The interface of a law that noise is drawn of."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import Field
from fractions import Fraction
from typing import Any, ClassVar, Protocol

from dbern.privacy.keystream import KeyStream
from dbern.privacy.laplace import SignedNoise


class NoiseLaw(Hashable, Protocol):
    """An integer law, calibrated: a frozen dataclass of integers and its `kind`.

    Plans and stores hold its fields by name, and the noise's key is bound to them, so neither
    names nor their order change. No two laws have the same `kind` or `stream_label`, which
    separates key streams; a change of what `draw` returns is a new label.

    How large its noise is, in floats, is an `ErrorLaw` (`dbern.privacy.error_law`).
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    stream_label: ClassVar[str]

    @property
    def kind(self) -> str:
        """Name of the law in plans and stores: the default of a field."""

    @property
    def granularity_exponent(self) -> int:
        """Exponent of the power of two that one granule is, of the target's unit."""

    @property
    def scale(self) -> int:
        """Scale that the noise is in proportion to, in granules."""

    @property
    def values(self) -> float:
        """Number of values of one joint draw; infinity where values are independent."""

    @property
    def sensitivity_in_granules(self) -> float:
        """Distance of neighbouring centers that the scale is for, in the norm of its family."""

    @property
    def rho(self) -> Fraction | None:
        """The exact zCDP guarantee; None where the law is calibrated to another one."""

    def draw(self, count: int, stream: KeyStream) -> SignedNoise:
        """The first `count` samples of a fresh stream, exactly, by integer arithmetic."""
