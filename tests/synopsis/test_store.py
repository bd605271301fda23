"""Objects of a store: frames, checksums and manifests."""

import pytest

from dbern.synopsis.store import Manifest, digest
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


def test_a_manifest_is_read_as_it_was_written():
    objects = {"a": digest(b"b")}
    made = Manifest(release_id="7f", created="2026-11-20T00:00:00+00:00", objects=objects)
    assert Manifest.parse(made.text().encode(), "a.zarr") == made
