"""The staged center: encrypted, created once, bound by its seal, safe against a full disk."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import numpy as np
import pytest

from dbern.errors import IntegrityError, ReleaseError
from dbern.ledger import Staging
from dbern.ledger.staging import destroy_staging

KEY = bytes(range(32))


@pytest.fixture
def staging(tmp_path):
    return Staging(tmp_path / "ledger.db.staging" / ("0" * 32), KEY)


def block_files(staging):
    return sorted(staging.directory.iterdir())


@pytest.mark.parametrize("shape", [(5,), (0,), (2, 3), ()])
def test_blocks_come_back_as_they_went(staging, shape):
    values = np.arange(np.prod(shape, dtype=int), dtype=np.int64).reshape(shape) - 2**62
    staging.put("density", 7, values)
    back = staging.get("density", 7)
    assert back.dtype == np.int64
    assert back.shape == shape
    assert (back == values).all()


def test_only_int64_is_staged(staging):
    with pytest.raises(TypeError):
        staging.put("density", 0, np.zeros(3))


@pytest.mark.parametrize(("component", "block"), [("", 0), ("x" * 101, 0), ("a", -1)])
def test_impossible_names_are_refused(staging, component, block):
    with pytest.raises(ValueError, match="can be staged"):
        staging.put(component, block, np.zeros(1, dtype=np.int64))


def test_directories_and_files_are_the_owners_alone(staging):
    staging.put("../é/x", 0, np.array([1]))
    assert staging.directory.stat().st_mode & 0o777 == 0o700
    assert staging.directory.parent.stat().st_mode & 0o777 == 0o700
    (file,) = block_files(staging)
    assert file.stat().st_mode & 0o777 == 0o600
    assert staging.components() == ["../é/x"]


def test_the_same_block_again_changes_nothing(staging):
    staging.put("density", 0, np.array([1]))
    seal, files = staging.seal(), [file.read_bytes() for file in block_files(staging)]
    staging.put("density", 0, np.array([1]))
    assert [file.read_bytes() for file in block_files(staging)] == files
    assert staging.seal() == seal


@pytest.mark.parametrize("other", [[2], [1, 1], [[1]]])
def test_another_block_under_a_name_is_refused(staging, other):
    """It would be left out of the center without a word, and its noise be of another law."""
    staging.put("density", 0, np.array([1]))
    seal = staging.seal()
    with pytest.raises(IntegrityError, match="other values"):
        staging.put("density", 0, np.array(other))
    assert staging.get("density", 0) == [1]
    assert staging.seal() == seal
    assert len(block_files(staging)) == 1


def test_a_racing_second_creation_keeps_the_first(staging, monkeypatch):
    # Both saw no block; the link decides.
    staging.put("density", 0, np.array([1]))
    monkeypatch.setattr(Path, "exists", lambda self: False)
    staging.put("density", 0, np.array([1]))
    with pytest.raises(IntegrityError, match="other values"):
        staging.put("density", 0, np.array([2]))
    assert staging.get("density", 0) == [1]
    assert len(block_files(staging)) == 1


def test_blocks_are_listed_in_number_order(staging):
    for block in (10, 2, 0):
        staging.put("a", block, np.array([block]))
    staging.put("ab", 1, np.array([1]))
    assert staging.blocks("a") == [0, 2, 10]
    assert staging.blocks("b") == []
    assert staging.components() == ["a", "ab"]


def test_staged_blocks_are_unreadable_on_the_disk(staging):
    values = np.frombuffer(b"a secret" * 100, dtype=np.int64)
    staging.put("density", 0, values)
    staging.put("density", 1, values)
    first, second = (file.read_bytes() for file in block_files(staging))
    assert b"a secret" not in first
    assert first[:12] != second[:12]
    assert first[12:] != second[12:]


def test_a_flipped_bit_is_an_integrity_error(staging):
    staging.put("density", 0, np.array([1, 2]))
    (file,) = block_files(staging)
    whole = file.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        file.write_bytes(damaged)
        with pytest.raises(IntegrityError):
            staging.get("density", 0)
        with pytest.raises(IntegrityError):
            staging.seal()
    for length in (0, 5, 12, 20, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(IntegrityError):
            staging.get("density", 0)


def test_a_block_in_anothers_place_is_an_integrity_error(staging):
    staging.put("density", 0, np.array([1]))
    staging.put("density", 1, np.array([2]))
    first, second = block_files(staging)
    first.rename(second)
    with pytest.raises(IntegrityError):
        staging.get("density", 1)
    with pytest.raises(IntegrityError, match="is missing"):
        staging.get("density", 0)


def test_another_key_reads_nothing(staging):
    staging.put("density", 0, np.array([1]))
    with pytest.raises(IntegrityError):
        Staging(staging.directory, bytes(32)).get("density", 0)


def test_a_planted_file_is_no_block(staging):
    seal = staging.seal()
    (staging.directory / "notes.txt").write_text("x")
    assert staging.seal() == seal
    (staging.directory / f"ff-{0:020d}.block").write_text("x")
    with pytest.raises(IntegrityError):
        staging.seal()


def sealed(tmp_path, name, blocks, key=KEY):
    staging = Staging(tmp_path / name / ("0" * 32), key)
    for component, block, values in blocks:
        staging.put(component, block, np.asarray(values, dtype=np.int64))
    return staging.seal()


def test_the_seal_is_of_the_content_not_of_the_order_of_staging(tmp_path):
    blocks = [("a", 0, [1, 2]), ("a", 1, [3]), ("b", 0, [4])]
    assert sealed(tmp_path, "1", blocks) == sealed(tmp_path, "2", blocks[::-1])


def test_every_change_of_content_changes_the_seal(tmp_path):
    variants = [
        [],
        [("a", 0, [1, 2]), ("a", 1, [3])],
        [("a", 0, [3]), ("a", 1, [1, 2])],
        [("a", 0, [1]), ("a", 1, [2, 3])],
        [("a", 0, [1, 2, 3])],
        [("a", 0, [[1, 2, 3]])],
        [("a", 0, [1, 2]), ("b", 1, [3])],
        [("b", 0, [1, 2]), ("a", 1, [3])],
        [("a", 0, [1, 2]), ("a", 2, [3])],
        [("a", 0, [1, 2]), ("a", 1, [])],
        [("a", 0, [1, 2])],
        *([("a", 0, [1 ^ (1 << bit), 2]), ("a", 1, [3])] for bit in range(63)),
    ]
    seals = [sealed(tmp_path, str(number), blocks) for number, blocks in enumerate(variants)]
    seals.append(sealed(tmp_path, "key", variants[1], key=bytes(32)))
    assert len(set(seals)) == len(seals)


def test_a_seal_refuses_another_center(staging):
    staging.put("a", 0, np.array([1]))
    staging.verify(staging.seal())
    for other in (None, bytes(32)):
        with pytest.raises(IntegrityError, match="no noise is drawn"):
            staging.verify(other)


def test_staging_is_cleared_to_start_over_and_destroyed_without_a_rest(staging):
    staging.put("a", 0, np.array([1]))
    (staging.directory / "left.partial").write_text("of a killed process")
    staging.clear()
    assert block_files(staging) == []
    staging.put("a", 0, np.array([2]))
    assert staging.get("a", 0) == [2]
    destroy_staging(staging.directory)
    destroy_staging(staging.directory)
    assert list(staging.directory.parent.iterdir()) == []
    with pytest.raises(ReleaseError, match="is gone"):
        staging.put("a", 1, np.array([3]))
    with pytest.raises(ReleaseError, match="is gone"):
        staging.get("a", 0)


def test_a_block_that_is_swapped_after_the_seal_meets_no_noise(staging, tmp_path):
    """For another one that was staged under the same key and name: it decrypts."""
    other = Staging(tmp_path / "other" / ("0" * 32), KEY)
    for each, value in ((staging, 1), (other, 2)):
        each.put("a", 0, np.array([value]))
    staging.verify(staging.seal())
    assert staging.get("a", 0) == [1]
    (own,), (foreign,) = block_files(staging), block_files(other)
    own.unlink()
    own.write_bytes(foreign.read_bytes())
    with pytest.raises(IntegrityError, match="changed after it was verified: no noise"):
        staging.get("a", 0)
    assert Staging(staging.directory, KEY).get("a", 0) == [2]


def test_a_process_whose_staging_was_destroyed_adds_nothing(staging):
    """It lost its lock without knowing it: another process began to count again."""
    staging.put("a", 0, np.array([1]))
    other = Staging(staging.directory, KEY)
    other.clear()
    with pytest.raises(ReleaseError, match="another process"):
        staging.put("a", 1, np.array([2]))
    other.put("a", 0, np.array([3]))
    assert [path.name for path in staging.directory.parent.iterdir()] == [staging.directory.name]
    assert (len(block_files(other)), other.get("a", 0)) == (1, [3])


def no_space(*arguments, **options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["open", "fsync", "link"])
def test_a_full_disk_loses_nothing_and_leaves_nothing(staging, monkeypatch, call):
    staging.put("a", 0, np.array([1]))
    with monkeypatch.context() as full:
        full.setattr(os, call, no_space)
        with pytest.raises(ReleaseError) as refused:
            staging.put("a", 1, np.array([2]))
    assert str(staging.directory) in str(refused.value)
    assert "No space left on device. Free space" in str(refused.value)
    assert staging.blocks("a") == [0]
    assert len(block_files(staging)) == 1
    staging.put("a", 1, np.array([2]))
    assert staging.get("a", 1) == [2]


def test_a_write_that_ends_halfway_leaves_nothing(staging):
    # The kernel itself cuts the write short: a real partial file.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(ReleaseError, match="File too large"):
            staging.put("a", 0, np.arange(4096))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert block_files(staging) == []


def test_a_directory_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ReleaseError, match=r"cannot be used|is gone"):
        Staging(tmp_path / "file" / "staging" / "0", KEY)
