"""Charges in zCDP and budgets by period: never more than was granted, and refunded exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbern.errors import BudgetError, SpecError
from dbern.ledger import Request
from dbern.ledger.composition import PERIODS, Zcdp, granted_amount, period_of
from dbern.privacy.budget import Budget
from dbern.privacy.zcdp import _delta_of, rho_for

GRANT = Budget.parse("1", "1e-6")
CAPACITY = rho_for(GRANT.epsilon, GRANT.delta)


@pytest.fixture
def zcdp(ledger):
    ledger.grant("zcdp", GRANT, accountant="zcdp")
    return ledger


@pytest.fixture
def clock(monkeypatch):
    """Its first entry is what the ledger takes for the time."""
    moment = ["2026-03-01T00:00:00+00:00"]
    monkeypatch.setattr("dbern.ledger.tables.now", lambda: moment[0])
    return moment


def request(name, epsilon="0.1", delta="0", rho=None, dataset="zcdp"):
    return Request(dataset, name, Budget.parse(epsilon, delta), rho=rho)


def test_pure_releases_cost_half_their_square(zcdp):
    fit = int(CAPACITY / Fraction(1, 200))
    assert fit == 4
    for number in range(fit):
        zcdp.reserve(request(f"r{number}"))
    with pytest.raises(BudgetError):
        zcdp.reserve(request("more"))
    (status,) = zcdp.status("zcdp")
    assert status.reserved == Zcdp(Fraction(fit, 200), GRANT.delta)
    assert status.remaining.rho == CAPACITY - Fraction(fit, 200)
    assert [row.rho for row in status.releases] == [Fraction(1, 200)] * fit


def test_a_gaussian_release_costs_its_own_rho(zcdp):
    zcdp.reserve(request("r", "0.5", "1e-3", rho=CAPACITY))
    (status,) = zcdp.status("zcdp")
    assert status.remaining.rho == 0
    with pytest.raises(BudgetError, match="cannot pay"):
        zcdp.reserve(request("tiny", "1e-30"))


@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1), Fraction(30)])
@pytest.mark.parametrize("delta", [Fraction(1, 10**12), Fraction(1, 3)])
def test_what_a_grant_allows_converts_to_the_grant(epsilon, delta):
    granted = granted_amount("zcdp", Budget(epsilon, delta))
    assert _delta_of(granted.rho, epsilon) <= delta
    assert _delta_of(granted.rho * (1 + Fraction(1, 10**20)), epsilon) > delta  # and no less
    assert abs(granted.epsilon / epsilon - 1) < Fraction(1, 10**20)


@pytest.mark.slow
def test_what_is_spent_never_converts_to_more_than_the_grant(zcdp):
    asked = [Fraction(number % 7 + 1, 1000) for number in range(21)]
    for number, rho in enumerate(asked):
        try:
            zcdp.reserve(request(f"r{number}", "0.5", "1e-6", rho=rho))
        except BudgetError:
            continue
    (status,) = zcdp.status("zcdp")
    assert _delta_of(status.used.rho, GRANT.epsilon) <= GRANT.delta
    assert _delta_of(status.used.rho + Fraction(1, 1000), GRANT.epsilon) > GRANT.delta


def test_a_guarantee_without_a_rho_is_refused(zcdp):
    with pytest.raises(BudgetError, match="laplace-advanced") as refused:
        zcdp.reserve(request("r", "0.01", "1e-9"))
    assert refused.value.exit_code == 3
    assert zcdp.find("zcdp", "r") is None
    zcdp.grant("trips", Budget.parse("1", "1e-6"))
    zcdp.reserve(request("r", "0.01", "1e-9", dataset="trips"))  # basic composition takes it


@pytest.mark.slow
def test_a_zcdp_refusal_tells_both_amounts_and_its_command_mends_it(zcdp):
    zcdp.reserve(request("one"))
    zcdp.spend(zcdp.begin_reading(zcdp.reserve(request("two", "0.15"))), bytes(32))
    with pytest.raises(BudgetError) as refused:
        zcdp.reserve(request("three", "0.2"))
    message = str(refused.value)
    for part in (
        "requested epsilon 0.2, rho 0.02 (epsilon 0.899935 at delta 0.000001)",
        "spent rho 0.01125 (epsilon",
        "reserved rho 0.005 (epsilon",
        "remaining rho 0.00810597 (epsilon",
        "of epsilon 1, delta 0.000001, rho 0.024356 (epsilon 1 at delta 0.000001) granted",
    ):
        assert part in message
    half = Budget.parse(str(Fraction(message.rpartition("--epsilon ")[2]) / 2))
    zcdp.grant("zcdp", half)
    with pytest.raises(BudgetError):
        zcdp.reserve(request("three", "0.2"))
    zcdp.grant("zcdp", half)
    zcdp.reserve(request("three", "0.2"))


@pytest.mark.parametrize(
    ("state", "reserved", "spent"),
    [
        ("reserved", 1, 0),
        ("reading", 1, 0),
        ("spent", 0, 1),
        ("committed", 0, 1),
        ("abandoned", 0, 1),
        ("refunded", 0, 0),
    ],
)
@pytest.mark.parametrize("accountant", ["basic", "zcdp"])
def test_a_state_counts_in_its_account(ledger, advance, state, reserved, spent, accountant):
    ledger.grant("counted", GRANT, accountant=accountant)
    wanted = request("density", dataset="counted")
    advance(ledger.reserve(wanted), state)
    (status,) = ledger.status("counted")
    cost = wanted.charge if accountant == "basic" else Zcdp(Fraction(1, 200), GRANT.delta)
    nothing = cost - cost
    assert status.reserved == (cost if reserved else nothing)
    assert status.spent == (cost if spent else nothing)
    assert status.granted == status.reserved + status.spent + status.remaining
    assert [(row.name, row.state) for row in status.releases] == [("density", state)]


def test_a_zcdp_grant_adds_up(ledger):
    ledger.grant("new", GRANT, accountant="zcdp")
    assert ledger.grant("new", Budget.parse("1")).budget == Budget.parse("2", "1e-6")
    with pytest.raises(SpecError, match=r"comes to 1\.000001"):  # any rho converts to delta 1
        ledger.grant("new", Budget(Fraction(1), Fraction(1)))
    assert ledger.status("new")[0].budget == Budget.parse("2", "1e-6")


def test_the_accountant_is_fixed_once(zcdp):
    for dataset, other in (("zcdp", "basic"), ("trips", "zcdp")):
        with pytest.raises(BudgetError, match="was granted for"):
            zcdp.grant(dataset, GRANT, accountant=other)
    assert zcdp.grant("zcdp", GRANT).accountant == "zcdp"


@pytest.mark.parametrize(
    ("period", "within", "after"),
    [
        ("day", "2026-03-01T23:59:59+00:00", "2026-03-02T00:00:00+00:00"),
        ("week", "2026-03-01T23:59:59+00:00", "2026-03-02T00:00:00+00:00"),  # a Monday
        ("month", "2026-03-31T23:59:59+00:00", "2026-04-01T00:00:00+00:00"),
        ("year", "2026-12-31T23:59:59+00:00", "2027-01-01T00:00:00+00:00"),
    ],
)
def test_a_budget_is_whole_again_in_each_period(ledger, clock, period, within, after):
    ledger.grant("nightly", Budget.parse("1"), period=period)
    first = ledger.reserve(request("first", "0.7", dataset="nightly"))
    clock[0] = within
    with pytest.raises(BudgetError, match=f"renewed every {period}"):
        ledger.reserve(request("second", "0.4", dataset="nightly"))
    clock[0] = after
    (status,) = ledger.status("nightly")
    assert status.remaining == Budget.parse("1")
    assert status.earlier == Budget.parse("0.7")
    assert status.period == period_of(after, period)
    ledger.reserve(request("second", "0.9", dataset="nightly"))
    ledger.spend(ledger.begin_reading(first), bytes(32))  # it was paid in its own period
    (status,) = ledger.status("nightly")
    assert (status.spent, status.reserved) == (Budget(Fraction(0)), Budget.parse("0.9"))
    assert status.granted == status.spent + status.reserved + status.remaining
    clock[0] = within  # a clock put back finds that period as it was
    with pytest.raises(BudgetError):
        ledger.reserve(request("third", "0.4", dataset="nightly"))


def test_a_clock_set_back_pays_from_no_period_that_is_over(ledger, clock):
    ledger.grant("nightly", Budget.parse("1"), period="month")
    clock[0] = "2026-04-01T00:00:00+00:00"
    ledger.reserve(request("april", "0.7", dataset="nightly"))
    clock[0] = "2026-03-31T23:59:59+00:00"  # March has all of its budget left
    assert ledger.status("nightly")[0].period == "2026-04"
    with pytest.raises(BudgetError, match="in 2026-04"):
        ledger.reserve(request("march", "0.9", dataset="nightly"))
    with pytest.raises(BudgetError, match="in 2026-04"):
        ledger.charge(request("march", "0.9", dataset="nightly"), "another tool")
    late = ledger.reserve(request("late", "0.3", dataset="nightly"))
    assert late.created == "2026-04-01T00:00:00+00:00"
    assert ledger.grant("nightly", Budget.parse("1")).period == "2026-04"


def test_a_period_is_the_datasets_for_good(ledger):
    ledger.grant("nightly", Budget.parse("1"), period="day")
    assert ledger.grant("nightly", Budget.parse("1")).granted == Budget.parse("2")
    for dataset, period in (("nightly", "week"), ("trips", "day")):
        with pytest.raises(BudgetError, match="was granted for"):
            ledger.grant(dataset, Budget.parse("1"), period=period)


@pytest.mark.parametrize(
    ("moment", "period", "label"),
    [
        ("2026-01-01T00:00:00+00:00", None, None),
        ("2026-01-01T00:00:00+00:00", "week", "2026-W01"),
        ("2027-12-31T23:59:59+00:00", "year", "2027"),
        ("2028-01-01T00:00:00+00:00", "year", "2028"),  # a Saturday of the last week of 2027
        ("2028-02-29T12:00:00+00:00", "year", "2028"),  # a leap year
        ("2028-12-31T23:59:59.999999+00:00", "year", "2028"),  # its 366th day
        ("2029-01-01T00:00:00+00:00", "year", "2029"),
        ("2100-02-28T23:59:59+00:00", "year", "2100"),  # none
        ("2024-12-30T00:00:00+00:00", "year", "2024"),  # a Monday of the first week of 2025
    ],
)
def test_a_year_is_that_of_the_calendar_whatever_its_weeks_and_leap_day(moment, period, label):
    assert period_of(moment, period) == label


def test_a_zcdp_budget_is_renewed_by_period(ledger, clock):
    clock[0] = "2026-12-28T12:00:00+00:00"
    ledger.grant("both", GRANT, accountant="zcdp", period="week")
    ledger.reserve(request("one", "0.2", dataset="both"))
    clock[0] = "2027-01-03T12:00:00+00:00"  # still the last week of 2026
    with pytest.raises(BudgetError):
        ledger.reserve(request("two", "0.2", dataset="both"))
    clock[0] = "2027-01-04T12:00:00+00:00"
    ledger.reserve(request("two", "0.2", dataset="both"))
    (status,) = ledger.status("both")
    assert (status.reserved.rho, status.earlier.rho) == (Fraction(1, 50), Fraction(1, 50))


@pytest.mark.slow
@given(st.datetimes().filter(lambda moment: moment.year > 1), st.sampled_from(PERIODS))
def test_a_period_is_that_of_the_calendar(moment, period):
    label = period_of(f"{moment:%Y}".rjust(4, "0") + f"-{moment:%m-%d}T00:00:00+00:00", period)
    pattern = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m", "year": "%Y"}[period]
    assert label.lstrip("0") == moment.strftime(pattern).lstrip("0")


def test_refusals_are_in_the_log(ledger, held, ask):
    refused = [
        lambda: ledger.reserve(ask("big", "9")),
        lambda: ledger.reserve(Request("nowhere", "r", Budget.parse("1"))),
        lambda: ledger.reserve(ask(identity={"k": 21})),
        lambda: ledger.grant("trips", Budget.parse("1"), accountant="zcdp"),
    ]
    for call in refused:
        with pytest.raises((BudgetError, SpecError)):
            call()
    lines = [line for line in ledger.log() if line.event == "refused"]
    assert [(line.dataset, line.name, line.detail["kind"]) for line in lines] == [
        ("trips", "big", "budget-refused"), ("nowhere", "r", "budget-refused"),
        ("trips", "density", "spec"), ("trips", None, "budget-refused"),
    ]  # fmt: skip
    assert lines[0].detail["epsilon"] == "9"
    assert "cannot pay" in lines[0].detail["why"]
    assert all(line.at.endswith("+00:00") for line in ledger.log())
    assert ledger.log("nowhere") == lines[1:2]
    (status,) = ledger.status("trips")
    assert status.reserved == Budget.parse("0.4")


def test_the_log_has_the_rho_of_a_reservation(zcdp):
    zcdp.reserve(request("r", "0.5", "1e-6", rho=Fraction(1, 300)))
    assert zcdp.log("zcdp")[-1].detail == {
        "epsilon": "1/2", "delta": "1/1000000", "rho": "1/300", "output": "",
    }  # fmt: skip
