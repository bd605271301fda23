"""Oblique coordinates: uncorrelated, in the smallest box, exact where H is nearly singular."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dbern.bernstein.oblique import Oblique, _residuals, decorrelate
from dbern.model.component import StoredOblique


def covariance(rng, axes, strength=1.0):
    """A random symmetric positive definite matrix of floats, as exact fractions."""
    root = np.eye(axes) + strength * rng.normal(size=(axes, axes))
    floats = root @ root.T * 0.01
    floats = (floats + floats.T) / 2
    return [[Fraction(float(entry)) for entry in row] for row in floats]


@pytest.mark.parametrize("axes", [1, 2, 3, 4, pytest.param(6, marks=pytest.mark.slow)])
def test_residuals_are_uncorrelated_exactly_and_the_box_is_the_smallest(axes):
    rng = np.random.default_rng(axes)
    for strength in (0.3, 3.0):
        given = covariance(rng, axes, strength)
        oblique, deviations = decorrelate(given)
        volumes = []
        for order in itertools.permutations(range(axes)):
            if axes == 6 and order[:2] != (0, 1):  # enough of 720
                break
            rows, variances = _residuals(given, order)
            for a, b in itertools.combinations(range(axes), 2):
                product = sum(
                    rows[a][i] * given[i][j] * rows[b][j] for i in range(axes) for j in range(axes)
                )
                assert product == 0
            volumes.append(math.prod(float(sum(abs(c) for c in row)) for row in rows))
            if tuple(tuple(map(float, row)) for row in rows) == oblique.rows:
                assert deviations == tuple(
                    math.sqrt(v) / w for v, w in zip(variances, oblique.width, strict=True)
                )
        if axes < 6:
            assert math.prod(oblique.width) == pytest.approx(min(volumes), rel=1e-9)
        assert np.linalg.det(np.array(oblique.rows)) == pytest.approx(1.0)


def test_two_axes_never_take_twice_the_area():
    for correlation in (-0.999, -0.5, 0.1, 0.9, 0.9999):
        for ratio in (Fraction(1, 50), Fraction(1), Fraction(7)):
            r = Fraction(correlation)
            oblique, _ = decorrelate([[Fraction(1), r * ratio], [r * ratio, ratio * ratio]])
            area = 1 + abs(float(r)) * min(float(ratio), 1 / float(ratio))
            assert math.prod(oblique.width) == pytest.approx(area)
            assert math.prod(oblique.width) < 2


def test_positions_fill_the_box_and_points_bring_them_back():
    oblique = Oblique(((1.0, 0.0, 0.0), (-0.7, 1.0, 0.2), (0.4, 0.0, 1.0)))
    corners = np.array(list(itertools.product((0.0, 1.0), repeat=3)))
    positions = oblique.positions(corners)
    np.testing.assert_array_equal(positions.min(axis=0), 0.0)
    np.testing.assert_array_equal(positions.max(axis=0), 1.0)
    inside = np.random.default_rng(0).uniform(0.01, 0.99, size=(50, 3))
    points, known = oblique.points(oblique.positions(inside))
    np.testing.assert_allclose(points, inside, atol=1e-14)
    assert known.all()
    assert not oblique.points(np.array([[1.0, 1.0, 0.0]]))[1].any()
    sides = {"rows": oblique.rows, "low": oblique.low, "width": oblique.width}
    assert StoredOblique.from_json(sides).restore() == oblique


def test_what_is_not_positive_definite_is_told_apart_exactly():
    one = Fraction(1)
    for bad in ([[one, one], [one, one]], [[one, 2 * one], [2 * one, one]], [[-one]], [[0 * one]]):
        with pytest.raises(ValueError, match="not positive definite"):
            decorrelate(bad)
    nearly = 1 - Fraction(1, 10**40)
    oblique, deviations = decorrelate([[one, nearly], [nearly, one]])
    assert min(deviations) == pytest.approx(math.sqrt(2e-40) / 2)
    assert np.abs(oblique.rows).max() == 1.0


def test_a_record_is_put_where_it_is_put_alone():
    oblique = Oblique(((1.0, 0.0), (-0.7, 1.0)))
    points = np.random.default_rng(3).uniform(size=(1001, 2))
    together = oblique.positions(points)
    alone = np.array([oblique.positions(points[i : i + 1])[0] for i in range(0, 1001, 50)])
    np.testing.assert_array_equal(together[::50], alone)
    np.testing.assert_array_equal(oblique.positions(points[::-1])[::-1], together)
