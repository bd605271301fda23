"""Words of a release's guarantee and of its parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dbern.nights.stream import StreamIndex


REPORT_HINT = (
    "reports need bokeh, jinja2 and matplotlib. Install them with: pip install 'dbern[report]'"
)
_REPLACED = {"replace-one": "is replaced by any other", "add-or-remove-one": "is added or removed"}


@dataclass(frozen=True)
class Guarantee:
    """Promise of a release, under the name of its definition, and in words without symbols."""

    name: str
    epsilon: str  # exact, as delta
    delta: str
    rho: str | None  # of zCDP, rounded up to three digits; None where none is proved
    words: list[str]


def guarantee_of(metadata: Mapping[str, Any]) -> Guarantee:
    """Return the guarantee that a synopsis states.

    The second sentence of a pure guarantee is Bayes' rule: odds change by a factor of at most
    ``exp(epsilon)``, so even odds become at most ``exp(epsilon) : 1``.
    """
    epsilon, delta = float(Fraction(metadata["epsilon"])), Fraction(metadata["delta"])
    factor = _up(math.exp(epsilon)) if epsilon < 300 else f"exp({metadata['epsilon']})"
    noun = "row" if metadata["unit"] == "row" else "unit"
    privacy_unit = noun if noun == "row" else f"unit ({metadata['unit']})"
    neighbors = metadata["neighbors"]
    change = f"one {privacy_unit} of the data {_REPLACED.get(neighbors, neighbors)}"
    slack = f", plus {metadata['delta']}" if delta else ""
    words = [
        f"Whatever is computed from this release, when {change}, no result becomes more probable "
        f"by more than a factor of {factor}{slack}."
    ]
    if not delta and metadata["neighbors"] == "replace-one":
        certainty = _up(100 / (1 + math.exp(-epsilon)))
        words.append(
            f"Somebody who knows every other {noun}, and thinks two contents of one {noun} "
            f"equally likely, can be at most {certainty} % sure of either after seeing the release."
        )
    words.append(
        "Queries are computed from the release alone: asking more of them reveals nothing more."
    )
    rho = metadata.get("rho")
    name = f"{'approximate' if delta else 'pure'} differential privacy"
    rounded = None if rho is None else _up(float(Fraction(rho)))
    return Guarantee(name, metadata["epsilon"], metadata["delta"], rounded, words)


def stream_of(metadata: Mapping[str, Any], stream: StreamIndex | None) -> tuple[str, int] | None:
    """The name of the stream that a release is part of, and its number of nights."""
    if stream is not None:
        return stream.name, stream.horizon
    if "stream" in metadata:
        return metadata["stream"]["name"], metadata["stream"]["horizon"]
    return None


def paid_once(name: str, nights: int) -> str:
    """Say that the nights of a stream were paid together."""
    return f"part of {name}, whose {nights} nights were paid once: the guarantee is of all of them"


def _up(value: float) -> str:
    """Round up to three digits: a promise is not made smaller by rounding."""
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    count = math.ceil(value / step * (1 - 1e-12))
    return f"{float(f'{count * step:.3g}'):.10g}"


def parameters_of(target: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a released target, a long list of candidates in few words."""
    parameters = {key: value for key, value in target.items() if key != "kind"}
    if candidates := parameters.get("chosen_of"):
        first, last = (" x ".join(f"{width:.3g}" for width in candidates[at]) for at in (0, -1))
        text = f"{len(candidates)} bandwidths, {first} to {last}, by the released numbers"
        parameters["chosen_of"] = text
    return parameters
