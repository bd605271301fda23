"""Limits, URLs, imports, progress, caches and texts, which every room may use."""

from dbern.system.imports import (
    Registry,
    importable,
    imported,
    imports_told,
    named_function,
    source_digest,
    version,
)
from dbern.system.machine import (
    LRUCache,
    address_limit,
    cpu_count,
    memory_limit,
    memory_used,
    one_thread,
    read_small,
)
from dbern.system.texts import (
    Progress,
    and_text,
    counted,
    dict_of,
    format_number,
    html_table,
    number_of,
    raise_powers,
    silent,
    toml_key,
)
from dbern.system.urls import (
    file_url,
    is_url,
    ledger_file,
    resolve_url,
)

__all__ = [
    "LRUCache",
    "Progress",
    "Registry",
    "address_limit",
    "and_text",
    "counted",
    "cpu_count",
    "dict_of",
    "file_url",
    "format_number",
    "html_table",
    "importable",
    "imported",
    "imports_told",
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
