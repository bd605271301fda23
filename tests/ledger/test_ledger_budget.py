"""Grants, charges and refusals: exact, and never more than was granted."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from dbern.errors import BudgetError, SpecError
from dbern.ledger import Request
from dbern.privacy.budget import Budget, Neighbors, PrivacyUnit


@pytest.mark.parametrize(("count", "part"), [(10, "0.1"), (3, "1/3")])
def test_parts_fit_into_one_exactly_and_nothing_more(ledger, count, part):
    for number in range(count):
        ledger.reserve(Request("trips", f"r{number}", Budget.parse(part)))
    with pytest.raises(BudgetError):
        ledger.reserve(Request("trips", "more", Budget.parse("1e-30")))
    (status,) = ledger.status("trips")
    assert (status.reserved, status.remaining) == (Budget(Fraction(1)), Budget(Fraction(0)))
    assert len(status.releases) == count


def test_delta_is_a_budget_of_its_own(ledger):
    with pytest.raises(BudgetError, match=r"delta 0.000001"):
        ledger.reserve(Request("trips", "r", Budget.parse("0.1", "1e-6")))
    ledger.grant("trips", Budget.parse("0.1", "1e-6"))
    ledger.reserve(Request("trips", "r", Budget.parse("0.1", "1e-6")))


def test_the_refusal_names_every_amount_and_the_command(ledger, held, ask, advance):
    advance(ledger.reserve(ask("other", "0.25")), "spent")
    with pytest.raises(BudgetError) as refused:
        ledger.reserve(ask("third", "0.36"))
    message = str(refused.value)
    for part in (
        "requested epsilon 0.36",
        "spent epsilon 0.25",
        "reserved epsilon 0.4",
        "remaining epsilon 0.35",
        f"dbern ledger grant --ledger {ledger.url} --dataset trips --epsilon 0.01",
    ):
        assert part in message
    assert refused.value.exit_code == 3
    assert ledger.find("trips", "third") is None


@pytest.mark.parametrize("asked", [("1.4",), ("0.2", "1e-6"), ("1/3", "1/10000000"), ("7", "0.01")])
def test_the_grant_that_a_refusal_names_is_what_was_missing(ledger, held, asked):
    before = ledger.status("trips")[0].remaining
    wanted = Request("trips", "r", Budget.parse(*asked))
    with pytest.raises(BudgetError, match="grant more") as refused:
        ledger.reserve(wanted)
    epsilon, *delta = re.findall(r"--(?:epsilon|delta) (\S+)", str(refused.value))
    ledger.grant("trips", Budget(Fraction(epsilon), Fraction(*delta)))
    ledger.reserve(wanted)
    left = ledger.status("trips")[0].remaining
    assert left.epsilon == max(0, before.epsilon - wanted.charge.epsilon)
    assert left.delta == 0


def test_a_refused_charge_leaves_no_key(ledger, keys_held, ask):
    with pytest.raises(BudgetError):
        ledger.reserve(ask("big", "1.1"))
    assert keys_held() == set()


def test_a_dataset_without_a_grant_says_how_to_grant(ledger):
    with pytest.raises(BudgetError, match=r"dbern ledger grant .* --dataset nowhere --epsilon 0.5"):
        ledger.reserve(Request("nowhere", "r", Budget.parse("0.5")))
    with pytest.raises(BudgetError, match=r"of trips\..* grant one: dbern"):
        ledger.status("nowhere")


def test_a_misspelt_dataset_is_shown_the_names_before_a_second_budget(ledger):
    for number in range(12):
        ledger.grant(f"weather-{number:02}", Budget.parse("1.0"))
    with pytest.raises(BudgetError) as refused:
        ledger.reserve(Request("trisp", "r", Budget.parse("0.5")))
    first, _, mend = str(refused.value).partition("grant one")
    assert "budgets of trips, weather-00," in first
    assert "weather-08 and more. Write" in first
    assert "--dataset trisp" in mend


def test_the_first_grant_fixes_the_terms(ledger):
    unit = PrivacyUnit("rider", 8)
    status = ledger.grant(
        "riders", Budget.parse("1"), neighbors=Neighbors.ADD_OR_REMOVE_ONE, unit=unit
    )
    assert (status.neighbors, status.unit) == (Neighbors.ADD_OR_REMOVE_ONE, unit)
    assert ledger.grant("riders", Budget.parse("2")).granted == Budget.parse("3")
    with pytest.raises(BudgetError, match=r"unit rider \(at most 8 rows\).*unit row"):
        ledger.grant("riders", Budget.parse("1"), unit=PrivacyUnit())
    with pytest.raises(BudgetError, match=r"add-or-remove-one.*replace-one"):
        ledger.grant("riders", Budget.parse("1"), neighbors=Neighbors.REPLACE_ONE)
    assert ledger.status("riders")[0].granted == Budget.parse("3")


def test_defaults_are_those_of_the_paper(ledger):
    (status,) = ledger.status()
    assert status.neighbors is Neighbors.REPLACE_ONE
    assert (status.unit, status.accountant) == (PrivacyUnit(), "basic")


@pytest.mark.parametrize(
    "other", [{"neighbors": Neighbors.ADD_OR_REMOVE_ONE}, {"unit": PrivacyUnit("rider", 2)}]
)
def test_a_release_on_other_terms_is_refused(ledger, ask, other):
    with pytest.raises(BudgetError, match="was granted for"):
        ledger.reserve(ask(**other))
    ledger.reserve(ask())
    with pytest.raises(BudgetError, match="was granted for"):
        ledger.reserve(ask(**other))


@pytest.mark.parametrize(
    ("amounts", "terms", "refusal"),
    [
        (("1",), {"accountant": "renyi"}, "not available in this version"),
        (("1",), {"accountant": ""}, "not available in this version"),
        (("1",), {"accountant": "zcdp"}, r"grant.delta: .*Write --delta"),
        (("1",), {"period": "hour"}, r"^period: .*--period day or"),
        (("1e999", "1e-6"), {"accountant": "basic"}, r"at most 1000000000000\."),
        (("1e999", "1e-6"), {"accountant": "zcdp"}, r"at most 1000000000000\."),
        (("0.1e-400",), {}, "more than 100 decimals"),
        (("1", "1e-101"), {}, "more than 100 decimals"),
        ((f"1/{7**120}",), {}, "more than 100 decimals"),
    ],
)
def test_a_grant_that_cannot_be_or_is_a_slip_is_refused(ledger, amounts, terms, refusal):
    """Grants are for good, and one that no status could show would spoil the ledger."""
    with pytest.raises(SpecError, match=refusal):
        ledger.grant("slip", Budget.parse(*amounts), **terms)
    assert [status.dataset for status in ledger.status()] == ["trips"]


def test_the_largest_and_the_least_grant(ledger):
    for accountant in ("basic", "zcdp"):
        ledger.grant(accountant, Budget.parse("1e12", "1e-6"), accountant=accountant)
    ledger.grant("least", Budget.parse("1e-100", "1/3"))
    assert [status.dataset for status in ledger.status()] == ["basic", "least", "trips", "zcdp"]


@pytest.mark.parametrize(
    ("epsilon", "delta", "rho"),
    [(0, 0, None), (-1, 0, None), (1, -1, None), (1, Fraction(1, 10**6), 0), (1, 0, -1)],
)
def test_nothing_and_less_are_neither_granted_nor_charged(ledger, epsilon, delta, rho):
    amount = Budget(Fraction(epsilon), Fraction(delta))
    if rho is None:
        with pytest.raises(SpecError):
            ledger.grant("trips", amount)
    with pytest.raises(SpecError):
        ledger.reserve(Request("trips", "r", amount, rho=rho and Fraction(rho)))


def test_datasets_do_not_share_a_budget(ledger, held):
    ledger.grant("other", Budget.parse("1"))
    assert ledger.status("other")[0].remaining == Budget.parse("1")
    assert [status.dataset for status in ledger.status()] == ["other", "trips"]
