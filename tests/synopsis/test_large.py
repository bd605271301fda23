"""Whatever is asked of a lattice that is never whole in memory is what the whole would say."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from projects import SOLVED, fix_reservations, labelled, released_in

import dbern
from dbern.certify.approximation import Linear
from dbern.data.domain import Axis, Domain
from dbern.errors import SpecError
from dbern.model.component import LatticeComponent, NumericalErrors, ScaledNoise
from dbern.model.function_classes import stored_class
from dbern.privacy.covariance import NoiseCovariance
from dbern.privacy.families import LAPLACE
from dbern.privacy.laws import LaplaceNoise
from dbern.reconstruct.base import Lattice, LatticeStrategy
from dbern.synopsis import released, store
from dbern.synopsis.released import ReleasedArray
from dbern.synopsis.smoothing import Smoothing, select
from dbern.synopsis.store import StoredBlocks

AXES = (Axis("x", -3.0, 7.0), Axis("y", 1.0, 2.0), Axis("z", 0.0, 1e-3))


class Shards:
    """Lattice values in memory in the place of a store, a few layers a shard; counts its reads."""

    def __init__(self, values, layers):
        self._values, self._layers, self.reads = values, layers, Counter()

    def values(self, path):
        self.reads["whole"] += 1
        return self._values

    def shard(self, path, index):
        self.reads[index] += 1
        return self._values[index * self._layers : (index + 1) * self._layers]

    def blocks(self, path):
        return StoredBlocks(self._values.shape, self._layers, self, path)


@st.composite
def lattices(draw):
    """Values, an order an axis, layers a shard, and a seed for points."""
    dimensions = draw(st.integers(1, 3))
    k = [draw(st.integers(1, (40, 9, 6)[dimensions - 1])) for _ in range(dimensions)]
    h = [draw(st.integers(1, 20)) for _ in range(dimensions)]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    level = draw(st.sampled_from([0.0, 3.0]))
    values = rng.laplace(level, 1.0, [count + 1 for count in k]) * draw(st.sampled_from([1, 1e-6]))
    return values, h, draw(st.integers(1, 5)), rng


def array(values, h, layers):
    """The array that is released of these values, and its store."""
    component = LatticeComponent.model_construct(
        axes=tuple(axis.name for axis in AXES[: values.ndim]),
        value_unit=1.0,
        k=tuple(count - 1 for count in values.shape),
        h=tuple(h),
        noise=ScaledNoise.of(LAPLACE, "", LaplaceNoise(1, 0, 1), 1.0),
        errors=NumericalErrors(lattice=0.0, released=0.0),
        approximation=stored_class(Linear()),
    )
    shards = Shards(values, layers)
    return ReleasedArray(shards, "f", component, Domain(AXES[: values.ndim])), shards


def near(one, other, scale):
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-9 * scale)


def points_in(domain, rng, count=40):
    low, high = ([getattr(axis, side) for axis in domain.axes] for side in ("low", "high"))
    points = rng.uniform(low, high, (count, domain.dimensions))
    return np.vstack([points, low, high, np.array(high) + 1, np.full(len(low), np.nan)])


@given(lattices())
@settings(max_examples=40)
def test_nearest_values_in_blocks_are_those_of_the_whole(case):
    values, h, layers, rng = case
    points = points_in(Domain(AXES[: values.ndim]), rng)
    one, _ = array(values, h, layers)
    unit = one.domain.to_unit(points[:-2])
    expected = values[tuple(np.rint(unit * one.lattice.k).astype(int).T)]
    np.testing.assert_array_equal(one.values(points, None, 1)[:-2], expected)
    assert np.isnan(one.values(points, None, 1)[-2:]).all()


@pytest.mark.slow
@given(lattices())
@settings(max_examples=15)
def test_the_criterion_in_blocks_is_that_of_the_whole(case):
    values, h, layers, _ = case
    lattice = Lattice(tuple(count - 1 for count in values.shape))
    shards = Shards(values, layers)
    blocks = shards.blocks("")
    strategy = LatticeStrategy(lattice)
    chosen = [select(values, NoiseCovariance(one), strategy, h) for one in (0.0, 1.0, 1e3)]
    if min(lattice.k) > 1:  # or all orders are the same
        assert sum(chosen[0].h) == max(sum(h), 24 * len(h))  # without noise the least biased
    for deviation, expected in zip((0.0, 1.0, 1e3), chosen, strict=True):
        assert select(blocks, NoiseCovariance(deviation), strategy, h) == expected
    assert set(shards.reads.values()) == {3}  # once for each choice
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dbern.synopsis.smoothing._SUMS", 1)  # one candidate at a time
        assert select(blocks, NoiseCovariance(0.0), strategy, h) == chosen[0]


@pytest.fixture(scope="module")
def release(tmp_path_factory, client):
    """From a kind of noise to the URL of a release of seven shards, made once."""

    @cache
    def made(noise):
        sections = SOLVED if noise.startswith("spectral") else {}
        sections = {**sections, "mechanism": {"k": [30, 8], "h": 3, "noise": noise}}
        with pytest.MonkeyPatch.context() as patch:
            fix_reservations(patch.setattr)  # whichever test wants it first
            patch.setattr("dbern.reconstruct.base.SLAB_COEFFICIENTS", 45)
            folder = tmp_path_factory.mktemp("large")
            return released_in(folder, client, labelled(), **sections).url

    return made


@pytest.fixture
def plain(release):
    return release("laplace")


NOISES = [
    "laplace",
    *(pytest.param(f"{kind}-laplace", marks=pytest.mark.slow) for kind in ("spectral", "binned")),
]
POINTS = np.random.default_rng(4).uniform([0, -1], [10, 1], (50, 2))


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
def test_any_rank_is_answered_without_the_lattice(release, noise, monkeypatch):
    url = release(noise)
    whole = dbern.open(url).arrays[0]
    ranks = whole.smoothing((3, 3)).ranks
    less = tuple(None if rank is None else rank // 2 for rank in ranks)
    expected = [whole.values(POINTS, Smoothing((4, 2), used), 1) for used in (ranks, less)]
    monkeypatch.setattr(released, "MOST_LOADED", 0)
    monkeypatch.setattr(released, "iterate", lambda *_: pytest.fail("loads the whole lattice"))
    blocks = dbern.open(url).arrays[0]
    for used, values in zip((ranks, less), expected, strict=True):
        near(blocks.values(POINTS, Smoothing((4, 2), used), 1), values, np.abs(values).max())


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["laplace", "binned-laplace"])
def test_a_large_lattice_chooses_and_shapes_as_a_small_one(release, noise, monkeypatch):
    url = release(noise)
    ask = lambda one: [  # noqa: E731
        one.choose(), one(POINTS, h="auto"), one(POINTS, method="nearest"), one.grid([7, 5]).values,
        one.shaped("nonnegative")(POINTS), one.shaped("nonnegative").band(),
    ]  # fmt: skip
    whole = ask(dbern.open(url))
    monkeypatch.setattr(released, "MOST_LOADED", 0)
    chosen, *blocks = ask(dbern.open(url))
    assert chosen == whole[0]
    for one, other in zip(blocks, whole[1:], strict=True):
        near(one, other, np.abs(other).max())


@pytest.mark.slow
def test_no_shard_is_read_twice_while_they_fit(plain, monkeypatch):
    monkeypatch.setattr(released, "MOST_LOADED", 0)
    reads = Counter()
    original = store.ReleasedStore._shard
    monkeypatch.setattr(
        store.ReleasedStore,
        "_shard",
        lambda self, path, index: reads.update([index]) or original(self, path, index),
    )
    one = dbern.open(plain)
    one(np.array([[0.1, 0.0]]), method="nearest")
    assert set(reads) == {0}
    one(POINTS, h="auto")
    one(POINTS)
    one.grid(9)
    one(POINTS[::-1], method="nearest")
    assert set(reads) == set(range(7))
    assert set(reads.values()) == {1}


def test_shapes_of_a_lattice_that_is_never_whole_are_refused_but_for_clipping(plain, monkeypatch):
    monkeypatch.setattr(released, "MOST_LOADED", 0)
    synopsis = dbern.open(plain)
    clipped = synopsis.shaped("nonnegative")(POINTS)
    near(clipped, np.maximum(synopsis(POINTS), 0), np.abs(clipped).max())
    with pytest.raises(SpecError, match="shapes: are made in memory, of lattices of at most"):
        synopsis.shaped("normalized", "nonnegative")
