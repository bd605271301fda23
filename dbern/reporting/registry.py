"""A release in the form of the public registry of differential privacy deployments.

Names and listed values are those of the registry's own template (the OpenDP project's
``deployments-registry-data``, ``tests/good_deployments/template.yaml``, read in 2026). One unit is
what neighbouring databases differ in, which is how ``number_of_privacy_units`` is understood here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import yaml

from dbern.certify.error_summary import upward
from dbern.combination import combination_of
from dbern.data.domain import Axis
from dbern.errors import SpecError
from dbern.percentages import percent
from dbern.reporting.wording import guarantee_of, paid_once, parameters_of, range_text


def deployment_of(
    metadata: Mapping[str, Any], constant: str, stream: tuple[str, int] | None = None
) -> dict[str, Any]:
    """Make a registry record from a synopsis's metadata; empty where only the publisher knows.

    `constant` promises as much as the release does; it is empty where that promises more. Of part
    of a `stream`, of that name and so many nights, the record is the whole stream's.

    Raises SpecError for a release that is not differentially private.
    """
    if "random_dp" in metadata:
        raise SpecError(
            "export: random differential privacy is not a variant that the registry has. Release "
            "with a proved sensitivity"
        )
    pure = Fraction(metadata["delta"]) == 0
    stated = ("epsilon",) if pure else ("epsilon", "delta")
    name = stream[0] if stream else metadata["name"]
    summary = combination_of(metadata["combine"]).meaning(metadata["target"]) == "density"
    return {
        "url_slug": _slug(name),
        "deployment": {
            "basic": {
                "name": name,
                "data_curators": [{"data_curator_name": "", "data_curator_type": ""}],
                "description": _description(metadata, constant),
                "intended_use": "",
                "data_product_type": "Summary statistics" if summary else "Machine learning model",
                "data_product_region": "",
                "data_product_sector": "",
                "publication_date": metadata["created"][:10],
            },
            "dp_variant": {
                "variant_name": "Pure DP" if pure else "Approximate DP",
                "data_domain": _domain(metadata),
                "unprotected_quantities": _unprotected(metadata),
            },
            "privacy_loss": {
                "privacy_unit": "Row-level" if metadata["unit"] == "row" else metadata["unit"],
                "privacy_unit_details": f"Neighbouring databases: {metadata['neighbors']}, "
                f"unit {metadata['unit']}.",
                "number_of_privacy_units": 1,
                "privacy_parameters": {
                    key: _written_above(Fraction(metadata[key])) for key in stated
                },
                "privacy_parameters_details": " ".join(guarantee_of(metadata).words),
            },
            "deployment_model": _model(stream),
            "implementation": _implementation(metadata, constant),
            "administrative": {
                "evidence_sources": {},
                "status": "Draft",
                "registry_authors": [""],
                "tier": 3,
            },
        },
    }


def blanks(record: Any) -> list[str]:
    """Return the paths at which a record is still empty."""
    return list(dict.fromkeys(_empty(record, "")))


def _empty(record: Any, path: str) -> Iterator[str]:
    match record:
        case "" | [] | {} if not record:
            yield path
        case dict():
            for key, value in record.items():
                yield from _empty(value, f"{path}/{key}" if path else key)
        case list():
            for value in record:
                yield from _empty(value, path)


def as_yaml(record: Mapping[str, Any]) -> str:
    """Return the text of a file for the registry."""
    return str(yaml.safe_dump(dict(record), sort_keys=False, allow_unicode=True, width=100))


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _axes(metadata: Mapping[str, Any]) -> str:
    axes = [Axis.from_dict(axis) for axis in metadata["domain"]["axes"]]
    return ", ".join(f"{axis.name} {range_text(axis)}" for axis in axes)


def _domain(metadata: Mapping[str, Any]) -> str:
    domain = metadata["domain"]
    fate = "moved to the bounds." if domain["outside"] == "clamp" else "dropped."
    counted = ""
    if passing := domain.get("filter"):
        counted = f" Of rows whose {passing['column']} is one of {passing['values']}."
    return f"Tables of rows with {_axes(metadata)}; other values are {fate}{counted}"


def _description(metadata: Mapping[str, Any], constant: str) -> str:
    certificate = metadata["certificate"]
    promised = (
        f"With probability {1 - certificate['beta']:g} every value is within "
        f"{upward(certificate['total'])} of the non-private function."
    )
    return (
        f"A function ({metadata['target']['kind']}) over {_axes(metadata)}, released once as "
        f"coefficients and queried without limit. {_nothing(constant) if constant else promised}"
    )


def _nothing(constant: str) -> str:
    return f"No error is promised for every database: {constant}."


def _unprotected(metadata: Mapping[str, Any]) -> str:
    chosen = parameters_of(metadata["target"])
    free = chosen.pop("chosen_of", None)  # then the bandwidth is no choice made before
    after = f" Bandwidth {chosen.pop('bandwidth')} was chosen of {free}." if free else ""
    parameters = "; ".join(f"{key} {value}" for key, value in chosen.items() if key != "n")
    rows = metadata["target"].get("n")
    filter_text = ", the filter" if "filter" in metadata["domain"] else ""
    counted = f"The number of rows, {rows}, is published. " if rows else ""
    return (
        f"{counted}Public choices, made without looking at the data: the bounds{filter_text}; "
        f"{parameters}.{after}"
    )


def _model(stream: tuple[str, int] | None) -> dict[str, str]:
    return {
        "model_name": "Central",
        "model_name_details": "The curator's hosts read the records and add the noise once.",
        "trust_assumptions": "The curator, and the hosts that read the records, are trusted. "
        "Whoever has the release may know everything but one unit's data, and cannot break AES.",
        "actors": "The curator; whoever receives or queries the release, who needs no trust.",
        "release_type": "Many releases" if stream else "One release",
        "release_type_details": paid_once(*stream) if stream else "",
        "data_source_type": "Static",
        "data_source_type_details": "",
        "access_type": "Non-interactive",
        "access_type_details": "Queries are evaluated from the released coefficients.",
    }


def _implementation(metadata: Mapping[str, Any], constant: str) -> dict[str, str]:
    certificate = metadata["certificate"]
    certified = (
        f"Certified beforehand: error at most {upward(certificate['total'])} with "
        f"probability {1 - certificate['beta']:g}."
    )
    laws = "; ".join(
        f"{', '.join(component['arrays'])}: exact {component['noise']['kind']} noise of scale "
        f"{component['noise']['scale']:.6g}, with "
        f"{percent(float(Fraction(component['share'])))} of the budget"
        for component in metadata["components"]
    )
    derived = "; ".join(
        line
        for component in metadata["components"]
        for line in component["sensitivity"]["derivation"]
    )
    return {
        "preprocessing_and_hyperparameter_tuning": "Degree, order and noise were fixed by public "
        "facts alone, before any record was read.",
        "mechanisms": f"The Bernstein mechanism (Aldà & Rubinstein, AAAI 2017) by dbern "
        f"{metadata['dbern_version']}. {laws}. Noise is drawn by integer arithmetic from a keyed "
        "AES-256-CTR stream and added to integers; whatever floating point computes before has a "
        f"proved bound, which the sensitivity includes. Sensitivity: {derived}.",
        "composition": "The parts' budgets add up to the stated one; a ledger charges the dataset "
        "before the noise is drawn.",
        "post_processing": "Evaluation of the released polynomial, at any order.",
        "justification": "",
        "utility": _nothing(constant) if constant else certified,
        "additional_information": f"Release {metadata['release_id']}.",
    }


def _written_above(value: Fraction) -> float:
    """Return the nearest float whose digits, as a record writes them, are not below the value."""
    nearest = float(value)
    return nearest if Fraction(repr(nearest)) >= value else math.nextafter(nearest, math.inf)
