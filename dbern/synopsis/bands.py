"""Bands that look at the release: how far a value may be off *for these data*.

The certificate's first part is that of the worst database. Where bins were released it can be had
for the database at hand, from the released numbers alone: `dbern.strategies.bins` proves

    ``|F(y) - sum_j a_j(y) c_j| <= sum_j e_j c_j``

for the unknown c, with public e_j >= 0 for each public cell I of y. What is released of c_j is
``z_j = c_j + x_j + f_j``, x_j the noise and ``|f_j|`` at most the published error of a released
value. So the right side is at most ``sum_j e_j z_j - sum_j e_j x_j + max |f| sum_j e_j``, and
``-sum_j e_j x_j`` exceeds ``weighted_tail(x, |e|_2, |e|_inf, ..)`` of no cell but with probability
`BIAS_SHARE` of beta; the quantile of the values' own noise is told at the rest of beta. The two
events hold at once, at every y, however the point was chosen, for whatever database: bounds of the
worst database are not needed, and the smaller of both is taken cell by cell, as they hold surely.
Nothing here reads anything but the release: it is post-processing.

*A promise* (`dbern.planning.tuning`) is one released number T that bounds the approximation of the
planned operator everywhere, for these data, but for its noise X of the factor f: it is missed by at
most ``T - f X``. With N the noise of the values, no value is off by more than ``T - f X + |N|``, so
by T and the quantile of ``sup |N| + f max(0, -X)`` (`noise_bound`), whose law is public and where
both are large together as rarely as they are: beta is not shared out. That quantile is above
``sup |N|`` too, so again the smallest is taken cell by cell. Where T is so noisy that the quantile
grows much, by public facts alone, it is not used. An order or rank chosen later is another
operator, of which a promise says nothing.

An order, rank or bandwidth chosen after the release is one of a public list: each of its candidates
gets its part of beta, as the certificate's do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np

from dbern.bernstein.kernels import OUTWARD
from dbern.certificate import Certificate, LowerBound, strongest_bound, told_error
from dbern.privacy.budget import PrivacyUnit
from dbern.privacy.families import family_of, noise_law
from dbern.privacy.mechanism import Noise
from dbern.strategies.bins import MOST_AXES, AxisBracket, brackets_of, norms
from dbern.synopsis.arrays import ReleasedArray, ReleasedVector, Smoothing, smoothings
from dbern.synopsis.store import ReleasedStore
from dbern.types import FloatArray

About: TypeAlias = Literal["these-data", "any-database"]
"""What a band is about: the data at hand, as far as they were released, or any database."""

BIAS_SHARE = Fraction(1, 50)
"""Of beta, for the noise of what bounds the approximation."""

_WORTH = 0.25  # of what the worst database misses: what a promise's noise may cost
_FLOATS = 1e-12  # of the sum of sizes that a sum of products is made of


@dataclass(frozen=True, eq=False)
class ArrayBand:
    """Half-widths of one array's band.

    Attributes
    ----------
    certificate : Certificate
        The bound everywhere.
    table : array (cells_1, .., cells_l), optional
        The approximation part in each public cell, in data units; without it that of the
        certificate.
    places : callable, optional
        From points on the array's axes to the unit cube that the cells are of.
    """

    certificate: Certificate
    table: FloatArray | None = None
    places: Callable[[FloatArray], FloatArray] = np.asarray

    def at(self, points: FloatArray) -> FloatArray:
        """Half-widths at points (m, l) on the array's own axes."""
        sure = self.certificate
        if self.table is None:
            return np.full(len(points), sure.total)
        counts = np.array(self.table.shape)
        places = np.nan_to_num(self.places(points))
        cell = np.clip((places * counts).astype(np.int64), 0, counts - 1)
        return np.asarray(self.table[tuple(cell.T)] + (sure.total - sure.approximation))


@dataclass(frozen=True)
class Promised:
    """A number that tells how much an array misses of the data at hand, and its component."""

    number: ReleasedVector
    facts: Mapping[str, Any]

    @property
    def approximation(self) -> float:
        """What is missed nowhere by more, in data units, but for the noise of the number."""
        errors = self.facts["errors"]
        told = float(self.number.entries[0]) + errors["lattice"] + errors["released"]
        return told_error(told, self.facts["promise"])

    @property
    def noise(self) -> tuple[Noise, float]:
        """Its law, and what it is multiplied by."""
        return noise_law(self.facts["noise"]["law"]), OUTWARD * self.facts["promise"]["factor"]


@dataclass(frozen=True)
class Bracketed:
    """An array, and the one whose bins count each of its records with at least its weight.

    Both are bins of the same axes, and the function is a sum of kernels over records. Where there
    is a promise, it is of the array.
    """

    array: ReleasedArray
    counted: ReleasedArray
    promise: Promised | None = None

    def band(
        self, smoothing: Smoothing, beta: Fraction, at_once: int, *, selected: bool
    ) -> ArrayBand:
        """Its band about the data at hand; parameters as of `ReleasedArray.bound`."""
        array = self.array
        planned = smoothing == array.smoothing(array.order)
        promise = self.promise if planned else None
        rest = beta * (1 - BIAS_SHARE)
        sure = array.bound(smoothing, rest, at_once, selected=selected)
        if promise:
            beside = promise.noise
            both = array.bound(smoothing, rest, at_once, selected=selected, beside=beside)
            worth = both.noise - sure.noise <= _WORTH * sure.approximation
            sure, promise = (both, promise) if worth else (sure, None)
        if selected:
            at_once *= len(smoothings(array.strategy, array.order))
        at_once *= array.approximation.choices
        found = self._approximation(smoothing, beta * BIAS_SHARE / at_once)
        table = np.minimum(found, sure.approximation)
        if promise:
            table = np.minimum(table, promise.approximation)
        whole = replace(sure, approximation=float(table.max()), beta=float(beta))
        return ArrayBand(whole, table, array.places)

    def _approximation(self, smoothing: Smoothing, beta: Fraction) -> FloatArray:
        """``sum_j e_j z_j`` of each cell with what noise and floats may add, in data units."""
        brackets, counted = self.brackets(smoothing), self.counted
        root, largest = norms(brackets, 2), norms(brackets, math.inf)
        level = math.log(root.size / beta)
        reached = family_of(counted.law).weighted_tail(counted.law, root, largest, level)
        granule = math.ldexp(1.0, counted.law.granularity_exponent)
        summed = _weighed(counted.released, brackets)
        sizes = [AxisBracket(np.abs(one.kernel), np.abs(one.error)) for one in brackets]
        floats = _FLOATS * _weighed(np.abs(counted.released), sizes)
        rest = granule * reached + counted.released_error * norms(brackets, 1)
        found = summed + floats + self.array.value_unit * rest
        return np.asarray(OUTWARD * np.maximum(found, 0.0))

    def brackets(self, smoothing: Smoothing) -> list[AxisBracket]:
        """Axis by axis, for the public cells of its axes."""
        array = self.array
        pairs = zip(array.bins, smoothing.ranks, strict=True)
        used = [bins.using(rank or bins.rank) for bins, rank in pairs]
        return brackets_of(array.kernels, array.lattice.k, smoothing.h, used, self.counted.bins)


def bracketed(
    arrays: Sequence[ReleasedArray | ReleasedVector], store: ReleasedStore
) -> list[Bracketed | None]:
    """For each array of a release what its band can follow; None where it can follow nothing.

    It can where both arrays are bins of the same axes, at most `MOST_AXES`.
    """
    promises = _promises_of(store)
    functions = {one.name: one for one in arrays if isinstance(one, ReleasedArray)}
    found: list[Bracketed | None] = []
    for one in arrays:
        array = functions.get(one.name)
        other = None if array is None else functions.get(array.counted_in or "")
        if array is None or other is None or not 1 <= len(array.axes) <= MOST_AXES:
            found.append(None)
            continue
        same = (other.axes, other.oblique) == (array.axes, array.oblique)
        fits = same and array.kernels and array.bins and other.bins
        found.append(Bracketed(array, other, promises.get(array.name)) if fits else None)
    return found


def lower_bound_of(
    facts: Mapping[str, Any], array: ReleasedArray | ReleasedVector, beta: float
) -> LowerBound:
    """Return what no mechanism can do better than, by the metadata and the first of its arrays."""
    first = facts["components"][0]
    if not first.get("additive", "entries" not in first):
        return LowerBound()
    epsilon, delta = float(Fraction(facts["epsilon"])), float(Fraction(facts["delta"]))
    n = facts["target"].get("n") or facts["target"]["normalizer"]
    rows = PrivacyUnit.shown(facts["unit"]).max_contributions
    unsigned = first.get("counted_in") == first["arrays"] and "oblique" not in first
    kernels = array.kernels if unsigned else ()
    moved = first["sensitivity"]["function"]
    return strongest_bound(moved, epsilon, beta, n, delta, rows, kernels)


def _weighed(values: FloatArray, brackets: Sequence[AxisBracket]) -> FloatArray:
    """``sum_j e_j z_j`` with ``e = prod (kappa_i + rho_i) - prod kappa_i``, telescoped."""
    total: FloatArray | float = 0.0
    for turn in range(len(brackets)):
        term = values
        for axis, one in enumerate(brackets):
            grown = one.kernel if axis > turn else one.kernel + one.error
            term = np.tensordot(term, one.error if axis == turn else grown, axes=(0, 1))
        total = total + term
    return np.asarray(total)


def _promises_of(store: ReleasedStore) -> dict[str, Promised]:
    return {
        name: Promised(ReleasedVector(store, one["arrays"][0], one), one)
        for one in store.attributes["components"]
        for name in one.get("promise", {}).get("of", ())
    }
