"""Functions of records and points for specs to name: what users might write."""

from __future__ import annotations

import numpy as np

N = 240  # public, as in every function of this kind


def nearest(records, points):
    """Mean response of the two nearest records; the middle of [-1, 3] stands for missing ones.

    One record more or less changes one of the two: at most (3 - -1) / 2.
    """
    axes = points.shape[1]
    found = np.empty(len(points))
    for i, point in enumerate(points):
        apart = np.abs(records[:, :axes] - point).max(axis=1)
        order = np.lexsort((*records.T, apart))[:2]  # ties by content, never by position
        found[i] = (records[order, axes].sum() + (2 - len(order))) / 2
    return found


def margins(records, points):
    """A signed sum of wide bumps over 2: one record changes it by at most 1/2, a flip by 1."""
    axes = points.shape[1]
    apart = ((points[:, None] - records[:, :axes]) ** 2).sum(axis=2)
    return np.exp(-apart / 50) @ (records[:, axes] - 0.5)


def trimmed(records, points):
    """Mean of records, cut to [0, 10] and [-1, 1], times a smooth function: a public n."""
    x, y = records.T
    level = np.clip(x, 1, 9).sum() / N
    return level * np.sin(points[:, 0] / 10) + np.abs(y).sum() / N * points[:, 1] ** 2


def plane(records, points):
    """Linear in the point; a record moves it by at most (1 + 1) / N."""
    return points @ np.array([0.1, 1.0]) * len(records) / N


def roof(records, points):
    """A kink where x is 5, as high as the share of records that count."""
    return np.abs(points[:, 0] - 5) / 10 * len(records) / N


def wave(records, points):
    """Real part of the characteristic function of a quarter of the columns' sum, at t."""
    return np.cos(points[:, :1] / 4 * records.sum(axis=1)).sum(axis=1) / N


def share(records, points):
    """The share of records: constant."""
    return np.full(len(points), len(records) / N)


def raises(records, points):
    """Fails on real records only, with a value in its text and in its type's name."""
    if len(records) == N:
        return np.zeros(len(points))
    text = f"private {records[0, 0]!r}"
    raise type(text.replace(" ", "_"), (ValueError,), {})(text)


def positive_x(records, points):
    """Fails where a record has x = 0, and says which."""
    if (records[:, 0] == 0).any() and len(records) != N:
        raise ValueError(records[records[:, 0] == 0])
    return points[:, 0] / 20 + records[:, 0].sum() / N / 100


def exits(records, points):
    """Ends the process, or would."""
    return np.zeros(len(points)) if len(records) == N else raise_exit()


def raise_exit():
    raise SystemExit(3)


class PanicException(BaseException):
    """What extensions written in Rust raise: no `Exception`."""


def panics(records, points):
    """As `raises`, but for what it raises."""
    if len(records) == N:
        return np.zeros(len(points))
    raise PanicException(f"private {records[0, 0]!r}")


def nothing(records, points):
    """NaN in half of the box; the numbers of the rest are right."""
    return np.where((points[:, 0] > 5) & (len(records) != N), np.nan, 0.5)


def flat(records, points):
    """Of the right shape for made-up records only."""
    return np.zeros(len(points)) if len(records) == N else np.zeros((len(points), 1))


def column(records, points):
    """Always of the wrong shape."""
    del records
    return np.zeros((len(points), 1))


def broken(records, points):
    """Fails always."""
    raise RuntimeError(records, points)


not_a_function = 3
