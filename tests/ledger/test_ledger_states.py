"""Every transition, and what each state makes of a changed request."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from dbern.errors import IntegrityError, SpecError
from dbern.ledger import BudgetLedger, State
from dbern.privacy.budget import Budget

STEPS = {
    "begin_reading": ("reserved", lambda ledger, held: ledger.begin_reading(held)),
    "spend": ("reading", lambda ledger, held: ledger.spend(held, bytes(32))),
    "commit": ("spent", lambda ledger, held: ledger.commit(held, "digest")),
}
STATES = ["reserved", "reading", "spent", "committed", "abandoned", "refunded"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("state", STATES)
def test_a_step_leaves_one_state_only(ledger, held, advance, state, step):
    wanted, take = STEPS[step]
    reservation = advance(held, state)
    if state == wanted:
        assert take(ledger, reservation).state != state
        return
    with pytest.raises(IntegrityError, match=rf"is {state}, not {wanted}"):
        take(ledger, reservation)
    assert [row.state for row in ledger.status("trips")[0].releases] == [state]


def test_a_step_is_taken_by_one_of_two_holders(ledger, held, url):
    with BudgetLedger.open(url) as other:
        ledger.begin_reading(held)
        with pytest.raises(IntegrityError, match="another process went on with it"):
            other.begin_reading(held)


def test_steps_store_seal_and_digest(ledger, held):
    seal = os.urandom(32)
    assert held.seal is None
    assert len(held.salt) == 32
    spent = ledger.spend(ledger.begin_reading(held), seal)
    assert spent.seal == seal
    ledger.commit(spent, "abc")
    found = ledger.find("trips", "density")
    assert (found.seal, found.manifest_digest, found.salt) == (seal, "abc", held.salt)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", found.created)


def test_the_output_may_change_until_it_is_over(ledger, held, advance):
    assert ledger.set_output(held, "b.zarr").output == "b.zarr"
    advance(held, "committed")
    with pytest.raises(IntegrityError, match="is committed, not open"):
        ledger.set_output(held, "c.zarr")
    assert ledger.find("trips", "density").output == "b.zarr"


@pytest.mark.parametrize("state", ["reserved", "reading", "spent", "committed"])
def test_the_same_request_goes_on_with_the_stored_plan(ledger, held, ask, advance, state):
    stored = advance(held, state)
    again = ledger.reserve(ask(plan={"k": 99}, output="elsewhere.zarr"))
    assert again == stored
    assert again.content.plan == {"k": 20, "h": 2}
    assert len(ledger.status("trips")[0].releases) == 1


@pytest.mark.parametrize("state", ["reserved", "reading", "spent", "committed"])
@pytest.mark.parametrize(
    ("identity", "said"),
    [
        ({"bounds": {"x": [0, 2.0], "y": [0, 1]}, "k": 20}, r"\(bounds.x changed\)"),
        ({"bounds": {"y": [0, 1], "x": [0, 1]}, "k": 20}, r"\(bounds changed\)"),
        ({"bounds": {"x": [0, 1], "y": [0, 1]}}, r"\(k changed\)"),
        ({"bounds": {"x": [0, 1], "y": [0, 1]}, "k": 20, "a": None}, r"\(a changed\)"),
        ({"bounds": {"x": [0, 1]}, "k": 21}, r"\(bounds.y; k changed\)"),
    ],
)
def test_another_identity_is_refused_in_every_state(
    ledger, held, ask, advance, state, identity, said
):
    advance(held, state)
    with pytest.raises(SpecError, match=said) as refused:
        ledger.reserve(ask(identity=identity))
    assert "a new release name, which spends again" in str(refused.value)


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        ({"identity": {"a": 10}}, {"identity": {"a": 10.0}}, None),
        ({"identity": {"b": 1}}, {"identity": {"b": True}}, r"\(b changed\)"),
        ({"identity": {"b": [0, 1]}}, {"identity": {"b": [0.0, 1]}}, None),
        ({"identity": {"b": [0, 1]}}, {"identity": {"b": [False, True]}}, r"\(b changed\)"),
        ({"identity": {"b": {"c": [1, {"d": 2}]}}}, {"identity": {"b": {"c": [1, {"d": 3}]}}},
         r"\(b.c changed\)"),
        ({}, {"epsilon": "0.5"}, r"\(budget.epsilon changed\)"),
    ],
)  # fmt: skip
def test_values_of_an_identity_are_compared_as_json_has_them(ledger, ask, first, then, said):
    stored = ledger.reserve(ask(**first))
    if said is None:
        assert ledger.reserve(ask(**then)) == stored
        return
    with pytest.raises(SpecError, match=said):
        ledger.reserve(ask(**then))


def test_an_identity_holds_no_number_that_json_has_not(ledger, ask):
    with pytest.raises(ValueError, match="JSON"):
        ledger.reserve(ask(identity={"a": float("nan")}))


@pytest.mark.parametrize(
    ("state", "kind", "said"),
    [
        ("reserved", SpecError, r"\(n; files\.a\.parquet\).*refund.*dbern ledger abandon "
                                "--ledger {url} --dataset trips --name density"),
        ("reading", IntegrityError, r"files\.a\.parquet.*charge stands.*abandon"),
        ("spent", None, ""),
        ("committed", None, ""),
    ],
)  # fmt: skip
def test_changed_inputs_stop_a_release_until_it_is_charged(
    ledger, held, ask, advance, state, kind, said
):
    advance(held, state)
    changed = ask(inputs={"n": 101, "files": [{"path": "a.parquet", "size": 11}]})
    if kind is None:
        assert ledger.reserve(changed).state == state
        return
    with pytest.raises(kind, match=said.replace("{url}", re.escape(ledger.url))):
        ledger.reserve(changed)


def test_thousands_of_changed_files_make_a_short_message(ledger, ask):
    def files(size):
        return {"files": {f"{number}.parquet": size for number in range(5000)}}

    ledger.reserve(ask(inputs=files(1)))
    with pytest.raises(SpecError, match="and 4992 more") as refused:
        ledger.reserve(ask(inputs=files(2)))
    assert len(str(refused.value)) < 1500


def test_a_file_name_that_is_no_unicode_survives(ledger, ask):
    inputs = {"files": {os.fsdecode(b"caf\xe9.parquet"): 1}}
    ledger.reserve(ask(inputs=inputs))
    assert ledger.find("trips", "density").content.inputs == inputs


def test_abandoning_a_reservation_refunds_it_and_frees_the_name(ledger, held, ask):
    key = ledger.key(held)
    given_up = ledger.abandon("trips", "density")
    assert given_up.refunded
    assert given_up.reservation.release_id == held.release_id
    assert ledger.status("trips")[0].remaining == Budget.parse("1")
    assert ledger.find("trips", "density") is None
    again = ledger.reserve(ask(identity={"another": True}))
    assert again.release_id != held.release_id
    assert again.salt != held.salt
    assert ledger.key(again) != key


@pytest.mark.parametrize("state", ["reading", "spent"])
def test_abandoning_later_keeps_the_charge_and_the_name(ledger, held, ask, advance, state):
    advance(held, state)
    assert not ledger.abandon("trips", "density").refunded
    assert ledger.status("trips")[0].spent == Budget.parse("0.4")
    with pytest.raises(SpecError, match="new release name"):
        ledger.reserve(ask())
    with pytest.raises(SpecError, match="its charge stands"):
        ledger.abandon("trips", "density")


def test_a_release_that_is_over_cannot_be_abandoned(ledger, held, advance):
    advance(held, "committed")
    with pytest.raises(SpecError, match="is committed"):
        ledger.abandon("trips", "density")
    with pytest.raises(SpecError, match="no release 'nothing'"):
        ledger.abandon("trips", "nothing")


def test_a_locked_release_is_waited_for_and_said_so_once(ledger, held, url):
    order = []

    def second():
        with BudgetLedger.open(url) as other, other.lock(held, lambda: order.append("waiting")):
            order.append("second")

    with ThreadPoolExecutor(1) as pool:
        with ledger.lock(held, wait=lambda: order.append("never")):
            taken = pool.submit(second)
            while not order:
                assert not taken.done()
            order.append("first")
        taken.result(60)
    assert order == ["waiting", "first", "second"]


@pytest.mark.slow
def test_the_lock_dies_with_its_process(ledger, held, url, python):
    script = (
        "import sys, time\n"
        "from dbern.ledger import BudgetLedger\n"
        "ledger = BudgetLedger.open(sys.argv[1])\n"
        "with ledger.lock(ledger.find('trips', 'density')):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(3600)\n"
    )
    process = python(script, url)
    assert process.stdout.readline() == "held\n"
    waits = []

    def end():
        waits.append(1)
        process.kill()

    with ledger.lock(held, wait=end):
        assert process.wait(60) == -9
    assert waits == [1]
    process.communicate()


def test_an_abandoned_release_keeps_its_inputs_and_a_refunded_one_none(ledger, ask, advance):
    """What was read stays known: a stream's file is of one night, also where that was given up."""
    for state in State:
        inputs = {"digests": {"a.parquet": state.value}}
        advance(ledger.reserve(ask(state.value, "0.01", inputs=inputs)), state.value)
    known = {name: files["digests"]["a.parquet"] for name, files in ledger.inputs("trips").items()}
    assert known == {state.value: state.value for state in State if state is not State.REFUNDED}
