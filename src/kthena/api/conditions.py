"""Condition types that the kinds of this project report.

`Ready`, `Reconciling` and `Stalled` are the standard ones of kstatus, `Accepted` and `ResolvedRefs`
those of the Gateway API; the others are Kthena's.
"""

from typing import Final

READY: Final = "Ready"
RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"

ACCEPTED: Final = "Accepted"
RESOLVED_REFS: Final = "ResolvedRefs"

AVAILABLE: Final = "Available"
PROGRESSING: Final = "Progressing"
UPDATE_IN_PROGRESS: Final = "UpdateInProgress"
REPLICA_FAILURE: Final = "ReplicaFailure"
