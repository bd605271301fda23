"""A guarantee in plain words and in symbols, from the public facts of a release."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

_REPLACED = {
    "replace-one": "is replaced by any other",
    "add-or-remove-one": "is added or removed",
}


@dataclass(frozen=True)
class Guarantee:
    """What a release promises.

    Parameters
    ----------
    name : str
        Of the definition that it keeps.
    epsilon, delta : str
        Exact, as the release states them.
    rho : str or None
        The same promise in zCDP, rounded up to three digits; None where none is proved.
    words : list of str
        Sentences for those who do not read symbols.
    """

    name: str
    epsilon: str
    delta: str
    rho: str | None
    words: list[str]


def guarantee_of(facts: Mapping[str, Any]) -> Guarantee:
    """The guarantee that a synopsis states.

    The second sentence of a pure guarantee is Bayes' rule: odds change by a factor of at most
    ``exp(epsilon)``, so even odds become at most ``exp(epsilon) : 1``.

    Examples
    --------
    >>> facts = {"epsilon": "1", "delta": "0", "rho": "0.5", "neighbors": "replace-one",
    ...          "unit": "row"}
    >>> promise = guarantee_of(facts)
    >>> print(promise.name, promise.rho)
    pure differential privacy 0.5
    >>> "a factor of 2.72" in promise.words[0], "73.2 %" in promise.words[1]
    (True, True)
    """
    epsilon, delta = float(Fraction(facts["epsilon"])), Fraction(facts["delta"])
    factor = _up(math.exp(epsilon)) if epsilon < 300 else f"exp({facts['epsilon']})"
    one = "row" if facts["unit"] == "row" else "unit"
    unit = one if one == "row" else f"unit ({facts['unit']})"
    change = f"one {unit} of the data {_REPLACED.get(facts['neighbors'], facts['neighbors'])}"
    slack = f", plus {facts['delta']}" if delta else ""
    words = [
        f"Whatever is computed from this release, when {change}, no result becomes more probable "
        f"by more than a factor of {factor}{slack}."
    ]
    if not (delta or "random_dp" in facts) and facts["neighbors"] == "replace-one":
        sure = _up(100 / (1 + math.exp(-epsilon)))
        words.append(
            f"Somebody who knows every other {one}, and holds two contents of one {one} for "
            f"equally likely, can be at most {sure} % sure of either after seeing the release."
        )
    words.append(
        "Queries are computed from the release alone: asking more of them reveals nothing more."
    )
    rho = facts.get("rho")
    if "random_dp" in facts:
        missed = facts["random_dp"]["gamma"]
        words.insert(
            0,
            "This is random differential privacy only, which is weaker than differential privacy. "
            f"What follows holds for all but a share of {missed} of the neighbours drawn from an "
            "assumed distribution, and promises nothing to whoever's data is unlike it.",
        )
    return Guarantee(
        "random differential privacy only"
        if "random_dp" in facts
        else "approximate differential privacy"
        if delta
        else "pure differential privacy",
        facts["epsilon"],
        facts["delta"],
        None if rho is None else _up(float(Fraction(rho))),
        words,
    )


def signed_by(fingerprint: str | None, *, trusted: bool | None = None) -> str:
    """Who vouches for a synopsis, and what is known of that key; None: nobody, or nothing.

    Examples
    --------
    >>> signed_by("5f1e", trusted=True), signed_by("5f1e")
    ('signed by 5f1e, a trusted key', 'signed by 5f1e, not checked against a trusted key')
    >>> signed_by(None)
    'unsigned: nothing says whose it is'
    """
    if fingerprint is None:
        return "unsigned: nothing says whose it is"
    if trusted is None:
        return f"signed by {fingerprint}, not checked against a trusted key"
    return f"signed by {fingerprint}, {'a' if trusted else 'not a'} trusted key"


def _up(value: float) -> str:
    """Three digits, rounded up: a promise is not made smaller by rounding.

    Examples
    --------
    >>> _up(2.7182), _up(0.5), _up(73.1059), _up(1234.2), _up(100.0)
    ('2.72', '0.5', '73.2', '1240', '100')
    """
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    count = math.ceil(value / step * (1 - 1e-12))
    return f"{float(f'{count * step:.3g}'):.10g}"
