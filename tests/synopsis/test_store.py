"""Frames of a store's chunks."""

import pytest

from dbern.synopsis.stored_arrays import _content


@pytest.mark.parametrize(
    ("frame", "size"),
    [
        ("28b52ffd2003010000", 3),  # one segment, whose size is a byte
        ("28b52ffd0058010000", None),  # a window, and no size
        ("28b52ffd00", None),
        ("", None),
    ],
)
def test_a_frame_says_how_many_bytes_it_holds_or_is_refused(frame, size):
    assert _content(bytes.fromhex(frame)) == size
