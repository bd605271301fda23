"""Released arrays block by block, as their store has them."""

from __future__ import annotations

from dataclasses import dataclass

from dbern.bernstein.blocks import Blocks
from dbern.synopsis.store import ReleasedStore
from dbern.types import FloatArray


@dataclass(frozen=True)
class StoredBlocks(Blocks):
    """The array at a path of a store, a shard a block."""

    store: ReleasedStore
    path: str

    def read(self, index: int) -> FloatArray:
        """Read a shard."""
        return self.store.shard(self.path, index)
