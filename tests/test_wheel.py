"""The wheel: built once, installed in clean environments, and all there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import dbern

ROOT = Path(__file__).parents[1]
OLDEST, CANDIDATES = (3, 11), range(20, 10, -1)
CLEAN = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
pytestmark = [pytest.mark.slow, pytest.mark.dist]


def run(*command: object, **options: object) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, env=CLEAN, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def interpreter(minor: int) -> str | None:
    """A Python 3.minor of this machine: on the path, or one that pyenv keeps."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    every = [shutil.which(f"python3.{minor}"), *sorted(kept.glob(f"3.{minor}.*/bin/python"))]
    for found in filter(None, every):
        probe = [str(found), "-c", "import ensurepip, sys; print(sys.version_info[1])"]
        asked = subprocess.run(probe, capture_output=True, text=True)
        if asked.returncode == 0 and asked.stdout.strip() == str(minor):
            return str(found)
    return None


def newest() -> int | None:
    return next((minor for minor in CANDIDATES if interpreter(minor)), None)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from what git would check out, so that nothing comes from an earlier build."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "dbern", source / "dbern", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", target, source]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode != 0 and re.search("No matching distribution|Connection", built.stderr):
        pytest.skip("no package registry to get setuptools from")
    assert built.returncode == 0, built.stderr
    (found,) = target.iterdir()
    return found


def test_the_wheel_is_versioned_and_holds_every_file(wheel):
    assert wheel.name == f"dbern-{dbern.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.startswith("dbern/")}
    files = (path for path in (ROOT / "dbern").rglob("*") if path.is_file())
    kept = {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}
    assert held == kept


def environment(folder: Path, python: str, *options: str) -> Path:
    run(python, "-m", "venv", *options, folder)
    return folder / "bin"


def check(bin_: Path, folder: Path) -> None:
    """The installed package speaks and writes; none of it is this checkout's."""
    where = run(bin_ / "python", "-c", "import dbern; print(dbern.__file__)", cwd=folder)
    assert where.startswith(str(bin_.parent))
    assert run(bin_ / "dbern", "--version", cwd=folder).strip().endswith(dbern.__version__)
    assert "kernel-density" in run(bin_ / "dbern", "target", "list", cwd=folder)
    ledger = ("--ledger", "sqlite:///ledger.db")
    assert "created" in run(bin_ / "dbern", "ledger", "init", *ledger, cwd=folder)
    assert "wrote budgets.html" in run(bin_ / "dbern", "report", *ledger, cwd=folder)


def test_it_works_on_this_python_beside_the_same_packages(wheel, tmp_path):
    bin_ = environment(tmp_path / "clean", sys.executable, "--without-pip")
    pip = [sys.executable, "-m", "pip", "--python", bin_ / "python"]
    run(*pip, "install", "-q", "--no-deps", wheel)
    site = run(bin_ / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    packages = [path for path in sys.path if Path(path).name == "site-packages"]
    (Path(site.strip()) / "packages.pth").write_text("\n".join(packages))
    check(bin_, tmp_path)


@pytest.mark.parametrize("which", ["oldest", "newest"])
def test_it_is_installed_with_its_packages(wheel, tmp_path, which):
    minor = OLDEST[1] if which == "oldest" else newest()
    if minor is None or minor == sys.version_info[1]:
        pytest.skip(f"the {which} Python here is the one that runs the tests")
    python = interpreter(minor)
    if python is None:
        pytest.skip(f"there is no Python 3.{minor} with ensurepip here")
    bin_ = environment(tmp_path / "clean", python)
    pip = [bin_ / "python", "-m", "pip"]
    probe = [*pip, "download", "-q", "--no-deps", "-d", tmp_path / "probe", "click"]
    if subprocess.run([str(word) for word in probe], capture_output=True, env=CLEAN).returncode:
        pytest.skip("no package registry to install from")
    named = ["--constraint", ROOT / "constraints.txt", f"{wheel}[report]"]
    run(*pip, "install", "-q", "--no-compile", *named)
    check(bin_, tmp_path)
    released = run(bin_ / "dbern", "demo", "--rows", "2000", "--quiet", cwd=tmp_path)
    assert "dbern report" in released
    synopsis = tmp_path / "demo-out" / "trips.zarr"
    assert "wrote trips.html" in run(bin_ / "dbern", "report", synopsis, cwd=tmp_path)
