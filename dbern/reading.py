"""What a task reads: the batches of some portions of files, which must be what was reserved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dbern.arrays import FloatArray
from dbern.components.counting import Counters, StoppedError
from dbern.records import footer_tag, read_batches


@dataclass(frozen=True)
class Portion:
    """Some row groups of one file, and the keyed tag that the file's footer must still have."""

    path: str
    tag: str = field(repr=False)
    row_groups: tuple[int, ...]
    rows: int


@dataclass
class Reading:
    """The batches of some portions, anew each time; where it is, and how many rows it read."""

    portions: Sequence[Portion]
    counters: Counters
    salt: bytes = field(repr=False)
    place: str = ""
    rows: int = 0

    def __iter__(self) -> Iterator[dict[str, FloatArray]]:
        self.rows = 0
        for portion in self.portions:
            self.place = portion.path
            groups, counters = portion.row_groups, self.counters
            for batch in read_batches(self.place, groups, counters.columns, counters.filter):
                yield batch
                self.rows += len(next(iter(batch.values())))
            if footer_tag(self.place, self.salt) != portion.tag:
                raise StoppedError("changed", self.place)
