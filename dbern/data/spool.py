"""Records of a table spooled to an encrypted Parquet file, from which they are read as from others.

The 64-bit floats of the columns that a release needs, with AES-256-GCM page by page (Parquet's
modular encryption): a record takes as many bytes whatever its values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from dbern.data.columns import stored_type, to_stored
from dbern.data.frames import GROUP_ROWS, Frame, frame_batches
from dbern.errors import optional_import

_GROUP_BYTES = 1 << 25  # from which a row group is written although it has fewer rows


def write_spool(file: BinaryIO, frame: Frame, key: bytes) -> int:
    """Write the floats of a frame as an encrypted Parquet file, and return how many rows there are.

    Raises SpecError or ShortageError for a table that cannot be read, which may be due to a
    record, EnvironmentRefusedError for a pyarrow that cannot encrypt.
    """
    with optional_import(
        f"data: needs pyarrow 25 or later, and this is {pa.__version__}. Install it, or write "
        "Parquet files and name them in data.source."
    ):
        from pyarrow.parquet.encryption import create_encryption_properties
    schema = pa.schema([(column.name, stored_type(column)) for column in frame.columns])
    rows = 0
    with pq.ParquetWriter(
        file, schema, use_dictionary=False, compression="none", write_statistics=False,
        store_schema=False, encryption_properties=create_encryption_properties(key),
    ) as writer:  # fmt: skip
        for table in _groups(frame, schema):
            writer.write_table(table, 2 * GROUP_ROWS)
            rows += len(table)
    return rows


def _groups(frame: Frame, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield tables of about a row group each, for batches may be of a few rows."""
    waiting = list[pa.RecordBatch]()
    for records in frame_batches(frame):
        arrays = [to_stored(records[column.name], column) for column in frame.columns]
        waiting.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        enough = sum(map(len, waiting)) >= GROUP_ROWS
        if enough or sum(batch.nbytes for batch in waiting) >= _GROUP_BYTES:
            yield pa.Table.from_batches(waiting, schema)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting, schema)
