"""Triggers, by which a ledger's database refuses changes and logs by itself, whoever writes to it.

Triggers hold for every client that may not drop them: in PostgreSQL for every role but the owner of
the tables, in SQLite for every statement of whoever can write the file, who can drop them too.

- Grants and terms are never changed, and each grant enters the log.
- The log only grows, by the next number, so that no line can pass for a later one.
- Of a release nothing changes but its state, which goes forward, and what goes with that.
- The ledger's name never changes; any other metadata enter the log when they change.

`dbern.ledger.replay` finds what was changed past them.
"""

# ruff: noqa: S608 -- statements of the names of our own tables and columns

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlalchemy import Connection, Table

from dbern.ledger.entries import LIVE, NEXT, State
from dbern.ledger.tables import TERMS, audit, datasets, grants, meta, releases

_APPEND_ONLY = (datasets, grants, audit)
_CHANGING = ("name", "state", "output", "plan", "seal", "manifest_digest")


def _changed(*columns: str) -> str:
    """Return the SQL condition that a column changes; NULL where all were and are NULL."""
    return " OR ".join(
        f"NEW.{name} <> OLD.{name} OR (NEW.{name} IS NULL) <> (OLD.{name} IS NULL)"
        for name in columns
    )


def _is_among(expression: str, texts: Iterable[str]) -> str:
    return "{} IN ({})".format(expression, ", ".join(f"'{text}'" for text in texts))


def _release_refusal() -> str:
    """Return the SQL condition on which a change of a release is refused."""
    frozen = [column.name for column in releases.columns if column.name not in _CHANGING]
    was_live, is_live = (_is_among(f"{which}.state", LIVE) for which in ("OLD", "NEW"))
    steps = (f"{before} {after}" for before in NEXT for after in NEXT[before])
    step = _is_among("(OLD.state || ' ' || NEW.state)", steps)
    over, suffix = f"{step} AND NOT {is_live}", "'~' || substr(OLD.release_id, 1, 8)"
    allowed = {
        "state": step,
        "name": f"{over} AND NEW.name = OLD.name || {suffix}",  # which another release has now
        "output": was_live,
        "plan": f"{over} AND {was_live}",  # it is abridged
        "seal": f"OLD.state = '{State.READING}' AND NEW.state = '{State.SPENT}'",
        "manifest_digest": f"{step} AND NEW.state = '{State.COMMITTED}'",
    }
    refused = [_changed(*frozen)]
    refused += [f"({_changed(name)}) AND NOT ({allowed[name]})" for name in _CHANGING]
    return " OR ".join(f"({condition})" for condition in refused)


_METADATA_REFUSAL = f"{_changed('key')} OR (OLD.key = 'ledger_id' AND ({_changed('value')}))"
_METADATA_LOGGING = f"OLD.key <> 'schema' AND ({_changed('value')})"
_GRANT = "'epsilon', NEW.epsilon, 'delta', NEW.delta" + "".join(
    f", '{name}', terms.{name}" for name in TERMS
)
_METADATA = "'key', NEW.key, 'was', OLD.value, 'is', NEW.value"
_LINE = "(at, event, dataset, detail)"


def sqlite_triggers() -> Iterator[str]:
    """Yield the statements that create the triggers."""
    for table in (*_APPEND_ONLY, releases, meta):
        yield _refusal_trigger(table, "DELETE")
    for table in _APPEND_ONLY:
        yield _refusal_trigger(table, "UPDATE")
        # REPLACE deletes without a DELETE, unless the connection asked for recursive triggers.
        (key,) = table.primary_key
        yield _refusal_trigger(table, "INSERT", _row_exists(table, f"{key.name} = NEW.{key.name}"))
    yield _refusal_trigger(meta, "INSERT")
    yield _refusal_trigger(meta, "UPDATE", _METADATA_REFUSAL)
    named = "dataset = NEW.dataset AND name = NEW.name"
    named += f" AND '{State.REFUNDED}' NOT IN (state, NEW.state)"
    taken = f"id = NEW.id OR release_id = NEW.release_id OR ({named})"
    yield _refusal_trigger(releases, "INSERT", _row_exists(releases, taken))
    other = _row_exists(releases, f"id <> OLD.id AND {named}")
    yield _refusal_trigger(releases, "UPDATE", f"{_release_refusal()} OR {other}")
    before = "SELECT id FROM audit WHERE id <> NEW.id ORDER BY id DESC LIMIT 1"
    yield (
        "CREATE TRIGGER audit_in_order AFTER INSERT ON audit "
        f"WHEN NEW.id <> 1 + coalesce(({before}), 0) "
        "BEGIN SELECT RAISE(ABORT, 'audit refuses INSERT out of order'); END"
    )
    yield (
        "CREATE TRIGGER grants_logged AFTER INSERT ON grants "
        f"BEGIN INSERT INTO audit {_LINE} SELECT NEW.created, 'grant', NEW.dataset, "
        f"json_object({_GRANT}) FROM (SELECT 1) LEFT JOIN datasets AS terms "
        "ON terms.name = NEW.dataset; END"
    )
    yield (
        f"CREATE TRIGGER meta_logged AFTER UPDATE ON meta WHEN {_METADATA_LOGGING} "
        f"BEGIN INSERT INTO audit {_LINE} VALUES (strftime('%Y-%m-%dT%H:%M:%S+00:00', 'now'), "
        f"'metadata', '', json_object({_METADATA})); END"
    )


def _refusal_trigger(table: Table, change: str, condition: str = "TRUE") -> str:
    return (
        f"CREATE TRIGGER {table.name}_no_{change.lower()} BEFORE {change} ON {table.name} "
        f"WHEN {condition} BEGIN SELECT RAISE(ABORT, '{table.name} refuses {change}'); END"
    )


def _row_exists(table: Table, condition: str) -> str:
    return f"EXISTS (SELECT 1 FROM {table.name} WHERE {condition})"


def postgresql_triggers(connection: Connection) -> Iterator[str]:
    """Yield the statements that create the triggers and their functions."""
    schema = connection.exec_driver_sql("SELECT quote_ident(current_schema())").scalar()
    clock = """to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"+00:00"')"""
    functions = {
        "refuse_change": "RAISE EXCEPTION USING ERRCODE = '23000', "
        "MESSAGE = TG_TABLE_NAME || ' refuses ' || TG_OP;",
        "number_line": f"NEW.id := 1 + coalesce((SELECT max(id) FROM {schema}.audit), 0); "
        "RETURN NEW;",
        "log_grant": f"INSERT INTO {schema}.audit {_LINE} "
        f"SELECT NEW.created, 'grant', NEW.dataset, json_build_object({_GRANT})::text "
        f"FROM {schema}.datasets AS terms WHERE terms.name = NEW.dataset; RETURN NULL;",
        "log_metadata": f"INSERT INTO {schema}.audit {_LINE} "
        f"VALUES ({clock}, 'metadata', '', json_build_object({_METADATA})::text); RETURN NULL;",
    }
    for name, body in functions.items():
        # No schema is searched that a role could put a table or a function of its own into.
        yield (
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql "
            f"SET search_path = pg_catalog, pg_temp AS $$ BEGIN {body} END $$"
        )
    permanent = {
        **dict.fromkeys(_APPEND_ONLY, "UPDATE OR DELETE"),
        releases: "DELETE",
        meta: "INSERT OR DELETE",
    }
    for table, changes in permanent.items():
        yield (
            f"CREATE TRIGGER {table.name}_stay BEFORE {changes} OR TRUNCATE ON {table.name} "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )
    for trigger, condition, function in (
        ("releases_no_update BEFORE UPDATE ON releases", _release_refusal(), "refuse_change"),
        ("meta_no_update BEFORE UPDATE ON meta", _METADATA_REFUSAL, "refuse_change"),
        ("meta_logged AFTER UPDATE ON meta", _METADATA_LOGGING, "log_metadata"),
        ("audit_in_order BEFORE INSERT ON audit", "TRUE", "number_line"),
        ("grants_logged AFTER INSERT ON grants", "TRUE", "log_grant"),
    ):
        yield (
            f"CREATE TRIGGER {trigger} FOR EACH ROW WHEN ({condition}) "
            f"EXECUTE FUNCTION {function}()"
        )
