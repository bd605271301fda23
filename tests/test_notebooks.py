"""Each notebook runs from a clean kernel, and what is kept of a run can be shown on the web."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from execution import METADATA, NOTEBOOKS, PICTURE, ROOT, execute, pictures
from nbclient.exceptions import CellExecutionError

LARGEST = 400_000  # bytes
# From the root or a drive, through at least one folder; no URL or closing tag looks so.
ABSOLUTE = re.compile(r"(?<![\w.:/<~])/(?:[\w.+-]+/)+[\w.+-]*|:/{4}\w|file:///|\b[A-Z]:\\\w")

every = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def problems(notebook: nbformat.NotebookNode) -> list[str]:
    """What must not be published, and what is missing."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]
    shown = [output for output in outputs if output.output_type != "error"]
    told = "\n".join(text for output in outputs for text in _texts(output))
    found = [f"says {match}" for match in ABSOLUTE.findall(told)]
    if notebook.metadata != METADATA:
        found.append("has metadata of a machine")
    if any(set(cell.metadata) - {"tags"} for cell in notebook.cells):
        found.append("has cells with metadata of a run")
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        found.append("was not run once from its beginning to its end")
    if len(shown) < len(outputs) or any(output.get("name") == "stderr" for output in outputs):
        found.append("has errors or warnings")
    if not pictures(notebook):
        found.append("has no picture")
    return found


def _texts(output: nbformat.NotebookNode) -> list[str]:
    data = [text for kind, text in output.get("data", {}).items() if "image" not in kind]
    return [output.get("text", ""), *data, *output.get("traceback", [])]


@pytest.mark.sample(verify=2)
@pytest.mark.slow
@every
def test_a_notebook_runs_from_a_clean_kernel(path):
    assert problems(execute(path)) == []


@every
def test_what_is_kept_can_be_shown(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert problems(notebook) == []
    assert path.stat().st_size < LARGEST


@every
def test_the_pictures_of_the_readme_are_those_of_the_notebooks(path):
    kept = pictures(nbformat.read(path, as_version=4), PICTURE)
    picture = ROOT / "docs" / f"{path.stem}.png"
    assert ([picture.read_bytes()] if picture.exists() else []) == kept


def test_the_readers_page_lists_every_notebook():
    page = (ROOT / "docs" / "readers.md").read_text()
    listed = re.findall(r"\(\.\./notebooks/(\w+)\.ipynb\)", page)
    assert sorted(listed) == [path.stem for path in NOTEBOOKS]


def small(tmp_path: Path, *sources: str) -> Path:
    path = tmp_path / "small.ipynb"
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


PROBLEMS = {
    "import os; print(os.getcwd())": "says /",
    "print('sqlite:///' + os.__file__)": "says :////",
    "import warnings; warnings.warn('odd')": "has errors or warnings",
    "1 + 1": "has no picture",
}


@pytest.mark.slow
def test_what_must_not_be_shown_is_found_of_each_cell(tmp_path):
    notebook = execute(small(tmp_path, *PROBLEMS))
    for cell, problem in zip(notebook.cells, PROBLEMS.values(), strict=True):
        cell.execution_count = 1
        alone = nbformat.from_dict({**notebook, "cells": [cell]})
        assert any(line.startswith(problem) for line in problems(alone)), problem


@pytest.mark.slow
def test_a_cell_that_raises_fails(tmp_path):
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        execute(small(tmp_path, "1 / 0"))
