"""Kernels of one axis, in unit-cube units, with proved bounds on what the mechanism needs.

There is no uniform kernel: it jumps, so no polynomial comes nearer to it than half its height,
and a record within rounding of an edge could change a value by all of it.
"""

from dbern.bernstein.kernels.base import EXP_ULPS, OUTWARD, Kernel
from dbern.bernstein.kernels.compact import Biweight, Epanechnikov, Triangle, Triweight
from dbern.bernstein.kernels.exponential import Laplace, Matern32, Matern52
from dbern.bernstein.kernels.gaussian import Gaussian

__all__ = ["EXP_ULPS", "KERNELS", "OUTWARD", "Gaussian", "Kernel", "kernel_of"]

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
    """The kernel of that name, one of `KERNELS`.

    Raises
    ------
    KeyError
        For another name.

    Examples
    --------
    >>> kernel_of("triangle", 0.25).peak.__round__(6)
    4.0
    """
    return KERNELS[name](bandwidth)
