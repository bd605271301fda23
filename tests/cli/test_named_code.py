"""A spec is code where it names a module: that is said in help, and once before it runs."""

from __future__ import annotations

import sys

import pytest

from dbern.system import imports_told

PLAN, RELEASE = ("plan", "release.toml"), ("release", "release.toml")
MODULE = """
def share(records, points):
    return points[:, 0] * 0 + len(records) / 240

def pinball(labels, predictions):
    return abs(labels - predictions)

def flat(points):
    return points[:, 0] * 0 + 1
"""
ORACLE = {"kind": "oracle", "function": "code_of_a_spec:share", "sensitivity": 0.01,
          "smoothness": "linear", "bounds": [0.0, 1.0], "on_failure": 0.0,
          "bandwidth": None}  # fmt: skip
TOLD = "runs the code of module code_of_a_spec; a spec is trusted like a program"
NOTE = f"note: target.function {TOLD}"
FREE = {"k": None, "h": None, "noise": "auto"}


@pytest.fixture
def module(project, monkeypatch):
    (project.folder / "code_of_a_spec.py").write_text(MODULE)
    monkeypatch.syspath_prepend(project.folder)
    yield project
    sys.modules.pop("code_of_a_spec", None)


def test_the_code_that_a_spec_names_is_noted_once(module, run):
    module.spec(target=ORACLE, mechanism=FREE)
    ran = run(*PLAN)
    assert ran.code == 0, ran.err
    assert ran.err.splitlines() == [NOTE]
    assert run(*PLAN, "--quiet").err == ""
    ran = run(*PLAN, "--json")
    assert (ran.err, ran.json["name"]) == ("", "density")


def test_it_is_noted_before_it_runs(module, run):
    module.spec(target=ORACLE, mechanism=FREE)
    (module.folder / "code_of_a_spec.py").write_text("raise KeyboardInterrupt")
    del sys.modules["code_of_a_spec"]
    ran = run(*PLAN)
    assert (ran.code, ran.err.splitlines()[0]) == (130, NOTE)


def test_a_release_notes_it_unless_its_log_is_json(module, run):
    module.spec(target=ORACLE, mechanism=FREE, budget={"dataset": "nobody"})
    ran = run(*RELEASE)
    assert (ran.code, ran.err.splitlines()[0]) == (3, NOTE)
    assert "note:" not in run(*RELEASE, "--log-format", "json").err
    assert "note:" not in run(*RELEASE, "--quiet").err


def test_losses_and_references_are_code_too(module):
    told = []
    with imports_told(lambda *named: told.append(named)):
        spec = module.spec(mechanism={"reference": "code_of_a_spec:flat"})
        assert told == []
        assert spec.reference is not None
    own = {"kind": "kernel-erm", "loss": "code_of_a_spec:pinball", "lipschitz": 1.0, "at_zero": 1.0,
           "bandwidth": None, "length_scale": [2.0, 0.4], "C": 1.0}  # fmt: skip
    response = {"column": "note", "bounds": [-1.0, 1.0]}
    with imports_told(lambda *named: told.append(named)):
        module.spec(target=own, data__response=response)
    keys = ("mechanism.reference", "target.loss")
    assert told == [("code_of_a_spec", key) for key in keys]


def test_a_spec_that_names_no_module_notes_nothing(project, run):
    project.spec()
    assert run(*PLAN).err == ""


@pytest.mark.parametrize("command", ["plan", "release"])
def test_help_says_that_a_spec_is_code(run, command):
    told = " ".join(run(command, "--help").out.split())
    assert "A spec is code: modules that it names as module:name" in told
