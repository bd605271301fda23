"""Keys and salts in the tests' own process are the same each time, whoever runs first."""

from __future__ import annotations

from hashlib import sha256

import pytest

from dbern.ledger import keys, tables
from dbern.privacy import keystream


def drawn(place: str, number: int) -> bytes:
    return sha256(f"{place} {number}".encode()).digest()


@pytest.fixture(scope="module")
def shared() -> list[bytes]:
    return [keys.new_key(), keys.new_key()]


def test_a_test_draws_its_own_sequence(request: pytest.FixtureRequest) -> None:
    own = [keys.new_key(), keys.new_key(), tables.secrets.token_bytes(32)]
    assert own == [drawn(request.node.nodeid, number) for number in range(3)]


@pytest.mark.parametrize("turn", [1, 2])
def test_what_tests_share_is_drawn_for_none_of_them(
    request: pytest.FixtureRequest, shared: list[bytes], turn: int
) -> None:
    module = request.node.nodeid.partition("::")[0]
    assert shared == [drawn(f"{module}::shared[]", number) for number in range(2)]
    assert keys.new_key() == drawn(request.node.nodeid, 0)


def test_keys_outside_of_tests_are_fresh() -> None:
    """What `Draws` stands for: with one key for all releases their differences would be exact."""
    found = {keystream.new_key() for _ in range(1000)}
    assert len(found) == 1000
    assert {len(key) for key in found} == {keystream.KEY_BYTES}
    ones = sum(int.from_bytes(key, "big").bit_count() for key in found) / (
        8000 * keystream.KEY_BYTES
    )
    assert abs(ones - 0.5) < 0.01  # ten standard deviations
