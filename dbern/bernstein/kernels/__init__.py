"""Kernels of one axis, in unit-cube units, with proved bounds on what the mechanism needs."""

from collections.abc import Sequence
from typing import Final

from dbern.bernstein.kernels.base import EXP_ULPS, OUTWARD, Edges, Kernel
from dbern.bernstein.kernels.compact import Biweight, Epanechnikov, Triangle, Triweight
from dbern.bernstein.kernels.gaussian import Gaussian
from dbern.bernstein.kernels.matern import Laplace, Matern32, Matern52
from dbern.bernstein.kernels.periodic import WIDEST, Periodic
from dbern.system import Registry

__all__ = [
    "ALL_KERNELS",
    "EXP_ULPS",
    "KERNELS",
    "OUTWARD",
    "WIDEST",
    "Biweight",
    "Edges",
    "Epanechnikov",
    "Gaussian",
    "Kernel",
    "Laplace",
    "Matern32",
    "Matern52",
    "Periodic",
    "Triangle",
    "Triweight",
    "kernel_of",
    "with_edges",
]

KERNELS: dict[str, type[Kernel]] = {
    kernel.name: kernel
    for kernel in (
        Gaussian,
        Laplace,
        Matern32,
        Matern52,
        Triangle,
        Epanechnikov,
        Biweight,
        Triweight,
    )
}
"""Ours by the name a spec gives each."""

ALL_KERNELS: Final[Registry[type[Kernel]]] = Registry("dbern.kernels", KERNELS)
"""Ours, and those of installed packages."""


def kernel_of(name: str, bandwidth: float, edges: Edges = "natural") -> Kernel:
    """Return the kernel of that name, one of `ALL_KERNELS`; a SpecError for another."""
    kernel_class = ALL_KERNELS.get(name, "target.kernel")
    if edges == "periodic":
        return Periodic(bandwidth, kernel_class=kernel_class)
    return kernel_class(bandwidth, edges=edges)


def with_edges(kernels: Sequence[Kernel], edges: Sequence[Edges]) -> tuple[Kernel, ...]:
    """Return the same kernels with these edges, axis by axis."""
    pairs = zip(kernels, edges, strict=True)
    return tuple(kernel_of(kernel.name, kernel.bandwidth, edge) for kernel, edge in pairs)
