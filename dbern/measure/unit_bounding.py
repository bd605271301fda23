"""Choice of at most u rows of each unit to count.

Kept are the u rows of a unit with the smallest keyed hashes of unit and row. So what is kept of a
unit depends on its own rows and a private salt alone, not on their order, on files or workers, or
on other units: a unit that changes, changes at most u rows of its own, before and after. Equal
rows have equal hashes and are kept as often as they are there, up to u in all. Ids are two floats
each (`dbern.data.columns`), so that no two units are one: where they share u rows, one that leaves
makes room for rows of the other, and up to 2u counted rows change. Numbers are exact up to 106
bits; longer ones and text are 106 bits of a hash: 2^106 trials to find an id that meets a given
one.

A pass keeps the units of one bucket, a keyed hash of their ids, so no more rows are in memory than
a share of them; nothing is written to disk. A row without an id, or outside the box, is the null
record and takes no other row's place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from dbern.data.domain import Column, Domain
from dbern.data.parquet import BATCH_ROWS
from dbern.privacy.budget import PrivacyUnit
from dbern.privacy.keystream import content_buckets, content_words
from dbern.types import BoolArray, ComplexArray, FloatArray, Int64Array, UInt64Array

_COPIES = 5  # of the rows of a pass: gathered, joined, sorted, their hashes and their order


@dataclass(frozen=True)
class Bounding:
    """Choose at most `unit.max_contributions` rows of each unit to count.

    `column` has the units' ids; a row must be valid in the axes of `validity_domain` and consists
    of the columns `content`. `rows`, the public normalizer, is about how many rows there are. A
    pass keeps units of the buckets b with ``b mod passes`` its index. Where some are `admitted`
    (of `distinct_units`), rows of others are left out.
    """

    column: Column
    unit: PrivacyUnit
    validity_domain: Domain
    content: tuple[Column, ...]
    rows: int
    buckets: int
    passes: int
    admitted: ComplexArray | None = field(default=None, repr=False, compare=False)

    @property
    def gathered_bytes(self) -> int:
        """Memory of one pass over as many rows as the normalizer, with room for an uneven one.

        Units of many rows make passes uneven before their rows are bounded.
        """
        width, pass_rows = len(self.content) + 3, 2 * -(-self.rows // self.passes)
        ids = 0 if self.admitted is None else 16 * _COPIES * self.rows
        return ids + 8 * width * (_COPIES * min(self.rows, pass_rows) + 4 * BATCH_ROWS)

    def valid_rows(self, batch: Mapping[str, FloatArray]) -> tuple[FloatArray, BoolArray]:
        """Return ids (m, e) and which rows may count: others are the missing record of any sum."""
        ids = np.atleast_2d(batch[self.column.name].T).T
        return ids, self.validity_domain.bounded(batch)[0] & ~np.isnan(ids).any(axis=1)

    def bound_batches(
        self, batches: Iterable[Mapping[str, FloatArray]], salt: bytes, index: int
    ) -> Iterator[dict[str, FloatArray]]:
        """Yield batches of the rows that one pass keeps, once all records were seen."""
        selection = _SmallestHashes(self.unit.max_contributions, salt)
        for batch in batches:
            ids, counts = self.valid_rows(batch)
            if self.admitted is not None:
                counts[counts] = is_among(_pairs(ids[counts]), self.admitted)
            buckets = content_buckets(ids[counts], salt, self.buckets)
            counts[counts] = buckets % self.passes == index
            selection.add(
                ids[counts], np.column_stack([batch[c.name][counts] for c in self.content])
            )
        ids, rows = selection.finish()
        for start in range(0, len(rows), BATCH_ROWS):
            block = slice(start, start + BATCH_ROWS)
            named = {c.name: rows[block, i].copy() for i, c in enumerate(self.content)}
            yield {**named, self.column.name: ids[block]}


def distinct_units(ids: Iterable[FloatArray]) -> ComplexArray:
    """Return the distinct units of ids (m, 2), sorted: of each its two floats as one number."""
    pairs = [np.zeros(0, np.complex128), *(np.unique(_pairs(some)) for some in ids)]
    return np.unique(np.concatenate(pairs))


def is_among(units: ComplexArray, listed: ComplexArray) -> BoolArray:
    """Return which units are listed, in an order that is sorted."""
    if not len(listed):
        return np.zeros(len(units), bool)
    positions = np.minimum(np.searchsorted(listed, units), len(listed) - 1)
    return np.asarray(listed[positions] == units)


def _pairs(ids: FloatArray) -> ComplexArray:
    return np.ascontiguousarray(ids + 0.0).view(np.complex128)[:, 0]  # of two zeros one


@dataclass
class _SmallestHashes:
    """Rows of one pass: those with the smallest hashes of each unit, so far."""

    max_rows: int
    salt: bytes = field(repr=False)
    _ids: list[FloatArray] = field(default_factory=list, repr=False)
    _rows: list[FloatArray] = field(default_factory=list, repr=False)
    _waiting: int = 0

    def add(self, ids: FloatArray, rows: FloatArray) -> None:
        """Merge rows (m, d) of units (m, e) in."""
        # Adding 0.0 makes one zero of two, here as in the hash.
        self._ids.append(ids + 0.0)
        self._rows.append(rows + 0.0)
        self._waiting += len(ids)
        if self._waiting > max(2 * BATCH_ROWS, len(self._ids[0])):
            self._merge()

    def _merge(self) -> None:
        ids, rows = np.concatenate(self._ids), np.concatenate(self._rows)
        hashes = content_words(np.column_stack([ids, rows]), self.salt)
        chosen = _smallest(ids, hashes, rows, self.max_rows)
        self._ids, self._rows, self._waiting = [ids[chosen]], [rows[chosen]], 0

    def finish(self) -> tuple[FloatArray, FloatArray]:
        """Units (m, e) and rows (m, d), sorted by unit."""
        if not self._ids:
            return np.zeros((0, 2)), np.zeros((0, 0))
        self._merge()
        return self._ids[0], self._rows[0]


def _smallest(ids: FloatArray, hashes: UInt64Array, rows: FloatArray, most: int) -> Int64Array:
    """Indices of the `most` rows of each unit with the smallest hashes; of one hash, by content."""
    order = np.lexsort((*rows.T, hashes, *ids.T))
    ids = ids[order]
    differs = (ids[1:] != ids[:-1]).any(axis=1)
    first = np.flatnonzero(np.concatenate([np.ones(min(1, len(ids)), bool), differs]))
    rank = np.arange(len(ids)) - np.repeat(first, np.diff(np.append(first, len(ids))))
    return np.asarray(order[rank < most])
