"""Imported by the process that forks: what every client would compute or load is there before."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from projects import Project, records
from ranges import CENTERS, PERTURBED, SPEC

import dbern
from dbern.measure import loops

with TemporaryDirectory() as _folder:
    _project = Project(Path(_folder))
    _project.write(records())
    for _changes in (SPEC, PERTURBED, CENTERS):
        dbern.plan(_project.spec(**_changes))
for _axes in (1, 2):
    loops._compiled(_axes, splines=True)
    loops._compiled(_axes, splines=False)
