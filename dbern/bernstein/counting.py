"""Add records to integer sums.

Only single IEEE operations on one record at a time, none fused: a record adds the same integers on
every host and beside any other records. One that does not count adds zeros.
"""

from __future__ import annotations

from dbern.arrays import Int64Array
from dbern.bernstein.rows import Rows, Terms


def add_rows(state: Int64Array, rows: Rows, terms: Terms) -> None:
    """Add records to a C-contiguous `state`, in place; the interpreter's lock is not held.

    Raises
    ------
    IndexError
        For arrays of different lengths, outputs that there are not, or a smaller state.

    Examples
    --------
    >>> import numpy as np
    >>> from dbern.bernstein.rows import EQUAL, unit_rows
    >>> pairs = np.array([[0], [1]])
    >>> terms = Terms(pairs, pairs[:, 0], 1, (3,), (2,), (EQUAL,), 4, 1, splines=True)
    >>> state = np.zeros(3, dtype=np.int64)
    >>> add_rows(state, unit_rows(np.array([[0.125], [1.0]])), terms)
    >>> state.tolist()
    [12, 4, 16]
    """
    # The loops check nothing: what they are given must stay inside its arrays.
    given = (rows.counts, rows.output, rows.weight)
    lengths = {len(array) for array in (*rows.columns, *given) if array is not None}
    if len(lengths) != 1 or not state.flags.c_contiguous or state.size < terms.reach:
        raise IndexError("columns of different lengths, or too small a state")
    if lengths == {0}:
        return
    output = rows.output
    if output is not None and (output.min() < 0 or output.max() >= terms.outputs):
        raise IndexError("an output that there is not")
    from dbern.bernstein.compiled import add_terms

    add_terms(state.reshape(-1), rows, terms)
