"""``dbern query``: values for every row of a Parquet file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from dbern.cli.output import SYNOPSIS, common, parsed
from dbern.cli.progress import shown_progress
from dbern.system import counted

if TYPE_CHECKING:
    from dbern.synopsis.tables import Quantity


def _order(value: str) -> int | str:
    if value == "auto":
        return value
    if not re.fullmatch("0*[1-9][0-9]{0,8}", value):
        raise click.BadParameter('write an integer of at least 1, or "auto"')
    return int(value)


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
    help="Free post-processing: nonnegative or normalized; may be repeated.",
)
@click.option(
    "--probabilities",
    is_flag=True,
    help='Write the probability of each class, "probability_CLASS", instead of values: of naive '
    "Bayes, and of logistic loss and two classes.",
)
@click.option(
    "--interval",
    is_flag=True,
    help='Write the ends of the band of all points at once after each value, "low" and "high": '
    "the non-private function lies in it with probability 0.95.",
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
    interval: bool,
    quiet: bool,
) -> tuple[Any, str]:
    """Answer every row of a Parquet file, in its order.

    SYNOPSIS, QUERIES and ANSWERS are paths or s3:// URLs. ANSWERS has all columns of QUERIES, then
    "value", or one "value_CLASS" for each class or group. Values are NaN outside the bounds, where
    a coordinate is missing and, of a kernel regression, where there are no rows, or so few that
    noise hides them. A last line counts them.
    """
    from dbern.synopsis.opening import open_synopsis
    from dbern.synopsis.tables import answer, published_answers, remove_unfinished

    if probabilities and interval:
        raise click.UsageError("--interval: is of values. Leave out --probabilities")
    if once and published_answers(answers):
        remove_unfinished(answers)
        there = {"answers": answers, "already": True, "rows": None}
        return there, f"{answers} is there already"
    synopsis = open_synopsis(synopsis_path)
    if shapes:
        synopsis = synopsis.shaped(*shapes)
    quantity: Quantity = "probability" if probabilities else "interval" if interval else "value"
    with shown_progress(quiet) as progress:
        counts = answer(synopsis, queries, answers, h=order, quantity=quantity, progress=progress)
    done = synopsis.metadata.get("post_processing", [])
    text = f"answered {counted(counts.rows, 'row')} in {answers}"
    text += f" ({', '.join(done)})" if done else ""
    content = {"rows": counts.rows, "answers": answers, "already": False, "post_processing": done}
    content |= {"outside": counts.outside, "empty": counts.empty}
    return content, "\n".join(filter(None, [text, str(counts)]))
