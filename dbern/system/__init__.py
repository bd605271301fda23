"""Limits, URLs, imports, progress, caches and texts, which every room may use."""

from dbern.system.cache import LRUCache
from dbern.system.files import read_small
from dbern.system.formatting import (
    and_text,
    counted,
    format_number,
    html_table,
    number_of,
    raise_powers,
    toml_key,
)
from dbern.system.imports import (
    importable,
    imports_told,
    named_function,
    source_digest,
    version,
)
from dbern.system.json_values import dict_of
from dbern.system.limits import address_limit, cpu_count, memory_limit, memory_used
from dbern.system.linear_algebra import one_thread
from dbern.system.progress import Progress, silent
from dbern.system.urls import (
    file_url,
    is_sqlite,
    is_url,
    ledger_file,
    resolve_url,
)

__all__ = [
    "LRUCache",
    "Progress",
    "address_limit",
    "and_text",
    "counted",
    "cpu_count",
    "dict_of",
    "file_url",
    "format_number",
    "html_table",
    "importable",
    "imports_told",
    "is_sqlite",
    "is_url",
    "ledger_file",
    "memory_limit",
    "memory_used",
    "named_function",
    "number_of",
    "one_thread",
    "raise_powers",
    "read_small",
    "resolve_url",
    "silent",
    "source_digest",
    "toml_key",
    "version",
]
