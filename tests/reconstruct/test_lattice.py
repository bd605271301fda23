"""Slabs cut the lattice into contiguous, complete, ordered parts."""

from __future__ import annotations

import reference
from hypothesis import given
from hypothesis import strategies as st

from dbern.reconstruct.base import SLAB_COEFFICIENTS, Lattice


@given(k=st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_nodes_and_size_are_those_of_the_cover(k):
    lattice = Lattice(tuple(k))
    points = reference.lattice_points(k)
    assert lattice.size == len(points)
    for axis in range(len(k)):
        assert sorted(set(points[:, axis])) == lattice.nodes(axis).tolist()


@given(k=st.tuples(st.integers(1, 1000), st.integers(1, 1000), st.integers(1, 1000)))
def test_slabs_partition_the_layers_in_order(k):
    lattice = Lattice(k)
    slabs = list(lattice.slabs())
    assert [slab.index for slab in slabs] == list(range(len(slabs)))
    assert [layer for slab in slabs for layer in range(slab.start, slab.stop)] == list(
        range(k[0] + 1)
    )
    assert all(slab.stop - slab.start == lattice.slab_layers for slab in slabs[:-1])
    if lattice.layer <= SLAB_COEFFICIENTS:
        assert max(slab.stop - slab.start for slab in slabs) * lattice.layer <= SLAB_COEFFICIENTS
