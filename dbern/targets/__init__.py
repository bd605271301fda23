"""Learners of kernel sums and naive Bayes, the registry of all learners, and their base.

A learner turns its public parameters into statistics, which are released of records.

A third party adds one by an entry point of the group ``dbern.targets`` that names its class. Most
are written with `Learner`, `KernelSum`, `Statistic`, `axis_kernels`, `KernelName` and `Lengths`,
which are here too.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from dbern.errors import SpecError
from dbern.measure.kernel_sums import KernelSum
from dbern.measure.statistic import Statistic
from dbern.system import Registry, imported
from dbern.targets.bandwidths import axis_kernels
from dbern.targets.kernel_density import KernelDensity
from dbern.targets.learner import KernelName, Learner, Lengths
from dbern.targets.nadaraya_watson import NadarayaWatson
from dbern.targets.naive_bayes import GaussianNaiveBayes, NaiveBayes

if TYPE_CHECKING:
    from dbern.learn.kernel_erm import KernelERM
    from dbern.learn.logistic_regression import LogisticRegression
    from dbern.learn.oracle import Oracle
    from dbern.learn.priestley_chao import PriestleyChao
    from dbern.learn.ridge_regression import RidgeRegression
    from dbern.learn.support_vector_machine import SupportVectorMachine

__all__ = [
    "GaussianNaiveBayes",
    "KernelDensity",
    "KernelERM",
    "KernelName",
    "KernelSum",
    "Learner",
    "Lengths",
    "LogisticRegression",
    "NadarayaWatson",
    "NaiveBayes",
    "Oracle",
    "PriestleyChao",
    "RidgeRegression",
    "Statistic",
    "SupportVectorMachine",
    "axis_kernels",
    "kinds",
    "known",
    "learner_of",
]

LEARNERS = {
    "kernel-density": "dbern.targets.kernel_density:KernelDensity",
    "nadaraya-watson": "dbern.targets.nadaraya_watson:NadarayaWatson",
    "priestley-chao": "dbern.learn.priestley_chao:PriestleyChao",
    "support-vector-machine": "dbern.learn.support_vector_machine:SupportVectorMachine",
    "naive-bayes": "dbern.targets.naive_bayes:NaiveBayes",
    "gaussian-naive-bayes": "dbern.targets.naive_bayes:GaussianNaiveBayes",
    "kernel-erm": "dbern.learn.kernel_erm:KernelERM",
    "logistic-regression": "dbern.learn.logistic_regression:LogisticRegression",
    "ridge-regression": "dbern.learn.ridge_regression:RidgeRegression",
    "oracle": "dbern.learn.oracle:Oracle",
}
"""Where each kind's class is; a new learner is a file and a line here."""

_HOMES = {home.partition(":")[2]: home for home in LEARNERS.values()}
_REMOVED = {
    "functional-mean": "Write a learner of a vector sum, as that of notebooks/own_learner.ipynb"
}
"""Kinds that left, with what to write instead."""

ALL_LEARNERS: Final[Registry[type[Learner]]] = Registry("dbern.targets", LEARNERS, "kind")
"""Ours, and those of installed packages."""


def kinds() -> list[str]:
    """Return every ``target.kind``: ours, then those of installed packages.

    Examples
    --------
    >>> kinds()[0]
    'kernel-density'
    """
    return ALL_LEARNERS.names()


def known(learner: type[Learner]) -> AbstractContextManager[None]:
    """Make a learner's kind known meanwhile, for specs of one that no package has installed.

    Examples
    --------
    >>> class Mine(KernelDensity):
    ...     kind = "mine"
    >>> with known(Mine):
    ...     learner_of("mine").__name__
    'Mine'
    """
    return ALL_LEARNERS.known(learner)


def learner_of(kind: str) -> type[Learner]:
    """Return the learner that ``target.kind`` names: ours, or an installed entry point.

    Raises
    ------
    SpecError
        For an unknown kind, with the nearest known one.

    Examples
    --------
    >>> learner_of("kernel-density").__name__
    'KernelDensity'
    """
    if kind in _REMOVED and kind not in ALL_LEARNERS:
        raise SpecError(f'target.kind: "{kind}" is no kind. {_REMOVED[kind]}')
    return ALL_LEARNERS.get(kind, "target.kind")


def __getattr__(name: str) -> Any:
    """Import a learner when it is first used: a plan of a density loads no solver."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return imported(_HOMES[name])
