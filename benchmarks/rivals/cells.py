"""One table for everything: cells, which of them are lost to a rival, and how far we are from none.

A cell is lost where the best rival is ahead by more than one standard error of the difference. With
several rivals and no true difference that happens in some cells by chance; two stars are more than
two standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rivals import library
from rivals.scoring import LOWER_IS_BETTER

EPSILONS = (0.1, 0.5, 1.0, 3.0)
SEEDS = 20
OURS, RIVAL, EXACT, ASIDE = "dbern", "rival", "not private", "aside"
_WANTED = {"AUC": 0.005, "RMSE": 0.01}


@dataclass(frozen=True)
class Cell:
    """The mean of a score over seeds, and its standard error; None and why where there is none."""

    panel: str
    table: str
    metric: str
    learner: str
    role: str
    epsilon: float
    seeds: int
    mean: float | None
    error: float
    note: str = ""

    def beats(self, other: Cell) -> float:
        """By how many standard errors of their difference it is better; inf beside none."""
        if self.mean is None:
            return -math.inf
        if other.mean is None:
            return math.inf
        better = self.mean - other.mean
        better = -better if self.metric in LOWER_IS_BETTER else better
        error = math.hypot(self.error, other.error)
        return better / error if error else math.copysign(math.inf, better) if better else 0.0

    @property
    def text(self) -> str:
        if self.mean is None:
            return "-"
        return f"{self.mean:.5g} ({self.error:.1g})" if self.error else f"{self.mean:.5g}"


def lost(found: Sequence[Cell]) -> list[tuple[Cell, Cell, float]]:
    """Ours, the rival that is ahead of it by most, and by how many standard errors: above one."""
    behind = []
    for ours in (cell for cell in found if cell.role == OURS):
        key = _place(ours)
        rivals = [cell for cell in found if cell.role == RIVAL and _place(cell) == key]
        rivals = [cell for cell in rivals if cell.mean is not None]
        if rivals:
            worst = max(rivals, key=lambda rival: rival.beats(ours))
            if worst.beats(ours) > 1:
                behind.append((ours, worst, worst.beats(ours)))
    return behind


def _place(cell: Cell) -> tuple[str, str, str, float]:
    return cell.panel, cell.table, cell.metric, cell.epsilon


def far(found: Sequence[Cell], epsilon: float = 1.0) -> list[tuple[Cell, Cell, float]]:
    """Ours that are further from scikit-learn than wanted, that, and the distance."""
    exact = {_place(cell): cell for cell in found if cell.role == EXACT}
    behind = []
    for ours in (cell for cell in found if cell.role == OURS and cell.metric in _WANTED):
        beside = exact.get(_place(ours))
        if ours.epsilon != epsilon or beside is None or beside.mean is None:
            continue
        off = math.inf
        if ours.mean is not None:
            lower = ours.metric in LOWER_IS_BETTER
            off = ours.mean / beside.mean - 1 if lower else beside.mean - ours.mean
        if off > _WANTED[ours.metric]:
            behind.append((ours, beside, off))
    return behind


def to_markdown(found: Sequence[Cell]) -> str:
    """The table: a star where a rival is ahead by one standard error, two where by two."""
    stars = {id(ours): "**" if by > 2 else "*" for ours, _, by in lost(found)}
    epsilons = sorted({cell.epsilon for cell in found})
    heads = ["records", "score", "learner", *(f"epsilon {one:g}" for one in epsilons)]
    lines = [f"| {' | '.join(heads)} |", f"| --- | --- | --- {'| ---: ' * len(epsilons)}|"]
    rows: dict[tuple[str, str, str, str], list[Cell]] = {}
    for cell in found:
        key = cell.panel, cell.table, cell.metric, cell.learner
        rows.setdefault(key, []).append(cell)
    for place in dict.fromkeys(key[:3] for key in rows):
        for key, row in rows.items():
            if key[:3] == place:
                texts = [cell.text + stars.get(id(cell), "") for cell in row]
                panel, table, metric, learner = key
                lines.append(f"| {panel}: {table} | {metric} | {learner} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def summary(found: Sequence[Cell]) -> str:
    behind, distant = lost(found), far(found)
    count = sum(cell.role == OURS for cell in found)
    lines = [
        f"cells lost: {len(behind)} of {count} (a rival is ahead by more than one standard error "
        f"of the difference; of them {sum(by > 2 for *_, by in behind)} by more than two)"
    ]
    for ours, rival, by in behind:
        lines.append(
            f"- {ours.panel}: {ours.table}, {ours.metric}, epsilon {ours.epsilon:g}: "
            f"{ours.learner} {ours.text}, {rival.learner} {rival.text}, {by:.1f} standard errors"
        )
    lines.append(
        f"at epsilon 1 further from scikit-learn than .005 (AUC) or 1 % (RMSE): {len(distant)}"
    )
    for ours, exact, off in distant:
        lines.append(
            f"- {ours.panel}: {ours.table}, {ours.learner}: {ours.text}, not private {exact.text}, "
            f"{off:.3g}{' ' + ours.note if ours.note else ''}"
        )
    if not library.available():
        lines.append(
            "without diffprivlib: its environment is not there (make rivals makes it); its splits "
            "of epsilon are rewritten in floats, and its linear regression is left out"
        )
    return "\n".join(lines) + "\n"
