"""Parameters of scikit-learn's estimators that ours have not, and why: a name is refused, told why.

Those that both have mean what they do there (`C`, `alpha`, `kernel`, `bandwidth`, ..), of columns
that their bounds map to [0, 1].
"""

from __future__ import annotations

from collections.abc import Iterable

_SOLVED = (
    "what is released is solved, or counted, as exactly as its privacy needs, whatever that takes"
)
_WALKED = "the released function is evaluated itself: no tree of records is walked"
_PENALTY = "the penalty is the square of the weights' length: the proof of privacy is for that one"
_REASONS = {
    "algorithm": _WALKED,
    "atol": _WALKED,
    "breadth_first": _WALKED,
    "leaf_size": _WALKED,
    "metric": _WALKED,
    "metric_params": _WALKED,
    "rtol": _WALKED,
    "break_ties": "predict names the class with the largest score",
    "cache_size": _SOLVED,
    "dual": _SOLVED,
    "max_iter": _SOLVED,
    "shrinking": _SOLVED,
    "solver": _SOLVED,
    "tol": _SOLVED,
    "class_weight": "weights that follow from y would be read from the data before it is paid for",
    "coef0": "the kernel is the Gaussian one",
    "copy_X": "X is read once and never changed",
    "decision_function_shape": "of more than two classes there is one score each, against the rest",
    "fit_intercept": "an intercept belongs to the function",
    "gamma": "write length_scale, in the units of each column: gamma is 1 / (2 length_scale^2)",
    "intercept_scaling": "an intercept belongs to the function, and its scale to the noise",
    "l1_ratio": _PENALTY,
    "n_jobs": "a fit counts in threads of this process, as many as there are cores",
    "penalty": _PENALTY,
    "positive": "the noise decides about a sign as about the rest; cut what was released",
    "priors": "shares of classes are counted, and have noise like the rest",
    "probability": "a support vector machine says no probabilities: take LogisticRegression",
    "random_state": "noise that can be drawn again can be taken off, so there is no seed",
    "sample_weight": "a row that weighs more would need more noise: each counts as one",
    "var_smoothing": "write std_floor, in the units of each column: the largest variance is data",
    "verbose": "what a fit says is in warnings and errors",
    "warm_start": "a release begins with its records, not with another release",
}
_ELSEWHERE = {
    ("GaussianNB", "alpha"): "a count has noise, and none of its own is added",
    ("LogisticRegression", "alpha"): "write C: it is 1 / alpha here as in scikit-learn",
    ("LogisticRegression", "fit_intercept"): "write constant=0 for a function without intercept",
    ("Ridge", "C"): "write alpha, as in scikit-learn; a spec's C is n / alpha",
    ("SVC", "degree"): "the kernel is the Gaussian one",
    ("SVC", "kernel"): "the kernel is the Gaussian one; for the linear one take LogisticRegression",
}


def reason_against(estimator: str, names: Iterable[str]) -> str:
    """Say why the first of these names that is known is no parameter of an estimator; else ""."""
    for name in names:
        if (estimator, name) in _ELSEWHERE:
            return f"{name}: {_ELSEWHERE[estimator, name]}"
        if name in _REASONS:
            return f"{name}: {_REASONS[name]}. Leave it out"
    return ""
