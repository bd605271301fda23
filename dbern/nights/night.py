"""Release a night of a stream: charge the horizon once, then every node that is due.

A night is closed once it is published or abandoned, and a block is due when its nights are closed.
So nights may come in any order, late or again: what is published is left as it is, what was
interrupted goes on, and whichever night of a block closes last releases the block.

A block waits, reserved, for a file of its nights that is lost, and the others go on. Once it is
abandoned, which refunds it, it is released without the nights that have lost files, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import TypeAlias

from dbern.errors import BudgetError, DbernError, SpecError
from dbern.ledger import BudgetLedger, Request, State
from dbern.ledger.entries import OVER
from dbern.nights.frozen_files import charge_of, nights_with_lost_files
from dbern.nights.horizon import Horizon, Node, StreamNode, day_of
from dbern.nights.people import form_of_ids
from dbern.nights.section import horizon_of, stream_identity
from dbern.nights.stream import StreamIndex
from dbern.planning.planner import footers, plan_files
from dbern.planning.spec import ReleaseSpec

_PUBLISHED_WITH_FILES = (State.COMMITTED, True)
"""State of a night that blocks may count: its files are in the ledger."""
_States: TypeAlias = dict[Node, tuple[State | None, bool]]


def stream_request(spec: ReleaseSpec, node: StreamNode) -> Request:
    """Return the request that charges the horizon of a node, without the rho of its plan."""
    horizon = node.horizon
    note = f"stream of {horizon.count} nights from {horizon.first}"
    return Request(
        dataset=spec.budget.dataset,
        name=node.stream,
        charge=spec.charge,
        neighbors=spec.protection.neighbors,
        unit=spec.protection.unit,
        identity={"note": note, **stream_identity(spec.identity())},
    )


def release_night(
    spec: ReleaseSpec, ledger: BudgetLedger, release_node: Callable[[ReleaseSpec], object]
) -> tuple[str, ...]:
    """Release a night and the blocks that it closes, by `release_node`; return notes for people.

    Raises SpecError for a night that is outside the horizon or in the future, and for a spec that
    is not the stream's; BudgetError where the account cannot pay for the horizon.
    """
    day = _requested_day(spec)
    node = _charge_stream(ledger, spec, day)
    horizon = node.horizon
    state, has_files = _states(ledger, spec, node)[node.span]
    if state is State.ABANDONED:
        notes = [f"{day} was abandoned: it stays empty"]
    elif state is State.COMMITTED and not has_files:
        notes = [f"{day} was published before the ledger was restored, and stays as it is"]
    else:
        release_node(spec.at(node))
        notes = [f"{day} is published"]
    states = _states(ledger, spec, node)
    closed = {
        night.start: state
        for night, (state, _) in states.items()
        if night.level == 0 and state in OVER
    }
    abandoned = [night for night, state in closed.items() if state is State.ABANDONED]
    StreamIndex.of(spec.budget.dataset, node.stream, horizon, abandoned).write(spec.output)
    failures: list[DbernError] = []
    for block in _due_blocks(ledger, spec, node, states, closed.keys()):
        days = ", ".join(str(horizon.day(night)) for night in sorted(block.without))
        try:
            release_node(spec.at(block))
        except DbernError as error:
            failures.append(error)
        else:
            left_out = f" without {days}" if days else ""
            notes.append(f"{horizon.name(block.span)} is published{left_out}")
    if spec.enforces_nights and len(closed) == horizon.count:
        _destroy_units(ledger, spec, node)
    if failures:
        raise failures[0]
    return tuple(notes)


def _due_blocks(
    ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode, states: _States, closed: Set[int]
) -> Iterator[StreamNode]:
    """Yield the open blocks whose nights are closed, but for those that would have no rows."""
    published = {
        night for night in closed if states[Node(0, night, night + 1)] == _PUBLISHED_WITH_FILES
    }
    for span, (state, _) in states.items():
        if span.level and state not in OVER and closed >= set(span.nights):
            without = _omitted_nights(ledger, spec, replace(node, span=span), published)
            if not without.issuperset(span.nights):
                yield replace(node, span=span, without=without)


def _omitted_nights(
    ledger: BudgetLedger, spec: ReleaseSpec, block: StreamNode, published: Set[int]
) -> frozenset[int]:
    """Return the nights that a block leaves out: the same again for one that is under way."""
    reservation = ledger.find(spec.budget.dataset, block.release_name)
    if reservation is not None and reservation.content.identity:
        return frozenset(reservation.content.identity["stream"]["node"]["without"])
    without = frozenset(block.span.nights) - published
    releases = ledger.status(spec.budget.dataset)[0].releases
    if any(row.name == block.release_name and row.state is State.REFUNDED for row in releases):
        without |= nights_with_lost_files(ledger, spec, replace(block, without=without))
    return without


def _destroy_units(ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode) -> None:
    """Destroy the list of the units that each night admitted, now that all nights are closed."""
    with ledger.lock(charge_of(ledger, spec, node)):
        reservation = charge_of(ledger, spec, node)
        if reservation.state is State.SPENT:
            ledger.commit(reservation, None)


def _requested_day(spec: ReleaseSpec) -> date:
    if spec.partition is None:
        raise SpecError(
            "stream: is released night by night. Write --partition 2026-11-20 on the command line, "
            'or ReleaseSpec.load(path, partition="2026-11-20")'
        )
    day, today = day_of(spec.partition), datetime.now(UTC).date()
    if day > today:
        raise SpecError(f"--partition: {day} is in the future; today is {today}, in UTC")
    return day


def _charge_stream(ledger: BudgetLedger, spec: ReleaseSpec, day: date) -> StreamNode:
    """Charge a stream unless it is charged; return the node of a night.

    It begins where the spec says, or with the night that is released first, whose files are looked
    at before: no stream is charged for a misspelt path.
    """
    reservation = ledger.find(spec.budget.dataset, spec.release.name)
    stream = reservation.content.identity.get("stream") if reservation else None
    section = spec.stream_section
    first = section.first or (day_of(stream["first"]) if stream else day)
    if stream and section.levels == "auto":  # as they were chosen then
        horizon = Horizon(first, section.horizon, tuple(stream["levels"]))
    else:
        horizon = horizon_of(section, first, spec.charge)
    node = StreamNode(spec.release.name, horizon, horizon.node(0, horizon.night(day)))
    node_spec = spec.at(node)
    request = stream_request(node_spec, node)
    if reservation is None:
        _require_one_period(ledger, spec)
        files = footers(node_spec)
        column = str(spec.protection.unit.column)
        inputs = {"ids": form_of_ids(files, column)} if spec.enforces_nights else {}
        request = replace(request, rho=plan_files(node_spec, files).rho, inputs=inputs)
    try:
        ledger.charge(request, under_way=spec.enforces_nights)
    except SpecError:
        if reservation is None and ledger.find(spec.budget.dataset, spec.release.name) is not None:
            return _charge_stream(ledger, spec, day)  # by another process, from another first night
        raise
    return node


def _require_one_period(ledger: BudgetLedger, spec: ReleaseSpec) -> None:
    """Refuse an account that is renewed: an earlier period would pay for nights of a later one."""
    period = ledger.status(spec.budget.dataset)[0].terms.period
    if period:
        raise BudgetError(
            f"dataset {spec.budget.dataset!r}: its budget is whole again every {period}, and a "
            "stream is paid once for all its nights. Grant another dataset, without --period"
        )


def _states(ledger: BudgetLedger, spec: ReleaseSpec, node: StreamNode) -> _States:
    """Return the state of each node of the stream, and whether the ledger has its files.

    A reconciled node has none. Nights are first, and smaller blocks before larger ones.
    """
    releases = ledger.status(spec.budget.dataset)[0].releases
    states = {row.name: row.state for row in releases if row.state is not State.REFUNDED}
    inputs = ledger.inputs(spec.budget.dataset)
    names = {other: node.at(other).release_name for other in node.horizon.nodes()}
    return {
        other: (states.get(name), "digests" in inputs.get(name, {}))
        for other, name in names.items()
    }
