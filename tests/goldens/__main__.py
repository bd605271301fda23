"""Record the releases of a checkout, or compare two: ``python -m goldens --help``."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
TREE = "GOLDENS_TREE"
"""The variable that says which checkout a recording is of."""

SECONDS = 1800  # a recording; it takes about two minutes


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="goldens", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    compare = commands.add_parser("compare", help="record two checkouts and say where they differ")
    compare.add_argument("old", type=Path)
    compare.add_argument("new", type=Path)
    for one in (parser, compare):
        one.add_argument("--only", action="append", default=[], help="cases that begin like this")
        one.add_argument("--artefacts", type=Path, help="a new folder for all that was made")
    parser.add_argument("--out", type=Path, help="the file for the digests, JSON")
    given = parser.parse_args(arguments)
    if given.command == "compare":
        return compare_trees(given.old, given.new, given.only, given.artefacts)
    if given.out is None:
        parser.error("--out FILE says where the digests go")
    return record_here(given.out, given.only, given.artefacts)


def record_here(out: Path, only: Sequence[str], artefacts: Path | None) -> int:
    """Record with the `dbern` that is imported."""
    from goldens.recording import FAILURE, record

    began = time.monotonic()
    digests: dict[str, dict[str, str]] = {}
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, found in record(Path(folder).resolve(), only, os.environ.get(TREE)):
            if FAILURE in found:
                failed.append(f"{name}: {found[FAILURE].decode()}")
            digests[name] = {
                key: hashlib.sha256(content).hexdigest() for key, content in found.items()
            }
            for key, content in found.items() if artefacts else ():
                path = artefacts / name / key
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            print(f"{time.monotonic() - began:6.1f} s  {name}", file=sys.stderr, flush=True)
    if not digests:
        failed = ["no case begins like that"]
    if failed:
        print("\n".join(failed), file=sys.stderr)
        return 1
    out.write_text(json.dumps(digests, indent=1, sort_keys=True) + "\n")
    return 0


def record_tree(
    tree: Path, only: Sequence[str], artefacts: Path | None
) -> dict[str, dict[str, str]]:
    """Record a checkout in a process of its own, with this copy of the cases."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "digests.json"
        command = [sys.executable, "-m", "goldens", "--out", str(out)]
        command += [word for one in only for word in ("--only", one)]
        command += ["--artefacts", str(artefacts)] if artefacts else []
        environment = {
            "DBERN_CACHE": "",
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(tree.resolve()), str(TESTS))),
            TREE: str(tree.resolve()),
            "OPENBLAS_NUM_THREADS": "1",
        }
        subprocess.run(command, check=True, cwd=folder, env=environment, timeout=SECONDS)
        found: dict[str, dict[str, str]] = json.loads(out.read_text())
        return found


def compare_trees(old: Path, new: Path, only: Sequence[str], artefacts: Path | None) -> int:
    """Record both and print the cases and artefacts that differ; 0 where all are equal."""
    found = [
        record_tree(tree, only, artefacts / name if artefacts else None)
        for name, tree in (("old", old), ("new", new))
    ]
    different = differences(*found)
    for case, keys in different.items():
        print(f"{case}: {', '.join(keys)}")
    count = sum(len(keys) for keys in found[0].values())
    if different:
        print(f"{len(different)} of {len(found[0])} cases differ")
        return 1
    print(f"equal: {len(found[0])} cases, {count} artefacts")
    return 0


def differences(
    old: dict[str, dict[str, str]], new: dict[str, dict[str, str]]
) -> dict[str, list[str]]:
    """Of each case that differs, the artefacts that differ or that one of the two lacks."""
    found = {}
    for case in sorted(old.keys() | new.keys()):
        one, two = old.get(case, {}), new.get(case, {})
        keys = sorted(key for key in one.keys() | two.keys() if one.get(key) != two.get(key))
        if keys:
            found[case] = keys
    return found


if __name__ == "__main__":
    sys.exit(main())
