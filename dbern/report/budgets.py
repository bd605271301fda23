"""``dbern report --ledger``: one HTML file about budgets over time, from the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from dbern.errors import IntegrityError
from dbern.ledger import AuditLine, DatasetStatus, State
from dbern.ledger.composition import ZCDP, granted_amount, period_of, stored_amount
from dbern.privacy.budget import Budget
from dbern.report.colours import VARIABLES
from dbern.report.page import render
from dbern.report.svg import WIDTHS, date_ticks, draw_figure
from dbern.system.texts import percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_DAY, _MINUTE = 86400.0, 1 / 1440  # in seconds, in days: matplotlib counts days
_REFUNDED = "refunded"
_CHARGED = ("spent", "committed", "abandoned")


@dataclass(frozen=True)
class _Moment:
    """An account just after an event, in what its accountant counts: epsilons or rhos."""

    at: str
    granted: float
    reserved: float
    spent: float


def history(lines: Sequence[AuditLine], status: DatasetStatus) -> list[_Moment]:
    """Return a dataset's account after each event of its audit log that changed it.

    With a period, what is used is that of the event's own period.
    """
    zcdp = status.accountant == ZCDP
    quantity = "rho" if zcdp else "epsilon"
    granted = Budget(Fraction(0))
    charges: dict[str, tuple[Fraction, str | None]] = {}
    states: dict[str, str] = {}
    moments: list[_Moment] = []
    for line in lines:
        if line.dataset != status.dataset:
            continue
        if line.event == "grant":
            parts = (stored_amount(line.detail.get(name), name) for name in ("epsilon", "delta"))
            granted += Budget(*parts)
        elif line.release_id is not None:
            if "epsilon" in line.detail:
                cost = stored_amount(line.detail.get(quantity) or "0", quantity)
                charges.setdefault(line.release_id, (cost, period_of(line.at, status.terms.period)))
            known = states.get(line.release_id)
            states[line.release_id] = "spent" if line.event == "reconciled" else line.event
            if known == states[line.release_id]:
                continue
        else:
            continue
        now = period_of(line.at, status.terms.period)
        current = {key: cost for key, (cost, period) in charges.items() if period == now}
        spent = sum(current[key] for key in current if states[key] in _CHARGED)
        free = sum(current[key] for key in current if states[key] == _REFUNDED)
        total = granted_amount(status.accountant, granted)
        moments.append(
            _Moment(
                line.at,
                float(total.rho if zcdp else total.epsilon),  # type: ignore[attr-defined]  # as its accountant says
                float(sum(current.values()) - spent - free),
                float(spent),
            )
        )
    return moments


def ledger_page(
    statuses: Sequence[DatasetStatus], lines: Sequence[AuditLine], *, pending: bool = False
) -> str:
    """Return the report on some datasets' budgets, as HTML, by an audit log that has them at least.

    `pending`: the ledger was restored or copied and is not reconciled yet.
    """
    return render(
        "ledger.html",
        title="Privacy budgets",
        accounts=[_account(index, status, lines) for index, status in enumerate(statuses)],
        pending=pending,
    )


def _account(index: int, status: DatasetStatus, lines: Sequence[AuditLine]) -> dict[str, Any]:
    moments = history(lines, status)
    if not moments:
        raise IntegrityError(
            f"The ledger is damaged: its log has no grant of {status.dataset}. Restore it from a "
            "backup."
        )
    symbol = "ρ" if status.accountant == ZCDP else "ε"
    granted = _size(status.granted)
    releases = []
    for row in status.releases:
        cost = (row.rho or 0) if status.accountant == ZCDP else row.charge.epsilon
        cost = 0 if row.state is State.REFUNDED else cost
        fraction = percent(float(cost) / granted if granted else 0.0)
        shown = {key: str(getattr(row, key)) for key in ("name", "state", "charge", "created")}
        releases.append(shown | {"share": fraction})
    span = f" from {moments[0].at[:10]} to {moments[-1].at[:10]}"
    alt = (
        f"Budget of {status.dataset} over time{span}: of {status.granted} granted, "
        f"{status.spent} is spent and {status.reserved} is reserved."
    )
    amounts = {key: getattr(status, key) for key in ("granted", "reserved", "spent", "remaining")}
    return {
        "dataset": status.dataset,
        "status": status,
        "symbol": symbol,
        "amounts": {
            key: {"size": _size(amount), "exact": str(amount)} for key, amount in amounts.items()
        },
        "releases": releases,
        "log": [line for line in lines if line.dataset == status.dataset],
        "picture": {"forms": _drawing(index, moments, symbol), "alt": alt},
    }


def _size(amount: Any) -> float:
    return float(getattr(amount, "rho", amount.epsilon))


def _drawing(index: int, moments: Sequence[_Moment], symbol: str) -> dict[str, str]:
    def paint(figure: Figure, max_ticks: int) -> None:
        axes = figure.subplots()
        times = [datetime.fromisoformat(moment.at).timestamp() / _DAY for moment in moments]
        margin = max((times[-1] - times[0]) / 20, _MINUTE)
        times = [times[0] - margin, *times, times[-1] + margin]
        amounts = [(0.0,) * 3, *((m.granted, m.spent, m.spent + m.reserved) for m in moments)]
        granted, spent, used = zip(*amounts, amounts[-1], strict=True)
        style: dict[str, Any] = {"step": "post", "lw": 0}
        axes.patch.set_visible(False)
        axes.grid(axis="y", lw=0.8)
        axes.set_axisbelow(True)
        axes.fill_between(times, used, color=VARIABLES["wash"], label="reserved", **style)
        axes.fill_between(times, spent, color=VARIABLES["accent"], label="spent", **style)
        axes.step(times, granted, where="post", color=VARIABLES["ink"], lw=1.5, label="granted")
        axes.set_xlim(times[0], times[-1])
        axes.set_ylim(0, 1.08 * max(*granted, *used) or 1)
        axes.spines.left.set_visible(False)
        axes.tick_params(length=0, pad=7)
        axes.set_ylabel(symbol, rotation=0, fontsize=15)
        axes.xaxis_date()
        date_ticks(axes.xaxis, max_ticks)

    return {
        form: draw_figure(
            f"budget-{index}-{form}", (WIDTHS[form], height), partial(paint, max_ticks=max_ticks)
        )
        for form, height, max_ticks in (("wide", 300, 8), ("narrow", 240, 6))
    }
