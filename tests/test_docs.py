"""Every page's code is run: what a reader copies works and prints what the page shows."""

from __future__ import annotations

import doctest
import importlib
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import click
import pytest

from dbern.cli.main import run

ROOT = Path(__file__).parents[1]
FOLDERS = (".", "docs", "docs/development", "pipelines", "deploy")
PAGES = sorted(path for folder in FOLDERS for path in (ROOT / folder).glob("*.md"))
RUN = ["docs/guide.md", "docs/oracle.md", "docs/ledger.md", "docs/frames.md", "docs/readers.md"]
RUN += ["docs/questions.md", "README.md", "CONTRIBUTING.md", "docs/development/extending.md"]
LANGUAGES = {"python", "console", "toml", "sh", ""}
OTHERS = ("make ", "git ", "pip ")  # of a checkout: what these do has tests of its own
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is where its code begins."""

    language: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The file it is to be saved as."""
        named = re.match(r"# file: (\S+)\n", self.text)
        return named[1] if named else None


def blocks(text: str) -> list[Block]:
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start()) + 2)
        for found in _FENCE.finditer(text)
    ]


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Each command of a console block with the output shown below it."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command.partition("  #")[0].strip(), shown


class Reader:
    """Does in one folder what a page says, block by block."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capfd = capfd
        self.names: dict[str, object] = {"__name__": "page"}

    def follow(self, page: str) -> int:
        followed = 0
        for block in blocks((ROOT / page).read_text(encoding="utf-8")):
            where = f"{page}:{block.line}"
            assert block.language in LANGUAGES, where
            if block.file is not None:
                path = self.folder / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text)
                if block.file == "pyproject.toml":
                    self.install(tomllib.loads(block.text)["project"])
            elif block.language == "python":
                exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), self.names)
            elif block.language == "toml":
                tomllib.loads(block.text)
            elif block.language == "console":
                for command, shown in commands(block):
                    self.run(command, shown, where)
            followed += 1
        return followed

    def install(self, project: dict[str, Any]) -> None:
        """The metadata that an installer writes."""
        made = self.folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        made.mkdir()
        (made / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
        lines = []
        for group, points in project["entry-points"].items():
            lines += [f"[{group}]", *(f"{name} = {where}" for name, where in points.items())]
        (made / "entry_points.txt").write_text("\n".join(lines))
        importlib.invalidate_caches()

    def run(self, command: str, shown: str, where: str) -> None:
        from dbern.cli import main as command_line

        if command.startswith(OTHERS):
            return
        words = shlex.split(command)
        assert words[0] == "dbern", f"{where}: {command}"
        self.capfd.readouterr()
        code = command_line.run(words[1:])
        out, err = self.capfd.readouterr()
        refused = shown.startswith("dbern: ")
        assert (code != 0) == refused, f"{where}: {command}: {code}\n{out}{err}"
        got = err if refused else out
        if shown:
            fits = doctest.OutputChecker().check_output(shown, got, doctest.ELLIPSIS)
            assert fits, f"{where}: {command} printed\n{got}and the page shows\n{shown}"


@pytest.fixture
def reader(tmp_path, monkeypatch, capfd, client):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dbern.run.stages.cluster", lambda *_: nullcontext(client))
    monkeypatch.syspath_prepend(tmp_path)
    return Reader(tmp_path, capfd)


@pytest.mark.sample(verify=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "least"),
    [
        ("docs/guide.md", 18),
        ("CONTRIBUTING.md", 5),
        ("docs/questions.md", 6),
        ("docs/oracle.md", 7),
        ("docs/readers.md", 7),
    ],
)
def test_a_page_is_followed_to_its_end_from_a_fresh_folder(reader, page, least):
    assert reader.follow(page) >= least


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:ledger=None", "ignore:A second fit")
def test_frames_are_released_and_estimators_fitted_as_their_page_says(reader):
    assert reader.follow("docs/frames.md") == 10


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:ledger=None")
def test_the_readme_is_followed_to_its_end(reader):
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = np.random.default_rng(3)
    Path("trips").mkdir()
    trips = pa.table({"x": draw.uniform(0, 10, 50_000), "y": draw.normal(5, 1, 50_000)})
    Path("demo-out/trips").mkdir(parents=True)
    for folder in ("trips", "demo-out/trips"):
        pq.write_table(trips, f"{folder}/part-0.parquet")
    pq.write_table(pa.table({"x": [1.0, 5.0], "y": [5.0, 5.0]}), "queries.parquet")
    assert reader.follow("README.md") >= 5


@pytest.mark.slow
def test_other_tools_share_the_ledger_as_their_page_says(reader):
    assert reader.follow("docs/ledger.md") >= 5
    pytest.importorskip("dp_accounting")
    block = events_block()
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = subprocess.run(
        [sys.executable, "-c", block.text], capture_output=True, text=True, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    assert 0.59 < float(ran.stdout) < 0.601  # the library rounds losses up to a grid of 1e-4


def events_block() -> Block:
    """The program that makes events of dp_accounting of a ledger's charges."""
    page = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")
    (program,) = (block for block in blocks(page) if "import dp_accounting\n" in block.text)
    return program


@dataclass(frozen=True)
class Event:
    """Any event of dp_accounting: what it is called and of what it is made."""

    kind: str
    values: tuple[Any, ...]


def library_of_events(composed: list[Any]) -> dict[str, ModuleType]:
    """Modules for the page's block: they keep what it composes, and account for nothing."""

    def event(kind: str) -> Any:
        return lambda *values: Event(kind, values)

    library, accountants = ModuleType("dp_accounting"), ModuleType("dp_accounting.pld")
    for kind in ("RandomizedResponse", "ZC", "Unsupported"):
        setattr(library, f"{kind}DpEvent", event(kind))
    library.ComposedDpEvent = list
    library.NeighboringRelation = SimpleNamespace(REPLACE_ONE="replace-one")
    accountants.PLDAccountant = lambda _: SimpleNamespace(
        compose=composed.extend, get_epsilon=lambda _: 0.0
    )
    return {"dp_accounting": library, "dp_accounting.pld": accountants}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("terms", "of_charge", "kind"),
    [
        ([], [], "RandomizedResponse"),
        (["--neighbors", "add-or-remove-one"], ["--neighbors", "add-or-remove-one"], "ZC"),
        (["--accountant", "zcdp", "--delta", "1e-6"], [], "ZC"),
        (["--delta", "1e-6"], ["--delta", "1e-7"], "Unsupported"),
    ],
)
def test_a_charge_s_event_promises_no_more_than_its_account(
    tmp_path, monkeypatch, terms, of_charge, kind
):
    """Randomized response is of replaced records: of added ones it would halve the loss."""
    monkeypatch.chdir(tmp_path)
    for line in (
        ["init"],
        ["grant", "--dataset", "rides", "--epsilon", "1000000", *terms],
        ["charge", "--dataset", "rides", "--epsilon", ".3", *of_charge, "--note", "a table"],
        ["charge", "--dataset", "rides", "--epsilon", "750", *of_charge, "--note", "all rows"],
    ):
        assert run(["ledger", *line, "--ledger", "sqlite:///ledger.db"]) == 0, line
    composed: list[Event] = []
    for name, module in library_of_events(composed).items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    exec(events_block().text, {})
    assert {event.kind for event in composed} == {kind}
    if kind == "RandomizedResponse":
        small, large = (event.values[0] for event in composed)
        assert 0 < Fraction(small) < Fraction(2) / (1 + Fraction(math.exp(0.3)))
        assert large == 0
    elif kind == "ZC":
        assert Fraction(composed[0].values[0]) > Fraction("0.045")


def test_a_frame_is_a_plotted_density_in_six_lines():
    page = (ROOT / "docs" / "frames.md").read_text(encoding="utf-8")
    (shown,) = (one.text for one in blocks(page) if "data=rides" in one.text)
    assert len(shown.splitlines()) <= 6
    assert ".plot()" in shown.splitlines()[-1]


def test_every_page_that_has_code_is_run():
    for path in PAGES:
        name = path.relative_to(ROOT).as_posix()
        code = {block.language for block in blocks(path.read_text(encoding="utf-8"))}
        assert name in RUN or not code & {"python", "console"}, name


def test_every_link_between_pages_leads_somewhere():
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for link in _LINK.findall(text):
            name, _, anchor = link.partition("#")
            if "://" in link or link.startswith("mailto:"):
                continue
            target = (path.parent / name) if name else path
            assert target.exists(), f"{path.name}: {link}"
            if anchor and target.suffix == ".md":
                assert anchor in anchors(target), f"{path.name}: {link}"


def anchors(path: Path) -> set[str]:
    """What a heading's link is called on the web."""
    heads = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_file_that_a_page_names_exists():
    for path in (*PAGES, ROOT / "dbern" / "synopsis" / "FORMAT.md"):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"`((?:dbern|tests|docs)/[\w./-]+)`", text):
            assert (ROOT / name).exists(), f"{path.name}: {name}"


FOR_DEVELOPERS = [f"docs/development/{name}.md" for name in ("architecture", "extending")]
_NAME_IN_FILE = re.compile(r"`(\w+)`,? (?:in|of) `([\w/]+\.py)`")
_ROW_OF_FILE = re.compile(r"\| `([\w/]+\.py)` \| `(\w+)` \|")


def missing_code(text: str) -> list[str]:
    """Files of the package and of tests that do not exist, and names that a file does not define.

    A file is told as ``tests/..`` or ``dbern/..``, or without that last folder.
    """

    def path_of(name: str) -> Path:
        return ROOT / name if name.startswith(("dbern/", "tests/")) else ROOT / "dbern" / name

    files = set(re.findall(r"`([\w/]+\.py)`", text)) - set(re.findall(r"`([\w/]+/NAME\.py)`", text))
    missing = [name for name in sorted(files) if not path_of(name).is_file()]
    named = [(file, name) for name, file in _NAME_IN_FILE.findall(text)]
    for file, name in named + _ROW_OF_FILE.findall(text):
        if file not in missing:
            source = path_of(file).read_text(encoding="utf-8")
            defined = rf"^(?:class | *def )?{name}\b[^=\n]*[=(:]"
            missing += [f"{file}: {name}"] * (re.search(defined, source, re.MULTILINE) is None)
    return missing


@pytest.mark.parametrize("page", FOR_DEVELOPERS)
def test_the_code_that_developers_are_sent_to_is_there(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert len(_NAME_IN_FILE.findall(text) + _ROW_OF_FILE.findall(text)) >= 8
    assert missing_code(text) == []
    wrong = (
        "`none/here.py` `KERNEL` in `bernstein/kernels/__init__.py` | `dbern/cli/main.py` | `no` |"
    )
    assert len(missing_code(wrong)) == 3


def test_every_room_is_in_the_table_of_rooms():
    text = (ROOT / FOR_DEVELOPERS[0]).read_text(encoding="utf-8").partition("## Rooms")[2]
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    rooms = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    folders = {path.parent.name for path in (ROOT / "dbern").glob("*/__init__.py")}
    assert rooms == folders


def test_every_page_that_a_source_cites_exists():
    """A comment that cites a page of the author's desk explains nothing to anybody else."""
    pages = {path.name for path in PAGES} | {"FORMAT.md", "page.md"}
    for path in (*(ROOT / "dbern").rglob("*.py"), *(ROOT / "tests").rglob("*.py")):
        for cited in re.findall(r"\b[\w-]+\.md\b", path.read_text(encoding="utf-8")):
            assert cited in pages, f"{path}: {cited}"


def missing_headings(text: str) -> list[str]:
    """Citations of a page's heading, as `docs/bands.md, "Title"`, that no heading begins with."""
    cited = re.findall(r'docs/([a-z-]+\.md),\s+"([^"]+)"', text, re.IGNORECASE)
    return [
        f"{page}: {title}"
        for page, title in cited
        if not re.search(
            rf"^#+ {re.escape(' '.join(title.split()))}\b",
            (ROOT / "docs" / page).read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    ]


def test_every_heading_that_a_source_cites_exists():
    for path in (ROOT / "dbern").rglob("*.py"):
        assert missing_headings(path.read_text(encoding="utf-8")) == [], path
    assert missing_headings('as docs/intervals.md, "A step", has it') == []
    assert len(missing_headings('as docs/intervals.md, "No step", has it')) == 1


def test_pages_are_few_and_short():
    """Fifteen pages, and forty thousand words but for tables that programs write."""
    pages = [path for path in PAGES if path.is_relative_to(ROOT / "docs")]
    assert len([path for path in pages if path.parent == ROOT / "docs"]) <= 15
    assert sum(len(re.findall(r"\S*\w\S*", prose(path))) for path in pages) <= 40_000


def prose(path: Path) -> str:
    """A page without what programs write into it, and without its table of claims."""
    text = path.read_text(encoding="utf-8").partition("## Where each claim")[0]
    text = re.sub(r"<!-- (.*?) -->\n.*?<!-- end of \1 -->", "", text, flags=re.DOTALL)
    return re.sub(r"^<!-- [^\n]* -->\n```\n.*?\n```$", "", text, flags=re.MULTILINE | re.DOTALL)


MATHEMATICS = [f"docs/{name}.md" for name in ("sensitivity", "learners", "bands", "intervals")]
_CLAIM = re.compile(r"\| (.+) \| `([\w/.]+)`(?: \(`(\w+)`\))? \| `([\w/.]+)::(\w+)` \|")


def claims(text: str) -> list[tuple[str, str, str, str, str]]:
    """Claim, file, symbol, test file and test of each row of the table of claims."""
    table = text.partition("## Where each claim is proved and tested")[2]
    rows = [row for row in table.splitlines() if row.startswith("| ") and "`" in row]
    found = [_CLAIM.fullmatch(row) for row in rows]
    assert all(found), [row for row, match in zip(rows, found, strict=True) if not match]
    return [match.groups(default="") for match in found if match]


def missing_names(table: list[tuple[str, str, str, str, str]]) -> list[str]:
    """What the rows name and the files do not define."""
    wanted: dict[str, set[str]] = {}
    for _, file, symbol, test_file, test in table:
        wanted.setdefault(file, set()).update({symbol} - {""})
        wanted.setdefault(test_file, set()).add(test)
    missing = []
    for file, names in wanted.items():
        if not (ROOT / file).is_file():
            missing.append(file)
            continue
        text = (ROOT / file).read_text(encoding="utf-8")
        defined = set(re.findall(r"^(?:class|def) (\w+)", text, re.MULTILINE))
        missing += [f"{file}: {name}" for name in sorted(names - defined)]
    return missing


def test_every_claim_has_its_proof_and_its_test():
    tables = [claims((ROOT / page).read_text(encoding="utf-8")) for page in MATHEMATICS]
    assert all(len(table) > 15 for table in tables)
    table = [row for rows in tables for row in rows]
    assert len(table) > 130
    assert missing_names(table) == []
    claim, file, symbol, test_file, test = table[0]
    for wrong in ((claim, "dbern/none.py", "", test_file, test),
                  (claim, file, symbol + "s", test_file, test),
                  (claim, file, symbol, test_file, test + "_not")):  # fmt: skip
        assert len(missing_names([wrong])) == 1


@pytest.mark.parametrize("page", MATHEMATICS)
def test_the_mathematics_has_a_heading_for_every_fifteen_lines(page):
    text = (ROOT / page).read_text(encoding="utf-8").partition("## Where each claim")[0]
    assert len(text.split()) <= 3000
    for part in re.split(r"^#+ ", text, flags=re.MULTILINE):
        assert len([line for line in part.splitlines()[1:] if line]) <= 15, part[:60]


SPEC = "docs/spec.md"


def sections(text: str) -> dict[str, str]:
    """What stands below each heading of the third rank."""
    parts = re.split(r"^### (.*)$", re.sub(r"^## .*$", "### ", text, flags=re.M), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def keys_of(section: str) -> dict[str, str]:
    """Each key of a section's table with its default as the page has it."""
    rows = re.findall(r"^\| `([\w.<>]+)` \|[^|]*\| ([^|]*)\|", section, re.MULTILINE)
    return {key.partition(".")[0]: default.strip() for key, default in rows}


def check_keys(where: str, section: str, model: Any) -> None:
    """Refuse a table that lacks a key, has one that is not there, or states another default."""
    shown = keys_of(section)
    assert sorted(shown) == sorted(model.model_fields), where
    for key, field in model.model_fields.items():
        if field.is_required():
            assert shown[key] == "", f"{where}.{key}"
        elif isinstance(field.default, (str, float)):
            found = tomllib.loads(f"default = {shown[key].strip('`')}")["default"]
            assert found == field.default, f"{where}.{key}"


def test_the_spec_page_has_every_key_and_its_default():
    from dbern.planning import sections as schema
    from dbern.targets import kinds, learner_of

    found = sections((ROOT / SPEC).read_text(encoding="utf-8"))
    for name in ("release", "data", "mechanism", "budget"):
        check_keys(name, found[f"[{name}]"], getattr(schema, f"{name.title()}Section"))
    ours = [kind for kind in kinds() if learner_of(kind).__module__.startswith("dbern.")]
    for kind in ours:
        check_keys(kind, found[kind], learner_of(kind))
    with pytest.raises(AssertionError, match="oracle"):
        check_keys("oracle", found["kernel-erm"], learner_of("oracle"))
    changed = found["ridge-regression"].replace("`1.0`", "`2.0`", 1)
    with pytest.raises(AssertionError, match="constant"):
        check_keys("ridge-regression", changed, learner_of("ridge-regression"))


@pytest.fixture
def stop_loss(tmp_path, monkeypatch):
    """The module of the page on functions, which the spec's page names."""
    page = (ROOT / "docs" / "oracle.md").read_text(encoding="utf-8")
    (module,) = (block for block in blocks(page) if block.file == "stop_loss.py")
    (tmp_path / "stop_loss.py").write_text(module.text)
    monkeypatch.syspath_prepend(tmp_path)
    kept = sys.modules.pop("stop_loss", None)
    yield
    sys.modules.pop("stop_loss", None)
    if kept is not None:
        sys.modules["stop_loss"] = kept


def learners_of_the_page(text: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Kind, section and spec of each of our learners: its block in the page's first spec."""
    from dbern.targets import kinds, learner_of

    whole = tomllib.loads(blocks(text)[0].text)
    found = sections(text)
    for kind in kinds():
        if not learner_of(kind).__module__.startswith("dbern."):
            continue
        (block,) = blocks(found[kind])
        given = tomllib.loads(block.text)
        data = {**whole["data"], **given.get("data", {})}
        yield kind, found[kind], {**whole, "data": data, "target": given["target"]}


def test_every_learner_s_block_is_a_spec(stop_loss):
    import dbern

    text = (ROOT / SPEC).read_text(encoding="utf-8")
    whole = tomllib.loads(blocks(text)[0].text)
    assert dbern.ReleaseSpec(**whole).learner.kind == "kernel-density"
    for kind, section, spec in learners_of_the_page(text):
        assert dbern.ReleaseSpec(**spec).learner.kind == kind
        data = {key: value for key, value in spec["data"].items() if key != "n"}
        spec["data"] = {**data, "neighbors": "add-or-remove-one", "normalizer": "20000"}
        if re.search(r"Neighbours and units: all|Neighbours:\s+both", section):
            assert dbern.ReleaseSpec(**spec).protection.added, kind
        else:
            with pytest.raises(dbern.SpecError, match="nothing is proved"):
                dbern.ReleaseSpec(**spec)


_NOISES = {
    "bins": ("laplace", "binned-laplace", "laplace-advanced"),
    "spectra": ("laplace", "spectral-laplace", "laplace-advanced"),
    "lattice values": ("laplace", "laplace-advanced"),
    "numbers as they are": ("laplace",),
}


@pytest.mark.slow
def test_each_learner_admits_the_noises_that_the_page_names(stop_loss):
    import dbern
    from dbern.planning.planner import plan_files

    def admits(spec: dict[str, Any], noise: str) -> bool:
        changed = {**spec, "budget": {**spec["budget"]}, "mechanism": {"noise": noise}}
        if noise == "laplace-advanced":
            changed["budget"]["delta"] = "1e-6"
        if words != "numbers as they are":
            changed["mechanism"] |= {"k": 4, "h": 1}
        if "with C up to 1" in section:
            changed["target"] = {**spec["target"], "C": 1.0}
        try:
            plan_files(dbern.ReleaseSpec(**changed), ())
        except dbern.SpecError:
            return False
        return True

    text = (ROOT / SPEC).read_text(encoding="utf-8")
    for kind, section, spec in learners_of_the_page(text):
        words = re.search(
            r"Noises: ([a-z ]+?)(?: with | where | \(|[.;,])", section.replace("\n", " ")
        )[1]
        every = {noise for noises in _NOISES.values() for noise in noises}
        assert {noise for noise in every if admits(spec, noise)} == set(_NOISES[words]), kind


def test_the_shown_options_exist():
    """Every `dbern ..` that a page mentions is a command, and every option of it is one."""
    from dbern.cli.main import cli

    known = {
        option
        for command in flat(cli)
        for param in command.get_params(click.Context(command))
        for option in param.opts
    }
    for path in PAGES:
        for said in re.findall(r"`(dbern [^`\n]+)`", path.read_text(encoding="utf-8")):
            words = said.split()
            group = cli.commands.get(words[1].strip('",'))
            assert group is not None or words[1].startswith(("-", ".", "S")), f"{path.name}: {said}"
            for option in re.findall(r"(?<!\S)--[a-z-]+", said):
                assert option in known | {"--help", "--version"}, f"{path.name}: {said}"


def flat(group):
    for command in group.commands.values():
        yield command
        if hasattr(command, "commands"):
            yield from flat(command)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_as_the_guide_says(shell):
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("no bash, whose version is looked at")
    text = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    assert f"_DBERN_COMPLETE={shell}_source dbern" in text
    program = "from dbern.cli.main import cli; cli(prog_name='dbern')"
    environment = {**os.environ, "_DBERN_COMPLETE": f"{shell}_source"}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True)
    assert ran.returncode == 0
    assert b"_DBERN_COMPLETE" in ran.stdout


def test_the_version_is_written_once():
    from importlib.metadata import version

    import dbern

    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in content["project"]["dynamic"]
    assert dbern.__version__ == version("dbern")


def test_a_page_that_lies_is_found(tmp_path, reader, monkeypatch):
    monkeypatch.setattr("test_docs.ROOT", tmp_path)
    for text, complaint in {
        "```console\n$ dbern target list\nno such line\n```\n": "and the page shows",
        "```console\n$ dbern plan none.toml\n```\n": "no such spec",
        "```console\n$ dbern target list\ndbern: refused\n```\n": "target list: 0",
        "```python\nassert 1 == 2, 'so it is'\n```\n": "so it is",
        "```console\n$ rm -r x\n```\n": "rm -r x",
    }.items():
        (tmp_path / "page.md").write_text(text)
        with pytest.raises(AssertionError, match=complaint):
            reader.follow("page.md")
