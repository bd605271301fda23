"""Histograms whose cells follow the records, for `panel`: PrivTree and AdaptiveGrid, in floats.

Both are epsilon-differentially private where one record is replaced by another: each pays twice
for what its authors state for a record that is added. They return points, masses and the standard
deviations of the cells' positions, from which a density is smoothed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dbern.types import FloatArray

ALPHA = 0.5  # of epsilon: for the first level of AdaptiveGrid
_FIRST, _SECOND = 10.0, 5.0  # its constants


@dataclass(frozen=True)
class Masses:
    """Shares of the records in boxes: middles (m, l), sides (m, l) and shares (m,)."""

    middles: FloatArray
    sides: FloatArray
    shares: FloatArray


def pyramid(records: FloatArray, depth: int) -> list[FloatArray]:
    """Counts in ``2^j`` cells an axis for j = 0 .. depth."""
    axes, cells = records.shape[1], 2**depth
    places = np.minimum((records * cells).astype(np.int64), cells - 1)
    flat = np.ravel_multi_index(tuple(places.T), (cells,) * axes)
    levels = [np.bincount(flat, minlength=cells**axes).astype(np.float64).reshape((cells,) * axes)]
    for _ in range(depth):
        halved = levels[-1]
        for axis in range(axes):
            halved = np.add.reduceat(halved, np.arange(0, halved.shape[axis], 2), axis=axis)
        levels.append(halved)
    return levels[::-1]


def priv_tree(
    levels: list[FloatArray], epsilon: float, share: float, rng: np.random.Generator
) -> Masses:
    """PrivTree (Zhang, Xiao & Xie 2016, algorithm 2, threshold 0): `share` pays for the tree.

    A node of depth j is split where ``max(c - j d, -d) + Lap(s) > 0``, ``s = (2 m - 1) / (m - 1)``
    over epsilon for m children and ``d = s ln m``: proved there for a record that is added.
    """
    axes = levels[0].ndim
    total, children = float(levels[0].sum()), 2**axes
    scale = 2 * (2 * children - 1) / (children - 1) / (share * epsilon)
    decay = scale * math.log(children)
    nodes = np.zeros((1, axes), dtype=np.int64)
    middles, sides, counts = [], [], []
    for depth, level in enumerate(levels):
        here = level[tuple(nodes.T)]
        biased = np.maximum(here - depth * decay, -decay) + rng.laplace(
            scale=scale, size=here.shape
        )
        split = (biased > 0) & (depth + 1 < len(levels))
        leaves = nodes[~split]
        middles.append((leaves + 0.5) / 2**depth)
        sides.append(np.full(leaves.shape, 0.5**depth))
        counts.append(here[~split])
        corners = np.stack(np.meshgrid(*[[0, 1]] * axes, indexing="ij"), axis=-1).reshape(-1, axes)
        nodes = (2 * nodes[split][:, None] + corners).reshape(-1, axes)
    exact = np.concatenate(counts)
    noisy = exact + rng.laplace(scale=2 / ((1 - share) * epsilon), size=exact.shape)
    return Masses(np.concatenate(middles), np.concatenate(sides), noisy / total)


def adaptive_grid(
    records: FloatArray, epsilon: float, factor: float, rng: np.random.Generator
) -> Masses:
    """AdaptiveGrid on two axes (Qardaji, Yang & Li 2013, section IV.B, constrained inference).

    Of m1 cells an axis on the first level, each has m2 by its own noisy count on the second; the
    rules of thumb for both are multiplied by `factor`.
    """
    n, paid = len(records), epsilon / 2  # a replaced record is a removed one and an added one
    rule = max(10, math.ceil(math.sqrt(n * paid / _FIRST) / 4))
    first = max(1, round(factor * rule))
    places = np.minimum((records * first).astype(np.int64), first - 1)
    flat = places[:, 0] * first + places[:, 1]
    order = np.argsort(flat, kind="stable")
    bounds = np.searchsorted(flat[order], np.arange(first**2 + 1))
    middles, sides, shares = [], [], []
    for cell in range(first**2):
        inside = records[order[bounds[cell] : bounds[cell + 1]]] * first
        noisy = len(inside) + rng.laplace(scale=1 / (ALPHA * paid))
        rule = math.ceil(math.sqrt(max(noisy, 0.0) * (1 - ALPHA) * paid / _SECOND))
        second = max(1, round(factor * rule))
        corner = np.array(divmod(cell, first))
        within = np.clip(((inside - corner) * second).astype(np.int64), 0, second - 1)
        counts = np.bincount(within[:, 0] * second + within[:, 1], minlength=second**2)
        fine = counts + rng.laplace(scale=1 / ((1 - ALPHA) * paid), size=second**2)
        # Both are estimates of the same total; the first has the weight that its variance deserves.
        weight = (ALPHA * second) ** 2 / ((1 - ALPHA) ** 2 + (ALPHA * second) ** 2)
        fine += (weight * noisy + (1 - weight) * fine.sum() - fine.sum()) / second**2
        grid = np.stack(np.divmod(np.arange(second**2), second), axis=-1)
        middles.append((corner + (grid + 0.5) / second) / first)
        sides.append(np.full((second**2, 2), 1 / (first * second)))
        shares.append(fine / n)
    return Masses(np.concatenate(middles), np.concatenate(sides), np.concatenate(shares))
