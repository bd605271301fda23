"""Messages of workers to the releasing process: bytes, read by rules of our own.

Whoever unpickles an object runs its sender's code, and in the releasing process is the key. So a
result that leaves the cluster is bytes: eight that name the format, four with the length of a head
in JSON of fixed fields, and the integers, little endian. For any other message the error has a
sentence from below, and no text of its sender.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dbern.errors import IntegrityError
from dbern.types import Int64Array

_MAGIC = b"dbern\x00r1"
_START = struct.Struct("<8sI")
_MAX_HEAD_BYTES = 1 << 16
_MAX_LOCATION_LENGTH = 4096
_MAX_ANSWER_BYTES = 1 << 16
_FIELDS = {"rows": int, "failure": str, "place": str, "origin": str, "values": int}
_FAILURE = re.compile(r"[a-z-]{0,32}")
_ORIGIN = re.compile(r"([0-9a-f]{64})?")
_ADDRESS = re.compile(r"[\w.:/\[\]%+-]{1,256}", re.ASCII)
_PYTHON_ERRORS: dict[str, type[Exception]] = {kind.__name__: kind for kind in (
    ModuleNotFoundError, ImportError, MemoryError, TimeoutError, ConnectionRefusedError,
    ConnectionResetError, BrokenPipeError, OSError,
)}  # fmt: skip
_CLUSTER_ERRORS = {name: type(name, (base,), {}) for name, base in {
    "CommClosedError": OSError, "KilledWorker": Exception, "NoValidWorkerError": Exception,
    "NoWorkerError": Exception,
}.items()}  # fmt: skip
_KNOWN_ERRORS = _PYTHON_ERRORS | _CLUSTER_ERRORS
_UNKNOWN = type("UnknownError", (Exception,), {})
CLUSTER_ERROR_NAMES = frozenset({*_CLUSTER_ERRORS, _UNKNOWN.__name__})
"""Names of exceptions, besides Python's, that a scheduler may report."""


@dataclass(frozen=True, eq=False)
class Closed:
    """Unopened bytes, or an unopened object, from a message of a scheduler."""

    content: bytes | memoryview | None = field(default=None, repr=False)
    """The bytes that were sent; None for an object that only unpickling could restore."""


def open_bytes(result: object) -> bytes | memoryview:
    """Return the bytes that a task or a question returned; raises IntegrityError for all else."""
    content = result if type(result) is bytes else _content(result)
    if content is None:
        raise _refusal("is not the bytes that this version returns, and was not opened")
    return content


def exception_of(sent: object) -> Exception:
    """Return an exception of the type that pickled bytes name: they are searched, never loaded."""
    content = _content(sent)
    searched = bytes(content[:_MAX_HEAD_BYTES]) if content is not None else b""
    positions = {searched.find(name.encode()): kind for name, kind in _KNOWN_ERRORS.items()}
    positions.pop(-1, None)
    # Of several the first: causes are named after the exceptions that they caused.
    return positions[min(positions)]() if positions else _UNKNOWN()


def _content(sent: object) -> bytes | memoryview | None:
    return sent.content if isinstance(sent, Closed) else None


@dataclass(frozen=True)
class TaskResult:
    """A task's result, or the code and the public location of its failure."""

    state: Int64Array | None = field(repr=False)
    rows: int = 0
    failure: str = ""
    location: str = ""
    origin: str = field(default="", repr=False)
    """Keyed fingerprint of the sums that lattice values come from."""


def pack(outcome: TaskResult) -> bytes:
    """Encode a task's result as bytes; its state, of any shape, is flat in C order."""
    state = outcome.state
    head = {
        "rows": outcome.rows,
        "failure": outcome.failure,
        "place": outcome.location[:_MAX_LOCATION_LENGTH],
        "origin": outcome.origin,
        "values": -1 if state is None else state.size,
    }
    text = json.dumps(head).encode()
    text += b" " * (-(_START.size + len(text)) % 8)  # so that the integers are aligned
    values = b"" if state is None else np.ascontiguousarray(state, dtype="<i8").ravel().data
    return b"".join([_START.pack(_MAGIC, len(text)), text, values])


def unpack(content: bytes | memoryview, size: int, limit: int) -> TaskResult:
    """Decode a result of `pack`, its state flat.

    The plan expects `size` integers, whose magnitude stays below `limit`.
    """
    view = memoryview(content).cast("B")
    if len(view) < _START.size:
        raise _refusal("is too short")
    magic, length = _START.unpack_from(view)
    values = _START.size + length
    if magic != _MAGIC or length > _MAX_HEAD_BYTES or values > len(view):
        raise _refusal("is not of this version's format")
    head = _parse_head(bytes(view[_START.size : values]))
    fields = head["rows"], head["failure"], location_text(head["place"]), head["origin"]
    if head["values"] == -1 and head["failure"] and values == len(view):
        return TaskResult(None, *fields)
    if head["failure"] or head["values"] != size or len(view) - values != 8 * size:
        raise _refusal("is not of the size that the plan expects")
    state = np.frombuffer(view[values:], dtype="<i8").astype(np.int64, copy=False)
    # Magnitudes are compared apart: that of -2**63 is not an int64.
    if size and not -limit < state.min() <= state.max() < limit:
        raise _refusal("holds integers that the plan excludes")
    return TaskResult(state, *fields)


def location_text(location: str) -> str:
    """Return a location as `unpack` gives it: short, of printable letters."""
    shortened = location[:_MAX_LOCATION_LENGTH]
    return "".join(letter if letter.isprintable() else "?" for letter in shortened)


def _parse_head(text: bytes) -> dict[str, Any]:
    head = _parse_object(text)
    if set(head) != set(_FIELDS) or any(type(head[name]) is not _FIELDS[name] for name in _FIELDS):
        raise _refusal("has other fields")
    if (
        not 0 <= head["rows"] < 2**63
        or not _FAILURE.fullmatch(head["failure"])
        or not _ORIGIN.fullmatch(head["origin"])
        or len(head["place"]) > _MAX_LOCATION_LENGTH
    ):
        raise _refusal("has fields out of bounds")
    return head


def decode_answer(content: bytes | memoryview) -> dict[str, Any]:
    """Parse a worker's answer to a question: a small JSON object."""
    if len(content) > _MAX_ANSWER_BYTES:
        raise _refusal("is too long")
    return _parse_object(bytes(content))


def address_text(address: object) -> str:
    """Return an address for a message if it looks like one: workers choose their own."""
    text = str(address)
    return text if _ADDRESS.fullmatch(text) else "(no address)"


def _parse_object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise _refusal("is not JSON") from None
    if not isinstance(value, dict):
        raise _refusal("is not an object")
    return value


def _refusal(what: str) -> IntegrityError:
    return IntegrityError(
        f"What a worker returned {what}. Find out what runs on the workers, start ones that run "
        "what is here, and run the same command again."
    )
