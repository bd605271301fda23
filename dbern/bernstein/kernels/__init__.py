"""Kernels of one axis, in unit-cube units, with proved bounds on what the mechanism needs."""

from dbern.bernstein.kernels.base import EXP_ULPS, OUTWARD, Kernel
from dbern.bernstein.kernels.compact import Biweight, Epanechnikov, Triangle, Triweight
from dbern.bernstein.kernels.gaussian import Gaussian
from dbern.bernstein.kernels.matern import Laplace, Matern32, Matern52

__all__ = [
    "EXP_ULPS",
    "KERNELS",
    "OUTWARD",
    "Biweight",
    "Epanechnikov",
    "Gaussian",
    "Kernel",
    "Laplace",
    "Matern32",
    "Matern52",
    "Triangle",
    "Triweight",
    "kernel_of",
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
"""Every kernel by the name a spec gives it."""


def kernel_of(name: str, bandwidth: float) -> Kernel:
    """The kernel of that name, one of `KERNELS`; a KeyError for another."""
    return KERNELS[name](bandwidth)
