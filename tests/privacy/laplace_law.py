"""Goodness of fit against the exact discrete Laplace law, for samples of any scale."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from dbern.privacy.laplace import SignedNoise

FALSE_ALARM = 1e-9  # of each call; the keys are fixed, so a test that passes passes for ever


def survival(m: int, scale: int) -> float:
    """``P(|X| >= m)``."""
    return 1.0 if m == 0 else 2 * math.exp(-m / scale) / (1 + math.exp(-1 / scale))


def edges(scale: int) -> list[int]:
    """Magnitudes that cut the law into about 30 cells, single integers where the scale is small."""
    quantiles = [math.ceil(-scale * math.log1p(-j / 28)) for j in range(28)]
    return sorted({0, 1, *quantiles, 4 * scale, 5 * scale, 6 * scale})


def p_value(noise: SignedNoise, scale: int) -> float:
    """Chi-square test of signed cells; zero is a cell of its own where it is expected often."""
    cuts = edges(scale)
    tails = [survival(cut, scale) for cut in cuts] + [0.0]
    mass = -np.diff(tails)
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


def fits(noise: SignedNoise, scale: int) -> bool:
    return p_value(noise, scale) > FALSE_ALARM


def from_integers(samples: object) -> SignedNoise:
    exact = np.array(samples, np.int64)
    return SignedNoise(np.abs(exact).astype(np.uint64), exact < 0)
