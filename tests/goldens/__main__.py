"""Record what a checkout releases and answers, or compare two: ``python -m goldens --help``."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from goldens import answers, plans
from goldens.cases import cases

TESTS = Path(__file__).resolve().parents[1]
TREE = "GOLDENS_TREE"
"""The variable that says which checkout a recording is of."""

SECONDS = 3600  # a recording; it takes some minutes


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="goldens", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    compare = commands.add_parser("compare", help="record two checkouts and say where they differ")
    compare.add_argument("old", type=Path)
    compare.add_argument("new", type=Path)
    compare.add_argument(
        "--wider", type=float, metavar="RATIO",
        help="with --answers: fail only for intervals that are wider than RATIO times, or seldom "
        "contain the truth, or are missing",
    )  # fmt: skip
    for command in (parser, compare):
        command.add_argument("--only", action="append", default=[], help="those that begin so")
        command.add_argument("--artefacts", type=Path, help="a new folder for all that was made")
        command.add_argument("--answers", action="store_true", help="answers in place of bytes")
        command.add_argument("--keys", type=int, default=answers.KEYS, help="releases of a store")
    parser.add_argument("--case", action="append", default=[], help="those of just this name")
    parser.add_argument("--out", type=Path, help="the file for digests (JSON) or answers (npz)")
    planned = commands.add_parser("plans", help="compare plans with those that are committed")
    planned.add_argument("--write", action="store_true", help="commit today's plans instead")
    planned.add_argument("--every", type=int, default=1, metavar="N", help="every N-th alone")
    options = parser.parse_args(arguments)
    if options.command == "plans":
        return plans.run(write=options.write, every=options.every)
    if options.command == "compare":
        return compare_answers(options) if options.answers else compare_trees(
            options.old, options.new, options.only, options.artefacts
        )  # fmt: skip
    if options.out is None:
        parser.error("--out FILE says where the digests go")
    if options.answers:
        with tempfile.TemporaryDirectory() as folder:
            tree, only = os.environ.get(TREE), options.only
            recorded = answers.record(Path(folder).resolve(), options.keys, only, tree)
        answers.save(recorded, options.out)
        return 0
    chosen = options.case or [*beginning(cases(), options.only)]
    return record_here(options.out, chosen, options.artefacts)


def beginning(names: Iterable[str], prefixes: Sequence[str]) -> Iterator[str]:
    """The names that begin with one of the prefixes; all where there is none."""
    return (name for name in names if not prefixes or name.startswith(tuple(prefixes)))


def record_here(out: Path, chosen: Sequence[str], artefacts: Path | None) -> int:
    """Record the chosen cases with the `dbern` that is imported."""
    from goldens.recording import FAILURE, record

    began = time.monotonic()
    digests: dict[str, dict[str, str]] = {}
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, found in record(Path(folder).resolve(), chosen, os.environ.get(TREE)):
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


def record_tree(tree: Path, arguments: Sequence[str], out: Path) -> None:
    """Record a checkout in a process of its own, with this copy of the cases and questions."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "goldens", "--out", str(out.resolve()), *arguments]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(tree.resolve()), str(TESTS))),
            TREE: str(tree.resolve()),
            "OPENBLAS_NUM_THREADS": "1",
        }
        subprocess.run(command, check=True, cwd=folder, env=environment, timeout=SECONDS)


def compare_trees(old: Path, new: Path, only: Sequence[str], artefacts: Path | None) -> int:
    """Record both and print the cases and artefacts that differ; 0 where all are equal."""
    recorded = []
    with tempfile.TemporaryDirectory() as folder:
        for name, tree in (("old", old), ("new", new)):
            out, arguments = Path(folder) / name, _only(only)
            arguments += ["--artefacts", str((artefacts / name).resolve())] if artefacts else []
            record_tree(tree, arguments, out)
            recorded.append(json.loads(out.read_text()))
    different = differences(*recorded)
    for case, keys in different.items():
        print(f"{case}: {', '.join(keys)}")
    count = sum(len(keys) for keys in recorded[0].values())
    if different:
        print(f"{len(different)} of {len(recorded[0])} cases differ")
        return 1
    print(f"equal: {len(recorded[0])} cases, {count} artefacts")
    return 0


def compare_answers(options: argparse.Namespace) -> int:
    """Record both at once and print what differs; 0 where all are equal, or as `wider` allows."""
    arguments = ["--answers", "--keys", str(options.keys), *_only(options.only)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as threads:
        outs = [Path(folder) / f"{name}.npz" for name in ("old", "new")]
        trees = (options.old, options.new)
        list(threads.map(record_tree, trees, (arguments, arguments), outs))
        comparisons = answers.compare(*map(answers.load, outs))
    print(answers.report(comparisons))
    differing = sum(not comparison.equal for comparison in comparisons)
    summary = f"{differing} of {len(comparisons)} questions differ"
    print(summary if differing else f"equal: {len(comparisons)} questions")
    if options.wider is None:
        return 1 if differing else 0
    shortfalls = list(answers.shortfalls(comparisons, options.keys, options.wider))
    print("\n".join(shortfalls or [f"none is wider than {options.wider:g} times, and all cover"]))
    return 1 if shortfalls else 0


def _only(prefixes: Sequence[str]) -> list[str]:
    return [word for prefix in prefixes for word in ("--only", prefix)]


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
