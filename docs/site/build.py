"""Build the site: ``make docs``.

Lays out ``build/docs/source`` as the repository is laid out, with notebooks as pages, a page for
each public module and formulas as MathML, lets mkdocs build it strictly, and follows every link of
what was built. A page that asks a network for a picture, a script or a font is refused.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[2]
CONFIG = Path(__file__).with_name("mkdocs.yml")
SOURCE, SITE = ROOT / "build/docs/source", ROOT / "build/docs/site"
MODULES = {
    "api/dbern.md": "dbern",
    "api/sklearn.md": "dbern.sklearn",
    "api/targets.md": "dbern.targets",
    "api/questions.md": "dbern.ask",
    "api/testing.md": "dbern.testing",
}
_LINK = re.compile(r"(!?\[(?:[^\]\\]|\\.)*\])\(([^)\s]+)\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_FORMULA = re.compile(r"(?:\$\$(.+?)\$\$|\$([^$\s](?:[^$\n]*[^$\s])?)\$)([.,;:)]*)", re.DOTALL)
_BAR = '<mo stretchy="false">&#x0007C;</mo>'
_SIGN = re.compile(r"((?:[\[(]|28;|2C;|3D;|64;|65;)</mo>)<mo>(?=&#x02212;)")  # after ([,=≤≥
_NAME = re.compile(r"<(m[io])>([A-Za-z]{2,})</\1>")
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:|//")
_MOST_OUTPUT = 100_000  # characters of one output: what is longer is no reading


def nav_pages() -> list[str]:
    """Pages of the users' menu, in its order."""
    nav = CONFIG.read_text(encoding="utf-8").partition("\nnav:\n")[2]
    return re.findall(r"[\w./-]+\.md(?=\n)", nav)


def developer_pages() -> list[str]:
    """Pages of the site that are in no menu."""
    listed = re.search(r"^not_in_nav: \|\n((?:  /.*\n)+)", CONFIG.read_text("utf-8"), re.MULTILINE)
    return re.findall(r"^  /(.*)$", listed[1], re.MULTILINE) if listed else []


# --- Pages


def lay_out() -> None:
    """Write all sources of the site."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for page in (*nav_pages(), *developer_pages()):
        target = SOURCE / page
        target.parent.mkdir(parents=True, exist_ok=True)
        notebook = (ROOT / page).with_suffix(".ipynb")
        if page in MODULES:
            text = api_page(MODULES[page])
        elif page == "notebooks/README.md":
            text = gallery()
        elif notebook.exists():
            text = notebook_page(notebook, target.with_suffix(""))
        else:
            text = copied(page)
        target.write_text(text, encoding="utf-8")
    (SOURCE / "site").mkdir()
    for name in ("iframe-worker.js", "formulas.css"):
        shutil.copy(CONFIG.with_name(name), SOURCE / "site")


def copied(page: str) -> str:
    """A page of the repository, with the files that it links to beside it."""
    path = ROOT / page

    def followed(match: re.Match[str]) -> str:
        shown, link = match[1], match[2]
        name, _, anchor = link.partition("#")
        target = path.parent / name
        if _OUTSIDE.match(link) or not name:
            return match[0]
        if target.is_dir():  # a page has none of its files
            return shown[1:-1]
        if target.suffix == ".ipynb":
            name = f"{name.removesuffix('.ipynb')}.md"
        elif target.suffix != ".md":
            place = SOURCE / target.resolve().relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(target, place)
        return f"{shown}({name}{'#' if anchor else ''}{anchor})"

    parts = _FENCE.split(path.read_text(encoding="utf-8"))
    return "".join(
        part if number % 2 else _LINK.sub(followed, with_formulas(part))
        for number, part in enumerate(parts)
    )


def with_formulas(text: str) -> str:
    """A text whose ``$formulas$``, but for those in code, are MathML: a browser needs no script."""
    parts, end = [], 0
    for code in _CODE.finditer(text):
        parts += [_FORMULA.sub(mathml, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, _FORMULA.sub(mathml, text[end:])])


def mathml(match: re.Match[str]) -> str:
    """A formula in TeX, and stops after it, as MathML; one between two dollars stands alone.

    Markdown ends a paragraph where a line begins with ``<math>``, and not with ``<span>``.
    Bars, signs and names are set closer than operators between two terms.
    """
    from latex2mathml.converter import convert

    shown = convert(match[1] or match[2], display="block" if match[1] else "inline")
    shown = shown.replace(_BAR, _BAR.replace("<mo", '<mo lspace="0" rspace="0"'))
    shown = _NAME.sub(r'<mo lspace="0.17em" rspace="0.17em">\2</mo>', shown)
    shown = _SIGN.sub(r'\1<mo form="prefix">', shown)
    return f'<span class="formula">{shown}{match[3]}</span>'


def api_page(module: str) -> str:
    """The public names of a module, each from its docstring."""
    loaded = importlib.import_module(module)
    head = f"# `{module}`\n\n{(loaded.__doc__ or '').strip()}\n"
    names = getattr(loaded, "__all__", ["ReleasedDataset"])
    shown = [name for name in names if not (module == "dbern" and name == "targets")]
    return head + "".join(f"\n::: {module}.{name}\n" for name in shown)


# --- Notebooks


def cells(path: Path) -> list[dict[str, Any]]:
    """The cells of a notebook as it was executed and kept."""
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return found


def notebook_page(path: Path, folder: Path) -> str:
    """A notebook as a page: its prose, its code and what it printed, its pictures beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    parts, pictures = [], 0
    for cell in cells(path):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text.replace(".ipynb)", ".md)"))
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{pictures}.png"
                (folder / name).write_bytes(base64.b64decode("".join(data["image/png"])))
                parts.append(f"![A picture that the cell above draws]({folder.name}/{name})")
                pictures += 1
            else:
                said = "".join(output.get("text", data.get("text/plain", "")))
                parts.append(f"```text\n{said[:_MOST_OUTPUT].rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def gallery() -> str:
    """A page of the notebooks: of each its title, its first words and its first picture."""
    parts = ["# Gallery", "Notebooks as they were run. Each runs from a clean kernel in the tests."]
    for page in nav_pages():
        path = (ROOT / page).with_suffix(".ipynb")
        if not path.exists():
            continue
        title, _, rest = "".join(cells(path)[0]["source"]).partition("\n")
        name = path.stem
        parts += [
            f"## [{title.lstrip('# ')}]({name}.md)",
            rest.strip().partition("\n\n")[0],
            f"[![The first picture of {name}]({name}/0.png){{ width=480 }}]({name}.md)",
        ]
    return "\n\n".join(parts) + "\n"


# --- What was built


class Page(HTMLParser):
    """The anchors and links of one built page, and what it fetches by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        given = {key: value or "" for key, value in attrs}
        self.anchors |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        fetched = [given[key] for key in ("src", "data", "poster") if key in given]
        if tag == "link" and given.get("rel", "") not in ("canonical", "next", "prev"):
            fetched.append(given.get("href", ""))
        self.fetched += [one for one in fetched if one]


def broken(site: Path) -> Iterator[str]:
    """Links of built pages that lead nowhere, and what they would fetch from a network."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    for path, page in pages.items():
        where = path.relative_to(site).as_posix()
        if where == "404.html":  # is served at any address, and names pages from the root
            continue
        for link in page.links + page.fetched:
            if _OUTSIDE.match(link):
                if link in page.fetched and not link.startswith("data:"):
                    yield f"{where} fetches {link}"
                continue
            parts = urlsplit(link)
            beside = Path(os.path.normpath(path.parent / unquote(parts.path)))
            target = beside if parts.path else path
            known = pages[target].anchors | {""} if target in pages else {unquote(parts.fragment)}
            if not target.is_file():
                yield f"{where}: {link} is not there"
            elif unquote(parts.fragment) not in known:
                yield f"{where}: {link} has no such heading"


def main() -> int:
    """Build and check; the exit code says whether all is well."""
    lay_out()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean"]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # the theme's advertisement
    built = subprocess.run([*command, "--config-file", CONFIG], env=quiet, check=False)  # noqa: S603 -- our own words
    if built.returncode:
        return built.returncode
    found = sorted(broken(SITE))
    print("\n".join(found) or f"{len(list(SITE.rglob('*.html')))} pages: {SITE / 'index.html'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
