"""Whose a synopsis is, as docs/guide.md tells it: programs of others sign the manifest."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guide.md"


@pytest.fixture
def released(one, tmp_path):
    return shutil.copytree(one.url, tmp_path / "rides.zarr")


@pytest.fixture
def scripts(tmp_path):
    """Run the guide's blocks that name ssh-keygen: to sign, and to verify."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed here: apt-get install openssh-client")
    section = GUIDE.read_text().partition("### Whose it is")[2].partition("\n## ")[0]
    sign, verify = re.findall(r"```sh\n([^`]*ssh-keygen -Y[^`]*)```", section)
    assert "-f signing  " in sign
    sign = sign.replace("-f signing  ", "-f signing -N ''  ", 1)  # no terminal to ask at
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))

    def ran(text):
        return subprocess.run(
            ["sh", "-ec", text], cwd=tmp_path, env={**os.environ, "PATH": path},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    return lambda: ran(sign), lambda: ran(verify)


@pytest.mark.slow
def test_ssh_keygen_signs_a_manifest_and_finds_another(released, scripts):
    sign, verify = scripts
    assert verify().returncode != 0
    signed = sign()
    assert signed.returncode == 0, signed.stderr
    verified = verify()
    assert verified.returncode == 0, verified.stderr
    assert verified.stdout.startswith('Good "dbern" signature for publisher')
    assert verified.stdout.endswith("objects are as released\n")
    manifest = released / "manifest.json"
    manifest.write_text(manifest.read_text() + " ")  # as whoever can write the store would do it
    assert "incorrect signature" in verify().stdout + verify().stderr


def test_signatures_lie_beside_the_manifest_and_nothing_else(released, run):
    for name in ("manifest.json.sig", "manifest.json.sigstore.json"):
        (released / name).write_text("a signature")
    assert run("verify", "rides.zarr").code == 0
    (released / "components" / "manifest.json.sig").write_text("a signature")
    run("verify", "rides.zarr").refused(
        5, "components/manifest.json.sig is not part of the release"
    )
