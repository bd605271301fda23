"""Renew the slowest tests of docs/development/testing.md: ``python tests/slowest.py PRINTED``.

PRINTED is what a whole run with ``--durations=20`` printed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "development" / "testing.md"
HEAD = "| seconds | test |\n| ---: | --- |\n"


def renewed(page: str, printed: str) -> str:
    """The page, whose list is its end, with the tests that pytest printed, setups too."""
    found = re.findall(r"^([\d.]+)s (?:call|setup) +(tests/.+)$", printed, re.MULTILINE)
    rows = [f"| {float(seconds):.0f} | `{name.strip()}` |\n" for seconds, name in found]
    return page.partition(HEAD)[0] + HEAD + "".join(rows)


if __name__ == "__main__":
    printed = Path(sys.argv[1]).read_text(encoding="utf-8")
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), printed), encoding="utf-8")
