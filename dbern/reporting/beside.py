"""A released function beside the non-private one, for data that is not private."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dbern.errors import EnvironmentRefusedError

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes


def draw_beside(
    released: xarray.DataArray, private: xarray.DataArray, path: Path, title: str
) -> None:
    """Draw a released function beside the non-private one: for data that is not private.

    Parameters
    ----------
    released, private : DataArray
        One or two dimensions, on the same grid.
    path : Path
        Where the PNG goes.

    Raises
    ------
    EnvironmentRefusedError
        Where matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise EnvironmentRefusedError(
            "pictures need matplotlib; install it with: pip install 'dbern[report]'"
        ) from None
    figure = Figure(figsize=(10, 4.2), layout="constrained", dpi=110)
    figure.suptitle(title)
    if released.ndim == 1:
        axes = figure.add_subplot()
        axes.plot(private[private.dims[0]], private, color="0.6", lw=3, label="not private")
        axes.plot(released[released.dims[0]], released, color="C0", label="released")
        axes.set_xlabel(str(released.dims[0]))
        axes.legend()
    else:
        top = float(private.max())
        for place, (values, name) in enumerate(((private, "not private"), (released, "released"))):
            image = _heat_map(figure.add_subplot(1, 2, place + 1), values, name, top)
        figure.colorbar(image, ax=figure.axes, label="density", extend="both")
    figure.savefig(path)


def _heat_map(axes: Axes, values: xarray.DataArray, name: str, top: float):  # type: ignore[no-untyped-def]  # matplotlib's mesh type is private
    first, second = values.dims
    mesh = axes.pcolormesh(
        values[first], values[second], values.T, vmin=0, vmax=top, cmap="viridis", shading="gouraud"
    )
    axes.set(title=name, xlabel=str(first), ylabel=str(second), aspect="equal")
    return mesh
