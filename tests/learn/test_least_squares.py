"""Least squares by moments: what is released, what is asked of it, and what plans say."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from conformance import RESPONSE, release_spec
from sklearn.linear_model import LinearRegression

import dbern
from dbern.bernstein.reproducing import Linear
from dbern.data.domain import Axis, Domain, Response
from dbern.erm.losses import Square
from dbern.erm.spaces import LinearFeatures
from dbern.learn.moment_sums import MomentSums
from dbern.learn.predictions import predicted_moments, predicted_weights
from dbern.planning.planner import plan_files
from dbern.privacy.laws import LaplaceNoise
from dbern.reconstruct.moments import Moments
from dbern.report.page import synopsis_page
from dbern.sklearn import Ridge as Estimator
from dbern.synopsis.regression import Regression
from dbern.targets.predicted_functions import deviation_of
from dbern.targets.typical import TypicalResponses, typical_variances

# --- What is released, and asked of it

TARGET = {"kind": "ridge-regression"}


def spec(project, target=TARGET, **changes):
    sections = {
        "data__bounds": {"x": [0.0, 10.0], "y": [-1.0, 1.0]},
        "data__response": {"column": "minutes", "bounds": [0.0, 60.0]},
        "target": {"bandwidth": None, **target},
        "mechanism": {"k": None, "h": None, "noise": None},
    }
    return project.spec(**sections | changes)


def table():
    rng = np.random.default_rng(5)
    x, y = rng.uniform(0, 10, 400), rng.uniform(-1, 1, 400)
    return {"x": x, "y": y, "minutes": np.clip(20 + 3 * x - 8 * y + rng.normal(0, 4, 400), 0, 60)}


@pytest.mark.slow
@pytest.mark.usefixtures("noiseless")
def test_a_release_without_noise_is_least_squares(project, client):
    columns = table()
    project.write(columns)
    changed = {"budget": {"epsilon": "1000000"}}
    project.grant("1000000")
    synopsis = dbern.release(spec(project, **changed), client=client).synopsis
    x = np.column_stack([columns["x"], columns["y"]])
    peer = LinearRegression().fit(x, columns["minutes"])
    np.testing.assert_allclose(synopsis(x), np.clip(peer.predict(x), 0, 60), atol=1e-3)
    np.testing.assert_allclose(synopsis.predict(x), synopsis(x))
    assert np.isnan(synopsis(x + 20)).all()
    grid = synopsis.grid([3, 4])
    np.testing.assert_allclose(grid, synopsis(grid), atol=1e-12)
    assert synopsis.band() == 60.0
    low, high = synopsis.interval(x)
    assert (low.min(), high.max()) == (0.0, 60.0)
    found = synopsis.regression()
    assert found.coefficients == pytest.approx(dict(zip("xy", peer.coef_, strict=True)), abs=1e-4)
    assert found.intercept == pytest.approx(peer.intercept_, abs=1e-3)
    assert found.r2 == pytest.approx(peer.score(x, columns["minutes"]), abs=1e-4)
    rest = columns["minutes"] - peer.predict(x)
    assert found.residual == pytest.approx(rest.std(), abs=1e-3)
    for name, (start, end) in found.intervals.items():
        assert start < found.coefficients.get(name, found.intercept) < end
    assert str(found).startswith("minutes: R2 0.")
    other = synopsis.regression("x", ["minutes"], beta=0.1)
    peer = LinearRegression().fit(columns["minutes"][:, None], columns["x"])
    assert other.coefficients["minutes"] == pytest.approx(peer.coef_[0], abs=1e-4)
    predicted = other.predict({"minutes": columns["minutes"]})
    np.testing.assert_allclose(predicted, peer.predict(columns["minutes"][:, None]), atol=1e-3)
    assert isinstance(other, Regression)
    for given in (("z",), ("x", ["x"]), ("x", ["y", "y"]), ("x", ["w"])):
        with pytest.raises(dbern.SpecError, match="different ones of x, y, minutes"):
            synopsis.regression(*given)
    with pytest.raises(dbern.SpecError, match="ridge: must be above 0"):
        synopsis.regression(ridge=-1.0)
    (moments,) = synopsis.arrays
    vars(moments)["_measured"] = replace(moments._measured, noise=np.full((4, 4), 0.01))
    drowned = synopsis.regression()
    assert math.isnan(drowned.r2)
    assert math.isnan(drowned.residual)
    assert str(drowned).startswith("minutes: R2 not resolved from the noise\n")


@pytest.mark.parametrize("name", ["value", "price/kg"])
def test_a_response_may_have_a_name_that_no_axis_can_have(project, client, name):
    """Before, it was released and charged, and nothing could be asked of it."""
    columns = table()
    project.write({"x": columns["x"], "y": columns["y"], name: columns["minutes"]})
    project.grant()
    response = {"column": name, "bounds": [0.0, 60.0]}
    made = spec(project, {**TARGET, "method": "moments"}, data__response=response)
    synopsis = dbern.release(made, client=client).synopsis
    assert np.isfinite(synopsis(np.array([[5.0, 0.0]]))).all()
    assert set(synopsis.regression().coefficients) == {"x", "y"}
    assert set(synopsis.regression("x", [name]).coefficients) == {name}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["objective", "weights"])
def test_a_released_linear_function_is_a_regression_without_intervals(project, client, method):
    """It was refused where "auto" took an objective: nobody could read what was paid for."""
    columns, changes = table(), {}
    names = ["x", "y"]
    if method == "objective":
        columns["kind"] = np.where(np.arange(400) % 3 == 0, "a", "b")
        columns["minutes"] = columns["minutes"] + 5 * (columns["kind"] == "a")
        changes["data__bounds__kind"] = {"values": ["a", "b"]}
        names += ["kind = a", "kind = b"]
    project.write(columns)
    project.grant("1000")
    target = {**TARGET, "method": method}
    made = spec(project, target, budget={"epsilon": "100"}, **changes)
    synopsis = dbern.release(made, client=client).synopsis
    fit = synopsis.regression()
    points = {name: columns[name] for name in made.domain.names}
    np.testing.assert_allclose(fit.predict(points), synopsis(points), atol=1e-9)
    assert list(fit.coefficients) == names
    if method == "objective":
        assert fit.coefficients["kind = a"] == -fit.coefficients["kind = b"]
        assert fit.coefficients["x"] == pytest.approx(3, abs=0.5)
    assert not fit.intervals
    assert math.isnan(fit.r2)
    assert str(fit).startswith("response: released weights, without moments\nintercept ")
    assert all(line.endswith("no interval") for line in str(fit).splitlines()[1:])
    for other in ({"response": "x"}, {"columns": ["x"]}, {"ridge": 1.0}):
        with pytest.raises(dbern.SpecError, match='release with method = "moments"'):
            synopsis.regression(**other)
    page = synopsis_page(synopsis)
    assert "No moments were released, so there are no intervals." in page
    assert page.count("no interval</td>") == len(names) + 1


@pytest.mark.slow
def test_other_releases_have_no_regression(project, client):
    project.write(table())
    target = {"kind": "nadaraya-watson", "bandwidth": [2.0, 0.5]}
    synopsis = dbern.release(spec(project, target), client=client).synopsis
    with pytest.raises(dbern.SpecError, match="no linear function of a response was released"):
        synopsis.regression()


def planned(target, n=10_000, epsilon="1.0"):
    spec = release_spec({**TARGET, **target}, "xy", n=n, epsilon=epsilon,
                        mechanism={"noise": "laplace"}, response=RESPONSE)  # fmt: skip
    return plan_files(spec, ())


@pytest.mark.parametrize("size", [2, 5])
def test_what_noise_of_moments_adds_to_typical_residuals(size):
    domain = Domain(tuple(Axis(f"x{i}", 0.0, 1.0) for i in range(size)))
    sums = MomentSums.of(domain, Response("y", 0.0, 9.0))
    n, rng = 200_000, np.random.default_rng(1)
    _, told = sums.typical_noise(n, Fraction(1))
    variances = typical_variances(size)  # each direction explains as much as any other
    slopes = math.sqrt(0.5 / size) * 0.25 / np.sqrt(variances)
    covariance = np.diag([1.0, *variances, 0.25**2])
    covariance[-1, 1:-1] = covariance[1:-1, -1] = slopes * variances
    exact, scale = sums.moments.of_products(covariance), sums.moments.sensitivity(1).value / n
    risks = []
    for _ in range(400):
        products = sums.moments.products(exact + rng.laplace(0, scale, exact.size), 1.0)
        off = np.linalg.solve(products[1:-1, 1:-1], products[1:-1, -1]) - slopes
        risks.append(off @ (variances * off))
    assert np.mean(risks) == pytest.approx(told, rel=0.35)


def nearly_collinear(rows):
    """Sizes of stones, which determine each other, and a skewed price."""
    rng = np.random.default_rng(0)
    carat = np.clip(np.exp(rng.normal(-0.4, 0.58, rows)), 0.2, 5.01)
    depth, width = rng.normal(61.7, 1.43, rows), rng.normal(57.5, 2.2, rows)
    edges = 6.5 * np.cbrt(carat) * (1 + rng.normal(0, 0.012, (2, rows)))
    height = edges.mean(axis=0) * depth / 100 * (1 + rng.normal(0, 0.006, rows))
    price = np.clip(4000 * carat**1.68 * np.exp(rng.normal(0, 0.22, rows)), 326, 18823)
    x = np.column_stack([carat, *edges, height, depth, width])
    return x, price, [(0, 5.5), (0, 15), (0, 60), (0, 32), (40, 80), (40, 100)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_larger_budget_errs_less_where_columns_determine_each_other():
    """At epsilon 3 moments were taken, which erred a tenth more than the objective of 1."""
    x, price, bounds = nearly_collinear(53_940)
    errors = []
    for epsilon in (0.1, 1, 3):
        able = Estimator(bounds=bounds, y_bounds=(0, 20_000), epsilon=epsilon).fit(x, price)
        errors.append(math.sqrt(np.mean(np.square(able.predict(x) - price))))
    plain = np.clip(LinearRegression().fit(x, price).predict(x), 0, 20_000)
    without = math.sqrt(np.mean(np.square(plain - price)))
    assert errors == sorted(errors, reverse=True)
    assert errors[0] < 1.8 * without
    assert errors[1] < 1.08 * without
    assert errors[2] < 1.02 * without


def test_of_many_axes_weights_are_released():
    names = [f"a{i}" for i in range(64)]
    schema = release_spec(TARGET, names, n=100, response=RESPONSE).records
    learner = dbern.targets.RidgeRegression
    assert [one.name for one in learner().components(schema)] == ["weights"]
    with pytest.raises(dbern.SpecError, match=r"target\.method: moments are of at most 63 axes"):
        learner(method="moments").components(schema)


def test_a_plan_warns_where_a_constant_is_as_good():
    notes = planned({}).notes
    assert any("; a constant " in note for note in notes)
    assert not any("WARNING" in note for note in notes)
    assert any("WARNING: no better" in note for note in planned({}, n=100, epsilon="0.1").notes)
    assert any("WARNING: no better" in note for note in planned({"method": "weights"}).notes)


@pytest.mark.parametrize("axes", [1, 3, 12])
@pytest.mark.parametrize("rows", [1e4, 1e6])
@pytest.mark.parametrize("cost", [1.0, 100.0, 1e4])
def test_weights_are_never_predicted_to_be_better_than_moments(axes, rows, cost):
    """Why "auto" is moments; a weight moves by 2 C / n at least, less than any release says."""

    def law(sensitivity: float) -> LaplaceNoise:
        return LaplaceNoise(round(sensitivity * 2**40), -40, 1)

    moments = Moments.of(axes + 1)
    ours = predicted_moments(moments, law(moments.sensitivity(1).value / rows), None)
    typical, space = TypicalResponses(axes), LinearFeatures(axes, Linear(1.0))
    noise = deviation_of(law(2 * cost / rows))
    (paper, _), _ = predicted_weights(typical, space, Square(1.0), cost, noise)
    assert ours < 1.05 * paper
