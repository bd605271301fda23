"""A question about a box, or about each of the regions of a file, as `dbern ask` reads them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from dbern.errors import SpecError
from dbern.synopsis.question_options import QuestionOption
from dbern.synopsis.questions.answers import Answer
from dbern.synopsis.questions.options import read_box
from dbern.synopsis.questions.question import DeferredQuestion, Question, deferred
from dbern.synopsis.questions.region_files import RegionFile, first_refused, region_file
from dbern.synopsis.questions.regions import Region
from dbern.synopsis.questions.released_bins import ReleasedBins


def ask_regions(
    text: str, option: QuestionOption, read: Callable[[Region], Question]
) -> Sequence[DeferredQuestion]:
    """Read a box, or a file of regions, which have equal parts of beta."""
    file = region_file(text)
    if file is None:
        box = read_box(text, option.name)
        return [deferred(lambda: read(box))]
    return [lambda payer, beta: _ask_file(payer, beta, file, read)]


def _ask_file(
    payer: ReleasedBins, beta: Fraction, file: RegionFile, read: Callable[[Region], Question]
) -> Iterator[Answer]:
    total, done = sum(1 for _ in file.rows()), 0
    if not total:
        raise SpecError(f"{file.path}: there is no {file.row} in it. Write one at least")
    regions, batch_size = file.rows(), file.batch_size(payer.measures[0].values.size)
    while rows := list(itertools.islice(regions, batch_size)):
        try:
            region = file.region(rows, payer.domain)
            question = read(region)
            named = region is not rows[0]
            if named:
                question = replace(question, labels={"region": range(len(rows))})
            answer = question.ask(payer, str(beta * len(rows) / total))
        except SpecError as error:
            raise SpecError(f"{first_refused(file, rows, payer.domain, done)}: {error}") from None
        names = [file.name(row) or i for i, row in enumerate(rows, start=done)]
        yield _with_names(answer, names) if named else answer
        done += len(rows)


def _with_names(answer: Answer, names: Sequence[str | int]) -> Answer:
    """Return the answer with names of regions, or their numbers, as coordinates."""
    numbers = {key: getattr(answer, key) for key in ("value", "low", "high", "likely_error")}
    arrays = {
        key: array.assign_coords(region=list(names))
        for key, array in numbers.items()
        if array is not None
    }
    return replace(answer, **arrays)
