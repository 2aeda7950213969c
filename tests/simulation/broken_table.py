"""Ways to break what the sink looks at under the table lock; the last three break the simulated table's own rules."""

from __future__ import annotations

from typing import Any

from coordination.state.messages import Complete, Failed
from sink.hudi.instants import ActiveTimeline
from tests.simulation import table
from tests.simulation.broken_decisions import Patch
from tests.simulation.table import SimTable


def pending_restores_ignored(patch: Patch) -> None:
    patch(ActiveTimeline, "pending_restores", ())


def restores_since_ignored(patch: Patch) -> None:
    patch(ActiveTimeline, "has_other_restores", lambda *_: False)


def restores_archived_at_once(patch: Patch) -> None:
    patch(SimTable, "is_known_to_all_pending", lambda *_: True)


def moments_ignored(patch: Patch) -> None:
    patch(ActiveTimeline, "newest_moment", "")


def _newest(*requests: str) -> property:
    """Returns the newest completion, or request of one of these actions."""

    def newest(timeline: ActiveTimeline) -> str:
        requested = (entry.requested for entry in timeline.instants if entry.action in requests)
        return max((*requested, *(entry.completed or "" for entry in timeline.instants)), default="")

    return property(newest)


def requests_ignored(patch: Patch) -> None:
    patch(ActiveTimeline, "newest_moment", _newest())


def plans_of_compactions_ignored(patch: Patch) -> None:
    patch(ActiveTimeline, "newest_moment", _newest(table.COMMIT))


def planned_rollback_is_a_failure(patch: Patch) -> None:
    patch(SimTable, "finish_rollback", lambda _, instant, *_clock: Failed(f"{instant.name} is being rolled back"))


def completed_over_a_planned_rollback(patch: Patch) -> None:
    original = SimTable.refusal

    def refusal(self: SimTable, op: Complete, *clock: Any) -> Any:
        instant = self.instants.get(op.instant)
        if instant is None:
            return original(self, op, *clock)
        planned, instant.rollback_planned = instant.rollback_planned, None
        outcome = original(self, op, *clock)
        instant.rollback_planned = planned
        return outcome

    patch(SimTable, "refusal", refusal)


def newest_of_the_active_timeline(patch: Patch) -> None:
    patch(SimTable, "_carrier", SimTable._active_carrier)
