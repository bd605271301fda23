"""The story of a release: run, publish, reconcile."""

from __future__ import annotations
