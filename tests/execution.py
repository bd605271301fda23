"""Execute a notebook from a clean kernel in a new folder; `make notebooks` keeps the outputs.

What is kept must be the same each time: releases take their keys, ids and times from a fixed
sequence here, which the notebooks' readers never see, and nothing of the machine stays.
"""

from __future__ import annotations

import base64
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS = 300  # a cell; the notebooks take less than a minute each on two idle cores
PICTURE = "readme"  # the tag of the cell whose picture the README shows
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

# Fixed keys would protect nothing: every release of a kernel gets the next of a public sequence.
_FIXED = """
def _fix(number=__import__("itertools").count()):
    import hashlib, types
    import dbern.ledger.keys, dbern.ledger.tables
    draw = lambda *_: hashlib.sha256(b"demonstration %d" % next(number)).digest()
    dbern.ledger.keys.new_key = draw
    dbern.ledger.tables.new_id = lambda: draw().hex()[:32]
    dbern.ledger.tables.now = lambda: "2026-11-20T12:00:00+00:00"
    dbern.ledger.tables.secrets = types.SimpleNamespace(token_bytes=draw)
_fix()
del _fix
"""


class _FixedClient(NotebookClient):
    async def async_start_new_kernel_client(self) -> Any:
        client = await super().async_start_new_kernel_client()
        await client.execute_interactive(_FIXED, store_history=False, silent=True)
        return client


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of this run, raising where a cell raises."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryDirectory() as sockets:
        folder = str(Path(made).resolve())
        # Not by TCP: a port that was free may be another's by the time that the kernel listens.
        reached = {"transport": "ipc", "ip": f"{sockets}/kernel"}
        _FixedClient(
            notebook,
            timeout=SECONDS,
            startup_timeout=SECONDS,
            config=Config(KernelManager=reached),
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
            # One thread: sums come out the same, and small products are no faster with more.
        ).execute(env={"OPENBLAS_NUM_THREADS": "1", **os.environ})
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("text/html", None)  # long, and numbered at random
            if "text" in output:  # the notebook calls its folder by no name
                output["text"] = output["text"].replace(f"{folder}/", "")
    return notebook


def pictures(notebook: nbformat.NotebookNode, tag: str | None = None) -> list[bytes]:
    """The PNGs of all cells, or of those with a tag."""
    return [
        base64.b64decode(output.data["image/png"])
        for cell in notebook.cells
        if tag is None or tag in cell.metadata.get("tags", [])
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]


def main(names: list[str]) -> None:
    """Execute the named notebooks, or all, in place; write the README's pictures to docs."""
    for path in NOTEBOOKS:
        if names and path.stem not in names:
            continue
        print(path.name, flush=True)
        notebook = execute(path)
        nbformat.write(notebook, path)
        for picture in pictures(notebook, PICTURE):
            (ROOT / "docs" / f"{path.stem}.png").write_bytes(picture)


if __name__ == "__main__":
    main(sys.argv[1:])
