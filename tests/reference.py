"""Slow, obvious oracles straight from the definitions: no code shared with ``dbern``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862"
)
DIGITS = 60


# --- Bernstein (Definitions 3 to 6), exactly ---------------------------------------------------


def basis(y: Fraction, k: int) -> list[Fraction]:
    """Definition 3."""
    return [math.comb(k, v) * y**v * (1 - y) ** (k - v) for v in range(k + 1)]


def bernstein(values: Sequence[Fraction], y: Fraction) -> Fraction:
    """Definition 4: the Bernstein polynomial at y of a function with these lattice values."""
    return sum((f * b for f, b in zip(values, basis(y, len(values) - 1), strict=True)), Fraction(0))


def iterated_basis(y: Fraction, k: int, h: int) -> list[Fraction]:
    """Definition 5: ``sum_i C(h,i) (-1)^(i-1) B^(i-1)(b_v; y)``, B applied again and again."""
    nodes = [Fraction(j, k) for j in range(k + 1)]
    result = []
    for v in range(k + 1):
        at_y = basis(y, k)[v]
        on_lattice = [basis(p, k)[v] for p in nodes]
        total = Fraction(0)
        for i in range(1, h + 1):
            total += math.comb(h, i) * (-1) ** (i - 1) * at_y
            at_y = bernstein(on_lattice, y)
            on_lattice = [bernstein(on_lattice, p) for p in nodes]
        result.append(total)
    return result


def iterated_polynomial(
    f: Callable[..., Fraction], k: Sequence[int], h: Sequence[int], y: Sequence[Fraction]
) -> Fraction:
    """Definition 6, with an order for each axis."""
    axes = [iterated_basis(*axis) for axis in zip(y, k, h, strict=True)]
    total = Fraction(0)
    for v in itertools.product(*(range(count + 1) for count in k)):
        point = [Fraction(i, count) for i, count in zip(v, k, strict=True)]
        total += f(*point) * math.prod(b[i] for b, i in zip(axes, v, strict=True))
    return total


# --- densities ---------------------------------------------------------------------------------


def gaussian(x: np.ndarray, bandwidth: float) -> np.ndarray:
    """The normal density."""
    return np.exp(-((x / bandwidth) ** 2) / 2) / (bandwidth * math.sqrt(2 * math.pi))


SHAPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # of z = |x| / b, divided by b
    "gaussian": lambda z: np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi),
    "laplace": lambda z: np.exp(-z) / 2,
    "matern-3/2": lambda z: math.sqrt(3) / 4 * (1 + math.sqrt(3) * z) * np.exp(-math.sqrt(3) * z),
    "matern-5/2": lambda z: 3 * math.sqrt(5) / 16 * (1 + math.sqrt(5) * z + 5 / 3 * z**2)
    * np.exp(-math.sqrt(5) * z),
    "triangle": lambda z: np.where(z < 1, 1 - z, 0.0),
    "epanechnikov": lambda z: np.where(z < 1, 3 / 4 * (1 - z**2), 0.0),
    "biweight": lambda z: np.where(z < 1, 15 / 16 * (1 - z**2) ** 2, 0.0),
    "triweight": lambda z: np.where(z < 1, 35 / 32 * (1 - z**2) ** 3, 0.0),
}  # fmt: skip


def kernel(name: str, x: np.ndarray, bandwidth: float) -> np.ndarray:
    """Any kernel, from its textbook formula."""
    return SHAPES[name](np.abs(x) / bandwidth) / bandwidth


def exact_kernel(name: str, x: Fraction, bandwidth: Fraction) -> Decimal:
    """The same to sixty digits."""
    with localcontext() as context:
        context.prec = DIGITS

        def number(value: Fraction) -> Decimal:
            return Decimal(value.numerator) / Decimal(value.denominator)

        if name == "gaussian":
            return exact_gaussian(number(x), number(bandwidth))
        z, b = abs(x) / bandwidth, number(bandwidth)
        if name in ("laplace", "matern-3/2", "matern-5/2"):
            nu = {"laplace": 1, "matern-3/2": 3, "matern-5/2": 5}[name]
            root = Decimal(nu).sqrt()
            scaled = root * number(z)
            factor = {1: 1, 3: 1 + scaled, 5: 1 + scaled + scaled**2 / 3}[nu]
            mass = {1: Decimal(1), 3: Decimal(2), 5: Decimal(8) / 3}[nu]
            return root / (2 * mass * b) * factor * (-scaled).exp()
        inner, power, mass = {
            "triangle": (1, 1, Fraction(1)),
            "epanechnikov": (2, 1, Fraction(4, 3)),
            "biweight": (2, 2, Fraction(16, 15)),
            "triweight": (2, 3, Fraction(32, 35)),
        }[name]
        return number(max(1 - z**inner, Fraction(0)) ** power / (mass * bandwidth))


def density(
    points: np.ndarray,
    records: np.ndarray,
    bandwidth: Sequence[float],
    n: int,
    name: str = "gaussian",
) -> np.ndarray:
    """``(1/n) sum_i prod_j K_j(y_j - d_ij)`` by direct sum; points (m, l), records (r, l)."""
    total = np.zeros(len(points))
    for record in records:
        factors = [kernel(name, points[:, j] - record[j], b) for j, b in enumerate(bandwidth)]
        total += math.prod(factors)
    return total / n


def lattice_points(k: Sequence[int]) -> np.ndarray:
    """All points of the lattice, shape (N, l), in C order."""
    return np.array(list(itertools.product(*(np.arange(count + 1) / count for count in k))))


def contributions(
    positions: np.ndarray, k: Sequence[int], bandwidth: Sequence[float], name: str = "gaussian"
) -> np.ndarray:
    """What each record adds to the lattice values, times n; the last row is the missing record."""
    points = lattice_points(k)
    rows = [density(points, t[None], bandwidth, 1, name) for t in positions]
    return np.array([*rows, np.zeros(len(points))])


def delta1(rows: np.ndarray) -> float:
    """The largest l1 distance of any two rows: brute force over pairs."""
    return max(float(np.abs(row - rows).sum(axis=1).max()) for row in rows)


# --- to sixty digits ---------------------------------------------------------------------------


def cosine(x: Decimal) -> Decimal:
    """Taylor's series after halving the angle six times."""
    with localcontext() as context:
        context.prec = DIGITS + 20
        square, term, total, i = (x / 64) ** 2, Decimal(1), Decimal(0), 0
        while abs(term) > Decimal(10) ** -(DIGITS + 10):
            total += term
            i += 2
            term = -term * square / (i * (i - 1))
        for _ in range(6):
            total = 2 * total * total - 1
        return +total


def exact_gaussian(x: Decimal, bandwidth: Decimal) -> Decimal:
    """The normal density."""
    with localcontext() as context:
        context.prec = DIGITS
        return (-((x / bandwidth) ** 2) / 2).exp() / (bandwidth * (2 * PI).sqrt())


def chebyshev_coefficients(
    x: Decimal, radius: Decimal, bandwidth: Decimal, degrees: int, nodes: int = 80
) -> list[Decimal]:
    """Of ``u -> K(x - radius u)``, by Gauss-Chebyshev sums with more nodes than anyone needs."""
    with localcontext() as context:
        context.prec = DIGITS
        cosines = [cosine(PI * j / (2 * nodes)) for j in range(4 * nodes)]
        values = [exact_gaussian(x - radius * cosines[2 * i + 1], bandwidth) for i in range(nodes)]
        result = []
        for a in range(degrees + 1):
            terms = (
                value * cosines[a * (2 * i + 1) % (4 * nodes)] for i, value in enumerate(values)
            )
            result.append(sum(terms) * (2 if a else 1) / nodes)
        return result
