"""``dbern show``, ``verify``, ``query``, ``sign``, ``report``, ``change`` and ``export``."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbern.cli.output import common, parsed
from dbern.cli.progress import shown_progress
from dbern.data.drafts import draft_of
from dbern.errors import EnvironmentRefusedError, printable
from dbern.system import counted

if TYPE_CHECKING:
    from dbern.combination.base import Answer


# --- dbern query, dbern show and dbern verify


def _order(value: str) -> int | str:
    if value == "auto":
        return value
    if not re.fullmatch("0*[1-9][0-9]{0,8}", value):
        raise click.BadParameter('write an integer of at least 1, or "auto"')
    return int(value)


SYNOPSIS = click.argument("synopsis_path", metavar="SYNOPSIS", type=click.Path())


@click.command()
@SYNOPSIS
@click.argument("queries", metavar="QUERIES.parquet", type=click.Path())
@click.option(
    "--out",
    "answers",
    required=True,
    metavar="ANSWERS.parquet",
    type=click.Path(),
    help="Parquet file to write: the columns of QUERIES, in its order, and the values.",
)
@click.option(
    "--once",
    is_flag=True,
    help="End with 0 and change nothing where the answers exist, for schedules that run twice.",
)
@click.option(
    "--h",
    "order",
    callback=parsed(_order),
    metavar="H",
    help='Order of the operator, or "auto"; any choice is free.',
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="SHAPE",
    help="Free post-processing: raw, quiet, nonnegative, normalized, increasing:AXIS or "
    "decreasing:AXIS; may be repeated.",
)
@click.option(
    "--probabilities",
    is_flag=True,
    help='Write the probability of each class, "probability_CLASS", instead of values: of naive '
    "Bayes, and of logistic loss and two classes.",
)
@common
def query(
    synopsis_path: str,
    queries: str,
    answers: str,
    once: bool,
    order: int | str | None,
    shapes: tuple[str, ...],
    probabilities: bool,
    quiet: bool,
) -> tuple[Any, str]:
    """Answer every row of a Parquet file, in its order.

    SYNOPSIS, QUERIES and ANSWERS are paths or s3:// URLs. ANSWERS has all columns of QUERIES, then
    "value", or one "value_CLASS" for each class or group. Values are NaN outside the bounds and
    where a coordinate is missing.
    """
    from dbern.synopsis.reader import open_synopsis
    from dbern.synopsis.tables import answer, published_answers, remove_unfinished

    if once and published_answers(answers):
        remove_unfinished(answers)
        there = {"answers": answers, "already": True, "rows": None}
        return there, f"{answers} is there already"
    synopsis = open_synopsis(synopsis_path)
    if shapes:
        synopsis = synopsis.shaped(*shapes)
    asked: Answer = "probability" if probabilities else "value"
    with shown_progress(quiet) as progress:
        rows = answer(synopsis, queries, answers, h=order, quantity=asked, progress=progress)
    done = synopsis.metadata.get("post_processing", [])
    text = f"answered {counted(rows, 'row')} in {answers}"
    content = {"rows": rows, "answers": answers, "already": False, "post_processing": done}
    return content, f"{text} ({', '.join(done)})" if done else text


@click.command()
@SYNOPSIS
@common
def show(synopsis_path: str, as_json: bool, quiet: bool) -> tuple[Any, str]:
    """Show what was released and under which guarantee, and draw it."""
    from dbern.reporting.pictures import page_picture
    from dbern.reporting.terminal import drawing
    from dbern.reporting.wording import signed_by
    from dbern.synopsis.reader import open_synopsis

    synopsis = open_synopsis(synopsis_path)
    promises = synopsis.promises(page_picture(synopsis).largest)
    signers, text = synopsis.signers, _described(synopsis.metadata, promises.constant)
    moved = max(one.shrunk_distance for one in synopsis.arrays)
    quieter = (
        f"noise that nothing stands out of: values moved by at most {moved:.3g}{promises.unit}"
    )
    text += f"\n{'silenced':<12} {quieter}" if moved else ""
    text += "".join(f"\n{label:<12} {said}" for label, said in promises.lines())
    text += "".join(f"\n{'':<12} {signed_by(one)}" for one in signers or (None,))
    if not (quiet or as_json):
        text += f"\n\n{drawing(synopsis)}"
    told = {key: getattr(promises, key) for key in ("expected", "these_data", "any_database")}
    return {**synopsis.metadata, "signers": list(signers), "promises": told}, text


@click.command()
@SYNOPSIS
@click.option(
    "--trusted",
    multiple=True,
    metavar="PUBLIC.pem",
    type=click.Path(),
    help="A public key of a signer whom you trust. One of the keys named must have signed. May be "
    "repeated.",
)
@common
def verify(synopsis_path: str, trusted: tuple[str, ...]) -> tuple[Any, str]:
    """Check every byte of a synopsis, and who signed it.

    Ends with exit code 5 where a byte differs from the manifest. Without --trusted it lists the
    keys that signed, and cannot tell whose they are.
    """
    from dbern.reporting.wording import signed_by
    from dbern.synopsis.reader import open_synopsis
    from dbern.synopsis.signatures import fingerprint, public_key_of

    synopsis = open_synopsis(synopsis_path)
    count, keys = synopsis.verify(trusted), {fingerprint(public_key_of(path)) for path in trusted}
    known = {one: one in keys if keys else None for one in synopsis.signers}
    signers = [{"fingerprint": one, "trusted": trusts} for one, trusts in known.items()]
    lines = [signed_by(one, trusted=trusts) for one, trusts in known.items()] or [signed_by(None)]
    text = "\n".join([f"{count} objects are as released", *lines])
    return {"objects": count, "ok": True, "signers": signers}, text


def _described(facts: dict[str, Any], constant: str = "") -> str:
    from dbern.certify.error_summary import printed_sum
    from dbern.data.domain import named_with
    from dbern.reporting.wording import parameters_of
    from dbern.synopsis.labels import of_columns

    units = facts.get("units", {})
    axes = "; ".join(
        f"{axis['name']} one of {axis['values']}"
        if "values" in axis
        else f"{named_with(axis['name'], units.get(axis['name'], ''))} in "
        f"[{_bound(axis, 'low')}, {_bound(axis, 'high')}]{_rounded(axis)}"
        for axis in facts["domain"]["axes"]
    )
    kept = facts["domain"].get("filter")
    axes += f"; of rows whose {kept['column']} is one of {kept['values']}" if kept else ""
    guarantee = "RANDOM DP only, " if "random_dp" in facts else ""
    guarantee += f"epsilon {facts['epsilon']}"
    if facts["delta"] != "0":
        guarantee += f", delta {facts['delta']}"
    certificate = facts["certificate"]
    target = ", ".join(f"{key} {value}" for key, value in parameters_of(facts["target"]).items())
    lines: dict[str, str] = {
        "name": f"{facts['name']} ({facts['created']})",
        **{key: facts[key] for key in ("title", "description") if key in facts},
        "function": f"{facts['target']['kind']}{of_columns(facts)}: {target}",
        "over": axes,
        "guarantee": f"{guarantee}, neighbors {facts['neighbors']}, unit {facts['unit']}",
    }
    for one in facts["components"]:
        name = " ".join(one["arrays"])
        entries = one.get("entries")
        lines[name] = counted(len(entries), "number") if entries else f"k {one['k']}, h {one['h']}"
        if "promise" in one:
            whose = " ".join(one["promise"]["of"])
            lines[name] = f"how much {whose} misses of these data"
        lines[name] += f", exact {one['noise']['kind']}"
        lines[name] += f", scale {one['noise']['scale']:.6g}"
    if every := facts["target"].get("chosen_of"):
        narrowest = " x ".join(f"{one:.3g}" for one in every[0])
        lines["bins"] = f"as narrow as bandwidth {narrowest} takes; promises are of the one chosen"
    _, total = printed_sum([certificate[part] for part in ("approximation", "rounding", "noise")])
    lines["certificate"] = f"sup error <= {total} with probability "
    lines["certificate"] += f"{1 - certificate['beta']:g}"
    if constant:
        lines["certificate"] = f"empty: {constant}"
    if "random_dp" in facts:
        lines = {"RANDOM DP": _random(facts["random_dp"]), **lines}
    return "\n".join(f"{printable(label):<12} {printable(text)}" for label, text in lines.items())


def _random(facts: dict[str, Any]) -> str:
    return (
        f"only: the guarantee is for all but gamma {facts['gamma']} of neighbours drawn from "
        f"{facts['distribution']} (distance {facts['order']} of {facts['samples']}, seed "
        f"{facts['seed']}); it is not differential privacy"
    )


def _rounded(axis: dict[str, Any]) -> str:
    from dbern.data.domain import Axis, rounded_text

    text = rounded_text([Axis.from_dict(axis)])
    return text and f", {text}"


def _bound(axis: dict[str, Any], end: str) -> str:
    from dbern.data.times import TimeUnit

    return TimeUnit(axis["unit"]).text(axis[end]) if "unit" in axis else f"{axis[end]:g}"


# --- dbern sign: say whose a synopsis is

PASSPHRASE = "DBERN_SIGNING_PASSPHRASE"  # noqa: S105 -- the variable's name


@click.command()
@SYNOPSIS
@click.option(
    "--key",
    required=True,
    metavar="PRIVATE.pem",
    type=click.Path(),
    help="Ed25519 private key (PKCS #8, PEM), from: openssl genpkey -algorithm ed25519.",
)
@common
def sign(synopsis_path: str, key: str) -> tuple[Any, str]:
    """Sign a synopsis, so that others can tell that it is yours.

    Checks every byte, then writes a signature beside the manifest. Publish the public key: openssl
    pkey -in PRIVATE.pem -pubout. An encrypted key's passphrase is asked for, or read from
    DBERN_SIGNING_PASSPHRASE.
    """
    from dbern.data.storage import location_at
    from dbern.synopsis.signatures import private_key_of
    from dbern.synopsis.store import ReleasedStore

    private = private_key_of(key, _passphrase)
    signer = ReleasedStore(location_at(synopsis_path)).sign(private)
    return {"signer": signer}, f"signed by {signer}"


def _passphrase() -> str:
    given = os.environ.get(PASSPHRASE)
    if given is not None:
        return given
    if not sys.stdin.isatty():
        raise EnvironmentRefusedError(
            f"--key: is encrypted, and there is no terminal to ask for its passphrase. Set "
            f"{PASSPHRASE}"
        )
    return str(click.prompt("passphrase of the key", hide_input=True, err=True))


# --- dbern report and dbern export: what others are told about a release or a budget


@click.command("report")
@click.argument("synopsis_path", metavar="[SYNOPSIS]", required=False, type=click.Path())
@click.option("--ledger", "url", metavar="URL", help="Report on budgets over time instead.")
@click.option("--dataset", metavar="NAME", help="With --ledger: only this one.")
@click.option(
    "--out",
    metavar="FILE.html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write; one that exists is replaced.  [default: SYNOPSIS's name, or budgets.html]",
)
@common
def write_report(
    synopsis_path: str | None, url: str | None, dataset: str | None, out: Path | None
) -> tuple[Any, str]:
    """Write one HTML file about a synopsis or about budgets.

    The file holds everything it shows. It opens offline.
    """
    if (synopsis_path is None) == (url is None):
        raise click.UsageError("write either a SYNOPSIS or --ledger URL")
    if dataset is not None and url is None:
        raise click.UsageError("--dataset: write --ledger URL with it")
    if url is not None:
        from dbern.ledger import BudgetLedger
        from dbern.reporting.budgets import ledger_page

        with BudgetLedger.open(url, read_only=True) as opened:
            accounts, log = opened.status(dataset), opened.log(dataset)
            page = ledger_page(accounts, log, pending=opened.is_pending())
        target = out or Path("budgets.html")
    else:
        from dbern.reporting.html import synopsis_page
        from dbern.synopsis.reader import open_synopsis
        from dbern.system import one_thread

        with one_thread():  # as plans do; so the last bit of a page is the same on every machine
            page = synopsis_page(open_synopsis(str(synopsis_path)))
        target = out or Path(f"{Path(str(synopsis_path)).resolve().stem}.html")
    write_whole(target, page, "--out")
    return {"report": str(target)}, f"wrote {target}"


@click.command("change")
@click.argument("new_path", metavar="NEW", type=click.Path())
@click.argument("old_path", metavar="OLD", type=click.Path())
@click.option(
    "--out",
    default="change.png",
    show_default=True,
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Picture to write, .png, .svg or .pdf; one that exists is replaced.",
)
@click.option(
    "--beta",
    default="0.05",
    show_default=True,
    help="One minus the confidence that all is true that is in colour.",
)
@common
def draw_change(new_path: str, old_path: str, out: Path, beta: str) -> tuple[Any, str]:
    """Draw where two releases surely differ.

    A map of two axes, or a curve of one: NEW less OLD, in colour where the bands of both prove that
    there is more or less, all at once, and pale elsewhere. Both are densities, or regressions, of
    the same axes, bounds and bandwidth.
    """
    from dbern.reporting.changes import ProvenShares, change_picture
    from dbern.reporting.pictures import value_name
    from dbern.synopsis.changes import change_between
    from dbern.synopsis.reader import open_synopsis

    kind = out.suffix[1:]
    if kind not in ("png", "svg", "pdf"):
        raise click.UsageError(f"--out: {out.name} is no picture. Write one such as change.png")
    new = open_synopsis(new_path)
    change = change_between(new, open_synopsis(old_path), beta)
    write_whole(out, change_picture(change, kind, value_name(new)), "--out")
    shares = ProvenShares.of(change)
    content = {"picture": str(out), "beta": beta, "more": shares.more, "less": shares.less}
    return content, f"wrote {out}: {', '.join(shares.labels.values())}"


@click.command()
@SYNOPSIS
@click.option(
    "--out",
    metavar="FILE.yaml",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write; one that exists is replaced.  [default: stdout]",
)
@common
def export(synopsis_path: str, out: Path | None, quiet: bool) -> tuple[Any, str]:
    """Describe a release in the form of the DP deployments registry.

    Fills in what the synopsis holds. Lists the fields that only its publisher can fill in.
    """
    from dbern.reporting.registry import as_yaml, blanks, deployment_of
    from dbern.synopsis.reader import open_synopsis

    content = deployment_of(open_synopsis(synopsis_path).metadata)
    if out is not None:
        write_whole(out, as_yaml(content), "--out")
    if not quiet:
        click.echo(f"fill in: {', '.join(blanks(content))}", err=True)
    return content, as_yaml(content).rstrip() if out is None else f"wrote {out}"


def write_whole(target: Path, content: str | bytes, option: str, mode: int | None = None) -> None:
    """Write the whole file or none of it; its permissions are `mode`, or those of the umask."""
    try:
        with draft_of(target) as draft:
            if mode is not None:
                draft.chmod(mode)
            draft.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise EnvironmentRefusedError(
            f"{option}: {target} cannot be written ({why}). Write a path in a folder that exists "
            "and is writable"
        ) from None
