"""In which nights of a stream a unit counts: in at most q, where it enforces `max_nights = q`.

For each night whose rows are read there is a *block*, the units that count in it: staged,
encrypted, under the key of the stream's own charge, before anything is counted. Blocks are numbered
in the order in which they are written, and a number is taken once.

*No unit is in more than q blocks*, in whatever order nights come, at once, or again after a crash.
Whoever writes block k has read all blocks before it, for where another process took k meanwhile it
reads again; of its night's units it takes those that are in fewer than q. So a unit that is in q
blocks is in no later one. Equal ids are equal in all blocks: those of every night have the type of
the first night's. A row counts only where its unit is in its night's block (`Bounding.admitted`): a
night that is run again finds its block and counts by that, and one that is abandoned keeps it.

*What is published was counted by these blocks.* A night's seal is in the ledger before its noise
is drawn, and in between every sealed night must have its block here. So of two nights whose
blocks are in different places, two machines' or a lost one and its successor, the later is refused.

*Whether a unit is in a block depends on its own rows alone*, and on the order of the nights. So a
unit that is added moves what its own rows move, in at most q nights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import cast

import numpy as np

from dbern.data.footers import FileFacts
from dbern.data.horizon import StreamNode
from dbern.data.parquet import read_batches
from dbern.errors import IntegrityError, SpecError
from dbern.ledger import BudgetLedger, Reservation, Staging, State
from dbern.measure.counters import Counters
from dbern.measure.unit_bounding import is_among
from dbern.planning.spec import ReleaseSpec
from dbern.releasing.nodes import charge_of, require_frozen
from dbern.types import ComplexArray, FloatArray

_BLOCKS = "units"
_SEALED = (State.SPENT, State.COMMITTED, "reconciled")  # in the log


def require_same_ids(
    ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode, files: Sequence[FileFacts]
) -> None:
    """Refuse ids of another type than the first night's: one unit would be two.

    Raises SpecError, before anything is reserved.
    """
    first = charge_of(ledger, spec, node).content.inputs.get("ids")
    for file in files:
        if file.ids and file.ids != first:
            raise SpecError(
                f"data.unit: ids are {file.ids} in {file.path} and {first} in the first night of "
                f"stream {node.stream}, and one unit could be two. Convert them to one type"
            )


def admit_units(
    ledger: BudgetLedger,
    spec: ReleaseSpec,
    reservation: Reservation,
    counters: Counters,
    files: Sequence[FileFacts],
) -> ComplexArray:
    """Return the units that count in a night, durably in its block.

    Raises IntegrityError where blocks are damaged or lost: nobody knows then who counted how often.
    """
    node = cast(StreamNode, spec.stream_node)
    units = counters.units(_batches(counters, files))
    require_frozen(ledger, spec, reservation)
    with _blocks_of(ledger, spec, node) as (staging, sealed):
        return _admitted(units, node.span.start, spec.stream_section.max_nights, staging, sealed)


def require_blocks(ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode) -> None:
    """Refuse to publish unless every night that was sealed has its block here.

    Raises IntegrityError: blocks were lost, or written elsewhere, while a night was counted.
    """
    with _blocks_of(ledger, spec, node) as (staging, sealed):
        for _block in _blocks(staging, sealed):
            pass


def _admitted(
    units: ComplexArray, night: int, limit: int, staging: Staging, sealed: Set[int]
) -> ComplexArray:
    """Return the units of a night's block, and write it, of those that are in fewer than `limit`.

    Where another night's block came first, that is counted too.
    """
    while True:
        times, count = np.zeros(len(units), np.int64), 0
        for block_night, block in _blocks(staging, sealed):
            if block_night == night:
                return block
            times += is_among(units, block)
            count += 1
        admitted = units[times < limit]
        if staging.put_new(_BLOCKS, count, np.concatenate([[night], admitted.view(np.int64)])):
            return admitted


def _batches(counters: Counters, files: Sequence[FileFacts]) -> Iterator[dict[str, FloatArray]]:
    for file in files:
        groups = range(len(file.row_groups))
        yield from read_batches(file.path, groups, counters.columns, counters.filter)


@contextmanager
def _blocks_of(
    ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode
) -> Iterator[tuple[Staging, set[int]]]:
    """Open a stream's blocks, with the sealed nights; say how to end it if they are lost."""
    paid = charge_of(ledger, spec, node)
    staging, sealed = ledger.staging(paid), _sealed_nights(ledger, spec, node)
    try:
        yield staging, sealed
    except IntegrityError as error:
        raise IntegrityError(
            f"stream {node.stream}: what it keeps of whose rows counted in which night is damaged. "
            f"{error} Without it no night can be released: bring it back, or end the stream, whose "
            f"charge stands: {paid.abandon_command(ledger.url)}"
        ) from None


def _blocks(staging: Staging, sealed: Set[int]) -> Iterator[tuple[int, ComplexArray]]:
    """Yield night and units of each block, one at a time; `sealed` nights are among them."""
    nights = set()
    for number in range(1 + max(staging.blocks(_BLOCKS), default=-1)):
        values = staging.get(_BLOCKS, number)
        nights.add(int(values[0]))
        yield int(values[0]), values[1:].view(np.complex128)
    if not sealed <= nights:
        raise IntegrityError(f"The blocks of {len(sealed - nights)} nights are missing.")


def _sealed_nights(ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode) -> set[int]:
    """Return the nights of which something was or may be published.

    The ledger's log has them, those that it forgot and were found by `reconcile` too, under
    whatever name and also where they are unfinished.
    """
    nights = {node.at(night).release_name: night.start for night in node.horizon.nodes()}
    names = {
        line.name.removesuffix(f"~{line.release_id[:8]}")
        for line in ledger.log(spec.budget.dataset)
        if line.event in _SEALED and line.name and line.release_id
    }
    return {night for name, night in nights.items() if name in names}
