"""A client of a scheduler that unpickles nothing, whatever a worker or the scheduler sends.

distributed's own client unpickles results, exceptions, types of results, answers and events, and
its scheduler whatever a worker marks as pickled: a worker could run code in the releasing process.
Here one place reads all messages, `_decode`, and what it gives the client holds numbers, texts,
lists, sets and dicts alone. Everything else that a message holds is in a `Closed`, which is opened
by `dbern.run.messages.open_bytes`, as bytes, or by nobody. So that no other connection is made, the
client never asks workers themselves; and it subscribes to no events. No text that was sent is
shown: what distributed would warn of, log or raise as it came is left out.

What is sent is pickled as ever: workers and scheduler run what the releasing process tells them.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgpack
from distributed import Client, Security
from distributed.client import CommClosedError, dumps
from distributed.comm import registry
from distributed.comm.addressing import parse_address
from distributed.comm.tcp import (
    TCP,
    TLS,
    TCPBackend,
    TCPConnector,
    TLSBackend,
    TLSConnector,
    convert_stream_closed_error,
    read_bytes_rw,
)
from distributed.protocol.compression import decompress
from distributed.protocol.utils import msgpack_opts, unpack_frames
from tornado.iostream import StreamClosedError

from dbern.errors import IntegrityError
from dbern.run.messages import Closed, exception_of
from dbern.system import dict_of

_LENGTH = struct.Struct("Q")
_PREFIX = "plain+"
_ANSWER_SECONDS = 30.0  # for a scheduler to be reached, and to say what it is


def _decode(frames: list[Any]) -> Any:
    """Decode a message of distributed's protocol: msgpack first, then frames that it refers to."""

    def of_dict(pairs: dict[Any, Any]) -> Any:
        if "__Set__" in pairs:
            return set(pairs.get("as-list", ()))
        offset = pairs.get("__Serialized__")
        if type(offset) is int and 0 < offset < len(frames):
            return _closed(frames, offset)
        if any(mark in pairs for mark in ("__Serialized__", "__Pickled__", "__Enum__")):
            return Closed()
        if pairs.get("status") == "uncaught-error":  # distributed raises its text
            return {"status": "uncaught-error", "exception_text": ""}
        if pairs.get("op") == "stream-start":  # distributed warns of versions that workers state
            return {"op": "stream-start"}
        for text in ("exception", "traceback") if "status" in pairs else ():  # raised, and logged
            pairs |= {text: ""} if type(pairs.get(text)) is str else {}
        return {_plain(key): _plain(value) for key, value in pairs.items()}

    def of_list(items: list[Any]) -> Any:
        return tuple(map(_plain, items))

    hooks = {"object_hook": of_dict, "list_hook": of_list, "ext_hook": lambda *_: Closed()}
    return _plain(msgpack.loads(frames[0], **hooks, **msgpack_opts))


def _plain(value: Any) -> Any:
    """Return the value, unless it could be taken for a pickle."""
    if value is None or isinstance(value, bool | int | float | str | tuple | dict | set | Closed):
        return value
    return Closed(value if type(value) is bytes else None)


def _closed(frames: list[Any], offset: int) -> Closed:
    """Wrap a serialized object; its head names the type, by which bytes are recognized."""
    head = msgpack.loads(frames[offset], use_list=False, **msgpack_opts)
    content = frames[offset + 1 : offset + 1 + head["num-sub-frames"]]
    if head.get("serializer") != "dask" or head.get("type") != "bytes":
        return Closed()
    if any(head.get("compression", ())):
        content = decompress(head, content)
    return Closed(content[0] if len(content) == 1 else b"".join(content))


class _Reading:
    """Reading of distributed's connections, but for the decoding, as bytes of whole frames."""

    stream: Any
    _closed: bool
    abort: Any

    async def read(self, deserializers: object = None) -> Any:
        """Read one message; a connection whose message cannot be decoded is closed."""
        del deserializers
        stream = self.stream
        if stream is None:
            raise CommClosedError
        try:
            (length,) = _LENGTH.unpack(await stream.read_bytes(_LENGTH.size))
            frames, lengths = unpack_frames(await read_bytes_rw(stream, length), partial=True)
            for length in lengths:
                frames.append(await read_bytes_rw(stream, length))
        except (StreamClosedError, ssl.SSLError) as error:
            self.stream, self._closed = None, True
            convert_stream_closed_error(self, error)
        except MemoryError:
            self.abort()
            raise CommClosedError("a message of more than memory") from None
        except BaseException:
            self.abort()  # a part of the message may have been read
            raise
        try:
            return _decode(frames)
        except Exception as error:  # noqa: BLE001 -- whatever it is, its sender chose it
            self.abort()
            kind = type(error).__name__
            raise CommClosedError(f"a message that cannot be decoded ({kind})") from None


class _PlainTCP(_Reading, TCP):  # type: ignore[misc]  # has no types
    """Plain TCP."""


class _PlainTLS(_Reading, TLS):  # type: ignore[misc]  # has no types
    """Mutual TLS."""


class _Connecting:
    """Connecting as distributed does, but errors in answers are not unpickled to be raised."""

    async def connect(self, address: str, deserialize: bool = True, **options: Any) -> Any:
        del deserialize
        return await super().connect(address, deserialize=False, **options)  # type: ignore[misc]


class _TCPConnector(_Connecting, TCPConnector):  # type: ignore[misc]  # has no types
    comm_class = _PlainTCP


class _TLSConnector(_Connecting, TLSConnector):  # type: ignore[misc]  # has no types
    comm_class = _PlainTLS


class _TCPBackend(TCPBackend):  # type: ignore[misc]  # has no types
    _connector_class = _TCPConnector


class _TLSBackend(TLSBackend):  # type: ignore[misc]  # has no types
    _connector_class = _TLSConnector


def is_tls(address: str) -> bool:
    """Return whether the address is one of TLS, by itself or by the configured scheme."""
    return bool(parse_address(address)[0] == "tls")


def security_of(address: str) -> Any:
    """Return distributed's `Security` for an address, as its own client would find it."""
    from distributed.client import _maybe_call_security_loader

    return _maybe_call_security_loader(address) or Security()


registry.backends[f"{_PREFIX}tcp"] = _TCPBackend()
registry.backends[f"{_PREFIX}tls"] = _TLSBackend()


def _is_foreign(record: logging.LogRecord) -> bool:
    """Return whether a log record is of another connection: our client reports the end of ours."""
    return not any(isinstance(value, _Reading) for value in record.args or ())


# For the life of the process: the last records of a connection come after its client has closed.
logging.getLogger("distributed.batched").addFilter(_is_foreign)


class PlainClient(Client):  # type: ignore[misc]  # has no types
    """A client whose every connection reads as above, to a scheduler of tcp:// or tls://.

    It closes itself where it cannot connect: distributed's own does so after some failures only,
    and one that is half made waits at its end.
    """

    _start_arg: Any
    _stream_handlers: Any

    def __init__(self, address: str, timeout: float, security: Any) -> None:
        super().__init__(
            address, timeout=timeout, security=security, set_as_default=False,
            direct_to_workers=False,
        )  # fmt: skip

    async def _start(self, **arguments: Any) -> None:
        try:
            scheme, host = parse_address(self._start_arg)
            self._start_arg = f"{_PREFIX}{scheme}://{host}"  # ValueError where there is no such
            handlers = {op: _guarded(handler) for op, handler in self._stream_handlers.items()}
            # What no scheduler of this version says is ignored.
            self._stream_handlers = defaultdict(lambda: lambda **_: None, handlers)
            # distributed waits without end for the first words of what accepts a connection.
            await asyncio.wait_for(super()._start(**arguments), _ANSWER_SECONDS)
        except (AssertionError, AttributeError, LookupError):  # of what was sent
            await self._close()
            raise _version_error() from None
        except Exception:
            await self._close()
            raise

    async def _handle_report(self) -> None:
        try:
            await super()._handle_report()
        except Exception:  # noqa: BLE001 -- its text is its sender's, and asyncio would log it
            await self._close()  # nobody listens any more: what waits is told

    async def _reconnect(self) -> None:
        """Close: the tasks of a lost connection are cancelled, and without them nothing goes on."""
        await self._close()

    def _handle_error(self, exception: object = None) -> None:
        """Do nothing: distributed logs the text."""

    def subscribe_topic(self, topic: str, handler: object) -> None:
        """Do nothing: a worker says what it likes under any topic."""

    def _handle_task_erred(
        self, key: Any = None, exception: object = None, traceback: object = None
    ) -> None:
        del traceback
        super()._handle_task_erred(key, exception_of(exception), None)

    async def _gather_remote(self, *arguments: Any) -> Any:
        reply = dict_of(await super()._gather_remote(*arguments))
        if not (isinstance(reply.get("data"), dict) or isinstance(reply.get("keys"), tuple)):
            raise _version_error()
        if "keys" in reply:  # which distributed logs
            reply["keys"] = [key for key in self.futures if key in reply["keys"]]
        return reply

    async def _run(self, function: Any, *arguments: Any, on_error: str, **_: Any) -> dict[str, Any]:
        message = {"op": "run", "function": dumps(function), "args": dumps(arguments),
                 "kwargs": dumps({}), "wait": True}  # fmt: skip
        replies = await self.scheduler.broadcast(msg=message, on_error="return_pickle")
        if not isinstance(replies, dict):
            raise _version_error()
        answers = {worker: _answer_of(reply) for worker, reply in replies.items()}
        failed = [answer for answer in answers.values() if isinstance(answer, Exception)]
        if failed and on_error == "raise":
            raise failed[0]
        return answers


def _guarded(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a handler of a scheduler's messages so that failures hold nothing that was sent."""

    def call(**message: Any) -> Any:
        try:
            return handler(**message)
        except Exception:  # noqa: BLE001 -- distributed logs it, keys of the message too
            raise _version_error() from None

    return call


def _version_error() -> IntegrityError:
    return IntegrityError(
        "The scheduler does not answer as one of this version does. Find out what runs there, and "
        "start it anew."
    )


def _answer_of(reply: Any) -> Any:
    if not isinstance(reply, dict):  # of a scheduler that could not ask
        return exception_of(reply)
    if reply.get("status") == "OK":
        return reply.get("result")
    return exception_of(reply.get("exception"))
