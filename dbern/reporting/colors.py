"""The colours of pages and pictures, once for each scheme; one accent, and shades of it."""

from __future__ import annotations

import numpy as np

from dbern.arrays import FloatArray

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
"""Text colours have a contrast of at least 4.5 on paper, card and wash."""

MAP = {
    "light": ("#f3f1ec", "#c9e0dc", "#7ab8b3", "#2b8383", "#0b4e54", "#052b33"),
    "dark": ("#1c2124", "#17393d", "#1d6063", "#2f9390", "#7ccdc4", "#e3f7f0"),
}
"""From the least value to the largest, even in lightness."""

CLASSES = ("#b9ad94", "#0f9a96", "#7d80cc", "#d59a3a", "#c96f86", "#7d93a3")
_SURE, _DOUBTFUL = 0.5, 0.18


def channels(colour: str) -> FloatArray:
    """Red, green and blue between 0 and 1.

    Examples
    --------
    >>> channels("#ff0033").tolist()
    [1.0, 0.0, 0.2]
    """
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def shade(values: FloatArray, scheme: str) -> FloatArray:
    """Colours (.., 3) of values between 0 and 1."""
    stops = np.array([channels(colour) for colour in MAP[scheme]])
    places = np.linspace(0.0, 1.0, len(stops))
    return np.stack([np.interp(values, places, stop) for stop in stops.T], axis=-1)


def class_colour(index: int, scheme: str, *, sure: bool = True) -> FloatArray:
    """A class's tint on the scheme's paper: text in ink can be read on it."""
    share = _SURE if sure else _DOUBTFUL
    paper = channels(INK[scheme]["paper"])
    return share * channels(CLASSES[index % len(CLASSES)]) + (1 - share) * paper


def text(colour: FloatArray) -> str:
    """As ``#rrggbb``."""
    return "#" + "".join(f"{round(255 * float(part)):02x}" for part in colour)
