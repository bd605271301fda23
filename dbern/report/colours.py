"""Colours of pages, pictures and notebooks, once for each scheme, light and dark."""

from __future__ import annotations

import numpy as np

from dbern.types import FloatArray

SCHEMES = ("light", "dark")
INK = {
    "light": {
        "paper": "#fbfaf7", "card": "#f3f1ec", "ink": "#1d2124", "muted": "#5a6167",
        "rule": "#dedad2", "accent": "#0a6b6b", "wash": "#d3e5e2",
    },
    "dark": {
        "paper": "#14181a", "card": "#1c2124", "ink": "#ebe8e2", "muted": "#a5acb1",
        "rule": "#333a3e", "accent": "#63c9c1", "wash": "#1f4646",
    },
}  # fmt: skip
"""Colours by scheme and use; those of texts contrast at least 4.5 with paper, card and wash."""
MAP = {
    "light": ("#f3f1ec", "#c9e0dc", "#7ab8b3", "#2b8383", "#0b4e54", "#052b33"),
    "dark": ("#1c2124", "#17393d", "#1d6063", "#2f9390", "#7ccdc4", "#e3f7f0"),
}
"""Colours of a map from its least value to its largest, in equal steps of lightness."""
CLASSES = ("#b9ad94", "#0f9a96", "#7d80cc", "#d59a3a", "#c96f86", "#7d93a3")
_CERTAIN_OPACITY, _DOUBTFUL_OPACITY = 0.5, 0.18
VARIABLES = {
    "ink": "#010203", "muted": "#010204", "rule": "#010205", "accent": "#010206", "wash": "#010207",
    "paper": "#010208",
}  # fmt: skip
"""Colours that no picture has, as placeholders: each becomes a variable of the page's style."""


def channels(colour: str) -> FloatArray:
    """Return red, green and blue of ``#rrggbb``, from 0 to 1."""
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def shade(values: FloatArray, scheme: str) -> FloatArray:
    """Return the colours (.., 3) of values (..) from 0, the least of a map, to 1, the largest."""
    stops = np.array([channels(colour) for colour in MAP[scheme]])
    positions = np.linspace(0.0, 1.0, len(stops))
    return np.stack([np.interp(values, positions, stop) for stop in stops.T], axis=-1)


def class_colour(index: int, scheme: str, *, certain: bool = True) -> FloatArray:
    """Return a class's colour, mixed with the scheme's paper so that ink can be read on it."""
    opacity = _CERTAIN_OPACITY if certain else _DOUBTFUL_OPACITY
    paper = channels(INK[scheme]["paper"])
    return opacity * channels(CLASSES[index % len(CLASSES)]) + (1 - opacity) * paper


def to_hex(colour: FloatArray) -> str:
    """Format a colour as ``#rrggbb``."""
    return "#" + "".join(f"{round(255 * float(channel)):02x}" for channel in colour)
