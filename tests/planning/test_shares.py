"""A learner of another package that would spend more than its charge is refused everywhere."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import ClassVar

import pytest

import dbern
from dbern.combination.base import ReleasedShapes
from dbern.combination.responses import Quotient
from dbern.data.domain import Axis, Column, Domain
from dbern.errors import SpecError
from dbern.measure.kernel_sums import KernelSum
from dbern.measure.record_weights import ByCategory, SignWeight
from dbern.measure.statistic import require_counted
from dbern.planning.planner import plan_files
from dbern.privacy.contract import require_one_charge
from dbern.targets import Learner, Lengths, axis_kernels

HALF = Fraction(1, 2)


def learner(*parts):
    """A learner whose components have these names and, where one is given, shares."""

    class Several(Learner):
        """Sums of all records."""

        kind: ClassVar[str] = "several"
        bandwidth: Lengths = (0.5, 0.5)

        def components(self, schema):
            kernels = axis_kernels(schema.domain, self.bandwidth, "bandwidth", "gaussian")
            given = (dict(zip(("name", "output_fraction"), part, strict=False)) for part in parts)
            return tuple(KernelSum(domain=schema.domain, kernels=kernels, **one) for one in given)

    return Several


@pytest.fixture
def several(monkeypatch):
    def known(*parts):
        monkeypatch.setattr("dbern.planning.rules.learner_of", lambda kind: learner(*parts))

    return known


REFUSED = [
    ([("one",), ("two",)], "add up to 2 of the budget"),
    ([("one", HALF), ("two", HALF), ("three", Fraction(1, 10**30))], "more than 1"),
    ([("one", Fraction(0)), ("two", HALF)], '"one" the fraction'),
    ([("one", Fraction(-1, 2)), ("two", HALF)], '"one" the fraction'),
    ([("one", Fraction(3, 2))], '"one" the fraction'),
    ([("one", 0.5), ("two", 0.5)], "must be a Fraction above 0"),
    ([("one", HALF), ("one", HALF)], 'more than one array named "one"'),
]


@pytest.mark.parametrize(("parts", "told"), REFUSED)
def test_components_that_spend_more_or_meet_are_refused_with_the_spec(
    project, several, parts, told
):
    """No plan, and no release that goes on with a stored plan, has another way to a spec."""
    several(*parts)
    with pytest.raises(SpecError, match=told) as refused:
        project.spec(target={"kind": "several", "bandwidth": None})
    assert '"several"' in str(refused.value)


@pytest.mark.parametrize("parts", [[("one",)], [("one", HALF), ("two", HALF)], [("one", HALF)]])
def test_shares_of_at_most_one_are_planned(project, several, parts):
    several(*parts)
    planned = dbern.plan(project.spec(target={"kind": "several", "bandwidth": None}))
    assert sum(Fraction(one.noise.law.epsilon) for one in planned.components) <= 1


def test_a_mean_is_made_of_the_outputs_of_one_statistic(project, monkeypatch):
    """Of two the noise of their sum is not what a release and its readers take it for."""
    two = learner(("one", HALF), ("two", HALF))
    two.combination = lambda _self, _schema: Quotient(low=0.0, high=1.0)
    monkeypatch.setattr("dbern.planning.rules.learner_of", lambda kind: two)
    with pytest.raises(SpecError, match='"several" takes a mean of several statistics'):
        dbern.plan(project.spec(target={"kind": "several", "bandwidth": None}))
    shapes = ReleasedShapes((("x",), ("x",)), (), ("x",), ("x",), (), components=1)
    assert Quotient(low=0.0, high=1.0).is_made_of(shapes)
    assert not Quotient(low=0.0, high=1.0).is_made_of(replace(shapes, components=2))


def test_outputs_may_not_meet_another_component():
    square = Domain((Axis("x", 0.0, 1.0), Axis("y", 0.0, 1.0)))
    kernels = axis_kernels(square, (0.1, 0.1), "bandwidth", "gaussian")
    one = KernelSum("sum", square, kernels, output_fraction=HALF)
    two = replace(one, record_weights=ByCategory(Column("g", "data.group", ("a", "b"))))
    parts = [(each.name, each.outputs, each.output_fraction) for each in (two, one)]
    assert parts[0][1:] == (2, HALF)
    require_one_charge("several", [parts[0], ("sum_2", 1, HALF)])
    with pytest.raises(SpecError, match='named "sum_1"'):
        require_one_charge("several", [parts[0], ("sum_1", 1, HALF)])


def test_what_a_component_becomes_for_its_rows_is_looked_at_too(project, several, monkeypatch):
    """`bind` of a package's component may give another share."""
    several(("one", HALF), ("two", HALF))
    spec = project.spec(target={"kind": "several", "bandwidth": None})
    whole = lambda component, n, charge: replace(component, output_fraction=Fraction(1))  # noqa: E731
    monkeypatch.setattr(KernelSum, "bind", whole)
    with pytest.raises(SpecError, match="add up to 2"):
        plan_files(spec, dbern.planning.planner.footers(spec))


@pytest.mark.parametrize("name", ["two", "three"])
def test_records_are_counted_in_a_statistic_of_as_many_outputs(name):
    square = Domain((Axis("x", 0.0, 1.0), Axis("y", 0.0, 1.0)))
    kernels = axis_kernels(square, (0.5, 0.5), "bandwidth", "gaussian")
    column = Column("g", "data.group", ("a", "b"))
    two = KernelSum("two", square, kernels, ByCategory(column))
    one = KernelSum("one", square, kernels, SignWeight(column), counted_in=name)
    require_counted([KernelSum("one", square, kernels), two])
    with pytest.raises(SpecError, match=f'"one" are counted in "{name}"'):
        require_counted([one, two])
