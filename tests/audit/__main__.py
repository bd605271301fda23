"""Plant each mutation in a copy of the tree and demand that its test fails: ``make audit``."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from audit.claims import PAGE, ROOT, Claim, claims, page

COPIED = ("dbern", "tests", "benchmarks", "docs", "deploy", "pipelines", "notebooks")
SECONDS = 600  # a test; the longest takes about one in twenty of it
GREEN, RED = 0, 1  # what pytest exits with; anything else is no verdict
WORKERS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="audit", description=__doc__)
    parser.add_argument("--page", action="store_true", help=f"write the tables of {PAGE}")
    parser.add_argument("--only", default="", help="claims whose name or file contains this")
    given = parser.parse_args(arguments)
    if given.page:
        path = ROOT / PAGE
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    chosen = [one for one in claims() if given.only in one.name or given.only in one.file]
    with tempfile.TemporaryDirectory() as folder:
        return audited(chosen, Path(folder))


def audited(chosen: Sequence[Claim], folder: Path) -> int:
    trees: SimpleQueue[Path] = SimpleQueue()
    for index in range(WORKERS):
        trees.put(copied(folder / str(index)))
    tests = list(dict.fromkeys(claim.test for claim in chosen))
    tree = trees.get()
    code, seconds, told = ran(tree, *tests)
    trees.put(tree)
    state = "green" if code == GREEN else told
    print(f"unmutated: {len(tests)} tests, {state}, {seconds:.0f} s", flush=True)
    if not chosen or code != GREEN:
        return 1

    def planted(claim: Claim) -> tuple[str, float]:
        tree = trees.get()
        try:
            return verdict(tree, claim)
        finally:
            trees.put(tree)

    began, survived = time.monotonic(), 0
    with ThreadPoolExecutor(WORKERS) as pool:
        for claim, (found, seconds) in zip(chosen, pool.map(planted, chosen), strict=True):
            survived += found != "killed"
            print(f"{found:<9}{seconds:5.1f} s  {claim.name}  ({claim.file})", flush=True)
    took = time.monotonic() - began
    print(f"{len(chosen) - survived} of {len(chosen)} mutations killed, {took:.0f} s")
    return 1 if survived else 0


def copied(tree: Path) -> Path:
    """A copy of what tests need, in which nothing of the checkout is imported."""
    for name in COPIED:
        leave = shutil.ignore_patterns("*.pyc")
        shutil.copytree(ROOT / name, tree / name, ignore=leave)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, tree / path.name)
    where = python(tree, "-c", "import dbern; print(dbern.__file__)").stdout.strip()
    if Path(where) != tree.resolve() / "dbern/__init__.py":
        raise RuntimeError(f"the copy imports {where}")
    return tree


def verdict(tree: Path, claim: Claim) -> tuple[str, float]:
    path = tree / claim.file
    kept = path.stat()
    text = path.read_text(encoding="utf-8")
    path.write_text(claim.mutated(text), encoding="utf-8")
    try:
        code, seconds, told = ran(tree, claim.test)
    finally:
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    found = {GREEN: "SURVIVED", RED: "killed"}.get(code, "BROKEN")
    if found == "BROKEN":
        print(told)
    return found, seconds


def ran(tree: Path, *tests: str) -> tuple[int, float, str]:
    began = time.monotonic()
    options = ("-q", "-x", "-n0", "-p", "no:cacheprovider", "--hypothesis-profile=audit")
    done = python(tree, "-m", "pytest", *options, *tests)
    return done.returncode, time.monotonic() - began, done.stdout[-2000:] + done.stderr[-1000:]


def python(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(tree), str(tree / "tests"))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
