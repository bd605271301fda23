"""Streams: the nodes that a spec with ``[stream]`` releases, night by night, for one charge.

A node is an ordinary release of the rows of its nights. All nodes of a stream have one plan: its
bins are chosen for what is answered, its noise hides a unit in all nodes that hold it together, and
its sums are over one normalizer. So nodes add, and the charge of the horizon is that of any node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from dbern.data.times import from_text
from dbern.errors import SpecError
from dbern.measure.statistic import Statistic
from dbern.nights.horizon import MOST_NIGHTS, Horizon, StreamNode, day_of
from dbern.nights.windows import best_levels, running_variances
from dbern.planning.sections import DataSection, ReleaseSection, _Whole
from dbern.privacy.budget import Budget, Protection
from dbern.targets.parameters import Section

_Count = Annotated[int, Field(ge=0)]
_PARTITION = "{partition}"


class NodeTable(Section):
    """``[stream.node]``: the nights of one release of a stream.

    `blocks` are the nights of a block at each level above the first.
    """

    stream: str
    first: str
    blocks: list[_Whole]
    level: _Count
    start: _Count
    without: list[_Count]


class StreamSection(Section):
    """``[stream]``: releases night by night, paid together by one charge for the whole horizon."""

    every: Literal["day"] = Field(description='every = "day"')
    horizon: int = Field(ge=1, le=MOST_NIGHTS, description="horizon = 365, in nights")
    levels: Literal["auto"] | list[_Whole] = Field(
        "auto",
        min_length=1,
        description='levels = "auto" or, in nights, levels = [1, 18], each a multiple of the last',
    )
    first: Annotated[date, BeforeValidator(from_text)] | None = Field(
        None, description="first = 2026-01-01; by default the first night that is released"
    )
    max_nights: _Whole = Field(1, description="max_nights = 5, in which a unit has rows at most")
    enforce: bool = Field(
        False, description="enforce = true, to leave out a unit's rows in more than max_nights"
    )
    node: NodeTable | None = Field(None, description="a table that dbern writes: leave it out")


def check_partition(release: ReleaseSection, data: DataSection) -> None:
    """Refuse a stream whose nights share files, or one that is named by a night."""
    if _PARTITION in release.name + release.output:
        raise SpecError(
            "release.name, release.output: are of the stream, whose nodes are named by their "
            "nights. Leave {partition} out of them, and write it into data.source alone"
        )
    if data.source is None or _PARTITION not in data.source:
        raise SpecError(
            "data.source: of a stream says where the rows of a night are. Write source = "
            '"data/{partition}/*.parquet"'
        )


def check_summed(
    stream: StreamSection, protection: Protection, statistics: Sequence[Statistic]
) -> None:
    """Refuse what does not add up over nights, or is not paid by the stream's one charge."""
    node_of(stream)
    if not protection.added:  # the rows that replace others may be of another night
        raise SpecError(
            "stream: sums of all nights are over one number. In [data] write neighbors = "
            '"add-or-remove-one" and normalizer = "100000", about the rows of a night'
        )
    if protection.unit.column is not None and stream.levels != [1]:
        raise SpecError(
            "stream.levels: rows of a unit are bounded night by night, and a block would count "
            "others. Write levels = [1]"
        )
    if protection.unit.column is None and (stream.max_nights > 1 or stream.enforce):
        raise SpecError(
            "stream.max_nights: a row is in one night. Leave it and enforce out, or write "
            'data.unit = { column = "user", max_contributions = 8 }'
        )
    for statistic in statistics:
        if statistic.additive and statistic.chooses:
            raise SpecError(
                "target.bandwidth: a stream needs numbers, which all of its nights share. Write "
                "bandwidth = [0.5, 0.5], one an axis in data units"
            )
        if not statistic.additive:
            raise SpecError(
                f'stream: "{statistic.name}" is no sum over rows that is known before they are '
                "read. Write a kind that is, such as kernel-density"
            )


def horizon_of(stream: StreamSection, first: date, charge: Budget) -> Horizon:
    """Return the horizon from a first night on; "auto" finds the best levels, without data."""
    if stream.levels == "auto":
        levels = best_levels(stream.horizon, partial(noise_factor, charge))
        return Horizon(first, stream.horizon, levels)
    return Horizon(first, stream.horizon, tuple(stream.levels))


def noise_factor(charge: Budget, levels: int) -> float:
    """Return the factor by which levels, that share the charge, enlarge the noise of a node.

    A unit is in one node of each: Laplace noise is proportional to the l1 norm of the values that
    it moves, Gaussian noise to the l2 norm (`dbern.privacy.contract.Sensitivity.repeated`).
    """
    return math.sqrt(levels) if charge.delta else float(levels)


def node_of(stream: StreamSection) -> StreamNode | None:
    """Return the node of a section; None for that of the stream itself."""
    table = stream.node
    if table is None:
        return None
    horizon = Horizon(day_of(table.first), stream.horizon, (1, *table.blocks))
    node = horizon.node(table.level, table.start)
    return StreamNode(table.stream, horizon, node, frozenset(table.without))


def sections_at(node: StreamNode, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections of a stream's spec with those of a node in their place."""
    release = dict(content["release"])
    table = NodeTable(
        stream=node.stream,
        first=str(node.horizon.first),
        blocks=list(node.horizon.levels[1:]),
        level=node.span.level,
        start=node.span.start,
        without=sorted(node.without),
    )
    folder = release["output"].rstrip("/")
    release |= {"name": node.release_name, "output": f"{folder}/{node.store_name}"}
    stream = content["stream"] | {"node": table.model_dump()}
    return {**content, "release": release, "stream": stream}


def stream_identity(identity: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a node's identity that may never change in its stream.

    All but the node: one charge covers its levels, `max_nights` of a unit, enforced or not, and no
    others (`Sensitivity.repeated`).
    """
    node = identity["stream"]["node"]
    stream = {key: value for key, value in identity["stream"].items() if key != "node"}
    stream |= {"levels": [1, *node["blocks"]], "first": node["first"]}
    return identity | {"release": identity["release"] | {"name": node["stream"]}, "stream": stream}


def window_terms(horizon: Horizon, normalizer: int, charge: Budget) -> tuple[int, str]:
    """Return normalizer and epsilon of a release that errs as the total of half a horizon does.

    Bins are chosen for that total: for the rows and the noise of many nights.
    """
    half = max(1, horizon.count // 2)
    variance = float(running_variances(horizon.count, horizon.levels)[half - 1])
    factor = math.sqrt(variance) * noise_factor(charge, len(horizon.levels))
    return half * normalizer, f"{max(1e-6, float(charge.epsilon) / factor):.6g}"
