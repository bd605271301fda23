"""The README's two commands, from a fresh clone in an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SMALL = "TESTS=tests/test_lanes.py"  # of `make test`, which this test may be a part of
CLEAN = {
    key: value
    for key, value in os.environ.items()
    if not key.startswith(("PYTHON", "PYTEST", "COV", "MAKE", "VIRTUAL_ENV", "DBERN"))
}


def shown() -> list[str]:
    """Commands of the README's first block."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.partition("## Begin")[2].partition("```console\n")[2].partition("```")[0]
    return re.findall(r"^\$ (.*?)\s+#", block, re.MULTILINE)


def test_the_readme_begins_with_two_commands():
    assert shown() == ["make demo", "make test"]


@pytest.mark.slow
def test_both_commands_work_after_git_clone(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone, so git cannot make another one")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)

    def run(command: str) -> str:
        words = ["bash", "-c", command]
        done = subprocess.run(words, cwd=clone, env=CLEAN, capture_output=True, text=True)
        if "No matching distribution found for uv" in done.stderr:
            pytest.skip("no package registry to install from")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    demo, test = shown()
    said = run(demo)
    assert "where the plan promised at most" in said
    assert (clone / "demo-out/released.png").stat().st_size > 10_000
    assert (clone / "demo-out/trips.zarr/manifest.json").exists()
    assert re.search(r"\d+ passed", run(f"{test} {SMALL}"))
    assert not subprocess.run(
        ["git", "status", "--porcelain"], cwd=clone, capture_output=True, check=True
    ).stdout
