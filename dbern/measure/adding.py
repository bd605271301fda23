"""Records added to integer sums, by compiled loops where they are worth their start."""

from __future__ import annotations

import sys

from dbern.measure.record_integers import add_slowly
from dbern.measure.rows import Rows, Terms
from dbern.types import Int64Array

_LOOPS = "dbern.measure.loops"
_FEW = 1 << 21  # additions, which take less time than numba does to start
_added = [0]  # by this process


def add_rows(state: Int64Array, rows: Rows, terms: Terms) -> None:
    """Add records to a C-contiguous `state`, in place; an IndexError for arrays that do not fit."""
    _added[0] += len(terms.indices) * len(rows.columns[0])
    if _added[0] > _FEW or _LOOPS in sys.modules:
        from dbern.measure import loops  # numba: half a second, and as much to be ready

        loops.add_rows_compiled(state, rows, terms)
    else:
        add_slowly(state, rows, terms)
