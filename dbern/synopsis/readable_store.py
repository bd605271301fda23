"""``ReadableStore``: what a synopsis reads, of a store or of a window of a stream's stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from dbern.bernstein.blocks import Blocks
from dbern.privacy.budget import Budget
from dbern.synopsis.metadata import ReleaseMetadata
from dbern.types import FloatArray


class ReadableStore(Protocol):
    """Released numbers by their paths (FORMAT.md), and what is stated of them."""

    @property
    def location(self) -> object:
        """Where it is; its text is the URL."""

    @property
    def released(self) -> ReleaseMetadata:
        """Attributes of the root group, checked."""

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the root group that FORMAT.md names, as JSON values."""

    @property
    def guarantee(self) -> Budget:
        """Guarantee of the attributes."""

    def require(self, release_id: str) -> None:
        """Refuse another release than the given one."""

    def verify(self) -> int:
        """Check every object; return how many there are."""

    def array(self, path: str) -> tuple[Any, dict[str, Any]]:
        """Return a whole small array and its attributes."""

    def array_attributes(self, path: str) -> Mapping[str, Any]:
        """Return the attributes of an array."""

    def values(self, path: str) -> FloatArray:
        """Return an array of released numbers, in data units."""

    def blocks(self, path: str) -> Blocks:
        """Return the same in blocks that are read one by one."""
