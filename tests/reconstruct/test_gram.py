"""The whole lattice's Gram matrix: norms against exhaustive search, enclosures against grids."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from dbern.bernstein.reproducing import ArcCosine, Polynomial
from dbern.certify.balls import GramBall, ReleaseOperator, StatedBall
from dbern.erm.spaces import UserKernel
from dbern.errors import SpecError
from dbern.model.function_classes import read_class, stored_class
from dbern.privacy.covariance import NoiseCovariance
from dbern.reconstruct import gram, map_from_dict, map_to_dict, strategy_of
from dbern.reconstruct.base import Lattice, Slab
from dbern.reconstruct.gram import (
    CubeKernel,
    GramStrategy,
    LatticeSpectrum,
    lattice_spectrum,
    lattice_sup_norm,
    rkhs_sensitivity,
)
from dbern.synopsis.smoothing import Smoothing, select, smoothed


def cosine(x, y):
    return np.cos(3.0 * (x[:, None, :] - y).sum(axis=-1))


def bump(x, y):
    return np.exp(-np.square(x[:, None, :] - y).sum(axis=-1) / (2 * 0.36))


KERNELS = {
    "linear": Polynomial(1, 1.0, 0.0),
    "cubic": Polynomial(3, 1.4, 0.5),
    "odd": Polynomial(3, 1.0, 0.0),
    "arc-cosine": ArcCosine(0.5),
    "no bias": ArcCosine(0.0),
    "user": UserKernel(cosine, 1.0, lipschitz=3.0 * np.sqrt(2)),
    "bent": UserKernel(bump, 1.0, lipschitz=1 / 0.6, curvature=np.sqrt(3) / 0.36),
}


def cube_of(name, axes):
    return CubeKernel(KERNELS[name], (-1.0,) * axes, (2.0,) * axes)


def unit_functions(cube, lattice, rng, count):
    """Lattice values of functions of norm one: expansions at random points and at the lattice's."""
    points = np.concatenate(
        [cube.points(rng.uniform(size=(20, cube.dimensions))), cube.lattice_points(lattice)]
    )
    own = cube.kernel(points, points)
    alpha = rng.choice([-1.0, 1.0], size=(count, len(points))) * rng.uniform(size=len(points)) ** 4
    norms = np.sqrt(np.maximum(np.einsum("ci,ij,cj->c", alpha, own, alpha), 1e-12))
    values = alpha @ cube.kernel(points, cube.lattice_points(lattice))
    return values / (norms[:, None] * (1 + 1e-9))  # whose own rounding is not the point


def worst_signs(matrix):
    """``max_s s'Gs`` over all signs."""
    half = np.array(list(itertools.product((-1, 1), repeat=len(matrix) - 1)))
    signs = np.column_stack([np.ones(len(half)), half])
    return np.einsum("si,ij,sj->s", signs, matrix, signs).max()


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("k", [(9,), (2, 3)])
def test_the_bounds_hold_over_all_signs_and_functions(name, k):
    cube, lattice, rng = cube_of(name, len(k)), Lattice(k), np.random.default_rng(1)
    exact = np.sqrt(worst_signs(cube.gram(lattice)))
    one, two = (rkhs_sensitivity(cube, lattice, None, norm).value for norm in (1, 2))
    assert exact <= one <= 2 * exact
    assert np.sqrt(np.linalg.eigvalsh(cube.gram(lattice))[-1]) <= two
    values = unit_functions(cube, lattice, rng, 500)
    assert np.abs(values).sum(axis=1).max() <= one
    assert np.linalg.norm(values, axis=1).max() <= two
    for weighting in (0.25, 0.5):
        spectrum = lattice_spectrum(cube, lattice, 6, weighting)
        released = values @ spectrum.analysis.T
        one = rkhs_sensitivity(cube, lattice, spectrum, 1).value
        assert np.abs(released).sum(axis=1).max() <= one
    assert (
        np.linalg.norm(released, axis=1).max() <= rkhs_sensitivity(cube, lattice, spectrum, 2).value
    )
    assert rkhs_sensitivity(cube, lattice, spectrum, 2).value < 1.001


def _signed(cube, points, rows):
    return cube.kernel(points[rows], points) + 1e-9  # sums that are zero but for rounding


@pytest.mark.parametrize("name", ["linear", "odd", "user"])
def test_the_sum_of_a_signed_gram_matrix_is_no_bound(name, monkeypatch):
    """Without absolute values: ``sum G`` is what all signs equal attain, and others exceed."""
    cube, lattice = cube_of(name, 1), Lattice((9,))
    exact = np.sqrt(worst_signs(cube.gram(lattice)))
    planted = np.sqrt(max(float(cube.gram(lattice).sum()), 0.0))
    assert planted < 0.8 * exact
    monkeypatch.setattr(gram, "_absolute", _signed)
    gram._plain_bound.cache_clear()
    wrong = rkhs_sensitivity(cube, lattice, None, 1).value
    gram._plain_bound.cache_clear()
    values = unit_functions(cube, lattice, np.random.default_rng(2), 500)
    assert np.abs(values).sum(axis=1).max() > wrong


def test_a_wrong_matrix_has_a_wrong_norm_and_is_seen():
    """What is stored counts, not what was meant."""
    cube, lattice = cube_of("cubic", 2), Lattice((5, 5))
    spectrum = lattice_spectrum(cube, lattice, 6)
    assert 1 <= spectrum.norm(cube, lattice) < 1 + 1e-6
    integers = spectrum.integers.copy()
    integers[2] *= 2
    wrong = LatticeSpectrum(
        integers.astype("<i8").tobytes(), spectrum.exponent, spectrum.eigenvalues
    )
    assert wrong.norm(cube, lattice) > 3.99


def test_eigenvalues_that_are_rounding_are_left_out():
    cube, lattice = cube_of("cubic", 1), Lattice((40,))
    assert lattice_spectrum(cube, lattice, 41).rank == 4  # polynomials of degree three


@pytest.mark.parametrize("k", [(4096,), (64, 63), (16, 16, 16)])
def test_lattices_beyond_the_limit_are_refused(k):
    cube = cube_of("arc-cosine", len(k))
    with pytest.raises(
        SpecError, match=r"^mechanism\.k: .*4096.*[Ww]rite k = \d+ or less, or noise"
    ):
        lattice_spectrum(cube, Lattice(k), 10)


@pytest.mark.parametrize("name", ["cubic", "arc-cosine", "no bias", "user", "bent"])
@pytest.mark.parametrize("axes", [1, 2])
def test_features_are_as_lipschitz_as_stated(name, axes):
    cube, rng = cube_of(name, axes), np.random.default_rng(3)
    x = rng.uniform(size=(300, axes))
    apart = rng.normal(size=(300, axes)) * 10.0 ** rng.uniform(-4, -1, size=(300, 1))
    y = np.clip(x + apart, 0, 1)
    x, y = np.concatenate([x, np.ones((1, axes))]), np.concatenate([y, np.full((1, axes), 0.999)])
    a, b = cube.points(x), cube.points(y)
    squares = [
        cube.kernel(p[None], p[None]) - 2 * cube.kernel(p[None], q[None])
        + cube.kernel(q[None], q[None])
        for p, q in zip(a, b, strict=True)
    ]  # fmt: skip
    distance = np.sqrt(np.maximum(np.ravel(squares), 0)) - 1e-7
    ratio = distance / np.maximum(np.linalg.norm(x - y, axis=1), 1e-9)
    assert ratio.max() <= cube.lipschitz <= 20 * ratio.max()


@pytest.mark.parametrize(
    ("constant", "key"), [("lipschitz", 1 / 0.6), ("curvature", 3**0.5 / 0.36)]
)
@pytest.mark.parametrize("axes", [1, 2])
def test_a_constant_that_a_user_s_kernel_exceeds_is_refused(constant, key, axes):
    """By steps and bends of its features: just what is true is not, a twentieth less is."""
    box = (-1.0,) * axes, (2.0,) * axes
    KERNELS["bent"].refuse_steeper(*box)
    KERNELS["user"].refuse_steeper(*box)
    less = replace(KERNELS["bent"], **{constant: 0.95 * key})
    with pytest.raises(SpecError, match=f"^target.kernel_{constant}: is .* has at least"):
        less.refuse_steeper(*box)


def test_what_features_bend_bounds_the_errors_of_a_user_s_kernel():
    """On two axes it is near what there is, where slopes alone say several times that."""
    k, h = (8, 8), (5, 5)

    def bound(kernel):
        return GramBall(CubeKernel(kernel, (-1.0,) * 2, (2.0,) * 2), 1.0).error(k, h, [None] * 2)

    y = np.stack(np.meshgrid(*[np.linspace(0, 1, 61)] * 2, indexing="ij"), -1).reshape(-1, 2)
    found = ReleaseOperator(cube_of("bent", 2), k, h, None).errors(y).max()
    assert found <= bound(KERNELS["bent"]) < 1.1 * found
    assert bound(replace(KERNELS["bent"], lipschitz=np.inf)) < 1.1 * found
    assert bound(replace(KERNELS["bent"], curvature=np.inf)) > 2 * found
    # What is stated is what is relied on: of half of it the corners would be nearly all there is.
    assert bound(replace(KERNELS["bent"], curvature=1e-3)) < bound(KERNELS["bent"])


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("k", "h"), [((12,), (1,)), ((12,), (6,)), ((4, 5), (2, 3))])
@pytest.mark.parametrize("rank", [0, 3])
def test_the_enclosed_error_is_that_of_a_dense_grid_or_a_little_more(name, k, h, rank):
    cube = cube_of(name, len(k))
    spectrum = lattice_spectrum(cube, Lattice(k), rank) if rank else None
    axes = [np.linspace(0, 1, 401 if len(k) == 1 else 41)] * len(k)
    y = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(k))
    found = ReleaseOperator(cube, k, h, spectrum).errors(y).max()
    maps = [None] * len(k) if spectrum is None else [spectrum]
    bound = GramBall(cube, 1.0).error(k, h, maps)
    assert found * (1 - 1e-9) <= bound <= 1.5 * found + 1e-5


@pytest.mark.parametrize("name", ["cubic", "arc-cosine"])
def test_no_function_of_the_ball_errs_by_more(name):
    """Of the release itself, in the coordinates of a synopsis."""
    cube, lattice, h = cube_of(name, 2), Lattice((6, 5)), (3, 3)
    rng = np.random.default_rng(4)
    centers = cube.points(rng.uniform(size=(8, 2)))
    y = rng.uniform(size=(400, 2))
    alpha = rng.normal(size=8)
    alpha /= np.sqrt(alpha @ cube.kernel(centers, centers) @ alpha)
    values = (alpha @ cube.kernel(centers, cube.lattice_points(lattice))).reshape(lattice.shape)
    for rank in (2, 6):
        spectrum = lattice_spectrum(cube, lattice, rank)
        strategy = GramStrategy(lattice, spectrum)
        whole = Slab(0, 0, rank)
        released = strategy.measure(values, whole)
        parts = [strategy.reconstruct(released, s) for s in (Slab(0, 0, 2), Slab(1, 2, 7))]
        back = np.concatenate(parts)
        matrices = strategy.matrices(h)
        for k, matrix in zip(lattice.k, matrices, strict=True):
            assert matrix.shape == (k + 1, k + 1)
        np.testing.assert_allclose(strategy.joint_synthesis @ released, back, atol=1e-12)
        found = ReleaseOperator(cube, lattice.k, h, spectrum).weights(y) @ released
        exact = alpha @ cube.kernel(centers, cube.points(y))
        assert np.abs(found - exact).max() <= GramBall(cube, 1.0).error(lattice.k, h, [spectrum])


def test_the_whole_lattice_s_norm_is_that_of_its_axes():
    one = lattice_sup_norm([6], [3], np.eye(7))
    assert lattice_sup_norm([6, 6], [3, 3], np.eye(49)) == pytest.approx(one**2, rel=1e-8)
    assert lattice_sup_norm([6], [3], np.full((7, 1), 2.0)) == pytest.approx(2.0, rel=0.1)


def test_maps_and_classes_of_functions_come_back():
    cube, lattice = cube_of("cubic", 2), Lattice((3, 3))
    spectrum = lattice_spectrum(cube, lattice, 4)
    assert map_from_dict(map_to_dict(spectrum)) == spectrum
    assert strategy_of(lattice, [spectrum]) == GramStrategy(lattice, spectrum)
    for name in ("cubic", "arc-cosine"):
        ball = GramBall(cube_of(name, 2), 0.7)
        assert read_class(stored_class(ball).to_json()).restore() == ball
        assert ball.stored((3, 3), (1, 1), [spectrum]) is ball
    ball = GramBall(cube_of("user", 2), 0.7)
    stated = read_class(stored_class(ball.stored((3, 3), (2, 2), [spectrum])).to_json()).restore()
    assert isinstance(stated, StatedBall)
    assert stated.error((3, 3), (2, 2), [spectrum]) == ball.error((3, 3), (2, 2), [spectrum])
    for h, maps in (((1, 2), [spectrum]), ((2, 2), [None, None]), ((2, 2), [spectrum.using(2)])):
        assert stated.error((3, 3), h, maps) >= ball.error((3, 3), h, maps)
    with pytest.raises(NotImplementedError):
        stored_class(ball)


def test_without_a_lipschitz_constant_each_term_is_bounded_by_itself():
    kernel = replace(KERNELS["user"], lipschitz=np.inf)
    bound = GramBall(CubeKernel(kernel, (-1.0,), (2.0,)), 1.0).error([12], [4], [None])
    assert 2 <= bound < 3.2


def test_order_and_rank_are_chosen_where_axes_do_not_factor():
    cube, lattice = cube_of("cubic", 2), Lattice((8, 8))
    spectrum = lattice_spectrum(cube, lattice, 8)
    strategy = GramStrategy(lattice, spectrum)
    released = np.zeros(8)
    released[0] = 5.0
    chosen = select(released, NoiseCovariance(1.0), strategy, (4, 4))
    assert chosen.ranks[0] < 8  # nothing but noise in the others
    used = smoothed(strategy, Smoothing((1, 1), (3,)))
    np.testing.assert_array_equal(used.spectrum.synthesis[:, 3:], 0)


@pytest.mark.parametrize("name", ["cubic", "arc-cosine", "user"])
def test_no_function_of_a_ball_exceeds_what_a_constant_is_measured_by(name):
    cube, rng = cube_of(name, 2), np.random.default_rng(0)
    ball = GramBall(cube, 0.7)
    corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = cube.points(np.vstack([corners, rng.uniform(size=(40, 2))]))
    gram, largest = cube.kernel(y, y), 0.0
    for weights in [*np.eye(len(y)), *rng.normal(size=(50, len(y)))]:
        size = 0.7 / np.sqrt(weights @ gram @ weights)
        largest = max(largest, float(np.abs(size * gram @ weights).max()))
    assert largest <= ball.highest
    assert largest > 0.5 * ball.highest
    assert StatedBall.of(ball, (4, 4), (1, 1), [None]).highest == ball.highest


@pytest.mark.parametrize("constant", [0.1, 1.0])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_values_of_the_arc_cosine_kernel_are_bent_no_further_than_is_proved(constant, axes):
    """Second differences along axes, also where points are near each other or the middle."""
    rng, kernel, step = np.random.default_rng(axes), ArcCosine(constant), 1e-4
    x = rng.uniform(-1, 1, size=(2000, axes)) * 10.0 ** rng.uniform(-2, 0, size=(2000, 1))
    v = x + rng.normal(size=x.shape) * 10.0 ** rng.uniform(-1, 0.5, size=(2000, 1))
    most = kernel.fold * (np.linalg.norm(v - x, axis=1) + step)  # from any place between
    most /= np.sqrt((x * x).sum(axis=1) + constant**2) - step
    for e in step * np.eye(axes):
        values = [
            np.concatenate([np.diag(kernel(x[i : i + 50] + s * e, v[i : i + 50]))
                            for i in range(0, len(x), 50)])
            for s in (-1, 0, 1)
        ]  # fmt: skip
        bent = (values[0] - 2 * values[1] + values[2]) / step**2
        assert (bent <= most + 1e-6).all()
        assert (bent > -1e-6).all()
        assert (bent / most).max() > 0.9


@pytest.mark.parametrize(("k", "h"), [((12,), (4,)), ((6, 8), (3, 2)), ((20, 20), (8, 8))])
@pytest.mark.parametrize("rank", [0, 6])
@pytest.mark.parametrize("name", ["arc-cosine", "no bias"])
def test_errors_of_arc_cosine_functions_bend_no_further_than_is_proved(name, k, h, rank):
    cube, step = cube_of(name, len(k)), 1e-3
    spectrum = lattice_spectrum(cube, Lattice(k), rank) if rank else None
    released = ReleaseOperator(cube, k, h, spectrum)
    y = np.random.default_rng(1).uniform(0.002, 0.998, size=(3000 // len(k) ** 2, len(k)))
    e = released.errors(y)
    bent = sum(
        (2 * e**2 - released.errors(y + d) ** 2 - released.errors(y - d) ** 2) / step**2
        for d in step * np.eye(len(k))
    )
    lengths = np.maximum(released.least_lengths(y - step, y + step), 1e-12)
    assert (bent <= released.folds() / lengths + released.bends() * (e + 1e-3) + 1e-4).all()


@pytest.mark.slow
@pytest.mark.parametrize(("k", "h"), [((20, 20), (8, 8)), ((24, 9), (4, 4))])
def test_the_worst_arc_cosine_function_is_bounded_within_twice(k, h):
    """Slopes alone say more than five times as much as there is."""
    cube, rng = cube_of("arc-cosine", 2), np.random.default_rng(0)
    y = rng.uniform(size=(20_000, 2))
    y[::2] = (1 - np.cos(np.pi * y[::2])) / 2
    found = ReleaseOperator(cube, k, h, None).errors(y).max()
    assert found <= GramBall(cube, 1.0).error(k, h, [None, None]) <= 1.7 * found
