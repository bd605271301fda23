"""Functions of the process and for texts: limits, imports, caches, numbers, errors."""

from __future__ import annotations

import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from dbern.data.objects import ObjectStoreSettings, read_credentials, trusted
from dbern.errors import DbernError, SpecError, printable, shortage_of, without_text
from dbern.ledger.high_water_mark import HighWaterMark
from dbern.ledger.keys import SECRET_FILE, _secret_of
from dbern.planning.spec import ReleaseSpec
from dbern.run.connection import expiry
from dbern.system import (
    LRUCache,
    Registry,
    counted,
    cpu_count,
    dict_of,
    format_number,
    html_table,
    imports_told,
    is_url,
    memory_limit,
    memory_used,
    named_function,
    raise_powers,
    source_digest,
    toml_key,
    version,
)

SETTINGS = ObjectStoreSettings("", "us-east-1", "", "", "default", (0, 0))
DOORS = {
    "spec": ReleaseSpec.load,
    "certificate": lambda path: expiry(str(path), "--certificate"),
    "secret": lambda path: _secret_of({SECRET_FILE: str(path)}),
    "mark": lambda path: HighWaterMark(path, "ledger", required=True).latest(),
    "credentials": lambda path: read_credentials(SETTINGS._replace(credentials=str(path))),
    "authority": lambda path: trusted(SETTINGS._replace(authority=str(path))),
}


@pytest.mark.parametrize("door", DOORS)
def test_no_door_reads_a_file_without_end(tmp_path, door):
    """``/dev/zero`` has none. Of a file of 3 MiB of zeros it would be said that it is no TOML."""
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(3 << 20)
    for path in (large, Path("/dev/zero")):
        with pytest.raises(DbernError, match=r"cannot be (read|used).*(File too large|OSError)"):
            DOORS[door](path)


def test_a_process_has_limits():
    assert memory_limit() > 0
    assert memory_used() > 0
    assert cpu_count() > 0


def test_what_is_no_path_is_a_url():
    urls = [is_url(where) for where in ("s3://bucket/a.zarr", "a.zarr", Path("a"))]
    assert urls == [True, False, False]


def test_what_is_no_dict_is_empty():
    assert dict_of({"a": 1}) == {"a": 1}
    assert dict_of(["a"]) == {}


def test_a_version_is_that_of_the_package():
    import numpy as np

    assert version("numpy") == np.__version__


def test_a_named_function_is_imported_and_its_module_told_once():
    names = []
    with imports_told(lambda module, key: names.append((module, key))):
        hypot = named_function("math:hypot", "target.function", "of x, y")
        named_function("math:cos", "target.function", "of x")
    assert hypot(3.0, 4.0) == 5.0
    assert names == [("math", "target.function")]


def test_a_digest_is_of_the_text_of_a_module_that_has_one():
    assert len(source_digest("textwrap:dedent")) == 64
    assert source_digest("math:hypot") == ""


def test_a_cache_forgets_what_was_not_used():
    made = []

    def square(n):
        made.append(n)
        return n * n

    squares = LRUCache[int](max_size=2)
    assert [squares(n, lambda n=n: square(n)) for n in (1, 2, 1, 3, 2)] == [1, 4, 1, 9, 4]
    assert made == [1, 2, 3, 2]


def test_numbers_of_things_in_words():
    words = [counted(1, "row group"), counted(2, "file"), counted(0, "entry", "entries")]
    assert words == ["1 row group", "2 files", "0 entries"]


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (200123.0, 4, "200\u202f123"),
        (13001.7, 4, "13\u202f000"),
        (0.00160735, 4, "0.001607"),
        (1.5e-7, 4, "1.5\u00d710\u207b\u2077"),
        (341234.5, 3, "341\u202f000"),
        (-0.5, 4, "-0.5"),
    ],
)
def test_numbers_are_formatted_for_people(value, digits, text):
    assert format_number(value, digits) == text


def test_powers_of_ten_in_a_text_are_raised():
    text = "off by 1.502e-6 of e-7 or 2e+10, with probability 0.95"
    assert raise_powers(text) == "off by 1.502×10⁻⁶ of e-7 or 2×10¹⁰, with probability 0.95"


def test_a_table_escapes_its_texts():
    assert "&lt;b&gt;" in html_table({"a": "<b>"})
    assert "<b>" not in html_table({"<b>": "a"})


def test_what_a_terminal_obeys_is_written_out():
    assert printable("caf\u00e9 \x1b[2J") == "caf\u00e9 \\x1b[2J"


def test_too_few_files_are_named():
    message = str(shortage_of(OSError(24, ""), "a"))
    assert message.startswith("a: too many files are open. Raise the limit (ulimit -n 1024)")
    assert shortage_of(OSError(2, "")) is None


def test_the_text_of_a_foreign_error_is_withheld():
    message = str(without_text(OSError(28, "no space for 1.5")))
    assert "OSError, No space left on device" in message
    assert "1.5" not in message


class Thing(NamedTuple):
    name: str


def point(name, load, package="mine"):
    dist = SimpleNamespace(name=package, version="2")
    return SimpleNamespace(name=name, module=package, load=load, dist=dist)


@pytest.fixture
def registry(monkeypatch):
    """One with two of ours, and entry points: one of the name of ours, two good ones, two bad."""

    def fail():
        raise ImportError("no module")

    points = [
        point("ours", lambda: Thing("not ours")), point("b", lambda: Thing("b")),
        point("a", lambda: Thing("a")), point("broken", fail), point("alias", lambda: Thing("x")),
        point("twice", fail), point("twice", fail, "theirs"),
    ]  # fmt: skip
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: {"things": points}[group])
    return Registry("things", {"ours": Thing("ours"), "late": "dbern.errors:SpecError"})


def test_a_registry_has_ours_first_and_then_those_of_packages(registry):
    assert registry.names() == ["ours", "late", "a", "alias", "b", "broken", "twice"]
    assert registry.get("ours", "x.y") == Thing("ours")
    assert registry.get("late", "x.y") is SpecError
    assert registry.get("b", "x.y") == Thing("b")
    assert [registry.origin(name) for name in ("ours", "b", "none")] == ["", "mine 2", ""]
    assert [name in registry for name in ("ours", "b", "none")] == [True, True, False]


def test_a_registry_reads_no_entry_points_for_what_is_ours(registry, monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", None)
    assert "ours" in registry
    assert registry.get("ours", "x.y") == Thing("ours")
    assert registry.origin("ours") == ""


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("our", r'^x\.y: "our" is unknown\. Write y = "ours"$'),
        (
            "zzz",
            r'^x\.y: "zzz" is unknown\. Write y = one of: ours, late, a, alias, b, broken, twice$',
        ),
        ("broken", r'^x\.y: "broken" of mine 2 cannot be imported \(ImportError\)\. Mend or'),
        ("alias", r'^x\.y: "alias" of mine 2 says another name of itself\. Give its entry point'),
        ("twice", r'^x\.y: "twice" is of mine 2 and theirs 2\. Remove all but one$'),
    ],
)
def test_a_registry_refuses_what_it_cannot_get(registry, name, sentence):
    with pytest.raises(SpecError, match=sentence):
        registry.get(name, "x.y")


def test_a_thing_of_no_package_is_known_meanwhile(registry):
    with registry.known(Thing("c")), registry.known(registry.get("ours", "x.y")):
        assert registry.get("c", "x.y") == Thing("c")
        assert registry.origin("c") == "no package"
        assert "c" in registry.names()
    assert "c" not in registry
    assert registry.origin("ours") == ""


@pytest.mark.parametrize("name", ["ours", "late"])
def test_nothing_is_known_by_a_name_of_ours(registry, name):
    """A store holds the name alone, and would be read as ours."""
    with (
        pytest.raises(SpecError, match=rf'^name: "{name}" is of dbern\. Give yours another$'),
        registry.known(SimpleNamespace(name=name)),
    ):
        pytest.fail("it is known")
    assert registry.origin(name) == ""


def test_a_package_is_told_before_its_code_runs(registry):
    told = []
    with imports_told(lambda module, key: told.append((module, key))):
        registry.get("ours", "x.y")
        registry.get("b", "x.y")
    with (
        imports_told(lambda module, key: told.append((module, key))),
        pytest.raises(SpecError, match="cannot be imported"),
    ):
        registry.get("broken", "x.z")
    assert told == [("mine", "x.y"), ("mine", "x.z")]


def test_a_key_is_one_of_toml():
    """Of a letter beyond 16 bits JSON makes two that are none."""
    for name in ("x", "a b", 'a"b', "größe", "\U0001f680", "a\tb", "\x7f"):
        assert tomllib.loads(f"{toml_key(name)} = 1") == {name: 1}
