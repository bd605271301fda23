"""``dbern show`` and ``dbern verify``: what was released, under which guarantee, and unchanged."""

from __future__ import annotations

from typing import Any

import click

from dbern.cli.output import SYNOPSIS, common
from dbern.errors import printable
from dbern.system import counted


@click.command()
@SYNOPSIS
@common
def show(synopsis_path: str, as_json: bool, quiet: bool) -> tuple[Any, str]:
    """Show what was released and under which guarantee, and draw it."""
    from dbern.reporting.pictures import page_picture
    from dbern.reporting.terminal import drawing
    from dbern.reporting.wording import paid_once, stream_of
    from dbern.synopsis.arrays import ReleasedArray
    from dbern.synopsis.opening import open_synopsis, stream_at

    synopsis = open_synopsis(synopsis_path)
    picture = page_picture(synopsis)
    promises = synopsis.promises(picture.largest if picture else None)
    text = _describe(synopsis.metadata, promises.constant)
    lattices = [array for array in synopsis.arrays if isinstance(array, ReleasedArray)]
    moved = max((array.shrunk_distance for array in lattices), default=0.0)
    shrunk = f"where noise is all there is: values moved by at most {moved:.3g}{promises.unit}"
    text += f"\n{'shrunk':<12} {shrunk}" if moved else ""
    if stream := stream_of(synopsis.metadata, stream_at(synopsis_path)):
        text += f"\n{'stream':<12} {paid_once(*stream)}"
    text += "".join(f"\n{label:<12} {promise}" for label, promise in promises.lines())
    if picture and not (quiet or as_json):
        text += f"\n\n{drawing(synopsis)}"
    bounds = {key: getattr(promises, key) for key in ("expected", "these_data", "any_database")}
    return {**synopsis.metadata, "promises": bounds}, text


@click.command()
@SYNOPSIS
@common
def verify(synopsis_path: str) -> tuple[Any, str]:
    """Check every byte of a synopsis.

    Ends with exit code 5 where a byte differs from the manifest. Whose the manifest is, a signature
    of ssh-keygen or cosign says.
    """
    from dbern.synopsis.opening import open_synopsis

    count = open_synopsis(synopsis_path).verify()
    return {"objects": count, "ok": True}, f"{count} objects are as released"


def _describe(metadata: dict[str, Any], constant: str = "") -> str:
    """Write what was released and its guarantee; `constant` says why nothing is certified."""
    from dbern.certify.error_summary import printed_sum
    from dbern.data.domain import named_with
    from dbern.reporting.wording import parameters_of
    from dbern.synopsis.labels import of_columns

    units = metadata.get("units", {})
    axes = "; ".join(
        f"{axis['name']} one of {axis['values']}"
        if "values" in axis
        else f"{named_with(axis['name'], units.get(axis['name'], ''))} in "
        f"[{_bound_text(axis, 'low')}, {_bound_text(axis, 'high')}]{_rounding_text(axis)}"
        for axis in metadata["domain"]["axes"]
    )
    row_filter = metadata["domain"].get("filter")
    if row_filter:
        axes += f"; of rows whose {row_filter['column']} is one of {row_filter['values']}"
    guarantee = "RANDOM DP only, " if "random_dp" in metadata else ""
    guarantee += f"epsilon {metadata['epsilon']}"
    if metadata["delta"] != "0":
        guarantee += f", delta {metadata['delta']}"
    certificate = metadata["certificate"]
    target = ", ".join(f"{key} {value}" for key, value in parameters_of(metadata["target"]).items())
    lines: dict[str, str] = {
        "name": f"{metadata['name']} ({metadata['created']})",
        **{key: metadata[key] for key in ("title", "description") if key in metadata},
        "function": f"{metadata['target']['kind']}{of_columns(metadata)}: {target}",
        "over": axes,
        "guarantee": f"{guarantee}, neighbors {metadata['neighbors']}, unit {metadata['unit']}",
    }
    for component in metadata["components"]:
        name = " ".join(component["arrays"])
        lines[name] = _component_text(component)
    if candidates := metadata["target"].get("chosen_of"):
        narrowest = " x ".join(f"{width:.3g}" for width in candidates[0])
        lines["bins"] = f"as narrow as bandwidth {narrowest} takes; promises are of the one chosen"
    _, total = printed_sum([certificate[term] for term in ("approximation", "rounding", "noise")])
    lines["certificate"] = f"sup error <= {total} with probability "
    lines["certificate"] += f"{1 - certificate['beta']:g}"
    if constant:
        lines["certificate"] = f"empty: {constant}"
    if "random_dp" in metadata:
        lines = {"RANDOM DP": _random_dp_text(metadata["random_dp"]), **lines}
    return "\n".join(f"{printable(label):<12} {printable(text)}" for label, text in lines.items())


def _component_text(component: dict[str, Any]) -> str:
    noise = component["noise"]
    if "promise" in component:
        text = f"how much {' '.join(component['promise']['of'])} misses of these data"
    elif value_names := component.get("entries"):
        text = counted(len(value_names), "number")
    else:
        text = f"k {component['k']}, h {component['h']}"
    return f"{text}, exact {noise['kind']}, scale {noise['scale']:.6g}"


def _random_dp_text(random_dp: dict[str, Any]) -> str:
    return (
        f"only: the guarantee is for all but gamma {random_dp['gamma']} of neighbours drawn from "
        f"{random_dp['distribution']} (distance {random_dp['order']} of {random_dp['samples']}, "
        f"seed {random_dp['seed']}); it is not differential privacy"
    )


def _rounding_text(axis: dict[str, Any]) -> str:
    from dbern.data.domain import Axis, rounded_text

    text = rounded_text([Axis.from_dict(axis)])
    return text and f", {text}"


def _bound_text(axis: dict[str, Any], side: str) -> str:
    from dbern.data.times import TimeUnit

    return TimeUnit(axis["unit"]).text(axis[side]) if "unit" in axis else f"{axis[side]:g}"
