"""The panel on generated records alone: `make panel` has the real ones."""

import pytest
from panel import rows, to_markdown


@pytest.mark.slow
def test_no_cell_is_worse_than_twenty_lines(tmp_path):
    found = list(rows(tmp_path, "clusters, 1", releases=8))
    print(to_markdown(found))
    assert len(found) == 4
    assert all(row.ours < 1.1 * row.lines for row in found)
    assert all(row.ours < row.promise for row in found)
