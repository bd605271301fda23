"""From a contract to a law: what each bound costs, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from dbern.errors import SpecError
from dbern.privacy.advanced import calibrate_advanced_laplace
from dbern.privacy.budget import Budget
from dbern.privacy.calibration import calibrate_laplace
from dbern.privacy.contract import (
    Contract,
    FloatBounds,
    Sensitivity,
    _exact_bound,
    law_of,
    require_one_charge,
)
from dbern.privacy.curves import SPREAD_SQUARED, _delta_at
from dbern.privacy.laws import GaussianNoise, KNormNoise, LaplaceNoise

ONE = Fraction(1)
PURE, APPROXIMATE = Budget.parse("1"), Budget.parse("1", "1e-6")


def contract(norm=1, **changes):
    given = {"kernel": 0.0, "floats": 0.0, "bound": 4.0, "size": 21, "fraction": ONE, **changes}
    kernel, floats, bound = (given.pop(key) for key in ("kernel", "floats", "bound"))
    moved = Sensitivity.over(100, 1.0, 2.0, "two records", norm)
    return Contract.of(moved, 100, FloatBounds(kernel, floats, bound), **given)


def moved_by(law):
    """The sensitivity that a law is for, in units of values."""
    if isinstance(law, GaussianNoise):
        return math.sqrt(law.l2_sensitivity_granules_squared) * float(law.granularity)
    return law.l1_sensitivity_granules * float(law.granularity)


@pytest.mark.parametrize("norm", [1, 2, math.inf])
@pytest.mark.parametrize(
    ("change", "more"), [({"kernel": 50.0}, 0.5), ({"floats": 0.25}, 0.5)], ids=["kernel", "float"]
)
def test_an_error_adds_what_it_can_move(norm, change, more):
    """The kernel error, over n, once; float errors for each of the two databases."""
    charge = PURE if norm == 1 else APPROXIMATE
    values = 21 if norm == math.inf else 1  # by advanced composition, every value moves so far
    least, found = (moved_by(law_of(contract(norm, **one), charge)) for one in ({}, change))
    assert least + values * more <= found * 1.000001
    assert found <= (least + values * more) * 1.01


@pytest.mark.parametrize(("change", "more"), [({"kernel": 50.0}, 0.5), ({"floats": 0.25}, 1.0)])
def test_float_errors_are_not_halved_with_the_sides_of_a_move(change, more):
    """A K-norm law is for half a move, but each of two databases has all of its float errors."""

    def planned(**errors):
        one = contract(1, **errors)
        return law_of(replace(one, sensitivity=replace(one.sensitivity, balanced=True)), PURE)

    least, found = moved_by(planned()), moved_by(planned(**change))
    assert isinstance(planned(), KNormNoise)
    assert least + more <= found * 1.000001
    assert found <= (least + more) * 1.01


def test_half_the_budget_is_half_of_both_parameters():
    half = contract(2, fraction=Fraction(1, 2))
    law = law_of(half, APPROXIMATE)
    apart = Fraction(law.l2_sensitivity_granules_squared, law.sigma**2 - SPREAD_SQUARED)
    assert _delta_at(Fraction(1, 2), apart) <= Fraction(1, 2 * 10**6)
    assert law_of(replace(half, fraction=ONE), Budget.parse("0.5", "5e-7")) == law
    assert law_of(contract(fraction=Fraction(1, 2)), PURE).epsilon <= Fraction(1, 2)


@pytest.mark.parametrize(
    ("epsilon", "delta", "covered"),
    [("1", "1e-6", True), ("0.5", "0", True), ("1.1", "1e-6", False), ("1", "2e-6", False),
     ("1.1", "0", False), ("0.5", "2e-6", False)],
)  # fmt: skip
def test_a_budget_covers_what_is_no_more_in_either_parameter(epsilon, delta, covered):
    assert APPROXIMATE.covers(Budget.parse(epsilon, delta)) is covered


def test_the_norm_is_the_law():
    assert isinstance(law_of(contract(1), PURE), LaplaceNoise)
    assert isinstance(law_of(contract(2), APPROXIMATE), GaussianNoise)
    laplace, budget = law_of(contract(1), PURE), (PURE.epsilon, Fraction(4))
    assert laplace == calibrate_laplace(Fraction(1, 50), Fraction(0), 21, *budget)
    each = contract(1).sensitivity.of_each()
    advanced = law_of(replace(contract(1), sensitivity=each), APPROXIMATE)
    charge = APPROXIMATE.epsilon, APPROXIMATE.delta
    assert advanced == calibrate_advanced_laplace(
        Fraction(1, 100), Fraction(0), 21, *charge, Fraction(4)
    )


def test_gaussian_noise_needs_a_delta():
    with pytest.raises(SpecError):
        law_of(contract(2), PURE)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1e-300, Fraction(-1)])
def test_what_bounds_nothing_is_refused(value):
    with pytest.raises(SpecError, match="State a finite number"):
        _exact_bound(value)


@pytest.mark.parametrize("name", ["kernel", "floats", "bound"])
def test_no_bound_is_left_unlooked_at(name):
    with pytest.raises(SpecError, match="State a finite number"):
        contract(**{name: math.nan})


@pytest.mark.parametrize(
    "change",
    [{"size": 0}, {"fraction": Fraction(0)}, {"fraction": Fraction(3, 2)}, {"fraction": 0.5},
     {"norm": 3}],
)  # fmt: skip
def test_a_contract_that_no_law_serves_is_refused(change):
    with pytest.raises(SpecError, match=r"^noise: "):
        contract(**change)


def test_parts_of_one_charge():
    require_one_charge("k", [("a", 2, Fraction(1, 3)), ("b", 1, Fraction(2, 3))])
    with pytest.raises(SpecError, match="add up to 2"):
        require_one_charge("k", [("a", 1, ONE), ("b", 1, ONE)])
    with pytest.raises(SpecError, match='named "a_1"'):
        require_one_charge("k", [("a", 2, Fraction(1, 3)), ("a_1", 1, Fraction(2, 3))])


@pytest.mark.parametrize(
    ("norm", "levels", "nights", "times"),
    [(1, 3, 1, 3.0), (1, 2, 4, 8.0), (2, 3, 1, math.sqrt(3)), (2, 2, 4, 4 * math.sqrt(2))],
)
def test_noise_of_releases_that_hold_a_unit_together_grows_with_their_norm(
    norm, levels, nights, times
):
    """Noise for one of them alone is as much smaller, and would not hide all."""
    charge = PURE if norm == 1 else APPROXIMATE
    alone = contract(norm, kernel=1e-9, floats=1e-12)
    together = alone.repeated(levels, nights)
    assert alone.repeated(1, 1) is alone
    assert not together.sensitivity.balanced
    least = together.sensitivity.bound / alone.sensitivity.bound
    assert together.kernel_error == least * alone.kernel_error > 0  # which moves values too
    assert together.float_error == levels * nights * alone.float_error > 0
    assert together.size == levels * nights * alone.size
    assert least**2 >= levels * nights**2 if norm == 2 else least == levels * nights

    def scale(law):
        return (law.scale if norm == 1 else law.sigma) * float(law.granularity)

    found = scale(law_of(together, charge)) / scale(law_of(alone, charge))
    assert found == pytest.approx(times, rel=2e-3)
