"""Goodness of fit against the exact laws of samplers, for samples of any scale."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from dbern.privacy.laplace import SignedNoise

FALSE_ALARM = 1e-9  # of each call; the keys are fixed, so a test that passes passes for ever


def laplace_tails(cuts: list[int], scale: int) -> np.ndarray:
    """``P(|X| >= m)``."""
    beyond = 2 * np.exp(-np.array(cuts) / scale) / (1 + math.exp(-1 / scale))
    return np.where(np.array(cuts) == 0, 1.0, beyond)


def laplace_cuts(scale: int) -> list[int]:
    """Magnitudes that cut the law into about 30 cells, single integers where the scale is small."""
    quantiles = [math.ceil(-scale * math.log1p(-j / 28)) for j in range(28)]
    return sorted({0, 1, *quantiles, 4 * scale, 5 * scale, 6 * scale})


def gaussian_tails(cuts: list[int], sigma: int) -> np.ndarray:
    """``P(|X| >= m)``: summed where sigma is small, else Gaussian with continuity correction."""
    if sigma > 2000:
        return np.array([1.0 if m == 0 else 2 * stats.norm.sf((m - 0.5) / sigma) for m in cuts])
    x = np.arange(-40 * sigma, 40 * sigma + 1)
    weight = np.exp(-(x**2) / (2 * sigma**2))
    return np.array([weight[abs(x) >= m].sum() for m in cuts]) / weight.sum()


def gaussian_cuts(sigma: int) -> list[int]:
    points = (np.arange(1, 121) / 30 * sigma).round()
    return sorted({0, 1, *(int(point) for point in points)})


def p_value(noise: SignedNoise, cuts: list[int], tails: np.ndarray) -> float:
    """Chi-square test of signed cells, zero among the first; rare ones are one cell."""
    mass = -np.diff([*tails, 0.0])
    expected = np.concatenate([mass[:1], np.repeat(mass[1:] / 2, 2)]) * len(noise)
    cell = np.searchsorted(np.array(cuts, np.uint64), noise.magnitude, side="right") - 1
    cell = np.where(cell == 0, 0, 2 * cell - 1 + noise.negative)
    seen = np.bincount(cell, minlength=expected.size)
    small = expected < 8
    seen = np.append(seen[~small], seen[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    if expected[-1] < 1:  # too little to be a cell: added to the next
        seen, expected = _merge_last(seen), _merge_last(expected)
    return float(stats.chisquare(seen, expected * (seen.sum() / expected.sum())).pvalue)


def _merge_last(cells: np.ndarray) -> np.ndarray:
    return np.append(cells[:-2], cells[-2] + cells[-1])
