"""Pages, pictures and drawings of what was released and what it cost; they never read a record."""

from __future__ import annotations
