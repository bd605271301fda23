"""Estimators: scikit-learn's own checks, charges of every fit, and what a fitted one holds."""

from __future__ import annotations

import itertools
import pickle
import tempfile
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_classifiers_train, check_estimator

import dbern
import dbern.sklearn as estimators
from dbern.errors import BudgetError, EnvironmentRefusedError, SpecError
from dbern.sklearn import _warn_of_no_ledger

RNG = np.random.default_rng(5)
HOURS = np.clip(RNG.normal(13, 3, (400, 1)), 0.0, 24.0)
LATE = HOURS[:, 0] > 13
TWO = RNG.uniform(0, 1, (300, 2))

# --- scikit-learn's checks

SHARED = {"bounds": (-4, 4), "epsilon": 1e6}
SMALL = {"k": 4, "h": 4, "noise": "laplace"}
CLASSES = {"classes": [0, 1]}
WIDE = {"mechanism": SMALL, "bandwidth": 4.0}
CHECKED = [
    estimators.KernelDensity(**SHARED, **WIDE),
    estimators.KernelRegressor(**SHARED, **WIDE, y_bounds=(-5, 5)),
    estimators.Ridge(**SHARED, y_bounds=(-4, 4)),
    estimators.LogisticRegression(**SHARED, **CLASSES, C=1.0),
    estimators.SVC(**SHARED, **CLASSES, length_scale=4.0, mechanism=SMALL),
    estimators.GaussianNB(**SHARED, **CLASSES, std_floor=0.1),
    estimators.KernelNB(**SHARED, **CLASSES, **WIDE),
]

# Every check that an estimator is expected to fail, and why.
MISSING = "a row with a missing value is a missing record: to refuse it would tell of the data"
LABELS = "a label that is no class is a missing record: to refuse it would tell of the data"
NOISE = "two fits draw other noise, and the check wants equal answers: it may pass"
PUBLIC = "classes are public, and the check changes its labels without saying so"
AXES = "X has ten columns, and a lattice at most six axes"
ALL = {"check_estimators_nan_inf": MISSING, "check_dtype_object": MISSING}
SUPERVISED = {
    **ALL,
    "check_supervised_y_no_nan": MISSING,
    "check_fit_idempotent": NOISE,
    "check_supervised_y_2d": NOISE,
}
CLASSIFIER = {
    **SUPERVISED, "check_classifiers_regression_target": LABELS,
    "check_classifiers_classes": PUBLIC, "check_classifiers_train": PUBLIC,
}  # fmt: skip
LATTICE = {"check_fit2d_1sample": AXES}
REGRESSION = ("regressors_train", "regressors_int", "regressor_data_not_an_array")
EXPECTED = {
    "KernelDensity": {**ALL, **LATTICE},
    "KernelRegressor": {
        **SUPERVISED, **LATTICE, **{f"check_{name}": AXES for name in REGRESSION},
    },
    "Ridge": SUPERVISED,
    "LogisticRegression": CLASSIFIER,
    "SVC": {**CLASSIFIER, **LATTICE},
    "GaussianNB": CLASSIFIER,
    "KernelNB": CLASSIFIER,
}  # fmt: skip


def name_of(estimator: object) -> str:
    return type(estimator).__name__


@pytest.mark.slow
@pytest.mark.parametrize("estimator", CHECKED, ids=name_of)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_s_checks_pass(estimator):
    expected = EXPECTED[name_of(estimator)]
    done = check_estimator(estimator, expected_failed_checks=expected, on_fail=None, on_skip=None)
    failed = {one["check_name"]: one["exception"] for one in done if one["status"] == "failed"}
    assert failed == {}
    sure = {name for name, reason in expected.items() if reason != NOISE}
    assert sure <= {one["check_name"] for one in done if one["status"] == "xfail"}


@pytest.mark.slow
@pytest.mark.parametrize("estimator", CHECKED[3:], ids=name_of)
@pytest.mark.filterwarnings("ignore")
def test_classifiers_pass_their_check_where_they_are_told_its_classes(estimator, monkeypatch):
    """What `PUBLIC` leaves out: shapes, accuracy and labels of two classes and of three."""
    fit = type(estimator).fit

    def told(self, X, y):  # noqa: N803 -- scikit-learn's name
        self.classes = np.unique(y).tolist()
        return fit(self, X, y)

    monkeypatch.setattr(type(estimator), "fit", told)
    able = clone(estimator).set_params(mechanism=None)
    given = able.get_params()
    able.set_params(**{key: 0.5 for key in ("length_scale", "bandwidth") if key in given})
    if "C" in given:
        able.set_params(C=300.0 if name_of(estimator) == "LogisticRegression" else 1.0)
    check_classifiers_train(name_of(estimator), able)


# --- What a fit needs, before anything is charged


def fitted(**given: object) -> estimators.GaussianNB:
    facts = {"bounds": (0, 24), "epsilon": 1, "classes": [False, True], "std_floor": 1.0}
    return estimators.GaussianNB(**{**facts, **given}).fit(HOURS, LATE)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"bounds": None}, r"bounds: are missing. Write bounds=\[\(low, high\), ..\]"),
        ({"bounds": [(0, 24), (0, 60)]}, "bounds: are not those of X. Write bounds="),
        ({"bounds": {"minutes": (0, 60)}}, "bounds: are not those of X"),
        ({"bounds": (24, 0)}, r'^bounds\["x0"\]: the lower bound.* Write bounds=\{"x0": \(low'),
        ({"mechanism": {"k": -3}}, r'^mechanism\["k"\]: '),
        ({"epsilon": None}, "epsilon: is missing. Write epsilon=1"),
        ({"epsilon": -1}, r"^epsilon: .* Write epsilon=\"1.0\""),
        ({"classes": None}, r'classes: are missing. Write classes=\["no", "yes"\]'),
        ({"classes": ["no", "yes"]}, "classes: are text and y holds numbers"),
        ({"std_floor": None}, r"^std_floor: is missing. Write std_floor=\[1\.2\]"),
        ({"ledger": "sqlite:///ledger.db"}, 'dataset: is missing. Write dataset="rides"'),
    ],
)
@pytest.mark.filterwarnings("ignore:ledger=None")
def test_what_is_missing_or_wrong_is_told_with_its_fix(given, told):
    with pytest.raises(SpecError, match=told):
        fitted(**given)


def test_a_response_needs_its_bounds():
    with pytest.raises(SpecError, match=r"y_bounds: are missing. Write y_bounds=\(low, high\)"):
        estimators.Ridge(bounds=(0, 24), epsilon=1).fit(HOURS, LATE)


@pytest.mark.parametrize("given", [0.1, "0.1", np.float64(0.1)])
def test_a_float_costs_what_it_prints(given):
    able = estimators.KernelDensity(epsilon=given)
    assert dbern.Budget.parse(**able._charge) == dbern.Budget.parse("0.1")


def test_numbers_of_numpy_are_parameters():
    found = estimators.SVC(length_scale=np.float64(0.5), C=np.logspace(0, 1, 3)[2])._target(2)
    assert found == {"kind": "support-vector-machine", "length_scale": [0.5, 0.5], "C": 10.0}


def test_there_is_no_seed():
    for one in CHECKED:
        assert "random_state" not in one.get_params()


# --- Ledgers


@pytest.fixture
def account(tmp_path, monkeypatch):
    """The URL of a ledger with 10 for rides, and warnings that were not given yet."""
    monkeypatch.setattr("dbern.sklearn._fits", itertools.count(1))
    _warn_of_no_ledger.cache_clear()
    url = f"sqlite:///{tmp_path}/ledger.db"
    dbern.BudgetLedger.create(url)
    with dbern.BudgetLedger.open(url) as ledger:
        ledger.grant("rides", dbern.Budget.parse("10"))
    return url


def spent(url: str) -> str:
    with dbern.BudgetLedger.open(url, read_only=True) as ledger:
        return str(ledger.status("rides")[0].spent)


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A folder for temporary files that no other process uses."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


@pytest.mark.slow
def test_two_fits_are_two_releases_with_two_charges(account, tmp_path):
    facts = {"ledger": account, "dataset": "rides", "output": tmp_path / "kept", "epsilon": "1/2"}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        able = fitted(**facts)
        first = able.release_name_, able.synopsis_
        assert not told
        able.fit(HOURS, LATE)
        able.fit(HOURS, LATE)
    assert [str(one.message)[:31] for one in told] == ["A second fit of this process is"]
    assert spent(account) == "epsilon 1.5"
    with dbern.BudgetLedger.open(account, read_only=True) as ledger:
        for name in (first[0], able.release_name_):
            found = ledger.find("rides", name)
            assert found is not None
            assert found.state.value == "committed"
            assert dbern.open(found.output).verify()
    assert first[1].metadata["release_id"] != able.synopsis_.metadata["release_id"]


@pytest.mark.slow
def test_a_grid_search_pays_for_each_fit(account):
    search = GridSearchCV(
        estimators.GaussianNB(
            bounds={"hour": (0, 24)}, classes=[False, True], epsilon=1, ledger=account,
            dataset="rides",
        ),
        {"std_floor": [0.5, 1.0]},
        cv=KFold(2),
        error_score="raise",
    )  # fmt: skip
    frame = pd.DataFrame(HOURS, columns=["hour"])
    with pytest.warns(UserWarning, match="GridSearchCV"):
        search.fit(frame, LATE)
    assert spent(account) == "epsilon 5"  # of two candidates in two folds, and the last of all
    assert search.best_score_ > 0.8
    assert list(search.best_estimator_.feature_names_in_) == ["hour"]
    search.set_params(cv=KFold(3))  # wants 7, and 5 are left
    with pytest.raises(BudgetError):
        search.fit(frame, LATE)


@pytest.mark.slow
def test_a_refused_budget_and_a_wrong_ledger_leave_nothing(account, tmp_path, temporary):
    with pytest.raises(BudgetError):
        fitted(ledger=account, dataset="rides", epsilon=11)
    with pytest.raises(EnvironmentRefusedError, match="no ledger is at"):
        fitted(ledger=f"sqlite:///{tmp_path}/none.db", dataset="rides")
    assert spent(account) == "epsilon 0"
    assert not list(temporary.glob("dbern-*"))


@pytest.mark.slow
def test_a_fit_that_fails_is_given_up(account, monkeypatch, tmp_path):
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    facts = {"ledger": account, "dataset": "rides"}
    for where, charged, state in (
        ("_count", "epsilon 0", "refunded"),
        ("publish", "epsilon 1", "abandoned"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"dbern.releasing.run.{where}", stopped)
            with pytest.raises(KeyboardInterrupt):
                fitted(**facts)
        assert spent(account) == charged
        with dbern.BudgetLedger.open(account, read_only=True) as ledger:
            assert ledger.log("rides")[-1].event == state
        assert not list(tmp_path.rglob("*.spool"))


@pytest.mark.slow
def test_without_a_ledger_one_warning_says_so(account, temporary):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fitted()
        fitted()
    assert [str(one.message)[:12] for one in told] == ["ledger=None:", "A second fit"]
    assert not list(temporary.glob("dbern-*"))


# --- What a fitted one answers and holds


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_estimator_in_a_pipeline_is_cloned_pickled_and_asked():
    def hours(given: object) -> object:
        return np.asarray(given) / 60

    able = make_pipeline(
        FunctionTransformer(hours),
        estimators.KernelNB(
            bounds=(0, 24), classes=["early", "late"], epsilon=100, bandwidth=1.0,
            mechanism={"k": 20, "h": 10, "noise": "laplace"},
        ),
    )  # fmt: skip
    labels = np.where(LATE, "late", "early").astype(object)
    found = clone(able).fit(60 * HOURS, labels)
    assert found.score(60 * HOURS, labels) > 0.9
    assert found.classes_.tolist() == ["early", "late"]
    again = pickle.loads(pickle.dumps(found[-1]))
    points = np.array([[8.0], [18.0], [-99.0]])
    assert again.predict(points).tolist() == ["early", "late", "early"]
    np.testing.assert_array_equal(again.predict_proba(points), found[-1].predict_proba(points))
    assert np.isfinite(again.predict_log_proba(points)).all()
    assert str(again.synopsis_.url) == "memory"
    assert again.synopsis_.verify() == found[-1].synopsis_.verify()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_nothing_of_the_records_is_in_a_fitted_estimator():
    able = fitted()
    held = {key for key in vars(able) if key.endswith("_")}
    assert held == {"classes_", "n_features_in_", "release_name_", "synopsis_"}
    objects = able.synopsis_._store.place._objects
    assert "manifest.json" in objects
    record = HOURS[7, 0].tobytes()
    assert not any(record in content for content in objects.values())
    assert "release_name_" not in repr(able)
    assert record not in pickle.dumps(able)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_missing_rows_and_unknown_labels_contribute_nothing():
    facts = {"epsilon": 1e6, "std_floor": 1.0, "bounds": (0, 24), "classes": ["early", "late"]}
    labels = np.where(LATE, "late", "early").astype(object)
    worse, unknown = np.append(HOURS, [[np.nan], [np.inf], [3.0]], axis=0), ["late", "late", "?"]
    with_them = estimators.GaussianNB(**facts).fit(worse, [*labels, *unknown])
    absent = np.append(HOURS, np.full((3, 1), np.nan), axis=0)
    without = estimators.GaussianNB(**facts).fit(absent, [*labels, *["early"] * 3])
    points = np.linspace(0, 24, 9)[:, None]
    np.testing.assert_allclose(
        with_them.predict_proba(points), without.predict_proba(points), atol=1e-3
    )
    with pytest.raises(ValueError, match="NaN"):
        with_them.predict([[np.nan]])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_densities_are_logarithms_that_are_finite():
    able = estimators.KernelDensity(
        bounds={"hour": (0, 24)}, epsilon=1, bandwidth=1.0, mechanism={"k": 24, "h": 20}
    ).fit(pd.DataFrame(HOURS, columns=["hour"]))
    (array,) = able.synopsis_.arrays
    least = np.log(array.deviation(array.smoothing(array.order)))
    asked = pd.DataFrame({"hour": [13.0, 0.0, -5.0, 99.0]})
    found = able.score_samples(asked)
    assert abs(found[0] - np.log(able.synopsis_(np.array([[13.0]]))[0])) < 1e-12
    assert found[2] == found[3] == least
    assert np.isfinite(found).all()
    assert able.score(asked) == found.sum()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_coefficients_are_those_of_the_predictions():
    response = 3 * TWO[:, 0] - TWO[:, 1] + 1
    line = estimators.Ridge(bounds=(0, 1), y_bounds=(-1, 5), epsilon=1e6).fit(TWO, response)
    np.testing.assert_allclose(line.predict(TWO), TWO @ line.coef_ + line.intercept_, atol=1e-9)
    np.testing.assert_allclose(line.coef_, [3, -1], atol=0.01)
    assert abs(line.intercept_ - 1) < 0.01
    assert line.predict([[1.0, 0.0]]) == line.predict([[9.0, -9.0]])  # the nearest within
    bent = estimators.Ridge(bounds=(0, 1), y_bounds=(-1, 5), epsilon=1e6, degree=2)
    squared = 3 * TWO[:, 0] ** 2 - TWO[:, 0] * TWO[:, 1] + 1
    np.testing.assert_allclose(bent.fit(TWO, squared).predict(TWO), squared, atol=0.02)
    assert bent.coef_.shape == (5,)
    for classes, labels in (
        ([0, 1], TWO[:, 0] > 0.5),
        ([0, 1, 2], np.digitize(TWO[:, 0], [1 / 3, 2 / 3])),
    ):
        able = estimators.LogisticRegression(
            bounds=[(0, 1), (0, 1)], classes=classes, epsilon=500, C=10.0
        )
        able.fit(TWO, labels.astype(int))
        made = TWO @ able.coef_.T + able.intercept_
        found = able.decision_function(TWO).reshape(len(TWO), -1)
        np.testing.assert_allclose(found, made, atol=1e-9)
        chances = able.predict_proba(TWO)
        np.testing.assert_allclose(chances.sum(axis=1), 1)
        assert (chances.argmax(axis=1) == able.predict(TWO)).all()
        np.testing.assert_allclose(able.predict_log_proba(TWO), np.log(chances))
