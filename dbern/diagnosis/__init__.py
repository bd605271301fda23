"""What ``dbern doctor`` looks at: each finding says what is there and, where wrong, what mends it.

Nothing here reads a record, spends budget or leaves anything behind.
"""

from dbern.diagnosis.clusters import scheduler
from dbern.diagnosis.finding import Finding
from dbern.diagnosis.ledgers import ledger
from dbern.diagnosis.outputs import output
from dbern.diagnosis.versions import installation

__all__ = ["Finding", "installation", "ledger", "output", "scheduler"]
