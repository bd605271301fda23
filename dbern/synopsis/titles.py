"""Titles of functions, and what their guarantee hides: a line each, for plans and `show`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbern.combination.base import Combination
from dbern.combination.responses import Ranged
from dbern.data.domain import Domain, named_with
from dbern.errors import printable
from dbern.privacy.budget import Protection
from dbern.system import and_text, format_number

_NAMED_CLASSES = 4


def function_title(combination: Combination, domain: Domain, metadata: Mapping[str, Any]) -> str:
    """Name a function: "mean of minutes (0 to 60) by hour, smoothed over 1".

    `metadata` has the target, and may have columns and units, as a synopsis has them.
    """
    meaning, columns = combination.meaning(metadata["target"]), metadata.get("columns", {})
    units = metadata.get("units", {})
    over = and_text([
        named_with(axis.name, units[axis.name]) if axis.name in units else axis.label
        for axis in domain.axes
    ])  # fmt: skip
    names = [printable(str(name)) for name in combination.classes]
    listed = ", ".join(names[:_NAMED_CLASSES]) + ", .." * (len(names) > _NAMED_CLASSES)
    if isinstance(combination, Ranged):
        name = columns.get("response", meaning)
        low, high = (format_number(end) for end in (combination.low, combination.high))
        bounds = f"{low} to {high} {units.get(name, '')}".rstrip()
        title = f"mean of {name} ({bounds}) by {over}"
    elif "label" in columns:
        title = f"class of {columns['label']} ({listed}) by {over}"
    else:
        title = f"{'density' if meaning == 'density' else metadata['target']['kind']} of {over}"
    groups = f", for each {columns['group']} ({listed})" if "group" in columns else ""
    return f"{title}{groups}{_smoothed_text(metadata['target'])}"


def _smoothed_text(target: Mapping[str, Any]) -> str:
    """Say how wide each row is smoothed, where it is."""
    widths = target.get("bandwidth")
    if target.get("chosen_of") or widths == "auto":
        return ", smoothed as the release chooses"
    if not isinstance(widths, list | tuple) or not all(isinstance(w, int | float) for w in widths):
        return ""  # a learner of somebody else's, or a store that nobody vouches for
    return f", smoothed over {' and '.join(f'{width:.3g}' for width in widths)}" if widths else ""


def change_text(protection: Protection) -> str:
    """Say what the guarantee hides: "one row, replaced by any other"."""
    unit = protection.unit
    change = "added or removed" if protection.added else "replaced by any other"
    if unit.column is None:
        return f"one row, {change}"
    return f"one {unit.column} with all its rows (up to {unit.max_contributions} count), {change}"
