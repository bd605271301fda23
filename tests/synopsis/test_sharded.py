"""A lattice that is not held in memory: the same values, few shards read, bounded memory."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from projects import records, released_in

import dbern
from dbern.bernstein.basis import iterate, iterated_matrix
from dbern.bernstein.blocks import ArrayBlocks
from dbern.data.domain import Axis, Domain
from dbern.data.storage import location_at
from dbern.errors import IntegrityError
from dbern.synopsis import store
from dbern.synopsis.evaluate import LazyPolynomial, Polynomial

BOX = Domain((Axis("x", -3.0, 7.0), Axis("y", 1.0, 2.0), Axis("z", 0.0, 1e-3)))


@pytest.mark.parametrize("h", [1, 3, 50])
@pytest.mark.parametrize("k", [(9,), (200,), (30, 6), (10, 4, 7)])
def test_values_are_those_of_the_whole_lattice(k, h, monkeypatch):
    monkeypatch.setattr("dbern.synopsis.evaluate._LAZY_BATCH_POINTS", 30)
    monkeypatch.setattr("dbern.synopsis.evaluate._ADDED_VALUES", 24)
    domain, layers = Domain(BOX.axes[: len(k)]), 4
    values = np.random.default_rng(1).laplace(size=[count + 1 for count in k])
    blocks = ArrayBlocks(values.shape, layers, values)
    sharded = LazyPolynomial(blocks, [iterated_matrix(count, h) for count in k], domain)
    whole = Polynomial(iterate(values, [h] * len(k)), domain)
    low, high = ([getattr(a, side) for a in domain.axes] for side in ("low", "high"))
    points = np.random.default_rng(2).uniform(low, high, (200, len(k)))
    points = np.vstack([points, low, high, np.array(high) + 1, np.full(len(k), np.nan)])
    np.testing.assert_allclose(sharded(points, 1), whole(points, 1), rtol=0, atol=1e-9)
    axes = [np.linspace(0, 1, count) for count in (5, 4, 3)[: len(k)]]
    np.testing.assert_allclose(sharded.grid(axes), whole.grid(axes), rtol=0, atol=1e-9)
    assert sharded(points[:0], 0).shape == (0,)


@pytest.fixture(scope="module")
def url(tmp_path_factory, client):
    """A release of 31 shards of five layers."""
    folder = tmp_path_factory.mktemp("sharded")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dbern.reconstruct.base.SLAB_COEFFICIENTS", 15)
        return released_in(folder, client, records(), mechanism={"k": [150, 2]}).url


@pytest.mark.slow
def test_a_lazy_lattice_reads_the_shards_that_matter_and_caches_the_last(url, monkeypatch):
    expected = dbern.open(url)(np.array([[1.0, 0.1], [1.2, -0.9], [10.0, 0.0]]))
    monkeypatch.setattr("dbern.synopsis.released.MOST_LOADED", 100)
    reads, digests = [], []
    original = store.ReleasedStore._decoded
    monkeypatch.setattr(
        store.ReleasedStore, "_decoded", lambda *args: reads.append(1) or original(*args)
    )
    entry_of = store.entry_of
    monkeypatch.setattr(store, "entry_of", lambda data: digests.append(data) or entry_of(data))
    fresh = dbern.open(url)
    digests.clear()
    near = fresh(np.array([[1.0, 0.1], [1.2, -0.9]]))
    few = len(reads)
    assert 6 < few < 20  # of 31
    assert len(digests) == few  # nor is any other read to be checked
    assert len(fresh(np.array([[1.1, 0.0]]))) == 1
    assert len(reads) == few  # kept
    corner = fresh(np.array([[10.0, 0.0]]))
    assert few < len(reads) <= few + 3
    np.testing.assert_allclose([*near, *corner], expected, rtol=1e-9)


@pytest.mark.slow
def test_no_more_is_kept_than_fits(url, monkeypatch):
    one = 5 * 3 * 8
    monkeypatch.setattr(store, "SHARD_BYTES", 3 * one)
    opened = store.ReleasedStore(location_at(url))
    reads = []
    original = opened._decoded
    opened._decoded = lambda *args: reads.append(1) or original(*args)
    for index in (0, 1, 2, 0, 3, 0):  # 3 takes the place of 1, which was used least recently
        opened.shard("components/density/coefficients", index)
    assert len(reads) == 4
    opened.shard("components/density/coefficients", 1)
    assert len(reads) == 5


@pytest.mark.slow
def test_a_damaged_shard_is_refused_when_it_is_read(url, tmp_path, monkeypatch):
    monkeypatch.setattr("dbern.synopsis.released.MOST_LOADED", 100)
    copy = shutil.copytree(url, tmp_path / "copy.zarr")
    path = copy / "components/density/coefficients/c/15/0"
    path.write_bytes(path.read_bytes()[::-1])
    fresh = dbern.open(copy)
    assert np.isfinite(fresh(np.array([[0.0, 0.0]]))).all()
    with pytest.raises(IntegrityError, match="is not what was released"):
        fresh(np.array([[5.0, 0.0]]))
    path.unlink()
    with pytest.raises(IntegrityError, match="missing"):
        fresh(np.array([[5.0, 0.0]]))
