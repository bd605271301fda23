"""Pages, pictures and drawings of what was released and what it cost; they never read a record."""

from dbern.reporting.beside import draw_beside

__all__ = ["draw_beside"]
