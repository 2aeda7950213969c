"""Ways to break the protocol in the pure functions of its decisions, and in the simulated services."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coordination.machines import opening, recovery, transactions, writes
from coordination.planning import assignment, batches, offsets, planner, slicing
from coordination.planning.offsets import LostPrefix, OffsetReset
from coordination.planning.tolerance import ErrorLimits
from coordination.state import codec, tree
from coordination.state.messages import Complete, Done
from coordination.state.model import LogView, PartitionState, Phase, WriteTask
from tests.simulation.effects import Effects
from tests.simulation.table import SimTable

Patch = Callable[[Any, str, Any], None]
"""Replaces the attribute or entry with that name, for as long as the mutant is tried."""


def any_number_may_be_bad(patch: Patch) -> None:
    patch(ErrorLimits, "exceeded", lambda *_: None)


def any_status_completes(patch: Patch) -> None:
    original = transactions.readiness

    def readiness(t: Any, members: Any, waited: float) -> Any:
        return transactions.AllReported() if t.statuses else original(t, members, waited)

    patch(transactions, "readiness", readiness)


def retry_cut_anew(patch: Patch) -> None:
    original = slicing.cut

    def cut(*arguments: Any) -> Any:
        pieces = original(*arguments)
        return pieces[:-1] if len(pieces) > 1 else pieces

    patch(slicing, "cut", cut)


def retry_cut_finer(patch: Patch) -> None:
    original = planner._re_form

    def re_form(*arguments: Any) -> Any:
        step = original(*arguments)
        if not isinstance(step, planner.OpenBatch) or step.attempt == 1:
            return step
        halves = (
            (replace(piece, end=piece.start + piece.size // 2), replace(piece, start=piece.start + piece.size // 2))
            if piece.size > 1
            else (piece,)
            for task in step.tasks
            for piece in task.slices
        )
        return replace(step, tasks=tuple(WriteTask((half,)) for pair in halves for half in pair))

    patch(planner, "_re_form", re_form)


def checkpoint_of_moved_partitions(patch: Patch) -> None:
    original = transactions.checkpoint

    def checkpoint(*arguments: Any) -> Any:
        checkpoint = original(*arguments)
        moved = {result.slice.source for result in checkpoint.results}
        return replace(checkpoint, ends={s: e for s, e in checkpoint.ends.items() if s in moved})

    patch(transactions, "checkpoint", checkpoint)


def nobody_is_missed(patch: Patch) -> None:
    original = transactions.readiness

    def readiness(t: Any, *_: Any) -> Any:
        return original(t, set(t.plan.slices), 0.0)

    patch(transactions, "readiness", readiness)


def table_never_compared(patch: Patch) -> None:
    patch(recovery, "compare_with_table", lambda *_: recovery.InStep())


def gap_not_declared(patch: Patch) -> None:
    original = writes.skip
    patch(writes, "skip", lambda view, changed, _: original(view, changed, ()))


def gap_under_the_old_generation(patch: Patch) -> None:
    original = offsets.reconcile

    def reconcile(*arguments: Any) -> Any:
        decision = original(*arguments)
        if isinstance(decision, LostPrefix):
            state = decision.state
            return replace(decision, state=replace(state, generation=state.generation - 1))
        return decision

    patch(offsets, "reconcile", reconcile)


def shards_not_ordered_by_the_ledger(patch: Patch) -> None:
    original = writes.divide

    def divide(*arguments: Any) -> Any:
        write_plan = original(*arguments)
        ledger = tuple(op for op in write_plan.multis[0] if op.path == tree.TRANSACTIONS)
        shards = (tuple(op for op in multi if op.path != tree.TRANSACTIONS) for multi in write_plan.multis)
        return replace(write_plan, multis=(ledger, *shards))

    patch(writes, "divide", divide)


def any_base_accepted(patch: Patch) -> None:
    original = SimTable.refusal

    def refusal(self: SimTable, op: Complete, *clock: Any) -> Any:
        newest = self.newest.number if self.newest else 0
        return original(self, replace(op, checkpoint=replace(op.checkpoint, base=newest)), *clock)

    patch(SimTable, "refusal", refusal)


def completion_without_zookeeper(patch: Patch) -> None:
    patch(Effects, "_guard", lambda *_: None)


def header_written_as_planned(patch: Patch) -> None:
    """A takeover starts the old transaction again instead of aborting it."""
    original = codec.encode_header

    def encode(header: Any, version: int = 0) -> bytes:
        return original(replace(header, phase=Phase.PLANNED) if header.reason.startswith("epoch") else header, version)

    patch(codec, "encode_header", encode)


def recorded_ranges_forgotten(patch: Patch) -> None:
    """The coordinator plans anew from the settled ends, instead of re-forming the recorded ranges."""
    original = batches.survey

    def survey(states: Any, *arguments: Any) -> Any:
        return original({s: replace(state, open=state.open[:0]) for s, state in states.items()}, *arguments)

    patch(batches, "survey", survey)


def only_the_newest_commit_read(patch: Patch) -> None:
    original = SimTable.view

    def view(self: SimTable, names: Any) -> Any:
        table_view = original(self, names)
        return replace(table_view, checkpoint=None) if table_view.commits_since else table_view

    patch(SimTable, "view", view)


def all_reset_when_one_lost_its_prefix(patch: Patch) -> None:
    original = writes.skip

    def skip(view: Any, changed: Any, gaps: Any) -> Any:
        restarted = {
            source: PartitionState(state.topic_id, 0, 0, state.generation + 1) for source, state in view.states.items()
        }
        return original(view, {**restarted, **changed}, gaps)

    patch(writes, "skip", skip)


def plans(change: Callable[[dict[str, Any]], None]) -> Callable[[Patch], None]:
    def apply(patch: Patch) -> None:
        original = batches.assigned

        def assigned(*arguments: Any) -> Any:
            tasks = dict(original(*arguments).tasks)
            change(tasks)
            return replace(original(*arguments), tasks=tasks)

        patch(batches, "assigned", assigned)

    return apply


def task_for_nobody(tasks: dict[str, Any]) -> None:
    if tasks and len(tasks[max(tasks)]) > 1:
        tasks[max(tasks)] = tasks[max(tasks)][:-1]


def task_for_two(tasks: dict[str, Any]) -> None:
    if len(tasks) > 1:
        tasks[min(tasks)] = (*tasks[min(tasks)], tasks[max(tasks)][0])


def aborted_ranges_become_after(patch: Patch) -> None:
    original = transactions.settled

    def settled(states: Any, header: Any, last_records: Any) -> Any:
        return original(states, replace(header, phase=Phase.COMMITTED), last_records)

    patch(transactions, "settled", settled)


def later_ranges_dropped_with_the_first(patch: Patch) -> None:
    original = transactions.settled

    def settled(*arguments: Any) -> Any:
        return {source: replace(state, open=()) for source, state in original(*arguments).items()}

    patch(transactions, "settled", settled)


def settled_by_the_write_statuses(patch: Patch) -> None:
    original = transactions.written
    patch(transactions, "written", lambda t, _: original(t, None))


def gaps_left_out_of_the_checkpoint(patch: Patch) -> None:
    original = transactions.checkpoint
    patch(transactions, "checkpoint", lambda *arguments: replace(original(*arguments), gaps=()))


def topic_ids_ignored(patch: Patch) -> None:
    original = offsets.reconcile

    def reconcile(source: Any, recorded: Any, observed: Any, *arguments: Any) -> Any:
        if recorded is not None and observed is not None:
            observed = replace(observed, topic_id=recorded.topic_id)
        return original(source, recorded, observed, *arguments)

    patch(offsets, "reconcile", reconcile)


def gap_skipped_under_fail(patch: Patch) -> None:
    original = offsets.reconcile

    def reconcile(source: Any, recorded: Any, observed: Any, policy: Any, reset: Any) -> Any:
        return original(source, recorded, observed, offsets.DataLossPolicy.SKIP, reset)

    patch(offsets, "reconcile", reconcile)


def begins_at_the_end(patch: Patch) -> None:
    original = offsets.reconcile

    def reconcile(source: Any, recorded: Any, observed: Any, policy: Any, _: Any) -> Any:
        return original(source, recorded, observed, policy, OffsetReset.LATEST)

    patch(offsets, "reconcile", reconcile)


def gap_to_the_end(patch: Patch) -> None:
    original = offsets._lost_prefix

    def lost_prefix(source: Any, recorded: Any, _: int, end: int, policy: Any) -> Any:
        return original(source, recorded, end, end, policy)

    patch(offsets, "_lost_prefix", lost_prefix)


def never_published_again(patch: Patch) -> None:
    patch(planner, "_must_publish", lambda *_: False)


def several_writers(patch: Patch) -> None:
    original = batches.assigned

    def assigned(*arguments: Any) -> Any:
        return original(*arguments[:-1], None)

    patch(batches, "assigned", assigned)


def columns_before_the_log(patch: Patch) -> None:
    def look_up(self: Effects, log_view: LogView, then: Callable[[Any], None]) -> None:
        world, columns = self._world, str(self._world.log.schema)
        topics = tuple({source.topic for source in log_view.partitions})

        def answer() -> None:
            later_view = world.log.view(topics)
            matching, deleted = log_view.matching, log_view.deleted
            then(Done(replace(later_view, columns=columns, matching=matching, deleted=deleted)))

        world.after(self._gap(), answer)

    patch(Effects, "_look_up_columns", look_up)


def deleted_topics_awaited(patch: Patch) -> None:
    original = batches.survey
    patch(batches, "survey", lambda states, log, *more: original(states, replace(log, deleted=()), *more))


def new_topics_overlooked(patch: Patch) -> None:
    original = opening.ReadLog

    def read_log(topics: tuple[str, ...], pattern: str | None, unfinished: tuple[str, ...]) -> Any:
        return original(topics, "t0" if pattern else None, unfinished)

    patch(opening, "ReadLog", read_log)


def new_topics_begin_at_their_end(patch: Patch) -> None:
    patch(planner, "_reset", lambda _states, _log, config: config.reset)


def truncation_ignored(patch: Patch) -> None:
    original = offsets.reconcile

    def reconcile(source: Any, recorded: Any, observed: Any, *arguments: Any) -> Any:
        if recorded is not None and observed is not None:
            observed = replace(observed, end=max(observed.end, recorded.planned_end))
        return original(source, recorded, observed, *arguments)

    patch(offsets, "reconcile", reconcile)


def content_not_validated(patch: Patch) -> None:
    original = codec.from_bytes
    patch(codec, "from_bytes", lambda data, path, build, *_: original(data, path, build))


def faults_of_the_store_counted(patch: Patch) -> None:
    patch(transactions, "failed_by_a_server", lambda _: False)


def never_divided(patch: Patch) -> None:
    patch(batches, "divided", lambda *_: {})


def retry_by_the_same_writer(patch: Patch) -> None:
    original = batches.assigned

    def assigned(tasks: Any, members: Any, writers: Any, left_out: Any, attempt: int, *rest: Any) -> Any:
        return original(tasks, members, writers, (), 1, *rest)

    patch(batches, "assigned", assigned)


def same_deadline_for_every_attempt(patch: Patch) -> None:
    original = planner.new_header

    def new_header(view: Any, table: Any, config: Any, *rest: Any) -> Any:
        return replace(original(view, table, config, *rest), timeout=config.timeout)

    patch(planner, "new_header", new_header)


def older_table_accepted(patch: Patch) -> None:
    original = recovery.compare_with_table

    def compare_with_table(*arguments: Any) -> Any:
        comparison = original(*arguments)
        return recovery.InStep() if isinstance(comparison, recovery.Ahead) else comparison

    patch(recovery, "compare_with_table", compare_with_table)


def backup_believed_against_the_table(patch: Patch) -> None:
    original = recovery._has_to_follow

    def has_to_follow(state: Any, table_end: Any, is_behind: bool) -> Any:
        return original(state, table_end, False)

    patch(recovery, "_has_to_follow", has_to_follow)


def slices_for_draining_workers(patch: Patch) -> None:
    def eligible(members: Any, excluded: Any) -> Any:
        return tuple(m for m in sorted(members) if m.worker not in excluded) or tuple(sorted(members))

    patch(assignment, "eligible", eligible)
