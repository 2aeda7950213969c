"""Ways to break the protocol in how slices become write tasks, files and reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coordination.machines import transactions
from coordination.machines.participant import Participant
from coordination.machines.term import Term
from coordination.planning import batches, continuity, planner, write_tasks
from coordination.state.messages import FileCheck
from coordination.state.model import WriteTask
from sink.layout import file_ids
from tests.simulation.broken_decisions import Patch
from tests.simulation.table import SimTable, stat_of


def grouped_by_the_assignment(patch: Patch) -> None:
    """Plans each worker's slices as one write task."""
    original = batches.assigned

    def assigned(*arguments: Any) -> Any:
        plan = original(*arguments)
        return replace(plan, tasks={name: (WriteTask(pieces),) for name, pieces in plan.slices.items()})

    patch(batches, "assigned", assigned)


def _planned_with(change: Callable[[tuple[WriteTask, ...]], tuple[WriteTask, ...]]) -> Callable[[Patch], None]:
    """Changes the plan alone: a commit is still checked against the recorded ranges."""

    def apply(patch: Patch) -> None:
        original = planner._open

        def open_batch(batch: int, attempt: int, tasks: Any, *rest: Any) -> Any:
            return original(batch, attempt, change(tasks), *rest)

        patch(planner, "_open", open_batch)

    return apply


def _first_slice_twice(tasks: tuple[WriteTask, ...]) -> tuple[WriteTask, ...]:
    if len(tasks) < 2:
        return tasks
    return (*tasks[:-1], WriteTask((*tasks[-1].slices, tasks[0].slices[0])))


def _last_slice_left_out(tasks: tuple[WriteTask, ...]) -> tuple[WriteTask, ...]:
    if not tasks or len(tasks[-1].slices) < 2:
        return tasks
    return (*tasks[:-1], WriteTask(tasks[-1].slices[:-1]))


slice_in_two_tasks = _planned_with(_first_slice_twice)
slice_in_no_task = _planned_with(_last_slice_left_out)


def _grouped(change: Callable[[Any], Any]) -> Callable[[Patch], None]:
    def apply(patch: Patch) -> None:
        original = write_tasks.group_into_tasks
        patch(
            write_tasks,
            "group_into_tasks",
            lambda ranges: original((source, topic_id, change(recorded)) for source, topic_id, recorded in ranges),
        )

    return apply


grouped_by_live_settings = _grouped(lambda r: replace(r, task_records=7))


def grouped_from_a_partial_reading(patch: Patch) -> None:
    original = planner._re_form

    def re_form(states: Any, *rest: Any) -> Any:
        return original({source: states[source] for source in sorted(states)[: max(1, len(states) - 1)]}, *rest)

    patch(planner, "_re_form", re_form)


def as_many_tasks_as_slices(patch: Patch) -> None:
    patch(write_tasks, "least_target", lambda sizes, _: max(sizes, default=1))


def file_id_from_the_first_slice(patch: Patch) -> None:
    def identity(task: WriteTask) -> list[object]:
        piece = task.slices[0]
        return [piece.topic_id, piece.generation, piece.topic, piece.partition, piece.start, piece.end]

    patch(file_ids, "_identity", identity)


def reported_twice(patch: Patch) -> None:
    """The coordinator compares sets, and so misses a slice that is reported twice."""
    original = Participant._status

    def status(self: Participant, operation: Any, outcome: Any) -> Any:
        status = original(self, operation, outcome)
        return replace(status, results=(*status.results, *status.results[:1]))

    def report_mismatch(t: Any) -> str | None:
        reported = {result.slice for status in t.statuses.values() for result in status.results}
        return None if reported == set(t.plan) else "other slices"

    patch(Participant, "_status", status)
    patch(transactions, "report_mismatch", report_mismatch)


def files_of_no_task(patch: Patch) -> None:
    """The writer puts each slice into a file of its own, and the coordinator does not check file ids."""
    original = Participant._status

    def status(self: Participant, operation: Any, outcome: Any) -> Any:
        status = original(self, operation, outcome)
        return replace(status, stats=tuple(stat_of(WriteTask((result.slice,))) for result in status.results))

    check_files = SimTable.check_files
    patch(Participant, "_status", status)
    patch(SimTable, "check_files", lambda self, stats, tasks: FileCheck(check_files(self, stats, tasks).existing))


def division_that_keeps_the_size(patch: Patch) -> None:
    patch(batches, "_lowered", lambda part, _: part)


def tried_again_as_it_was(patch: Patch) -> None:
    patch(transactions, "ran_out_of_memory", lambda _: False)


def offsets_unchecked_under_the_lock(patch: Patch) -> None:
    patch(continuity, "discontinuity", lambda *_: None)


def offsets_unchecked_altogether(patch: Patch) -> None:
    """The coordinator compares neither recorded nor committed offsets with the table."""
    offsets_unchecked_under_the_lock(patch)
    patch(Term, "inconsistency", lambda *_: None)
