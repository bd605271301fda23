"""``--log-format json``: one JSON object a line on stderr, with the release's id on every line."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from typing import Any

import click

from dbern.errors import printable


def tell(text: str) -> None:
    """Print a line on stderr; one that a closed terminal or a full disk refuses stops nothing."""
    with suppress(OSError):
        click.echo(printable(text, keep="\n\t"), err=True)


class JsonLines(logging.Handler):
    """Prints what is logged; lines before a release has an id hold null for it.

    Of other libraries only warnings are printed, and of these the text before values are filled
    in: what they quote is not ours to vouch for.
    """

    _installed: JsonLines | None = None

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(logging.ERROR if quiet else logging.INFO)
        self._release: dict[str, Any] = {"release_id": None}

    @classmethod
    def installed(cls) -> JsonLines | None:
        """The one that a command of this process chose."""
        return cls._installed

    def install(self) -> None:
        """Log here until `remove`."""
        from dbern.journal import logged_by

        logged_by(self)
        JsonLines._installed = self

    def remove(self) -> None:
        """Log here no more."""
        logging.root.removeHandler(self)
        JsonLines._installed = None

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        fields: dict[str, Any] | None = getattr(record, "release", None)
        if fields is not None:
            self._release = {key: fields[key] for key in ("release_id", "release", "dataset")}
        elif record.levelno < logging.WARNING:
            return
        else:
            fields = {"event": "said", "message": str(record.msg)}
        self._print(record.levelname.lower(), {"logger": record.name, **fields})

    def failed(self, kind: str, message: str, code: int) -> None:
        """Print how the command failed."""
        self._print(
            "error", {"event": "failed", "error": kind, "message": message, "exit_code": code}
        )

    def _print(self, level: str, fields: dict[str, Any]) -> None:
        tell(json.dumps({"level": level, **self._release, **fields}))
