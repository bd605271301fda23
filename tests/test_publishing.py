"""What is published: every page on the site, one version everywhere, whole packages."""

from __future__ import annotations

import importlib.util
import io
import re
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import jsonschema
import latex2mathml.exceptions
import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema

import dbern
from deploy import dist, oldest

ROOT = Path(__file__).parents[1]
FOLDERS = (".", "docs", "docs/development", "pipelines", "deploy")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture(scope="module")
def site():
    """A script that is in no package, as a module."""
    path = ROOT / "docs" / "site" / "build.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- The site


def test_the_site_has_every_page_notebook_and_public_name(site):
    pages = [*site.nav_pages(), *site.developer_pages()]
    assert len(set(pages)) == len(pages)
    menu = " ".join(site.nav_pages())
    assert "development" not in menu
    assert "CONTRIBUTING" not in menu
    wanted = {path.relative_to(ROOT).as_posix() for folder in FOLDERS
              for path in (ROOT / folder).glob("*.md")}  # fmt: skip
    wanted |= {"dbern/synopsis/FORMAT.md", "notebooks/README.md", *site.MODULES}
    wanted |= {f"notebooks/{path.stem}.md" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert set(pages) == wanted
    shown = site.api_page("dbern")
    assert all(f"\n::: dbern.{name}\n" in shown for name in dbern.__all__ if name != "targets")


def test_links_that_lead_nowhere_and_what_is_fetched_are_found(site, tmp_path):
    (tmp_path / "one.html").write_text(
        '<h1 id="top">x</h1><a href="two.html#there">a</a><a href="#top">b</a>'
        '<a href="https://elsewhere.example/">c</a><img src="data:image/png;base64,AA==">'
    )
    (tmp_path / "two.html").write_text('<h1 id="there">x</h1><a href="one.html">a</a>')
    assert list(site.broken(tmp_path)) == []
    (tmp_path / "two.html").write_text(
        '<h1 id="here">x</h1><a href="none.html">a</a><a href="..">b</a>'
        '<script src="https://cdn.example/x.js"></script><link rel="stylesheet" href="x.css">'
    )
    assert sorted(site.broken(tmp_path)) == [
        "one.html: two.html#there has no such heading",
        "two.html fetches https://cdn.example/x.js",
        "two.html: .. is not there",
        "two.html: none.html is not there",
        "two.html: x.css is not there",
    ]


def test_formulas_become_mathml_and_code_stays_as_it_is(site):
    shown = site.with_formulas("With $x^2$ and `$x$`, ``$`$``:\n$$\\frac{a}{b}$$\n$HOME or $5.")
    assert shown.count("<math") == 2
    assert "<mfrac>" in shown
    assert 'display="block"' in shown
    assert "\n<math" not in shown  # Markdown would end a paragraph there
    assert "</math>:</span>" in site.with_formulas("of $x$: so")
    assert site.with_formulas("$(-1)$").count('form="prefix"') == 1
    assert "`$x$`, ``$`$``" in shown
    assert shown.endswith("\n$HOME or $5.")
    with pytest.raises(latex2mathml.exceptions.MissingSuperScriptOrSubscriptError):
        site.with_formulas("$x^$")


def test_every_formula_of_the_pages_is_tex(site):
    code_or_formula = re.compile(
        r"^```.*?^```$|(`+).*?\1|<math.*?</math>", re.MULTILINE | re.DOTALL
    )
    for page in (*site.nav_pages(), *site.developer_pages()):
        if (ROOT / page).exists():
            shown = site.with_formulas((ROOT / page).read_text("utf-8"))
            assert "$" not in code_or_formula.sub("", shown), page


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(site, capfd):
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings_handlers.python")
    assert site.main() == 0, capfd.readouterr()
    assert "__index" in (site.SITE / "search" / "search_index.js").read_text(encoding="utf-8")
    assert "budgets/0.png" in (site.SITE / "notebooks" / "index.html").read_text(encoding="utf-8")


# --- One version


def test_the_version_is_the_same_wherever_it_is_written():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    jsonschema.validate(citation, get_builtin_schema("vendor.citation-file-format"))
    assert citation["version"] == dbern.__version__
    for folder, pattern in (
        ("deploy", "**/*.yaml"),
        ("deploy", "*.md"),
        ("deploy", "Containerfile"),
    ):
        for path in (ROOT / folder).glob(pattern):
            for tag in re.findall(r"\bdbern:(\d[\w.]*)", path.read_text(encoding="utf-8")):
                assert tag == dbern.__version__, path


def test_workflows_fit_the_schema_and_do_what_can_be_done_by_hand():
    schema = get_builtin_schema("vendor.github-workflows")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert len(WORKFLOWS) == 2
    for path in WORKFLOWS:
        text = path.read_text(encoding="utf-8")
        content = {
            str(key).replace("True", "on"): value for key, value in yaml.safe_load(text).items()
        }
        jsonschema.validate(content, schema)
        assert content["permissions"] == {"contents": "read"}
        for target in re.findall(r"run: make (\w+)", text):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        for name in re.findall(r"deploy/\w+\.py|deploy/Containerfile|\btests/[\w/.]+", text):
            assert (ROOT / name).exists(), name
    versions = yaml.safe_load(WORKFLOWS[0].read_text())["jobs"]["check"]["strategy"]["matrix"][
        "python"
    ]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    page = (ROOT / "docs" / "development" / "releasing.md").read_text(encoding="utf-8")
    assert "| Python | 3.11 to 3.14;" in page


def test_a_demo_installs_what_it_needs_and_nothing_where_all_is_there(tmp_path):
    """In a bare folder: the package and pictures alone, and no test's package."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)

    def installed(target):
        make = ["make", "--dry-run", "--directory", str(tmp_path), target]
        shown = subprocess.run(make, capture_output=True, text=True, check=True).stdout
        return re.findall(r"--editable '\.\[([\w,]+)\]'", shown)

    assert installed("demo") == ["report"]
    (everything,) = installed("check")
    assert {"report", "test"} < set(everything.split(","))
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for mark in ("bin/uv", ".ready"):
        (tmp_path / ".venv" / mark).touch()
    assert installed("demo") == []
    (tmp_path / ".venv" / ".ready").rename(tmp_path / ".venv" / ".lean")
    assert installed("demo") == []
    assert installed("check") == [everything]


def test_the_oldest_packages_are_the_lower_bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = oldest.oldest(project, ("report",))
    assert "numpy==2.0" in pins
    assert "matplotlib==3.9" in pins
    assert len(pins) == len(project["dependencies"] + project["optional-dependencies"]["report"])


def test_the_image_s_packages_are_the_pins_with_hashes_and_no_address():
    text = (ROOT / "deploy" / "requirements.txt").read_text(encoding="utf-8")
    assert "://" not in text
    line = r"^(\S+)==(\S+) \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+"
    pins = dict(re.findall(line, text, re.MULTILINE))
    assert len(pins) == text.count("==") > 50
    listed = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    known = {
        name_of(name): version for name, _, version in (line.partition("==") for line in listed)
    }
    assert {name: known.get(name) for name in pins} == pins
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for key in ("dagster", "postgres", "report", "s3")
                                          for one in extras[key])]  # fmt: skip
    direct = {name_of(re.match(r"[\w.-]+", one)[0]) for one in wanted} - {"dbern"}
    assert direct | {"setuptools"} <= set(pins)


def name_of(text):
    return re.sub(r"[-_.]+", "-", text).lower()


# --- Packages

COMMITTED = ["dbern/__init__.py", "dbern/errors.py"]
HELD = (*COMMITTED, *(f"dbern/{name}" for name in dist.WANTED))


def wheel(path, *names):
    with zipfile.ZipFile(path, "w") as packed:
        for name in names:
            packed.writestr(name, "")
    return path


def test_a_package_that_lacks_or_holds_anything_else_is_refused(tmp_path):
    whole = wheel(tmp_path / "a.whl", *HELD, "dbern-0.1.0.dist-info/METADATA")
    assert dist.complaints(whole, COMMITTED) == []
    for name in HELD:
        less = wheel(tmp_path / "b.whl", *(one for one in HELD if one != name))
        assert dist.complaints(less, COMMITTED) == [f"b.whl lacks {name}"]
    more = wheel(tmp_path / "c.whl", *HELD, "tests/records.parquet")
    assert dist.complaints(more, COMMITTED) == ["c.whl holds tests/records.parquet"]
    with tarfile.open(tmp_path / "d.tar.gz", "w:gz") as packed:
        for name in (*HELD, "PKG-INFO", "tests/goldens/sums.json"):
            packed.addfile(tarfile.TarInfo(f"dbern-0.1.0/{name}"), io.BytesIO())
    assert dist.complaints(tmp_path / "d.tar.gz", COMMITTED) == [
        "d.tar.gz holds tests/goldens/sums.json"
    ]


@pytest.mark.slow
def test_what_is_installed_is_followed_to_its_ends():
    found = dist.installed("dbern[report]")
    assert {"numpy", "zarr", "Jinja2", "MarkupSafe"} <= set(found)
    assert "pytest" not in found
