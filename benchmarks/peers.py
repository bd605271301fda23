"""Sums of Gaussian kernels at lattice points, as other libraries do them.

Each peer takes points (m, l) of the unit cube in memory, k and the bandwidth, and gives
``sum_i exp(-|y - x_i|^2 / (2 b^2))`` at the (k + 1)^l lattice points y, the last axis fastest.
Libraries that are not installed have None for their peer: `make bench` installs all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

TOLERANCE = 1e-6
"""What finufft is asked for, relative to the largest sum."""

Sums = Callable[[np.ndarray, int, float], np.ndarray]


def lattice(axes: int, k: int) -> np.ndarray:
    """Points ((k + 1)^l, l)."""
    nodes = np.meshgrid(*[np.arange(k + 1) / k] * axes, indexing="ij")
    return np.stack([axis.ravel() for axis in nodes], axis=-1)


def _kernels(points: np.ndarray, bandwidth: float) -> float:
    """What takes a density to a sum of kernels of height one."""
    count, axes = points.shape
    return count * (math.sqrt(2 * math.pi) * bandwidth) ** axes


def direct(points: np.ndarray, k: int, bandwidth: float) -> np.ndarray:
    """Direct sums, factored over the axes: the truth here."""
    nodes, axes = np.arange(k + 1) / k, points.shape[1]
    factors = [np.exp(-0.5 * ((nodes - column[:, None]) / bandwidth) ** 2) for column in points.T]
    letters = "abc"[:axes]
    subscripts = ",".join(f"m{letter}" for letter in letters) + "->" + letters
    return np.asarray(np.einsum(subscripts, *factors, optimize=True)).ravel()


def scikit_learn(points: np.ndarray, k: int, bandwidth: float) -> np.ndarray:
    from sklearn.neighbors import KernelDensity

    found = KernelDensity(bandwidth=bandwidth).fit(points)
    logarithms = found.score_samples(lattice(points.shape[1], k))
    return np.asarray(np.exp(logarithms) * _kernels(points, bandwidth))


def scipy(points: np.ndarray, k: int, bandwidth: float) -> np.ndarray:
    from scipy.stats import gaussian_kde

    density, axes = gaussian_kde(points.T), points.shape[1]
    # It scales the records' covariance: with none, the bandwidth is the same on every axis.
    density._data_covariance = density._data_cho_cov = np.eye(axes)
    density.set_bandwidth(bandwidth)
    return np.asarray(density(lattice(axes, k).T) * _kernels(points, bandwidth))


def statsmodels(points: np.ndarray, k: int, bandwidth: float) -> np.ndarray:
    from statsmodels.nonparametric.kernel_density import KDEMultivariate

    axes = points.shape[1]
    density = KDEMultivariate(points, var_type="c" * axes, bw=[bandwidth] * axes)
    return np.asarray(density.pdf(lattice(axes, k)) * _kernels(points, bandwidth))


def statsmodels_fft(points: np.ndarray, k: int, bandwidth: float) -> np.ndarray:
    """One axis only; on a grid of its own, interpolated."""
    from statsmodels.nonparametric.kde import KDEUnivariate

    density = KDEUnivariate(points[:, 0])
    density.fit(kernel="gau", bw=bandwidth, fft=True, gridsize=1024)
    values = np.interp(np.arange(k + 1) / k, density.support, density.density)
    return np.asarray(values * _kernels(points, bandwidth))


def kdepy(points: np.ndarray, k: int, bandwidth: float) -> np.ndarray:
    """Linear binning on the lattice itself."""
    from KDEpy import FFTKDE

    density = FFTKDE(kernel="gaussian", bw=bandwidth).fit(points)
    return np.asarray(density.evaluate(lattice(points.shape[1], k)) * _kernels(points, bandwidth))


def finufft(points: np.ndarray, k: int, bandwidth: float) -> np.ndarray:
    """Fourier coefficients of the records, and the Gaussian's series at the lattice points.

    The period leaves a kernel's images, and the modes its transform, below the tolerance.
    """
    import finufft as library

    axes, nines = points.shape[1], math.log(1 / TOLERANCE)
    period = 1 + bandwidth * math.sqrt(2 * nines)
    most = math.ceil(period / (math.pi * bandwidth) * math.sqrt(nines / 2))
    modes = np.arange(-most, most + 1)
    transform = {1: library.nufft1d1, 2: library.nufft2d1, 3: library.nufft3d1}[axes]
    angles = [2 * math.pi / period * np.ascontiguousarray(column) for column in points.T]
    values = transform(*angles, np.ones(len(points), complex), (modes.size,) * axes,
                       eps=TOLERANCE, isign=-1, nthreads=1)  # fmt: skip
    frequencies = 2 * math.pi / period * modes
    series = np.exp(-0.5 * (bandwidth * frequencies) ** 2)
    series *= math.sqrt(2 * math.pi) * bandwidth / period
    matrix = series * np.exp(1j * np.outer(np.arange(k + 1) / k, frequencies))
    for _ in range(axes):
        values = np.tensordot(values, matrix, axes=(0, 1))
    return np.asarray(values.real).ravel()


@dataclass(frozen=True)
class Peer:
    """A way of another library.

    Attributes
    ----------
    module : str
        What has to be installed.
    direct : bool
        Whether its time is per record and point: such a peer gets few records.
    error : float
        What its sums may differ by, relative to the largest, at k = 20 and a bandwidth of .2.
    axes : int
        How many it can have.
    """

    name: str
    module: str
    sums: Sums
    direct: bool
    error: float = 1e-9
    axes: int = 3

    @property
    def installed(self) -> bool:
        """Whether it can be measured here."""
        return find_spec(self.module) is not None


PEERS = (
    Peer("numpy, direct sums *", "numpy", direct, True),
    Peer("scikit-learn KernelDensity *", "sklearn", scikit_learn, True),
    Peer("scipy gaussian_kde *", "scipy", scipy, True),
    Peer("statsmodels KDEMultivariate *", "statsmodels", statsmodels, True),
    Peer("statsmodels KDEUnivariate, FFT", "statsmodels", statsmodels_fft, False, 0.01, axes=1),
    Peer("KDEpy FFTKDE", "KDEpy", kdepy, False, 0.05),
    Peer("finufft", "finufft", finufft, False, 10 * TOLERANCE),
)
