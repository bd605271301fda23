"""A headless Chromium of the test's own, spoken to over its debugging protocol on loopback."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tornado.websocket import WebSocketClientConnection, websocket_connect

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_SECONDS = 300.0


def executable() -> str | None:
    return next(filter(None, map(shutil.which, _NAMES)), None)


@dataclass
class Seen:
    """A page as it looked at one width and in one scheme."""

    overflow: int
    picture: bytes
    outside: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    visible: int = 0
    focusable: int = 0


@contextmanager
def started(program: str, folder: Path) -> Iterator[str]:
    """The address of a page's debugger."""
    arguments = [
        *(program, "--headless=new", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
        *("--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"),
    ]
    if os.geteuid() == 0:
        arguments.insert(1, "--no-sandbox")
    browser = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port, until = folder / "DevToolsActivePort", time.monotonic() + _SECONDS
        while not (port.exists() and port.read_text().strip()):
            assert browser.poll() is None, "the browser ended"
            assert time.monotonic() < until, "the browser did not start"
            time.sleep(0.05)
        address = f"http://127.0.0.1:{port.read_text().split()[0]}/json"
        pages: list[str] = []
        while not pages:  # it may answer before its first page is there
            assert time.monotonic() < until, "the browser has no page"
            with urlopen(address, timeout=_SECONDS) as answer:
                found = json.load(answer)
            pages = [one["webSocketDebuggerUrl"] for one in found if one["type"] == "page"]
        yield pages[0]
    finally:
        browser.terminate()
        browser.wait(_SECONDS)


def look(debugger: str, page: Path, width: int, scheme: str) -> Seen:
    return asyncio.run(asyncio.wait_for(_look(debugger, page, width, scheme), _SECONDS))


def ask(debugger: str, page: Path, *steps: str | tuple[float, ...]) -> list[Any]:
    """What a page's script tells after each step.

    A step is an expression, or a drag from (x, y) to (x, y) as shares of the picture's frame, from
    its top left corner.
    """
    return asyncio.run(asyncio.wait_for(_ask(debugger, page, steps), _SECONDS))


async def _ask(debugger: str, page: Path, steps: Sequence[str | tuple[float, ...]]) -> list[Any]:
    async with _opened(debugger, page, 1280, "light") as session:
        return [await _step(session, step) for step in steps]


async def _step(session: _Session, step: str | tuple[float, ...]) -> Any:
    if isinstance(step, str):
        return await session.value(step)
    drags = await session.value(_DRAGS)
    left, top, width, height = await session.value(_FRAME)
    x, y = ([step[i], (step[i] + step[i + 2]) / 2, step[i + 2]] for i in (0, 1))
    places = [(left + width * a, top + height * b) for a, b in zip(x, y, strict=True)]
    kinds = ("mousePressed", "mouseMoved", "mouseMoved", "mouseReleased")
    for kind, (a, b) in zip(kinds, [places[0], *places[1:], places[2]], strict=True):
        button = {"button": "left", "buttons": 1, "clickCount": 1}
        await session.call("Input.dispatchMouseEvent", type=kind, x=a, y=b, **button)
        await session.value("new Promise((done) => requestAnimationFrame(() => done(0)))")
    until = time.monotonic() + _SECONDS
    while await session.value(_DRAGS) == drags:
        assert time.monotonic() < until, "nothing was dragged"
    return await session.value("({...document.getElementById('live-mass').dataset})")


_IS_READY = "!document.getElementById('live') || document.getElementById('live').dataset.ready > ''"
_DRAGS = "document.getElementById('live').dataset.drags ?? '0'"
_FRAME = """(() => {
    const view = [...Bokeh.index].find((one) => one.model.name === "value");
    const box = view.el.getBoundingClientRect(), frame = view.frame.bbox;
    return [box.left + frame.left, box.top + frame.top, frame.width, frame.height];
})()"""


@asynccontextmanager
async def _opened(debugger: str, page: Path, width: int, scheme: str) -> AsyncIterator[_Session]:
    connection = await websocket_connect(debugger, max_message_size=1 << 28)
    session = _Session(connection)
    for domain in ("Page", "Log", "Runtime", "Network"):
        await session.call(f"{domain}.enable")
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    await session.call("Emulation.setDeviceMetricsOverride", **size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    await session.call("Emulation.setEmulatedMedia", media="screen", features=features)
    await session.call("Page.navigate", url=page.as_uri())
    while not any(one["method"] == "Page.loadEventFired" for one in session.events):
        await session.receive()
    until = time.monotonic() + _SECONDS
    while not await session.value(_IS_READY):
        assert time.monotonic() < until, "the page's script does not end"
    yield session
    connection.close()
    while await connection.read_message() is not None:
        pass  # until the browser has closed it too, its socket is open


async def _look(debugger: str, page: Path, width: int, scheme: str) -> Seen:
    async with _opened(debugger, page, width, scheme) as session:
        return await _seen(session, page, width)


async def _seen(session: _Session, page: Path, width: int) -> Seen:
    seen = Seen(
        overflow=await session.value("document.documentElement.scrollWidth") - width,
        picture=b"",
        visible=await session.value(
            "[...document.querySelectorAll('.plot svg, #live')]"
            ".filter(one => one.getBoundingClientRect().width > 200).length"
        ),
        focusable=await session.value("document.querySelectorAll('[tabindex],a,summary').length"),
    )
    shot = await session.call("Page.captureScreenshot", format="png")
    seen.picture = base64.b64decode(shot["data"])
    for event in session.events:
        facts = event["params"]
        if event["method"] in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            seen.complaints.append(json.dumps(facts))
        if event["method"] == "Log.entryAdded":
            seen.complaints.append(facts["entry"]["text"])
        if event["method"] == "Network.requestWillBeSent":
            url = facts["request"]["url"]
            if url != page.as_uri() and not url.startswith("data:"):
                seen.outside.append(url)
    return seen


class _Session:
    """Calls and their answers; events are kept."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self.connection, self.calls, self.events = connection, 0, []
        self.answers: dict[int, Any] = {}

    async def receive(self) -> None:
        text = await self.connection.read_message()
        assert text is not None, "the browser went away"
        message = json.loads(text)
        if "id" in message:
            self.answers[message["id"]] = message
        else:
            self.events.append(message)

    async def call(self, method: str, **parameters: Any) -> Any:
        self.calls += 1
        call = {"id": self.calls, "method": method, "params": parameters}
        await self.connection.write_message(json.dumps(call))
        while self.calls not in self.answers:
            await self.receive()
        return self.answers.pop(self.calls)["result"]

    async def value(self, expression: str) -> Any:
        how = {"returnByValue": True, "awaitPromise": True}
        found = await self.call("Runtime.evaluate", expression=expression, **how)
        assert "exceptionDetails" not in found, found
        return found["result"]["value"]
