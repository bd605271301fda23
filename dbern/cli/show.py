"""``dbern show`` and ``dbern verify``: what was released, under which guarantee, and unchanged."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from dbern.cli.output import DETAILS, MORE, SYNOPSIS, common
from dbern.errors import SpecError, printable
from dbern.system import counted, format_number

if TYPE_CHECKING:
    from dbern.certify.error_summary import ErrorSummary
    from dbern.synopsis.reader import Synopsis


@click.command()
@SYNOPSIS
@DETAILS
@common
def show(synopsis_path: str, details: bool, as_json: bool, quiet: bool) -> tuple[Any, str]:
    """Show what was released and under which guarantee, and draw it."""
    from dbern.report.pictures import page_picture
    from dbern.report.terminal import drawing
    from dbern.report.wording import paid_once, stream_of
    from dbern.synopsis.opening import open_synopsis, stream_at

    synopsis = open_synopsis(synopsis_path)
    picture = page_picture(synopsis)
    promises = synopsis.promises(picture.largest if picture else None)
    stream = stream_of(synopsis.metadata, stream_at(synopsis_path))
    if details:
        text = _details(synopsis, promises)
    else:
        lines = _summary(synopsis, promises, synopsis_path)
        text = "\n".join(f"{printable(label):<10}{printable(line)}" for label, line in lines)
    text += f"\n{'stream':<{13 if details else 10}}{paid_once(*stream)}" if stream else ""
    if synopsis.combination.linear_response:
        text += f"\n\n{synopsis.regression()}"
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


def _summary(synopsis: Synopsis, promises: ErrorSummary, path: str) -> list[tuple[str, str]]:
    """Return labels and texts of the summary; the first label is the release's name."""
    from dbern.ask.labels import change_text, function_title
    from dbern.certify.error_summary import upward
    from dbern.privacy.budget import Neighbors, PrivacyUnit, Protection

    metadata = synopsis.metadata
    title = function_title(synopsis.combination, synopsis.domain, metadata)
    rows = metadata["target"].get("n")
    rows = f", from {format_number(rows)} rows" if rows else ""
    protection = Protection(Neighbors(metadata["neighbors"]), PrivacyUnit.shown(metadata["unit"]))
    error = promises.no_promise
    if not promises.headline_constant:
        error = f"nowhere more than {upward(promises.headline, 2)}{promises.unit}"
        error += f", {promises.confidence}"
        if promises.largest and synopsis.meaning == "density":
            error += f"; largest value drawn {promises.largest:.3g}"
            if promises.headline >= promises.largest:
                error += ": it may be noise. Release with a wider bandwidth or a larger epsilon"
    return [
        (f"{metadata['name']}: ", f"{title}{rows}, {metadata['created'][:10]}"),
        ("protects", f"{change_text(protection)}: {synopsis.guarantee}"),
        ("error", error),
        ("ask it", f"as often as you like, free: {_example(synopsis, path)}"),
        ("check", f"dbern verify {shlex.quote(path)}{MORE}"),
    ]


def _example(synopsis: Synopsis, path: str) -> str:
    """Write a command that this release answers: the share in the middle of the axes of numbers."""
    axes = synopsis.domain.numeric
    try:
        response = synopsis.distribution().response
    except SpecError:  # it counts no rows in boxes
        axes, response = (), None
    if not axes:
        return f"dbern query {shlex.quote(path)} POINTS --out ANSWERS"
    if response:
        return f"dbern ask {shlex.quote(path)} --curve {shlex.quote(axes[0].name)}"
    ends = []
    for axis in axes:  # of what it counts in, so that nothing is rounded
        step = axis.resolution or 0.2 * axis.width
        steps = (round(part * axis.width / step) for part in (0.4, 0.6))
        ends.append([axis.low + count * step for count in steps])
    box = ",".join(
        f"{axis.name}={'..'.join(map(axis.plain_text, pair))}"
        for axis, pair in zip(axes, ends, strict=True)
    )
    return f"dbern ask {shlex.quote(path)} --mass {shlex.quote(box)}"


def _details(synopsis: Synopsis, promises: ErrorSummary) -> str:
    from dbern.synopsis.released import ReleasedArray

    text = _describe(synopsis.metadata, promises.constant)
    lattices = [array for array in synopsis.arrays if isinstance(array, ReleasedArray)]
    moved = max((array.shrunk_distance for array in lattices), default=0.0)
    shrunk = f"where noise is all there is: values moved by at most {moved:.3g}{promises.unit}"
    text += f"\n{'shrunk':<12} {shrunk}" if moved else ""
    return text + "".join(f"\n{label:<12} {promise}" for label, promise in promises.lines())


def _describe(metadata: dict[str, Any], constant: str = "") -> str:
    """Write what was released and its guarantee; `constant` says why nothing is certified."""
    from dbern.ask.labels import of_columns
    from dbern.certify.error_summary import printed_sum
    from dbern.data.domain import named_with
    from dbern.report.wording import parameters_of

    units = metadata.get("units", {})
    axes = "; ".join(
        f"{axis['name']} one of {axis['values']}"
        if "values" in axis
        else f"{named_with(axis['name'], units.get(axis['name'], ''))} in {_range_text(axis)}"
        for axis in metadata["domain"]["axes"]
    )
    row_filter = metadata["domain"].get("filter")
    if row_filter:
        axes += f"; of rows whose {row_filter['column']} is one of {row_filter['values']}"
    guarantee = f"epsilon {metadata['epsilon']}"
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
    return "\n".join(f"{printable(label):<12} {printable(text)}" for label, text in lines.items())


def _component_text(component: dict[str, Any]) -> str:
    noise = component["noise"]
    if value_names := component.get("entries"):
        text = counted(len(value_names), "number")
    else:
        text = f"k {component['k']}, h {component['h']}"
    return f"{text}, exact {noise['kind']}, scale {noise['scale']:.6g}"


def _range_text(content: dict[str, Any]) -> str:
    from dbern.data.domain import Axis, rounded_text

    axis = Axis.from_dict(content)
    rounded = rounded_text([axis])
    text = f"[{axis.plain_text(axis.low)}, {axis.plain_text(axis.high)}]"
    return f"{text}, {rounded}" if rounded else text
