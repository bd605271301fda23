"""Combinations of released arrays to the released function: a closed list, described in FORMAT.md.

A combination is post-processing. Its error bound follows from those of its parts; where a quotient
makes that impossible for the worst database, the bound is the width of the public range that every
value is cut to.

A kind is a class, in the file of its idea; what depends on a kind is a method or an attribute of
it. A new one is a file, a place in `KINDS` and its row in FORMAT.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbern.combination.base import Combination
from dbern.combination.class_scores import KernelScores
from dbern.combination.functions import Identity, OneVersusRest, Sigmoid, Stack
from dbern.combination.gaussian_scores import GaussianScores
from dbern.combination.responses import (
    LeastSquares,
    Quotient,
    QuotientOfSums,
    Quotients,
    QuotientsOfSums,
    Shifted,
)

KINDS: Mapping[str, type[Combination]] = {
    combination.kind: combination
    for combination in (
        *(Identity, Sigmoid, Stack, OneVersusRest),
        *(Quotient, Quotients, QuotientOfSums, QuotientsOfSums, Shifted, LeastSquares),
        *(KernelScores, GaussianScores),
    )
}
"""Combinations by the kind that is stored."""


def combination_of(content: Mapping[str, Any]) -> Combination:
    """Read what `Combination.to_dict` wrote."""
    parameters = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in content.items()
        if key != "kind"
    }
    return KINDS[content["kind"]](**parameters)
