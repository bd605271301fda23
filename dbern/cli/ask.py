"""``dbern ask`` and ``dbern query``: answers with intervals, and values for every row of a file."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from dbern.ask import options as question_options
from dbern.cli.output import DETAILS, SYNOPSIS, check_stdout, common, parse_with, show_progress
from dbern.errors import printable
from dbern.system import counted

if TYPE_CHECKING:
    import pandas as pd

    from dbern.ask.answer import Answer, Target
    from dbern.synopsis.tables import Quantity


_VALUES = ("value", "low", "high")
_COLUMNS = ("question", "region", "group", "quantile", "place", *_VALUES)


class _AskCommand(click.Command):
    """Command with an option for each question; a question's module is imported at its use."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the synopsis, then the questions, then all other options."""
        questions = list[click.Parameter]()
        for option in question_options.OPTIONS:
            if option.metavar is None:
                usage: dict[str, Any] = {"is_flag": True}
            else:
                usage = {"multiple": True, "metavar": option.metavar}
            questions.append(click.Option([f"--{option.name}"], help=option.help, **usage))
        synopsis, *options = super().get_params(ctx)
        return [synopsis, *questions, *options]


@click.command(cls=_AskCommand)
@SYNOPSIS
@click.option(
    "--given", "condition", metavar="BOX", help="Only of the rows in a box, of other axes."
)
@click.option(
    "--with",
    "compared_path",
    metavar="OTHER",
    type=click.Path(),
    help="The release to --compare with.",
)
@click.option(
    "--target",
    type=click.Choice(["records", "smoothed"]),
    default="records",
    show_default=True,
    help="What shares, counts, quantiles and means of responses are about: the rows themselves, or "
    "the released density, in which each row is a kernel: narrower at sharp edges, but no share of "
    "rows.",
)
@click.option(
    "--beta",
    default="0.05",
    show_default=True,
    help="One minus the confidence of all answers at once.",
)
@DETAILS
@click.option("--csv", "as_csv", is_flag=True, help="Print one line an answer, as they are found.")
@common
def ask(
    synopsis_path: str,
    condition: str | None,
    compared_path: str | None,
    target: Target,
    beta: str,
    details: bool,
    as_csv: bool,
    as_json: bool,
    **texts: Any,
) -> tuple[Any, str] | None:
    """Ask what the rows are like: shares, quantiles, densities.

    Each answer has an interval. All of them hold at once with probability 1 - beta, for the rows
    that were released; nothing is read but the synopsis, as often as you like.
    """
    if as_csv and as_json:
        raise click.UsageError("write either --csv or --json")
    from dbern.ask.points import read_beta
    from dbern.ask.question import CommonOptions, load_question
    from dbern.synopsis.opening import open_synopsis

    synopsis = open_synopsis(synopsis_path)
    distribution = synopsis.distribution()
    compared = None if compared_path is None else open_synopsis(compared_path).distribution()
    box = None if condition is None else question_options.read_box(condition, "given")
    options = CommonOptions(box, target, compared)
    queries = [
        query
        for option in question_options.OPTIONS
        for text in _option_texts(texts[option.name])
        for query in load_question(option).from_text(text, distribution, options)
    ]
    if not queries:
        *names, last = [f"--{option.name}" for option in question_options.OPTIONS]
        raise click.UsageError(f"write at least one of {', '.join(names)} and {last}")
    if compared and not texts["compare"]:
        raise click.UsageError("--with: is the other release of --compare. Write both, or neither")
    probability = read_beta(beta)
    with distribution.confidence(beta) as simultaneous:
        iterator = itertools.chain.from_iterable(
            query(simultaneous, probability / len(queries)) for query in queries
        )
        if as_csv:
            _print_csv(iterator)
            return None
        answers = list(iterator)
    if as_json:  # its tables import pandas
        return {"beta": beta, "questions": [_content(answer) for answer in answers]}, ""
    lines = _lines(answers, f"{float(100 * (1 - probability)):.6g} % sure", details=details)
    if "@" in synopsis.url and "@" not in synopsis_path:  # a stream's latest total
        lines = [f"nights {synopsis.url.rpartition('@')[2].replace('..', ' to ')}:", *lines]
    return {}, "\n".join(lines)


def _lines(answers: Sequence[Answer], confidence: str, *, details: bool) -> list[str]:
    """Write answers, then the joint confidence of several, and where to read why they are wide."""
    from dbern.ask.answer import CELLS

    several, lines = len(answers) > 1, list[str]()
    for answer in answers:
        lines.append(answer.text(confidence=not several))
        rows = answer.note.rpartition("; ")[2]  # a comparison's count of rows with a value
        note = answer.note if details else rows * rows.endswith("had a value")
        lines += [f"  {note}"] if note else []
    closing = [f"All {len(answers)} hold at once, {confidence}."] * several
    if not details and any(CELLS in answer.note for answer in answers):
        closing.append("Why wide, and what helps: --details")
    return [*lines, " ".join(closing)] if closing else lines


def _option_texts(value: bool | tuple[str, ...]) -> tuple[str, ...]:
    """Return what is written after each use of an option, "" after a flag."""
    return value if isinstance(value, tuple) else ("",) * value


def _content(answer: Answer) -> dict[str, Any]:
    fields = {key: getattr(answer, key) for key in ("question", "target", "interval", "note")}
    return fields | {"answers": _table(answer).drop(columns="question").to_dict("records")}


def _print_csv(answers: Iterator[Answer]) -> None:
    for index, answer in enumerate(answers):
        table = _table(answer)
        axis_columns = [name for name in table if name not in (*_COLUMNS, "point")]
        table = table.rename(columns=dict.fromkeys(axis_columns, "place")).reindex(columns=_COLUMNS)
        with check_stdout():
            table.map(_csv_cell).to_csv(sys.stdout, index=False, header=index == 0)
            sys.stdout.flush()


def _csv_cell(value: Any) -> Any:
    """Escape characters that a terminal would obey, and quote texts that a spreadsheet computes."""
    if not isinstance(value, str):
        return value
    return ("'" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else "") + printable(value)


def _table(answer: Answer) -> pd.DataFrame:
    labelled = answer.to_dataset().expand_dims("answer")
    table = labelled.to_dataframe().reset_index().drop(columns="answer")
    for name in table.select_dtypes("datetime"):
        table[name] = table[name].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    if answer.unit:
        table = table.assign(**{end: table[end].map(answer.unit.text) for end in _VALUES})
    table.insert(0, "question", answer.question)
    return table


def _read_order(value: str) -> int | str:
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
    callback=parse_with(_read_order),
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
        content = {"answers": answers, "already": True, "rows": None}
        return content, f"{answers} is there already"
    synopsis = open_synopsis(synopsis_path)
    if shapes:
        synopsis = synopsis.shaped(*shapes)
    quantity: Quantity = "probability" if probabilities else "interval" if interval else "value"
    with show_progress(quiet) as progress:
        counts = answer(synopsis, queries, answers, h=order, quantity=quantity, progress=progress)
    steps = synopsis.metadata.get("post_processing", [])
    text = f"answered {counted(counts.rows, 'row')} in {answers}"
    text += f" ({', '.join(steps)})" if steps else ""
    content = {"rows": counts.rows, "answers": answers, "already": False, "post_processing": steps}
    content |= {"outside": counts.outside, "empty": counts.empty}
    return content, "\n".join(filter(None, [text, str(counts)]))
