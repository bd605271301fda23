"""What the releasing process reads of a worker's or scheduler's bytes, and what it refuses."""

from __future__ import annotations

import builtins
import json
import pickle
import struct
from dataclasses import replace
from types import SimpleNamespace

import msgpack
import numpy as np
import pytest
from distributed.protocol import to_serialize
from distributed.protocol.core import dumps
from distributed.protocol.serialize import ToPickle
from hypothesis import given
from hypothesis import strategies as st

from dbern.data.footers import Footer
from dbern.errors import IntegrityError
from dbern.privacy.laplace import MAX_CENTER
from dbern.run.client import _decode
from dbern.run.graph import _unpack_result
from dbern.run.messages import (
    Closed,
    TaskResult,
    address_text,
    decode_answer,
    exception_of,
    open_bytes,
    pack,
    unpack,
)
from dbern.run.tasks import known_location

STATE = np.array([[1, -2], [2**61, 0]])
TAG = "0f" * 32
GOOD = pack(TaskResult(STATE, 7, origin=TAG))
RAN = []


class Hostile:
    def __reduce__(self):
        return RAN.append, (1,)


def message(content):
    """As it is when it was read: frames, of which none has been looked at."""
    return _decode([memoryview(bytes(frame)) for frame in dumps(content)])


def with_head(**changes):
    (length,) = struct.unpack_from("<I", GOOD, 8)
    text = json.dumps({**json.loads(GOOD[12 : 12 + length]), **changes}).encode()
    return struct.pack("<8sI", GOOD[:8], len(text)) + text + GOOD[12 + length :]


@pytest.mark.parametrize("view", [bytes, memoryview])
def test_a_result_is_the_same_on_the_other_side(view):
    found = unpack(view(GOOD), 4, MAX_CENTER)
    np.testing.assert_array_equal(found.state, STATE.ravel())
    assert replace(found, state=None) == TaskResult(None, 7, origin=TAG)
    assert found.state.flags.aligned
    failed = pack(TaskResult(None, 0, "unreadable", "a/\n\x1b[31mé.parquet"))
    assert unpack(view(failed), 4, MAX_CENTER) == TaskResult(
        None, 0, "unreadable", "a/??[31mé.parquet"
    )


BAD = {
    "nothing": b"",
    "pickled": pickle.dumps(STATE),
    "other magic": b"dbern\x00r2" + GOOD[8:],
    "cut": GOOD[:-1],
    "longer": GOOD + b"\x00" * 8,
    "head beyond the end": GOOD[:8] + struct.pack("<I", 10**6) + GOOD[12:],
    "no JSON": GOOD[:12] + b"[" + GOOD[13:],
    "a list": struct.pack("<8sI", GOOD[:8], 2) + b"[]",
    "deep": struct.pack("<8sI", GOOD[:8], 60_000) + b"[" * 60_000,
    "another field": with_head(more=1),
    "rows as text": with_head(rows="7"),
    "rows as truth": with_head(rows=True),
    "rows below zero": with_head(rows=-1),
    "rows beyond integers": with_head(rows=2**63),
    "an origin of another form": with_head(origin="Jane"),
    "a failure in words": with_head(failure="Jane is 42"),
    "a failure and values": with_head(failure="internal"),
    "fewer values": with_head(values=3),
    "no values and no failure": with_head(values=-1),
    "a long place": with_head(place="x" * 5000),
    "a value that the noise excludes": pack(TaskResult(STATE + 2**61, 7, origin=TAG)),
    "the least integer": pack(TaskResult(np.full(4, -(2**63)), 7, origin=TAG)),
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_a_malformed_result_is_refused_in_words_of_our_own(content):
    with pytest.raises(IntegrityError, match=r"What a worker returned .* Find out") as caught:
        unpack(content, 4, MAX_CENTER)
    assert "Jane" not in str(caught.value)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_arbitrary_bytes_raise_nothing_but_a_refusal(noise, at):
    content = GOOD[:at] + noise
    try:
        state = unpack(content, 4, MAX_CENTER).state
        assert state is None or state.shape == (4,)
    except IntegrityError:
        pass


def test_a_failure_that_is_unknown_here_is_an_internal_one():
    layout = SimpleNamespace(slab_shape=lambda *_: (4,))
    part = SimpleNamespace(strategy=SimpleNamespace(layout=layout))
    counters, piece = SimpleNamespace(parts=(part,)), SimpleNamespace(part=0, slab=None)
    known, unknown = (TaskResult(None, 0, failure, "x") for failure in ("changed", "new-one"))
    assert _unpack_result(pack(unknown), counters, piece).failure == "internal"
    assert _unpack_result(pack(known), counters, piece) == known


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("/data/a?b.parquet", "/data/a?b.parquet"),
        ("target.function", "target.function"),
        ("MemoryError", "MemoryError"),
        ("", ""),
        ("Jane, 3.14", "a place that is unknown here"),
        ("/data/Jane.parquet", "a place that is unknown here"),
        ("print", "a place that is unknown here"),
    ],
)
def test_a_failure_names_places_of_this_release_alone(place, shown):
    """A worker knows the records, and could have the releasing process print one."""
    files = [Footer("/data/b.parquet", 1, (1,)), Footer("/data/a\nb.parquet", 1, (1,))]
    assert known_location(TaskResult(None, failure="unreadable", location=place), files) == shown


@pytest.mark.parametrize("sent", [
    to_serialize(Hostile()), ToPickle(Hostile()), to_serialize([Hostile()]),
    to_serialize({"a": b"bytes", "b": Hostile()}), pickle.dumps(Hostile()), np.ones(3),
    to_serialize(np.ones(3)), to_serialize("text"),
])  # fmt: skip
def test_messages_are_never_unpickled(sent, monkeypatch):
    RAN.clear()
    for module in ("distributed.protocol.pickle", "pickle"):
        monkeypatch.setattr(f"{module}.loads", lambda *_, **__: RAN.append(2))
    found = message([{"op": "event", "type": sent, "deep": [[{"more": sent}]]}])
    assert RAN == []
    (one,) = found
    assert type(one["type"]) is type(one["deep"][0][0]["more"]) is Closed
    if not isinstance(sent, bytes):  # which nobody loads, and which is no result either
        with pytest.raises(IntegrityError, match="was not opened"):
            open_bytes(one["type"])


def test_an_extension_of_msgpack_is_not_opened():
    """Of a type that nobody sends, and what it holds is a pickle."""
    extension = msgpack.ExtType(5, pickle.dumps(Hostile()))
    found = _decode([msgpack.packb({"op": "event", "more": [extension]})])
    assert type(found["more"][0]) is Closed


def test_bytes_are_what_was_sent_whole_and_nothing_else_is():
    large = bytes(range(256)) * 10_000
    frames = dumps({"x": to_serialize(large)}, frame_split_size=1 << 16,
                   context={"compression": "zlib"})  # fmt: skip
    assert len(frames) > 10
    assert bytes(open_bytes(_decode(frames)["x"])) == large
    assert bytes(open_bytes(message({"x": to_serialize(b"ab")})["x"])) == open_bytes(b"ab") == b"ab"
    for other in (bytearray(b"ab"), "ab", None, 1, type("B", (bytes,), {})(b"ab"), Closed()):
        with pytest.raises(IntegrityError, match="is not the bytes"):
            open_bytes(other)


def test_messages_keep_what_a_client_needs():
    sent = {
        "status": "OK",
        "n": 1,
        "f": 0.5,
        "t": True,
        "none": None,
        "s": {"a"},
        "l": ["x", ["y"]],
    }
    assert message(sent) == {**sent, "l": ("x", ("y",))}
    assert message([{"op": "key-in-memory"}]) == ({"op": "key-in-memory"},)
    failed = message({"status": "uncaught-error", "exception_text": "Jane, 42", "exception": b"x"})
    assert failed == {"status": "uncaught-error", "exception_text": ""}
    extended = [msgpack.packb({"x": msgpack.ExtType(5, b"x"), b"k": 1})]
    assert {type(key) for key in _decode(extended)} == {str, Closed}


@pytest.mark.parametrize("name", ["OSError", "MemoryError", "ModuleNotFoundError", "TimeoutError"])
def test_an_exception_is_known_by_its_name(name):
    sent = message({"e": pickle.dumps(getattr(builtins, name)("Jane"))})["e"]
    told = exception_of(sent)
    assert type(told) is getattr(builtins, name)
    assert str(told) == ""
    assert type(exception_of(Closed(b"Jane"))).__name__ == "UnknownError"
    assert type(exception_of("Jane")).__name__ == "UnknownError"
    assert type(exception_of(Closed(b"..KilledWorker..MemoryError"))).__name__ == "KilledWorker"


def test_answers_are_small_objects():
    assert decode_answer(b'{"a": 1}') == {"a": 1}
    for bad in (b"[1]", b"1", b"{", b"\xff", b'{"a": "' + b"x" * (1 << 16) + b'"}'):
        with pytest.raises(IntegrityError, match="What a worker returned"):
            decode_answer(bad)


def test_an_address_is_shown_where_it_is_one():
    assert address_text("tls://10.0.0.1:8786") == "tls://10.0.0.1:8786"
    assert address_text("tcp://\x1b[31mJane") == "(no address)"
