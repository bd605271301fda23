"""What a component is, stated once: by plans, by stores and by their readers."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError
from strategies import density_plan, sections

from dbern.bernstein.kernels import kernel_of
from dbern.certify.approximation import Holder, KernelMixture, Linear, Smooth
from dbern.certify.balls import StatedBall
from dbern.errors import IntegrityError, SpecError
from dbern.model.function_classes import read_class, stored_class
from dbern.model.strict import parse_object
from dbern.planning import component_plan
from dbern.planning.component_plan import PlannedComponent, released_component
from dbern.planning.planner import plan_files
from dbern.planning.release_plan import measured_pairs
from dbern.planning.spec import ReleaseSpec
from dbern.run import publish
from dbern.synopsis.metadata import ReleaseMetadata
from dbern.synopsis.stored_arrays import (
    COEFFICIENTS,
    array_paths,
    group_layout,
    map_groups,
    map_layouts,
)

GAUSSIAN = kernel_of("gaussian", 0.2)
SHARED = ("noise", "sensitivity", "certificate")


class Reserved:
    created = dataset = ""


def attributes_of(spec, plan):
    written = publish._attributes(spec, plan, publish._components(spec, plan), Reserved, "")
    return {**written, "release_id": ""}


def refused_because(attributes):
    with pytest.raises(IntegrityError) as refused:
        parse_object(ReleaseMetadata, json.dumps(attributes).encode(), "here", "zarr.json")
    return str(refused.value)


@pytest.fixture(scope="module")
def planned():
    spec = ReleaseSpec(**sections(mechanism={"noise": "binned-laplace"}))
    return spec, plan_files(spec, ())


@pytest.mark.parametrize(
    "approximation",
    [
        Linear(), Holder(1.0, 0.5), Smooth(3, 2.0), KernelMixture((GAUSSIAN, GAUSSIAN)),
        KernelMixture((GAUSSIAN,), gap=0.1), KernelMixture((GAUSSIAN,), choices=3),
        StatedBall(2.0, (4, 4), (2, 1), 3, 0.1),
    ],
    ids=lambda approximation: type(approximation).__name__,
)  # fmt: skip
def test_classes_of_functions_come_back(approximation):
    content = stored_class(approximation).to_json()
    assert read_class(json.loads(json.dumps(content))).restore() == approximation


@pytest.mark.parametrize("change", [{"approximation": [1.0]}, {"approximation": "1"}, {"more": 1}])
def test_what_is_no_planned_component_is_refused(change, planned):
    content = planned[1].to_dict()["components"][0]
    assert PlannedComponent.model_validate_json(json.dumps(content)) == planned[1].components[0]
    with pytest.raises(ValidationError, match=next(iter(change))):
        PlannedComponent.model_validate_json(json.dumps(content | change))


def test_plans_and_stores_state_the_same(planned):
    spec, plan = planned
    stored = attributes_of(spec, plan)["components"]
    for part, content in zip(plan.to_dict()["components"], stored, strict=True):
        assert [content[key] for key in SHARED] == [part[key] for key in SHARED]
        assert (content["k"], content["h"]) == (part["k"], part["h"])
        assert content["errors"]["released"] == part["released_error"]


def test_what_is_written_is_what_its_reader_makes_of_it(planned):
    attributes = attributes_of(*planned)
    read = parse_object(ReleaseMetadata, json.dumps(attributes).encode(), "here", "zarr.json")
    pairs = measured_pairs(planned[0].components, planned[1].components)
    assert read.components == [released_component(*pair) for pair in pairs]
    assert json.dumps(read.components[0].to_json()) == json.dumps(attributes["components"][0])


def test_a_component_without_its_statistic_has_none(planned):
    """It had the first one's domain and weights, silently."""
    spec, plan = planned
    stranger = plan.components[0].model_copy(update={"name": "stranger"})
    with pytest.raises(KeyError, match="stranger"):
        measured_pairs(spec.components, [stranger])


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"entries": ["a"]}, "a vector has no lattice"),
        ({"promise": {"of": ["density"]}}, "tells of the bins beside it"),
        ({"counted_in": []}, "counted_in names an array that is not there"),
    ],
)
def test_a_component_of_parts_that_do_not_fit_is_refused(planned, more, reason):
    attributes = attributes_of(*planned)
    attributes["components"][0] |= more
    assert reason in refused_because(attributes)


def test_axes_may_have_the_names_of_other_dimensions():
    """What has the size of an axis is told by the axis, and not by what it is called."""
    bounds = {name: [0.0, 1.0] for name in ("x", "x_bin", "point")}
    spec = ReleaseSpec(
        **sections(
            data={"bounds": bounds},
            target={"bandwidth": [0.5] * 3},
            mechanism={"k": [4, 5, 6], "noise": "binned-laplace"},
        )
    )
    plan = plan_files(spec, ())
    ((_, part),) = pairs = measured_pairs(spec.components, plan.components)
    component = released_component(*pairs[0])
    ranks = [axis_map.rank for axis_map in part.maps]
    layouts = {**group_layout(component), **map_layouts(component, ranks)}
    assert [*layouts] == array_paths(component)
    assert layouts[COEFFICIENTS].shape == (5, 6, 7)
    assert layouts["binned/released"].shape == tuple(ranks)
    for nodes, rank, group in zip((5, 6, 7), ranks, map_groups(component), strict=True):
        assert layouts[group.paths["synthesis"]].shape == (nodes, rank)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"unit": 1e151}, r"^data\.bounds: their volume, .*in other units"),
        ({"name": "a/b"}, r"^target\.kind: a name .*cannot be stored \(arrays"),
    ],
)
def test_a_plan_of_what_no_reader_takes_is_refused(monkeypatch, change, said):
    """It would be charged and published, and no reader would open it."""

    def changed(statistic, part):
        return released_component(statistic, part.model_copy(update=change))

    monkeypatch.setattr(component_plan, "released_component", changed)
    with pytest.raises(SpecError, match=said):
        density_plan((0.1,), (9,))
