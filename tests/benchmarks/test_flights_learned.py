"""The flights task, small, so that ``make flights`` cannot rot."""

from __future__ import annotations

import numpy as np
import pytest
from flights import LEARNERS, peers, split, table
from rivals.tasks import FLIGHTS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FLIGHTS.exists(), reason=f"{FLIGHTS} is not there"),
]


def test_late_flights_are_told_nearly_as_well_with_privacy(client):
    flights = split(rows=40_000)
    assert len(flights.late) == 30_000
    assert not np.isin(flights.points, flights.others).all()
    without = peers(flights)
    assert without["nobody is late"].area == 0.5 < 0.59 < without["scikit-learn, logistic"].area
    found = {}
    for name, epsilon, scores in table(flights, client, ["1"], ["logistic, linear"], repeats=2):
        found[name, epsilon] = scores
        assert abs(scores.accuracy - without["scikit-learn, logistic"].accuracy) < 0.01
    assert found["logistic, linear", "1"].area > found["logistic, linear", ""].area - 0.02
    assert found["logistic, linear", ""].area > without["scikit-learn, logistic"].area - 0.02


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_of_the_task_can_be_released(client, name):
    ((_, epsilon, scores),) = table(split(rows=2000), client, [], [name], repeats=1)
    assert epsilon == ""
    assert 0.5 < scores.area < 0.7
