"""What a picture of a released function shows: curves with their band, maps, or class regions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dbern.arrays import FloatArray
from dbern.domain import Axis
from dbern.errors import printable
from dbern.synopsis.reader import Synopsis
from dbern.times import TimeUnit

MOST_PANELS = 12
"""Most groups or classes that are drawn; a picture says so where it leaves some out."""

_MOST_NAMED = 8  # axes that are not drawn
_THICKNESS = 13  # places along the third axis, of which every other one is a slice


@dataclass(frozen=True)
class Panel:
    """One curve or one map on a regular grid.

    Parameters
    ----------
    title : str
        Which group, class or slice; empty where there is only one panel.
    values : array (n,) or (n, m)
        In data units; of regions, the place of the class in the list of all.
    low, high : array (n,), optional
        Ends of the simultaneous band, of a curve.
    leads : array (n, m, classes), optional
        Of regions, by how much each class is ahead of the best other; below zero where behind.
    doubt : float
        Of regions, the lead up to which the band leaves the class in doubt.
    """

    title: str
    values: FloatArray
    low: FloatArray | None = None
    high: FloatArray | None = None
    leads: FloatArray | None = None
    doubt: float = 0.0


@dataclass(frozen=True)
class Picture:
    """Panels over the same one or two axes.

    Parameters
    ----------
    kind : "curve", "map" or "regions"
    axes : tuple of Axis
        One of a curve, two of a map or regions.
    panels : tuple of Panel
    classes : tuple of str
        Of regions, and of a curve whose side of `threshold` is the class.
    threshold : float, optional
        The value above which the second of two classes is decided for.
    left_out : int
        How many groups or classes are not drawn.
    fixed : str
        Where the axes that are not drawn are fixed; empty where all are drawn or sliced.
    """

    kind: str
    axes: tuple[Axis, ...]
    panels: tuple[Panel, ...]
    classes: tuple[str, ...] = ()
    threshold: float | None = None
    left_out: int = 0
    fixed: str = ""

    @property
    def low(self) -> float:
        """The least value drawn, its band included."""
        return min(float(np.min(p.values if p.low is None else p.low)) for p in self.panels)

    @property
    def high(self) -> float:
        """The largest value drawn, its band included."""
        return max(float(np.max(p.values if p.high is None else p.high)) for p in self.panels)


def label(axis: Axis) -> str:
    """An axis's name, with the zone of times."""
    return printable(f"{axis.name} (UTC)" if axis.unit is TimeUnit.SECONDS else axis.name)


def told(axis: Axis, value: float) -> str:
    """A place on an axis in words: a number, or a date or time."""
    return axis.unit.text(value) if axis.unit else f"{value:.4g}"


def is_classifier(synopsis: Synopsis) -> bool:
    """Whether its values decide on classes; densities of groups do not."""
    return bool(synopsis.classes) and synopsis.metadata["target"]["kind"] != "kernel-density"


def picture_of(synopsis: Synopsis, places: int) -> Picture:
    """What to draw of a function: a curve, maps or slices on `places` places an axis.

    One axis gives a curve for each group or class, two axes a map for each group or one of the
    class regions, three axes such maps at six places of the third axis, and more one such map
    through the middle of the others. The band is simultaneous over the whole domain, at the
    confidence of the certificate.
    """
    axes = synopsis.domain.axes
    if len(axes) == 1:
        return _curves(synopsis, places)
    fixed = _fixed(axes[2:]) if len(axes) > 3 else ""
    if fixed:
        slices = [("", _through_the_middle(synopsis, places))]
    else:
        values = synopsis.grid([places, places, _THICKNESS][: len(axes)]).to_numpy()
        slices = [("", values)] if len(axes) == 2 else list(_slices(axes[2], values))
    labels = tuple(printable(str(label)) for label in synopsis.classes)
    if is_classifier(synopsis):
        panels = [_regions(synopsis, title, part) for title, part in slices]
        return Picture("regions", axes[:2], tuple(panels), labels, fixed=fixed)
    if not synopsis.combination.several:
        panels = [Panel(title, part) for title, part in slices]
        return Picture("map", axes[:2], tuple(panels), fixed=fixed)
    drawn = [
        Panel(" · ".join(filter(None, (label, title))), part[..., column])
        for column, label in enumerate(labels)
        for title, part in (slices if len(slices) == 1 else slices[1::2])
    ]
    left_out = len(labels) - len(labels) * min(len(drawn), MOST_PANELS) // len(drawn)
    shown = tuple(drawn[:MOST_PANELS])
    return Picture("map", axes[:2], shown, left_out=left_out, fixed=fixed)


def _through_the_middle(synopsis: Synopsis, places: int) -> FloatArray:
    """Values (places, places) or (places, places, classes) along the first two axes."""
    first, second, *others = synopsis.domain.axes
    points = np.empty((places, places, 2 + len(others)))
    points[..., 0] = first.at(np.linspace(0.0, 1.0, places))[:, None]
    points[..., 1] = second.at(np.linspace(0.0, 1.0, places))
    points[..., 2:] = [_middle(axis) for axis in others]
    values = np.asarray(synopsis(points.reshape(places**2, -1)))
    return values.reshape(places, places, *values.shape[1:])


def _middle(axis: Axis) -> float:
    return axis.low + axis.width / 2


def _fixed(axes: Sequence[Axis]) -> str:
    """Where axes are in the middle, in words; of very many the first."""
    named = ", ".join(f"{axis.name} = {told(axis, _middle(axis))}" for axis in axes[:_MOST_NAMED])
    more = len(axes) - _MOST_NAMED
    return f"{named} and {more} more in their middle" if more > 0 else named


def _slices(axis: Axis, values: FloatArray) -> Iterator[tuple[str, FloatArray]]:
    for index in range(1, _THICKNESS, 2):
        place = axis.low + axis.width * index / (_THICKNESS - 1)
        yield printable(f"{axis.name} = {told(axis, place)}"), values[:, :, index]


def _curves(synopsis: Synopsis, places: int) -> Picture:
    (axis,) = synopsis.domain.axes
    points = axis.at(np.linspace(0.0, 1.0, places))
    values = np.asarray(synopsis(points)).reshape(places, -1)
    certificate = synopsis.metadata["certificate"]
    low, high = values - certificate["total"], values + certificate["total"]
    if synopsis.combination.kind == "ratio":  # narrower where there are many records
        low, high = (
            end.reshape(places, -1) for end in synopsis.interval(points, certificate["beta"])
        )
    labels = tuple(printable(str(label)) for label in synopsis.classes)
    titles = labels if synopsis.combination.several else ("",)
    panels = [
        Panel(title, values[:, i], low[:, i], high[:, i])
        for i, title in enumerate(titles[:MOST_PANELS])
    ]
    two = len(labels) == 2 and not synopsis.combination.several
    return Picture(
        "curve",
        (axis,),
        tuple(panels),
        labels if two else (),
        synopsis.combination.threshold if two else None,
        len(titles) - len(panels),
    )


def _regions(synopsis: Synopsis, title: str, values: FloatArray) -> Panel:
    width = synopsis.metadata["certificate"]["total"]
    if values.ndim == 2:
        margin = values - synopsis.combination.threshold
        leads = np.stack([-margin, margin], axis=-1)
    else:
        ordered = np.sort(values, axis=-1)
        best, second = ordered[..., -1:], ordered[..., -2:-1]
        leads = values - np.where(values == best, second, best)
        width *= 2  # of two columns, each within the band
    return Panel(title, leads.argmax(axis=-1).astype(np.float64), leads=leads, doubt=width)
