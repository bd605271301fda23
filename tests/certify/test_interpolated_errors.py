"""Functions of bins that are linear between lattice values: what they miss, searched for more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbern.bernstein.basis import INTERPOLATED, iterated_basis
from dbern.bernstein.kernels import KERNELS, kernel_of
from dbern.bernstein.splines import bin_matrix
from dbern.certify import interpolated_errors as module
from dbern.certify.bias_envelopes import _axis_envelope, largest_errors
from dbern.certify.interpolated_errors import InterpolatedErrors
from dbern.reconstruct.bins import AxisBins, axis_bins
from dbern.reconstruct.series import Hats, excess_between_nodes, released_series

SIZES = [(0.01, 300, 700, 2), (0.05, 100, 90, 3), (0.02, 37, 53, 1), (0.3, 9, 4, 2),
         (0.02, 1, 1, 1), (0.004, 50, 60, 5), (0.05, 64, 20, 0)]  # fmt: skip
"""Bandwidth, steps, cells and degree of the bins."""
ROUNDING = 1e-9  # of the peak


def errors(kernel, bins, y, t):
    """Return what a release misses of kernels at t, (y, t), by its definition."""
    k = len(bins.synthesis) - 1
    step = np.minimum((y * k).astype(int), k - 1)
    share = (y * k - step)[:, None]
    rows = (1 - share) * bins.synthesis[step] + share * bins.synthesis[step + 1]
    return kernel(y[:, None] - t) - rows @ bin_matrix(t, bins.cells, bins.degree).T


def critical(kernel, bins, count=400):
    """Nodes, middles of steps, ends and middles of cells, kinks seen from some, and random ones."""
    rng, k = np.random.default_rng(0), len(bins.synthesis) - 1
    y = np.concatenate([rng.random(count), np.arange(k + 1) / k, (np.arange(k) + 0.5) / k])
    edges = np.arange(2 * bins.cells + 1) / (2 * bins.cells)
    t = np.concatenate([rng.random(count), edges, edges + 1e-9 * rng.normal(size=len(edges))])
    some = rng.choice(y, 100)
    t = np.concatenate([t, *(some + side * kink for kink in kernel.kinks for side in (-1, 1))])
    return y, t[(t >= 0) & (t <= 1)]


def exceeded(kernel, bins, cells):
    """Return by how much an error seen exceeds its bound, cell by cell of y and half by half."""
    y, t = critical(kernel, bins)
    seen = np.abs(errors(kernel, bins, y, t))
    bounds = InterpolatedErrors(kernel, bins, cells).bounds.reshape(-1, 2 * bins.cells)
    rows = np.minimum((y * cells).astype(int), cells - 1)
    halves = np.minimum((t * 2 * bins.cells).astype(int), 2 * bins.cells - 1)
    inside = rows < len(bounds)
    over = seen[inside] - bounds[rows[inside]][:, halves]
    return max(float(over.max()), float(seen.max() - bounds.max())) / kernel.peak


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("bandwidth", "k", "cells", "degree"), SIZES)
@pytest.mark.parametrize("public", [7, 200])
def test_no_record_is_missed_by_more(name, bandwidth, k, cells, degree, public):
    kernel = kernel_of(name, bandwidth)
    bins = axis_bins(kernel, k, cells, degree, INTERPOLATED)
    assert exceeded(kernel, bins, public) <= ROUNDING


@pytest.mark.parametrize("name", ["gaussian", "laplace", "triangle", "biweight"])
@settings(max_examples=12, deadline=None)
@given(
    bandwidth=st.floats(0.003, 0.4), k=st.integers(1, 120), cells=st.integers(1, 80),
    degree=st.integers(0, 5), public=st.integers(1, 150), seed=st.integers(0, 99),
)  # fmt: skip
def test_nor_by_any_other_matrix(name, bandwidth, k, cells, degree, public, seed):
    """What is proved holds for every A: here a fitted one that is disturbed, or a random one."""
    kernel, rng = kernel_of(name, bandwidth), np.random.default_rng(seed)
    fitted = axis_bins(kernel, k, cells, degree, INTERPOLATED).synthesis
    noise = rng.normal(size=fitted.shape) * kernel.peak
    matrix = (seed % 2) * fitted + rng.choice([0.01, 0.3]) * noise
    bins = AxisBins(cells, degree, np.ascontiguousarray(matrix, "<f8").tobytes())
    assert exceeded(kernel, bins, public) <= ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("bandwidth", "k", "cells", "degree"), SIZES[:4])
@pytest.mark.parametrize("counted", [None, (40, 1)])
def test_splines_are_above_errors_and_kernels(name, bandwidth, k, cells, degree, counted):
    kernel, public = kernel_of(name, bandwidth), 120
    bins, counted = axis_bins(kernel, k, cells, degree, INTERPOLATED), counted or (cells, degree)
    found = _axis_envelope(kernel, k, INTERPOLATED, bins, counted, public)
    y, t = critical(kernel, bins)
    rows, beta = np.minimum((y * public).astype(int), public - 1), bin_matrix(t, *counted).T
    seen = np.abs(errors(kernel, bins, y, t))
    assert (seen <= found.error[rows] @ beta + ROUNDING * kernel.peak).all()
    assert (kernel(y[:, None] - t) <= found.kernel[rows] @ beta + ROUNDING * kernel.peak).all()


@pytest.mark.parametrize("name", ["laplace", "triangle", "epanechnikov"])
def test_cells_without_a_kink_need_few_parts(name, monkeypatch):
    """Bounds are hardly above those of cells that are all looked at in many parts."""
    kernel = kernel_of(name, 0.1)
    bins = axis_bins(kernel, 200, 60, 2, INTERPOLATED)
    few = InterpolatedErrors(kernel, bins, 20).bounds
    monkeypatch.setattr(module, "_FEW_PARTS", module._PARTS)
    assert few.mean() <= 1.05 * InterpolatedErrors(kernel, bins, 20).bounds.mean()


@pytest.mark.sample(test=1)
@pytest.mark.parametrize("name", KERNELS)
def test_bounds_are_near_what_is_missed(name):
    kernel = kernel_of(name, 0.02)
    bins = axis_bins(kernel, 1000, 300, 2, INTERPOLATED)
    y, t = np.linspace(0.4, 0.6, 1777), np.linspace(0.4, 0.6, 1511)
    worst = np.abs(errors(kernel, bins, y, t)).max()
    assert worst <= largest_errors(kernel, 1000, INTERPOLATED, bins).max() <= 2.2 * worst


@pytest.mark.planted
@pytest.mark.parametrize("planted", ["lines", "nodes", "bends", "neighbor"])
def test_search_finds_what_is_left_out(planted, monkeypatch):
    kernel = kernel_of("triangle" if planted == "lines" else "gaussian", 0.1)
    steps, cells, degree = {"lines": (10, 200, 2), "neighbor": (40, 60, 2)}.get(
        planted, (200, 12, 3)
    )
    bins = axis_bins(kernel, steps, cells, degree, INTERPOLATED)
    if planted in ("bends", "neighbor"):
        matrix = kernel.peak * np.random.default_rng(0).normal(size=bins.synthesis.shape)
        bins = AxisBins(cells, degree, np.ascontiguousarray(matrix, "<f8").tobytes())
    if planted == "lines":  # what lines miss of K
        monkeypatch.setattr(
            InterpolatedErrors, "_missed_by_lines", lambda _self, nearest, *_: 0.0 * nearest
        )
    elif planted == "nodes":  # what bins miss
        monkeypatch.setattr(InterpolatedErrors, "_missed_at_nodes", lambda *_: np.zeros((1, 1, 1)))
    elif planted == "bends":  # what grids miss of a spline between their points
        monkeypatch.setattr(module, "_PARTS", 1)
        assert exceeded(kernel, bins, 64) <= ROUNDING
        monkeypatch.setattr(
            InterpolatedErrors, "_bends", lambda _self, rows: np.zeros((len(rows), 1))
        )
    else:  # the node at the other end of a step
        nodes = InterpolatedErrors._nodes
        monkeypatch.setattr(
            InterpolatedErrors, "_nodes", lambda self, rows: nodes(self, rows)[:, :1]
        )
    assert exceeded(kernel, bins, 64) > ROUNDING


@given(k=st.integers(1, 60), seed=st.integers(0, 9))
def test_hats_are_nowhere_above_their_nodes(k, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(k + 1, 7))
    bins = AxisBins(6, 1, np.ascontiguousarray(matrix, "<f8").tobytes())
    series = released_series(k, INTERPOLATED, bins)
    assert isinstance(series, Hats)
    rows = iterated_basis(rng.random(300), k, INTERPOLATED) @ matrix
    sums = np.abs(rows).sum(axis=1).max()
    assert sums <= series.norm
    values, factor = series.at_nodes(8)
    weights = rng.normal(size=7)
    assert np.abs(rows @ weights).max() <= factor * np.abs(values @ weights).max() * (1 + 1e-12)
    assert not list(excess_between_nodes([series], 8))
