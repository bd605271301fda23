"""Ways to damage a synopsis, the same each time: its metadata, its names, its bytes, its tree."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
EVIL = "\x1b[2J\x9b31m\u202e\nepsilon 0.1"
_GONE = object()
_NESTED: Any = json.loads("[" * 150 + "]" * 150)
VALUES: dict[str, Any] = {
    "gone": _GONE, "null": None, "true": True, "text": EVIL, "no text": "", "minus": -1,
    "zero": 0, "half": 0.5, "huge": 10**30, "large": 2**62, "tiny": 1e-320, "nan": float("nan"),
    "infinite": float("inf"), "list": [], "object": {}, "nested": _NESTED, "path": "../../x",
}  # fmt: skip

EXTREMES: dict[str, Any] = {
    "null": None, "true": True, "minus one": -1, "zero": 0, "two": 2, "1e300": 1e300,
    "-1e300": -1e300, "1e-300": 1e-300, "1e100": 1e100, "least": 5e-324, "400 digits": 10**400,
    "text 1e300": "1e300", "text 1e-300": "1e-300", "text 0": "0",
    "long exponent": "1e-400000000", "no text": "", "long text": "x" * 9000,
    "4999 digits": "9" * 4999, "half a letter": "\ud800", "nested": _NESTED, "no list": [],
    "list": [1e300], "object": {},
}  # fmt: skip


@dataclass(frozen=True)
class Mutation:
    """What is done to a store; `covered`: digests of its manifest would have told."""

    name: str
    apply: Callable[[Path], None]
    covered: bool = False


def redigest(store: Path, name: str, data: bytes) -> None:
    """Put an object in place of another, and its digest into the manifest, as its author can."""
    (store / name).write_bytes(data)
    manifest = json.loads((store / MANIFEST).read_text())
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest["objects"][name] = entry
    (store / MANIFEST).write_text(json.dumps(manifest))


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every key and index of JSON, inner ones too."""
    pairs = content.items() if isinstance(content, dict) else ()
    pairs = enumerate(content) if isinstance(content, list) else pairs
    for key, value in pairs:
        yield (*path, key)
        yield from places(value, (*path, key))


def changed(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    content = json.loads(json.dumps(content))
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    if value is _GONE:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return content


def of_metadata(store: Path, values: Mapping[str, Any] = VALUES) -> Iterator[Mutation]:
    """Every key of every kind of metadata with every value, digests made anew."""
    names = sorted(path.relative_to(store).as_posix() for path in store.rglob("zarr.json"))
    kinds = {str(sorted(json.loads((store / name).read_text()))) + name.split("/")[-2]
             if "/" in name else name: name for name in names}  # fmt: skip
    for name in kinds.values():
        content = json.loads((store / name).read_text())
        for path in places(content):
            for label, value in values.items():

                def apply(there: Path, name: str = name, path: Any = path, value: Any = value):
                    text = (there / name).read_text()
                    text = json.dumps(changed(json.loads(text), path, value))
                    redigest(there, name, text.encode())

                where = ".".join(map(str, path))
                yield Mutation(f"{name} {where} {label}", apply)


def of_manifest(store: Path) -> Iterator[Mutation]:
    """Every key of the manifest, and names that lead elsewhere."""
    content = json.loads((store / MANIFEST).read_text())
    for path in places(content):
        for label, value in VALUES.items():

            def apply(there: Path, path: Any = path, value: Any = value) -> None:
                text = json.loads((there / MANIFEST).read_text())
                (there / MANIFEST).write_text(json.dumps(changed(text, path, value)))

            yield Mutation(f"{MANIFEST} {'.'.join(path)} {label}", apply)
    for name in NAMES:

        def named(there: Path, name: str = name) -> None:
            text = json.loads((there / MANIFEST).read_text())
            secret = there.parent / "outside"
            secret.write_bytes(b"secret")
            entry = {"bytes": 6, "sha256": hashlib.sha256(b"secret").hexdigest()}
            text["objects"][name.replace("OUTSIDE", str(secret))] = entry
            (there / MANIFEST).write_text(json.dumps(text))

        yield Mutation(f"{MANIFEST} names {name!r}", named)


NAMES = (
    *("OUTSIDE", "../outside", "components/../../outside", "a//b", "/", "", ".", "..", "a/.", "a/"),
    *("..\\outside", "c:\\outside", "a/../zarr.json", MANIFEST, "a\0b", "a\nb", "./zarr.json"),
    *("/a", "a/..", "a/./b", "a\\b"),
)


def of_bytes(store: Path) -> Iterator[Mutation]:
    """Shards and chunks that are cut, longer, flipped or bombs; with and without their digests."""
    manifest = json.loads((store / MANIFEST).read_text())
    for name in (name for name in manifest["objects"] if "/c/" in name):
        for label, change in _CHANGES.items():
            for covered in (True, False):

                def apply(there: Path, name=name, change=change, covered=covered) -> None:
                    data = change((there / name).read_bytes())
                    if covered:
                        (there / name).write_bytes(data)
                    else:
                        redigest(there, name, data)

                digests = "covered" if covered else "digested anew"
                yield Mutation(f"{name} {label} {digests}", apply, covered)


def bomb(size: int) -> bytes:
    """A zstd frame of zeros, some thirty thousand times smaller than what it holds."""
    from numcodecs.zstd import Zstd

    return bytes(Zstd(level=1).encode(bytes(size)))


def _flipped(at: float) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        place = min(int(at * len(data)), len(data) - 1)
        return data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]

    return flip


def in_shard(frame: bytes) -> bytes:
    """A frame as the one chunk of a shard, with its index and the checksum of that."""
    return frame + _indexed(0, len(frame))


def absent_shard() -> bytes:
    """A shard whose one chunk is not there: zarr reads the fill value."""
    return _indexed(2**64 - 1, 2**64 - 1)


def _indexed(*numbers: int) -> bytes:
    from google_crc32c import value

    index = b"".join(number.to_bytes(8, "little") for number in numbers)
    return index + int(value(index)).to_bytes(4, "little")


_CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "one byte": lambda data: data[:1],
    "half": lambda data: data[: len(data) // 2],
    "longer": lambda data: data + b"x" * 40,
    "twice": lambda data: data + data,
    "head flipped": _flipped(0.0),
    "size flipped": _flipped(0.12),
    "middle flipped": _flipped(0.5),
    "index flipped": lambda data: data[:-12] + bytes(b ^ 0x55 for b in data[-12:-8]) + data[-8:],
    "checksum flipped": _flipped(1.0),
    "zeros": lambda data: bytes(len(data)),
    "nowhere": lambda _: absent_shard(),
    "bomb": lambda _: bomb(1 << 27),
    "bomb in a shard": lambda _: in_shard(bomb(1 << 27)),
    "another size": lambda _: in_shard(bomb(64)),
}


def of_tree(store: Path) -> Iterator[Mutation]:
    """Every object, and folders on the way, as something else than what it is."""
    files = sorted(path.relative_to(store).as_posix() for path in store.rglob("*"))
    for name in files:
        for label, replace in _REPLACED.items():
            if label == "device" and os.geteuid() != 0 and not os.access("/dev/zero", os.R_OK):
                continue

            def apply(there: Path, name: str = name, replace: Any = replace) -> None:
                path = there / name
                kept = there.parent / "kept"
                path.rename(kept)
                replace(path, kept)

            yield Mutation(f"{name} as {label}", apply, covered=True)


_REPLACED: dict[str, Callable[[Path, Path], object]] = {
    "nothing": lambda _path, _kept: None,
    "a link to itself": lambda path, kept: path.symlink_to(kept),
    "a link to nothing": lambda path, _kept: path.symlink_to("nothing"),
    "a link to a device": lambda path, _kept: path.symlink_to("/dev/zero"),
    "a FIFO": lambda path, _kept: os.mkfifo(path),
    "a folder": lambda path, _kept: path.mkdir(),
    "a file": lambda path, _kept: path.write_bytes(b"x"),
}


def mutations(store: Path) -> list[Mutation]:
    """All of them, in the order of their names."""
    return shuffled([*of_metadata(store), *of_manifest(store), *of_bytes(store), *of_tree(store)])


def extremes(store: Path) -> list[Mutation]:
    """Every field of the metadata with every extreme, in the order of their names."""
    return shuffled(of_metadata(store, EXTREMES))


def shuffled(listed: Iterable[Mutation]) -> list[Mutation]:
    """Sort by a digest, so that any part of them is a sample, the same each time."""
    return sorted(listed, key=lambda one: hashlib.sha256(one.name.encode()).digest())
