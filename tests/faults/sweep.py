"""Look for record values and keys in bytes and folders, in every form that they could take."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable
from pathlib import Path


def forms(values: Iterable[float], keys: Iterable[bytes]) -> dict[bytes, str]:
    """What to look for, and what it is."""
    found = {}
    for value in values:
        found |= dict.fromkeys(_forms_of_a_value(value), f"the value {value}")
    for key in keys:
        found |= dict.fromkeys(_forms_of_a_key(key), "a key")
    return found


def _forms_of_a_value(value: float) -> list[bytes]:
    packed = [struct.pack(f"{order}{kind}", value) for order in "<>" for kind in "df"]
    doubles = [one for one in packed if len(one) == 8]
    texts = [repr(value)[:10], value.hex(), f"{value:.7e}"[:9]]
    return [*doubles, *(one.hex().encode() for one in doubles),
            *(repr(one)[2:-1].encode() for one in doubles),
            *(text.encode() for text in texts)]  # fmt: skip


def _forms_of_a_key(key: bytes) -> list[bytes]:
    texts = [key.hex(), key.hex().upper(), repr(key)[2:-1], str(list(key))[1:-1]]
    coded = [base64.b64encode(key)[:40], base64.urlsafe_b64encode(key)[:40]]
    return [key, *(text.encode() for text in texts), *coded]


def found_in(content: bytes, looked_for: dict[bytes, str]) -> list[str]:
    return sorted({what for form, what in looked_for.items() if form in content})


def swept(folder: Path, looked_for: dict[bytes, str], spared: Iterable[Path] = ()) -> list[str]:
    """Where below a folder something of it is; the name of a file counts as its content."""
    left_out = tuple(spared)
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(path.is_relative_to(one) for one in left_out):
            try:
                content = path.name.encode() + b"\n" + path.read_bytes()
            except FileNotFoundError:  # a live worker removed it meanwhile
                continue
            found += [f"{path.relative_to(folder)}: {what}"
                      for what in found_in(content, looked_for)]  # fmt: skip
    return found
