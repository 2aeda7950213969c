"""The phases of a transaction, as data, and the only way from one to the next.

The table is the theory of operation. PREPARED is the commit decision: from there every coordinator may only commit,
unless there is proof that the instant can no longer complete. The decision itself is a compare-and-set on the header's
version; this module only knows which ones may be attempted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from coordination.state.model import Header, Phase

TRANSITIONS: Mapping[Phase, Mapping[Phase, str]] = MappingProxyType(
    {
        Phase.PLANNED: {
            Phase.STARTED: "the Hudi instant has begun (START_COMMIT)",
            Phase.ABORTED: "another epoch, or an earlier transaction was aborted",
        },
        Phase.STARTED: {
            Phase.PREPARED: "every slice is accounted for and the predecessor is COMMITTED (END_COMMIT)",
            Phase.ABORTED: "another epoch, a participant gone or failed, the deadline, an earlier abort (END_COMMIT)",
        },
        Phase.PREPARED: {
            Phase.COMMITTED: "the Hudi instant is complete",
            Phase.ABORTED: "proof that the instant can no longer complete",
        },
        Phase.COMMITTED: {},
        Phase.ABORTED: {},
    }
)
"""COMMITTED and ABORTED end a transaction: its header is deleted once it is settled (ACK_COMMIT) or its
instant is rolled back."""


class IllegalTransition(AssertionError):
    """A defect of the machine, never an outcome: nothing was changed."""


def enter(header: Header, phase: Phase, wall: float, instant: str | None = None, reason: str = "") -> Header:
    """Returns the header in its next phase. Raises `IllegalTransition` for a step that the table does not have."""
    if phase not in TRANSITIONS[header.phase]:
        raise IllegalTransition(f"transaction {header.number}: {header.phase.value} -> {phase.value}")
    if phase is Phase.STARTED and instant is None:
        raise IllegalTransition(f"transaction {header.number}: STARTED without an instant")
    return replace(
        header,
        phase=phase,
        instant=instant or header.instant,
        reason=reason,
        times={**header.times, phase.value: wall},
    )
