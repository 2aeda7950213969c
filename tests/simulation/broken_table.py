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
    patch(ActiveTimeline, "is_restored_since", lambda *_: False)


def completions_ignored(patch: Patch) -> None:
    patch(ActiveTimeline, "newest_completion", "")


def completed_before_its_own_time(patch: Patch) -> None:
    original = table.require_moment
    patch(table, "require_moment", lambda hudi, snapshot, _="": original(hudi, snapshot))


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
