"""What a release is asked: how often answers cover, how wide they are, how long they take."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from questioned import OF_TWO, QUESTIONS, SMOOTHED, asked, covered, databases
from timing import BENCH, seconds

from dbern.bernstein.kernels import Gaussian
from dbern.synopsis.questions.functionals import _cross_validation, candidates
from dbern.synopsis.questions.smoothing import density_sides
from dbern.synopsis.questions.splines import AxisSplines

RELEASES = 200 if BENCH else 4
pytestmark = pytest.mark.filterwarnings("ignore:each answer holds")


@pytest.mark.slow
@pytest.mark.parametrize("axes", [1, 2])
def test_answers_cover_as_often_as_they_say(axes):
    """Means are noise alone; of the others the splines' sides add what rows at hand may be."""
    questions = QUESTIONS | (SMOOTHED if axes == 1 else OF_TWO)
    found = covered(axes, 5000, questions, list(databases(axes, 10)), RELEASES)
    print(f"\n{axes} axes, {RELEASES} releases: per cent covered")
    for question in questions:
        told = (found.get((name, question)) for name in databases(axes, 10))
        cells = " | ".join("-" if one is None else f"{100 * one / RELEASES:.1f}" for one in told)
        print(f"| {question} | {cells} |")
    least = 0.95 * RELEASES - 3 * np.sqrt(RELEASES * 0.95 * 0.05)
    assert min(found.values()) >= least


@pytest.mark.slow
def test_a_bandwidth_chosen_from_the_release_is_near_the_best():
    y = np.linspace(0, 1, 401)
    truth = 30 * y * (1 - y) ** 4
    found, splines = [], AxisSplines(30, 3)
    tried = candidates([splines], (Gaussian(0.05),))
    made = [one.peak * density_sides(splines, one, y).near for (one,) in tried]
    for draw in range(RELEASES):
        rows = np.random.default_rng(draw).beta(2, 5, size=(5000, 1))
        measure = asked(rows, draw + 1, cells=30).measures[0]
        estimates = [_cross_validation(measure, one, 5000.0) for one in tried]
        errors = [np.square(one @ measure.values - truth).mean() for one in made]
        found.append((errors[int(np.argmin(estimates))], min(errors)))
    chosen, oracle = np.sqrt(np.mean(found, axis=0))
    print(f"\nroot mean integrated squared error: chosen {chosen:.4f}, oracle {oracle:.4f}")
    assert chosen < 1.25 * oracle


@pytest.mark.slow
def test_a_quantile_of_the_population_is_little_wider_than_without_privacy():
    n = 100_000
    rows = np.random.default_rng(1).beta(2, 5, size=(n, 1))
    d = asked(rows, cells=40, degree=3)
    answer = d.quantile(0.5, target="smoothed", population=True)
    density = 30 * 0.26445 * (1 - 0.26445) ** 4
    without = 2 * 1.96 * 0.5 / np.sqrt(n) / density
    print(f"\nwidth of a median: {answer.high - answer.low:.5f}, without privacy {without:.5f}")
    assert answer.high - answer.low < 1.5 * without + 1 / 1024


@pytest.mark.slow
def test_speed_of_shares():
    rows = databases(2, 20_000)["smooth"]
    d = asked(rows, cells=34, degree=7)
    draw = np.random.default_rng(0).uniform(size=(2, 2, 1_000_000 if BENCH else 20_000))
    boxes = {"x": (0.7 * draw[0, 0], 0.7 * draw[0, 0] + 0.3 * draw[1, 0] + 1e-6),
             "y": (0.7 * draw[0, 1], 0.7 * draw[0, 1] + 0.3 * draw[1, 1] + 1e-6)}  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = seconds(lambda: d.mass({"x": (0.2, 0.5)}))
        many = seconds(lambda: d.mass(boxes), repeats=1)
    print(f"\na share in {1e3 * one:.2f} ms, {draw.shape[-1]} boxes in {many:.1f} s")
    assert many < 30
