"""Edges of a density beside a histogram: the errors of each against the law that rows are of."""

from __future__ import annotations

import numpy as np
import pytest
from banding import columns, drawn, planned
from scipy.stats import beta, truncexpon, uniform

ROWS, RELEASES = 20_000, 8
LAWS = {
    "even": uniform(),
    "exponential": truncexpon(b=4, scale=0.25),
    "Beta(1, 3)": beta(1, 3),
    "Beta(2, 5)": beta(2, 5),
}
MIDDLES = (np.arange(400) + 0.5) / 400


def error(found, known):
    """The largest and the mean error over the axis."""
    sizes = np.abs(found - known)
    return np.array([sizes.max(), sizes.mean()])


def histogram(rows, known, epsilon):
    """Errors of Laplace counts, of the number of cells that errs least: it looks, for free."""
    rng, best = np.random.default_rng(0), np.full(2, np.inf)
    for cells in (5, 10, 20, 40, 80):
        counts = np.bincount((rows * cells).astype(int).clip(0, cells - 1), minlength=cells)
        noisy = counts + rng.laplace(0, 2 / epsilon, (RELEASES, cells))
        cell = (MIDDLES * cells).astype(int)
        found = [error(one[cell] * cells / len(rows), known) for one in noisy]
        best = np.minimum(best, np.mean(found, axis=0))
    return best


@pytest.mark.parametrize("epsilon", ["0.1", "1"])
@pytest.mark.parametrize("name", LAWS)
def test_normalized_edges_err_less_where_rows_reach_the_bounds(name, epsilon):
    law = LAWS[name]
    rows = law.rvs(ROWS, random_state=1)
    known, errors = law.pdf(MIDDLES), {}
    for edges in (None, "normalized"):
        case = planned(1, n=ROWS, bandwidth=0.03, epsilon=epsilon, edges=edges)
        releases = drawn(case, columns(rows[:, None]), range(RELEASES))
        found = [error(synopsis(MIDDLES[:, None]), known) for synopsis in releases]
        errors[edges or "natural"] = np.mean(found, axis=0)
    errors["histogram"] = histogram(rows, known, float(epsilon))
    told = ", ".join(f"{edges} {most:.3f} {mean:.4f}" for edges, (most, mean) in errors.items())
    print(f"\n{name}, epsilon {epsilon}: {told}")
    ratio = errors["normalized"] / errors["natural"]
    if name == "Beta(2, 5)":  # no rows at the bounds: what the kernel blurs there is doubled
        assert (ratio < [2.3, 1.5]).all()
        return
    assert (ratio < [0.25, 0.65]).all()
    if name != "even":  # of which a histogram that looks has five cells
        assert errors["normalized"][1] < errors["histogram"][1]
