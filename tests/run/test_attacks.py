"""Ways to spend once and learn twice, each found by attack and each refused."""

import os
import shutil
from dataclasses import fields, replace
from unittest.mock import Mock, patch

import numpy as np
import pytest
from distributed import Client

import dbern
from dbern.errors import IntegrityError, OtherVersionError, ReleaseError
from dbern.ledger import BudgetLedger
from dbern.privacy.laws import GaussianNoise, KNormNoise, LaplaceNoise
from dbern.privacy.mechanism import privatize
from dbern.run import counting, publish, stages
from dbern.run.connection import UNREACHABLE, connect


@pytest.mark.slow
def test_a_name_reserved_anew_before_the_lock_is_left_alone(project, client, monkeypatch):
    """A reserves; the operator abandons; D reserves the name with another spec; A must stop."""
    spec = project.spec()
    original = BudgetLedger.lock
    done = []

    def meanwhile(self, reservation, wait=None):
        if not done:
            done.append(True)
            with project.ledger() as ledger:
                assert ledger.abandon("trips", "density").refunded
            other = project.spec(target={"bandwidth": [4.0, 0.8]})
            with project.ledger() as ledger:
                stages._reserve(ledger, other, None)
        return original(self, reservation, wait)

    monkeypatch.setattr(BudgetLedger, "lock", meanwhile)
    with pytest.raises(ReleaseError, match="abandoned by another process"):
        dbern.release(spec, client=client)
    assert project.reservation().state == "reserved"
    assert not project.output.exists()


@pytest.mark.slow
def test_a_ledger_put_back_to_before_the_charge_draws_nothing(project, client, monkeypatch):
    """With its mark, so that nothing notices: as if a whole disk were put back."""
    spec = project.spec()
    kept = project.folder / "copy"
    original = BudgetLedger.spend

    def copy_ledger(source, target):
        for name in ("ledger.db", "ledger.db.mark"):
            shutil.copy(source / name, target)
        shutil.copytree(source / "ledger.db.keys", target / "ledger.db.keys", dirs_exist_ok=True)

    def copied(self, reservation, seal):
        kept.mkdir()
        copy_ledger(project.folder, kept)
        return original(self, reservation, seal)

    monkeypatch.setattr(BudgetLedger, "spend", copied)
    dbern.release(spec, client=client)
    copy_ledger(kept, project.folder)
    assert project.reservation().state == "reading"
    with pytest.raises(IntegrityError, match="rolled back"):
        dbern.release(spec, client=client)


def test_another_center_or_scale_never_meets_the_same_noise(project, client):
    """Even were the ledger put back unnoticed: the stream is bound to the seal and to the law."""
    dbern.release(project.spec(), client=client)
    reservation = project.reservation()
    law = LaplaceNoise(scale=1000, granularity_exponent=-10, l1_sensitivity_granules=1000)
    zero = np.zeros(64, dtype=np.int64)

    def noise(seal, law):
        key = publish._noise_key(bytes(32), replace(reservation, seal=seal), law)
        return privatize(zero, 0, law, key, "density")

    same = noise(b"one", law)
    assert (same == noise(b"one", law)).all()
    assert (same != noise(b"two", law)).mean() > 0.9
    joint = KNormNoise(**vars(law) | {"values": 64})
    normal = GaussianNoise(
        sigma=1000, granularity_exponent=-10, l2_sensitivity_granules_squared=10**6
    )
    laws = [law, joint, normal]
    laws += [
        replace(each, **{one.name: getattr(each, one.name) + 1})
        for each in laws
        for one in fields(each)
        if one.init and isinstance(getattr(each, one.name), int)
    ]
    sealed = replace(reservation, seal=b"one")
    keys = {publish._noise_key(bytes(32), sealed, each) for each in laws}
    assert len(keys) == len(laws) > 9
    assert publish._noise_key(bytes(range(32)), sealed, law) not in keys


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_file_under_two_names_is_refused(project, client, link):
    first = project.files()[0]
    link(first, first.with_name("latest.parquet"))
    with pytest.raises(dbern.SpecError, match=r"data\.source: .* is the same file as"):
        dbern.release(project.spec(), client=client)


@pytest.mark.slow
@pytest.mark.parametrize("address", ["no-port", "tcp://127.0.0.1:1", "http://127.0.0.1:1"])
def test_no_client_is_left_half_made(address):
    """It would wait ten seconds for its connection when it is collected, and print a traceback."""
    with (
        patch.object(Client, "__init__", autospec=True, side_effect=Client.__init__) as made,
        pytest.raises(UNREACHABLE),
    ):
        connect(address, 1.0)
    ((client, *_), _) = made.call_args
    assert client.status == "closed"


def test_a_plan_of_another_version_is_not_carried_out(project, client, monkeypatch):
    monkeypatch.setattr(counting, "_stage", Mock(side_effect=ReleaseError("cut")))
    with pytest.raises(ReleaseError, match="cut"):
        dbern.release(project.spec(), client=client)
    monkeypatch.setattr(stages, "version", lambda _: "9.9")
    with pytest.raises(OtherVersionError, match=r"planned by dbern .* and this is 9\.9"):
        dbern.release(project.spec(), client=client)
