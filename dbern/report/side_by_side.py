"""Picture of a released function beside the non-private one: for data that is not private."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dbern.errors import optional_import

if TYPE_CHECKING:
    from pathlib import Path

    import xarray


def draw_beside(
    released: xarray.DataArray, private: xarray.DataArray, path: Path, title: str
) -> None:
    """Draw a released function beside the non-private one as PNG.

    Both have one or two dimensions, on the same grid.
    """
    with optional_import("pictures need matplotlib. Install it with: pip install 'dbern[report]'"):
        from matplotlib.figure import Figure
    figure = Figure(figsize=(10, 4.2), layout="constrained", dpi=110)
    figure.suptitle(title)
    if released.ndim == 1:
        axes = figure.add_subplot()
        private.plot.line(ax=axes, color="0.6", lw=3, label="not private")
        released.plot.line(ax=axes, color="C0", label="released")
        axes.set_title("")
        axes.legend()
    else:
        scale: dict[str, Any] = {"vmin": 0, "vmax": float(private.max())}
        for column, values, name in ((1, private, "not private"), (2, released, "released")):
            axes = figure.add_subplot(1, 2, column)
            values.plot.pcolormesh(ax=axes, add_colorbar=False, **scale)
            axes.set(title=name, aspect="equal")
        figure.colorbar(axes.collections[0], ax=figure.axes, label="density", extend="both")
    figure.savefig(path)
