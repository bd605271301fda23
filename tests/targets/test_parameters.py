"""A parameter that nothing chosen uses is refused: each with every loss, kernel and method."""

from __future__ import annotations

import itertools
import re

import pytest

import dbern
from dbern.data.domain import Axis, Column, Domain, Outside, RecordSchema
from dbern.erm.losses import ALL_LOSSES, Logistic
from dbern.targets import learner_of

DOMAIN = Domain((Axis("x", 0.0, 1.0),), Outside.DROP)
SCHEMA = RecordSchema(DOMAIN, Column("who", "data.label.classes", ("n", "y")))
# As docs/spec.md says which loss, kernel or method a parameter is of.
ERM = {
    "loss": {
        "logistic": "", "hinge": "width", "square": "", "huber": "threshold",
        "epsilon-insensitive": "tube width",
        "conformance:pinball": "width lipschitz at_zero curvature",
    },
    "kernel": {
        **dict.fromkeys(("gaussian", "laplace", "matern-3/2", "matern-5/2"), "length_scale"),
        "polynomial": "degree constant", "arc-cosine": "constant", "linear": "constant",
        "conformance:cosine": "kernel_bound kernel_lipschitz kernel_curvature",
    },
    "method": {"auto": "constant shards", "weights": "constant shards", "objective": ""},
}  # fmt: skip
STATED = {
    "length_scale": [0.5], "shards": 3, "width": 0.2, "tube": 0.0, "threshold": 0.5,
    "constant": 0.0, "degree": 2, "kernel_bound": 1.0, "kernel_lipschitz": 2.0,
    "kernel_curvature": 3.0, "lipschitz": 0.75, "at_zero": 1.5, "curvature": 4.0,
}  # fmt: skip
LEARNERS = {
    "kernel-erm": (ERM, STATED, {}),
    "logistic-regression": (
        {"method": ERM["method"]}, {"shards": 3, "constant": 0.0, "link": "sigmoid"}, {},
    ),
    "ridge-regression": (
        {"method": {"auto": "degree constant shards", "moments": "degree", "objective": "",
                    "weights": "constant shards"}},
        {"degree": 2, "constant": 0.0, "shards": 3}, {},
    ),
    "naive-bayes": (
        {"release": {"factored": "floor", "joint": ""}}, {"floor": 0.1, "kernel": "laplace"},
        {"bandwidth": [0.2]},
    ),
}  # fmt: skip


def refusal_of_unused(learner):
    """Parameter, choice and rest of the refusal of what is unused; None where none is refused."""
    try:
        learner.components(SCHEMA)
    except dbern.SpecError as refused:  # other rules may refuse it, too
        return re.fullmatch(r"target\.(\w+): is of (\w+) = (.*)", str(refused))
    return None


@pytest.mark.parametrize("kind", LEARNERS)
def test_a_parameter_is_refused_exactly_where_nothing_chosen_uses_it(kind):
    choices, stated, needed = LEARNERS[kind]
    for chosen in itertools.product(*choices.values()):
        kinds = dict(zip(choices, chosen, strict=True))
        plain = learner_of(kind)(**needed, **kinds)
        every = learner_of(kind)(**plain.get_params())  # as estimators hand them on
        assert refusal_of_unused(plain) is None is refusal_of_unused(every), kinds
        for key, value in stated.items():
            refusal = refusal_of_unused(learner_of(kind)(**{**needed, **kinds, key: value}))
            idle = [
                choice for choice, uses in choices.items()
                if any(key in used.split() for used in uses.values())
                and key not in uses[kinds[choice]].split()
            ]  # fmt: skip
            assert (refusal is not None) == bool(idle), (kinds, key)
            if refusal:
                assert refusal.group(1, 2) == (key, idle[0])
                owner, other = refusal.group(3).split(", not of ")
                assert other.startswith(f'{idle[0]} = "{kinds[idle[0]]}". Leave it out, or write ')
                owning = {
                    name if ":" not in name else "module:name"
                    for name, used in choices[idle[0]].items()
                    if key in used.split()
                }
                assert set(re.findall(r'"(.*?)"', owner)) == owning  # fmt: skip


def test_no_loss_of_others_is_released_by_objective():
    """Its author's word is no proof."""
    bold = type("Bold", (Logistic,), {"name": "bold", "perturbable": True})
    target = {"loss": "bold", "kernel": "linear"}
    with ALL_LOSSES.known(bold):
        (released,) = learner_of("kernel-erm")(**target).components(SCHEMA)
        assert type(released.loss) is bold
        with pytest.raises(dbern.SpecError, match=r"^target\.method: an objective, and lists"):
            learner_of("kernel-erm")(**target, method="objective").components(SCHEMA)
