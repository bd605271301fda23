"""Edges of densities: divided by the part of a kernel's mass within the bounds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import reference
from banding import AXES, centers, columns, drawn, planned, synopsis_of
from strategies import sections

from dbern.bernstein.kernels import KERNELS, kernel_of
from dbern.errors import SpecError
from dbern.model.function_classes import read_class, stored_class
from dbern.planning.spec import ReleaseSpec
from dbern.privacy.mechanism import privatize
from dbern.run.publish import choose_bandwidth
from dbern.synopsis.shaping import shape
from dbern.targets import KernelDensity
from dbern.testing import search

BANDWIDTHS = (1e-3, 0.05, 0.3, 2.0, 1e3)
CASES = [
    ("binned-laplace", 1, "gaussian"),
    ("laplace", 1, "gaussian"),
    ("binned-laplace", 2, "gaussian"),
    ("discrete-gaussian", 1, "triangle"),
    ("binned-gaussian", 1, "triangle"),
    ("binned-gaussian", 2, "gaussian"),
]
POINTS = np.array([0.0, 0.004, 0.03, 0.2, 0.5, 0.77, 0.98, 1.0])
NODES, WEIGHTS = np.polynomial.legendre.leggauss(400)


def integral(name, y, bandwidth):
    """The mass of a kernel at y over the unit interval, by many nodes between its kinks."""
    kinks = np.clip([0, y - bandwidth, y, y + bandwidth, 1], 0, 1)
    ends = np.unique(np.concatenate([kinks, np.linspace(0, 1, 41)]))
    halves = np.diff(ends)[:, None] / 2
    t = ends[:-1, None] + halves * (NODES + 1)
    return float((halves * WEIGHTS * reference.kernel(name, y - t, bandwidth)).sum())


def masses(points, bandwidth, name="gaussian"):
    axes = [[integral(name, y, bandwidth) for y in axis] for axis in np.transpose(points)]
    return np.prod(axes, axis=0)


def pair(axes=1, rows=None, n=4000, **more):
    """Synopses of the same records with the same noise, of natural and of normalized edges."""
    rows = np.random.default_rng(3).random((n, axes)) if rows is None else rows
    for edges in (None, "normalized"):
        case = planned(axes, n=len(rows), edges=edges, **more)
        yield next(iter(drawn(case, columns(rows), [7])))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("bandwidth", BANDWIDTHS)
def test_mass_within_is_the_integral_and_least_at_the_ends(name, bandwidth):
    kernel = kernel_of(name, bandwidth, "normalized")
    known = [integral(name, y, bandwidth) for y in POINTS]
    np.testing.assert_allclose(kernel.mass_within(POINTS), known, rtol=1e-10)
    many = 1 / kernel.mass_within(np.concatenate([POINTS, np.linspace(0, 1, 5001)]))
    assert many.max() <= kernel.edge_factor <= many.max() * (1 + 1e-9)
    assert kernel.typical_edge_factor == pytest.approx(np.sqrt(np.mean(many**2)), rel=0.01)
    natural = kernel_of(name, bandwidth)
    assert (natural.edge_factor, natural.typical_edge_factor, natural.highest) == (
        1.0, 1.0, natural.peak,
    )  # fmt: skip


@pytest.mark.parametrize(("noise", "axes", "name"), CASES)
def test_values_errors_and_promises_are_the_natural_ones_over_the_mass(noise, axes, name):
    natural, normalized = pair(axes, noise=noise, kernel=name, bandwidth=0.15)
    points = np.stack(np.meshgrid(*[POINTS] * axes, indexing="ij"), -1).reshape(-1, axes)
    mass = masses(points, 0.15, name)
    np.testing.assert_allclose(normalized(points), natural(points) / mass, rtol=1e-9)
    at_ends = 1 / masses(np.zeros((1, axes)), 0.15, name)[0]
    certificates = [one.metadata["certificate"]["total"] for one in (normalized, natural)]
    assert certificates[0] == pytest.approx(at_ends * certificates[1], rel=1e-9)
    for beta, about in ((0.05, "these-data"), (0.01, "any-database")):
        ratio = normalized.band(beta, about=about) / natural.band(beta, about=about)
        assert ratio == pytest.approx(at_ends, rel=1e-6)
        (low, high), ends = (
            one.interval(points, beta, about=about) for one in (normalized, natural)
        )
        np.testing.assert_allclose([low * mass, high * mass], ends, rtol=1e-6, atol=1e-9)
    grid = normalized.grid([9] * axes).transpose(*AXES[:axes]).to_numpy()
    places = [axis.ravel() for axis in np.meshgrid(*[np.linspace(0, 1, 9)] * axes, indexing="ij")]
    np.testing.assert_allclose(grid.ravel(), normalized(np.stack(places, -1)), rtol=1e-9)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("bandwidth", [0.002, 0.03, 0.08, 0.2, 0.6])
def test_bounds_of_a_periodic_kernel_hold_at_many_distances(name, bandwidth):
    kernel, k = kernel_of(name, bandwidth, "periodic"), 40
    x, step = np.linspace(0, 1, 200_001, retstep=True)
    exact = reference.kernel(name, x, bandwidth) + reference.kernel(name, 1 - x, bandwidth)
    allowed = kernel.ulps * 2.0**-53 * kernel.peak
    rounded = 4 * (allowed + 2.0**-53 * kernel.slope)
    for signed in (x, -x, 1 - x):
        np.testing.assert_allclose(kernel(signed), exact, rtol=0, atol=20 * allowed / bandwidth)
    assert exact.max() <= kernel.peak <= 1.05 * exact.max()
    ends = np.linspace(0, 1, 28)
    parts = [exact[(low <= x) & (x <= high)].max() for low, high in itertools.pairwise(ends)]
    assert (kernel.largest(ends[:-1], ends[1:]) >= np.multiply(parts, 1 - 1e-12)).all()
    first, second = np.diff(exact) / step, np.diff(exact, n=2) / step**2
    assert np.abs(first).max() <= 1.001 * kernel.slope
    smooth = np.ones(len(second), bool)
    for kink in kernel.kinks:
        smooth &= np.abs(x[1:-1] - kink) > 2 * step
    assert np.abs(second[smooth]).max() <= 1.001 * kernel.curvature + rounded / step**2
    nodes, t = np.arange(k + 1) / k, np.linspace(0, 1, 1001)[:, None]
    at_nodes = kernel(nodes - t)
    assert at_nodes.sum(axis=1).max() <= kernel.lattice_sum(k)
    assert (at_nodes**2).sum(axis=1).max() <= kernel.square_sum(k)
    masses_within = kernel.cumulative(1 - POINTS) - kernel.cumulative(-POINTS)
    np.testing.assert_allclose(masses_within, 2 * integral(name, 0.0, bandwidth), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "edges", "bandwidth"),
    [
        ("gaussian", "periodic", 0.04),
        ("gaussian", "periodic", 0.12),
        ("laplace", "periodic", 0.05),
        ("triangle", "periodic", 0.15),
        ("gaussian", ("periodic", "normalized"), 0.1),
    ],
)
def test_a_period_has_no_ends(name, edges, bandwidth):
    axes = 2 if isinstance(edges, tuple) else 1
    rng = np.random.default_rng(4)
    rows = np.column_stack([rng.normal(0, 0.06, 4000) % 1, *[rng.random(4000)] * (axes - 1)])
    case = planned(axes, n=4000, edges=edges, kernel=name, bandwidth=bandwidth, epsilon="20")
    points = np.stack(np.meshgrid(*[np.linspace(0, 1, 61 if axes == 1 else 13)] * axes), -1)
    points = points.reshape(-1, axes)
    apart = points[:, None] - rows
    sums = reference.kernel(name, apart, bandwidth)
    sums[..., 0] += reference.kernel(name, 1 - np.abs(apart[..., 0]), bandwidth)
    exact = sums.prod(axis=2).mean(axis=1)
    exact /= masses(points[:, 1:], bandwidth, name) if axes == 2 else 1.0
    for synopsis in drawn(case, columns(rows), range(4)):
        low, high = synopsis.interval(points, 1e-6)
        assert ((low <= exact) & (exact <= high)).all()
        bound = synopsis.metadata["certificate"]["total"]
        assert np.abs(synopsis(points) - exact).max() <= bound
        ends = [np.column_stack([np.full(9, end), *[np.linspace(0, 1, 9)] * (axes - 1)])
                for end in (0.0, 1.0)]  # fmt: skip
        assert np.abs(synopsis(ends[0]) - synopsis(ends[1])).max() <= 2 * bound
        told = synopsis.distribution().density(points, beta=1e-6)
        assert ((told.low <= exact) & (exact <= told.high)).all()
        assert synopsis.metadata["certificate"]["lower_bound"] == 0
    natural = planned(axes, n=4000, kernel=name, bandwidth=bandwidth, epsilon="20")
    bounds = [plan.certificate.total for _, plan in (case, natural)]
    assert bounds[0] < (1.5 if axes == 1 else 3.0) * bounds[1]


@pytest.mark.parametrize("noise", ["laplace", "binned-laplace", "discrete-gaussian"])
@pytest.mark.parametrize("neighbors", ["", "add-or-remove-one"])
@pytest.mark.parametrize("edges", [["periodic", "normalized"], ["periodic", "periodic"]])
def test_no_neighbours_part_farther_than_is_planned(noise, neighbors, edges):
    rows = {"neighbors": neighbors, "normalizer": "2"} if neighbors else {}
    lattice = {} if noise.startswith("binned") else {"k": [5, 4], "h": 2}
    result = search(KernelDensity, {
        "data": {"bounds": {"x": [0.0, 24.0], "y": [0.0, 1.0]}, **rows},
        "target": {"bandwidth": [2.0, 0.1], "edges": edges},
        "mechanism": {"noise": noise, **lattice},
        "budget": {"delta": "1e-6" if "gaussian" in noise else "0"},
    })  # fmt: skip
    assert not result.found, str(result)
    assert result.largest > 0.15


@pytest.mark.parametrize("kind", ["even", "at both ends"])
def test_bands_hold_at_the_bounds(kind):
    rows = np.random.default_rng(1).random((3000, 1))
    if kind == "at both ends":
        rows = np.round(rows)
    case = planned(1, n=3000, edges="normalized", bandwidth=0.05, epsilon="0.1")
    points = np.linspace(0, 1, 201)[:, None]
    exact = reference.kernel("gaussian", points - rows.T, 0.05).mean(axis=1)
    exact /= masses(points, 0.05)
    for synopsis in drawn(case, columns(rows), range(20)):
        low, high = synopsis.interval(points, 1e-6)
        assert ((low <= exact) & (exact <= high)).all()
        assert np.abs(synopsis(points) - exact).max() <= synopsis.metadata["certificate"]["total"]
    if kind == "even":  # as a user sees it: no sag
        quiet = synopsis_of(*case, centers(*case, columns(rows)))
        assert np.ptp(quiet(points)) < 0.25
        assert quiet(points).min() > 0.85


@pytest.mark.parametrize("axes", [1, 2])
def test_questions_are_about_the_density_that_is_answered(axes):
    rows = np.random.default_rng(5).random((6000, axes))
    natural, normalized = pair(axes, rows=rows, bandwidth=0.1)
    points = np.random.default_rng(6).random((7, axes))
    points[0], points[1] = 0.0, 1.0
    told = normalized.distribution().density(points, beta=0.05)
    mass = masses(points, 0.1)
    np.testing.assert_allclose(told.value, normalized(points), rtol=0.02)
    exact = np.prod(reference.kernel("gaussian", points[:, None] - rows, 0.1), axis=2).mean(axis=1)
    assert (told.low <= exact / mass).all()
    assert (exact / mass <= told.high).all()
    wider = [one.distribution().density(points, bandwidth=0.2, beta=0.05)
             for one in (normalized, natural)]  # fmt: skip
    np.testing.assert_allclose(wider[0].value * masses(points, 0.2), wider[1].value, rtol=1e-9)
    of_axis = [one.distribution().marginal(POINTS, axis="x", beta=0.05)
               for one in (normalized, natural)]  # fmt: skip
    for end in ("value", "low", "high"):
        ours, theirs = (np.ravel(getattr(one, end)) for one in of_axis)
        # Ends are searched for, on grids of a range that is twice as large.
        np.testing.assert_allclose(ours * masses(POINTS[:, None], 0.1), theirs, rtol=1e-3)
    shares = [one.distribution().mass({"x": (0.0, 0.3)}, beta=0.05).value
              for one in (normalized, natural)]  # fmt: skip
    assert shares[0] == shares[1]


def test_even_rows_are_smoothed_more_where_edges_are_normalized():
    """Of natural edges cross-validation narrows the kernel, so that less is lost at the bounds."""
    rows, widths = np.random.default_rng(3).random((20000, 1)), []
    for edges in (None, "normalized"):
        spec, plan = planned(1, n=20000, bandwidth="auto", edges=edges)
        integers = centers(spec, plan, columns(rows))

        def noisy(component, name, integers=integers):
            return privatize(integers[name], 0, component.noise.law, bytes(32), name)

        chosen, told = choose_bandwidth(spec, plan, noisy)
        widths.append(told["bandwidth"][0])
        (class_,) = (component.approximation for component in chosen.components)
        assert {kernel.edges for kernel in class_.restore().kernels} == {edges or "natural"}
    assert widths[1] > 2 * widths[0]


def test_groups_and_shapes_are_of_normalized_densities():
    roles = '{"group": {"column": "who", "values": ["a", "b"]}}'
    rows = np.random.default_rng(2).random((3000, 1))
    who = (np.arange(3000) % 3 > 0).astype(float)
    synopses = []
    for edges in (None, "normalized"):
        case = planned(1, n=3000, roles=roles, edges=edges)
        synopses.append(next(iter(drawn(case, {**columns(rows), "who": who}, [1]))))
    natural, normalized = synopses
    points = POINTS[:, None]
    mass = masses(points, 0.1)[:, None]
    np.testing.assert_allclose(normalized(points) * mass, natural(points), rtol=1e-9)
    low, high = normalized.interval(points)
    np.testing.assert_allclose((high - low) * mass, np.subtract(*natural.interval(points)[::-1]))
    _, one = pair(1)
    shaped = shape(one, ["nonnegative"])
    np.testing.assert_array_equal(shaped(points), np.maximum(one(points), 0))
    with pytest.raises(SpecError, match='can only be "nonnegative"'):
        shape(one, ["normalized"])


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"edges": "round"}, 'target.edges: .* Write edges = "normalized"'),
        ({"edges": ["periodic"]}, "target.edges: has 1 entries for 2 axes. Write one for each"),
        ({"edges": "periodic", "bandwidth": [0.1, 0.4]}, "bandwidth of 0.124 or less for y"),
        ({"edges": "normalized", "bandwidth": None, "covariance": [[0.1, 0.0], [0.0, 0.1]]},
         "target.edges: .* Leave it out, or write bandwidth"),
    ],
)  # fmt: skip
def test_what_is_refused_says_what_to_write(target, message):
    bounds = {name: [0.0, 1.0] for name in AXES[:2]}
    content = sections(
        data={"bounds": bounds, "n": 100}, target={"bandwidth": [0.1, 0.1], **target}
    )
    with pytest.raises(SpecError, match=message):
        ReleaseSpec(**content).components  # noqa: B018 - they are made when they are asked for


@pytest.mark.parametrize("name", KERNELS)
def test_a_bandwidth_that_is_told_in_place_of_a_wide_one_is_taken(name):
    data = {"bounds": {"x": [0.0, 24.0]}, "n": 100}
    target = {"bandwidth": [12.0], "kernel": name, "edges": "periodic"}
    with pytest.raises(SpecError, match="or less for x") as refused:
        ReleaseSpec(**sections(data=data, target=target)).components  # noqa: B018 - as above
    told = float(str(refused.value).partition("bandwidth of ")[2].split()[0])
    spec = ReleaseSpec(**sections(data=data, target={**target, "bandwidth": [told]}))
    assert [kernel.edges for kernel in spec.components[0].kernels] == ["periodic"]


def test_older_readers_refuse_what_they_would_misread():
    """They do not know `edges`: by the name of its class they refuse it, and we one without it."""
    (_, normalized) = pair(1)
    stored = normalized.metadata["components"][0]["approximation"]
    assert stored["class"] == "mixture of bumps with edges"
    assert read_class(stored).to_json() == stored
    assert stored_class(read_class(stored).restore()).to_json() == stored
    for wrong in (
        {**stored, "class": "mixture of bumps"},
        {**stored, "kernels": [{"name": "gaussian", "bandwidth": 0.1}]},
        {**stored, "kernels": [{"name": "gaussian", "bandwidth": 0.1, "edges": "natural"}]},
    ):
        with pytest.raises(Exception, match=r"edges|class"):
            read_class(wrong).require_axes(1)
