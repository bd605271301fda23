"""Each notebook runs from a clean kernel, and what is kept of its last run can be shown on the web."""

from __future__ import annotations

import re
from typing import Any

import nbformat
import pytest
from execution import METADATA, NOTEBOOKS, PICTURE, ROOT, execute, pictures

LARGEST = 400_000  # bytes
# A path of two folders or more that begins at the root; a URL or a closing tag has none.
_ABSOLUTE = re.compile(r"(?<![\w.:/<])/(?:[\w.+-]+/)+[\w.+-]*|\b[A-Z]:\\\\?\w")


def every(pattern_of: Any = lambda path: path) -> Any:
    return pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def words(notebook: nbformat.NotebookNode) -> str:
    """All that a reader sees but the pictures."""
    found = []
    for cell in notebook.cells:
        found.append(cell.source)
        for output in cell.get("outputs", []):
            found.append(output.get("text", ""))
            found += [text for kind, text in output.get("data", {}).items() if "image" not in kind]
    return "\n".join(found)
