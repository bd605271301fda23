"""The private record of a release's runs."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dbern.data.drafts import open_descriptor, private_directory
from dbern.errors import EnvironmentRefusedError


@dataclass(frozen=True)
class RunRecord:
    """One 0600 file of JSON lines for each release, in a 0700 directory beside the ledger.

    Durations can depend on records: they are written here, and elsewhere only where an operator
    asks for it. The file is as private as the records are. A record that cannot be written stops
    no release.
    """

    path: Path | None
    """None where this process was told no place for what is private."""

    def add(self, **fields: str | float) -> None:
        """Append a line with these facts and the time."""
        if self.path is None:
            return
        line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **fields})
        with suppress(OSError, EnvironmentRefusedError):
            private_directory(self.path.parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            with open_descriptor(self.path, flags, 0o600) as descriptor:
                os.write(descriptor, f"{line}\n".encode())
