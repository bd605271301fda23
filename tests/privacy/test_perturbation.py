"""A random linear term: its law, and the densities of minimizers of neighbouring databases."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import gamma, kstest

from dbern.erm.losses import Hinge, Huber
from dbern.erm.objective import ONE_HOT_VALUE, OutputwiseLoss, PerturbedRisk, Softmax
from dbern.erm.perturbed import _row_weight, _row_weights_charge
from dbern.privacy import perturbation
from dbern.privacy.keystream import KeyStream
from dbern.privacy.perturbation import Perturbation, penalty_weight, tied_charge

LAW = Perturbation((1.0, 1.0, 1.5), 4.0)


def draws(law: Perturbation, count: int) -> np.ndarray:
    return np.array([law.draw(KeyStream(bytes(32), block))[0] for block in range(count)])


@pytest.mark.slow
def test_the_law_is_a_gamma_norm_over_a_box():
    drawn = draws(LAW, 600) / LAW.radii
    norms = np.abs(drawn).max(axis=1)
    assert kstest(norms / LAW.scale, gamma(3).cdf).pvalue > 1e-3
    others = np.sort(np.abs(drawn) / norms[:, None], axis=1)[:, :-1].max(axis=1)
    assert kstest(others, lambda x: x**2).pvalue > 1e-3  # of two uniform variables the larger
    for place in range(3):
        on_face = np.abs(drawn[:, place]) == norms
        assert 150 < on_face.sum() < 250
        assert 0.35 < (drawn[on_face, place] > 0).mean() < 0.65


@pytest.mark.slow
def test_the_law_of_lists_is_a_gamma_norm_over_a_product_of_cross_polytopes():
    law = Perturbation((0.5,) * 6, 4.0, (4, 2))
    drawn = draws(law, 1500) / 0.5
    sums = np.column_stack([np.abs(drawn[:, :4]).sum(axis=1), np.abs(drawn[:, 4:]).sum(axis=1)])
    norms = sums.max(axis=1)
    assert kstest(norms / law.scale, gamma(6).cdf).pvalue > 1e-3
    first = sums.argmax(axis=1) == 0
    assert abs(first.mean() - 4 / 6) < 4 * math.sqrt(2 / 9 / 1500)
    inside = (drawn / norms[:, None])[~first, :4]
    assert kstest(np.abs(inside).sum(axis=1), lambda r: r**4).pvalue > 1e-3
    for places in (inside, (drawn / norms[:, None])[first, :4]):
        shares = np.abs(places) / np.abs(places).sum(axis=1, keepdims=True)
        for j in range(4):  # of a uniform point of a simplex
            assert kstest(shares[:, j], lambda x: 1 - (1 - x) ** 3).pvalue > 1e-3
            assert abs((places[:, j] > 0).mean() - 0.5) < 4 * 0.5 / math.sqrt(len(places))
    b, largest = law.draw(KeyStream(bytes(32), 5))
    norm = max(np.abs(b[:4]).sum(), np.abs(b[4:]).sum()) / 0.5
    assert abs(norm - largest) <= law.error(largest) < 1e-8 * law.scale


@pytest.mark.slow
def test_both_cells_beside_zero_are_drawn_and_cells_are_geometric(monkeypatch):
    monkeypatch.setattr(perturbation, "_CELLS", 1)
    law = Perturbation((1.0,), 1.0)
    values = draws(law, 800)[:, 0]
    cells = np.floor(np.abs(values)).astype(int)
    np.testing.assert_array_equal(np.abs(values), cells + 0.5)
    q = math.exp(-1)
    for sign, cell in itertools.product((-1, 1), (0, 1, 2)):
        wanted = 800 * (1 - q) * q**cell / 2
        found = ((np.sign(values) == sign) & (cells == cell)).sum()
        assert abs(found - wanted) < 5 * math.sqrt(wanted)


def test_what_is_drawn_is_known_to_its_error():
    b, largest = LAW.draw(KeyStream(bytes(32), 5))
    assert abs(np.abs(b / LAW.radii).max() - largest) <= LAW.error(largest) < 1e-8 * LAW.scale


@pytest.mark.parametrize("law", [LAW, Perturbation((0.5,) * 6, 4.0, (4, 2))])
def test_floats_of_what_is_drawn_are_within_its_error(law, monkeypatch):
    """A twin in fractions; cells are so narrow that roundings alone are left."""
    monkeypatch.setattr(perturbation, "_CELLS", 1 << 60)
    blocks = law.blocks or (1,) * len(law.radii)
    for block in range(20):
        drawn, largest = law.draw(KeyStream(bytes(32), block))
        stream = KeyStream(bytes(32), block)
        face = perturbation._below(len(law.radii), stream)
        words = stream.words(len(law.radii)).tolist()
        shares = [Fraction(2 * (word - (1 << 63)) + 1, 1 << 64) for word in words]
        shares[face] = Fraction(1 if drawn[face] > 0 else -1)
        exact = []
        for start, size in zip(np.cumsum([0, *blocks]), blocks, strict=False):
            own = shares[start : start + size]
            steps = np.diff(sorted(map(abs, own)), prepend=0) if size > 1 else np.abs(own)
            exact += [step if share > 0 else -step for step, share in zip(steps, own, strict=True)]
        values = zip(drawn.tolist(), law.radii, exact, strict=True)
        errors = [abs(Fraction(b) / Fraction(radius) - share * Fraction(largest))
                  for b, radius, share in values]  # fmt: skip
        apart = max(sum(errors[start : start + size]) for start, size in
                    zip(np.cumsum([0, *blocks]), blocks, strict=False))  # fmt: skip
        assert 0 < apart <= law.error(largest) < 1e-14 * largest


def test_a_word_that_would_favor_a_face_is_drawn_again():
    words = iter([2**64 - 1, 2**64 - 2])
    stream = SimpleNamespace(words=lambda count: [next(words)][:count])
    assert perturbation._below(3, stream) == (2**64 - 2) % 3


def test_a_face_is_uniform():
    stream = KeyStream(bytes(32), 1)
    counts = np.bincount([perturbation._below(3, stream) for _ in range(3000)], minlength=3)
    assert abs(counts - 1000).max() < 150


# --- Densities of minimizers, exactly


def norm(law: Perturbation, b: np.ndarray) -> float:
    """The norm in which a law is: the largest sum of a block's coordinates."""
    starts = np.cumsum([0, *(law.blocks or (1,) * b.size)])[:-1]
    return float(np.add.reduceat(np.abs(b.ravel() / law.radii), starts).max())


@dataclass(frozen=True)
class Minimizers:
    """Densities of minimizers over states (outputs, features): b is a function of the minimizer.

    `laws` are of the numbers, the last features, and of lists before them where there are some.
    """

    loss: Softmax | OutputwiseLoss
    weight: float
    laws: tuple[Perturbation, ...]

    def terms(self, state: np.ndarray, records: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        """Gradients and Hessians of records (features, label), together."""
        gradients, hessian = np.zeros_like(state), np.zeros((state.size, state.size))
        for features, label in records:
            prediction, labels = (state @ features)[None], np.array([label])
            gradients += self.loss.derivative(labels, prediction)[0][:, None] * features
            second = self.loss.second(labels, prediction)[0]
            hessian += np.kron(second, np.outer(features, features))
        return gradients, hessian

    def log_density(
        self, state: np.ndarray, gradients: np.ndarray, hessian: np.ndarray
    ) -> tuple[float, float]:
        """Its two terms: of the Jacobian, and of b."""
        b = gradients + state / self.weight
        jacobian = float(np.linalg.slogdet(hessian + np.eye(state.size) / self.weight)[1])
        numbers = len(self.laws[0].radii) // self.loss.outputs
        parts = b[:, b.shape[1] - numbers :], b[:, : b.shape[1] - numbers]
        sizes = [norm(law, part) / law.scale for law, part in zip(self.laws, parts, strict=False)]
        return jacobian, -sum(sizes)

    def logs(self, state: np.ndarray, databases: Sequence[Sequence[Any]]) -> np.ndarray:
        """Both terms for each database."""
        return np.array([self.log_density(state, *self.terms(state, d)) for d in databases])

    def differences(
        self, states: Sequence[np.ndarray], databases: Sequence[Sequence[Any]]
    ) -> tuple[float, float]:
        """The largest differences between any two databases: of all, and of the Jacobian alone."""
        logs = [self.logs(state, databases) for state in states]
        return (
            max(float(np.ptp(each.sum(axis=1))) for each in logs),
            max(float(np.ptp(each[:, 0])) for each in logs),
        )


def minimizers(
    loss: Softmax | OutputwiseLoss,
    axes: int,
    epsilon_j: Fraction,
    moved: Fraction | Callable[[float], Fraction],
    rows: int = 1,
) -> Minimizers:
    """Minimizers of axes and a constant, for units of so many rows.

    `moved` is the epsilon of b, or what makes it of the weight.
    """
    radii, rank = (1.0,) * axes + (1.5,), min(rows, axes + 1) * loss.outputs
    weight = penalty_weight(epsilon_j, rows * loss.bounds.trace, rank, axes + 1.5**2)
    epsilon_b = moved if isinstance(moved, Fraction) else moved(weight)
    farthest = 2.0 * rows * loss.bounds.gradient_entry_bound
    law = Perturbation.for_budget(radii * loss.outputs, farthest, epsilon_b)
    return Minimizers(loss, weight, (law,))


def corners(axes: int, labels: Iterable[float], inner: float = 0.3) -> list[Any]:
    """Records at the corners and middles of a box, with each label."""
    places = [np.array([*z, 1.5]) for z in itertools.product((-1.0, inner, 1.0), repeat=axes)]
    return list(itertools.product(places, labels))


def units_of(records: list[Any], rows: int, count: int, rng: np.random.Generator) -> list[Any]:
    """No unit, units of one record again and again, and mixed ones."""
    mixed = [[records[i] for i in rng.integers(0, len(records), rows)] for _ in range(count)]
    return [[], *([record] * rows for record in records), *mixed]


@pytest.mark.slow
@pytest.mark.parametrize(("axes", "outputs"), [(0, 1), (1, 1), (2, 1), (1, 2), (1, 3)])
@pytest.mark.parametrize("epsilons", [("0.5", "0.25"), ("0.1", "1"), ("2", "0.05")])
def test_no_neighbours_densities_part_by_more_than_is_charged(axes, outputs, epsilons):
    epsilon_b, epsilon_j = map(Fraction, epsilons)
    solved = minimizers(Softmax(outputs), axes, epsilon_j, epsilon_b)
    rng, records = np.random.default_rng(7), corners(axes, range(outputs + 1))
    allowed, shape = float(epsilon_b + epsilon_j), (outputs, axes + 1)
    states = [rng.normal(size=shape) * size for size in (0.0, 0.1, 1.0, 10.0) for _ in range(6)]
    states += [np.full(shape, value) for value in (-40.0, -0.4, 0.4, 40.0)]
    contexts = [[], [records[0]], [records[-1], records[0]]]
    worst, jacobian = np.max([
        solved.differences(states, [context, *([*context, record] for record in records)])
        for context in contexts
    ], axis=0)  # fmt: skip
    assert worst <= allowed
    assert jacobian <= float(epsilon_j)
    if outputs == 1:  # attained where one record has all the curvature, and where gradients oppose
        assert jacobian > 0.98 * float(epsilon_j)
        assert worst > (0.6 if axes else 0.4) * allowed


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(-1.0, 0.2, 1.0), ()], ids=["beside a number", "alone"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_no_neighbours_with_categories_part_by_more_than_is_charged(outputs, numbers):
    """Numbers and lists have a norm each, and a record moves the gradient by 2 in either."""
    parts = {"b": 0.5, "listed": 0.4, "jacobian": 0.3}
    radii = (1.0, 1.5) if numbers else (1.5,)
    loss, square = Softmax(outputs), np.square(radii).sum() + 2 * ONE_HOT_VALUE**2
    weight = penalty_weight(Fraction(3, 10), loss.bounds.trace, outputs, square)
    scales = [Perturbation.for_budget((), 2.0, Fraction(parts[name])).scale
              for name in ("b", "listed")]  # fmt: skip
    risk = PerturbedRisk(loss, 10, radii, weight, scales[0], (3, 2), scales[1])
    solved, (of_numbers, lists) = Minimizers(loss, weight, risk.laws), risk.laws
    first, second = ONE_HOT_VALUE * np.eye(3), ONE_HOT_VALUE * np.eye(2)
    ends = [[z, 1.5] for z in numbers] or [[1.5]]
    one_hot = [np.concatenate([first[i], second[j], end])
               for i in range(3) for j in range(2) for end in ends]  # fmt: skip
    databases = [[], *([record] for record in itertools.product(one_hot, range(outputs + 1)))]
    rng = np.random.default_rng(12)
    states = [rng.normal(size=(outputs, 5 + len(radii))) * size for size in (0.0, 0.3, 3.0, 60.0)]
    farthest = [0.0, 0.0]
    for state in states:
        gradients = [solved.terms(state, database)[0] for database in databases]
        for one, other in itertools.product(gradients, gradients):
            apart = norm(lists, (one - other)[:, :5]), norm(of_numbers, (one - other)[:, 5:])
            farthest = np.maximum(farthest, apart)
    assert (farthest <= 2 + 1e-12).all()
    # A constant alone moves by less than is allowed for.
    assert (farthest > [1.9, 1.9 if numbers else 1.0]).all()
    worst, _ = solved.differences(states, databases)
    assert (0.5 if numbers else 0.35) * sum(parts.values()) < worst <= sum(parts.values())


@pytest.mark.parametrize(
    ("loss", "labels"),
    [(OutputwiseLoss(Hinge(0.5)), (-1.0, 1.0)), (OutputwiseLoss(Hinge(1.0), 2), (0.0, 1.0, 2.0)),
     (OutputwiseLoss(Huber(0.4, 1.0)), (-1.0, 0.0, 1.0))],
)  # fmt: skip
def test_no_neighbours_part_by_more_than_is_charged_under_other_losses(loss, labels):
    """Their second derivatives jump; where there is one the densities are as proved."""
    epsilon_b, epsilon_j = Fraction(1, 2), Fraction(1, 4)
    solved, rng = minimizers(loss, 1, epsilon_j, epsilon_b), np.random.default_rng(15)
    states = [rng.normal(size=(loss.outputs, 2)) * size for size in (0.0, 0.1, 0.3, 1.0, 9.0)
              for _ in range(12)]  # fmt: skip
    databases = [[], *([record] for record in corners(1, labels, 0.1))]
    worst, jacobian = solved.differences(states, databases)
    assert 0.5 * float(epsilon_b + epsilon_j) < worst <= float(epsilon_b + epsilon_j)
    assert 0.9 * float(epsilon_j) < jacobian <= float(epsilon_j)


@pytest.mark.parametrize(("axes", "outputs", "rows"), [(1, 1, 2), (1, 1, 4), (1, 2, 2), (2, 1, 3)])
def test_no_units_densities_part_by_more_than_is_charged(axes, outputs, rows):
    epsilon_b, epsilon_j = Fraction(1, 2), Fraction(1, 2)
    solved = minimizers(Softmax(outputs), axes, epsilon_j, epsilon_b, rows)
    rng = np.random.default_rng(9)
    units = units_of(corners(axes, range(outputs + 1)), rows, 20, rng)
    states = [rng.normal(size=(outputs, axes + 1)) * size for size in (0.0, 0.3, 3.0, 30.0)]
    worst, jacobian = solved.differences(states, units)
    assert 0.4 < worst <= float(epsilon_b + epsilon_j)
    assert 0.3 * float(epsilon_j) < jacobian <= float(epsilon_j)


@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_gradients_of_two_records_are_two_apart_at_most_and_some_are(outputs):
    solved = minimizers(Softmax(outputs), 2, Fraction(1), Fraction(1))
    databases = [[], *([record] for record in corners(2, range(outputs + 1)))]
    rng, most = np.random.default_rng(8), 0.0
    for scale in (0.0, 1.0, 100.0):
        state = scale * rng.normal(size=(outputs, 3))
        gradients = np.array([solved.terms(state, database)[0].ravel() for database in databases])
        apart = np.abs(gradients[:, None] - gradients) / np.tile([1.0, 1.0, 1.5], outputs)
        most = max(most, float(apart.max()))
    assert 1.99 < most <= 2


@pytest.mark.parametrize("epsilon", ["0.001", "0.5", "8"])
@pytest.mark.parametrize("rank", [1, 4])
def test_the_penalty_pays_for_the_jacobian_and_for_no_more(epsilon, rank):
    trace = Softmax(rank).bounds.trace
    weight = penalty_weight(Fraction(epsilon), trace, rank, 7.25)
    spent = rank * math.log1p(weight * trace * 7.25 / rank)
    assert float(Fraction(epsilon)) * (1 - 1e-9) < spent <= float(Fraction(epsilon))


# --- Slopes and curvatures that are tied: two classes


def largest_spent(along: float, rank: int, curved: float) -> float:
    """The lemma's maximum, on a grid: at most the maximum, and next to it."""
    p = np.linspace(0.0, 1.0, 200_001)
    return float(((1 + p) * along + rank * np.log1p(curved * p * (1 - p))).max())


@pytest.mark.parametrize("epsilon", ["0.001", "1", "30"])
@pytest.mark.parametrize("share", ["0.02", "0.3", "0.95"])
@pytest.mark.parametrize(("rows", "rank"), [(1, 1), (3, 3), (9, 4)])
def test_a_tied_loss_spends_its_epsilon_and_no_more(epsilon, share, rows, rank):
    charge, of_j, square = Fraction(epsilon), Fraction(epsilon) * Fraction(share), 7.25
    weight = penalty_weight(of_j, 0.25 * rows, rank, square)
    moved = tied_charge(charge, weight, rows, rank, square)
    spent = largest_spent(float(moved) / 2, rank, weight * rows * square / rank)
    assert (1 - 1e-9) * float(charge) < spent <= float(charge)
    assert (charge - of_j) * (1 - Fraction(1, 10**9)) < moved < charge


@pytest.mark.parametrize("along", [1e-4, 0.3, 2.0, 40.0])
@pytest.mark.parametrize("curved", [1e-6, 0.5, 8.0, 1e7])
@pytest.mark.parametrize("rank", [1, 12])
def test_what_a_tied_loss_spends_is_bounded_from_above_and_closely(along, curved, rank):
    bound, found = perturbation._tied(along, rank, curved), largest_spent(along, rank, curved)
    assert found <= bound <= found * (1 + 1e-6)


@pytest.mark.parametrize("epsilon", ["0.01", "1", "30"])
@pytest.mark.parametrize(("rows", "rank"), [(1, 1), (9, 4)])
def test_what_is_added_pulls_once_and_costs_its_epsilon(epsilon, rows, rank):
    charge, square = Fraction(epsilon), 7.25
    weight = penalty_weight(charge / 3, 0.25 * rows, rank, square)
    moved = tied_charge(charge, weight, rows, rank, square, added=True)
    along = float(moved) / 2
    spent = largest_spent(along, rank, weight * rows * square / rank) - along
    assert (1 - 1e-9) * float(charge) < spent <= float(charge)
    assert moved >= 2 * tied_charge(charge, weight, rows, rank, square)


PRIVATE = [  # loss, labels, rows of a unit, most, epsilon of b and of the Jacobian
    (Softmax(1), (0.0, 1.0), 1, 3, "1", "0.5"), (Softmax(1), (0.0, 1.0), 1, 20, "0.5", "0.05"),
    (Softmax(1), (0.0, 1.0), 3, 12, "1", "0.5"), (Softmax(2), (0.0, 1.0, 2.0), 1, 6, "0.5", "0.5"),
    (Softmax(2), (0.0, 1.0, 2.0), 2, 20, "1", "0.2"),
    (OutputwiseLoss(Hinge(0.5)), (-1.0, 1.0), 1, 6, "0.5", "0.25"),
    (OutputwiseLoss(Huber(0.4, 1.0)), (-1.0, 0.0, 1.0), 2, 8, "1", "0.5"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "labels", "rows", "most", "pulled", "bent"), PRIVATE)
@pytest.mark.parametrize("replaced", [False, True])
def test_no_added_unit_parts_densities_by_more_than_is_charged(
    loss, labels, rows, most, pulled, bent, replaced
):
    """Beside any number of other rows, below the most that weigh in full and far above it."""
    rank, rest = min(rows, 2) * loss.outputs, _row_weights_charge(rows, 2 * loss.outputs, most)
    charge = Fraction(pulled) + Fraction(bent)

    def moved(weight: float) -> Fraction:
        if loss.curvature_from_slope:
            return tied_charge(charge, weight, rows, rank, 1 + 1.5**2, not replaced)
        return Fraction(pulled) * (1 if replaced else 2)

    solved = minimizers(loss, 1, Fraction(bent), moved, rows)
    rng, known = np.random.default_rng(41), corners(1, labels, 0.2)
    units = [[], *([record] * count for record in known for count in {1, rows})]
    units += units_of(known, rows, 6, rng)[1 + len(known) :]
    counts = sorted({0, 1, 2, most, *range(2 * most - 2, 2 * most + 1), 4 * most - 3, 4 * most - 2})
    worst, unbent = [0.0, 0.0], 0.0  # of adding, or of replacing; of removing
    for size, count in itertools.product((0.0, 0.4, 4.0, 40.0), counts):
        for _ in range(3):
            state = size * rng.normal(size=(loss.outputs, 2))
            which = rng.choice(len(known), count, p=rng.dirichlet(np.full(len(known), 0.3)))
            others, logs = solved.terms(state, [known[i] for i in which]), []
            for unit in units:
                g, own = _row_weight(count + len(unit), most), solved.terms(state, unit)
                sums = [g * (ours + theirs) for ours, theirs in zip(own, others, strict=True)]
                logs.append(solved.log_density(state, *sums))
            both = np.array(logs)
            unbent = max(unbent, float((both[0] - both).max(axis=0)[0]))
            apart = both.sum(axis=1) - (both.sum(axis=1).min() if replaced else both[0].sum())
            worst = [max(worst[0], apart.max()), max(worst[1], -apart.min())]
    assert unbent <= rest
    if replaced:
        assert worst[0] <= charge + rest
    else:
        assert max(worst) <= charge
        assert worst[1] <= moved(solved.weight) / 2 + rest
    assert max(worst) > 0.4 * float(charge)


@pytest.mark.slow
@pytest.mark.parametrize("lists", [(), (2,), (3, 2)])
@pytest.mark.parametrize(("epsilon", "share"), [("1", "0.4"), ("0.2", "0.9"), ("5", "0.5")])
def test_slope_and_curvature_part_neighbours_by_what_is_charged_and_no_more(lists, epsilon, share):
    charge, listed = Fraction(epsilon), Fraction(3, 8) if lists else Fraction(0)
    square = 1 + 1.5**2 + len(lists) * ONE_HOT_VALUE**2
    weight = penalty_weight(charge * Fraction(share), 0.25, 1, square)
    moved = tied_charge(charge, weight, 1, 1, square)
    scales = [Perturbation.for_budget((), 2.0, moved * part).scale
              for part in (1 - listed, listed) if part]  # fmt: skip
    risk = PerturbedRisk(Softmax(1), 10, (1.0, 1.5), weight, scales[0], lists, *scales[1:])
    solved, rng, worst = Minimizers(risk.loss, weight, risk.laws), np.random.default_rng(31), 0.0

    def features(z: float, last: bool) -> np.ndarray:
        own = [ONE_HOT_VALUE * np.eye(size)[size - 1 if last else 0] for size in lists]
        return np.concatenate([*own, [z, 1.5]])

    # One record bends and is pulled by p, the other is pulled by 1: every law's norm feels both.
    far, one, other = 60.0, (features(1.0, False), 1.0), (features(-1.0, True), 1.0)
    for wanted in np.linspace(-6, 6, 121):
        pulls = [-far * np.eye(size)[0] + far * np.eye(size)[size - 1] for size in lists]
        state = np.concatenate([*pulls, [-4 * far, 0.0]])
        state[-1] = (wanted - state @ one[0]) / 1.5
        bending, pulled = solved.logs(state[None], [[one], [other]]).sum(axis=1)
        worst = max(worst, bending - pulled)
    for _ in range(400):
        state = rng.normal(size=(1, risk.features)) * rng.choice([0.3, 3.0, 30.0])
        pair = [[(features(z, bool(rng.integers(2))), float(rng.integers(2)))]
                for z in rng.choice([-1.0, 0.2, 1.0], 2)]  # fmt: skip
        pair[1] = [] if rng.random() < 0.2 else pair[1]
        worst = max(worst, solved.differences([state], pair)[0])
    assert 0.999 * float(charge) < worst <= float(charge)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [2, 5])
def test_units_of_tied_rows_part_by_no_more_than_is_charged(rows):
    def moved(weight: float) -> Fraction:
        return tied_charge(Fraction(1), weight, rows, min(rows, 2), 1 + 1.5**2)

    solved = minimizers(Softmax(1), 1, Fraction(3, 5), moved, rows)
    rng = np.random.default_rng(32)
    units = units_of(corners(1, range(2)), rows, 20, rng)
    states = [rng.normal(size=(1, 2)) * size for size in (0.3, 3.0, 30.0) for _ in range(6)]
    states += [np.array([[-240.0, (wanted + 240.0) / 1.5]]) for wanted in np.linspace(-3, 3, 13)]
    assert 0.85 < solved.differences(states, units)[0] <= 1
