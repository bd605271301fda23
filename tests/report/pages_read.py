"""What a page must be, whatever it shows: read by a parser that forgives nothing."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from html.parser import HTMLParser

_VOID = {"meta", "link", "br", "image", "use", "path", "rect", "circle", "line", "input"}


class Page(HTMLParser):
    """The elements of a page, as they were opened."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text, self.elements, self.open = text, [], []
        self.headings, self.shown, self.scripts = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in ("h1", "h2", "h3"):
            self.headings.append(int(tag[1]))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in _VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if "script" in self.open:
            self.scripts.append((self.elements[-1][1], data))
        elif "style" not in self.open:
            self.shown.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.shown).split())

    def images(self) -> list[str]:
        return [attrs["aria-label"] for _, attrs in self.elements if attrs.get("role") == "img"]


def read(text: str) -> Page:
    """The page, once it keeps every rule that holds for all pages."""
    page = Page(text)
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"iframe", "object", "embed", "form"}
    policy = next(a["content"] for _, a in page.elements if "http-equiv" in a)
    assert policy.startswith("default-src 'none'; ")
    programs = [program for attrs, program in page.scripts if not attrs]
    found = [hashlib.sha256(one.encode()).digest() for one in programs]
    allowed = " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in found)
    assert policy.partition("; script-src ")[2] == allowed  # those alone, and no inline handler
    assert sum(tag == "script" for tag, _ in page.elements) == len(page.scripts)
    assert all(attrs.get("type", "application/json") == "application/json"
               for attrs, _ in page.scripts)  # fmt: skip
    for _, script in page.scripts:
        text = text.replace(script, "")
    assert ("html", {"lang": "en"}) in page.elements
    assert {"header", "main", "footer", "title"} <= tags
    levels = page.headings
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    for tag, attrs in page.elements:
        assert not any(name.startswith("on") for name in attrs), tag
        for name in ("href", "xlink:href", "src", "aria-labelledby"):
            link = attrs.get(name, "")
            assert link.startswith(("#", "data:")) or name == "aria-labelledby" or not link, link
            if link.startswith("#"):
                assert link[1:] in ids
        if "overflow" in attrs.get("class", "") or tag == "pre":
            assert attrs["tabindex"] == "0"  # what scrolls can be reached by the keyboard
            assert attrs["aria-label"]
    for target in re.findall(r"url\((?:#([\w-]+)|(.*?))\)", text):
        assert target[0] in ids, target
    outside = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert "http:" not in outside
    assert "https:" not in outside
    assert all(len(label) > 40 for label in page.images())
    return page
