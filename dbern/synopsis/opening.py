"""Open a synopsis by its URL: a store, or a window of a stream."""

from __future__ import annotations

from pathlib import Path

from dbern.data.storage import location_at
from dbern.errors import IntegrityError, SpecError
from dbern.nights.stream import StreamIndex, window_at
from dbern.synopsis.reader import Synopsis


def open_synopsis(url: str | Path) -> Synopsis:
    """Open the synopsis in a folder or at ``s3://bucket/name.zarr``; each shard when it is read.

    Of a stream, ``STREAM@2026-11-01..2026-11-20``, it is a window, and the latest total without
    days (`dbern.open_stream`).

    Raises
    ------
    SpecError, IntegrityError, ReleaseError
        Where nothing is there; where it was not released or is not what its manifest says; where
        it cannot be read.
    """
    try:
        return Synopsis(url)
    except (SpecError, IntegrityError):
        if (window := window_at(url)) is None:
            raise
        return window


def stream_at(url: str) -> StreamIndex | None:
    """Return the index of the stream that a URL names, by itself or with days; None of others."""
    urls = filter(None, (url, url.rpartition("@")[0]))
    indices = (StreamIndex.read(location_at(stream)) for stream in urls)
    return next(filter(None, indices), None)
