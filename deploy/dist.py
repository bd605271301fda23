"""Build what is published, and check it: ``make dist``.

``dist/`` gets the wheel, the source distribution, a bill of materials in CycloneDX and their
SHA-256 sums. Both are built from what is committed below ``dbern``, so nothing of a work tree gets
in, and from the commit's time, so that building the wheel twice gives the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "dbern")
DEPLOYED = "dbern[dagster,postgres,report,s3]"  # what the image installs
WANTED = ("py.typed", "synopsis/FORMAT.md", "report/templates/synopsis.html")


def run(*words: object, folder: Path = ROOT, **environment: str) -> str:
    """Run a command that must succeed; what it prints on stdout."""
    ran = subprocess.run(  # noqa: S603 -- our own words
        [str(word) for word in words],
        cwd=folder, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    if ran.returncode:
        sys.exit(f"{ran.stdout}{' '.join(map(str, words))}: exit code {ran.returncode}")
    return ran.stdout


def build(commit: str) -> list[Path]:
    """Build wheel and sdist of a commit."""
    archive = subprocess.run(  # noqa: S603 -- our own words
        ["git", "archive", commit, *SOURCES],  # noqa: S607 -- whichever git is here
        cwd=ROOT, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    stamp = run("git", "log", "-1", "--format=%ct", commit).strip()
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
            packed.extractall(folder, filter="data")
        run(sys.executable, "-m", "build", "--outdir", DIST, folder, SOURCE_DATE_EPOCH=stamp)
    return sorted([*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")])


def complaints(package: Path, committed: Iterable[str]) -> list[str]:
    """What a built package lacks of the committed files of ``dbern``, and what else it holds."""
    if package.suffix == ".whl":
        names = set(zipfile.ZipFile(package).namelist())
        ours = re.compile(r"dbern/|dbern-[\w.]+\.dist-info/")
    else:
        with tarfile.open(package) as packed:
            names = {one.name.partition("/")[2] for one in packed.getmembers() if one.isfile()}
        top = r"(README\.md|CHANGELOG\.md|LICENSE|PKG-INFO|pyproject\.toml|setup\.cfg)$"
        ours = re.compile(rf"dbern/|dbern\.egg-info/|{top}")
    wanted = {*committed, *(f"dbern/{name}" for name in WANTED)}
    found = [f"{package.name} lacks {name}" for name in sorted(wanted - names)]
    return found + [
        f"{package.name} holds {name}" for name in sorted(names) if not ours.match(name)
    ]


def installed(wanted: str) -> dict[str, str]:
    """Versions of all packages that a requirement brings, as they are installed here."""
    found: dict[str, str] = {}
    waiting, seen = [Requirement(wanted)], set()
    while waiting:
        one = waiting.pop()
        key = (one.name.lower(), tuple(sorted(one.extras)))
        if key in seen:
            continue
        seen.add(key)
        try:
            package = distribution(one.name)
        except PackageNotFoundError:
            sys.exit(f"{one} is not installed here: run make dist, which installs it")
        found[package.metadata["Name"]] = package.version
        for text in package.requires or []:
            needed = Requirement(text)
            chosen = [{"extra": extra} for extra in (*one.extras, "")]
            if needed.marker is None or any(map(needed.marker.evaluate, chosen)):
                waiting.append(needed)
    found.pop("dbern")
    return found


def bill_of_materials(target: Path) -> None:
    """Write what an installation is made of, every package with its version."""
    with tempfile.TemporaryDirectory() as folder:
        pins = Path(folder) / "requirements.txt"
        lines = sorted(f"{name}=={version}\n" for name, version in installed(DEPLOYED).items())
        pins.write_text("".join(lines))
        run(
            # Pins are flat: that they make no graph of dependencies is no news.
            *(sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", pins),
            *("--pyproject", ROOT / "pyproject.toml", "--output-reproducible"),
            *("--mc-type", "library", "--validate", "--output-file", target),
        )


def main() -> int:
    """Build, check, and write the sums."""
    if run("git", "status", "--porcelain", "--", *SOURCES):
        print(f"note: built from the last commit; {', '.join(SOURCES)} have changed since")
    DIST.mkdir(exist_ok=True)
    for old in DIST.iterdir():
        old.unlink()
    packages = build("HEAD")
    committed = run("git", "ls-tree", "-r", "--name-only", "HEAD", "dbern").split()
    found = [one for package in packages for one in complaints(package, committed)]
    if len(packages) != 2 or found:
        sys.exit("\n".join(found) or f"built {packages}, not a wheel and an sdist")
    run(sys.executable, "-m", "twine", "check", "--strict", *packages)
    bill = DIST / packages[1].name.replace(".tar.gz", ".cdx.json")
    bill_of_materials(bill)
    sums = [
        f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}" for one in (*packages, bill)
    ]
    (DIST / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    print("\n".join(sums))
    return 0


if __name__ == "__main__":
    sys.exit(main())
