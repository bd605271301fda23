"""``make scale`` measures and draws what scales; with an option it is one release.

``--rows 100000000`` has many rows, ``--rows 100000 --axes 3 --k 463`` 10^8 coefficients,
``--files 100000`` many files, and ``--files 30 --groups 10000`` many row groups.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from scale.curves import draw
from scale.many import many
from scale.runs import MEMORY, PHASES, Run, cluster, measure, scan, write_files


def told(run: Run, scanning: float) -> str:
    """One large release in words."""
    elapsed = sum(run.elapsed)
    lines = [
        f"{run.rows} rows, {run.coefficients} coefficients, {len(run.peaks)} workers of {MEMORY}",
        f"elapsed {elapsed:.1f} s, {run.rows / elapsed / 1e6:.1f} million rows a second",
        f"processors {run.processor:.1f} s, {run.processor / scanning:.2f} times one scan "
        f"({scanning:.1f} s to decode the columns)",
    ]
    for phase, *seconds in zip(PHASES, run.elapsed, run.releasing, run.workers, strict=True):
        text = "elapsed {:.1f}, releasing process {:.1f}, workers {:.1f}".format(*seconds)
        lines.append(f"{phase:<8} {text} s")
    peaks = ", ".join(f"{size >> 20}" for size in run.peaks)
    lines.append(f"peak of workers {peaks} MiB, planned {run.planned >> 20}")
    releasing, planned = run.peak_releasing >> 20, run.planned_releasing >> 20
    lines.append(f"peak of the releasing process {releasing} MiB, planned {planned}")
    return "\n".join(lines)


def large(rows: int, folder: Path, workers: int, noise: str, axes: int = 2, k: int = 100) -> Run:
    """One release on processes; the files stay, what is released does not."""
    kind = "rows" if axes == 2 else f"axes-{axes}"
    data, warming = folder / f"{kind}-{rows}", folder / f"{kind}-100000"
    write_files(data, rows, axes)
    write_files(warming, 100_000, axes)
    work = Path(tempfile.mkdtemp(dir=folder))
    try:
        with cluster(workers) as client:
            measure(client, warming, work, axes, min(k, 100), noise)  # workers import and compile
            run = measure(client, data, work, axes, k, noise)
    finally:
        shutil.rmtree(work)
    print(told(run, scan(data)))
    return run


def main() -> None:
    parser = argparse.ArgumentParser(prog="scale", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("scale-out"), help="for the files")
    parser.add_argument("--rows", type=int, help="one release of so many rows, 16 bytes each")
    parser.add_argument("--files", type=int, help="one release of so many files of a hundred rows")
    parser.add_argument("--groups", type=int, default=1, help="with --files: row groups of each")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--noise", default="laplace")
    parser.add_argument("--axes", type=int, default=2, help="with --rows, as --k")
    parser.add_argument("--k", type=int, default=100)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.files:
        print(many(given.files, given.groups, given.folder.resolve()))
    elif given.rows:
        folder = given.folder.resolve()
        large(given.rows, folder, given.workers, given.noise, given.axes, given.k)
    else:
        draw(given.folder.resolve())


if __name__ == "__main__":
    main()
