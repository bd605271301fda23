"""Estimators: scikit-learn's own checks, charges of every fit, and what a fitted one holds."""

from __future__ import annotations

import inspect
import itertools
import pickle
import re
import tempfile
import warnings
from datetime import date, datetime, time
from decimal import Decimal

import dask.dataframe
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.stats import binom
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_classifiers_train, check_estimator

import dbern
import dbern.sklearn as estimators
from dbern.data.domain import Column
from dbern.errors import BudgetError, EnvironmentRefusedError, SpecError
from dbern.sklearn.columns import split_columns, to_column, to_floats
from dbern.sklearn.estimator import _warn_of_no_ledger, public_bounds

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}") for text in ("ledger=None", "A second fit")
]
RNG = np.random.default_rng(5)
HOURS = np.clip(RNG.normal(13, 3, (400, 1)), 0.0, 24.0)
LATE = HOURS[:, 0] > 13
TWO = RNG.uniform(0, 1, (300, 2))

# --- What columns count in

WHOLE = np.arange(400) % 24


@pytest.mark.parametrize("resolution", [1, 1.0, {"hour": 1}])
def test_a_resolution_is_stated(resolution):
    table = pd.DataFrame({"hour": WHOLE})
    estimator = estimators.KernelDensity(
        bounds=(0, 23), epsilon=1, bandwidth=5.0, resolution=resolution
    )
    assert estimator.fit(table).synopsis_.domain.axes[0].resolution == 1.0


@pytest.mark.parametrize(
    "values",
    [
        WHOLE,
        pd.array(WHOLE, "Int64"),
        pd.arrays.SparseArray(WHOLE),
        pd.array(WHOLE, "int64[pyarrow]"),
    ],
)
def test_a_type_tells_no_resolution(values):
    """One missing value would change many of them, and what is released by it."""
    table = pd.DataFrame({"hour": values})
    fitted = estimators.KernelDensity(bounds=(0, 23), epsilon=1, bandwidth=5.0).fit(table)
    assert fitted.synopsis_.domain.axes[0].resolution is None


# --- scikit-learn's checks

SHARED = {"bounds": (-4, 4), "epsilon": 1e6}
SMALL = {"k": 3, "h": 1, "noise": "laplace"}
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


@pytest.mark.sample(verify=1)
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


@pytest.mark.sample(verify=1)
@pytest.mark.slow
@pytest.mark.parametrize("estimator", CHECKED[3:], ids=name_of)
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

ONE_OR_TWO = estimators.GaussianNB(bounds=(0, 24), epsilon=1, classes=[1, 2], std_floor=1.0)


def fitted(**given: object) -> estimators.GaussianNB:
    facts = {"bounds": (0, 24), "epsilon": 1, "classes": [False, True], "std_floor": 1.0}
    return estimators.GaussianNB(**{**facts, **given}).fit(HOURS, LATE)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"bounds": None}, r"bounds: are missing. Write bounds=\[\(low, high\), ..\]"),
        ({"bounds": [(0, 24), (0, 60)]}, "bounds: are not those of X. Write bounds="),
        ({"bounds": {"minutes": (0, 60)}}, "bounds: have none for 'x0', a column of X"),
        ({"bounds": {"x0": {"low": 0}}}, "bounds: are not those of X"),
        ({"bounds": (24, 0)}, r'^bounds\["x0"\]: the lower bound.* Write bounds=\{"x0": \(low'),
        ({"mechanism": {"k": -3}}, r'^mechanism\["k"\]: '),
        ({"epsilon": None}, "epsilon: is missing. Write epsilon=1"),
        ({"epsilon": -1}, r"^epsilon: .* Write epsilon=\"1.0\""),
        ({"classes": None}, r'classes: are missing. Write classes=\["no", "yes"\]'),
        ({"classes": ["no", "yes"]}, "y: is of type bool, and the listed values are texts"),
        ({"classes": ["a", np.nan]}, "^classes: are no list of texts, of integers or of booleans"),
        ({"classes": [True, "x"]}, "^classes: are no list of texts"),
        ({"classes": ["no", None]}, "^classes: are no list of texts"),
        ({"classes": [0, True]}, "^classes: are no list of texts"),
        ({"classes": np.array([0.0, 1.0])}, "^classes: are no list of texts"),
        ({"classes": []}, "^classes: are no list of texts"),
        ({"classes": [0, 2**70]}, "^classes: are no list of texts"),
        ({"classes": [1, 2]}, "^y: is of type bool, and the listed values are integers"),
        ({"std_floor": None}, r"^std_floor: is missing. Write std_floor=\[1\.2\]"),
        ({"ledger": "sqlite:///ledger.db"}, 'dataset: is missing. Write dataset="rides"'),
    ],
)
def test_what_is_missing_or_wrong_is_told_with_its_fix(given, told):
    with pytest.raises(SpecError, match=told):
        fitted(**given)


@pytest.mark.parametrize(
    "wrapper",
    [
        VotingClassifier([("one", ONE_OR_TWO)]),
        StackingClassifier([("one", ONE_OR_TWO)]),
        BaggingClassifier(ONE_OR_TWO),
        make_pipeline(OneVsRestClassifier(make_pipeline(ONE_OR_TWO))),
        OneVsOneClassifier(ONE_OR_TWO),
    ],
    ids=lambda wrapper: type(wrapper).__name__,
)
def test_wrappers_that_number_the_labels_that_occur_are_refused(wrapper):
    """Fits to 0 and 1 left out the half of the rows that had neither 1 nor 2, without a word."""
    for labels in (LATE + 1, np.ones(len(LATE), int), LATE.astype(int)):
        if labels.max() == labels.min() and not isinstance(wrapper, VotingClassifier):
            continue  # scikit-learn itself refuses one label, or fits nothing to it
        with pytest.raises(SpecError, match=r"^classes: .*number the labels that occur in y"):
            clone(wrapper).fit(HOURS, labels)


def test_labels_of_a_category_are_of_the_type_of_its_values():
    numbers = pd.Series([1, 2, None], dtype="category")
    assert to_floats(numbers, Column("y", "classes", (1, 2)), "y")[:2].tolist() == [0, 1]
    with pytest.raises(SpecError, match=r"^y: is of type int64, and the listed values are texts"):
        to_floats(numbers, Column("y", "classes", ("1", "2")), "y")


def test_a_response_needs_its_bounds():
    with pytest.raises(SpecError, match=r"y_bounds: are missing. Write y_bounds=\(low, high\)"):
        estimators.Ridge(bounds=(0, 24), epsilon=1).fit(HOURS, LATE)


@pytest.mark.parametrize("given", [0.1, "0.1", np.float64(0.1)])
def test_a_float_costs_what_it_prints(given):
    able = estimators.KernelDensity(epsilon=given)
    assert dbern.Budget.parse(**able._charge) == dbern.Budget.parse("0.1")


def test_numbers_of_numpy_are_parameters():
    found = estimators.SVC(length_scale=np.float64(0.5), C=np.logspace(0, 1, 3)[2])._target(2, 7)
    assert found == {"kind": "support-vector-machine", "length_scale": [0.5, 0.5], "C": 70.0}


# --- Parameters of scikit-learn's

PEERS = {
    "GaussianNB": GaussianNB, "KernelDensity": KernelDensity, "KernelNB": GaussianNB,
    "KernelRegressor": KernelRidge, "LogisticRegression": LogisticRegression, "Ridge": Ridge,
    "SVC": SVC,
}  # fmt: skip


@pytest.mark.parametrize("estimator", CHECKED, ids=name_of)
def test_a_parameter_of_the_peer_s_is_taken_or_refused_in_a_sentence(estimator):
    """What neither has is Python's TypeError; `clone` and `set_params` are as they were."""
    ours, peer = type(estimator), PEERS[name_of(estimator)]
    for name in [*inspect.signature(peer).parameters, "n_jobs", "random_state", "class_weight"]:
        if name not in estimator.get_params() and (ours, name) not in UNLIKE:
            with pytest.raises(SpecError, match=rf"^{name}: .{{15,}}"):
                ours(**{name: 1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        ours(nonsense=1)
    assert clone(estimator).get_params().keys() == estimator.get_params().keys()


UNLIKE = {  # KernelRidge is a machine, and no Nadaraya-Watson
    (estimators.KernelRegressor, name) for name in ("alpha", "kernel_params", "degree")
}


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1, 3])
def test_c_is_that_of_scikit_learn_and_no_trap(epsilon):
    """With the paper's C, `C=1.0` named the largest class for all, .67 here."""
    x = np.random.default_rng(3).uniform(0, 1, (3000, 2))
    late = x.sum(axis=1) > 0.8
    facts = {"bounds": (0, 1), "classes": [False, True], "epsilon": epsilon}
    stated = estimators.LogisticRegression(**facts, C=1.0).fit(x, late)
    usual = estimators.LogisticRegression(**facts).fit(x, late)
    assert stated.synopsis_.metadata["target"]["C"] == 3000
    assert stated.score(x, late) > 0.95
    assert stated.score(x, late) > usual.score(x, late) - 0.02


@pytest.mark.slow
def test_alpha_is_that_of_scikit_learn():
    x = np.random.default_rng(3).uniform(0, 1, (3000, 2))
    y = 1 + 2 * x[:, 0] - x[:, 1]
    facts = {"bounds": (0, 1), "y_bounds": (0, 3), "epsilon": 100_000, "method": "moments"}
    for alpha in (0.5, 2000.0):
        found = estimators.Ridge(**facts, alpha=alpha).fit(x, y)
        assert found.synopsis_.metadata["target"]["C"] == 3000 / alpha
        np.testing.assert_allclose(found.coef_, Ridge(alpha=alpha).fit(x, y).coef_, atol=0.05)
    for alpha in (0, -1.0, "much"):
        with pytest.raises(SpecError, match="alpha: must be a number above 0"):
            estimators.Ridge(**facts, alpha=alpha).fit(x, y)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "told"),
    [
        (
            estimators.LogisticRegression(classes=[False, True], C=1.0),
            r"with C=1, for typical rows .*0 %",
        ),
        (
            estimators.SVC(classes=[False, True], C=1.0, length_scale=0.3),
            "with C=1, for typical rows ",
        ),
        (
            estimators.Ridge(y_bounds=(0, 1), alpha=2.0, method="moments"),
            "with alpha=2, for typical rows ",
        ),
    ],
    ids=["logistic", "machine", "ridge"],
)
@pytest.mark.filterwarnings("always")
def test_a_fit_warns_of_what_its_plan_warns_of(estimator, told, recwarn):
    x = np.random.default_rng(3).uniform(0, 1, (500, 1))
    estimator.set_params(bounds=(0, 1), epsilon=0.01).fit(x, x[:, 0] > 0.5)
    found = [one for one in recwarn if name_of(estimator) in str(one.message)]
    assert re.search("no better than a constant", str(found[0].message))
    assert re.search(told, str(found[1].message))
    word = "alpha" if "alpha" in told else "C"
    assert f'Write {word}="auto" for one that noise allows' in str(found[1].message)
    assert {one.filename for one in found} == {__file__}


DAYS = (date(2026, 1, 1), date(2027, 1, 1))
TIMES = {
    "pandas": lambda days: pd.DataFrame({"day": days}),
    "with a zone": lambda days: pd.DataFrame({"day": pd.Series(days).dt.tz_localize("UTC")}),
    "dates": lambda days: pd.DataFrame({"day": pd.Series(days).dt.date}),
    "of seconds": lambda days: pd.DataFrame({"day": pd.Series(days).astype("datetime64[s]")}),
    "in Arrow": lambda days: pd.DataFrame({"day": pd.Series(days).astype("date32[pyarrow]")}),
    "polars": lambda days: pl.DataFrame({"day": days.to_numpy()}),
    "a table": lambda days: pa.table({"day": pa.array(days)}),
    "an array": lambda days: days.to_numpy()[:, None],
}


@pytest.mark.slow
@pytest.mark.parametrize("made", TIMES.values(), ids=TIMES)
def test_dates_are_columns_of_any_frame(made):
    """A year of days, of which one lies outside the bounds and one is missing."""
    days = pd.date_range("2026-01-01", "2026-12-31").repeat(4).insert(0, pd.NaT)
    days = days.insert(0, pd.Timestamp("1700-02-03"))
    y = np.r_[10.0, 20.0, (np.arange(1460) // 4) / 36.5]
    found = estimators.Ridge(bounds=[DAYS], y_bounds=(0, 10), epsilon=1000).fit(made(days), y)
    assert found.coef_[0] == pytest.approx(1 / 36.5, rel=0.05)
    predicted = found.predict(made(days))
    assert np.isnan(predicted[1])
    np.testing.assert_allclose(predicted[[0, 2, -1]], [0, 0, 10], atol=0.3)


def test_bounds_of_dates_are_told_from_lists():
    for ends in (DAYS, np.array(DAYS, "datetime64[D]"), [datetime(2026, 1, 1), DAYS[1]]):
        (found,) = public_bounds([ends], ["day"]).values()
        assert [type(end) for end in found] == [type(end) for end in found if end]
        assert found[0].isoformat().startswith("2026-01-01")
    with pytest.raises(SpecError, match="bounds: are not those of X"):
        public_bounds([(DAYS[0], 5)], ["day"])
    days = pd.DataFrame({"day": pd.to_datetime(["2026-02-03"])})
    with pytest.raises(ValueError, match=r"Write two dates, or two times, as its bounds"):
        estimators.Ridge(bounds=(0, 1), y_bounds=(0, 1), epsilon=1).fit(days, [1.0])
    with pytest.raises(ValueError, match=r"its bounds are dates or times\."):
        estimators.Ridge(bounds=[DAYS], y_bounds=(0, 1), epsilon=1).fit(np.ones((2, 1)), [1.0, 2.0])


CLOCKS = [[time(6)], [time(12)], [time(18)]] * 500


@pytest.mark.slow
@pytest.mark.parametrize(
    "made",
    [lambda x: x, lambda x: np.array(x, dtype=object), lambda x: pd.DataFrame(x, columns=["at"]),
     lambda x: pa.table({"at": [row[0] for row in x]}),
     lambda x: pa.table({"at": [row[0] for row in x]}).to_pandas(types_mapper=pd.ArrowDtype)],
    ids=["list", "objects", "frame", "Arrow", "pandas of Arrow"],
)  # fmt: skip
def test_times_of_day_are_hours_in_every_table(made):
    """Of lists and objects `fit` read none, and spent epsilon on rows that were all missing."""
    found = estimators.KernelRegressor(
        bounds=[(0, 24)], y_bounds=(0, 24), bandwidth=1.0, epsilon=100
    )
    found.fit(made(CLOCKS), [row[0] for row in CLOCKS])
    np.testing.assert_allclose(found.predict(made(CLOCKS[:3])), [6, 12, 18], atol=0.2)
    assert found.score(made(CLOCKS), [row[0] for row in CLOCKS]) > 0.99


def test_times_of_day_want_bounds_of_hours():
    seconds = estimators.KernelDensity(bounds=[(0, 86400)], epsilon=1)
    with pytest.raises(
        ValueError, match=r"at: is of type time64\[us\]\. Write two numbers of hours"
    ):
        seconds.fit(pa.table({"at": [row[0] for row in CLOCKS]}))


# --- Ledgers


@pytest.fixture
def account(tmp_path, monkeypatch):
    """The URL of a ledger with 10 for rides, and warnings that were not given yet."""
    monkeypatch.setattr("dbern.sklearn.estimator._fits", itertools.count(1))
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
        ("count", "epsilon 0", "refunded"),
        ("publish", "epsilon 1", "abandoned"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"dbern.run.stages.{where}", stopped)
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
def test_nothing_of_the_records_is_in_a_fitted_estimator():
    able = fitted()
    held = {key for key in vars(able) if key.endswith("_")}
    assert held == {"classes_", "n_features_in_", "release_name_", "synopsis_"}
    objects = able.synopsis_._store.location._objects
    assert "manifest.json" in objects
    record = HOURS[7, 0].tobytes()
    assert not any(record in content for content in objects.values())
    assert "release_name_" not in repr(able)
    assert record not in pickle.dumps(able)


@pytest.mark.slow
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
    assert with_them.predict([[np.nan]]).tolist() == [None]


@pytest.mark.slow
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
def test_intervals_of_a_regressor_cover_the_regression_of_its_rows_everywhere_at_once():
    hours, bandwidth, fits = HOURS[:, 0], 2.0, 25
    responses = np.clip(20 + 3 * np.abs(hours - 12) + RNG.normal(0, 3, len(hours)), 0, 60)
    asked = np.linspace(0, 24, 41)
    kernels = np.exp(-(((asked[:, None] - hours) / bandwidth) ** 2) / 2)
    exact = kernels @ responses / kernels.sum(axis=1)
    able = estimators.KernelRegressor(
        bounds=(0, 24), y_bounds=(0, 60), epsilon=2, bandwidth=bandwidth
    )
    held = {0.05: 0, 0.5: 0}
    for _ in range(fits):
        able.fit(HOURS, responses)
        for beta in held:
            value, low, high = able.predict(asked[:, None], return_interval=True, beta=beta)
            assert value.shape == low.shape == high.shape == asked.shape
            np.testing.assert_array_equal(value, able.predict(asked[:, None]))
            known = np.isfinite(low)  # elsewhere noise hides how many rows there are
            assert known.mean() > 0.3
            assert ((low >= 0) & (low <= value) & (value <= high) & (high <= 60))[known].all()
            held[beta] += ((low <= exact) & (exact <= high))[known].all()
    assert binom.cdf(held[0.05], fits, 0.95) > 1e-4
    assert binom.cdf(held[0.5], fits, 0.5) > 1e-4
    width, wider = (np.subtract(*able.predict(HOURS, True, beta)[:0:-1]) for beta in (0.5, "0.05"))
    assert not (width > wider).any()
    assert np.nanmean(width) < 40  # the bounds are 60 apart
    assert np.isfinite(width).mean() > 0.9
    np.testing.assert_array_equal(*(able.predict([[x]], True) for x in (24.0, 99.0)))
    with pytest.raises(SpecError, match=r"beta.*0 and 1"):
        able.predict(HOURS, True, beta=2)


@pytest.mark.slow
def test_a_regressor_has_a_number_where_no_rows_are_or_none_as_it_is_asked():
    hours = np.linspace(0, 10, 4000)[:, None]
    minutes, asked = 30 + 2 * hours[:, 0], np.array([[5.0], [22.0]])
    able = estimators.KernelRegressor(bounds=(0, 24), y_bounds=(0, 60), epsilon=20, bandwidth=1.0)
    assert able.empty == "mean"
    near, far = able.fit(hours, minutes).predict(asked)
    assert abs(near - 40) < 1
    assert abs(far - minutes.mean()) < 10
    assert np.isfinite(cross_val_score(able, hours, minutes, cv=2)).all()
    value, low, high = able.predict(asked, return_interval=True)
    np.testing.assert_array_equal(value, [near, far])
    np.testing.assert_array_equal(np.isnan([low, high]), [[False, True]] * 2)
    able.set_params(empty="nan")
    np.testing.assert_array_equal(able.predict(asked), [near, np.nan])
    np.testing.assert_array_equal(able.predict([[99.0]]), [np.nan])  # as the nearest point
    known = [[4.0], [5.0]], [38.0, 40.0]
    assert able.score([*known[0], [22.0]], [*known[1], 0.0]) == able.score(*known)
    with pytest.raises(SpecError, match=r'empty: write empty="mean" or empty="nan"'):
        clone(able).set_params(empty="zero").fit(hours, minutes)


@pytest.mark.slow
def test_a_regressor_that_promises_nothing_says_so():
    ridge = estimators.Ridge(bounds=(0, 1), y_bounds=(-1, 5), epsilon=1)
    for method in ("moments", "objective"):
        ridge.set_params(method=method).fit(TWO, 3 * TWO[:, 0])
        refused = f"^return_interval: Ridge by {method} promises nothing .*KernelRegressor"
        with pytest.raises(SpecError, match=refused):
            ridge.predict(TWO, return_interval=True)
    ridge.set_params(method="weights", epsilon=1e6).fit(TWO, 3 * TWO[:, 0])
    value, low, high = ridge.predict(TWO, return_interval=True)
    assert (low <= value).all()
    assert (value <= high).all()
    assert (high - low < 1).all()


@pytest.mark.slow
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
    products = PolynomialFeatures(2, include_bias=False).fit_transform(TWO)
    made = products @ bent.coef_ + bent.intercept_
    np.testing.assert_allclose(bent.predict(TWO), made, atol=1e-9)
    weighed = line.set_params(method="weights").fit(TWO, response)  # and nothing of the last fit
    made = TWO @ weighed.coef_ + weighed.intercept_
    np.testing.assert_allclose(weighed.predict(TWO), np.clip(made, -1, 5), atol=1e-9)
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


NUMBERS = np.column_stack([np.linspace(0, 24, 40), np.linspace(1, 0, 40)])
TWENTY = np.arange(40) % 20


class Hostile:
    """A value whose every use raises with its content."""

    def _raised(self, *_: object) -> object:
        raise ValueError("SECRET")

    __float__ = __hash__ = __eq__ = __len__ = _raised


STRANGE = (
    np.nan, np.inf, None, 10**400, -(10**400), "SECRET", b"SECRET", 1 + 2j, np.complex128(1 + 2j),
    Decimal("sNaN"), [1, 2], np.ones(1), {"a": "SECRET"}, datetime(2020, 1, 1),
    np.longdouble("1e4000"), Hostile(), 0.5, 77,
)  # fmt: skip


def outcome(fit) -> tuple[str, list[str]]:
    """What a caller sees of a fit: an error or none, and the warnings."""
    error = ""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        try:
            fit()
        except Exception as failure:  # noqa: BLE001 -- whatever it is, it must not depend on a value
            error = repr(failure)
    return error, [str(warning.message) for warning in raised]


def variants(column: np.ndarray, value: object) -> list[object]:
    """A column whose third value is another, in every type that can hold it."""
    objects = column.astype(object)
    objects[2] = value
    found: list[object] = [objects, objects.tolist(), pd.Series(objects, dtype=object)]
    if isinstance(value, np.longdouble):
        found.append(column.astype(np.longdouble))
        found[-1][2] = value
    if isinstance(value, int | float) and (abs(value) < 1e18 or value == np.inf):
        floats = column.astype(float)
        floats[2] = value
        found += [floats, floats.tolist(), pd.Series(floats), pa.array(floats)]
    return found


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("value", STRANGE, ids=lambda value: type(value).__name__)
def test_a_value_that_does_not_fit_is_missing_and_tells_nothing(value, recwarn):
    for given in variants(TWENTY, value):
        vector = to_column(given, 40)
        for column in (Column("y", "classes", tuple(range(20))), Column("y", "y_bounds")):
            floats = to_floats(vector, column, "y")
            assert (np.delete(floats, 2) == np.delete(TWENTY, 2)).all()
            assert not np.isfinite(floats[2]) or floats[2] == value
    table = NUMBERS.astype(object)
    table[2, 0] = value
    rows = table.tolist()
    for given in (table, rows, [*rows[:2], value, *rows[3:]], pd.DataFrame(table)):
        _, (first, second) = split_columns(given)
        assert np.isfinite(np.delete(to_floats(second, Column("b", ""), "X"), 2)).all()
        kept = np.delete(to_floats(first, Column("a", ""), "X"), 2)
        assert (kept == np.delete(NUMBERS[:, 0], 2)).all()
    assert not recwarn.list


ANY = {"bounds": [(0, 24), (0, 1)], "epsilon": 1}
FITTED = [
    estimators.KernelDensity(**ANY, bandwidth=4.0, mechanism=SMALL),
    estimators.KernelRegressor(**ANY, bandwidth=4.0, mechanism=SMALL, y_bounds=(0, 20)),
    estimators.Ridge(**ANY, y_bounds=(0, 20)),
    estimators.LogisticRegression(**ANY, classes=range(20), C=1.0),
    estimators.SVC(**ANY, classes=range(3), length_scale=4.0, mechanism=SMALL),
    estimators.GaussianNB(**ANY, classes=range(20), std_floor=1.0),
    estimators.KernelNB(**ANY, classes=range(3), bandwidth=4.0, mechanism=SMALL),
]  # fmt: skip


@pytest.mark.sample(verify=1)
@pytest.mark.slow
@pytest.mark.parametrize("estimator", FITTED, ids=name_of)
def test_one_record_changes_neither_the_exit_nor_a_warning(estimator, account):
    """A 21st label of 40 rows was a warning, a label of one half an error, a text was quoted."""
    clone(estimator).fit(NUMBERS, TWENTY)
    clone(estimator).fit(NUMBERS, TWENTY)  # what a process is warned of once it was now
    usual = outcome(lambda: clone(estimator).fit(NUMBERS, TWENTY))
    assert usual[0] == ""
    assert all(text.startswith(f"{name_of(estimator)}: ") for text in usual[1])  # of the plan
    objects, labels = NUMBERS.astype(object), TWENTY.astype(object)
    fits = [(NUMBERS, TWENTY), (objects, labels), (NUMBERS.tolist(), TWENTY.tolist())]
    for value in (*STRANGE[:6], Hostile(), 0.5, 77):
        table, vector = objects.copy(), labels.copy()
        table[2, 0] = vector[2] = value
        fits += [(table, labels), (objects, vector), (table.tolist(), vector.tolist())]
    for x, y in fits:
        assert outcome(lambda x=x, y=y: clone(estimator).fit(x, y)) == usual


@pytest.mark.parametrize("value", ["SECRET", Hostile()], ids=["text", "object"])
@pytest.mark.slow
def test_a_point_that_is_no_number_has_no_answer(value):
    assert fitted().predict(np.array([[value]], dtype=object)).tolist() == [None]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.array([["a"]] * 40), TWENTY, "X: x0: is of type <U1. Convert it to numbers"),
        (NUMBERS.astype("M8[s]"), TWENTY, "X: x0: is of type datetime64"),
        (pd.DataFrame({"a": ["s"] * 40}, dtype="str"), TWENTY, "X: a: is of type str"),
        (pa.table({"a": ["s"] * 40}), TWENTY, "X: a: is of type string"),
        (NUMBERS[:, :1], TWENTY.astype("M8[s]"), "y: is of type datetime64"),
        (NUMBERS[:, :1], TWENTY[:9], r"y: should be a 1d array .* has shape \(9,\)"),
        (NUMBERS[None], TWENTY, r"X: has shape \(1, 40, 2\)"),
        (pd.DataFrame(NUMBERS, columns=["a", "a"]), TWENTY, "X: two columns have the same name"),
        (pa.table({"a": NUMBERS[:, 0]}), pa.array(["s"] * 40), "y: is of type string"),
    ],
)
def test_types_and_shapes_are_refused_by_their_names(x, y, message):
    with pytest.raises(SpecError, match=message):
        estimators.Ridge(bounds=(0, 1), y_bounds=(0, 1), epsilon=1).fit(x, y)


NAMED = pd.DataFrame(TWO, columns=["a", "b"])
FRAMES = {
    "pandas": lambda frame: frame, "polars": pl.from_pandas, "table": pa.Table.from_pandas,
    "batch": pa.RecordBatch.from_pandas,
    "duckdb": lambda frame: pytest.importorskip("duckdb").from_df(frame),
    "dask": lambda frame: dask.dataframe.from_pandas(frame, npartitions=2),
}  # fmt: skip


@pytest.fixture(scope="module")
def line():
    return estimators.Ridge(bounds=(0, 1), y_bounds=(0, 1), epsilon=1e6).fit(NAMED, TWO[:, 0])


@pytest.mark.parametrize("kind", FRAMES)
def test_columns_in_another_order_are_refused_in_every_frame(line, kind):
    """Those of Dask, DuckDB and batches were taken by position, without a word."""
    make = FRAMES[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(line.predict(make(NAMED)), line.predict(NAMED))
    for other in (NAMED[["b", "a"]], NAMED.rename(columns={"b": "c"})):
        with pytest.raises(ValueError, match="feature names should match"):
            line.predict(make(other))
    fitted_names = estimators.Ridge(bounds=(0, 1), y_bounds=(0, 1), epsilon=1)
    fitted_names._columns(make(NAMED))
    assert fitted_names.feature_names_in_.tolist() == ["a", "b"]


@pytest.mark.slow
@pytest.mark.parametrize("method", [None, "moments", "objective"])
def test_least_squares_take_lists_and_have_coefficients_in_the_columns_units(method):
    """Six columns were fitted by moments alone, with an R2 of a tenth where a spec had .9."""
    rng, values = np.random.default_rng(2), ["Fair", "Good", "Ideal"]
    frame = pd.DataFrame({
        "cut": rng.choice(values, 4000), "carat": rng.uniform(0, 10, 4000),
        "year": rng.uniform(2000, 2010, 4000),
    })  # fmt: skip
    slopes = np.array([-5.0, 1.0, 4.0, 3.0, 2.0])
    columns = [frame.cut == value for value in values] + [frame.carat, frame.year - 2005]
    y = np.column_stack(columns) @ slopes + rng.normal(0, 1, 4000)
    bounds = {"carat": (0, 10), "cut": values, "year": (2000, 2010)}
    able = estimators.Ridge(bounds=bounds, y_bounds=(-10, 50), epsilon=20, method=method)
    for table in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        assert able.fit(table, y).score(table, y) > 0.97
    np.testing.assert_allclose(able.coef_, slopes, atol=0.3)
    design = np.column_stack([*columns[:-1], frame.year])
    made = design @ able.coef_ + able.intercept_
    np.testing.assert_allclose(able.predict(frame), np.clip(made, -10, 50), atol=1e-6)
    able.fit(frame.assign(cut=frame.cut.astype("category")), y)
    again = pickle.loads(pickle.dumps(able))
    assert (again.predict(frame) == able.predict(frame)).all()
    unknown = frame.iloc[:3].assign(cut=["Good", "Poor", None])
    assert np.isnan(able.predict(unknown)).tolist() == [False, True, True]


@pytest.mark.slow
def test_classifiers_take_lists():
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"hour": HOURS[:, 0], "weekend": rng.random(len(HOURS)) < 0.5})
    labels = np.where(LATE ^ frame.weekend, "late", "early")
    shared = {
        "bounds": {"hour": (0, 24), "weekend": [False, True]}, "classes": ["early", "late"],
        "epsilon": 100,
    }  # fmt: skip
    both = [
        estimators.GaussianNB(**shared, std_floor=1.0),
        estimators.KernelNB(**shared, bandwidth=1.0, mechanism=SMALL),
        estimators.LogisticRegression(**shared),
    ]
    for able in both:
        able.fit(frame, labels)
        assert able.predict_proba(frame).shape == (400, 2)
    design = np.column_stack([frame.hour, ~frame.weekend, frame.weekend])
    made = design @ able.coef_[0] + able.intercept_[0]
    np.testing.assert_allclose(able.decision_function(frame), made, atol=1e-9)


def test_estimators_without_lists_say_which_have_some():
    frame = pd.DataFrame({"hour": HOURS[:, 0], "weekend": LATE})
    able = estimators.KernelDensity(
        bounds={"hour": (0, 24), "weekend": [False, True]}, bandwidth=1.0, epsilon=1
    )
    with pytest.raises(SpecError, match="KernelDensity has no use for a list of values"):
        able.fit(frame)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", CHECKED, ids=name_of)
@pytest.mark.filterwarnings("ignore")
def test_docstrings_name_what_a_fit_leaves(estimator):
    x = pd.DataFrame({"a": HOURS[:, 0] % 4})
    able = clone(estimator).fit(x, (x.a > 2).astype(int))
    _, _, attributes = type(able).__doc__.partition("Attributes\n")
    left = {name for name in vars(able) if name.endswith("_")}
    assert left == set(re.findall(r"^    (\w+_) : ", attributes, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_fit_says_that_it_is_in_memory_and_which_bandwidth_it_took():
    able = estimators.KernelRegressor(bounds=(0, 24), y_bounds=(0, 1), epsilon="1/2")
    synopsis = able.fit(HOURS, LATE).synopsis_
    said = f"<Synopsis {able.release_name_}: nadaraya-watson over x0, epsilon 0.5, in memory>"
    assert repr(synopsis) == repr(pickle.loads(pickle.dumps(synopsis))) == said
    assert "in memory" in synopsis._repr_html_()
    (bandwidth,) = synopsis.metadata["target"]["bandwidth"]
    assert 0 < bandwidth < 24


@pytest.mark.slow
def test_a_density_without_a_bandwidth_chooses_one():
    able = estimators.KernelDensity(bounds=(0, 24), epsilon=1).fit(HOURS)
    assert able.bandwidth == "auto"
    assert len(able.synopsis_.metadata["target"]["chosen_of"]) > 1
    assert able.score([[13.0]]) > able.score([[3.0]])


def test_a_density_of_four_columns_says_what_to_write(tmp_path):
    able = estimators.KernelDensity(bounds=(0, 24), epsilon=1, output=tmp_path)
    said = (
        r'^bandwidth: "auto" is for one to 3 axes, not 4\. '
        r"Write bandwidth=\[1\.2, 1\.2, 1\.2, 1\.2\]"
    )
    with pytest.raises(SpecError, match=said):
        able.fit(np.repeat(HOURS, 4, axis=1))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "rows"), [(0.1, 20_000), (1, 2000), (3, 2000)])
def test_a_kernel_estimator_without_a_bandwidth_beats_what_says_nothing(epsilon, rows):
    rng = np.random.default_rng(3)
    hours = rng.uniform(0, 24, size=(rows, 1))
    wave = np.sin(hours[:, 0] / 24 * 4 * np.pi)
    smooth = estimators.KernelRegressor(bounds=(0, 24), epsilon=epsilon, y_bounds=(-1, 1))
    smooth.fit(hours, wave + 0.2 * rng.normal(size=rows))
    assert smooth.bandwidth == "auto"
    assert np.mean((smooth.predict(hours) - wave) ** 2) < 0.15 * wave.var()
    told = estimators.KernelNB(bounds=(0, 24), epsilon=epsilon, classes=[False, True])
    told.fit(hours, wave > 0)
    assert np.mean(told.predict(hours) == (wave > 0)) > 0.85


FRACTIONS = {
    "bounds": (0, 1), "epsilon": 1e4, "mechanism": SMALL, "y_bounds": (0, 1), "std_floor": 0.1,
    "bandwidth": 0.3, "length_scale": 0.5, "classes": ["no", "yes"],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("estimator", CHECKED, ids=name_of)
@pytest.mark.filterwarnings("ignore")
def test_a_row_with_a_missing_value_has_no_answer_and_no_score(estimator):
    """It was counted by a fit and refused by a score: folds were paid for and scored NaN."""
    classifies, dense = hasattr(estimator, "classes"), hasattr(estimator, "score_samples")
    given = {key: FRACTIONS[key] for key in estimator.get_params() if key in FRACTIONS}
    able = clone(estimator).set_params(**given)
    if name_of(able) in ("Ridge", "LogisticRegression", "GaussianNB"):
        able.set_params(mechanism=None)
    x, labels = TWO.copy(), np.where(TWO[:, 0] > 0.5, "yes", "no").astype(object)
    x[3, 0], x[4, 1] = np.nan, np.inf
    y = None if dense else labels if classifies else TWO[:, 0].copy()
    if y is not None:
        y[5] = None
    able.fit(x, y)
    methods = ["score_samples", "predict", "predict_proba", "decision_function"]
    for method in (method for method in methods if hasattr(able, method)):
        answers = getattr(able, method)(x)
        assert pd.isna(pd.DataFrame(answers)).all(axis=1).to_numpy().nonzero()[0].tolist() == [3, 4]
        assert pd.isna(getattr(able, method)(np.full((2, 2), np.nan))).all()
    whole = np.delete(np.arange(300), [3, 4] if dense else [3, 4, 5])
    assert able.score(x, y) == pytest.approx(able.score(x[whole], None if dense else y[whole]))
    assert np.isfinite(cross_val_score(able, x, y, cv=KFold(2))).all()


LISTED = pd.DataFrame({"cut": ["Fair", "Ideal"] * 20, "x": NUMBERS[:, 1]})


@pytest.mark.parametrize(
    "bounds",
    [
        [["Fair", "Good", "Ideal"], (0, 1)], (("Fair", "Good", "Ideal"), [0, 1]),
        [np.array(["Fair", "Good", "Ideal"]), np.array([0.0, 1.0])],
        [{"values": ["Fair", "Good", "Ideal"]}, (0, 1)],
    ],
)  # fmt: skip
def test_bounds_mix_lists_and_pairs(bounds):
    assert public_bounds(bounds, ["cut", "x"]) == {
        "cut": {"values": ["Fair", "Good", "Ideal"]}, "x": [0.0, 1.0],
    }  # fmt: skip


def of_arrow(values: pa.Array) -> pd.Series:
    return pd.Series(pd.arrays.ArrowExtensionArray(values))


def test_every_type_of_text_and_decimal_is_read():
    texts, tenths = [*LISTED.cut[:3], None], pa.array([Decimal("0.1"), None])
    column = Column("cut", "bounds", ("Fair", "Ideal"))
    series = pl.Series("cut", texts)
    for given in (
        series.cast(pl.Categorical), series.cast(pl.Enum(["Ideal", "Fair"])),
        of_arrow(pa.array(texts).dictionary_encode()), of_arrow(pa.array(texts)),
        pa.array(texts).dictionary_encode(), pd.Series(texts, dtype="category"),
    ):  # fmt: skip
        frame = pd.DataFrame({"cut": given}) if hasattr(given, "iloc") else pa.table({"cut": given})
        for values in (to_column(given, 4), split_columns(frame)[1][0]):
            np.testing.assert_array_equal(to_floats(values, column, "X"), [0, 1, 0, np.nan])
    for given in (of_arrow(tenths), pl.Series([Decimal("0.1"), None]), tenths):
        values = to_floats(to_column(given, 2), Column("y", "y_bounds"), "y")
        np.testing.assert_array_equal(values, [0.1, np.nan])
    nothing = to_column(pl.Series([None, None]), 2)
    assert np.isnan(to_floats(nothing, Column("y", "y_bounds"), "y")).all()


def test_a_missing_label_does_not_change_the_type_that_is_checked():
    """By numpy a null made objects of integers and booleans, which were not refused any more."""
    column = Column("y", "classes", ("no", "yes"))
    for values in ([1, 0, 1], [1, 0, None]):
        whole = (pd.Series(values, dtype="Int64"), pl.Series(values), pa.array(values))
        for given in (*whole, pd.Series(values, dtype="boolean"), pl.Series(values) == 1):
            with pytest.raises(SpecError, match=r"^y: is of type .*, and the listed values are te"):
                to_floats(to_column(given, 3), column, "y")
