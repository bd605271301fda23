"""The private record of a release's runs: which stage took how long, when and where."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dbern.errors import EnvironmentRefusedError
from dbern.ledger.durable import private_directory


@dataclass(frozen=True)
class RunRecord:
    """One 0600 file of JSON lines for each release, in a 0700 directory beside the ledger.

    Durations can depend on records: they are written here and nowhere else, and the file is as
    private as the records are. A record that cannot be written stops no release.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     record = RunRecord(Path(folder, "ledger.db.runs", "7f.jsonl"))
    ...     record.add(stage="reading and counting", seconds=1.5)
    ...     json.loads(record.path.read_text())["seconds"], oct(record.path.stat().st_mode)[-3:]
    (1.5, '600')
    """

    path: Path | None
    """None where this process was told no place for what is private."""

    def add(self, **facts: str | float) -> None:
        """Append a line with these facts and the time."""
        if self.path is None:
            return
        line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **facts})
        with suppress(OSError, EnvironmentRefusedError):
            private_directory(self.path.parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self.path, flags, 0o600)
            try:
                os.write(descriptor, f"{line}\n".encode())
            finally:
                os.close(descriptor)
