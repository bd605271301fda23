"""What ``docs/audit.md`` says is so; that each mutation is killed is shown by ``make audit``."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from audit import __main__ as auditing
from audit.claims import (
    APART,
    MOST_LINES,
    NOT_TRUSTED,
    PAGE,
    ROOT,
    TRUSTED,
    Claim,
    base_table,
    beyond_table,
    claims,
    claims_table,
    page,
    trusted_lines,
)

CLAIMS = claims()


@pytest.mark.parametrize("others", APART)
def test_what_a_release_rests_on_stays_small(others):
    assert others < TRUSTED.keys()
    kept = {name: lines for name, lines in trusted_lines().items() if name not in others}
    assert sum(kept.values()) < MOST_LINES


def test_every_file_of_privacy_is_trusted_or_argued_out():
    found = {path.stem for path in (ROOT / "dbern/privacy").glob("*.py")}
    assert found == TRUSTED.keys() | NOT_TRUSTED


def test_what_is_trusted_rests_on_nothing_that_is_not():
    allowed = {f"dbern.privacy.{name}" for name in TRUSTED} | {"dbern.errors", "dbern.types"}
    for name in TRUSTED:
        tree = ast.parse((ROOT / f"dbern/privacy/{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            ours = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dbern")
            if ours and node.module != "dbern.privacy":
                assert node.module in allowed, f"{name} imports {node.module}"


def test_the_page_has_the_tables_as_they_are():
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert text == page(text), "run: cd tests && python -m audit --page"
    assert base_table() in text
    assert beyond_table() in text
    assert claims_table() in text
    assert all(claim.name in text and claim.test in text for claim in CLAIMS)


def test_there_are_enough_claims_and_none_twice():
    assert len(CLAIMS) >= 25
    assert len({claim.name for claim in CLAIMS}) == len(CLAIMS)
    assert len({(claim.file, claim.old, claim.new) for claim in CLAIMS}) == len(CLAIMS)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_names_what_is_there(claim):
    text = (ROOT / claim.file).read_text(encoding="utf-8")
    assert text.count(claim.old) == 1
    changed = claim.mutated(text)
    ast.parse(changed)
    assert changed != text
    file, _, test = claim.test.partition("::")
    assert test.partition("[")[0] in functions(ROOT / file)
    where, _, symbol = claim.proof.partition(": ")
    assert (ROOT / where).is_file()
    if symbol and symbol != "the module":
        assert symbol.rpartition(".")[2] in functions(ROOT / where)


@cache
def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_a_line_that_is_not_there_once_is_an_error():
    claim = Claim("n", "s", "p", "f", "a", "b", "t")
    assert claim.mutated("xax") == "xbx"
    for text in ("", "aa"):
        with pytest.raises(ValueError, match="times: a"):
            claim.mutated(text)


@pytest.mark.parametrize(
    ("codes", "told", "expected"),
    [
        ([0, 1], "killed", 0),
        ([0, 0], "SURVIVED", 1),  # a mutation that no test notices
        ([0, 2], "BROKEN", 1),  # such as of syntax: no verdict
        ([1], "unmutated: 1 tests, it fails", 1),  # a test that fails anyway
    ],
)
def test_the_audit_can_fail(codes, told, expected, tmp_path, monkeypatch, capsys):
    claim = Claim("n", "s", "p", "dbern/a.py", "one", "two", "tests/a.py::test")
    answers, seen = iter(codes), []

    def copied(tree: Path) -> Path:
        (tree / "dbern").mkdir(parents=True)
        (tree / "dbern/a.py").write_text("one")
        return tree

    def ran(tree: Path, *tests: str) -> tuple[int, float, str]:
        seen.append((tree / "dbern/a.py").read_text())
        return next(answers), 0.0, "it fails"

    monkeypatch.setattr(auditing, "copied", copied)
    monkeypatch.setattr(auditing, "ran", ran)
    assert auditing.audited([claim], tmp_path) == expected
    assert told in capsys.readouterr().out
    assert seen == ["one", "two"][: len(codes)]
    assert {path.read_text() for path in tmp_path.glob("*/dbern/a.py")} == {"one"}
