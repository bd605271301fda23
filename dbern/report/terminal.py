"""Pictures in a terminal: a braille curve with its band, a map in shades, regions in letters."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

import numpy as np

from dbern.data.domain import Axis
from dbern.report.pictures import Panel, Picture, picture_of, upright_picture
from dbern.synopsis.bands import NO_ROWS
from dbern.synopsis.reader import Synopsis
from dbern.system import format_number
from dbern.types import FloatArray

_BRAILLE = 0x2800
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # by column, from the top
_BAND = "░"
_SHADES = " ·░▒▓█"
_NO_ROWS = "╱"
_REGIONS = " ░▓╱╳·"
_GUTTER = 12
_NARROW_SPACE = "\u202f"
_CURVE_ROWS, _SMALL_ROWS, _MAP_COLUMNS, _MAP_ROWS = 14, 6, 60, 20


def drawing(synopsis: Synopsis) -> str:
    """Draw the function as text at most 80 columns wide, the same on every terminal."""
    axes = synopsis.domain.numeric
    picture = upright_picture(
        picture_of(synopsis, 2 * _MAP_COLUMNS if len(axes) == 1 else _MAP_COLUMNS)
    )
    lines: list[str] = []
    for panel in picture.panels:
        if panel.title:
            lines.append(f"{' ' * _GUTTER}{_clean(panel.title, _MAP_COLUMNS)}")
        lines += _curve(picture, panel) if picture.kind == "curve" else _map(picture, panel)
    if picture.fixed:
        lines += _wrapped(f"at {picture.fixed}")
    if picture.kind == "curve":
        beyond = ", wider than what is drawn of it" if picture.beyond else ""
        lines.append(f"{' ' * _GUTTER}{_BAND} simultaneous band{beyond}")
    elif picture.kind == "map" and not picture.blank:
        smallest, largest = _number(picture.low), _number(picture.high)
        lines.append(f"{' ' * _GUTTER}{smallest} {_SHADES} {largest}")
    else:
        lines += [
            f"{' ' * _GUTTER}{_REGIONS[i % len(_REGIONS)] * 2}  {_clean(label, _MAP_COLUMNS)}"
            for i, label in enumerate(picture.classes)
        ]
    if picture.missing:
        lines.append(f"{' ' * _GUTTER}{_NO_ROWS if picture.kind == 'map' else 'gap:'} {NO_ROWS}")
    lines += _wrapped(picture.value)
    return "\n".join(line.rstrip() for line in lines).rstrip()


def _wrapped(text: str) -> list[str]:
    words = _clean(text, 8 * _MAP_COLUMNS)
    return [f"{' ' * _GUTTER}{line}" for line in wrap(words, _MAP_COLUMNS)]


def _curve(picture: Picture, panel: Panel) -> Iterator[str]:
    (axis,) = picture.axes
    rows = _CURVE_ROWS if len(picture.panels) == 1 else _SMALL_ROWS
    low, high = picture.low, picture.high
    high = high if high > low else low + max(1.0, abs(low))
    dots = 4 * rows

    def height(values: FloatArray) -> FloatArray:  # in dots from the top
        return np.clip(np.rint((high - values) / (high - low) * (dots - 1)), 0, dots - 1)

    cells = np.zeros((rows, _MAP_COLUMNS), dtype=int)
    known = ~np.isnan(panel.values)
    curve = height(np.nan_to_num(panel.values)).astype(int)
    for column in np.flatnonzero(known).tolist():
        # joined to the dot before, so that a steep curve has no holes
        here, previous = curve[column], max(column - 1, 0)
        before = curve[previous] if known[previous] else here
        step = 0 if here == before else (1 if before < here else -1)
        for dot in range(here, before, -step) if step else (here,):
            cells[dot // 4, column // 2] |= _DOTS[column % 2][dot % 4]
    covered = np.zeros(cells.shape, dtype=np.bool_)
    if panel.low is not None and panel.high is not None:
        top, bottom = height(panel.high) // 4, height(panel.low) // 4
        row_numbers = np.arange(rows)[:, None]
        inside = (row_numbers >= top) & (row_numbers <= bottom)
        covered = np.asarray(inside.reshape(rows, _MAP_COLUMNS, 2).any(axis=2))
    for row in range(rows):
        labels = {0: _number(high), rows - 1: _number(low)}
        label = labels.get(row, "")
        text = "".join(
            chr(_BRAILLE + drawn) if drawn else _BAND if band else " "
            for drawn, band in zip(cells[row], covered[row], strict=True)
        )
        yield f"{label:>{_GUTTER - 2}} ▏{text}"
    yield _foot(axis)


def _map(picture: Picture, panel: Panel) -> Iterator[str]:
    first, second = picture.axes
    columns = panel.values.shape[0]
    rows = _MAP_ROWS if len(picture.panels) == 1 else _MAP_ROWS // 2
    chosen = np.rint(np.linspace(0, panel.values.shape[1] - 1, rows)).astype(int)[::-1]
    values = panel.values[:, chosen]
    spread = (picture.high - picture.low) or 1.0
    labels = {0: second.text(second.high), rows - 1: second.text(second.low)}
    name = second.label if len(second.label) <= _GUTTER - 2 else second.name
    if len(name) <= _GUTTER - 2:
        labels[rows // 2] = name
    else:  # above the map, whole
        yield from _wrapped(f"up: {second.label}")
    for row in range(rows):
        label = _clean(labels.get(row, ""), _GUTTER - 2)
        if picture.kind == "regions":
            text = "".join(_REGIONS[int(i) % len(_REGIONS)] for i in values[:, row])
        else:
            levels = np.clip((values[:, row] - picture.low) / spread * len(_SHADES), 0, None)
            text = "".join(
                _NO_ROWS if np.isnan(level) else _SHADES[min(int(level), len(_SHADES) - 1)]
                for level in levels
            )
        yield f"{label:>{_GUTTER - 2}} ▏{text}"
    yield _foot(first, columns)


def _clean(text: str, max_letters: int) -> str:
    """Write no letter that a terminal may not show, and plain spaces between thousands."""
    text = text.replace(_NARROW_SPACE, " ")
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:max_letters]


def _number(value: float) -> str:
    return _clean(format_number(value, 3), _MAP_COLUMNS)


def _foot(axis: Axis, columns: int = _MAP_COLUMNS) -> str:
    low, high = (_clean(axis.text(end), _MAP_COLUMNS) for end in (axis.low, axis.high))
    room = max(columns - len(low) - len(high), 1)
    return f"{' ' * _GUTTER}{low}{_clean(axis.label, room):^{room}}{high}"
