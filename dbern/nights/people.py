"""In which nights of a stream a unit counts: in at most q, where it enforces `max_nights = q`.

For each night whose rows are read there is a *block*, the units that count in it: staged,
encrypted, under the key of the stream's own charge, before anything is counted. Blocks are numbered
in the order in which they are written, and a number is taken once. They are a chain: each has the
keyed digest of the one before it, so before a block there are those that its writer read, and no
others.

*No unit is in more than q blocks of a chain*, in whatever order nights come, at once, or again
after a crash. Whoever writes block k has read all blocks before it, for where another process took
k meanwhile it reads again; of its night's units it takes those that are in fewer than q. So a unit
that is in q blocks is in no later one. Equal ids are equal in all blocks: those of every night have
the type of the first night's. A row counts only where its unit is in its night's block
(`Bounding.admitted`): a night that is run again finds its block and counts by that, and one that is
abandoned keeps it.

*No unit counts in more than q nights that are published*, wherever processes keep their blocks, and
whatever was lost, put back or brought together of them. A night's seal has the digest of the block
that it was counted by, and is in the ledger before its noise is drawn; in between, every night that
was sealed must have that very block here. Of the nights that are published and count a unit, take
the one that was sealed last: whoever drew its noise found the blocks of all of them in one chain,
and there are at most q with the unit. A digest is of the block as it was written, whose nonce no
other has: which nights are refused depends on what was written where, and on no record.

*Whether a unit is in a block depends on its own rows alone*, and on the order of the nights. So a
unit that is added moves what its own rows move, in at most q nights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import NamedTuple, cast

import numpy as np

from dbern.data.footers import Footer
from dbern.data.parquet import read_batches
from dbern.errors import IntegrityError, SpecError
from dbern.ledger import BudgetLedger, Reservation, Staging
from dbern.ledger.entries import DIGEST_BYTES
from dbern.measure.counters import Counters
from dbern.measure.unit_bounding import is_among
from dbern.nights.frozen_files import charge_of, require_frozen, sealed_nights
from dbern.nights.horizon import StreamNode
from dbern.planning.spec import ReleaseSpec
from dbern.types import ComplexArray, FloatArray

_BLOCKS = "units"
_FIRST = bytes(DIGEST_BYTES)  # of a chain: there is no block before it
_WORDS = DIGEST_BYTES // 8


class _Block(NamedTuple):
    night: int
    units: ComplexArray
    digest: bytes


def form_of_ids(files: Sequence[Footer], column: str) -> str:
    """Return the form in which ids of the first night, and of all later ones, are compared.

    Raises SpecError where no file has one, before the stream is charged: no later night could be
    compared with it.
    """
    form = max(file.ids for file in files)
    if not form:
        raise SpecError(
            f"data.unit: {column} has no type in the first night, as a program writes it where all "
            "ids are missing. Write it as numbers or text, or begin the stream with another night"
        )
    return form


def require_same_ids(
    ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode, files: Sequence[Footer]
) -> None:
    """Refuse ids of another type than the first night's: one unit would be two.

    Raises SpecError, before anything is reserved.
    """
    first = charge_of(ledger, spec, node).content.inputs.get("ids")
    for file in files:
        if file.ids and file.ids != first:
            raise SpecError(
                f"data.unit: ids are {file.ids} in {file.path} and {first or 'of no type'} in the "
                f"first night of stream {node.stream}, and one unit could be two. Convert them to "
                "one type"
            )


def admit_units(
    ledger: BudgetLedger,
    spec: ReleaseSpec,
    reservation: Reservation,
    counters: Counters,
    files: Sequence[Footer],
) -> _Block:
    """Return the block of a night, durably written: the units that count in it.

    Raises IntegrityError where blocks are damaged or lost: nobody knows then who counted how often.
    """
    node = cast(StreamNode, spec.stream_node)
    units = counters.units(_batches(counters, files))
    require_frozen(ledger, spec, reservation)
    with _blocks_of(ledger, spec, node) as (staging, sealed):
        return _admitted(units, node.span.start, spec.stream_section.max_nights, staging, sealed)


def require_blocks(ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode) -> None:
    """Refuse to publish unless every sealed night's block, by which it was counted, is here.

    Raises IntegrityError: blocks were lost, or written elsewhere, while a night was counted.
    """
    with _blocks_of(ledger, spec, node) as (staging, sealed):
        for _block in _blocks(staging, sealed):
            pass


def _admitted(
    units: ComplexArray, night: int, limit: int, staging: Staging, sealed: Set[tuple[int, bytes]]
) -> _Block:
    """Return a night's block; write it, of those of its units that are in fewer than `limit`.

    What was written is read again: where another night's block came first, that is counted too.
    """
    while True:
        mine, times, count, before = None, np.zeros(len(units), np.int64), 0, _FIRST
        for block in _blocks(staging, sealed):
            mine = block if block.night == night else mine
            times += is_among(units, block.units)
            count, before = count + 1, block.digest
        if mine is not None:
            return mine
        head = np.array([night]), np.frombuffer(before, np.int64)
        admitted = units[times < limit].view(np.int64)
        staging.put_new(_BLOCKS, count, np.concatenate([*head, admitted]))


def _batches(counters: Counters, files: Sequence[Footer]) -> Iterator[dict[str, FloatArray]]:
    for file in files:
        groups = range(len(file.row_groups))
        yield from read_batches(file.path, groups, counters.columns, counters.filter)


@contextmanager
def _blocks_of(
    ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode
) -> Iterator[tuple[Staging, set[tuple[int, bytes]]]]:
    """Open a stream's blocks, with the digests of those by which sealed nights were counted.

    Says how to end the stream if they are lost.
    """
    paid = charge_of(ledger, spec, node)
    nights, seals = sealed_nights(ledger, spec, node), ledger.seals(spec.budget.dataset)
    # Of a night that the ledger forgot there is no seal, and no block has an empty digest.
    sealed = {(night, seals.get(name, b"")[DIGEST_BYTES:]) for name, night in nights.items()}
    staging = ledger.staging(paid)
    try:
        yield staging, sealed
    except IntegrityError as error:
        raise IntegrityError(
            f"stream {node.stream}: what it keeps of whose rows counted in which night is damaged. "
            f"{error} Without it no night can be released: bring it back, or end the stream, whose "
            f"charge stands: {paid.abandon_command(ledger.url)}"
        ) from None


def _blocks(staging: Staging, sealed: Set[tuple[int, bytes]]) -> Iterator[_Block]:
    """Yield the blocks of a chain, one at a time; those of `sealed` nights are among them."""
    seen, before = set(), _FIRST
    for number in range(1 + max(staging.blocks(_BLOCKS), default=-1)):
        values, digest = staging.get_digested(_BLOCKS, number)
        if values[1 : 1 + _WORDS].tobytes() != before:
            raise IntegrityError(f"Block {number} was written behind another than the one here.")
        block = _Block(int(values[0]), values[1 + _WORDS :].view(np.complex128), digest)
        seen.add((block.night, digest))
        before = digest
        yield block
    if not sealed <= seen:
        raise IntegrityError(f"The blocks of {len(sealed - seen)} nights are missing.")
