"""Answers under fixed keys: recorded for one checkout, compared between two.

Each store of `goldens.questions` is released under forty keys and asked all its questions. Of every
question `compare` says by how much the answers differ, how the widths of the intervals compare, and
how many of the forty intervals contain what the records say.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from goldens.questions import Question, Records, Store, records, stores
from goldens.recording import SEEN, grant, intercept, require_tree

KEYS = 40
CONFIDENCE = 0.95  # of every interval: the default of every question
PARTS = ("value", "low", "high")
_EXCESS = 1e-9  # relative: a ratio of widths that floats alone make

Recorded = dict[str, dict[str, dict[str, np.ndarray]]]
"""By store and question: `PARTS` (keys, size), `truth` (size,), or `refusal`, a text."""


# --- Record


def record(folder: Path, keys: int, only: Sequence[str], tree: str | None) -> Recorded:
    """Release and ask with the `dbern` that is imported."""
    intercept()
    require_tree(tree)
    warnings.simplefilter("ignore")  # each answer holds by itself: so it is counted here
    rows, recorded, began = records(), {}, time.monotonic()
    for name, store in stores().items():
        if not only or name.startswith(tuple(only)):
            synopses = [_release(folder, f"{name}-{key}", store, rows) for key in range(keys)]
            recorded[name] = {
                label: _answers(question, synopses, rows)
                for label, question in store.questions.items()
            }
            print(f"{time.monotonic() - began:6.1f} s  {name}", file=sys.stderr, flush=True)
    return recorded


def _release(folder: Path, name: str, store: Store, rows: Records) -> Any:
    """Release a store under the key that its name makes."""
    import dbern

    SEEN.begin(name)
    spec = folder / f"{name}.toml"
    spec.write_text(store.case.toml(f"{name}.db", f"{name}.zarr"))
    grant(store.case, f"sqlite:///{folder / name}.db")
    columns = {name: rows[name] for name in "xyz"}
    table = pa.table({**columns, "kind": np.array(["a", "b"])[rows["group"]]})
    return dbern.release(spec, data=table).synopsis


def _answers(question: Question, synopses: Sequence[Any], rows: Records) -> dict[str, np.ndarray]:
    try:
        answers = [[np.ravel(part) for part in question.ask(s)] for s in synopses]
    except Exception as error:  # noqa: BLE001 -- a refusal is an answer to compare
        return {"refusal": np.array(f"{type(error).__name__}: {error}")}
    parts = dict(zip(PARTS, np.array(answers, dtype=np.float64).swapaxes(0, 1), strict=True))
    return {**parts, "truth": np.ravel(np.asarray(question.truth(rows), dtype=np.float64))}


def save(recorded: Recorded, path: Path) -> None:
    """Write all arrays into one file."""
    arrays = {
        f"{store}|{question}|{part}": array
        for store, questions in recorded.items()
        for question, parts in questions.items()
        for part, array in parts.items()
    }
    np.savez(path, **arrays)


def load(path: Path) -> Recorded:
    """Read what `save` wrote."""
    recorded: Recorded = {}
    with np.load(path) as arrays:
        for name in arrays.files:
            store, question, part = name.split("|")
            recorded.setdefault(store, {}).setdefault(question, {})[part] = arrays[name]
    return recorded


# --- Compare


@dataclass(frozen=True)
class Comparison:
    """One question to one store, old and new.

    Attributes
    ----------
    differing, answers : int
        Numbers that differ in any bit, of so many: value, low and high at each point and key.
    absolute, relative : float
        The largest differences; relative to the larger of the two numbers.
    width, widest : float
        Mean width of the new intervals over that of the old, and the largest ratio of any two.
    covered : (float, float)
        Share of the keys whose intervals contain the truth, at all points; nan where it is unknown.
    refusal : str
        Where one of the two gives no such answer.
    """

    store: str
    question: str
    differing: int = 0
    answers: int = 0
    absolute: float = 0.0
    relative: float = 0.0
    width: float = 1.0
    widest: float = 1.0
    covered: tuple[float, float] = (math.nan, math.nan)
    refusal: str = ""

    @property
    def equal(self) -> bool:
        return not self.differing and not self.refusal

    def __str__(self) -> str:
        if self.refusal:
            return f"{self.store}: {self.question}: {self.refusal}"
        return (
            f"{self.store}: {self.question}: {self.differing} of {self.answers} numbers differ, by "
            f"{self.absolute:.3g}, {self.relative:.2g} of the larger; {self.width:.4f} times as "
            f"wide (at most {self.widest:.4f}); covered {_percent(self.covered[0])} -> "
            f"{_percent(self.covered[1])}"
        )


def compare(old: Recorded, new: Recorded) -> list[Comparison]:
    """Compare every question that either has."""
    return [
        _compare(store, question, *(each.get(store, {}).get(question, {}) for each in (old, new)))
        for store in {**old, **new}
        for question in {**old.get(store, {}), **new.get(store, {})}
    ]


def _compare(
    store: str, question: str, old: dict[str, np.ndarray], new: dict[str, np.ndarray]
) -> Comparison:
    refusals = [_refusal(parts) for parts in (old, new)]
    if any(refusals):
        equal = refusals[0] == refusals[1]
        return Comparison(store, question, refusal="" if equal else " -> ".join(
            refusal or "answered" for refusal in refusals))  # fmt: skip
    shapes = [parts["value"].shape for parts in (old, new)]
    if shapes[0] != shapes[1]:
        return Comparison(store, question, refusal=f"numbers {shapes[0]} -> {shapes[1]}")
    before, after = (np.stack([parts[name] for name in PARTS]) for parts in (old, new))
    differ = ~((before == after) | (np.isnan(before) & np.isnan(after)))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        distance = np.where(differ, np.abs(after - before), 0.0)
        distance[np.isnan(distance)] = np.inf  # a number became nan, or the reverse
        larger = np.maximum(np.abs(before), np.abs(after))
        relative = np.where(differ, np.where(np.isinf(distance), np.inf, distance / larger), 0.0)
    old_width, new_width = (parts[2] - parts[1] for parts in (before, after))
    old_width, new_width = (width[~np.isnan(old_width)] for width in (old_width, new_width))
    new_width[np.isnan(new_width)] = np.inf  # no interval any more
    return Comparison(
        store, question, int(differ.sum()), differ.size, float(distance.max()),
        float(relative.max()), float(_ratio(np.sum(old_width), np.sum(new_width))),
        float(np.max(_ratio(old_width, new_width), initial=0.0)), (_covered(old), _covered(new)),
    )  # fmt: skip


def _refusal(parts: dict[str, np.ndarray]) -> str:
    return str(parts.get("refusal", "")) if parts else "not asked"


def _ratio(old: Any, new: Any) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(old == new, 1.0, np.divide(new, old))


def _covered(parts: dict[str, np.ndarray]) -> float:
    if np.isnan(parts["truth"]).all():
        return math.nan
    slack = 1e-9 * (1 + np.abs(parts["truth"]))  # of the truth's own floats
    low, high = parts["low"] - slack, parts["high"] + slack
    return float(((low <= parts["truth"]) & (parts["truth"] <= high)).all(axis=1).mean())


def least_coverage(keys: int) -> float:
    """The share below which chance alone would hardly ever bring a right interval."""
    return CONFIDENCE - 3.5 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / keys)


def shortfalls(comparisons: Sequence[Comparison], keys: int, wider: float) -> Iterator[str]:
    """Yield what is worse than allowed: too wide, seldom right, or no longer answered."""
    for comparison in comparisons:
        where, covered = f"{comparison.store}: {comparison.question}", comparison.covered[1]
        if comparison.refusal:
            yield f"{where}: {comparison.refusal}"
        if comparison.width > wider * (1 + _EXCESS):
            yield f"{where}: {comparison.width:.4f} times as wide, more than {wider:g}"
        if covered < least_coverage(keys):
            yield f"{where}: covers {_percent(covered)} of the keys"


def report(comparisons: Sequence[Comparison]) -> str:
    """A line for each store, and below it one for each question whose answers differ."""
    lines = []
    for store in dict.fromkeys(comparison.store for comparison in comparisons):
        of_store = [comparison for comparison in comparisons if comparison.store == store]
        differ = [comparison for comparison in of_store if not comparison.equal]
        known = [comparison for comparison in of_store if not np.isnan(comparison.covered).any()]
        old, new = (
            " ".join(f"{_percent(share)}" for share in (np.mean(shares), np.min(shares)))
            for shares in zip(*(comparison.covered for comparison in known), strict=True)
        ) if known else ("-", "-")  # fmt: skip
        lines.append(
            f"{store}: {len(of_store)} questions, {len(differ)} differ; covered (mean, least) "
            f"{old} -> {new}"
        )
        lines += [f"  {comparison}" for comparison in differ]
    return "\n".join(lines)


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"
