"""Ways to break the changes of an operator's reset."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordination.planning import batches, slicing
from coordination.state import tree
from coordination.state.model import Phase
from coordination.state.tree import Create
from sink.operations import reset
from tests.simulation import operator
from tests.simulation.broken_decisions import Patch


def missing_partitions_stay_recorded(patch: Patch) -> None:
    patch(reset, "_gone_partitions", lambda *_: {})


def deleted_stays_planned(patch: Patch) -> None:
    patch(reset, "_deleted_partitions", lambda *_: {})


def nothing_is_awaited(patch: Patch) -> None:
    patch(batches, "_is_awaited", lambda *_: False)


def under_the_old_generation(patch: Patch) -> None:
    original = reset._state_after_move

    def state_after_move(*arguments: Any) -> Any:
        state = original(*arguments)
        return replace(state, generation=max(state.generation - 1, 0))

    patch(reset, "_state_after_move", state_after_move)


def decided_transactions_abandoned(patch: Patch) -> None:
    open_phases = (Phase.PLANNED, Phase.STARTED, Phase.PREPARED)
    patch(
        reset,
        "_transactions_to_abort",
        lambda transactions, _: [t for t in transactions if t.header.phase in open_phases],
    )


def some_left_beyond_a_restored_table(patch: Patch) -> None:
    patch(reset, "refuse_to_leave_out", lambda *_: None)


def half_a_reset_counts(patch: Patch) -> None:
    patch(reset, "refuse_if_interrupted", lambda *_: None)
    # The case needs a schedule that none of some thousand seeds has where readers look back further.
    patch(slicing, "LOOK_BACK", 1)


def without_declaring_what_is_left_out(patch: Patch) -> None:
    original = reset._ledger
    patch(reset, "_ledger", lambda view, *arguments: replace(original(view, *arguments), gaps=view.ledger.gaps))


def unfinished_reset_unmarked(patch: Patch) -> None:
    original = operator.write_plans

    def write_plans(view: Any, planned: Any) -> Any:
        multis = original(view, planned)
        first, *others = multis
        unmarked = [op for op in first if not (isinstance(op, Create) and op.path == tree.HALT)]
        if len(unmarked) == len(first):
            return multis
        return [unmarked, *([op for op in multi if op.path != tree.HALT] for multi in others)]

    patch(operator, "write_plans", write_plans)
