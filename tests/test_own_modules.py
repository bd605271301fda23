"""Modules beside a spec: found when it is planned and released, and told from others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_docs import ROOT, Block, blocks, commands

import dbern

_MODULE = "def curve(records, points):\n    return points[:, 0] * 0 + {value}\n"
_ORACLE = {
    "data__bounds": {"y": None},
    "target": {
        "kind": "oracle", "bandwidth": None, "function": "own_curve:curve", "sensitivity": 0.01,
        "smoothness": "linear", "bounds": [0.0, 1.0], "on_failure": 0.0,
    },
    "mechanism": {"k": None, "h": None},
}  # fmt: skip


def oracle(project):
    project.write({"x": [1.0, 2.0, 3.0]})
    (project.folder / "own_curve.py").write_text(_MODULE.format(value=0.5))


@pytest.fixture
def forgotten():
    before = list(sys.path)
    yield
    sys.modules.pop("own_curve", None)
    assert sys.path == before


def test_a_module_beside_the_spec_is_found(project, forgotten):
    oracle(project)
    spec = project.spec(**_ORACLE)
    assert spec.learner.function == "own_curve:curve"
    assert dbern.plan(project.spec_path).components


def test_another_module_of_the_same_name_is_refused(project, forgotten, tmp_path):
    oracle(project)
    project.spec(**_ORACLE)
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "own_curve.py").write_text(_MODULE.format(value=0.25))
    other = tmp_path / "second" / "release.toml"
    other.write_text(project.spec_path.read_text())
    with pytest.raises(dbern.SpecError, match=r'^target\.function: module "own_curve" is .*Rename'):
        dbern.ReleaseSpec.load(other)


def test_a_reference_density_beside_the_spec_is_found(project, forgotten):
    oracle(project)
    (project.folder / "own_curve.py").write_text("def flat(points):\n    return 1 + 0 * points\n")
    spec = project.spec(data__bounds={"y": None}, target={"bandwidth": [2.0]},
                        mechanism={"reference": "own_curve:flat"})  # fmt: skip
    assert spec.reference is not None


@pytest.mark.parametrize("body", ["1 / 0", "points[:1]", "'SECRET'", "points * float('nan')"])
def test_a_reference_density_that_fails_is_named(project, forgotten, body):
    oracle(project)
    module = f"def flat(points):\n    return {body}\n"
    (project.folder / "own_curve.py").write_text(module)
    spec = project.spec(data__bounds={"y": None}, target={"bandwidth": [2.0]},
                        mechanism={"reference": "own_curve:flat"})  # fmt: skip
    with pytest.raises(dbern.SpecError, match=r'^mechanism\.reference: "own_curve:flat" .*Write a'):
        dbern.plan(spec)


def test_a_missing_module_is_told_where_it_goes(project):
    with pytest.raises(dbern.SpecError, match=r"beside the spec .* PYTHONPATH"):
        project.spec(**_ORACLE)


@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_is_planned_and_released_as_its_spec(project, kind):
    project.write({"x": [1.0, 2.0], "y": [0.0, 0.5]})
    project.grant()
    spec = project.spec()
    assert dbern.plan(kind(project.spec_path)) == dbern.plan(spec)
    assert dbern.release(kind(project.spec_path)).url == spec.output


@pytest.mark.parametrize("ask", [dbern.plan, dbern.release])
@pytest.mark.parametrize("given", [None, {"release": {}}, 3])
def test_a_value_that_is_no_spec_is_refused_with_what_to_write(ask, given):
    with pytest.raises(dbern.SpecError, match=r"cannot be used\. Write the path of a spec"):
        ask(given)


def follow(block: Block, folder: Path, executable: str, environment) -> None:
    def run(*words: str) -> None:
        done = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, (words, done.stderr)

    if block.file is not None:
        (folder / block.file).write_text(block.text)
    elif block.language == "console":
        for command, _ in commands(block):
            run(executable, *command.split()[1:])


@pytest.mark.slow
def test_the_page_on_functions_is_followed_as_pasted(tmp_path, executable):
    """In processes of its own: nothing but the page puts its module where Python looks."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    page = blocks((ROOT / "docs" / "oracle.md").read_text(encoding="utf-8"))
    python = [block.text for block in page if block.language == "python" and not block.file]
    done = subprocess.run([sys.executable, "-"], input=python[0], cwd=tmp_path, text=True,
                          env=environment, timeout=600)  # fmt: skip
    assert done.returncode == 0
    for block in page:
        follow(block, tmp_path, executable, environment)
    assert (tmp_path / "stop-loss.zarr").is_dir()
