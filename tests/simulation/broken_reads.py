"""Ways to read another log than was planned, or to believe that nobody did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordination.machines import opening, transactions
from coordination.planning import log_continuity, planner
from coordination.state.failures import Halt, HaltKind
from tests.simulation import log
from tests.simulation.broken_decisions import Patch
from tests.simulation.reading import Reading


def every_report_believed(patch: Patch) -> None:
    patch(transactions, "misread", lambda _: None)


def reported_as_planned(patch: Patch) -> None:
    original = Reading.reported

    def reported(self: Reading, r: Any) -> Any:
        return replace(original(self, r), cluster=self.cluster, topic_id=r.piece.topic_id)

    patch(Reading, "reported", reported)


def change_within_a_range_unnoticed(patch: Patch) -> None:
    patch(Reading, "has_changed", lambda *_: False)


def clusters_not_compared(patch: Patch) -> None:
    original = log_continuity.misread

    def misread(tasks: Any, reads: Any, cluster: str) -> Any:
        return original(tasks, [replace(read, cluster=cluster) for read in reads], cluster)

    patch(log_continuity, "misread", misread)


def coordinators_cluster_not_compared(patch: Patch) -> None:
    patch(planner, "other_cluster", lambda *_: None)


def halted_though_others_could_lead(patch: Patch) -> None:
    patch(opening, "_stand_back", lambda term, reason: term.halt(Halt(HaltKind.ANOTHER_CLUSTER, reason, at=term.wall)))


def topic_ids_not_compared(patch: Patch) -> None:
    original = log_continuity.misread

    def misread(tasks: Any, reads: Any, cluster: str) -> Any:
        tasks = tuple(tasks)
        planned = {piece.topic: piece.topic_id for task in tasks for piece in task.slices}
        return original(tasks, [replace(read, topic_id=planned[read.topic]) for read in reads], cluster)

    patch(log_continuity, "misread", misread)


def changed_log_read_on(patch: Patch) -> None:
    patch(transactions, "changed_log", lambda *_: None)


def anchors_left_out_of_the_checkpoint(patch: Patch) -> None:
    original = transactions.checkpoint

    def checkpoint(*arguments: Any) -> Any:
        made = original(*arguments)
        return replace(made, ends={source: replace(end, anchor=None) for source, end in made.ends.items()})

    patch(transactions, "checkpoint", checkpoint)


def open_transactions_read(patch: Patch) -> None:
    patch(log._Partition, "readable_end", property(lambda self: self.end))
